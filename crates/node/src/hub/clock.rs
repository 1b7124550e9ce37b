//! The clock that orders claims and writes of retained messages: all nodes that have linked share it, whatever their wall clocks say.
//!
//! A node begins with its wall clock, and counts on by its monotonic one. When nodes link, each sends the others its time, and all advance to the
//! latest one. So of two claims, or two writes of one topic, on two sides of a partition the later one counts, unless the time between them is shorter
//! than the latency between the nodes, the drift of the clocks during the partition, or a suspension of a clock.
//!
//! It only orders: nothing expires by it, so it does no harm if it is years ahead, as after a node joined whose wall clock was.

use thicket_overlay::Incarnation;

use crate::Now;

/// The latest time that is believed, in milliseconds since 1970. Incarnations are such times too.
pub(super) const LAST_MS: u64 = Incarnation::MAXIMUM.0;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct SharedClock {
    /// What it said at the start of the monotonic clock; `None`: it was not read yet.
    at_start_ms: Option<u64>,
}

impl SharedClock {
    /// Milliseconds since 1970, as far as the nodes know that.
    pub fn read(&mut self, now: Now) -> u64 {
        let wall = now.wall.as_unix_millis();
        let elapsed = now.instant.as_millis();
        let at_start = self.at_start_ms.get_or_insert(wall.saturating_sub(elapsed));
        *at_start + elapsed
    }

    /// Another node's clock says `millis`.
    pub fn follow(&mut self, now: Now, millis: u64) {
        let own = self.read(now);
        if millis > own && millis <= LAST_MS {
            self.at_start_ms = Some(millis.saturating_sub(now.instant.as_millis()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_session::time::{Instant, WallClock};

    fn at(elapsed: u64, wall: u64) -> Now {
        Now {
            instant: Instant::from_millis(elapsed),
            wall: WallClock::from_unix_millis(wall),
        }
    }

    #[test]
    fn nodes_that_have_linked_count_by_the_clock_that_is_furthest_ahead() {
        let (mut fast, mut slow) = (SharedClock::default(), SharedClock::default());
        assert_eq!(fast.read(at(1_000, 90_000)), 90_000);
        assert_eq!(slow.read(at(70, 60_000)), 60_000);
        slow.follow(at(80, 60_010), 90_010);
        fast.follow(at(1_020, 90_020), 60_010);
        assert_eq!(slow.read(at(580, 60_510)), 90_510);
        assert_eq!(fast.read(at(1_520, 90_520)), 90_520);
        // Setting a wall clock changes nothing, and what cannot be a time is not believed.
        slow.follow(at(680, 5), LAST_MS + 1);
        assert_eq!(slow.read(at(780, 5)), 90_710);
    }
}
