//! Becoming another program inside a namespace and control groups. A separate process does it, so that no code runs between fork and exec.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use thicket_bench::namespace;

use crate::error::LabError;

/// Enters `namespace` and the control groups at `groups`, stays on `cores` (empty: all), and becomes the command. It dies with the process `lab`, which started it.
pub fn enter(
    lab: u32,
    namespace: &Path,
    groups: &[PathBuf],
    cores: &[usize],
    argv: &[String],
) -> Result<Infallible, LabError> {
    let Some((program, arguments)) = argv.split_first() else {
        return Err(LabError::Machine("there is no command to run".to_owned()));
    };
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| LabError::io("parent death signal")(error.into()))?;
    // If the lab died before the line above, the signal is never sent.
    if std::os::unix::process::parent_id() != lab {
        return Err(LabError::Machine("the lab has ended".to_owned()));
    }
    for group in groups {
        let file = group.join("cgroup.procs");
        std::fs::write(&file, std::process::id().to_string())
            .map_err(LabError::io(file.display()))?;
    }
    if !cores.is_empty() {
        let mut set = CpuSet::new();
        cores.iter().for_each(|&core| set.set(core));
        sched_setaffinity(None, &set)
            .map_err(|error| LabError::io(format!("cores {cores:?}"))(error.into()))?;
    }
    namespace::move_into(namespace).map_err(LabError::io(namespace.display()))?;
    Err(LabError::io(program)(
        Command::new(program).args(arguments).exec(),
    ))
}
