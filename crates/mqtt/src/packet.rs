//! All packets but PUBLISH, borrowed from the bytes they were read from.

use crate::{PacketId, ProtocolVersion, Publish, Qos, ReasonCode, RetainHandling};

/// User properties in the order they came [MQTT-3.3.2-18].
pub type UserProperties<'a> = Vec<(&'a str, &'a str)>;

/// Any packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum Packet<'a> {
    Connect(Box<Connect<'a>>),
    Connack(Box<Connack<'a>>),
    Publish(Publish<'a>),
    Puback(Acknowledgement<'a>),
    Pubrec(Acknowledgement<'a>),
    Pubrel(Acknowledgement<'a>),
    Pubcomp(Acknowledgement<'a>),
    Subscribe(Subscribe<'a>),
    Suback(Suback<'a>),
    Unsubscribe(Unsubscribe<'a>),
    Unsuback(Unsuback<'a>),
    Pingreq,
    Pingresp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}

/// The type of a packet: the high four bits of its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum PacketKind {
    Connect = 1,
    Connack = 2,
    Publish = 3,
    Puback = 4,
    Pubrec = 5,
    Pubrel = 6,
    Pubcomp = 7,
    Subscribe = 8,
    Suback = 9,
    Unsubscribe = 10,
    Unsuback = 11,
    Pingreq = 12,
    Pingresp = 13,
    Disconnect = 14,
    Auth = 15,
}

/// A client asks for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect<'a> {
    /// Protocol version.
    pub version: ProtocolVersion,
    /// Bit 7 of the protocol level of a 3.1.1 CONNECT: set by bridges of other brokers (0x84); kept, not acted on here.
    pub bridge: bool,
    /// Clean Start, called Clean Session before 5.0.
    pub clean_start: bool,
    /// Keep Alive in seconds, 0: off.
    pub keep_alive: u16,
    /// Client identifier, may be empty.
    pub client_id: &'a str,
    /// Will message.
    pub will: Option<Will<'a>>,
    /// User name and password.
    pub login: Login<'a>,
    /// Session Expiry Interval in seconds, `None` when absent (5.0).
    pub session_expiry_interval: Option<u32>,
    /// Receive Maximum, never 0 (5.0).
    pub receive_maximum: Option<u16>,
    /// Maximum Packet Size, never 0 (5.0).
    pub maximum_packet_size: Option<u32>,
    /// Topic Alias Maximum (5.0), 0 when absent.
    pub topic_alias_maximum: u16,
    /// Request Response Information (5.0), false when absent.
    pub request_response_information: bool,
    /// Request Problem Information (5.0), true when absent.
    pub request_problem_information: bool,
    /// Authentication Method (5.0).
    pub authentication_method: Option<&'a str>,
    /// Authentication Data (5.0); an error without a method.
    pub authentication_data: Option<&'a [u8]>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
}

/// User name and password of a CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Login<'a> {
    /// User name.
    pub user_name: Option<&'a str>,
    /// Password: bytes, not text.
    pub password: Option<&'a [u8]>,
}

/// The will of a CONNECT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Will<'a> {
    /// Will topic: a checked topic name.
    pub topic: &'a str,
    /// Will payload.
    pub payload: &'a [u8],
    /// Will QoS.
    pub qos: Qos,
    /// Will retain.
    pub retain: bool,
    /// Will Delay Interval in seconds (5.0), 0 when absent.
    pub delay_interval: u32,
    /// Message Expiry Interval in seconds (5.0).
    pub message_expiry_interval: Option<u32>,
    /// The will properties that travel with the published will (5.0).
    pub properties: crate::ApplicationProperties<'a>,
}

/// Answer to a CONNECT. The default is a plain acceptance.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the specification's; `None` is absent; intervals are in seconds")]
pub struct Connack<'a> {
    pub session_present: bool,
    pub reason_code: ReasonCode,
    pub session_expiry_interval: Option<u32>,
    pub receive_maximum: Option<u16>,
    pub maximum_qos: Option<Qos>,
    pub retain_available: Option<bool>,
    pub maximum_packet_size: Option<u32>,
    pub assigned_client_identifier: Option<&'a str>,
    pub topic_alias_maximum: Option<u16>,
    pub reason_string: Option<&'a str>,
    pub user_properties: UserProperties<'a>,
    pub wildcard_subscription_available: Option<bool>,
    pub subscription_identifiers_available: Option<bool>,
    pub shared_subscription_available: Option<bool>,
    pub server_keep_alive: Option<u16>,
    pub response_information: Option<&'a str>,
    pub server_reference: Option<&'a str>,
    pub authentication_method: Option<&'a str>,
    pub authentication_data: Option<&'a [u8]>,
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledgement<'a> {
    /// Identifier of the PUBLISH.
    pub packet_id: PacketId,
    /// Reason code; `Success` before 5.0.
    pub reason_code: ReasonCode,
    /// Reason String (5.0).
    pub reason_string: Option<&'a str>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
}

impl Acknowledgement<'_> {
    /// An acknowledgement with nothing but a code.
    #[must_use]
    pub const fn new(packet_id: PacketId, reason_code: ReasonCode) -> Self {
        Self { packet_id, reason_code, reason_string: None, user_properties: Vec::new() }
    }
}

/// Subscription options of one filter (5.0, 3.8.3.1); before 5.0 only the QoS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionOptions {
    /// Maximum QoS.
    pub qos: Qos,
    /// No Local.
    pub no_local: bool,
    /// Retain As Published.
    pub retain_as_published: bool,
    /// Retain Handling.
    pub retain_handling: RetainHandling,
}

/// One filter of a SUBSCRIBE: a UTF-8 string; whether it is a valid filter the session says, filter by filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscribeFilter<'a> {
    /// The filter's text, as sent.
    pub filter: &'a str,
    /// Its options.
    pub options: SubscriptionOptions,
}

/// Subscribes to filters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Identifier to answer with.
    pub packet_id: PacketId,
    /// Subscription Identifier (5.0), 1 to 268,435,455.
    pub subscription_identifier: Option<u32>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
    /// At least one filter [MQTT-3.8.3-2].
    pub filters: Vec<SubscribeFilter<'a>>,
}

/// Answer to a SUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suback<'a> {
    /// The request's identifier.
    pub packet_id: PacketId,
    /// One code a filter, in order; before 5.0 every error becomes 0x80.
    pub reason_codes: Vec<ReasonCode>,
    /// Reason String (5.0).
    pub reason_string: Option<&'a str>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
}

/// Ends subscriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Identifier to answer with.
    pub packet_id: PacketId,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
    /// At least one filter.
    pub filters: Vec<&'a str>,
}

/// Answer to an UNSUBSCRIBE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsuback<'a> {
    /// The request's identifier.
    pub packet_id: PacketId,
    /// One code a filter, in order; not sent before 5.0 (decoded as empty there).
    pub reason_codes: Vec<ReasonCode>,
    /// Reason String (5.0).
    pub reason_string: Option<&'a str>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
}

/// The last packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// Reason code; `Success` before 5.0.
    pub reason_code: ReasonCode,
    /// Session Expiry Interval in seconds (5.0, client only).
    pub session_expiry_interval: Option<u32>,
    /// Reason String (5.0).
    pub reason_string: Option<&'a str>,
    /// Server Reference (5.0, server only).
    pub server_reference: Option<&'a str>,
    /// User properties (5.0).
    pub user_properties: UserProperties<'a>,
}

/// A step of enhanced authentication (5.0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth<'a> {
    /// `Success`, `ContinueAuthentication` or `ReAuthenticate`.
    pub reason_code: ReasonCode,
    /// Authentication Method.
    pub authentication_method: Option<&'a str>,
    /// Authentication Data.
    pub authentication_data: Option<&'a [u8]>,
    /// Reason String.
    pub reason_string: Option<&'a str>,
    /// User properties.
    pub user_properties: UserProperties<'a>,
}
