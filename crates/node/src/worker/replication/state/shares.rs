//! How the backups of this worker's sessions are spread over the other nodes: when this node dies, none of them is to take over much more than its
//! share, wherever the topics of the sessions have subscribers.

use std::collections::BTreeMap;

use thicket_overlay::NodeId;
use thicket_placement::{BACKUP_SLACK as SLACK, GAMMA_PERCENT};

/// Backups are counted again after this many choices, or after this fraction of all if that is more.
const RECOUNT: (u64, u64) = (64, 8);

/// How many sessions each node holds for this worker, nearly: sessions that have ended since the last count are still in it.
#[derive(Debug, Default)]
pub(in super::super) struct Shares {
    held: BTreeMap<NodeId, u64>,
    total: u64,
    chosen: u64,
}

impl Shares {
    /// Whether backups are to be counted again before the next choice.
    pub const fn is_stale(&self) -> bool {
        let (least, part) = RECOUNT;
        let part = self.total / part;
        self.chosen >= if part > least { part } else { least }
    }

    /// Counts again; a node for each session that it holds.
    pub fn recount(&mut self, nodes: impl Iterator<Item = NodeId>) {
        *self = Self::default();
        for node in nodes {
            self.note(node);
        }
        self.chosen = 0;
    }

    /// A node gets another session.
    pub fn note(&mut self, node: NodeId) {
        *self.held.entry(node).or_default() += 1;
        self.total += 1;
        self.chosen += 1;
    }

    /// Whether a node with `weight` of the capacity `all` is below its share.
    pub fn has_capacity(&self, node: NodeId, weight: u64, all: u64) -> bool {
        let held = self.held.get(&node).copied().unwrap_or(0);
        let share = u128::from(self.total + 1) * u128::from(weight) / u128::from(all.max(1));
        u128::from(held) < share * u128::from(GAMMA_PERCENT) / 100 + u128::from(SLACK)
    }
}

#[cfg(test)]
mod tests {
    use thicket_overlay::Incarnation;

    use super::*;
    use crate::messages::Cluster;

    const FIRST: NodeId = NodeId(1);
    const SECOND: NodeId = NodeId(2);

    #[test]
    pub fn no_node_gets_much_more_than_its_share_even_if_all_want_it() {
        for (weights, shares) in [([1, 1], [560, 440]), ([3, 1], [830, 170])] {
            let all = weights.iter().sum();
            let mut held = Shares::default();
            for _ in 0..1000 {
                // All would like to go to the first one.
                let has_capacity = held.has_capacity(FIRST, weights[0], all);
                held.note(if has_capacity { FIRST } else { SECOND });
            }
            let found = [FIRST, SECOND].map(|node| held.held.get(&node).copied().unwrap_or(0));
            let off = found[0].abs_diff(shares[0]);
            assert!(off < 20, "{weights:?}: {found:?}");
        }
    }

    #[test]
    pub fn nodes_that_have_nothing_left_have_equal_shares() {
        let mut cluster = Cluster::new(Incarnation(1));
        cluster.capabilities.push((FIRST, 0));
        let weight = cluster.capability_of(FIRST);
        let all = weight + cluster.capability_of(SECOND);
        let mut held = Shares::default();
        for number in 0..1000 {
            assert!(held.has_capacity(FIRST, weight, all));
            held.note(if number % 2 == 0 { FIRST } else { SECOND });
        }
    }

    #[test]
    pub fn of_few_sessions_topics_decide_alone() {
        let mut held = Shares::default();
        for _ in 0..SLACK {
            assert!(held.has_capacity(FIRST, 1, 1000));
            held.note(FIRST);
        }
        assert!(!held.has_capacity(FIRST, 1, 1000));
        assert!(held.has_capacity(SECOND, 1, 1000));
    }

    #[test]
    pub fn they_are_counted_again_after_a_part_of_all_was_chosen() {
        let mut held = Shares::default();
        held.recount((0..800).map(|number| NodeId(number % 2)));
        for _ in 0..112 {
            assert!(!held.is_stale());
            held.note(FIRST);
        }
        assert!(!held.is_stale());
        held.note(FIRST);
        held.note(FIRST);
        assert!(held.is_stale());
        held.recount(std::iter::once(FIRST));
        assert!(!held.is_stale());
        assert_eq!(held.total, 1);
    }
}
