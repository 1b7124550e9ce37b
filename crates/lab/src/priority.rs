//! Running before other processes (SCHED_FIFO), if permitted: by `chrt`, as the system call has no safe wrapper.

use std::process::{Command, Stdio};

/// This thread, and those it starts, run before others until this is dropped.
#[derive(Debug)]
pub struct Priority {
    granted: bool,
}

impl Priority {
    /// Requests it, `priority` from 1 to 99.
    #[must_use]
    pub fn raise(priority: u8) -> Self {
        Self {
            granted: chrt("--fifo", priority),
        }
    }

    /// Whether it was granted.
    #[must_use]
    pub const fn is_granted(&self) -> bool {
        self.granted
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if self.granted {
            chrt("--other", 0);
        }
    }
}

fn chrt(policy: &str, priority: u8) -> bool {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let chrt = Command::new("chrt")
        .args([policy, "--pid", &priority.to_string(), &thread])
        .stdin(Stdio::null())
        .output();
    chrt.is_ok_and(|output| output.status.success())
}
