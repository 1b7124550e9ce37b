//! The values of a parameter over the cells of a scenario.

use serde_json::Value;

use crate::scenario::{CRASH_PER_S, Cell, Measure, Scenario, Workload};
use crate::units::Positive;

/// The distinct values of a parameter, in the order of the cells, as text.
///
/// A key is that of a scenario, such as `workload.qos`, with its default if the file does not have
/// it, or one of these:
///
/// | key | meaning |
/// | --- | --- |
/// | `clients.publishers`, `clients.subscribers` | how many there are |
/// | `clients.rate_per_s_each` | messages a second of each publisher |
/// | `clients.messages_each` | messages of each publisher |
/// | `load.seconds` | length of the load, or of each rate of a search |
/// | `systems.names`, `systems.drivers` | the systems; the drivers other than Thicket |
#[must_use]
pub fn values(cells: &[Cell], key: &str) -> Vec<String> {
    let mut distinct = Vec::new();
    for cell in cells {
        let mut all = of_scenario(&cell.scenario, key);
        if all.is_empty() {
            all = none();
        }
        for value in all {
            if !distinct.contains(&value) {
                distinct.push(value);
            }
        }
    }
    distinct
}

/// The values that a paper lists, as text.
pub(super) fn listed(value: &toml::Value) -> Vec<String> {
    let texts = |all: &[toml::Value]| all.iter().map(in_json).collect();
    match value {
        toml::Value::Array(all) => texts(all),
        one => texts(std::slice::from_ref(one)),
    }
}

fn in_json(value: &toml::Value) -> String {
    serde_json::to_value(value).map_or(String::new(), |value| text(&value))
}

fn of_scenario(scenario: &Scenario, key: &str) -> Vec<String> {
    let systems = || scenario.systems.iter();
    let number = |value: f64| vec![text(&Value::from(value))];
    let clients = Clients::of(scenario);
    match key {
        "systems.names" => systems().map(|it| it.name.clone()).collect(),
        "systems.drivers" => (systems().map(|it| it.driver.clone()))
            .filter(|driver| driver != "thicket")
            .collect(),
        "clients.publishers" => number(clients.publishers as f64),
        "clients.subscribers" => number(clients.subscribers as f64),
        "clients.rate_per_s_each" => clients.each(clients.rate_per_s).map_or(none(), number),
        "clients.messages_each" => clients.each(clients.messages).map_or(none(), number),
        "load.seconds" => seconds(scenario).map_or(none(), number),
        key => of_file(scenario, key),
    }
}

fn none() -> Vec<String> {
    vec!["none".to_owned()]
}

fn of_file(scenario: &Scenario, key: &str) -> Vec<String> {
    let file = serde_json::to_value(scenario).unwrap_or_default();
    let found = file.pointer(&format!("/{}", key.replace('.', "/")));
    vec![found.map_or("none".to_owned(), text)]
}

/// Publishers and subscribers, with their load.
struct Clients {
    publishers: usize,
    subscribers: usize,
    rate_per_s: Option<f64>,
    messages: Option<f64>,
}

impl Clients {
    fn of(scenario: &Scenario) -> Self {
        let workload = &scenario.workload;
        let rate_per_s = workload.rate_per_s.map(Positive::value);
        match &scenario.measure {
            Measure::Crash { .. } => Self {
                publishers: 1,
                subscribers: 2,
                rate_per_s: Some(rate_per_s.unwrap_or(CRASH_PER_S)),
                messages: None,
            },
            Measure::Arrivals { subscribers, .. } => {
                let arriving = scenario.measure.arriving(0, scenario.seed);
                let arriving = arriving.unwrap_or_default();
                Self {
                    publishers: arriving.len(),
                    subscribers: *subscribers,
                    rate_per_s: Some(arriving.iter().map(|it| it.rate_per_s).sum()),
                    messages: None,
                }
            }
            _ => Self::of_plan(workload, rate_per_s),
        }
    }

    fn of_plan(workload: &Workload, rate_per_s: Option<f64>) -> Self {
        let plan = workload.plan().plan("p", 1).ok();
        let seconds = workload.seconds.map(Positive::value);
        let published = || Some(seconds? * rate_per_s?);
        Self {
            publishers: plan.as_ref().map_or(0, |plan| plan.topics.len()),
            subscribers: plan.map_or(0, |plan| plan.subscribers.len()),
            rate_per_s,
            messages: (workload.messages.map(|count| count as f64)).or_else(published),
        }
    }

    fn each(&self, all: Option<f64>) -> Option<f64> {
        Some(all? / self.publishers.max(1) as f64)
    }
}

fn seconds(scenario: &Scenario) -> Option<f64> {
    match &scenario.measure {
        Measure::Throughput { step_s, .. } | Measure::MostConnections { step_s, .. } => {
            Some(step_s.value())
        }
        _ => scenario.workload.seconds.map(Positive::value),
    }
}

/// A value as text: whole numbers without a point, tables without what is absent.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.as_f64().map_or(String::new(), |it| it.to_string()),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" and "),
        Value::Object(table) => {
            let mut parts: Vec<String> = table
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| format!("{key} {}", text(value)))
                .collect();
            parts.sort();
            format!("({})", parts.join(", "))
        }
        Value::Bool(is_on) => if *is_on { "yes" } else { "no" }.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_all_cells_with_their_defaults() {
        let file = r#"
title = "t"
network = { sites = 5, link = { delay = { law = "normal", mean_ms = 10, sd_ms = 2.5, drawn = "per-link" } } }
system = [{ name = "flood", driver = "thicket" }, { name = "m", driver = "mosquitto" }]
workload = { pattern = "social", topics = 60, publishers = 5, topics_per_subscriber = 1, alpha = 0, subscribers = 20, rate_per_s = 5, messages = 2500 }
sweep = [{ key = "workload.rate_per_s", values = [5, 50] }]
"#;
        let (_, cells) = Scenario::parse(file).unwrap();
        for (key, expected) in [
            ("network.sites", "5"),
            (
                "network.link.delay",
                "(drawn per-link, law normal, mean_ms 10, sd_ms 2.5)",
            ),
            ("network.link.bandwidth_mbit", "none"),
            ("workload.qos", "0"),
            ("clients.publishers", "5"),
            ("clients.subscribers", "20"),
            ("clients.rate_per_s_each", "1; 10"),
            ("clients.messages_each", "500"),
            ("systems.names", "flood; m"),
            ("systems.drivers", "mosquitto"),
            ("workload.tls", "no"),
        ] {
            assert_eq!(values(&cells, key).join("; "), expected, "{key}");
        }
    }
}
