//! Wills being published: another node holds each until every node with a matching subscription has it, and publishes it when this one is down.
//!
//! | at the primary | in the stream | the holder |
//! | --- | --- | --- |
//! | a will that is held (`wills`) is published | | continues to hold it |
//! | the will of a session that outlives its connection is published | the will as a `value` under a number of its own, with a Session Expiry Interval of 0; in the same record, the `value` of the session without the will | holds it beside the session |
//! | every matching node has it | `ended` | forgets it |
//! | the holder has applied that: the client is served again, its session may leave | | |
//!
//! The client waits, as its will might else be published after what it publishes next. A holder cannot tell whether the will has been published: it
//! is published twice if the primary dies in that moment.
//!
//! A node that stores sessions stores these wills too, in the same form. After a restart it publishes them.

use std::rc::Rc;

use thicket_session::server::{Epoch, StoredSession, StoredWill};

use super::{
    state::{PendingWill, Primaries},
    wills::replicate_will,
};
use crate::{
    ConnectionId, Now,
    messages::{Fetched, ToHub},
    worker::{
        Worker,
        context::Context,
        rights::refuse_publish,
        state::{
            debts::Debt,
            publication::Outcome,
            replica::{
                hold::hold_at,
                stream::{Level, Progress, Release, WILLS},
                will::WillBackup,
            },
            sessions::SessionKey,
        },
    },
};

/// Wills published at once that other nodes hold; further ones are lost if the node dies in that moment.
const MOST: usize = 65_536;

/// Whose will is published.
#[derive(Debug, Clone, Copy)]
struct Author<'a> {
    session: Option<SessionKey>,
    client_id: Option<&'a Rc<str>>,
    /// Where it is held already.
    backup: Option<WillBackup>,
    /// The stream to the session's first backup.
    stream: Option<u8>,
    stored: Stored,
}

/// Whether a will is stored while it is being published.
#[derive(Debug, Clone, Copy)]
enum Stored {
    /// It is not: its session was not.
    No,
    /// It is to be.
    Yes,
    /// It is, under this number.
    Under(u64),
}

impl Worker {
    /// Publishes the will of a session, if there still is one, and forgets it [MQTT-3.1.2-10].
    pub(in super::super) fn publish_will(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return;
        };
        let Some(will) = session.will.take() else {
            return;
        };
        let client_id = Rc::clone(&session.client_id);
        let backup = session.will_backup.take();
        let mut synced = session.stored.backups.synced();
        let stream = synced.next().map(|backup| backup.stream);
        let stored = if self.cx.journal.is_on() && session.stored.is_some() {
            Stored::Yes
        } else {
            Stored::No
        };
        if refuse_publish(&mut self.cx, key, &will.topic).is_some() {
            self.primaries
                .end_will_backup(&mut self.cx, &client_id, backup);
            return;
        }
        let author = Author {
            session: Some(key),
            client_id: Some(&client_id),
            backup: backup.map(|backup| *backup),
            stream,
            stored,
        };
        self.send_will(now, &will, author);
    }

    /// Publishes a will that was held here for a client of another node.
    pub(super) fn publish_will_of_lost_node(&mut self, now: Now, will: &StoredWill) {
        let author = Author {
            session: None,
            client_id: None,
            backup: None,
            stream: None,
            stored: Stored::No,
        };
        self.send_will(now, will, author);
    }

    /// Publishes wills that were being published when the node stopped: of one client or, with `None`, of all.
    pub(in super::super) fn publish_recovered_wills(&mut self, now: Now, of: Option<&str>) {
        let is_due = |(_, client_id, _): &mut (u64, Rc<str>, StoredWill)| {
            of.is_none_or(|of| *of == **client_id)
        };
        let recovered = &mut self.primaries.pending_wills.recovered;
        let due: Vec<_> = recovered.extract_if(.., is_due).collect();
        for (number, client_id, will) in due {
            let author = Author {
                session: None,
                client_id: Some(&client_id),
                backup: None,
                stream: None,
                stored: Stored::Under(number),
            };
            self.send_will(now, &will, author);
        }
    }

    fn send_will(&mut self, now: Now, will: &StoredWill, author: Author<'_>) {
        let pending_wills = &mut self.primaries.pending_wills;
        pending_wills.next += 1;
        let number = pending_wills.next;
        let is_held = !self.cx.is_stopping && pending_wills.wills.len() < MOST;
        let debt = is_held.then_some(Debt::Will(number));
        match self.publish_stored_will(now, will, author.session, debt) {
            Outcome::Open(open) => {
                let (backup, stored) = self.primaries.keep_will(&mut self.cx, now, will, author);
                let client_id = author.client_id.cloned();
                if let Some(client_id) = &client_id {
                    self.primaries.pending_wills.begin(client_id);
                }
                let will = PendingWill {
                    client_id,
                    backup,
                    stored,
                    open,
                };
                self.primaries.pending_wills.wills.insert(number, will);
            }
            Outcome::NoRecipients | Outcome::Met => {
                if let Stored::Under(number) = author.stored {
                    self.cx
                        .journal
                        .remove_session(self.cx.journal.log(), number);
                }
                if let Some(client_id) = author.client_id {
                    self.primaries.end_will_backup(
                        &mut self.cx,
                        client_id,
                        author.backup.map(Box::new),
                    );
                }
            }
        }
    }
}

impl Primaries {
    /// A will was being published when the node stopped. `publish_recovered_wills` publishes it again.
    pub(in super::super) fn recover_will(
        &mut self,
        cx: &mut Context,
        now: Now,
        (log, number): (u8, u64),
        stored: StoredSession,
    ) {
        let number = if log == cx.journal.log() {
            cx.journal.pass_number(number);
            number
        } else {
            cx.journal.remove_session(log, number);
            let number = cx.journal.next_number();
            cx.journal.put_will(now, number, &stored);
            number
        };
        if let Some(will) = stored.will {
            let client_id = stored.client_id.as_str().into();
            self.pending_wills.recovered.push((number, client_id, will));
        }
    }

    /// Replicates and stores a will that is being published. Returns where it is then.
    fn keep_will(
        &self,
        cx: &mut Context,
        now: Now,
        will: &StoredWill,
        author: Author<'_>,
    ) -> (Option<WillBackup>, Option<u64>) {
        let value = || StoredSession {
            client_id: author
                .client_id
                .map_or("", |client_id| client_id)
                .to_owned(),
            uid: 0,
            epoch: Epoch::NONE,
            expiry_interval: 0,
            disconnected_at: Some(now.instant),
            will: Some(will.clone()),
            will_due: None,
        };
        let stored = match author.stored {
            Stored::No => None,
            Stored::Under(number) => Some(number),
            Stored::Yes => {
                let number = cx.journal.next_number();
                cx.journal.put_will(now, number, &value());
                Some(number)
            }
        };
        let backup = author.backup.or_else(|| {
            let index = self.will_holder(cx, will, author)?;
            replicate_will(cx, now, index, &value())
        });
        (backup, stored)
    }

    /// The stream to the node that holds a will being published: the session's first backup, or any.
    fn will_holder(&self, cx: &mut Context, will: &StoredWill, author: Author<'_>) -> Option<u8> {
        if cx.config.backups == 0 || author.stream.is_some() {
            return author.stream;
        }
        let name = author.client_id.map_or(&*will.topic, |client_id| client_id);
        let node = self.backup_of(cx, name, &[], &[])?;
        cx.stream_to(node)
    }

    /// A condition is met that a will being published waits for.
    pub(in super::super) fn settle_will(&mut self, cx: &mut Context, number: u64) {
        let Some(will) = self.pending_wills.wills.get_mut(&number) else {
            return;
        };
        will.open = will.open.saturating_sub(1);
        if will.open == 0
            && let Some(will) = self.pending_wills.wills.remove(&number)
        {
            if let Some(number) = will.stored {
                cx.journal.remove_session(cx.journal.log(), number);
            }
            self.have_forgotten(cx, will.client_id, will.backup);
        }
    }

    /// Makes the holder of a client's will forget it.
    pub(in super::super) fn end_will_backup(
        &mut self,
        cx: &mut Context,
        client_id: &Rc<str>,
        backup: Option<Box<WillBackup>>,
    ) {
        if let Some(backup) = backup {
            self.pending_wills.begin(client_id);
            self.have_forgotten(cx, Some(Rc::clone(client_id)), Some(*backup));
        }
    }

    fn have_forgotten(
        &mut self,
        cx: &mut Context,
        client_id: Option<Rc<str>>,
        backup: Option<WillBackup>,
    ) {
        let streams = &mut cx.journal.streams;
        let synced = backup.and_then(|backup| {
            let stream = streams.get_mut(backup.stream)?;
            (stream.id == backup.stream_id).then_some((stream, backup.number))
        });
        match synced {
            Some((stream, number)) => {
                stream.writer.ended(number);
                stream.wait(Level::Applied, Release::WillForgotten(client_id));
            }
            None => self.pending_wills.note_forgotten(client_id),
        }
    }

    /// Whether [`settle_forgotten`](Self::settle_forgotten) has nothing to do.
    pub(in super::super) const fn has_settled_forgotten(&self) -> bool {
        self.pending_wills.over.is_empty()
    }

    /// Wills that nobody holds any more: what waited for that continues.
    pub(in super::super) fn settle_forgotten(&mut self, cx: &mut Context, now: Now) {
        for client_id in std::mem::take(&mut self.pending_wills.over) {
            let clients = &mut self.pending_wills.clients;
            let Some(waiting) = clients.get_mut(&client_id) else {
                continue;
            };
            waiting.wills -= 1;
            if waiting.wills > 0 {
                continue;
            }
            let waiting = clients.remove(&client_id).unwrap_or_default();
            for request in waiting.requests {
                report_ended(cx, request);
            }
            let Some(key) = cx.sessions.find(&client_id) else {
                continue;
            };
            let session = cx.sessions.get(key);
            if let Some(id) = session.and_then(|session| session.connection)
                && let Some(connection) = cx.connections.get_mut(id)
            {
                connection.out.release_held(WILLS, Progress::END);
                cx.connections.mark_dirty(id);
            }
            self.continue_switchover(cx, now, key);
        }
    }

    /// Makes the CONNACK wait until another node holds the will of the session, and none holds an earlier one of its client.
    pub(in super::super) fn hold_for_will(
        &self,
        cx: &mut Context,
        id: ConnectionId,
        key: SessionKey,
    ) {
        let Some(session) = cx.sessions.get(key) else {
            return;
        };
        let present = session.will_backup.as_ref().map(|backup| backup.stream);
        let has_earlier = self.has_pending_will(cx, key);
        let Some(connection) = cx.connections.get_mut(id) else {
            return;
        };
        if cx.config.waits_for_backups
            && let Some(index) = present
        {
            hold_at(
                &mut cx.journal.streams,
                index,
                connection,
                id,
                Level::Applied,
            );
        }
        if has_earlier {
            connection.out.hold(WILLS, 0, Level::Applied);
        }
    }

    /// Whether the client of a session is to wait for an earlier will of it.
    pub(in super::super) fn has_pending_will(&self, cx: &Context, key: SessionKey) -> bool {
        let session = cx.sessions.get(key);
        cx.config.waits_for_backups
            && session.is_some_and(|session| self.pending_wills.has(&session.client_id))
    }

    /// Wills of clients that were sent away and that another node would publish if this one died now.
    pub(in super::super) fn wills_ending(&self) -> u64 {
        let pending_wills = &self.pending_wills;
        (pending_wills.clients.len() + pending_wills.wills.len()) as u64
    }

    /// Wills of clients of nodes that are down that are being published here, and that no other node holds.
    pub(super) fn wills_without_holder(&self, cx: &Context) -> u64 {
        let streams = &cx.journal.streams;
        let is_held = |backup: &WillBackup| backup.is_held(streams);
        let wills = self.pending_wills.wills.values();
        let lost = wills.filter(|will| will.client_id.is_none());
        lost.filter(|will| !will.backup.as_ref().is_some_and(is_held))
            .count() as u64
    }

    /// Another node asked for a session that has ended. The answer waits until the will of its client is forgotten, so that it is not published after
    /// what the client publishes next.
    pub(in super::super) fn answer_ended(
        &mut self,
        cx: &mut Context,
        request: u64,
        client_id: &str,
    ) {
        let clients = &mut self.pending_wills.clients;
        match clients.get_mut(client_id) {
            Some(waiting) if cx.config.waits_for_backups => waiting.requests.push(request),
            Some(_) | None => report_ended(cx, request),
        }
    }
}

fn report_ended(cx: &mut Context, request: u64) {
    let answer = Fetched::Gone;
    cx.send_to_hub_after_records(ToHub::Fetched { request, answer });
}
