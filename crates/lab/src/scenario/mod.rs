//! A scenario: one TOML file with what to build, what to run on it and what to vary.

mod delay;
mod explain;
mod fault;
mod lines;
mod measure;
mod network;
mod sweep;
mod units;
mod workload;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thicket_bench::random::Random;

pub use delay::{DelayLaw, Drawn, Law};
pub use fault::{Action, Fault, Reach};
pub(crate) use lines::with_line;
pub use measure::{
    CRASH_PER_S, Death, Measure, Order, Publishers, TOLERANCE_PER_S, TOLERANCE_PERCENT,
};
pub use network::{LinkOverride, LinkSettings, Network, Shape, check_built};
pub(crate) use sweep::in_cell;
pub use sweep::{Cell, Sweep};
pub use thicket_bench::workload::Pattern;
pub use units::{NonNegative, Percent, Positive, Signed};
pub use workload::{Layers, Placement, Reference, Sites, Spacing, Version, Workload, clients};

use crate::LabError;
use crate::measured::placement;
use crate::report;

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

/// Cores of the largest machine.
const MAX_CORES: usize = 1024;
/// Memory of the largest machine: 64 TiB.
const MAX_MEMORY_MIB: u64 = 64 << 20;

/// CPU and memory of one broker; absent means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Cores, as a quota of CPU time.
    pub cpus: Option<Positive>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Cores that brokers may use, such as `"0"` or `"0-1,3"`: one list for each site in turn.
    #[serde(default)]
    pub cores: Vec<String>,
}

impl Limits {
    /// The cores of the broker of a site, by number; `None`: all.
    #[must_use]
    pub fn cores_of(&self, site: usize) -> Option<Vec<usize>> {
        let list = self.cores.get(site.checked_rem(self.cores.len())?)?;
        numbers(list)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(mib) = self.memory_mib
            && !(1..=MAX_MEMORY_MIB).contains(&mib)
        {
            return Err(format!(
                "brokers.memory_mib: {mib} is not from 1 to {MAX_MEMORY_MIB}"
            ));
        }
        let wrong = |(_, list): &(usize, &String)| numbers(list).is_none();
        match self.cores.iter().enumerate().find(wrong) {
            Some((number, list)) => Err(format!(
                "brokers.cores.{number}: {list:?} is no list of cores such as \"0\" or \"0-1,3\""
            )),
            None => Ok(()),
        }
    }
}

/// The numbers in a list such as `0-1,3`; `None` if it is no such list.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More than that no kernel counts.
        if first > last || last >= MAX_CORES {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// A broker system: a driver with its settings.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// Its name in results.
    pub name: String,
    /// A built-in driver, or the path of a driver's file.
    pub driver: String,
    /// Settings of the driver, by name.
    #[serde(default)]
    pub settings: std::collections::BTreeMap<String, toml::Value>,
    /// Arguments added to the broker's command line.
    #[serde(default)]
    pub args: Vec<String>,
    /// The broker's program, if it is not where the driver looks.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// Brokers that run already, HOST:PORT each, one for each site (driver `external`).
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Their processes, if they run on this machine (driver `external`).
    #[serde(default)]
    pub pids: Vec<u32>,
    /// How arriving publishers (`measure.kind = "arrivals"`), or all clients (`"placement"`), find their broker.
    #[serde(default)]
    pub attach: Attach,
    /// Sessions that a placed client may have, 1 to 16.
    #[serde(default)]
    pub max_sessions: Option<usize>,
    /// How often a node refuses a learned client that has a better node.
    #[serde(default)]
    pub refusals: Option<u8>,
}

/// How clients find their broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attach {
    /// In turn, as DNS round robin answers.
    #[default]
    RoundRobin,
    /// The driver's dispatcher chooses it.
    Dispatcher,
    /// They connect to the first one, and follow redirections.
    Redirect,
    /// At the broker of their site, which is random.
    Random,
    /// Both clients of a pair at one broker, in turn.
    Local,
    /// They ask the node of their site for their placement.
    Placed,
    /// With MQTT 3.1.1, at random brokers; they are placed by what they did before.
    Learned,
}

impl Attach {
    /// The name in a scenario.
    const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Dispatcher => "dispatcher",
            Self::Redirect => "redirect",
            Self::Random => "random",
            Self::Local => "local",
            Self::Placed => "placed",
            Self::Learned => "learned",
        }
    }
}

/// Distinguishes the draws of faults from those of other things.
const FAULTS: u64 = 0x0066_6175_6C74_7321;
/// Default sessions of a placed client.
const SESSIONS: usize = 4;
/// Default refusals of a learned client.
const REFUSALS: u8 = 0;

impl System {
    /// A system of a driver with all defaults.
    #[must_use]
    pub fn of_driver(driver: &str) -> Self {
        Self {
            name: driver.to_owned(),
            driver: driver.to_owned(),
            settings: std::collections::BTreeMap::new(),
            args: Vec::new(),
            program: None,
            addresses: Vec::new(),
            pids: Vec::new(),
            attach: Attach::default(),
            max_sessions: None,
            refusals: None,
        }
    }

    /// Sessions that a placed client may have.
    #[must_use]
    pub fn max_sessions(&self) -> usize {
        self.max_sessions.unwrap_or(SESSIONS)
    }

    /// How often a node refuses a learned client.
    #[must_use]
    pub fn refusals(&self) -> u8 {
        self.refusals.unwrap_or(REFUSALS)
    }

    /// How its clients find their broker, in words; `None`: the default.
    #[must_use]
    pub fn describe_attach(&self) -> Option<String> {
        Some(match self.attach {
            Attach::RoundRobin => return None,
            Attach::Dispatcher => "a dispatcher sends clients to their broker".to_owned(),
            Attach::Redirect => "clients follow where brokers send them".to_owned(),
            Attach::Random => "clients stay at the broker of their site".to_owned(),
            Attach::Local => "both clients of a pair come to one broker".to_owned(),
            Attach::Placed => format!(
                "clients ask where to be, and have up to {} sessions",
                self.max_sessions()
            ),
            Attach::Learned => format!(
                "clients of MQTT 3.1.1 come back twice, refused up to {} times",
                self.refusals()
            ),
        })
    }

    /// Checks its keys in combination with the measurement.
    fn check_attach(&self, measure: &Measure, workload: &Workload) -> Result<(), String> {
        let name = &self.name;
        if let (Some(_), false) = (self.max_sessions, self.attach == Attach::Placed) {
            return Err(format!(
                "system.max_sessions of {name}: only attach = \"placed\" has several sessions"
            ));
        }
        if let (Some(_), false) = (self.refusals, self.attach == Attach::Learned) {
            return Err(format!(
                "system.refusals of {name}: only attach = \"learned\" is refused"
            ));
        }
        let sessions = self.max_sessions();
        if !(1..=16).contains(&sessions) {
            return Err(format!(
                "system.max_sessions of {name}: {sessions} is not from 1 to 16"
            ));
        }
        let expected = match (measure, self.attach) {
            (Measure::Placement, Attach::RoundRobin | Attach::Dispatcher) => {
                "random, local, placed, redirect or learned where placement is measured"
            }
            (Measure::Placement, Attach::Local) if workload.pattern != Pattern::Pair => {
                "another one: local is for the pattern pair"
            }
            (Measure::Placement, _) | (_, Attach::RoundRobin) => return Ok(()),
            (Measure::Arrivals { .. }, Attach::Dispatcher | Attach::Redirect) => return Ok(()),
            (Measure::Arrivals { .. }, _) => {
                "round-robin, dispatcher or redirect where publishers arrive"
            }
            _ => "no attach: it is for measure.kind = \"placement\" and \"arrivals\"",
        };
        Err(format!(
            "system.attach of {name}: {}, expected {expected}",
            self.attach.name()
        ))
    }
}

/// Lengths of the phases of a run, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Phases {
    /// Brokers without clients: their control traffic.
    pub control_s: NonNegative,
    /// Rest before the control phase, and after the last SUBACK as part of the phase of subscriptions.
    pub settle_s: NonNegative,
    /// Longest wait for messages in transit at the end.
    pub drain_s: NonNegative,
}

impl Default for Phases {
    fn default() -> Self {
        let seconds = |value| NonNegative::try_from(value).expect("not negative");
        Self {
            control_s: seconds(1.0),
            settle_s: seconds(1.0),
            drain_s: seconds(5.0),
        }
    }
}

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
        let known = report::drawn();
        let unknown = |(_, name): &(usize, &String)| !known.contains(&name.as_str());
        if let Some((number, name)) = self.report.iter().enumerate().find(unknown) {
            return Err(format!(
                "report.{number}: {name} is none of {}",
                known.join(", ")
            ));
        }
        let names = self.network.names()?;
        self.network.check(&names)?;
        self.workload.check(&names, &self.measure)?;
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
        Ok(())
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
            Measure::Throughput { .. } | Measure::Connections { .. } | Measure::Crash { .. } => {
                None
            }
        }
    }

    /// Checks the load of a measurement of placement.
    fn check_placement(&self) -> Result<(), String> {
        let workload = &self.workload;
        placement::load_of(&workload.plan())?;
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
