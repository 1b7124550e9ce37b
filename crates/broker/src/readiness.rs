//! Whether the node is ready: it serves clients well, and the cluster is as the configuration expects.
//!
//! The answer decides where a balancer sends clients. Clients that connect nevertheless are accepted, so that the last remaining node serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thicket_node::Hub;

/// Time between two warnings that expected nodes are missing.
const REPEAT: Duration = Duration::from_secs(30);

/// Why a node is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unready {
    #[error("this node has not received all that it must know from the other nodes yet")]
    Starting,
    #[error("this node is drained")]
    Draining,
    #[error("this side of the cluster has no majority")]
    Minority,
    #[error(
        "this node has not found the cluster: it expects {expected} nodes and has seen {seen} (`expect_nodes`, by default 2 with seeds)"
    )]
    Alone { expected: u32, seen: u64 },
    #[error("{}", crate::disk::NOT_STORED)]
    Disk,
}

/// How many nodes must have been up at the same time before this one is ready. Once met, it stays met: a node whose cluster shrinks continues to
/// serve.
#[derive(Debug, Clone)]
pub(crate) struct Expectation {
    nodes: u32,
    is_met: Arc<AtomicBool>,
}

impl Expectation {
    /// `nodes`: includes the node itself, so 1 expects no others.
    pub(crate) fn new(nodes: u32) -> Self {
        Self {
            nodes,
            is_met: Arc::new(AtomicBool::new(nodes <= 1)),
        }
    }

    fn unmet(&self, seen: u64) -> Option<Unready> {
        if seen >= u64::from(self.nodes) {
            self.is_met.store(true, Ordering::Relaxed);
        }
        let expected = self.nodes;
        (!self.is_met.load(Ordering::Relaxed)).then_some(Unready::Alone { expected, seen })
    }

    /// Why the node is not ready, judged by its hub.
    pub(crate) fn judge(&self, hub: &Hub) -> Result<(), Unready> {
        let membership = hub.membership();
        let unmet = self.unmet(membership.reachable);
        if hub.is_draining() {
            Err(Unready::Draining)
        } else if !hub.is_ready() {
            Err(Unready::Starting)
        } else if !membership.serves {
            Err(Unready::Minority)
        } else {
            unmet.map_or(Ok(()), Err)
        }
    }
}

/// Warns repeatedly that expected nodes are missing.
#[derive(Debug)]
pub(crate) struct Reminder {
    due: Instant,
    has_warned: bool,
}

impl Reminder {
    /// The first warning comes only after the interval: nodes that start together need a moment to find each other.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            due: now + REPEAT / 6,
            has_warned: false,
        }
    }

    pub(crate) fn note(&mut self, now: Instant, state: Result<(), Unready>) {
        match state {
            Err(unready @ Unready::Alone { .. }) if now >= self.due => {
                self.due = now + REPEAT;
                self.has_warned = true;
                tracing::warn!(reason = %unready, "not ready");
            }
            Ok(()) if self.has_warned => {
                self.has_warned = false;
                tracing::info!("ready: the expected nodes are there");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_were_seen_once_are_not_expected_again() {
        let expectation = Expectation::new(3);
        let alone = |seen| Some(Unready::Alone { expected: 3, seen });
        assert_eq!(expectation.unmet(1), alone(1));
        assert_eq!(expectation.unmet(2), alone(2));
        assert_eq!(expectation.unmet(3), None);
        assert_eq!(expectation.unmet(1), None, "two nodes went down since");
    }

    #[test]
    fn a_node_that_expects_one_node_is_content_alone() {
        assert_eq!(Expectation::new(1).unmet(1), None);
    }
}
