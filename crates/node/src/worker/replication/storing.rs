//! The primary stores a session: in the log of its worker, and at the backups.

use super::state::Primaries;
use crate::{
    Now,
    worker::{
        context::Context,
        journal::write_whole,
        state::{replica::replica_set::StoredAs, sessions::SessionKey},
    },
};

impl Primaries {
    /// Stores a session without its subscriptions and messages. Gives it a number if it is persistent and has none.
    pub(in super::super) fn store_session(&mut self, cx: &mut Context, now: Now, key: SessionKey) {
        self.covers.note_uncovered(cx, key);
        if !cx.journal.is_on && cx.config.backups == 0 {
            return;
        }
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        if !session.is_persistent() {
            cx.journal.forget(session);
            session.stored = StoredAs::default();
            return;
        }
        if cx.journal.is_on {
            if session.stored.number == 0 {
                session.stored.number = cx.journal.next_number();
            }
            let value = session.value(now).encode();
            cx.journal.put_session(session.stored.number, value);
        }
        if session.stored.backups.is_empty() {
            self.backup_new(cx, now, key);
        } else {
            let (stored, value) = (session.stored, session.value(now).encode());
            cx.journal.streams.each(stored.backups, |stream| {
                stream.writer.value(stored.number, &value);
            });
        }
    }

    /// Stores a session that came from elsewhere, or whose messages have other sequences now: completely, under a new number.
    pub(in super::super) fn store_whole(&mut self, cx: &mut Context, now: Now, key: SessionKey) {
        if write_whole(cx, now, key) {
            self.backup_new(cx, now, key);
        }
    }
}
