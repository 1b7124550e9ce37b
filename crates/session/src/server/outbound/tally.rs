//! What waits in the queues of several sessions together, counted where it changes.

use std::cell::Cell;
use std::rc::Rc;

/// Counts what waits in all queues that it was given to, and may have a bound; clones count together.
#[derive(Debug, Clone, Default)]
pub struct Tally(Rc<Count>);

#[derive(Debug, Default)]
struct Count {
    waiting: Cell<Waiting>,
    /// `None`: any number.
    maximum_bytes: Cell<Option<u64>>,
    /// What counts here counts there too.
    whole: Option<Tally>,
}

/// What waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Messages, once for each session.
    pub messages: u64,
    /// Their cost ([`Message::cost`](crate::server::Message::cost)).
    pub bytes: u64,
}

impl Tally {
    /// A tally of some of these queues, which together may not have more bytes than this; `None`: any number.
    #[must_use]
    pub fn part(&self, maximum_bytes: Option<u64>) -> Self {
        Self(Rc::new(Count {
            waiting: Cell::default(),
            maximum_bytes: Cell::new(maximum_bytes),
            whole: Some(self.clone()),
        }))
    }

    /// Its queues may have this many bytes together from now on. What waits already stays.
    pub fn set_maximum_bytes(&self, bytes: u64) {
        self.0.maximum_bytes.set(Some(bytes));
    }

    /// What waits now.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.0.waiting.get()
    }

    /// This tally, and those that it is a part of.
    fn and_wholes(&self) -> impl Iterator<Item = &Count> {
        std::iter::successors(Some(self), |tally| tally.0.whole.as_ref()).map(|tally| &*tally.0)
    }

    pub(super) fn has_capacity(&self, bytes: u64) -> bool {
        let has_capacity = |count: &Count| {
            let after = count.waiting.get().bytes + bytes;
            count
                .maximum_bytes
                .get()
                .is_none_or(|maximum| after <= maximum)
        };
        self.and_wholes().all(has_capacity)
    }

    pub(super) fn add(&self, more: Waiting) {
        for count in self.and_wholes() {
            let Waiting { messages, bytes } = count.waiting.get();
            count.waiting.set(Waiting {
                messages: messages + more.messages,
                bytes: bytes + more.bytes,
            });
        }
    }

    pub(super) fn remove(&self, less: Waiting) {
        for count in self.and_wholes() {
            let Waiting { messages, bytes } = count.waiting.get();
            count.waiting.set(Waiting {
                messages: messages - less.messages,
                bytes: bytes - less.bytes,
            });
        }
    }
}
