//! The settings of the load generator for one cell of a scenario.

use std::time::Duration;

use thicket_bench::arrivals::Redirect;
use thicket_bench::generator::{self, Node};
use thicket_bench::workload::Attachment;
use thicket_mqtt::{ProtocolVersion, Qos};

use super::workload::{Placement, Reference, Version};
use super::{Measure, Scenario};
use crate::units::Positive;

/// The prefix of client identifiers and of the usual topics in a run: as long in every run,
/// whatever system it has. Brokers start again for each repeat; a persistent session of one cell is
/// not that of the next.
#[must_use]
pub fn prefix(cell: usize, repeat: u64) -> String {
    format!("l{cell:04}-{repeat:03}")
}

/// The load generator's settings for a cell: `nodes` has one entry for each site.
#[must_use]
pub fn clients(
    scenario: &Scenario,
    names: &[String],
    nodes: &[Node],
    prefix: &str,
    seed: u64,
) -> generator::Scenario {
    let workload = &scenario.workload;
    // Clients are at sites that have a broker from the start.
    let later = &scenario.network.later;
    let (names, nodes): (Vec<&String>, Vec<Node>) = names
        .iter()
        .zip(nodes.iter().cloned())
        .filter(|(name, _)| !later.contains(name))
        .unzip();
    let at = |site: &String| names.iter().position(|name| *name == site).unwrap_or(0);
    let (nodes, attachment) = match &workload.placement {
        Placement::RoundRobin => (nodes, Attachment::RoundRobin),
        Placement::Random => (nodes, Attachment::Random),
        Placement::Locality100 => (nodes, Attachment::Locality100),
        Placement::Locality50Border => (nodes, Attachment::Locality50Border),
        Placement::Locality50Overlays => (nodes, Attachment::Locality50Overlays),
        Placement::Locality0 => (nodes, Attachment::Locality0),
        Placement::Sites {
            publishers,
            subscribers,
        } => {
            let publisher_nodes = publishers.names().len();
            let all = publishers.names().iter().chain(subscribers.names());
            let nodes = all.map(|site| nodes[at(site)].clone()).collect();
            (nodes, Attachment::Apart { publisher_nodes })
        }
    };
    let mut clients = generator::Scenario::new(nodes, workload.plan());
    clients.attachment = attachment;
    clients.version = match workload.mqtt {
        Version::V311 => ProtocolVersion::V311,
        Version::V5 => ProtocolVersion::V5,
    };
    clients.qos = Qos::from_bits(workload.qos).unwrap_or_default();
    let qos = workload.subscriber_qos.map(Qos::from_bits);
    clients.subscriber_qos = qos.map(Option::unwrap_or_default);
    clients.payload_len = workload.payload_bytes;
    // The file was checked when it was read.
    clients.payload_sizes = workload.payload.and_then(|law| law.sizes(seed).ok());
    if let Some(longest) = clients
        .payload_sizes
        .as_deref()
        .and_then(|all| all.iter().max())
    {
        clients.payload_len = *longest as usize;
    }
    clients.topic = workload.topic().ok().flatten();
    clients.retain = workload.retain;
    clients.will = workload.will.as_ref().map(super::Will::message);
    clients.keep_alive_s = workload.keep_alive_s;
    clients.connects_per_s = workload.connects_per_s.map(Positive::value);
    clients.persistent = workload.persistent;
    clients.login = workload.login();
    clients.redirect = match workload.redirect {
        Reference::Follow => Redirect::Follow,
        Reference::Ignore => Redirect::Ignore,
    };
    clients.prefix = prefix.to_owned();
    clients.seed = seed;
    // A broker that closes connections under faults is a result.
    clients.reconnect = !scenario.faults.is_empty() && scenario.measure == Measure::Load;
    clients.settle = Duration::from_secs_f64(scenario.phases.settle_s.value());
    clients
}
