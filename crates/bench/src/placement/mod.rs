//! The benefit of placement on real nodes (Detti V): the social network of the paper, or pairs of a publisher and a subscriber. Their clients attach
//! at random, where their topics are, or are placed with one session or several.
//!
//! The nodes count messages between nodes; the result is compared with the model of the same attachment.

mod balancer;
mod crowd;
mod entry;
mod figures;
mod paired;
mod population;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::runtime::{Builder, Handle, Runtime};

pub use self::entry::Entry;
pub use self::figures::{
    Bound, Growth, GrowthPoint, Moment, TimeLine, growth_report, play_growth, play_time_line,
    time_line_report,
};
pub use self::paired::{PairedRatio, paired_ratios};

use self::crowd::{Counted, Crowd, Returns};
use crate::BenchError;
use crate::cluster::{Confine, jain, start_nodes};
use crate::report::{Part, Report, Table, amount};
use crate::target::Running;

/// Time until messages under way have arrived, and rates are reported.
const SETTLE: Duration = Duration::from_secs(2);
/// Time until nodes have learned the topics of clients: they check every 15 s, with a sample of publications.
const LEARNED_WITHIN: Duration = Duration::from_secs(45);
/// How often clients reconnect that are to be learned.
const RETURNS: usize = 2;
/// The rebalancer is finished if it has moved no client for this long: it uses means of half a minute.
const QUIET: Duration = Duration::from_secs(40);
/// Longest wait for that.
const REBALANCED_WITHIN: Duration = Duration::from_secs(240);

/// How clients attach to nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Attach {
    /// At a random node each.
    Random,
    /// Pairs only: both at one node, in turn.
    Local,
    /// They request a placement in CONNECT.
    Placed {
        /// Most sessions of a client (Nses).
        max_sessions: usize,
    },
    /// At random, with MQTT 3.1.1; they only reconnect twice, each time at random.
    Learned {
        /// How often a node refuses a client that would be better elsewhere.
        refusals: u8,
    },
    /// At random; they request nothing, but follow redirections, for example of the rebalancer.
    Redirect,
}

impl Attach {
    /// The arguments of the nodes for it.
    #[must_use]
    pub fn arguments(self) -> Vec<String> {
        match self {
            Self::Redirect => vec!["--rebalance=on".to_owned()],
            Self::Placed { .. } => vec!["--redirect=topics".to_owned()],
            Self::Learned { refusals } => vec![
                "--redirect=topics".to_owned(),
                format!("--redirect-refusals={refusals}"),
                // Sessions of 3.1.1 are persistent here: without backups, replicas receive no messages, as in the other ways.
                "--backups=0".to_owned(),
            ],
            // They stay where they connect, whatever the load.
            Self::Random | Self::Local => vec!["--redirect=off".to_owned()],
        }
    }

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Random => "at random".into(),
            Self::Local => "local".into(),
            Self::Placed { max_sessions: 1 } => "placed, one session".into(),
            Self::Placed { max_sessions } => format!("placed, up to {max_sessions} sessions"),
            Self::Redirect => "at random, and redirected".into(),
            Self::Learned { refusals: 0 } => "at random, twice more".into(),
            Self::Learned { refusals } => format!("at random, refused up to {refusals} times"),
        }
    }
}

/// Who publishes to whom.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "pattern")]
pub enum Load {
    /// Each topic has a publisher; subscribers choose theirs by Zipf's law.
    Social {
        /// Topics (Ntop).
        topics: usize,
        /// Subscribers (Nsub).
        subscribers: usize,
        /// Topics of each subscriber.
        wanted: usize,
        /// Exponent of the law (alpha).
        exponent: f64,
    },
    /// Each topic has a publisher and a subscriber.
    Pairs {
        /// Topics.
        topics: usize,
    },
}

impl Load {
    /// Number of topics.
    #[must_use]
    pub const fn topics(self) -> usize {
        match self {
            Self::Social { topics, .. } | Self::Pairs { topics } => topics,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::Social {
                topics,
                subscribers,
                wanted,
                exponent,
            } => format!(
                "{topics} topics, {subscribers} subscribers of {wanted} topics each (Zipf {exponent})"
            ),
            Self::Pairs { topics } => format!("{topics} pairs of a publisher and a subscriber"),
        }
    }
}

/// The settings of the experiment.
#[derive(Debug, Clone)]
pub struct PlacementExperiment {
    /// The program `thicket`, for the nodes.
    pub thicket: PathBuf,
    /// Nodes of the cluster (M).
    pub nodes: usize,
    /// Who publishes to whom.
    pub load: Load,
    /// Messages a second of each topic.
    pub rate_per_s: f64,
    /// Bytes of a message: at least 8, for the time.
    pub payload_len: usize,
    /// How long messages are counted.
    pub hold: Duration,
    /// Ways to attach, one run each.
    pub attach: Vec<Attach>,
    /// Clients that connect at a time.
    pub in_flight: usize,
    /// Seed of the subscriptions and of the first nodes of clients.
    pub seed: u64,
    /// 1: each way to attach is played alone. More: the nodes of all ways run side by side, and in each slice they are loaded in turn, for an equal part
    /// of `hold`. What the machine does meanwhile then affects all ways alike.
    pub slices: usize,
}

/// The result of one way to attach.
#[derive(Debug, Clone, Serialize)]
pub struct PlacementOutcome {
    /// How clients attach.
    pub attach: Attach,
    /// The seed.
    pub seed: u64,
    /// Sessions of all clients.
    pub sessions: usize,
    /// From the connection to the last SUBACK, of a client, in milliseconds: mean.
    pub setup_ms: f64,
    /// The same divided by the sessions of the client.
    pub setup_ms_a_session: f64,
    /// Until all clients were served, in seconds.
    pub setup_all_s: f64,
    /// Messages a second to subscribers.
    pub external_out_per_s: f64,
    /// Messages a second from node to node.
    pub internal_per_s: f64,
    /// Messages a second from node to node according to the model.
    pub model_internal_per_s: f64,
    /// Jain's index of what the nodes sent and received.
    pub jain: f64,
    /// CPU of all nodes for each message to a subscriber, in microseconds.
    pub cpu_us: f64,
    /// Resident memory of all nodes, in MiB.
    pub memory_mib: f64,
    /// From PUBLISH to the subscriber, in milliseconds: mean.
    pub delay_mean_ms: f64,
    /// The same: median and 99 %.
    pub delay_ms: [f64; 2],
    /// CONNECTs of a client that were refused at each reconnect: mean and maximum.
    pub refused: [f64; 2],
    /// Seconds until a reconnecting client was served: mean and maximum.
    pub back_s: [f64; 2],
    /// Messages that should have arrived, and did.
    pub expected: u64,
    /// See `expected`.
    pub received: u64,
}

impl PlacementOutcome {
    /// 1 + internal / external traffic (Detti Eq. 13).
    #[must_use]
    pub fn overhead(&self) -> f64 {
        1.0 + self.internal_per_s / self.external_out_per_s.max(1.0)
    }

    fn in_words(&self) -> String {
        format!(
            "{}: {} messages a second between nodes, {} to subscribers, {:.2} us of CPU a message",
            self.attach.name(),
            amount(self.internal_per_s),
            amount(self.external_out_per_s),
            self.cpu_us
        )
    }
}

/// Runs every way to attach with each of `seeds` seeds, the first of them `experiment.seed`.
///
/// A seed plays all ways before the next one starts, and every second seed plays them in reverse order. So neither a warm-up nor a machine that becomes
/// slower favours a way.
///
/// # Errors
/// A node does not start, or a client is not served.
pub fn play(
    experiment: &PlacementExperiment,
    seeds: usize,
    confine: Option<&Confine<'_>>,
    say: &mut dyn FnMut(String),
) -> Result<Vec<PlacementOutcome>, BenchError> {
    let mut outcomes = Vec::new();
    for round in 0..seeds {
        let one = PlacementExperiment {
            seed: experiment.seed.wrapping_add(round as u64),
            attach: alternated(&experiment.attach, round),
            ..experiment.clone()
        };
        if one.slices > 1 {
            outcomes.extend(play_side_by_side(&one, confine, say)?);
        } else {
            outcomes.extend(play_one_by_one(&one, confine, say)?);
        }
    }
    Ok(outcomes)
}

/// As given, or in reverse order in every second round.
fn alternated<T: Clone>(all: &[T], round: usize) -> Vec<T> {
    let mut all = all.to_vec();
    if round % 2 == 1 {
        all.reverse();
    }
    all
}

fn play_one_by_one(
    experiment: &PlacementExperiment,
    confine: Option<&Confine<'_>>,
    say: &mut dyn FnMut(String),
) -> Result<Vec<PlacementOutcome>, BenchError> {
    let mut outcomes = Vec::new();
    for &attach in &experiment.attach {
        say(format!("{}, seed {}", attach.name(), experiment.seed));
        let nodes = nodes_for(experiment, attach, confine)?;
        let runtime = clients_runtime()?;
        let entries = entries(&nodes, runtime.handle());
        let outcome = runtime.block_on(play_one(experiment, attach, entries))?;
        say(outcome.in_words());
        outcomes.push(outcome);
        runtime.shutdown_background();
        stop_all(nodes)?;
    }
    Ok(outcomes)
}

fn play_side_by_side(
    experiment: &PlacementExperiment,
    confine: Option<&Confine<'_>>,
    say: &mut dyn FnMut(String),
) -> Result<Vec<PlacementOutcome>, BenchError> {
    let runtime = clients_runtime()?;
    let (mut nodes, mut ways) = (Vec::new(), Vec::new());
    for &attach in &experiment.attach {
        say(format!("{}, seed {}", attach.name(), experiment.seed));
        let started = nodes_for(experiment, attach, confine)?;
        let entries = entries(&started, runtime.handle());
        nodes.extend(started);
        let way = runtime.block_on(async {
            let way = Attached::new(experiment, attach, entries).await?;
            way.crowd.drain().await;
            Ok::<Attached<'_>, BenchError>(way)
        })?;
        ways.push(way);
    }
    let hold = experiment.hold.div_f64(experiment.slices as f64);
    runtime.block_on(async {
        for slice in 0..experiment.slices {
            for index in alternated(&(0..ways.len()).collect::<Vec<_>>(), slice) {
                let way = &mut ways[index];
                way.crowd.set_rate(experiment.rate_per_s);
                tokio::time::sleep(SETTLE / 2).await;
                way.count(hold).await?;
                way.crowd.drain().await;
            }
        }
        Ok::<(), BenchError>(())
    })?;
    let mut outcomes = Vec::new();
    for way in ways {
        let outcome = runtime.block_on(way.finish())?;
        say(outcome.in_words());
        outcomes.push(outcome);
    }
    runtime.shutdown_background();
    stop_all(nodes)?;
    Ok(outcomes)
}

/// Runs one way to attach with external nodes; `experiment.thicket`, `nodes` and `attach` are not used. The clients run on the runtimes of the
/// entries, which the caller drives.
///
/// # Errors
/// A client is not served, or a node does not answer.
pub fn play_with(
    experiment: &PlacementExperiment,
    attach: Attach,
    entries: Vec<Entry>,
) -> Result<PlacementOutcome, BenchError> {
    let experiment = PlacementExperiment {
        nodes: entries.len(),
        ..experiment.clone()
    };
    let runtime = clients_runtime()?;
    runtime.block_on(play_one(&experiment, attach, entries))
}

fn entries(nodes: &[Running], clients: &Handle) -> Vec<Entry> {
    let entry = |node| Entry::on_loopback(node, clients);
    nodes.iter().map(entry).collect()
}

fn clients_runtime() -> Result<Runtime, BenchError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(BenchError::system("the clients' runtime"))
}

fn nodes_for(
    experiment: &PlacementExperiment,
    attach: Attach,
    confine: Option<&Confine<'_>>,
) -> Result<Vec<Running>, BenchError> {
    let arguments = attach.arguments();
    let nodes = start_nodes(&experiment.thicket, experiment.nodes, &arguments, confine)?;
    std::thread::sleep(SETTLE);
    Ok(nodes)
}

fn stop_all(nodes: Vec<Running>) -> Result<(), BenchError> {
    nodes.into_iter().try_for_each(Running::stop)
}

async fn play_one(
    experiment: &PlacementExperiment,
    attach: Attach,
    nodes: Vec<Entry>,
) -> Result<PlacementOutcome, BenchError> {
    let mut way = Attached::new(experiment, attach, nodes).await?;
    tokio::time::sleep(SETTLE).await;
    way.count(experiment.hold).await?;
    way.finish().await
}

/// The clients of one way to attach, where they stay: under load, and counted so far.
struct Attached<'a> {
    experiment: &'a PlacementExperiment,
    attach: Attach,
    crowd: Crowd<'a>,
    nodes: Vec<Entry>,
    returns: Returns,
    /// Messages that should have arrived, and did, before the first count.
    before: (u64, u64),
    counted: Option<Counted>,
}

impl<'a> Attached<'a> {
    async fn new(
        experiment: &'a PlacementExperiment,
        attach: Attach,
        nodes: Vec<Entry>,
    ) -> Result<Self, BenchError> {
        let crowd = Crowd::attach(experiment, nodes.clone(), attach).await?;
        let rate = experiment.rate_per_s;
        crowd.set_rate(rate);
        let (mut returns, mut before) = (Returns::default(), (0, 0));
        match attach {
            Attach::Redirect => wait_for_rebalancer(&nodes).await,
            Attach::Learned { .. } => {
                for _ in 0..RETURNS {
                    tokio::time::sleep(LEARNED_WITHIN).await;
                    crowd.come_back(&mut returns).await?;
                }
                // Messages that arrive while a subscriber is disconnected are not counted.
                before = crowd.drain().await;
                crowd.set_rate(rate);
            }
            Attach::Random | Attach::Local | Attach::Placed { .. } => {}
        }
        Ok(Self {
            experiment,
            attach,
            crowd,
            nodes,
            returns,
            before,
            counted: None,
        })
    }

    /// Counts for an interval, in addition to what was counted before.
    async fn count(&mut self, hold: Duration) -> Result<(), BenchError> {
        let counted = self.crowd.count(hold).await?;
        self.counted = Some(match self.counted.take() {
            Some(before) => before.and(counted),
            None => counted,
        });
        Ok(())
    }

    async fn finish(self) -> Result<PlacementOutcome, BenchError> {
        let memory_kib: u64 = self.nodes.iter().map(Entry::memory_kib).sum();
        let (expected, received) = self.crowd.drain().await;
        let model = self
            .crowd
            .model_internal_per_s(self.experiment.rate_per_s)?;
        let setup = self.crowd.setup;
        self.crowd.close().await;
        let uncounted = || BenchError::Setting("nothing was counted".to_owned());
        let counted = self.counted.ok_or_else(uncounted)?;
        Ok(PlacementOutcome {
            attach: self.attach,
            seed: self.experiment.seed,
            sessions: setup.sessions,
            setup_ms: setup.client_ms,
            setup_ms_a_session: setup.session_ms,
            setup_all_s: setup.all_s,
            external_out_per_s: counted.external_out_per_s,
            internal_per_s: counted.internal_per_s,
            model_internal_per_s: model,
            jain: jain(&counted.loads).unwrap_or(1.0),
            cpu_us: counted.cpu_us,
            memory_mib: memory_kib as f64 / 1024.0,
            delay_mean_ms: counted.delay_mean_ms,
            delay_ms: counted.delay_ms,
            refused: self.returns.refused(),
            back_s: self.returns.seconds(),
            expected: expected - self.before.0,
            received: received - self.before.1,
        })
    }
}

fn memory_kib(node: &Running) -> u64 {
    crate::process::memory(node.pid()).map_or(0, |memory| memory.rss_kib)
}

/// Waits until the rebalancer has moved no client for a while.
async fn wait_for_rebalancer(nodes: &[Entry]) {
    let began = Instant::now();
    let (mut moved, mut since) = (0, Instant::now());
    while since.elapsed() < QUIET && began.elapsed() < REBALANCED_WITHIN {
        tokio::time::sleep(SETTLE).await;
        let nodes = nodes.to_vec();
        let moves = |node: &Entry| node.metrics().ok()?.sum("thicket_rebalance_moves_total");
        let sum = move || nodes.iter().filter_map(moves).sum::<u64>();
        let sum = tokio::task::spawn_blocking(sum);
        let now = sum.await.unwrap_or(moved);
        if now != moved {
            (moved, since) = (now, Instant::now());
        }
    }
}

/// The table: means over seeds for each way to attach.
#[must_use]
pub fn placement_report(experiment: &PlacementExperiment, outcomes: &[PlacementOutcome]) -> Report {
    let mut report = Report::new(format!(
        "Placement: {} nodes, {}, {} messages a second of each topic, {} clients connect at a time",
        experiment.nodes,
        experiment.load.describe(),
        experiment.rate_per_s,
        experiment.in_flight
    ));
    let mut table = Table::new([
        "clients attach",
        "sessions",
        "set-up, ms a client",
        "ms a session",
        "all, s",
        "to subscribers, msg/s",
        "between nodes, msg/s",
        "h",
        "by the model",
        "Jain of load",
        "CPU, us a message",
        "memory, MiB",
        "delay, ms: p50",
        "p99",
        "refused a return",
        "back, s",
        "missing",
    ]);
    for attach in &experiment.attach {
        let all: Vec<_> = outcomes.iter().filter(|it| it.attach == *attach).collect();
        let mean = |of: fn(&PlacementOutcome) -> f64| {
            all.iter().map(|one| of(one)).sum::<f64>() / all.len().max(1) as f64
        };
        table.row([
            attach.name(),
            format!("{:.0}", mean(|it| it.sessions as f64)),
            format!("{:.2}", mean(|it| it.setup_ms)),
            format!("{:.2}", mean(|it| it.setup_ms_a_session)),
            format!("{:.2}", mean(|it| it.setup_all_s)),
            amount(mean(|it| it.external_out_per_s)),
            amount(mean(|it| it.internal_per_s)),
            format!("{:.4}", mean(PlacementOutcome::overhead)),
            amount(mean(|it| it.model_internal_per_s)),
            format!("{:.3}", mean(|it| it.jain)),
            format!("{:.2}", mean(|it| it.cpu_us)),
            format!("{:.1}", mean(|it| it.memory_mib)),
            format!("{:.2}", mean(|it| it.delay_ms[0])),
            format!("{:.2}", mean(|it| it.delay_ms[1])),
            format!("{:.2}", mean(|it| it.refused[0])),
            format!("{:.2}", mean(|it| it.back_s[0])),
            format!(
                "{:.0}",
                mean(|it| it.expected.saturating_sub(it.received) as f64)
            ),
        ]);
    }
    report.push(Part::Table(table));
    let ratios = paired_ratios(&experiment.attach, outcomes);
    if let Some(table) = paired::table(&ratios) {
        report.push(Part::Table(table));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn experiment() -> PlacementExperiment {
        PlacementExperiment {
            thicket: PathBuf::new(),
            nodes: 3,
            load: Load::Social {
                topics: 20,
                subscribers: 10,
                wanted: 4,
                exponent: 1.13,
            },
            rate_per_s: 1.0,
            payload_len: 8,
            hold: Duration::from_secs(1),
            attach: vec![Attach::Random, Attach::Placed { max_sessions: 4 }],
            in_flight: 1,
            seed: 7,
            slices: 1,
        }
    }

    /// With 1 us of CPU a message.
    pub(super) fn outcome(attach: Attach, seed: u64, internal_per_s: f64) -> PlacementOutcome {
        PlacementOutcome {
            attach,
            seed,
            sessions: 30,
            setup_ms: 1.0,
            setup_ms_a_session: 1.0,
            setup_all_s: 1.0,
            external_out_per_s: 40.0,
            internal_per_s,
            model_internal_per_s: 0.0,
            jain: 1.0,
            cpu_us: 1.0,
            memory_mib: 1.0,
            delay_mean_ms: 1.0,
            delay_ms: [1.0, 2.0],
            refused: [0.0; 2],
            back_s: [0.0; 2],
            expected: 40,
            received: 40,
        }
    }

    #[test]
    fn every_second_seed_plays_the_ways_in_reverse_order() {
        assert_eq!(alternated(&["a", "b", "c"], 0), ["a", "b", "c"]);
        assert_eq!(alternated(&["a", "b", "c"], 1), ["c", "b", "a"]);
        assert_eq!(alternated(&["a", "b", "c"], 2), ["a", "b", "c"]);
    }

    #[test]
    fn the_table_has_the_mean_over_the_seeds_of_each_way() {
        let experiment = experiment();
        let [random, placed] = [experiment.attach[0], experiment.attach[1]];
        let outcomes = [
            outcome(random, 1, 20.0),
            outcome(random, 2, 24.0),
            outcome(placed, 1, 3.0),
        ];
        let text = placement_report(&experiment, &outcomes).to_text();
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(row("at random").contains(" 22"), "{text}");
        assert!(row("placed").contains(" 3"), "{text}");
    }
}
