//! An experiment: every cell on every system, as often as the scenario requires, phase by phase.
//!
//! A repeat builds the network again, and every system starts again on it; cells that differ only in load share the running brokers. So repeats are
//! independent of each other. The load generator runs in its own thread and the time line of faults in the caller's, as brokers die with the thread
//! that starts them.

use std::collections::HashSet;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use thicket_bench::Layering;
use thicket_bench::generator::{Fleet, Node};
use thicket_bench::process;
use thicket_transport::tls::ClientTls;

use crate::cluster::{Cluster, repaired_max_s};
use crate::driver::{Brokers, Driver};
use crate::environment::environment;
use crate::error::LabError;
use crate::faults;
use crate::limits::Use;
use crate::links::Backend;
use crate::measured::{Measured, measure};
use crate::probe::{self, PairRtt};
use crate::results::{self, BrokerUse, Environment, LinkTraffic, Phase, Results, Run};
use crate::runs::{self, Files};
use crate::scenario::{Cell, Layers, Measure, Reach, Scenario, System, clients};
use crate::testbed::{Carried, Setup, Testbed, rest};
use crate::topology::Topology;

/// Probes of each pair before a run.
const PROBES: usize = 15;
/// Share of frames that may be a millisecond late.
const LATE_SHARE: f64 = 0.01;
/// The 99 % quantile of the normal distribution.
const NORMAL_99: f64 = 2.326;
/// The path of WebSocket at all brokers.
const WEBSOCKET_PATH: &str = "/mqtt";
/// Results that are not whole yet say this.
pub(crate) const UNFINISHED: &str = "the lab did not come to its end";
/// How far clients may be behind their schedule.
const MAX_BEHIND_MS: f64 = 100.0;

/// Frames of a run that may be late: the share, and what chance adds to it in a short run (99 % of runs whose share is just that have fewer).
fn may_be_late(frames: u64) -> f64 {
    let expected = LATE_SHARE * frames as f64;
    expected + NORMAL_99 * expected.sqrt() + 1.0
}

/// The figures in the line about a run, if they exist.
const TOLD: [(&str, &str); 5] = [
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

/// The brokers' addresses for clients, with the port for what these have over TCP.
fn of_layers(mut nodes: Vec<Node>, layers: Layers) -> Vec<Node> {
    for node in &mut nodes {
        node.address.set_port(layers.port());
    }
    nodes
}

/// Clients accept any certificate.
fn layering(layers: Layers) -> Result<Layering, LabError> {
    let tls = ClientTls {
        insecure: true,
        ..ClientTls::default()
    };
    let refused = |error| LabError::Machine(format!("TLS: {error}"));
    Ok(Layering {
        tls: layers
            .tls
            .then(|| tls.load())
            .transpose()
            .map_err(refused)?,
        websocket: layers.websocket.then(|| WEBSOCKET_PATH.to_owned()),
    })
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
    let mut facts = environment(scenario, options.backend, options.commit);
    facts.links_first = true;
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
        let topology =
            Topology::new(&scenario.network, &names, scenario.seed).map_err(LabError::Machine)?;
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
        let pairs = probe::round_trips(&testbed.topology, &testbed.sites, PROBES)?;
        Ok(Built { testbed, pairs })
    }

    /// A system as it is in a cell.
    fn system_in(&self, cell: usize, system: &System) -> System {
        let mut systems = self.cells[cell].scenario.systems.iter();
        let found = systems.find(|own| own.name == system.name);
        found.unwrap_or(system).clone()
    }

    /// A system's cells on one network. Returns how many of them have their run now: fewer than all if the link process has ended.
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
            let measured = self.cell(cell, repeat, &mut run, Some((testbed, cluster)), &[], &[]);
            let ended = cluster.unexpected_ends(testbed).into_iter();
            run.invalid.extend(ended);
            match testbed.links.report() {
                Ok(punctual) if punctual.longest_stall_ms > MAX_BEHIND_MS => {
                    run.invalid.push(format!(
                        "the link process stood still for {:.0} ms",
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
            if !testbed.links.is_up() {
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

    /// One run: its phases, with all counters read between them.
    fn cell(
        &self,
        cell: usize,
        repeat: u64,
        run: &mut Run,
        mut lab: Option<(&mut Testbed, &mut Cluster)>,
        nodes: &[Node],
        pids: &[u32],
    ) -> Result<Measured, LabError> {
        let scenario = &self.cells[cell].scenario;
        let names = scenario.network.names().map_err(LabError::Machine)?;
        let nodes = lab
            .as_ref()
            .map_or_else(|| nodes.to_vec(), |(_, cluster)| cluster.nodes.clone());
        let look = |lab: &Option<(&mut Testbed, &mut Cluster)>| {
            Look::take(lab.as_ref().map(|(testbed, _)| &**testbed), pids)
        };
        // Traffic of forming the cluster, or of removing the clients of the previous run, is not control traffic.
        self.rest(scenario.phases.settle_s.value())?;
        let start = look(&lab)?;
        self.rest(scenario.phases.control_s.value())?;
        let idle = look(&lab)?;
        run.phases
            .push(idle.since(&start, "control", &names, lab.as_ref()));
        let seed = scenario.seed + repeat;
        let prefix = format!("l{}-{}-{cell}-{repeat}", std::process::id(), run.system);
        let layers = scenario.workload.layers();
        let nodes = if lab.is_some() {
            of_layers(nodes, layers)
        } else {
            nodes
        };
        let mut clients = clients(scenario, &names, &nodes, &prefix, seed);
        clients.layering = layering(layers)?;
        let entrance = lab
            .as_ref()
            .map(|(testbed, cluster)| cluster.entrance(testbed));
        let connects = matches!(scenario.measure, Measure::Load | Measure::Throughput { .. });
        let (mut generator, mut subscribed) = (None, idle);
        if connects {
            let threads = scenario.workload.threads();
            generator = Some(Fleet::connect(clients.clone(), threads)?);
            let now = look(&lab)?;
            run.phases
                .push(now.since(&subscribed, "subscriptions", &names, lab.as_ref()));
            subscribed = now;
        }
        let own_counters = |lab: &Option<(&mut Testbed, &mut Cluster)>| {
            lab.as_ref().map_or([None; 2], |(testbed, cluster)| {
                cluster.sent_on_links(testbed)
            })
        };
        let own_before = own_counters(&lab);
        let repairs = |lab: &Option<(&mut Testbed, &mut Cluster)>| {
            lab.as_ref()
                .map_or_else(Vec::new, |(testbed, cluster)| cluster.repairs(testbed))
        };
        let repairs_before = repairs(&lab);
        let converged_s =
            (lab.as_ref()).and_then(|(testbed, cluster)| cluster.converged_max_s(testbed));
        let done = AtomicBool::new(false);
        let (orders, wanted) = channel();
        let measured = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let measured = measure(scenario, generator, clients, entrance, orders);
                done.store(true, Ordering::Relaxed);
                measured
            });
            let mut followed = faults::Followed::default();
            if let Some((testbed, cluster)) = &mut lab {
                let stop = || done.load(Ordering::Relaxed);
                let interrupted = || self.is_interrupted();
                let mut line = faults::TimeLine {
                    faults: &scenario.time_line(seed),
                    testbed,
                    cluster,
                    orders: &wanted,
                    stop: &stop,
                    interrupted: &interrupted,
                };
                followed = line.follow();
            }
            drop(wanted);
            run.faults = followed.done;
            run.warnings = followed.missed;
            let error = followed.error.map(|error| error.to_string());
            run.invalid.extend(error);
            let mut measured = worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            if let (Some((_, cluster)), Some(usage)) = (&lab, &followed.usage)
                && !scenario.faults.is_empty()
            {
                let sites = names.iter().enumerate();
                let sites =
                    sites.map(|(site, name)| cluster.has_broker(site).then(|| name.clone()));
                // It has brokers that joined too.
                let plot = usage.plot(&sites.collect::<Vec<_>>(), &run.faults);
                measured.cpu = plot.or(measured.cpu);
            }
            if let Some(longest_s) = followed.joined_s.into_iter().reduce(f64::max) {
                measured.metrics.insert("join_s".to_owned(), longest_s);
            }
            Ok::<_, LabError>(measured)
        })?;
        let is_cut = self.is_interrupted();
        if is_cut || measured.error.is_some() {
            keep_files(run, self.options.folder, cell, &measured)?;
            return match measured.error {
                Some(error) => Err(error),
                None => Err(LabError::Interrupted),
            };
        }
        let published = look(&lab)?;
        run.phases
            .push(published.since(&subscribed, "publish", &names, lab.as_ref()));
        run.metrics = measured.metrics.clone();
        run.metrics.extend(results::phases_metrics(&run.phases));
        let own = own_before.into_iter().zip(own_counters(&lab));
        for (name, (before, after)) in results::OWN_COUNTERS.into_iter().zip(own) {
            if let (Some(before), Some(after)) = (before, after) {
                let sent = after.saturating_sub(before) as f64;
                run.metrics.insert(name.to_owned(), sent);
            }
        }
        if let Measure::Connections { count, .. } = scenario.measure {
            let memory = |phase: &Phase| {
                let all = phase.brokers.iter().map(|it| it.memory_kib);
                all.sum::<Option<u64>>()
            };
            if let (Some(before), Some(after)) = (memory(&run.phases[0]), memory(&run.phases[1])) {
                let bytes = 1024.0 * (after as f64 - before as f64) / count as f64;
                run.metrics
                    .insert("memory_bytes_per_connection".to_owned(), bytes);
            }
        }
        if let Some((testbed, cluster)) = &mut lab {
            run.metrics
                .insert("cluster_formed_s".to_owned(), cluster.formed_s);
            if let Some(start_s) = cluster.mean_start_s() {
                run.metrics.insert("broker_start_s".to_owned(), start_s);
            }
            for (name, seconds) in [
                ("converged_max_s", converged_s),
                (
                    "repaired_max_s",
                    repaired_max_s(&repairs_before, &cluster.repairs(testbed)),
                ),
            ] {
                if let Some(seconds) = seconds {
                    run.metrics.insert(name.to_owned(), seconds);
                }
            }
            let all: Vec<usize> = (0..testbed.topology.links.len()).collect();
            if !run.faults.is_empty()
                && let Err(error) = testbed.links.heal(&all)
            {
                run.invalid.push(error.to_string());
            }
        }
        // The measurement is complete here: an interruption does not touch it any more.
        keep_files(run, self.options.folder, cell, &measured)?;
        Ok(measured)
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
                        "the clients were {:.0} ms behind their schedule: the machine stood still",
                        measured.behind_ms
                    ));
                }
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
        let line = run.line(&TOLD);
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

/// Writes what was measured beside the results.
fn keep_files(
    run: &mut Run,
    folder: &Path,
    cell: usize,
    measured: &Measured,
) -> Result<(), LabError> {
    let time_line = measured.time_line().map(|chart| chart.to_svg());
    let files = Files {
        samples: measured.samples.as_deref(),
        acknowledgements: measured.acknowledgements.as_deref(),
        time_line: time_line.as_deref(),
    };
    run.keep(folder, cell, files)
}

/// All counters at one time.
struct Look {
    at: Instant,
    carried: Vec<Carried>,
    used: Vec<Use>,
    by_pid: Vec<(process::CpuReading, u64)>,
}

impl Look {
    fn take(testbed: Option<&Testbed>, pids: &[u32]) -> Result<Self, LabError> {
        let pid = |&pid: &u32| {
            let memory = process::memory(pid).unwrap_or_default();
            process::cpu(pid)
                .map(|cpu| (cpu, memory.pss_kib))
                .map_err(LabError::io(format!("process {pid}")))
        };
        Ok(Self {
            at: Instant::now(),
            carried: testbed.map_or(Ok(Vec::new()), Testbed::carried)?,
            used: testbed.map_or(Vec::new(), Testbed::used),
            by_pid: pids.iter().map(pid).collect::<Result<_, _>>()?,
        })
    }

    fn since(
        &self,
        before: &Self,
        name: &str,
        names: &[String],
        lab: Option<&(&mut Testbed, &mut Cluster)>,
    ) -> Phase {
        let links = lab.map_or(&[][..], |(testbed, _)| &testbed.topology.links);
        let traffic = links.iter().zip(self.carried.iter().zip(&before.carried));
        let by_group = self.used.iter().zip(&before.used).enumerate();
        let by_group = by_group
            .filter(|(site, _)| lab.is_some_and(|(_, cluster)| cluster.has_broker(*site)))
            .map(|(site, (now, before))| BrokerUse {
                site: names[site].clone(),
                cpu_s: now.cpu_s - before.cpu_s,
                memory_kib: now.memory_kib,
                memory_peak_kib: now.memory_peak_kib,
                throttled: now.throttled - before.throttled,
            });
        let by_pid = self.by_pid.iter().zip(&before.by_pid).enumerate();
        let by_pid = by_pid.map(|(number, (now, before))| BrokerUse {
            site: names
                .get(number)
                .cloned()
                .unwrap_or_else(|| format!("process {}", number + 1)),
            cpu_s: now.0.since(&before.0),
            memory_kib: Some(now.1),
            memory_peak_kib: None,
            throttled: 0,
        });
        Phase {
            name: name.to_owned(),
            seconds: (self.at - before.at).as_secs_f64(),
            links: traffic
                .map(|(link, (now, before))| LinkTraffic {
                    a: names[link.a].clone(),
                    b: names[link.b].clone(),
                    carried: now.since(before),
                })
                .collect(),
            brokers: by_group.chain(by_pid).collect(),
        }
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
