//! The command line of Thicket: parse, call, print.

mod bench;
mod plan;

use clap::{Parser, Subcommand};

/// One MQTT broker made of many.
#[derive(Debug, Parser)]
#[command(name = "thicket", version, about, long_about = None)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure any MQTT broker: load, latency, losses, CPU a message
    Bench(bench::Bench),
    /// Plan a cluster on paper: the traffic model, the strategies and the simulator.
    Plan(plan::Plan),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Bench(arguments) => bench::run(arguments),
        Command::Plan(plan) => plan::run(plan),
    }
}
