//! Bytes to packets: fixed header, dispatch, and what the first bytes alone can refuse.

mod acknowledge;
mod connect;
mod publish;
mod subscribe;

use crate::reader::{Reader, variable_byte_integer};
use crate::{
    AcknowledgementKind, DecodeError, Packet, PacketId, PacketKind, ProtocolVersion, Publish,
};

pub use connect::connect_version;
pub(crate) use connect::{BRIDGE_BIT, flag};

/// What the first bytes of a packet say about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The packet's first byte.
    pub first_byte: u8,
    /// Bytes of the whole packet, fixed header included.
    pub packet_len: usize,
}

/// Reads the fixed header at the start of `bytes`, `None` if it is not whole yet.
///
/// # Errors
/// The remaining length is no variable byte integer in its shortest form [MQTT-1.5.5-1]; the same is asked of 3.x.
#[inline]
pub fn frame_header(bytes: &[u8]) -> Result<Option<FrameHeader>, DecodeError> {
    let Some((&first_byte, after)) = bytes.split_first() else {
        return Ok(None);
    };
    Ok(
        variable_byte_integer(after)?.map(|(remaining, len)| FrameHeader {
            first_byte,
            packet_len: 1 + len + remaining as usize,
        }),
    )
}

/// Decodes the packet at the start of `bytes`: the packet and its length, or `None` until it is whole.
///
/// `version` is the connection's; a CONNECT brings its own and ignores it. `maximum_packet_size` bounds the whole packet
/// in bytes. Never looks past the packet. What the fixed header shows to be wrong is refused before the rest is there.
/// Packets of both directions are decoded; which of them the peer may send is for the session to say.
///
/// # Errors
/// Every breach of the format, see [`DecodeError`]; nothing is consumed then.
pub fn decode(
    bytes: &[u8],
    version: ProtocolVersion,
    maximum_packet_size: u32,
) -> Result<Option<(Packet<'_>, usize)>, DecodeError> {
    let Some(frame) = frame(bytes, version, maximum_packet_size)? else {
        return Ok(None);
    };
    let packet = match frame.kind {
        PacketKind::Publish => {
            Packet::Publish(publish::decode(frame.first_byte, frame.body, version)?)
        }
        kind => decode_other(kind, frame.body, version)?,
    };
    Ok(Some((packet, frame.packet_len)))
}

/// The same as [`decode`] where a PUBLISH begins; `None` as well if it is another packet. Most packets are these two kinds and
/// [plain acknowledgements](plain_acknowledgement): who asks for them first is spared the way through [`Packet`], which is large.
///
/// # Errors
/// As [`decode`].
#[inline(always)]
pub fn decode_publish(
    bytes: &[u8],
    version: ProtocolVersion,
    maximum_packet_size: u32,
) -> Result<Option<(Publish<'_>, usize)>, DecodeError> {
    if !matches!(bytes, [first_byte, ..] if first_byte >> 4 == PacketKind::Publish as u8) {
        return Ok(None);
    }
    let Some(frame) = frame(bytes, version, maximum_packet_size)? else {
        return Ok(None);
    };
    let publish = publish::decode(frame.first_byte, frame.body, version)?;
    Ok(Some((publish, frame.packet_len)))
}

/// Bytes of a plain acknowledgement.
pub const PLAIN_ACKNOWLEDGEMENT_LEN: usize = 4;

/// The PUBACK, PUBREC, PUBREL or PUBCOMP at the start of `bytes` if it has neither reason code nor properties, which means Success in
/// all versions: its kind and packet identifier. `None` if it is anything else, of which [`decode`] says more.
#[must_use]
#[inline]
pub const fn plain_acknowledgement(bytes: &[u8]) -> Option<(AcknowledgementKind, PacketId)> {
    let [first_byte, 2, high, low, ..] = bytes else {
        return None;
    };
    let kind = match first_byte {
        0x40 => AcknowledgementKind::Puback,
        0x50 => AcknowledgementKind::Pubrec,
        0x62 => AcknowledgementKind::Pubrel,
        0x70 => AcknowledgementKind::Pubcomp,
        _ => return None,
    };
    match PacketId::new(u16::from_be_bytes([*high, *low])) {
        Some(packet_id) => Some((kind, packet_id)),
        None => None,
    }
}

/// A whole packet behind its fixed header.
struct Frame<'a> {
    first_byte: u8,
    kind: PacketKind,
    body: &'a [u8],
    packet_len: usize,
}

/// The frame at the start of `bytes`, `None` until it is whole.
#[inline(always)]
fn frame(
    bytes: &[u8],
    version: ProtocolVersion,
    maximum_packet_size: u32,
) -> Result<Option<Frame<'_>>, DecodeError> {
    let Some((&first_byte, after)) = bytes.split_first() else {
        return Ok(None);
    };
    let kind = check_first_byte(first_byte, version)?;
    let Some((remaining, len)) = variable_byte_integer(after)? else {
        return Ok(None);
    };
    let packet_len = 1 + len as u32 + remaining;
    if packet_len > maximum_packet_size {
        return Err(DecodeError::PacketTooLarge {
            packet_len,
            maximum: maximum_packet_size,
        });
    }
    let packet_len = packet_len as usize;
    let body = bytes.get(1 + len..packet_len);
    if kind != PacketKind::Publish || body.is_none() {
        check_remaining_length(kind, version, remaining)?;
    }
    Ok(body.map(|body| Frame {
        first_byte,
        kind,
        body,
        packet_len,
    }))
}

/// Everything but PUBLISH.
fn decode_other(
    kind: PacketKind,
    body: &[u8],
    version: ProtocolVersion,
) -> Result<Packet<'_>, DecodeError> {
    let reader = Reader::new(body);
    Ok(match kind {
        PacketKind::Connect => Packet::Connect(Box::new(connect::connect(reader)?)),
        PacketKind::Connack => Packet::Connack(Box::new(connect::connack(reader, version)?)),
        PacketKind::Publish => unreachable!("decoded by its caller"),
        PacketKind::Puback => Packet::Puback(acknowledge::decode(kind, reader, version)?),
        PacketKind::Pubrec => Packet::Pubrec(acknowledge::decode(kind, reader, version)?),
        PacketKind::Pubrel => Packet::Pubrel(acknowledge::decode(kind, reader, version)?),
        PacketKind::Pubcomp => Packet::Pubcomp(acknowledge::decode(kind, reader, version)?),
        PacketKind::Subscribe => Packet::Subscribe(subscribe::subscribe(reader, version)?),
        PacketKind::Suback => Packet::Suback(subscribe::suback(reader, version)?),
        PacketKind::Unsubscribe => Packet::Unsubscribe(subscribe::unsubscribe(reader, version)?),
        PacketKind::Unsuback => Packet::Unsuback(subscribe::unsuback(reader, version)?),
        PacketKind::Pingreq => Packet::Pingreq,
        PacketKind::Pingresp => Packet::Pingresp,
        PacketKind::Disconnect => Packet::Disconnect(acknowledge::disconnect(reader, version)?),
        PacketKind::Auth => Packet::Auth(acknowledge::auth(reader)?),
    })
}

#[inline]
fn check_first_byte(first_byte: u8, version: ProtocolVersion) -> Result<PacketKind, DecodeError> {
    let flags = first_byte & 0x0F;
    match PacketKind::from_first_byte(first_byte) {
        Some(PacketKind::Publish) => {
            publish::check_flags(flags)?;
            Ok(PacketKind::Publish)
        }
        Some(PacketKind::Auth) if !version.has_properties() => {
            Err(DecodeError::PacketTypeReserved {
                packet_type: PacketKind::Auth as u8,
            })
        }
        Some(kind) => {
            // 3.1 sets DUP in a repeated PUBREL, SUBSCRIBE or UNSUBSCRIBE.
            let repeated = version == ProtocolVersion::V31 && kind.flags() != 0;
            if flags != kind.flags() && !(repeated && flags == kind.flags() | 0b1000) {
                return Err(DecodeError::HeaderFlagsInvalid { kind, flags });
            }
            Ok(kind)
        }
        None => Err(DecodeError::PacketTypeReserved { packet_type: 0 }),
    }
}

/// Refuses what no packet of this kind can have; the rest is found while reading.
fn check_remaining_length(
    kind: PacketKind,
    version: ProtocolVersion,
    remaining: u32,
) -> Result<(), DecodeError> {
    let before_5 = !version.has_properties();
    let possible = match kind {
        PacketKind::Pingreq | PacketKind::Pingresp => remaining == 0,
        PacketKind::Puback
        | PacketKind::Pubrec
        | PacketKind::Pubrel
        | PacketKind::Pubcomp
        | PacketKind::Unsuback
            if before_5 =>
        {
            remaining == 2
        }
        PacketKind::Connack if before_5 => remaining == 2,
        PacketKind::Disconnect if before_5 => remaining == 0,
        PacketKind::Puback | PacketKind::Pubrec | PacketKind::Pubrel | PacketKind::Pubcomp => {
            remaining >= 2
        }
        _ => true,
    };
    if possible {
        Ok(())
    } else {
        Err(DecodeError::RemainingLengthInvalid { kind, remaining })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acknowledgement, ReasonCode, encode_plain_acknowledgement};

    const VERSIONS: [ProtocolVersion; 3] = [
        ProtocolVersion::V31,
        ProtocolVersion::V311,
        ProtocolVersion::V5,
    ];

    #[test]
    fn a_plain_acknowledgement_is_what_the_whole_decoder_makes_of_it() {
        for first_byte in 0..=u8::MAX {
            for rest in [
                [2, 0, 0],
                [2, 0, 1],
                [2, 0xFF, 0xFE],
                [3, 0, 1],
                [0x82, 0, 1],
            ] {
                let bytes = [first_byte, rest[0], rest[1], rest[2], 0];
                let Some((kind, packet_id)) = plain_acknowledgement(&bytes) else {
                    continue;
                };
                assert_eq!(encode_plain_acknowledgement(kind, packet_id), bytes[..4]);
                for version in VERSIONS {
                    let (packet, len) = decode(&bytes, version, 4).expect("right").expect("whole");
                    let is_same = matches!(&packet,
                        Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack)
                            if *ack == Acknowledgement::new(packet_id, ReasonCode::Success));
                    assert!(
                        is_same && packet.kind() == kind.packet() && len == 4,
                        "{bytes:?}"
                    );
                }
            }
        }
        for cut in 0..4 {
            assert_eq!(plain_acknowledgement(&[0x40, 2, 0, 1][..cut]), None);
        }
        let kinds = [0x40, 0x50, 0x62, 0x70].map(|first| plain_acknowledgement(&[first, 2, 0, 9]));
        assert!(kinds.iter().all(Option::is_some), "{kinds:?}");
    }

    #[test]
    fn a_publish_is_what_the_whole_decoder_makes_of_it() {
        let packets: [&[u8]; 8] = [
            b"\x30\x05\x00\x01axy",
            b"\x33\x07\x00\x01a\x00\x09xy",
            b"\x34\x08\x00\x01a\x00\x09\x00xy",
            b"\x36\x05\x00\x01axy",
            b"\x30\x05\x00\x01+xy",
            b"\x30\x80",
            b"\x30\x05\x00",
            b"\x40\x02\x00\x01",
        ];
        for bytes in packets {
            for version in VERSIONS {
                for maximum in [6, 100] {
                    let expected = match decode(bytes, version, maximum) {
                        Ok(Some((Packet::Publish(publish), len))) => Ok(Some((publish, len))),
                        Ok(_) => Ok(None),
                        Err(error) => Err(error),
                    };
                    let found = decode_publish(bytes, version, maximum);
                    assert_eq!(found, expected, "{bytes:?} {version:?} {maximum}");
                }
            }
        }
    }
}
