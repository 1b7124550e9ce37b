//! `thicket bench`: load and measurement of any MQTT broker.

mod options;
mod relay;
mod run;

use clap::{Args, Subcommand};

/// Arguments of `thicket bench`.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put one load on a broker and measure throughput, latency, losses and CPU.
    Run(run::Run),
    /// Run the yardstick: a process that only copies PUBLISH bytes from publishers to subscribers.
    Relay(relay::Relay),
}

/// Runs a measurement.
pub fn run(bench: Bench) -> anyhow::Result<()> {
    match bench.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Relay(arguments) => relay::run(&arguments),
    }
}
