//! The lab with real namespaces. If this machine has none, every test that needs them prints that it is skipped, and ends.

mod ends;
mod kubernetes;
mod measures;
mod refusals;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use thicket_lab::results::Results;
use thicket_lab::testbed::check_machine;

/// One network at a time: two of them on a small machine would measure each other.
static TURN: Mutex<()> = Mutex::new(());

/// The only lab of these tests while it lives, with a folder of its own.
struct Turn {
    folder: TempDir,
    _only: MutexGuard<'static, ()>,
}

impl Turn {
    fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Waits until no other test has a lab. `None` where this machine cannot run one: the test says so and ends.
fn turn() -> Option<Turn> {
    if let Err(error) = check_machine() {
        eprintln!("skipped: {error}");
        return None;
    }
    Some(Turn {
        _only: TURN.lock().unwrap_or_else(PoisonError::into_inner),
        folder: tempfile::tempdir().unwrap(),
    })
}

const SCENARIO: &str = r#"
title = "A test"
network = { sites = 3, link = { rtt_ms = 4, bandwidth_mbit = 10 } }
brokers = { cpus = 1, memory_mib = 512 }
system = [{ name = "mesh", driver = "thicket" }]
phases = { control_s = 0.1, settle_s = 0.1 }
[workload]
pattern = "fan-out"
subscribers = 6
qos = 1
rate_per_s = 50
"#;

fn lab(arguments: &[&str]) -> Command {
    // A lab ignores SIGHUP if `nohup` started it, and so would one that tests start under `nohup`.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_thicket")]);
    command.arg("lab").args(arguments).stdin(Stdio::null());
    command
}

/// Runs `SCENARIO` with `addition` to its end.
fn run(folder: &Path, addition: &str) -> (Output, Results) {
    run_scenario(folder, &format!("{SCENARIO}{addition}"))
}

fn run_scenario(folder: &Path, scenario: &str) -> (Output, Results) {
    let file = folder.join("scenario.toml");
    let out = folder.join("out");
    std::fs::write(&file, scenario).unwrap();
    let output = lab(&[
        "run",
        file.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ])
    .output()
    .unwrap();
    let results = Results::load(&out)
        .unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&output.stderr)));
    (output, results)
}

fn figure(results: &Results, name: &str) -> Vec<f64> {
    let runs = results.runs.iter();
    runs.map(|run| {
        *run.metrics
            .get(name)
            .unwrap_or_else(|| panic!("no {name}: {:?}", run.invalid))
    })
    .collect()
}

/// Builds `SCENARIO` for use by hand, until it is ended.
fn up(folder: &Path) -> Child {
    let file = folder.join("scenario.toml");
    std::fs::write(&file, format!("{SCENARIO}messages = 1\n")).unwrap();
    lab(&["up", file.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Starts a run of a scenario into `folder`.
fn start(folder: &Path, scenario: &str) -> Child {
    let file = folder.join("scenario.toml");
    std::fs::write(&file, scenario).unwrap();
    let out = folder.join("out");
    lab(&[
        "run",
        file.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
        "-q",
    ])
    .stdout(Stdio::null())
    .stderr(Stdio::null())
    .spawn()
    .unwrap()
}

fn end(lab: &Child, signal: Signal) {
    let pid = Pid::from_raw(lab.id() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Waits for something that the lab does, while the lab lives.
fn wait_for(child: &mut Child, done: impl Fn() -> bool) {
    while !done() {
        assert_eq!(child.try_wait().unwrap(), None, "the lab has ended");
        std::thread::sleep(Duration::from_millis(20));
    }
}
