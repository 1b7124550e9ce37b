//! The papers whose experiments the scenarios follow: their parameters as data, and how the
//! scenarios depart from them.
//!
//! `scenarios/papers/KEY.toml` has for each figure and table the parameters with their place in the
//! paper, the scenarios that follow it, and for each parameter in which a scenario departs the
//! reason. A departure without a reason is a problem, and so is a reason without a departure.

mod draw;
mod figure;
mod table;
mod values;

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

pub use figure::{FigureSpec, Form, Made, Part, figure, figures, write};
pub use table::{BEGIN, END, in_page, table};
pub use values::values;

use crate::error::LabError;
use crate::scenario::{Cell, Scenario};

/// The papers with their data.
const FILES: [(&str, &str); 5] = [
    (
        "border",
        include_str!("../../../../scenarios/papers/border.toml"),
    ),
    (
        "overlays",
        include_str!("../../../../scenarios/papers/overlays.toml"),
    ),
    (
        "comparison",
        include_str!("../../../../scenarios/papers/comparison.toml"),
    ),
    (
        "detti",
        include_str!("../../../../scenarios/papers/detti.toml"),
    ),
    (
        "dispatcher",
        include_str!("../../../../scenarios/papers/dispatcher.toml"),
    ),
];
/// What the name of a short variant ends with.
const SHORT: &str = "-small";

/// One paper.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Its key in `docs/references.md`.
    pub key: String,
    /// Parameters of all its experiments that do not have their own.
    #[serde(default, rename = "parameter")]
    pub parameters: Vec<Parameter>,
    /// What short variants may change, to take a minute at most.
    #[serde(default)]
    pub short: Vec<String>,
    /// Its experiments.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
}

/// A figure or table, or several with the same parameters.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The figures and tables.
    pub follows: String,
    /// Its own parameters.
    #[serde(default)]
    pub parameters: Vec<Parameter>,
    /// Parameters of the paper that it does not have.
    #[serde(default)]
    pub without: Vec<String>,
    /// Its figures in the paper's form.
    #[serde(default, rename = "figure")]
    pub figures: Vec<FigureSpec>,
    /// The scenarios that follow it.
    #[serde(rename = "file")]
    pub files: Vec<Follower>,
}

/// One parameter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Its key in a scenario, or one of those that [`values`] computes.
    pub key: String,
    /// Its value, or a list of those that are varied.
    pub value: toml::Value,
    /// The place in the paper.
    pub at: String,
}

/// A scenario that follows an experiment, with its short variant.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Follower {
    /// Its name, without `.toml`.
    pub name: String,
    /// How it was run here: `whole`, `small`, `virtual`.
    pub ran: String,
    /// Parameters in which it may depart.
    #[serde(default)]
    pub departs: Vec<Departure>,
}

/// A parameter in which a scenario departs, and why it must.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Departure {
    /// The key of the parameter; without one it is about what no parameter says.
    #[serde(default)]
    pub key: Option<String>,
    /// The reason.
    pub why: String,
}

/// A parameter in which a scenario differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key of the parameter.
    pub key: String,
    /// In the scenario.
    pub here: String,
    /// In the paper.
    pub there: String,
    /// Where in the paper.
    pub at: String,
}

/// All papers.
pub fn papers() -> Result<Vec<Paper>, LabError> {
    let read = |(name, text): &(&str, &str)| {
        toml::from_str(text)
            .map_err(|error| LabError::Misuse(format!("scenarios/papers/{name}.toml: {error}")))
    };
    FILES.iter().map(read).collect()
}

impl Paper {
    /// The parameters of an experiment: its own, and those of all that it does not have itself.
    pub fn parameters_of<'a>(
        &'a self,
        experiment: &'a Experiment,
    ) -> impl Iterator<Item = &'a Parameter> {
        let own = |key: &str| experiment.parameters.iter().any(|it| it.key == key);
        let is_general =
            move |it: &&Parameter| !own(&it.key) && !experiment.without.contains(&it.key);
        let general = self.parameters.iter().filter(is_general);
        experiment.parameters.iter().chain(general)
    }

    /// How the cells of a scenario differ from an experiment.
    #[must_use]
    pub fn differences(&self, experiment: &Experiment, cells: &[Cell]) -> Vec<Difference> {
        let one = |parameter: &Parameter| {
            let here = values(cells, &parameter.key);
            let there = values::listed(&parameter.value);
            let set = |all: &[String]| all.iter().cloned().collect::<BTreeSet<String>>();
            (set(&here) != set(&there)).then(|| Difference {
                key: parameter.key.clone(),
                here: here.join(", "),
                there: there.join(", "),
                at: parameter.at.clone(),
            })
        };
        self.parameters_of(experiment).filter_map(one).collect()
    }
}

/// The scenario of a name in a folder.
fn read(folder: &Path, name: &str) -> Result<(Scenario, Vec<Cell>), LabError> {
    Scenario::load(&folder.join(format!("{name}.toml")))
}

/// What is wrong: departures without a reason, reasons without a departure, and scenarios that
/// claim a figure which no data has.
pub fn problems(folder: &Path) -> Result<Vec<String>, LabError> {
    let mut problems = Vec::new();
    let mut named = BTreeSet::new();
    for paper in &papers()? {
        let mut unused: BTreeSet<&String> = paper.short.iter().collect();
        for experiment in &paper.experiments {
            for file in &experiment.files {
                named.insert(file.name.clone());
                let (_, cells) = read(folder, &file.name)?;
                let long = paper.differences(experiment, &cells);
                problems.extend(unexplained(file, &long));
                let small = format!("{}{SHORT}", file.name);
                let (_, cells) = read(folder, &small)?;
                for it in paper.differences(experiment, &cells) {
                    let is_as_long = long.iter().any(|long| long.key == it.key);
                    let may = paper.short.contains(&it.key);
                    if may {
                        unused.remove(&it.key);
                    } else if !is_as_long {
                        problems.push(told(&small, &it));
                    }
                }
            }
        }
        let never = |key| {
            format!(
                "{}: short names {key}, in which no short variant departs",
                paper.key
            )
        };
        problems.extend(unused.into_iter().map(never));
    }
    problems.extend(unnamed(folder, &named)?);
    Ok(problems)
}

fn unexplained(file: &Follower, differences: &[Difference]) -> Vec<String> {
    let is_allowed = |key: &str| file.departs.iter().any(|it| it.key.as_deref() == Some(key));
    let without_reason = differences.iter().filter(|it| !is_allowed(&it.key));
    let differs = |key: &str| differences.iter().any(|it| it.key == key);
    let stale = file.departs.iter().filter_map(|it| it.key.as_deref());
    let stale = stale.filter(|key| !differs(key));
    let no_longer = |key| {
        format!(
            "{}: it does not depart in {key}, which has a reason",
            file.name
        )
    };
    (without_reason.map(|it| told(&file.name, it)))
        .chain(stale.map(no_longer))
        .collect()
}

fn told(name: &str, it: &Difference) -> String {
    format!(
        "{name}: {} is {}, but {} in the paper ({}); follow it, or give the reason",
        it.key, it.here, it.there, it.at
    )
}

/// Scenarios whose source is a paper, but that no paper's data names.
fn unnamed(folder: &Path, named: &BTreeSet<String>) -> Result<Vec<String>, LabError> {
    let keys: Vec<String> = papers()?.into_iter().map(|paper| paper.key).collect();
    let mut missing = Vec::new();
    let entries = std::fs::read_dir(folder).map_err(LabError::io(folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|it| it != "toml") {
            continue;
        }
        let (scenario, _) = Scenario::load(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let long = name.strip_suffix(SHORT).unwrap_or(&name);
        let source = scenario.source.unwrap_or_default();
        if keys.iter().any(|key| source.starts_with(key.as_str())) && !named.contains(long) {
            missing.push(format!("{name}: no data of a paper has {source}"));
        }
    }
    missing.sort();
    Ok(missing)
}
