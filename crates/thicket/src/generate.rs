//! `thicket completions` and `thicket man`: files for shells and for `man`, made from the definition of the command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap_complete::Shell;

/// Arguments of `thicket completions`.
#[derive(Debug, clap::Args)]
pub struct Completions {
    /// Shell to complete for
    shell: Shell,
}

/// Arguments of `thicket man`.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// Directory for the pages, one per command; it is created if it does not exist
    directory: PathBuf,
}

/// Prints the completions of one shell.
pub fn completions(mut command: clap::Command, arguments: &Completions) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "thicket", &mut text);
    std::io::stdout().write_all(&text)?;
    Ok(())
}

/// Writes a page for each command, `thicket-ctl-drain.1` for `thicket ctl drain`.
pub fn man(command: clap::Command, arguments: &Man) -> anyhow::Result<()> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))
}
