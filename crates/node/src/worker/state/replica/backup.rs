//! What a backup holds of a session.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use thicket_overlay::NodeId;
use thicket_session::{
    server::{Delivery, JournalEntry, Message, MessageId, RecoveredSession, StoredSession},
    time::Instant,
};

use super::pending::{Pending, Pendings};
use crate::{Limits, worker::state::seen::AcceptedPublications};

/// A node whose backup is to be promoted has this time to adopt the others: it may notice later that the primary is down.
pub(in crate::worker) const ADOPTION_TIMEOUT: Duration = Duration::from_secs(2);

/// A worker of another node.
pub(in crate::worker) type SourceKey = (NodeId, u8);

/// What a backup holds of a session.
#[derive(Debug)]
pub(in crate::worker) struct Backup {
    pub source: SourceKey,
    /// The session's number in the primary's stream.
    pub number: u64,
    pub stored: StoredSession,
    /// All nodes that have backups, in the order in which they are promoted; empty: there is no other.
    pub replica_set: Vec<NodeId>,
    /// The primary has not reported the session as covered here yet.
    pub is_learning: bool,
    pub held: RecoveredSession,
    /// Messages that arrived and that the primary has not named, in the order of arrival.
    pub pending: Pendings,
    /// Number of messages that arrived.
    pub arrivals: u64,
    /// The value of `arrivals` when all that was sent before the full sync had arrived.
    pub mark: u64,
    /// Messages that the primary named and that have not arrived, by identity and sequence: the session may have accepted one twice, such as a
    /// retained message of QoS 1 that came by itself and by the comparison of what nodes retain.
    pub awaited: BTreeMap<(MessageId, u64), Awaited>,
    /// Messages that the primary passed over, or sent whole, and that have not arrived; some never will.
    pub passed: BTreeMap<MessageId, Instant>,
    /// The sequence of the first message that the former primary accepted after it handed the session over: such a message goes to another member of
    /// its group, or arrives here by itself.
    pub handed_at: Option<u64>,
    /// What had reached the session at the primary, as an encoded `History`.
    pub history: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(in crate::worker) struct Awaited {
    pub since: Instant,
    /// The client may have it under a packet identifier that must not be used for another message: this position is not applied before.
    pub blocks: Option<StreamPosition>,
    pub is_asked: bool,
}

/// A position of a stream that the source sends.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct StreamPosition {
    pub source: SourceKey,
    pub stream: u64,
    pub position: u64,
}

impl Backup {
    /// A session of which nothing but this is known yet.
    pub fn new(source: SourceKey, number: u64, stored: StoredSession) -> Self {
        Self {
            source,
            number,
            stored,
            replica_set: Vec::new(),
            is_learning: false,
            held: RecoveredSession::default(),
            pending: Pendings::default(),
            arrivals: 0,
            mark: 0,
            awaited: BTreeMap::new(),
            passed: BTreeMap::new(),
            handed_at: None,
            history: None,
        }
    }

    /// Whether a message that arrives is one too many: what the primary has not named has the bounds of a queue, in which it will be at most.
    #[inline(always)]
    pub fn is_full_for(&self, message: &Message, limits: &Limits) -> bool {
        let has_capacity = self.pending.len() < limits.queue_messages as usize
            && self.pending.bytes() + message.cost() <= limits.queue_bytes;
        !has_capacity && !self.awaits(message.id())
    }

    /// Whether the primary has named a message that has not arrived.
    fn awaits(&self, id: MessageId) -> bool {
        self.awaited
            .range((id, 0)..=(id, u64::MAX))
            .next()
            .is_some()
    }

    /// A message arrived. Adds to `unblocked` the stream positions that no longer wait for it. `accepted`: the session's. `is_seen`: see [`Pending`].
    #[inline(always)]
    pub fn take(
        &mut self,
        now: Instant,
        accepted: &mut AcceptedPublications,
        delivery: Delivery,
        is_seen: bool,
        unblocked: &mut Vec<StreamPosition>,
    ) {
        let id = delivery.message.id();
        if !self.awaited.is_empty() && self.awaits(id) {
            accepted.note(&delivery.message);
            let named = (id, 0)..=(id, u64::MAX);
            for ((_, sequence), awaited) in self.awaited.extract_if(named, |_, _| true) {
                self.held.resolve(sequence, &delivery.message);
                unblocked.extend(awaited.blocks);
            }
            return;
        }
        if self.passed.is_empty() || self.passed.remove(&id).is_none() {
            self.keep_pending(now, delivery, is_seen);
        }
    }

    /// A message is here that the primary has not named.
    #[inline]
    pub fn keep_pending(&mut self, now: Instant, delivery: Delivery, is_seen: bool) {
        self.arrivals += 1;
        self.pending
            .push(Pending::new(self.arrivals, now, delivery, is_seen));
    }

    /// Whether an entry is about a message that the former primary accepted after it handed the session over.
    pub const fn is_of_former(&self, entry: &JournalEntry<'_>) -> bool {
        let Some(handed_at) = self.handed_at else {
            return false;
        };
        match entry {
            JournalEntry::Append(append) => append.sequence >= handed_at,
            JournalEntry::Run(run) => run.first.sequence >= handed_at,
            _ => false,
        }
    }

    /// Whether messages that the primary named have not arrived.
    pub fn lacks_messages(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// Number of messages held, and of those that the primary has not named.
    pub fn messages(&self) -> usize {
        self.held.len() + self.pending.len()
    }

    /// Bytes of these, as a queue counts them. What the primary has named is bounded by its queue.
    pub fn bytes(&self) -> u64 {
        self.held.bytes() + self.pending.bytes()
    }

    /// Positions that wait for messages of the session.
    pub fn blocked(&self) -> impl Iterator<Item = StreamPosition> {
        self.awaited.values().filter_map(|awaited| awaited.blocks)
    }

    /// The primary's stream has reached a message: it is pending no more.
    #[inline]
    pub fn take_pending(&mut self, id: MessageId) -> Option<Rc<Message>> {
        self.pending.take(id)
    }

    #[inline]
    pub fn take_awaited(&mut self, sequence: u64) -> Option<Awaited> {
        // Only messages that the primary has named are awaited.
        if self.awaited.is_empty() || sequence >= self.held.next_sequence() {
            return None;
        }
        let mut named = self.awaited.keys();
        let named = *named.find(|(_, of)| *of == sequence)?;
        self.awaited.remove(&named)
    }
}

#[cfg(test)]
impl Backup {
    /// Of a session without messages, for tests.
    pub fn of_a_test(source: SourceKey) -> Self {
        let stored = StoredSession {
            client_id: "c".to_owned(),
            uid: 1,
            epoch: thicket_session::server::Epoch::NONE,
            expiry_interval: 60,
            disconnected_at: None,
            will: None,
            will_due: None,
        };
        Self::new(source, 1, stored)
    }
}

#[cfg(test)]
mod tests {
    use thicket_mqtt::{Publish, Qos};
    use thicket_session::server::MatchedIdentifiers;

    use super::*;

    const SOURCE: SourceKey = (NodeId(9), 0);

    fn awaited(blocks: Option<u64>) -> Awaited {
        let blocks = blocks.map(|position| StreamPosition {
            source: SOURCE,
            stream: 5,
            position,
        });
        Awaited {
            since: Instant::default(),
            blocks,
            is_asked: false,
        }
    }

    #[test]
    fn one_arrival_is_all_that_a_message_named_twice_waits_for() {
        let id = MessageId {
            node: 1,
            number: 7,
            ..MessageId::default()
        };
        let mut backup = Backup::of_a_test(SOURCE);
        backup.awaited.insert((id, 3), awaited(Some(20)));
        backup.awaited.insert((id, 4), awaited(Some(21)));
        let other = MessageId { number: 8, ..id };
        backup.awaited.insert((other, 5), awaited(None));
        let message = Message::new(id, &Publish::new("t", b"x"), None);
        let delivery = Delivery {
            message: Rc::new(message),
            qos: Qos::AtLeastOnce,
            retain: false,
            identifiers: MatchedIdentifiers::None,
            group: None,
        };
        let mut unblocked = Vec::new();
        let accepted = &mut AcceptedPublications::default();
        backup.take(
            Instant::from_millis(1),
            accepted,
            delivery,
            false,
            &mut unblocked,
        );
        let positions: Vec<u64> = unblocked.iter().map(|it| it.position).collect();
        assert_eq!(positions, [20, 21]);
        assert_eq!(backup.awaited.len(), 1, "the other message is awaited");
        assert!(backup.pending.is_empty());
    }
}
