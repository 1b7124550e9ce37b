//! What a worker has done in this round, and what waits for the next one.

use std::collections::VecDeque;

use thicket_overlay::record::Records;

use super::{divided::DividedMessages, session_key::SessionKey};
use crate::{
    ConnectionId, Peer,
    messages::{Origin, WorkerMessage},
    work::{self, CHANGE, ROUND},
};

/// What one connection, or one message of another thread, may use of it at a time.
const TURN: u64 = 50_000;
/// What a portion of a message may use at least.
const PORTION: u64 = 5_000;

/// What was done in this round, and what is left for the next.
#[derive(Debug, Default)]
pub(in crate::worker) struct Effort {
    spent: u64,
    /// When the present turn ends.
    turn_ends: u64,
    pub connections: VecDeque<ConnectionId>,
    pub messages: VecDeque<(Peer, Left)>,
    /// What waits until fewer changes of interests are on their way (`Gates::are_congested`): connections whose next packet makes more, and sessions
    /// that are over.
    pub subscribing: VecDeque<ConnectionId>,
    /// Connections whose next packet is a PUBLISH, which waits until other threads have processed what they were handed.
    pub publishing: VecDeque<ConnectionId>,
    pub ending: VecDeque<(SessionKey, u64)>,
    /// Messages that were given to some of their shared subscriptions.
    pub divided: DividedMessages,
}

/// What the next packet of a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum WaitsFor {
    /// The next round.
    Turn,
    /// Changes of interests that are on their way: it makes more.
    Interests,
    /// Other threads, which have much to take: it hands them more.
    Receivers,
}

/// A message that waits.
#[derive(Debug)]
pub(in crate::worker) enum Left {
    Whole(WorkerMessage),
    Records(RecordBatch),
}

/// Records of one origin, of which some may have been handled.
#[derive(Debug)]
pub(in crate::worker) struct RecordBatch {
    pub origin: Origin,
    pub bytes: Vec<u8>,
    /// Bytes that were handled.
    pub done: usize,
    /// Of the last record that was handled: the next one may refer to it.
    pub topic: String,
}

impl RecordBatch {
    pub const fn new(origin: Origin, bytes: Vec<u8>) -> Self {
        Self {
            origin,
            bytes,
            done: 0,
            topic: String::new(),
        }
    }

    /// Those that were handled included.
    #[inline]
    pub const fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Those that were not handled.
    #[inline]
    pub fn records(&self) -> Records<'_> {
        Records::after(&self.topic, &self.bytes[self.done..])
    }
}

impl Effort {
    /// What a connection has sent waits for nothing but its turn any more.
    pub fn resume(&mut self, id: ConnectionId) {
        self.connections.push_back(id);
    }

    /// Counts work that was done.
    #[inline]
    pub const fn spend(&mut self, units: u64) {
        self.spent += units;
    }

    /// Counts a message for a member of a shared subscription.
    pub const fn spend_on_group(&mut self, payload: &[u8]) {
        self.spend(work::for_member(payload.len()));
    }

    /// Counts changes of interests.
    pub const fn spend_on_changes(&mut self, count: usize) {
        self.spend(CHANGE * count as u64);
    }

    /// Whether what is being handled has had its turn.
    #[inline]
    pub const fn is_over(&self) -> bool {
        self.spent >= self.turn_ends
    }

    /// What is handled next has a turn of its own, unless the round has done enough.
    #[inline]
    pub const fn begin_turn(&mut self) {
        let ends = self.spent + TURN;
        self.turn_ends = if ends < ROUND { ends } else { ROUND };
    }

    /// When a portion of a message that begins now may end: it is large enough to be worth its route, whatever that has cost.
    pub fn portion_ends(&self) -> u64 {
        self.turn_ends.max(self.spent + PORTION)
    }

    /// Whether the work done has reached `end`.
    pub const fn has_reached(&self, end: u64) -> bool {
        self.spent >= end
    }

    /// Another round begins.
    pub const fn begin_round(&mut self) {
        self.spent = 0;
        self.begin_turn();
    }
}
