//! What waits in the queues of several sessions together, counted where it changes.

use std::cell::Cell;
use std::rc::Rc;

/// Counts what waits in all queues that it was given to; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Tally(Rc<Cell<Waiting>>);

/// What waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Messages, once for each session.
    pub messages: u64,
    /// Their cost ([`Message::cost`](crate::server::Message::cost)).
    pub bytes: u64,
}

impl Tally {
    /// What waits now.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.0.get()
    }

    pub(super) fn add(&self, more: Waiting) {
        let Waiting { messages, bytes } = self.0.get();
        self.0.set(Waiting {
            messages: messages + more.messages,
            bytes: bytes + more.bytes,
        });
    }

    pub(super) fn remove(&self, less: Waiting) {
        let Waiting { messages, bytes } = self.0.get();
        self.0.set(Waiting {
            messages: messages - less.messages,
            bytes: bytes - less.bytes,
        });
    }
}
