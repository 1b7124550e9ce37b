//! Topics that several clients wrote at once.
//!
//! A subscriber that mirrors a topic may have received the writes in another order than they were kept in, and would stay wrong until the next write.
//! So the last write is sent again when all that was written before is on its way. A write that crosses it is sent again too.

use thicket_session::time::Instant;

use crate::{Now, hub::Hub, messages::Way};

impl Hub {
    /// When a last write is to be sent again.
    pub(in crate::hub) fn next_last_write(&self) -> Option<Instant> {
        self.retained.contended.next()
    }

    /// Sends subscribers the last write of topics that several clients wrote at once.
    pub(in crate::hub) fn send_last_writes(&mut self, now: Now) {
        self.retained.contended.forget_sent(now.instant);
        while let Some(topic) = self.retained.contended.pop_due(now.instant) {
            let Some((origin, bytes)) = self.retained.last_write(now, &topic) else {
                continue;
            };
            self.deliver_single(origin, &topic, &bytes, Way::LastWrite);
        }
    }
}
