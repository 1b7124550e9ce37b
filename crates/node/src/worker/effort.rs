//! How much a worker does in one round. Clients choose how much work their messages make: a thousand overlapping filters make a publication of a few
//! bytes expensive. So a round ends when a certain amount was done, and the rest waits for the next: bytes of connections, which are not read from
//! meanwhile, messages of other threads, in their order, and sessions that end.
//!
//! Changes of interests make work for all workers and nodes. While many are on their way (`subscribe`), packets that make more wait, and so does the
//! end of sessions that have subscriptions: a session whose client has gone is over, but stays until its turn, or until its client is back.
//!
//! A message for many shared subscriptions is divided itself (`portions`): what is left of it waits like all else, and its connection for it.
//!
//! What clients publish makes work for other threads. While one of these has not processed much of what it was handed (`crate::flow_control`), a PUBLISH waits.

use super::{
    Worker,
    context::Context,
    state::{
        effort::{Effort, Left, RecordBatch, WaitsFor},
        sessions::SessionKey,
    },
};
use crate::{
    ConnectionId, Now, Peer,
    messages::{ToWorker, WorkerMessage},
};

const PUBLISH: u8 = 3;
const SUBSCRIBE: u8 = 8;
const UNSUBSCRIBE: u8 = 10;

/// Leaves bytes of a connection for the next round, or for later.
pub(super) fn leave_unfinished(cx: &mut Context, id: ConnectionId, waits_for: WaitsFor) {
    if let Some(connection) = cx.connections.get_mut(id)
        && !connection.is_unfinished
    {
        connection.is_unfinished = true;
        let effort = &mut cx.effort;
        let waiting = match waits_for {
            WaitsFor::Turn => &mut effort.connections,
            WaitsFor::Interests => &mut effort.subscribing,
            WaitsFor::Receivers => &mut effort.publishing,
        };
        waiting.push_back(id);
        cx.set_reading(id, false);
    }
}

/// Leaves records whose turn is over: they are the first to continue. `left`: the topic of the last one that was handled, and the bytes behind it.
pub(super) fn leave_records(
    cx: &mut Context,
    from: Peer,
    mut batch: RecordBatch,
    left: (String, usize),
) {
    let (topic, rest) = left;
    batch.done = batch.bytes.len() - rest;
    batch.topic = topic;
    cx.effort.messages.push_front((from, Left::Records(batch)));
}

impl Context {
    /// Whether something waits for the next round.
    pub(super) fn has_left(&self) -> bool {
        let effort = &self.effort;
        let waits_for_interests = !(effort.subscribing.is_empty() && effort.ending.is_empty());
        let waits_for_receivers = !(effort.publishing.is_empty() && effort.divided.is_empty());
        !effort.connections.is_empty()
            || !effort.messages.is_empty()
            || (waits_for_interests && !self.gates.are_congested())
            || (waits_for_receivers && !self.batches.flow_control.is_full())
    }

    /// What the first packet of these waits for.
    #[inline]
    pub(super) fn waits_for(&self, packets: &[u8]) -> Option<WaitsFor> {
        let is_busy = self.effort.is_over()
            | self.batches.flow_control.is_full()
            | self.gates.are_congested();
        if is_busy { self.of_busy(packets) } else { None }
    }

    #[cold]
    fn of_busy(&self, packets: &[u8]) -> Option<WaitsFor> {
        // The type of a packet (5.0, 2.1.2).
        match packets.first()? >> 4 {
            PUBLISH if self.batches.flow_control.is_full() => Some(WaitsFor::Receivers),
            SUBSCRIBE | UNSUBSCRIBE if self.gates.are_congested() => Some(WaitsFor::Interests),
            _ if self.effort.is_over() => Some(WaitsFor::Turn),
            _ => None,
        }
    }
}

impl Worker {
    /// Handles a message, or appends it to those that wait already.
    pub(super) fn take_message(&mut self, now: Now, from: Peer, message: WorkerMessage) {
        if let ToWorker::Processed { bytes } = message.0 {
            return self.cx.batches.note_processed(from, bytes);
        }
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
                Left::Records(batch) => self.handle_records(now, from, batch),
            }
        }
        self.cx.effort.begin_turn();
        while !self.cx.effort.is_over()
            && !self.cx.gates.are_congested()
            && let Some((key, serial)) = self.cx.effort.ending.pop_front()
        {
            if self.cx.sessions.get_same(key, serial).is_some() {
                self.end_session(now, key);
            }
        }
        self.resume_divided(now);
        if !self.cx.gates.are_congested() {
            let Effort {
                connections,
                subscribing,
                ..
            } = &mut self.cx.effort;
            connections.append(subscribing);
        }
        if !self.cx.batches.flow_control.is_full() {
            let effort = &mut self.cx.effort;
            effort.connections.append(&mut effort.publishing);
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

    /// Ends a session, at once or when its turn comes: its subscriptions end with it, and a client may have thousands.
    pub(super) fn end_in_turn(&mut self, now: Now, key: SessionKey) {
        let is_congested = self.cx.gates.are_congested();
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return;
        };
        let effort = &mut self.cx.effort;
        let may_end = !is_congested && !effort.is_over() && effort.ending.is_empty();
        if may_end || session.subscriptions.is_empty() {
            return self.end_session(now, key);
        }
        if !session.is_over {
            session.is_over = true;
            effort.ending.push_back((key, session.serial));
        }
    }

    /// Ends what a client identifier had, if it is over.
    pub(super) fn end_if_over(&mut self, now: Now, client_id: &str) {
        let key = self.cx.sessions.find(client_id);
        let session = key.and_then(|key| self.cx.sessions.get(key));
        if let Some(key) = key.filter(|_| session.is_some_and(|session| session.is_over)) {
            self.end_session(now, key);
        }
    }

    /// Ends all that are over.
    pub(super) fn end_all_over(&mut self, now: Now) {
        for (key, serial) in std::mem::take(&mut self.cx.effort.ending) {
            if self.cx.sessions.get_same(key, serial).is_some() {
                self.end_session(now, key);
            }
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
