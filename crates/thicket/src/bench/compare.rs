//! `thicket bench compare`.

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use thicket_bench::compare::{
    Case, Comparison, Sample, SampleResult, case, case_names, compare, comparison_report,
};
use thicket_bench::target::{Target, find_program};

use super::options::seconds;
use super::output::OutputOptions;

/// Brokers of others that can take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// Eclipse Mosquitto, as installed (deploy/peers installs it).
    Mosquitto,
}

/// Arguments of `thicket bench compare`.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Other brokers; the tables name those that are not installed
    #[arg(long, value_enum, value_delimiter = ',', default_value = "mosquitto")]
    peers: Vec<Peer>,
    /// Named workloads
    #[arg(long, value_name = "W1,...", value_delimiter = ',', default_values = case_names())]
    workloads: Vec<String>,
    /// Number of runs, interleaved
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Measured interval of each run
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Load before the measured interval, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warm_up: f64,
    /// Program whose node is measured [default: this one]
    #[arg(long, value_name = "PROGRAM")]
    node: Option<PathBuf>,
    /// Measure no node of ours: relay and peers only
    #[arg(long)]
    without_node: bool,
    /// Further argument for our node, in both its columns; may be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    node_arg: Vec<String>,
    /// Also measure our node with links encrypted by the cluster secret in this file
    #[arg(long, value_name = "FILE")]
    cluster_secret: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Compares.
pub fn run(arguments: &Compare) -> anyhow::Result<()> {
    let comparison = comparison(arguments)?;
    let targets_of = |case: &Case| match case.on_one_node {
        Some(_) => comparison.ours,
        None => comparison.targets.len(),
    };
    let total = comparison.repeats * comparison.cases.iter().map(targets_of).sum::<usize>();
    let mut done = 0;
    let samples = compare(&comparison, &mut |sample| {
        done += 1;
        arguments
            .output
            .say(|| format!("{done}/{total}  {}", sample_line(sample)));
    });
    arguments
        .output
        .finish(&samples, &comparison_report(&comparison, &samples))
}

fn comparison(arguments: &Compare) -> anyhow::Result<Comparison> {
    let this = std::env::current_exe().context("where this program lies")?;
    let cases: Option<Vec<_>> = arguments.workloads.iter().map(|name| case(name)).collect();
    let cases = cases.with_context(|| format!("the workloads are {}", case_names().join(", ")))?;
    let mut cases = cases;
    // What two nodes are compared with has to be measured too.
    for one in cases.clone().iter().filter_map(|case| case.on_one_node) {
        if !cases.iter().any(|case| case.name == one) {
            cases.extend(case(one));
        }
    }
    let mut targets = Vec::new();
    if !arguments.without_node {
        let program = arguments.node.clone().unwrap_or_else(|| this.clone());
        // A child runs in a folder of its own.
        let program = program
            .canonicalize()
            .with_context(|| format!("there is no program {}", program.display()))?;
        let extra: Vec<&str> = arguments.node_arg.iter().map(String::as_str).collect();
        targets.push(Target::node("node", program.clone(), &extra));
        let one: Vec<&str> = extra.iter().copied().chain(["--workers", "1"]).collect();
        if let Some(secret) = &arguments.cluster_secret {
            let secret = secret
                .canonicalize()
                .with_context(|| format!("there is no file {}", secret.display()))?;
            let secret = format!("--cluster-secret-file={}", secret.display());
            let with: Vec<&str> = extra.iter().copied().chain([&*secret]).collect();
            targets.push(Target::node("node, secret", program.clone(), &with));
        }
        targets.push(Target::node("node, 1 worker", program, &one));
    }
    let ours = targets.len();
    targets.push(Target::relay(this));
    let mut missing = Vec::new();
    for peer in &arguments.peers {
        match peer {
            Peer::Mosquitto => match find_program("mosquitto") {
                Some(program) => targets.push(Target::mosquitto(program)),
                None => missing.push("mosquitto".to_owned()),
            },
        }
    }
    Ok(Comparison {
        cases,
        targets,
        ours,
        missing,
        repeats: arguments.repeats as usize,
        measured: seconds("--seconds", arguments.seconds)?,
        warm_up: seconds("--warm-up", arguments.warm_up)?,
    })
}

fn sample_line(sample: &Sample) -> String {
    let figure = match (&sample.result, sample.figure()) {
        (SampleResult::Failed(error), _) => error.clone(),
        (SampleResult::Run(outcome), Some(us)) => {
            format!(
                "{us:.3} us a message (generator {:.3})",
                outcome.own.us_per_delivered
            )
        }
        (SampleResult::Idle(_), Some(kib)) => format!("{kib:.2} KiB a connection"),
        (_, None) => "no figure".to_owned(),
    };
    let batches = sample.messages_a_batch.map_or_else(String::new, |count| {
        format!(", {count:.1} messages a batch")
    });
    format!(
        "repeat {}  {}  {:<16}  {figure}{batches}",
        sample.repeat, sample.case, sample.target
    )
}
