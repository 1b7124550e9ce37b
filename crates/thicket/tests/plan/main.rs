//! `thicket plan` from the outside: arguments in, objects out.

mod recordings;
mod refusals;
mod simulator;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn thicket(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_thicket"))
        .arg("plan")
        .args(arguments)
        // Only the message is of interest, and finding the lines of a backtrace takes long.
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the binary of this package runs")
}

/// Standard output of a run that must succeed.
fn printed(arguments: &[&str]) -> String {
    let output = thicket(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

fn objects(arguments: &[&str]) -> Vec<Value> {
    printed(arguments)
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object a line"))
        .collect()
}

/// Standard error of a run that must fail.
fn complaint(arguments: &[&str]) -> String {
    let output = thicket(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).expect("messages are UTF-8")
}

/// A file of its own for each test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("thicket-plan-{}-{name}", std::process::id()));
        std::fs::write(&path, content).expect("the temporary directory takes files");
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("temporary paths are UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn close(found: &Value, expected: f64) -> bool {
    found
        .as_f64()
        .is_some_and(|found| (found - expected).abs() <= 1e-6 * expected.abs())
}
