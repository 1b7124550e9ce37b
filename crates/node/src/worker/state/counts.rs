//! Messages of a client, as they are counted.

use std::time::Duration;

use thicket_session::time::Instant;

use super::activity::Activity;

/// A client is listed only when its messages were counted for this time, or it has been here for this time.
const COUNTED: Duration = Duration::from_secs(1);

/// Messages of one client, from it and to it.
#[derive(Debug)]
pub(in crate::worker) struct MessageCount {
    pub messages: u64,
    /// Of them, those to the client that are counted for its listener.
    pub delivered: u64,
    then: u64,
    since: Instant,
    /// For the rebalancer.
    pub activity: Activity,
}

impl MessageCount {
    pub fn new(now: Instant) -> Self {
        Self {
            messages: 0,
            delivered: 0,
            then: 0,
            since: now,
            activity: Activity::new(now),
        }
    }

    /// Messages a second since the last call; `None`: that was just now.
    pub fn take_rate(&mut self, now: Instant) -> Option<u64> {
        let passed = now.since(self.since);
        if passed < COUNTED {
            return None;
        }
        thicket_session::reach!("time worker/state/counts COUNTED");
        let messages = self.messages - self.then;
        (self.then, self.since) = (self.messages, now);
        let millis = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        Some(messages.saturating_mul(1000) / millis)
    }
}
