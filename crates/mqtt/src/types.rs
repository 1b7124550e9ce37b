//! The small types every packet is made of.

use std::num::NonZeroU16;

/// The protocol version a client speaks, with its protocol level on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ProtocolVersion {
    /// MQTT 3.1 (protocol name `MQIsdp`).
    V31 = 3,
    /// MQTT 3.1.1.
    V311 = 4,
    /// MQTT 5.0.
    V5 = 5,
}

impl ProtocolVersion {
    /// Whether packets of this version carry properties.
    #[must_use]
    pub const fn has_properties(self) -> bool {
        matches!(self, Self::V5)
    }
}

/// Quality of service of a message or a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Qos {
    /// 0: at most once.
    #[default]
    AtMostOnce = 0,
    /// 1: at least once.
    AtLeastOnce = 1,
    /// 2: exactly once.
    ExactlyOnce = 2,
}

impl Qos {
    /// The quality of service of a two-bit field, `None` for the malformed 3 [MQTT-3.3.1-4].
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// A packet identifier, never zero [MQTT-2.2.1-3].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketId(pub NonZeroU16);

impl PacketId {
    /// The identifier `value`, `None` if it is zero.
    #[must_use]
    pub const fn new(value: u16) -> Option<Self> {
        match NonZeroU16::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The one after this: 1 follows 65535.
    #[must_use]
    pub const fn next(self) -> Self {
        match Self::new(self.value().wrapping_add(1)) {
            Some(next) => next,
            None => Self(NonZeroU16::MIN),
        }
    }

    /// The number on the wire, 1 to 65535.
    #[must_use]
    pub const fn value(self) -> u16 {
        self.0.get()
    }
}

/// When retained messages are sent for a subscription (5.0, 3.8.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum RetainHandling {
    /// 0: at every SUBSCRIBE.
    #[default]
    SendAtSubscribe = 0,
    /// 1: only if the subscription did not exist.
    SendIfNew = 1,
    /// 2: never.
    DoNotSend = 2,
}

/// User properties in the order they came [MQTT-3.3.2-18].
pub type UserProperties<'a> = Vec<(&'a str, &'a str)>;
