//! `report.html`: one file with tables and figures, from the results alone.

mod figure;
mod html;
mod joint;
pub(crate) mod tls;

pub use figure::{Bar, Figure};
pub use html::to_html;
pub use joint::write_joint;

use std::collections::HashSet;
use std::path::Path;

use crate::compare::Ratio;
use crate::error::LabError;
use crate::results::Results;
use crate::scaling::Growth;
use crate::scenario::{FIGURES, Scenario};
use crate::summary::{Row, in_words, rows, short};

/// What the figure of growth draws.
const GROWTH: &str = "Highest rate of a broker, over that in the smallest cluster";

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

/// Numbers that depend on the network and the brokers alone.
const OF_NETWORK: [&str; 2] = ["broker_start_s", "converged_max_s"];
/// A rate in the words of an axis.
const RATE: &str = "messages/s";
/// Parameters in the words of an axis.
const WORDS: [(&str, &str); 12] = [
    ("rate_per_s", RATE),
    ("qos", "QoS"),
    ("placement", "placement of clients"),
    ("payload_bytes", "payload, bytes"),
    ("rtt_ms", "RTT, ms"),
    ("one_way_ms", "delay of a link, ms"),
    ("bandwidth_mbit", "bandwidth, Mbit/s"),
    ("loss_percent", "loss, %"),
    ("memory_mib", "memory of a broker, MiB"),
    ("cpus", "cores of a broker"),
    ("tls", "TLS"),
    ("websocket", "WebSocket"),
];

/// The results with one run for each network, system and repeat, and the parameters of the network alone.
fn by_network(results: &Results) -> Results {
    let mut results = results.clone();
    let is_of_network = |(key, _): &(String, String)| {
        let mut all = ["network.", "brokers.", "system.", "seed"].into_iter();
        all.any(|start| key.starts_with(start))
    };
    for run in &mut results.runs {
        run.parameters.retain(is_of_network);
    }
    let mut seen = HashSet::new();
    (results.runs).retain(|run| {
        run.valid && seen.insert((run.system.clone(), run.parameters.clone(), run.repeat))
    });
    results
}

/// A parameter in the words of an axis.
pub(crate) fn key_words(key: &str) -> String {
    let key = short(key);
    let known = WORDS.iter().find(|(known, _)| *known == key);
    known.map_or_else(|| key.replace('_', " "), |(_, words)| (*words).to_owned())
}

/// The value of a parameter in the words of an axis.
pub(crate) fn value_words(value: &str) -> String {
    match value {
        "locality-100" => "100 % local",
        "locality-50-border" => "50 % local (BORDER)",
        "locality-50-overlays" => "50 % local (Overlays)",
        "locality-0" => "0 % local",
        "true" => "yes",
        "false" => "no",
        other => other,
    }
    .to_owned()
}

/// The figures that the scenario chose, or all, of the results: for each number one figure for each combination of all parameters but the last, which is on the axis.
fn figures(results: &Results) -> Vec<(String, Vec<Figure>)> {
    let of_networks = rows(&by_network(results));
    let rows = rows(results);
    let chosen = Scenario::parse(&results.scenario).map_or(Vec::new(), |(it, _)| it.report);
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|it| it == name);
    FIGURES
        .iter()
        .filter(|(name, ..)| is_chosen(name) && has_values(&rows, name))
        .map(|(name, title, unit)| {
            let rows = if OF_NETWORK.contains(name) {
                &of_networks
            } else {
                &rows
            };
            ((*title).to_owned(), facets(rows, name, title, unit))
        })
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
        quantity: GROWTH.to_owned(),
        title: String::new(),
        x: "brokers".to_owned(),
        y: "ratio".to_owned(),
        top: None,
        is_logarithmic: false,
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

/// Figures of one number with the same axis.
fn facets(rows: &[Row], name: &str, quantity: &str, unit: &str) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    let systems = distinct(rows.iter().map(|row| row.system.clone()));
    for row in rows {
        let (axis, others) = match row.parameters.split_last() {
            Some((last, others)) => (Some(last), others),
            None => (None, &[][..]),
        };
        let words = others
            .iter()
            .map(|(key, value)| format!("{} = {}", key_words(key), value_words(value)));
        let title = words.collect::<Vec<_>>().join(", ");
        let at = match figures.iter().position(|figure| figure.title == title) {
            Some(at) => at,
            None => {
                figures.push(Figure {
                    quantity: quantity.to_owned(),
                    title,
                    x: axis.map_or(String::new(), |(key, _)| key_words(key)),
                    y: unit.to_owned(),
                    top: None,
                    is_logarithmic: false,
                    systems: systems.clone(),
                    groups: Vec::new(),
                });
                figures.len() - 1
            }
        };
        let label = axis.map_or(String::new(), |(_, value)| value_words(value));
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
    let top = figures.iter().map(Figure::highest).reduce(f64::max);
    for figure in &mut figures {
        figure.top = top;
        let mut labels = figure.groups.iter().map(|(label, _)| label.parse());
        let are_numbers = labels.all(|number: Result<f64, _>| number.is_ok_and(|it| it > 0.0));
        figure.is_logarithmic = figure.x == RATE && figure.groups.len() > 1 && are_numbers;
    }
    figures
}

/// Each name once, in the order of their first places.
pub(crate) fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct = Vec::new();
    for name in names {
        if !distinct.contains(&name) {
            distinct.push(name);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use thicket_bench::statistics::estimate;

    use super::*;

    fn row(parameters: &[(&str, &str)], mean: f64) -> Row {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Row {
            system: "a".to_owned(),
            parameters: parameters.iter().map(own).collect(),
            figures: [("x".to_owned(), estimate(&[mean]).unwrap())].into(),
            invalid: 0,
        }
    }

    #[test]
    fn panels_of_one_number_have_one_scale_and_axes_have_words() {
        let at = |placement, rate, mean| {
            let parameters = [
                ("workload.placement", placement),
                ("workload.rate_per_s", rate),
            ];
            row(&parameters, mean)
        };
        let rows = [
            at("locality-100", "10", 1.0),
            at("locality-100", "100", 2.0),
            at("locality-50-border", "10", 8.0),
            at("locality-50-border", "100", 10.0),
        ];
        let panels = facets(&rows, "x", "Delay", "ms");
        let titles: Vec<&str> = panels.iter().map(|panel| &*panel.title).collect();
        assert_eq!(
            titles,
            [
                "placement of clients = 100 % local",
                "placement of clients = 50 % local (BORDER)"
            ]
        );
        for panel in &panels {
            assert_eq!((&*panel.x, panel.top), ("messages/s", Some(10.5)));
            assert!(panel.is_logarithmic);
        }
        let one = facets(&[row(&[("workload.qos", "1")], 1.0)], "x", "Delay", "ms");
        assert!(one[0].x == "QoS" && !one[0].is_logarithmic);
    }

    #[test]
    fn what_depends_on_the_network_alone_has_one_run_for_each() {
        let (scenario, mut cells) =
            Scenario::parse(include_str!("../../../../scenarios/faults-small.toml")).unwrap();
        let mut all = Vec::new();
        for (rtt, qos) in [("5", "0"), ("5", "1"), ("50", "0")] {
            let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
            cells[0].parameters = [("network.link.rtt_ms", rtt), ("workload.qos", qos)]
                .map(own)
                .into();
            let mut run = crate::results::Run::begin(&cells[0], &scenario.systems[0], 1);
            run.valid = qos == "1" || rtt == "50";
            all.push(run);
        }
        let facts = crate::environment::environment(&scenario, None, None);
        let results = by_network(&Results::of(&scenario, "", facts, all, None));
        let left: Vec<&str> = (results.runs.iter())
            .map(|run| &*run.parameters[0].1)
            .collect();
        assert_eq!(left, ["5", "50"]);
        assert!(results.runs.iter().all(|run| run.parameters.len() == 1));
    }
}
