//! The social network of *Detti*'s Fig. 13 at a smaller size: clients that may have four sessions are at random nodes with one each. A dry run
//! predicts the gain of one pass, one pass is requested, and the nodes count its effect.
//!
//! A client connects with a placement for a topic of its own, and only then subscribes and publishes: so it has requested a placement, and its topics
//! have changed since. Messages have QoS 2: PUBREC names no better node, so no client moves before the rebalancer orders it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Deserialize;
use thicket_client::{Client, Message, Options, Qos};

use super::clients::lock;
use super::nodes::{apis, connections, moves, until};
use super::{InternalTraffic, MEANS, RebalanceAct, RebalanceExperiment, RebalanceOutcome, SETTLE};
use crate::BenchError;
use crate::cluster::{READY_WITHIN, jain, sum_at};
use crate::random::{Random, Zipf};
use crate::report::{Part, Report, Table};
use crate::target::Running;

/// Topics of each subscriber.
const WANTED: usize = 10;
/// The exponent of Zipf's law by which it chooses them.
const ALPHA: f64 = 1.13;
/// Sessions that a client may have.
const MAX_SESSIONS: usize = 4;
/// How long messages between nodes are counted.
const COUNTED: Duration = Duration::from_secs(10);
/// When nothing has moved for this long, the sessions have settled.
const QUIET: Duration = Duration::from_secs(5);

const INTERNAL: &str = "thicket_messages_total{traffic=\"internal\",direction=\"out\"}";

/// The messages of one subscriber: topics with numbers.
#[derive(Debug, Default)]
struct Heard {
    seen: HashSet<(u32, u32)>,
    twice: u64,
}

#[derive(Debug, Deserialize)]
struct Told {
    plan: Option<ToldPlan>,
}

#[derive(Debug, Deserialize)]
struct ToldPlan {
    before: ToldBalance,
    after: ToldBalance,
    move_count: u64,
}

#[derive(Debug, Deserialize)]
struct ToldBalance {
    internal_messages_per_s: f64,
}

/// The clients, and their records.
struct Network {
    publishers: Vec<Client>,
    subscribers: Vec<Client>,
    /// Topics by subscriber.
    wanted: Vec<Vec<usize>>,
    heard: Vec<Arc<Mutex<Heard>>>,
    /// Numbers that were acknowledged, by topic.
    sent: Vec<Arc<Mutex<Vec<u32>>>>,
}

pub(super) async fn play(
    experiment: &RebalanceExperiment,
    nodes: &[Running],
) -> Result<RebalanceOutcome, BenchError> {
    let network = Network::attach(experiment, nodes).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let publishing = network.publish(experiment, &is_over);
    tokio::time::sleep(MEANS).await;
    let random = internal_per_s(nodes).await;
    let dry_run = ask(experiment, nodes, &["--dry-run"]).await?;
    let began = Instant::now();
    let moved_before = moves(&apis(nodes));
    let pass = ask(experiment, nodes, &[]).await?;
    let expected = moved_before + pass.move_count;
    let all_moved = move |all: &[std::net::SocketAddr]| moves(all) >= expected;
    let ordered = until(experiment.within, began, apis(nodes), all_moved).await;
    let took = match ordered {
        Some(_) => network.settle(experiment.within).await.map(|at| at - began),
        None => None,
    };
    let after = internal_per_s(nodes).await;
    let internal = InternalTraffic {
        random,
        planned_random: dry_run.before.internal_messages_per_s,
        promised: dry_run.after.internal_messages_per_s,
        after,
        sessions: network.sessions().values().map(|it| *it as u64).sum(),
    };
    is_over.store(true, Ordering::Relaxed);
    for task in publishing {
        let _ = tokio::time::timeout(READY_WITHIN, task).await;
    }
    tokio::time::sleep(SETTLE).await;
    let mut outcome = RebalanceOutcome {
        act: RebalanceAct::Random,
        took_s: took.map(|took| took.as_secs_f64()),
        jain: jain(&connections(&apis(nodes))).unwrap_or(0.0),
        internal: Some(internal),
        loads: None,
        moved: moves(&apis(nodes)).saturating_sub(moved_before),
        acknowledged: 0,
        lost: 0,
        twice: 0,
        calm_gap_ms: [0.0; 3],
        gap_ms: [0.0; 3],
        break_ms: [0.0; 3],
        most_breaks: 0,
        others_delay_ms: [0.0; 2],
    };
    network.count(&mut outcome);
    network.close().await;
    Ok(outcome)
}

impl Network {
    async fn attach(
        experiment: &RebalanceExperiment,
        nodes: &[Running],
    ) -> Result<Self, BenchError> {
        let count = experiment.pairs;
        let mut random = Random::new(1);
        let law = Zipf::new(count, ALPHA);
        let mut wanted = Vec::new();
        for _ in 0..count {
            let mut all = BTreeSet::new();
            while all.len() < WANTED.min(count) {
                all.insert(law.sample(&mut random));
            }
            wanted.push(all.into_iter().collect::<Vec<usize>>());
        }
        let mut network = Self {
            publishers: Vec::new(),
            subscribers: Vec::new(),
            wanted,
            heard: (0..count).map(|_| Arc::default()).collect(),
            sent: (0..count).map(|_| Arc::default()).collect(),
        };
        for number in 0..2 * count {
            let node = &nodes[random.below(nodes.len())];
            let name = if number < count { "pub" } else { "sub" };
            let client = connect(node, &format!("{name}-{}", number % count)).await?;
            if number < count {
                network.publishers.push(client);
            } else {
                network.subscribers.push(client);
            }
        }
        for (at, client) in network.subscribers.iter().enumerate() {
            for topic in &network.wanted[at] {
                let subscribed = client.subscribe(&topic_name(*topic), experiment.qos).await;
                subscribed.map_err(|error| BenchError::Setting(format!("sub-{at}: {error}")))?;
            }
            tokio::spawn(listen(client.clone(), Arc::clone(&network.heard[at])));
        }
        Ok(network)
    }

    fn publish(
        &self,
        experiment: &RebalanceExperiment,
        is_over: &Arc<AtomicBool>,
    ) -> Vec<tokio::task::JoinHandle<()>> {
        let period = Duration::from_secs_f64(1.0 / experiment.rate_per_s);
        let qos = experiment.qos;
        let publish = |(topic, client): (usize, &Client)| {
            let (client, is_over) = (client.clone(), Arc::clone(is_over));
            let sent = Arc::clone(&self.sent[topic]);
            tokio::spawn(publish(topic, client, sent, is_over, period, qos))
        };
        self.publishers.iter().enumerate().map(publish).collect()
    }

    /// Sessions at each address.
    fn sessions(&self) -> BTreeMap<String, usize> {
        let mut sessions: BTreeMap<String, usize> = BTreeMap::new();
        for client in self.publishers.iter().chain(&self.subscribers) {
            for address in client.status().sessions.into_values() {
                *sessions.entry(address).or_default() += 1;
            }
        }
        sessions
    }

    /// Waits until no client has opened or left a session for a while; returns since when.
    async fn settle(&self, within: Duration) -> Option<Instant> {
        let end = Instant::now() + within;
        let (mut last, mut since) = (self.sessions(), Instant::now());
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = self.sessions();
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET {
                return Some(since);
            }
        }
        None
    }

    fn count(&self, outcome: &mut RebalanceOutcome) {
        for sent in &self.sent {
            outcome.acknowledged += lock(sent).len() as u64;
        }
        for (heard, wanted) in self.heard.iter().zip(&self.wanted) {
            let heard = lock(heard);
            outcome.twice += heard.twice;
            for topic in wanted {
                let sent = lock(&self.sent[*topic]);
                let came = |number: &&u32| heard.seen.contains(&(*topic as u32, **number));
                outcome.lost += sent.iter().filter(|number| !came(number)).count() as u64;
            }
        }
    }

    async fn close(self) {
        for client in self.publishers.iter().chain(&self.subscribers) {
            let _ = tokio::time::timeout(Duration::from_millis(100), client.close()).await;
        }
    }
}

fn topic_name(topic: usize) -> String {
    format!("scattered/{topic}")
}

/// It connects to the placement for a topic that no other client has: where there is capacity.
async fn connect(node: &Running, client_id: &str) -> Result<Client, BenchError> {
    let mut options = Options::new(format!("mqtt://{}", node.address));
    options.client_id = client_id.to_owned();
    options.session_expiry = Duration::from_secs(600);
    options.max_sessions = MAX_SESSIONS;
    options.publish = vec![format!("start/{client_id}")];
    options.connect_timeout = READY_WITHIN;
    let connected = Client::connect(options).await;
    connected.map_err(|error| BenchError::Setting(format!("{client_id}: {error}")))
}

async fn listen(subscriber: Client, heard: Arc<Mutex<Heard>>) {
    while let Some(message) = subscriber.next().await {
        let number = |at: usize| {
            let bytes = message.payload.get(at..at + 4)?;
            bytes.try_into().ok().map(u32::from_le_bytes)
        };
        let (Some(topic), Some(number)) = (number(0), number(4)) else {
            continue;
        };
        let mut heard = lock(&heard);
        if !heard.seen.insert((topic, number)) {
            heard.twice += 1;
        }
    }
}

async fn publish(
    topic: usize,
    publisher: Client,
    sent: Arc<Mutex<Vec<u32>>>,
    is_over: Arc<AtomicBool>,
    period: Duration,
    qos: Qos,
) {
    // Publishers must not be synchronous.
    tokio::time::sleep(period.mul_f64((topic as f64 * 0.618).fract())).await;
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for number in 0u32.. {
        ticks.tick().await;
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let mut payload = (topic as u32).to_le_bytes().to_vec();
        payload.extend(number.to_le_bytes());
        let message = Message::new(topic_name(topic), payload).qos(qos);
        if publisher.publish(message).await.is_ok() {
            lock(&sent).push(number);
        }
    }
}

/// Messages a second between nodes, counted for an interval.
async fn internal_per_s(nodes: &[Running]) -> f64 {
    let apis = apis(nodes);
    let count = move || {
        let of = |api: &std::net::SocketAddr| sum_at(*api, INTERNAL).unwrap_or(0);
        (apis.iter().map(of).sum::<u64>(), Instant::now())
    };
    let before = tokio::task::spawn_blocking(count.clone()).await;
    tokio::time::sleep(COUNTED).await;
    let after = tokio::task::spawn_blocking(count).await;
    match (before, after) {
        (Ok((before, began)), Ok((after, ended))) => {
            after.saturating_sub(before) as f64 / (ended - began).as_secs_f64()
        }
        (Err(_), _) | (_, Err(_)) => f64::NAN,
    }
}

/// Runs `thicket ctl rebalance`.
async fn ask(
    experiment: &RebalanceExperiment,
    nodes: &[Running],
    arguments: &[&'static str],
) -> Result<ToldPlan, BenchError> {
    let mut command = std::process::Command::new(&experiment.thicket);
    let api = nodes[0].other_address.to_string();
    command.args(["ctl", "rebalance", "--json", "--api", &api]);
    command.args(arguments);
    let told = tokio::task::spawn_blocking(move || command.output()).await;
    let told = told.map_err(|_| BenchError::Setting("thicket ctl could not be run".into()))?;
    let told = told.map_err(BenchError::system("thicket ctl rebalance"))?;
    let wrong = || {
        let problem = String::from_utf8_lossy(&told.stderr);
        BenchError::Setting(format!("thicket ctl rebalance: {problem}"))
    };
    let report: Told = serde_json::from_slice(&told.stdout).map_err(|_| wrong())?;
    report.plan.ok_or_else(wrong)
}

/// The table of this act.
pub(super) fn add_table(report: &mut Report, outcomes: &[RebalanceOutcome]) {
    let found = outcomes.iter().filter_map(|outcome| outcome.internal);
    let found: Vec<InternalTraffic> = found.collect();
    if found.is_empty() {
        return;
    }
    let mut table = Table::new([
        "messages/s between nodes: at random",
        "as planned",
        "promised by --dry-run",
        "after one pass",
        "of random, %",
        "against the promise, %",
        "sessions",
    ]);
    for one in found {
        let percent = |part: f64, whole: f64| format!("{:.1}", 100.0 * part / whole);
        table.row([
            format!("{:.0}", one.random),
            format!("{:.0}", one.planned_random),
            format!("{:.0}", one.promised),
            format!("{:.0}", one.after),
            percent(one.after, one.random),
            percent(one.after - one.promised, one.promised),
            one.sessions.to_string(),
        ]);
    }
    report.push(Part::Table(table));
}
