//! Commands of the system, each with its answer in the error.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::LabError;

/// Runs a program to its end and returns its output.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, LabError> {
    feed(program, arguments, "")
}

/// The same with `input` on standard input.
pub fn feed(program: &str, arguments: &[&str], input: &str) -> Result<String, LabError> {
    feed_with(program, arguments, input, &[])
}

/// The same with these variables in its environment.
pub fn feed_with(
    program: &str,
    arguments: &[&str],
    input: &str,
    env: &[(&str, &Path)],
) -> Result<String, LabError> {
    let name = || format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(LabError::io(name()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that stops reading has failed, and reports that itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(LabError::io(name()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(LabError::Command {
        command: name(),
        answer: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// Whether a program is somewhere in PATH or in the system's folders.
#[must_use]
pub fn find(program: &str) -> Option<std::path::PathBuf> {
    if program.contains('/') {
        let path = std::path::PathBuf::from(program);
        return path.is_file().then_some(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(Into::into))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
