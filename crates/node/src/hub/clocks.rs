//! How far the clocks of other nodes are from that of this one.
//!
//! Nothing depends on it: nodes send each other how long something is ago, or how much time it has left. It is for people, who compare the logs of nodes,
//! and for what comes from outside with a time of day, as tokens and certificates do.

use std::time::Duration;

use thicket_overlay::NodeId;

use super::{Hub, Message};
use crate::{EventLevel, Now};

/// How often a node sends the others its time of day.
const SENT_EVERY: Duration = Duration::from_secs(10);
impl Hub {
    /// Sends a node that has come up the time of day.
    pub(super) fn send_clock(&mut self, now: Now, node: NodeId) {
        self.clocks.next.get_or_insert(now.instant + SENT_EVERY);
        let unix_ms = now.wall.as_unix_millis();
        self.cx.send(node, &Message::Clock { unix_ms });
    }

    /// Sends all nodes the time of day, every ten seconds.
    pub(super) fn review_clocks(&mut self, now: Now) {
        if self.clocks.next.is_none_or(|at| now.instant < at) {
            return;
        }
        thicket_session::reach!("time SENT_EVERY");
        let is_alone = self.cx.up.is_empty();
        self.clocks.next = (!is_alone).then(|| now.instant + SENT_EVERY);
        let unix_ms = now.wall.as_unix_millis();
        self.cx.broadcast(&Message::Clock { unix_ms }.encode());
    }

    pub(super) fn handle_clock(&mut self, now: Now, node: NodeId, unix_ms: u64) {
        let Some(ahead_ms) = self.clocks.compare(now, node, unix_ms) else {
            return;
        };
        let fields = vec![
            ("node", self.member_name(node)),
            ("ahead_s", format!("{:.3}", ahead_ms as f64 / 1000.0)),
        ];
        let message = "the clock of another node is far from that of this one";
        self.cx.event(EventLevel::Warn, message, fields);
    }
}
