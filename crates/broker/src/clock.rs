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
        Now {
            instant: self.instant(),
            wall: WallClock::from_unix_millis(wall_ms()),
        }
    }

    /// The clock that nobody sets.
    pub(crate) fn instant(&self) -> Instant {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Instant::from_millis(BEFORE_START_MS.saturating_add(elapsed))
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
