//! The brokers of one system on a testbed: start, ready, fail, stop.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use thicket_bench::generator::{Generator, Load, Node, Scenario as Clients, Span, Watch};
use thicket_bench::namespace::inside;
use thicket_bench::probe::round_trip;
use thicket_bench::workload::Workload;
use thicket_mqtt::Qos;

use crate::driver::{Brokers, Driver, Peer, Ready};
use crate::error::LabError;
use crate::net;
use crate::scenario::System;
use crate::testbed::{Testbed, ended};
use crate::topology::{Topology, broker_address};

/// Between two looks at a broker that is not ready.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for one look.
const LOOK: Duration = Duration::from_secs(2);
/// Time a broker has to end by itself.
const GRACE: Duration = Duration::from_secs(3);
const PORT: u16 = 1883;

/// Running brokers.
#[derive(Debug)]
pub struct Cluster {
    driver: Driver,
    system: System,
    program: PathBuf,
    own_program: PathBuf,
    folder: PathBuf,
    peers: Vec<Peer>,
    /// By site; `None` where no broker of ours runs.
    children: Vec<Option<Child>>,
    /// What clients of each site connect to.
    pub nodes: Vec<Node>,
}

impl Cluster {
    /// Starts the system's brokers and waits until messages come through from each to each. Logs and files are in `folder`.
    pub fn start(
        testbed: &Testbed,
        driver: &Driver,
        system: &System,
        own_program: &Path,
        folder: &Path,
    ) -> Result<Self, LabError> {
        let topology = &testbed.topology;
        let count = match driver.brokers {
            Brokers::EverySite => topology.sites.len(),
            Brokers::FirstSite => 1,
            Brokers::External => 0,
        };
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
            nodes: nodes.collect(),
        };
        if let Err(error) = cluster.start_all(testbed) {
            cluster.stop(testbed);
            return Err(error);
        }
        Ok(cluster)
    }

    fn start_all(&mut self, testbed: &Testbed) -> Result<(), LabError> {
        for site in 0..self.peers.len() {
            self.start_one(testbed, site)?;
            if site == 0 && self.driver.first_alone {
                self.wait_ready(testbed, 0)?;
            }
        }
        for site in 0..self.peers.len() {
            self.wait_ready(testbed, site)?;
        }
        wait_connected(&self.nodes, Duration::from_secs(self.driver.patience_s))
            .map_err(|reason| LabError::NotReady(format!("{}: {reason}", self.system.name)))
    }

    /// Starts the broker of a site, also after it has ended.
    pub fn start_one(&mut self, testbed: &Testbed, site: usize) -> Result<(), LabError> {
        let dir = self.folder.join(&self.peers[site].site);
        std::fs::create_dir_all(&dir).map_err(LabError::io(dir.display()))?;
        let dir = dir.canonicalize().map_err(LabError::io(dir.display()))?;
        let places = self.driver.places(
            &self.system,
            &self.program,
            &self.own_program,
            &self.peers[site],
            &dir,
        );
        if self.children[site].is_none() {
            let children = children(&testbed.topology, site, &self.peers);
            self.driver
                .write_files(&places, &children, &self.peers, &dir)?;
        }
        let fill = |text: &String| crate::driver::fill(text, &places);
        let mut argv: Vec<String> = self.driver.start.iter().map(fill).collect();
        argv.extend(self.system.args.iter().map(fill));
        let env = self
            .driver
            .env
            .iter()
            .map(|(key, value)| (key.clone(), fill(value)));
        let child = testbed.start_broker(site, &argv, &env.collect(), &dir.join("output.log"))?;
        self.children[site] = Some(child);
        Ok(())
    }

    fn wait_ready(&mut self, testbed: &Testbed, site: usize) -> Result<(), LabError> {
        let start = Instant::now();
        let patience = Duration::from_secs(self.driver.patience_s);
        loop {
            let name = format!("{} at {}", self.system.name, self.peers[site].site);
            let log = self.folder.join(&self.peers[site].site).join("output.log");
            if let Some(child) = &mut self.children[site]
                && let Ok(Some(status)) = child.try_wait()
            {
                let ended = ended(status);
                return Err(LabError::NotReady(format!(
                    "{name} {ended}: see {}",
                    log.display()
                )));
            }
            if self.is_ready(testbed, site) {
                return Ok(());
            }
            if start.elapsed() > patience {
                let seconds = patience.as_secs();
                return Err(LabError::NotReady(format!(
                    "{name} was not ready after {seconds} s: see {}",
                    log.display()
                )));
            }
            std::thread::sleep(PAUSE);
        }
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
                let agent: ureq::Agent = ureq::Agent::config_builder()
                    .timeout_global(Some(LOOK))
                    .build()
                    .into();
                matches!(inside(&broker, || agent.get(url).call()), Ok(Ok(_)))
            }
        }
    }

    /// Whether a site has a broker of ours.
    #[must_use]
    pub fn has_broker(&self, site: usize) -> bool {
        site < self.peers.len()
    }

    /// Kills the broker of a site: all its processes.
    pub fn kill(&mut self, testbed: &Testbed, site: usize) {
        testbed.signal(site, Signal::KILL);
        if let Some(child) = &mut self.children[site] {
            let _ = child.wait();
        }
    }

    /// Ends all brokers, in order where they do so in time.
    pub fn stop(&mut self, testbed: &Testbed) {
        for child in self.children.iter().flatten() {
            if let Some(pid) = rustix::process::Pid::from_raw(child.id() as i32) {
                let _ = rustix::process::kill_process(pid, Signal::TERM);
            }
        }
        let start = Instant::now();
        while start.elapsed() < GRACE && self.children.iter_mut().flatten().any(lives) {
            std::thread::sleep(PAUSE);
        }
        for site in 0..self.children.len() {
            if self.children[site].is_some() {
                self.kill(testbed, site);
            }
        }
    }
}

fn lives(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// Brokers below a site in the tree of shortest ways from the first site.
fn children(topology: &Topology, site: usize, peers: &[Peer]) -> Vec<Peer> {
    let links = topology.children(0, site).into_iter();
    links
        .filter_map(|link| peers.get(topology.other_end(link, site)).cloned())
        .collect()
}

/// Waits until a message of a client at every node reaches a client at every node, exactly once.
pub fn wait_connected(nodes: &[Node], patience: Duration) -> Result<(), String> {
    let start = Instant::now();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let last = match try_all(nodes, attempt) {
            Ok(None) => return Ok(()),
            Ok(Some(reason)) => reason,
            Err(error) => error.to_string(),
        };
        if start.elapsed() > patience {
            return Err(format!(
                "messages do not come through from everywhere to everywhere: {last}"
            ));
        }
        std::thread::sleep(4 * PAUSE);
    }
}

/// One message of each node to all; what is wrong, if something is.
fn try_all(nodes: &[Node], attempt: u32) -> Result<Option<String>, LabError> {
    let workload = Workload::FanOut {
        publishers: nodes.len(),
        subscribers: nodes.len(),
    };
    let mut clients = Clients::new(nodes.to_vec(), workload);
    clients.qos = Qos::AtLeastOnce;
    clients.prefix = format!("ready{}-{attempt}", std::process::id());
    let mut generator = Generator::connect(clients)?;
    let load = Load::Closed { window: 1 };
    let mut span = Span::messages(nodes.len() as u64);
    span.drain = Duration::from_secs(1);
    let outcome = generator.run(load, span, &Watch::default(), &mut |_| {})?;
    let counts = outcome.counts;
    Ok((!counts.is_clean()).then(|| {
        format!(
            "{} of {} messages arrived, {} twice",
            counts.delivered, counts.expected, counts.duplicated
        )
    }))
}
