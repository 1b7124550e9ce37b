//! Retained messages: every node keeps all of them, the last writer wins (rule 17).
//!
//! | part | has |
//! | --- | --- |
//! | `accounts` | what each publisher and tenant has retained |
//! | `tombstones` | topics whose message was removed, and when |
//! | `state` | the messages and how they are ordered |
//! | `store`, `storing` | what of them is to be stored, and when |
//! | `contended` | topics that several clients wrote at once |
//! | `queries` | what filters match, in pages |
//! | `exchange` | what nodes send each other when they link |

mod accounts;
mod contended;
mod exchange;
mod queries;
mod state;
mod store;
mod storing;
mod tombstones;

use thicket_mqtt::Qos;
use thicket_overlay::{NodeSlot, StreamId, record::Record};
use thicket_session::time::Instant;

pub(super) use self::state::{RetainedMessages, WriteOrder};
use super::{Hub, HubView, outgoing::Forwarded};
use crate::{
    Now, WorkerId,
    hub::retained::state::{Kept, removal, removed_by},
    messages::{ForwardEntry, Origin},
};

impl Hub {
    /// A worker's message that is to be retained: kept here, sent to every node.
    pub(super) fn forward_retained(
        &mut self,
        now: Now,
        from: WorkerId,
        entry: &ForwardEntry,
        bytes: &[u8],
    ) {
        let Ok((record, _)) = Record::decode(bytes) else {
            return;
        };
        if !record.payload.is_empty() && self.retained.store().is_full_for(bytes.len()) {
            self.refuse_forward(from, entry.number);
            return;
        }
        if !record.payload.is_empty() && !self.retained.may_retain(&record) {
            return self.forward_unretained(now, from, entry, record);
        }
        let millis = self.cx.clock.read(now);
        let time = self.retained.tick(millis, record.topic);
        let record = Record {
            time: Some(time),
            ..record
        };
        let origin = Origin {
            node: self.cx.own(),
            incarnation: self.cx.config.overlay.incarnation,
            stream: StreamId(u16::from(from.0)),
        };
        if !record.payload.is_empty() && !self.retained.has_capacity(&record) {
            // It goes to current subscribers, as any other; its publisher is informed that it was not kept.
            self.refuse_ahead(from, entry.number);
        }
        let mut stamped = Vec::with_capacity(bytes.len() + 10);
        record.encode(&mut stamped);
        let everyone: Vec<NodeSlot> = self.cx.up.keys().copied().collect();
        let forwarded = self.forward_one(now, from, entry, &stamped, &everyone);
        // What is refused no other node has: it is not kept here either.
        if forwarded != Forwarded::Refused {
            self.retained.observe(now, origin, &record);
        }
    }

    /// Its publisher is over its limit: the message goes to current subscribers, and the publisher is informed that it was not kept.
    fn forward_unretained(
        &mut self,
        now: Now,
        from: WorkerId,
        entry: &ForwardEntry,
        record: Record<'_>,
    ) {
        self.refuse_ahead(from, entry.number);
        let is_acknowledged = record.qos > Qos::AtMostOnce;
        let number = if is_acknowledged { entry.number } else { 0 };
        let record = Record {
            number,
            retain: false,
            publisher: None,
            ..record
        };
        let entry = ForwardEntry {
            number,
            retain: false,
            ..entry.clone()
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        self.forward_one(now, from, &entry, &bytes, &entry.destinations);
    }

    /// When the next message expires.
    pub(super) fn next_retained_expiry(&self) -> Option<Instant> {
        self.retained.by_expiry.first().map(|(at, _)| *at)
    }

    /// Removes messages that have expired, whether somebody asks for them or not: they take capacity.
    pub(super) fn expire_retained(&mut self, now: Now) {
        self.retained.expire(now);
    }
}

impl HubView<'_> {
    /// Whether a message is retained on a topic.
    #[must_use]
    pub fn has_retained(&self, topic: &str) -> bool {
        self.hub.retained.tree.get(topic).is_some()
    }
}
