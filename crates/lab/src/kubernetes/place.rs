//! What a folder of an export is made from, and names and ports in it.

use crate::driver::Driver;
use crate::scenario::{Scenario, System};
use crate::topology::Topology;

/// The port of clients.
pub(super) const PORT: u16 = 1883;

/// The inputs of each part.
pub(super) struct Place<'a> {
    pub(super) name: String,
    pub(super) scenario: &'a Scenario,
    pub(super) text: String,
    pub(super) topology: Topology,
    pub(super) system: &'a System,
    pub(super) driver: Driver,
    pub(super) image: String,
    pub(super) load_image: &'a str,
}

impl Place<'_> {
    /// Sites with a broker.
    pub(super) fn brokers(&self) -> usize {
        self.driver.brokers.count(self.topology.sites.len())
    }

    pub(super) fn pod(&self, site: usize) -> String {
        format!("broker-{}", plain(&self.topology.sites[site]))
    }
}

/// A name that Kubernetes accepts.
pub(super) fn plain(name: &str) -> String {
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    name.chars().map(letter).collect()
}
