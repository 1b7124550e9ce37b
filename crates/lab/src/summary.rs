//! Summary of the runs of one system in one cell: means with 95 % confidence intervals.

use std::collections::BTreeMap;

use thicket_bench::statistics::{Estimate, estimate};

use crate::results::{GENERATOR_WAS_LIMIT, Results};

/// The figure of a search for the highest rate.
pub const SUSTAINABLE: &str = "sustainable_msgs_per_s";

/// A system in a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its name.
    pub system: String,
    /// The varied parameters with their values.
    pub parameters: Vec<(String, String)>,
    /// Figures over the valid repeats.
    pub figures: BTreeMap<String, Estimate>,
    /// Repeats that are not valid.
    pub invalid: usize,
}

/// All systems in all cells, in the order of the first repeat.
#[must_use]
pub fn rows(results: &Results) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut values: Vec<BTreeMap<&str, Vec<f64>>> = Vec::new();
    for run in &results.runs {
        let known = rows
            .iter()
            .position(|row| row.system == run.system && row.parameters == run.parameters);
        let at = known.unwrap_or_else(|| {
            rows.push(Row {
                system: run.system.clone(),
                parameters: run.parameters.clone(),
                figures: BTreeMap::new(),
                invalid: 0,
            });
            values.push(BTreeMap::new());
            rows.len() - 1
        });
        if !run.valid {
            rows[at].invalid += 1;
            continue;
        }
        for (name, &value) in &run.metrics {
            values[at].entry(name).or_default().push(value);
        }
    }
    for (row, values) in rows.iter_mut().zip(values) {
        row.figures = values
            .into_iter()
            .filter_map(|(name, values)| Some((name.to_owned(), estimate(&values)?)))
            .collect();
    }
    rows
}

/// A mean with its interval, in a suitable number of digits.
#[must_use]
pub fn cell(estimate: &Estimate) -> String {
    match estimate.half_width_95 {
        Some(half) => format!("{} ± {}", number(estimate.mean), number(half)),
        None => number(estimate.mean),
    }
}

/// The highest sustainable rate of a row, with `at least` if the load generator was the limit in any repeat.
#[must_use]
pub fn rate_cell(row: &Row) -> Option<String> {
    let rate = cell(row.figures.get(SUSTAINABLE)?);
    Some(if row.is_lower_bound() {
        format!("at least {rate}")
    } else {
        rate
    })
}

/// A number for display: three significant digits, whole ones from 100 on.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 10_000.0 => thousands(value.round() as i64),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size == 0.0 => "0".to_owned(),
        _ => format!("{value:.2}"),
    }
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

impl Row {
    /// Whether the load generator was the limit of the highest sustainable rate in any repeat, so that the broker's rate is at least that.
    #[must_use]
    pub fn is_lower_bound(&self) -> bool {
        let limit = self.figures.get(GENERATOR_WAS_LIMIT);
        limit.is_some_and(|limit| limit.mean > 0.0)
    }

    /// The system and the parameters for which `is_shown` holds, in words.
    #[must_use]
    pub fn name(&self, is_shown: impl Fn(&str) -> bool) -> String {
        let shown = self.parameters.iter().filter(|(key, _)| is_shown(key));
        in_words(Some(&self.system), shown)
    }
}

/// A system and parameters: `mesh, qos = 1, rtt_ms = 5`.
pub fn in_words<'a>(
    system: Option<&str>,
    parameters: impl IntoIterator<Item = &'a (String, String)>,
) -> String {
    let parameters = parameters.into_iter();
    let parameters = parameters.map(|(key, value)| format!("{} = {value}", short(key)));
    let words: Vec<String> = system
        .map(str::to_owned)
        .into_iter()
        .chain(parameters)
        .collect();
    words.join(", ")
}

/// The short name of a parameter: the last part of its key.
#[must_use]
pub fn short(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_digits_that_make_sense() {
        for (value, text) in [
            (1_234_567.0, "1 234 567"),
            (1234.0, "1234"),
            (99.96, "100.0"),
            (0.123, "0.12"),
            (0.0, "0"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn the_confidence_interval_is_over_repeats_however_many_messages_each_had() {
        let run = |repeat: u64, delay: f64, messages: f64, valid: bool| {
            serde_json::json!({
                "system": "a", "parameters": [], "repeat": repeat, "valid": valid, "invalid": [], "warnings": [], "phases": [],
                "metrics": {"delay_mean_ms": delay, "delivered_messages": messages}, "faults": [], "samples": null
            })
        };
        let of = |messages: f64| {
            let runs = [
                run(1, 9.0, messages, true),
                run(2, 10.0, messages, true),
                run(3, 11.0, messages, true),
                run(4, 500.0, messages, false),
            ];
            let results: Results = serde_json::from_value(serde_json::json!({
                "version": 1, "title": "t", "source": null, "valid": false, "ended_early": null, "scenario": "", "runs": runs,
                "environment": {
                    "kernel": "6", "cpu": "x", "cores": 2, "memory_mib": 1, "backend": "wire", "links_first": true, "limits": "none",
                    "congestion_control": "cubic", "oversubscribed": false, "lab": "0", "commit": null, "optimised": true, "brokers": {}
                }
            }))
            .unwrap();
            let rows = rows(&results);
            assert_eq!((rows.len(), rows[0].invalid), (1, 1));
            rows[0].figures["delay_mean_ms"]
        };
        // Three means with deviation 1: Student's t with 2 degrees of freedom, 4.303, over the root of 3 repeats.
        let few = of(10.0);
        assert_eq!((few.mean, few.repeats), (10.0, 3));
        let half = few.half_width_95.unwrap();
        assert!((half - 4.303 / 3f64.sqrt()).abs() < 1e-9, "{half}");
        assert_eq!(of(1_000_000.0), few);
    }

    #[test]
    fn a_rate_that_the_generator_limits_in_one_repeat_is_a_lower_bound() {
        let row = |limits: &[f64]| Row {
            system: "a".to_owned(),
            parameters: Vec::new(),
            figures: BTreeMap::from([
                (SUSTAINABLE.to_owned(), estimate(&[5000.0]).unwrap()),
                (GENERATOR_WAS_LIMIT.to_owned(), estimate(limits).unwrap()),
            ]),
            invalid: 0,
        };
        assert_eq!(rate_cell(&row(&[0.0, 0.0])).unwrap(), "5000");
        assert_eq!(rate_cell(&row(&[0.0, 1.0])).unwrap(), "at least 5000");
    }
}
