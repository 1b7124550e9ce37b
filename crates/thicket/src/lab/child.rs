//! The processes behind a lab: not for users.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use thicket_lab::{child, fabric, janitor};

/// Arguments of `thicket lab child`.
#[derive(Debug, Args)]
pub struct Child {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Carry frames and forward multicast
    Fabric,
    /// Wait for the lab to end, then clean up after it
    Janitor { lab: u32 },
    /// Enter a namespace and control groups, and become a command
    Enter {
        #[arg(long)]
        lab: u32,
        #[arg(long)]
        namespace: PathBuf,
        #[arg(long)]
        group: Vec<PathBuf>,
        #[arg(long)]
        core: Vec<usize>,
        #[arg(last = true)]
        command: Vec<String>,
    },
}

/// Runs one of them.
pub fn run(child: Child) -> anyhow::Result<()> {
    match child.command {
        Command::Fabric => Ok(fabric::run()?),
        Command::Janitor { lab } => Ok(janitor::wait_and_clean(lab)?),
        Command::Enter {
            lab,
            namespace,
            group,
            core,
            command,
        } => match child::enter(lab, &namespace, &group, &core, &command)? {},
    }
}
