//! How a cluster scales: the rate that several brokers sustain, divided by that of one times their number; measured and as Detti's model predicts it.

use thicket_bench::workload::Workload;
use thicket_placement::{CpuWeights, Prediction, Scenario as Population, TrafficModel, Tree};

use crate::results::Results;
use crate::scenario::Scenario;
use crate::summary::{in_words, rows};

/// The figure that scales.
const RATE: &str = "sustainable_msgs_per_s";
/// The parameter that it scales with.
const SITES: &str = "network.sites";

/// A system with a number of brokers.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    /// Its name.
    pub system: String,
    /// Other parameters, in words.
    pub others: String,
    /// Number of brokers.
    pub brokers: usize,
    /// Highest rate for each broker, divided by that of the smallest cluster.
    pub measured: f64,
    /// The same in the model, for clients that attach at random.
    pub predicted: Option<f64>,
}

impl Growth {
    /// The system with its other parameters.
    #[must_use]
    pub fn name(&self) -> String {
        if self.others.is_empty() {
            return self.system.clone();
        }
        format!("{}, {}", self.system, self.others)
    }
}

/// The growth in results that have rates by number of sites; empty if they have none.
#[must_use]
pub fn growth(results: &Results) -> Vec<Growth> {
    let model = Scenario::parse(&results.scenario)
        .ok()
        .and_then(|(scenario, _)| Model::of(&scenario.workload.plan()));
    let mut found: Vec<(Growth, f64)> = Vec::new();
    for row in rows(results) {
        let sites = row.parameters.iter().find(|(key, _)| key == SITES);
        let (Some((_, sites)), Some(rate)) = (sites, row.figures.get(RATE)) else {
            continue;
        };
        let (Ok(brokers), true) = (sites.parse::<usize>(), rate.mean > 0.0) else {
            continue;
        };
        let others = row.parameters.iter().filter(|(key, _)| key != SITES);
        let others = in_words(None, others);
        let growth = Growth {
            system: row.system,
            others,
            brokers,
            measured: 1.0,
            predicted: Some(1.0),
        };
        found.push((growth, rate.mean / brokers as f64));
    }
    let smallest = |growth: &Growth| {
        let same = found.iter().filter(|(other, _)| {
            (&other.system, &other.others) == (&growth.system, &growth.others)
        });
        same.min_by_key(|(other, _)| other.brokers)
            .map(|(other, each)| (other.brokers, *each))
    };
    found
        .iter()
        .filter_map(|(growth, each)| {
            let (fewest, each_of_fewest) = smallest(growth)?;
            Some(Growth {
                measured: each / each_of_fewest,
                predicted: model
                    .as_ref()
                    .and_then(|model| Some(model.work(fewest)? / model.work(growth.brokers)?)),
                ..growth.clone()
            })
        })
        .collect()
}

/// The work of brokers, by their number.
enum Model {
    /// Pairs: the subscriber is elsewhere with probability 1 - 1/M.
    Pairs,
    /// Detti III.
    Paper(TrafficModel),
}

impl Model {
    fn of(workload: &Workload) -> Option<Self> {
        let (population, subscribers) = match workload {
            Workload::Pair { .. } => return Some(Self::Pairs),
            Workload::Social {
                topics,
                publishers: None,
                subscribers,
                topics_per_subscriber,
                alpha,
            } => (
                Population::Social {
                    topic_count: *topics,
                    subscriptions: *topics_per_subscriber,
                    alpha: *alpha,
                },
                *subscribers,
            ),
            Workload::Iot {
                depth,
                fan_out,
                level_probabilities,
                subscribers,
            } => (
                Population::Iot {
                    topic_count: fan_out
                        .checked_pow(u32::try_from(*depth).ok()?.checked_sub(1)?)?,
                    tree: Tree::new(*fan_out, level_probabilities.clone()).ok()?,
                },
                *subscribers,
            ),
            _ => return None,
        };
        TrafficModel::with_equal_rates(&population, subscribers, 1.0)
            .ok()
            .map(Self::Paper)
    }

    /// Work of all brokers together for the same load.
    fn work(&self, brokers: usize) -> Option<f64> {
        let prediction = match self {
            Self::Pairs => Prediction {
                broker_count: brokers,
                external_in: 1.0,
                external_out: 1.0,
                internal: 1.0 - 1.0 / brokers as f64,
            },
            Self::Paper(model) => model.predict(brokers).ok()?,
        };
        Some(CpuWeights::default().total_work(&prediction))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_lose_what_half_of_them_cost_on_two_brokers() {
        let model = Model::of(&Workload::Pair { pairs: 10 }).unwrap();
        // 3 for a message received and 1 for one sent; with two brokers, half of the messages are received and sent once more.
        assert_eq!(model.work(1), Some(4.0));
        assert_eq!(model.work(2), Some(6.0));
    }

    #[test]
    fn growth_is_by_broker_and_against_the_smallest_cluster() {
        let scenario = "title = \"t\"\nnetwork = { sites = 1 }\nsystem = [{ name = \"a\", driver = \"thicket\" }]\n\
            workload = { pattern = \"pair\" }\nmeasure = { kind = \"throughput\" }\n";
        let run = |sites: &str, rate: f64| {
            serde_json::json!({
                "system": "a", "parameters": [[SITES, sites]], "repeat": 1, "valid": true, "invalid": [], "warnings": [],
                "metrics": {RATE: rate}, "phases": [], "faults": [], "samples": null
            })
        };
        let results: Results = serde_json::from_value(serde_json::json!({
            "version": 1, "title": "t", "source": null, "valid": true, "ended_early": null, "scenario": scenario,
            "runs": [run("1", 1000.0), run("2", 1500.0)],
            "environment": {
                "kernel": "6", "cpu": "x", "cores": 2, "memory_mib": 1, "backend": "wire", "links_first": true, "limits": "cgroup v1",
                "congestion_control": "cubic", "oversubscribed": false, "lab": "0", "commit": null, "optimised": true, "brokers": {}
            }
        }))
        .unwrap();
        let growth = growth(&results);
        assert_eq!(growth[1].measured, 0.75);
        assert!((growth[1].predicted.unwrap() - 2.0 / 3.0).abs() < 1e-9);
    }
}
