//! Nodes that can be killed and restarted: children of this process, or others, by two commands.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::faults::{Faults, Library};
use crate::BenchError;
use crate::metrics::{Metrics, REACHABLE};
use crate::probe::round_trip;
use crate::started;
use crate::stop::Stop;

/// Time between two checks of a condition.
const LOOK: Duration = Duration::from_millis(50);
/// Timeout of one answer of a node.
const ANSWER: Duration = Duration::from_secs(5);
/// A gauge of Thicket nodes: under-replicated persistent sessions.
const WITHOUT_COPIES: &str = "thicket_under_replicated_sessions";

/// One node.
#[derive(Debug)]
pub struct CrashNode {
    /// The address for clients.
    pub address: SocketAddr,
    /// The address of its metrics, for a Thicket node.
    pub api: Option<SocketAddr>,
    /// How it is killed and restarted.
    control: Control,
}

#[derive(Debug)]
enum Control {
    /// A child of this process.
    Child {
        program: PathBuf,
        arguments: Vec<String>,
        folder: PathBuf,
        child: Option<Child>,
        /// For a stalling disk and a jumping clock.
        faults: Option<Faults>,
    },
    /// Shell commands.
    Commands { kill: String, start: String },
    /// An external control.
    Other(Box<dyn NodeControl>),
}

/// Kills and starts a node that is neither a child of this process nor controlled by two commands.
pub trait NodeControl: std::fmt::Debug + Send {
    /// Kills the node; it has ended when this returns.
    ///
    /// # Errors
    /// It could not be ended.
    fn kill(&mut self) -> io::Result<()>;
    /// Starts it again; it need not serve yet.
    ///
    /// # Errors
    /// It could not be started.
    fn start(&mut self) -> io::Result<()>;
}

/// The nodes of one cluster. Children end with it, and their data is removed.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<CrashNode>,
    /// A fixed wait, where nodes do not report backups.
    settle: Duration,
    folder: Option<PathBuf>,
    /// Ends all waits.
    pub(super) stop: Stop,
}

/// A number that is unique in this process.
pub(super) fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl CrashNode {
    /// A node that runs elsewhere: `kill` and `start` are commands for `sh -c`. The start command may return or keep running.
    #[must_use]
    pub fn foreign(address: SocketAddr, api: Option<SocketAddr>, kill: &str, start: &str) -> Self {
        let control = Control::Commands {
            kill: kill.to_owned(),
            start: start.to_owned(),
        };
        Self {
            address,
            api,
            control,
        }
    }

    /// A node controlled by `control`.
    #[must_use]
    pub fn controlled(address: SocketAddr, control: Box<dyn NodeControl>) -> Self {
        Self {
            address,
            api: None,
            control: Control::Other(control),
        }
    }

    fn kill(&mut self) -> io::Result<()> {
        match &mut self.control {
            Control::Other(control) => control.kill(),
            Control::Child { child, .. } => match child.take() {
                Some(mut child) => {
                    child.kill()?;
                    child.wait().map(drop)
                }
                None => Ok(()),
            },
            Control::Commands { kill, .. } => {
                let status = shell(kill).status()?;
                if status.success() {
                    Ok(())
                } else {
                    Err(io::Error::other(format!("`{kill}` ended with {status}")))
                }
            }
        }
    }

    /// Sends a signal to the process; `None`: it is not a child.
    fn signal(&self, signal: Signal) -> Option<io::Result<()>> {
        let Control::Child {
            child: Some(child), ..
        } = &self.control
        else {
            return None;
        };
        let pid = Pid::from_child(child);
        Some(kill_process(pid, signal).map_err(io::Error::from))
    }

    fn start(&mut self) -> io::Result<()> {
        match &mut self.control {
            Control::Other(control) => control.start(),
            Control::Child {
                program,
                arguments,
                folder,
                child,
                faults,
            } => {
                let log = File::options()
                    .create(true)
                    .append(true)
                    .open(folder.join("log"))?;
                let mut command = Command::new(program);
                if let Some(faults) = faults {
                    command.envs(faults.environment());
                }
                command
                    .args(arguments)
                    .stdin(Stdio::null())
                    .stdout(log.try_clone()?)
                    .stderr(log);
                *child = Some(started::spawn(&mut command, folder)?);
                Ok(())
            }
            Control::Commands { start, .. } => {
                // A command that keeps running is the broker itself; do not wait for it.
                let mut child = shell(start).spawn()?;
                std::thread::spawn(move || child.wait());
                Ok(())
            }
        }
    }

    /// Under-replicated sessions, as the node reports; `None`: it does not report.
    fn without_copies(&self) -> Option<u64> {
        Metrics::fetch(self.api?).ok()?.sum(WITHOUT_COPIES)
    }
}

fn shell(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    shell
}

impl Cluster {
    /// Nodes that are running already. `settle`: the wait before a failure where they do not report backups. `stop` ends a scenario before its time.
    #[must_use]
    pub const fn of(nodes: Vec<CrashNode>, settle: Duration, stop: Stop) -> Self {
        Self {
            nodes,
            settle,
            folder: None,
            stop,
        }
    }

    /// Starts `count` nodes of the program `thicket` on free ports of 127.0.0.1, each with a data directory in a temporary folder, and waits until
    /// they serve. `has_faults`: their disks may stall and their clocks may jump.
    ///
    /// # Errors
    /// A node does not serve within `within`.
    pub fn spawn(
        thicket: &Path,
        count: usize,
        extra: &[String],
        has_faults: bool,
        settle: Duration,
        within: Duration,
    ) -> Result<Self, BenchError> {
        let name = format!("thicket-crash-{}-{}", std::process::id(), unique());
        let folder = std::env::temp_dir().join(name);
        let mut cluster = Self {
            nodes: Vec::new(),
            settle,
            folder: Some(folder.clone()),
            stop: Stop::default(),
        };
        let library = has_faults.then(|| Library::compile(&folder)).transpose()?;
        // All ports are allocated before the first node starts: each node gets the addresses of all others, whichever restarts later.
        let ports = free_addresses(count * 2).map_err(BenchError::system("free ports"))?;
        let (clients, apis) = ports.split_at(count);
        for (index, (&address, &api)) in clients.iter().zip(apis).enumerate() {
            let folder = folder.join(format!("node-{}", index + 1));
            fs::create_dir_all(&folder).map_err(BenchError::system(format!(
                "cannot make {}",
                folder.display()
            )))?;
            let mut arguments = vec![
                "broker".to_owned(),
                format!("--name=node-{}", index + 1),
                format!("--listen={address}"),
                format!("--http={api}"),
                "--discover=off".to_owned(),
                format!("--cluster-name=crash-{}", std::process::id()),
                format!("--data={}", folder.join("data").display()),
            ];
            let others = clients.iter().filter(|other| **other != address);
            arguments.extend(others.map(|other| format!("--seed={other}")));
            arguments.extend_from_slice(extra);
            let faults = library.as_ref().map(|library| library.faults(&folder));
            let faults = faults
                .transpose()
                .map_err(BenchError::system("a file of faults"))?;
            cluster.nodes.push(CrashNode {
                address,
                api: Some(api),
                control: Control::Child {
                    program: thicket.to_owned(),
                    arguments,
                    folder,
                    child: None,
                    faults,
                },
            });
        }
        for node in &mut cluster.nodes {
            node.start()
                .map_err(BenchError::system("cannot start a node"))?;
        }
        for index in 0..count {
            cluster.await_service(index, within)?;
        }
        cluster.await_sight(within)?;
        Ok(cluster)
    }

    /// Number of nodes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The addresses for clients, in order.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    pub(super) fn name(&self, node: usize) -> String {
        format!("node {} at {}", node + 1, self.nodes[node].address)
    }

    pub(super) fn kill(&mut self, node: usize) -> Result<(), BenchError> {
        let name = self.name(node);
        self.nodes[node]
            .kill()
            .map_err(BenchError::system(format!("cannot kill {name}")))
    }

    /// Pauses a child node.
    pub(super) fn pause(&self, node: usize) -> Result<(), BenchError> {
        self.signal(node, Signal::STOP, "stop")
    }

    /// Resumes a child node.
    pub(super) fn resume(&self, node: usize) -> Result<(), BenchError> {
        self.signal(node, Signal::CONT, "let go on")
    }

    /// Makes the disk of a child node stall, or work again.
    pub(super) fn stall_disk(&self, node: usize, is_stalled: bool) -> Result<(), BenchError> {
        self.tell(node, |faults| faults.stall_disk(is_stalled))
    }

    /// Sets the wall clock of a child node this far from the time.
    pub(super) fn set_clock(&self, node: usize, offset: i64) -> Result<(), BenchError> {
        self.tell(node, |faults| faults.set_clock(offset))
    }

    fn tell(
        &self,
        node: usize,
        order: impl Fn(&Faults) -> io::Result<()>,
    ) -> Result<(), BenchError> {
        let name = self.name(node);
        match &self.nodes[node].control {
            Control::Child {
                faults: Some(faults),
                ..
            } => {
                let told = faults.is_loaded().and_then(|is_loaded| {
                    let why = "it has not loaded the library: is it linked statically?";
                    let loaded = is_loaded.then_some(()).ok_or(io::Error::other(why));
                    loaded.and_then(|()| order(faults))
                });
                told.map_err(BenchError::system(format!("cannot disturb {name}")))
            }
            _ => Err(BenchError::Setting(format!(
                "{name} was not started with disks that stall and clocks that jump"
            ))),
        }
    }

    fn signal(&self, node: usize, signal: Signal, what: &str) -> Result<(), BenchError> {
        let name = self.name(node);
        match self.nodes[node].signal(signal) {
            Some(done) => done.map_err(BenchError::system(format!("cannot {what} {name}"))),
            None => Err(BenchError::Setting(format!(
                "{name} is not a child of this program: only nodes that it starts can be stopped"
            ))),
        }
    }

    /// Starts a node and waits until it serves and, if nodes report it, until all have links to all.
    pub(super) fn start(&mut self, node: usize, within: Duration) -> Result<(), BenchError> {
        self.launch(node)?;
        self.await_service(node, within)?;
        self.await_sight(within)
    }

    /// Starts a node, and does not wait.
    pub(super) fn launch(&mut self, node: usize) -> Result<(), BenchError> {
        let problem = format!("cannot start {}", self.name(node));
        self.nodes[node]
            .start()
            .map_err(BenchError::system(problem))
    }

    /// Waits until a node serves.
    pub(super) fn await_service(
        &mut self,
        node: usize,
        within: Duration,
    ) -> Result<(), BenchError> {
        let began = Instant::now();
        while round_trip(self.nodes[node].address, ANSWER).is_err() {
            if let Control::Child {
                child: Some(child),
                folder,
                ..
            } = &mut self.nodes[node].control
                && let Ok(Some(status)) = child.try_wait()
            {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                let words = log.lines().last().unwrap_or_default().to_owned();
                let name = self.name(node);
                return Err(BenchError::Setting(format!(
                    "{name} ended ({status}): {words}"
                )));
            }
            if began.elapsed() > within {
                return Err(BenchError::Timeout {
                    what: format!("{} to serve", self.name(node)),
                    seconds: within.as_secs(),
                });
            }
            self.stop.sleep(LOOK)?;
        }
        Ok(())
    }

    /// Waits until every node that reports it reaches all of them.
    pub(super) fn await_sight(&self, within: Duration) -> Result<(), BenchError> {
        let began = Instant::now();
        let sees_all = |node: &CrashNode| {
            let page = node.api.and_then(|api| Metrics::fetch(api).ok());
            let reached = page.and_then(|page| page.sum(REACHABLE));
            reached.is_none_or(|reached| reached >= self.nodes.len() as u64)
        };
        while !self.nodes.iter().all(sees_all) {
            if began.elapsed() > within {
                return Err(BenchError::Timeout {
                    what: "all nodes to see each other".to_owned(),
                    seconds: within.as_secs(),
                });
            }
            self.stop.sleep(LOOK)?;
        }
        Ok(())
    }

    /// Waits until every session has its backups, as all nodes report; the fixed time if one does not report. `false`: not within `most`.
    pub(super) fn await_copies(&self, most: Duration) -> Result<bool, BenchError> {
        let began = Instant::now();
        loop {
            let told: Option<Vec<u64>> = self.nodes.iter().map(CrashNode::without_copies).collect();
            match told {
                None => {
                    self.stop.sleep(self.settle)?;
                    return Ok(true);
                }
                Some(all) if all.iter().all(|&without| without == 0) => return Ok(true),
                Some(_) if began.elapsed() > most => return Ok(false),
                Some(_) => self.stop.sleep(LOOK)?,
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            if let Control::Child { .. } = node.control {
                let _ = node.kill();
            }
        }
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// All are bound while more are searched, so that they differ.
fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let held: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<io::Result<_>>()?;
    held.iter().map(TcpListener::local_addr).collect()
}
