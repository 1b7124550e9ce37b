//! Rebalancing on real nodes: clients that follow redirections are moved when a node joins, leaves, or is overloaded, and when the rebalancer fails.
//!
//! Each publisher has a topic and a subscriber of its own; all sessions are persistent. A message contains its number, so a subscriber detects
//! missing and duplicate messages, and its send time. The cost of a move for its client: the time without a connection, and the longest wait between
//! two messages. The cost for others: the delay of messages to clients that are not moved.

mod crowd;
mod scattered;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use thicket_client::{Client, Message, Options, Placement, Qos};
use tokio::runtime::Builder;

use crate::BenchError;
use crate::cluster::{READY_WITHIN, addresses, jain, start_node, start_nodes, sum_at};
use crate::report::{Part, Report, Table};
use crate::target::Running;

/// Time until messages under way have arrived.
const SETTLE: Duration = Duration::from_secs(5);
/// Rates of clients are means of half a minute.
const MEANS: Duration = Duration::from_secs(35);
/// Time between two checks of the nodes.
const LOOK: Duration = Duration::from_millis(500);
/// The load counts as even from this value of Jain's index on.
const EVEN: f64 = 0.95;
/// Most messages of one publisher, beyond which its subscriber could not identify them.
const NUMBERS: usize = 1 << 20;

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

/// The records of one subscriber.
#[derive(Debug, Default)]
struct Heard {
    seen: Vec<bool>,
    twice: u64,
    last: Option<Instant>,
    longest: Duration,
    /// From the publisher to here, in milliseconds.
    delays: Vec<f64>,
}

/// Times without a connection of one client.
type Breaks = Arc<Mutex<Vec<Duration>>>;

/// A publisher and the outcomes of its messages.
#[derive(Debug, Default)]
struct Sent {
    /// Numbers that were acknowledged.
    acknowledged: Mutex<Vec<u32>>,
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

fn apis(nodes: &[Running]) -> Vec<SocketAddr> {
    nodes.iter().map(|node| node.other_address).collect()
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
            experiment,
            &nodes[here],
            &format!("sub-{pair}"),
            Some(topic_name(pair)),
        )
        .await?;
        let publisher = connect(experiment, &nodes[there], &format!("pub-{pair}"), None).await?;
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

/// Checks until it is true; returns how long that took since `began`. On another thread, so that clients do not wait meanwhile.
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

/// The nodes that should have clients at the end.
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
    let longest = |one: &Arc<Mutex<Heard>>| std::mem::take(&mut lock(one).longest);
    percentiles(heard.iter().map(longest).map(millis).collect())
}

/// How long the messages to each subscriber took since the last call, in milliseconds.
fn take_delays(heard: &[Arc<Mutex<Heard>>]) -> Vec<Vec<f64>> {
    let take = |one: &Arc<Mutex<Heard>>| std::mem::take(&mut lock(one).delays);
    heard.iter().map(take).collect()
}

/// The delays of the selected subscribers.
fn p99_of(delays: Vec<Vec<f64>>, is_meant: impl Fn(usize) -> bool) -> f64 {
    let those = delays
        .into_iter()
        .enumerate()
        .filter(|(at, _)| is_meant(*at));
    percentiles(those.flat_map(|(_, delays)| delays).collect())[1]
}

/// p50, p99 and maximum; 0 if there are none.
fn percentiles(mut all: Vec<f64>) -> [f64; 3] {
    all.sort_by(f64::total_cmp);
    let at = |part: f64| all.get(((all.len() as f64 * part) as usize).min(all.len().max(1) - 1));
    [0.5, 0.99, 1.0].map(|part| at(part).copied().unwrap_or(0.0))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// From now on records how long a client is without a connection, each time.
fn watch(client: &Client) -> Breaks {
    let breaks = Breaks::default();
    let (client, noted) = (client.clone(), Arc::clone(&breaks));
    tokio::spawn(async move {
        while client
            .wait_for(|it| it.sessions.is_empty())
            .await
            .ended
            .is_none()
        {
            let began = Instant::now();
            let is_back = client.wait_for(|it| !it.sessions.is_empty()).await;
            if is_back.ended.is_none() {
                lock(&noted).push(began.elapsed());
            }
        }
    });
    breaks
}

fn break_times(breaks: &[Breaks]) -> [f64; 3] {
    let all = breaks.iter().flat_map(|breaks| lock(breaks).clone());
    percentiles(all.map(millis).collect())
}

fn most_breaks(breaks: &[Breaks]) -> u64 {
    let most = breaks.iter().map(|breaks| lock(breaks).len()).max();
    most.unwrap_or(0) as u64
}

/// Where each client is connected.
fn homes(clients: &[Client]) -> Vec<Option<String>> {
    let home = |client: &Client| client.status().sessions.into_values().next();
    clients.iter().map(home).collect()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(
    experiment: &RebalanceExperiment,
    node: &Running,
    client_id: &str,
    filter: Option<String>,
) -> Result<Client, BenchError> {
    let mut options = Options::new(format!("mqtt://{}", node.address));
    options.client_id = client_id.to_owned();
    options.session_expiry = Duration::from_secs(600);
    options.placement = Placement::Off;
    options.subscribe = filter.map(|it| (it, experiment.qos)).into_iter().collect();
    options.connect_timeout = READY_WITHIN;
    let connected = Client::connect(options).await;
    connected.map_err(|error| BenchError::Setting(format!("{client_id}: {error}")))
}

fn topic_name(pair: usize) -> String {
    format!("rebalance/{pair}")
}

/// A message: its number, and when it was sent.
fn payload(number: u32, epoch: Instant) -> Vec<u8> {
    let micros = u64::try_from(epoch.elapsed().as_micros()).unwrap_or(u64::MAX);
    let mut payload = number.to_le_bytes().to_vec();
    payload.extend(micros.to_le_bytes());
    payload
}

fn read_payload(payload: &[u8]) -> Option<(usize, Duration)> {
    let (number, micros) = payload.split_first_chunk()?;
    let micros = u64::from_le_bytes(micros.try_into().ok()?);
    let number = u32::from_le_bytes(*number) as usize;
    (number < NUMBERS).then_some((number, Duration::from_micros(micros)))
}

/// Records the messages of one topic.
async fn listen(subscriber: Client, heard: Arc<Mutex<Heard>>, topic: String, epoch: Instant) {
    while let Some(message) = subscriber.next().await {
        if message.topic != topic {
            continue;
        }
        let Some((number, sent)) = read_payload(&message.payload) else {
            continue;
        };
        let mut heard = lock(&heard);
        let now = Instant::now();
        heard
            .delays
            .push(millis((now - epoch).saturating_sub(sent)));
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

/// The work of one publisher.
struct Publishing {
    topic: String,
    /// The part of a period that it waits before its first message, so that publishers are not synchronous.
    phase: f64,
    epoch: Instant,
    period: Duration,
    qos: Qos,
    sent: Arc<Sent>,
    is_over: Arc<AtomicBool>,
}

impl Publishing {
    async fn run(self, publisher: Client) {
        tokio::time::sleep(self.period.mul_f64(self.phase)).await;
        let mut ticks = tokio::time::interval(self.period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for number in 0..NUMBERS as u32 {
            ticks.tick().await;
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let message = Message::new(&*self.topic, payload(number, self.epoch)).qos(self.qos);
            if publisher.publish(message).await.is_ok() {
                lock(&self.sent.acknowledged).push(number);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_as_it_was_written() {
        let epoch = Instant::now();
        let (number, sent) = read_payload(&payload(7, epoch)).unwrap();
        assert_eq!(number, 7);
        assert!(sent <= epoch.elapsed());
        assert_eq!(read_payload(&[0; 11]), None);
        assert_eq!(read_payload(&[0xFF; 12]), None);
    }

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
