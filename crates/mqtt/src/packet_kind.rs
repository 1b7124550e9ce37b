//! The type of a packet.

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
