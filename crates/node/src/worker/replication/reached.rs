//! Messages that reached only a backup: the node that sent them did not know yet that their session has moved. It had stood still or been partitioned
//! while the session moved, or another node had kept them for one where the session was before (hinted handoff). Only the backup can tell that the
//! primary should have them.
//!
//! If the primary does not mention such a message, the backup sends it to the primary: after two seconds, and some times more.

use thicket_overlay::{
    Incarnation, NodeId, StreamId,
    record::{Record, Records},
};
use thicket_session::server::Message;

use super::backup::Sources;
use crate::{
    Now,
    messages::{BackupReport, Origin, ReachedBackup, ToHub},
    worker::{
        context::Context,
        state::{
            outgoing::Outgoing,
            records::{message_id, publish_of},
            replica::{backup::SourceKey, replica_set::StoredAs},
            seen::publication_id,
        },
    },
};

impl Sources {
    /// Sends the primary a message of a session, by its number there.
    pub(super) fn send_reached(
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
        let report = BackupReport::Reached(ReachedBackup {
            session,
            origin,
            bytes,
        });
        let to = node;
        cx.send_to_hub(ToHub::BackupReport { to, stream, report });
    }
}

/// A backup of a session here received a message. It is the session's unless it arrived here too, or where the session was before.
pub(super) fn handle_reached_backup(
    cx: &mut Context,
    now: Now,
    index: u8,
    reached: &ReachedBackup,
) {
    let is_it = |stored: &StoredAs| stored.number == reached.session && stored.backups.has(index);
    let found = cx.sessions.iter().find(|(_, it)| is_it(&it.stored));
    let Some((key, session)) = found else {
        return;
    };
    let Some(Ok((record, _))) = Records::new(&reached.bytes).next() else {
        return;
    };
    let id = message_id(reached.origin, record.number);
    let stored = session.stored;
    let has_come =
        session.imported.contains(&id) || session.has_come(id, cx.own_stream(), &cx.arrivals.marks);
    let route = cx.route(record.topic);
    let recipient = route
        .recipients
        .iter()
        .find(|recipient| recipient.session == key);
    let Some(recipient) = recipient.filter(|_| !has_come) else {
        return cx.journal.passed(stored, id);
    };
    let (publish, expires_at) = publish_of(&record, now);
    let mut outgoing = Outgoing::new(&publish, expires_at);
    outgoing.id = id;
    outgoing.set_publication(record.publication.as_ref());
    // Not noted: it has not reached the other sessions here, and may still be on its way to them.
    let named = outgoing.named();
    outgoing.is_seen = named.is_some_and(|named| cx.arrivals.seen.contains(named));
    cx.begin_alone();
    cx.deliver_to(now, recipient, &mut outgoing);
    if let Some(session) = cx.sessions.get_mut(key) {
        session.imported.insert(id);
    }
}
