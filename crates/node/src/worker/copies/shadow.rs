//! What a backup keeps of a session, and of the owners that have sessions here.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use thicket_overlay::NodeId;
use thicket_session::{
    server::{Delivery, Message, MessageId, RecoveredSession, StoredSession},
    time::Instant,
};

use super::{
    Progress,
    orphans::Orphans,
    pending::{Pending, Pendings},
    wills::{HeldWillCount, HeldWills},
};
use crate::worker::SessionKey;

/// A worker of another node.
pub(in super::super) type SourceKey = (NodeId, u8);

/// What a backup holds of a session.
#[derive(Debug)]
pub(in super::super) struct Shadow {
    pub source: SourceKey,
    /// In the owner's stream.
    pub number: u64,
    pub stored: StoredSession,
    /// All nodes that have copies, in the order in which they go on with the session; empty: there is no other.
    pub(super) members: Vec<NodeId>,
    /// The owner has not yet said that all of the session is here.
    pub is_learning: bool,
    pub held: RecoveredSession,
    /// Messages that came and of which the owner has not spoken, in the order they came.
    pub(super) pending: Pendings,
    /// Messages that came.
    pub arrivals: u64,
    /// How many of them had come when all that was sent before the owner told the whole session had.
    pub mark: u64,
    /// Messages that the owner named and that have not come.
    pub(super) awaited: BTreeMap<MessageId, Awaited>,
    /// Messages that the owner passed over, or told whole, and that have not come; some never will.
    pub passed: BTreeMap<MessageId, Instant>,
}

#[derive(Debug)]
pub(super) struct Awaited {
    pub sequence: u64,
    pub since: Instant,
    /// The client may have it under a packet identifier that must not go to another message: this position is not held before.
    pub blocks: Option<u64>,
    pub is_asked: bool,
}

/// A position of a source's stream that waits for one message less.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Unblocked {
    pub source: SourceKey,
    pub position: u64,
}

/// One worker of another node that has copies here.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub stream: u64,
    pub position: u64,
    /// What the owner was told.
    pub told: Progress,
    pub held: u64,
    pub sessions: BTreeMap<u64, SessionKey>,
    /// Of sessions that end with their connections, by their numbers.
    pub wills: HeldWills,
    /// Sessions of earlier owners that it goes on with and has not told whole: their identities by their numbers.
    pub adopted: BTreeMap<u64, u128>,
    pub unacknowledged: VecDeque<Unacknowledged>,
    /// Sessions that were told whole, with the positions, until a barrier is behind them.
    pub wholes: Vec<(u64, u64)>,
    /// The number of a barrier that has begun, and up to which position it counts.
    pub barrier: Option<(u64, u64)>,
    /// Up to which position all barriers are passed.
    pub passed: u64,
    /// Positions with the number of messages that must come before they are held.
    pub blocked: BTreeMap<u64, u32>,
}

/// A record that is not held yet.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    pub position: u64,
    /// Interests that must be applied everywhere first.
    pub interests: u64,
    /// A session was told whole: what was on its way here then must have come first.
    pub has_whole: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(in super::super) struct Sources {
    pub(super) sources: BTreeMap<SourceKey, Source>,
    pub(super) orphans: Orphans,
    /// Their filters, which are not this worker's own.
    pub(super) subscriptions: usize,
    pub(super) will_count: HeldWillCount,
    /// A message that an owner named has not come.
    pub lacks: bool,
    /// When the copies are looked at next.
    pub timer_at: Option<Instant>,
}

impl Sources {
    /// The shadow of a session, by its number in the owner's stream.
    pub(super) fn find(&self, source: SourceKey, number: u64) -> Option<SessionKey> {
        self.sources.get(&source)?.sessions.get(&number).copied()
    }

    pub const fn subscriptions(&self) -> usize {
        self.subscriptions
    }
}

impl Shadow {
    /// A message came. The position that waits for it no longer. `is_repeated`: the session took the publication before.
    #[inline(always)]
    pub fn take(
        &mut self,
        now: Instant,
        delivery: Delivery,
        is_repeated: bool,
    ) -> Option<Unblocked> {
        if !self.awaited.is_empty()
            && let Some(awaited) = self.awaited.remove(&delivery.message.id())
        {
            self.held.resolve(awaited.sequence, &delivery.message);
            return self.unblocked(awaited);
        }
        if self.passed.is_empty() || self.passed.remove(&delivery.message.id()).is_none() {
            self.arrivals += 1;
            let pending = Pending::new(self.arrivals, now, delivery, is_repeated);
            self.pending.push(pending);
        }
        None
    }

    /// Messages of which the owner has not spoken, in the order they came.
    pub fn pending(&self) -> impl Iterator<Item = &Delivery> {
        self.pending.iter().map(|pending| &pending.delivery)
    }

    /// Messages held, and those of which the owner has not spoken.
    pub fn messages(&self) -> usize {
        self.held.len() + self.pending.len()
    }

    /// What these take, in bytes, as a queue counts it. No bound of this node: the owner's queue has one, and of what the owner has not
    /// spoken nothing is kept for long.
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

    /// The owner has come to a message: it is pending no more.
    #[inline]
    pub(super) fn take_pending(&mut self, id: MessageId) -> Option<Rc<Message>> {
        self.pending.take(id)
    }

    #[inline]
    pub(super) fn take_awaited(&mut self, sequence: u64) -> Option<Awaited> {
        // Nothing is awaited of which the owner has not spoken.
        if self.awaited.is_empty() || sequence >= self.held.next_sequence() {
            return None;
        }
        let has = |(_, awaited): &(&MessageId, &Awaited)| awaited.sequence == sequence;
        let id = *self.awaited.iter().find(has)?.0;
        self.awaited.remove(&id)
    }
}

impl Source {
    /// The last position that lacks no message which its client may have.
    pub(super) fn applied(&self) -> u64 {
        let blocked = self.blocked.keys().next();
        blocked.map_or(self.position, |position| position - 1)
    }

    /// Moves on past all that is held. False: a barrier is wanted first.
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
