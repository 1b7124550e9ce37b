//! Nodes that link compare fingerprints of all retained messages, and send each other theirs if these differ. When a node goes down, the others send each
//! other what it wrote last. The last write of a topic that several clients wrote at once is sent again (`contended`).

use std::time::Duration;

use thicket_overlay::{NodeId, NodeSlot, record::Record};
use thicket_session::time::Instant;

use super::{
    RetainedMessages, WriteOrder, queries::PAGE_BYTES, removal, removed_by, tombstones::Removal,
};
use crate::{
    Now,
    hub::{Hub, Message, control::RetainedRecord},
    messages::{Origin, Way},
};

/// What a node wrote longer ago than this when it goes down is taken to have reached all others.
const LAST_WRITES: Duration = Duration::from_secs(5);

/// Records with their origins.
type Page = Vec<(Origin, Vec<u8>)>;

impl RetainedMessages {
    /// Messages and removals, in pages of some [`PAGE_BYTES`]. `is_wanted`: by the node that wrote it and the time since then; `None`: it was before this
    /// node was started.
    fn pages(&self, now: Now, is_wanted: impl Fn(NodeId, Option<Duration>) -> bool) -> Vec<Page> {
        let mut pages: Vec<Page> = Vec::new();
        let mut bytes = 0;
        let mut add = |origin: Origin, record: Vec<u8>| {
            let len = record.len() + 28;
            match pages.last_mut().filter(|_| bytes <= PAGE_BYTES) {
                Some(page) => {
                    bytes += len;
                    page.push((origin, record));
                }
                None => {
                    bytes = len;
                    pages.push(vec![(origin, record)]);
                }
            }
        };
        for (topic, kept) in self.tree.iter() {
            let (time, writer) = kept.written;
            if !is_wanted(writer, kept.at.map(|at| now.instant.since(at))) {
                continue;
            }
            let mut record = Vec::new();
            if kept.expires_at.is_some_and(|at| at <= now.instant) {
                removal(topic, time).encode(&mut record);
                add(removed_by(writer), record);
            } else {
                kept.append_to(&mut record, now);
                add(kept.origin, record);
            }
        }
        for (topic, Removal { written, at }) in self.removed.iter() {
            let (time, writer) = written;
            if is_wanted(writer, at.map(|at| now.instant.since(at))) {
                let mut record = Vec::new();
                removal(topic, time).encode(&mut record);
                add(removed_by(writer), record);
            }
        }
        pages
    }
}

impl Hub {
    /// When a last write is to be sent again.
    pub(in crate::hub) fn next_last_write(&self) -> Option<Instant> {
        self.retained.contended.next()
    }

    /// Sends subscribers the last write of topics that several clients wrote at once.
    pub(in crate::hub) fn send_last_writes(&mut self, now: Now) {
        self.retained.contended.forget_sent(now.instant);
        while let Some(topic) = self.retained.contended.pop_due(now.instant) {
            let Some((origin, bytes)) = self.retained.last_write(now, &topic) else {
                continue;
            };
            self.deliver_single(origin, &topic, &bytes, Way::LastWrite);
        }
    }

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
        let pages = self.retained.pages(now, |_, _| true);
        self.send_pages(node, &pages);
    }

    /// A node is down. Its last writes may have come to some of the others only, and if nobody waits for their acknowledgement nobody sends them again:
    /// all that received them pass them on.
    pub(in crate::hub) fn pass_on_writes_of(&mut self, now: Now, node: NodeId) {
        let is_last = |writer: NodeId, age: Option<Duration>| {
            let age = age.filter(|_| writer == node);
            if age.is_some_and(|age| age >= LAST_WRITES) {
                thicket_session::reach!("time LAST_WRITES");
            }
            age.is_some_and(|age| age < LAST_WRITES)
        };
        let pages = self.retained.pages(now, is_last);
        for other in self.cx.up.values().copied().collect::<Vec<_>>() {
            self.send_pages(other, &pages);
        }
    }

    fn send_pages(&mut self, node: NodeId, pages: &[Page]) {
        for page in pages {
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
