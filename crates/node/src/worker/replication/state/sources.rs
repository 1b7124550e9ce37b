//! The primaries on other nodes that have backups here: which sessions, and how far their streams are read and held.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
};

use thicket_mqtt::Publish;
use thicket_session::{
    server::{Message, MessageId},
    time::Instant,
};

use super::{
    held_wills::{HeldWillCount, HeldWills},
    orphans::Orphans,
};
use crate::{
    messages::ReplicationStream,
    worker::state::{
        replica::{backup::SourceKey, stream::Progress},
        session_key::SessionKey,
    },
};

/// A worker of another node whose sessions have backups here.
#[derive(Debug, Default)]
pub(in super::super) struct Source {
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
    pub full_syncs: Vec<(u64, u64)>,
    /// A barrier has begun.
    pub has_barrier: bool,
    /// Up to which position all barriers are passed.
    pub passed: u64,
    /// Positions with the number of messages that must arrive before they are applied.
    pub blocked: BTreeMap<u64, u32>,
}

/// A record that is not held yet.
#[derive(Debug)]
pub(in super::super) struct Unacknowledged {
    pub position: u64,
    /// Interests that must be applied everywhere first.
    pub interests: u64,
    /// It ends a full sync: what was on its way here then must have arrived first.
    pub has_full_sync: bool,
}

/// All of them.
#[derive(Debug)]
pub(in crate::worker) struct Sources {
    pub(in super::super) sources: BTreeMap<SourceKey, Source>,
    pub(in super::super) orphans: Orphans,
    /// Sessions that were handed over, with their serials, until they are taken over.
    handed: Vec<(SessionKey, u64)>,
    /// Backups, with their serials, of sessions of which a newer backup was promoted here.
    pub(in super::super) superseded: Vec<(SessionKey, u64)>,
    /// Number of filters of the backups, which are not this worker's own subscriptions.
    pub(in super::super) subscriptions: usize,
    pub(in super::super) will_count: HeldWillCount,
    /// A message that a primary named has not arrived.
    pub lacks: bool,
    /// When the backups are checked next.
    pub timer_at: Option<Instant>,
    /// Stands for messages that have not arrived.
    pub(in super::super) placeholder: Rc<Message>,
}

impl Sources {
    pub fn new() -> Self {
        Self {
            sources: BTreeMap::new(),
            orphans: Orphans::default(),
            handed: Vec::new(),
            superseded: Vec::new(),
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
    pub(in super::super) fn find(&self, source: SourceKey, number: u64) -> Option<SessionKey> {
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

impl Source {
    /// `worker`: the source's.
    pub(in super::super) const fn stream(&self, worker: u8) -> ReplicationStream {
        let id = self.stream;
        ReplicationStream { worker, id }
    }

    /// The last position that lacks no message which its client may have.
    pub(in super::super) fn applied(&self) -> u64 {
        let blocked = self.blocked.keys().next();
        blocked.map_or(self.position, |position| position - 1)
    }

    /// Advances past all that is held. False: a barrier is needed first.
    pub(in super::super) fn advance(&mut self, settled: u64) -> bool {
        let applied = self.applied();
        while let Some(front) = self.unacknowledged.front() {
            if front.interests > settled || front.position > applied {
                return true;
            }
            if front.has_full_sync && front.position > self.passed {
                return false;
            }
            self.held = front.position;
            self.unacknowledged.pop_front();
        }
        true
    }

    /// The last position whose interests are applied everywhere.
    pub(in super::super) fn settled_position(&self, settled: u64) -> Option<u64> {
        let applied = self.unacknowledged.iter();
        let applied = applied.take_while(|record| record.interests <= settled);
        applied.last().map(|record| record.position)
    }
}
