//! Where results go: a table, JSON, an HTML file.

use std::path::PathBuf;

use serde::Serialize;
use thicket_bench::generator::Progress;
use thicket_bench::report::{Report, amount, to_html};

use crate::files;

/// Options of every measurement.
#[derive(Debug, clap::Args)]
pub struct OutputOptions {
    /// Print the result as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Also write a report with plots to this HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print nothing until the end
    #[arg(long, short)]
    quiet: bool,
}

impl OutputOptions {
    /// Prints `result` or its `report`, and writes the HTML file if one is wanted.
    pub fn finish(&self, result: &impl Serialize, report: &Report) -> anyhow::Result<()> {
        if let Some(path) = &self.report {
            files::write(path, to_html(report))?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(result)?);
        } else {
            print!("{}", report.to_text());
        }
        Ok(())
    }

    /// A line of progress on standard error.
    pub fn say(&self, line: impl FnOnce() -> String) {
        if !self.quiet {
            eprintln!("{}", line());
        }
    }

    /// A line for a second of a run.
    pub fn say_second(&self, progress: &Progress) {
        self.say(|| {
            format!(
                "{:>6.1} s  published {:>11}/s  delivered {:>11}/s  on their way {}",
                progress.second.at_s,
                amount(progress.second.published_per_s),
                amount(progress.second.delivered_per_s),
                amount(progress.on_their_way as f64)
            )
        });
    }
}
