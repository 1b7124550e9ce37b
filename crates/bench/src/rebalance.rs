//! Rebalancing on real nodes: clients that follow redirections are moved when a node joins, leaves, or is overloaded, and when the rebalancer fails.
//!
//! Each publisher has a topic and a subscriber of its own; all sessions are persistent. A message contains its number, so a subscriber detects
//! missing and duplicate messages, and its send time. The cost of a move for its client: the time without a connection, and the longest wait between
//! two messages. The cost for others: the delay of messages to clients that are not moved.

mod clients;
mod crowd;
mod nodes;
mod scattered;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::Serialize;
use thicket_client::Qos;
use tokio::runtime::Builder;

use self::clients::{
    Breaks, Heard, Publishing, Sent, break_times, connect, gaps, homes, listen, lock, most_breaks,
    p99_of, take_delays, topic_name, watch,
};
use self::nodes::{apis, connections, moves, until};
use crate::BenchError;
use crate::cluster::{READY_WITHIN, addresses, jain, start_node, start_nodes, sum_at};
use crate::report::{Part, Report, Table};
use crate::target::Running;

/// Time until messages under way have arrived.
const SETTLE: Duration = Duration::from_secs(5);
/// Rates of clients are means of half a minute.
const MEANS: Duration = Duration::from_secs(35);
/// The load counts as even from this value of Jain's index on.
const EVEN: f64 = 0.95;
/// What happens to the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceAct {
    /// Another node joins.
    ScaleOut,
    /// A node is drained.
    Drain,
    /// The rebalancer is killed when some of the clients, all of which started at one node, have been moved.
    Kill,
    /// Clients that may have several sessions are at random nodes with one each, and are placed again.
    Random,
    /// Many subscribers at one node move to a topic with ten times the messages.
    FlashCrowd,
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
            Self::FlashCrowd => "flash-crowd",
        }
    }
}

/// The settings of the experiment.
#[derive(Debug, Clone)]
pub struct RebalanceExperiment {
    /// The program `thicket`, for the nodes.
    pub thicket: PathBuf,
    /// Nodes at the start, at least 2.
    pub nodes: usize,
    /// Publishers, each with a topic and a subscriber.
    pub pairs: usize,
    /// Subscribers that change to another topic, in a flash crowd.
    pub crowd: usize,
    /// Messages a second of each publisher.
    pub rate_per_s: f64,
    /// QoS of the messages.
    pub qos: Qos,
    /// Moves a second.
    pub moves_per_s: u32,
    /// What happens, one run each.
    pub acts: Vec<RebalanceAct>,
    /// Longest duration.
    pub within: Duration,
}

/// One run.
#[derive(Debug, Clone, Serialize)]
pub struct RebalanceOutcome {
    /// What happened.
    pub act: RebalanceAct,
    /// From the event until the load was even, the node was empty, others were moved again, or all had settled, in seconds; `None`: not within the
    /// time.
    pub took_s: Option<f64>,
    /// Jain's index of the clients at the remaining nodes, at the end.
    pub jain: f64,
    /// Messages between nodes, where the act is about them.
    pub internal: Option<InternalTraffic>,
    /// Loads of nodes, where the act is about them.
    pub loads: Option<CrowdLoads>,
    /// Clients that the rebalancer moved.
    pub moved: u64,
    /// Messages that were acknowledged to their publishers.
    pub acknowledged: u64,
    /// Of these, those that did not arrive.
    pub lost: u64,
    /// Messages that arrived more than once.
    pub twice: u64,
    /// Longest wait of a subscriber between two messages before the event, in milliseconds: p50, p99 and maximum over all subscribers.
    pub calm_gap_ms: [f64; 3],
    /// The same after it.
    pub gap_ms: [f64; 3],
    /// Time without a connection of moved clients, in milliseconds: p50, p99 and maximum.
    pub break_ms: [f64; 3],
    /// Most disconnections of one client.
    pub most_breaks: u64,
    /// Delay from the publisher to a subscriber that was not moved, in milliseconds, p99: before the event, and after it.
    pub others_delay_ms: [f64; 2],
}

/// The highest load of a node, relative to the mean.
#[derive(Debug, Clone, Serialize)]
pub struct CrowdLoads {
    /// Before any subscriber changed its topic.
    pub before: f64,
    /// The highest.
    pub peak: f64,
    /// At the end.
    pub after: f64,
    /// Seconds since the first change, and the load then.
    pub over_time: Vec<(f64, f64)>,
}

/// Messages a second between nodes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct InternalTraffic {
    /// Measured while all clients are at random nodes.
    pub random: f64,
    /// The value of a dry run for that.
    pub planned_random: f64,
    /// The value that it predicts.
    pub promised: f64,
    /// Measured after one pass.
    pub after: f64,
    /// Sessions of all clients then.
    pub sessions: u64,
}

/// Runs each act with its own nodes.
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
            RebalanceAct::FlashCrowd => runtime.block_on(crowd::play(experiment, &nodes))?,
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

/// Additional arguments of its nodes.
fn arguments_of(experiment: &RebalanceExperiment, act: RebalanceAct) -> [String; 3] {
    // Messages to backups are sent between nodes, too: where those are counted there are no backups.
    let (mode, backups) = match act {
        RebalanceAct::Random => ("suggest", 0),
        RebalanceAct::ScaleOut
        | RebalanceAct::Drain
        | RebalanceAct::Kill
        | RebalanceAct::FlashCrowd => ("on", 1),
    };
    [
        format!("--rebalance={mode}"),
        format!("--redirect-per-s={}", experiment.moves_per_s),
        format!("--backups={backups}"),
    ]
}

/// A node that still has its clients when the rebalancer is killed.
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
    let epoch = Instant::now();
    let crowded = if act == RebalanceAct::Kill {
        not_the_rebalancer(nodes)?
    } else {
        0
    };
    let (mut subscribers, mut publishers) = (Vec::new(), Vec::new());
    let mut tasks = Vec::new();
    for pair in 0..pairs {
        // A pair starts at one node, except that the members of every fourth start at different nodes.
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
        let subscriber = connect(
            experiment.qos,
            &nodes[here],
            &format!("sub-{pair}"),
            Some(topic_name(pair)),
        )
        .await?;
        let publisher =
            connect(experiment.qos, &nodes[there], &format!("pub-{pair}"), None).await?;
        let noted = Arc::clone(&heard[pair]);
        tokio::spawn(listen(subscriber.clone(), noted, topic_name(pair), epoch));
        let publishing = Publishing {
            topic: topic_name(pair),
            phase: (pair as f64 * 0.618).fract(),
            epoch,
            period: Duration::from_secs_f64(1.0 / experiment.rate_per_s),
            qos: experiment.qos,
            sent: Arc::clone(&sent[pair]),
            is_over: Arc::clone(&is_over),
        };
        tasks.push(tokio::spawn(publishing.run(publisher.clone())));
        subscribers.push(subscriber);
        publishers.push(publisher);
    }
    let all = || subscribers.iter().chain(&publishers);
    let breaks: Vec<Breaks> = all().map(watch).collect();
    if act != RebalanceAct::Kill {
        tokio::time::sleep(2 * SETTLE).await;
    }
    let calm_gap_ms = gaps(&heard);
    let calm_delays = take_delays(&heard);
    let homes_before = homes(&subscribers);
    breaks.iter().for_each(|breaks| lock(breaks).clear());
    let moved_before = moves(&apis(nodes));
    let took = match act {
        RebalanceAct::ScaleOut => scale_out(experiment, nodes).await?,
        RebalanceAct::Drain => drain(experiment, nodes).await?,
        RebalanceAct::Kill | RebalanceAct::Random | RebalanceAct::FlashCrowd => {
            kill(experiment, nodes).await?
        }
    };
    let moved = moves(&apis(nodes)).saturating_sub(moved_before);
    tokio::time::sleep(SETTLE).await;
    let homes_after = homes(&subscribers);
    let stayed = |at: usize| homes_before[at] == homes_after[at];
    let delays = [calm_delays, take_delays(&heard)];
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
        loads: None,
        moved,
        acknowledged: 0,
        lost: 0,
        twice: 0,
        calm_gap_ms,
        gap_ms,
        break_ms: break_times(&breaks),
        most_breaks: most_breaks(&breaks),
        others_delay_ms: delays.map(|delays| p99_of(delays, stayed)),
    };
    for (heard, sent) in heard.iter().zip(&sent) {
        let heard = lock(heard);
        let sent = lock(&sent.acknowledged);
        let came = |number: &&u32| heard.seen.get(**number as usize).copied().unwrap_or(false);
        outcome.acknowledged += sent.len() as u64;
        outcome.lost += sent.iter().filter(|number| !came(number)).count() as u64;
        outcome.twice += heard.twice;
    }
    for client in all() {
        let _ = tokio::time::timeout(Duration::from_millis(100), client.close()).await;
    }
    Ok(outcome)
}

/// Another node joins: until the clients are distributed evenly.
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

/// The rebalancer is killed during its moves: until another one continues.
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
    // The remaining moves.
    until(experiment.within, Instant::now(), others, is_even).await;
    Ok(went_on)
}

fn is_even(apis: &[SocketAddr]) -> bool {
    jain(&connections(apis)).is_some_and(|index| index >= EVEN)
}

/// The nodes that should have clients at the end.
fn left(act: RebalanceAct, nodes: &[Running]) -> Vec<SocketAddr> {
    let mut left = apis(nodes);
    left.truncate(nodes.len() - usize::from(act == RebalanceAct::Drain));
    left
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
    let mut table = Table::new([
        "what happens",
        "without a connection, ms: p50",
        "p99",
        "longest",
        "of one client at most",
        "delay to others, p99, ms: before",
        "from then on",
    ]);
    let about_all = |one: &&RebalanceOutcome| one.act != RebalanceAct::Random;
    let mut told = outcomes.iter().filter(about_all).peekable();
    let is_empty = told.peek().is_none();
    for one in told {
        let [p50, p99, longest] = one.break_ms.map(|time| format!("{time:.1}"));
        let [before, after] = one.others_delay_ms.map(|delay| format!("{delay:.1}"));
        let most = format!("{} times", one.most_breaks);
        let name = one.act.name().to_owned();
        table.row([name, p50, p99, longest, most, before, after]);
    }
    if !is_empty {
        report.push(Part::Table(table));
    }
    crowd::add_table(&mut report, outcomes);
    scattered::add_table(&mut report, outcomes);
    report
}
