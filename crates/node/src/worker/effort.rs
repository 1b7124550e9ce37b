//! How much a worker does in one round. Clients choose how much work their messages make: a thousand overlapping filters make a publication of a few
//! bytes expensive. So a round ends when a certain amount was done, and the rest waits for the next: bytes of connections, which are not read from
//! meanwhile, and messages of other threads, in their order.

use std::collections::VecDeque;

use thicket_overlay::record::Records;

use super::{Worker, context::Context};
use crate::{
    ConnectionId, Now, Peer,
    messages::{Origin, WorkerMessage},
};

/// What a round does before it ends: some ten milliseconds. A unit is a step in a tree of filters, or a delivery.
const ROUND: u64 = 200_000;
/// What one connection, or one message of another thread, may use of it at a time.
const TURN: u64 = 50_000;

/// What was done in this round, and what is left for the next.
#[derive(Debug, Default)]
pub(super) struct Effort {
    spent: u64,
    /// When the present turn ends.
    turn_ends: u64,
    connections: VecDeque<ConnectionId>,
    messages: VecDeque<(Peer, Left)>,
}

/// A message that waits.
#[derive(Debug)]
enum Left {
    Whole(WorkerMessage),
    /// Records of which some were handled. The next one may refer to the topic of the one before.
    Records {
        origin: Origin,
        bytes: Vec<u8>,
        topic: String,
    },
}

impl Effort {
    /// Counts work that was done.
    #[inline]
    pub const fn spend(&mut self, units: u64) {
        self.spent += units;
    }

    /// Whether what is being handled has had its turn.
    #[inline]
    pub const fn is_over(&self) -> bool {
        self.spent >= self.turn_ends
    }

    /// What is handled next has a turn of its own, unless the round has done enough.
    pub const fn begin_turn(&mut self) {
        let ends = self.spent + TURN;
        self.turn_ends = if ends < ROUND { ends } else { ROUND };
    }

    /// Another round begins.
    pub const fn begin_round(&mut self) {
        self.spent = 0;
        self.begin_turn();
    }

    /// Whether something waits for the next round.
    pub fn has_left(&self) -> bool {
        !self.connections.is_empty() || !self.messages.is_empty()
    }
}

/// Leaves bytes of a connection for the next round.
pub(super) fn leave_unfinished(cx: &mut Context, id: ConnectionId) {
    if let Some(connection) = cx.connections.get_mut(id)
        && !connection.is_unfinished
    {
        connection.is_unfinished = true;
        cx.effort.connections.push_back(id);
        cx.set_reading(id, false);
    }
}

/// Leaves records whose turn is over: they are the first to continue.
pub(super) fn leave_records(cx: &mut Context, from: Peer, origin: Origin, records: &Records<'_>) {
    let (topic, bytes) = (records.topic().to_owned(), records.rest().to_vec());
    let left = Left::Records {
        origin,
        bytes,
        topic,
    };
    cx.effort.messages.push_front((from, left));
}

impl Worker {
    /// Handles a message, or appends it to those that wait already.
    pub(super) fn take_message(&mut self, now: Now, from: Peer, message: WorkerMessage) {
        if self.cx.effort.messages.is_empty() {
            self.cx.effort.begin_turn();
            self.handle_message(now, from, message);
        } else {
            self.cx
                .effort
                .messages
                .push_back((from, Left::Whole(message)));
        }
    }

    /// Continues with what was left, each in its turn, until this round has done enough too.
    pub(super) fn resume_left(&mut self, now: Now) {
        self.cx.effort.begin_turn();
        while !self.cx.effort.is_over()
            && let Some((from, left)) = self.cx.effort.messages.pop_front()
        {
            match left {
                Left::Whole(message) => self.handle_message(now, from, message),
                Left::Records {
                    origin,
                    bytes,
                    topic,
                } => self.handle_records(now, from, origin, Records::after(&topic, &bytes)),
            }
        }
        for _ in 0..self.cx.effort.connections.len() {
            self.cx.effort.begin_turn();
            if self.cx.effort.is_over() {
                return;
            }
            let Some(id) = self.cx.effort.connections.pop_front() else {
                return;
            };
            self.resume_connection(now, id);
        }
    }

    fn resume_connection(&mut self, now: Now, id: ConnectionId) {
        let connection = self
            .cx
            .connections
            .get_mut(id)
            .filter(|it| it.is_unfinished);
        let Some(connection) = connection else {
            // It has ended; another one may have its number.
            return;
        };
        connection.is_unfinished = false;
        // Its client was not silent.
        connection.last_packet = now.instant;
        self.handle_received(now, id, &[]);
        let is_done = self
            .cx
            .connections
            .get(id)
            .is_some_and(|it| !it.is_unfinished);
        // A connection whose session leaves is not read from any more.
        let session = self.cx.session_at(id);
        if is_done && session.is_some_and(|session| !session.role.is_frozen()) {
            self.cx.set_reading(id, true);
        }
    }
}
