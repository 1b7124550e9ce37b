//! What placement is worth on real nodes (Detti V, Fig. 22): the social network of the paper, whose clients attach at random, or are placed with
//! one session or several.
//!
//! Each topic has one publisher. A subscriber wants topics that it draws by Zipf's law. Messages between nodes are counted by the nodes, and stand
//! beside what the model says of the same attachment: of a message one copy goes to each other node with a subscriber of its topic.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use thicket_client::{Client, Message, Options, Placement, Qos};
use tokio::runtime::Builder;
use tokio::sync::Mutex;

use crate::BenchError;
use crate::metrics::{Metrics, REACHABLE, page};
use crate::process::{CpuReading, cpu};
use crate::random::{Random, Zipf};
use crate::report::{Part, Report, Table, amount};
use crate::target::{Running, Target};

/// Longest wait for the nodes to see each other, and for a client to be served.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Until what was on its way has come, and rates are told.
const SETTLE: Duration = Duration::from_secs(2);

/// What to play.
#[derive(Debug, Clone)]
pub struct PlacementExperiment {
    /// The program `thicket`, for the nodes.
    pub thicket: PathBuf,
    /// Nodes of the cluster (M), at least 2.
    pub nodes: usize,
    /// Topics, each with a publisher (Ntop).
    pub topics: usize,
    /// Subscribers (Nsub).
    pub subscribers: usize,
    /// Topics that each wants (Nsus).
    pub wanted: usize,
    /// Exponent of Zipf's law (alpha).
    pub exponent: f64,
    /// Messages a second of each topic.
    pub rate_per_s: f64,
    /// How long messages are counted.
    pub hold: Duration,
    /// Sessions a client may have (Nses); 0: it attaches at random and asks nobody.
    pub sessions: Vec<usize>,
    /// Decides who wants what, and where clients come first.
    pub seed: u64,
}

/// One way to attach, played.
#[derive(Debug, Clone, Serialize)]
pub struct PlacementOutcome {
    /// Sessions a client might have; 0: at random.
    pub max_sessions: usize,
    /// Sessions of all clients.
    pub sessions: usize,
    /// From the connection to the last SUBACK, of a client, in milliseconds: mean.
    pub setup_ms: f64,
    /// The same divided by the sessions of the client.
    pub setup_ms_a_session: f64,
    /// Messages a second to subscribers.
    pub external_out_per_s: f64,
    /// Messages a second from node to node.
    pub internal_per_s: f64,
    /// What the model says of the same attachment.
    pub model_internal_per_s: f64,
    /// Jain's index of what the nodes sent and received.
    pub jain: f64,
    /// CPU of all nodes a message to a subscriber, in microseconds.
    pub cpu_us: f64,
    /// From PUBLISH to the subscriber, in milliseconds: median and 99 %.
    pub delay_ms: [f64; 2],
    /// Messages that should have come, and came.
    pub expected: u64,
    /// See `expected`.
    pub received: u64,
}

/// Who wants which topics, and where each client comes first.
#[derive(Debug)]
struct Population {
    /// By subscriber.
    wanted: Vec<Vec<usize>>,
    /// Node by publisher, then by subscriber.
    first: Vec<usize>,
}

/// What subscribers note.
#[derive(Debug)]
struct Heard {
    began: Instant,
    is_counting: AtomicBool,
    count: AtomicU64,
    delays: std::sync::Mutex<Histogram<u64>>,
}

/// What the nodes have counted.
#[derive(Debug)]
struct Counted {
    external_out: u64,
    internal: u64,
    loads: Vec<f64>,
    cpu: Vec<CpuReading>,
}

impl Population {
    fn draw(experiment: &PlacementExperiment) -> Self {
        let mut random = Random::new(experiment.seed);
        let law = Zipf::new(experiment.topics, experiment.exponent);
        let mut wanted = Vec::new();
        for _ in 0..experiment.subscribers {
            let mut topics = BTreeSet::new();
            while topics.len() < experiment.wanted.min(experiment.topics) {
                topics.insert(law.sample(&mut random));
            }
            wanted.push(topics.into_iter().collect());
        }
        let clients = experiment.topics + experiment.subscribers;
        let first = (0..clients)
            .map(|_| random.below(experiment.nodes))
            .collect();
        Self { wanted, first }
    }

    /// Subscribers of each topic.
    fn audience(&self, topics: usize) -> Vec<u64> {
        let mut audience = vec![0; topics];
        for topic in self.wanted.iter().flatten() {
            audience[*topic] += 1;
        }
        audience
    }
}

/// Plays every way to attach, each with nodes of its own.
///
/// # Errors
/// A node does not start, or a client is not served.
pub fn play(
    experiment: &PlacementExperiment,
    say: &mut dyn FnMut(String),
) -> Result<Vec<PlacementOutcome>, BenchError> {
    let population = Population::draw(experiment);
    let mut outcomes = Vec::new();
    for &max_sessions in &experiment.sessions {
        say(format!("{}: nodes start", name_of(max_sessions)));
        let nodes = start_nodes(experiment)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BenchError::system("the clients' runtime"))?;
        let attached = Attached {
            experiment,
            population: &population,
            nodes: &nodes,
            max_sessions,
        };
        let outcome = runtime.block_on(attached.play())?;
        say(format!(
            "{}: {} messages a second between nodes, {} to subscribers",
            name_of(max_sessions),
            amount(outcome.internal_per_s),
            amount(outcome.external_out_per_s)
        ));
        outcomes.push(outcome);
        runtime.shutdown_background();
        for node in nodes {
            node.stop()?;
        }
    }
    Ok(outcomes)
}

fn start_nodes(experiment: &PlacementExperiment) -> Result<Vec<Running>, BenchError> {
    let mut nodes: Vec<Running> = Vec::new();
    for _ in 0..experiment.nodes {
        let mut words = vec![
            "broker".to_owned(),
            "--listen=127.0.0.1:{port}".to_owned(),
            "--http=127.0.0.1:{other-port}".to_owned(),
            "--discover=off".to_owned(),
            "--discovery-grace-ms=0".to_owned(),
            "--workers=1".to_owned(),
            "--redirect=topics".to_owned(),
        ];
        words.extend(nodes.iter().map(|node| format!("--seed={}", node.address)));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        nodes.push(Target::plain("thicket", experiment.thicket.clone(), &words).start()?);
    }
    let until = Instant::now() + READY_WITHIN;
    for node in &nodes {
        loop {
            let metrics = Metrics::fetch(node.other_address);
            let seen = metrics.ok().and_then(|metrics| metrics.sum(REACHABLE));
            if seen == Some(nodes.len() as u64) {
                break;
            }
            if Instant::now() > until {
                let found = format!("the nodes do not see each other after {READY_WITHIN:?}");
                return Err(BenchError::Setting(found));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    std::thread::sleep(SETTLE);
    Ok(nodes)
}

/// One way to attach.
#[derive(Debug, Clone, Copy)]
struct Attached<'a> {
    experiment: &'a PlacementExperiment,
    population: &'a Population,
    nodes: &'a [Running],
    max_sessions: usize,
}

impl Attached<'_> {
    async fn play(self) -> Result<PlacementOutcome, BenchError> {
        let topics = self.experiment.topics;
        let heard = Arc::new(Heard {
            began: Instant::now(),
            is_counting: AtomicBool::new(false),
            count: AtomicU64::new(0),
            delays: std::sync::Mutex::new(Histogram::new(3).expect("three figures are allowed")),
        });
        let mut publishers = Vec::new();
        let mut subscribers = Vec::new();
        let (mut setup_ms, mut setup_ms_a_session, mut sessions) = (0.0, 0.0, 0);
        for client in 0..topics + self.experiment.subscribers {
            let began = Instant::now();
            let connected = self.connect(client).await?;
            let millis = began.elapsed().as_secs_f64() * 1e3;
            let count = connected.status().sessions.len().max(1);
            sessions += count;
            setup_ms += millis;
            setup_ms_a_session += millis / count as f64;
            if client < topics {
                publishers.push(connected);
            } else {
                subscribers.push(connected);
            }
        }
        let clients = (publishers.len() + subscribers.len()) as f64;
        for subscriber in &subscribers {
            tokio::spawn(listen(subscriber.clone(), Arc::clone(&heard)));
        }
        tokio::time::sleep(SETTLE).await;
        let published = Arc::new(Mutex::new(vec![0; topics]));
        let is_over = Arc::new(AtomicBool::new(false));
        let rate = self.experiment.rate_per_s;
        let mut tasks = Vec::new();
        for (topic, publisher) in publishers.iter().enumerate() {
            tasks.push(tokio::spawn(publish(
                publisher.clone(),
                topic,
                rate,
                Arc::clone(&heard),
                Arc::clone(&published),
                Arc::clone(&is_over),
            )));
        }
        tokio::time::sleep(SETTLE).await;
        heard.is_counting.store(true, Ordering::Relaxed);
        let before = self.count()?;
        let sent_before = published.lock().await.clone();
        let came_before = heard.count.load(Ordering::Relaxed);
        let began = Instant::now();
        tokio::time::sleep(self.experiment.hold).await;
        let after = self.count()?;
        let seconds = began.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        for task in tasks {
            let _ = task.await;
        }
        tokio::time::sleep(SETTLE).await;
        let audience = self.population.audience(topics);
        let sent = published.lock().await.clone();
        let due =
            |of: &[u64]| -> u64 { of.iter().zip(&audience).map(|(sent, all)| sent * all).sum() };
        let expected = due(&sent) - due(&sent_before);
        let received = heard.count.load(Ordering::Relaxed) - came_before;
        let model = self.model(rate)?;
        for client in publishers.iter().chain(&subscribers) {
            client.close().await;
        }
        let delays = heard.delays.lock().expect("no thread has panicked");
        let delay = |quantile: f64| delays.value_at_quantile(quantile) as f64 / 1e6;
        let external_out = (after.external_out - before.external_out) as f64;
        let loads: Vec<f64> = (after.loads.iter().zip(&before.loads))
            .map(|(after, before)| after - before)
            .collect();
        let cpu: f64 = (after.cpu.iter().zip(&before.cpu))
            .map(|(after, before)| after.since(before))
            .sum();
        Ok(PlacementOutcome {
            max_sessions: self.max_sessions,
            sessions,
            setup_ms: setup_ms / clients,
            setup_ms_a_session: setup_ms_a_session / clients,
            external_out_per_s: external_out / seconds,
            internal_per_s: (after.internal - before.internal) as f64 / seconds,
            model_internal_per_s: model,
            jain: jain(&loads),
            cpu_us: cpu * 1e6 / external_out.max(1.0),
            delay_ms: [delay(0.5), delay(0.99)],
            expected,
            received,
        })
    }

    async fn connect(&self, client: usize) -> Result<Client, BenchError> {
        let node = &self.nodes[self.population.first[client]];
        let topics = self.experiment.topics;
        let mut options = Options::new(format!("mqtt://{}", node.address));
        options.client_id = client_id(client);
        options.session_expiry = Duration::ZERO;
        if self.max_sessions == 0 {
            options.placement = Placement::Off;
        }
        options.max_sessions = self.max_sessions.max(1);
        if client < topics {
            options.publish = vec![topic_name(client)];
            options.rates = BTreeMap::from([(topic_name(client), self.experiment.rate_per_s)]);
        } else {
            let wanted = &self.population.wanted[client - topics];
            options.subscribe = wanted
                .iter()
                .map(|topic| (topic_name(*topic), Qos::AtMostOnce))
                .collect();
        }
        options.connect_timeout = READY_WITHIN;
        let connected = Client::connect(options).await;
        connected.map_err(|error| BenchError::Setting(format!("{}: {error}", client_id(client))))
    }

    fn count(&self) -> Result<Counted, BenchError> {
        let mut counted = Counted {
            external_out: 0,
            internal: 0,
            loads: Vec::new(),
            cpu: Vec::new(),
        };
        for node in self.nodes {
            let metrics = Metrics::fetch(node.other_address);
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
            let reading = cpu(node.pid()).map_err(BenchError::system("the CPU of a node"))?;
            counted.cpu.push(reading);
        }
        Ok(counted)
    }

    /// Messages a second between nodes, by where the sessions are.
    fn model(&self, rate: f64) -> Result<f64, BenchError> {
        let topics = self.experiment.topics;
        let mut publishes = vec![0; topics];
        let mut listens = vec![BTreeSet::new(); topics];
        let placed = self.placed()?;
        for (client, first) in self.population.first.iter().enumerate() {
            let at = |topic: usize| placed.get(&(client, topic)).copied().unwrap_or(*first);
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

    /// The node of each client's topics, as the nodes say it.
    fn placed(&self) -> Result<BTreeMap<(usize, usize), usize>, BenchError> {
        let text = page(self.nodes[0].other_address, "/v1/placements");
        let text = text.map_err(BenchError::system("the placements of a node"))?;
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let entries: Vec<serde_json::Value> = serde_json::from_str(body)
            .map_err(|error| BenchError::Setting(format!("placements are unreadable: {error}")))?;
        let mut placed = BTreeMap::new();
        for entry in &entries {
            let client = entry["client_id"].as_str().and_then(number_of);
            for session in entry["sessions"].as_array().into_iter().flatten() {
                let address = session["address"].as_str();
                let mut nodes = self.nodes.iter();
                let node = nodes.position(|node| address == Some(&node.address.to_string()));
                let named = ["publish", "subscribe"].map(|list| session[list].as_array());
                for name in named.into_iter().flatten().flatten() {
                    let topic = name.as_str().and_then(number_of);
                    if let (Some(client), Some(topic), Some(node)) = (client, topic, node) {
                        placed.insert((client, topic), node);
                    }
                }
            }
        }
        Ok(placed)
    }
}

async fn listen(subscriber: Client, heard: Arc<Heard>) {
    while let Some(message) = subscriber.next().await {
        heard.count.fetch_add(1, Ordering::Relaxed);
        let sent_ns = message
            .payload
            .first_chunk()
            .copied()
            .map(u64::from_le_bytes);
        if let (Some(sent_ns), true) = (sent_ns, heard.is_counting.load(Ordering::Relaxed)) {
            let delay = (heard.began.elapsed().as_nanos() as u64).saturating_sub(sent_ns);
            if let Ok(mut delays) = heard.delays.lock() {
                // A histogram that grows has room for any delay.
                let _ = delays.record(delay.max(1));
            }
        }
    }
}

async fn publish(
    publisher: Client,
    topic: usize,
    rate_per_s: f64,
    heard: Arc<Heard>,
    published: Arc<Mutex<Vec<u64>>>,
    is_over: Arc<AtomicBool>,
) {
    let period = Duration::from_secs_f64(1.0 / rate_per_s);
    // Publishers do not beat in time.
    tokio::time::sleep(period.mul_f64((topic as f64 * 0.618).fract())).await;
    let mut ticks = tokio::time::interval(period);
    while !is_over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let sent_ns = heard.began.elapsed().as_nanos() as u64;
        let message = Message::new(topic_name(topic), sent_ns.to_le_bytes());
        if publisher.publish(message).await.is_ok() {
            published.lock().await[topic] += 1;
        }
    }
}

fn topic_name(topic: usize) -> String {
    format!("user/{topic}")
}

fn client_id(client: usize) -> String {
    format!("client-{client}")
}

/// At the end of a name.
fn number_of(name: &str) -> Option<usize> {
    let (_, number) = name.rsplit_once(['-', '/'])?;
    number.parse().ok()
}

fn jain(loads: &[f64]) -> f64 {
    let sum: f64 = loads.iter().sum();
    let squares: f64 = loads.iter().map(|load| load * load).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (loads.len() as f64 * squares)
}

fn name_of(max_sessions: usize) -> String {
    match max_sessions {
        0 => "at random".into(),
        1 => "placed, one session".into(),
        many => format!("placed, up to {many} sessions"),
    }
}

/// The table.
#[must_use]
pub fn placement_report(experiment: &PlacementExperiment, outcomes: &[PlacementOutcome]) -> Report {
    let mut report = Report::new(format!(
        "Placement: {} nodes, {} topics of {} messages a second, {} subscribers of {} topics each (Zipf {})",
        experiment.nodes,
        experiment.topics,
        experiment.rate_per_s,
        experiment.subscribers,
        experiment.wanted,
        experiment.exponent
    ));
    let mut table = Table::new([
        "clients attach",
        "sessions",
        "set-up, ms a client",
        "ms a session",
        "to subscribers, msg/s",
        "between nodes, msg/s",
        "by the model",
        "Jain of load",
        "CPU, us a message",
        "delay, ms: p50",
        "p99",
        "missing",
    ]);
    for one in outcomes {
        table.row([
            name_of(one.max_sessions),
            one.sessions.to_string(),
            format!("{:.2}", one.setup_ms),
            format!("{:.2}", one.setup_ms_a_session),
            amount(one.external_out_per_s),
            amount(one.internal_per_s),
            amount(one.model_internal_per_s),
            format!("{:.3}", one.jain),
            format!("{:.2}", one.cpu_us),
            format!("{:.2}", one.delay_ms[0]),
            format!("{:.2}", one.delay_ms[1]),
            one.expected.saturating_sub(one.received).to_string(),
        ]);
    }
    report.push(Part::Table(table));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> PlacementExperiment {
        PlacementExperiment {
            thicket: PathBuf::new(),
            nodes: 3,
            topics: 20,
            subscribers: 10,
            wanted: 4,
            exponent: 1.13,
            rate_per_s: 1.0,
            hold: Duration::from_secs(1),
            sessions: vec![0, 4],
            seed: 7,
        }
    }

    #[test]
    fn a_population_wants_distinct_topics_the_first_ones_most() {
        let population = Population::draw(&experiment());
        assert_eq!(population.wanted.len(), 10);
        for wanted in &population.wanted {
            let distinct: BTreeSet<_> = wanted.iter().collect();
            assert_eq!(distinct.len(), 4);
        }
        let audience = population.audience(20);
        assert_eq!(audience.iter().sum::<u64>(), 40);
        assert!(audience[0] > audience[19]);
        assert_eq!(population.first.len(), 30);
        assert!(population.first.iter().all(|node| *node < 3));
    }

    #[test]
    fn names_tell_their_numbers() {
        assert_eq!(number_of(&topic_name(12)), Some(12));
        assert_eq!(number_of(&client_id(7)), Some(7));
        assert_eq!(number_of("other"), None);
    }
}
