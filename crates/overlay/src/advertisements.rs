//! Which nodes publish to which topics: soft state for display and tables only. Messages are routed without it (rule 22).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use thicket_session::time::Instant;

use crate::identity::NodeId;
use crate::tree_name::TreeName;

/// Own advertisements sent in one second at most; a topic over the limit is advertised with a later publication.
const MAXIMUM_RATE: u32 = 200;

/// Longer topics are neither advertised nor stored: many of them would take too much memory.
const MAXIMUM_TOPIC_BYTES: usize = 1024;

/// A topic this node publishes to.
#[derive(Debug)]
struct OwnTopic {
    /// When it must be advertised again.
    again: Instant,
    /// The tree of its last publication.
    tree: Arc<TreeName>,
}

/// Topics with the nodes that publish to them.
#[derive(Debug)]
pub(crate) struct Advertisements {
    received: BTreeMap<String, BTreeMap<NodeId, Instant>>,
    /// Entries of `received`.
    count: usize,
    /// Topics this node publishes to.
    own: BTreeMap<String, OwnTopic>,
    maximum: usize,
    life: Duration,
    second: Instant,
    sent: u32,
}

impl Advertisements {
    pub(crate) fn new(maximum: usize, life: Duration, now: Instant) -> Self {
        Self {
            received: BTreeMap::new(),
            count: 0,
            own: BTreeMap::new(),
            maximum,
            life,
            second: now,
            sent: 0,
        }
    }

    /// Topics advertised by other nodes.
    pub(crate) fn len(&self) -> usize {
        self.received.len()
    }

    /// This node publishes to a topic, over this tree; returns whether to advertise it now.
    pub(crate) fn publish(&mut self, now: Instant, topic: &str, tree: &Arc<TreeName>) -> bool {
        if let Some(known) = self.own.get_mut(topic) {
            if !Arc::ptr_eq(&known.tree, tree) {
                known.tree = Arc::clone(tree);
            }
            if now < known.again {
                return false;
            }
        }
        if topic.len() > MAXIMUM_TOPIC_BYTES {
            return false;
        }
        if now.since(self.second) >= Duration::from_secs(1) {
            self.second = now;
            self.sent = 0;
        }
        if self.sent >= MAXIMUM_RATE {
            return false;
        }
        if self.own.len() >= self.maximum && !self.own.contains_key(topic) {
            self.own.retain(|_, known| now < known.again);
            if self.own.len() >= self.maximum {
                return false;
            }
        }
        self.sent += 1;
        let known = OwnTopic {
            again: now + self.life / 2,
            tree: Arc::clone(tree),
        };
        self.own.insert(topic.to_owned(), known);
        true
    }

    /// The number of this node's topics whose last publication used a tree, by the nodes of the tree.
    pub(crate) fn topics_by_tree(&self) -> BTreeMap<&[NodeId], usize> {
        let mut topics = BTreeMap::new();
        for known in self.own.values() {
            *topics.entry(&*known.tree.members).or_default() += 1;
        }
        topics
    }

    /// Another node publishes to a topic; returns whether that is new.
    pub(crate) fn note(&mut self, now: Instant, origin: NodeId, topic: &str) -> bool {
        if topic.len() > MAXIMUM_TOPIC_BYTES {
            return false;
        }
        if self.count >= self.maximum {
            self.forget_old(now);
        }
        let is_full = self.count >= self.maximum;
        if !self.received.contains_key(topic) {
            if is_full {
                return false;
            }
            self.received.insert(topic.to_owned(), BTreeMap::new());
        }
        let Some(publishers) = self.received.get_mut(topic) else {
            return false;
        };
        let until = now + self.life;
        match publishers.get_mut(&origin) {
            // A duplicate that arrived by a second path.
            Some(known) if until.since(*known) < Duration::from_secs(1) => false,
            Some(known) => {
                *known = until;
                true
            }
            None if is_full => false,
            None => {
                publishers.insert(origin, until);
                self.count += 1;
                true
            }
        }
    }

    fn forget_old(&mut self, now: Instant) {
        for publishers in self.received.values_mut() {
            publishers.retain(|_, until| now < *until);
        }
        self.received.retain(|_, publishers| !publishers.is_empty());
        self.count = self.received.values().map(BTreeMap::len).sum();
    }

    /// The nodes that advertised a topic, ascending.
    pub(crate) fn publishers(&self, topic: &str) -> BTreeSet<NodeId> {
        self.received
            .get(topic)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(members: &[u64]) -> Arc<TreeName> {
        let members: Vec<NodeId> = members.iter().copied().map(NodeId).collect();
        let root = members[0];
        Arc::new(TreeName { root, members })
    }

    #[test]
    fn topics_count_for_the_tree_of_their_last_publication() {
        let mut table = Advertisements::new(9, Duration::from_secs(100), at(0));
        for (topic, tree) in [("a", [1, 2]), ("b", [1, 2]), ("c", [1, 3]), ("b", [1, 3])] {
            table.publish(at(0), topic, &over(&tree));
        }
        let topics = table.topics_by_tree();
        let count = |tree: &[u64]| topics.get(&*over(tree).members).copied();
        assert_eq!(
            [count(&[1, 2]), count(&[1, 3]), count(&[1])],
            [Some(1), Some(2), None]
        );
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_topic_is_advertised_once_until_half_its_life_is_over_and_not_too_many_at_once() {
        let mut table = Advertisements::new(1000, Duration::from_secs(100), at(0));
        let advertised: Vec<_> = [0, 10, 49_999, 50_000]
            .into_iter()
            .map(|now| table.publish(at(now), "a", &over(&[1, 2])))
            .collect();
        assert_eq!(advertised, [true, false, false, true]);
        let many = (0..500)
            .filter(|number| table.publish(at(60_000), &format!("t/{number}"), &over(&[1])))
            .count();
        assert_eq!(many, MAXIMUM_RATE as usize);
        assert!(
            table.publish(at(61_000), "t/499", &over(&[1, 3])),
            "a second later it may"
        );
    }

    #[test]
    fn an_advertisement_is_new_once_and_forgotten_when_it_expires() {
        let mut table = Advertisements::new(2, Duration::from_secs(100), at(0));
        let (north, south) = (NodeId(1), NodeId(2));
        assert!(table.note(at(0), north, "a"));
        assert!(!table.note(at(5), north, "a"), "over another way");
        assert!(table.note(at(5_000), south, "a"));
        assert!(!table.note(at(6_000), south, "b"), "full");
        assert_eq!(table.publishers("a"), BTreeSet::from([north, south]));
        assert!(table.note(at(102_000), south, "b"), "the first one is old");
        assert_eq!(
            (table.publishers("a"), table.len()),
            (BTreeSet::from([south]), 2)
        );
    }
}
