//! The part of a run that every back end shares: beginning it, keeping its files and summarising it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::LabError;
use crate::results::{Environment, Results, Run, VERSION};
use crate::scenario::{Cell, Scenario, System};
use crate::summary::number;

/// The figures, with their units, that a line about a run contains if they exist.
pub type Told<'a> = [(&'a str, &'a str)];

/// Why a run is not valid that was under way when the lab was interrupted.
const CUT_SHORT: &str = "cut short, as the lab was interrupted";

/// The texts of a run's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files<'a> {
    /// Arrivals, as CSV.
    pub samples: Option<&'a str>,
    /// Acknowledgements to publishers, as CSV.
    pub acknowledgements: Option<&'a str>,
    /// A drawing of the arrivals over time, as SVG.
    pub time_line: Option<&'a str>,
    /// Its numbers, as columns separated by tabs.
    pub time_line_data: Option<&'a str>,
}

impl Run {
    /// A run of a system in a cell before anything has happened.
    #[must_use]
    pub fn begin(cell: &Cell, system: &System, repeat: u64) -> Self {
        Self {
            system: system.name.clone(),
            parameters: cell.parameters.clone(),
            repeat,
            valid: true,
            invalid: Vec::new(),
            warnings: Vec::new(),
            metrics: BTreeMap::new(),
            phases: Vec::new(),
            faults: Vec::new(),
            samples: None,
            acknowledgements: None,
            time_line: None,
            time_line_data: None,
        }
    }

    /// Marks a run that an interruption cut short: whatever else went wrong in it is a consequence.
    pub fn cut_short(&mut self) {
        self.valid = false;
        self.invalid = vec![CUT_SHORT.to_owned()];
    }

    /// Whether an interruption cut it short.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.invalid.iter().any(|reason| reason == CUT_SHORT)
    }

    /// Writes the files of a run, and stores their names.
    pub fn keep(&mut self, results: &Path, cell: usize, files: Files<'_>) -> Result<(), LabError> {
        let name = format!("{}-c{cell}-r{}", self.system, self.repeat);
        for (text, ending, place) in [
            (files.samples, "csv", &mut self.samples),
            (
                files.acknowledgements,
                "acknowledgements.csv",
                &mut self.acknowledgements,
            ),
            (files.time_line, "svg", &mut self.time_line),
            (
                files.time_line_data,
                "time-line.tsv",
                &mut self.time_line_data,
            ),
        ] {
            let Some(text) = text else { continue };
            let folder = results.join("samples");
            std::fs::create_dir_all(&folder).map_err(LabError::io(folder.display()))?;
            let name = format!("{name}.{ending}");
            let file = folder.join(&name);
            std::fs::write(&file, text).map_err(LabError::io(file.display()))?;
            *place = Some(format!("samples/{name}"));
        }
        Ok(())
    }

    /// A summary: `mesh qos=1 repeat 2: 5.3 ms, 0 lost`, and the first reason that makes it invalid.
    #[must_use]
    pub fn line(&self, told: &Told<'_>) -> String {
        let mut words = vec![self.system.clone()];
        let parameters = self.parameters.iter();
        words.extend(parameters.map(|(key, value)| format!("{key}={value}")));
        words.push(format!("repeat {}:", self.repeat));
        let figure = |(name, unit): &(&str, &str)| {
            let value = *self.metrics.get(*name)?;
            Some(format!("{} {unit}", number(value)))
        };
        let figures: Vec<String> = told.iter().filter_map(figure).collect();
        let problem = self.invalid.first();
        let problem = problem.map_or(String::new(), |reason| format!("; INVALID: {reason}"));
        format!("{} {}{problem}", words.join(" "), figures.join(", "))
    }
}

/// Why an interrupted experiment of `total` runs ended early: how many of them are there.
#[must_use]
pub fn interrupted(runs: &[Run], total: u64) -> String {
    let cut = runs.iter().filter(|run| run.is_cut_short()).count();
    format!(
        "{}: {} of {total} runs complete, {cut} cut short, {} not begun",
        LabError::Interrupted,
        runs.len() - cut,
        total - runs.len() as u64
    )
}

/// How many runs an experiment has.
#[must_use]
pub fn total(scenario: &Scenario, cells: &[Cell]) -> u64 {
    cells.len() as u64 * scenario.systems.len() as u64 * scenario.repeats
}

impl Results {
    /// The results of an experiment from its runs.
    #[must_use]
    pub fn of(
        scenario: &Scenario,
        text: &str,
        environment: Environment,
        runs: Vec<Run>,
        ended_early: Option<String>,
    ) -> Self {
        Self {
            version: VERSION,
            title: scenario.title.clone(),
            source: scenario.source.clone(),
            valid: ended_early.is_none() && runs.iter().all(|run| run.valid),
            ended_early,
            left_out: Vec::new(),
            environment,
            scenario: text.to_owned(),
            runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_figures_that_are_there_and_the_first_problem() {
        let cell = Cell {
            parameters: vec![("workload.qos".to_owned(), "1".to_owned())],
            scenario: Scenario::parse(include_str!("../../../scenarios/faults-small.toml"))
                .unwrap()
                .0,
        };
        let mut run = Run::begin(&cell, &System::of_driver("thicket"), 2);
        run.metrics.insert("lost_messages".to_owned(), 3.0);
        let told = [("delay_mean_ms", "ms"), ("lost_messages", "lost")];
        assert_eq!(
            run.line(&told),
            "thicket workload.qos=1 repeat 2: 3.00 lost"
        );
        run.invalid = vec!["late".to_owned(), "slow".to_owned()];
        assert!(run.line(&told).ends_with("3.00 lost; INVALID: late"));
    }

    #[test]
    fn an_interruption_is_the_only_reason_of_a_run_that_it_cut_short() {
        let (scenario, cells) =
            Scenario::parse(include_str!("../../../scenarios/faults-small.toml")).unwrap();
        let complete = Run::begin(&cells[0], &scenario.systems[0], 1);
        let mut cut = complete.clone();
        cut.invalid = vec!["s1: the broker has ended".to_owned()];
        cut.cut_short();
        assert!(!cut.valid && cut.is_cut_short() && !complete.is_cut_short());
        assert_eq!(cut.invalid.len(), 1);
        assert_eq!(
            interrupted(&[complete, cut], 6),
            "interrupted: 1 of 6 runs complete, 1 cut short, 4 not begun"
        );
    }

    #[test]
    fn files_of_a_run_are_named_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let (scenario, cells) =
            Scenario::parse(include_str!("../../../scenarios/faults-small.toml")).unwrap();
        let mut run = Run::begin(&cells[0], &scenario.systems[0], 1);
        let files = Files {
            samples: Some("a,b\n"),
            ..Files::default()
        };
        run.keep(folder.path(), 4, files).unwrap();
        let name = run.samples.unwrap();
        assert_eq!(name, format!("samples/{}-c4-r1.csv", run.system));
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!((text.as_str(), run.time_line), ("a,b\n", None));
    }
}
