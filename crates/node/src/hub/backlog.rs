//! Messages of workers that wait for the next round: the hub forwards a bounded number of records in a round, because other nodes would declare this
//! node down after a long one. What waits is bounded: a worker that has handed over much accepts no more from its clients (`flow_control`).

use std::collections::VecDeque;

use super::Hub;
use crate::{
    Now, WorkerId,
    flow_control::forward_bytes,
    messages::{ForwardEntry, ToHub},
    work,
};

/// What was passed on in this round, and what is left for the next.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// In the order in which they came: what follows records may depend on them.
    messages: VecDeque<(WorkerId, Left)>,
    spent: u64,
}

/// A message that waits.
#[derive(Debug)]
enum Left {
    Whole(ToHub),
    Records(ForwardBatch),
}

/// Records of a worker, of which some may have been passed on.
#[derive(Debug)]
pub(super) struct ForwardBatch {
    records: Vec<u8>,
    entries: Vec<ForwardEntry>,
    /// Entries, and their bytes, that were passed on.
    done: (usize, usize),
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
