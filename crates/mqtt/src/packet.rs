//! Any packet. Packets borrow from the bytes they were read from.

use crate::{
    Acknowledgement, Auth, Connack, Connect, Disconnect, PacketKind, Publish, Suback, Subscribe,
    Unsuback, Unsubscribe,
};

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
