//! `thicket migrate`: the configuration of Mosquitto as one of ours, with a remark for every line that could not be taken over as it was, and what
//! Mosquitto has stored as lines that `thicket ctl import` reads.

mod database;
mod draft;
mod options;
mod sessions;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use thicket_broker::SessionScopeChoice;

use database::Database;
use draft::Draft;
use sessions::{Conversion, Names};

use crate::{counted, files};

/// Arguments of `thicket migrate`.
#[derive(Debug, clap::Args)]
pub struct Migrate {
    /// A `mosquitto.conf`; the files of its `include_dir` are read too
    #[arg(required_unless_present = "database")]
    file: Option<PathBuf>,
    /// Converts a persistence file of Mosquitto 2.0 (`mosquitto.db`) instead: its sessions with their messages, and its retained messages, as lines for
    /// `thicket ctl import`. Name the `mosquitto.conf` as well if it has `mount_point`
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    /// The `session_scope` of the nodes that will import the sessions
    #[arg(
        long,
        value_name = "SCOPE",
        default_value = "user",
        requires = "database"
    )]
    session_scope: SessionScopeChoice,
    /// File to write; `-`: standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
}

/// Writes our configuration, or the lines; how many remarks there are, or what was left out, goes to standard error.
pub fn run(arguments: &Migrate) -> anyhow::Result<()> {
    let mut draft = Draft::default();
    if let Some(file) = &arguments.file {
        options::take_all(&mut draft, &files::read_text(file)?);
    }
    match &arguments.database {
        None => write_configuration(draft, &arguments.output),
        Some(path) => {
            let names = Names {
                scope: arguments.session_scope.into(),
                prefixes: draft.prefixes(),
            };
            write_sessions(path, &names, &arguments.output)
        }
    }
}

fn write_configuration(draft: Draft, output: &Path) -> anyhow::Result<()> {
    let finished = draft.finish();
    if output == Path::new("-") {
        crate::print(&finished.text)?;
    } else {
        files::write(output, &finished.text)?;
    }
    let [first, differs, notes] = finished.remarks;
    eprintln!(
        "{}: {first} to do first, {differs} on what a node does otherwise, {notes} without anything to do. Check the result with `thicket broker --check --config FILE`.",
        counted(first + differs + notes, "remark"),
    );
    Ok(())
}

fn write_sessions(path: &Path, names: &Names, output: &Path) -> anyhow::Result<()> {
    let in_words = || format!("cannot read {}", path.display());
    let bytes = std::fs::read(path).with_context(in_words)?;
    let database = Database::parse(&bytes).with_context(in_words)?;
    let mut conversion = Conversion::new(&database, names, sessions::unix_seconds());
    if output == Path::new("-") {
        conversion.write(&mut std::io::stdout().lock())?;
    } else {
        let in_words = || format!("cannot write {}", output.display());
        let mut file = BufWriter::new(File::create(output).with_context(in_words)?);
        let written = conversion.write(&mut file).and_then(|()| file.flush());
        written.with_context(in_words)?;
    }
    let end = conversion.end();
    eprintln!(
        "converted {} with {}, and {}",
        counted(end.sessions, "session"),
        counted(end.messages, "message"),
        counted(end.retained, "retained message")
    );
    for (why, count) in conversion.left_out() {
        eprintln!("left out: {count} x {why}");
    }
    Ok(())
}

/// Topic prefixes by the port of their listener.
type Prefixes = BTreeMap<u16, String>;
