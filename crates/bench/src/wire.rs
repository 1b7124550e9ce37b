//! The parts of MQTT that the hot loops handle themselves: frame boundaries and the fields of a PUBLISH.
//!
//! All packets that are not sent for each message (CONNECT, SUBSCRIBE and their answers) go through the codec.

/// First byte of a PUBLISH without flags: its low four bits are DUP, QoS and RETAIN.
pub const PUBLISH: u8 = 0x30;
/// First byte of a PUBACK.
pub const PUBACK: u8 = 0x40;
/// First byte of a PUBREC.
pub const PUBREC: u8 = 0x50;
/// First byte of a PUBREL, with its fixed flags [MQTT-3.6.1-1].
pub const PUBREL: u8 = 0x62;
/// First byte of a PUBCOMP.
pub const PUBCOMP: u8 = 0x70;
/// A complete PINGRESP.
pub const PINGRESP: [u8; 2] = [0xD0, 0];
/// A whole PINGREQ.
pub const PINGREQ: [u8; 2] = [0xC0, 0];

/// Malformed: the bytes are not an MQTT packet. Nothing was changed; the connection is unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are no MQTT packet")]
pub struct Malformed;

/// The position of a packet in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The packet's first byte.
    pub first_byte: u8,
    /// Start of the variable header.
    pub body: usize,
    /// End of the packet (exclusive).
    pub end: usize,
}

/// The packet that starts at `at`; `None` if it is incomplete.
#[inline]
pub fn frame(bytes: &[u8], at: usize) -> Result<Option<Frame>, Malformed> {
    let Some(&[first_byte, length]) = bytes.get(at..at + 2) else {
        return Ok(None);
    };
    // Nearly every packet of a load test is shorter than 128 bytes.
    let (body, length) = if length < 0x80 {
        (at + 2, usize::from(length))
    } else {
        match variable_byte_integer(&bytes[at + 1..])? {
            Some((value, width)) => (at + 1 + width, value),
            None => return Ok(None),
        }
    };
    let end = body + length;
    Ok((end <= bytes.len()).then_some(Frame {
        first_byte,
        body,
        end,
    }))
}

/// A Variable Byte Integer and its length in bytes [MQTT-1.5.5-1]; `None` if it is incomplete.
#[inline]
pub fn variable_byte_integer(bytes: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() < 4 {
        Ok(None)
    } else {
        Err(Malformed)
    }
}

/// Whether a PUBLISH on this connection has properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Properties {
    /// 3.1 and 3.1.1: none.
    Absent,
    /// 5.0: a length and that many bytes.
    Present,
}

/// The positions of the parts of a PUBLISH in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishParts {
    /// Quality of service, 0 to 2.
    pub qos: u8,
    /// First byte of the topic name.
    pub topic: usize,
    /// End of the topic name (exclusive); the packet identifier is here if `qos` is above 0.
    pub topic_end: usize,
    /// First byte after the packet identifier, if there is one.
    pub after_id: usize,
}

/// The parts of the PUBLISH in `frame`, up to its properties.
#[inline]
pub fn publish_parts(bytes: &[u8], frame: Frame) -> Result<PublishParts, Malformed> {
    let qos = (frame.first_byte >> 1) & 3;
    let Some(&[high, low]) = bytes.get(frame.body..frame.body + 2) else {
        return Err(Malformed);
    };
    let topic = frame.body + 2;
    let topic_end = topic + usize::from(u16::from_be_bytes([high, low]));
    let after_id = topic_end + if qos == 0 { 0 } else { 2 };
    if after_id > frame.end || qos == 3 {
        return Err(Malformed);
    }
    Ok(PublishParts {
        qos,
        topic,
        topic_end,
        after_id,
    })
}

/// Start of the payload of a PUBLISH.
#[inline]
pub fn payload_start(
    bytes: &[u8],
    frame: Frame,
    parts: PublishParts,
    properties: Properties,
) -> Result<usize, Malformed> {
    match properties {
        Properties::Absent => Ok(parts.after_id),
        Properties::Present => match variable_byte_integer(&bytes[parts.after_id..frame.end])? {
            Some((length, width)) if parts.after_id + width + length <= frame.end => {
                Ok(parts.after_id + width + length)
            }
            _ => Err(Malformed),
        },
    }
}

/// The big-endian number at `at`, such as a packet identifier.
#[inline]
pub fn number_u16(bytes: &[u8], at: usize) -> Result<u16, Malformed> {
    match bytes.get(at..at + 2) {
        Some(&[high, low]) => Ok(u16::from_be_bytes([high, low])),
        _ => Err(Malformed),
    }
}

/// Appends PUBACK, PUBREC, PUBREL or PUBCOMP without a reason code, which means success in every version.
#[inline]
pub fn push_acknowledgement(out: &mut Vec<u8>, first_byte: u8, packet_id: u16) {
    let [high, low] = packet_id.to_be_bytes();
    out.extend_from_slice(&[first_byte, 2, high, low]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_where_they_lie() {
        let whole = |first_byte, body, end| {
            Ok(Some(Frame {
                first_byte,
                body,
                end,
            }))
        };
        let mut long = vec![0x30, 0x80, 0x01];
        long.resize(3 + 128, 0);
        for (name, bytes, at, expected) in [
            ("nothing", &[][..], 0, Ok(None)),
            ("only the first byte", &[0x30], 0, Ok(None)),
            ("a length without its body", &[0x30, 1], 0, Ok(None)),
            ("a PINGREQ", &[0xC0, 0], 0, whole(0xC0, 2, 2)),
            (
                "the second of two",
                &[0xC0, 0, 0xD0, 0],
                2,
                whole(0xD0, 4, 4),
            ),
            ("a length of two bytes", &long, 0, whole(0x30, 3, 131)),
            ("half a length", &[0x30, 0x80], 0, Ok(None)),
            (
                "a length of five bytes",
                &[0x30, 0x80, 0x80, 0x80, 0x80, 0x01],
                0,
                Err(Malformed),
            ),
        ] {
            assert_eq!(frame(bytes, at), expected, "{name}");
        }
    }

    #[test]
    fn parts_of_a_publish_are_found_in_both_versions() {
        let old = [0x32, 7, 0, 1, b't', 0, 9, b'p', b'q'];
        let parts = publish_parts(&old, frame(&old, 0).unwrap().unwrap()).unwrap();
        assert_eq!(
            parts,
            PublishParts {
                qos: 1,
                topic: 4,
                topic_end: 5,
                after_id: 7
            }
        );
        assert_eq!(
            payload_start(
                &old,
                frame(&old, 0).unwrap().unwrap(),
                parts,
                Properties::Absent
            ),
            Ok(7)
        );

        let new = [0x30, 7, 0, 1, b't', 2, 1, 0, b'p'];
        let whole = frame(&new, 0).unwrap().unwrap();
        let parts = publish_parts(&new, whole).unwrap();
        assert_eq!(
            payload_start(&new, whole, parts, Properties::Present),
            Ok(8)
        );
    }

    #[test]
    fn a_publish_that_claims_more_than_it_has_is_malformed() {
        for (name, bytes) in [
            ("topic longer than the packet", &[0x30, 3, 0, 2, b't'][..]),
            ("no packet identifier", &[0x32, 3, 0, 1, b't']),
            ("quality of service 3", &[0x36, 5, 0, 1, b't', 0, 1]),
            ("no topic length", &[0x30, 1, 0]),
        ] {
            assert_eq!(
                publish_parts(bytes, frame(bytes, 0).unwrap().unwrap()),
                Err(Malformed),
                "{name}"
            );
        }
    }
}
