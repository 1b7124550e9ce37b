//! A quota of CPU for nodes, by the control groups of the lab.

use std::cell::Cell;
use std::io;

use anyhow::ensure;
use thicket_lab::limits::Controllers;
use thicket_lab::net::PREFIX;
use thicket_lab::scenario::Limits;

/// Groups with a quota, each with one process; they go when this goes.
#[derive(Debug)]
pub struct Quota {
    controllers: Controllers,
    limits: Limits,
    made: Cell<usize>,
}

impl Quota {
    /// So many cores for each process.
    pub fn new(cpus: f64) -> anyhow::Result<Self> {
        let controllers = Controllers::detect();
        if let Controllers::None { reason } = &controllers {
            anyhow::bail!("--cpus: there are no control groups: {reason}");
        }
        let text = format!("cpus = {cpus:?}");
        let limits = toml::from_str(&text).ok();
        ensure!(limits.is_some(), "--cpus {cpus}: expected more than 0");
        Ok(Self {
            controllers,
            limits: limits.unwrap_or_default(),
            made: Cell::new(0),
        })
    }

    /// Puts a process into a group of its own.
    pub fn limit(&self, pid: u32) -> io::Result<()> {
        let number = self.made.replace(self.made.get() + 1);
        let name = format!("{}{number}", own_prefix());
        let group = self.controllers.make(&name, &self.limits);
        for folder in group.map_err(io::Error::other)?.folders() {
            std::fs::write(folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.controllers
            .remove(&|name| name.starts_with(&own_prefix()));
    }
}

/// As the lab names its groups, so that `thicket lab down` finds those of a process that was killed.
fn own_prefix() -> String {
    format!("{PREFIX}{}-bench-", std::process::id())
}
