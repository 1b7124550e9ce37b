//! The entries of a record, read.

use thicket_mqtt::{ApplicationProperties, PacketId, Publish, Qos};

use super::{
    Append, AppendRun, JournalEntry, JournalError, JournalFormat, MAXIMUM_RUN, PlainAppend,
    StoredMessage, flag, tag,
};
use crate::{
    server::{Epoch, FinishedRange, Generations, InboundId, MessageId, MessageStream, Publication},
    time::Timeline,
};

/// The entries of a record in order. Ends after the first error.
#[derive(Debug, Clone)]
pub struct JournalEntries<'a> {
    times: Timeline,
    rest: &'a [u8],
    origin: MessageStream,
}

impl<'a> JournalEntries<'a> {
    /// Of a whole record. `times_of_day`: the clocks of the reader.
    ///
    /// # Errors
    /// [`JournalError::Version`] for a record of another format; [`JournalError::Malformed`] for an
    /// empty one.
    pub fn new(times_of_day: Timeline, record: &'a [u8]) -> Result<Self, JournalError> {
        let (format, rest) = record
            .split_first()
            .ok_or(JournalError::Malformed("version"))?;
        let format = JournalFormat::of(*format).ok_or(JournalError::Version(*format))?;
        let mut entries = Self {
            times: times_of_day,
            rest,
            origin: MessageStream::default(),
        };
        if format == JournalFormat::Sent {
            let sent_at = u64::from_le_bytes(entries.array("sent at")?);
            entries.times = times_of_day.with(sent_at);
        }
        Ok(entries)
    }

    /// How its times are read.
    #[must_use]
    pub const fn times(&self) -> Timeline {
        self.times
    }

    fn entry(&mut self) -> Result<JournalEntry<'a>, JournalError> {
        match self.u8("tag")? {
            tag::MESSAGE => {
                let message = Box::new(self.message()?);
                Ok(JournalEntry::Message(message))
            }
            tag::APPEND => self.append().map(JournalEntry::Append),
            tag::ASSIGN => Ok(JournalEntry::Assign {
                session: self.varint("session")?,
                sequence: self.varint("sequence")?,
                packet_id: self.packet_id()?,
            }),
            tag::DONE => Ok(JournalEntry::Done {
                session: self.varint("session")?,
                packet_id: self.packet_id()?,
                count: self.small("count")?,
            }),
            tag::RECEIVED => Ok(JournalEntry::Received {
                session: self.varint("session")?,
                sequence: self.sequence()?,
                packet_id: self.packet_id()?,
            }),
            tag::DROPPED => Ok(JournalEntry::Dropped {
                session: self.varint("session")?,
                sequence: self.varint("sequence")?,
            }),
            tag::INBOUND => Ok(JournalEntry::Inbound {
                session: self.varint("session")?,
                id: InboundId::new(
                    self.packet_id()?,
                    self.small("generation")?,
                    self.u8("inbound state")?,
                ),
            }),
            tag::RELEASED => Ok(JournalEntry::Released {
                session: self.varint("session")?,
                packet_id: self.packet_id()?,
            }),
            tag::SESSION => Ok(JournalEntry::Session {
                session: self.varint("session")?,
                next_sequence: self.varint("next sequence")?,
                next_packet_id: self.packet_id()?,
                inbound_generation: self.small("generation")?,
            }),
            tag::SEEN => {
                let (uid, generations) = self.generations()?;
                Ok(JournalEntry::Seen { uid, generations })
            }
            tag::NOTED => Ok(JournalEntry::Noted {
                publication: self.publication()?,
                checksum: u16::from_le_bytes(self.array("checksum")?),
            }),
            tag::VALUE => Ok(JournalEntry::Value {
                session: self.varint("session")?,
                value: self.bytes("value")?,
            }),
            tag::FILTER => {
                let session = self.varint("session")?;
                match self.u8("subscription")? {
                    0 => Ok(JournalEntry::Unsubscribed {
                        session,
                        filter: self.text("filter")?,
                    }),
                    _ => Ok(JournalEntry::Subscribed {
                        session,
                        value: self.bytes("subscription")?,
                    }),
                }
            }
            tag::ENDED => Ok(JournalEntry::Ended {
                session: self.varint("session")?,
            }),
            tag::WHOLE => Ok(JournalEntry::Whole {
                session: self.varint("session")?,
            }),
            tag::COVERED => Ok(JournalEntry::Covered {
                session: self.varint("session")?,
            }),
            tag::HANDED => Ok(JournalEntry::Handed {
                session: self.varint("session")?,
            }),
            tag::HISTORY => Ok(JournalEntry::History {
                session: self.varint("session")?,
                value: self.bytes("history")?,
            }),
            tag::MEMBERS => {
                let session = self.varint("session")?;
                let mut nodes = Vec::new();
                for _ in 0..self.varint("members")? {
                    nodes.push(u64::from_le_bytes(self.array("member")?));
                }
                Ok(JournalEntry::Members { session, nodes })
            }
            tag::ADOPTED => Ok(JournalEntry::Adopted {
                session: self.varint("session")?,
                uid: u128::from_le_bytes(self.array("uid")?),
                epoch: Epoch::from_bits(u64::from_le_bytes(self.array("epoch")?)),
            }),
            tag::LEFT => Ok(JournalEntry::Left {
                session: self.varint("session")?,
            }),
            tag::TAKEN => {
                let session = self.varint("session")?;
                let (uid, generations) = self.generations()?;
                Ok(JournalEntry::Accepted {
                    session,
                    uid,
                    generations,
                })
            }
            tag::RUN => self.run().map(JournalEntry::Run),
            tag::FINISHED => {
                let session = self.varint("session")?;
                let (first, count) = (self.reference()?, self.varint("count")?);
                let group = self.text("group")?;
                let group = (!group.is_empty()).then(|| group.into());
                let range = Box::new(FinishedRange {
                    first,
                    count,
                    group,
                });
                Ok(JournalEntry::Finished { session, range })
            }
            tag::FORGOTTEN => Ok(JournalEntry::Forgotten {
                session: self.varint("session")?,
            }),
            tag::TOUCHED => Ok(JournalEntry::Touched {
                session: self.varint("session")?,
                filter: self.text("filter")?,
            }),
            tag::PASSED => Ok(JournalEntry::Passed {
                session: self.varint("session")?,
                message: self.reference()?,
            }),
            _ => Err(JournalError::Malformed("tag")),
        }
    }

    fn generations(&mut self) -> Result<(u128, Box<Generations>), JournalError> {
        let uid = u128::from_le_bytes(self.array("uid")?);
        let generations = Generations::decode(self.rest);
        let (generations, rest) = generations.ok_or(JournalError::Malformed("generations"))?;
        self.rest = rest;
        Ok((uid, Box::new(generations)))
    }

    fn reference(&mut self) -> Result<MessageId, JournalError> {
        let is_new_origin = self.u8("reference")? != 0;
        self.message_id(is_new_origin)
    }

    fn message_id(&mut self, is_new_origin: bool) -> Result<MessageId, JournalError> {
        if is_new_origin {
            self.origin = MessageStream {
                node: u64::from_le_bytes(self.array("node")?),
                incarnation: u64::from_le_bytes(self.array("incarnation")?),
                stream: self.u8("stream")?,
            };
        }
        let MessageStream {
            node,
            incarnation,
            stream,
        } = self.origin;
        Ok(MessageId {
            node,
            incarnation,
            stream,
            number: self.varint("number")?,
        })
    }

    fn publication(&mut self) -> Result<Publication, JournalError> {
        Ok((
            u128::from_le_bytes(self.array("publisher")?),
            u16::from_le_bytes(self.array("publication")?),
            u32::from_le_bytes(self.array("generation")?),
        ))
    }

    fn message(&mut self) -> Result<StoredMessage<'a>, JournalError> {
        let flags = self.u8("message flags")?;
        let name = match flags & flag::NAME {
            0 => 0,
            _ => self.varint("name")?,
        };
        let id = self.message_id(flags & flag::ORIGIN != 0)?;
        let expires_at = match flags & flag::EXPIRY {
            0 => None,
            _ => {
                let millis = u64::from_le_bytes(self.array("expiry")?);
                Some(self.times.instant_of(millis))
            }
        };
        let publication = match flags & flag::PUBLICATION {
            0 => None,
            _ => Some(self.publication()?),
        };
        let topic = self.text("topic")?;
        let properties = ApplicationProperties::from_encoded(self.bytes("properties")?)
            .map_err(|_| JournalError::Malformed("properties"))?;
        let publish = Publish {
            qos: qos(flags)?,
            retain: flags & flag::RETAIN != 0,
            properties,
            ..Publish::new(topic, self.bytes("payload")?)
        };
        Ok(StoredMessage {
            name,
            id,
            expires_at,
            publication,
            publish,
        })
    }

    fn append(&mut self) -> Result<Append<'a>, JournalError> {
        let session = self.varint("session")?;
        let sequence = self.sequence()?;
        let flags = self.u8("append flags")?;
        let message = match flags & flag::NAME {
            0 => 0,
            _ => self.varint("name")?,
        };
        let reference = match flags & flag::REFERENCE {
            0 => None,
            _ => Some(self.reference()?),
        };
        let packet_id = match flags & flag::PACKET_ID {
            0 => None,
            _ => Some(self.packet_id()?),
        };
        let mut identifiers = Vec::new();
        if flags & flag::IDENTIFIERS != 0 {
            for _ in 0..self.varint("identifiers")? {
                identifiers.push(self.small("identifier")?);
            }
        }
        let group = match flags & flag::GROUP {
            0 => None,
            _ => Some(self.text("group")?),
        };
        Ok(Append {
            session,
            sequence,
            message,
            reference,
            qos: qos(flags)?,
            retain: flags & flag::RETAIN != 0,
            packet_id,
            identifiers,
            group,
        })
    }

    fn run(&mut self) -> Result<AppendRun, JournalError> {
        let session = self.varint("session")?;
        let sequence = self.varint("sequence")?;
        let flags = self.u8("run flags")?;
        let first = PlainAppend {
            session,
            sequence,
            reference: self.reference()?,
            qos: qos(flags)?,
            retain: flags & flag::RETAIN != 0,
            packet_id: match flags & flag::PACKET_ID {
                0 => None,
                _ => Some(self.packet_id()?),
            },
        };
        let count = u16::from_le_bytes(self.array("count")?);
        let last = u64::from(count.saturating_sub(1));
        let is_countable = (1..=MAXIMUM_RUN).contains(&count)
            && first.sequence.checked_add(last + 1).is_some()
            && first.reference.number.checked_add(last + 1).is_some();
        if is_countable {
            Ok(AppendRun { first, count })
        } else {
            Err(JournalError::Malformed("count"))
        }
    }

    /// A sequence that can have a successor.
    fn sequence(&mut self) -> Result<u64, JournalError> {
        match self.varint("sequence")? {
            u64::MAX => Err(JournalError::Malformed("sequence")),
            sequence => Ok(sequence),
        }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], JournalError> {
        let (array, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(JournalError::Malformed(field))?;
        self.rest = rest;
        Ok(*array)
    }

    fn u8(&mut self, field: &'static str) -> Result<u8, JournalError> {
        self.array::<1>(field).map(|[byte]| byte)
    }

    fn varint(&mut self, field: &'static str) -> Result<u64, JournalError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(field)?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(JournalError::Malformed(field))
    }

    fn small<T: TryFrom<u64>>(&mut self, field: &'static str) -> Result<T, JournalError> {
        T::try_from(self.varint(field)?).map_err(|_| JournalError::Malformed(field))
    }

    fn packet_id(&mut self) -> Result<PacketId, JournalError> {
        PacketId::new(u16::from_le_bytes(self.array("packet identifier")?))
            .ok_or(JournalError::Malformed("packet identifier"))
    }

    fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], JournalError> {
        let len: usize = self.small(field)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(JournalError::Malformed(field))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn text(&mut self, field: &'static str) -> Result<&'a str, JournalError> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| JournalError::Malformed(field))
    }
}

impl<'a> Iterator for JournalEntries<'a> {
    type Item = Result<JournalEntry<'a>, JournalError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.rest = &[];
        }
        Some(entry)
    }
}

fn qos(flags: u8) -> Result<Qos, JournalError> {
    Qos::from_bits(flags & flag::QOS).ok_or(JournalError::Malformed("QoS"))
}
