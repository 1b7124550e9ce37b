//! `thicket lab papers`: which scenarios follow the papers, and where they depart.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use thicket_lab::papers::{BEGIN, in_page, problems, table};

use crate::files;

/// Arguments of `thicket lab papers`.
#[derive(Debug, Args)]
pub struct Papers {
    /// The folder of the scenarios
    #[arg(long, value_name = "DIR", default_value = "scenarios")]
    scenarios: PathBuf,
    /// Put the table into this page, between its two marks, instead of printing it
    #[arg(long, value_name = "PAGE")]
    write: Option<PathBuf>,
}

/// Prints the table, or writes it; an error if a scenario departs from its paper without a reason.
pub fn papers(arguments: &Papers) -> anyhow::Result<()> {
    let table = table(&arguments.scenarios)?;
    match &arguments.write {
        None => super::show(&table)?,
        Some(page) => {
            let text = files::read_text(page)?;
            let text = in_page(&text, &table)
                .with_context(|| format!("{}: no table after {}", page.display(), BEGIN.trim()))?;
            std::fs::write(page, text).with_context(|| page.display().to_string())?;
        }
    }
    let problems = problems(&arguments.scenarios)?;
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}
