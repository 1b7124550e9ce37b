//! A node that is down: the interests of its persistent sessions, and whether these have failed over to other nodes.
//!
//! | last report of the node | since it is down | messages for it are kept |
//! | --- | --- | --- |
//! | one of its sessions has no backup | | yes |
//! | each has its backups | of one set of backups none has taken over | yes: they may not consider it down, and it may come back |
//! | likewise | of each set one has taken over | no, and never will be: the sessions were promoted there |

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::{NodeId, NodeSlot};
use thicket_session::topic::{SubscriptionFilter, SubscriptionTree};

use super::wire::Backups;
use crate::messages::Interest;

/// Filters with the interest in them.
pub(in super::super) type Entries = BTreeMap<SubscriptionFilter, Interest>;

/// A node that is down.
#[derive(Debug)]
pub(super) struct Absent {
    pub slot: NodeSlot,
    pub entries: Entries,
    tree: SubscriptionTree<bool>,
    /// What it reported of its backups.
    covered: Option<Vec<Backups>>,
    taken_over: BTreeSet<NodeId>,
    /// Messages for it are kept.
    pub is_active: bool,
}

impl Absent {
    pub fn new(slot: NodeSlot, entries: Entries, covered: Option<Vec<Backups>>) -> Self {
        let mut tree = SubscriptionTree::new(u64::from(slot.0));
        for filter in entries.keys() {
            *tree.entry(&filter.filter) = true;
        }
        Self {
            slot,
            entries,
            tree,
            covered,
            taken_over: BTreeSet::new(),
            is_active: false,
        }
    }

    /// Whether a persistent session of the node subscribes to the topic.
    pub fn wants(&self, topic: &str) -> bool {
        let mut is_wanted = false;
        self.tree.for_each_match(topic, |_| is_wanted = true);
        is_wanted
    }

    /// Another node has taken over sessions of this one.
    pub fn take_over(&mut self, by: NodeId) {
        self.taken_over.insert(by);
    }

    /// Whether all its sessions have been taken over.
    pub fn is_taken_over(&self) -> bool {
        let has_one = |set: &Backups| set.iter().any(|node| self.taken_over.contains(node));
        let covered = self.covered.as_ref();
        covered.is_some_and(|sets| sets.iter().all(has_one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_until_of_every_set_of_backups_one_has_taken_over() {
        let (two, three) = (NodeId(2), NodeId(3));
        let sets = |sets: &[&[NodeId]]| Some(sets.iter().map(|set| set.to_vec()).collect());
        for (name, covered, took_over, expected) in [
            ("a session without backup", None, vec![two], false),
            ("no session", sets(&[]), vec![], true),
            ("not taken over yet", sets(&[&[two]]), vec![three], false),
            ("taken over", sets(&[&[two]]), vec![two], true),
            (
                "by one of its backups",
                sets(&[&[two, three]]),
                vec![two],
                true,
            ),
            ("some", sets(&[&[two], &[three]]), vec![two], false),
            ("all", sets(&[&[two], &[three]]), vec![two, three], true),
        ] {
            let mut absent = Absent::new(NodeSlot(1), Entries::new(), covered);
            for node in took_over {
                absent.take_over(node);
            }
            assert_eq!(absent.is_taken_over(), expected, "{name}");
        }
    }
}
