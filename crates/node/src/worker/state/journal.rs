//! The journal: what sessions go through in this round, written for the log of the worker and for the streams of the backups.
//!
//! Sessions get a number in the worker's log, which with the log is their key in the store. Everything here does nothing for a session without number:
//! one that ends with its connection, or any session of a node that keeps nothing.

use thicket_mqtt::PacketId;
use thicket_session::{
    server::{
        Append, FinishedMessages, Held, Inbound, JournalWriter, MessageId, PlainAppend,
        StoredMessage, StoredSession, Subscribed, encode_subscription,
    },
    topic::SubscriptionFilter,
};

use super::{
    outgoing::{Form, Outgoing},
    replica::{replica_set::StoredAs, stream::Streams},
    seen::Named,
    sessions::Session,
};
use crate::{Keyspace, LogStatus, Now, StoreOperation};

/// Capacity kept for acknowledgements when messages are refused already.
const RESERVE: u64 = 64 * 1024;

/// What a recipient costs in a record at most, group and identifiers aside.
const RECIPIENT_BYTES: u64 = 48;

/// More recipients than most messages have.
const MANY_RECIPIENTS: usize = 16 * 1024;

/// What a session or a subscription costs at most, with its key: two strings of MQTT.
const VALUE_BYTES: u64 = 256 * 1024;

/// What is to be stored of this round.
#[derive(Debug)]
pub(in crate::worker) struct Journal {
    pub is_on: bool,
    log: u8,
    pub writer: JournalWriter,
    pub operations: Vec<StoreOperation>,
    /// In their keys and values.
    pub operation_bytes: u64,
    next_session: u64,
    pub status: LogStatus,
    /// Acknowledgements of one session with consecutive identifiers, not written yet.
    done: Option<(StoredAs, PacketId, u16)>,
    /// What these sessions go through is recorded for the nodes with their backups.
    pub streams: Streams,
}

impl Journal {
    pub fn new(log: u8, is_on: bool) -> Self {
        Self {
            is_on,
            log,
            writer: JournalWriter::default(),
            operations: Vec::new(),
            operation_bytes: 0,
            next_session: 1,
            status: LogStatus {
                segment: 0,
                bytes: 0,
                space: u64::MAX,
                is_short: false,
                values_space: u64::MAX,
            },
            done: None,
            streams: Streams::default(),
        }
    }

    /// Whether nothing waits to be stored.
    pub const fn is_stored(&self) -> bool {
        !self.is_on || (self.writer.is_empty() && self.operations.is_empty() && self.done.is_none())
    }

    /// Whether anything is stored at all.
    #[inline]
    pub const fn is_on(&self) -> bool {
        self.is_on
    }

    pub const fn log(&self) -> u8 {
        self.log
    }

    pub const fn status(&self) -> LogStatus {
        self.status
    }

    /// Sessions up to this number were found in the log.
    pub fn pass_number(&mut self, number: u64) {
        self.next_session = self.next_session.max(number + 1);
    }

    /// Another node has the session's queue: if that node is the primary, the session here has ended, whenever this node notices.
    pub fn note_queue_sent(&mut self, stored: StoredAs) {
        if self.is_on && stored.number > 0 {
            self.write_done();
            self.writer.handed(stored.number);
        }
    }

    /// The number of another session.
    pub const fn next_number(&mut self) -> u64 {
        self.next_session += 1;
        self.next_session - 1
    }

    /// Writes an entry of a session to each place where it is recorded.
    fn write(&mut self, stored: StoredAs, mut entry: impl FnMut(&mut JournalWriter)) {
        if self.is_on {
            entry(&mut self.writer);
        }
        self.streams
            .each(stored.backups, |stream| entry(&mut stream.writer));
    }

    /// Writes an entry about other replicas: to the log, and to the streams of the backups.
    fn write_divergence(&mut self, stored: StoredAs, mut entry: impl FnMut(&mut JournalWriter)) {
        if self.is_on {
            entry(&mut self.writer);
        }
        self.streams.each(stored.backups, |stream| {
            entry(&mut stream.writer);
        });
    }

    /// Whether a message of `bytes` for `recipients` stored sessions would be over the limit.
    pub const fn is_full_for(&self, bytes: usize, recipients: usize) -> bool {
        let needed = bytes as u64 + recipients as u64 * RECIPIENT_BYTES + RESERVE;
        self.is_on && self.status.space < self.writer.len() as u64 + needed
    }

    /// Whether even a small record is over the limit.
    pub const fn is_full(&self) -> bool {
        self.is_full_for(1024, 1)
    }

    /// Whether a message of `bytes` may be over the limit, depending on the number of its recipients.
    pub const fn is_nearly_full_for(&self, bytes: usize) -> bool {
        self.is_full_for(bytes, MANY_RECIPIENTS)
    }

    /// Whether a new session or subscription is over the limit, for itself or for its messages.
    pub const fn is_full_for_sessions(&self) -> bool {
        let needed = self.operation_bytes + VALUE_BYTES;
        self.is_full() || (self.is_on && self.status.values_space < needed)
    }

    /// The session accepts the current message.
    #[inline(never)]
    pub fn append(
        &mut self,
        session: &Session,
        now: Now,
        outgoing: &mut Outgoing<'_>,
        form: Form<'_>,
    ) {
        let (stored, group) = (session.stored, outgoing.group());
        debug_assert!(stored.is_some(), "only what is stored is journaled");
        self.write_done();
        let sequence = session.outbound.next_sequence() - 1;
        // What the other node receives itself is named; what only this session gets is sent whole, and waited for.
        let is_sent_there = group.is_none() && !outgoing.bypasses_backups && outgoing.id.is_sent();
        let plain = PlainAppend {
            session: stored.number,
            sequence,
            reference: outgoing.id,
            qos: form.qos,
            retain: form.retain,
            packet_id: form.packet_id,
        };
        let is_plain = is_sent_there && form.identifiers.as_slice().is_empty();
        let mut are_all_synced = !self.is_on;
        for backup in stored.backups.synced() {
            if let Some(stream) = self.streams.get_mut(backup.stream) {
                if is_plain && backup.is_complete() {
                    stream.writer.append_plain(plain);
                } else {
                    are_all_synced = false;
                }
            }
        }
        if are_all_synced {
            return;
        }
        let mut append = Append {
            session: stored.number,
            sequence,
            message: 0,
            reference: None,
            qos: form.qos,
            retain: form.retain,
            packet_id: form.packet_id,
            identifiers: form.identifiers.as_slice().to_vec(),
            group: group.as_deref(),
        };
        if self.is_on {
            if !outgoing.is_journaled {
                write_outgoing(&mut self.writer, now, outgoing);
            }
            self.writer.append(&append);
        }
        outgoing.is_journaled |= self.is_on;
        for backup in stored.backups.synced() {
            let Some(stream) = self.streams.get_mut(backup.stream) else {
                continue;
            };
            if is_plain && backup.is_complete() {
                continue;
            }
            let is_named = backup.is_complete() && is_sent_there;
            append.reference = is_named.then_some(outgoing.id);
            if !is_named {
                let bit = 1_u64.checked_shl(u32::from(backup.stream)).unwrap_or(0);
                if outgoing.copied & bit == 0 {
                    write_outgoing(&mut stream.writer, now, outgoing);
                }
                outgoing.copied |= bit;
                // A learner has what is accepted during its full sync from here alone. It is waited for as long as no other node has the session.
                let is_waited_for = backup.is_complete() || !stored.has_complete_backup();
                outgoing.waits_for |= if is_waited_for { bit } else { 0 };
            }
            stream.writer.append(&append);
        }
    }

    /// The session does not accept a message that matches its subscriptions.
    #[inline]
    pub fn passed(&mut self, stored: StoredAs, id: MessageId) {
        if id.is_sent() {
            self.streams.each(stored.backups, |stream| {
                stream.writer.passed(stored.number, id);
            });
        }
    }

    /// The current message was delivered: if it is a publication that may be sent again, that is stored too.
    #[inline]
    pub fn note(&mut self, outgoing: &Outgoing<'_>) {
        if let Some(Named { id, checksum }) = outgoing.named()
            && self.is_on
            && !outgoing.is_journaled
        {
            let publication = (id.session, id.packet_id, id.generation);
            self.writer.noted(publication, checksum);
        }
    }

    /// A queued message of the session got its identifier.
    pub fn assign(&mut self, stored: StoredAs, sequence: u64, packet_id: PacketId) {
        if stored.is_some() {
            self.write_done();
            self.write(stored, |writer| {
                writer.assign(stored.number, sequence, packet_id)
            });
        }
    }

    /// The client has acknowledged the message.
    #[inline]
    pub fn done(&mut self, stored: StoredAs, packet_id: PacketId) {
        if stored.is_some() {
            self.note_done(stored, packet_id);
        }
    }

    #[inline(never)]
    fn note_done(&mut self, stored: StoredAs, packet_id: PacketId) {
        if let Some((same, first, count)) = &mut self.done
            && *same == stored
            && first.value().checked_add(*count) == Some(packet_id.value())
        {
            *count += 1;
            return;
        }
        self.write_done();
        self.done = Some((stored, packet_id, 1));
    }

    pub fn write_done(&mut self) {
        if let Some((stored, first, count)) = self.done.take() {
            self.write(stored, |writer| writer.done(stored.number, first, count));
        }
    }

    /// PUBREC was received.
    pub fn received(&mut self, stored: StoredAs, sequence: u64, packet_id: PacketId) {
        if stored.is_some() {
            self.write_done();
            self.write(stored, |writer| {
                writer.received(stored.number, sequence, packet_id)
            });
        }
    }

    /// A queued message expired.
    pub fn dropped(&mut self, stored: StoredAs, sequence: u64) {
        if stored.is_some() {
            self.write_done();
            self.write(stored, |writer| writer.dropped(stored.number, sequence));
        }
    }

    /// What the session has finished since the last call, while another replica may hold it.
    pub fn finished(&mut self, session: &mut Session) {
        let stored = session.stored;
        let finished = session.outbound.take_finished();
        if stored.is_some() && !finished.is_empty() {
            self.write_done();
            self.write_divergence(stored, |writer| {
                let ranges = finished.iter();
                ranges.for_each(|range| writer.finished(stored.number, range));
            });
        }
    }

    /// The client subscribed or unsubscribed, and another replica may not have received that.
    pub fn touched(&mut self, stored: StoredAs, filter: &SubscriptionFilter) {
        if stored.is_some() && self.is_on {
            self.writer.touched(stored.number, &filter.to_string());
        }
    }

    /// No other replica lacks what the session has finished. What its client asked for goes with its divergence.
    pub fn forget_finished(&mut self, session: &mut Session) {
        let stored = session.stored;
        if session.outbound.forget_finished() && stored.is_some() {
            self.write_done();
            self.write_divergence(stored, |writer| writer.forgotten(stored.number));
            if self.is_on {
                write_touched(&mut self.writer, session);
            }
        }
    }

    /// A QoS 2 publication of the session's client arrived, or its conditions are met.
    pub fn inbound(&mut self, stored: StoredAs, inbound: &Inbound, packet_id: PacketId) {
        if stored.is_some()
            && let Some(id) = inbound.find(packet_id)
        {
            self.write(stored, |writer| writer.inbound(stored.number, id));
        }
    }

    /// The client's publications have a new range of generations.
    pub fn range(&mut self, session: &Session) {
        if session.stored.is_some() {
            self.write(session.stored, |writer| write_position(writer, session));
        }
    }

    /// A QoS 2 publication is over.
    pub fn released(&mut self, stored: StoredAs, packet_id: PacketId) {
        if stored.is_some() {
            self.write(stored, |writer| writer.released(stored.number, packet_id));
        }
    }

    pub fn put(&mut self, keyspace: Keyspace, key: Vec<u8>, value: Option<Vec<u8>>) {
        if !self.is_on {
            return;
        }
        self.operation_bytes += (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
        self.operations.push(StoreOperation {
            keyspace,
            key,
            value,
        });
    }

    fn key(&self, number: u64) -> Vec<u8> {
        key_in(self.log, number)
    }

    pub fn subscription_key(&self, number: u64, filter: &SubscriptionFilter) -> Vec<u8> {
        let mut key = self.key(number);
        key.extend_from_slice(filter.to_string().as_bytes());
        key
    }

    /// A subscription was made, changed, got retained messages or, with `None`, ended.
    pub fn subscription(
        &mut self,
        stored: StoredAs,
        filter: &SubscriptionFilter,
        subscribed: Option<&Subscribed>,
    ) {
        if !stored.is_some() {
            return;
        }
        let value = subscribed.map(|subscribed| encode_subscription(filter, subscribed));
        self.streams.each(stored.backups, |stream| match &value {
            Some(value) => stream.writer.subscribed(stored.number, value),
            None => stream
                .writer
                .unsubscribed(stored.number, &filter.to_string()),
        });
        if self.is_on {
            let key = self.subscription_key(stored.number, filter);
            self.put(Keyspace::Subscriptions, key, value);
        }
    }

    /// The session has ended.
    pub fn forget(&mut self, session: &Session) {
        let stored = session.stored;
        if !stored.is_some() {
            return;
        }
        self.write_done();
        for backup in stored.backups.iter() {
            if let Some(stream) = self.streams.get_mut(backup.stream) {
                stream.writer.ended(stored.number);
            }
        }
        if self.is_on {
            for filter in session.subscriptions.keys() {
                let key = self.subscription_key(stored.number, filter);
                self.put(Keyspace::Subscriptions, key, None);
            }
            self.remove_session(self.log, stored.number);
        }
    }

    /// A will is being published, under a number of its own: it is published again if the node stops before all its recipients have it.
    pub fn put_will(&mut self, now: Now, number: u64, stored: &StoredSession) {
        self.put_session(now, number, stored);
    }

    /// Removes the value of a session, or of a will that all its recipients have, from a log of this node, perhaps one that no longer exists.
    pub fn remove_session(&mut self, log: u8, number: u64) {
        self.put(Keyspace::Sessions, key_in(log, number), None);
    }

    /// A session without its subscriptions and messages.
    pub fn put_session(&mut self, now: Now, number: u64, stored: &StoredSession) {
        let key = self.key(number);
        let value = stored.encode(now.times_of_day());
        self.put(Keyspace::Sessions, key, Some(value));
    }

    /// Removes a value of a log that no longer exists.
    pub fn remove_key(&mut self, keyspace: Keyspace, key: Vec<u8>) {
        self.put(keyspace, key, None);
    }
}

/// The key of a session in the store.
fn key_in(log: u8, number: u64) -> Vec<u8> {
    [&[log], &number.to_be_bytes()[..]].concat()
}

/// The counters of a session.
fn write_position(writer: &mut JournalWriter, session: &Session) {
    writer.session(
        session.stored.number,
        session.outbound.next_sequence(),
        session.outbound.next_packet_id(),
        session.inbound.generation(),
    );
}

/// The counters of a session and what its client has not released.
pub(in crate::worker) fn write_counters(writer: &mut JournalWriter, session: &Session) {
    write_position(writer, session);
    for id in session.inbound.stored() {
        writer.inbound(session.stored.number, id);
    }
}

/// What a session has finished while another replica may hold it.
pub(in crate::worker) fn write_finished(writer: &mut JournalWriter, session: &Session) {
    let finished = session.outbound.finished();
    for range in finished.into_iter().flat_map(FinishedMessages::iter) {
        writer.finished(session.stored.number, &range);
    }
}

/// What its client asked for while another node may not have received that. Only for this node: a backup that is promoted
/// begins anew.
pub(in crate::worker) fn write_touched(writer: &mut JournalWriter, session: &Session) {
    let divergence = session.divergence.as_deref();
    for filter in divergence.iter().flat_map(|it| &it.touched) {
        writer.touched(session.stored.number, &filter.to_string());
    }
}

/// The QoS 2 publications that a session accepted.
pub(in crate::worker) fn write_accepted(writer: &mut JournalWriter, session: &Session) {
    for (uid, taken) in session.accepted.iter() {
        writer.accepted(session.stored.number, uid, taken);
    }
}

/// The counters of a session and all messages that it holds.
pub(in crate::worker) fn write_messages(writer: &mut JournalWriter, now: Now, session: &Session) {
    write_counters(writer, session);
    write_finished(writer, session);
    write_touched(writer, session);
    for held in session.outbound.held_from(0) {
        write_held(writer, now, session.stored.number, &held, 0);
    }
}

/// The current message.
fn write_outgoing(writer: &mut JournalWriter, now: Now, outgoing: &Outgoing<'_>) {
    let message = StoredMessage {
        name: 0,
        id: outgoing.id,
        expires_at: outgoing.expires_at,
        publication: outgoing
            .publication()
            .map(|id| (id.session, id.packet_id, id.generation)),
        publish: *outgoing.publish,
    };
    writer.message(now.times_of_day(), &message);
}

/// One message that a session holds. `name`: of the message, if it was written before; 0: it is written here.
pub(in crate::worker) fn write_held(
    writer: &mut JournalWriter,
    now: Now,
    session: u64,
    held: &Held<'_>,
    name: u64,
) {
    if name == 0
        && let Some(delivery) = held.delivery()
    {
        write_message(writer, now, &delivery.message, 0);
    }
    write_append(writer, session, held, name);
}

/// One message that a session holds, for a backup that lacks it: with its publication identity.
pub(in crate::worker) fn write_missing(
    writer: &mut JournalWriter,
    now: Now,
    session: u64,
    held: &Held<'_>,
) {
    if let Some(delivery) = held.delivery() {
        let message = &delivery.message;
        let message = StoredMessage {
            publication: message.publication(),
            ..stored_message(message, 0)
        };
        writer.message(now.times_of_day(), &message);
    }
    write_append(writer, session, held, 0);
}

fn write_append(writer: &mut JournalWriter, session: u64, held: &Held<'_>, name: u64) {
    let (sequence, packet_id, delivery) = match *held {
        Held::Received {
            sequence,
            packet_id,
        } => return writer.received(session, sequence, packet_id),
        Held::InFlight {
            sequence,
            packet_id,
            delivery,
        } => (sequence, Some(packet_id), delivery),
        Held::Queued { sequence, delivery } => (sequence, None, delivery),
    };
    writer.append(&Append {
        session,
        sequence,
        message: name,
        reference: None,
        qos: delivery.qos,
        retain: delivery.retain,
        packet_id,
        identifiers: delivery.identifiers.as_slice().to_vec(),
        group: delivery.group.as_deref(),
    });
}

/// A message that is in memory.
pub(in crate::worker) fn write_message(
    writer: &mut JournalWriter,
    now: Now,
    message: &thicket_session::server::Message,
    name: u64,
) {
    writer.message(now.times_of_day(), &stored_message(message, name));
}

fn stored_message(message: &thicket_session::server::Message, name: u64) -> StoredMessage<'_> {
    StoredMessage {
        name,
        id: message.id(),
        expires_at: message.expires_at(),
        publication: None,
        publish: message.publish(),
    }
}
