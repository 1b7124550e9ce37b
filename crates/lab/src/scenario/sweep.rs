//! The cells of an experiment from one file: every combination of the swept values.

use serde::{Deserialize, Serialize};

use super::Scenario;

/// Maximum number of cells of one file.
const MAX_CELLS: usize = 10_000;
/// Keys that all cells have in common.
const COMMON: [&str; 5] = ["title", "source", "repeats", "report", "sweep"];

/// A parameter and its values.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// Its key in the file: `workload.qos`, `network.link.rtt_ms`, `fault.0.at_s` (of the first fault), `system.NAME.settings.routing`, and without a
    /// name `system.settings.routing` of all systems.
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

impl Sweep {
    /// All keys that it sets.
    fn keys(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.key).chain(self.with.keys())
    }

    /// `number`: its place in the file, from 0.
    fn check(&self, number: usize, earlier: &[Self]) -> Result<(), String> {
        if self.values.is_empty() {
            return Err(format!("sweep.{number}.values: there are none"));
        }
        let words: Vec<String> = self.values.iter().map(text).collect();
        if let Some(at) = (1..words.len()).find(|&at| words[..at].contains(&words[at])) {
            return Err(format!(
                "sweep.{number}.values: {} comes twice, so results could not tell its cells apart",
                words[at]
            ));
        }
        for (key, values) in &self.with {
            if values.len() != self.values.len() {
                return Err(format!(
                    "sweep.{number}.with: {key} has {} values, expected {}, as many as {}",
                    values.len(),
                    self.values.len(),
                    self.key
                ));
            }
        }
        for key in self.keys() {
            let first = key.split('.').next().unwrap_or_default();
            let last = key.rsplit('.').next().unwrap_or_default();
            if COMMON.contains(&first) || (first == "system" && ["name", "driver"].contains(&last))
            {
                return Err(format!(
                    "sweep.{number}.key: {key} is the same in all cells"
                ));
            }
        }
        let mut before = earlier.iter().flat_map(Self::keys);
        let twice = before
            .find(|key| self.keys().any(|own| own == *key))
            .or_else(|| self.with.keys().find(|key| **key == self.key));
        match twice {
            Some(key) => Err(format!("sweep.{number}.key: {key} is swept twice")),
            None => Ok(()),
        }
    }
}

pub(super) fn cells(table: &toml::Table, sweeps: &[Sweep]) -> Result<Vec<Cell>, String> {
    let mut combinations: Vec<Vec<(&Sweep, usize)>> = vec![Vec::new()];
    for (number, sweep) in sweeps.iter().enumerate() {
        sweep.check(number, &sweeps[..number])?;
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
            return Err(format!("sweep: they make more than {MAX_CELLS} cells"));
        }
    }
    combinations
        .iter()
        .map(|combination| cell(table, combination))
        .collect()
}

fn cell(table: &toml::Table, combination: &[(&Sweep, usize)]) -> Result<Cell, String> {
    let parameters: Vec<(String, String)> = (combination.iter())
        .map(|(sweep, at)| (sweep.key.clone(), text(&sweep.values[*at])))
        .collect();
    match scenario_with(table, combination) {
        Ok(scenario) => Ok(Cell {
            parameters,
            scenario,
        }),
        Err(Refusal::Key(reason)) => Err(reason),
        Err(Refusal::Values(reason)) => {
            // The file is right without sweeps: the sweep is to blame without which it is right again.
            let without = |number: usize| {
                let mut fewer = combination.to_vec();
                fewer.remove(number);
                scenario_with(table, &fewer)
            };
            let sweeps: Vec<&Sweep> = combination.iter().map(|(sweep, _)| *sweep).collect();
            let to_blame = (0..combination.len()).filter(|&number| without(number).is_ok());
            let number = match to_blame.collect::<Vec<_>>()[..] {
                [one] => one,
                _ => responsible(&sweeps, &reason),
            };
            Err(with_values(
                number,
                &parameters,
                &named(&sweeps[number].key, reason),
            ))
        }
    }
}

/// A name of a system that none has is a field of all systems to the parser: says what it is.
fn named(key: &str, reason: String) -> String {
    let name = (key.strip_prefix("system.")).and_then(|rest| rest.split_once('.'));
    match name {
        Some((name, _)) if reason.starts_with(&format!("unknown field `{name}`")) => {
            format!("there is no system {name}")
        }
        _ => reason,
    }
}

/// Why a combination of values makes no scenario.
enum Refusal {
    /// A key that cannot be swept; the reason names the sweep.
    Key(String),
    /// What the scenario with these values is refused for.
    Values(String),
}

/// The scenario with these values, and without sweeps.
fn scenario_with(
    table: &toml::Table,
    combination: &[(&Sweep, usize)],
) -> Result<Scenario, Refusal> {
    let mut table = table.clone();
    table.remove("sweep");
    for (number, (sweep, at)) in combination.iter().enumerate() {
        let others = sweep.with.iter().map(|(key, values)| (key, &values[*at]));
        for (key, value) in std::iter::once((&sweep.key, &sweep.values[*at])).chain(others) {
            set(&mut table, key, value)
                .map_err(|reason| Refusal::Key(format!("sweep.{number}.key: {key}: {reason}")))?;
        }
    }
    let scenario = Scenario::deserialize(toml::Value::Table(table))
        .map_err(|error| Refusal::Values(error.message().to_owned()))?;
    scenario.check().map_err(Refusal::Values)?;
    Ok(scenario)
}

/// A reason that the values of sweeps are refused for, with the key of the sweep that it is about.
pub(crate) fn in_cell(sweeps: &[&Sweep], parameters: &[(String, String)], reason: &str) -> String {
    with_values(responsible(sweeps, reason), parameters, reason)
}

fn with_values(sweep: usize, parameters: &[(String, String)], reason: &str) -> String {
    let words: Vec<String> = parameters
        .iter()
        .map(|(key, value)| format!("{key} = {value}"))
        .collect();
    format!("sweep.{sweep}.values: with {}: {reason}", words.join(", "))
}

/// The number of the sweep that a reason is about: that of its key, or whose last part it contains; otherwise the first.
fn responsible(sweeps: &[&Sweep], reason: &str) -> usize {
    let is_named = |found: &dyn Fn(&str) -> bool| {
        let mut sweeps = sweeps.iter();
        sweeps.position(|sweep| sweep.keys().any(|key| found(key)))
    };
    let last = |key: &str| key.rsplit('.').next().map(str::to_owned);
    is_named(&|key| reason.starts_with(key))
        .or_else(|| is_named(&|key| last(key).is_some_and(|last| reason.contains(&last))))
        .unwrap_or(0)
}

/// Sets the value at a dotted key; missing tables on the path are created. In an array of tables the next part is a place from 0 or the name of a
/// table; without either it is about all of them.
fn set(table: &mut toml::Table, key: &str, value: &toml::Value) -> Result<(), String> {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.to_owned(), value.clone());
        return Ok(());
    };
    let next = rest.split('.').next().unwrap_or_default();
    if !table.contains_key(first) && next.parse::<usize>().is_ok() {
        return Err(format!("there is no {first}.{next}"));
    }
    let inner = table
        .entry(first)
        .or_insert_with(|| toml::Value::Table(toml::Table::new()));
    match inner {
        toml::Value::Table(inner) => set(inner, rest, value),
        toml::Value::Array(all) => set_in_array(first, all, rest, value),
        _ => Err(format!("{first} is no table")),
    }
}

fn set_in_array(
    name: &str,
    all: &mut [toml::Value],
    key: &str,
    value: &toml::Value,
) -> Result<(), String> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let is_named = |one: &toml::Value| one.get("name").and_then(toml::Value::as_str) == Some(first);
    let at = match first.parse::<usize>() {
        Ok(at) if at < all.len() => Some(at),
        Ok(at) => return Err(format!("there is no {name}.{at}, only {}", all.len())),
        Err(_) => all.iter().position(is_named),
    };
    let (chosen, rest) = match at {
        Some(at) => (&mut all[at..=at], rest),
        None => (all, key),
    };
    for one in chosen {
        match one {
            _ if rest.is_empty() => *one = value.clone(),
            toml::Value::Table(inner) => set(inner, rest, value)?,
            _ => return Err(format!("{name} has no tables")),
        }
    }
    Ok(())
}

fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        // A site of publishers and one of subscribers: their meaning is in the file.
        toml::Value::Table(table) => {
            let leaves: Vec<String> = table.values().map(text).collect();
            leaves.join(" / ")
        }
        toml::Value::Array(all) => {
            let all: Vec<String> = all.iter().map(text).collect();
            all.join("+")
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
        let list: toml::Table = toml::from_str("v = [\"s1\", \"s2\"]").unwrap();
        assert_eq!(text(&list["v"]), "s1+s2");
    }
}
