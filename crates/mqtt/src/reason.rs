//! Reason codes (5.0, 2.4) and the return codes they become for older clients.

use crate::PacketKind;

/// Why a packet says what it says. 0x80 and above are errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the specification's")]
pub enum ReasonCode {
    /// Also Normal disconnection, Granted QoS 0.
    #[default]
    Success = 0x00,
    GrantedQos1 = 0x01,
    GrantedQos2 = 0x02,
    DisconnectWithWillMessage = 0x04,
    NoMatchingSubscribers = 0x10,
    NoSubscriptionExisted = 0x11,
    ContinueAuthentication = 0x18,
    ReAuthenticate = 0x19,
    UnspecifiedError = 0x80,
    MalformedPacket = 0x81,
    ProtocolError = 0x82,
    ImplementationSpecificError = 0x83,
    UnsupportedProtocolVersion = 0x84,
    ClientIdentifierNotValid = 0x85,
    BadUserNameOrPassword = 0x86,
    NotAuthorized = 0x87,
    ServerUnavailable = 0x88,
    ServerBusy = 0x89,
    Banned = 0x8A,
    ServerShuttingDown = 0x8B,
    BadAuthenticationMethod = 0x8C,
    KeepAliveTimeout = 0x8D,
    SessionTakenOver = 0x8E,
    TopicFilterInvalid = 0x8F,
    TopicNameInvalid = 0x90,
    PacketIdentifierInUse = 0x91,
    PacketIdentifierNotFound = 0x92,
    ReceiveMaximumExceeded = 0x93,
    TopicAliasInvalid = 0x94,
    PacketTooLarge = 0x95,
    MessageRateTooHigh = 0x96,
    QuotaExceeded = 0x97,
    AdministrativeAction = 0x98,
    PayloadFormatInvalid = 0x99,
    RetainNotSupported = 0x9A,
    QosNotSupported = 0x9B,
    UseAnotherServer = 0x9C,
    ServerMoved = 0x9D,
    SharedSubscriptionsNotSupported = 0x9E,
    ConnectionRateExceeded = 0x9F,
    MaximumConnectTime = 0xA0,
    SubscriptionIdentifiersNotSupported = 0xA1,
    WildcardSubscriptionsNotSupported = 0xA2,
}

impl ReasonCode {
    /// Whether the code says that something failed.
    #[must_use]
    pub const fn is_error(self) -> bool {
        self as u8 >= 0x80
    }

    /// The name of the specification in snake case, as in logs and metrics: `session_taken_over`.
    #[must_use]
    pub fn words(self) -> String {
        let mut words = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !words.is_empty() {
                words.push('_');
            }
            words.push(letter.to_ascii_lowercase());
        }
        words
    }

    /// The return code of a 3.1 or 3.1.1 CONNACK with the nearest meaning, 0 to 5.
    ///
    /// Every error that those versions have no word for becomes 3, Server unavailable; they allow to close without a
    /// CONNACK instead [MQTT-3.2.2-6 v3.1.1].
    #[must_use]
    pub const fn connect_return_code(self) -> u8 {
        match self {
            _ if !self.is_error() => 0,
            Self::UnsupportedProtocolVersion => 1,
            Self::ClientIdentifierNotValid => 2,
            Self::BadUserNameOrPassword => 4,
            Self::NotAuthorized | Self::Banned | Self::BadAuthenticationMethod => 5,
            _ => 3,
        }
    }

    /// The reason code of a 3.1 or 3.1.1 CONNACK's return code, `None` above 5.
    #[must_use]
    pub const fn from_connect_return_code(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Success,
            1 => Self::UnsupportedProtocolVersion,
            2 => Self::ClientIdentifierNotValid,
            3 => Self::ServerUnavailable,
            4 => Self::BadUserNameOrPassword,
            5 => Self::NotAuthorized,
            _ => return None,
        })
    }

    /// Whether a 5.0 packet of this kind may carry the code (5.0, 2.4 and the lists of chapter 3); false for kinds
    /// without codes.
    #[must_use]
    pub fn is_allowed_in(self, kind: PacketKind) -> bool {
        allowed(kind).contains(&self)
    }
}

impl TryFrom<u8> for ReasonCode {
    type Error = UnknownReasonCode;

    fn try_from(code: u8) -> Result<Self, UnknownReasonCode> {
        ALL.iter()
            .copied()
            .find(|&known| known as u8 == code)
            .ok_or(UnknownReasonCode(code))
    }
}

/// Misuse: a number that is no reason code of any packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0:#04x} is no reason code")]
pub struct UnknownReasonCode(pub u8);

const ALL: &[ReasonCode] = &[
    ReasonCode::Success,
    ReasonCode::GrantedQos1,
    ReasonCode::GrantedQos2,
    ReasonCode::DisconnectWithWillMessage,
    ReasonCode::NoMatchingSubscribers,
    ReasonCode::NoSubscriptionExisted,
    ReasonCode::ContinueAuthentication,
    ReasonCode::ReAuthenticate,
    ReasonCode::UnspecifiedError,
    ReasonCode::MalformedPacket,
    ReasonCode::ProtocolError,
    ReasonCode::ImplementationSpecificError,
    ReasonCode::UnsupportedProtocolVersion,
    ReasonCode::ClientIdentifierNotValid,
    ReasonCode::BadUserNameOrPassword,
    ReasonCode::NotAuthorized,
    ReasonCode::ServerUnavailable,
    ReasonCode::ServerBusy,
    ReasonCode::Banned,
    ReasonCode::ServerShuttingDown,
    ReasonCode::BadAuthenticationMethod,
    ReasonCode::KeepAliveTimeout,
    ReasonCode::SessionTakenOver,
    ReasonCode::TopicFilterInvalid,
    ReasonCode::TopicNameInvalid,
    ReasonCode::PacketIdentifierInUse,
    ReasonCode::PacketIdentifierNotFound,
    ReasonCode::ReceiveMaximumExceeded,
    ReasonCode::TopicAliasInvalid,
    ReasonCode::PacketTooLarge,
    ReasonCode::MessageRateTooHigh,
    ReasonCode::QuotaExceeded,
    ReasonCode::AdministrativeAction,
    ReasonCode::PayloadFormatInvalid,
    ReasonCode::RetainNotSupported,
    ReasonCode::QosNotSupported,
    ReasonCode::UseAnotherServer,
    ReasonCode::ServerMoved,
    ReasonCode::SharedSubscriptionsNotSupported,
    ReasonCode::ConnectionRateExceeded,
    ReasonCode::MaximumConnectTime,
    ReasonCode::SubscriptionIdentifiersNotSupported,
    ReasonCode::WildcardSubscriptionsNotSupported,
];

/// The codes a packet may carry. Section 2.4 lets DISCONNECT say Bad authentication method where 3.14.2.1, which is
/// normative [MQTT-3.14.2-1], does not: the latter holds.
const fn allowed(kind: PacketKind) -> &'static [ReasonCode] {
    use ReasonCode::*;
    match kind {
        PacketKind::Connack => &[
            Success,
            UnspecifiedError,
            MalformedPacket,
            ProtocolError,
            ImplementationSpecificError,
            UnsupportedProtocolVersion,
            ClientIdentifierNotValid,
            BadUserNameOrPassword,
            NotAuthorized,
            ServerUnavailable,
            ServerBusy,
            Banned,
            BadAuthenticationMethod,
            TopicNameInvalid,
            PacketTooLarge,
            QuotaExceeded,
            PayloadFormatInvalid,
            RetainNotSupported,
            QosNotSupported,
            UseAnotherServer,
            ServerMoved,
            ConnectionRateExceeded,
        ],
        PacketKind::Puback | PacketKind::Pubrec => &[
            Success,
            NoMatchingSubscribers,
            UnspecifiedError,
            ImplementationSpecificError,
            NotAuthorized,
            TopicNameInvalid,
            PacketIdentifierInUse,
            QuotaExceeded,
            PayloadFormatInvalid,
        ],
        PacketKind::Pubrel | PacketKind::Pubcomp => &[Success, PacketIdentifierNotFound],
        PacketKind::Suback => &[
            Success,
            GrantedQos1,
            GrantedQos2,
            UnspecifiedError,
            ImplementationSpecificError,
            NotAuthorized,
            TopicFilterInvalid,
            PacketIdentifierInUse,
            QuotaExceeded,
            SharedSubscriptionsNotSupported,
            SubscriptionIdentifiersNotSupported,
            WildcardSubscriptionsNotSupported,
        ],
        PacketKind::Unsuback => &[
            Success,
            NoSubscriptionExisted,
            UnspecifiedError,
            ImplementationSpecificError,
            NotAuthorized,
            TopicFilterInvalid,
            PacketIdentifierInUse,
        ],
        PacketKind::Disconnect => &[
            Success,
            DisconnectWithWillMessage,
            UnspecifiedError,
            MalformedPacket,
            ProtocolError,
            ImplementationSpecificError,
            NotAuthorized,
            ServerBusy,
            ServerShuttingDown,
            KeepAliveTimeout,
            SessionTakenOver,
            TopicFilterInvalid,
            TopicNameInvalid,
            ReceiveMaximumExceeded,
            TopicAliasInvalid,
            PacketTooLarge,
            MessageRateTooHigh,
            QuotaExceeded,
            AdministrativeAction,
            PayloadFormatInvalid,
            RetainNotSupported,
            QosNotSupported,
            UseAnotherServer,
            ServerMoved,
            SharedSubscriptionsNotSupported,
            ConnectionRateExceeded,
            MaximumConnectTime,
            SubscriptionIdentifiersNotSupported,
            WildcardSubscriptionsNotSupported,
        ],
        PacketKind::Auth => &[Success, ContinueAuthentication, ReAuthenticate],
        PacketKind::Connect
        | PacketKind::Publish
        | PacketKind::Subscribe
        | PacketKind::Unsubscribe
        | PacketKind::Pingreq
        | PacketKind::Pingresp => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_specification_is_known_and_no_other() {
        // 5.0, 2.4: the successes, then 0x80 to 0xA2 without a gap.
        let successes = [0x00, 0x01, 0x02, 0x04, 0x10, 0x11, 0x18, 0x19];
        for code in 0..=u8::MAX {
            let known = ReasonCode::try_from(code);
            let expected = successes.contains(&code) || (0x80..=0xA2).contains(&code);
            assert_eq!(known.is_ok(), expected, "{code:#04x}");
            if let Ok(known) = known {
                assert_eq!(known as u8, code);
                assert_eq!(known.is_error(), code >= 0x80);
            }
        }
        assert_eq!(ReasonCode::try_from(0x03), Err(UnknownReasonCode(0x03)));
    }

    #[test]
    fn refusals_become_the_nearest_return_code_of_3_1_1() {
        let cases = [
            (ReasonCode::Success, 0),
            (ReasonCode::UnsupportedProtocolVersion, 1),
            (ReasonCode::ClientIdentifierNotValid, 2),
            (ReasonCode::ServerUnavailable, 3),
            (ReasonCode::UseAnotherServer, 3),
            (ReasonCode::MalformedPacket, 3),
            (ReasonCode::BadUserNameOrPassword, 4),
            (ReasonCode::NotAuthorized, 5),
            (ReasonCode::Banned, 5),
        ];
        for (code, expected) in cases {
            assert_eq!(code.connect_return_code(), expected, "{code:?}");
        }
        for return_code in 0..=5 {
            let code = ReasonCode::from_connect_return_code(return_code).expect("up to 5");
            assert_eq!(code.connect_return_code(), return_code);
        }
        assert_eq!(ReasonCode::from_connect_return_code(6), None);
    }

    #[test]
    fn words_are_those_of_the_specification() {
        for (code, expected) in [
            (ReasonCode::Banned, "banned"),
            (ReasonCode::SessionTakenOver, "session_taken_over"),
            (ReasonCode::QosNotSupported, "qos_not_supported"),
        ] {
            assert_eq!(code.words(), expected);
        }
    }

    #[test]
    fn only_packets_with_codes_allow_any() {
        let counts = [
            (PacketKind::Connack, 22),
            (PacketKind::Puback, 9),
            (PacketKind::Pubrec, 9),
            (PacketKind::Pubrel, 2),
            (PacketKind::Pubcomp, 2),
            (PacketKind::Suback, 12),
            (PacketKind::Unsuback, 7),
            (PacketKind::Disconnect, 29),
            (PacketKind::Auth, 3),
            (PacketKind::Publish, 0),
            (PacketKind::Connect, 0),
        ];
        for (kind, expected) in counts {
            let count = ALL.iter().filter(|code| code.is_allowed_in(kind)).count();
            assert_eq!(count, expected, "{kind:?}");
        }
    }
}
