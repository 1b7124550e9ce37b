//! `thicket bench placement`.

use anyhow::{Context, ensure};
use thicket_bench::placement::{PlacementExperiment, placement_report, play};

use super::options::seconds;
use super::output::OutputOptions;

/// Arguments of `thicket bench placement`.
#[derive(Debug, clap::Args)]
pub struct Placement {
    /// Nodes of the cluster (M)
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    nodes: u16,
    /// Topics, each with a publisher (Ntop)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    topics: u32,
    /// Subscribers (Nsub)
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    subscribers: u32,
    /// Topics that each subscriber wants (Nsus)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    wanted: u32,
    /// Exponent of Zipf's law by which topics are wanted (alpha)
    #[arg(long, value_name = "X", default_value_t = 1.13)]
    zipf: f64,
    /// Messages a second of each topic
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    rate: f64,
    /// How long messages are counted, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,
    /// Sessions that a client may have (Nses), one run each; 0: it attaches at random
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_values_t = [0, 1, 4])]
    sessions: Vec<u8>,
    /// Decides who wants what, and where clients come first
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: OutputOptions,
}

/// Plays the experiment.
pub fn run(arguments: &Placement) -> anyhow::Result<()> {
    let (rate, zipf) = (arguments.rate, arguments.zipf);
    ensure!(
        rate.is_finite() && rate > 0.0,
        "--rate {rate}: expected more than 0"
    );
    ensure!(
        zipf.is_finite() && zipf >= 0.0,
        "--zipf {zipf}: expected 0 or more"
    );
    for sessions in &arguments.sessions {
        ensure!(
            *sessions <= 16,
            "--sessions {sessions}: expected at most 16"
        );
    }
    ensure!(
        arguments.wanted <= arguments.topics,
        "--wanted {}: there are {} topics",
        arguments.wanted,
        arguments.topics
    );
    let experiment = PlacementExperiment {
        thicket: std::env::current_exe().context("where this program lies")?,
        nodes: arguments.nodes.into(),
        topics: arguments.topics as usize,
        subscribers: arguments.subscribers as usize,
        wanted: arguments.wanted as usize,
        exponent: zipf,
        rate_per_s: rate,
        hold: seconds("--seconds", arguments.seconds)?,
        sessions: arguments.sessions.iter().map(|one| (*one).into()).collect(),
        seed: arguments.seed,
    };
    let outcomes = play(&experiment, &mut |line| arguments.output.say(|| line))?;
    let report = placement_report(&experiment, &outcomes);
    arguments.output.finish(&outcomes, &report)
}
