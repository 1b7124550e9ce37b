//! A scenario: one TOML file with what to build, what to run on it and what to vary.

mod clients;
mod explain;
mod fault;
mod figures;
mod life;
mod limits;
mod lines;
mod measure;
mod message;
mod phases;
mod sweep;
mod system;
mod workload;

use std::path::Path;

use serde::{Deserialize, Serialize};
use thicket_bench::random::Random;

pub use clients::{clients, prefix};
pub use fault::{Action, Fault, Reach};
pub(crate) use figures::FIGURES;
pub use limits::Limits;
pub(crate) use lines::with_line;
pub use measure::{
    CRASH_PER_S, Death, Measure, Order, Publishers, TOLERANCE_PER_S, TOLERANCE_PERCENT,
};
pub use message::{PayloadLaw, Will};
pub use phases::Phases;
pub(crate) use sweep::in_cell;
pub use sweep::{Cell, Sweep};
pub use system::{Attach, System};
pub use thicket_bench::workload::Pattern;
pub(crate) use workload::placement_load;
pub use workload::{Layers, Placement, Reference, Sites, Spacing, Version, Workload};

use crate::LabError;
use crate::network::Network;
use crate::topology::Topology;
use crate::units::NonNegative;

/// A whole scenario with its defaults filled in.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it shows, in one line.
    pub title: String,
    /// The experiment it follows, such as `BORDER Fig. 4`.
    #[serde(default)]
    pub source: Option<String>,
    /// The seed of all random choices; a repeat adds its number.
    #[serde(default = "one")]
    pub seed: u64,
    /// How often everything is built and run again.
    #[serde(default = "one")]
    pub repeats: u64,
    /// The figures that the report draws, by name; empty: all it knows.
    #[serde(default)]
    pub report: Vec<String>,
    /// Sites and the links between their routers.
    pub network: Network,
    /// Limits of each broker.
    #[serde(default)]
    pub brokers: Limits,
    /// Broker systems to compare.
    #[serde(rename = "system")]
    pub systems: Vec<System>,
    /// Clients and load.
    pub workload: Workload,
    /// What is measured.
    #[serde(default)]
    pub measure: Measure,
    /// Lengths of the phases.
    #[serde(default)]
    pub phases: Phases,
    /// Faults while messages are published.
    #[serde(default, rename = "fault")]
    pub faults: Vec<Fault>,
    /// Parameters to vary.
    #[serde(default, rename = "sweep")]
    pub sweeps: Vec<Sweep>,
}

/// Distinguishes the draws of faults from those of other things.
const FAULTS: u64 = 0x0066_6175_6C74_7321;
const fn one() -> u64 {
    1
}

impl Scenario {
    /// Reads a file; returns also the scenario of every cell.
    pub fn load(path: &Path) -> Result<(Self, Vec<Cell>), LabError> {
        let text = std::fs::read_to_string(path).map_err(LabError::io(path.display()))?;
        Self::parse(&text).map_err(|reason| LabError::Scenario {
            file: path.to_owned(),
            reason,
        })
    }

    /// Parses a scenario and makes its cells; an error is a text with line and key.
    pub fn parse(text: &str) -> Result<(Self, Vec<Cell>), String> {
        let scenario: Self = toml::from_str(text).map_err(|error| {
            // What a whole table is refused for names the key itself.
            if error.message().starts_with("measure.") {
                return lines::with_line(text, error.message().to_owned());
            }
            if let Some(reason) = unknown_of_workload(text, error.message()) {
                return lines::with_line(text, reason);
            }
            error.to_string()
        })?;
        let check = scenario.check();
        check.map_err(|reason| lines::with_line(text, reason))?;
        let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let cells = sweep::cells(&table, &scenario.sweeps)
            .map_err(|reason| lines::with_line(text, reason))?;
        Ok((scenario, cells))
    }

    /// Checks that concern several keys.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.repeats == 0 || self.repeats > 1000 {
            return Err(format!("repeats: {} is not from 1 to 1000", self.repeats));
        }
        if self.systems.is_empty() {
            return Err("there is no [[system]] to measure".to_owned());
        }
        for (index, system) in self.systems.iter().enumerate() {
            if system.name.is_empty() || system.name.contains(['/', ' ', ',']) {
                return Err(format!(
                    "system.name: {:?} is no name of a folder",
                    system.name
                ));
            }
            system.check_attach(&self.measure, &self.workload)?;
            if self.measure == Measure::Placement && system.driver != "thicket" {
                return Err(format!(
                    "system.driver of {}: measure.kind = \"placement\" asks nodes of thicket, not {}",
                    system.name, system.driver
                ));
            }
            if self.systems[..index]
                .iter()
                .any(|other| other.name == system.name)
            {
                return Err(format!("system.name: {} comes twice", system.name));
            }
        }
        self.brokers.check()?;
        let known = figures::names();
        let unknown = |(_, name): &(usize, &String)| !known.contains(&name.as_str());
        if let Some((number, name)) = self.report.iter().enumerate().find(unknown) {
            return Err(format!(
                "report.{number}: {name} is none of {}",
                known.join(", ")
            ));
        }
        let names = self.network.names()?;
        self.network.check(&names)?;
        Topology::new(&self.network, &names, 1)?;
        self.workload.check(&names, &self.measure)?;
        let keep_alive_s = f64::from(self.workload.keep_alive_s);
        if keep_alive_s > 0.0 && keep_alive_s <= self.phases.settle_s.value() {
            return Err(format!(
                "workload.keep_alive_s: {keep_alive_s} is not above phases.settle_s, in which clients are silent"
            ));
        }
        self.measure.check(&names, &self.network)?;
        match self.measure {
            Measure::Placement => self.check_placement()?,
            Measure::Crash { .. } => {
                self.workload.check_crash()?;
                if !self.faults.is_empty() {
                    return Err(
                        "fault: measure.kind = \"crash\" has one fault, that of measure.how"
                            .to_owned(),
                    );
                }
            }
            Measure::Load
            | Measure::Throughput { .. }
            | Measure::Connections { .. }
            | Measure::MostConnections { .. }
            | Measure::Arrivals { .. } => {}
        }
        if let Placement::Sites {
            publishers,
            subscribers,
        } = &self.workload.placement
            && let Some(site) = (publishers.names().iter())
                .chain(subscribers.names())
                .find(|site| self.network.later.contains(site))
        {
            return Err(format!(
                "workload.placement.sites: {site} has no broker at first"
            ));
        }
        for (number, fault) in self.faults.iter().enumerate() {
            fault.check(number, &names, &self.network)?;
            self.check_time_of(number, fault)?;
        }
        life::check(&self.faults, &names, &self.network.later)
    }

    /// The time line of a run, sorted: each fault with its repair, and the recurring ones at the times that the seed draws.
    #[must_use]
    pub fn time_line(&self, seed: u64) -> Vec<Fault> {
        let end_s = self.load_s().unwrap_or(0.0);
        let names = self.network.names().unwrap_or_default();
        let at_first = |name: &String| !self.network.later.contains(name);
        let sites: Vec<String> = names.into_iter().filter(at_first).collect();
        // Each fault has draws of its own: another one in the file does not move it.
        let entries = self.faults.iter().enumerate().flat_map(|(number, fault)| {
            let own = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            fault.entries(&sites, end_s, &mut Random::new(seed ^ own ^ FAULTS))
        });
        let mut line: Vec<Fault> = entries.collect();
        line.sort_by(|a, b| a.at_s.value().total_cmp(&b.at_s.value()));
        line
    }

    /// An error if a fault is due only after the load.
    fn check_time_of(&self, number: usize, fault: &Fault) -> Result<(), String> {
        let at_s = fault.at_s.value();
        if fault.every_s.is_some() && fault.until_s.is_none() && self.load_s().is_none() {
            return Err(format!(
                "fault.{number}.until_s: it is missing, as how long the load takes is not known"
            ));
        }
        match self.load_s() {
            Some(seconds) if at_s > seconds => Err(format!(
                "fault.{number}.at_s: {at_s} is after the end of the load, which takes {seconds} s"
            )),
            _ => Ok(()),
        }
    }

    /// Seconds from the first message to the last one; `None` where the brokers decide that.
    fn load_s(&self) -> Option<f64> {
        let workload = &self.workload;
        let own = match (workload.seconds, workload.messages, workload.rate_per_s) {
            (Some(seconds), ..) => Some(seconds.value()),
            (None, Some(messages), Some(rate)) => Some(messages as f64 / rate.value()),
            _ => None,
        };
        let own = own.map(|own| own + workload.warm_up_s.map_or(0.0, NonNegative::value));
        match &self.measure {
            Measure::Load | Measure::Placement => own,
            Measure::Arrivals {
                every_s, hold_s, ..
            } => {
                let publishers = self.measure.arriving(0, self.seed).unwrap_or_default();
                Some(publishers.len() as f64 * every_s.value() + hold_s.value())
            }
            Measure::Throughput { .. }
            | Measure::Connections { .. }
            | Measure::MostConnections { .. }
            | Measure::Crash { .. } => None,
        }
    }

    /// Checks the load of a measurement of placement.
    fn check_placement(&self) -> Result<(), String> {
        let workload = &self.workload;
        workload::placement_load(&workload.plan())?;
        let refuse = |key: &str, why: &str| {
            Err(format!(
                "workload.{key}: with measure.kind = placement, {why}"
            ))
        };
        if workload.placement != Placement::Random {
            return refuse(
                "placement",
                "sites of clients are drawn: expected \"random\"",
            );
        }
        if workload.rate_per_s.is_none() || workload.seconds.is_none() {
            return refuse("rate_per_s", "the load is rate_per_s for some seconds");
        }
        if workload.qos != 0 || workload.layers() != Layers::default() {
            return refuse("qos", "messages have QoS 0, without TLS and WebSocket");
        }
        if let Some(key) = workload.of_generator() {
            return refuse(key, "clients are those of the client library, without it");
        }
        if !self.network.later.is_empty() || !self.faults.is_empty() {
            return Err(
                "measure.kind = placement: no broker joins later, and nothing breaks".to_owned(),
            );
        }
        Ok(())
    }
}

/// The reason for a refusal, if it is an unknown key of the workload.
fn unknown_of_workload(text: &str, message: &str) -> Option<String> {
    let (key, _) = message.strip_prefix("unknown field `")?.split_once('`')?;
    let file: toml::Table = toml::from_str(text).ok()?;
    let workload = file.get("workload")?.as_table()?;
    // Only the workload has a pattern among its known keys.
    if !workload.contains_key(key) || !message.contains("`pattern`") {
        return None;
    }
    let pattern = workload.get("pattern").cloned();
    let pattern = pattern.and_then(|pattern| pattern.try_into().ok());
    Some(workload::unknown_key(key, pattern))
}

#[cfg(test)]
mod tests;
