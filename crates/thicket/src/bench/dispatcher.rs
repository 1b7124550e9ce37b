//! `thicket bench dispatcher`.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use thicket_bench::dispatcher::{Brokers, Experiment, dispatcher_report, places, play, plots};
use thicket_bench::target::find_program;

use super::options::seconds;
use super::output::OutputOptions;
use crate::files;

/// Arguments of `thicket bench dispatcher`.
#[derive(Debug, clap::Args)]
pub struct DispatcherExperiment {
    /// Number of orders of arrival: of the ten that differ, the two of the paper and then random ones
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10))]
    orders: u32,
    /// Seed of the random orders
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time between two arrivals, in seconds; the load that a dispatcher sees is a mean of five
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    ramp: f64,
    /// Time after the last arrival, in seconds; measured are all but the first two, of nodes the last two [default: 7; 15 with nodes]
    #[arg(long, value_name = "SECONDS")]
    hold: Option<f64>,
    /// Where publishers arrive: at a dispatcher in front of two Mosquittos, or at the first of two nodes that redirect
    #[arg(long, value_name = "WHICH", default_value = "mosquitto")]
    brokers: BrokersChoice,
    /// Policy of the dispatcher or of the nodes: cpu, messages, connections or combined
    #[arg(long, default_value = "combined")]
    policy: String,
    /// Sources of load of each broker, as for `thicket dispatch --broker`; {pid} is replaced by its process
    #[arg(long, value_name = "WORDS", default_value = "sys,pid={pid}")]
    sources: String,
    /// Folder for the figures, one SVG file each
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Where publishers arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum BrokersChoice {
    /// Two Mosquittos.
    Mosquitto,
    /// Two nodes of one cluster.
    Nodes,
}

/// Plays the experiment.
pub fn run(arguments: &DispatcherExperiment) -> anyhow::Result<()> {
    let of_nodes = arguments.brokers == BrokersChoice::Nodes;
    let hold = arguments.hold.unwrap_or(if of_nodes { 15.0 } else { 7.0 });
    ensure!(hold >= 4.0, "--hold {hold}: expected at least 4");
    let hold = seconds("--hold", hold)?;
    let brokers = match arguments.brokers {
        BrokersChoice::Nodes => Brokers::Nodes,
        BrokersChoice::Mosquitto => Brokers::Mosquitto {
            program: find_program("mosquitto")
                .context("mosquitto is not installed: deploy/peers installs it")?,
            sources: arguments.sources.clone(),
        },
    };
    let experiment = Experiment {
        thicket: std::env::current_exe().context("where this program lies")?,
        brokers,
        places: places(arguments.orders as usize, arguments.seed),
        ramp: seconds("--ramp", arguments.ramp)?,
        hold,
        policy: arguments.policy.clone(),
    };
    let played = play(&experiment, &mut |line| arguments.output.say(|| line))?;
    if let Some(folder) = &arguments.figures {
        files::make_folder(folder).context("--figures")?;
        for (name, plot) in plots(&played) {
            let path = folder.join(format!("{name}.svg"));
            files::write(&path, plot.to_svg())?;
        }
    }
    let report = dispatcher_report(&experiment, &played);
    arguments.output.finish(&played, &report)
}
