//! The clients of one way to attach, and the counts of clients and nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use thicket_client::{Client, Message, Options, Placement, ProtocolVersion, Qos};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::balancer::Balancer;
use super::entry::Entry;
use super::population::Population;
use super::{Attach, PlacementExperiment, SETTLE};
use crate::BenchError;
use crate::cluster::READY_WITHIN;
use crate::process::{CpuReading, cpu};
use crate::random::Random;

/// Most clients that reconnect at a time.
const AT_ONCE: usize = 8;
/// Longest time between two attempts of a refused client.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// All clients, connected.
pub(super) struct Crowd<'a> {
    experiment: &'a PlacementExperiment,
    nodes: Vec<Entry>,
    pub population: Population,
    clients: Vec<Client>,
    /// One for each client, if nodes are chosen at random.
    balancers: Vec<Balancer>,
    /// Time between two messages of a publisher; `None`: silence.
    pace: watch::Sender<Option<Duration>>,
    heard: Arc<Heard>,
    /// By topic.
    published: Arc<Vec<AtomicU64>>,
    pub setup: Setup,
}

/// The cost of attaching.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Setup {
    /// Sessions of all clients.
    pub sessions: usize,
    /// Mean for a client.
    pub client_ms: f64,
    /// The same divided by the sessions of the client.
    pub session_ms: f64,
    /// Until the last one was served.
    pub all_s: f64,
}

/// The cost of reconnecting.
#[derive(Debug, Clone, Default)]
pub(super) struct Returns {
    refused: Vec<f64>,
    seconds: Vec<f64>,
}

impl Returns {
    /// Refused CONNECTs: mean and maximum.
    pub fn refused(&self) -> [f64; 2] {
        mean_and_most(&self.refused)
    }

    /// Seconds until they were served: mean and maximum.
    pub fn seconds(&self) -> [f64; 2] {
        mean_and_most(&self.seconds)
    }
}

fn mean_and_most(all: &[f64]) -> [f64; 2] {
    if all.is_empty() {
        return [0.0; 2];
    }
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    [mean, all.iter().copied().fold(0.0, f64::max)]
}

/// The records of subscribers.
#[derive(Debug)]
struct Heard {
    began: Instant,
    is_counting: AtomicBool,
    count: AtomicU64,
    delays: Mutex<Histogram<u64>>,
}

/// The counts of an interval.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    /// Length of the interval.
    pub seconds: f64,
    /// Messages a second that publishers sent.
    pub published_per_s: f64,
    /// Messages a second to subscribers.
    pub external_out_per_s: f64,
    /// Messages a second from node to node.
    pub internal_per_s: f64,
    /// Messages of each node.
    pub loads: Vec<f64>,
    /// CPU of all nodes for each message to a subscriber, in microseconds.
    pub cpu_us: f64,
    /// CPU of the busiest node, in cores.
    pub busiest_cores: f64,
    /// In milliseconds.
    pub delay_mean_ms: f64,
    /// Median and 99 %.
    pub delay_ms: [f64; 2],
}

impl Counted {
    /// Both intervals as one.
    pub fn and(self, later: Self) -> Self {
        let seconds = self.seconds + later.seconds;
        let mean = |rate: fn(&Self) -> f64| {
            (rate(&self) * self.seconds + rate(&later) * later.seconds) / seconds
        };
        let external_out_per_s = mean(|it| it.external_out_per_s);
        let cpu_us_per_s = mean(|it| it.cpu_us * it.external_out_per_s);
        let loads = self.loads.iter().zip(&later.loads);
        Self {
            seconds,
            published_per_s: mean(|it| it.published_per_s),
            external_out_per_s,
            internal_per_s: mean(|it| it.internal_per_s),
            loads: loads.map(|(one, other)| one + other).collect(),
            cpu_us: cpu_us_per_s / external_out_per_s.max(f64::MIN_POSITIVE),
            busiest_cores: mean(|it| it.busiest_cores),
            delay_mean_ms: later.delay_mean_ms,
            delay_ms: later.delay_ms,
        }
    }
}

#[derive(Debug)]
struct NodesCounted {
    external_out: u64,
    internal: u64,
    loads: Vec<f64>,
    cpu: Vec<CpuReading>,
}

impl<'a> Crowd<'a> {
    pub async fn attach(
        experiment: &'a PlacementExperiment,
        nodes: Vec<Entry>,
        attach: Attach,
    ) -> Result<Self, BenchError> {
        let population = Population::draw(experiment, attach);
        let topics = experiment.load.topics();
        let heard = Arc::new(Heard {
            began: Instant::now(),
            is_counting: AtomicBool::new(false),
            count: AtomicU64::new(0),
            delays: Mutex::new(Histogram::new(3).expect("three figures are allowed")),
        });
        let began = Instant::now();
        let permits = Arc::new(Semaphore::new(experiment.in_flight));
        let mut connecting = JoinSet::new();
        let count = population.first.len();
        let mut balancers = Vec::new();
        for client in 0..count {
            let at = &nodes[population.first[client]].clients;
            let mut options = options_of(experiment, &nodes, &population, attach, client);
            if matches!(attach, Attach::Learned { .. }) {
                let all = nodes.iter().map(|node| node.address).collect();
                let balancer = Balancer::start(all, experiment.seed << 32 | client as u64);
                let balancer = at.spawn(balancer).await.map_err(std::io::Error::other);
                let balancer = balancer.flatten();
                let balancer = balancer.map_err(BenchError::system("a load balancer"))?;
                options.servers = vec![format!("mqtt://{}", balancer.address)];
                balancers.push(balancer);
            }
            let permits = Arc::clone(&permits);
            let connect = async move {
                let _permit = permits.acquire_owned().await;
                let began = Instant::now();
                let connected = Client::connect(options).await;
                (client, began.elapsed(), connected)
            };
            connecting.spawn_on(connect, at);
        }
        let mut clients: Vec<Option<Client>> = (0..count).map(|_| None).collect();
        let mut setup = Setup::default();
        while let Some(done) = connecting.join_next().await {
            let (client, took, connected) =
                done.map_err(|error| BenchError::Setting(format!("a client: {error}")))?;
            let connected = connected
                .map_err(|error| BenchError::Setting(format!("{}: {error}", client_id(client))))?;
            let sessions = connected.status().sessions.len().max(1);
            let millis = took.as_secs_f64() * 1e3 / count as f64;
            setup.sessions += sessions;
            setup.client_ms += millis;
            setup.session_ms += millis / sessions as f64;
            clients[client] = Some(connected);
        }
        setup.all_s = began.elapsed().as_secs_f64();
        let clients: Vec<Client> = clients.into_iter().flatten().collect();
        let (publishers, subscribers) = clients.split_at(topics);
        let at = |client: usize| &nodes[population.first[client]].clients;
        for (number, subscriber) in subscribers.iter().enumerate() {
            at(topics + number).spawn(listen(subscriber.clone(), Arc::clone(&heard)));
        }
        let (pace, _) = watch::channel(None);
        let published: Arc<Vec<AtomicU64>> =
            Arc::new((0..topics).map(|_| AtomicU64::new(0)).collect());
        for (topic, publisher) in publishers.iter().enumerate() {
            let publishing = Publishing {
                topic,
                pace: pace.subscribe(),
                payload_len: experiment.payload_len,
                heard: Arc::clone(&heard),
                published: Arc::clone(&published),
            };
            at(topic).spawn(publishing.run(publisher.clone()));
        }
        tokio::time::sleep(SETTLE).await;
        Ok(Self {
            experiment,
            nodes,
            population,
            clients,
            balancers,
            pace,
            heard,
            published,
            setup,
        })
    }

    /// From now on each topic has this many messages a second; 0: none.
    pub fn set_rate(&self, per_topic_s: f64) {
        let period = (per_topic_s > 0.0).then(|| Duration::from_secs_f64(1.0 / per_topic_s));
        let _ = self.pace.send(period);
    }

    /// From now on, delays are those of later messages.
    pub fn reset_delays(&self) {
        self.delays().reset();
    }

    /// Counts for an interval; messages that are under way at its ends are counted once. Delays are those of all intervals since they were reset.
    pub async fn count(&self, hold: Duration) -> Result<Counted, BenchError> {
        self.heard.is_counting.store(true, Ordering::Relaxed);
        let (before, sent_before) = (self.nodes_counted()?, self.sent());
        let began = Instant::now();
        tokio::time::sleep(hold).await;
        let after = self.nodes_counted()?;
        let seconds = began.elapsed().as_secs_f64();
        let sent: u64 = self.sent().iter().sum::<u64>() - sent_before.iter().sum::<u64>();
        self.heard.is_counting.store(false, Ordering::Relaxed);
        let external_out = (after.external_out - before.external_out) as f64;
        let cpu = after.cpu.iter().zip(&before.cpu);
        let cpu: Vec<f64> = cpu.map(|(after, before)| after.since(before)).collect();
        let cpu_s: f64 = cpu.iter().sum();
        let loads = after.loads.iter().zip(&before.loads);
        let delays = self.delays();
        let delay = |quantile: f64| delays.value_at_quantile(quantile) as f64 / 1e6;
        Ok(Counted {
            seconds,
            published_per_s: sent as f64 / seconds,
            external_out_per_s: external_out / seconds,
            internal_per_s: (after.internal - before.internal) as f64 / seconds,
            loads: loads.map(|(after, before)| after - before).collect(),
            cpu_us: cpu_s * 1e6 / external_out.max(1.0),
            busiest_cores: cpu.into_iter().fold(0.0, f64::max) / seconds,
            delay_mean_ms: delays.mean() / 1e6,
            delay_ms: [delay(0.5), delay(0.99)],
        })
    }

    /// Waits in silence until nothing arrives any more; returns how many of all messages so far should have arrived, and did.
    pub async fn drain(&self) -> (u64, u64) {
        self.set_rate(0.0);
        let come = || self.heard.count.load(Ordering::Relaxed);
        let (mut before, mut since) = (come(), Instant::now());
        loop {
            tokio::time::sleep(SETTLE / 8).await;
            let sent = self.sent();
            let audience = self.population.audience(sent.len());
            let due = sent.iter().zip(&audience).map(|(sent, all)| sent * all);
            let (due, now) = (due.sum(), come());
            if now == due || (now == before && since.elapsed() > 2 * SETTLE) {
                return (due, now);
            }
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
    }

    /// Breaks the connection of one client after the other, in random order; each reconnects by itself, to nodes that its balancer chooses.
    pub async fn come_back(&self, returns: &mut Returns) -> Result<(), BenchError> {
        let mut order = self.balancers.clone();
        let mut random = Random::new(self.experiment.seed);
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last + 1));
        }
        let permits = Arc::new(Semaphore::new(self.experiment.in_flight.max(AT_ONCE)));
        let mut coming = JoinSet::new();
        for balancer in order {
            let permits = Arc::clone(&permits);
            coming.spawn(async move {
                let _permit = permits.acquire_owned().await;
                one_comes_back(&balancer).await
            });
        }
        while let Some(came) = coming.join_next().await {
            let came = came.map_err(|error| BenchError::Setting(format!("a client: {error}")))?;
            let (refused, seconds) = came?;
            returns.refused.push(refused);
            returns.seconds.push(seconds);
        }
        Ok(())
    }

    pub async fn close(self) {
        self.set_rate(0.0);
        for client in &self.clients {
            client.close().await;
        }
    }

    fn sent(&self) -> Vec<u64> {
        let all = self.published.iter();
        all.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn delays(&self) -> std::sync::MutexGuard<'_, Histogram<u64>> {
        let delays = self.heard.delays.lock();
        delays.unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes_counted(&self) -> Result<NodesCounted, BenchError> {
        let mut counted = NodesCounted {
            external_out: 0,
            internal: 0,
            loads: Vec::new(),
            cpu: Vec::new(),
        };
        for node in &self.nodes {
            let metrics = node.metrics();
            let metrics = metrics.map_err(BenchError::system("the metrics of a node"))?;
            let of = |traffic: &str, direction: &str| {
                let labels = format!("traffic=\"{traffic}\",direction=\"{direction}\"");
                let sum = metrics.sum(&format!("thicket_messages_total{{{labels}}}"));
                sum.unwrap_or(0)
            };
            let (external_out, internal_out) = (of("external", "out"), of("internal", "out"));
            counted.external_out += external_out;
            counted.internal += internal_out;
            let load = external_out + internal_out + of("external", "in") + of("internal", "in");
            counted.loads.push(load as f64);
            let reading = cpu(node.pid).map_err(BenchError::system("the CPU of a node"))?;
            counted.cpu.push(reading);
        }
        Ok(counted)
    }

    /// Messages a second between nodes according to the model, from the nodes of the sessions: a message is sent once to each other node with a
    /// subscriber.
    pub fn model_internal_per_s(&self, rate: f64) -> Result<f64, BenchError> {
        let topics = self.experiment.load.topics();
        let mut publishes = vec![0; topics];
        let mut listens = vec![BTreeSet::new(); topics];
        let found = self.places()?;
        for (client, first) in self.population.first.iter().enumerate() {
            let at = |topic: usize| found.get(&(client, topic)).copied().unwrap_or(*first);
            if client < topics {
                publishes[client] = at(client);
                continue;
            }
            for &topic in &self.population.wanted[client - topics] {
                listens[topic].insert(at(topic));
            }
        }
        let copies = |(publishes, listens): (&usize, &BTreeSet<usize>)| {
            listens.iter().filter(|node| *node != publishes).count()
        };
        let copies: usize = publishes.iter().zip(&listens).map(copies).sum();
        Ok(copies as f64 * rate)
    }

    /// The node for each client and topic: that of its placement, else that of its only session.
    fn places(&self) -> Result<BTreeMap<(usize, usize), usize>, BenchError> {
        let topics = self.experiment.load.topics();
        let mut places = BTreeMap::new();
        for (number, client) in self.clients.iter().enumerate() {
            let address = client.status().sessions.get(&1).cloned();
            let mut nodes = self.nodes.iter();
            let found = nodes.position(|node| Some(node.address.to_string()) == address);
            let balanced = self.balancers.get(number).map(Balancer::node);
            let Some(node) = balanced.or(found) else {
                continue;
            };
            if number < topics {
                places.insert((number, number), node);
            } else {
                for &topic in &self.population.wanted[number - topics] {
                    places.insert((number, topic), node);
                }
            }
        }
        places.extend(placed(&self.nodes)?);
        Ok(places)
    }
}

/// The node of each client's topics, as the nodes report it.
fn placed(nodes: &[Entry]) -> Result<BTreeMap<(usize, usize), usize>, BenchError> {
    let mut placed = BTreeMap::new();
    let mut after = String::new();
    loop {
        let entries = placements(&nodes[0], &after)?;
        for entry in &entries {
            let client = entry["client_id"].as_str().and_then(number_of);
            for session in entry["sessions"].as_array().into_iter().flatten() {
                let address = session["address"].as_str();
                let mut all = nodes.iter();
                let node = all.position(|node| address == Some(&node.address.to_string()));
                let named = ["publish", "subscribe"].map(|list| session[list].as_array());
                for name in named.into_iter().flatten().flatten() {
                    let topic = name.as_str().and_then(number_of);
                    if let (Some(client), Some(topic), Some(node)) = (client, topic, node) {
                        placed.insert((client, topic), node);
                    }
                }
            }
        }
        let last = entries.last().and_then(|entry| entry["client_id"].as_str());
        match last {
            Some(last) => after = format!("?after={last}"),
            None => return Ok(placed),
        }
    }
}

fn placements(node: &Entry, after: &str) -> Result<Vec<serde_json::Value>, BenchError> {
    let text = node.page(&format!("/v1/placements{after}"));
    let text = text.map_err(BenchError::system("the placements of a node"))?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body)
        .map_err(|error| BenchError::Setting(format!("placements are unreadable: {error}")))
}

fn options_of(
    experiment: &PlacementExperiment,
    nodes: &[Entry],
    population: &Population,
    attach: Attach,
    client: usize,
) -> Options {
    let node = &nodes[population.first[client]];
    let topics = experiment.load.topics();
    let mut options = Options::new(format!("mqtt://{}", node.address));
    options.client_id = client_id(client);
    // Without replicas, messages between nodes are only those for subscribers.
    options.session_expiry = Duration::ZERO;
    match attach {
        Attach::Placed { max_sessions } => options.max_sessions = max_sessions,
        Attach::Learned { .. } => {
            options.version = ProtocolVersion::V311;
            options.placement = Placement::Off;
            options.max_sessions = 1;
            options.longest_pause = LONGEST_PAUSE;
        }
        Attach::Random | Attach::Local | Attach::Redirect => {
            options.placement = Placement::Off;
            options.max_sessions = 1;
        }
    }
    if client < topics {
        options.publish = vec![topic_name(client)];
        options.rates = BTreeMap::from([(topic_name(client), experiment.rate_per_s)]);
    } else {
        let wanted = population.wanted[client - topics].iter();
        let wanted = wanted.map(|topic| (topic_name(*topic), Qos::AtMostOnce.into()));
        options.subscribe = wanted.collect();
    }
    options.connect_timeout = READY_WITHIN;
    options
}

/// How often it was refused, and for how many seconds it was disconnected.
async fn one_comes_back(balancer: &Balancer) -> Result<(f64, f64), BenchError> {
    let (began, before) = (Instant::now(), balancer.connections());
    balancer.cut();
    while !balancer.is_served() {
        if began.elapsed() > READY_WITHIN {
            let problem = format!("a client does not come back within {READY_WITHIN:?}");
            return Err(BenchError::Setting(problem));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let refused = balancer.connections().saturating_sub(before + 1);
    Ok((refused as f64, began.elapsed().as_secs_f64()))
}

async fn listen(subscriber: Client, heard: Arc<Heard>) {
    while let Some(message) = subscriber.next().await {
        heard.count.fetch_add(1, Ordering::Relaxed);
        if !heard.is_counting.load(Ordering::Relaxed) {
            continue;
        }
        let Some(sent_ns) = message.payload.first_chunk().copied() else {
            continue;
        };
        let now_ns = heard.began.elapsed().as_nanos() as u64;
        let delay = now_ns.saturating_sub(u64::from_le_bytes(sent_ns));
        let mut delays = heard.delays.lock().unwrap_or_else(PoisonError::into_inner);
        // A histogram that resizes fits any delay.
        let _ = delays.record(delay.max(1));
    }
}

/// The work of one publisher.
struct Publishing {
    topic: usize,
    pace: watch::Receiver<Option<Duration>>,
    payload_len: usize,
    heard: Arc<Heard>,
    published: Arc<Vec<AtomicU64>>,
}

impl Publishing {
    async fn run(mut self, publisher: Client) {
        loop {
            let Some(period) = *self.pace.borrow_and_update() else {
                if self.pace.changed().await.is_err() {
                    return;
                }
                continue;
            };
            // Publishers must not be synchronous.
            let first = period.mul_f64((self.topic as f64 * 0.618).fract());
            let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + first, period);
            loop {
                tokio::select! {
                    _ = ticks.tick() => self.publish(&publisher).await,
                    changed = self.pace.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                }
            }
        }
    }

    async fn publish(&self, publisher: &Client) {
        let sent_ns = self.heard.began.elapsed().as_nanos() as u64;
        let mut payload = sent_ns.to_le_bytes().to_vec();
        payload.resize(self.payload_len.max(payload.len()), 0);
        let message = Message::new(topic_name(self.topic), payload);
        if publisher.publish(message).await.is_ok() {
            self.published[self.topic].fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn topic_name(topic: usize) -> String {
    format!("user/{topic}")
}

fn client_id(client: usize) -> String {
    format!("client-{client}")
}

/// The number at the end of a name.
fn number_of(name: &str) -> Option<usize> {
    let (_, number) = name.rsplit_once(['-', '/'])?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_count_by_their_length_and_messages() {
        let counted = |seconds, rate, cpu_us| Counted {
            seconds,
            published_per_s: rate,
            external_out_per_s: rate,
            internal_per_s: rate,
            loads: vec![rate * seconds, 1.0],
            cpu_us,
            busiest_cores: 0.5,
            delay_mean_ms: cpu_us,
            delay_ms: [1.0, 2.0],
        };
        // 300 messages of 30 us, and 200 of 20 us.
        let both = counted(3.0, 100.0, 30.0).and(counted(1.0, 200.0, 20.0));
        assert!((both.cpu_us - 26.0).abs() < 1e-9, "{both:?}");
        assert!((both.external_out_per_s - 125.0).abs() < 1e-9, "{both:?}");
        assert_eq!(both.loads, [500.0, 2.0]);
        // Delays are those of all intervals already.
        assert!((both.delay_mean_ms - 20.0).abs() < 1e-9, "{both:?}");
    }

    #[test]
    fn names_tell_their_numbers() {
        assert_eq!(number_of(&topic_name(12)), Some(12));
        assert_eq!(number_of(&client_id(7)), Some(7));
        assert_eq!(number_of("other"), None);
    }
}
