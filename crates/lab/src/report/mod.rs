//! `report.html`: one file with tables and figures, from the results alone.

mod figure;
mod html;
mod joint;
pub(crate) mod tls;

pub use figure::{Bar, Figure};
pub use html::to_html;
pub use joint::write_joint;

use std::path::Path;

use crate::compare::Ratio;
use crate::error::LabError;
use crate::results::Results;
use crate::scaling::Growth;
use crate::scenario::{FIGURES, Scenario};
use crate::summary::{Row, in_words, rows, short};

/// The same scenario on another back end, for a report.
#[derive(Debug)]
pub struct Beside {
    /// The other back end.
    pub backend: String,
    /// Its figures divided by those of the report.
    pub ratios: Vec<Ratio>,
}

/// Writes `report.html` into the folder, with the ratios of another back end if given.
pub fn write(results: &Results, folder: &Path, beside: Option<&Beside>) -> Result<(), LabError> {
    let path = folder.join("report.html");
    let mut time_lines = Vec::new();
    for run in &results.runs {
        let Some(file) = run.time_line.as_ref().map(|name| folder.join(name)) else {
            continue;
        };
        let svg = std::fs::read_to_string(&file).map_err(LabError::io(file.display()))?;
        let words = in_words(Some(&run.system), &run.parameters);
        time_lines.push((format!("{words}, repeat {}", run.repeat), svg));
    }
    std::fs::write(&path, to_html(results, &time_lines, beside))
        .map_err(LabError::io(path.display()))
}

/// The figures that the scenario chose, or all, of the results: for each number one figure for each combination of all parameters but the last, which is on the axis.
fn figures(results: &Results) -> Vec<(String, Vec<Figure>)> {
    let rows = rows(results);
    let chosen = Scenario::parse(&results.scenario).map_or(Vec::new(), |(it, _)| it.report);
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|it| it == name);
    FIGURES
        .iter()
        .filter(|(name, ..)| is_chosen(name) && has_values(&rows, name))
        .map(|(name, title, unit)| ((*title).to_owned(), facets(&rows, name, unit)))
        .collect()
}

/// Growth with the number of brokers, the model's bars beside the measured ones; `None` without different numbers of brokers.
fn growth_figure(growth: &[Growth]) -> Option<Figure> {
    let mut systems = distinct(growth.iter().map(Growth::name));
    let measured = systems.len();
    if growth.iter().any(|it| it.predicted.is_some()) {
        systems.push("model".to_owned());
    }
    let sizes = distinct(growth.iter().map(|it| it.brokers.to_string()));
    let bar = |mean| {
        Some(Bar {
            mean,
            half_width_95: 0.0,
        })
    };
    let group = |size: &String| {
        let here: Vec<&Growth> = (growth.iter())
            .filter(|it| it.brokers.to_string() == *size)
            .collect();
        let mut bars: Vec<Option<Bar>> = systems[..measured]
            .iter()
            .map(|name| bar(here.iter().find(|it| it.name() == *name)?.measured))
            .collect();
        if systems.len() > measured {
            bars.push(here.iter().find_map(|it| it.predicted).and_then(bar));
        }
        (size.clone(), bars)
    };
    (sizes.len() > 1).then(|| Figure {
        title: String::new(),
        x: "brokers".to_owned(),
        y: "ratio".to_owned(),
        groups: sizes.iter().map(group).collect(),
        systems: systems.clone(),
    })
}

/// Whether a number exists, and is not 0 everywhere.
fn has_values(rows: &[Row], name: &str) -> bool {
    rows.iter()
        .filter_map(|row| row.figures.get(name))
        .any(|estimate| estimate.mean != 0.0)
}

fn facets(rows: &[Row], name: &str, unit: &str) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    let systems = distinct(rows.iter().map(|row| row.system.clone()));
    for row in rows {
        let (axis, others) = match row.parameters.split_last() {
            Some((last, others)) => (Some(last), others),
            None => (None, &[][..]),
        };
        let title = in_words(None, others);
        let at = match figures.iter().position(|figure| figure.title == title) {
            Some(at) => at,
            None => {
                figures.push(Figure {
                    title,
                    x: axis.map_or(String::new(), |(key, _)| short(key).to_owned()),
                    y: unit.to_owned(),
                    systems: systems.clone(),
                    groups: Vec::new(),
                });
                figures.len() - 1
            }
        };
        let label = axis.map_or(String::new(), |(_, value)| value.clone());
        let groups = &mut figures[at].groups;
        let group = match groups.iter().position(|(known, _)| *known == label) {
            Some(group) => group,
            None => {
                groups.push((label, vec![None; systems.len()]));
                groups.len() - 1
            }
        };
        if let (Some(system), Some(estimate)) = (
            systems.iter().position(|system| *system == row.system),
            row.figures.get(name),
        ) {
            groups[group].1[system] = Some(Bar {
                mean: estimate.mean,
                half_width_95: estimate.half_width_95.unwrap_or(0.0),
            });
        }
    }
    figures
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}
