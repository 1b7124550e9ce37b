//! Nodes that fail under load: how many acknowledged messages are missing, how many arrive twice, and how long the failover takes (Comparison M5, and
//! stronger).
//!
//! Clients are threads that do one thing at a time, because deliveries are measured and not speed: each has a persistent session, reconnects to
//! whichever node answers or where a node redirects it, and completes open exchanges as MQTT requires. Every message is numbered; loss is counted
//! against the messages that were acknowledged to their publishers (PUBACK, or PUBREC at QoS 2).

mod client;
mod cluster;
mod faults;
mod ledger;
mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use thicket_mqtt::{ProtocolVersion, Qos};

use client::{Home, Plan, Reconnect, publish, subscribe, version_of};
pub use cluster::{Cluster, CrashNode, NodeControl};
pub use faults::{Faults, Library};
use ledger::Ledger;
pub use ledger::Tally;
pub use timeline::time_line;

use crate::BenchError;
use crate::random::Random;
use crate::stop::Stop;

/// Longest wait for a node to serve again, and for clients to subscribe.
const SERVES_WITHIN: Duration = Duration::from_secs(60);
/// Longest wait for sessions to have their backups again.
const COPIES_WITHIN: Duration = Duration::from_secs(120);
/// When nothing arrives for this long, missing messages will not arrive.
const QUIET: Duration = Duration::from_secs(3);
/// Longest wait for the last messages.
const DRAIN: Duration = Duration::from_secs(60);

/// The load on the cluster while nodes fail.
#[derive(Debug, Clone, PartialEq)]
pub struct CrashLoad {
    /// Messages a second of all publishers together.
    pub rate: f64,
    /// Bytes of a payload, at least 16.
    pub payload_len: usize,
    /// One entry for each publisher: its QoS and the node it prefers.
    pub publishers: Vec<(Qos, usize)>,
    /// One entry for each subscriber to everything: the node it prefers.
    pub subscribers: Vec<usize>,
}

/// A fault of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is killed, and restarted.
    Kill,
    /// It is paused (SIGSTOP), and resumed (SIGCONT).
    Pause,
    /// Its disk syncs nothing for a while.
    StallDisk,
    /// Its wall clock jumps this far ahead or back, at random, or to the right time again.
    ClockJump {
        /// How far.
        by: Duration,
    },
}

/// Which nodes fail, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Deaths {
    /// One node, once (M5).
    Once {
        /// The node.
        node: usize,
        /// The fault.
        fault: Fault,
        /// How long it is paused, if it is.
        down: Duration,
        /// Load before it.
        before: Duration,
        /// Load after it.
        after: Duration,
    },
    /// All nodes at once, as after a loss of power. They start again in a random order, one after
    /// the other.
    Reboot {
        /// Time between two starts.
        gap: Duration,
        /// Load before it.
        before: Duration,
        /// Load after the last one serves.
        after: Duration,
        /// For the order.
        seed: u64,
    },
    /// Nodes at random, one at a time, each restarted.
    Random {
        /// The fault.
        fault: Fault,
        /// Total time.
        during: Duration,
        /// Shortest time between two faults.
        every: Duration,
        /// How long a node is down.
        down: Duration,
        /// The next fault waits until every session has its backups again.
        waits: bool,
        /// For the choice of nodes.
        seed: u64,
    },
}

/// The result of one scenario.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CrashResult {
    /// Nodes killed, or paused.
    pub kills: u64,
    /// All subscribers together, messages published at QoS 1.
    pub qos_1: Tally,
    /// All subscribers together, messages published at QoS 2.
    pub qos_2: Tally,
    /// Missed messages by subscriber, in the order of [`CrashLoad::subscribers`].
    pub missed_by: Vec<u64>,
    /// Messages that arrived twice, likewise.
    pub doubled_by: Vec<u64>,
    /// Messages that brokers refused with a reason code.
    pub refused: u64,
    /// Messages sent and never acknowledged: their loss is allowed.
    pub unacknowledged: u64,
    /// Server References that clients received and followed.
    pub redirects: u64,
    /// Reconnects without a session, of publishers and subscribers.
    pub sessions_lost: u64,
    /// From the loss of a connection to its CONNACK, for each reconnect of a subscriber, in milliseconds.
    pub reconnect_ms: Vec<f64>,
    /// From that CONNACK to the first message, each, in milliseconds.
    pub resume_ms: Vec<f64>,
    /// Messages to each subscriber in each tenth of a second since the start.
    pub tenths_by: Vec<Vec<u32>>,
    /// Clients connected after each change of their number, with its time in seconds since the start.
    pub connections: Vec<(f64, u32)>,
    /// Times of the faults, in seconds since the start.
    pub faults_s: Vec<f64>,
    /// Times at which subscribers had reconnected, likewise.
    pub reconnected_s: Vec<f64>,
    /// Faults that did not wait until all sessions had their backups, because that took too long.
    pub impatient: u64,
}

/// Runs one scenario against a cluster whose nodes all serve; they serve again when it ends. If it is stopped before, the result is what was counted until
/// then, and the nodes are as they were.
///
/// # Errors
/// A node does not serve again, a command fails, or a client is refused.
pub fn crash(
    cluster: &mut Cluster,
    load: &CrashLoad,
    deaths: Deaths,
    say: &mut dyn FnMut(String),
) -> Result<CrashResult, BenchError> {
    if load.payload_len < ledger::STAMP || load.publishers.is_empty() {
        let problem = "a payload has 16 bytes or more, and somebody must publish";
        return Err(BenchError::Setting(problem.into()));
    }
    let addresses = cluster.addresses();
    let run = Run::start(addresses, load, &cluster.stop)?;
    let mut result = CrashResult::default();
    let ledger = Arc::clone(&run.ledger);
    let outcome = kill(cluster, deaths, &ledger, &mut result, say);
    if cluster.stop.is_set() {
        run.leave(&mut result);
        return Ok(result);
    }
    // The clients are ended whatever the result of the faults.
    let stopped = run.stop(&mut result);
    outcome?;
    stopped?;
    Ok(result)
}

fn kill(
    cluster: &mut Cluster,
    deaths: Deaths,
    ledger: &Ledger,
    result: &mut CrashResult,
    say: &mut dyn FnMut(String),
) -> Result<(), BenchError> {
    match deaths {
        Deaths::Once {
            node,
            fault: fault @ (Fault::Pause | Fault::StallDisk | Fault::ClockJump { .. }),
            down,
            before,
            after,
        } => {
            await_copies(cluster, result)?;
            cluster.stop.sleep(before)?;
            disturb(cluster, node, (fault, down), 1, ledger, result, say)?;
            cluster.stop.sleep(after)?;
            cluster.await_sight(SERVES_WITHIN)
        }
        Deaths::Once {
            node,
            fault: Fault::Kill,
            before,
            after,
            ..
        } => {
            await_copies(cluster, result)?;
            cluster.stop.sleep(before)?;
            cluster.kill(node)?;
            result.faults_s.push(ledger.now_s());
            result.kills += 1;
            say(format!("killed {}", cluster.name(node)));
            // A single node has no failover: it restarts at once.
            if cluster.len() == 1 {
                cluster.start(node, SERVES_WITHIN)?;
            }
            cluster.stop.sleep(after)?;
            if cluster.len() > 1 {
                cluster.start(node, SERVES_WITHIN)?;
            }
            Ok(())
        }
        Deaths::Reboot {
            gap,
            before,
            after,
            seed,
        } => {
            await_copies(cluster, result)?;
            cluster.stop.sleep(before)?;
            for node in 0..cluster.len() {
                cluster.kill(node)?;
                result.kills += 1;
            }
            result.faults_s.push(ledger.now_s());
            let mut order: Vec<usize> = (0..cluster.len()).collect();
            let mut random = Random::new(seed);
            order.sort_by_cached_key(|_| random.bits());
            let names: Vec<String> = order.iter().map(|node| cluster.name(*node)).collect();
            say(format!("killed all, starting {}", names.join(", ")));
            for (index, node) in order.iter().enumerate() {
                if index > 0 {
                    cluster.stop.sleep(gap)?;
                }
                cluster.launch(*node)?;
            }
            for node in order {
                cluster.await_service(node, SERVES_WITHIN)?;
            }
            cluster.await_sight(SERVES_WITHIN)?;
            cluster.stop.sleep(after)
        }
        Deaths::Random {
            fault,
            during,
            every,
            down,
            waits,
            seed,
        } => {
            let mut random = Random::new(seed);
            let mut directions = vec![0; cluster.len()];
            let end = Instant::now() + during;
            while Instant::now() + every + down < end {
                cluster.stop.sleep(every)?;
                if waits {
                    await_copies(cluster, result)?;
                }
                let node = random.below(cluster.len());
                if fault != Fault::Kill {
                    // A different state of the clock: ahead, right or back.
                    let turn = 1 + random.below(2) as i64;
                    directions[node] = (directions[node] + 1 + turn) % 3 - 1;
                    let direction = directions[node];
                    disturb(cluster, node, (fault, down), direction, ledger, result, say)?;
                    continue;
                }
                cluster.kill(node)?;
                result.faults_s.push(ledger.now_s());
                result.kills += 1;
                let left = end.saturating_duration_since(Instant::now()).as_secs();
                say(format!("killed {}, {left} s to go", cluster.name(node)));
                cluster.stop.sleep(down)?;
                cluster.start(node, SERVES_WITHIN)?;
            }
            cluster
                .stop
                .sleep(end.saturating_duration_since(Instant::now()))?;
            Ok(())
        }
    }
}

/// A fault of a node that stays alive; its clients stay connected unless they time out. `direction`: of a clock that jumps.
fn disturb(
    cluster: &mut Cluster,
    node: usize,
    (fault, down): (Fault, Duration),
    direction: i64,
    ledger: &Ledger,
    result: &mut CrashResult,
    say: &mut dyn FnMut(String),
) -> Result<(), BenchError> {
    let what = match fault {
        Fault::Kill => return Err(BenchError::Setting("a kill ends the node".into())),
        Fault::Pause => {
            cluster.pause(node)?;
            "stopped".to_owned()
        }
        Fault::StallDisk => {
            cluster.stall_disk(node, true)?;
            "stalled the disk of".to_owned()
        }
        Fault::ClockJump { by } => {
            let by = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
            let offset = direction * by;
            cluster.set_clock(node, offset)?;
            format!("{} s from the time is the clock of", offset / 1_000_000_000)
        }
    };
    result.faults_s.push(ledger.now_s());
    result.kills += 1;
    say(format!("{what} {}", cluster.name(node)));
    cluster.stop.sleep(down)?;
    match fault {
        Fault::Pause => cluster.resume(node),
        Fault::StallDisk => cluster.stall_disk(node, false),
        Fault::Kill | Fault::ClockJump { .. } => Ok(()),
    }
}

fn await_copies(cluster: &Cluster, result: &mut CrashResult) -> Result<(), BenchError> {
    if !cluster.await_copies(COPIES_WITHIN)? {
        result.impatient += 1;
    }
    Ok(())
}

/// The clients of a scenario.
struct Run {
    ledger: Arc<Ledger>,
    version: ProtocolVersion,
    publishing: Arc<AtomicBool>,
    receiving: Arc<AtomicBool>,
    stop: Stop,
    publishers: Vec<JoinHandle<Result<client::Published, BenchError>>>,
    subscribers: Vec<JoinHandle<Result<Vec<Reconnect>, BenchError>>>,
}

impl Run {
    /// Subscribers first: publishers start when all of them have subscribed.
    fn start(
        addresses: Vec<std::net::SocketAddr>,
        load: &CrashLoad,
        stop: &Stop,
    ) -> Result<Self, BenchError> {
        let ledger = Arc::new(Ledger::new(
            load.publishers.iter().map(|(qos, _)| *qos).collect(),
            load.subscribers.len(),
        ));
        let version = addresses
            .first()
            .map_or(ProtocolVersion::V5, |node| version_of(*node));
        let mut run = Self {
            ledger,
            version,
            publishing: Arc::new(AtomicBool::new(true)),
            receiving: Arc::new(AtomicBool::new(true)),
            stop: stop.clone(),
            publishers: Vec::new(),
            subscribers: Vec::new(),
        };
        let prefix = format!("crash-{}-{}", std::process::id(), cluster::unique());
        let addresses: Arc<[std::net::SocketAddr]> = addresses.into();
        for (index, &home) in load.subscribers.iter().enumerate() {
            let plan = run.plan(&prefix, "s", index, home, &addresses, &run.receiving);
            run.subscribers
                .push(std::thread::spawn(move || subscribe(&plan)));
        }
        let began = Instant::now();
        while run.ledger.in_service() < load.subscribers.len() {
            let is_over = run.subscribers.iter().any(JoinHandle::is_finished);
            if is_over || began.elapsed() > SERVES_WITHIN {
                run.publishing.store(false, Ordering::Relaxed);
                run.stop(&mut CrashResult::default())?;
                return Err(BenchError::Timeout {
                    what: "bringing subscribers into service".to_owned(),
                    seconds: SERVES_WITHIN.as_secs(),
                });
            }
            if stop.is_set() {
                run.leave(&mut CrashResult::default());
                return Err(BenchError::Stopped);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let interval = Duration::from_secs_f64(load.publishers.len() as f64 / load.rate);
        for (index, &(qos, home)) in load.publishers.iter().enumerate() {
            let plan = run.plan(&prefix, "p", index, home, &addresses, &run.publishing);
            let payload_len = load.payload_len;
            run.publishers.push(std::thread::spawn(move || {
                publish(&plan, qos, interval, payload_len)
            }));
        }
        Ok(run)
    }

    fn plan(
        &self,
        prefix: &str,
        role: &str,
        index: usize,
        node: usize,
        addresses: &Arc<[std::net::SocketAddr]>,
        goes_on: &Arc<AtomicBool>,
    ) -> Plan {
        Plan {
            client_id: format!("{prefix}-{role}{index}"),
            topic: format!("{prefix}/"),
            index,
            home: Home {
                addresses: Arc::clone(addresses),
                first: node,
                version: self.version,
            },
            ledger: Arc::clone(&self.ledger),
            goes_on: Arc::clone(goes_on),
            stop: self.stop.clone(),
        }
    }

    /// Sums up what was counted, without waiting for the clients: they end by themselves.
    fn leave(self, result: &mut CrashResult) {
        self.publishing.store(false, Ordering::Relaxed);
        self.receiving.store(false, Ordering::Relaxed);
        self.ledger.add_up(result);
    }

    /// Waits for the last messages and sums everything up.
    fn stop(self, result: &mut CrashResult) -> Result<(), BenchError> {
        self.publishing.store(false, Ordering::Relaxed);
        let mut problem = None;
        for publisher in self.publishers {
            match publisher.join() {
                Ok(Ok(published)) => {
                    result.refused += published.refused;
                    result.unacknowledged += published.unacknowledged;
                    result.sessions_lost += published.sessions_lost;
                }
                Ok(Err(error)) => problem = Some(error),
                Err(_) => problem = Some(BenchError::Setting("a publisher panicked".into())),
            }
        }
        self.ledger.drain(QUIET, DRAIN);
        self.receiving.store(false, Ordering::Relaxed);
        for subscriber in self.subscribers {
            match subscriber.join() {
                Ok(Ok(reconnects)) => {
                    for reconnect in reconnects {
                        result.sessions_lost += u64::from(!reconnect.session_present);
                        result.reconnected_s.push(reconnect.at_s);
                        result.reconnect_ms.push(in_ms(reconnect.away));
                        result.resume_ms.extend(reconnect.resumed.map(in_ms));
                    }
                }
                Ok(Err(error)) => problem = Some(error),
                Err(_) => problem = Some(BenchError::Setting("a subscriber panicked".into())),
            }
        }
        self.ledger.add_up(result);
        problem.map_or(Ok(()), Err)
    }
}

fn in_ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
