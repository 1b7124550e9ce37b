//! PUBLISH and the properties that travel with an application message.

use crate::{PacketId, Qos};

/// An application message on its way in or out. Borrowed: decoding one allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// DUP.
    pub dup: bool,
    /// QoS.
    pub qos: Qos,
    /// RETAIN.
    pub retain: bool,
    /// Topic name without wildcards; empty only when `topic_alias` names it (5.0).
    pub topic: &'a str,
    /// Packet identifier: there exactly for QoS 1 and 2.
    pub packet_id: Option<PacketId>,
    /// Topic Alias (5.0), never 0.
    pub topic_alias: Option<u16>,
    /// Message Expiry Interval in seconds (5.0).
    pub message_expiry_interval: Option<u32>,
    /// Subscription Identifiers (5.0): what a server sends; decoding yields them only for a client (see `decode`).
    pub subscription_identifiers: &'a [u32],
    /// The properties that are passed on as they are (5.0).
    pub properties: ApplicationProperties<'a>,
    /// Payload.
    pub payload: &'a [u8],
}

/// The properties of a message that a server passes on unaltered and in order [MQTT-3.3.2-17]: Payload Format Indicator,
/// Content Type, Response Topic, Correlation Data and User Properties, as encoded bytes, checked once on arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ApplicationProperties<'a> {
    pub(crate) raw: &'a [u8],
    pub(crate) len: u32,
}

/// One application property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum ApplicationProperty<'a> {
    PayloadFormatIndicator(u8),
    ContentType(&'a str),
    ResponseTopic(&'a str),
    CorrelationData(&'a [u8]),
    UserProperty(&'a str, &'a str),
}
