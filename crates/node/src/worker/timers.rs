//! Deadlines with names. A timer that fires late, twice or for something gone is harmless: its handler compares with the state.

use std::{cmp::Reverse, collections::BinaryHeap};

use thicket_session::time::Instant;

use super::{SessionKey, Worker, close::handle_connect_timeout};
use crate::{ConnectionId, Now};

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
    /// Wills that were being published when the node stopped are to be published again.
    RecoveredWills,
    /// The grace period of groups whose members were on nodes that are down is over.
    Orphaned,
    /// Backups of sessions of other nodes may lack messages.
    Backups,
    /// Nodes that were to promote their backups, of sessions that have backups here, may not have done so.
    Successors,
    /// A round is wanted: what is checked at its end may have changed.
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

impl Worker {
    /// Timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Now) {
        if self.cx.has_left() {
            self.resume_left(now);
        }
        // Thousands of sessions may expire at once.
        self.cx.effort.begin_turn();
        while !self.cx.effort.is_over()
            && let Some(timer) = self.cx.timers.pop_due(now.instant)
        {
            match timer {
                Timer::Connect { connection, serial } => {
                    handle_connect_timeout(&mut self.cx, connection, serial)
                }
                Timer::KeepAlive { connection, serial } => {
                    self.handle_keep_alive(now, connection, serial)
                }
                Timer::GrantEnd { connection, serial } => {
                    self.handle_grant_end(now, connection, serial)
                }
                Timer::WillDelay { session, serial } => self.handle_will_due(now, session, serial),
                Timer::SessionExpiry { session, serial } => {
                    self.handle_expiry(now, session, serial)
                }
                Timer::RecoveredWills => {
                    thicket_session::reach!("time WILL_GRACE");
                    self.publish_recovered_wills(now, None);
                }
                Timer::Backups => self.sources.check_backups(&mut self.cx, now),
                Timer::Successors => self.succeed_overdue(now),
                // The end of the round checks.
                Timer::Round => {}
                Timer::Orphaned => self.groups.forget_orphaned(&mut self.cx, now),
            }
        }
    }
}
