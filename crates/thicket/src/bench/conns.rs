//! `thicket bench conns`.

use thicket_bench::generator::{Node, Scenario, Watch};
use thicket_bench::idle::{self, IdleCost};
use thicket_bench::report::{Part, Report, Table, amount};
use thicket_bench::statistics::estimate;
use thicket_bench::workload::Workload;

use super::options::seconds;
use super::output::OutputOptions;

/// Arguments of `thicket bench conns`.
#[derive(Debug, clap::Args)]
pub struct Conns {
    /// Brokers of one cluster; clients connect to them in turn
    #[arg(
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:1883"
    )]
    nodes: Vec<String>,
    /// Number of connections
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10_000)]
    connections: usize,
    /// Pause before memory is read, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    hold: f64,
    /// Processes of the broker, whose memory and CPU time are measured
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pid: Vec<u32>,
    /// How often to open and close all of them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    #[command(flatten)]
    output: OutputOptions,
}

/// Opens idle connections.
pub fn run(arguments: &Conns) -> anyhow::Result<()> {
    let nodes: Result<Vec<Node>, _> = arguments
        .nodes
        .iter()
        .map(|node| Node::resolve(node))
        .collect();
    let scenario = Scenario::new(
        nodes?,
        Workload::Idle {
            clients: arguments.connections,
        },
    );
    let watch = Watch {
        pids: arguments.pid.clone(),
    };
    let hold = seconds("--hold", arguments.hold)?;
    let mut costs = Vec::new();
    for _ in 0..arguments.repeats {
        let cost = idle::measure(scenario.clone(), arguments.connections, hold, &watch)?;
        arguments.output.say(|| {
            format!(
                "{} connections in {:.2} s",
                amount(cost.connections as f64),
                cost.seconds
            )
        });
        costs.push(cost);
    }
    arguments
        .output
        .finish(&costs, &report(&arguments.nodes.join(", "), &costs))
}

fn report(nodes: &str, costs: &[IdleCost]) -> Report {
    let mut report = Report::new(format!("Idle connections at {nodes}"));
    let mut table = Table::new([
        "",
        "connections",
        "connects/s",
        "bytes each",
        "broker us each",
        "own us each",
        "RSS KiB",
        "PSS KiB",
    ]);
    let optional = |value: Option<f64>, places: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.places$}"))
    };
    for (index, cost) in costs.iter().enumerate() {
        let with = cost.memory.map(|(_, with)| with);
        table.row([
            format!("repeat {}", index + 1),
            amount(cost.connections as f64),
            amount(cost.connects_per_s),
            optional(cost.bytes_each, 0),
            optional(cost.broker_us_each, 1),
            format!("{:.1}", cost.own_us_each),
            optional(with.map(|memory| memory.rss_kib as f64), 0),
            optional(with.map(|memory| memory.pss_kib as f64), 0),
        ]);
    }
    report.push(Part::Table(table));
    let rates: Vec<f64> = costs.iter().map(|cost| cost.connects_per_s).collect();
    if let Some(e) = estimate(&rates)
        && let Some(half) = e.half_width_95
    {
        report.push(Part::Text(format!(
            "{} connects/s +- {} (95 % confidence)",
            amount(e.mean),
            amount(half)
        )));
    }
    if costs.len() > 1 {
        report.push(Part::Text(
            "Memory a broker keeps after the first repeat is not counted again in the next."
                .to_owned(),
        ));
    }
    if costs.iter().all(|cost| cost.memory.is_none()) {
        report.push(Part::Text("Memory: unknown (--pid).".to_owned()));
    }
    report
}
