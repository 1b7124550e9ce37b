//! The two clocks, read in this one place.

use thicket_node::Now;
use thicket_session::time::{Instant, WallClock};

/// The instant of the node's start, in milliseconds. It is not zero because a client may have disconnected before the start, here or at the node that
/// its session comes from, and that time must be an instant too. The offset exceeds the longest expiry interval, 136 years.
const BEFORE_START_MS: u64 = 1 << 42;

/// Counts milliseconds from the start of the node. All its threads share one, so that instants may travel in letters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// Starts now.
    pub(crate) fn new() -> Self {
        Self {
            start: std::time::Instant::now(),
        }
    }

    /// Both clocks.
    pub(crate) fn now(&self) -> Now {
        now_at(self.instant())
    }

    /// Both clocks; the wall clock is read only if the millisecond has changed since `last`. A caller that asks for each single message pays for one
    /// clock only.
    pub(crate) fn now_after(&self, last: Now) -> Now {
        let instant = self.instant();
        if instant == last.instant {
            return last;
        }
        now_at(instant)
    }

    /// The monotonic clock.
    pub(crate) fn instant(&self) -> Instant {
        let elapsed = self.start.elapsed();
        let elapsed_ms = elapsed.as_secs() * 1000 + u64::from(elapsed.subsec_millis());
        Instant::from_millis(BEFORE_START_MS + elapsed_ms)
    }
}

fn now_at(instant: Instant) -> Now {
    Now {
        instant,
        wall: WallClock::from_unix_millis(wall_ms()),
    }
}

/// Milliseconds since the Unix epoch; 0 for a clock set before it.
pub(crate) fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |elapsed| {
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_went_the_longest_expiry_ago_went_at_an_instant() {
        let longest_ms = u64::from(u32::MAX) * 1000;
        assert!(Clock::new().now().instant.as_millis() > longest_ms);
    }
}
