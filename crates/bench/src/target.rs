//! Brokers as child processes: started, probed, ended.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::BenchError;
use crate::generator::Node;
use crate::probe::round_trip;
use crate::started;

/// Longest wait for the first round trip.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Longest wait for an orderly end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Placeholder of the port in configurations and arguments.
const PORT: &str = "{port}";
/// Placeholder of a second port in arguments, such as that of an HTTP API.
const OTHER_PORT: &str = "{other-port}";
/// Placeholder of the configuration file in arguments.
const CONFIG: &str = "{config}";

/// A broker that can be started on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name in tables.
    pub name: String,
    /// Words before the program, such as those of a profiler; may be empty.
    pub wrapper: Vec<String>,
    /// Program.
    pub program: PathBuf,
    /// Arguments; `{port}`, `{other-port}` and `{config}` are filled in.
    pub arguments: Vec<String>,
    /// Configuration file, if it needs one; `{port}` is filled in.
    pub config: Option<String>,
}

/// A running broker; ended when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// Its address.
    pub address: SocketAddr,
    /// The address for `{other-port}`.
    pub other_address: SocketAddr,
    /// How long its start took.
    pub readiness: Readiness,
    /// Its files.
    folder: PathBuf,
}

/// Times from the start of the process on (Comparison M4).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Readiness {
    /// Until a connection was accepted, in seconds.
    pub open_port_s: f64,
    /// Until a message returned to its sender, in seconds; or until another condition was met.
    pub round_trip_s: f64,
}

impl Target {
    /// The relay of the program `thicket`.
    #[must_use]
    pub fn relay(thicket: PathBuf) -> Self {
        Self::plain(
            "relay",
            thicket,
            &["bench", "relay", "--listen", "127.0.0.1:{port}"],
        )
    }

    /// A single node of the program `thicket`; `extra` arguments come last.
    #[must_use]
    pub fn node(name: &str, thicket: PathBuf, extra: &[&str]) -> Self {
        let mut target = Self::plain(
            name,
            thicket,
            &[
                "broker",
                "--listen",
                "127.0.0.1:{port}",
                "--http",
                "127.0.0.1:{other-port}",
            ],
        );
        // It must not discover other nodes on this machine.
        target
            .arguments
            .extend(["--discover", "off"].map(str::to_owned));
        target
            .arguments
            .extend(extra.iter().map(|&argument| argument.to_owned()));
        target
    }

    /// Mosquitto with the fewest settings with which it works: a listener and anonymous clients.
    #[must_use]
    pub fn mosquitto(program: PathBuf) -> Self {
        let config =
            "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nlog_dest none\n";
        Self {
            config: Some(config.to_owned()),
            ..Self::plain("mosquitto", program, &["-c", CONFIG])
        }
    }

    /// Any program that takes its port as an argument.
    #[must_use]
    pub fn plain(name: &str, program: PathBuf, arguments: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            wrapper: Vec::new(),
            program,
            arguments: arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect(),
            config: None,
        }
    }

    /// Starts it on a free port of 127.0.0.1 and waits until a message has returned.
    pub fn start(&self) -> Result<Running, BenchError> {
        self.start_until(|address| round_trip(address, READY_WITHIN))
    }

    /// Starts it on a free port of 127.0.0.1 and calls `ready` until it returns true.
    pub fn start_until(
        &self,
        ready: impl Fn(SocketAddr) -> io::Result<()>,
    ) -> Result<Running, BenchError> {
        let address = free_address().map_err(BenchError::system("a free port"))?;
        let folder = std::env::temp_dir().join(format!(
            "thicket-bench-{}-{}",
            std::process::id(),
            address.port()
        ));
        let other_address = free_address().map_err(BenchError::system("a free port"))?;
        let started = Instant::now();
        let child = self
            .spawn(address, other_address, &folder)
            .map_err(BenchError::system(format!("cannot start {}", self.name)))?;
        let mut running = Running {
            child,
            address,
            other_address,
            readiness: Readiness {
                open_port_s: 0.0,
                round_trip_s: 0.0,
            },
            folder,
        };
        running.wait_ready(&self.name, started, ready)?;
        Ok(running)
    }

    fn spawn(
        &self,
        address: SocketAddr,
        other_address: SocketAddr,
        folder: &PathBuf,
    ) -> io::Result<Child> {
        fs::create_dir_all(folder)?;
        let port = address.port().to_string();
        let other_port = other_address.port().to_string();
        let config_path = folder.join("config");
        let fill = |word: &String| {
            word.replace(PORT, &port)
                .replace(OTHER_PORT, &other_port)
                .replace(CONFIG, &config_path.display().to_string())
        };
        if let Some(config) = &self.config {
            fs::write(&config_path, config.replace(PORT, &port))?;
        }
        let log = File::create(folder.join("log"))?;
        let mut words = self
            .wrapper
            .iter()
            .cloned()
            .chain([self.program.display().to_string()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command
            .args(words)
            .args(self.arguments.iter().map(fill))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        started::spawn(&mut command, folder)
    }
}

impl Running {
    /// Its process identifier.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its address as a node to connect to.
    #[must_use]
    pub fn node(&self) -> Node {
        Node {
            namespace: None,
            name: self.address.to_string(),
            address: self.address,
        }
    }

    /// Ends it in order and waits for its end.
    pub fn stop(mut self) -> Result<(), BenchError> {
        self.end()
            .map_err(BenchError::system("cannot end the broker"))
    }

    /// Kills it with SIGKILL and waits for its end.
    pub fn kill(mut self) -> Result<(), BenchError> {
        let killed = self.child.kill().and_then(|()| self.child.wait());
        killed
            .map(drop)
            .map_err(BenchError::system("cannot kill the broker"))
    }

    fn wait_ready(
        &mut self,
        name: &str,
        started: Instant,
        ready: impl Fn(SocketAddr) -> io::Result<()>,
    ) -> Result<(), BenchError> {
        let failed = |what: String, log: String| BenchError::Setting(format!("{name} {what}{log}"));
        while started.elapsed() < READY_WITHIN {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(failed(
                    format!("ended at once ({status})"),
                    self.last_words(),
                ));
            }
            if self.readiness.open_port_s == 0.0
                && std::net::TcpStream::connect(self.address).is_ok()
            {
                self.readiness.open_port_s = started.elapsed().as_secs_f64();
            }
            if self.readiness.open_port_s > 0.0 && ready(self.address).is_ok() {
                self.readiness.round_trip_s = started.elapsed().as_secs_f64();
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Err(failed(
            format!("was not ready within {} s", READY_WITHIN.as_secs()),
            self.last_words(),
        ))
    }

    /// The end of its output.
    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        if lines.is_empty() {
            String::new()
        } else {
            format!(
                ": {}",
                lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
            )
        }
    }

    fn end(&mut self) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        let asked = Instant::now();
        while asked.elapsed() < END_WITHIN {
            if self.child.try_wait()?.is_some() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// An address of 127.0.0.1 with a free port.
fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Finds the program `name` in the folders of `PATH` or where distributions put daemons.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    folders
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_at_once_is_told_with_its_last_words() {
        let program = find_program("sh").unwrap();
        let error = Target::plain("x", program, &["-c", "echo port {port} taken; exit 3"])
            .start()
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("x ended at once") && error.contains("taken"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_does_not_exist_is_told_by_name() {
        let error = Target::plain("ghost", PathBuf::from("/nonexistent/ghost"), &[])
            .start()
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("cannot start ghost: "), "{error}");
        assert_eq!(find_program("surely-no-such-program"), None);
    }
}
