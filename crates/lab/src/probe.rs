//! Measures the network itself, before any broker runs: round trips between every pair of sites, and the throughput of a TCP connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use thicket_bench::namespace::inside;
use thicket_bench::random::Random;

use crate::delay::Delay;
use crate::error::LabError;
use crate::net::{self, Site};
use crate::priority::Priority;
use crate::topology::{Topology, broker_address};

/// The port of the echo and the sink.
const PORT: u16 = 7;
/// Pairs probed at a time: more would measure the scheduler.
const AT_A_TIME: usize = 8;
/// Probes sent before the counted ones: the first packets find cold caches.
const WARM_UP: usize = 3;
/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often a measurement is made before a deviation counts.
const ATTEMPTS: usize = 3;
/// Priority of the prober, below that of the link process.
const PRIORITY: u8 = 40;
/// Allowed difference of the median, in milliseconds.
const TOLERANCE_MS: f64 = 0.5;
/// Allowed difference as a share of what is expected.
const TOLERANCE: f64 = 0.05;

/// Round trips between the brokers of two sites, in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PairRtt {
    /// One site.
    pub a: String,
    /// The other.
    pub b: String,
    /// The median over the path of links.
    pub expected_ms: f64,
    /// Where the median of so many probes is by chance, from and to: both are `expected_ms` where no delay varies.
    pub by_chance_ms: [f64; 2],
    /// Fastest.
    pub min_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Probes without an answer.
    pub lost: usize,
}

impl PairRtt {
    /// Whether the median is as in the scenario, within 0.5 ms or 5 %, beyond what is chance.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let allowed = TOLERANCE_MS.max(self.expected_ms * TOLERANCE);
        let [least, most] = self.by_chance_ms;
        (least - allowed..=most + allowed).contains(&self.p50_ms)
    }

    /// The pair with its figures, for a message.
    #[must_use]
    pub fn describe(&self) -> String {
        format!(
            "RTT {} - {}: {:.2} ms expected, median {:.2}, p99 {:.2}",
            self.a, self.b, self.expected_ms, self.p50_ms, self.p99_ms
        )
    }
}

/// Draws from which quantiles of a path are taken.
const DRAWS: usize = 20_000;
/// The normal quantile of what is no longer chance: one of 3000 medians is beyond it on either side.
const CHANCE: f64 = 3.6;

/// The median round trip over links with these delays each way, and where that of `probes` probes is by chance.
fn expected_ms(delays: &[Delay], probes: usize) -> (f64, [f64; 2]) {
    if delays.iter().all(Delay::is_constant) {
        let sum = 2.0 * delays.iter().map(Delay::mean_ms).sum::<f64>();
        return (sum, [sum; 2]);
    }
    let mut random = Random::new(1);
    let mut round_trip = || -> f64 {
        let both_ways = delays.iter().chain(delays);
        both_ways.map(|delay| delay.draw_ms(&mut random)).sum()
    };
    let mut drawn: Vec<f64> = (0..DRAWS).map(|_| round_trip()).collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * DRAWS as f64) as usize;
        drawn[place.min(DRAWS - 1)]
    };
    // How many of the probes are below the true median is binomial.
    let apart = CHANCE / 2.0 / (probes.max(1) as f64).sqrt();
    (at(0.5), [at((0.5 - apart).max(0.0)), at(0.5 + apart)])
}

/// Probes every pair `probes` times, and again if some median is off: a busy machine may have delayed the prober, not the network. An error of `goes_on`
/// ends it.
pub fn round_trips(
    topology: &Topology,
    sites: &[Site],
    probes: usize,
    goes_on: &dyn Fn() -> Result<(), LabError>,
) -> Result<Vec<PairRtt>, LabError> {
    let _first = Priority::raise(PRIORITY);
    let mut measured = measure(topology, sites, probes, goes_on)?;
    for _ in 1..ATTEMPTS {
        if measured.iter().all(PairRtt::is_right) {
            break;
        }
        measured = measure(topology, sites, probes, goes_on)?;
    }
    Ok(measured)
}

fn measure(
    topology: &Topology,
    sites: &[Site],
    probes: usize,
    goes_on: &dyn Fn() -> Result<(), LabError>,
) -> Result<Vec<PairRtt>, LabError> {
    let stop = AtomicBool::new(false);
    let pairs: Vec<(usize, usize)> = (0..sites.len())
        .flat_map(|a| (a + 1..sites.len()).map(move |b| (a, b)))
        .collect();
    std::thread::scope(|scope| {
        for (number, site) in sites.iter().enumerate() {
            let socket = udp(&net::path(&site.broker), broker_address(number), PORT)?;
            scope.spawn(|| echo(socket, &stop));
        }
        let mut measured = Vec::new();
        let result = pairs.chunks(AT_A_TIME).try_for_each(|chunk| {
            goes_on()?;
            let threads: Vec<_> = chunk
                .iter()
                .map(|&(a, b)| {
                    let path = net::path(&sites[a].broker);
                    scope.spawn(move || probe(&path, a, b, probes))
                })
                .collect();
            for (thread, &(a, b)) in threads.into_iter().zip(chunk) {
                let samples = thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                    .map_err(LabError::io("probe"))?;
                measured.push(figures(topology, a, b, probes, samples));
            }
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        result.map(|()| measured)
    })
}

fn udp(namespace: &Path, address: Ipv4Addr, port: u16) -> Result<UdpSocket, LabError> {
    inside(namespace, || UdpSocket::bind((address, port)))
        .and_then(|bound| bound)
        .map_err(LabError::io(format!("{address}:{port}")))
}

fn echo(socket: UdpSocket, stop: &AtomicBool) {
    let mut buffer = [0; 64];
    let _ = socket.set_read_timeout(Some(Duration::from_millis(50)));
    while !stop.load(Ordering::Relaxed) {
        if let Ok((len, peer)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], peer);
        }
    }
}

fn probe(namespace: &Path, from: usize, to: usize, probes: usize) -> io::Result<Vec<f64>> {
    let socket = inside(namespace, || UdpSocket::bind((broker_address(from), 0)))??;
    socket.connect((broker_address(to), PORT))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut samples = Vec::with_capacity(probes);
    let mut buffer = [0; 64];
    for number in 0..(probes + WARM_UP) as u64 {
        let start = Instant::now();
        socket.send(&number.to_le_bytes())?;
        // An answer to an earlier probe that timed out is ignored.
        let answered = loop {
            match socket.recv(&mut buffer) {
                Ok(8) if buffer[..8] == number.to_le_bytes() => break true,
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        if answered && number >= WARM_UP as u64 {
            samples.push(start.elapsed().as_secs_f64() * 1000.0);
        }
    }
    Ok(samples)
}

fn figures(
    topology: &Topology,
    a: usize,
    b: usize,
    probes: usize,
    mut samples: Vec<f64>,
) -> PairRtt {
    samples.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = ((samples.len() as f64 * share).ceil() as usize).max(1) - 1;
        samples.get(place).copied().unwrap_or(f64::NAN)
    };
    let (expected_ms, by_chance_ms) = expected_ms(&topology.delays(a, b), probes);
    PairRtt {
        a: topology.sites[a].clone(),
        b: topology.sites[b].clone(),
        expected_ms,
        by_chance_ms,
        min_ms: at(0.0),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        lost: probes - samples.len(),
    }
}

/// Goodput of one TCP connection from a site's broker to another's over `seconds`, in Mbit/s, after a second of start-up.
pub fn tcp_goodput(sites: &[Site], from: usize, to: usize, seconds: f64) -> Result<f64, LabError> {
    let failed = || LabError::io("TCP between sites");
    let listener = inside(&net::path(&sites[to].broker), || {
        TcpListener::bind((broker_address(to), PORT))
    })
    .and_then(|bound| bound)
    .map_err(failed())?;
    let sender = inside(&net::path(&sites[from].broker), || {
        TcpStream::connect(SocketAddr::from((broker_address(to), PORT)))
    })
    .and_then(|connected| connected)
    .map_err(failed())?;
    let (receiver, _) = listener.accept().map_err(failed())?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // It ends when the receiver closes.
            let block = [0; 16 * 1024];
            while (&sender).write_all(&block).is_ok() {}
        });
        let result = count(&receiver, seconds).map_err(failed());
        let _ = receiver.shutdown(std::net::Shutdown::Both);
        let _ = sender.shutdown(std::net::Shutdown::Both);
        result
    })
}

fn count(mut receiver: &TcpStream, seconds: f64) -> io::Result<f64> {
    let mut block = vec![0; 64 * 1024];
    let start = Instant::now();
    let (mut from, mut bytes) = (None, 0);
    loop {
        let len = receiver.read(&mut block)?;
        let now = start.elapsed().as_secs_f64();
        match from {
            None if now >= 1.0 => from = Some(now),
            None => {}
            Some(from) => {
                bytes += len;
                if now - from >= seconds || len == 0 {
                    return Ok(bytes as f64 * 8.0 / 1e6 / (now - from));
                }
            }
        }
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(expected_ms: f64, p50_ms: f64) -> PairRtt {
        PairRtt {
            a: "s1".to_owned(),
            b: "s2".to_owned(),
            expected_ms,
            by_chance_ms: [expected_ms; 2],
            min_ms: p50_ms,
            p50_ms,
            p99_ms: p50_ms,
            lost: 0,
        }
    }

    #[test]
    fn a_round_trip_is_right_within_half_a_millisecond_or_5_percent() {
        for (expected, measured, right) in [
            (5.0, 5.4, true),
            (5.0, 5.6, false),
            (50.0, 52.4, true),
            (50.0, 47.4, false),
            (0.0, 0.1, true),
            (5.0, f64::NAN, false),
        ] {
            assert_eq!(
                pair(expected, measured).is_right(),
                right,
                "{expected} {measured}"
            );
        }
    }

    #[test]
    fn a_median_of_few_probes_may_be_off_by_chance_and_no_more() {
        assert_eq!(
            expected_ms(&[Delay::Constant { ms: 2.5 }; 2], 15),
            (10.0, [10.0; 2])
        );
        // The sum of two uniform delays is triangular: its quantile at a share p below one half is 10 + 10 sqrt(2 p).
        let uniform = Delay::Uniform {
            min_ms: 5.0,
            max_ms: 15.0,
        };
        let (median, [least, most]) = expected_ms(&[uniform], 400);
        assert!((median - 20.0).abs() < 0.1, "{median}");
        let expected = 10.0 + 10.0 * (2.0_f64 * 0.41).sqrt();
        assert!((least - expected).abs() < 0.1, "{least}");
        assert!((most - (40.0 - expected)).abs() < 0.1, "{most}");
    }
}
