//! CONNECT and CONNACK.

use crate::{ProtocolVersion, Qos, ReasonCode, UserProperties};

/// A client asks for a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect<'a> {
    /// Protocol version.
    pub version: ProtocolVersion,
    /// Bit 7 of the protocol level of a CONNECT before 5.0 (0x83, 0x84): set by bridges of other brokers, which then expect no echo of what
    /// they publish, and RETAIN as published.
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
