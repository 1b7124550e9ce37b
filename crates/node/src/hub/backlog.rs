//! Messages of workers that wait for the next round: the hub forwards a bounded number of records in a round, because other nodes would declare this
//! node down after a long one. What waits is bounded: a worker that has handed over much accepts no more from its clients (`flow_control`).

use super::Hub;
use crate::{Now, WorkerId, hub::state::backlog::Left, messages::ToHub};

impl Hub {
    /// Handles a message of a worker, or appends it to those that wait already.
    pub(super) fn take_message(&mut self, now: Now, from: WorkerId, message: ToHub) {
        match message {
            // Reports do not wait behind records.
            ToHub::Processed { bytes } => self.note_processed(from, bytes),
            message if self.backlog.is_empty() && !self.backlog.is_over() => {
                self.handle_message(now, from, message);
            }
            message => (self.backlog.messages).push_back((from, Left::Whole(message))),
        }
    }

    /// Continues with what waits, until the round has done enough.
    pub(super) fn resume_backlog(&mut self, now: Now) {
        while !self.backlog.is_over()
            && let Some((from, left)) = self.backlog.messages.pop_front()
        {
            match left {
                Left::Whole(message) => self.handle_message(now, from, message),
                Left::Records(batch) => self.handle_forward(now, from, batch),
            }
        }
    }
}
