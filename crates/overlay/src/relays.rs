//! Records of other nodes that changed and have not been announced to the neighbours yet.
//!
//! When many nodes start, each receives the record of each other node over several links. A node that waits a little has to announce few of them: by
//! then the records list the links of their nodes, and the neighbours have announced the same records here.

use std::collections::BTreeMap;

use thicket_session::time::Instant;

use crate::identity::{LinkId, NodeId};

/// A record of another node that changed.
#[derive(Debug)]
pub(crate) struct Relay {
    /// The links over which it arrived or was announced: the nodes at their other ends have it.
    pub(crate) brought_by: Vec<LinkId>,
    /// When it first arrived.
    pub(crate) since: Instant,
}

/// The records to announce, by node; at most as many as in the view.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    waiting: BTreeMap<NodeId, Relay>,
    /// Not later than the earliest `since`.
    first: Option<Instant>,
    /// When records were last taken.
    taken: Instant,
}

impl Relays {
    /// A new version of a record has arrived.
    pub(crate) fn note(&mut self, now: Instant, node: NodeId, link: LinkId) {
        let relay = self.waiting.entry(node).or_insert_with(|| Relay {
            brought_by: Vec::new(),
            since: now,
        });
        // A node that sent the version before need not have this one.
        relay.brought_by.clear();
        relay.brought_by.push(link);
        self.first.get_or_insert(now);
    }

    /// The node at the other end of this link has the version of the record that is here.
    pub(crate) fn note_repeated(&mut self, node: NodeId, link: LinkId) {
        if let Some(relay) = self.waiting.get_mut(&node) {
            relay.brought_by.push(link);
        }
    }

    /// The start of the current gathering: the first record arrived then or before, and none were taken after it.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.first.map(|first| first.max(self.taken))
    }

    /// Takes the record of one node.
    pub(crate) fn take(&mut self, node: NodeId) -> Option<Relay> {
        self.waiting.remove(&node)
    }

    /// Takes the records that arrived at `until` or before, unless some were taken after that: records are announced together.
    pub(crate) fn take_until(&mut self, now: Instant, until: Instant) -> Vec<(NodeId, Relay)> {
        if self.first().is_none_or(|first| first > until) {
            return Vec::new();
        }
        self.taken = now;
        let due = self.waiting.extract_if(.., |_, relay| relay.since <= until);
        let due = due.collect();
        self.first = self.waiting.values().map(|relay| relay.since).min();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_record_waits_from_when_it_changed_first_and_goes_to_nobody_that_brought_it() {
        let mut relays = Relays::default();
        let (seven, eight) = (NodeId(7), NodeId(8));
        relays.note(at(10), seven, LinkId(1));
        relays.note(at(15), eight, LinkId(1));
        relays.note(at(20), seven, LinkId(2));
        relays.note_repeated(seven, LinkId(3));
        relays.note_repeated(NodeId(9), LinkId(3));
        assert_eq!(relays.first(), Some(at(10)));
        assert!(relays.take_until(at(29), at(9)).is_empty());
        let due = relays.take_until(at(30), at(10));
        assert_eq!(due.len(), 1);
        let (node, relay) = &due[0];
        let brought_by = &relay.brought_by[..];
        assert_eq!((*node, brought_by), (seven, &[LinkId(2), LinkId(3)][..]));
        assert_eq!(relays.first(), Some(at(30)), "not one by one");
        assert!(relays.take_until(at(35), at(15)).is_empty());
        assert!(relays.take(eight).is_some());
        assert!(relays.take_until(at(119), at(99)).is_empty());
        assert_eq!(relays.first(), None);
    }
}
