//! An application message that has to wait: queued, or sent and not yet acknowledged.

use std::cell::Cell;

use thicket_mqtt::{ApplicationProperties, Publish, Qos};

use crate::time::Instant;

/// Where a message came from and which one it was there: equal wherever the message is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MessageId {
    /// Identity of the node that took it from its publisher.
    pub node: u64,
    /// Incarnation of that node.
    pub incarnation: u64,
    /// Worker of that node.
    pub stream: u8,
    /// Rising in the stream; 0 for a message that was never numbered.
    pub number: u64,
}

/// An application message held in memory, immutable and shared by all sessions that wait for it. One allocation of content.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    id: MessageId,
    qos: Qos,
    retain: bool,
    expires_at: Option<Instant>,
    topic_len: u32,
    properties_len: u32,
    content: Box<[u8]>,
    stored: StoredName,
}

/// Where a store finds the message again; says nothing about the message, so it takes no part in comparisons.
#[derive(Debug, Default)]
struct StoredName(Cell<u64>);

impl PartialEq for StoredName {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for StoredName {}

impl Message {
    /// Copies what `publish` borrows. `expires_at` is its Message Expiry Interval as an instant.
    #[must_use]
    pub fn new(id: MessageId, publish: &Publish<'_>, expires_at: Option<Instant>) -> Self {
        let properties = publish.properties;
        let mut content = Vec::with_capacity(
            publish.topic.len() + properties.encoded_len() + publish.payload.len(),
        );
        content.extend_from_slice(publish.topic.as_bytes());
        properties.write_to(&mut content);
        let properties_len = content.len() - publish.topic.len();
        content.extend_from_slice(publish.payload);
        Self {
            id,
            qos: publish.qos,
            retain: publish.retain,
            expires_at,
            topic_len: u32::try_from(publish.topic.len()).expect("a topic has at most 65535 bytes"),
            properties_len: u32::try_from(properties_len).expect("a packet has at most 2^28 bytes"),
            content: content.into_boxed_slice(),
            stored: StoredName::default(),
        }
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

    /// Topic name.
    #[must_use]
    pub fn topic(&self) -> &str {
        std::str::from_utf8(&self.content[..self.topic_len as usize]).expect("copied from a str")
    }

    /// The properties that are passed on unaltered.
    #[must_use]
    pub fn properties(&self) -> ApplicationProperties<'_> {
        let range = self.topic_len as usize..(self.topic_len + self.properties_len) as usize;
        ApplicationProperties::from_encoded(&self.content[range]).expect("written by write_to")
    }

    /// Payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.content[(self.topic_len + self.properties_len) as usize..]
    }

    /// What it counts against a queue's bound, bytes.
    #[must_use]
    pub fn cost(&self) -> u64 {
        Self::cost_of(self.content.len())
    }

    /// The same for a message that is not made yet: bytes of its topic, properties and payload.
    #[must_use]
    pub const fn cost_of(content_len: usize) -> u64 {
        (content_len + size_of::<Self>()) as u64
    }
}

/// The Message Expiry Interval to send at `now` with a message that expires at `expires_at`, rounded up: what is under way is
/// never sent with 0 while it has time left [MQTT-3.3.2-6].
#[must_use]
pub fn seconds_left(expires_at: Instant, now: Instant) -> u32 {
    let left_ms = expires_at.as_millis().saturating_sub(now.as_millis());
    u32::try_from(left_ms.div_ceil(1000)).unwrap_or(u32::MAX)
}
