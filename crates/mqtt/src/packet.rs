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

impl Packet<'_> {
    /// The packet's type.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        match self {
            Self::Connect(_) => PacketKind::Connect,
            Self::Connack(_) => PacketKind::Connack,
            Self::Publish(_) => PacketKind::Publish,
            Self::Puback(_) => PacketKind::Puback,
            Self::Pubrec(_) => PacketKind::Pubrec,
            Self::Pubrel(_) => PacketKind::Pubrel,
            Self::Pubcomp(_) => PacketKind::Pubcomp,
            Self::Subscribe(_) => PacketKind::Subscribe,
            Self::Suback(_) => PacketKind::Suback,
            Self::Unsubscribe(_) => PacketKind::Unsubscribe,
            Self::Unsuback(_) => PacketKind::Unsuback,
            Self::Pingreq => PacketKind::Pingreq,
            Self::Pingresp => PacketKind::Pingresp,
            Self::Disconnect(_) => PacketKind::Disconnect,
            Self::Auth(_) => PacketKind::Auth,
        }
    }
}

impl PacketKind {
    /// The type in the high four bits of a packet's first byte, `None` for the reserved 0.
    #[must_use]
    pub const fn from_first_byte(byte: u8) -> Option<Self> {
        Some(match byte >> 4 {
            1 => Self::Connect,
            2 => Self::Connack,
            3 => Self::Publish,
            4 => Self::Puback,
            5 => Self::Pubrec,
            6 => Self::Pubrel,
            7 => Self::Pubcomp,
            8 => Self::Subscribe,
            9 => Self::Suback,
            10 => Self::Unsubscribe,
            11 => Self::Unsuback,
            12 => Self::Pingreq,
            13 => Self::Pingresp,
            14 => Self::Disconnect,
            15 => Self::Auth,
            _ => return None,
        })
    }

    /// The flags that the low four bits must hold [MQTT-2.1.3-1]; those of a PUBLISH say more and are not these.
    #[must_use]
    pub const fn flags(self) -> u8 {
        match self {
            Self::Pubrel | Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    /// Whether a server may send it to a client.
    #[must_use]
    pub const fn is_sent_by_server(self) -> bool {
        !matches!(
            self,
            Self::Connect | Self::Subscribe | Self::Unsubscribe | Self::Pingreq
        )
    }

    /// Whether a client may send it to a server.
    #[must_use]
    pub const fn is_sent_by_client(self) -> bool {
        !matches!(
            self,
            Self::Connack | Self::Suback | Self::Unsuback | Self::Pingresp
        )
    }
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

impl<'a> Connect<'a> {
    /// A CONNECT with clean start, a keep alive of 60 seconds, and everything else absent.
    #[must_use]
    pub const fn new(version: ProtocolVersion, client_id: &'a str) -> Self {
        Self {
            version,
            bridge: false,
            clean_start: true,
            keep_alive: 60,
            client_id,
            will: None,
            login: Login {
                user_name: None,
                password: None,
            },
            session_expiry_interval: None,
            receive_maximum: None,
            maximum_packet_size: None,
            topic_alias_maximum: 0,
            request_response_information: false,
            request_problem_information: true,
            authentication_method: None,
            authentication_data: None,
            user_properties: Vec::new(),
        }
    }
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
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

impl<'a> Will<'a> {
    /// A will of QoS 0 without flags and properties.
    #[must_use]
    pub fn new(topic: &'a str, payload: &'a [u8]) -> Self {
        Self {
            topic,
            payload,
            ..Self::default()
        }
    }
}

/// Answer to a CONNECT. The default is a plain acceptance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(
    missing_docs,
    reason = "the names are the specification's; `None` is absent; intervals are in seconds"
)]
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

impl Connack<'_> {
    /// A CONNACK with nothing but a code: an acceptance of a new session, or a refusal.
    #[must_use]
    pub fn new(reason_code: ReasonCode) -> Self {
        Self {
            reason_code,
            ..Self::default()
        }
    }
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
        Self {
            packet_id,
            reason_code,
            reason_string: None,
            user_properties: Vec::new(),
        }
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

impl<'a> Subscribe<'a> {
    /// A SUBSCRIBE to one filter, with default options but for the QoS; more can be pushed to `filters`.
    #[must_use]
    pub fn new(packet_id: PacketId, filter: &'a str, qos: Qos) -> Self {
        let options = SubscriptionOptions {
            qos,
            ..SubscriptionOptions::default()
        };
        Self {
            packet_id,
            subscription_identifier: None,
            user_properties: Vec::new(),
            filters: vec![SubscribeFilter { filter, options }],
        }
    }
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

impl Suback<'_> {
    /// A SUBACK with nothing but codes.
    #[must_use]
    pub const fn new(packet_id: PacketId, reason_codes: Vec<ReasonCode>) -> Self {
        Self {
            packet_id,
            reason_codes,
            reason_string: None,
            user_properties: Vec::new(),
        }
    }
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

impl<'a> Unsubscribe<'a> {
    /// An UNSUBSCRIBE from `filters`.
    #[must_use]
    pub const fn new(packet_id: PacketId, filters: Vec<&'a str>) -> Self {
        Self {
            packet_id,
            user_properties: Vec::new(),
            filters,
        }
    }
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

impl Unsuback<'_> {
    /// An UNSUBACK with nothing but codes.
    #[must_use]
    pub const fn new(packet_id: PacketId, reason_codes: Vec<ReasonCode>) -> Self {
        Self {
            packet_id,
            reason_codes,
            reason_string: None,
            user_properties: Vec::new(),
        }
    }
}

/// The last packet of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

impl Disconnect<'_> {
    /// A DISCONNECT with nothing but a code.
    #[must_use]
    pub fn new(reason_code: ReasonCode) -> Self {
        Self {
            reason_code,
            ..Self::default()
        }
    }
}

/// A step of enhanced authentication (5.0).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Auth<'a> {
    /// `Success`, `ContinueAuthentication` or `ReAuthenticate`.
    pub reason_code: ReasonCode,
    /// Authentication Method; may be absent only where nothing but `Success` is said.
    pub authentication_method: Option<&'a str>,
    /// Authentication Data.
    pub authentication_data: Option<&'a [u8]>,
    /// Reason String.
    pub reason_string: Option<&'a str>,
    /// User properties.
    pub user_properties: UserProperties<'a>,
}
