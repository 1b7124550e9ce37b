//! Records of other nodes that are to be passed on, until they are.
//!
//! When many nodes start, each hears of each other one over all the links it gets. Who waits a little passes most records on to nobody: by
//! then they list who has them from their owner, and others have sent them here.

use std::collections::BTreeMap;

use thicket_session::time::Instant;

use crate::identity::{LinkId, NodeId};
use crate::view::NodeRecord;

/// A record of another node that changed.
#[derive(Debug)]
pub(crate) struct Relay {
    /// As it was passed on last; `None`: never.
    pub(crate) before: Option<NodeRecord>,
    /// The links that brought it: what is at their other ends has it.
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
}

impl Relays {
    /// A record came that is newer than `before`.
    pub(crate) fn note(
        &mut self,
        now: Instant,
        node: NodeId,
        before: Option<NodeRecord>,
        link: LinkId,
    ) {
        let relay = self.waiting.entry(node).or_insert_with(|| Relay {
            before,
            brought_by: Vec::new(),
            since: now,
        });
        // Who brought the version before has not brought this one.
        relay.brought_by.clear();
        relay.brought_by.push(link);
        self.first.get_or_insert(now);
    }

    /// The record as it is here came over another link too.
    pub(crate) fn note_repeated(&mut self, node: NodeId, link: LinkId) {
        if let Some(relay) = self.waiting.get_mut(&node) {
            relay.brought_by.push(link);
        }
    }

    /// When the first of them came, or before.
    pub(crate) const fn first(&self) -> Option<Instant> {
        self.first
    }

    /// Takes that of one node.
    pub(crate) fn take(&mut self, node: NodeId) -> Option<Relay> {
        self.waiting.remove(&node)
    }

    /// Takes those that came at `until` or before.
    pub(crate) fn take_until(&mut self, until: Instant) -> Vec<(NodeId, Relay)> {
        if self.first.is_none_or(|first| first > until) {
            return Vec::new();
        }
        let due = self.waiting.extract_if(.., |_, relay| relay.since <= until);
        let due = due.collect();
        self.first = self.waiting.values().map(|relay| relay.since).min();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::record;

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_record_waits_from_when_it_changed_first_and_goes_to_nobody_that_brought_it() {
        let mut relays = Relays::default();
        let (seven, eight) = (NodeId(7), NodeId(8));
        relays.note(at(10), seven, Some(record(7, 1, 1, &[])), LinkId(1));
        relays.note(at(15), eight, None, LinkId(1));
        relays.note(at(20), seven, Some(record(7, 1, 2, &[])), LinkId(2));
        relays.note_repeated(seven, LinkId(3));
        relays.note_repeated(NodeId(9), LinkId(3));
        assert_eq!(relays.first(), Some(at(10)));
        assert!(relays.take_until(at(9)).is_empty());
        let due = relays.take_until(at(10));
        assert_eq!(due.len(), 1);
        let (node, relay) = &due[0];
        let before = relay.before.as_ref().map(|record| record.version);
        assert_eq!(
            (*node, before),
            (seven, Some(1)),
            "as it was passed on last"
        );
        assert_eq!(relay.brought_by, [LinkId(2), LinkId(3)]);
        assert_eq!(relays.first(), Some(at(15)));
        assert!(
            relays
                .take(eight)
                .is_some_and(|relay| relay.before.is_none())
        );
        assert!(relays.take_until(at(99)).is_empty());
        assert_eq!(relays.first(), None);
    }
}
