//! An application message that has to wait: queued, or sent and not yet acknowledged.

use std::cell::Cell;

use thicket_mqtt::{ApplicationProperties, Publish, Qos};

use crate::time::Instant;

/// Identifies a QoS 2 publication: the publisher's session, the packet identifier, the generation.
pub type Publication = (u128, u16, u32);

/// Where a message came from and its number there: equal wherever the message is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MessageId {
    /// Identity of the node that accepted it from its publisher.
    pub node: u64,
    /// Incarnation of that node.
    pub incarnation: u64,
    /// Worker of that node; see [`MessageId::unsent`].
    pub stream: u8,
    /// Rising in the stream; 0 for a message that was never numbered.
    pub number: u64,
}

/// A stream of messages: those that one worker of a node accepts from its publishers, as long as its process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MessageStream {
    /// Identity of the node.
    pub node: u64,
    /// Incarnation of that node.
    pub incarnation: u64,
    /// Worker of that node; see [`MessageId::unsent`].
    pub stream: u8,
}

impl MessageStream {
    /// The message with this number.
    #[must_use]
    pub const fn number(self, number: u64) -> MessageId {
        MessageId {
            node: self.node,
            incarnation: self.incarnation,
            stream: self.stream,
            number,
        }
    }
}

/// Streams of messages that were sent nowhere else: a node has at most this many workers.
const UNSENT: u8 = 128;

impl MessageId {
    /// The identity of a message that only sessions of this worker accept: backups of these sessions on other nodes receive it whole in the stream,
    /// and it never arrives there, or back, by itself. `number` rises from 1.
    #[must_use]
    pub const fn unsent(node: u64, incarnation: u64, worker: u8, number: u64) -> Self {
        Self {
            node,
            incarnation,
            stream: worker | UNSENT,
            number,
        }
    }

    /// The stream it is of.
    #[must_use]
    pub const fn stream_id(&self) -> MessageStream {
        MessageStream {
            node: self.node,
            incarnation: self.incarnation,
            stream: self.stream,
        }
    }

    /// Whether the message may arrive at other places too, under this identity.
    #[must_use]
    pub const fn is_sent(&self) -> bool {
        self.number > 0 && self.stream < UNSENT
    }
}

/// An application message held in memory, immutable and shared by all sessions that wait for it. A short one is a single allocation.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    id: MessageId,
    qos: Qos,
    retain: bool,
    expires_at: Option<Instant>,
    publication: PublicationName,
    topic_len: u32,
    properties_len: u32,
    content: Content,
    stored: StoredName,
}

/// Bytes of content that lie in the message itself.
const SHORT: usize = 94;

/// Topic, properties and payload, back to back. Where messages come and go by the million, an allocation costs as much as all else.
#[derive(Debug)]
enum Content {
    Short { len: u8, bytes: [u8; SHORT] },
    Long(Box<[u8]>),
}

impl Content {
    fn new(publish: &Publish<'_>) -> Self {
        let (topic, properties) = (publish.topic.as_bytes(), publish.properties);
        let len = topic.len() + properties.encoded_len() + publish.payload.len();
        if len > SHORT || !properties.is_empty() {
            let mut content = Vec::with_capacity(len);
            content.extend_from_slice(topic);
            properties.write_to(&mut content);
            content.extend_from_slice(publish.payload);
            return Self::Long(content.into_boxed_slice());
        }
        let mut bytes = [0; SHORT];
        let (of_topic, rest) = bytes.split_at_mut(topic.len());
        of_topic.copy_from_slice(topic);
        rest[..publish.payload.len()].copy_from_slice(publish.payload);
        Self::Short {
            len: len as u8,
            bytes,
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Content {}

/// Where a store finds the message again; not part of the message, so it is ignored in comparisons.
#[derive(Debug, Default)]
struct StoredName(Cell<u64>);

impl PartialEq for StoredName {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for StoredName {}

/// Its publication, if it is one that may be sent again. As bytes, which need no alignment; 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PublicationName {
    session: [u8; 16],
    packet_id: u16,
    generation: u32,
}

impl Message {
    /// Copies what `publish` borrows. `expires_at` is its Message Expiry Interval as an instant.
    #[must_use]
    pub fn new(id: MessageId, publish: &Publish<'_>, expires_at: Option<Instant>) -> Self {
        let properties_len = publish.properties.encoded_len();
        Self {
            id,
            qos: publish.qos,
            retain: publish.retain,
            expires_at,
            publication: PublicationName::default(),
            topic_len: u32::try_from(publish.topic.len()).expect("a topic has at most 65535 bytes"),
            properties_len: u32::try_from(properties_len).expect("a packet has at most 2^28 bytes"),
            content: Content::new(publish),
            stored: StoredName::default(),
        }
    }

    /// The PUBLISH of it, without a Message Expiry Interval.
    #[must_use]
    #[inline]
    pub fn publish(&self) -> Publish<'_> {
        Publish {
            qos: self.qos(),
            retain: self.retain(),
            properties: self.properties(),
            ..Publish::new(self.topic(), self.payload())
        }
    }

    /// The same with its publication: a backup of the session that receives it recognises it when it is sent again.
    #[must_use]
    pub fn with_publication(mut self, publication: Option<Publication>) -> Self {
        if let Some((session, packet_id, generation)) = publication {
            self.publication = PublicationName {
                session: session.to_le_bytes(),
                packet_id,
                generation,
            };
        }
        self
    }

    /// Its publication, if that may be sent again and it was accepted where it is held.
    #[must_use]
    pub fn publication(&self) -> Option<Publication> {
        let PublicationName {
            session,
            packet_id,
            generation,
        } = self.publication;
        (packet_id > 0).then(|| (u128::from_le_bytes(session), packet_id, generation))
    }

    /// The name a store gave it, 0 before it gave one.
    #[must_use]
    pub const fn stored_name(&self) -> u64 {
        self.stored.0.get()
    }

    /// The store gives it a name.
    pub fn set_stored_name(&self, name: u64) {
        self.stored.0.set(name);
    }

    /// Its identity.
    #[must_use]
    pub const fn id(&self) -> MessageId {
        self.id
    }

    /// QoS it was published with.
    #[must_use]
    pub const fn qos(&self) -> Qos {
        self.qos
    }

    /// RETAIN as published.
    #[must_use]
    pub const fn retain(&self) -> bool {
        self.retain
    }

    /// When it is no longer worth delivering.
    #[must_use]
    pub const fn expires_at(&self) -> Option<Instant> {
        self.expires_at
    }

    /// Whether its expiry has passed at `now`.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Seconds of expiry left at `now`, see [`seconds_left`].
    #[must_use]
    pub fn expiry_left(&self, now: Instant) -> Option<u32> {
        self.expires_at.map(|at| seconds_left(at, now))
    }

    /// Whether it is a message at all: one that stands for another has no topic.
    #[must_use]
    pub const fn has_topic(&self) -> bool {
        self.topic_len > 0
    }

    /// Topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        std::str::from_utf8(&self.content.as_slice()[..self.topic_len as usize])
            .expect("copied from a str")
    }

    /// The properties that are passed on unaltered.
    #[must_use]
    pub fn properties(&self) -> ApplicationProperties<'_> {
        let range = self.topic_len as usize..(self.topic_len + self.properties_len) as usize;
        ApplicationProperties::from_encoded(&self.content.as_slice()[range])
            .expect("written by write_to")
    }

    /// Payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.content.as_slice()[(self.topic_len + self.properties_len) as usize..]
    }

    /// What it counts towards a queue's bound, bytes.
    #[must_use]
    pub fn cost(&self) -> u64 {
        Self::cost_of(self.content.as_slice().len())
    }

    /// The same for a message that is not made yet: bytes of its topic, properties and payload.
    #[must_use]
    pub const fn cost_of(content_len: usize) -> u64 {
        let beside = if content_len > SHORT { content_len } else { 0 };
        (beside + size_of::<Self>()) as u64
    }
}

/// The Message Expiry Interval to send at `now` with a message that expires at `expires_at`, rounded up: what is under way is
/// never sent with 0 while it has time left [MQTT-3.3.2-6].
#[must_use]
pub fn seconds_left(expires_at: Instant, now: Instant) -> u32 {
    let left_ms = expires_at.as_millis().saturating_sub(now.as_millis());
    u32::try_from(left_ms.div_ceil(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_read_as_it_was_given_whether_it_lies_in_the_message_or_beside_it() {
        let content_type = [3, 0, 1, b'x'];
        let with = ApplicationProperties::from_encoded(&content_type).expect("a content type");
        for (topic, properties, payload_len) in [
            ("a", ApplicationProperties::default(), 0),
            ("a/b", ApplicationProperties::default(), SHORT - 3),
            ("a/b", ApplicationProperties::default(), SHORT - 2),
            ("a/b", with, 5),
            ("a/b", with, 500),
        ] {
            let payload: Vec<u8> = (0..payload_len).map(|at| at as u8).collect();
            let publish = Publish {
                properties,
                ..Publish::new(topic, &payload)
            };
            let message = Message::new(MessageId::default(), &publish, None);
            let name = format!("{} of properties, {payload_len}", properties.encoded_len());
            assert_eq!(message.topic(), topic, "{name}");
            assert_eq!(message.properties(), properties, "{name}");
            assert_eq!(message.payload(), payload, "{name}");
            assert_eq!(
                message,
                Message::new(MessageId::default(), &publish, None),
                "{name}"
            );
        }
    }
}
