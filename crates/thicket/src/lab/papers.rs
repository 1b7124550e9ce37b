//! `thicket lab papers`: which scenarios follow the papers, and where they depart.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use thicket_bench::report::Table;
use thicket_lab::papers::{self, BEGIN, in_page, problems, table};

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

/// Arguments of `thicket lab figure`.
#[derive(Debug, Args)]
pub struct Figure {
    /// Its name, such as overlays-fig7; without one all are listed
    #[arg(value_name = "NAME", requires = "folder")]
    name: Option<String>,
    /// The folder of results of a scenario that has the figure
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Writes a figure and its numbers beside the results, or lists all figures.
pub fn figure(arguments: &Figure) -> anyhow::Result<()> {
    if let (Some(name), Some(folder)) = (&arguments.name, &arguments.folder) {
        let [svg, csv] = papers::write(name, folder)?;
        return super::show(&format!("{}\n{}\n", svg.display(), csv.display()));
    }
    let mut table = Table::new(["figure", "shows", "scenarios"]);
    for (name, title, files) in papers::figures()? {
        table.row([name, title, files.join(", ")]);
    }
    super::show(&table.to_text())
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
