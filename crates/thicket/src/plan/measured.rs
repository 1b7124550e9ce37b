//! What a machine can do, from a file that `thicket bench mst --json` wrote.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde::Deserialize;
use thicket_placement::CpuWeights;

/// The part of such a file that is read.
#[derive(Debug, Deserialize)]
struct Measurement {
    searches: Vec<Search>,
}

#[derive(Debug, Deserialize)]
struct Search {
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    sustainable: bool,
    outcome: Outcome,
}

#[derive(Debug, Deserialize)]
struct Outcome {
    nodes: Vec<String>,
    published_per_s: f64,
    delivered_per_s: f64,
}

/// Units of work a second of the broker that was measured: the mean over the searches of the file.
pub(super) fn capacity(path: &Path, weights: CpuWeights) -> anyhow::Result<f64> {
    let text = fs::read_to_string(path).with_context(|| format!("--from {}", path.display()))?;
    of_text(&text, weights).with_context(|| format!("--from {}", path.display()))
}

fn of_text(text: &str, weights: CpuWeights) -> anyhow::Result<f64> {
    let measurement: Measurement =
        serde_json::from_str(text).context("is not what `thicket bench mst --json` writes")?;
    let searches = measurement.searches.iter();
    let capacities: Vec<f64> = searches
        .map(|search| search.capacity(weights))
        .collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(!capacities.is_empty(), "searches: there is none");
    Ok(capacities.iter().sum::<f64>() / capacities.len() as f64)
}

impl Search {
    fn capacity(&self, weights: CpuWeights) -> anyhow::Result<f64> {
        let sustainable = self.steps.iter().filter(|step| step.sustainable);
        let outcomes = sustainable.map(|step| &step.outcome);
        let best =
            outcomes.max_by(|one, other| one.published_per_s.total_cmp(&other.published_per_s));
        let best = best.context("searches: no rate was sustainable")?;
        // Several share the work among them, and have more of it.
        let brokers = best.nodes.len();
        anyhow::ensure!(
            brokers == 1,
            "searches.steps.outcome.nodes: {brokers} brokers were measured together; measure one"
        );
        Ok(weights.received * best.published_per_s + weights.sent * best.delivered_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WEIGHTS: CpuWeights = CpuWeights {
        received: 3.0,
        sent: 1.0,
    };

    fn step(sustainable: bool, published: f64, nodes: usize) -> String {
        let nodes = vec!["127.0.0.1:1883"; nodes];
        format!(
            r#"{{"rate_per_s":1,"sustainable":{sustainable},"outcome":{{"nodes":{nodes:?},"published_per_s":{published},"delivered_per_s":{}}}}}"#,
            2.0 * published
        )
    }

    fn file(searches: &[&[String]]) -> String {
        let searches = searches
            .iter()
            .map(|steps| format!(r#"{{"steps":[{}]}}"#, steps.join(",")));
        let searches: Vec<String> = searches.collect();
        format!(r#"{{"searches":[{}]}}"#, searches.join(","))
    }

    #[test]
    fn the_best_sustainable_rate_of_each_search_counts() {
        let steps = |best| {
            [
                step(true, 1.0, 1),
                step(true, best, 1),
                step(false, 500.0, 1),
            ]
        };
        let text = file(&[&steps(100.0), &steps(120.0)]);
        assert_eq!(of_text(&text, WEIGHTS).unwrap(), 550.0);
    }

    #[test]
    fn what_says_nothing_about_one_broker_is_refused() {
        for (text, expected) in [
            ("[]".to_owned(), "is not what"),
            (file(&[]), "searches: there is none"),
            (file(&[&[step(false, 5.0, 1)]]), "no rate was sustainable"),
            (
                file(&[&[step(true, 5.0, 2)]]),
                "2 brokers were measured together",
            ),
        ] {
            let error = format!("{:#}", of_text(&text, WEIGHTS).unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
    }
}
