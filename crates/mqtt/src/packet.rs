//! Any packet, and its type. Packets borrow from the bytes they were read from.

use crate::{
    Acknowledgement, Auth, Connack, Connect, Disconnect, Publish, Suback, Subscribe, Unsuback,
    Unsubscribe,
};

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
