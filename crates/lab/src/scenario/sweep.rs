//! The cells of an experiment from one file: every combination of the swept values.

use serde::{Deserialize, Serialize};

use super::Scenario;

/// Maximum number of cells of one file.
const MAX_CELLS: usize = 10_000;

/// A parameter and its values.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Its key in the file: `workload.qos`, `network.link.rtt_ms`.
    pub key: String,
    /// Its values, in turn.
    pub values: Vec<toml::Value>,
    /// Other keys that change together with it, each with as many values.
    #[serde(default)]
    pub with: std::collections::BTreeMap<String, Vec<toml::Value>>,
}

/// One combination of values, with the resulting scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The swept keys with their values here, in the order of the file.
    pub parameters: Vec<(String, String)>,
    /// The scenario without sweeps.
    pub scenario: Scenario,
}

pub(super) fn cells(table: &toml::Table, sweeps: &[Sweep]) -> Result<Vec<Cell>, String> {
    let mut combinations: Vec<Vec<(&Sweep, usize)>> = vec![Vec::new()];
    for sweep in sweeps {
        if sweep.values.is_empty() {
            return Err(format!("sweep of {}: there are no values", sweep.key));
        }
        if let Some((key, _)) = sweep
            .with
            .iter()
            .find(|(_, values)| values.len() != sweep.values.len())
        {
            return Err(format!(
                "sweep of {}: with {key} needs as many values",
                sweep.key
            ));
        }
        combinations = combinations
            .iter()
            .flat_map(|combination| {
                (0..sweep.values.len()).map(|value| {
                    let mut longer = combination.clone();
                    longer.push((sweep, value));
                    longer
                })
            })
            .collect();
        if combinations.len() > MAX_CELLS {
            return Err(format!("the sweeps make more than {MAX_CELLS} cells"));
        }
    }
    combinations
        .into_iter()
        .map(|combination| cell(table, combination))
        .collect()
}

fn cell(table: &toml::Table, combination: Vec<(&Sweep, usize)>) -> Result<Cell, String> {
    let mut table = table.clone();
    table.remove("sweep");
    let mut parameters = Vec::new();
    for (sweep, at) in combination {
        parameters.push((sweep.key.clone(), text(&sweep.values[at])));
        set(&mut table, &sweep.key, sweep.values[at].clone())?;
        for (key, values) in &sweep.with {
            set(&mut table, key, values[at].clone())?;
        }
    }
    let at = || {
        let words: Vec<String> = parameters
            .iter()
            .map(|(key, value)| format!("{key} = {value}"))
            .collect();
        format!("sweep, with {}: ", words.join(", "))
    };
    let scenario = Scenario::deserialize(toml::Value::Table(table))
        .map_err(|error| format!("{}{}", at(), error.message()))?;
    scenario
        .check()
        .map_err(|error| format!("{}{error}", at()))?;
    Ok(Cell {
        parameters,
        scenario,
    })
}

/// Sets the value at a dotted key; missing tables on the path are created.
fn set(table: &mut toml::Table, key: &str, value: toml::Value) -> Result<(), String> {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => {
            let inner = table
                .entry(first)
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            match inner.as_table_mut() {
                Some(inner) => set(inner, rest, value),
                None => Err(format!("sweep: {first} is no table, so {key} is no key")),
            }
        }
    }
}

fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        // A site of publishers and one of subscribers: their meaning is in the file.
        toml::Value::Table(table) => {
            let leaves: Vec<String> = table.values().map(text).collect();
            leaves.join(" / ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_parts_is_named_by_them() {
        let value: toml::Table =
            toml::from_str("v = { sites = { publishers = \"s1\", subscribers = \"s2\" } }")
                .unwrap();
        assert_eq!(text(&value["v"]), "s1 / s2");
    }
}
