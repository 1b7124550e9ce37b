//! What a backup holds of a session.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use thicket_overlay::NodeId;
use thicket_session::{
    server::{Delivery, JournalEntry, Message, MessageId, RecoveredSession, StoredSession},
    time::Instant,
};

use super::pending::{Pending, Pendings};
use crate::{Limits, worker::state::seen::Taken};

/// A node whose backup is to be promoted has this time to adopt the others: it may notice later that the primary is down.
pub(in crate::worker) const SUCCESSION: Duration = Duration::from_secs(2);

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
    pub members: Vec<NodeId>,
    /// The primary has not reported the session as covered here yet.
    pub is_learning: bool,
    pub held: RecoveredSession,
    /// Messages that arrived and that the primary has not named, in the order of arrival.
    pub pending: Pendings,
    /// Number of messages that arrived.
    pub arrivals: u64,
    /// The value of `arrivals` when all that was sent before the full sync had arrived.
    pub mark: u64,
    /// Messages that the primary named and that have not arrived.
    pub awaited: BTreeMap<MessageId, Awaited>,
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
    pub sequence: u64,
    pub since: Instant,
    /// The client may have it under a packet identifier that must not be used for another message: this position is not applied before.
    pub blocks: Option<u64>,
    pub is_asked: bool,
}

/// A position of a source's stream that waits for one message fewer.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Unblocked {
    pub source: SourceKey,
    pub position: u64,
}

impl Backup {
    /// A session of which nothing but this is known yet.
    pub fn new(source: SourceKey, number: u64, stored: StoredSession) -> Self {
        Self {
            source,
            number,
            stored,
            members: Vec::new(),
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
        let has_room = self.pending.len() < limits.queue_messages as usize
            && self.pending.bytes() + message.cost() <= limits.queue_bytes;
        !has_room && !self.awaited.contains_key(&message.id())
    }

    /// A message arrived. Returns the position that waits for it no longer. `taken`: the session's. `is_seen`: see [`Pending`].
    #[inline(always)]
    pub fn take(
        &mut self,
        now: Instant,
        taken: &mut Taken,
        delivery: Delivery,
        is_seen: bool,
    ) -> Option<Unblocked> {
        if !self.awaited.is_empty()
            && let Some(awaited) = self.awaited.remove(&delivery.message.id())
        {
            taken.note(&delivery.message);
            self.held.resolve(awaited.sequence, &delivery.message);
            return self.unblocked(awaited);
        }
        if self.passed.is_empty() || self.passed.remove(&delivery.message.id()).is_none() {
            self.arrivals += 1;
            self.pending
                .push(Pending::new(self.arrivals, now, delivery, is_seen));
        }
        None
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

    pub const fn unblocked(&self, awaited: Awaited) -> Option<Unblocked> {
        match awaited.blocks {
            Some(position) => Some(Unblocked {
                source: self.source,
                position,
            }),
            None => None,
        }
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
        let has = |(_, awaited): &(&MessageId, &Awaited)| awaited.sequence == sequence;
        let id = *self.awaited.iter().find(has)?.0;
        self.awaited.remove(&id)
    }
}
