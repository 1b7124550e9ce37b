//! The command line of Thicket: parse, call, print.
//!
//! It is a library so that packages can be built small, and optimised across crates at another level than this one: that of the program.

mod api;
mod bench;
mod broker;
mod client;
mod ctl;
mod dispatch;
mod environment;
mod files;
mod flags;
mod generate;
mod health;
mod interruption;
mod lab;
mod migrate;
mod passwd;
mod place;
mod plan;
mod sandbox;
mod service_manager;
mod token;
mod up;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An MQTT broker that runs as a cluster
#[derive(Debug, Parser)]
#[command(name = "thicket", version, about, long_about = None, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster of several nodes on this machine
    Up(up::Up),
    /// Run one node
    Broker(Box<broker::Broker>),
    /// Publish messages
    #[command(disable_help_flag = true)]
    Pub(client::Pub),
    /// Subscribe and print messages
    #[command(disable_help_flag = true)]
    Sub(client::Sub),
    /// Check whether a node is ready for clients: exits with 0 if it is, else with 1 and the reason
    Health(health::Health),
    /// Inspect and control running nodes over their HTTP API
    Ctl(ctl::Ctl),
    /// Run a dispatcher in front of any brokers: it sends each client to the broker with the most capacity
    Dispatch(dispatch::Dispatch),
    /// Run a proxy that gives unchanged clients sessions on the nodes where their topics are
    Place(place::Place),
    /// Hash a password, as a line for the file of users
    Passwd(passwd::Passwd),
    /// Make a token for the HTTP API, with a scope and an expiry
    Token(token::Token),
    /// Measure any MQTT broker: throughput, latency, losses, CPU per message
    Bench(bench::Bench),
    /// Plan a cluster: traffic model, placement strategies, simulator, advice
    Plan(plan::Plan),
    /// Emulate networks on this machine and compare brokers on them
    Lab(lab::Lab),
    /// Convert a configuration of Mosquitto, with a remark for every line that cannot be converted
    Migrate(migrate::Migrate),
    /// Print shell completions
    Completions(generate::Completions),
    /// Write the manual pages of all commands
    Man(generate::Man),
}

/// Does what the arguments of the process ask for.
pub fn main() -> ExitCode {
    let (command, matches, faults) = parse();
    let result = match command {
        Command::Up(up) => up::run(&up),
        Command::Broker(broker) => broker::run(*broker, &matches, faults),
        Command::Pub(publish) => client::publish(&publish),
        Command::Sub(subscribe) => client::subscribe(&subscribe),
        Command::Health(health) => health::run(&health),
        Command::Ctl(ctl) => ctl::run(&ctl),
        Command::Dispatch(dispatch) => dispatch::run(&dispatch),
        Command::Place(place) => place::run(&place),
        Command::Passwd(passwd) => passwd::run(&passwd),
        Command::Token(token) => token::run(&token),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Plan(plan) => plan::run(plan),
        Command::Lab(lab) => lab::run(lab),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Completions(shell) => generate::completions(Cli::command(), &shell),
        Command::Man(man) => generate::man(Cli::command(), &man),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our output wanted no more of it (`thicket sub ... | head -1`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thicket: {}", in_words(&error));
            ExitCode::FAILURE
        }
    }
}

/// What was asked for, where each value of its arguments came from, and the faults of flags of a node, whose other settings are to be checked as
/// well. Ends the process if the rest cannot be read.
fn parse() -> (Command, clap::ArgMatches, Vec<String>) {
    let mut words: Vec<_> = std::env::args_os().collect();
    let is_broker = words.get(1).is_some_and(|word| word == "broker");
    let mut faults = Vec::new();
    loop {
        let parsed = Cli::command()
            .try_get_matches_from(&words)
            .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?.command, matches)));
        let error = match parsed {
            Ok((command, mut matches)) => {
                let (_, of_command) = matches.remove_subcommand().expect("clap asks for one");
                return (command, of_command, faults);
            }
            Err(error) => error,
        };
        if let (true, Some(fault)) = (is_broker, flags::take_fault(&error, &mut words)) {
            faults.push(fault);
            continue;
        }
        for fault in faults {
            eprintln!("thicket: {fault}");
        }
        // Written whether or not somebody reads it.
        let _ = error.print();
        let mut command = Cli::command();
        // Only then do arguments show as the error shows them.
        command.build();
        if let Some(words) = environment::explain(&command, &error, &words) {
            eprintln!("\n{words}");
        }
        std::process::exit(error.exit_code())
    }
}

/// `1 message`, `2 messages`.
fn counted(count: impl TryInto<u64>, what: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {what}{end}")
}

/// An error with its causes. The text of some errors includes their cause, which is not repeated.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// Writes to standard output.
fn print(text: &str) -> anyhow::Result<()> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.context("cannot write to standard output")
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<std::io::Error>();
    io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_was_told_is_not_repeated() {
        let inner = std::io::Error::other("no such file");
        let error = anyhow::Error::new(inner).context("cannot read x: no such file");
        assert_eq!(in_words(&error), "cannot read x: no such file");
        let error = error.context("users");
        assert_eq!(in_words(&error), "users: cannot read x: no such file");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
