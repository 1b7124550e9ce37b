//! Metrics that the nodes of a rebalancing report, and waiting until they meet a condition.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::cluster::sum_at;
use crate::target::Running;

/// Time between two checks of the nodes.
const LOOK: Duration = Duration::from_millis(500);
pub(super) fn apis(nodes: &[Running]) -> Vec<SocketAddr> {
    nodes.iter().map(|node| node.other_address).collect()
}

/// Checks until it is true; returns how long that took since `began`. On another thread, so that clients do not wait meanwhile.
pub(super) async fn until(
    within: Duration,
    began: Instant,
    apis: Vec<SocketAddr>,
    is_so: impl Fn(&[SocketAddr]) -> bool + Send + Clone + 'static,
) -> Option<Duration> {
    let end = Instant::now() + within;
    while Instant::now() < end {
        let (apis, is_so) = (apis.clone(), is_so.clone());
        let looked = tokio::task::spawn_blocking(move || is_so(&apis)).await;
        if looked.unwrap_or(false) {
            return Some(began.elapsed());
        }
        tokio::time::sleep(LOOK).await;
    }
    None
}

pub(super) fn moves(apis: &[SocketAddr]) -> u64 {
    let of = |api: &SocketAddr| sum_at(*api, "thicket_rebalance_moves_total").unwrap_or(0);
    apis.iter().map(of).sum()
}

/// Clients at each node.
pub(super) fn connections(apis: &[SocketAddr]) -> Vec<f64> {
    let of = |api: &SocketAddr| sum_at(*api, "thicket_connections").unwrap_or(0) as f64;
    apis.iter().map(of).collect()
}
