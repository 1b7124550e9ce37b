//! The two clocks, read in this one place.

use thicket_node::Now;
use thicket_session::time::{Instant, WallClock};

/// Milliseconds since the start of the node; all its threads share one, so that instants may travel in mail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    /// Starts at zero, now.
    pub(crate) fn new() -> Self {
        Self {
            start: std::time::Instant::now(),
        }
    }

    /// Both clocks.
    pub(crate) fn now(&self) -> Now {
        let elapsed = self.start.elapsed().as_millis();
        let instant = Instant::from_millis(u64::try_from(elapsed).unwrap_or(u64::MAX));
        Now {
            instant,
            wall: WallClock::from_unix_millis(wall_ms()),
        }
    }
}

/// Milliseconds since the Unix epoch; 0 for a clock set before it.
pub(crate) fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |elapsed| {
        u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
    })
}
