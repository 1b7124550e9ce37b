//! Wills of sessions that end with their connections: another node holds each, and publishes it when the primary is down (rules 11 and 17 between
//! nodes).
//!
//! | at the primary | in the stream | the holder |
//! | --- | --- | --- |
//! | CONNECT with a will | `value`, with a Session Expiry Interval of 0 | holds the will; the CONNACK waits until it does |
//! | the connection ends, the will is published (`pending_wills`) | `ended`, when every node with a matching subscription has the will | forgets it |
//! | DISCONNECT, drained, the node stops | `ended` | forgets it |
//! | down | | publishes it, before anybody may claim a client identifier of the primary |
//!
//! Nothing else is held of such a session, and delays do not count: the session has ended with its primary, and the delay with it (MQTT 3.1.3.2.2).

use std::rc::Rc;

use thicket_session::server::StoredSession;

use super::state::{HeldWills, Primaries, Sources, WILL_BYTES};
use crate::{
    EventLevel, Now,
    worker::{
        Worker,
        context::Context,
        state::{
            replica::{backup::SourceKey, will::WillBackup},
            sessions::SessionKey,
        },
    },
};

/// At the primary.
impl Primaries {
    /// Replicates the will of a session that ends with its connection, if it has one that is not replicated yet.
    pub(in super::super) fn backup_will(&self, cx: &mut Context, now: Now, key: SessionKey) {
        if cx.cluster.up.is_empty() || cx.config.backups == 0 {
            return;
        }
        let session = cx.sessions.get(key);
        let Some(session) = session.filter(|session| session.has_unreplicated_will()) else {
            return;
        };
        let value = session.value();
        let Some(node) = self.backup_of(cx, &session.client_id, &[], &[]) else {
            return;
        };
        let Some(index) = cx.stream_to(node) else {
            return;
        };
        let backup = replicate_will(cx, now, index, &value);
        if let Some(session) = cx.sessions.get_mut(key) {
            session.will_backup = backup.map(Box::new);
        }
    }

    /// The rights of a session's client have changed: its will is held elsewhere only if it may be published.
    pub(in super::super) fn review_will(&mut self, cx: &mut Context, now: Now, key: SessionKey) {
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        if session.is_persistent() {
            if session.will.is_some() {
                self.store_session(cx, now, key);
            }
        } else if session.lasting_will().is_none() {
            let (client_id, backup) = (Rc::clone(&session.client_id), session.will_backup.take());
            self.end_will_backup(cx, &client_id, backup);
        } else {
            self.backup_will(cx, now, key);
        }
    }
}

/// Writes a will to a stream, under a number of its own.
pub(super) fn replicate_will(
    cx: &mut Context,
    now: Now,
    index: u8,
    value: &StoredSession,
) -> Option<WillBackup> {
    let number = cx.journal.next_number();
    let stream = cx.journal.streams.get_mut(index)?;
    stream.writer.value(now.times_of_day(), number, value);
    Some(WillBackup {
        stream: index,
        stream_id: stream.id,
        number,
        position: stream.position(),
    })
}

/// At the holder.
impl Sources {
    /// A primary replicates a will.
    pub(super) fn hold_will(
        &mut self,
        cx: &mut Context,
        source: SourceKey,
        number: u64,
        stored: StoredSession,
    ) {
        let (Some(will), Some(known)) = (stored.will, self.sources.get_mut(&source)) else {
            return;
        };
        let count = &mut self.will_count;
        if let Some(before) = known.wills.remove(&number) {
            count.remove(&before);
        }
        if count.add(&will) {
            known.wills.insert(number, will);
        } else if count.note_full() {
            let fields = vec![
                ("node", source.0.to_string()),
                ("bytes", WILL_BYTES.to_string()),
            ];
            cx.event(
                EventLevel::Warn,
                "wills of another node's clients are not held here: there are too many",
                fields,
            );
        }
    }

    /// Forgets the will of a session that is over.
    pub(super) fn forget_will(&mut self, source: SourceKey, number: u64) {
        let known = self.sources.get_mut(&source);
        if let Some(will) = known.and_then(|known| known.wills.remove(&number)) {
            self.will_count.remove(&will);
        }
    }

    /// Forgets all wills of a primary.
    pub(super) fn forget_wills(&mut self, wills: &HeldWills) {
        self.will_count.remove_all(wills);
    }

    /// Number and bytes of the wills that are held here for clients of other nodes.
    pub(in super::super) const fn held_wills(&self) -> (u64, u64) {
        self.will_count.total()
    }
}

impl Worker {
    /// The primary is down, and its clients' connections with it: their wills are published.
    pub(super) fn publish_held_wills(&mut self, now: Now, source: SourceKey, wills: &HeldWills) {
        self.sources.forget_wills(wills);
        for will in wills.values() {
            self.publish_will_of_lost_node(now, will);
        }
        if wills.is_empty() {
            return;
        }
        self.cx.traffic.wills_of_lost_nodes += wills.len() as u64;
        let fields = vec![
            ("node", source.0.to_string()),
            ("wills", wills.len().to_string()),
        ];
        self.cx.event(
            EventLevel::Info,
            "the wills of a lost node's clients are published",
            fields,
        );
    }
}
