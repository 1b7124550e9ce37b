//! `thicket bench soak`.

use thicket_bench::report::{Part, Report, Table};
use thicket_bench::soak::{Extent, Mark, Soak as Result, measure};

use super::output::OutputOptions;

/// Arguments of `thicket bench soak`.
#[derive(Debug, clap::Args)]
pub struct Soak {
    /// Number of clients; each connects once, with an identifier, filters and topics of its own
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    clients: u64,
    /// Number of nodes, with one worker each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=32))]
    nodes: u32,
    /// Number of clients at the same time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1000))]
    at_a_time: u32,
    /// Number of clients after which all disconnect and memory is read [default: a tenth of all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    step: Option<u64>,
    /// Further arguments of each node, such as `-- --workers 2`
    #[arg(last = true)]
    node: Vec<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Starts nodes of this program and sends them clients.
pub fn run(arguments: &Soak) -> anyhow::Result<()> {
    let extent = Extent {
        nodes: arguments.nodes as usize,
        clients: arguments.clients,
        at_a_time: arguments.at_a_time as usize,
        step: arguments.step.unwrap_or(arguments.clients.div_ceil(10)),
    };
    let thicket = std::env::current_exe()?;
    let measured = measure(&thicket, extent, &arguments.node, &mut |mark| {
        arguments.output.say(|| {
            format!(
                "{:>8.1} s  {:>10} clients  {}",
                mark.at_s,
                mark.clients,
                in_mb(mark)
            )
        });
    })?;
    arguments.output.finish(&measured, &report(&measured))
}

fn report(soak: &Result) -> Report {
    let mut report = Report::new(format!(
        "Memory of nodes after clients that came once: {:.1} bytes a client in the second half, all nodes together",
        soak.bytes_per_client
    ));
    let mut table = Table::new(["clients", "s", "resident memory of each node"]);
    for mark in &soak.marks {
        table.row([
            mark.clients.to_string(),
            format!("{:.0}", mark.at_s),
            in_mb(mark),
        ]);
    }
    report.push(Part::Table(table));
    report
}

fn in_mb(mark: &Mark) -> String {
    let nodes = mark.resident_bytes.iter();
    let nodes: Vec<String> = nodes
        .map(|bytes| format!("{:.1} MB", *bytes as f64 / 1e6))
        .collect();
    nodes.join("  ")
}
