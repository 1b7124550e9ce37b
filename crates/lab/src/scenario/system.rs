//! A broker system of a scenario, and how its clients find their brokers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thicket_bench::placement::Attach as By;
use thicket_bench::workload::Pattern;

use super::measure::Measure;
use super::workload::Workload;

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
    pub settings: BTreeMap<String, toml::Value>,
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
            settings: BTreeMap::new(),
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

    /// How its clients find their nodes with the client library; `None`: they do without it.
    #[must_use]
    pub fn by(&self) -> Option<By> {
        match self.attach {
            Attach::Random => Some(By::Random),
            Attach::Local => Some(By::Local),
            Attach::Placed => Some(By::Placed {
                max_sessions: self.max_sessions(),
            }),
            Attach::Redirect => Some(By::Redirect),
            Attach::Learned => Some(By::Learned {
                refusals: self.refusals(),
            }),
            Attach::RoundRobin | Attach::Dispatcher => None,
        }
    }

    /// Checks its keys in combination with the measurement.
    pub(super) fn check_attach(
        &self,
        measure: &Measure,
        workload: &Workload,
    ) -> Result<(), String> {
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
