//! Detti's Fig. 2 and 22 (the sustainable rate of a cluster, by its size) and Fig. 23 (CPU, memory and traffic over time) with real nodes.

use std::time::{Duration, Instant};

use serde::Serialize;

use tokio::runtime::Handle;

use super::crowd::{Counted, Crowd};
use super::{
    Attach, PlacementExperiment, SETTLE, clients_runtime, entries, memory_kib, nodes_for, stop_all,
};
use crate::BenchError;
use crate::cluster::{Confine, jain, sum_at};
use crate::process::cpu;
use crate::report::{Part, Plot, Report, Scale, Series, Table, amount};
use crate::search::bisect;
use crate::target::Running;

/// If publishers send less than this share, the rate counts as not offered.
const OFFERED: f64 = 0.95;

/// What limits the rate of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Bound {
    /// It is searched: the mean latency stays below this many milliseconds.
    Latency {
        /// Milliseconds.
        below_ms: f64,
    },
    /// It is computed: the busiest node would use one core, extrapolated from its use at the first rate of each node. For a machine with fewer cores
    /// than nodes, or with other work.
    Cpu,
}

/// How the rate is found.
#[derive(Debug, Clone)]
pub struct Growth {
    /// Numbers of nodes, 1 among them.
    pub nodes: Vec<usize>,
    /// What limits it.
    pub bound: Bound,
    /// First rate, in publications a second of all publishers together; with [`Bound::Cpu`] times the number of nodes.
    pub from_per_s: f64,
    /// The search ends when its bounds are this close, as a share of the lower one.
    pub precision: f64,
    /// The paper's curves, by name: ratio to linear by number of brokers.
    pub paper: Vec<(String, Vec<(f64, f64)>)>,
}

/// The highest rate of one cluster.
#[derive(Debug, Clone, Serialize)]
pub struct GrowthPoint {
    /// How clients attach.
    pub attach: Attach,
    /// Nodes.
    pub nodes: usize,
    /// Publications a second of all publishers.
    pub rate_per_s: f64,
    /// The same divided by that of one node and the number of nodes.
    pub ratio: f64,
    /// At that rate: mean latency in milliseconds.
    pub delay_mean_ms: f64,
    /// At that rate: messages a second between nodes.
    pub internal_per_s: f64,
    /// At that rate: CPU of all nodes for each message to a subscriber, in microseconds.
    pub cpu_us: f64,
    /// That divided by the same of one node.
    pub cpu_ratio: f64,
    /// At that rate: Jain's index of the nodes' messages.
    pub jain: f64,
}

/// Searches for the rate for each number of nodes and way to attach.
///
/// # Errors
/// A node does not start, or a client is not served.
pub fn play_growth(
    experiment: &PlacementExperiment,
    growth: &Growth,
    confine: Option<&Confine<'_>>,
    say: &mut dyn FnMut(String),
) -> Result<Vec<GrowthPoint>, BenchError> {
    let mut points: Vec<GrowthPoint> = Vec::new();
    // With one node all ways to attach are the same.
    let mut one: Option<GrowthPoint> = None;
    for &nodes in &growth.nodes {
        for &attach in &experiment.attach {
            let mut point = match &one {
                Some(one) if nodes == 1 => one.clone(),
                _ => {
                    let experiment = PlacementExperiment {
                        nodes,
                        ..experiment.clone()
                    };
                    highest(&experiment, growth, attach, confine, say)?
                }
            };
            point.attach = attach;
            if nodes == 1 {
                one.get_or_insert_with(|| point.clone());
            }
            if let Some(one) = &one {
                point.ratio = point.rate_per_s / (one.rate_per_s * nodes as f64);
                point.cpu_ratio = point.cpu_us / one.cpu_us;
            }
            say(format!(
                "{nodes} nodes, {}: {} publications a second, {:.2} of linear, {:.2} us of CPU a message",
                attach.name(),
                amount(point.rate_per_s),
                point.ratio,
                point.cpu_us
            ));
            points.push(point);
        }
    }
    Ok(points)
}

fn highest(
    experiment: &PlacementExperiment,
    growth: &Growth,
    attach: Attach,
    confine: Option<&Confine<'_>>,
    say: &mut dyn FnMut(String),
) -> Result<GrowthPoint, BenchError> {
    let nodes = nodes_for(experiment, attach, confine)?;
    let runtime = clients_runtime()?;
    let crowd = runtime.block_on(Crowd::attach(
        experiment,
        entries(&nodes, runtime.handle()),
        attach,
    ))?;
    let topics = experiment.load.topics() as f64;
    let mut count = |rate: f64| {
        let counted = runtime.block_on(async {
            crowd.set_rate(rate / topics);
            tokio::time::sleep(SETTLE / 2).await;
            crowd.reset_delays();
            let counted = crowd.count(experiment.hold).await;
            crowd.drain().await;
            counted
        })?;
        say(format!(
            "{} nodes: {} publications a second: {:.2} ms, the busiest node uses {:.3} cores",
            nodes.len(),
            amount(counted.published_per_s),
            counted.delay_mean_ms,
            counted.busiest_cores
        ));
        Ok::<Counted, BenchError>(counted)
    };
    let mut best = None;
    let rate_per_s = match growth.bound {
        Bound::Cpu => {
            let counted = count(growth.from_per_s * nodes.len() as f64)?;
            let rate = counted.published_per_s / counted.busiest_cores.max(f64::MIN_POSITIVE);
            best = Some(counted);
            rate
        }
        Bound::Latency { below_ms } => bisect(growth.from_per_s, growth.precision, |rate| {
            let counted = count(rate)?;
            let is_met =
                counted.delay_mean_ms < below_ms && counted.published_per_s >= OFFERED * rate;
            if is_met {
                best = Some(counted);
            }
            Ok::<bool, BenchError>(is_met)
        })?,
    };
    runtime.block_on(crowd.close());
    runtime.shutdown_background();
    stop_all(nodes)?;
    let best = best.ok_or_else(|| {
        let found = format!("{} nodes: no rate is low enough", experiment.nodes);
        BenchError::Setting(found)
    })?;
    Ok(GrowthPoint {
        attach,
        nodes: experiment.nodes,
        rate_per_s,
        ratio: 1.0,
        delay_mean_ms: best.delay_mean_ms,
        internal_per_s: best.internal_per_s,
        cpu_us: best.cpu_us,
        cpu_ratio: 1.0,
        jain: jain(&best.loads).unwrap_or(1.0),
    })
}

/// The table and the plots beside the paper's.
#[must_use]
pub fn growth_report(
    experiment: &PlacementExperiment,
    growth: &Growth,
    points: &[GrowthPoint],
) -> Report {
    let bound = match growth.bound {
        Bound::Latency { below_ms } => format!("below a mean latency of {below_ms} ms"),
        Bound::Cpu => "at one core of the busiest node, by what it uses at less".to_owned(),
    };
    let title = format!("Highest rate {bound}: {}", experiment.load.describe());
    let mut report = Report::new(title);
    let mut table = Table::new([
        "nodes",
        "clients attach",
        "publications/s",
        "of linear",
        "mean latency, ms",
        "between nodes, msg/s",
        "CPU, us a message",
        "of one node",
        "Jain of load",
    ]);
    for one in points {
        table.row([
            one.nodes.to_string(),
            one.attach.name(),
            amount(one.rate_per_s),
            format!("{:.2}", one.ratio),
            format!("{:.2}", one.delay_mean_ms),
            amount(one.internal_per_s),
            format!("{:.2}", one.cpu_us),
            format!("{:.2}", one.cpu_ratio),
            format!("{:.3}", one.jain),
        ]);
    }
    report.push(Part::Table(table));
    let lines = |of: fn(&GrowthPoint) -> f64| {
        let ways = experiment.attach.iter();
        ways.map(|attach| Series {
            name: attach.name(),
            points: (points.iter().filter(|it| it.attach == *attach))
                .map(|it| (it.nodes as f64, of(it)))
                .collect(),
        })
        .collect::<Vec<Series>>()
    };
    let mut rates = lines(|it| it.rate_per_s);
    if let Some(one) = points.iter().find(|it| it.nodes == 1) {
        rates.push(Series {
            name: "linear".to_owned(),
            points: (growth.nodes.iter())
                .map(|nodes| (*nodes as f64, *nodes as f64 * one.rate_per_s))
                .collect(),
        });
    }
    let mut ratios = lines(|it| it.ratio);
    ratios.extend(growth.paper.iter().map(|(name, points)| Series {
        name: name.clone(),
        points: points.clone(),
    }));
    for (title, y_label, series) in [
        ("Rate by number of nodes", "publications/s", rates),
        ("Rate as a share of linear", "of linear", ratios),
        (
            "CPU of all nodes a message to a subscriber",
            "us",
            lines(|it| it.cpu_us),
        ),
    ] {
        report.push(Part::Plot(Plot {
            title: title.to_owned(),
            x_label: "nodes".to_owned(),
            y_label: y_label.to_owned(),
            scale: Scale::Linear,
            series,
        }));
    }
    report
}

/// One second of Fig. 23: means over the nodes.
#[derive(Debug, Clone, Serialize)]
pub struct Moment {
    /// Since the beginning, in seconds.
    pub at_s: f64,
    /// In percent of a core.
    pub cpu_percent: f64,
    /// Resident, in MiB.
    pub memory_mib: f64,
    /// Bytes a second that a node sends to others.
    pub link_bytes_per_s: f64,
    /// Messages a second that a node sends to others.
    pub internal_per_s: f64,
}

/// A run over time.
#[derive(Debug, Clone, Serialize)]
pub struct TimeLine {
    /// Every second.
    pub moments: Vec<Moment>,
    /// When each way to attach was under load, in seconds.
    pub phases: Vec<(Attach, f64, f64)>,
}

/// Counters of all nodes.
#[derive(Debug, Clone)]
struct Reading {
    at: Instant,
    cpu: Vec<crate::process::CpuReading>,
    link_bytes: u64,
    internal: u64,
}

/// Loads the same nodes with one way to attach after the other, with a pause in between.
///
/// # Errors
/// A node does not start, or a client is not served.
pub fn play_time_line(
    experiment: &PlacementExperiment,
    confine: Option<&Confine<'_>>,
    say: &mut dyn FnMut(String),
) -> Result<TimeLine, BenchError> {
    let is_placed = |attach: &&Attach| matches!(attach, Attach::Placed { .. });
    let placed = experiment.attach.iter().find(is_placed);
    let nodes = nodes_for(experiment, *placed.unwrap_or(&Attach::Random), confine)?;
    let runtime = clients_runtime()?;
    let began = Instant::now();
    let mut line = TimeLine {
        moments: Vec::new(),
        phases: Vec::new(),
    };
    let mut last = read(&nodes)?;
    for &attach in &experiment.attach {
        say(attach.name());
        runtime.block_on(async {
            let crowd =
                Crowd::attach(experiment, entries(&nodes, &Handle::current()), attach).await?;
            crowd.set_rate(experiment.rate_per_s);
            let from = began.elapsed().as_secs_f64();
            watch(&nodes, began, experiment.hold, &mut last, &mut line).await?;
            let to = began.elapsed().as_secs_f64();
            line.phases.push((attach, from, to));
            crowd.set_rate(0.0);
            watch(&nodes, began, experiment.hold / 4, &mut last, &mut line).await?;
            crowd.close().await;
            Ok::<(), BenchError>(())
        })?;
    }
    runtime.shutdown_background();
    stop_all(nodes)?;
    Ok(line)
}

async fn watch(
    nodes: &[Running],
    began: Instant,
    hold: Duration,
    last: &mut Reading,
    line: &mut TimeLine,
) -> Result<(), BenchError> {
    let until = Instant::now() + hold;
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = read(nodes)?;
        line.moments.push(moment(nodes, began, last, &now));
        *last = now;
    }
    Ok(())
}

fn read(nodes: &[Running]) -> Result<Reading, BenchError> {
    let mut reading = Reading {
        at: Instant::now(),
        cpu: Vec::new(),
        link_bytes: 0,
        internal: 0,
    };
    for node in nodes {
        let used = cpu(node.pid()).map_err(BenchError::system("the CPU of a node"))?;
        reading.cpu.push(used);
        let sum = |name: &str| sum_at(node.other_address, name).unwrap_or(0);
        reading.link_bytes += sum_of_links(node);
        reading.internal += sum("thicket_messages_total{traffic=\"internal\",direction=\"out\"}");
    }
    Ok(reading)
}

/// Bytes on the links of a node, half of which are sent: over all links together sent and received bytes are equal.
fn sum_of_links(node: &Running) -> u64 {
    sum_at(node.other_address, "thicket_link_bytes_total").unwrap_or(0) / 2
}

fn moment(nodes: &[Running], began: Instant, last: &Reading, now: &Reading) -> Moment {
    let seconds = (now.at - last.at).as_secs_f64();
    let count = nodes.len() as f64;
    let cpu = now.cpu.iter().zip(&last.cpu);
    let cpu_s: f64 = cpu.map(|(now, last)| now.since(last)).sum();
    let memory: u64 = nodes.iter().map(memory_kib).sum();
    let per_s = |now: u64, last: u64| now.saturating_sub(last) as f64 / seconds / count;
    Moment {
        at_s: (now.at - began).as_secs_f64(),
        cpu_percent: 100.0 * cpu_s / seconds / count,
        memory_mib: memory as f64 / 1024.0 / count,
        link_bytes_per_s: per_s(now.link_bytes, last.link_bytes),
        internal_per_s: per_s(now.internal, last.internal),
    }
}

/// Means of each phase, and the series.
#[must_use]
pub fn time_line_report(experiment: &PlacementExperiment, line: &TimeLine) -> Report {
    let mut report = Report::new(format!(
        "Over time, of a node in the mean: {} nodes, {}, {} messages a second of each topic",
        experiment.nodes,
        experiment.load.describe(),
        experiment.rate_per_s
    ));
    let mut table = Table::new([
        "clients attach",
        "from, s",
        "to, s",
        "CPU, % of a core",
        "memory, MiB",
        "to other nodes, bytes/s",
        "msg/s",
    ]);
    for (attach, from, to) in &line.phases {
        let moments = line.moments.iter();
        // Without the second in which it starts.
        let during: Vec<&Moment> = moments
            .filter(|it| it.at_s > from + 1.5 && it.at_s <= *to)
            .collect();
        let mean = |of: fn(&Moment) -> f64| {
            during.iter().map(|it| of(it)).sum::<f64>() / during.len().max(1) as f64
        };
        table.row([
            attach.name(),
            format!("{from:.0}"),
            format!("{to:.0}"),
            format!("{:.2}", mean(|it| it.cpu_percent)),
            format!("{:.1}", mean(|it| it.memory_mib)),
            amount(mean(|it| it.link_bytes_per_s)),
            amount(mean(|it| it.internal_per_s)),
        ]);
    }
    report.push(Part::Table(table));
    let plot = |title: &str, y_label: &str, of: fn(&Moment) -> f64| {
        Part::Plot(Plot {
            title: title.to_owned(),
            x_label: "seconds".to_owned(),
            y_label: y_label.to_owned(),
            scale: Scale::Linear,
            series: vec![Series {
                name: "mean of the nodes".to_owned(),
                points: line.moments.iter().map(|it| (it.at_s, of(it))).collect(),
            }],
        })
    };
    report.push(plot("CPU of a node", "% of a core", |it| it.cpu_percent));
    report.push(plot("Memory of a node", "MiB", |it| it.memory_mib));
    report.push(plot("Traffic of a node to others", "bytes/s", |it| {
        it.link_bytes_per_s
    }));
    report
}
