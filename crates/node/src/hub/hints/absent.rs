//! A node that is out: what its persistent sessions want, and whether they go on elsewhere.
//!
//! | the node said last | since it is out | messages for it are kept |
//! | --- | --- | --- |
//! | one of its sessions has no copy | | yes |
//! | each has its copies | of one set of backups none has been there all the time, or taken over | yes |
//! | likewise | of each set one has been there | no: it gets the messages itself |
//! | likewise | of each set one has taken over | no, and it never will: the sessions are theirs |

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::{NodeId, NodeSlot};
use thicket_session::topic::{SubscriptionFilter, SubscriptionTree};

use super::wire::Backups;
use crate::mail::Interest;

/// Filters with what is wanted of them.
pub(in super::super) type Entries = BTreeMap<SubscriptionFilter, Interest>;

/// Where the sessions of a node that is out are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whereabouts {
    /// Some are nowhere else, for all that is known.
    Out,
    /// All have a copy that was here all the time.
    Copied,
    /// All go on elsewhere.
    TakenOver,
}

/// A node that is out.
#[derive(Debug)]
pub(super) struct Absent {
    pub slot: NodeSlot,
    pub entries: Entries,
    tree: SubscriptionTree<bool>,
    /// What it said of its copies.
    covered: Option<Vec<Backups>>,
    /// Nodes that have been there ever since, this one included.
    present: BTreeSet<NodeId>,
    taken_over: BTreeSet<NodeId>,
    /// Messages for it are kept.
    pub is_active: bool,
}

impl Absent {
    pub fn new(
        slot: NodeSlot,
        entries: Entries,
        covered: Option<Vec<Backups>>,
        present: BTreeSet<NodeId>,
    ) -> Self {
        let mut tree = SubscriptionTree::new(u64::from(slot.0));
        for filter in entries.keys() {
            *tree.entry(&filter.filter) = true;
        }
        Self {
            slot,
            entries,
            tree,
            covered,
            present,
            taken_over: BTreeSet::new(),
            is_active: false,
        }
    }

    /// Whether a persistent session of the node wants the topic.
    pub fn wants(&self, topic: &str) -> bool {
        let mut is_wanted = false;
        self.tree.for_each_match(topic, |_| is_wanted = true);
        is_wanted
    }

    /// Another node is out too: whatever it has, it does not get what is published now.
    pub fn lose(&mut self, node: NodeId) {
        self.present.remove(&node);
    }

    /// Another node goes on with sessions of this one.
    pub fn take_over(&mut self, by: NodeId) {
        self.taken_over.insert(by);
    }

    pub fn whereabouts(&self) -> Whereabouts {
        let Some(sets) = &self.covered else {
            return Whereabouts::Out;
        };
        let each_has = |nodes: &dyn Fn(&NodeId) -> bool| {
            let has = |set: &Backups| set.iter().any(nodes);
            sets.iter().all(has)
        };
        if each_has(&|node| self.taken_over.contains(node)) {
            Whereabouts::TakenOver
        } else if each_has(&|node| self.taken_over.contains(node) || self.present.contains(node)) {
            Whereabouts::Copied
        } else {
            Whereabouts::Out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_kept_unless_every_set_of_backups_has_one_that_was_here_or_took_over() {
        let (two, three) = (NodeId(2), NodeId(3));
        let sets = |sets: &[&[NodeId]]| Some(sets.iter().map(|set| set.to_vec()).collect());
        for (name, covered, lost, took_over, expected) in [
            (
                "a session without copy",
                None,
                vec![],
                vec![],
                Whereabouts::Out,
            ),
            (
                "no session",
                sets(&[]),
                vec![],
                vec![],
                Whereabouts::TakenOver,
            ),
            (
                "its backup is here",
                sets(&[&[two]]),
                vec![],
                vec![],
                Whereabouts::Copied,
            ),
            (
                "its backup is out too",
                sets(&[&[two]]),
                vec![two],
                vec![],
                Whereabouts::Out,
            ),
            (
                "one of its backups is here",
                sets(&[&[two, three]]),
                vec![two],
                vec![],
                Whereabouts::Copied,
            ),
            (
                "one backup of two is here",
                sets(&[&[two], &[three]]),
                vec![two],
                vec![],
                Whereabouts::Out,
            ),
            (
                "one took over, one is here",
                sets(&[&[two], &[three]]),
                vec![],
                vec![two],
                Whereabouts::Copied,
            ),
            (
                "both took over",
                sets(&[&[two], &[three]]),
                vec![],
                vec![two, three],
                Whereabouts::TakenOver,
            ),
            (
                "it took over, and is out",
                sets(&[&[two]]),
                vec![two],
                vec![two],
                Whereabouts::TakenOver,
            ),
        ] {
            let present = BTreeSet::from([two, three]);
            let mut absent = Absent::new(NodeSlot(1), Entries::new(), covered, present);
            lost.into_iter().for_each(|node| absent.lose(node));
            took_over
                .into_iter()
                .for_each(|node| absent.take_over(node));
            assert_eq!(absent.whereabouts(), expected, "{name}");
        }
    }
}
