//! PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT and AUTH: a reason code and why.

use crate::{PacketId, PacketKind, ReasonCode, UserProperties};

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

/// The packets that acknowledge a PUBLISH, or a step of QoS 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum AcknowledgementKind {
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
}

impl AcknowledgementKind {
    /// The type of the packet.
    #[must_use]
    pub const fn packet(self) -> PacketKind {
        match self {
            Self::Puback => PacketKind::Puback,
            Self::Pubrec => PacketKind::Pubrec,
            Self::Pubrel => PacketKind::Pubrel,
            Self::Pubcomp => PacketKind::Pubcomp,
        }
    }
}
