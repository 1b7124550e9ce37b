//! The systems of one run in pairs: ratios over repeats that both have, with bootstrap intervals.
//!
//! The systems of a repeat have the same links, seeds and placements of clients, so a ratio over
//! pairs leaves out what differs between repeats.

use std::fmt::Write as _;

use serde::Serialize;
use thicket_bench::statistics::{PairedRatio, Verdict, paired_ratio};

use crate::compare::COMPARED;
use crate::results::{Results, Run};
use crate::scenario::Scenario;
use crate::summary::in_words;

/// Two systems that differ by less than this are equivalent, unless another margin is given.
pub const MARGIN: f64 = 0.05;

/// One figure of one system over that of another one, in one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// The system.
    pub system: String,
    /// The one that it is compared with.
    pub with: String,
    /// The varied parameters.
    pub parameters: Vec<(String, String)>,
    /// Name of the figure.
    pub figure: String,
    /// The system's figure over the other's.
    pub ratio: PairedRatio,
    /// What the interval says.
    pub verdict: Verdict,
}

/// Every system over the one that is named, or over the first; none if there is only one.
#[must_use]
pub fn pairs(results: &Results, with: Option<&str>, margin: f64) -> Vec<Pair> {
    let seed = Scenario::parse(&results.scenario).map_or(1, |(scenario, _)| scenario.seed);
    let mut cells: Vec<&Vec<(String, String)>> = Vec::new();
    let mut systems: Vec<&str> = Vec::new();
    for run in &results.runs {
        if !cells.contains(&&run.parameters) {
            cells.push(&run.parameters);
        }
        if !systems.contains(&run.system.as_str()) {
            systems.push(&run.system);
        }
    }
    let Some(with) = with.or_else(|| systems.first().copied()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for parameters in cells {
        for system in systems.iter().filter(|system| **system != with) {
            for figure in COMPARED {
                let values = values(&results.runs, (with, system), parameters, figure);
                let Some(ratio) = paired_ratio(&values, seed) else {
                    continue;
                };
                all.push(Pair {
                    system: (*system).to_owned(),
                    with: with.to_owned(),
                    parameters: parameters.clone(),
                    figure: figure.to_owned(),
                    verdict: ratio.verdict(margin),
                    ratio,
                });
            }
        }
    }
    all
}

/// A figure of two systems in each repeat in which both are valid.
fn values(
    runs: &[Run],
    (first, second): (&str, &str),
    parameters: &[(String, String)],
    figure: &str,
) -> Vec<(f64, f64)> {
    let of = |system: &str, repeat: u64| {
        let found = runs.iter().find(|run| {
            run.valid
                && run.system == system
                && run.repeat == repeat
                && run.parameters == *parameters
        });
        found?.metrics.get(figure).copied()
    };
    let last = runs.iter().map(|run| run.repeat).max().unwrap_or(0);
    (1..=last)
        .filter_map(|repeat| Some((of(first, repeat)?, of(second, repeat)?)))
        .collect()
}

/// The interval and what it says: `0.61 to 0.74, less`.
#[must_use]
pub fn told(pair: &Pair) -> String {
    let Some((low, high)) = pair.ratio.interval_95 else {
        return "fewer than three pairs".to_owned();
    };
    let verdict = match pair.verdict {
        Verdict::Less => ", less",
        Verdict::More => ", more",
        Verdict::Equivalent => ", equivalent",
        Verdict::Open => "",
    };
    format!("{low:.3} to {high:.3}{verdict}")
}

/// A line for each pair.
#[must_use]
pub fn csv(pairs: &[Pair]) -> String {
    let mut csv =
        String::from("system,with,parameters,figure,ratio,low_95,high_95,pairs,verdict\n");
    for pair in pairs {
        let [low, high] = match pair.ratio.interval_95 {
            Some((low, high)) => [low.to_string(), high.to_string()],
            None => [String::new(), String::new()],
        };
        let verdict = serde_json::to_value(pair.verdict).unwrap_or_default();
        let _ = writeln!(
            csv,
            "{},{},\"{}\",{},{},{low},{high},{},{}",
            pair.system,
            pair.with,
            in_words(None, &pair.parameters),
            pair.figure,
            pair.ratio.ratio,
            pair.ratio.pairs,
            verdict.as_str().unwrap_or_default()
        );
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_compared_within_repeats() {
        let (scenario, mut cells) =
            Scenario::parse(include_str!("../../../scenarios/overlays-fig8-small.toml")).unwrap();
        cells[0].parameters = vec![("workload.qos".to_owned(), "1".to_owned())];
        let mut runs = Vec::new();
        for (repeat, delay) in [(1, 10.0), (2, 30.0), (3, 20.0), (4, 50.0)] {
            for (system, factor) in [(0, 1.0), (1, 0.5), (2, 1.0)] {
                let mut run = Run::begin(&cells[0], &scenario.systems[system], repeat);
                run.metrics
                    .insert("delay_mean_ms".to_owned(), delay * factor);
                // One of them is invalid, with a figure that would change the ratio.
                if (repeat, system) == (4, 1) {
                    run.valid = false;
                    run.metrics.insert("delay_mean_ms".to_owned(), 900.0);
                }
                runs.push(run);
            }
        }
        let facts = crate::environment::environment(&scenario, None, None);
        let results = Results::of(&scenario, "", facts, runs, None);
        let found = pairs(&results, None, MARGIN);
        let of = |system: usize| {
            let name = &scenario.systems[system].name;
            found.iter().find(|pair| pair.system == *name).unwrap()
        };
        assert_eq!((of(1).ratio.ratio, of(1).ratio.pairs), (0.5, 3));
        assert_eq!(of(1).verdict, Verdict::Less);
        assert_eq!((of(2).ratio.pairs, of(2).verdict), (4, Verdict::Equivalent));
        assert!(
            csv(&found).contains("\"qos = 1\",delay_mean_ms,0.5,0.5,0.5,3,less"),
            "{}",
            csv(&found)
        );
        assert_eq!(told(of(2)), "1.000 to 1.000, equivalent");
    }
}
