//! Messages that reached only a backup: the node that sent them had not yet applied the move of the session. It had stood still or been partitioned
//! while the session moved, or another node had kept them for one where the session was before (hinted handoff). Only the backup can see that the
//! primary should have them.
//!
//! If the primary does not name such a message, the backup sends it to the primary: after two seconds, and some times more. The message may also be
//! on its way to the primary, if a node or a link was slow. So the primary does not deliver it before all that others had sent has arrived
//! (`worker/barriers`), and not at all if that brought it.

use std::collections::BTreeSet;

use thicket_mqtt::Publish;
use thicket_overlay::{
    Incarnation, NodeId, StreamId,
    record::{Record, Records},
};
use thicket_session::server::Message;

use super::state::{Primaries, Sources};
use crate::{
    Now,
    messages::{BackupReport, MisroutedMessage, Origin, ToHub},
    worker::{
        context::Context,
        state::{
            barriers::Behind,
            outgoing::{Outgoing, publish_again},
            records::{message_id, publish_of},
            replica::{backup::SourceKey, replica_set::StoredAs},
            seen::publication_id,
            sessions::SessionKey,
        },
    },
};

impl Sources {
    /// Sends the primary a message of a session, by its number there.
    pub(super) fn send_misrouted(
        &self,
        cx: &mut Context,
        now: Now,
        source: SourceKey,
        session: u64,
        message: &Message,
    ) {
        let (node, worker) = source;
        let Some(known) = self.sources.get(&source) else {
            return;
        };
        let stream = known.stream(worker);
        thicket_session::reach!("worker/replication/reached: a message came to a backup alone");
        let id = message.id();
        let left = message.expires_at().map(|at| at.since(now.instant));
        let record = Record {
            number: id.number,
            qos: message.qos(),
            retain: message.retain(),
            expiry_left_ms: left.map(|left| left.as_millis() as u64),
            publication: message.publication().map(publication_id),
            topic: message.topic(),
            properties: message.properties(),
            payload: message.payload(),
            ..Record::default()
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        let origin = Origin {
            node: NodeId(id.node),
            incarnation: Incarnation(id.incarnation),
            stream: StreamId(u16::from(id.stream)),
        };
        let report = BackupReport::Misrouted(MisroutedMessage {
            session,
            origin,
            bytes,
        });
        let to = node;
        cx.send_to_hub(ToHub::BackupReport { to, stream, report });
    }
}

impl Primaries {
    /// Messages that backups received and this worker has not named may still be on their way here, with later ones in front of them: they wait until
    /// all that the others had sent has arrived. Once a round.
    pub fn begin_misrouted_barrier(&mut self, cx: &mut Context) {
        if !self.misrouted.is_empty() {
            let misrouted = std::mem::take(&mut self.misrouted);
            cx.begin_barrier(Behind::Misrouted(misrouted));
        }
    }
}

/// Backups of sessions here received these messages. Each is the session's unless it arrived here too, or where the session was before.
pub(in super::super) fn deliver_misrouted(
    cx: &mut Context,
    now: Now,
    messages: &[(u8, MisroutedMessage)],
) {
    let numbers: BTreeSet<u64> = messages.iter().map(|(_, it)| it.session).collect();
    let named = cx.sessions.iter();
    let named = named.filter(|(_, it)| numbers.contains(&it.stored.number));
    let named: Vec<(SessionKey, StoredAs)> = named.map(|(key, it)| (key, it.stored)).collect();
    for (index, misrouted) in messages {
        let is_it =
            |stored: &StoredAs| stored.number == misrouted.session && stored.backups.has(*index);
        if let Some((key, _)) = named.iter().find(|(_, stored)| is_it(stored)) {
            deliver_one(cx, now, *key, misrouted);
        }
    }
}

fn deliver_one(cx: &mut Context, now: Now, key: SessionKey, misrouted: &MisroutedMessage) {
    let Some(Ok((record, _))) = Records::new(&misrouted.bytes).next() else {
        return;
    };
    let (publish, expires_at) = publish_of(&record, now);
    let mut outgoing = Outgoing::new(&publish, expires_at);
    outgoing.id = message_id(misrouted.origin, record.number);
    outgoing.set_publication(record.publication.as_ref());
    deliver_missed(cx, now, key, &mut outgoing);
}

/// An older backup of a session here received this message.
pub(super) fn deliver_pending(cx: &mut Context, now: Now, key: SessionKey, message: &Message) {
    let publish = Publish {
        retain: message.retain(),
        ..publish_again(message, now.instant)
    };
    let publication = message.publication().map(publication_id);
    let mut outgoing = Outgoing::new(&publish, message.expires_at());
    outgoing.id = message.id();
    outgoing.set_publication(publication.as_ref());
    deliver_missed(cx, now, key, &mut outgoing);
}

fn deliver_missed(cx: &mut Context, now: Now, key: SessionKey, outgoing: &mut Outgoing<'_>) {
    let Some(session) = cx.sessions.get(key) else {
        return;
    };
    let id = outgoing.id;
    let stored = session.stored;
    let has_received = session.imported.contains(&id)
        || session.has_received(id, cx.own_stream(), &cx.arrivals.marks);
    let route = cx.route(outgoing.publish.topic);
    let recipient = route
        .recipients
        .iter()
        .find(|recipient| recipient.session == key);
    let Some(recipient) = recipient.filter(|_| !has_received) else {
        return cx.journal.passed(stored, id);
    };
    // Not noted: it has not reached the other sessions here, and may still be on its way to them.
    let named = outgoing.named();
    outgoing.is_seen = named.is_some_and(|named| cx.arrivals.seen.contains(named));
    cx.begin_alone();
    cx.deliver_to(now, recipient, outgoing);
    if let Some(session) = cx.sessions.get_mut(key) {
        session.imported.insert(id);
    }
}
