//! Figures over HTTP: from a Prometheus endpoint, or the API of Thicket nodes.

use serde::Deserialize;

use super::{Figure, Sample};

/// Longest page that is read.
const LONGEST_PAGE: u64 = 16 * 1024 * 1024;

/// The sum of all samples of a metric.
pub(super) fn metric(agent: &ureq::Agent, url: &str, name: &str) -> Result<Sample, String> {
    let page = fetch(agent, url)?;
    parse_metric(&page, name).ok_or_else(|| format!("there is no metric `{name}`"))
}

#[derive(Deserialize)]
struct Traffic {
    total: Counts,
}

#[derive(Deserialize)]
struct Counts {
    external_in_messages: u64,
    external_out_messages: u64,
    connections: u64,
}

#[derive(Deserialize)]
struct Node {
    is_self: bool,
    /// Older nodes do not report it.
    #[serde(default)]
    state: Option<NodeState>,
}

#[derive(Deserialize)]
struct NodeState {
    cpu_ratio: Option<f64>,
    #[serde(default)]
    draining: bool,
}

/// The state that the node reports; its CPU is a mean of 5 s already.
fn state_of_node(agent: &ureq::Agent, http: &str) -> Option<NodeState> {
    let page = fetch(agent, &format!("http://{http}/v1/nodes")).ok()?;
    let nodes: Vec<Node> = serde_json::from_str(&page).ok()?;
    let own = nodes.into_iter().find(|node| node.is_self)?;
    own.state
}

/// Messages of clients, connections, and CPU if the node reports it; and whether it is draining.
pub(super) fn node(
    agent: &ureq::Agent,
    http: &str,
) -> Result<(Vec<(Figure, Sample)>, bool), String> {
    let page = fetch(agent, &format!("http://{http}/v1/traffic"))?;
    let traffic: Traffic = serde_json::from_str(&page)
        .map_err(|error| format!("/v1/traffic does not answer like a node: {error}"))?;
    let counts = traffic.total;
    let messages = counts.external_in_messages + counts.external_out_messages;
    let messages = Sample::Counter {
        value: messages as f64,
        per: 1.0,
    };
    let connections = Sample::Gauge(counts.connections as f64);
    let mut samples = vec![
        (Figure::Messages, messages),
        (Figure::Connections, connections),
    ];
    let state = state_of_node(agent, http);
    if let Some(cpu) = state.as_ref().and_then(|state| state.cpu_ratio) {
        samples.push((Figure::Cpu, Sample::Mean(cpu)));
    }
    Ok((samples, state.is_some_and(|state| state.draining)))
}

fn fetch(agent: &ureq::Agent, url: &str) -> Result<String, String> {
    let mut answer = agent.get(url).call().map_err(|error| error.to_string())?;
    let body = answer.body_mut().with_config().limit(LONGEST_PAGE);
    body.read_to_string().map_err(|error| error.to_string())
}

/// Parses the text format of Prometheus: `name{labels} value [time]`, after `# TYPE name kind`.
fn parse_metric(page: &str, name: &str) -> Option<Sample> {
    let (mut sum, mut found) = (0.0, false);
    let mut is_counter = name.ends_with("_total");
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let mut words = kind.split_whitespace();
            if words.next() == Some(name) {
                is_counter = words.next() == Some("counter");
            }
            continue;
        }
        let Some(rest) = line.strip_prefix(name) else {
            continue;
        };
        let value = match rest.as_bytes().first() {
            Some(b'{') => &rest[rest.rfind('}')? + 1..],
            Some(b' ' | b'\t') => rest,
            _ => continue,
        };
        let value = value.split_whitespace().next()?;
        sum += value.parse::<f64>().ok()?;
        found = true;
    }
    let sample = if is_counter {
        Sample::Counter {
            value: sum,
            per: 1.0,
        }
    } else {
        Sample::Gauge(sum)
    };
    found.then_some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a_total x\n# TYPE a_total counter\na_total{k=\"v w\"} 3\na_total{k=\"}\"} 4.5 1700000000\n\
                        # TYPE load gauge\nload 0.25\nload_other 9\n# TYPE odd counter\nodd 7\nbad x\n";

    #[test]
    fn samples_of_a_metric_are_added_up_by_its_kind() {
        let counter = |value| Some(Sample::Counter { value, per: 1.0 });
        assert_eq!(parse_metric(PAGE, "a_total"), counter(7.5));
        assert_eq!(parse_metric(PAGE, "load"), Some(Sample::Gauge(0.25)));
        assert_eq!(parse_metric(PAGE, "odd"), counter(7.0));
        assert_eq!(parse_metric(PAGE, "lo"), None);
        assert_eq!(parse_metric(PAGE, "bad"), None);
    }
}
