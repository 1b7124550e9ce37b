//! What can go wrong between packets and bytes.

use crate::{PacketKind, ProtocolVersion, ReasonCode};

/// Why bytes are no packet. Nothing was consumed; the stream cannot be read on, so the connection ends
/// [MQTT-4.13.1-1], after a CONNACK or DISCONNECT with [`reason_code`](Self::reason_code) where the version has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(
    missing_docs,
    reason = "the fields hold the offending value that the message prints"
)]
pub enum DecodeError {
    // Malformed: the bytes cannot be read according to the specification.
    /// Malformed: packet type 0, or AUTH before 5.0.
    #[error("packet type {packet_type} is reserved")]
    PacketTypeReserved { packet_type: u8 },
    /// Malformed: the flags of the fixed header are not the listed ones [MQTT-2.1.3-1].
    #[error("header flags {flags:#06b} are not those of {kind:?}")]
    HeaderFlagsInvalid { kind: PacketKind, flags: u8 },
    /// Malformed: a packet of fixed size claims another one.
    #[error("{kind:?} cannot have remaining length {remaining}")]
    RemainingLengthInvalid { kind: PacketKind, remaining: u32 },
    /// Malformed: a variable byte integer has more than four bytes (5.0, 1.5.5).
    #[error("variable byte integer has more than four bytes")]
    VariableByteIntegerTooLong,
    /// Malformed: a variable byte integer wastes bytes [MQTT-1.5.5-1].
    #[error("variable byte integer {value} is not in its shortest form")]
    VariableByteIntegerNotMinimal { value: u32 },
    /// Malformed: a field or list runs over the end of its packet or property section.
    #[error("field of {needed} bytes does not fit into the {left} left")]
    FieldPastEnd { needed: u32, left: u32 },
    /// Malformed: bytes are left where the packet should have ended.
    #[error("{count} bytes too many in {kind:?}")]
    TrailingBytes { kind: PacketKind, count: u32 },
    /// Malformed: a string is not well-formed UTF-8 [MQTT-1.5.4-1].
    #[error("string is not UTF-8 from byte {valid_up_to}")]
    StringNotUtf8 { valid_up_to: u32 },
    /// Malformed: a string contains U+0000 [MQTT-1.5.4-2].
    #[error("string contains U+0000")]
    StringContainsNull,
    /// Malformed: a topic, filter, client identifier or user name contains a control character, which the specification lets a
    /// receiver refuse (5.0 and 3.1.1, 1.5). We do: names end up in logs, terminals and access rules. Other text may have them.
    #[error("name contains the control character U+{code_point:04X}")]
    StringContainsControl { code_point: u32 },
    /// Malformed: both QoS bits of a PUBLISH are set [MQTT-3.3.1-4].
    #[error("publish has QoS 3")]
    PublishQosInvalid,
    /// Malformed: a PUBLISH of QoS 0 has DUP set [MQTT-3.3.1-2].
    #[error("publish of QoS 0 has DUP set")]
    DupWithoutQos,
    /// Malformed: the reserved bit of the connect flags is set [MQTT-3.1.2-3].
    #[error("reserved bit is set in connect flags {flags:#010b}")]
    ConnectFlagReserved { flags: u8 },
    /// Malformed: will QoS or will retain without a will [MQTT-3.1.2-11] [MQTT-3.1.2-13].
    #[error("connect flags {flags:#010b} describe a will but announce none")]
    WillFlagsWithoutWill { flags: u8 },
    /// Malformed: will QoS 3 [MQTT-3.1.2-12].
    #[error("will has QoS 3")]
    WillQosInvalid,
    /// Malformed: a password without a user name before 5.0 [MQTT-3.1.2-22 v3.1.1].
    #[error("connect flags {flags:#010b} announce a password without a user name")]
    PasswordWithoutUserName { flags: u8 },
    /// Malformed: bits 7 to 1 of the CONNACK flags [MQTT-3.2.2-1].
    #[error("reserved bits are set in connect acknowledge flags {flags:#010b}")]
    AcknowledgeFlagsInvalid { flags: u8 },
    /// Malformed: no property has this identifier (5.0, 2.2.2.2).
    #[error("property {id:#04x} does not exist")]
    PropertyUnknown { id: u32 },
    /// Malformed: the property is not one of this packet's (5.0, 2.2.2.2); for a will, `kind` is `Connect`.
    #[error("property {id:#04x} is not allowed in this part of {kind:?}")]
    PropertyNotAllowed { id: u8, kind: PacketKind },
    /// Malformed: reserved bits of the subscription options [MQTT-3.8.3-5], [MQTT-3.8.3-4 v3.1.1].
    #[error("reserved bits are set in subscription options {options:#010b}")]
    SubscriptionOptionsReserved { options: u8 },

    // Protocol: readable, but not allowed.
    /// Protocol: packet identifier 0 [MQTT-2.2.1-3].
    #[error("packet identifier is 0 in {kind:?}")]
    PacketIdZero { kind: PacketKind },
    /// Protocol: a property that may occur once is there again.
    #[error("property {id:#04x} is there twice")]
    PropertyRepeated { id: u8 },
    /// Protocol: a property's value is outside its range.
    #[error("property {id:#04x} cannot be {value}")]
    PropertyValueInvalid { id: u8, value: u32 },
    /// Protocol: the Response Topic is empty or has wildcards [MQTT-3.3.2-14].
    #[error("response topic is no topic name")]
    ResponseTopicInvalid,
    /// Protocol: Authentication Data without Authentication Method (5.0, 3.1.2.11.10).
    #[error("authentication data without authentication method")]
    AuthenticationDataWithoutMethod,
    /// Protocol: AUTH with content, but without Authentication Method (5.0, 3.15.2.2.2).
    #[error("auth without authentication method")]
    AuthenticationMethodMissing,
    /// Protocol: the reason or return code is not in the packet's list.
    #[error("{code:#04x} is no reason code of {kind:?}")]
    ReasonCodeInvalid { kind: PacketKind, code: u8 },
    /// Protocol: Session Present in a refusing CONNACK [MQTT-3.2.2-6].
    #[error("connack refuses with {code:#04x}, yet claims a session")]
    SessionPresentWithError { code: u8 },
    /// Protocol: no filter in SUBSCRIBE or UNSUBSCRIBE [MQTT-3.8.3-2] [MQTT-3.10.3-2].
    #[error("{kind:?} without a filter")]
    FiltersMissing { kind: PacketKind },
    /// Protocol: a filter of no characters [MQTT-4.7.3-1].
    #[error("empty filter in {kind:?}")]
    FilterEmpty { kind: PacketKind },
    /// Protocol: no code in SUBACK or UNSUBACK [MQTT-3.8.4-6].
    #[error("{kind:?} without a reason code")]
    ReasonCodesMissing { kind: PacketKind },
    /// Protocol: QoS 3 in subscription options (5.0, 3.8.3.1).
    #[error("subscription options ask for QoS 3")]
    SubscriptionQosInvalid,
    /// Protocol: Retain Handling 3 (5.0, 3.8.3.1).
    #[error("subscription options have retain handling 3")]
    RetainHandlingInvalid,
    /// Protocol: PUBLISH with an empty topic and no alias (5.0, 3.3.2.1).
    #[error("publish has neither topic nor alias")]
    TopicMissing,
    /// Protocol: an empty topic before 5.0 or in a will, or a wildcard in a topic [MQTT-3.3.2-2] [MQTT-4.7.3-1].
    #[error("topic name is empty or has wildcards")]
    TopicNameInvalid,
    /// Protocol: Topic Alias 0 [MQTT-3.3.2-8].
    #[error("topic alias is 0")]
    TopicAliasZero,

    // Refused.
    /// Refused: the protocol name is not one we know [MQTT-3.1.2-1]. See [`connack_version`](Self::connack_version).
    #[error("protocol name is unknown (level {level})")]
    UnsupportedProtocolName { level: u8 },
    /// Refused: the protocol level does not go with the name [MQTT-3.1.2-2]. See
    /// [`connack_version`](Self::connack_version).
    #[error("protocol level {level} is not supported")]
    UnsupportedProtocolLevel { level: u8 },
    /// Refused: the packet claims more bytes than we accept (5.0, 3.1.2.11.4); known before they arrive.
    #[error("packet of {packet_len} bytes is over the maximum {maximum}")]
    PacketTooLarge { packet_len: u32, maximum: u32 },
}

impl DecodeError {
    /// The code of the CONNACK or DISCONNECT that answers; use
    /// [`connect_return_code`](ReasonCode::connect_return_code) for a 3.x CONNACK.
    #[must_use]
    pub const fn reason_code(&self) -> ReasonCode {
        match self {
            Self::PacketTypeReserved { .. }
            | Self::HeaderFlagsInvalid { .. }
            | Self::RemainingLengthInvalid { .. }
            | Self::VariableByteIntegerTooLong
            | Self::VariableByteIntegerNotMinimal { .. }
            | Self::FieldPastEnd { .. }
            | Self::TrailingBytes { .. }
            | Self::StringNotUtf8 { .. }
            | Self::StringContainsNull
            | Self::StringContainsControl { .. }
            | Self::PublishQosInvalid
            | Self::DupWithoutQos
            | Self::ConnectFlagReserved { .. }
            | Self::WillFlagsWithoutWill { .. }
            | Self::WillQosInvalid
            | Self::PasswordWithoutUserName { .. }
            | Self::AcknowledgeFlagsInvalid { .. }
            | Self::PropertyUnknown { .. }
            | Self::PropertyNotAllowed { .. }
            | Self::SubscriptionOptionsReserved { .. } => ReasonCode::MalformedPacket,
            Self::PacketIdZero { .. }
            | Self::PropertyRepeated { .. }
            | Self::PropertyValueInvalid { .. }
            | Self::ResponseTopicInvalid
            | Self::AuthenticationDataWithoutMethod
            | Self::AuthenticationMethodMissing
            | Self::ReasonCodeInvalid { .. }
            | Self::SessionPresentWithError { .. }
            | Self::FiltersMissing { .. }
            | Self::FilterEmpty { .. }
            | Self::ReasonCodesMissing { .. }
            | Self::SubscriptionQosInvalid
            | Self::RetainHandlingInvalid
            | Self::TopicMissing => ReasonCode::ProtocolError,
            Self::TopicNameInvalid => ReasonCode::TopicNameInvalid,
            Self::TopicAliasZero => ReasonCode::TopicAliasInvalid,
            Self::UnsupportedProtocolName { .. } | Self::UnsupportedProtocolLevel { .. } => {
                ReasonCode::UnsupportedProtocolVersion
            }
            Self::PacketTooLarge { .. } => ReasonCode::PacketTooLarge,
        }
    }

    /// For a CONNECT of a protocol we do not speak: the version whose CONNACK its sender is likeliest to read, that is
    /// 3.1.1 (return code 1) for levels below 5 and 5.0 (0x84) from there on. `None` for every other error.
    #[must_use]
    pub const fn connack_version(&self) -> Option<ProtocolVersion> {
        match self {
            // Bit 7 marks a bridge, see `Connect::bridge`.
            Self::UnsupportedProtocolName { level } | Self::UnsupportedProtocolLevel { level } => {
                if *level & 0x7F < ProtocolVersion::V5 as u8 {
                    Some(ProtocolVersion::V311)
                } else {
                    Some(ProtocolVersion::V5)
                }
            }
            _ => None,
        }
    }
}

/// Why a packet cannot be encoded. Always misuse by the caller or a limit; the output is as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(
    missing_docs,
    reason = "the fields hold the offending value that the message prints"
)]
pub enum EncodeError {
    /// Refused: the packet is larger than the receiver's maximum even without what may be left out [MQTT-3.1.2-24].
    /// Drop it as if it had been sent [MQTT-3.1.2-25].
    #[error("packet of {packet_len} bytes is over the maximum {maximum}")]
    TooLarge { packet_len: usize, maximum: u32 },
    /// Misuse: no packet can have this remaining length (over 268,435,455).
    #[error("remaining length {len} cannot be encoded")]
    PacketTooLong { len: usize },
    /// Misuse: a string or binary field of more than 65,535 bytes.
    #[error("string of {len} bytes cannot be encoded")]
    StringTooLong { len: usize },
    /// Misuse: a PUBLISH of QoS 1 or 2 without packet identifier, or of QoS 0 with one [MQTT-2.2.1-2].
    #[error("packet identifier does not go with the QoS")]
    PacketIdMismatch,
    /// Misuse: a PUBLISH without topic, and without an alias that stands for it (5.0, 3.3.2.1).
    #[error("publish has neither topic nor alias")]
    TopicMissing,
    /// Misuse: Subscription Identifier 0 or over 268,435,455.
    #[error("subscription identifier {value} is out of range")]
    SubscriptionIdentifierInvalid { value: u32 },
    /// Misuse: the reason code is not in the packet's list (5.0).
    #[error("{code:?} is no reason code of {kind:?}")]
    ReasonCodeInvalid { kind: PacketKind, code: ReasonCode },
    /// Misuse: SUBSCRIBE, SUBACK, UNSUBSCRIBE or UNSUBACK with an empty list.
    #[error("{kind:?} with an empty list")]
    ListEmpty { kind: PacketKind },
    /// Misuse: the version does not know the packet (AUTH before 5.0).
    #[error("{kind:?} does not exist in this version")]
    NotInVersion { kind: PacketKind },
    /// Misuse: a password without a user name before 5.0.
    #[error("password without user name before 5.0")]
    PasswordWithoutUserName,
    /// Misuse: Authentication Data, or an AUTH with content, without Authentication Method.
    #[error("authentication method is missing")]
    AuthenticationMethodMissing,
    /// Misuse: a property that must not be 0 is (Topic Alias, Receive Maximum, Maximum Packet Size).
    #[error("property {id:#04x} must not be 0")]
    PropertyZero { id: u8 },
}
