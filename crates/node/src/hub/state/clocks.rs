//! How far the clocks of other nodes are from that of this one; see `hub/clocks`.

use std::{collections::BTreeMap, time::Duration};

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use crate::Now;

/// Clocks that are further apart are logged, ms.
const APART_MS: u64 = 2_000;
/// How often that is repeated.
const LOGGED_EVERY: Duration = Duration::from_secs(3600);

/// The clocks of other nodes.
#[derive(Debug, Default)]
pub(in crate::hub) struct Clocks {
    others: BTreeMap<NodeId, Other>,
    /// When the others are sent ours.
    pub next: Option<Instant>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Other {
    /// Milliseconds that its clock is ahead of ours.
    ahead_ms: i64,
    /// It was far away when it was compared last. Once is not enough: a message that waits on its way makes its sender's clock look late.
    is_apart: bool,
    logged_at: Option<Instant>,
}

impl Clocks {
    /// Another node's clock says `unix_ms`, or said so a moment ago. Returns how far it is ahead, if that is to be logged.
    pub fn compare(&mut self, now: Now, node: NodeId, unix_ms: u64) -> Option<i64> {
        let ahead = i128::from(unix_ms) - i128::from(now.wall.as_unix_millis());
        let ahead_ms = i64::try_from(ahead).unwrap_or(i64::MAX);
        let other = self.others.entry(node).or_default();
        let was_apart = other.is_apart;
        other.ahead_ms = ahead_ms;
        other.is_apart = ahead_ms.unsigned_abs() >= APART_MS;
        let is_due = |at: Instant| now.instant.since(at) >= LOGGED_EVERY;
        let is_logged = was_apart && other.is_apart && other.logged_at.is_none_or(is_due);
        is_logged.then(|| {
            if other.logged_at.is_some() {
                thicket_session::reach!("time LOGGED_EVERY");
            }
            other.logged_at = Some(now.instant);
            ahead_ms
        })
    }

    /// Milliseconds that the clock of a node that is up is ahead of ours; `None`: not known.
    pub fn ahead_ms(&self, node: NodeId) -> Option<i64> {
        self.others.get(&node).map(|other| other.ahead_ms)
    }

    /// A node is down.
    pub fn forget(&mut self, node: NodeId) {
        self.others.remove(&node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_session::time::WallClock;

    const NODE: NodeId = NodeId(7);

    /// The time of day an hour after the epoch.
    fn at(seconds: u64) -> Now {
        Now {
            instant: Instant::from_millis(seconds * 1000),
            wall: WallClock::from_unix_millis(3_600_000 + seconds * 1000),
        }
    }

    /// A clock that is so far ahead is compared at this time.
    fn compare(clocks: &mut Clocks, seconds: u64, ahead_ms: i64) -> Option<i64> {
        let unix_ms = at(seconds).wall.as_unix_millis();
        clocks.compare(at(seconds), NODE, unix_ms.saturating_add_signed(ahead_ms))
    }

    #[test]
    fn a_clock_that_stays_far_away_is_logged_once_an_hour() {
        let mut clocks = Clocks::default();
        assert_eq!(clocks.ahead_ms(NODE), None);
        for (name, seconds, ahead_ms, logged) in [
            ("for the first time", 10, 60_000, None),
            ("again", 20, 60_001, Some(60_001)),
            ("it is known", 30, 60_000, None),
            ("after an hour", 3620, 60_000, Some(60_000)),
            ("near", 3630, -1_999, None),
            ("behind, for the first time", 8000, -2_000, None),
            ("behind", 8010, -2_000, Some(-2_000)),
        ] {
            assert_eq!(compare(&mut clocks, seconds, ahead_ms), logged, "{name}");
            assert_eq!(clocks.ahead_ms(NODE), Some(ahead_ms), "{name}");
        }
        clocks.forget(NODE);
        assert_eq!(clocks.ahead_ms(NODE), None);
        clocks.compare(at(1), NODE, u64::MAX);
        assert_eq!(
            clocks.ahead_ms(NODE),
            Some(i64::MAX),
            "what cannot be a time"
        );
    }
}
