//! What a store writes of sessions as they progress: entries that, read again in order, rebuild what each session held.
//!
//! A *record* holds all entries of one round and is stored whole or not at all. Sessions are identified by a number that their store gave them,
//! messages of a session by their sequence. A message that several sessions hold is in the record once, and the `Append`s after it refer to it; one
//! written for a later record as well has a name. Reading an entry twice, or one whose session or message no longer exists, changes nothing: so a
//! store may write what is needed again and drop the old records.
//!
//! ```text
//! record   version u8 | [sent at u64] | entries to the end
//! message  1 | flags u8 | [name] | [node u64, incarnation u64, stream u8] | id number | [expiry u64] | [publication u128 u16 u32]
//!          | topic | properties | payload
//! append   2 | session | sequence | flags u8 | [name] | [reference] | [packet id u16] | [identifiers] | [group]
//! assign   3 | session | sequence | packet id u16
//! done     4 | session | packet id u16 | count
//! received 5 | session | sequence | packet id u16
//! dropped  6 | session | sequence
//! inbound  7 | session | packet id u16 | generation | is held u8
//! released 8 | session | packet id u16
//! session  9 | session | next sequence | next packet id u16 | inbound generation
//! seen    10 | generations
//! noted   11 | publication u128 u16 u32 | checksum u16 (not in version 1)
//! value   12 | session | stored session
//! filter  13 | session | is held u8 | subscription, or the filter's text
//! ended   14 | session
//! passed  15 | session | reference
//! whole   16 | session
//! covered 17 | session
//! accepted 18 | session | generations
//! handed  19 | session
//! members 20 | session | count | node u64 each
//! adopted 21 | session | uid u128 | epoch u64
//! left    22 | session
//! run     23 | session | sequence | flags u8 | reference | [packet id u16] | count u16
//! history 24 | session | bytes
//! finished 25 | session | reference | count | group, empty for none
//! forgotten 26 | session
//! touched 27 | session | filter
//! reference    is new origin u8 | [node u64, incarnation u64, stream u8] | id number
//! generations  uid u128 | highest u32 | bits u128 x 8 | checksums u16 x 32 (not in version 1)
//! ```
//!
//! Those from 12 on are only in records for other nodes, which have no store of values beside them. A *reference* is the identity of a message that
//! such a node has from elsewhere. A *run* stands for that many `append`s by reference, each with the next sequence, number and identifier.
//!
//! Times in what is stored are times of day. Those in a record for another node (`sent at` is in these alone) are times of the sender's monotonic clock,
//! as is `sent at`, which is written when the record is sent: see [`Timeline`].
//!
//! Integers of fixed size are little-endian, all others LEB128; strings and lists have their length before them.

use thicket_mqtt::{PacketId, Publish, Qos};

use super::{
    Epoch, FinishedRange, Generations, InboundId, MessageId, MessageStream, Publication,
    StoredSession,
};
use crate::time::{Instant, Timeline};

/// The format of a record, in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum JournalFormat {
    /// As it is stored: with times of day.
    #[default]
    Stored = 2,
    /// As other nodes are sent it: with times of the sender's clock.
    Sent = 3,
}

impl JournalFormat {
    const fn of(byte: u8) -> Option<Self> {
        match byte {
            2 => Some(Self::Stored),
            3 => Some(Self::Sent),
            _ => None,
        }
    }
}

/// A record is sent now: its times are read by this.
pub fn set_sent_at(record: &mut [u8], now: Instant) {
    if let Some((format, rest)) = record.split_first_mut()
        && JournalFormat::of(*format) == Some(JournalFormat::Sent)
        && let Some(sent_at) = rest.first_chunk_mut()
    {
        *sent_at = Timeline::OWN.millis_of(now).to_le_bytes();
    }
}

mod tag {
    pub(super) const MESSAGE: u8 = 1;
    pub(super) const APPEND: u8 = 2;
    pub(super) const ASSIGN: u8 = 3;
    pub(super) const DONE: u8 = 4;
    pub(super) const RECEIVED: u8 = 5;
    pub(super) const DROPPED: u8 = 6;
    pub(super) const INBOUND: u8 = 7;
    pub(super) const RELEASED: u8 = 8;
    pub(super) const SESSION: u8 = 9;
    pub(super) const SEEN: u8 = 10;
    pub(super) const NOTED: u8 = 11;
    pub(super) const VALUE: u8 = 12;
    pub(super) const FILTER: u8 = 13;
    pub(super) const ENDED: u8 = 14;
    pub(super) const PASSED: u8 = 15;
    pub(super) const WHOLE: u8 = 16;
    pub(super) const COVERED: u8 = 17;
    pub(super) const TAKEN: u8 = 18;
    pub(super) const HANDED: u8 = 19;
    pub(super) const MEMBERS: u8 = 20;
    pub(super) const ADOPTED: u8 = 21;
    pub(super) const LEFT: u8 = 22;
    pub(super) const RUN: u8 = 23;
    pub(super) const HISTORY: u8 = 24;
    pub(super) const FINISHED: u8 = 25;
    pub(super) const FORGOTTEN: u8 = 26;
    pub(super) const TOUCHED: u8 = 27;
}

mod flag {
    pub(super) const QOS: u8 = 0b11;
    pub(super) const RETAIN: u8 = 1 << 2;
    pub(super) const NAME: u8 = 1 << 3;
    pub(super) const ORIGIN: u8 = 1 << 4;
    pub(super) const EXPIRY: u8 = 1 << 5;
    pub(super) const PUBLICATION: u8 = 1 << 6;
    pub(super) const PACKET_ID: u8 = 1 << 4;
    pub(super) const IDENTIFIERS: u8 = 1 << 5;
    pub(super) const GROUP: u8 = 1 << 6;
    pub(super) const REFERENCE: u8 = 1 << 7;
}

/// Messages in one run at most: an entry must not claim much more than its bytes can stand for.
pub(super) const MAXIMUM_RUN: u16 = 1024;

/// One entry, borrowed from its record. Small, as each one that is read is moved: what is large and rare is in a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalEntry<'a> {
    /// A message; the `Append`s that follow without a name of their own refer to it.
    Message(Box<StoredMessage<'a>>),
    /// A session accepts a message.
    Append(Append<'a>),
    /// A session accepts messages in a row.
    Run(AppendRun),
    /// A queued message got its packet identifier.
    Assign {
        /// Whose.
        session: u64,
        /// Which message.
        sequence: u64,
        /// Its identifier.
        packet_id: PacketId,
    },
    /// Messages are acknowledged: `count` consecutive identifiers.
    Done {
        /// Whose.
        session: u64,
        /// The first identifier.
        packet_id: PacketId,
        /// At least 1.
        count: u16,
    },
    /// PUBREC was received.
    Received {
        /// Whose.
        session: u64,
        /// Which message.
        sequence: u64,
        /// Its identifier.
        packet_id: PacketId,
    },
    /// A message left without being sent: expired, or replaced by one of another sequence.
    Dropped {
        /// Whose.
        session: u64,
        /// Which message.
        sequence: u64,
    },
    /// A QoS 2 publication of the session's client.
    Inbound {
        /// Whose.
        session: u64,
        /// The publication.
        id: InboundId,
    },
    /// PUBREL was received, or the publication was refused.
    Released {
        /// Whose.
        session: u64,
        /// The identifier.
        packet_id: PacketId,
    },
    /// The counters of a session that is written again.
    Session {
        /// Whose.
        session: u64,
        /// See `Outbound::next_sequence`.
        next_sequence: u64,
        /// See `Outbound::next_packet_id`.
        next_packet_id: PacketId,
        /// See `Inbound::generation`.
        inbound_generation: u32,
    },
    /// Publications that arrived here.
    Seen {
        /// The publisher's session.
        uid: u128,
        /// Which ones.
        generations: Box<Generations>,
    },
    /// A publication arrived that no session had to store.
    Noted {
        /// Which one.
        publication: Publication,
        /// Of its content; 0: unknown.
        checksum: u16,
    },
    /// A session without its subscriptions and messages.
    Value {
        /// Whose.
        session: u64,
        /// As `StoredSession::encode` made it, with times as [`JournalEntries::times`] has them.
        value: &'a [u8],
    },
    /// A subscription was made or changed.
    Subscribed {
        /// Whose.
        session: u64,
        /// As `encode_subscription` made it.
        value: &'a [u8],
    },
    /// A subscription ended.
    Unsubscribed {
        /// Whose.
        session: u64,
        /// The filter as text.
        filter: &'a str,
    },
    /// The session has ended.
    Ended {
        /// Whose.
        session: u64,
    },
    /// The session does not accept a message that matches its subscriptions.
    Passed {
        /// Whose.
        session: u64,
        /// The message.
        message: MessageId,
    },
    /// Ends a full sync: all of the session is before this.
    Whole {
        /// Whose.
        session: u64,
    },
    /// The session is covered: what arrived for it before the full sync, and is not named since, was finished before.
    Covered {
        /// Whose.
        session: u64,
    },
    /// The backup is promoted from here on.
    Handed {
        /// Whose.
        session: u64,
    },
    /// What the writer has of what arrived for the session, for the next primary.
    History {
        /// Whose.
        session: u64,
        /// Its format is the writer's.
        value: &'a [u8],
    },
    /// The replica set: when the primary is down, the backup of the first of these nodes that is up is promoted.
    Members {
        /// Whose.
        session: u64,
        /// Each once.
        nodes: Vec<u64>,
    },
    /// The writer was promoted for a session of another primary: what the reader has of it stays until the writer has fully synced it.
    Adopted {
        /// The writer's number of it.
        session: u64,
        /// See `StoredSession::uid`.
        uid: u128,
        /// See `StoredSession::epoch`: what the reader has is older.
        epoch: Epoch,
    },
    /// Another node is the primary of the session.
    Left {
        /// Whose.
        session: u64,
    },
    /// Messages are finished, and another replica may still hold them.
    Finished {
        /// Whose.
        session: u64,
        /// Which ones.
        range: Box<FinishedRange>,
    },
    /// No other replica lacks what was finished and asked for here.
    Forgotten {
        /// Whose.
        session: u64,
    },
    /// The client subscribed or unsubscribed, and another replica may not have received that.
    Touched {
        /// Whose.
        session: u64,
        /// The filter as text.
        filter: &'a str,
    },
    /// The session accepted these publications of one publisher: sent again, they are none of its messages.
    Accepted {
        /// Whose.
        session: u64,
        /// The publisher's session.
        uid: u128,
        /// Which ones.
        generations: Box<Generations>,
    },
}

impl JournalEntry<'_> {
    /// The number of the session it is about.
    #[must_use]
    pub const fn session(&self) -> Option<u64> {
        match self {
            Self::Append(append) => Some(append.session),
            Self::Run(run) => Some(run.first.session),
            Self::Assign { session, .. }
            | Self::Done { session, .. }
            | Self::Received { session, .. }
            | Self::Dropped { session, .. }
            | Self::Inbound { session, .. }
            | Self::Released { session, .. }
            | Self::Session { session, .. }
            | Self::Value { session, .. }
            | Self::Subscribed { session, .. }
            | Self::Unsubscribed { session, .. }
            | Self::Ended { session }
            | Self::Whole { session }
            | Self::Covered { session }
            | Self::Handed { session }
            | Self::History { session, .. }
            | Self::Members { session, .. }
            | Self::Adopted { session, .. }
            | Self::Left { session }
            | Self::Finished { session, .. }
            | Self::Forgotten { session }
            | Self::Touched { session, .. }
            | Self::Accepted { session, .. }
            | Self::Passed { session, .. } => Some(*session),
            Self::Message(_) | Self::Seen { .. } | Self::Noted { .. } => None,
        }
    }
}

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage<'a> {
    /// For later records; 0: none.
    pub name: u64,
    /// Its identity.
    pub id: MessageId,
    /// When it expires.
    pub expires_at: Option<Instant>,
    /// For QoS 2 of a persistent publisher.
    pub publication: Option<Publication>,
    /// Topic, payload, properties, QoS and RETAIN.
    pub publish: Publish<'a>,
}

/// A session accepts a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append<'a> {
    /// Whose.
    pub session: u64,
    /// In the session's order.
    pub sequence: u64,
    /// The name of the message; 0: the last one before this entry.
    pub message: u64,
    /// The message itself is not in the journal: the reader has it from elsewhere.
    pub reference: Option<MessageId>,
    /// The lower of published and granted QoS.
    pub qos: Qos,
    /// RETAIN as the subscription wants it.
    pub retain: bool,
    /// Sent at once with this identifier; `None`: queued.
    pub packet_id: Option<PacketId>,
    /// Subscription identifiers, ascending.
    pub identifiers: Vec<u32>,
    /// The shared subscription it was given to.
    pub group: Option<&'a str>,
}

/// A session accepts a message that the reader has from elsewhere, without subscription identifiers and from no shared subscription, as most are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlainAppend {
    /// Whose.
    pub session: u64,
    /// In the session's order.
    pub sequence: u64,
    /// The message.
    pub reference: MessageId,
    /// The lower of published and granted QoS.
    pub qos: Qos,
    /// RETAIN as the subscription wants it.
    pub retain: bool,
    /// Sent at once with this identifier; `None`: queued.
    pub packet_id: Option<PacketId>,
}

impl PlainAppend {
    /// The same for the next message of the same origin, for which only the counters differ.
    #[must_use]
    pub const fn next(self) -> Self {
        Self {
            sequence: self.sequence + 1,
            reference: MessageId {
                number: self.reference.number + 1,
                ..self.reference
            },
            packet_id: match self.packet_id {
                Some(packet_id) => Some(packet_id.next()),
                None => None,
            },
            ..self
        }
    }
}

/// A session accepts messages in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendRun {
    /// The first.
    pub first: PlainAppend,
    /// 1 to 1024.
    pub count: u16,
}

/// The record is not ours, though its checksum is right. Nothing was changed by this entry; the start must be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Malformed: of another version.
    #[error("journal version {0} is not known")]
    Version(u8),
    /// Malformed: ends early, or a field has a value it cannot have.
    #[error("journal record is malformed at {0}")]
    Malformed(&'static str),
}

/// Writes the entries of one record.
#[derive(Debug, Default)]
pub struct JournalWriter {
    format: JournalFormat,
    bytes: Vec<u8>,
    /// Node, incarnation and stream of the last message written: mostly that of the next one.
    origin: Option<MessageStream>,
    /// The last run; another entry behind it ends it.
    run: Option<OpenRun>,
}

/// A run that may be longer.
#[derive(Debug)]
struct OpenRun {
    /// Where it ends.
    end: usize,
    /// The append that would make it longer.
    next: PlainAppend,
    count: u16,
}

impl JournalWriter {
    /// In the format that its reader expects.
    #[must_use]
    pub fn new(format: JournalFormat) -> Self {
        Self {
            format,
            ..Self::default()
        }
    }

    /// Bytes written of the present record; 0: nothing to store.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing to store.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The present record.
    #[must_use]
    pub fn record(&self) -> &[u8] {
        &self.bytes
    }

    /// Begins the next record.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.origin = None;
        self.run = None;
    }

    fn begin(&mut self, tag: u8) -> &mut Vec<u8> {
        if self.bytes.is_empty() {
            self.bytes.push(self.format as u8);
            if self.format == JournalFormat::Sent {
                self.bytes.extend_from_slice(&[0; 8]);
            }
        }
        self.bytes.push(tag);
        &mut self.bytes
    }

    /// How times are written; `times_of_day`: how they are where another process reads them here.
    #[must_use]
    pub const fn times(&self, times_of_day: Timeline) -> Timeline {
        match self.format {
            JournalFormat::Sent => Timeline::OWN,
            JournalFormat::Stored => times_of_day,
        }
    }

    /// Writes a message for the `append`s that follow. `times_of_day`: see [`Self::times`].
    pub fn message(&mut self, times_of_day: Timeline, message: &StoredMessage<'_>) {
        let times = self.times(times_of_day);
        let publish = &message.publish;
        let origin = message.id.stream_id();
        let with = |is: bool, bit: u8| if is { bit } else { 0 };
        let is_new_origin = self.origin != Some(origin);
        let flags = publish.qos as u8
            | with(publish.retain, flag::RETAIN)
            | with(message.name > 0, flag::NAME)
            | with(is_new_origin, flag::ORIGIN)
            | with(message.expires_at.is_some(), flag::EXPIRY)
            | with(message.publication.is_some(), flag::PUBLICATION);
        let out = self.begin(tag::MESSAGE);
        out.push(flags);
        if message.name > 0 {
            put_varint(out, message.name);
        }
        if is_new_origin {
            put_origin(out, origin);
        }
        put_varint(out, message.id.number);
        if let Some(at) = message.expires_at {
            out.extend_from_slice(&times.millis_of(at).to_le_bytes());
        }
        if let Some(publication) = message.publication {
            put_publication(out, publication);
        }
        put_bytes(out, publish.topic.as_bytes());
        put_varint(out, publish.properties.encoded_len() as u64);
        publish.properties.write_to(out);
        put_bytes(out, publish.payload);
        self.origin = Some(origin);
    }

    /// A session accepts a message; `identifiers` and `group` as in [`Append`].
    pub fn append(&mut self, append: &Append<'_>) {
        let with = |is: bool, bit: u8| if is { bit } else { 0 };
        let flags = append.qos as u8
            | with(append.retain, flag::RETAIN)
            | with(append.message > 0, flag::NAME)
            | with(append.packet_id.is_some(), flag::PACKET_ID)
            | with(!append.identifiers.is_empty(), flag::IDENTIFIERS)
            | with(append.group.is_some(), flag::GROUP)
            | with(append.reference.is_some(), flag::REFERENCE);
        let out = self.begin(tag::APPEND);
        put_varint(out, append.session);
        put_varint(out, append.sequence);
        out.push(flags);
        if append.message > 0 {
            put_varint(out, append.message);
        }
        if let Some(id) = append.reference {
            self.reference(id);
        }
        let out = &mut self.bytes;
        if let Some(packet_id) = append.packet_id {
            out.extend_from_slice(&packet_id.value().to_le_bytes());
        }
        if !append.identifiers.is_empty() {
            put_varint(out, append.identifiers.len() as u64);
            for identifier in &append.identifiers {
                put_varint(out, u64::from(*identifier));
            }
        }
        if let Some(group) = append.group {
            put_bytes(out, group.as_bytes());
        }
    }

    /// The same as [`append`](Self::append) for readers that support runs.
    pub fn append_plain(&mut self, append: PlainAppend) {
        if let Some(run) = &mut self.run
            && run.end == self.bytes.len()
            && run.next == append
            && run.count < MAXIMUM_RUN
        {
            run.count += 1;
            run.next = append.next();
            if let Some(count) = self.bytes.last_chunk_mut() {
                *count = run.count.to_le_bytes();
            }
            return;
        }
        let with = |is: bool, bit: u8| if is { bit } else { 0 };
        let flags = append.qos as u8
            | with(append.retain, flag::RETAIN)
            | with(append.packet_id.is_some(), flag::PACKET_ID);
        let out = self.begin(tag::RUN);
        put_varint(out, append.session);
        put_varint(out, append.sequence);
        out.push(flags);
        self.reference(append.reference);
        if let Some(packet_id) = append.packet_id {
            self.bytes
                .extend_from_slice(&packet_id.value().to_le_bytes());
        }
        self.bytes.extend_from_slice(&1_u16.to_le_bytes());
        self.run = Some(OpenRun {
            end: self.bytes.len(),
            next: append.next(),
            count: 1,
        });
    }

    /// Messages are finished, and another replica may still hold them.
    pub fn finished(&mut self, session: u64, range: &FinishedRange) {
        put_varint(self.begin(tag::FINISHED), session);
        self.reference(range.first);
        put_varint(&mut self.bytes, range.count);
        let group = range.group.as_deref().unwrap_or_default();
        put_bytes(&mut self.bytes, group.as_bytes());
    }

    /// No other replica lacks what was finished and asked for here.
    pub fn forgotten(&mut self, session: u64) {
        put_varint(self.begin(tag::FORGOTTEN), session);
    }

    /// The client subscribed or unsubscribed, and another replica may not have received that.
    pub fn touched(&mut self, session: u64, filter: &str) {
        let out = self.begin(tag::TOUCHED);
        put_varint(out, session);
        put_bytes(out, filter.as_bytes());
    }

    fn reference(&mut self, id: MessageId) {
        let origin = id.stream_id();
        let is_new_origin = self.origin != Some(origin);
        self.bytes.push(u8::from(is_new_origin));
        if is_new_origin {
            put_origin(&mut self.bytes, origin);
            self.origin = Some(origin);
        }
        put_varint(&mut self.bytes, id.number);
    }

    /// A session without its subscriptions and messages. `times_of_day`: see [`Self::times`].
    pub fn value(&mut self, times_of_day: Timeline, session: u64, stored: &StoredSession) {
        let value = stored.encode(self.times(times_of_day));
        let out = self.begin(tag::VALUE);
        put_varint(out, session);
        put_bytes(out, &value);
    }

    /// A subscription was made or changed.
    pub fn subscribed(&mut self, session: u64, value: &[u8]) {
        self.filter(session, true, value);
    }

    /// A subscription ended.
    pub fn unsubscribed(&mut self, session: u64, filter: &str) {
        self.filter(session, false, filter.as_bytes());
    }

    fn filter(&mut self, session: u64, is_held: bool, bytes: &[u8]) {
        let out = self.begin(tag::FILTER);
        put_varint(out, session);
        out.push(u8::from(is_held));
        put_bytes(out, bytes);
    }

    /// The session has ended.
    pub fn ended(&mut self, session: u64) {
        put_varint(self.begin(tag::ENDED), session);
    }

    /// Ends a full sync.
    pub fn whole(&mut self, session: u64) {
        put_varint(self.begin(tag::WHOLE), session);
    }

    /// The session is covered: what arrived before the full sync was finished before.
    pub fn covered(&mut self, session: u64) {
        put_varint(self.begin(tag::COVERED), session);
    }

    /// The backup is promoted from here on.
    pub fn handed(&mut self, session: u64) {
        put_varint(self.begin(tag::HANDED), session);
    }

    /// What the writer has of what arrived for the session.
    pub fn history(&mut self, session: u64, value: &[u8]) {
        let out = self.begin(tag::HISTORY);
        put_varint(out, session);
        put_bytes(out, value);
    }

    /// The replica set.
    pub fn members(&mut self, session: u64, nodes: &[u64]) {
        let out = self.begin(tag::MEMBERS);
        put_varint(out, session);
        put_varint(out, nodes.len() as u64);
        for node in nodes {
            out.extend_from_slice(&node.to_le_bytes());
        }
    }

    /// A session of another primary was promoted here, under this number.
    pub fn adopted(&mut self, session: u64, uid: u128, epoch: Epoch) {
        let out = self.begin(tag::ADOPTED);
        put_varint(out, session);
        out.extend_from_slice(&uid.to_le_bytes());
        out.extend_from_slice(&epoch.bits().to_le_bytes());
    }

    /// Another node is the primary of the session.
    pub fn left(&mut self, session: u64) {
        put_varint(self.begin(tag::LEFT), session);
    }

    /// The session accepted these publications of one publisher.
    pub fn accepted(&mut self, session: u64, uid: u128, generations: &Generations) {
        put_varint(self.begin(tag::TAKEN), session);
        self.generations(uid, generations);
    }

    fn generations(&mut self, uid: u128, generations: &Generations) {
        self.bytes.extend_from_slice(&uid.to_le_bytes());
        generations.encode(&mut self.bytes);
    }

    /// The session does not accept a message that matches its subscriptions.
    pub fn passed(&mut self, session: u64, message: MessageId) {
        put_varint(self.begin(tag::PASSED), session);
        self.reference(message);
    }

    /// A queued message got its packet identifier.
    pub fn assign(&mut self, session: u64, sequence: u64, packet_id: PacketId) {
        self.numbered(tag::ASSIGN, session, sequence, packet_id);
    }

    /// PUBREC was received.
    pub fn received(&mut self, session: u64, sequence: u64, packet_id: PacketId) {
        self.numbered(tag::RECEIVED, session, sequence, packet_id);
    }

    fn numbered(&mut self, tag: u8, session: u64, sequence: u64, packet_id: PacketId) {
        let out = self.begin(tag);
        put_varint(out, session);
        put_varint(out, sequence);
        out.extend_from_slice(&packet_id.value().to_le_bytes());
    }

    /// `count` messages with consecutive identifiers are acknowledged.
    pub fn done(&mut self, session: u64, packet_id: PacketId, count: u16) {
        let out = self.begin(tag::DONE);
        put_varint(out, session);
        out.extend_from_slice(&packet_id.value().to_le_bytes());
        put_varint(out, u64::from(count));
    }

    /// A message left without being sent.
    pub fn dropped(&mut self, session: u64, sequence: u64) {
        let out = self.begin(tag::DROPPED);
        put_varint(out, session);
        put_varint(out, sequence);
    }

    /// A QoS 2 publication arrived, or its conditions are met.
    pub fn inbound(&mut self, session: u64, id: InboundId) {
        let out = self.begin(tag::INBOUND);
        put_varint(out, session);
        out.extend_from_slice(&id.packet_id.value().to_le_bytes());
        put_varint(out, u64::from(id.generation));
        out.push(id.state_bits());
    }

    /// A QoS 2 publication is over.
    pub fn released(&mut self, session: u64, packet_id: PacketId) {
        let out = self.begin(tag::RELEASED);
        put_varint(out, session);
        out.extend_from_slice(&packet_id.value().to_le_bytes());
    }

    /// The counters of a session.
    pub fn session(
        &mut self,
        session: u64,
        next_sequence: u64,
        next_packet_id: PacketId,
        generation: u32,
    ) {
        let out = self.begin(tag::SESSION);
        put_varint(out, session);
        put_varint(out, next_sequence);
        out.extend_from_slice(&next_packet_id.value().to_le_bytes());
        put_varint(out, u64::from(generation));
    }

    /// A publication that no session had to store, and the checksum of its content.
    pub fn noted(&mut self, publication: Publication, checksum: u16) {
        let out = self.begin(tag::NOTED);
        put_publication(out, publication);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// Publications that arrived from one publisher.
    pub fn seen(&mut self, uid: u128, generations: &Generations) {
        self.begin(tag::SEEN);
        self.generations(uid, generations);
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_origin(out: &mut Vec<u8>, origin: MessageStream) {
    out.extend_from_slice(&origin.node.to_le_bytes());
    out.extend_from_slice(&origin.incarnation.to_le_bytes());
    out.push(origin.stream);
}

fn put_publication(out: &mut Vec<u8>, (session, packet_id, generation): Publication) {
    out.extend_from_slice(&session.to_le_bytes());
    out.extend_from_slice(&packet_id.to_le_bytes());
    out.extend_from_slice(&generation.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

mod read;
#[cfg(test)]
mod tests;

pub use read::JournalEntries;
