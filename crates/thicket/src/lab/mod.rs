//! `thicket lab`: any broker, on any network, the same answer twice.

mod backend;
mod child;
mod export;
mod hand;
mod papers;
mod plan;
mod read_line;
mod run;
mod watch;

use std::io::{ErrorKind, Write};
use std::path::Path;

use clap::{Args, Subcommand};
use thicket_lab::scenario::{Cell, Scenario};
use thicket_lab::{LabError, requirements, unprivileged};

use crate::files;

/// Arguments of `thicket lab`.
#[derive(Debug, Args)]
pub struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a scenario and describe what it does
    Check(plan::Check),
    /// Build the network of a scenario, measure round trips and TCP throughput, and remove it
    Verify(plan::Verify),
    /// Run a scenario: every combination on every system, with results, samples and a report
    Run(run::Run),
    /// Compare two results of the same scenario: ratios with 95 % confidence intervals
    Compare(run::Compare),
    /// Compare the systems of one result in pairs: ratios with bootstrap intervals
    Pairs(run::Pairs),
    /// Write the report of results again
    Report(run::Report),
    /// Draw a figure in the form of its paper, from the results of a scenario
    Figure(papers::Figure),
    /// List the scenarios that follow papers, and where they depart from them
    Papers(papers::Papers),
    /// List the brokers that can run here, and what the others lack
    Drivers,
    /// Install a broker that has no package, such as hivemq
    Prepare(plan::Prepare),
    /// Keep the network and one system of a scenario running until Ctrl-C or `down`
    Up(hand::Up),
    /// Run a command on a site of the running network, among its clients or where its broker runs
    Exec(hand::Exec),
    /// Change a link of the running network: `lab set s1 s2 rtt=50ms loss=1% bandwidth=10mbit`
    Set(hand::Set),
    /// Cut a link of the running network: everything on it is lost
    Cut(hand::Cut),
    /// Restore a link, or all, to the state in the scenario
    Heal(hand::Heal),
    /// Kill, power off, pause, resume, restart, drain or join the broker of a site
    Broker(hand::Broker),
    /// Show sites, links and traffic of the running network
    Status(hand::Network),
    /// Show the running network, updated every second
    Watch(watch::Watch),
    /// Write a scenario as manifests for Kubernetes with Chaos Mesh
    Export(export::Export),
    /// Collect the results of an export in one folder
    Collect(export::Collect),
    /// Stop the running network, and remove what killed labs left behind
    Down(plan::Down),
    #[command(hide = true)]
    Child(child::Child),
}

/// Reads a scenario, with its text.
fn read(file: &Path) -> anyhow::Result<(String, Scenario, Vec<Cell>)> {
    let text = files::read_text(file)?;
    let (scenario, cells) = Scenario::parse(&text).map_err(|reason| LabError::Scenario {
        file: file.to_owned(),
        reason,
    })?;
    Ok((text, scenario, cells))
}

/// The same, and refuses what its systems cannot do.
fn load(file: &Path) -> anyhow::Result<(String, Scenario, Vec<Cell>)> {
    let (text, scenario, cells) = read(file)?;
    requirements::check(file, &text, &scenario, &cells, &read_line::read_line)?;
    Ok((text, scenario, cells))
}

/// Writes to standard output. A reader that wants no more, such as `head`, is no error.
fn show(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if is_gone(&error) => Ok(()),
        other => Ok(other?),
    }
}

/// Whether whoever reads it is gone: a pipe, or a terminal that was closed.
fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

impl Command {
    /// Which network that is up it is for, if it is for one.
    const fn network(&self) -> Option<hand::Network> {
        Some(match self {
            Self::Exec(arguments) => arguments.network,
            Self::Set(arguments) => arguments.link.network,
            Self::Cut(arguments) => arguments.link.network,
            Self::Heal(arguments) => arguments.network,
            Self::Broker(arguments) => arguments.network,
            Self::Status(arguments) => *arguments,
            Self::Watch(arguments) => arguments.network,
            Self::Down(arguments) => arguments.network,
            Self::Check(_)
            | Self::Verify(_)
            | Self::Run(_)
            | Self::Compare(_)
            | Self::Pairs(_)
            | Self::Report(_)
            | Self::Figure(_)
            | Self::Papers(_)
            | Self::Drivers
            | Self::Prepare(_)
            | Self::Up(_)
            | Self::Export(_)
            | Self::Collect(_)
            | Self::Child(_) => return None,
        })
    }
}

/// Runs a command of the lab.
pub fn run(lab: Lab) -> anyhow::Result<()> {
    if let Some(network) = lab.command.network() {
        unprivileged::join_running(&std::env::current_exe()?, network.lab)?;
    }
    match lab.command {
        Command::Check(arguments) => plan::check(&arguments),
        Command::Verify(arguments) => plan::verify(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Compare(arguments) => run::compare(&arguments),
        Command::Pairs(arguments) => run::pairs(&arguments),
        Command::Report(arguments) => run::report(&arguments),
        Command::Figure(arguments) => papers::figure(&arguments),
        Command::Papers(arguments) => papers::papers(&arguments),
        Command::Prepare(arguments) => plan::prepare(&arguments),
        Command::Up(arguments) => hand::up(&arguments),
        Command::Exec(arguments) => hand::exec(&arguments),
        Command::Set(arguments) => hand::set(&arguments),
        Command::Cut(arguments) => hand::cut(&arguments),
        Command::Heal(arguments) => hand::heal(&arguments),
        Command::Broker(arguments) => hand::broker(&arguments),
        Command::Status(arguments) => hand::status(arguments),
        Command::Watch(arguments) => watch::watch(&arguments),
        Command::Export(arguments) => export::export(&arguments),
        Command::Collect(arguments) => export::collect(&arguments),
        Command::Drivers => plan::drivers(),
        Command::Down(arguments) => plan::down(&arguments),
        Command::Child(arguments) => child::run(arguments),
    }
}
