//! Hands the shell what must be stored of a round, and continues when the shell has stored it.

use thicket_session::server::encode_subscription;

use super::{
    Worker,
    context::Context,
    state::{
        journal::{write_accepted, write_messages},
        replica::replica_set::StoredAs,
        sessions::SessionKey,
    },
};
use crate::{Keyspace, LogStatus, Now, Unstored, WorkerOutput};

impl Worker {
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

/// Orders the shell to remove the segments of the log before `segment`.
pub(super) fn remove_log_before(cx: &mut Context, segment: u64) {
    cx.outputs
        .push_back(WorkerOutput::RemoveLogBefore { segment });
}

/// The same, without backups yet. False: it is to have none.
pub(super) fn write_whole(cx: &mut Context, now: Now, key: SessionKey) -> bool {
    let place = cx.worker_of_node();
    let Some(session) = cx.sessions.get_mut(key) else {
        return false;
    };
    session.ancestors.note(session.as_ancestor(place));
    cx.journal.forget(session);
    session.stored = StoredAs::default();
    if cx.journal.is_on {
        session.stored.number = cx.journal.next_number();
        let (number, value) = (session.stored.number, session.value(now).encode());
        cx.journal.put_session(number, value);
        for (filter, subscription) in &session.subscriptions {
            let value = encode_subscription(filter, subscription);
            let key = cx.journal.subscription_key(number, filter);
            cx.journal.put(Keyspace::Subscriptions, key, Some(value));
        }
        write_accepted(&mut cx.journal.writer, session);
        write_messages(&mut cx.journal.writer, now, session);
    }
    true
}
