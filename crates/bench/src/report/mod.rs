//! Reports: the same content as text for a terminal and as one HTML file with plots.

mod arrivals;
pub mod chart;
mod html;
mod plot;
mod table;
mod tell;

use chart::Chart;

pub use arrivals::arrivals_report;
pub use html::{legend, page, to_html, wide};
pub use plot::{Plot, Scale, Series};
pub use table::{Table, escape, render, visible};
pub use tell::{amount, latency_cells, milliseconds, outcome_report, repeats_table};

/// A report: parts in reading order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// What was measured, in one line.
    pub title: String,
    /// Its parts.
    pub parts: Vec<Part>,
}

/// A part of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// A sentence or two.
    Text(String),
    /// A fact that the reader needs to judge the figures.
    Warning(String),
    /// Figures.
    Table(Table),
    /// A plot: only in HTML.
    Plot(Plot),
    /// Several panes: only in HTML.
    Chart(Chart),
}

impl Report {
    /// An empty report.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            parts: Vec::new(),
        }
    }

    /// Adds a part.
    pub fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// The report for a terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        for part in &self.parts {
            match part {
                Part::Text(sentence) => text.push_str(&format!("{sentence}\n")),
                Part::Warning(sentence) => text.push_str(&format!("warning: {sentence}\n")),
                Part::Table(table) => text.push_str(&format!("\n{}\n", table.to_text())),
                Part::Plot(_) | Part::Chart(_) => {}
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_all_parts_but_the_plots() {
        let mut report = Report::new("title");
        report.push(Part::Text("a sentence".to_owned()));
        report.push(Part::Warning("beware".to_owned()));
        let mut table = Table::new(["name", "value"]);
        table.row(["x", "1"]);
        report.push(Part::Table(table));
        assert_eq!(
            report.to_text(),
            "title\na sentence\nwarning: beware\n\nname  value\nx         1\n\n"
        );
    }
}
