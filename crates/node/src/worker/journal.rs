//! Reads what was stored before the node stopped. Hands the shell what must be stored of a round, and continues when the shell has stored it.

use super::Worker;
use crate::{LogStatus, Now, RecoverError, Stored, Unstored};

impl Worker {
    /// Reads a value or a record that was stored before the node stopped.
    ///
    /// # Errors
    /// [`RecoverError`]: it is unreadable. The node must not start, because what it holds would be lost.
    pub fn recover(&mut self, now: Now, stored: Stored<'_>) -> Result<(), RecoverError> {
        let recovery = self.recovery.get_or_insert_default();
        recovery.read(&mut self.cx, &mut self.checkpoints, now, stored)
    }

    /// All was read: the sessions are here, and their interests are announced. No client may be served before `is_settled` is true for all workers of
    /// the node: its session might be at another worker, or its messages be for sessions of another.
    pub fn finish_recovery(&mut self, now: Now) {
        let recovery = self.recovery.take().unwrap_or_default();
        recovery.finish(&mut self.cx, &mut self.primaries, now);
    }

    /// What must be stored before anything leaves; `None`: nothing. Call it after `end_round`, and answer with `handle_stored`.
    pub fn unstored(&mut self, now: Now) -> Option<Unstored<'_>> {
        let Self {
            cx, checkpoints, ..
        } = self;
        cx.journal.write_done();
        checkpoints.advance(cx, now);
        let journal = &cx.journal;
        (!journal.is_stored()).then(|| Unstored {
            record: journal.writer.record(),
            operations: &journal.operations,
        })
    }

    /// Whether nothing waits to be stored.
    pub(crate) const fn is_stored(&self) -> bool {
        self.cx.journal.is_stored()
    }

    /// Bytes gathered for the next record, for a shell that bounds its writes.
    #[must_use]
    pub const fn unstored_bytes(&self) -> usize {
        self.cx.journal.writer.len()
    }

    /// What `unstored` returned is stored.
    pub fn handle_stored(&mut self, status: LogStatus) {
        self.cx.journal.writer.clear();
        self.cx.journal.operations.clear();
        self.cx.journal.operation_bytes = 0;
        self.handle_log_status(status);
    }

    /// The free capacity or the size of the log has changed.
    pub fn handle_log_status(&mut self, status: LogStatus) {
        self.cx.journal.status = status;
        self.checkpoints.begin_if_worthwhile(&self.cx);
    }
}
