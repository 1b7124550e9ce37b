//! The primary stores a session: in the log of its worker, and at the backups.

use thicket_session::server::encode_subscription;

use super::state::Primaries;
use crate::{
    Keyspace, Now,
    worker::{
        context::Context,
        state::{
            journal::{write_accepted, write_messages},
            replica::replica_set::StoredAs,
            sessions::SessionKey,
        },
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
            let (number, value) = (session.stored.number, session.value());
            cx.journal.put_session(now, number, &value);
        }
        if session.stored.backups.is_empty() {
            self.backup_new(cx, now, key);
        } else {
            let (stored, value) = (session.stored, session.value());
            cx.journal.streams.each(stored.backups, |stream| {
                stream
                    .writer
                    .value(now.times_of_day(), stored.number, &value);
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

/// Stores a session completely, under a new number and without backups yet. False: it is to have none.
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
        let (number, value) = (session.stored.number, session.value());
        cx.journal.put_session(now, number, &value);
        for (filter, subscribed) in &session.subscriptions {
            let value = encode_subscription(filter, subscribed);
            let key = cx.journal.subscription_key(number, filter);
            cx.journal.put(Keyspace::Subscriptions, key, Some(value));
        }
        write_accepted(&mut cx.journal.writer, session);
        write_messages(&mut cx.journal.writer, now, session);
    }
    true
}
