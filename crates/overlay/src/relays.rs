//! Records of other nodes that others are to hear of, until they do.
//!
//! When many nodes start, each hears of each other one over all the links it gets. Who waits a little has most records to say to nobody: by
//! then they list who has them from their node, and others have said the same here.

use std::collections::BTreeMap;

use thicket_session::time::Instant;

use crate::identity::{LinkId, NodeId};

/// A record of another node that changed.
#[derive(Debug)]
pub(crate) struct Relay {
    /// The links over which it came or was said to be there: what is at their other ends has it.
    pub(crate) brought_by: Vec<LinkId>,
    /// When it came first.
    pub(crate) since: Instant,
}

/// By node, what is to be passed on; no more than the view has.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    waiting: BTreeMap<NodeId, Relay>,
    /// No later than the first of them.
    first: Option<Instant>,
    /// When some were taken last.
    taken: Instant,
}

impl Relays {
    /// A new version of a record came.
    pub(crate) fn note(&mut self, now: Instant, node: NodeId, link: LinkId) {
        let relay = self.waiting.entry(node).or_insert_with(|| Relay {
            brought_by: Vec::new(),
            since: now,
        });
        // Who brought the version before has not brought this one.
        relay.brought_by.clear();
        relay.brought_by.push(link);
        self.first.get_or_insert(now);
    }

    /// The record as it is here is at the other end of this link too.
    pub(crate) fn note_repeated(&mut self, node: NodeId, link: LinkId) {
        if let Some(relay) = self.waiting.get_mut(&node) {
            relay.brought_by.push(link);
        }
    }

    /// From when on they are gathered: the first of them came then or before, and no others were taken after it.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.first.map(|first| first.max(self.taken))
    }

    /// Takes that of one node.
    pub(crate) fn take(&mut self, node: NodeId) -> Option<Relay> {
        self.waiting.remove(&node)
    }

    /// Takes those that came at `until` or before, if none were taken after that: they wait for each other.
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
