//! `thicket bench instructions`.

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use thicket_bench::compare::{Case, case};
use thicket_bench::crossing::{self, Crossing};
use thicket_bench::instructions::{Baseline, Verdict, measure};
use thicket_bench::report::{Part, Report, Table};
use thicket_bench::target::Target;

use super::output::OutputOptions;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// Our node with one worker.
    Node,
    /// The relay.
    Relay,
}

/// How many times the bound counts where messages go one at a time: what nodes say to each other
/// meanwhile depends on how long that takes.
const IN_TIME: f64 = 6.0;

/// What is counted.
enum Workload {
    /// On one broker, in batches.
    Batches(Case),
    /// One message at a time, with two nodes.
    Crossing(Crossing),
}

/// Arguments of `thicket bench instructions`.
#[derive(Debug, clap::Args)]
pub struct Instructions {
    /// What is measured
    #[arg(long, value_enum, default_value_t = Subject::Node)]
    target: Subject,
    /// Named workloads, closed loops only; and one message at a time with two nodes: X0 and X1 to
    /// the other node at QoS 0 and 1, R1 to a persistent session with a backup there
    #[arg(long, value_name = "W1,...", value_delimiter = ',', default_values = ["W1", "W2", "X0", "X1", "R1"])]
    workloads: Vec<String>,
    /// Program whose node or relay is measured [default: this one]
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// File with the baseline
    #[arg(long, value_name = "FILE", default_value = "benches/instructions.json")]
    baseline: PathBuf,
    /// Growth that is allowed, as a share
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    bound: f64,
    /// Write the figures to the baseline instead of comparing
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    output: OutputOptions,
}

/// Counts instructions and compares; an error if they grew beyond the bound.
pub fn run(arguments: &Instructions) -> anyhow::Result<()> {
    let program = match &arguments.program {
        Some(program) => program
            .canonicalize()
            .with_context(|| format!("there is no program {}", program.display()))?,
        None => std::env::current_exe().context("where this program lies")?,
    };
    let target = match arguments.target {
        Subject::Node => Target::node("node", program, &["--workers", "1"]),
        Subject::Relay => Target::relay(program),
    };
    let mut baseline = Baseline::load(&arguments.baseline)?;
    let mut table = Table::new(["", "instructions a message", "baseline", "growth"]);
    let mut grown = Vec::new();
    let mut measured = Baseline::default();
    for name in &arguments.workloads {
        let workload = match Crossing::of(name) {
            // It has no nodes.
            Some(_) if arguments.target == Subject::Relay => continue,
            Some(crossing) => Workload::Crossing(crossing),
            None => Workload::Batches(
                case(name).with_context(|| format!("there is no workload {name}"))?,
            ),
        };
        let name = format!("{} {name}", target.name);
        arguments
            .output
            .say(|| format!("{name} under Callgrind ..."));
        let instructions = match &workload {
            Workload::Batches(case) => measure(&target, case)?,
            Workload::Crossing(crossing) => crossing::measure(&target.program, *crossing)?,
        };
        let bound = match workload {
            Workload::Batches(_) => arguments.bound,
            Workload::Crossing(_) => arguments.bound * IN_TIME,
        };
        let verdict = baseline.judge(&name, instructions, bound);
        let growth = match verdict {
            Verdict::New => "new".to_owned(),
            Verdict::Within(growth) | Verdict::Grown(growth) => format!("{:+.1} %", growth * 100.0),
        };
        if let Verdict::Grown(_) = verdict {
            grown.push(format!("{name} {growth}"));
        }
        let known = baseline
            .instructions_per_message
            .get(&name)
            .map_or("-".to_owned(), |known| format!("{known:.0}"));
        table.row([name.clone(), format!("{instructions:.0}"), known, growth]);
        measured
            .instructions_per_message
            .insert(name, (instructions * 10.0).round() / 10.0);
    }
    if arguments.record {
        baseline
            .instructions_per_message
            .extend(measured.instructions_per_message.clone());
        baseline.save(&arguments.baseline)?;
    }
    let mut report = Report::new("Instructions for each delivered message, by Callgrind");
    report.push(Part::Table(table));
    arguments.output.finish(&measured, &report)?;
    anyhow::ensure!(
        arguments.record || grown.is_empty(),
        "instructions grew by more than {} % (one message at a time: {} %): {}",
        arguments.bound * 100.0,
        arguments.bound * IN_TIME * 100.0,
        grown.join(", ")
    );
    Ok(())
}
