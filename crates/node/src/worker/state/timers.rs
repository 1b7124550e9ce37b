//! What is due, and when.

use std::{cmp::Reverse, collections::BinaryHeap};

use thicket_session::time::Instant;

use super::session_key::SessionKey;
use crate::ConnectionId;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::worker) enum Timer {
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
    /// What a client was granted may end.
    GrantEnd,
    /// A delayed will is to be published.
    WillDelay { session: SessionKey, serial: u64 },
    /// A session without connection ends.
    SessionExpiry { session: SessionKey, serial: u64 },
    /// Messages that wait for a session may have expired.
    MessageExpiry { session: SessionKey, serial: u64 },
    /// Wills that were being published when the node stopped are to be published again.
    RecoveredWills,
    /// The grace period of groups whose members were on nodes that are down is over.
    GroupGrace,
    /// Backups of sessions of other nodes may lack messages.
    Backups,
    /// Nodes that were to promote their backups, of sessions that have backups here, may not have done so.
    Successors,
    /// A round is wanted: what is checked at its end may have changed.
    Round,
}

/// Deadlines, earliest first.
#[derive(Debug, Default)]
pub(in crate::worker) struct Timers {
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
