//! An experiment: every cell on every system, as often as the scenario requires, phase by phase.
//!
//! A repeat builds the network again, and every system starts again on it; cells that differ only in load share the running brokers. So repeats are
//! independent of each other. The load generator runs in its own thread and the time line of faults in the caller's, as brokers die with the thread
//! that starts them. `cell` is one run; this file decides which runs there are, on which networks and brokers, and whether each is valid.

mod cell;

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thicket_bench::generator::Node;

use crate::cluster::Cluster;
use crate::driver::{Brokers, Driver};
use crate::environment::environment;
use crate::error::LabError;
use crate::links::Backend;
use crate::measured::Measured;
use crate::pressure::Machine;
use crate::probe::{self, PairRtt};
use crate::results::{Environment, Results, Run};
use crate::runs;
use crate::scenario::{Cell, Layers, Measure, Reach, Scenario, System};
use crate::testbed::{Setup, Testbed, rest};
use crate::topology::Topology;

/// Probes of each pair before a run.
const PROBES: usize = 15;
/// Share of frames that may be a millisecond late.
const LATE_SHARE: f64 = 0.01;
/// The 99 % quantile of the normal distribution.
const NORMAL_99: f64 = 2.326;
/// The reason in results that are not complete yet.
pub(crate) const UNFINISHED: &str = "the lab has not finished";
/// How far clients may be behind their schedule.
const MAX_BEHIND_MS: f64 = 100.0;
/// The part of a mean delay that may be how far clients were behind their schedule on average, and
/// a time that is too short to matter.
const BEHIND_SHARE: f64 = 0.1;
const BEHIND_MS: f64 = 0.1;

/// Frames of a run that may be late: the share, and what chance adds to it in a short run (99 % of runs whose share is just that have fewer).
fn may_be_late(frames: u64) -> f64 {
    let expected = LATE_SHARE * frames as f64;
    expected + NORMAL_99 * expected.sqrt() + 1.0
}

/// Why a mean delay is not that of the brokers: too much of it is how far the clients were behind
/// their schedule.
fn behind_on_average(metrics: &BTreeMap<String, f64>) -> Option<String> {
    // A search goes to the limit of the clients, and says where it is.
    if metrics.keys().any(|name| name.starts_with("sustainable_")) {
        return None;
    }
    let behind_ms = *metrics.get("generator_behind_mean_ms")?;
    let delay_ms = *metrics.get("delay_mean_ms")?;
    (behind_ms > BEHIND_MS && behind_ms > BEHIND_SHARE * delay_ms).then(|| {
        format!(
            "the clients were {behind_ms:.2} ms behind their schedule on average, {:.0} % of the mean delay of {delay_ms:.2} ms",
            100.0 * behind_ms / delay_ms
        )
    })
}

/// The figures in the line about a run, if they exist.
const SHOWN: [(&str, &str); 5] = [
    ("sustainable_msgs_per_s", "messages/s sustainable"),
    ("connects_per_s", "connects/s"),
    ("difference_msgs_per_s", "messages/s between the brokers"),
    ("delay_mean_ms", "ms"),
    ("lost_messages", "lost"),
];

/// How to run an experiment.
#[allow(missing_debug_implementations, reason = "it holds a function")]
pub struct Options<'a> {
    /// Our own program.
    pub program: &'a Path,
    /// The commit that it was built from, if that is known; part of the results.
    pub commit: Option<&'a str>,
    /// Back end of the links.
    pub backend: Backend,
    /// The folder for results; it must exist.
    pub folder: &'a Path,
    /// Set when the user interrupts the run.
    pub interrupted: &'a Arc<AtomicBool>,
    /// Called with a line about every run.
    pub say: &'a dyn Fn(&str),
}

/// A network with the round trips that were measured in it.
struct Built {
    testbed: Testbed,
    pairs: Vec<PairRtt>,
}

/// Cells of one network in which a system runs, in one repeat.
#[derive(Clone, Copy)]
struct Part<'a> {
    repeat: u64,
    cells: &'a [usize],
    system: &'a System,
}

/// The state of a running experiment.
struct Bench<'a> {
    options: &'a Options<'a>,
    text: &'a str,
    facts: Environment,
    scenario: &'a Scenario,
    cells: &'a [Cell],
    drivers: Vec<Driver>,
    runs: Vec<Run>,
    started: Instant,
}

/// Runs all of a scenario. The result contains what was measured, also if it ended early.
pub fn run(
    text: &str,
    scenario: &Scenario,
    cells: &[Cell],
    options: &Options<'_>,
) -> Result<Results, LabError> {
    let drivers: Result<Vec<Driver>, LabError> =
        scenario.systems.iter().map(Driver::load).collect();
    let drivers = drivers?;
    let builds = |driver: &Driver| driver.brokers != Brokers::External;
    let backend = drivers.iter().any(builds).then_some(options.backend);
    let mut facts = environment(scenario, backend, options.commit);
    facts.links_first = backend.is_some();
    for (system, driver) in scenario.systems.iter().zip(&drivers) {
        let program = driver.find(system, options.program)?;
        facts.brokers.insert(
            system.name.clone(),
            driver.find_version(&system.driver, &program),
        );
    }
    let mut bench = Bench {
        options,
        text,
        facts,
        scenario,
        cells,
        drivers,
        runs: Vec::new(),
        started: Instant::now(),
    };
    let ended_early = bench.all().err().map(|error| match error {
        LabError::Interrupted => runs::interrupted(&bench.runs, runs::total(scenario, cells)),
        error => error.to_string(),
    });
    let results = Results::of(scenario, text, bench.facts, bench.runs, ended_early);
    results.save(options.folder)?;
    Ok(results)
}

impl Bench<'_> {
    fn all(&mut self) -> Result<(), LabError> {
        let groups = groups(self.cells);
        for repeat in 1..=self.scenario.repeats {
            for group in &groups {
                self.group(repeat, group)?;
            }
        }
        Ok(())
    }

    /// Cells on one network.
    fn group(&mut self, repeat: u64, cells: &[usize]) -> Result<(), LabError> {
        let scenario = &self.cells[cells[0]].scenario;
        let names = scenario.network.names().map_err(LabError::Machine)?;
        let topology = Topology::of_repeat(&scenario.network, &names, scenario.seed, repeat)
            .map_err(LabError::Machine)?;
        let systems: Vec<(System, Driver)> = (self.scenario.systems.iter())
            .map(|system| self.system_in(cells[0], system))
            .zip(self.drivers.clone())
            .collect();
        let is_external = |driver: &Driver| driver.brokers == Brokers::External;
        for (system, driver) in systems.iter().filter(|(_, driver)| is_external(driver)) {
            let part = Part {
                repeat,
                cells,
                system,
            };
            self.external(part, driver)?;
        }
        if systems.iter().all(|(_, driver)| is_external(driver)) {
            return Ok(());
        }
        let groups: Vec<SocketAddrV4> = systems
            .iter()
            .flat_map(|(_, driver)| driver.multicast.clone())
            .collect();
        let setup = Setup {
            program: self.options.program,
            topology,
            limits: scenario.brokers.clone(),
            groups: unique(groups),
            backend: self.options.backend,
            seed: scenario.seed,
            interrupted: self.options.interrupted,
        };
        let mut network = None;
        for (system, driver) in systems.iter().filter(|(_, driver)| !is_external(driver)) {
            let mut left = cells;
            while !left.is_empty() {
                let mut built: Built = match network.take() {
                    Some(network) => network,
                    None => self.build(&setup)?,
                };
                let part = Part {
                    repeat,
                    cells: left,
                    system,
                };
                let done = self.system(part, driver, &mut built)?;
                left = &left[done..];
                // What is left of a network without its link process is removed before the next one is built.
                network = built.testbed.links.is_up().then_some(built);
            }
        }
        Ok(())
    }

    /// A network with its round trips.
    fn build(&mut self, setup: &Setup<'_>) -> Result<Built, LabError> {
        let testbed = Testbed::up(setup)?;
        self.facts.links_first &= testbed.links.realtime;
        let goes_on = || self.check_interrupted();
        let pairs = probe::round_trips(&testbed.topology, &testbed.sites, PROBES, &goes_on)?;
        Ok(Built { testbed, pairs })
    }

    /// A system as it is in a cell.
    fn system_in(&self, cell: usize, system: &System) -> System {
        let mut systems = self.cells[cell].scenario.systems.iter();
        let found = systems.find(|own| own.name == system.name);
        found.unwrap_or(system).clone()
    }

    /// A system's cells on one network. Returns how many of them have their run now: fewer than all if a broker or the link process has ended, so that the
    /// next one does not suffer from it.
    fn system(
        &mut self,
        part: Part<'_>,
        driver: &Driver,
        built: &mut Built,
    ) -> Result<usize, LabError> {
        let Part {
            repeat,
            cells,
            system,
        } = part;
        self.check_interrupted()?;
        let folder = self.folder(
            "brokers",
            &format!("{}-c{}-r{repeat}", system.name, cells[0]),
        )?;
        built.testbed.renew_groups()?;
        let started = Cluster::start(
            &built.testbed,
            driver,
            &self.with_arguments(system, cells[0]),
            self.options.program,
            &folder,
            self.layers(),
            self.reach(),
        );
        let mut cluster = match started {
            Ok(cluster) => cluster,
            Err(error) => {
                self.check_interrupted()?;
                for &cell in cells {
                    let run = self.empty(repeat, cell, system);
                    self.push(Run {
                        valid: false,
                        invalid: vec![error.to_string()],
                        ..run
                    })?;
                }
                return Ok(cells.len());
            }
        };
        let done = self.cells_of(part, built, &mut cluster);
        if self.is_interrupted() {
            cluster.kill_all(&built.testbed);
        }
        cluster.stop(&built.testbed);
        done
    }

    fn cells_of(
        &mut self,
        part: Part<'_>,
        built: &mut Built,
        cluster: &mut Cluster,
    ) -> Result<usize, LabError> {
        let Built { testbed, pairs } = built;
        let repeat = part.repeat;
        for (number, &cell) in part.cells.iter().enumerate() {
            self.check_interrupted()?;
            let mut run = self.empty(repeat, cell, part.system);
            for pair in pairs.iter().filter(|pair| !pair.is_right()) {
                run.invalid.push(pair.describe());
            }
            // Discards the report on the links for the time before this run.
            let _ = testbed.links.report();
            let before = Machine::look();
            let measured = self.cell(cell, repeat, &mut run, Some((testbed, cluster)), &[], &[]);
            run.metrics.extend(Machine::look().since(&before));
            let ended = cluster.unexpected_ends(testbed);
            let is_whole = ended.is_empty();
            run.invalid.extend(ended);
            match testbed.links.report() {
                Ok(punctual) if punctual.longest_stall_ms > MAX_BEHIND_MS => {
                    run.invalid.push(format!(
                        "the link process woke up {:.0} ms late",
                        punctual.longest_stall_ms
                    ));
                }
                Ok(punctual) if punctual.late as f64 > may_be_late(punctual.frames) => {
                    run.invalid.push(format!(
                        "the link process was late with {} of {} frames by 1 ms or more",
                        punctual.late, punctual.frames
                    ));
                }
                Ok(_) => {}
                Err(error) => run.invalid.push(error.to_string()),
            }
            self.keep(run, measured)?;
            if !is_whole || !testbed.links.is_up() {
                return Ok(number + 1);
            }
        }
        Ok(part.cells.len())
    }

    /// The system, with arguments for its nodes on the placement of clients if that is measured.
    fn with_arguments(&self, system: &System, cell: usize) -> System {
        let mut system = system.clone();
        if self.cells[cell].scenario.measure == Measure::Placement
            && let Some(by) = system.by()
        {
            system.args.extend(by.arguments());
        }
        system
    }

    fn external(&mut self, part: Part<'_>, driver: &Driver) -> Result<(), LabError> {
        let Part {
            repeat,
            cells,
            system,
        } = part;
        let nodes: Result<Vec<Node>, _> = system
            .addresses
            .iter()
            .map(|text| Node::resolve(text))
            .collect();
        let nodes = nodes?;
        let login = self.cells[cells[0]].scenario.workload.login();
        let patience = Duration::from_secs(driver.patience_s);
        let pause = |time| rest(self.options.interrupted, time);
        crate::cluster::wait_connected(&nodes, patience, login.as_ref(), &pause)?;
        for &cell in cells {
            self.check_interrupted()?;
            let mut run = self.empty(repeat, cell, system);
            let measured = self.cell(cell, repeat, &mut run, None, &nodes, &system.pids);
            self.keep(run, measured)?;
        }
        Ok(())
    }

    /// Adds a run with its result. Only an interruption ends the experiment.
    fn keep(&mut self, mut run: Run, measured: Result<Measured, LabError>) -> Result<(), LabError> {
        if measured.is_err() && self.is_interrupted() {
            // Brokers killed by the interruption cause all kinds of errors.
            run.cut_short();
            self.push(run)?;
            return Err(LabError::Interrupted);
        }
        match measured {
            Ok(measured) => {
                if measured.behind_ms > MAX_BEHIND_MS {
                    run.invalid.push(format!(
                        "the clients were {:.0} ms behind their schedule",
                        measured.behind_ms
                    ));
                }
                run.invalid.extend(behind_on_average(&measured.metrics));
                run.warnings.extend(measured.warnings);
            }
            Err(error) => run.invalid.push(error.to_string()),
        }
        // A link process that has ended is noticed in several places.
        let mut seen = HashSet::new();
        run.invalid.retain(|reason| seen.insert(reason.clone()));
        run.valid = run.invalid.is_empty();
        self.push(run)
    }

    /// Adds a run, and writes the results so far: a lab that is killed leaves them.
    fn push(&mut self, run: Run) -> Result<(), LabError> {
        let total = runs::total(self.scenario, self.cells);
        let line = run.line(&SHOWN);
        self.runs.push(run);
        let done = self.runs.len() as f64;
        let left = self.started.elapsed().as_secs_f64() / done * (total as f64 - done);
        (self.options.say)(&format!("[{done}/{total}, {left:.0} s left] {line}"));
        let so_far = Results::of(
            self.scenario,
            self.text,
            self.facts.clone(),
            self.runs.clone(),
            Some(UNFINISHED.to_owned()),
        );
        so_far.save(self.options.folder)
    }

    /// What clients have over TCP in any cell: cells that differ only in load share running brokers.
    fn layers(&self) -> Layers {
        let each = self
            .cells
            .iter()
            .map(|cell| cell.scenario.workload.layers());
        each.fold(Layers::default(), Layers::or)
    }

    /// What faults of any cell reach.
    fn reach(&self) -> Reach {
        let each = (self.cells.iter()).map(|cell| Reach::of(&cell.scenario.faults));
        each.fold(Reach::default(), Reach::or)
    }

    fn empty(&self, repeat: u64, cell: usize, system: &System) -> Run {
        Run::begin(&self.cells[cell], system, repeat)
    }

    fn folder(&self, kind: &str, name: &str) -> Result<PathBuf, LabError> {
        let folder = self.options.folder.join(kind).join(name);
        std::fs::create_dir_all(&folder).map_err(LabError::io(folder.display()))?;
        Ok(folder)
    }

    fn is_interrupted(&self) -> bool {
        self.options.interrupted.load(Ordering::Relaxed)
    }

    fn check_interrupted(&self) -> Result<(), LabError> {
        if self.is_interrupted() {
            return Err(LabError::Interrupted);
        }
        Ok(())
    }

    /// Waits, unless it is interrupted.
    fn rest(&self, seconds: f64) -> Result<(), LabError> {
        rest(self.options.interrupted, Duration::from_secs_f64(seconds))
    }
}

/// Cells by network: adjacent ones that differ only in load.
fn groups(cells: &[Cell]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let same = |other: &Vec<usize>| {
            let other = &cells[other[0]].scenario;
            other.network == cell.scenario.network
                && other.brokers == cell.scenario.brokers
                && other.seed == cell.scenario.seed
                && other.systems == cell.scenario.systems
        };
        match groups.iter_mut().find(|group| same(group)) {
            // Faults leave brokers in a state that is not suitable for another cell.
            Some(group) if leaves_no_trace(&cell.scenario) => group.push(index),
            _ => groups.push(vec![index]),
        }
    }
    groups
}

/// Whether brokers are in the same state after a run as before it.
fn leaves_no_trace(scenario: &Scenario) -> bool {
    // Sessions of subscribers outlive a run.
    let leaves_sessions = scenario.workload.persistent;
    !leaves_sessions
        && scenario.faults.is_empty()
        && !matches!(scenario.measure, Measure::Crash { .. } | Measure::Placement)
}

fn unique(mut groups: Vec<SocketAddrV4>) -> Vec<SocketAddrV4> {
    groups.sort_unstable();
    groups.dedup();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_frame_or_two_do_not_spoil_a_short_run() {
        for (frames, most) in [(20, 2.0), (100, 4.0), (1000, 18.0), (1_000_000, 10_233.0)] {
            assert_eq!(may_be_late(frames).floor(), most, "{frames}");
        }
    }

    #[test]
    fn clients_that_are_behind_on_average_make_no_mean_delay() {
        let with = |behind: f64, delay: f64, more: &str| {
            let figures = [
                ("generator_behind_mean_ms", behind),
                ("delay_mean_ms", delay),
                (more, 1.0),
            ];
            behind_on_average(&figures.map(|(name, value)| (name.to_owned(), value)).into())
        };
        let reason = with(60.0, 73.9, "x").expect("a reason");
        assert!(
            reason.contains("81 % of the mean delay of 73.90 ms"),
            "{reason}"
        );
        assert_eq!(with(0.5, 12.0, "x"), None, "4 %");
        assert_eq!(with(0.05, 0.2, "x"), None, "too short to matter");
        assert_eq!(with(60.0, 73.9, "sustainable_msgs_per_s"), None, "a search");
    }

    #[test]
    fn cells_that_differ_in_load_only_share_a_network() {
        let text = r#"
title = "t"
network = { sites = 2 }
system = [{ name = "a", driver = "thicket" }]
workload = { pattern = "fan-out", rate_per_s = 1, messages = 1 }
[[sweep]]
key = "workload.qos"
values = [0, 1]
[[sweep]]
key = "network.link.rtt_ms"
values = [5, 50]
"#;
        let (_, cells) = Scenario::parse(text).unwrap();
        assert_eq!(groups(&cells), [vec![0, 2], vec![1, 3]]);
    }
}
