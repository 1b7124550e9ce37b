//! The control messages of a link: one in each packet, starting with a kind byte.
//!
//! | channel | kind | fields |
//! |---|---|---|
//! | link | 1 `Candidate` | has link u8, selects seen varint |
//! | link | 2 `Select` | |
//! | link | 3 `Resume` | given up varint, interests received varint (0: none, else version + 1), interests applied (likewise), control received varint, credit limit varint, credit window varint |
//! | link | 4 `Hello` | sequence varint, smoothed RTT in microseconds varint (0: unknown, else RTT + 1) |
//! | link | 5 `HelloReply` | sequence varint |
//! | link | 6 `Leaving` | |
//! | view | 1 `Record` | see [`NodeRecord`](crate::view::NodeRecord) |
//! | view | 2 `Advertisement` | origin u64, topic with its length |
//! | view | 3 `Versions` | purpose u8 (0 wanted, 1 all, 2 news), then to the end for each record: node u64, incarnation varint, process u64, version varint |
//! | view | 4 `Change` | node u64, incarnation varint, process u64, versions before and after varint, the record's numbers varint, lost links as node u64, changed ones as node u64, RTT varint, epoch varint; a count varint before each list |
//! | interests | 1 `Interests` | flags u8 (snapshot 1, last 2), from varint, to varint, entries to the end |
//! | interests | 2 `InterestsApplied` | version varint |
//! | acknowledgements | 1 `Acknowledge` | credit limit varint, control received varint, streams to the end |
//! | hub | 1 `Control` | sequence varint, kind u8, payload to the end |
//!
//! An entry of interests: filter, sharing u8 (0 plain, 1 group), \[group\], value u8 (bits 0-1 QoS, 2 persistent, 7 withdrawn),
//! weight varint, successors varint (0 so far). A stream of an acknowledgement: origin u64, incarnation u64, stream u16, number
//! of ranges varint, and for each range the gap to the one before and the numbers in it less one, both varint.

use std::ops::RangeInclusive;
use std::sync::Arc;

use thicket_mqtt::Qos;
use thicket_session::topic::TopicFilter;

use crate::channel::Channel;
use crate::identity::{Incarnation, NodeId, StreamId};
use crate::interest::{InterestChange, InterestKey, InterestValue, Sharing};
use crate::record_change::RecordChange;
use crate::record_versions::RecordVersions;
use crate::view::NodeRecord;
use crate::wire::{Reader, WireError, put_bytes, put_varint};

/// Any control message, borrowed from its packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// The node with the higher id reports whether it has a link, so that the other can choose.
    Candidate {
        has_link: bool,
        selects_seen: u64,
    },
    /// The node with the lower id has selected this link.
    Select,
    /// Where earlier links ended.
    Resume(Resume),
    /// The node with the lower id sends hellos, with the round trip it has measured, so that the other need not measure it too.
    Hello {
        sequence: u64,
        rtt_us: Option<u64>,
    },
    HelloReply {
        sequence: u64,
    },
    /// The node shuts down.
    Leaving,
    Record(NodeRecord),
    /// Which records the sender has, or which ones it wants.
    Versions(RecordVersions),
    /// A record changed.
    Change(RecordChange),
    /// A node publishes to a topic (`$PUBADV` of Overlays 5.1).
    Advertisement {
        origin: NodeId,
        topic: &'a str,
    },
    Interests(InterestBatch<'a>),
    InterestsApplied {
        version: u64,
    },
    Acknowledge(AcknowledgeView<'a>),
    Control {
        sequence: u64,
        kind: u8,
        payload: &'a [u8],
    },
}

/// What a node has received from the other when a link begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resume {
    /// How often the sender has marked this process of the receiver as down. A count, not a flag: a link may end before the receiver has read this
    /// message.
    pub(crate) given_up: u64,
    /// Version of the receiver's interests that the sender has; `None`: it needs a snapshot.
    pub(crate) interests_received: Option<u64>,
    /// Version that all its workers have applied.
    pub(crate) interests_applied: Option<u64>,
    /// The last control message it has received.
    pub(crate) control_received: u64,
    /// Bytes of data that it accepts on this link so far, in all.
    pub(crate) credit_limit: u64,
    /// Bytes that it grants when nothing is in transit.
    pub(crate) credit_window: u64,
}

/// Changes of the sender's interests, or a part of a snapshot of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InterestBatch<'a> {
    pub(crate) kind: InterestBatchKind,
    /// Version that the changes start from; for a snapshot the number of its part, from 0.
    pub(crate) from: u64,
    /// Version after them.
    pub(crate) to: u64,
    pub(crate) entries: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterestBatchKind {
    Changes,
    SnapshotPart,
    SnapshotEnd,
}

/// The content of an acknowledgement; its streams are read with [`AcknowledgeView::for_each_range`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcknowledgeView<'a> {
    pub(crate) credit_limit: u64,
    pub(crate) control_received: u64,
    pub(crate) streams: &'a [u8],
}

/// The stream that a range of an acknowledgement belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AcknowledgedStream {
    pub(crate) origin: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) stream: StreamId,
}

impl Message<'_> {
    pub(crate) const fn channel(&self) -> Channel {
        match self {
            Self::Candidate { .. }
            | Self::Select
            | Self::Resume(_)
            | Self::Hello { .. }
            | Self::HelloReply { .. }
            | Self::Leaving => Channel::Link,
            Self::Record(_) | Self::Versions(_) | Self::Change(_) | Self::Advertisement { .. } => {
                Channel::View
            }
            Self::Interests(_) | Self::InterestsApplied { .. } => Channel::Interests,
            Self::Acknowledge(_) => Channel::Acknowledgements,
            Self::Control { .. } => Channel::Hub,
        }
    }

    /// For events.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Candidate { .. } => "Candidate",
            Self::Select => "Select",
            Self::Resume(_) => "Resume",
            Self::Hello { .. } => "Hello",
            Self::HelloReply { .. } => "HelloReply",
            Self::Leaving => "Leaving",
            Self::Record(_) => "Record",
            Self::Versions(_) => "Versions",
            Self::Change(_) => "Change",
            Self::Advertisement { .. } => "Advertisement",
            Self::Interests(_) => "Interests",
            Self::InterestsApplied { .. } => "InterestsApplied",
            Self::Acknowledge(_) => "Acknowledge",
            Self::Control { .. } => "Control",
        }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Candidate {
                has_link,
                selects_seen,
            } => {
                out.extend_from_slice(&[1, u8::from(*has_link)]);
                put_varint(out, *selects_seen);
            }
            Self::Select => out.push(2),
            Self::Resume(resume) => {
                put_numbered(out, 3, resume.given_up);
                put_version(out, resume.interests_received);
                put_version(out, resume.interests_applied);
                put_varint(out, resume.control_received);
                put_varint(out, resume.credit_limit);
                put_varint(out, resume.credit_window);
            }
            Self::Hello { sequence, rtt_us } => {
                put_numbered(out, 4, *sequence);
                put_version(out, *rtt_us);
            }
            Self::HelloReply { sequence } => put_numbered(out, 5, *sequence),
            Self::Leaving => out.push(6),
            Self::Record(record) => {
                out.push(1);
                record.encode(out);
            }
            Self::Versions(versions) => {
                out.push(3);
                versions.encode(out);
            }
            Self::Change(change) => {
                out.push(4);
                change.encode(out);
            }
            Self::Advertisement { origin, topic } => {
                out.push(2);
                out.extend_from_slice(&origin.0.to_le_bytes());
                put_bytes(out, topic.as_bytes());
            }
            Self::Interests(batch) => {
                out.extend_from_slice(&[
                    1,
                    match batch.kind {
                        InterestBatchKind::Changes => 0,
                        InterestBatchKind::SnapshotPart => 1,
                        InterestBatchKind::SnapshotEnd => 3,
                    },
                ]);
                put_varint(out, batch.from);
                put_varint(out, batch.to);
                out.extend_from_slice(batch.entries);
            }
            Self::InterestsApplied { version } => put_numbered(out, 2, *version),
            Self::Acknowledge(view) => {
                out.push(1);
                put_varint(out, view.credit_limit);
                put_varint(out, view.control_received);
                out.extend_from_slice(view.streams);
            }
            Self::Control {
                sequence,
                kind,
                payload,
            } => {
                put_numbered(out, 1, *sequence);
                out.push(*kind);
                out.extend_from_slice(payload);
            }
        }
    }
}

impl<'a> Message<'a> {
    /// Reads a complete message of any control channel.
    pub(crate) fn decode(channel: Channel, bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        let message = match channel {
            Channel::Data | Channel::Tree | Channel::Tunnel => {
                return Err(WireError::Value {
                    field: "channel",
                    value: channel as u64,
                });
            }
            Channel::Link => decode_link(kind, &mut reader)?,
            Channel::View => match kind {
                1 => Self::Record(NodeRecord::decode(&mut reader)?),
                2 => Self::Advertisement {
                    origin: NodeId(reader.u64()?),
                    topic: reader.str("advertised topic")?,
                },
                3 => Self::Versions(RecordVersions::decode(&mut reader)?),
                4 => Self::Change(RecordChange::decode(&mut reader)?),
                _ => return Err(unknown_kind(kind)),
            },
            Channel::Interests => match kind {
                1 => Self::Interests(InterestBatch::decode(&mut reader)?),
                2 => Self::InterestsApplied {
                    version: reader.varint()?,
                },
                _ => return Err(unknown_kind(kind)),
            },
            Channel::Acknowledgements => match kind {
                1 => Self::Acknowledge(AcknowledgeView {
                    credit_limit: reader.varint()?,
                    control_received: reader.varint()?,
                    streams: reader.take_rest(),
                }),
                _ => return Err(unknown_kind(kind)),
            },
            Channel::Hub => match kind {
                1 => Self::Control {
                    sequence: reader.varint()?,
                    kind: reader.u8()?,
                    payload: reader.take_rest(),
                },
                _ => return Err(unknown_kind(kind)),
            },
        };
        reader.finish(message.name())?;
        Ok(message)
    }
}

fn decode_link<'a>(kind: u8, reader: &mut Reader<'a>) -> Result<Message<'a>, WireError> {
    Ok(match kind {
        1 => Message::Candidate {
            has_link: boolean(reader, "has link")?,
            selects_seen: reader.varint()?,
        },
        2 => Message::Select,
        3 => Message::Resume(Resume {
            given_up: reader.varint()?,
            interests_received: version(reader)?,
            interests_applied: version(reader)?,
            control_received: reader.varint()?,
            credit_limit: reader.varint()?,
            credit_window: reader.varint()?,
        }),
        4 => Message::Hello {
            sequence: reader.varint()?,
            rtt_us: version(reader)?,
        },
        5 => Message::HelloReply {
            sequence: reader.varint()?,
        },
        6 => Message::Leaving,
        _ => return Err(unknown_kind(kind)),
    })
}

impl<'a> InterestBatch<'a> {
    fn decode(reader: &mut Reader<'a>) -> Result<Self, WireError> {
        let kind = match reader.u8()? {
            0 => InterestBatchKind::Changes,
            1 => InterestBatchKind::SnapshotPart,
            3 => InterestBatchKind::SnapshotEnd,
            other => {
                return Err(WireError::Value {
                    field: "interest flags",
                    value: other.into(),
                });
            }
        };
        Ok(Self {
            kind,
            from: reader.varint()?,
            to: reader.varint()?,
            entries: reader.take_rest(),
        })
    }

    /// The changes in order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Result<InterestChange, WireError>> + 'a {
        let mut reader = Reader::new(self.entries);
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            let change = decode_change(&mut reader);
            if change.is_err() {
                reader = Reader::new(&[]);
            }
            Some(change)
        })
    }
}

/// Appends an entry of an [`InterestBatch`].
pub(crate) fn put_change(out: &mut Vec<u8>, key: &InterestKey, value: Option<InterestValue>) {
    put_bytes(out, key.filter.as_str().as_bytes());
    match &key.sharing {
        Sharing::Plain => out.push(0),
        Sharing::Group(group) => {
            out.push(1);
            put_bytes(out, group.as_bytes());
        }
    }
    match value {
        Some(value) => {
            out.push(value.qos as u8 | u8::from(value.persistent) << 2);
            put_varint(out, value.weight.into());
        }
        None => out.extend_from_slice(&[WITHDRAWN, 0]),
    }
    put_varint(out, 0);
}

const WITHDRAWN: u8 = 0x80;

fn decode_change(reader: &mut Reader<'_>) -> Result<InterestChange, WireError> {
    let filter = TopicFilter::with_maximum_levels(reader.str("filter")?, usize::MAX)?;
    let sharing = match reader.u8()? {
        0 => Sharing::Plain,
        1 => Sharing::Group(Arc::from(reader.str("group")?)),
        other => {
            return Err(WireError::Value {
                field: "sharing",
                value: other.into(),
            });
        }
    };
    let bits = reader.u8()?;
    let weight = reader.varint()?;
    let weight = u32::try_from(weight).map_err(|_| WireError::Value {
        field: "weight",
        value: weight,
    })?;
    let value = match (bits, Qos::from_bits(bits & 0b11)) {
        (WITHDRAWN, _) => None,
        (0..=7, Some(qos)) => Some(InterestValue {
            qos,
            persistent: bits & 0b100 != 0,
            weight,
        }),
        (_, _) => {
            return Err(WireError::Value {
                field: "interest value",
                value: bits.into(),
            });
        }
    };
    // The format has a place for successors (rule 5); none are sent yet.
    for _ in 0..reader.varint()? {
        reader.u64()?;
    }
    Ok(InterestChange {
        key: InterestKey { filter, sharing },
        value,
    })
}

/// Appends one stream of an acknowledgement.
pub(crate) fn put_stream(
    out: &mut Vec<u8>,
    stream: AcknowledgedStream,
    count: usize,
    ranges: impl Iterator<Item = RangeInclusive<u64>>,
) {
    out.extend_from_slice(&stream.origin.0.to_le_bytes());
    out.extend_from_slice(&stream.incarnation.0.to_le_bytes());
    out.extend_from_slice(&stream.stream.0.to_le_bytes());
    put_varint(out, count as u64);
    let mut before = 0;
    for range in ranges.take(count) {
        put_varint(out, range.start() - before);
        put_varint(out, range.end() - range.start());
        before = *range.end();
    }
}

impl AcknowledgeView<'_> {
    /// Reads every range of every stream. Ranges before an error have been passed to `take`.
    pub(crate) fn for_each_range(
        &self,
        mut take: impl FnMut(AcknowledgedStream, RangeInclusive<u64>),
    ) -> Result<(), WireError> {
        let mut reader = Reader::new(self.streams);
        while !reader.is_empty() {
            let stream = AcknowledgedStream {
                origin: NodeId(reader.u64()?),
                incarnation: Incarnation(reader.u64()?),
                stream: StreamId(reader.u16()?),
            };
            let mut before: u64 = 0;
            for _ in 0..reader.varint()? {
                let (gap, more) = (reader.varint()?, reader.varint()?);
                let range = before
                    .checked_add(gap)
                    .and_then(|first| Some(first..=first.checked_add(more)?));
                let range = range.ok_or(WireError::Value {
                    field: "acknowledged range",
                    value: gap,
                })?;
                before = *range.end();
                take(stream, range);
            }
        }
        Ok(())
    }
}

fn put_numbered(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.push(kind);
    put_varint(out, number);
}

/// A version that may be missing, as 0 or the version plus one.
fn put_version(out: &mut Vec<u8>, version: Option<u64>) {
    put_varint(out, version.map_or(0, |version| version.saturating_add(1)));
}

fn version(reader: &mut Reader<'_>) -> Result<Option<u64>, WireError> {
    Ok(reader.varint()?.checked_sub(1))
}

fn boolean(reader: &mut Reader<'_>, field: &'static str) -> Result<bool, WireError> {
    match reader.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(WireError::Value {
            field,
            value: other.into(),
        }),
    }
}

fn unknown_kind(kind: u8) -> WireError {
    WireError::Value {
        field: "message kind",
        value: kind.into(),
    }
}

#[cfg(test)]
mod tests;
