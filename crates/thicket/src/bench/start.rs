//! `thicket bench start`.

use std::path::PathBuf;

use thicket_bench::report::{Part, Report, Table, milliseconds};
use thicket_bench::statistics::{estimate, spread};
use thicket_bench::target::{Readiness, Target};

use super::output::OutputOptions;

use crate::files;

/// Arguments of `thicket bench start`.
#[derive(Debug, clap::Args)]
pub struct Start {
    /// Command that starts the broker in the foreground; `{port}` and `{other-port}` are replaced by free ports, `{config}` by the file of
    /// --config [default: a node of this program]
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
    /// Configuration file in which `{port}` is replaced
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Number of starts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    #[command(flatten)]
    output: OutputOptions,
}

/// Starts a broker again and again.
pub fn run(arguments: &Start) -> anyhow::Result<()> {
    let mut target = match arguments.command.split_first() {
        None => Target::node("node", std::env::current_exe()?, &[]),
        Some((program, rest)) => {
            let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
            Target::plain(program, PathBuf::from(program), &rest)
        }
    };
    if let Some(path) = &arguments.config {
        target.config = Some(files::read_text(path)?);
    }
    let mut readiness = Vec::new();
    for _ in 0..arguments.repeats {
        let running = target.start()?;
        arguments.output.say(|| {
            format!(
                "a message came back after {} ms",
                milliseconds(running.readiness.round_trip_s * 1e6)
            )
        });
        readiness.push(running.readiness);
        running.stop()?;
    }
    arguments
        .output
        .finish(&readiness, &report(&target.name, &readiness))
}

fn report(name: &str, readiness: &[Readiness]) -> Report {
    let mut report = Report::new(format!(
        "From the start of {name} on, in ms, {} starts",
        readiness.len()
    ));
    let mut table = Table::new(["", "median", "min", "max", "mean", "95 % +-"]);
    let accepted: Vec<f64> = readiness
        .iter()
        .map(|readiness| readiness.open_port_s * 1e6)
        .collect();
    let came_back: Vec<f64> = readiness
        .iter()
        .map(|readiness| readiness.round_trip_s * 1e6)
        .collect();
    for (what, values) in [
        ("connection accepted", accepted),
        ("message came back", came_back),
    ] {
        if let (Some(spread), Some(estimate)) = (spread(&values), estimate(&values)) {
            let half = estimate.half_width_95.map_or("-".to_owned(), milliseconds);
            let [median, min, max, mean] =
                [spread.median, spread.min, spread.max, estimate.mean].map(milliseconds);
            table.row([what.to_owned(), median, min, max, mean, half]);
        }
    }
    report.push(Part::Table(table));
    report
}
