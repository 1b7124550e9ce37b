//! `thicket migrate`: the configuration of Mosquitto as one of ours, with a remark for every line that could not be taken over as it was.

mod draft;
mod options;

use std::path::PathBuf;

use draft::Draft;

use crate::files;

/// Arguments of `thicket migrate`.
#[derive(Debug, clap::Args)]
pub struct Migrate {
    /// A `mosquitto.conf`. Files that it includes are named in remarks: convert each of them too
    file: PathBuf,
}

/// Prints our configuration; the number of remarks goes to standard error.
pub fn run(arguments: &Migrate) -> anyhow::Result<()> {
    let path = &arguments.file;
    let text = files::read_text(path)?;
    let mut draft = Draft::default();
    for (number, line) in text.lines().enumerate() {
        options::take(&mut draft, number + 1, line.trim());
    }
    let finished = draft.finish();
    crate::print(&finished.text)?;
    eprintln!(
        "{} {} a remark. Check the result with `thicket broker --check --config FILE`.",
        crate::counted(finished.remarks, "line"),
        if finished.remarks == 1 { "has" } else { "have" }
    );
    Ok(())
}
