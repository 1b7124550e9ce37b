//! A running network: sites, links, limits, and counters of its bytes.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use thicket_bench::namespace::inside;

use crate::command;
use crate::error::LabError;
use crate::janitor::{self, Janitor};
use crate::limits::{Controllers, Group, Use};
use crate::links::{Backend, Links};
use crate::net::{self, Site, wan};
use crate::network::check_built;
use crate::scenario::Limits;
use crate::topology::Topology;

/// Longest time without looking whether the user ends the lab.
const REST: Duration = Duration::from_millis(20);

/// The parameters of a testbed.
#[derive(Debug, Clone)]
pub struct Setup<'a> {
    /// Our own program, for the lab's child processes.
    pub program: &'a Path,
    /// Sites and links.
    pub topology: Topology,
    /// Limits of each broker.
    pub limits: Limits,
    /// Multicast groups that routers forward.
    pub groups: Vec<SocketAddrV4>,
    /// Back end of the links.
    pub backend: Backend,
    /// Determines which frames are lost.
    pub seed: u64,
    /// Set when the user ends the lab.
    pub interrupted: &'a Arc<AtomicBool>,
}

/// The network, until it is dropped.
#[derive(Debug)]
pub struct Testbed {
    program: PathBuf,
    /// Sites and links.
    pub topology: Topology,
    /// Namespaces.
    pub sites: Vec<Site>,
    /// Links, to be cut and changed.
    pub links: Links,
    groups: Vec<Group>,
    limits: Limits,
    /// What limits and counts CPU and memory.
    pub controllers: Controllers,
    interrupted: Arc<AtomicBool>,
    janitor: Janitor,
}

/// Frames and bytes that a link has carried since it was created, Ethernet headers included, as counted by the sending router.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// From the first site of the link to the second.
    pub bytes_ab: u64,
    /// And back.
    pub bytes_ba: u64,
    /// Frames from the first site to the second.
    pub packets_ab: u64,
    /// And back.
    pub packets_ba: u64,
}

impl Carried {
    /// The traffic since an earlier reading.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes_ab: self.bytes_ab - earlier.bytes_ab,
            bytes_ba: self.bytes_ba - earlier.bytes_ba,
            packets_ab: self.packets_ab - earlier.packets_ab,
            packets_ba: self.packets_ba - earlier.packets_ba,
        }
    }
}

/// Whether this machine permits creating namespaces; an error names what is missing.
pub fn check_machine() -> Result<(), LabError> {
    for tool in ["ip", "tc"] {
        if command::find(tool).is_none() {
            return Err(LabError::Machine(format!(
                "{tool} is missing (package iproute2)"
            )));
        }
    }
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::Machine(
            "it needs root, to make network namespaces and their devices".to_owned(),
        ));
    }
    let name = format!("{}{}-check", net::PREFIX, std::process::id());
    command::run("ip", &["netns", "add", &name])
        .map_err(|error| LabError::Machine(format!("no network namespaces: {error}")))?;
    command::run("ip", &["netns", "delete", &name]).map(drop)
}

/// The congestion control of most machines, if the kernel has it: `net.ipv4.tcp_congestion_control` of this machine may differ.
#[must_use]
pub fn congestion_control() -> Option<&'static str> {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    available
        .is_ok_and(|names| names.split_whitespace().any(|name| name == "cubic"))
        .then_some("cubic")
}

/// Waits; an error as soon as `interrupted` is set.
pub(crate) fn rest(interrupted: &AtomicBool, time: Duration) -> Result<(), LabError> {
    let end = Instant::now() + time;
    loop {
        if interrupted.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(REST));
    }
}

impl Testbed {
    /// Builds the network.
    pub fn up(setup: &Setup<'_>) -> Result<Self, LabError> {
        check_built(setup.topology.sites.len()).map_err(LabError::Machine)?;
        let lab = std::process::id();
        // Parts of an earlier testbed of this process may remain if it could not be removed.
        janitor::clean(&[lab])?;
        let mut janitor = Janitor::start(setup.program)?;
        match Self::build(setup, lab) {
            Ok((sites, links, groups, controllers)) => Ok(Self {
                program: setup.program.to_owned(),
                topology: setup.topology.clone(),
                sites,
                links,
                groups,
                limits: setup.limits.clone(),
                controllers,
                interrupted: Arc::clone(setup.interrupted),
                janitor,
            }),
            Err(error) => {
                janitor.finish();
                Err(error)
            }
        }
    }

    fn build(
        setup: &Setup<'_>,
        lab: u32,
    ) -> Result<(Vec<Site>, Links, Vec<Group>, Controllers), LabError> {
        let count = setup.topology.sites.len();
        let sites: Vec<Site> = (0..count).map(|site| net::site(lab, site)).collect();
        let single_segments = setup.backend == Backend::Netem;
        net::make_sites(&sites, congestion_control(), single_segments)?;
        let links = Links::up(
            setup.program,
            setup.backend,
            &setup.topology,
            &sites,
            &setup.groups,
            setup.seed,
        )?;
        let controllers = Controllers::detect();
        let groups: Result<Vec<Group>, LabError> = sites
            .iter()
            .map(|site| controllers.make(&site.broker, &setup.limits))
            .collect();
        Ok((sites, links, groups?, controllers))
    }

    /// Waits; an error as soon as the user ends the lab.
    pub fn rest(&self, time: Duration) -> Result<(), LabError> {
        rest(&self.interrupted, time)
    }

    /// Starts a program as the broker of a site: in its namespace and its control group, with output in the file `log` of `folder`, where it runs.
    pub fn start_broker(
        &self,
        site: usize,
        argv: &[String],
        env: &BTreeMap<String, String>,
        folder: &Path,
        log: &str,
    ) -> Result<Child, LabError> {
        let cores = self.limits.cores_of(site).unwrap_or_default();
        let folders = self.groups[site].folders();
        let command = self.enter(&self.sites[site].broker, &folders, &cores);
        spawn(command, argv, env, folder, log)
    }

    /// Starts a command where the clients of a site are: it belongs to no broker, and has no limits.
    pub fn start_beside(
        &self,
        site: usize,
        argv: &[String],
        folder: &Path,
        log: &str,
    ) -> Result<Child, LabError> {
        let command = self.enter(&self.sites[site].clients, &[], &[]);
        spawn(command, argv, &BTreeMap::new(), folder, log)
    }

    /// Our own program, which enters the namespace and the groups, and then becomes the command that follows.
    fn enter(&self, namespace: &str, folders: &[PathBuf], cores: &[usize]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["lab", "child", "enter", "--lab"]);
        command
            .arg(std::process::id().to_string())
            .arg("--namespace");
        command.arg(net::path(namespace));
        for folder in folders {
            command.arg("--group").arg(folder);
        }
        for core in cores {
            command.arg("--core").arg(core.to_string());
        }
        command.arg("--");
        command
    }

    /// The traffic of all links.
    pub fn carried(&self) -> Result<Vec<Carried>, LabError> {
        let mut by_site = Vec::new();
        for site in &self.sites {
            by_site.push(sent(&site.router)?);
        }
        let link = |link: &crate::topology::Link| {
            let of = |own: usize, other: usize| {
                by_site[own].get(&wan(other)).copied().unwrap_or_default()
            };
            let ((bytes_ab, packets_ab), (bytes_ba, packets_ba)) =
                (of(link.a, link.b), of(link.b, link.a));
            Carried {
                bytes_ab,
                bytes_ba,
                packets_ab,
                packets_ba,
            }
        };
        Ok(self.topology.links.iter().map(link).collect())
    }

    /// The usage of each broker; empty without control groups.
    #[must_use]
    pub fn used(&self) -> Vec<Use> {
        self.groups.iter().filter_map(Group::read).collect()
    }

    /// Makes the control groups of the brokers anew, without processes: counters, peaks and kills of earlier brokers are not those of the next.
    pub fn renew_groups(&mut self) -> Result<(), LabError> {
        let names: Vec<&str> = self.sites.iter().map(|site| &*site.broker).collect();
        self.controllers.remove(&|name| names.contains(&name));
        let groups = names.into_iter();
        let groups = groups.map(|name| self.controllers.make(name, &self.limits));
        self.groups = groups.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Whether the kernel has killed a process of a site's broker at its limit of memory.
    #[must_use]
    pub fn is_out_of_memory(&self, site: usize) -> bool {
        self.groups.get(site).is_some_and(Group::is_out_of_memory)
    }

    /// Sends a signal to all processes of a site's broker.
    pub fn signal(&self, site: usize, signal: Signal) {
        for pid in self.broker_processes(site) {
            let _ = kill_process(pid, signal);
        }
    }

    /// All processes of a site's broker.
    #[must_use]
    pub fn broker_processes(&self, site: usize) -> Vec<Pid> {
        janitor::processes(std::slice::from_ref(&self.sites[site].broker))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.janitor.finish();
    }
}

/// Starts a command with its output in a file.
fn spawn(
    mut command: Command,
    argv: &[String],
    env: &BTreeMap<String, String>,
    folder: &Path,
    log: &str,
) -> Result<Child, LabError> {
    let log = folder.join(log);
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(LabError::io(log.display()))?;
    let errors = log.try_clone().map_err(LabError::io("log"))?;
    // A node reads settings from such variables: those of the lab's environment are not meant for its brokers.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("THICKET_") {
            command.env_remove(name);
        }
    }
    command
        .args(argv)
        .envs(env)
        // Ctrl-C must only reach the lab.
        .process_group(0)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors);
    command.spawn().map_err(LabError::io("broker"))
}

/// Bytes and packets sent by each interface of a namespace. From `/proc`: `/sys` would show the host's interfaces.
fn sent(namespace: &str) -> Result<BTreeMap<String, (u64, u64)>, LabError> {
    let text = inside(&net::path(namespace), || {
        std::fs::read_to_string("/proc/thread-self/net/dev")
    })
    .and_then(|read| read)
    .map_err(LabError::io(format!("counters of {namespace}")))?;
    Ok(parse_counters(&text))
}

fn parse_counters(text: &str) -> BTreeMap<String, (u64, u64)> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let fields: Vec<u64> = rest
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        Some((name.trim().to_owned(), (*fields.get(8)?, *fields.get(9)?)))
    };
    text.lines().filter_map(line).collect()
}

/// How a process ended, in words.
#[must_use]
pub fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_those_of_what_was_sent() {
        let text = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
  wan2: 1000      10    0    0    0     0          0         0     2000      20    0    0    0     0       0          0
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n";
        assert_eq!(parse_counters(text)["wan2"], (2000, 20));
        assert_eq!(parse_counters(text).len(), 2);
    }
}
