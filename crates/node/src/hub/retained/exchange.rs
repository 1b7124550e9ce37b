//! Nodes that link compare fingerprints of all retained messages, and send each other theirs if these differ. When a node goes down, the others send each
//! other what it wrote last.

use std::time::Duration;

use thicket_overlay::{NodeId, NodeSlot, record::Record};

use super::{Kept, RetainedMessages, WriteOrder, queries::PAGE_BYTES, removal, removed_by};
use crate::{
    Now,
    hub::{
        Hub, Message,
        control::{RetainedRecord, WriteTime},
    },
    messages::{Origin, Way},
};

/// What a node wrote so long before it went down has reached all others.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Records with their origins.
type Page = Vec<(Origin, Vec<u8>)>;

impl RetainedMessages {
    /// Messages and removals of those that are wanted, in pages of some [`PAGE_BYTES`].
    fn pages(
        &self,
        now: Now,
        is_wanted: impl Fn(&Kept) -> bool,
        is_removal_wanted: impl Fn(WriteTime) -> bool,
    ) -> Vec<Page> {
        let mut pages = vec![Page::new()];
        let mut bytes = 0;
        let mut add = |origin: Origin, record: Vec<u8>| {
            if bytes > PAGE_BYTES {
                bytes = 0;
                pages.push(Vec::new());
            }
            bytes += record.len() + 28;
            pages
                .last_mut()
                .expect("never empty")
                .push((origin, record));
        };
        for (topic, kept) in self.tree.iter().filter(|(_, kept)| is_wanted(kept)) {
            let mut record = Vec::new();
            if kept.expires_at.is_some_and(|at| at <= now.instant) {
                let (time, writer) = kept.written;
                removal(topic, time).encode(&mut record);
                add(removed_by(writer), record);
            } else {
                kept.append_to(&mut record, now);
                add(kept.origin, record);
            }
        }
        let removed = self.removed.iter();
        for (topic, (time, writer)) in removed.filter(|(_, written)| is_removal_wanted(*written)) {
            let mut record = Vec::new();
            removal(topic, time).encode(&mut record);
            add(removed_by(writer), record);
        }
        pages
    }
}

impl Hub {
    /// A node that is new, or back, compares retained messages with us.
    pub(in crate::hub) fn offer_retained(&mut self, slot: NodeSlot) {
        if let Some(node) = self.cx.up.get(&slot).copied() {
            self.retained.announced.remove(&node);
            self.send_retained_digest(node, false);
        }
    }

    fn send_retained_digest(&mut self, node: NodeId, is_answer: bool) {
        let digest = self.retained.digest;
        self.cx
            .send(node, &Message::RetainedDigest { digest, is_answer });
    }

    /// The other node keeps something else: it gets all of ours, once since it came up. It may be the only one that noticed the partition, so it gets
    /// our digest too, behind all of ours.
    pub(in crate::hub) fn handle_retained_digest(
        &mut self,
        now: Now,
        node: NodeId,
        digest: u64,
        is_answer: bool,
    ) {
        if digest == self.retained.digest || (is_answer && self.retained.announced.contains(&node))
        {
            return;
        }
        self.send_retained(now, node);
        self.retained.announced.insert(node);
        if !is_answer {
            self.send_retained_digest(node, true);
        }
    }

    fn send_retained(&mut self, now: Now, node: NodeId) {
        let pages = self.retained.pages(now, |_| true, |_| true);
        self.send_pages(node, &pages);
    }

    /// A node is down. Its last writes may have come to some of the others only, and if nobody waits for their acknowledgement nobody sends them again:
    /// all that received them pass them on.
    pub(in crate::hub) fn pass_on_writes_of(&mut self, now: Now, node: NodeId) {
        let clock = self.retained.clock.millis;
        let is_last = |kept: &Kept| {
            let age = kept.at.map(|at| now.instant.since(at));
            let is_its = kept.written.1 == node;
            if is_its && age.is_some_and(|age| age >= LAST_WRITES) {
                thicket_session::reach!("time LAST_WRITES");
            }
            is_its && age.is_some_and(|age| age < LAST_WRITES)
        };
        let is_last_removal = |(time, writer): WriteTime| {
            let age = Duration::from_millis(clock.saturating_sub(time.millis));
            writer == node && age < LAST_WRITES
        };
        let pages = self.retained.pages(now, is_last, is_last_removal);
        for other in self.cx.up.values().copied().collect::<Vec<_>>() {
            self.send_pages(other, &pages);
        }
    }

    fn send_pages(&mut self, node: NodeId, pages: &[Page]) {
        for page in pages.iter().filter(|page| !page.is_empty()) {
            let messages = page
                .iter()
                .map(|(origin, record)| RetainedRecord {
                    origin: *origin,
                    record,
                })
                .collect();
            self.cx.send(node, &Message::Retained { messages });
        }
    }

    /// Retained messages of another node. What is new here is matched here too: it was published while we could not receive it.
    pub(in crate::hub) fn handle_retained(&mut self, now: Now, messages: &[RetainedRecord<'_>]) {
        for RetainedRecord { origin, record } in messages {
            let bytes = record;
            let Ok((record, _)) = Record::decode(bytes) else {
                continue;
            };
            if self.retained.observe(now, *origin, &record) == WriteOrder::Newer {
                self.deliver_single(*origin, record.topic, bytes, Way::Comparison);
            }
        }
    }
}
