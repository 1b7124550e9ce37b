//! What a measurement has started, for a signal that ends it: a signal runs no destructors.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

/// A process and its temporary folder.
struct Started {
    process: OwnedFd,
    folder: PathBuf,
}

static ALL: Mutex<Vec<Started>> = Mutex::new(Vec::new());

/// Starts a process that works in a temporary folder; [`end_all`] ends it and removes the folder.
pub(crate) fn spawn(command: &mut Command, folder: &Path) -> io::Result<Child> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(is_running);
    let child = command.spawn()?;
    // Kernels before 5.3 cannot: then a signal leaves it running.
    if let Ok(process) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        let folder = folder.to_owned();
        all.push(Started { process, folder });
    }
    Ok(child)
}

/// Whether nobody has waited for its end yet.
fn is_running(started: &Started) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::PidFd(started.process.as_fd()), look).is_ok()
}

/// Kills every process that a measurement of this program has started, and removes its temporary folder. The program must end then.
pub fn end_all() {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    for started in all.iter() {
        // It may have ended by itself.
        let _ = pidfd_send_signal(&started.process, Signal::KILL);
        let _ = fs::remove_dir_all(&started.folder);
    }
    // Nothing more is started.
    std::mem::forget(all);
}
