//! What rebalancing does on real nodes: clients that follow are moved when a node joins, leaves, or runs hot, and when the rebalancer dies.
//!
//! Each publisher has a topic and a subscriber of its own, all sessions outlive their connections. A message carries its number, so a subscriber
//! knows what is missing and what came twice; and its longest wait between two messages shows what a move costs its client.

mod scattered;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use thicket_client::{Client, Message, Options, Placement, Qos};
use tokio::runtime::Builder;

use crate::BenchError;
use crate::cluster::{READY_WITHIN, addresses, jain, start_node, start_nodes, sum_at};
use crate::report::{Part, Report, Table};
use crate::target::Running;

/// Until what was on its way has come.
const SETTLE: Duration = Duration::from_secs(5);
/// Time between two looks at what the nodes have done.
const LOOK: Duration = Duration::from_millis(500);
/// The load counts as even from this index of Jain on.
const EVEN: f64 = 0.95;
/// Messages of one publisher at most, beyond which its subscriber could not tell.
const NUMBERS: usize = 1 << 20;

/// What happens to the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceAct {
    /// Another node joins.
    ScaleOut,
    /// A node is drained.
    Drain,
    /// The rebalancer is killed when some of the clients, all of which began at one node, have been moved.
    Kill,
    /// Clients that may have several sessions are at random nodes with one each, and are placed anew.
    Random,
}

impl RebalanceAct {
    /// The name users give.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScaleOut => "scale-out",
            Self::Drain => "drain",
            Self::Kill => "kill",
            Self::Random => "random",
        }
    }
}

/// What to play.
#[derive(Debug, Clone)]
pub struct RebalanceExperiment {
    /// The program `thicket`, for the nodes.
    pub thicket: PathBuf,
    /// Nodes at the start, at least 2.
    pub nodes: usize,
    /// Publishers, each with a topic and a subscriber.
    pub pairs: usize,
    /// Messages a second of each.
    pub rate_per_s: f64,
    /// At this QoS.
    pub qos: Qos,
    /// Moves a second.
    pub moves_per_s: u32,
    /// What happens, one run each.
    pub acts: Vec<RebalanceAct>,
    /// How long it may take.
    pub within: Duration,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RebalanceOutcome {
    /// What happened.
    pub act: RebalanceAct,
    /// From then until the load was even, the node was empty, or moves went on, in seconds; none: not within the time.
    pub took_s: Option<f64>,
    /// Jain's index of the clients at the nodes that are left, at the end.
    pub jain: f64,
    /// Messages between nodes, in the act that is about them.
    pub internal: Option<InternalTraffic>,
    /// Clients that were sent away by the rebalancer.
    pub moved: u64,
    /// Messages that a publisher had acknowledged.
    pub acknowledged: u64,
    /// Of these, those that did not come.
    pub lost: u64,
    /// Messages that came more than once.
    pub twice: u64,
    /// Longest wait of a subscriber between two messages before it happened, in milliseconds: p50, p99 and the longest of all subscribers.
    pub calm_gap_ms: [f64; 3],
    /// The same after it.
    pub gap_ms: [f64; 3],
}

/// Messages a second between nodes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct InternalTraffic {
    /// Measured while all clients are at random nodes.
    pub random: f64,
    /// What a dry run says of that.
    pub planned_random: f64,
    /// What it promises.
    pub promised: f64,
    /// Measured after one pass.
    pub after: f64,
    /// Sessions of all clients then.
    pub sessions: u64,
}

/// What one subscriber notes.
#[derive(Debug, Default)]
struct Heard {
    seen: Vec<bool>,
    twice: u64,
    last: Option<Instant>,
    longest: Duration,
}

/// A publisher and what became of its messages.
#[derive(Debug, Default)]
struct Sent {
    /// Numbers that were acknowledged.
    acknowledged: Mutex<Vec<u32>>,
}

/// Plays each act with nodes of its own.
///
/// # Errors
/// A node does not start, or a client is not served.
pub fn play_rebalancing(
    experiment: &RebalanceExperiment,
    say: &mut dyn FnMut(String),
) -> Result<Vec<RebalanceOutcome>, BenchError> {
    let mut outcomes = Vec::new();
    for &act in &experiment.acts {
        say(format!("{}: nodes start", act.name()));
        let arguments = arguments_of(experiment, act);
        let mut nodes = start_nodes(&experiment.thicket, experiment.nodes, &arguments, None)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(BenchError::system("the clients' runtime"))?;
        let outcome = match act {
            RebalanceAct::Random => runtime.block_on(scattered::play(experiment, &nodes))?,
            RebalanceAct::ScaleOut | RebalanceAct::Drain | RebalanceAct::Kill => {
                runtime.block_on(play_one(experiment, act, &mut nodes))?
            }
        };
        say(format!(
            "{}: {} s, {} moved, {} of {} lost, {} twice",
            act.name(),
            outcome
                .took_s
                .map_or("not".into(), |took| format!("{took:.1}")),
            outcome.moved,
            outcome.lost,
            outcome.acknowledged,
            outcome.twice
        ));
        outcomes.push(outcome);
        runtime.shutdown_background();
        for node in nodes {
            node.stop()?;
        }
    }
    Ok(outcomes)
}

fn apis(nodes: &[Running]) -> Vec<SocketAddr> {
    nodes.iter().map(|node| node.other_address).collect()
}

/// What its nodes get besides.
fn arguments_of(experiment: &RebalanceExperiment, act: RebalanceAct) -> [String; 3] {
    // Messages to backups cross between nodes, too: where those are counted there are none.
    let (mode, backups) = match act {
        RebalanceAct::Random => ("suggest", 0),
        RebalanceAct::ScaleOut | RebalanceAct::Drain | RebalanceAct::Kill => ("on", 1),
    };
    [
        format!("--rebalance={mode}"),
        format!("--redirect-per-s={}", experiment.moves_per_s),
        format!("--backups={backups}"),
    ]
}

/// A node whose clients are still there when the rebalancer is killed.
fn not_the_rebalancer(nodes: &[Running]) -> Result<usize, BenchError> {
    let until = Instant::now() + READY_WITHIN;
    loop {
        let told = |api: &SocketAddr| sum_at(*api, "thicket_rebalancer");
        let told: Vec<Option<u64>> = apis(nodes).iter().map(told).collect();
        if told.contains(&Some(1)) {
            return Ok(told.iter().position(|it| *it != Some(1)).unwrap_or(0));
        }
        if Instant::now() > until {
            let found = format!("no node is the rebalancer after {READY_WITHIN:?}");
            return Err(BenchError::Setting(found));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

async fn play_one(
    experiment: &RebalanceExperiment,
    act: RebalanceAct,
    nodes: &mut Vec<Running>,
) -> Result<RebalanceOutcome, BenchError> {
    let pairs = experiment.pairs;
    let heard: Vec<Arc<Mutex<Heard>>> = (0..pairs).map(|_| Arc::default()).collect();
    let sent: Vec<Arc<Sent>> = (0..pairs).map(|_| Arc::default()).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let crowded = if act == RebalanceAct::Kill {
        not_the_rebalancer(nodes)?
    } else {
        0
    };
    let mut clients = Vec::new();
    let mut tasks = Vec::new();
    for pair in 0..pairs {
        // A pair comes together, except that the members of every fourth come to different nodes.
        let here = if act == RebalanceAct::Kill {
            crowded
        } else {
            pair % nodes.len()
        };
        let there = if act == RebalanceAct::Kill || pair % 4 > 0 {
            here
        } else {
            (here + 1) % nodes.len()
        };
        let subscriber =
            connect(experiment, &nodes[here], &format!("sub-{pair}"), pair, true).await?;
        let publisher = connect(
            experiment,
            &nodes[there],
            &format!("pub-{pair}"),
            pair,
            false,
        )
        .await?;
        tokio::spawn(listen(subscriber.clone(), Arc::clone(&heard[pair])));
        let publishing = Publishing {
            pair,
            period: Duration::from_secs_f64(1.0 / experiment.rate_per_s),
            qos: experiment.qos,
            sent: Arc::clone(&sent[pair]),
            is_over: Arc::clone(&is_over),
        };
        tasks.push(tokio::spawn(publishing.run(publisher.clone())));
        clients.extend([subscriber, publisher]);
    }
    if act != RebalanceAct::Kill {
        tokio::time::sleep(2 * SETTLE).await;
    }
    let calm_gap_ms = gaps(&heard);
    let moved_before = moves(&apis(nodes));
    let took = match act {
        RebalanceAct::ScaleOut => scale_out(experiment, nodes).await?,
        RebalanceAct::Drain => drain(experiment, nodes).await?,
        RebalanceAct::Kill | RebalanceAct::Random => kill(experiment, nodes).await?,
    };
    let moved = moves(&apis(nodes)).saturating_sub(moved_before);
    tokio::time::sleep(SETTLE).await;
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        let _ = tokio::time::timeout(READY_WITHIN, task).await;
    }
    tokio::time::sleep(SETTLE).await;
    let gap_ms = gaps(&heard);
    let jain = jain(&connections(&left(act, nodes))).unwrap_or(0.0);
    let mut outcome = RebalanceOutcome {
        act,
        took_s: took.map(|took| took.as_secs_f64()),
        jain,
        internal: None,
        moved,
        acknowledged: 0,
        lost: 0,
        twice: 0,
        calm_gap_ms,
        gap_ms,
    };
    for (heard, sent) in heard.iter().zip(&sent) {
        let heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sent
            .acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let came = |number: &&u32| heard.seen.get(**number as usize).copied().unwrap_or(false);
        outcome.acknowledged += sent.len() as u64;
        outcome.lost += sent.iter().filter(|number| !came(number)).count() as u64;
        outcome.twice += heard.twice;
    }
    for client in clients {
        let _ = tokio::time::timeout(Duration::from_millis(100), client.close()).await;
    }
    Ok(outcome)
}

/// Another node joins: until the clients are even.
async fn scale_out(
    experiment: &RebalanceExperiment,
    nodes: &mut Vec<Running>,
) -> Result<Option<Duration>, BenchError> {
    let began = Instant::now();
    let (thicket, seeds) = (experiment.thicket.clone(), addresses(nodes));
    let arguments = arguments_of(experiment, RebalanceAct::ScaleOut);
    let starts = move || start_node(&thicket, &arguments, &seeds);
    let joined = tokio::task::spawn_blocking(starts).await;
    let joined = joined.map_err(|_| BenchError::Setting("a node could not be started".into()))?;
    nodes.push(joined?);
    Ok(until(experiment.within, began, apis(nodes), is_even).await)
}

/// A node is drained: until it has no clients and no sessions.
async fn drain(
    experiment: &RebalanceExperiment,
    nodes: &[Running],
) -> Result<Option<Duration>, BenchError> {
    let leaving = &nodes[nodes.len() - 1];
    let began = Instant::now();
    let mut child = std::process::Command::new(&experiment.thicket)
        .args(["ctl", "drain", "--api", &leaving.other_address.to_string()])
        .arg(format!("--timeout={}", experiment.within.as_secs()))
        .stdout(std::process::Stdio::null())
        .spawn()
        .map_err(BenchError::system("thicket ctl drain"))?;
    loop {
        let ended = child.try_wait();
        if let Some(ended) = ended.map_err(BenchError::system("thicket ctl drain"))? {
            return Ok(ended.success().then(|| began.elapsed()));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The rebalancer is killed in the midst of its moves: until another one goes on with them.
async fn kill(
    experiment: &RebalanceExperiment,
    nodes: &mut Vec<Running>,
) -> Result<Option<Duration>, BenchError> {
    let began = Instant::now();
    let some = u64::from(experiment.moves_per_s);
    let all = apis(nodes);
    let have_moved = move |all: &[SocketAddr]| moves(all) >= some;
    if until(experiment.within, began, all.clone(), have_moved)
        .await
        .is_none()
    {
        return Ok(None);
    }
    let is_it = |api: &SocketAddr| sum_at(*api, "thicket_rebalancer") == Some(1);
    let Some(at) = all.iter().position(is_it) else {
        return Ok(None);
    };
    let killed = Instant::now();
    nodes.remove(at).kill()?;
    let others = apis(nodes);
    let before = moves(&others);
    let go_on = move |others: &[SocketAddr]| moves(others) > before;
    let went_on = until(experiment.within, killed, others.clone(), go_on).await;
    // The rest of what there is to do.
    until(experiment.within, Instant::now(), others, is_even).await;
    Ok(went_on)
}

/// Looks until it is so; how long that took since `began`. On another thread: clients are not to wait meanwhile.
async fn until(
    within: Duration,
    began: Instant,
    apis: Vec<SocketAddr>,
    is_so: impl Fn(&[SocketAddr]) -> bool + Send + Clone + 'static,
) -> Option<Duration> {
    let end = Instant::now() + within;
    while Instant::now() < end {
        let (apis, is_so) = (apis.clone(), is_so.clone());
        let looked = tokio::task::spawn_blocking(move || is_so(&apis)).await;
        if looked.unwrap_or(false) {
            return Some(began.elapsed());
        }
        tokio::time::sleep(LOOK).await;
    }
    None
}

fn is_even(apis: &[SocketAddr]) -> bool {
    jain(&connections(apis)).is_some_and(|index| index >= EVEN)
}

fn moves(apis: &[SocketAddr]) -> u64 {
    let of = |api: &SocketAddr| sum_at(*api, "thicket_rebalance_moves_total").unwrap_or(0);
    apis.iter().map(of).sum()
}

/// The nodes that are to have clients.
fn left(act: RebalanceAct, nodes: &[Running]) -> Vec<SocketAddr> {
    let mut left = apis(nodes);
    left.truncate(nodes.len() - usize::from(act == RebalanceAct::Drain));
    left
}

/// Clients at each node.
fn connections(apis: &[SocketAddr]) -> Vec<f64> {
    let of = |api: &SocketAddr| sum_at(*api, "thicket_connections").unwrap_or(0) as f64;
    apis.iter().map(of).collect()
}

/// Longest waits of all subscribers since the last call, in milliseconds.
fn gaps(heard: &[Arc<Mutex<Heard>>]) -> [f64; 3] {
    let mut all: Vec<f64> = Vec::new();
    for one in heard {
        let mut one = one.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(std::mem::take(&mut one.longest).as_secs_f64() * 1e3);
    }
    all.sort_by(f64::total_cmp);
    let at = |part: f64| all.get(((all.len() as f64 * part) as usize).min(all.len() - 1));
    [0.5, 0.99, 1.0].map(|part| at(part).copied().unwrap_or(0.0))
}

async fn connect(
    experiment: &RebalanceExperiment,
    node: &Running,
    client_id: &str,
    pair: usize,
    subscribes: bool,
) -> Result<Client, BenchError> {
    let mut options = Options::new(format!("mqtt://{}", node.address));
    options.client_id = client_id.to_owned();
    options.session_expiry = Duration::from_secs(600);
    options.placement = Placement::Off;
    if subscribes {
        options.subscribe = vec![(topic_name(pair), experiment.qos)];
    }
    options.connect_timeout = READY_WITHIN;
    let connected = Client::connect(options).await;
    connected.map_err(|error| BenchError::Setting(format!("{client_id}: {error}")))
}

fn topic_name(pair: usize) -> String {
    format!("rebalance/{pair}")
}

async fn listen(subscriber: Client, heard: Arc<Mutex<Heard>>) {
    while let Some(message) = subscriber.next().await {
        let number = message
            .payload
            .first_chunk()
            .copied()
            .map(u32::from_le_bytes);
        let Some(number) = number.map(|it| it as usize).filter(|it| *it < NUMBERS) else {
            continue;
        };
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some(last) = heard.last.replace(now) {
            heard.longest = heard.longest.max(now - last);
        }
        if heard.seen.len() <= number {
            heard.seen.resize(number + 1, false);
        }
        if std::mem::replace(&mut heard.seen[number], true) {
            heard.twice += 1;
        }
    }
}

/// What one publisher does.
struct Publishing {
    pair: usize,
    period: Duration,
    qos: Qos,
    sent: Arc<Sent>,
    is_over: Arc<AtomicBool>,
}

impl Publishing {
    async fn run(self, publisher: Client) {
        // Publishers do not beat in time.
        tokio::time::sleep(self.period.mul_f64((self.pair as f64 * 0.618).fract())).await;
        let mut ticks = tokio::time::interval(self.period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0..NUMBERS as u32 {
            ticks.tick().await;
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let message = Message::new(topic_name(self.pair), number.to_le_bytes()).qos(self.qos);
            if publisher.publish(message).await.is_ok() {
                let acknowledged = &self.sent.acknowledged;
                acknowledged
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(number);
            }
        }
    }
}

/// The table.
#[must_use]
pub fn rebalance_report(experiment: &RebalanceExperiment, outcomes: &[RebalanceOutcome]) -> Report {
    let mut report = Report::new(format!(
        "Rebalancing: {} nodes, {} publishers of {} messages a second at QoS {}, each with a subscriber, all persistent and following",
        experiment.nodes, experiment.pairs, experiment.rate_per_s, experiment.qos as u8
    ));
    let mut table = Table::new([
        "what happens",
        "took, s",
        "Jain of clients after it",
        "moved",
        "acknowledged",
        "lost",
        "twice",
        "gap before, ms: p50",
        "p99",
        "longest",
        "gap after, ms: p50",
        "p99",
        "longest",
    ]);
    for one in outcomes {
        let [calm_p50, calm_p99, calm] = one.calm_gap_ms.map(|gap| format!("{gap:.0}"));
        let [p50, p99, longest] = one.gap_ms.map(|gap| format!("{gap:.0}"));
        table.row([
            one.act.name().to_owned(),
            one.took_s
                .map_or("not in time".into(), |took| format!("{took:.1}")),
            format!("{:.3}", one.jain),
            one.moved.to_string(),
            one.acknowledged.to_string(),
            one.lost.to_string(),
            one.twice.to_string(),
            calm_p50,
            calm_p99,
            calm,
            p50,
            p99,
            longest,
        ]);
    }
    report.push(Part::Table(table));
    scattered::add_table(&mut report, outcomes);
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_waits_are_taken_once() {
        let heard: Vec<Arc<Mutex<Heard>>> = (1..=100)
            .map(|millis| {
                let longest = Duration::from_millis(millis);
                Arc::new(Mutex::new(Heard {
                    longest,
                    ..Heard::default()
                }))
            })
            .collect();
        assert_eq!(gaps(&heard), [51.0, 100.0, 100.0]);
        assert_eq!(gaps(&heard), [0.0; 3]);
    }
}
