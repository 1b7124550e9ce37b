//! Facts of the machine and of the tools, which are part of every result.

use crate::limits::Controllers;
use crate::links::Backend;
use crate::results::Environment;
use crate::scenario::{Limits, Scenario};
use crate::testbed::congestion_control;

/// The back end of links, and what limits brokers, if all brokers run elsewhere.
pub const NONE: &str = "none";

/// Gathers the facts. `backend`: that of the links, if the lab builds any. `commit` is that of the build.
#[must_use]
pub fn environment(
    scenario: &Scenario,
    backend: Option<Backend>,
    commit: Option<&str>,
) -> Environment {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let sites = scenario.network.names().map_or(1, |names| names.len());
    Environment {
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
        cores,
        memory_mib: field(&read("/proc/meminfo"), "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
            / 1024,
        backend: backend.map_or(NONE, Backend::name).to_owned(),
        links_first: false,
        limits: backend.map_or_else(|| NONE.to_owned(), |_| Controllers::detect().describe()),
        congestion_control: congestion_control().map_or_else(
            || {
                read("/proc/sys/net/ipv4/tcp_congestion_control")
                    .trim()
                    .to_owned()
            },
            str::to_owned,
        ),
        oversubscribed: backend.is_some()
            && wanted_cores(&scenario.brokers, sites, cores) > cores as f64,
        lab: env!("CARGO_PKG_VERSION").to_owned(),
        commit: commit.map(str::to_owned),
        optimised: !cfg!(debug_assertions),
        brokers: std::collections::BTreeMap::new(),
    }
}

/// Cores that all brokers together may use.
fn wanted_cores(limits: &Limits, sites: usize, cores: usize) -> f64 {
    let each = limits
        .cpus
        .map_or(cores as f64, crate::units::Positive::value);
    each * sites as f64
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_elsewhere_have_no_links_and_no_limits_of_the_lab() {
        let text = include_str!("../../../scenarios/faults-small.toml");
        let (scenario, _) = Scenario::parse(text).unwrap();
        let facts = environment(&scenario, None, None);
        assert_eq!((&*facts.backend, &*facts.limits), (NONE, NONE));
        assert!(!facts.oversubscribed);
        let facts = environment(&scenario, Some(Backend::Wire), None);
        assert_eq!(facts.backend, "wire");
    }
}
