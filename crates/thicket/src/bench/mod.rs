//! `thicket bench`: load and measurement of any MQTT broker.

mod compare;
mod conns;
mod crash;
mod dispatcher;
mod instructions;
mod mst;
mod options;
mod output;
mod placement;
mod quota;
mod rebalance;
mod relay;
mod run;
mod soak;
mod start;
mod stored;
mod tls;

use clap::{Args, Subcommand};

/// Arguments of `thicket bench`.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put one load on a broker and measure throughput, latency, losses and CPU
    Run(Box<run::Run>),
    /// Find the maximum sustainable throughput (M1, and Detti's rate below a mean latency)
    Mst(Box<mst::Mst>),
    /// What TLS costs: maximum sustainable throughput without and with it, in turn (M6)
    Tls(Box<tls::TlsCost>),
    /// Measure latency at given rates (M2)
    Latency(Box<mst::LatencyAtRates>),
    /// Open idle connections: how many, how fast, what each costs (M3)
    Conns(Box<conns::Conns>),
    /// Start a broker again and again: until a message comes back (M4)
    Start(start::Start),
    /// Fill a node with sessions and messages, kill it and start it again: until a session is served
    Stored(stored::Stored),
    /// Send clients that come once, each under names of its own: what of them stays in the memory of the nodes
    Soak(soak::Soak),
    /// Kill nodes under load: what of the acknowledged messages is missing, what comes twice, how long until it goes on (M5)
    Crash(Box<crash::Crash>),
    /// Publishers arrive at two Mosquittos behind a dispatcher, and in turn (Dispatcher IV)
    Dispatcher(dispatcher::DispatcherExperiment),
    /// What placement is worth: clients at random, placed with one session, and with several; Detti Fig. 2, 22 and 23
    Placement(placement::Placement),
    /// What rebalancing does when a node joins or is drained, and when the rebalancer dies: how long, what is lost, what comes twice
    Rebalance(rebalance::Rebalance),
    /// Compare our node, the relay and installed brokers on the named workloads W1 to W9
    Compare(compare::Compare),
    /// Count instructions a message under Callgrind and guard them against a baseline
    Instructions(instructions::Instructions),
    /// Run the yardstick: a process that only copies PUBLISH bytes from publishers to subscribers
    Relay(relay::Relay),
}

/// Runs a measurement.
pub fn run(bench: Bench) -> anyhow::Result<()> {
    match bench.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Mst(arguments) => mst::run(&arguments),
        Command::Tls(arguments) => tls::run(&arguments),
        Command::Latency(arguments) => mst::run_at_rates(&arguments),
        Command::Conns(arguments) => conns::run(&arguments),
        Command::Start(arguments) => start::run(&arguments),
        Command::Stored(arguments) => stored::run(&arguments),
        Command::Soak(arguments) => soak::run(&arguments),
        Command::Crash(arguments) => crash::run(&arguments),
        Command::Dispatcher(arguments) => dispatcher::run(&arguments),
        Command::Placement(arguments) => placement::run(&arguments),
        Command::Rebalance(arguments) => rebalance::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Instructions(arguments) => instructions::run(&arguments),
        Command::Relay(arguments) => relay::run(&arguments),
    }
}
