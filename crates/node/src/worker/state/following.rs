//! Where the recipients of a client's messages are: on which worker of this node.

use std::time::Duration;

use thicket_session::time::Instant;

use crate::WorkerId;

/// How soon after its arrival a connection may be offered; the wait doubles each time, so that one whose messages alternate between workers stays.
pub(in crate::worker) const FIRST_WAIT: Duration = Duration::from_millis(250);

const LONGEST_WAIT: Duration = Duration::from_secs(64);

/// Where the recipients of a client's messages are.
#[derive(Debug, Clone, Copy)]
pub(in crate::worker) struct Following {
    pub towards: Option<WorkerId>,
    /// Messages with recipients on that worker only, less the others.
    pub count: u32,
    /// When the first of them arrived.
    pub since: Instant,
    /// Not offered before.
    pub not_before: Instant,
    pub wait: Duration,
    /// When a message without acknowledgement was last sent anywhere else.
    pub last_unacknowledged: Option<Instant>,
    /// Something arrived since the last round ended.
    pub is_active: bool,
}

impl Following {
    pub fn new(now: Instant, wait: Duration) -> Self {
        Self {
            towards: None,
            count: 0,
            since: now,
            not_before: now + wait,
            wait,
            last_unacknowledged: None,
            is_active: false,
        }
    }

    /// Counts a message that has recipients on one worker only, if so: a majority vote over those that arrived.
    pub fn count(&mut self, now: Instant, towards: Option<WorkerId>) {
        if towards.is_some() && towards == self.towards {
            if self.count == 0 {
                self.since = now;
            }
            self.count += 1;
        } else if towards.is_some() && self.count == 0 {
            if self.towards.is_some() {
                self.last_unacknowledged = Some(now);
            }
            (self.towards, self.count, self.since) = (towards, 1, now);
        } else {
            self.count = self.count.saturating_sub(1);
        }
    }

    /// Starts again; the next time is later.
    pub fn put_off(&mut self, now: Instant) {
        self.count = 0;
        thicket_session::reach!("time FIRST_WAIT");
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        if self.wait == LONGEST_WAIT {
            thicket_session::reach!("time LONGEST_WAIT");
        }
        self.not_before = now + self.wait;
    }
}
