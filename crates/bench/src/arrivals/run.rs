//! The run: arrivals, messages, and figures of each second.

use std::io;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use serde::Serialize;

use super::client::{Answer, Client, Load, Phase, Received, Role, open};
use super::types::{Attach, PublisherType, Redirect};
use crate::BenchError;
use crate::generator::{Node, Watch};
use crate::outcome::Latency;
use crate::process::{self, CpuReading};
use crate::socket::ReadOutcome;

/// Time between two checks for due messages.
const TICK: Duration = Duration::from_millis(1);
/// Longest wait for a client to be accepted.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Most clients that start to connect in one tick.
const ARRIVALS: usize = 20;
/// Most brokers that references may lead to.
const MOST_BROKERS: usize = 64;
/// Longest wait for the last messages, when publishers have ended.
const DRAIN: Duration = Duration::from_secs(2);
const READ_BYTES: usize = 64 * 1024;

/// Brokers by name, and messages a second of each.
pub type Rates = [(String, f64)];

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Arrivals {
    /// Brokers, or dispatchers; at least one.
    pub nodes: Vec<Node>,
    /// Each publisher in the order of arrival.
    pub publishers: Vec<PublisherType>,
    /// Subscribers, each of all that is published; they are there before the first publisher.
    pub subscribers: usize,
    /// Time between two arrivals.
    pub ramp: Duration,
    /// Time after the last arrival.
    pub hold: Duration,
    /// Where clients connect first.
    pub attach: Attach,
    /// How a Server Reference is handled.
    pub redirect: Redirect,
    /// First level of topics and beginning of client identifiers.
    pub prefix: String,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArrivalsOutcome {
    /// Brokers that publishers were connected to, by name.
    pub brokers: Vec<BrokerSeries>,
    /// Watched processes, in the order given.
    pub processes: Vec<ProcessSeries>,
    /// References followed: CONNACK and DISCONNECT.
    pub redirects: u64,
    /// Difference of the rates of the busiest and the least busy broker after the last arrival, in messages a second.
    pub difference_per_s: f64,
    /// Mean CPU of the generator, 1 is one core.
    pub own_cores: f64,
    /// How late a publisher sent a message at most, in milliseconds: because the generator did not run, or the broker did not read.
    pub behind_schedule_ms: f64,
    /// What subscribers received; `None` without any.
    pub received: Option<Receipt>,
}

/// What came to all subscribers together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Receipt {
    /// Messages.
    pub messages: u64,
    /// Messages that were published and did not come, counted once for each subscriber.
    pub lost: u64,
    /// Delays, of payloads of 16 bytes and more.
    pub latency: Option<Latency>,
    /// Mean rate after the last arrival, its first two seconds left out.
    pub at_end_per_s: f64,
    /// End of each second from the start on, and messages a second in it.
    pub rates: Vec<(f64, f64)>,
}

/// Messages of one broker over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BrokerSeries {
    /// HOST:PORT.
    pub broker: String,
    /// Publishers there at the end.
    pub publishers: usize,
    /// Mean rate after the last arrival, its first two seconds left out.
    pub at_end_per_s: f64,
    /// End of each second from the start on, and messages a second in it.
    pub rates: Vec<(f64, f64)>,
}

/// CPU and memory of one process over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessSeries {
    /// Its identifier.
    pub pid: u32,
    /// By seconds.
    pub points: Vec<Use>,
}

/// CPU and memory of a process in a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Use {
    /// End of the second, from the start on.
    pub at_s: f64,
    /// CPU seconds a second: 1 is one core.
    pub cores: f64,
    /// Proportional memory at its end.
    pub pss_kib: u64,
}

struct Run<'a> {
    arrivals: &'a Arrivals,
    poll: Poll,
    /// Subscribers come first.
    clients: Vec<Client>,
    received: Received,
    /// The node whose turn it is: those that do not answer are passed over.
    turn: usize,
    brokers: Vec<Node>,
    /// Messages of connections that have ended, by broker.
    finished: Vec<u64>,
    buffer: Vec<u8>,
    start: Instant,
    redirects: u64,
    /// When a client was last accepted or started to connect.
    moved: Instant,
}

/// Runs until the last publisher has published for `hold`. `progress` receives the rates of each broker every second.
pub fn run(
    arrivals: &Arrivals,
    watch: &Watch,
    progress: &mut dyn FnMut(f64, &Rates),
) -> Result<ArrivalsOutcome, BenchError> {
    if arrivals.nodes.is_empty() || arrivals.publishers.is_empty() {
        return Err(BenchError::Setting(
            "there is no broker or no publisher".to_owned(),
        ));
    }
    let _ = process::raise_open_files();
    let mut run = Run {
        arrivals,
        poll: Poll::new().map_err(BenchError::system("epoll"))?,
        clients: Vec::new(),
        received: Received::default(),
        turn: 0,
        brokers: Vec::new(),
        finished: Vec::new(),
        buffer: vec![0; READ_BYTES],
        start: Instant::now(),
        redirects: 0,
        moved: Instant::now(),
    };
    let mut seconds = Seconds::begin(watch)?;
    let mut events = Events::with_capacity(1024);
    let (subscribers, all) = (
        arrivals.subscribers,
        arrivals.subscribers + arrivals.publishers.len(),
    );
    let (mut first_arrival, mut last_arrival) = (None, None);
    loop {
        let elapsed = run.start.elapsed();
        for _ in 0..ARRIVALS {
            let is_due = match run.clients.len() {
                // All subscribers come at once, and publishers when these are there.
                count if count < subscribers => true,
                count if count == all => false,
                count if count == subscribers && !run.all_active() => false,
                count => {
                    let first = *first_arrival.get_or_insert(elapsed);
                    elapsed >= first + arrivals.ramp * (count - subscribers) as u32
                }
            };
            if is_due {
                run.arrive()?;
            }
        }
        if run.clients.len() == all && run.all_active() {
            let since = *last_arrival.get_or_insert(elapsed);
            if elapsed >= since + arrivals.hold {
                break;
            }
        }
        run.round(&mut events, Client::publish)?;
        if let Some(rates) = seconds.look(&run, watch) {
            progress(run.start.elapsed().as_secs_f64(), &rates);
        }
    }
    run.drain(&mut events)?;
    let from_s = last_arrival.unwrap_or_default().as_secs_f64() + 2.0;
    Ok(run.outcome(seconds, from_s))
}

impl Run<'_> {
    fn all_active(&self) -> bool {
        self.clients.iter().all(|one| one.phase == Phase::Active)
    }

    /// The next client connects.
    fn arrive(&mut self) -> Result<(), BenchError> {
        let index = self.clients.len();
        let Arrivals {
            prefix,
            subscribers,
            publishers,
            ..
        } = self.arrivals;
        let (client_id, role) = match index.checked_sub(*subscribers) {
            None => (
                format!("{prefix}-s{index}"),
                Role::Subscriber(format!("{prefix}/type/+")),
            ),
            Some(place) => {
                let load = Load::new(&format!("{prefix}/type/{place}"), publishers[place])?;
                (format!("{prefix}-p{place}"), Role::Publisher(load))
            }
        };
        let node = self.next_in_turn();
        let broker = self.broker(&node)?;
        let stream = self.connect(&node, index)?;
        self.clients
            .push(Client::new(stream, client_id, role, broker));
        self.moved = Instant::now();
        Ok(())
    }

    /// Where the next attempt is made.
    fn next_in_turn(&mut self) -> Node {
        let nodes = &self.arrivals.nodes;
        match self.arrivals.attach {
            Attach::RoundRobin | Attach::Dispatch => {
                let node = nodes[self.turn % nodes.len()].clone();
                self.turn += 1;
                node
            }
            Attach::Redirect => nodes[0].clone(),
        }
    }

    fn connect(&self, node: &Node, index: usize) -> Result<mio::net::TcpStream, BenchError> {
        let unreachable = |source| BenchError::Unreachable {
            node: node.name.clone(),
            source,
        };
        let mut stream = open(node.address).map_err(unreachable)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        registry
            .register(&mut stream, Token(index), interest)
            .map_err(unreachable)?;
        Ok(stream)
    }

    /// The index of a broker, existing or new.
    fn broker(&mut self, node: &Node) -> Result<usize, BenchError> {
        if let Some(at) = self
            .brokers
            .iter()
            .position(|one| one.address == node.address)
        {
            return Ok(at);
        }
        if self.brokers.len() == MOST_BROKERS {
            return Err(BenchError::Setting(format!(
                "references lead to more than {MOST_BROKERS} brokers"
            )));
        }
        self.brokers.push(node.clone());
        self.finished.push(0);
        Ok(self.brokers.len() - 1)
    }

    /// Waits for what has been published, but not longer than `DRAIN` for the next message.
    fn drain(&mut self, events: &mut Events) -> Result<(), BenchError> {
        let mut last = (self.received.messages, Instant::now());
        loop {
            let published: u64 = self.published().iter().sum();
            let unsent = self.clients.iter().any(|one| one.socket.unsent() > 0);
            let expected = published * self.arrivals.subscribers as u64;
            let is_complete = !unsent && self.received.messages >= expected;
            if self.arrivals.subscribers == 0 || is_complete || last.1.elapsed() > DRAIN {
                return Ok(());
            }
            self.round(events, |client, _| client.socket.write())?;
            if self.received.messages > last.0 {
                last = (self.received.messages, Instant::now());
            }
        }
    }

    /// `send`: what each client that is active does, with the time.
    fn round(
        &mut self,
        events: &mut Events,
        send: fn(&mut Client, u64) -> io::Result<()>,
    ) -> Result<(), BenchError> {
        match self.poll.poll(events, Some(TICK)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(BenchError::system("epoll")(error));
            }
            _ => {}
        }
        for event in &*events {
            let index = event.token().0;
            if event.is_writable() && self.clients[index].phase == Phase::Connecting {
                self.connected(index)?;
            }
            if event.is_readable() {
                self.read(index)?;
            }
        }
        let now_ns = self.start.elapsed().as_nanos() as u64;
        let mut waiting = false;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if client.phase != Phase::Active {
                waiting = true;
                continue;
            }
            if let Err(source) = send(client, now_ns) {
                // The socket may contain the reason.
                self.read(index)?;
                if self.clients[index].phase == Phase::Active {
                    return Err(self.closed(index, source));
                }
            }
        }
        if waiting && self.moved.elapsed() > TIMEOUT {
            return Err(BenchError::Timeout {
                what: "connecting a client".to_owned(),
                seconds: TIMEOUT.as_secs(),
            });
        }
        Ok(())
    }

    fn connected(&mut self, index: usize) -> Result<(), BenchError> {
        let stream = &self.clients[index].socket.stream;
        let failure = match stream.take_error() {
            Ok(None) => stream.peer_addr().err(),
            Ok(Some(error)) | Err(error) => Some(error),
        };
        let failure = match failure {
            Some(error) if error.kind() == io::ErrorKind::NotConnected => return Ok(()),
            Some(error) => Some(error),
            None => self.clients[index].greet().err(),
        };
        match failure {
            Some(error) => self.next_entry(index, error),
            None => Ok(()),
        }
    }

    /// Tries another dispatcher or broker, if there is one.
    fn next_entry(&mut self, index: usize, source: io::Error) -> Result<(), BenchError> {
        let client = &self.clients[index];
        let broker = self.brokers[client.broker].clone();
        let may_go = self.arrivals.attach != Attach::Redirect && client.hops == 0;
        self.clients[index].silent.push(broker.address);
        for _ in 0..self.arrivals.nodes.len() {
            let node = self.next_in_turn();
            if may_go && !self.clients[index].silent.contains(&node.address) {
                return self.go(index, &node);
            }
        }
        Err(BenchError::Unreachable {
            node: broker.name,
            source,
        })
    }

    /// Replaces the connection by one to `node`.
    fn go(&mut self, index: usize, node: &Node) -> Result<(), BenchError> {
        let broker = self.broker(node)?;
        let stream = self.connect(node, index)?;
        let client = &mut self.clients[index];
        self.finished[client.broker] += client.published();
        client.reconnect(stream, broker);
        self.moved = Instant::now();
        Ok(())
    }

    fn read(&mut self, index: usize) -> Result<(), BenchError> {
        loop {
            let mut buffer = std::mem::take(&mut self.buffer);
            let (len, outcome) = self.clients[index].socket.read(&mut buffer);
            let replaced = self.handle(index, &buffer[..len]);
            self.buffer = buffer;
            if replaced? {
                return Ok(());
            }
            match outcome {
                ReadOutcome::More => {}
                ReadOutcome::Drained => return Ok(()),
                ReadOutcome::Closed => {
                    let failure = self.clients[index].socket.take_failure();
                    let source = failure.unwrap_or_else(|| io::ErrorKind::ConnectionAborted.into());
                    return match self.clients[index].phase {
                        Phase::Connecting | Phase::AwaitsConnack => self.next_entry(index, source),
                        Phase::AwaitsSuback | Phase::Active => Err(self.closed(index, source)),
                    };
                }
            }
        }
    }

    /// Handles complete packets; `true`: the publisher has another connection now.
    fn handle(&mut self, index: usize, bytes: &[u8]) -> Result<bool, BenchError> {
        let mut at = 0;
        loop {
            let client = &self.clients[index];
            let node = &self.brokers[client.broker];
            let answer = client.answer(&bytes[at..], self.arrivals.redirect, node)?;
            let Some((answer, len)) = answer else {
                self.clients[index].socket.keep_rest(&bytes[at..]);
                return Ok(false);
            };
            at += len;
            match answer {
                Answer::Nothing => {}
                Answer::Accepted => {
                    let now_ns = self.start.elapsed().as_nanos() as u64;
                    let begun = self.clients[index].begin(now_ns);
                    begun.map_err(|source| self.closed(index, source))?;
                    self.moved = Instant::now();
                }
                Answer::Subscribed => self.clients[index].phase = Phase::Active,
                Answer::Message(due_ns) => {
                    let now_ns = self.start.elapsed().as_nanos() as u64;
                    self.received.note(due_ns, now_ns);
                }
                Answer::SentTo(place) => {
                    let node = Node::resolve(&place)?;
                    self.go(index, &node)?;
                    self.clients[index].hops += 1;
                    self.redirects += 1;
                    return Ok(true);
                }
            }
        }
    }

    fn closed(&self, index: usize, source: io::Error) -> BenchError {
        let client = &self.clients[index];
        BenchError::Closed {
            node: self.brokers[client.broker].name.clone(),
            client_id: client.client_id.clone(),
            reason: Some(source.to_string()),
        }
    }

    /// Messages published so far at each broker.
    fn published(&self) -> Vec<u64> {
        let mut counts = self.finished.clone();
        for client in &self.clients {
            counts[client.broker] += client.published();
        }
        counts
    }

    fn outcome(&self, seconds: Seconds, from_s: f64) -> ArrivalsOutcome {
        let mut brokers: Vec<BrokerSeries> = Vec::new();
        for (at, node) in self.brokers.iter().enumerate() {
            let rates: Vec<(f64, f64)> = seconds
                .rates
                .iter()
                .map(|(at_s, rates)| (*at_s, rates.get(at).copied().unwrap_or(0.0)))
                .collect();
            let here = self.clients.iter().filter(|one| one.broker == at);
            let publishers = here.filter(|one| one.is_publisher()).count();
            // A dispatcher is not a broker: no publisher stays there.
            if publishers == 0
                && rates.iter().all(|&(_, rate)| rate == 0.0)
                && self.arrivals.attach == Attach::Dispatch
            {
                continue;
            }
            brokers.push(BrokerSeries {
                broker: node.name.clone(),
                publishers,
                at_end_per_s: mean_after(&rates, from_s),
                rates,
            });
        }
        brokers.sort_by(|one, other| one.broker.cmp(&other.broker));
        let ends = || brokers.iter().map(|broker| broker.at_end_per_s);
        let most = ends().fold(0.0, f64::max);
        // All publishers of a dispatcher may be at one broker; the other one is unknown here then.
        let least = if brokers.len() < 2 {
            0.0
        } else {
            ends().fold(f64::INFINITY, f64::min)
        };
        let subscribers = self.arrivals.subscribers as u64;
        let published: u64 = self.published().iter().sum();
        let received = (subscribers > 0).then(|| Receipt {
            messages: self.received.messages,
            lost: (published * subscribers).saturating_sub(self.received.messages),
            latency: Latency::of(&self.received.delays),
            at_end_per_s: mean_after(&seconds.received, from_s),
            rates: seconds.received,
        });
        let behind_ns = self.clients.iter().map(Client::behind_ns);
        ArrivalsOutcome {
            received,
            behind_schedule_ms: behind_ns.fold(0.0, f64::max) / 1e6,
            difference_per_s: most - least,
            brokers,
            processes: seconds.processes,
            redirects: self.redirects,
            own_cores: (process::own_cpu_s() - seconds.own_s) / self.start.elapsed().as_secs_f64(),
        }
    }
}

/// Mean of the rates of seconds that end later than that.
fn mean_after(rates: &[(f64, f64)], from_s: f64) -> f64 {
    let late = rates.iter().filter(|&&(at_s, _)| at_s > from_s);
    let (sum, count) = late.fold((0.0, 0), |(sum, count), &(_, rate)| (sum + rate, count + 1));
    sum / f64::from(count.max(1))
}

/// Figures of each second.
struct Seconds {
    last: Instant,
    counts: Vec<u64>,
    received_before: u64,
    received: Vec<(f64, f64)>,
    readings: Vec<CpuReading>,
    own_s: f64,
    rates: Vec<(f64, Vec<f64>)>,
    processes: Vec<ProcessSeries>,
}

impl Seconds {
    fn begin(watch: &Watch) -> Result<Self, BenchError> {
        let readings: Result<Vec<_>, _> = watch
            .pids
            .iter()
            .map(|&pid| process::cpu(pid).map_err(BenchError::system(format!("process {pid}"))))
            .collect();
        let series = |&pid| ProcessSeries {
            pid,
            points: Vec::new(),
        };
        Ok(Self {
            last: Instant::now(),
            counts: Vec::new(),
            received_before: 0,
            received: Vec::new(),
            readings: readings?,
            own_s: process::own_cpu_s(),
            rates: Vec::new(),
            processes: watch.pids.iter().map(series).collect(),
        })
    }

    /// Ends a second if it is over; returns its rates.
    fn look(&mut self, run: &Run<'_>, watch: &Watch) -> Option<Vec<(String, f64)>> {
        let length = self.last.elapsed().as_secs_f64();
        if length < 1.0 {
            return None;
        }
        self.last = Instant::now();
        let at_s = run.start.elapsed().as_secs_f64();
        let counts = run.published();
        let rates: Vec<f64> = counts
            .iter()
            .enumerate()
            .map(|(at, &count)| {
                let before = self.counts.get(at).copied().unwrap_or(0);
                count.saturating_sub(before) as f64 / length
            })
            .collect();
        self.counts = counts;
        let received = run.received.messages - self.received_before;
        self.received_before = run.received.messages;
        self.received.push((at_s, received as f64 / length));
        for (at, &pid) in watch.pids.iter().enumerate() {
            // A process that has ended gives no more points.
            let (Ok(now), Ok(memory)) = (process::cpu(pid), process::memory(pid)) else {
                continue;
            };
            let cores = now.since(&self.readings[at]) / length;
            self.readings[at] = now;
            self.processes[at].points.push(Use {
                at_s,
                cores,
                pss_kib: memory.pss_kib,
            });
        }
        self.rates.push((at_s, rates.clone()));
        let names = run.brokers.iter().map(|node| node.name.clone());
        Some(names.zip(rates).collect())
    }
}
