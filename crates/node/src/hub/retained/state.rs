//! The retained messages of a node.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use thicket_mqtt::Qos;
use thicket_overlay::{
    Incarnation, NodeId, StreamId, fnv1a,
    record::{HybridTime, Record},
};
use thicket_session::{retained::RetainedTree, time::Instant, topic::TopicFilter};

use super::{
    accounts::{RetainedAccounts, RetainedCharge},
    contended::Contended,
    store::{RetainedStore, StoredRetained},
    tombstones::{Removal, Tombstones},
};
use crate::{
    Now, Remembered, RetainedLimits, TenantId, TenantLimits, TenantRetained, WorkerId,
    bans::BANS,
    hub::{clock::LAST_MS, control::WriteTime},
    messages::{Origin, RetainedQuery},
};

/// Removed topics remembered, so that an older message does not come back.
pub(in crate::hub) const TOMBSTONES: usize = 100_000;

/// Their bytes are this part of those that retained messages may have, and a few whatever that is.
pub(in crate::hub) const TOMBSTONE_SHARE: u64 = 8;

pub(in crate::hub) const LEAST_TOMBSTONE_BYTES: u64 = 1024 * 1024;

/// Writes of two workers within this time may reach subscribers in either order.
pub(in crate::hub) const CONTENTION: Duration = Duration::from_secs(1);

/// Expired messages that are removed in one round.
pub(in crate::hub) const EXPIRED_A_ROUND: usize = 1000;

/// Bytes that the index by expiry takes for a message besides its topic.
pub(in crate::hub) const EXPIRY_BYTES: usize = 64;

/// The result of comparing a write with the retained message of its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum WriteOrder {
    /// The last write of its topic: kept now.
    Newer,
    /// The one that is kept already.
    Known,
    /// Overtaken by a later write.
    Older,
}

#[derive(Debug)]
pub(in crate::hub) struct Kept {
    pub(super) written: WriteTime,
    /// Its publisher's stream: with its number a copy of it is recognised wherever it comes from.
    pub(super) origin: Origin,
    /// With its time.
    pub(super) record: Box<[u8]>,
    pub(super) expires_at: Option<Instant>,
    /// When it was written; `None`: before this node was started.
    pub(super) at: Option<Instant>,
    /// To its publisher; `None`: that is no client.
    pub(super) charge: RetainedCharge,
}

impl Kept {
    /// Of the publication.
    pub fn qos(&self) -> Qos {
        Record::decode(&self.record).map_or(Qos::AtMostOnce, |(record, _)| record.qos)
    }

    /// Appends the record with the expiry it has left.
    pub fn append_to(&self, page: &mut Vec<u8>, now: Now) {
        let Some(at) = self.expires_at else {
            page.extend_from_slice(&self.record);
            return;
        };
        if let Ok((record, _)) = Record::decode(&self.record) {
            let left = at.since(now.instant).as_millis() as u64;
            Record {
                expiry_left_ms: Some(left),
                ..record
            }
            .encode(page);
        }
    }
}

/// All retained messages.
#[derive(Debug)]
pub(in crate::hub) struct RetainedMessages {
    pub(super) tree: RetainedTree<Kept>,
    /// The topics of the tree whose messages expire, by that time.
    pub(super) by_expiry: BTreeSet<(Instant, Box<str>)>,
    pub(super) removed: Tombstones,
    pub(super) clock: HybridTime,
    /// Queries of workers that wait for their next page, as this round has looked enough: one of a session at a time.
    pub(super) queries: VecDeque<(WorkerId, RetainedQuery)>,
    /// The latest time of all writes that came here, however far ahead the clock of its node is.
    pub(super) last_written: HybridTime,
    /// Exclusive or over the fingerprints of all writes kept.
    pub(super) digest: u64,
    pub(super) limits: RetainedLimits,
    pub(super) accounts: RetainedAccounts,
    pub(super) store: RetainedStore,
    pub(super) contended: Contended,
    /// A ban was made or lifted since the workers were informed.
    pub(super) has_changed_bans: bool,
    /// Nodes that were sent all of ours since they came up.
    pub(super) announced: BTreeSet<NodeId>,
}

impl RetainedMessages {
    pub fn new(limits: RetainedLimits, tenants: Vec<TenantLimits>, stores: bool) -> Self {
        Self {
            store: RetainedStore::new(stores),
            tree: RetainedTree::new(),
            by_expiry: BTreeSet::new(),
            removed: Tombstones::new(TOMBSTONES, tombstone_bytes(&limits)),
            clock: HybridTime::default(),
            queries: VecDeque::new(),
            last_written: HybridTime::default(),
            digest: 0,
            contended: Contended::default(),
            has_changed_bans: false,
            announced: BTreeSet::new(),
            accounts: RetainedAccounts::new(&limits, tenants),
            limits,
        }
    }

    /// The topics that had a message.
    pub fn removed_topics(&self) -> Remembered {
        self.removed.remembered()
    }

    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Of topics and records.
    pub const fn bytes(&self) -> usize {
        self.tree.bytes()
    }

    /// What must be stored of this round.
    pub const fn store(&mut self) -> &mut RetainedStore {
        &mut self.store
    }

    /// Reads what was stored before the node stopped.
    pub fn recover(&mut self, now: Now, stored: &StoredRetained<'_>) {
        let StoredRetained {
            origin,
            expires_at_ms,
            record,
        } = stored;
        let left = expires_at_ms.map(|at| at.saturating_sub(now.wall.as_unix_millis()));
        if left == Some(0) {
            // It has expired while the node was down.
            let written = (record.time.unwrap_or_default(), origin.node);
            self.note_time(written.0);
            self.store_removal(now, record.topic, written);
            self.digest ^= fingerprint(record.topic, written);
            self.bury(record.topic, written, None);
            return;
        }
        let record = Record {
            expiry_left_ms: left,
            ..*record
        };
        self.store.pause();
        self.observe(now, *origin, &record);
        self.store.resume();
    }

    /// The records that a filter matches, with the times when they expire.
    pub fn records<'a>(
        &'a self,
        filter: &TopicFilter,
    ) -> impl Iterator<Item = (&'a [u8], Option<Instant>)> {
        let matching = self.tree.matching(filter);
        matching.map(|(_, kept)| (&*kept.record, kept.expires_at))
    }

    /// Whether a ban was made or lifted; once.
    pub const fn take_changed_bans(&mut self) -> bool {
        std::mem::replace(&mut self.has_changed_bans, false)
    }

    /// No write that came here has a later time.
    pub const fn last_written(&self) -> HybridTime {
        self.last_written
    }

    /// The time of a write of ours: later than all that this node has seen. `millis`: what the clock says that the nodes share.
    pub fn tick(&mut self, millis: u64, topic: &str) -> HybridTime {
        self.clock = if millis > self.clock.millis {
            HybridTime { millis, counter: 0 }
        } else {
            after(self.clock)
        };
        // Also what has a time that is not believed: a client that writes now replaces what there is.
        match self.known(topic) {
            Some((time, _)) if time >= self.clock => after(time),
            Some(_) | None => self.clock,
        }
    }

    /// The last write to a topic.
    pub fn known(&self, topic: &str) -> Option<WriteTime> {
        let kept = self.tree.get(topic).map(|kept| kept.written);
        kept.or_else(|| Some(self.removed.get(topic)?.written))
    }

    /// A write with this time was seen. The wall clocks may have been set back since it was written: what is written now counts as later nevertheless.
    fn note_time(&mut self, time: HybridTime) {
        if time.millis <= LAST_MS {
            self.clock = self.clock.max(time);
        }
    }

    /// Compares a write with what is kept, and keeps it if it is the last one.
    pub fn observe(&mut self, now: Now, origin: Origin, record: &Record<'_>) -> WriteOrder {
        let time = record.time.unwrap_or_default();
        let written = (time, origin.node);
        self.last_written = self.last_written.max(time);
        self.note_time(time);
        if self.is_contended(now, origin, record) {
            thicket_session::reach!("time CONTENTION");
            self.contended.note(now.instant, record.topic);
        }
        let known = self.known(record.topic);
        match known {
            Some(known) if known == written => return WriteOrder::Known,
            Some(known) if known > written => return WriteOrder::Older,
            Some(_) | None => {}
        }
        self.has_changed_bans |= record.topic.starts_with(BANS);
        if record.payload.is_empty() {
            self.remove(record.topic);
            // Before what is forgotten, which may be this very topic.
            self.store.put(now, origin, record);
            self.bury(record.topic, written, self.noted_at(now));
        } else if self.has_capacity(record) {
            self.removed.remove(record.topic);
            self.keep(now, origin, record, written);
            self.store.put(now, origin, record);
        } else {
            // What was known of the topic stays, a removal at most.
            return WriteOrder::Newer;
        }
        if let Some(known) = known {
            self.digest ^= fingerprint(record.topic, known);
        }
        self.digest ^= fingerprint(record.topic, written);
        WriteOrder::Newer
    }

    /// Whether another worker, here or elsewhere, wrote the topic a moment ago, or its last write was just sent again. Subscribers get the messages of
    /// each worker in order, but not those of two, nor those of a worker and what the hub sends again.
    pub fn is_contended(&self, now: Now, origin: Origin, record: &Record<'_>) -> bool {
        let topic = record.topic;
        let is_recent = |at: Instant| now.instant.since(at) < CONTENTION;
        match self.tree.get(topic) {
            Some(kept) => {
                let is_other = kept.origin != origin && kept.at.is_some_and(is_recent);
                let may_be_behind = is_other || self.contended.was_just_sent(now.instant, topic);
                may_be_behind && !is_again(&kept.record, record)
            }
            None => {
                let removal = self.removed.get(topic);
                removal.is_some_and(|it| it.at.is_some_and(is_recent))
            }
        }
    }

    pub fn has_capacity(&self, record: &Record<'_>) -> bool {
        // Clients that have filled all there is can be banned.
        record.topic.starts_with(BANS)
            || self.tree.get(record.topic).is_some()
            || ((self.tree.len() as u64) < self.limits.messages
                && self.tree.bytes() as u64 + cost(record) <= self.limits.bytes)
    }

    /// What is in the topics of a tenant.
    pub fn of_tenant(&self, tenant: TenantId) -> TenantRetained {
        self.accounts.of_tenant(tenant)
    }

    /// Whether the publisher and the tenant are within their own bounds.
    pub fn may_retain(&self, record: &Record<'_>) -> bool {
        let before = self.tree.get(record.topic).map(|kept| &kept.charge);
        let (topic, publisher) = (record.topic, record.publisher);
        (self.accounts).has_capacity(topic, publisher, cost(record), before)
    }

    pub fn remove(&mut self, topic: &str) -> Option<Kept> {
        let kept = self.tree.remove(topic)?;
        self.release(topic, &kept);
        Some(kept)
    }

    /// A message is not kept any more.
    pub fn release(&mut self, topic: &str, kept: &Kept) {
        self.accounts.give_back(&kept.charge);
        if let Some(at) = kept.expires_at {
            self.by_expiry.remove(&(at, topic.into()));
        }
    }

    /// A message has expired: only its time is left, so that the message before it does not come back. Every node does the same by itself, and the
    /// digest stays as it was: nodes that are a moment apart have the same.
    pub fn forget(&mut self, now: Now, topic: &str) {
        if let Some(kept) = self.remove(topic) {
            self.has_changed_bans |= topic.starts_with(BANS);
            self.store_removal(now, topic, kept.written);
            self.bury(topic, kept.written, kept.at);
        }
    }

    pub fn store_removal(&mut self, now: Now, topic: &str, (time, node): WriteTime) {
        self.store.put(now, removed_by(node), &removal(topic, time));
    }

    /// Removes messages that have expired, some of them if there are many.
    pub fn expire(&mut self, now: Now) {
        for _ in 0..EXPIRED_A_ROUND {
            let first = self.by_expiry.first();
            let Some((_, topic)) = first.filter(|(at, _)| *at <= now.instant) else {
                return;
            };
            let topic = topic.clone();
            self.forget(now, &topic);
        }
    }

    pub fn keep(&mut self, now: Now, origin: Origin, record: &Record<'_>, written: WriteTime) {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let expires_at = record
            .expiry_left_ms
            .map(|ms| now.instant + Duration::from_millis(ms));
        // The tree counts the topic itself.
        let len = bytes_of(record) - record.topic.len();
        let (topic, publisher) = (record.topic, record.publisher);
        let charge = self.accounts.charge(topic, publisher, cost(record));
        let replaced = self.tree.insert(
            record.topic,
            Kept {
                written,
                origin,
                record: bytes.into(),
                expires_at,
                at: self.noted_at(now),
                charge,
            },
            len,
        );
        if let Some(replaced) = replaced {
            self.release(record.topic, &replaced);
        }
        if let Some(at) = expires_at {
            self.by_expiry.insert((at, record.topic.into()));
        }
    }

    /// When a write counts as noted; `None`: it is read at the start.
    fn noted_at(&self, now: Now) -> Option<Instant> {
        (!self.store.is_paused()).then_some(now.instant)
    }

    pub fn bury(&mut self, topic: &str, written: WriteTime, at: Option<Instant>) {
        for (oldest, written) in self.removed.insert(topic, Removal { written, at }) {
            self.store.remove(&oldest);
            self.digest ^= fingerprint(&oldest, written);
        }
    }
}

/// Bytes of removed topics that are remembered.
pub(in crate::hub) fn tombstone_bytes(limits: &RetainedLimits) -> usize {
    let bytes = (limits.bytes / TOMBSTONE_SHARE).max(LEAST_TOMBSTONE_BYTES);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Whether a publication is sent again, by its publisher's next primary: who has had it drops it, so there is nothing to put in order.
pub(in crate::hub) fn is_again(kept: &[u8], record: &Record<'_>) -> bool {
    let publication = record.publication.as_ref();
    publication.is_some_and(|publication| {
        let kept = Record::decode(kept);
        kept.is_ok_and(|(kept, _)| {
            kept.publication.as_ref() == Some(publication) && kept.payload == record.payload
        })
    })
}

/// Bytes that a message takes: they count towards the limit of all and that of its publisher.
pub(in crate::hub) fn cost(record: &Record<'_>) -> u64 {
    bytes_of(record) as u64
}

pub(in crate::hub) fn bytes_of(record: &Record<'_>) -> usize {
    let topic = record.topic.len();
    let expiry = record.expiry_left_ms.map_or(0, |_| topic + EXPIRY_BYTES);
    topic + record.encoded_len() + expiry
}

/// The next time after one.
pub(in crate::hub) const fn after(time: HybridTime) -> HybridTime {
    match time.counter.checked_add(1) {
        Some(counter) => HybridTime {
            counter,
            millis: time.millis,
        },
        None => HybridTime {
            millis: time.millis.saturating_add(1),
            counter: 0,
        },
    }
}

/// The record that removes the message of a topic.
pub(in crate::hub) fn removal(topic: &str, time: HybridTime) -> Record<'_> {
    Record {
        retain: true,
        time: Some(time),
        topic,
        ..Record::default()
    }
}

/// Only the node of a removal is kept.
pub(in crate::hub) const fn removed_by(node: NodeId) -> Origin {
    Origin {
        node,
        incarnation: Incarnation(0),
        stream: StreamId(0),
    }
}

/// A fingerprint of one write.
pub(in crate::hub) fn fingerprint(topic: &str, (time, node): WriteTime) -> u64 {
    let bytes = topic
        .bytes()
        .chain(time.millis.to_le_bytes())
        .chain(time.counter.to_le_bytes())
        .chain(node.0.to_le_bytes());
    fnv1a(bytes)
}

#[cfg(test)]
mod tests;
