//! Recordings: arrivals, one JSON object a line.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use thicket_placement::Arrival;

use crate::files;

/// What is known of a cluster and its clients.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recording {
    pub(super) cluster: ClusterLine,
    /// With what to call their lines in messages.
    pub(super) arrivals: Vec<(String, Arrival)>,
}

/// The line about the cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ClusterLine {
    /// Names of its nodes; empty: not known.
    pub(super) nodes: Vec<String>,
    /// By node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) sites: BTreeMap<String, String>,
    /// Prices of a GB between sites, each `FROM:TO=PRICE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) site_price: Vec<String>,
    /// Payload of a message on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_bytes: Option<f64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AboutCluster {
    cluster: ClusterLine,
}

/// One line as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    client: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    publish: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subscribe: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rates: Option<LineRates>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    leave: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nodes: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_sessions: Option<usize>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum LineRates {
    ByTopic(BTreeMap<String, f64>),
    InOrder(Vec<f64>),
}

impl Recording {
    /// As a file has it.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        let cluster = self.cluster.clone();
        if cluster != ClusterLine::default() {
            text.push_str(&serde_json::to_string(&AboutCluster { cluster })?);
            text.push('\n');
        }
        for (_, arrival) in &self.arrivals {
            text.push_str(&serde_json::to_string(&Line::from(arrival.clone()))?);
            text.push('\n');
        }
        Ok(text)
    }
}

/// Reads a file. Empty lines are skipped.
pub(super) fn read(path: &Path) -> anyhow::Result<Recording> {
    let text = files::read_text(path)?;
    let mut recording = Recording::default();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let place = format!("{} line {}", path.display(), index + 1);
        if is_about_cluster(line) {
            let line: AboutCluster = serde_json::from_str(line).with_context(|| place)?;
            recording.cluster = line.cluster;
        } else {
            let arrival = parse(line).with_context(|| place.clone())?;
            recording.arrivals.push((place, arrival));
        }
    }
    Ok(recording)
}

fn is_about_cluster(line: &str) -> bool {
    let parsed: Result<BTreeMap<String, serde_json::Value>, _> = serde_json::from_str(line);
    parsed.is_ok_and(|object| object.contains_key("cluster"))
}

fn parse(line: &str) -> anyhow::Result<Arrival> {
    let line: Line = serde_json::from_str(line).context(
        "a line must be one JSON object with client, publish, subscribe and optionally rates, nodes, max_sessions and leave",
    )?;
    let rates = match line.rates {
        None => BTreeMap::new(),
        Some(LineRates::ByTopic(rates)) => rates,
        Some(LineRates::InOrder(rates)) => {
            let topics = line.publish.len() + line.subscribe.len();
            anyhow::ensure!(
                rates.len() == line.publish.len() || rates.len() == topics,
                "rates: must be one number for each topic of publish, or of publish and subscribe, not {} numbers",
                rates.len()
            );
            let names = line.publish.iter().chain(&line.subscribe).cloned();
            names.zip(rates).collect()
        }
    };
    Ok(Arrival {
        client: line.client,
        publish: line.publish,
        subscribe: line.subscribe,
        rates,
        leave: line.leave,
        nodes: line.nodes,
        max_sessions: line.max_sessions,
    })
}

impl From<Arrival> for Line {
    fn from(arrival: Arrival) -> Self {
        let has_rates = !arrival.rates.is_empty();
        Self {
            client: arrival.client,
            publish: arrival.publish,
            subscribe: arrival.subscribe,
            rates: has_rates.then_some(LineRates::ByTopic(arrival.rates)),
            leave: arrival.leave,
            nodes: arrival.nodes,
            max_sessions: arrival.max_sessions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_reads_back_as_it_was_written() {
        let names = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let arrival = Arrival {
            client: "c".into(),
            publish: names(&["t"]),
            subscribe: names(&["a/+"]),
            rates: BTreeMap::from([("t".into(), 2.5)]),
            leave: false,
            max_sessions: Some(1),
            nodes: BTreeMap::from([("t".into(), "n1".into()), ("a/+".into(), "n2".into())]),
        };
        let cluster = ClusterLine {
            nodes: names(&["n1", "n2"]),
            sites: BTreeMap::from([("n1".into(), "milan".into())]),
            site_price: names(&["milan:rome=0.02"]),
            message_bytes: Some(120.0),
        };
        let recording = Recording {
            cluster,
            arrivals: vec![(String::new(), arrival)],
        };
        let text = recording.text().unwrap();
        let mut lines = text.lines();
        let about: AboutCluster = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(about.cluster, recording.cluster);
        assert_eq!(
            parse(lines.next().unwrap()).unwrap(),
            recording.arrivals[0].1
        );
    }
}
