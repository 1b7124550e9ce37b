//! The command line of Thicket: parse, call, print.

mod api;
mod bench;
mod broker;
mod client;
mod ctl;
mod dispatch;
mod lab;
mod passwd;
mod plan;
mod table;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One MQTT broker made of many.
#[derive(Debug, Parser)]
#[command(name = "thicket", version, about, long_about = None, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start several nodes on this machine that find each other
    Up(up::Up),
    /// Run one node
    Broker(Box<broker::Broker>),
    /// Publish messages
    #[command(disable_help_flag = true)]
    Pub(client::Pub),
    /// Subscribe and print what comes
    #[command(disable_help_flag = true)]
    Sub(client::Sub),
    /// Show what a running node knows
    Ctl(ctl::Ctl),
    /// Send clients to the broker with most room, in front of any brokers
    Dispatch(dispatch::Dispatch),
    /// Make a line for the file of users
    Passwd(passwd::Passwd),
    /// Measure any MQTT broker: load, latency, losses, CPU a message
    Bench(bench::Bench),
    /// Plan a cluster on paper: the traffic model, the strategies and the simulator
    Plan(plan::Plan),
    /// Build networks on this machine and compare brokers on them
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Up(up) => up::run(&up),
        Command::Broker(broker) => broker::run(*broker),
        Command::Pub(publish) => client::publish(&publish),
        Command::Sub(subscribe) => client::subscribe(&subscribe),
        Command::Ctl(ctl) => ctl::run(&ctl),
        Command::Dispatch(dispatch) => dispatch::run(&dispatch),
        Command::Passwd(passwd) => passwd::run(&passwd),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Plan(plan) => plan::run(plan),
        Command::Lab(lab) => lab::run(lab),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output wanted no more of it (`thicket sub ... | head -1`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thicket: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
