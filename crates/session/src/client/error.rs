//! What a client refuses, and what it reproaches a server with.

use thicket_mqtt::{DecodeError, EncodeError, PacketId, PacketKind, ReasonCode};

use super::ConnectionState;
use crate::topic::{SubscriptionFilterError, TopicNameError};

/// Why an operation was refused. Nothing was sent and no state has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Would block: as many messages are unacknowledged as the server or we allow [MQTT-4.9.0-2]. Try again after an
    /// acknowledgement.
    #[error("{maximum} messages are unacknowledged")]
    InflightFull {
        /// Messages allowed.
        maximum: u16,
    },
    /// Would block: the output has reached its bound. Try again when some of it is written.
    #[error("{bytes} bytes wait to be written")]
    OutputFull {
        /// Bytes waiting.
        bytes: usize,
    },
    /// Would block: all 65,535 packet identifiers are in use. Try again after an acknowledgement.
    #[error("all packet identifiers are in use")]
    PacketIdsExhausted,
    /// Refused: according to its CONNACK the server does not support this.
    #[error("server does not support it ({reason_code:?})")]
    NotSupported {
        /// What it would answer.
        reason_code: ReasonCode,
    },
    /// Refused: the packet is larger than the server accepts [MQTT-3.2.2-15].
    #[error("packet of {bytes} bytes is over the server's maximum {maximum}")]
    PacketTooLarge {
        /// Its length.
        bytes: usize,
        /// The server's maximum.
        maximum: u32,
    },
    /// Misuse: not in this state of the connection.
    #[error("not possible while {state:?}")]
    WrongState {
        /// The state.
        state: ConnectionState,
    },
    /// Misuse: the topic is no topic name.
    #[error(transparent)]
    TopicName(#[from] TopicNameError),
    /// Misuse: the filter is none.
    #[error(transparent)]
    Filter(#[from] SubscriptionFilterError),
    /// Misuse: No Local on a shared subscription [MQTT-3.8.3-4].
    #[error("no local on a shared subscription")]
    NoLocalOnShared,
    /// Misuse: packet identifier, DUP, topic alias and subscription identifiers of a PUBLISH are the client's business.
    #[error("publish sets a field that the client sets itself")]
    ReservedField,
    /// Misuse: AUTH without a method in the CONNECT [MQTT-4.12.0-7].
    #[error("no authentication method is configured")]
    NoAuthenticationMethod,
    /// Misuse: a DISCONNECT cannot make a session last that was to end with the connection (5.0, 3.14.2.2.2).
    #[error("session expiry interval was 0 in the connect")]
    SessionExpiryInterval,
    /// Misuse: no message with this identifier waits for an acknowledgement of ours.
    #[error("packet identifier {} waits for no acknowledgement", packet_id.value())]
    NotAwaitingAcknowledgement {
        /// The identifier.
        packet_id: PacketId,
    },
    /// Misuse: the properties of the configured will are wrong.
    #[error("will properties: {0}")]
    WillProperties(DecodeError),
    /// Misuse: the packet cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl ClientError {
    /// Whether the same call may succeed later on this connection.
    #[must_use]
    pub const fn is_would_block(&self) -> bool {
        matches!(
            self,
            Self::InflightFull { .. } | Self::OutputFull { .. } | Self::PacketIdsExhausted
        )
    }
}

/// Protocol: what a server did wrong. The connection is over; a 5.0 server was sent the reason code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Bytes that are no packet.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// A packet that a server does not send, or not in this state.
    #[error("{kind:?} came while {state:?}")]
    UnexpectedPacket {
        /// The packet.
        kind: PacketKind,
        /// The state.
        state: ConnectionState,
    },
    /// An acknowledgement that does not go with what was sent under its identifier.
    #[error("{kind:?} came for packet identifier {}, which waits for something else", packet_id.value())]
    UnexpectedAcknowledgement {
        /// The packet.
        kind: PacketKind,
        /// Its identifier.
        packet_id: PacketId,
    },
    /// SUBACK or UNSUBACK with more or fewer codes than there were filters [MQTT-3.8.4-6].
    #[error("{codes} reason codes came for {filters} filters")]
    ReasonCodeCount {
        /// Codes received.
        codes: usize,
        /// Filters that were sent.
        filters: usize,
    },
    /// More unacknowledged messages than our Receive Maximum allows [MQTT-3.3.4-9].
    #[error("more than {maximum} messages are unacknowledged")]
    ReceiveMaximumExceeded {
        /// Our Receive Maximum.
        maximum: u16,
    },
    /// An alias above our Topic Alias Maximum [MQTT-3.1.2-26].
    #[error("topic alias {alias} is above the maximum {maximum}")]
    TopicAliasInvalid {
        /// The alias.
        alias: u16,
        /// Our Topic Alias Maximum.
        maximum: u16,
    },
    /// An alias without a topic that stands for none yet (5.0, 3.3.2.3.4).
    #[error("topic alias {alias} stands for no topic")]
    TopicAliasUnknown {
        /// The alias.
        alias: u16,
    },
    /// The server reports a session although a clean start was requested [MQTT-3.2.2-2].
    #[error("session present after a clean start")]
    SessionPresentAfterCleanStart,
}

impl PeerError {
    /// The code of the DISCONNECT that answers.
    #[must_use]
    pub const fn reason_code(&self) -> ReasonCode {
        match self {
            Self::Malformed(error) => error.reason_code(),
            Self::ReceiveMaximumExceeded { .. } => ReasonCode::ReceiveMaximumExceeded,
            Self::TopicAliasInvalid { .. } => ReasonCode::TopicAliasInvalid,
            Self::UnexpectedPacket { .. }
            | Self::UnexpectedAcknowledgement { .. }
            | Self::ReasonCodeCount { .. }
            | Self::TopicAliasUnknown { .. }
            | Self::SessionPresentAfterCleanStart => ReasonCode::ProtocolError,
        }
    }
}
