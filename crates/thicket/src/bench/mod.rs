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

use crate::interruption;

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
    /// Measure the cost of TLS: maximum sustainable throughput without and with it, in turn (M6)
    Tls(Box<tls::TlsCost>),
    /// Measure latency at given rates (M2)
    Latency(Box<mst::LatencyAtRates>),
    /// Open idle connections: how many, how fast, memory and CPU of each (M3)
    Conns(Box<conns::Conns>),
    /// Measure the time from the start of a broker to its first delivered message (M4)
    Start(start::Start),
    /// Measure how soon a node that was killed serves its stored sessions and messages again
    Stored(stored::Stored),
    /// Measure what stays in the memory of nodes after many clients that connect once, each with names of its own
    Soak(soak::Soak),
    /// Kill nodes under load: acknowledged messages lost, duplicates, time of the failover (M5)
    Crash(Box<crash::Crash>),
    /// Compare a dispatcher in front of two Mosquittos with round robin, as publishers arrive (Dispatcher IV)
    Dispatcher(dispatcher::DispatcherExperiment),
    /// Measure the gain of placement: clients at random, placed with one session, with several; Detti Fig. 2, 22 and 23
    Placement(placement::Placement),
    /// Measure rebalancing when a node joins or is drained, or the rebalancer dies: time, losses, duplicates
    Rebalance(rebalance::Rebalance),
    /// Compare our node, the relay and installed brokers on the named workloads W1 to W9
    Compare(compare::Compare),
    /// Count instructions per message under Callgrind, and compare them with a baseline
    Instructions(instructions::Instructions),
    /// Run a relay, the reference for comparisons: it only copies PUBLISH bytes from publishers to subscribers
    Relay(relay::Relay),
}

/// Runs a measurement. Brokers that it starts end with it, also by a signal.
pub fn run(bench: Bench) -> anyhow::Result<()> {
    let interruption = interruption::end_after(thicket_bench::end_all)?;
    let result = match bench.command {
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
    };
    interruption.end();
    result
}
