//! The lab of a user who is not root: in its own user namespace, if the kernel permits one.
//!
//! In it, the user is root over new network namespaces and mounts, and over nothing else. It ends with its last process. Commands on a network that runs
//! by hand enter the namespaces of that one.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::command;
use crate::error::LabError;
use crate::janitor;
use crate::running::one_of;

/// Set for the program in the namespace.
const INSIDE: &str = "THICKET_LAB_USER_NAMESPACE";
/// Named namespaces are kept below `/run`, which the user cannot write to.
const OWN_RUN: &str = "mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"";
const UNSHARE: [&str; 4] = ["--user", "--map-root-user", "--net", "--mount"];

/// Whether this process is in such a namespace.
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Does nothing for root. Otherwise this program starts again, with the same arguments, in a user namespace.
pub fn enter_if_needed(program: &Path) -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let refused = |reason: String| LabError::Machine(refusal(&reason));
    if command::find("unshare").is_none() {
        return Err(refused(
            "unshare is missing (package util-linux)".to_owned(),
        ));
    }
    let attempt = [&UNSHARE[..], &["sh", "-c", OWN_RUN, "true"]].concat();
    command::run("unshare", &attempt).map_err(|error| refused(error.to_string()))?;
    let error = Command::new("unshare")
        .args(UNSHARE)
        .args(["sh", "-c", OWN_RUN])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(refused(error.to_string()))
}

/// Does nothing for root, or if no lab of this user runs by hand in a user namespace. Otherwise this program starts again, with the same arguments, in
/// that namespace: names of network namespaces and the lab's socket are there.
pub fn join_running(program: &Path, lab: Option<u32>) -> Result<(), LabError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let labs = janitor::in_user_namespaces();
    if labs.is_empty() {
        return Ok(());
    }
    let lab = one_of(lab, &labs)?;
    let failed =
        |reason: String| LabError::Machine(format!("the user namespace of lab {lab}: {reason}"));
    if command::find("nsenter").is_none() {
        return Err(failed("nsenter is missing (package util-linux)".to_owned()));
    }
    let folder = std::env::current_dir().map_err(LabError::io("current folder"))?;
    let mut enter = Command::new("nsenter");
    enter.args(["--target", &lab.to_string(), "--user", "--mount"]);
    enter.arg("--preserve-credentials");
    // The current folder would be the root of the other namespace's files.
    let mut stay = std::ffi::OsString::from("--wd=");
    stay.push(&folder);
    let error = enter
        .arg(stay)
        .arg("--")
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(failed(error.to_string()))
}

fn refusal(reason: &str) -> String {
    let switches = [
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
        ),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/user/max_user_namespaces", "0"),
    ];
    let is_set = |(file, value): &(&str, &str)| {
        std::fs::read_to_string(file).is_ok_and(|text| text.trim() == *value)
    };
    let switch = switches.iter().find(|switch| is_set(switch));
    let why = switch.map_or(String::new(), |(file, value)| {
        format!(", as {file} is {value}")
    });
    format!(
        "it needs root, to make network namespaces and their devices; a user namespace would do, and there is none{why}: {reason}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_needed_and_why_it_is_not_there() {
        let refusal = refusal("unshare: unshare failed: Operation not permitted");
        assert!(refusal.starts_with("it needs root"), "{refusal}");
        assert!(refusal.ends_with("Operation not permitted"), "{refusal}");
    }
}
