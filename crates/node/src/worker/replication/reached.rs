//! Messages that reached only a backup: the node that sent them did not know yet that their session has moved. It had stood still or been partitioned
//! while the session moved, or another node had kept them for one where the session was before (hinted handoff). Only the backup can tell that the
//! primary should have them.
//!
//! If the primary does not mention such a message, the backup sends it to the primary: after two seconds, and some times more. The message may also be
//! on its way to the primary, if a node or a link was slow. So the primary does not deliver it before later messages of the same stream arrive, or all that
//! others had sent has arrived (`worker/barriers`); and not at all if it has arrived itself.

use std::collections::{BTreeMap, BTreeSet};

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
            barriers::Behind,
            outgoing::Outgoing,
            records::{message_id, publish_of},
            replica::{backup::SourceKey, replica_set::StoredAs},
            seen::publication_id,
            sessions::SessionKey,
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

/// As a primary: messages that backups here and there received, and of which it is not known yet whether they also come here in the stream of their origin.
#[derive(Debug, Default)]
pub(in super::super) struct Reached {
    /// By origin and number.
    waiting: BTreeMap<(Origin, u64), Vec<Waiting>>,
    /// Rises with every round that brought some. A barrier begins for each.
    batch: u64,
    has_new: bool,
}

#[derive(Debug)]
struct Waiting {
    /// The stream of the backup.
    index: u8,
    message: ReachedBackup,
    batch: u64,
}

impl Reached {
    /// A backup sends a message.
    pub fn add(&mut self, index: u8, message: ReachedBackup) {
        let Some(Ok((record, _))) = Records::new(&message.bytes).next() else {
            return;
        };
        let waiting = self.waiting.entry((message.origin, record.number));
        let waiting = waiting.or_default();
        let is_it = |it: &Waiting| it.index == index && it.message.session == message.session;
        if !waiting.iter().any(is_it) {
            self.has_new = true;
            waiting.push(Waiting {
                index,
                message,
                batch: self.batch,
            });
        }
    }

    /// Those that came in this round wait until all that others had sent has arrived. Once a round.
    pub fn end_round(&mut self, cx: &mut Context) {
        if std::mem::take(&mut self.has_new) {
            let batch = self.batch;
            cx.begin_barrier(Behind::Reached { batch });
            self.batch += 1;
        }
    }

    /// A message of a stream arrives: those with lower numbers do not come any more. It follows them.
    #[inline]
    pub fn pass(&mut self, cx: &mut Context, now: Now, origin: Origin, number: u64) {
        if !self.waiting.is_empty() {
            let passed = self
                .waiting
                .extract_if((origin, 0)..=(origin, number), |_, _| true);
            let passed: Vec<((Origin, u64), Vec<Waiting>)> = passed.collect();
            let before = passed.into_iter().filter(|((_, of), _)| *of < number);
            deliver(cx, now, before.flat_map(|(_, waiting)| waiting).collect());
        }
    }

    /// All that others had sent when the barrier of this batch began has arrived.
    pub fn deliver_batch(&mut self, cx: &mut Context, now: Now, batch: u64) {
        let mut due = Vec::new();
        self.waiting.retain(|_, waiting| {
            due.extend(waiting.extract_if(.., |it| it.batch <= batch));
            !waiting.is_empty()
        });
        deliver(cx, now, due);
    }
}

/// Each is its session's unless it arrived here too, or where the session was before.
fn deliver(cx: &mut Context, now: Now, messages: Vec<Waiting>) {
    if messages.is_empty() {
        return;
    }
    let numbers: BTreeSet<u64> = messages.iter().map(|it| it.message.session).collect();
    let named = cx.sessions.iter();
    let named = named.filter(|(_, it)| numbers.contains(&it.stored.number));
    let named: Vec<(SessionKey, StoredAs)> = named.map(|(key, it)| (key, it.stored)).collect();
    for Waiting { index, message, .. } in messages {
        let is_it =
            |stored: &StoredAs| stored.number == message.session && stored.backups.has(index);
        if let Some((key, _)) = named.iter().find(|(_, stored)| is_it(stored)) {
            deliver_one(cx, now, *key, &message);
        }
    }
}

fn deliver_one(cx: &mut Context, now: Now, key: SessionKey, reached: &ReachedBackup) {
    let Some(session) = cx.sessions.get(key) else {
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
