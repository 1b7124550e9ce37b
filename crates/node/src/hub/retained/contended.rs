//! Topics that several clients wrote at once.
//!
//! A subscriber that mirrors a topic may have received the writes in another order than they were kept in, and would stay wrong until the next write.
//! So the last write is sent again when all that was written before is on its way. A write that crosses it is sent again too.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use thicket_mqtt::Qos;
use thicket_overlay::record::Record;
use thicket_session::time::Instant;

use super::state::{RetainedMessages, removal, removed_by};
use crate::{Now, messages::Origin};

/// When the last write is sent again: by then all that was written before is on its way.
pub(in crate::hub) const SEND_AGAIN: Duration = Duration::from_millis(50);

/// A write that arrives so soon after that, in this part of the time, may have reached a subscriber before what was sent again.
pub(in crate::hub) const OVERTAKING_SHARE: u32 = 5;

/// Topics for which that is noted.
pub(in crate::hub) const CONTENDED_TOPICS: usize = 10_000;

/// These topics, until their last write is sent again.
#[derive(Debug, Default)]
pub(in crate::hub) struct Contended {
    /// In the order they are due.
    pub due: VecDeque<(Instant, Box<str>)>,
    pub topics: BTreeSet<Box<str>>,
    /// Whose last write was sent again a moment ago, and until when that counts.
    pub sent: BTreeMap<Box<str>, Instant>,
}

impl Contended {
    /// One that is noted already is sent after this write too. Beyond the limit, subscribers may keep another write as the last.
    pub fn note(&mut self, now: Instant, topic: &str) {
        if self.topics.len() < CONTENDED_TOPICS && !self.topics.contains(topic) {
            self.topics.insert(topic.into());
            self.due.push_back((now + SEND_AGAIN, topic.into()));
        }
    }

    /// Whether the last write so far was sent again just now: a subscriber may get it behind a later one.
    pub fn was_just_sent(&self, now: Instant, topic: &str) -> bool {
        self.sent.get(topic).is_some_and(|until| now < *until)
    }

    pub fn next(&self) -> Option<Instant> {
        self.due.front().map(|(at, _)| *at)
    }

    /// Forgets what was sent long enough ago.
    pub fn forget_sent(&mut self, now: Instant) {
        self.sent.retain(|_, until| now < *until);
    }

    pub fn pop_due(&mut self, now: Instant) -> Option<Box<str>> {
        let (_, topic) = self.due.pop_front_if(|(at, _)| *at <= now)?;
        self.topics.remove(&topic);
        let until = now + SEND_AGAIN / OVERTAKING_SHARE;
        self.sent.insert(topic.clone(), until);
        thicket_session::reach!("time SEND_AGAIN");
        Some(topic)
    }
}

impl RetainedMessages {
    /// The last write of a topic.
    pub fn last_write(&self, now: Now, topic: &str) -> Option<(Origin, Vec<u8>)> {
        let mut bytes = Vec::new();
        if let Some(kept) = self.tree.get(topic) {
            let (record, _) = Record::decode(&kept.record).ok()?;
            let left = kept.expires_at.map(|at| at.since(now.instant));
            let record = Record {
                expiry_left_ms: left.map(|left| left.as_millis() as u64),
                ..record
            };
            record.encode(&mut bytes);
            return Some((kept.origin, bytes));
        }
        let (time, writer) = self.removed.get(topic)?.written;
        let record = Record {
            qos: Qos::AtLeastOnce,
            ..removal(topic, time)
        };
        record.encode(&mut bytes);
        Some((removed_by(writer), bytes))
    }
}
