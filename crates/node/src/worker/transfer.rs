//! Export and import of sessions, for a backup of what a node has or a move to another cluster.
//!
//! An import claims the client identifier as a CONNECT does, so that it has one session in the cluster, and then makes the session as if it had moved
//! here. The claim has no connection.

use std::sync::Arc;

use thicket_mqtt::Publish;
use thicket_session::server::{Delivery, Epoch, SessionSnapshot, decode_queue, encode_queue};

use super::{
    Worker, WorkerOperator, WorkerView,
    context::Context,
    publish::may_publish,
    state::{
        interests::Recipient,
        outgoing::{Outgoing, publish_again},
        publication::Source,
        sessions::{Cause, SessionKey},
        transfers::Import,
    },
};
use crate::{
    ConnectionId, ExportPage, ExportPlace, Exported, Imported, ImportedMessages, Now,
    messages::{Claim, ClaimGrant, ToHub},
};

/// Stands in a claim for the missing connection: no shell has so many.
pub(super) const NO_CONNECTION: ConnectionId = ConnectionId(u32::MAX);

impl Worker {
    /// The claim of an import is answered; `None`: it is not granted.
    pub(super) fn handle_import_answered(
        &mut self,
        now: Now,
        number: u64,
        client_id: &Arc<str>,
        grant: Option<ClaimGrant>,
    ) {
        let Some(grant) = grant else {
            let done = Import::Done(Imported::Unavailable);
            self.transfers.imports.insert(number, done);
            return;
        };
        let import = self.transfers.imports.remove(&number);
        let done = match import {
            Some(Import::Claimed { snapshot, replace }) if grant.home == self.cx.id => {
                self.import_claimed(now, &snapshot, grant.terms.epoch, replace)
            }
            // Another worker has it: its session stays, and a replacing importer asks that worker.
            Some(Import::Claimed { replace: false, .. }) => Imported::Exists,
            Some(Import::Claimed { replace: true, .. }) | None => Imported::Unavailable,
            Some(Import::Done(done)) => done,
        };
        self.transfers.imports.insert(number, Import::Done(done));
        let client_id = Arc::clone(client_id);
        self.cx.send_to_hub(ToHub::GrantDone { client_id });
    }

    fn import_claimed(
        &mut self,
        now: Now,
        snapshot: &SessionSnapshot,
        epoch: Epoch,
        replace: bool,
    ) -> Imported {
        if let Some(old) = self.cx.sessions.find(&snapshot.client_id) {
            if !replace {
                return Imported::Exists;
            }
            let connection = self.cx.sessions.get(old).and_then(|it| it.connection);
            if let Some(connection) = connection {
                self.cx.disconnect(
                    connection,
                    thicket_mqtt::ReasonCode::SessionTakenOver,
                    "an operator replaced the session",
                );
                self.detach(now, connection, Cause::TakenOver);
            }
            if self.cx.sessions.get(old).is_some() {
                self.end_session(now, old);
            }
        }
        self.primaries
            .open_imported(&mut self.cx, now, snapshot, epoch);
        Imported::Done
    }
}

fn import_message(cx: &mut Context, now: Now, key: SessionKey, delivery: &Delivery) -> bool {
    let message = &delivery.message;
    let publish = Publish {
        retain: delivery.retain,
        ..publish_again(message, now.instant)
    };
    let content = message.topic().len() + message.payload().len();
    if cx.journal.is_on() && cx.journal.is_full_for(content, 1) {
        return false;
    }
    let dropped = |cx: &Context| cx.sessions.get(key).map(|it| it.dropped_messages);
    let before = dropped(cx);
    let mut outgoing = Outgoing::new(&publish, message.expires_at());
    let recipient = Recipient {
        session: key,
        qos: delivery.qos,
        no_local: false,
        retain_as_published: delivery.retain,
        identifiers: delivery.identifiers.clone(),
    };
    match &delivery.group {
        Some(group) => cx.deliver_alone(now, &recipient, group, &mut outgoing),
        None => cx.deliver(now, &[recipient], &mut outgoing, None),
    }
    cx.journal.note(&outgoing);
    before == dropped(cx)
}

impl WorkerView<'_> {
    /// Some of the sessions of this worker, and of their messages: as much as fits into `bytes`, at least one part. What is in flight goes with its
    /// session. Sessions that begin or end meanwhile may be left out.
    #[must_use]
    pub fn export(&self, now: Now, place: ExportPlace, bytes: usize) -> ExportPage {
        let mut page = ExportPage {
            items: Vec::new(),
            next: None,
        };
        let mut left = bytes;
        let own = self.worker.cx.worker_of_node();
        for (key, session) in self.worker.cx.sessions.iter() {
            if key.0 < place.session || !session.is_persistent() || session.role.is_frozen() {
                continue;
            }
            let is_begun = key.0 == place.session && session.serial == place.serial;
            let here = |sequence| ExportPlace {
                session: key.0,
                serial: session.serial,
                sequence,
            };
            if !is_begun {
                if left == 0 {
                    page.next = Some(ExportPlace {
                        session: key.0,
                        ..ExportPlace::default()
                    });
                    return page;
                }
                let snapshot = session.snapshot(own, now.instant).encode(now.instant);
                left = left.saturating_sub(snapshot.len());
                page.items.push(Exported::Session(snapshot));
            }
            let done = if is_begun { place.sequence } else { 0 };
            let mut part: Vec<&Delivery> = Vec::new();
            let mut rest = None;
            for (sequence, delivery) in session.outbound.queue_from(done) {
                if left == 0 {
                    rest = Some(sequence);
                    break;
                }
                left = left.saturating_sub(delivery.message.cost() as usize);
                part.push(delivery);
            }
            if !part.is_empty() {
                page.items.push(Exported::Queue {
                    client_id: session.client_id.to_string(),
                    messages: encode_queue(part, now.instant),
                });
            }
            if let Some(sequence) = rest {
                page.next = Some(here(sequence));
                return page;
            }
        }
        page
    }

    /// Whether the client identifier has a session in this worker.
    #[must_use]
    pub fn has_session(&self, client_id: &str) -> bool {
        self.worker.cx.sessions.find(client_id).is_some()
    }
}

impl WorkerOperator<'_> {
    /// The result of an import, once there is one; it is forgotten with this call.
    pub fn take_import(&mut self, number: u64) -> Option<Imported> {
        self.worker.transfers.take(number)
    }

    /// Begins the import of a session; `take_import` returns the result. `number` is the caller's, new for each import. With `replace` a session that
    /// the client identifier has is ended, otherwise it stays; one on another node is moved here either way.
    pub fn begin_import(&mut self, number: u64, snapshot: &[u8], replace: bool) {
        let now = self.now;
        let snapshot = SessionSnapshot::decode(snapshot, now.instant);
        let done = match &snapshot {
            Err(_) => Some(Imported::Unreadable),
            Ok(snapshot) if !replace && self.worker.view().has_session(&snapshot.client_id) => {
                Some(Imported::Exists)
            }
            Ok(_) if self.worker.cx.journal.is_full_for_sessions() => Some(Imported::DiskFull),
            Ok(_) => None,
        };
        let import = match (done, snapshot) {
            (Some(done), _) => Import::Done(done),
            (None, Err(_)) => Import::Done(Imported::Unreadable),
            (None, Ok(snapshot)) => {
                let claim = Claim {
                    connection: NO_CONNECTION,
                    serial: number,
                    client_id: snapshot.client_id.as_str().into(),
                    clean_start: replace,
                    redirectable: None,
                    refusable: None,
                    asks: None,
                    placed: None,
                };
                self.worker.cx.send_to_hub(ToHub::Claim(claim));
                Import::Claimed {
                    snapshot: Box::new(snapshot),
                    replace,
                }
            }
        };
        self.worker.transfers.imports.insert(number, import);
    }

    /// Publishes a message that is to be retained, as a client would, without a check of rights.
    pub fn import_retained(&mut self, publish: &Publish<'_>) -> bool {
        let now = self.now;
        let route = self.worker.cx.route(publish.topic);
        let may = route.refusal.is_none()
            && !publish.payload.is_empty()
            && may_publish(publish.topic.len(), publish.topic);
        if may {
            let publish = Publish {
                retain: true,
                packet_id: None,
                ..*publish
            };
            self.worker
                .publish(now, &publish, &route, Source::default());
        }
        may
    }

    /// Appends messages to those of a session here, as `encode_queue` wrote them. `None`: there is no such session, or they are unreadable.
    pub fn import_messages(
        &mut self,
        client_id: &str,
        messages: &[u8],
    ) -> Option<ImportedMessages> {
        let now = self.now;
        let key = self.worker.cx.sessions.find(client_id)?;
        let deliveries = decode_queue(messages, now.instant).ok()?;
        let mut done = ImportedMessages::default();
        for delivery in deliveries {
            if import_message(&mut self.worker.cx, now, key, &delivery) {
                done.taken += 1;
            } else {
                done.dropped += 1;
            }
        }
        Some(done)
    }
}
