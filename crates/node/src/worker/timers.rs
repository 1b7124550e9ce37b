//! Deadlines with names. A timer that fires late, twice or for something gone is harmless: whoever handles it compares with the state.

use std::{cmp::Reverse, collections::BinaryHeap};

use thicket_session::time::Instant;

use super::SessionKey;
use crate::ConnectionId;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// No CONNECT in time.
    Connect {
        connection: ConnectionId,
        serial: u64,
    },
    /// Silence may have lasted one and a half times the keep alive [MQTT-3.1.2-22].
    KeepAlive {
        connection: ConnectionId,
        serial: u64,
    },
    /// What the client was granted ends.
    GrantEnd {
        connection: ConnectionId,
        serial: u64,
    },
    /// A delayed will is to be published.
    WillDelay { session: SessionKey, serial: u64 },
    /// A session without connection ends.
    SessionExpiry { session: SessionKey, serial: u64 },
    /// Wills that were going out when the node stopped are to be published.
    RecoveredWills,
    /// Groups whose members were on nodes that are out have had their time.
    Orphaned,
    /// Copies of sessions of other nodes may lack messages.
    Copies,
    /// Nodes that were to go on with sessions of which there are copies here may not have.
    Successors,
    /// A round is wanted: what is looked at as it ends may have changed.
    Round,
}

/// Deadlines, earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl Timers {
    pub fn set(&mut self, at: Instant, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// A timer that is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, timer))| timer)
    }
}
