//! When what clients were granted ends.

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use thicket_session::time::{Instant, WallClock};

use crate::{ConnectionId, Now};

/// How often a worker looks at the wall clock at least while something is to end: the clock may have been set forward, or the machine suspended.
const LOOKED_EVERY: Duration = Duration::from_secs(1);

/// The ends of the grants of connections, by the wall clock, earliest first. Those of connections that have gone stay until they are due.
#[derive(Debug, Default)]
pub(in crate::worker) struct GrantEnds {
    heap: BinaryHeap<Reverse<(WallClock, ConnectionId, u64)>>,
    /// When the worker is woken to look again.
    looks_at: Option<Instant>,
}

impl GrantEnds {
    pub fn set(&mut self, at: WallClock, connection: ConnectionId, serial: u64) {
        self.heap.push(Reverse((at, connection, serial)));
    }

    /// Whether some have ended.
    #[inline]
    pub fn are_due(&self, wall: WallClock) -> bool {
        matches!(self.heap.peek(), Some(Reverse((at, ..))) if *at <= wall)
    }

    /// A connection, with its serial number, whose grant has ended.
    pub fn pop_due(&mut self, wall: WallClock) -> Option<(ConnectionId, u64)> {
        if !self.are_due(wall) {
            return None;
        }
        let Reverse((_, connection, serial)) = self.heap.pop()?;
        Some((connection, serial))
    }

    /// When the worker is to be woken for the next one; `None`: it is woken early enough.
    pub fn wake_at(&mut self, now: Now) -> Option<Instant> {
        let Reverse((end, ..)) = self.heap.peek()?;
        let left_ms = end
            .as_unix_millis()
            .saturating_sub(now.wall.as_unix_millis());
        let at = now.instant + Duration::from_millis(left_ms).min(LOOKED_EVERY);
        let is_early = self
            .looks_at
            .is_some_and(|looks| looks <= at && looks > now.instant);
        if is_early {
            return None;
        }
        if left_ms > 0 && self.looks_at.is_some_and(|looks| looks <= now.instant) {
            thicket_session::reach!("time LOOKED_EVERY");
        }
        self.looks_at = Some(at);
        Some(at)
    }
}
