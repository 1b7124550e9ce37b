//! Records on their way between the threads of a node. A receiver reports what it has processed; what it has not is bounded, because its sender slows down
//! those that it gets the records from:
//!
//! | from | to | above the bound |
//! | --- | --- | --- |
//! | a worker | another worker, the hub | a PUBLISH of its clients waits, with what follows it on the connection (`worker/effort`) |
//! | the hub | a worker | other nodes get no credit back for QoS 0 (`hub/forward`), and drop what goes beyond it; for the rest they get it when it is admitted |
//!
//! Nobody waits for a receiver that waits itself: a worker processes records whatever became of its own, and so does the hub. Only what enters the node,
//! from clients and over links, waits; reports of what was processed do not.

use crate::messages::ForwardEntry;

/// Bytes that a receiver has not processed, above which its sender slows down: as much as the credit between nodes.
pub(crate) const FULL: u64 = 8 * 1024 * 1024;
/// A receiver reports when it has processed this much more. Little beside `FULL`, so that what is never reported does no harm.
const REPORT: u64 = 128 * 1024;

/// What a thread has handed to each other one, and processed of what it was handed. Threads are numbered: workers first, then the hub.
#[derive(Debug)]
pub(crate) struct FlowControl {
    threads: Vec<Thread>,
    /// Of the threads, those that have as much as they may.
    full: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    /// Bytes that were handed to it and that it has not reported as processed.
    handed: u64,
    /// Bytes that were processed and not reported.
    processed: u64,
}

impl FlowControl {
    pub fn new(threads: usize) -> Self {
        Self {
            threads: vec![Thread::default(); threads],
            full: 0,
        }
    }

    /// A thread is handed records.
    pub fn hand(&mut self, to: usize, bytes: u64) {
        let before = self.threads[to].handed;
        self.set(to, before + bytes);
    }

    /// A thread reports that it has processed records.
    pub fn note_processed(&mut self, by: usize, bytes: u64) {
        let before = self.threads[by].handed;
        self.set(by, before.saturating_sub(bytes));
    }

    fn set(&mut self, thread: usize, handed: u64) {
        let before = std::mem::replace(&mut self.threads[thread].handed, handed);
        self.full += usize::from(handed > FULL);
        self.full -= usize::from(before > FULL);
    }

    /// Records of a thread were processed. Returns what it is to be sent as a report, if one is due.
    pub fn process(&mut self, from: usize, bytes: u64) -> Option<u64> {
        let processed = &mut self.threads[from].processed;
        *processed += bytes;
        (*processed >= REPORT).then(|| std::mem::take(processed))
    }

    /// Whether a thread has as much as it may.
    #[inline]
    pub const fn is_full(&self) -> bool {
        self.full > 0
    }

    /// What all threads have not processed.
    pub fn bytes(&self) -> u64 {
        self.threads.iter().map(|thread| thread.handed).sum()
    }
}

/// What the hub is handed with records that it is to forward.
pub(crate) fn forward_bytes(records: &[u8], entries: &[ForwardEntry]) -> u64 {
    (records.len() + size_of_val(entries)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_full_until_it_has_processed_enough_and_reports_that_now_and_then() {
        let (mut sender, mut receiver) = (FlowControl::new(2), FlowControl::new(2));
        sender.hand(0, FULL);
        sender.hand(1, FULL);
        assert!(!sender.is_full());
        sender.hand(1, 1);
        assert!(sender.is_full());
        let mut reports = 0;
        for _ in 0..FULL / 64 {
            if let Some(bytes) = receiver.process(0, 64) {
                reports += 1;
                sender.note_processed(1, bytes);
            }
        }
        assert!(!sender.is_full());
        assert_eq!(reports, FULL / REPORT);
        assert_eq!(sender.bytes(), FULL + 1);
        // What was never handed changes nothing.
        sender.note_processed(1, FULL);
        assert_eq!(sender.bytes(), FULL);
    }
}
