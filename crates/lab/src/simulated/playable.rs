//! The part of a scenario that can be played in virtual time: what is refused, with line and key, and which questions stay open.

use std::path::Path;

use thicket_node::Partition;
use thicket_simulation::spec::NodeSpec;

use crate::error::LabError;
use crate::scenario::{Cell, Limits, Measure, Scenario, System, with_line};

/// Bytes of number and time in a payload.
const FULL: usize = 16;

/// A scenario that can be played.
#[derive(Debug)]
pub struct Playable<'a> {
    pub(super) text: &'a str,
    pub(super) scenario: &'a Scenario,
    pub(super) cells: &'a [Cell],
    /// Questions of the scenario that virtual time does not answer, each with the reason.
    pub left_out: Vec<String>,
}

impl<'a> Playable<'a> {
    /// Refuses what cannot be played at all: brokers other than Thicket, and arguments for a program that is not started. Nothing is written.
    pub fn check(
        file: &Path,
        text: &'a str,
        scenario: &'a Scenario,
        cells: &'a [Cell],
    ) -> Result<Self, LabError> {
        let in_cells = cells.iter().flat_map(|cell| &cell.scenario.systems);
        let is_played =
            |system: &&System| (scenario.systems.iter()).any(|it| it.name == system.name);
        for system in scenario.systems.iter().chain(in_cells.filter(is_played)) {
            spec(system).map_err(|(key, why)| LabError::Scenario {
                file: file.to_owned(),
                reason: with_line(text, format!("{key} of {}: {why}", system.name)),
            })?;
        }
        let workloads = cells.iter().map(|cell| &cell.scenario.workload);
        let short = workloads.map(|it| it.payload_bytes).find(|it| *it < FULL);
        if let Some(bytes) = short {
            let why = format!(
                "workload.payload_bytes: {bytes} is below {FULL}: in virtual time every message has number and time"
            );
            return Err(LabError::Scenario {
                file: file.to_owned(),
                reason: with_line(text, why),
            });
        }
        Ok(Self {
            text,
            scenario,
            cells,
            left_out: left_out(scenario, cells),
        })
    }
}

/// The configuration of a system's nodes; an error is the key and the reason.
pub(super) fn spec(system: &System) -> Result<NodeSpec, (String, String)> {
    let refuse = |key: &str, why: String| Err((format!("system.{key}"), why));
    if system.driver != "thicket" {
        let why = format!(
            "the simulated back end plays thicket, not {}; --only names the systems to play",
            system.driver
        );
        return refuse("driver", why);
    }
    if let Some(program) = &system.program {
        let why = format!(
            "the simulated back end has the nodes of this program, and does not start {}",
            program.display()
        );
        return refuse("program", why);
    }
    let mut spec = NodeSpec::new(1);
    for pair in system.args.chunks(2) {
        let is_known = match pair {
            [flag, value] if flag == "--backups" => match value.parse() {
                Ok(count @ 0..=3) => {
                    spec.backups = count;
                    true
                }
                _ => false,
            },
            [flag, value] if flag == "--partition" => match value.as_str() {
                "serve" | "majority" | "majority-without-data" => {
                    let serves = value == "serve";
                    spec.partition = if serves {
                        Partition::Serve
                    } else {
                        Partition::Majority
                    };
                    true
                }
                _ => false,
            },
            _ => false,
        };
        if !is_known {
            let why = format!(
                "the simulated back end starts no program: of arguments it knows --backups 0 to 3 and --partition serve|majority|majority-without-data, not {}",
                pair.join(" ")
            );
            return refuse("args", why);
        }
    }
    for (name, value) in &system.settings {
        let key = format!("settings.{name}");
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        match name.as_str() {
            "routing" => match text.parse() {
                Ok(mode) => spec.routing = mode,
                Err(error) => return refuse(&key, format!("{error}")),
            },
            "root_policy" => match text.parse() {
                Ok(policy) => spec.root_policy = policy,
                Err(error) => return refuse(&key, format!("{error}")),
            },
            "workers" => match text.parse() {
                Ok(count @ 1..=64) => spec.workers = count,
                _ => return refuse(&key, format!("{text} is not from 1 to 64")),
            },
            "log_level" => {}
            _ => {
                let known = "routing, root_policy, workers and log_level";
                return refuse(&key, format!("the simulated back end knows {known}"));
            }
        }
    }
    Ok(spec)
}

/// The open questions, each once.
fn left_out(scenario: &Scenario, cells: &[Cell]) -> Vec<String> {
    let mut all = vec![
        "CPU and memory of brokers: processors are infinitely fast, and nothing limits memory"
            .to_owned(),
    ];
    let mut add = |what: String| {
        if !all.contains(&what) {
            all.push(what);
        }
    };
    for scenario in cells.iter().map(|cell| &cell.scenario).chain([scenario]) {
        if scenario.brokers != Limits::default() {
            add("brokers: limits of CPU and memory limit nothing".to_owned());
        }
        let settings = scenario.network.links.iter().map(|link| &link.settings);
        let mut settings = std::iter::once(&scenario.network.link).chain(settings);
        if settings.any(|settings| settings.queue_packets.is_some()) {
            add(
                "queue_packets of links: what a full queue would lose waits in it, as TCP sends it again"
                    .to_owned(),
            );
        }
        match scenario.measure {
            Measure::Throughput { .. } => add(
                "measure.kind = throughput: the highest rate is a question about CPU, so nothing is published".to_owned(),
            ),
            Measure::MostConnections { .. } => add(
                "measure.kind = most-connections: how many there can be is a question about CPU and memory, so nothing is published".to_owned(),
            ),
            Measure::Connections { .. } => add(
                "measure.kind = connections: how fast connections come and what memory they take".to_owned(),
            ),
            Measure::Placement => add(
                "measure.kind = placement: its clients are those of the client library, which is not simulated, so nothing is published"
                    .to_owned(),
            ),
            Measure::Arrivals { .. } => add(
                "measure.kind = arrivals: where clients are sent follows CPU, so nothing is published".to_owned(),
            ),
            Measure::Load | Measure::Crash { .. } => {}
        }
        if scenario.workload.user.is_some() {
            add("workload.user: nodes ask nobody for a password, so clients have none".to_owned());
        }
        if scenario.workload.tls {
            add(
                "workload.tls: what TLS costs is a question about CPU, so clients have none"
                    .to_owned(),
            );
        }
        if scenario.workload.websocket {
            add(
                "workload.websocket: clients have no WebSocket, whose cost is a question about CPU"
                    .to_owned(),
            );
        }
        if scenario
            .faults
            .iter()
            .any(|it| it.when_cpu_percent.is_some())
        {
            add(
                "fault.when_cpu_percent: no broker uses CPU, so such a fault happens at its at_s"
                    .to_owned(),
            );
        }
    }
    all
}
