//! Nodes that link compare fingerprints of all retained messages, and send each other theirs if these differ.

use thicket_overlay::{NodeId, NodeSlot, record::Record};

use super::{WriteOrder, queries::PAGE_BYTES, removal, removed_by};
use crate::{
    Now,
    hub::{Hub, Message, control::RetainedRecord},
    messages::{Origin, Way},
};

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
        let mut pages: Vec<Vec<(Origin, Vec<u8>)>> = vec![Vec::new()];
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
        for (topic, kept) in self.retained.tree.iter() {
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
        for (topic, (time, writer)) in self.retained.removed.iter() {
            let mut record = Vec::new();
            removal(topic, time).encode(&mut record);
            add(removed_by(writer), record);
        }
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
