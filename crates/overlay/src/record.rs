//! One forwarded message as bytes, and the batches that carry it, between the workers of a node as well as between nodes.
//!
//! ```text
//! batch   version u8 | origin u64 | incarnation u64 | stream u16 | low varint | records to the end
//! record  length varint (of what follows) | flags u16 | [expiry left u64] | number varint | [time u64 u16]
//!         | [publication u128 u16 u32] | [publisher] | [shared choices] | [destinations u64*]
//!         | topic | [application properties] | payload to the end
//! ```
//!
//! Integers are little-endian; `varint` is LEB128; strings and lists are preceded by a varint length; fields in brackets are present if their flag is
//! set. The expiry has a fixed place and size, so that [`age_expiry`] can lower it in an encoded record. Decoding borrows and allocates nothing.

use thicket_mqtt::{ApplicationProperties, Qos};
use thicket_session::topic::is_same_name;

use crate::identity::{Incarnation, NodeId, StreamId};
use crate::wire::{Reader, WireError, put_bytes, put_varint, varint_len};

/// The version at the start of every batch.
pub const BATCH_VERSION: u8 = 1;

mod flag {
    pub(super) const QOS: u16 = 0b11;
    pub(super) const RETAIN: u16 = 1 << 2;
    pub(super) const EXPIRY: u16 = 1 << 3;
    pub(super) const TIME: u16 = 1 << 4;
    pub(super) const PUBLICATION: u16 = 1 << 5;
    pub(super) const PUBLISHER: u16 = 1 << 6;
    pub(super) const SHARED: u16 = 1 << 7;
    pub(super) const DESTINATIONS: u16 = 1 << 8;
    pub(super) const PROPERTIES: u16 = 1 << 9;
    pub(super) const RESERVED: u16 = !0x03FF;
    /// A record without any of these, as most are, has only its number, topic and payload.
    pub(super) const OPTIONAL: u16 = !(QOS | RETAIN);
}

/// The header before the records of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// The node whose worker numbered the records.
    pub origin: NodeId,
    /// The incarnation of that node that the numbers belong to.
    pub incarnation: Incarnation,
    /// The worker there.
    pub stream: StreamId,
    /// The lowest number of the stream that may still be resent; 0 if none was ever numbered. Lower ones may be forgotten.
    pub low: u64,
}

impl BatchHeader {
    /// Maximum length of a header.
    pub const MAXIMUM_BYTES: usize = 1 + 8 + 8 + 2 + 10;

    /// Appends the header to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(BATCH_VERSION);
        out.extend_from_slice(&self.origin.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.stream.0.to_le_bytes());
        put_varint(out, self.low);
    }

    /// Reads the header at the start of a batch; returns it with the records after it.
    ///
    /// # Errors
    /// Malformed: too short, or of a version that is not [`BATCH_VERSION`].
    pub fn decode(bytes: &[u8]) -> Result<(Self, Records<'_>), WireError> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8()?;
        if version != BATCH_VERSION {
            return Err(WireError::Value {
                field: "batch version",
                value: version.into(),
            });
        }
        let header = Self {
            origin: NodeId(reader.u64()?),
            incarnation: Incarnation(reader.u64()?),
            stream: StreamId(reader.u16()?),
            low: reader.varint()?,
        };
        Ok((header, Records::new(reader.rest())))
    }
}

/// The records of a batch in order, each with its encoded bytes. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    /// Topic of the previous record. Messages of one topic are often consecutive, and the same topic need not be checked again.
    topic: &'a str,
}

impl<'a> Records<'a> {
    /// The records that lie back to back in `bytes`, without a header.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            topic: "",
        }
    }

    /// The remaining records after some were read: the last one read had this topic, see [`Self::topic`] and [`Self::rest`].
    #[must_use]
    pub const fn after(topic: &'a str, rest: &'a [u8]) -> Self {
        Self { rest, topic }
    }

    /// The topic of the record read last.
    #[must_use]
    pub const fn topic(&self) -> &'a str {
        self.topic
    }

    /// The bytes not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Like `next`, but reads into a record that the caller reuses: it becomes the next record, and its bytes are returned.
    ///
    /// # Errors
    /// As [`Record::decode`]; there are no more records then.
    #[inline]
    pub fn read_into(&mut self, record: &mut Record<'a>) -> Result<Option<&'a [u8]>, WireError> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return Ok(None);
        }
        let len = record.read_after(self.topic, rest)?;
        self.topic = record.topic;
        let (bytes, rest) = rest.split_at(len);
        self.rest = rest;
        Ok(Some(bytes))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(Record<'a>, &'a [u8]), WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut record = Record::default();
        match self.read_into(&mut record) {
            Ok(bytes) => bytes.map(|bytes| Ok((record, bytes))),
            Err(error) => Some(Err(error)),
        }
    }
}

/// A hybrid clock's time: the origin's wall clock, and a counter that orders events within one millisecond (rule 17).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct HybridTime {
    /// Milliseconds since 1970-01-01 UTC.
    pub millis: u64,
    /// Within the millisecond.
    pub counter: u16,
}

/// Identifies a QoS 2 publication wherever its publisher resends it (rule 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicationId {
    /// Uid of the publisher's session.
    pub session: u128,
    /// The packet identifier its publisher gave it.
    pub packet_id: u16,
    /// How often that identifier was freed before.
    pub generation: u32,
}

/// One forwarded message. Borrowed: decoding one allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record<'a> {
    /// Number in its stream, from 1; 0: never acknowledged, never resent (QoS 0 that is not retained).
    pub number: u64,
    /// QoS of the publication.
    pub qos: Qos,
    /// RETAIN of the publication.
    pub retain: bool,
    /// Milliseconds until the message expires, `None`: never.
    pub expiry_left_ms: Option<u64>,
    /// When it was published, for retained messages.
    pub time: Option<HybridTime>,
    /// Identity of a QoS 2 publication.
    pub publication: Option<PublicationId>,
    /// Of a retained message: whose quota it counts towards.
    pub publisher: Option<&'a str>,
    /// Shared subscriptions for which the origin chose the receiving node.
    pub shared: SharedChoices<'a>,
    /// Nodes that this copy still has to reach; empty: the receiving node alone.
    pub destinations: Destinations<'a>,
    /// Topic name: not empty, no wildcards.
    pub topic: &'a str,
    /// The properties that are passed on unchanged.
    pub properties: ApplicationProperties<'a>,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Record<'a> {
    /// Appends the record to `out`. Nothing is checked: an invalid topic name is refused by the reader.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flags = self.flags();
        let is_plain = flags & flag::OPTIONAL == 0;
        let body_len = if is_plain {
            self.plain_len()
        } else {
            self.body_len()
        };
        let len = varint_len(body_len as u64) + body_len;
        let start = out.len();
        out.reserve(len);
        put_varint(out, body_len as u64);
        out.extend_from_slice(&flags.to_le_bytes());
        if is_plain {
            put_varint(out, self.number);
            put_bytes(out, self.topic.as_bytes());
        } else {
            self.encode_optional(out);
        }
        out.extend_from_slice(self.payload);
        debug_assert_eq!(
            out.len() - start,
            len,
            "the length in front is the length written"
        );
    }

    /// Everything between the flags and the payload.
    fn encode_optional(&self, out: &mut Vec<u8>) {
        if let Some(expiry) = self.expiry_left_ms {
            out.extend_from_slice(&expiry.to_le_bytes());
        }
        put_varint(out, self.number);
        if let Some(time) = self.time {
            out.extend_from_slice(&time.millis.to_le_bytes());
            out.extend_from_slice(&time.counter.to_le_bytes());
        }
        if let Some(publication) = &self.publication {
            out.extend_from_slice(&publication.session.to_le_bytes());
            out.extend_from_slice(&publication.packet_id.to_le_bytes());
            out.extend_from_slice(&publication.generation.to_le_bytes());
        }
        if let Some(publisher) = self.publisher {
            put_bytes(out, publisher.as_bytes());
        }
        if !self.shared.is_empty() {
            put_bytes(out, self.shared.raw);
        }
        if !self.destinations.is_empty() {
            put_bytes(out, self.destinations.raw);
        }
        put_bytes(out, self.topic.as_bytes());
        if !self.properties.is_empty() {
            put_varint(out, self.properties.encoded_len() as u64);
            self.properties.write_to(out);
        }
    }

    /// Bytes of the record when encoded.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let body_len = self.body_len();
        varint_len(body_len as u64) + body_len
    }

    /// Bytes of flags, number, topic and payload.
    const fn plain_len(&self) -> usize {
        let topic = self.topic.len();
        2 + varint_len(self.number) + varint_len(topic as u64) + topic + self.payload.len()
    }

    fn body_len(&self) -> usize {
        let with_length = |len: usize| varint_len(len as u64) + len;
        let optional = |len: usize| if len == 0 { 0 } else { with_length(len) };
        self.plain_len()
            + self.expiry_left_ms.map_or(0, |_| 8)
            + self.time.map_or(0, |_| 10)
            + self.publication.map_or(0, |_| 22)
            + self
                .publisher
                .map_or(0, |publisher| with_length(publisher.len()))
            + optional(self.shared.raw.len())
            + optional(self.destinations.raw.len())
            + optional(self.properties.encoded_len())
    }

    fn flags(&self) -> u16 {
        let with = |there: bool, flag: u16| if there { flag } else { 0 };
        self.qos as u16
            | with(self.retain, flag::RETAIN)
            | with(self.expiry_left_ms.is_some(), flag::EXPIRY)
            | with(self.time.is_some(), flag::TIME)
            | with(self.publication.is_some(), flag::PUBLICATION)
            | with(self.publisher.is_some(), flag::PUBLISHER)
            | with(!self.shared.is_empty(), flag::SHARED)
            | with(!self.destinations.is_empty(), flag::DESTINATIONS)
            | with(!self.properties.is_empty(), flag::PROPERTIES)
    }

    /// Reads the record at the start of `bytes`; returns its length.
    ///
    /// # Errors
    /// Malformed: names the field; neither the record nor what follows it is usable.
    pub fn decode(bytes: &'a [u8]) -> Result<(Self, usize), WireError> {
        let mut record = Self::default();
        let len = record.read_after("", bytes)?;
        Ok((record, len))
    }

    /// Becomes the record at the start of `bytes`; returns its length. `known`: a topic name, or empty. For most records only a few fields are
    /// written: creating a new record and copying it costs more than reading it.
    #[inline]
    fn read_after(&mut self, known: &'a str, bytes: &'a [u8]) -> Result<usize, WireError> {
        let mut outer = Reader::new(bytes);
        let mut reader = Reader::new(outer.bytes()?);
        let len = bytes.len() - outer.rest().len();
        let flags = reader.u16()?;
        if flags & flag::OPTIONAL != 0 {
            *self = Self::decode_optional(known, flags, reader)?;
            return Ok(len);
        }
        if self.flags() & flag::OPTIONAL != 0 {
            *self = Self::default();
        }
        self.number = number(&mut reader)?;
        self.qos = qos_of(flags)?;
        self.retain = flags & flag::RETAIN != 0;
        self.topic = topic_after(known, reader.bytes()?)?;
        self.payload = reader.rest();
        Ok(len)
    }

    /// Reads everything after the flags.
    #[inline(never)]
    fn decode_optional(
        known: &'a str,
        flags: u16,
        mut reader: Reader<'a>,
    ) -> Result<Self, WireError> {
        if flags & flag::RESERVED != 0 {
            return Err(WireError::Value {
                field: "record flags",
                value: flags.into(),
            });
        }
        let mut record = Self {
            qos: qos_of(flags)?,
            retain: flags & flag::RETAIN != 0,
            ..Self::default()
        };
        if flags & flag::EXPIRY != 0 {
            record.expiry_left_ms = Some(reader.u64()?);
        }
        record.number = number(&mut reader)?;
        if flags & flag::TIME != 0 {
            record.time = Some(HybridTime {
                millis: reader.u64()?,
                counter: reader.u16()?,
            });
        }
        if flags & flag::PUBLICATION != 0 {
            record.publication = Some(PublicationId {
                session: reader.u128()?,
                packet_id: reader.u16()?,
                generation: reader.u32()?,
            });
        }
        if flags & flag::PUBLISHER != 0 {
            record.publisher = Some(reader.str("publisher")?);
        }
        if flags & flag::SHARED != 0 {
            record.shared = SharedChoices::check(reader.bytes()?)?;
        }
        if flags & flag::DESTINATIONS != 0 {
            record.destinations = Destinations::check(reader.bytes()?)?;
        }
        record.topic = topic_after(known, reader.bytes()?)?;
        if flags & flag::PROPERTIES != 0 {
            record.properties = ApplicationProperties::from_encoded(reader.bytes()?)?;
        }
        record.payload = reader.rest();
        Ok(record)
    }
}

/// The number of the record at the start of `bytes`, and its length, whatever the rest of it is: a reader that cannot use it can refuse it, and go on with the
/// next one. `None`: not even that can be read.
pub(crate) fn outline(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut outer = Reader::new(bytes);
    let mut reader = Reader::new(outer.bytes().ok()?);
    let len = bytes.len() - outer.rest().len();
    let flags = reader.u16().ok()?;
    if flags & flag::RESERVED != 0 {
        return None;
    }
    if flags & flag::EXPIRY != 0 {
        reader.u64().ok()?;
    }
    Some((number(&mut reader).ok()?, len))
}

/// A number below the maximum, so that another one can follow.
#[inline]
fn number(reader: &mut Reader<'_>) -> Result<u64, WireError> {
    match reader.varint()? {
        value @ u64::MAX => Err(WireError::Value {
            field: "record number",
            value,
        }),
        number => Ok(number),
    }
}

fn qos_of(flags: u16) -> Result<Qos, WireError> {
    Qos::from_bits((flags & flag::QOS) as u8).ok_or(WireError::Value {
        field: "record QoS",
        value: 3,
    })
}

/// A topic name, which need not be checked if it equals `known`.
#[inline]
fn topic_after<'a>(known: &'a str, topic: &'a [u8]) -> Result<&'a str, WireError> {
    if is_same_name(topic, known.as_bytes()) && !topic.is_empty() {
        Ok(known)
    } else {
        topic_name(topic)
    }
}

/// A topic name: UTF-8, not empty, no wildcards, no U+0000.
#[inline]
fn topic_name(topic: &[u8]) -> Result<&str, WireError> {
    let topic = std::str::from_utf8(topic).map_err(|_| WireError::NotUtf8 { field: "topic" })?;
    // No early exit: the compiler turns this into a few vector instructions.
    let has_forbidden = topic
        .as_bytes()
        .iter()
        .fold(false, |found, byte| found | matches!(byte, b'+' | b'#' | 0));
    let is_name = !has_forbidden
        && !topic.is_empty()
        && topic.len() <= thicket_session::topic::MAXIMUM_TOPIC_BYTES;
    if is_name {
        Ok(topic)
    } else {
        Err(WireError::Topic { len: topic.len() })
    }
}

/// The records that lie back to back in `bytes`, each as it is encoded; only their lengths are read. Ends where there is no complete record.
pub fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let mut reader = Reader::new(rest);
        reader.bytes().ok()?;
        let (record, after) = rest.split_at(rest.len() - reader.rest().len());
        rest = after;
        Some(record)
    })
}

/// Lowers the remaining expiry of the encoded record at the start of `bytes` by `elapsed_ms`, down to 0. Without an expiry, or without a complete
/// record, nothing changes.
pub fn age_expiry(bytes: &mut [u8], elapsed_ms: u64) {
    let mut reader = Reader::new(bytes);
    let (Ok(_), Ok(flags)) = (reader.varint(), reader.u16()) else {
        return;
    };
    let at = bytes.len() - reader.rest().len();
    if flags & flag::EXPIRY == 0 {
        return;
    }
    if let Some(field) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<8>) {
        *field = u64::from_le_bytes(*field)
            .saturating_sub(elapsed_ms)
            .to_le_bytes();
    }
}

/// The shared subscriptions for which the origin chose the receiving node to serve a message: (group, filter), each pair once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedChoices<'a> {
    raw: &'a [u8],
}

impl<'a> SharedChoices<'a> {
    /// Encodes `choices` (group and filter) into `buffer`, which is cleared first, and returns a view of it.
    pub fn build<'c>(
        choices: impl IntoIterator<Item = (&'c str, &'c str)>,
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        buffer.clear();
        for (group, filter) in choices {
            put_bytes(buffer, group.as_bytes());
            put_bytes(buffer, filter.as_bytes());
        }
        Self { raw: buffer }
    }

    fn check(raw: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(raw);
        if reader.is_empty() {
            return Err(WireError::Value {
                field: "shared choices",
                value: 0,
            });
        }
        while !reader.is_empty() {
            reader.str("shared group")?;
            reader.str("shared filter")?;
        }
        Ok(Self { raw })
    }

    /// Whether the origin chose nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The pairs of group and filter, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + 'a {
        let mut reader = Reader::new(self.raw);
        // Checked when decoded, or written by us: the first error is the end.
        std::iter::from_fn(move || {
            Some((
                reader.str("shared group").ok()?,
                reader.str("shared filter").ok()?,
            ))
        })
    }
}

/// The nodes that a copy still has to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Destinations<'a> {
    raw: &'a [u8],
}

impl<'a> Destinations<'a> {
    /// Encodes `nodes` into `buffer`, which is cleared first, and returns a view of it.
    pub fn build(nodes: impl IntoIterator<Item = NodeId>, buffer: &'a mut Vec<u8>) -> Self {
        buffer.clear();
        for node in nodes {
            buffer.extend_from_slice(&node.0.to_le_bytes());
        }
        Self { raw: buffer }
    }

    fn check(raw: &'a [u8]) -> Result<Self, WireError> {
        if raw.is_empty() || !raw.len().is_multiple_of(8) {
            return Err(WireError::Value {
                field: "destinations length",
                value: raw.len() as u64,
            });
        }
        Ok(Self { raw })
    }

    /// Whether the receiving node is the only destination.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// The nodes in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + 'a {
        self.raw
            .as_chunks::<8>()
            .0
            .iter()
            .map(|chunk| NodeId(u64::from_le_bytes(*chunk)))
    }
}

#[cfg(test)]
mod tests;
