//! A node that is down: the interests of its persistent sessions, and whether these have failed over to other nodes.
//!
//! | last report of the node | since it is down | messages for it are kept |
//! | --- | --- | --- |
//! | one of its sessions has no backup | | yes |
//! | each has its backups | in at least one set of backups, no node has taken over | yes: they may not consider it down, and it may come back |
//! | likewise | in each set, one node has taken over | no, and never will be: the sessions were promoted there |
//! | whichever | another node that was down is back: this one is *expected* | yes, of all topics: sessions may have moved to it |

use std::collections::{BTreeMap, BTreeSet};

use thicket_mqtt::Qos;
use thicket_overlay::{InterestValue, NodeId, NodeSlot};
use thicket_session::topic::{SubscriptionFilter, SubscriptionTree};

use super::{
    super::interests::{entry_of, everything},
    wire::Backups,
};
use crate::messages::Interest;

/// Filters with the interest in them.
pub(in super::super) type Entries = BTreeMap<SubscriptionFilter, Interest>;

/// Which topics the filters of entries match.
#[derive(Debug)]
pub(super) struct Matching(SubscriptionTree<bool>);

impl Matching {
    pub fn new(slot: NodeSlot, entries: &Entries) -> Self {
        let mut tree = SubscriptionTree::new(u64::from(slot.0));
        for filter in entries.keys() {
            *tree.entry(&filter.filter) = true;
        }
        Self(tree)
    }

    pub fn has(&self, topic: &str) -> bool {
        let mut is_matched = false;
        self.0.for_each_match(topic, |_| is_matched = true);
        is_matched
    }
}

/// A node that is down.
#[derive(Debug)]
pub(super) struct Absent {
    pub slot: NodeSlot,
    pub entries: Entries,
    topics: Matching,
    /// What it reported of its backups.
    covered: Option<Vec<Backups>>,
    taken_over: BTreeSet<NodeId>,
    /// Messages for its own sessions are kept.
    pub is_active: bool,
    /// Messages of all topics are kept, as it is about to be back with sessions that were at other nodes before.
    pub is_expected: bool,
}

impl Absent {
    pub fn new(slot: NodeSlot, entries: Entries, covered: Option<Vec<Backups>>) -> Self {
        Self {
            slot,
            topics: Matching::new(slot, &entries),
            entries,
            covered,
            taken_over: BTreeSet::new(),
            is_active: false,
            is_expected: false,
        }
    }

    /// A node none of whose own sessions messages are kept for.
    pub fn without_sessions(slot: NodeSlot) -> Self {
        Self::new(slot, Entries::new(), Some(Vec::new()))
    }

    /// The interests in the messages that are kept for it.
    pub fn kept(&self) -> Entries {
        match (self.is_expected, self.is_active) {
            (true, _) => in_everything(),
            (false, true) => self.entries.clone(),
            (false, false) => Entries::new(),
        }
    }

    /// Whether a persistent session of the node subscribes to the topic.
    pub fn wants(&self, topic: &str) -> bool {
        self.topics.has(topic)
    }

    /// The node is back: the topics of what is kept for its own sessions; `None`: nothing is.
    pub fn into_kept_topics(self) -> Option<Matching> {
        self.is_active.then_some(self.topics)
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

/// The interest of a node that is expected.
fn in_everything() -> Entries {
    let value = InterestValue {
        qos: Qos::ExactlyOnce,
        persistent: true,
        weight: 0,
    };
    entry_of(&everything(), value).into_iter().collect()
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
