//! Messages of workers that wait for the next round.

use std::collections::VecDeque;

use crate::{
    WorkerId,
    flow_control::forward_bytes,
    messages::{ForwardEntry, ToHub},
    work,
};

/// What was passed on in this round, and what is left for the next.
#[derive(Debug, Default)]
pub(in crate::hub) struct Backlog {
    /// In the order in which they came: what follows records may depend on them.
    pub messages: VecDeque<(WorkerId, Left)>,
    pub spent: u64,
}

/// A message that waits.
#[derive(Debug)]
pub(in crate::hub) enum Left {
    Whole(ToHub),
    Records(ForwardBatch),
}

/// Records of a worker, of which some may have been passed on.
#[derive(Debug)]
pub(in crate::hub) struct ForwardBatch {
    pub records: Vec<u8>,
    pub entries: Vec<ForwardEntry>,
    /// Entries, and their bytes, that were passed on.
    pub done: (usize, usize),
}

impl ForwardBatch {
    pub const fn new(records: Vec<u8>, entries: Vec<ForwardEntry>) -> Self {
        Self {
            records,
            entries,
            done: (0, 0),
        }
    }

    /// The next entry with its records.
    pub fn next(&self) -> Option<(&ForwardEntry, &[u8])> {
        let (entries, bytes) = self.done;
        let entry = self.entries.get(entries)?;
        Some((entry, &self.records[bytes..bytes + entry.len as usize]))
    }

    /// The next entry was passed on.
    pub fn advance(&mut self) {
        if let Some(entry) = self.entries.get(self.done.0) {
            self.done = (self.done.0 + 1, self.done.1 + entry.len as usize);
        }
    }

    pub fn is_done(&self) -> bool {
        self.done.0 == self.entries.len()
    }

    /// What the worker has handed over with them, those that were passed on included.
    pub fn bytes(&self) -> u64 {
        forward_bytes(&self.records, &self.entries)
    }
}

impl Backlog {
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Another round begins.
    pub const fn begin_round(&mut self) {
        self.spent = 0;
    }

    /// Counts records that were passed on.
    pub fn note_forwarded(&mut self, entry: &ForwardEntry) {
        self.spent += work::FORWARD * u64::from(entry.records);
        self.spent += u64::from(entry.len) / work::COPIED;
    }

    /// Whether this round has passed on enough.
    pub const fn is_over(&self) -> bool {
        self.spent >= work::ROUND
    }

    /// Leaves records whose turn is over: they are the first to continue.
    pub fn leave(&mut self, from: WorkerId, batch: ForwardBatch) {
        self.messages.push_front((from, Left::Records(batch)));
    }
}
