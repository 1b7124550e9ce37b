//! The brokers of one system on a testbed, as processes: starting, readiness, faults, stopping.
//!
//! `reports` reads what brokers report while they run; `connected` checks that clients of all brokers reach each other.

mod connected;
mod reports;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use thicket_bench::crash::{Faults, Library};
use thicket_bench::generator::Node;
use thicket_bench::namespace::inside;
use thicket_bench::placement::Attach as By;
use thicket_bench::probe::round_trip;

use crate::certificate;
use crate::driver::{Brokers, Driver, Peer, Ready, fill, with_peer};
use crate::error::LabError;
use crate::net;
use crate::scenario::{Attach, Layers, Reach, System};
use crate::testbed::{Testbed, ended};
use crate::topology::{Topology, broker_address, client_address};

pub use connected::wait_connected;
pub use reports::{Repair, repaired_max_s};

/// Interval between checks of a broker that is not ready.
const PAUSE: Duration = Duration::from_millis(50);
/// Timeout of one check.
const LOOK: Duration = Duration::from_secs(2);
/// Until a dispatcher has figures of all brokers: the load it uses is a mean over seconds.
const SETTLED: Duration = Duration::from_secs(3);
/// Time that a broker has to end by itself.
const GRACE: Duration = Duration::from_secs(3);
/// Lines of a log in an error, and their characters at most.
const LAST_LINES: usize = 3;
const LAST_CHARACTERS: usize = 600;
const PORT: u16 = 1883;

/// How arriving publishers find their brokers.
#[derive(Debug, Clone)]
pub struct Entrance {
    /// How they attach.
    pub attach: Attach,
    /// The addresses they connect to: of brokers, or of a dispatcher.
    pub nodes: Vec<Node>,
    /// All brokers.
    pub brokers: Vec<Node>,
    /// Their processes, in this order.
    pub pids: Vec<u32>,
    /// Their network namespaces, in this order.
    pub api_namespaces: Vec<PathBuf>,
    /// How clients of the client library find them, if these are used.
    pub by: Option<By>,
}

/// Each broker once: systems with a single broker list it under the name of every site.
#[must_use]
pub fn each_once(nodes: &[Node]) -> Vec<Node> {
    let mut brokers: Vec<Node> = Vec::new();
    for node in nodes {
        if !brokers.iter().any(|known| known.address == node.address) {
            brokers.push(node.clone());
        }
    }
    brokers
}

/// Running brokers.
#[derive(Debug)]
pub struct Cluster {
    driver: Driver,
    system: System,
    program: PathBuf,
    own_program: PathBuf,
    folder: PathBuf,
    peers: Vec<Peer>,
    /// By site; `None` where the lab runs no broker.
    children: Vec<Option<Child>>,
    /// By site: whether its broker was killed on purpose.
    killed: Vec<bool>,
    /// By site: when its process was started, and how long until it was ready, in seconds.
    started: Vec<(Instant, Option<f64>)>,
    /// Seconds from the first start until messages passed from every broker to every other.
    pub formed_s: f64,
    /// What clients of each site connect to.
    pub nodes: Vec<Node>,
    /// What brokers listen for, too.
    layers: Layers,
    reach: Reach,
    /// What brokers load for that, compiled once.
    library: Option<Library>,
    /// By site: what stalls its disk and moves its clock.
    tampers: Vec<Option<Faults>>,
    dispatcher: Option<Child>,
}

impl Cluster {
    /// Starts the system's brokers and waits until messages pass from each to each. Logs and files are in `folder`. They listen for `layers`
    /// too, and faults reach their disks and clocks as `reach` says, which the driver knows.
    pub fn start(
        testbed: &Testbed,
        driver: &Driver,
        system: &System,
        own_program: &Path,
        folder: &Path,
        layers: Layers,
        reach: Reach,
    ) -> Result<Self, LabError> {
        let refuse = |reason: &str| LabError::Driver {
            driver: system.driver.clone(),
            reason: reason.to_owned(),
        };
        if let Some(key) = driver.lacks(layers) {
            return Err(refuse(&format!(
                "workload.{key}: it does not say how its brokers listen for that"
            )));
        }
        if system.attach == Attach::Dispatcher && driver.dispatcher.is_none() {
            return Err(refuse("system.attach = dispatcher: it has no dispatcher"));
        }
        if reach.disk && driver.disk.is_none() {
            return Err(refuse(
                "fault.do = stall-disk: it does not say how its brokers store",
            ));
        }
        let topology = &testbed.topology;
        let count = driver.brokers.count(topology.sites.len());
        let peer = |site: usize| Peer {
            site: topology.sites[site].clone(),
            index: site + 1,
            address: broker_address(site).to_string(),
        };
        let nodes = (0..topology.sites.len()).map(|site| Node {
            name: topology.sites[site].clone(),
            address: SocketAddr::new(IpAddr::V4(broker_address(site.min(count.max(1) - 1))), PORT),
            namespace: Some(net::path(&testbed.sites[site].clients)),
        });
        let mut cluster = Self {
            program: driver.find(system, own_program)?,
            driver: driver.clone(),
            system: system.clone(),
            own_program: own_program.to_owned(),
            folder: folder.to_owned(),
            peers: (0..count).map(peer).collect(),
            children: (0..topology.sites.len()).map(|_| None).collect(),
            killed: vec![false; topology.sites.len()],
            started: vec![(Instant::now(), None); topology.sites.len()],
            formed_s: 0.0,
            nodes: nodes.collect(),
            layers,
            reach,
            library: None,
            tampers: (0..topology.sites.len()).map(|_| None).collect(),
            dispatcher: None,
        };
        if let Err(error) = cluster.start_all(testbed) {
            cluster.kill_all(testbed);
            cluster.stop(testbed);
            return Err(error);
        }
        Ok(cluster)
    }

    fn start_all(&mut self, testbed: &Testbed) -> Result<(), LabError> {
        let start = Instant::now();
        let is_later = |site: &usize| testbed.topology.later.contains(&self.peers[*site].site);
        let sites: Vec<usize> = (0..self.peers.len())
            .filter(|site| !is_later(site))
            .collect();
        let alone = if self.driver.first_alone {
            1
        } else {
            sites.len()
        };
        for group in sites.chunks(alone.max(1)).take(1).chain([&sites[alone..]]) {
            for &site in group {
                if site != sites[0] {
                    testbed.rest(testbed.topology.start_every)?;
                }
                self.start_one(testbed, site)?;
            }
            self.wait_ready(testbed, group)?;
        }
        for &site in sites.iter().skip(1) {
            self.join(testbed, site)?;
        }
        let nodes: Vec<Node> = (0..self.nodes.len())
            .filter(|&site| !testbed.topology.later.contains(&self.nodes[site].name))
            .map(|site| self.nodes[site].clone())
            .collect();
        let together = if self.driver.brokers == Brokers::Separate {
            1
        } else {
            nodes.len()
        };
        for nodes in nodes.chunks(together.max(1)) {
            let patience = Duration::from_secs(self.driver.patience_s);
            let pause = |time| testbed.rest(time);
            wait_connected(nodes, patience, None, &pause).map_err(|error| match error {
                LabError::NotReady(why) => {
                    LabError::NotReady(format!("{}: {why}", self.system.name))
                }
                error => error,
            })?;
        }
        self.formed_s = start.elapsed().as_secs_f64();
        if self.system.attach == Attach::Dispatcher {
            self.start_dispatcher(testbed)?;
        }
        Ok(())
    }

    /// Starts the dispatcher, beside the clients of the first site, and waits until it answers.
    fn start_dispatcher(&mut self, testbed: &Testbed) -> Result<(), LabError> {
        let Some(dispatcher) = self.driver.dispatcher.clone() else {
            return Ok(());
        };
        let (dir, mut places) = self.places(0)?;
        let own = client_address(0).to_string();
        places.insert("own_address".to_owned(), own);
        let words = dispatcher.start.iter();
        let mut argv: Vec<String> = words.map(|word| fill(word, &places)).collect();
        for (site, peer) in self.peers.iter().enumerate() {
            let mut places = with_peer(&places, peer);
            let pid = self.children[site].as_ref().map_or(0, Child::id);
            places.insert("peer_pid".to_owned(), pid.to_string());
            argv.extend(
                dispatcher
                    .each_broker
                    .iter()
                    .map(|word| fill(word, &places)),
            );
        }
        self.dispatcher = Some(testbed.start_beside(0, &argv, &dir, "dispatcher.log")?);
        let address = SocketAddr::new(IpAddr::V4(client_address(0)), dispatcher.port);
        let clients = net::path(&testbed.sites[0].clients);
        let start = Instant::now();
        let answers = || {
            inside(&clients, || {
                TcpStream::connect_timeout(&address, LOOK).is_ok()
            })
        };
        while !answers().is_ok_and(|it| it) {
            if start.elapsed() > Duration::from_secs(self.driver.patience_s) {
                let log = dir.join("dispatcher.log");
                let reason = format!("the dispatcher does not answer: see {}", log.display());
                return Err(LabError::NotReady(reason));
            }
            testbed.rest(PAUSE)?;
        }
        // Until it has figures of brokers that are still idle.
        testbed.rest(SETTLED)
    }

    /// How publishers of the first site find their brokers.
    #[must_use]
    pub fn entrance(&self, testbed: &Testbed) -> Entrance {
        let brokers = each_once(&self.nodes);
        let children = self.children.iter().flatten();
        let dispatcher = self.driver.dispatcher.as_ref();
        let nodes = match (self.system.attach, dispatcher) {
            (Attach::Dispatcher, Some(dispatcher)) => vec![Node {
                name: "dispatcher".to_owned(),
                address: SocketAddr::new(IpAddr::V4(client_address(0)), dispatcher.port),
                namespace: None,
            }],
            (
                Attach::Dispatcher
                | Attach::RoundRobin
                | Attach::Redirect
                | Attach::Random
                | Attach::Local
                | Attach::Placed
                | Attach::Learned,
                _,
            ) => brokers.clone(),
        };
        Entrance {
            attach: self.system.attach,
            nodes,
            brokers,
            pids: children.map(Child::id).collect(),
            api_namespaces: (testbed.sites.iter())
                .map(|site| net::path(&site.broker))
                .collect(),
            by: self.system.by(),
        }
    }

    /// Mean seconds from the start of a process until it was ready.
    #[must_use]
    pub fn mean_start_s(&self) -> Option<f64> {
        let taken: Vec<f64> = self
            .started
            .iter()
            .filter_map(|(_, taken)| *taken)
            .collect();
        (!taken.is_empty()).then(|| taken.iter().sum::<f64>() / taken.len() as f64)
    }

    /// Starts the broker of a site, also again after it has ended.
    pub fn start_one(&mut self, testbed: &Testbed, site: usize) -> Result<(), LabError> {
        self.check_broker(site)?;
        if self.children[site].as_mut().is_some_and(lives) {
            return Err(LabError::Misuse(format!(
                "{} is alive: it is not started again",
                self.name(site)
            )));
        }
        let (dir, places) = self.places(site)?;
        if self.children[site].is_none() {
            let children = children(&testbed.topology, site, &self.peers);
            if self.layers.tls {
                certificate::write(&dir, &self.peers[site].address)?;
            }
            self.driver
                .write_files(&places, &children, &self.peers, self.layers, &dir)?;
        }
        if self.reach.needs_library() && self.tampers[site].is_none() {
            let folder = self.folder.canonicalize();
            let folder = folder.map_err(LabError::io(self.folder.display()))?;
            let library = match self.library.take() {
                Some(library) => library,
                None => Library::compile(&folder)?,
            };
            let faults = self
                .library
                .insert(library)
                .faults(&dir)
                .map_err(LabError::io(dir.display()))?;
            self.tampers[site] = Some(faults);
        }
        let mut words = self.driver.start_words(self.layers, self.reach);
        words.extend(self.system.args.iter().cloned());
        self.started[site] = (Instant::now(), None);
        let env = self.tampers[site].iter().flat_map(Faults::environment);
        let env = env.map(|(key, path)| (key.to_owned(), path.display().to_string()));
        let child = self.spawn(testbed, site, &words, env.collect(), "output.log")?;
        self.children[site] = Some(child);
        self.killed[site] = false;
        Ok(())
    }

    /// An error if the system has no broker at a site.
    pub fn check_broker(&self, site: usize) -> Result<(), LabError> {
        if self.has_broker(site) {
            return Ok(());
        }
        let name = self.nodes.get(site).map_or("it", |node| &node.name);
        Err(LabError::Misuse(format!(
            "site: system {} has no broker at {name}",
            self.system.name
        )))
    }

    fn places(&self, site: usize) -> Result<(PathBuf, BTreeMap<String, String>), LabError> {
        let dir = self.folder.join(&self.peers[site].site);
        std::fs::create_dir_all(&dir).map_err(LabError::io(dir.display()))?;
        let dir = dir.canonicalize().map_err(LabError::io(dir.display()))?;
        let places = self.driver.places(
            &self.system,
            &self.program,
            &self.own_program,
            &self.peers[site],
            &self.peers,
            &dir,
        );
        Ok((dir, places))
    }

    /// Stalls the disk of a site's broker, or frees it.
    pub fn stall_disk(&self, site: usize, is_stalled: bool) -> Result<(), LabError> {
        self.tamper(site, |faults| faults.stall_disk(is_stalled))
    }

    /// Sets the wall clock of a site's broker so far ahead of the time, or behind it.
    pub fn set_clock(&self, site: usize, ahead_ns: i64) -> Result<(), LabError> {
        self.tamper(site, |faults| faults.set_clock(ahead_ns))
    }

    fn tamper(
        &self,
        site: usize,
        order: impl FnOnce(&Faults) -> io::Result<()>,
    ) -> Result<(), LabError> {
        let what = || format!("disk and clock of {}", self.name(site));
        let missing = || {
            LabError::Misuse(format!(
                "{}: no fault of the scenario reaches them: stalled disks and jumping clocks need a library that brokers load as they start",
                what()
            ))
        };
        let faults = self.tampers[site].as_ref().ok_or_else(missing)?;
        match faults.is_loaded() {
            Ok(true) => order(faults).map_err(LabError::io(what())),
            Ok(false) => Err(LabError::Misuse(format!(
                "{}: its program did not load the library that stalls disks and moves clocks: it is linked statically",
                what()
            ))),
            Err(error) => Err(LabError::io(what())(error)),
        }
    }

    /// Starts a command of the driver where the broker of a site runs.
    fn spawn(
        &self,
        testbed: &Testbed,
        site: usize,
        words: &[String],
        more_env: BTreeMap<String, String>,
        log: &str,
    ) -> Result<Child, LabError> {
        let (dir, places) = self.places(site)?;
        let fill = |text: &String| crate::driver::fill(text, &places);
        let argv: Vec<String> = words.iter().map(fill).collect();
        let env = self.driver.env.iter();
        let env = env.map(|(key, value)| (key.clone(), fill(value)));
        let env = env.chain(more_env).collect();
        testbed.start_broker(site, &argv, &env, &dir, log)
    }

    /// Runs a command of the driver to its end.
    fn command(&self, testbed: &Testbed, site: usize, words: &[String]) -> Result<(), LabError> {
        let mut child = self.spawn(testbed, site, words, BTreeMap::new(), "commands.log")?;
        let start = Instant::now();
        let patience = Duration::from_secs(self.driver.patience_s);
        let name = || format!("{} at {}", words.join(" "), self.peers[site].site);
        loop {
            match child.try_wait().map_err(LabError::io("command"))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(LabError::NotReady(format!("{}: {}", name(), ended(status))));
                }
                None if start.elapsed() > patience => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(LabError::NotReady(format!(
                        "{}: not done after {} s",
                        name(),
                        patience.as_secs()
                    )));
                }
                None => {
                    if let Err(error) = testbed.rest(PAUSE) {
                        let _ = child.kill();
                        let _ = child.wait();
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Makes a ready broker join the first one, where its driver has a command for that.
    pub fn join(&self, testbed: &Testbed, site: usize) -> Result<(), LabError> {
        if self.driver.join.is_empty() {
            return Ok(());
        }
        self.command(testbed, site, &self.driver.join)
    }

    /// Makes a broker hand its clients and sessions to others.
    pub fn drain(&self, testbed: &Testbed, site: usize) -> Result<(), LabError> {
        if self.driver.drain.is_empty() {
            return Err(LabError::Driver {
                driver: self.system.driver.clone(),
                reason: "its brokers cannot be drained".to_owned(),
            });
        }
        self.command(testbed, site, &self.driver.drain)
    }

    /// Seconds from the start of a site's process until it was ready; `None`: not yet. An error if it has ended.
    pub fn look(&mut self, testbed: &Testbed, site: usize) -> Result<Option<f64>, LabError> {
        if let Some(child) = &mut self.children[site]
            && let Ok(Some(status)) = child.try_wait()
        {
            return Err(LabError::NotReady(self.end_of(testbed, site, status)));
        }
        let (start, taken) = self.started[site];
        if taken.is_none() && self.is_ready(testbed, site) {
            self.started[site].1 = Some(start.elapsed().as_secs_f64());
        }
        Ok(self.started[site].1)
    }

    /// Seconds since a site's process was started.
    #[must_use]
    pub fn since_start_s(&self, site: usize) -> f64 {
        self.started[site].0.elapsed().as_secs_f64()
    }

    fn wait_ready(&mut self, testbed: &Testbed, sites: &[usize]) -> Result<(), LabError> {
        let start = Instant::now();
        let patience = Duration::from_secs(self.driver.patience_s);
        loop {
            let mut waiting = None;
            for &site in sites {
                if self.look(testbed, site)?.is_none() {
                    waiting = Some(site);
                }
            }
            let Some(site) = waiting else { return Ok(()) };
            if start.elapsed() > patience {
                return Err(LabError::NotReady(format!(
                    "{} was not ready after {} s: see {}",
                    self.name(site),
                    patience.as_secs(),
                    self.log(site).display()
                )));
            }
            testbed.rest(PAUSE)?;
        }
    }

    /// How a broker ended, with the end of its log.
    fn end_of(&self, testbed: &Testbed, site: usize, status: ExitStatus) -> String {
        let log = self.log(site);
        let text = std::fs::read(&log).unwrap_or_default();
        let said = last_lines(&String::from_utf8_lossy(&text));
        let why = if testbed.is_out_of_memory(site) {
            ", at its limit of memory (brokers.memory_mib)"
        } else {
            ""
        };
        format!(
            "{} {}{why}: {said} (see {})",
            self.name(site),
            ended(status),
            log.display()
        )
    }

    /// Brokers that have ended although no fault ended them, in words.
    pub fn unexpected_ends(&mut self, testbed: &Testbed) -> Vec<String> {
        let ended: Vec<(usize, ExitStatus)> = (self.children.iter_mut().enumerate())
            .filter(|(site, _)| !self.killed[*site])
            .filter_map(|(site, child)| Some((site, child.as_mut()?.try_wait().ok()??)))
            .collect();
        let words = ended.into_iter();
        words
            .map(|(site, status)| self.end_of(testbed, site, status))
            .collect()
    }

    fn name(&self, site: usize) -> String {
        format!("{} at {}", self.system.name, self.peers[site].site)
    }

    fn log(&self, site: usize) -> PathBuf {
        self.folder.join(&self.peers[site].site).join("output.log")
    }

    fn is_ready(&self, testbed: &Testbed, site: usize) -> bool {
        match &self.driver.ready {
            Ready::RoundTrip => {
                let clients = net::path(&testbed.sites[site].clients);
                let address = self.nodes[site].address;
                matches!(inside(&clients, || round_trip(address, LOOK)), Ok(Ok(())))
            }
            Ready::Http(url) => {
                let broker = net::path(&testbed.sites[site].broker);
                matches!(inside(&broker, || agent().get(url).call()), Ok(Ok(_)))
            }
        }
    }

    /// Whether the lab runs a broker at a site.
    #[must_use]
    pub fn has_broker(&self, site: usize) -> bool {
        site < self.peers.len()
    }

    /// Kills the broker of a site: all its processes.
    pub fn kill(&mut self, testbed: &Testbed, site: usize) {
        self.killed[site] = true;
        let Some(child) = &mut self.children[site] else {
            return;
        };
        // One that was just started is not in its namespace yet.
        let _ = child.kill();
        testbed.signal(site, Signal::KILL);
        let _ = child.wait();
    }

    /// Kills all brokers.
    pub fn kill_all(&mut self, testbed: &Testbed) {
        (0..self.children.len()).for_each(|site| self.kill(testbed, site));
    }

    /// Ends all brokers, in order if they do so in time.
    pub fn stop(&mut self, testbed: &Testbed) {
        if let Some(mut dispatcher) = self.dispatcher.take() {
            let _ = dispatcher.kill();
            let _ = dispatcher.wait();
        }
        for child in self.children.iter().flatten() {
            if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
        }
        let start = Instant::now();
        while start.elapsed() < GRACE && self.children.iter_mut().flatten().any(lives) {
            std::thread::sleep(PAUSE);
        }
        self.kill_all(testbed);
    }
}

/// The end of a log in one line.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    let text = last.iter().map(|line| line.trim()).collect::<Vec<_>>();
    let text = text.join(" | ");
    match text.char_indices().rev().nth(LAST_CHARACTERS) {
        Some((at, _)) => format!("... {}", &text[at..]),
        None if text.is_empty() => "its log is empty".to_owned(),
        None => text,
    }
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .timeout_global(Some(LOOK))
        .build()
        .into()
}

fn lives(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// Brokers below a site in the tree of shortest paths from the first site.
fn children(topology: &Topology, site: usize, peers: &[Peer]) -> Vec<Peer> {
    let links = topology.children(0, site).into_iter();
    links
        .filter_map(|link| peers.get(topology.other_end(link, site)).cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_last_lines_of_a_log() {
        assert_eq!(last_lines("a\nb\n\n c\nd\n"), "b | c | d");
        assert_eq!(last_lines("\n"), "its log is empty");
        assert!(last_lines(&"x".repeat(5000)).len() < 700);
    }
}
