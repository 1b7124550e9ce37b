//! The two clocks, read in this one place.

use thicket_node::Now;
use thicket_session::time::{Instant, WallClock};

/// Where instants begin, in milliseconds. Not at zero: a client that went before the node started, here or at a node from which
/// its session came, went at an instant too. That is longer ago than the longest expiry, of 136 years, can tell.
const BEFORE_START_MS: u64 = 1 << 42;

/// Counts milliseconds from the start of the node; all its threads share one, so that instants may travel in mail.
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

    /// Both clocks, the other one only if it is another millisecond than at `last`: whoever asks for every message that comes alone pays
    /// for one of them.
    pub(crate) fn now_after(&self, last: Now) -> Now {
        let instant = self.instant();
        if instant == last.instant {
            return last;
        }
        now_at(instant)
    }

    /// The clock that nobody sets.
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
