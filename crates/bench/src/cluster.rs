//! A cluster of nodes on loopback, for experiments with the client library.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::metrics::{Metrics, REACHABLE};
use crate::target::{Running, Target};

/// Longest wait for the nodes to link with each other, and for a client to be served.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(30);

/// Limits the resources of a process: called with the identifier of each node that starts.
pub type Confine<'a> = dyn Fn(u32) -> io::Result<()> + 'a;

/// Starts `count` nodes with one worker each, and waits until all have links to all. `arguments` are added to the command line of each.
pub(crate) fn start_nodes(
    thicket: &Path,
    count: usize,
    arguments: &[String],
    confine: Option<&Confine<'_>>,
) -> Result<Vec<Running>, BenchError> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        let node = start_node(thicket, arguments, &addresses(&nodes))?;
        if let Some(confine) = confine {
            confine(node.pid()).map_err(BenchError::system("the limits of a node"))?;
        }
        nodes.push(node);
    }
    wait_for_all(&nodes)?;
    Ok(nodes)
}

/// Starts one node that looks for the others at `seeds`.
pub(crate) fn start_node(
    thicket: &Path,
    arguments: &[String],
    seeds: &[String],
) -> Result<Running, BenchError> {
    let fixed = [
        "broker",
        "--listen=127.0.0.1:{port}",
        "--http=127.0.0.1:{other-port}",
        "--discover=off",
        "--discovery-grace-ms=0",
        "--workers=1",
    ];
    let seeds: Vec<String> = seeds.iter().map(|seed| format!("--seed={seed}")).collect();
    let further = arguments.iter().chain(&seeds).map(String::as_str);
    let words: Vec<&str> = fixed.into_iter().chain(further).collect();
    Target::plain("thicket", thicket.to_owned(), &words).start()
}

/// The addresses for clients.
pub(crate) fn addresses(nodes: &[Running]) -> Vec<String> {
    nodes.iter().map(|node| node.address.to_string()).collect()
}

/// The sum of a metric of a node.
pub(crate) fn sum_at(api: SocketAddr, name: &str) -> Option<u64> {
    Metrics::fetch(api).ok()?.sum(name)
}

/// Waits until every node reaches all others.
pub(crate) fn wait_for_all(nodes: &[Running]) -> Result<(), BenchError> {
    let until = Instant::now() + READY_WITHIN;
    for node in nodes {
        while sum_at(node.other_address, REACHABLE) != Some(nodes.len() as u64) {
            if Instant::now() > until {
                let found = format!("the nodes do not see each other after {READY_WITHIN:?}");
                return Err(BenchError::Setting(found));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Jain's index; `None`: all loads are zero.
pub(crate) fn jain(loads: &[f64]) -> Option<f64> {
    let sum: f64 = loads.iter().sum();
    let squares: f64 = loads.iter().map(|load| load * load).sum();
    (squares > 0.0).then(|| sum * sum / (loads.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_node_makes_loads_uneven() {
        assert_eq!(jain(&[10.0, 10.0, 0.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[0.0, 0.0]), None);
    }
}
