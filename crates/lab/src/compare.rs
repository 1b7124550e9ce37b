//! Two results side by side: ratios with confidence intervals, if they are comparable.

use serde::Serialize;
use thicket_bench::statistics::Estimate;

use crate::error::LabError;
use crate::results::{Environment, Results};
use crate::simulated;
use crate::summary::{Row, rows};

/// The figures to compare.
pub(crate) const COMPARED: [&str; 22] = [
    "sustainable_msgs_per_s",
    "internal_msgs_per_s",
    "connects_per_s",
    "broker_start_s",
    "cluster_formed_s",
    "converged_max_s",
    "repaired_max_s",
    "join_s",
    "delay_mean_ms",
    "delay_p50_ms",
    "delay_p99_ms",
    "acknowledgement_mean_ms",
    "acknowledgement_p99_ms",
    "delivered_msgs_per_s",
    "control_traffic_bytes_per_s",
    "subscriptions_traffic_bytes",
    "publish_traffic_bytes",
    "publish_own_link_bytes",
    "publish_own_link_messages",
    "longest_silence_s",
    "publish_broker_cpu_percent",
    "publish_broker_memory_mib",
];

/// One figure of one system in one cell, in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The system.
    pub system: String,
    /// The varied parameters.
    pub parameters: Vec<(String, String)>,
    /// Name of the figure.
    pub figure: String,
    /// Mean in the first result.
    pub a: f64,
    /// Mean in the second.
    pub b: f64,
    /// Second over first.
    pub ratio: f64,
    /// 95 % confidence interval of the ratio; `None` with single repeats.
    pub interval_95: Option<(f64, f64)>,
}

impl Ratio {
    /// Whether the two differ with 95 % confidence.
    #[must_use]
    pub fn differs(&self) -> Option<bool> {
        self.interval_95.map(|(low, high)| low > 1.0 || high < 1.0)
    }
}

/// Whether exactly one of the two was simulated in virtual time: then the back ends are compared.
#[must_use]
pub fn is_across(a: &Results, b: &Results) -> bool {
    let is_simulated = |results: &Results| results.environment.backend == simulated::NAME;
    is_simulated(a) != is_simulated(b)
}

/// How far one figure differs over all systems and cells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// Name of the figure.
    pub figure: String,
    /// Number of ratios.
    pub count: usize,
    /// The least of them.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// The greatest.
    pub most: f64,
}

/// The spread of the ratios of each figure.
#[must_use]
pub fn spreads(ratios: &[Ratio]) -> Vec<Spread> {
    let of = |figure: &&str| {
        let same = ratios.iter().filter(|ratio| ratio.figure == **figure);
        let mut values: Vec<f64> = same.map(|ratio| ratio.ratio).collect();
        values.sort_by(f64::total_cmp);
        Some(Spread {
            figure: (**figure).to_owned(),
            count: values.len(),
            least: *values.first()?,
            median: *values.get(values.len() / 2)?,
            most: *values.last()?,
        })
    };
    COMPARED.iter().filter_map(of).collect()
}

/// Compares the rows in both. Refuses results of different machines, tools or scenarios; virtual time is the same on all machines.
pub fn compare(a: &Results, b: &Results) -> Result<Vec<Ratio>, LabError> {
    let unlike = if is_across(a, b) {
        Vec::new()
    } else {
        differences(&a.environment, &b.environment)
    };
    if !unlike.is_empty() {
        return Err(LabError::Unlike(format!(
            "the two were not made alike: {}",
            unlike.join("; ")
        )));
    }
    if without_systems(&a.scenario) != without_systems(&b.scenario) {
        return Err(LabError::Unlike(
            "the two were made with scenarios that differ in more than their systems and repeats"
                .to_owned(),
        ));
    }
    let others = rows(b);
    let ratios: Vec<Ratio> = rows(a)
        .iter()
        .filter_map(|row| {
            let same =
                |other: &&Row| other.system == row.system && other.parameters == row.parameters;
            Some((row, others.iter().find(same)?))
        })
        .flat_map(|(row, other)| {
            COMPARED
                .iter()
                .filter_map(|figure| one(row, other, figure))
                .collect::<Vec<_>>()
        })
        .collect();
    if ratios.is_empty() {
        return Err(LabError::Unlike(
            "no system has valid runs in both".to_owned(),
        ));
    }
    Ok(ratios)
}

/// The 99 % bound of the number of figures, out of `figures`, that differ by chance if each does with 5 %.
#[must_use]
pub fn expected_to_differ(figures: usize) -> usize {
    let (mut at_most, mut exactly) = (0.0, 0.95_f64.powi(figures as i32));
    for count in 0..figures {
        at_most += exactly;
        if at_most >= 0.99 {
            return count;
        }
        exactly *= (figures - count) as f64 / (count + 1) as f64 * 0.05 / 0.95;
    }
    figures
}

fn one(row: &Row, other: &Row, figure: &str) -> Option<Ratio> {
    let (a, b) = (row.figures.get(figure)?, other.figures.get(figure)?);
    if a.mean <= 0.0 || b.mean <= 0.0 {
        return None;
    }
    Some(Ratio {
        system: row.system.clone(),
        parameters: row.parameters.clone(),
        figure: figure.to_owned(),
        a: a.mean,
        b: b.mean,
        ratio: b.mean / a.mean,
        interval_95: interval(a, b),
    })
}

/// The interval of a ratio of two independent means: relative half widths add as squares, on a logarithmic scale.
fn interval(a: &Estimate, b: &Estimate) -> Option<(f64, f64)> {
    let relative = |estimate: &Estimate| Some(estimate.half_width_95? / estimate.mean);
    let half = relative(a)?.hypot(relative(b)?);
    let ratio = b.mean / a.mean;
    Some((ratio * (-half).exp(), ratio * half.exp()))
}

/// What makes two results incomparable. Versions of brokers and of the lab may differ: they are what is compared.
fn differences(a: &Environment, b: &Environment) -> Vec<String> {
    let facts = |facts: &Environment| {
        [
            ("kernel", facts.kernel.clone()),
            ("processor", facts.cpu.clone()),
            ("cores", facts.cores.to_string()),
            ("links", facts.backend.clone()),
            ("link process first", facts.links_first.to_string()),
            ("limits", facts.limits.clone()),
            ("congestion control", facts.congestion_control.clone()),
            ("optimised", facts.optimised.to_string()),
        ]
    };
    facts(a)
        .into_iter()
        .zip(facts(b))
        .filter(|(a, b)| a != b)
        .map(|((name, a), (_, b))| format!("{name} {a} and {b}"))
        .collect()
}

/// A scenario's text as a table, without the keys that may differ.
fn without_systems(text: &str) -> Option<toml::Table> {
    let mut table: toml::Table = toml::from_str(text).ok()?;
    for key in ["system", "repeats", "title", "source", "report"] {
        table.remove(key);
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(delays: &[f64]) -> Results {
        let runs: Vec<serde_json::Value> = delays
            .iter()
            .zip(1..)
            .map(|(delay, repeat)| {
                serde_json::json!({
                    "system": "mesh", "parameters": [["workload.qos", "0"]], "repeat": repeat, "valid": delay > &0.0,
                    "invalid": [], "warnings": [], "metrics": {"delay_mean_ms": delay}, "phases": [], "faults": [], "samples": null
                })
            })
            .collect();
        serde_json::from_value(serde_json::json!({
            "version": 1, "title": "t", "source": null, "valid": true, "ended_early": null, "scenario": "seed = 1", "runs": runs,
            "environment": {
                "kernel": "6", "cpu": "x", "cores": 2, "memory_mib": 1, "backend": "wire", "links_first": true, "limits": "cgroup v1",
                "congestion_control": "cubic", "oversubscribed": false, "lab": "0", "commit": null, "optimised": true, "brokers": {}
            }
        }))
        .unwrap()
    }

    #[test]
    fn the_interval_of_a_ratio_is_that_of_a_worked_example() {
        // Means 10 and 20; half widths by Student's t with 2 degrees: 4.303 / sqrt(3) times the deviation of 1.
        let (a, b) = (results(&[9.0, 10.0, 11.0]), results(&[19.0, 20.0, 21.0]));
        let ratios = compare(&a, &b).unwrap();
        let half = (4.303_f64 / 3f64.sqrt() / 10.0).hypot(4.303 / 3f64.sqrt() / 20.0);
        let (low, high) = ratios[0].interval_95.unwrap();
        assert_eq!(ratios[0].ratio, 2.0);
        assert!((low - 2.0 * (-half).exp()).abs() < 1e-9 && (high - 2.0 * half.exp()).abs() < 1e-9);
        assert_eq!(ratios[0].differs(), Some(true));
    }

    #[test]
    fn of_many_figures_some_differ_by_chance() {
        // Binomial distribution, 5 %: P(at most 3 of 20) = 0.984, P(at most 4) = 0.997.
        let cases = [(1, 1), (2, 1), (20, 4), (100, 11)];
        for (figures, most) in cases {
            assert_eq!(expected_to_differ(figures), most, "{figures}");
        }
    }

    #[test]
    fn a_run_that_is_not_valid_does_not_count() {
        let ratios = compare(&results(&[10.0, -1.0]), &results(&[10.0])).unwrap();
        assert_eq!((ratios[0].ratio, ratios[0].differs()), (1.0, None));
    }

    #[test]
    fn a_result_in_virtual_time_is_compared_with_one_of_any_machine() {
        let mut simulated = results(&[10.0]);
        simulated.environment.backend = simulated::NAME.to_owned();
        simulated.environment.kernel = "7".to_owned();
        let measured = results(&[12.0]);
        assert!(is_across(&measured, &simulated) && !is_across(&simulated, &simulated));
        let ratios = compare(&simulated, &measured).unwrap();
        let spread = &spreads(&ratios)[0];
        assert_eq!((spread.count, spread.median), (1, 1.2));
        simulated.scenario = "seed = 2".to_owned();
        assert!(compare(&simulated, &measured).is_err());
    }

    #[test]
    fn unlike_machines_and_scenarios_are_refused_with_the_difference() {
        let mut other = results(&[10.0]);
        other.environment.backend = "netem".to_owned();
        let error = compare(&results(&[10.0]), &other).unwrap_err().to_string();
        assert!(error.contains("links wire and netem"), "{error}");
        let mut other = results(&[10.0]);
        other.scenario = "seed = 2".to_owned();
        assert!(compare(&results(&[10.0]), &other).is_err());
    }
}
