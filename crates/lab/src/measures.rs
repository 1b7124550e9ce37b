//! The six measures of Comparison (5.2), gathered from results that each have some of them.

use crate::report::tls;
use crate::results::Results;
use crate::scenario::{Measure, Scenario};
use crate::summary::{Row, cell, rate_cell, rows};

/// The rate of M2 in messages a second.
const RATE_PER_S: f64 = 1000.0;
const DELAY: &str = "delay_mean_ms";

/// A line of the table: a measure, and its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its number and description, with the unit.
    pub name: &'static str,
    /// Systems with their figures, in the order of the results.
    pub figures: Vec<(String, String)>,
}

impl Line {
    /// The figure of a system; empty without one.
    #[must_use]
    pub fn of(&self, system: &str) -> &str {
        let found = self.figures.iter().find(|(name, _)| name == system);
        found.map_or("", |(_, figure)| figure)
    }
}

/// The table: systems, and the lines that any of them has a figure for.
#[must_use]
pub fn table(results: &[Results]) -> (Vec<String>, Vec<Line>) {
    let all: Vec<(Scenario, Row)> = results.iter().flat_map(measured_rows).collect();
    let mut systems: Vec<String> = Vec::new();
    for (_, row) in &all {
        if !systems.contains(&row.system) {
            systems.push(row.system.clone());
        }
    }
    let lines = [
        line(
            "M1: highest sustainable rate, messages/s",
            &all,
            |scenario, row| is_search(scenario).then(|| rate_cell(row))?,
        ),
        line(
            "M2: mean delay at 1000 messages/s, ms",
            &all,
            |scenario, row| {
                let varied = row
                    .parameters
                    .iter()
                    .find(|(key, _)| key == "workload.rate_per_s");
                let rate = match varied {
                    Some((_, rate)) => rate.parse().ok(),
                    None => scenario.workload.rate_per_s.map(|rate| rate.value()),
                };
                let is_it = rate == Some(RATE_PER_S) && scenario.measure == Measure::Load;
                is_it.then(|| figure(row, DELAY))?
            },
        ),
        line("M3: connections accepted, 1/s", &all, |_, row| {
            figure(row, "connects_per_s")
        }),
        line("M3: memory of an idle connection, bytes", &all, |_, row| {
            figure(row, "memory_bytes_per_connection")
        }),
        line("M4: start of a broker, s", &all, |scenario, row| {
            is_search(scenario).then(|| figure(row, "broker_start_s"))?
        }),
        line(
            "M5: messages missed when a broker dies",
            &all,
            |scenario, row| {
                let is_crash = matches!(scenario.measure, Measure::Crash { .. });
                is_crash.then(|| figure(row, "lost_messages"))?
            },
        ),
        line("M5: sessions lost", &all, |_, row| {
            figure(row, "sessions_lost")
        }),
        line(
            "M5: from the loss of a connection to the next CONNACK, ms, longest",
            &all,
            |_, row| figure(row, "reconnect_max_ms"),
        ),
        costs_of_tls(
            "M6: rate without TLS, messages/s",
            results,
            tls::Cost::plain,
        ),
        costs_of_tls("M6: with TLS, messages/s", results, tls::Cost::with_tls),
        costs_of_tls("M6: lowered by", results, tls::Cost::lowering),
    ];
    let lines = lines.into_iter().filter(|line| !line.figures.is_empty());
    (systems, lines.collect())
}

/// The rows of results, each with its scenario; none if the scenario cannot be parsed.
fn measured_rows(results: &Results) -> Vec<(Scenario, Row)> {
    let Ok((scenario, _)) = Scenario::parse(&results.scenario) else {
        return Vec::new();
    };
    let rows = rows(results).into_iter();
    rows.map(|row| (scenario.clone(), row)).collect()
}

/// Whether the highest sustainable rate was searched, without a limit of delay.
const fn is_search(scenario: &Scenario) -> bool {
    let measure = &scenario.measure;
    matches!(
        measure,
        Measure::Throughput {
            below_mean_ms: None,
            ..
        }
    )
}

fn figure(row: &Row, name: &str) -> Option<String> {
    row.figures.get(name).map(cell)
}

fn line(
    name: &'static str,
    all: &[(Scenario, Row)],
    figure: impl Fn(&Scenario, &Row) -> Option<String>,
) -> Line {
    let found = all.iter();
    let found =
        found.filter_map(|(scenario, row)| Some((row.system.clone(), figure(scenario, row)?)));
    Line {
        name,
        figures: found.collect(),
    }
}

fn costs_of_tls(name: &'static str, results: &[Results], figure: fn(&tls::Cost) -> String) -> Line {
    let costs = results
        .iter()
        .flat_map(|results| tls::costs(&rows(results)));
    Line {
        name,
        figures: costs
            .map(|cost| (cost.name.clone(), figure(&cost)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::SUSTAINABLE as RATE;
    use serde_json::json;

    /// System, parameters, metrics.
    type Run<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, f64)]);

    fn results(measure: &str, runs: &[Run<'_>]) -> Results {
        let scenario = format!(
            "title = \"t\"\nnetwork = {{ sites = 1 }}\nsystem = [{{ name = \"a\", driver = \"thicket\" }}]\n\
             workload = {{ pattern = \"pair\", rate_per_s = 1, seconds = 1 }}\n{measure}\n"
        );
        let run = |(system, parameters, metrics): &Run<'_>| {
            let metrics: std::collections::BTreeMap<_, _> = metrics.iter().copied().collect();
            json!({
                "system": system, "parameters": parameters, "repeat": 1, "valid": true, "invalid": [], "warnings": [],
                "metrics": metrics, "phases": [], "faults": [], "samples": null
            })
        };
        let runs: Vec<_> = runs.iter().map(run).collect();
        serde_json::from_value(json!({
            "version": 1, "title": "t", "source": null, "valid": true, "ended_early": null, "scenario": scenario, "runs": runs,
            "environment": {
                "kernel": "6", "cpu": "x", "cores": 2, "memory_mib": 1, "backend": "wire", "links_first": true, "limits": "cgroup v1",
                "congestion_control": "cubic", "oversubscribed": false, "lab": "0", "commit": null, "optimised": true, "brokers": {}
            }
        }))
        .unwrap()
    }

    #[test]
    fn each_measure_comes_from_the_results_that_have_it() {
        let all = [
            results(
                "measure = { kind = \"throughput\" }",
                &[(
                    "a",
                    &[],
                    &[(RATE, 5000.0), (DELAY, 9.0), ("broker_start_s", 0.5)],
                )],
            ),
            results(
                "sweep = [{ key = \"workload.rate_per_s\", values = [500, 1000] }]",
                &[
                    ("a", &[("workload.rate_per_s", "500")], &[(DELAY, 1.0)]),
                    ("a", &[("workload.rate_per_s", "1000")], &[(DELAY, 2.0)]),
                    ("b", &[("workload.rate_per_s", "1000")], &[(DELAY, 3.0)]),
                ],
            ),
            results(
                "measure = { kind = \"throughput\", below_mean_ms = 5 }\nsweep = [{ key = \"workload.tls\", values = [false, true] }]",
                &[
                    ("b", &[("workload.tls", "false")], &[(RATE, 400.0)]),
                    ("b", &[("workload.tls", "true")], &[(RATE, 300.0)]),
                ],
            ),
        ];
        let (systems, lines) = table(&all);
        assert_eq!(systems, ["a", "b"]);
        let found: Vec<_> = lines
            .iter()
            .map(|line| (&line.name[..2], line.of("a"), line.of("b")))
            .collect();
        assert_eq!(
            found,
            [
                ("M1", "5000", ""),
                ("M2", "2.00", "3.00"),
                ("M4", "0.50", ""),
                ("M6", "", "400"),
                ("M6", "", "300"),
                ("M6", "", "25 %"),
            ]
        );
    }
}
