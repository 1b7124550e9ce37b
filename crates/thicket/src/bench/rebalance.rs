//! `thicket bench rebalance`.

use anyhow::{Context, ensure};
use clap::ValueEnum;
use thicket_bench::rebalance::{
    RebalanceAct, RebalanceExperiment, play_rebalancing, rebalance_report,
};
use thicket_mqtt::Qos;

use super::options::seconds;
use super::output::OutputOptions;

/// Arguments of `thicket bench rebalance`.
#[derive(Debug, clap::Args)]
pub struct Rebalance {
    /// Scenarios, one run each
    #[arg(long, value_name = "WHAT,WHAT", value_delimiter = ',', default_values_t = [Act::ScaleOut, Act::Drain, Act::Kill])]
    acts: Vec<Act>,
    /// Number of nodes at the start
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=64))]
    nodes: u16,
    /// Number of publishers, each with a topic and a subscriber of its own
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pairs: u32,
    /// Number of subscribers of the flash crowd
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    crowd: u32,
    /// Messages per second of each publisher
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    rate: f64,
    /// QoS of messages and subscriptions, 1 or 2
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    qos: u8,
    /// Moves per second
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    moves_per_s: u32,
    /// Time limit of a run
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    within: f64,
    #[command(flatten)]
    output: OutputOptions,
}

/// What happens to the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Act {
    /// Another node joins
    ScaleOut,
    /// A node is drained
    Drain,
    /// All clients begin at one node, and the rebalancer is killed when it has moved some
    Kill,
    /// Clients that may have four sessions are at random nodes with one each, each subscriber with ten topics (Zipf's law, 1.13): a dry run, one pass, and what came of it
    Random,
    /// A crowd of subscribers at one node changes within ten seconds to one topic, with ten times the messages of those it had; the other nodes have pairs, with as much load before
    FlashCrowd,
}

impl std::fmt::Display for Act {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(RebalanceAct::from(*self).name())
    }
}

impl From<Act> for RebalanceAct {
    fn from(act: Act) -> Self {
        match act {
            Act::ScaleOut => Self::ScaleOut,
            Act::Drain => Self::Drain,
            Act::Kill => Self::Kill,
            Act::Random => Self::Random,
            Act::FlashCrowd => Self::FlashCrowd,
        }
    }
}

/// Plays the experiment.
pub fn run(arguments: &Rebalance) -> anyhow::Result<()> {
    let rate = arguments.rate;
    ensure!(
        rate.is_finite() && rate > 0.0,
        "--rate {rate}: expected more than 0"
    );
    let experiment = RebalanceExperiment {
        thicket: std::env::current_exe().context("where this program lies")?,
        nodes: arguments.nodes.into(),
        pairs: arguments.pairs as usize,
        crowd: arguments.crowd as usize,
        rate_per_s: rate,
        qos: if arguments.qos == 1 {
            Qos::AtLeastOnce
        } else {
            Qos::ExactlyOnce
        },
        moves_per_s: arguments.moves_per_s,
        acts: arguments.acts.iter().map(|act| (*act).into()).collect(),
        within: seconds("--within", arguments.within)?,
    };
    let outcomes = play_rebalancing(&experiment, &mut |line| arguments.output.say(|| line))?;
    let report = rebalance_report(&experiment, &outcomes);
    arguments.output.finish(&outcomes, &report)
}
