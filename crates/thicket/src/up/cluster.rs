//! The processes of `thicket up`.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;
use thicket_broker::api::NodeEntry;

use super::{Up, node_settings};
use crate::api::Api;

/// Longer than a node takes to say goodbye.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A node to be.
#[derive(Debug, Clone)]
pub struct Member {
    /// `node-1` and so on.
    pub name: String,
    /// MQTT.
    pub address: SocketAddr,
    /// HTTP API.
    pub http: SocketAddr,
    /// MQTT over WebSocket, and over TLS.
    pub ws: Option<SocketAddr>,
    pub tls: Option<SocketAddr>,
    /// Requests for placements.
    pub placement: Option<SocketAddr>,
}

/// A node's process.
#[derive(Debug)]
struct Process {
    member: Member,
    child: Child,
    api: Api,
}

/// The processes that run. Dropping it kills them.
#[derive(Debug)]
pub struct Cluster {
    processes: Vec<Process>,
    size: usize,
}

impl Cluster {
    /// Starts a process for each member, with all others as seeds: multicast alone would do where there is multicast.
    pub fn start(members: Vec<Member>, arguments: &Up) -> anyhow::Result<Self> {
        let mut cluster = Self {
            processes: Vec::new(),
            size: members.len(),
        };
        let names = std::env::vars_os().map(|(name, _)| name);
        let variables = node_settings::Variables::sort(names);
        for line in &variables.remarks {
            eprintln!("{line}");
        }
        for member in &members {
            let mut command = command(member, &members, arguments)?;
            for name in &variables.withheld {
                command.env_remove(name);
            }
            let child = command
                .spawn()
                .with_context(|| format!("cannot start {}", member.name))?;
            let api = Api::new(member.http.to_string());
            let api = api.with_credentials(&arguments.credentials);
            cluster.processes.push(Process {
                member: member.clone(),
                child,
                api,
            });
        }
        Ok(cluster)
    }

    pub const fn len(&self) -> usize {
        self.processes.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Whether every node lets clients in and sees all of this cluster.
    ///
    /// # Errors
    /// A node that is ready does not say what it sees: its API has users.
    pub fn is_complete(&self) -> anyhow::Result<bool> {
        for process in &self.processes {
            if process.api.text("/v1/health/ready").is_err() || process.sees()? < self.size {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A node whose process ended.
    pub fn find_ended(&mut self) -> Option<String> {
        let ended = |process: &mut Process| !matches!(process.child.try_wait(), Ok(None));
        self.processes
            .iter_mut()
            .find_map(|process| ended(process).then(|| process.member.name.clone()))
    }

    /// Says which nodes ended, and forgets them.
    pub fn report_ended(&mut self) {
        self.processes
            .retain_mut(|process| match process.child.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) => {
                    eprintln!(
                        "{} (process {}) ended: {status}",
                        process.member.name,
                        process.child.id()
                    );
                    false
                }
                Err(error) => {
                    eprintln!("{}: {error}", process.member.name);
                    false
                }
            });
    }

    /// First and last address.
    pub fn ends(&self) -> (SocketAddr, SocketAddr) {
        let first = self
            .processes
            .first()
            .expect("a cluster has at least one node");
        let last = self
            .processes
            .last()
            .expect("a cluster has at least one node");
        (first.member.address, last.member.address)
    }

    /// The HTTP API of the first node.
    pub fn api(&self) -> SocketAddr {
        self.processes
            .first()
            .expect("a cluster has at least one node")
            .member
            .http
    }

    /// A row a node.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let row = |process: &Process| {
            let Member {
                name,
                address,
                http,
                ws: _,
                tls: _,
                placement: _,
            } = &process.member;
            vec![
                name.clone(),
                address.to_string(),
                http.to_string(),
                process.child.id().to_string(),
                crate::counted(process.sees().unwrap_or(0), "node"),
            ]
        };
        self.processes.iter().map(row).collect()
    }

    /// Closes the pipes and waits; who does not go is killed.
    pub fn stop(mut self) -> anyhow::Result<()> {
        for process in &mut self.processes {
            drop(process.child.stdin.take());
        }
        let deadline = Instant::now() + STOP_PATIENCE;
        while Instant::now() < deadline
            && self
                .processes
                .iter_mut()
                .any(|process| matches!(process.child.try_wait(), Ok(None)))
        {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Fails only if it has ended.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

impl Process {
    /// Nodes this one reaches, itself included.
    fn sees(&self) -> anyhow::Result<usize> {
        let nodes: Vec<NodeEntry> = self.api.ask("/v1/nodes")?;
        let seen = nodes.iter().filter(|node| node.is_self || node.reachable);
        Ok(seen.count())
    }
}

fn command(member: &Member, all: &[Member], arguments: &Up) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["broker", "--stop-with-stdin", "--name", &member.name]);
    command.args([
        "--listen",
        &member.address.to_string(),
        "--http",
        &member.http.to_string(),
    ]);
    if let Some(address) = member.ws {
        command.args(["--listen", &format!("ws://{address}")]);
    }
    if let (Some(address), Some(certificate), Some(key)) =
        (member.tls, &arguments.tls_certificate, &arguments.tls_key)
    {
        command.args(["--listen", &format!("tls://{address}")]);
        command.arg("--tls-certificate").arg(certificate);
        command.arg("--tls-key").arg(key);
    }
    if let Some(address) = member.placement {
        command.args(["--placement-listen", &address.to_string()]);
    }
    if let Some(users) = &arguments.users {
        command.arg("--users").arg(users);
    }
    let level = arguments
        .log_level
        .to_possible_value()
        .context("a log level without a name")?;
    command.args([
        "--cluster-name",
        &arguments.cluster_name,
        "--log-level",
        level.get_name(),
    ]);
    for other in all.iter().filter(|other| other.name != member.name) {
        command.args(["--seed", &other.address.to_string()]);
    }
    if let Some(workers) = arguments.workers {
        command.args(["--workers", &workers.to_string()]);
    }
    if let Some(data) = &arguments.data {
        command.arg("--data").arg(data.join(&member.name));
    }
    command.args(&arguments.node_flags);
    command.stdin(Stdio::piped());
    Ok(command)
}
