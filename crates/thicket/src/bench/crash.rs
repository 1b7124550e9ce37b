//! `thicket bench crash`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::Serialize;
use thicket_bench::Stop;
use thicket_bench::crash::{
    Cluster, CrashLoad, CrashNode, CrashResult, Deaths, Fault, Tally, crash, time_line,
};
use thicket_bench::generator::Node;
use thicket_bench::report::{Part, Report, Table, milliseconds};
use thicket_bench::statistics::spread;

use super::options::seconds;
use super::output::OutputOptions;

/// Longest wait for nodes of our own to serve.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// Arguments of `thicket bench crash`.
///
/// Without --random and --reboot it is the scenario M5: one publisher and one subscriber on the
/// first node, one subscriber on the second, all with persistent sessions; the second node is
/// killed, and its subscriber reconnects to the first.
#[derive(Debug, clap::Args)]
pub struct Crash {
    /// Nodes of one cluster that run already; give a --kill-cmd and a --start-cmd for each, in the same order
    #[arg(value_name = "HOST:PORT", value_delimiter = ',')]
    nodes: Vec<String>,
    /// Start this many nodes of this program instead, with temporary data directories; their arguments follow `--`
    #[arg(long, value_name = "N", conflicts_with_all = ["nodes", "kill_cmd", "start_cmd", "api"], value_parser = clap::value_parser!(u32).range(1..=64))]
    spawn: Option<u32>,
    /// Command that kills a node, such as 'docker kill -s KILL b1'; once for each node
    #[arg(long, value_name = "COMMAND")]
    kill_cmd: Vec<String>,
    /// Command that starts it again on its data; it may return or keep running
    #[arg(long, value_name = "COMMAND")]
    start_cmd: Vec<String>,
    /// HTTP APIs of nodes of Thicket, which report when every session has its backups
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',')]
    api: Vec<String>,
    /// Kill and restart random nodes for this many seconds
    #[arg(long, value_name = "SECONDS")]
    random: Option<f64>,
    /// Kill all nodes at once, and start them again in a random order, so many seconds apart: a
    /// loss of power
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["random", "pause", "stall_disk", "clock_jump"])]
    reboot: Option<f64>,
    /// Pause nodes for --down seconds (SIGSTOP) instead of killing them; with --spawn
    #[arg(long, requires = "spawn")]
    pause: bool,
    /// Let the disk of a node sync nothing for --down seconds instead of killing the node; with --spawn, and `-- --sync commit`, so that
    /// acknowledgements wait for the disk; needs `cc`
    #[arg(long, requires = "spawn", conflicts_with = "pause")]
    stall_disk: bool,
    /// Let the wall clock of a node jump this far ahead or back, or to the right time again; with --spawn, needs `cc`
    #[arg(long, value_name = "SECONDS", requires = "spawn", conflicts_with_all = ["pause", "stall_disk"])]
    clock_jump: Option<f64>,
    /// Messages per second, of all publishers together [default: 100, with --random and --reboot
    /// 1000]
    #[arg(long, value_name = "MSGS")]
    rate: Option<f64>,
    /// QoS of the publishers; both: half of them each [default: 1, with --random and --reboot both]
    #[arg(long, value_enum)]
    qos: Option<QosChoice>,
    /// Publishers on each node, with --random and --reboot
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    publishers: u32,
    /// Subscribers to all topics on each node, with --random and --reboot
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    subscribers: u32,
    /// Payload in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    size: u32,
    /// Load before the kill of M5, and of --reboot
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    before: f64,
    /// Load after it
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    after: f64,
    /// With --random, minimum time between two kills
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    every: f64,
    /// With --random, time that a node is down; with --pause and --stall-disk, length of the pause
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    down: f64,
    /// Do not wait until every session has its backups before the next kill
    #[arg(long)]
    no_wait: bool,
    /// Wait before a kill, for brokers that do not report their backups
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    settle: f64,
    /// Number of runs of the scenario
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Seed of the choice of nodes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Further arguments of the nodes that are started, such as `-- --sync commit`
    #[arg(last = true)]
    node: Vec<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// QoS of publications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum QosChoice {
    /// At least once.
    #[value(name = "1")]
    AtLeastOnce,
    /// Exactly once.
    #[value(name = "2")]
    ExactlyOnce,
    /// Half of the publishers each.
    Both,
}

/// What is printed as JSON.
#[derive(Debug, Serialize)]
struct Results {
    scenario: &'static str,
    nodes: usize,
    rate_msgs_per_s: f64,
    repeats: Vec<CrashResult>,
}

/// Plays the scenario.
pub fn run(arguments: &Crash) -> anyhow::Result<()> {
    let mut cluster = cluster(arguments)?;
    let load = load(arguments, cluster.len());
    let mut results = Results {
        scenario: match (fault(arguments)?, arguments.random.is_some()) {
            _ if arguments.reboot.is_some() => "reboot",
            (Fault::Kill, true) => "random",
            (Fault::Kill, false) => "m5",
            (Fault::Pause, true) => "random pauses",
            (Fault::Pause, false) => "pause",
            (Fault::StallDisk, true) => "random stalled disks",
            (Fault::StallDisk, false) => "stalled disk",
            (Fault::ClockJump { .. }, true) => "random clock jumps",
            (Fault::ClockJump { .. }, false) => "clock jump",
        },
        nodes: cluster.len(),
        rate_msgs_per_s: load.rate,
        repeats: Vec::new(),
    };
    for repeat in 0..arguments.repeats {
        let deaths = deaths(arguments, cluster.len(), repeat)?;
        let say = &mut |line: String| arguments.output.say(|| line);
        let result = crash(&mut cluster, &load, deaths, say)?;
        arguments.output.say(|| {
            format!(
                "repeat {}: {} missed, {} twice at QoS 2",
                repeat + 1,
                result.qos_1.missed + result.qos_2.missed,
                result.qos_2.doubled
            )
        });
        results.repeats.push(result);
    }
    arguments.output.finish(&results, &report(&results))
}

fn cluster(arguments: &Crash) -> anyhow::Result<Cluster> {
    let settle = seconds("--settle", arguments.settle)?;
    if let Some(count) = arguments.spawn {
        let thicket = std::env::current_exe().context("where this program lies")?;
        let count = count as usize;
        let is_loaded = arguments.stall_disk || arguments.clock_jump.is_some();
        let extra = &arguments.node;
        let cluster = Cluster::spawn(&thicket, count, extra, is_loaded, settle, STARTS_WITHIN)?;
        return Ok(cluster);
    }
    let count = arguments.nodes.len();
    if count == 0 {
        bail!("give the nodes of a cluster as HOST:PORT,..., or `--spawn N` to start some");
    }
    if !arguments.node.is_empty() {
        bail!("arguments after `--` are for nodes that `--spawn` starts");
    }
    if arguments.kill_cmd.len() != count || arguments.start_cmd.len() != count {
        bail!(
            "expected a --kill-cmd and a --start-cmd for each of the {count} nodes, found {} and {}",
            arguments.kill_cmd.len(),
            arguments.start_cmd.len()
        );
    }
    if !arguments.api.is_empty() && arguments.api.len() != count {
        bail!("expected an address in --api for each of the {count} nodes");
    }
    let mut nodes = Vec::new();
    for (index, node) in arguments.nodes.iter().enumerate() {
        let api = arguments.api.get(index).map(|api| resolve(api));
        nodes.push(CrashNode::foreign(
            Node::resolve(node)?.address,
            api.transpose()?,
            &arguments.kill_cmd[index],
            &arguments.start_cmd[index],
        ));
    }
    Ok(Cluster::of(nodes, settle, Stop::default()))
}

fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    let mut found = text
        .to_socket_addrs()
        .with_context(|| format!("{text} is no address of an HTTP API"))?;
    found
        .next()
        .with_context(|| format!("{text} has no address"))
}

fn load(arguments: &Crash, nodes: usize) -> CrashLoad {
    use thicket_mqtt::Qos::{AtLeastOnce, ExactlyOnce};
    let is_on_all = arguments.random.is_some() || arguments.reboot.is_some();
    let qos = arguments.qos.unwrap_or(if is_on_all {
        QosChoice::Both
    } else {
        QosChoice::AtLeastOnce
    });
    let of = |index: usize| match qos {
        QosChoice::AtLeastOnce => AtLeastOnce,
        QosChoice::ExactlyOnce => ExactlyOnce,
        QosChoice::Both if index.is_multiple_of(2) => AtLeastOnce,
        QosChoice::Both => ExactlyOnce,
    };
    let (publishers, subscribers) = if is_on_all {
        let on_each =
            |count: u32| (0..nodes * count as usize).map(move |index| index / count as usize);
        let publishers = on_each(arguments.publishers).enumerate();
        (
            publishers.map(|(index, node)| (of(index), node)).collect(),
            on_each(arguments.subscribers).collect(),
        )
    } else {
        let count = if qos == QosChoice::Both { 2 } else { 1 };
        let second = 1 % nodes;
        (
            (0..count).map(|index| (of(index), 0)).collect(),
            vec![0, second],
        )
    };
    CrashLoad {
        rate: arguments
            .rate
            .unwrap_or(if is_on_all { 1000.0 } else { 100.0 }),
        payload_len: arguments.size as usize,
        publishers,
        subscribers,
    }
}

fn deaths(arguments: &Crash, nodes: usize, repeat: u32) -> anyhow::Result<Deaths> {
    if arguments
        .rate
        .is_some_and(|rate| !(rate > 0.0 && rate <= 1e6))
    {
        bail!("--rate: expected more than 0 and at most 1000000 messages a second");
    }
    let fault = fault(arguments)?;
    if let Some(gap) = arguments.reboot {
        return Ok(Deaths::Reboot {
            gap: seconds("--reboot", gap)?,
            before: seconds("--before", arguments.before)?,
            after: seconds("--after", arguments.after)?,
            seed: arguments.seed + u64::from(repeat),
        });
    }
    Ok(match arguments.random {
        None => Deaths::Once {
            node: 1 % nodes,
            fault,
            down: seconds("--down", arguments.down)?,
            before: seconds("--before", arguments.before)?,
            after: seconds("--after", arguments.after)?,
        },
        Some(during) => Deaths::Random {
            fault,
            during: seconds("--random", during)?,
            every: seconds("--every", arguments.every)?,
            down: seconds("--down", arguments.down)?,
            waits: !arguments.no_wait,
            seed: arguments.seed + u64::from(repeat),
        },
    })
}

fn fault(arguments: &Crash) -> anyhow::Result<Fault> {
    Ok(
        match (arguments.pause, arguments.stall_disk, arguments.clock_jump) {
            (true, ..) => Fault::Pause,
            (_, true, _) => Fault::StallDisk,
            (_, _, Some(by)) => Fault::ClockJump {
                by: seconds("--clock-jump", by)?,
            },
            (false, false, None) => Fault::Kill,
        },
    )
}

fn report(results: &Results) -> Report {
    let mut report = Report::new(format!(
        "{} nodes, {} messages a second, scenario {}, {} times",
        results.nodes,
        results.rate_msgs_per_s,
        results.scenario,
        results.repeats.len()
    ));
    let mut table = Table::new([
        "repeat",
        "faults",
        "acknowledged",
        "missed QoS 1",
        "missed QoS 2",
        "twice QoS 1",
        "twice QoS 2",
        "sessions lost",
        "redirects",
        "reconnect ms",
        "resume ms",
    ]);
    let longest = |values: &[f64]| {
        let longest = values.iter().copied().fold(f64::NAN, f64::max);
        if longest.is_nan() {
            "-".to_owned()
        } else {
            milliseconds(longest * 1000.0)
        }
    };
    let sum = |of: fn(&CrashResult) -> Tally, part: fn(&Tally) -> u64| -> u64 {
        results.repeats.iter().map(|result| part(&of(result))).sum()
    };
    for (index, result) in results.repeats.iter().enumerate() {
        let numbers = [
            result.kills,
            result.qos_1.acknowledged + result.qos_2.acknowledged,
            result.qos_1.missed,
            result.qos_2.missed,
            result.qos_1.doubled,
            result.qos_2.doubled,
            result.sessions_lost,
            result.redirects,
        ];
        let mut cells = vec![(index + 1).to_string()];
        cells.extend(numbers.map(|number| number.to_string()));
        cells.push(longest(&result.reconnect_ms));
        cells.push(longest(&result.resume_ms));
        table.row(cells);
    }
    report.push(Part::Table(table));
    for (index, result) in results.repeats.iter().enumerate() {
        let title = format!("Repeat {}: deliveries and connections over time", index + 1);
        report.push(Part::Chart(time_line(&title, result)));
    }
    let resumes: Vec<f64> = results
        .repeats
        .iter()
        .flat_map(|result| result.resume_ms.iter().map(|ms| ms * 1000.0))
        .collect();
    if let Some(spread) = spread(&resumes) {
        let [median, most] = [spread.median, spread.max].map(milliseconds);
        report.push(Part::Text(format!(
            "From a reconnect to the first message: median {median} ms, longest {most} ms. In the table the longest of each repeat."
        )));
    }
    let missed = sum(|it| it.qos_1, |it| it.missed) + sum(|it| it.qos_2, |it| it.missed);
    let twice = sum(|it| it.qos_2, |it| it.doubled);
    report.push(Part::Text(format!(
        "In all: {missed} acknowledged messages missed, {twice} came twice at QoS 2."
    )));
    let impatient: u64 = results.repeats.iter().map(|result| result.impatient).sum();
    if impatient > 0 {
        report.push(Part::Warning(format!(
            "{impatient} deaths came before every session had its backups: that took too long"
        )));
    }
    report
}
