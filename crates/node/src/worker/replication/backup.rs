//! What a node keeps of a session that it backs up, and of the primaries that have backups here.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use thicket_mqtt::Publish;
use thicket_overlay::NodeId;
use thicket_session::{
    server::{Delivery, JournalEntry, Message, MessageId, RecoveredSession, StoredSession},
    time::Instant,
};

use super::{
    Progress,
    orphans::{Orphans, SUCCESSION},
    pending::{Pending, Pendings},
    wills::{HeldWillCount, HeldWills},
};
use crate::{
    Limits,
    messages::ReplicationStream,
    worker::{SessionKey, seen::Taken},
};

/// A worker of another node.
pub(in super::super) type SourceKey = (NodeId, u8);

/// What a backup holds of a session.
#[derive(Debug)]
pub(in super::super) struct Backup {
    pub source: SourceKey,
    /// The session's number in the primary's stream.
    pub number: u64,
    pub stored: StoredSession,
    /// All nodes that have backups, in the order in which they are promoted; empty: there is no other.
    pub(super) members: Vec<NodeId>,
    /// The primary has not reported the session as covered here yet.
    pub is_learning: bool,
    pub held: RecoveredSession,
    /// Messages that arrived and that the primary has not named, in the order of arrival.
    pub(super) pending: Pendings,
    /// Number of messages that arrived.
    pub arrivals: u64,
    /// The value of `arrivals` when all that was sent before the full sync had arrived.
    pub mark: u64,
    /// Messages that the primary named and that have not arrived.
    pub(super) awaited: BTreeMap<MessageId, Awaited>,
    /// Messages that the primary passed over, or sent whole, and that have not arrived; some never will.
    pub passed: BTreeMap<MessageId, Instant>,
    /// The sequence of the first message that the former primary accepted after it handed the session over: such a message goes to another member of
    /// its group, or arrives here by itself.
    pub(super) handed_at: Option<u64>,
    /// What had reached the session at the primary, as an encoded `History`.
    pub(super) history: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct Awaited {
    pub sequence: u64,
    pub since: Instant,
    /// The client may have it under a packet identifier that must not be used for another message: this position is not applied before.
    pub blocks: Option<u64>,
    pub is_asked: bool,
}

/// A position of a source's stream that waits for one message fewer.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Unblocked {
    pub source: SourceKey,
    pub position: u64,
}

/// A worker of another node whose sessions have backups here.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub stream: u64,
    pub position: u64,
    /// The progress last reported to the primary.
    pub reported: Progress,
    pub held: u64,
    pub sessions: BTreeMap<u64, SessionKey>,
    /// Of sessions that end with their connections, by their numbers.
    pub wills: HeldWills,
    /// Sessions of earlier primaries that it has adopted and not fully synced yet: their identities by their numbers.
    pub adopted: BTreeMap<u64, u128>,
    pub unacknowledged: VecDeque<Unacknowledged>,
    /// Positions and sessions of full syncs, until a barrier is behind them.
    pub wholes: Vec<(u64, u64)>,
    /// A barrier has begun.
    pub has_barrier: bool,
    /// Up to which position all barriers are passed.
    pub passed: u64,
    /// Positions with the number of messages that must arrive before they are applied.
    pub blocked: BTreeMap<u64, u32>,
}

/// A record that is not held yet.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    pub position: u64,
    /// Interests that must be applied everywhere first.
    pub interests: u64,
    /// It ends a full sync: what was on its way here then must have arrived first.
    pub has_whole: bool,
}

/// All of them.
#[derive(Debug)]
pub(in super::super) struct Sources {
    pub(super) sources: BTreeMap<SourceKey, Source>,
    pub(super) orphans: Orphans,
    /// Sessions that were handed over, with their serials, until they are taken over.
    handed: Vec<(SessionKey, u64)>,
    /// Number of filters of the backups, which are not this worker's own subscriptions.
    pub(super) subscriptions: usize,
    pub(super) will_count: HeldWillCount,
    /// A message that a primary named has not arrived.
    pub lacks: bool,
    /// When the backups are checked next.
    pub timer_at: Option<Instant>,
    /// Stands for messages that have not arrived.
    pub(super) placeholder: Rc<Message>,
}

impl Sources {
    pub fn new() -> Self {
        Self {
            sources: BTreeMap::new(),
            orphans: Orphans::default(),
            handed: Vec::new(),
            subscriptions: 0,
            will_count: HeldWillCount::default(),
            lacks: false,
            timer_at: None,
            placeholder: Rc::new(Message::new(
                MessageId::default(),
                &Publish::new("", b""),
                None,
            )),
        }
    }

    /// The backup of a session, by its number in the primary's stream.
    pub(super) fn find(&self, source: SourceKey, number: u64) -> Option<SessionKey> {
        self.sources.get(&source)?.sessions.get(&number).copied()
    }

    /// A session is handed over to this node.
    pub fn note_handed(&mut self, key: SessionKey, serial: u64) {
        self.handed.push((key, serial));
    }

    /// See [`Self::note_handed`].
    pub fn take_handed(&mut self) -> Vec<(SessionKey, u64)> {
        std::mem::take(&mut self.handed)
    }

    pub const fn subscriptions(&self) -> usize {
        self.subscriptions
    }
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

    /// A message arrived. Returns the position that waits for it no longer. `taken`: the session's. `is_seen`: see [`Pending`]; `is_hint`: another
    /// node had kept it for this one.
    #[inline(always)]
    pub fn take(
        &mut self,
        now: Instant,
        taken: &mut Taken,
        delivery: Delivery,
        (is_seen, is_hint): (bool, bool),
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
            let mut pending = Pending::new(self.arrivals, now, delivery, is_seen);
            pending.told_at = is_hint.then(|| now + SUCCESSION);
            self.pending.push(pending);
        }
        None
    }

    /// Whether an entry is about a message that the former primary accepted after it handed the session over.
    pub(super) const fn is_of_former(&self, entry: &JournalEntry<'_>) -> bool {
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

    pub(super) const fn unblocked(&self, awaited: Awaited) -> Option<Unblocked> {
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
    pub(super) fn take_pending(&mut self, id: MessageId) -> Option<Rc<Message>> {
        self.pending.take(id)
    }

    #[inline]
    pub(super) fn take_awaited(&mut self, sequence: u64) -> Option<Awaited> {
        // Only messages that the primary has named are awaited.
        if self.awaited.is_empty() || sequence >= self.held.next_sequence() {
            return None;
        }
        let has = |(_, awaited): &(&MessageId, &Awaited)| awaited.sequence == sequence;
        let id = *self.awaited.iter().find(has)?.0;
        self.awaited.remove(&id)
    }
}

impl Source {
    /// `worker`: the source's.
    pub(super) const fn stream(&self, worker: u8) -> ReplicationStream {
        let id = self.stream;
        ReplicationStream { worker, id }
    }

    /// The last position that lacks no message which its client may have.
    pub(super) fn applied(&self) -> u64 {
        let blocked = self.blocked.keys().next();
        blocked.map_or(self.position, |position| position - 1)
    }

    /// Advances past all that is held. False: a barrier is needed first.
    pub(super) fn advance(&mut self, settled: u64) -> bool {
        let applied = self.applied();
        while let Some(front) = self.unacknowledged.front() {
            if front.interests > settled || front.position > applied {
                return true;
            }
            if front.has_whole && front.position > self.passed {
                return false;
            }
            self.held = front.position;
            self.unacknowledged.pop_front();
        }
        true
    }

    /// The last position whose interests are applied everywhere.
    pub(super) fn settled_position(&self, settled: u64) -> Option<u64> {
        let applied = self.unacknowledged.iter();
        let applied = applied.take_while(|record| record.interests <= settled);
        applied.last().map(|record| record.position)
    }
}
