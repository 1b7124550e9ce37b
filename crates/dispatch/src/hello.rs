//! The first bytes of a client: its protocol version and its identifier. No I/O.

use thicket_mqtt::{Connack, Packet, ProtocolVersion, ReasonCode, decode};

/// Bytes of a CONNECT that are waited for. A longer one is relayed, whatever its version.
pub(crate) const LONGEST_CONNECT: usize = 64 * 1024;

/// The result of the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// More bytes are needed.
    Unfinished,
    /// A client that cannot be redirected, or whose CONNECT is too long to wait for.
    Relay,
    /// A 5.0 client.
    V5 {
        /// Its client identifier, as it is in the CONNECT.
        client_id: String,
    },
    /// Not MQTT, or an unknown version: no answer is possible.
    Strange,
    /// A CONNECT of 5.0 that is malformed.
    Malformed(ReasonCode),
}

/// Examines the first bytes of a client.
#[must_use]
pub fn examine(bytes: &[u8]) -> Hello {
    match version(bytes) {
        Version::Unfinished => Hello::Unfinished,
        Version::Strange => Hello::Strange,
        Version::Known(ProtocolVersion::V31 | ProtocolVersion::V311) => Hello::Relay,
        Version::Known(ProtocolVersion::V5) => match decode(bytes, ProtocolVersion::V5, u32::MAX) {
            Ok(Some((Packet::Connect(connect), _))) => Hello::V5 {
                client_id: connect.client_id.to_owned(),
            },
            Ok(Some(_)) => Hello::Strange,
            Ok(None) if bytes.len() >= LONGEST_CONNECT => Hello::Relay,
            Ok(None) => Hello::Unfinished,
            Err(error) => Hello::Malformed(error.reason_code()),
        },
    }
}

enum Version {
    Unfinished,
    Strange,
    Known(ProtocolVersion),
}

/// The version in a CONNECT, from its first bytes.
fn version(bytes: &[u8]) -> Version {
    let Some((&first, rest)) = bytes.split_first() else {
        return Version::Unfinished;
    };
    if first != 0x10 {
        return Version::Strange;
    }
    let Some(width) = rest.iter().take(4).position(|byte| byte & 0x80 == 0) else {
        return if rest.len() < 4 {
            Version::Unfinished
        } else {
            Version::Strange
        };
    };
    let body = &rest[width + 1..];
    for (name, levels) in [
        (&b"\x00\x04MQTT"[..], &[4, 5][..]),
        (&b"\x00\x06MQIsdp"[..], &[3][..]),
    ] {
        let seen = body.len().min(name.len());
        if body[..seen] != name[..seen] {
            continue;
        }
        let Some(&level) = body.get(name.len()) else {
            return Version::Unfinished;
        };
        // Bridges of other brokers set the highest bit.
        return match level & 0x7F {
            level if !levels.contains(&level) => Version::Strange,
            3 => Version::Known(ProtocolVersion::V31),
            4 => Version::Known(ProtocolVersion::V311),
            _ => Version::Known(ProtocolVersion::V5),
        };
    }
    Version::Strange
}

/// A CONNACK that refuses, with another server if there is one.
pub(crate) fn refusal(version: ProtocolVersion, code: ReasonCode, server: Option<&str>) -> Vec<u8> {
    let connack = Connack {
        server_reference: server,
        ..Connack::new(code)
    };
    let mut bytes = Vec::new();
    // A HOST:PORT that was parsed from an option is short enough for any packet.
    let _ = Packet::Connack(Box::new(connack)).encode(version, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use thicket_mqtt::Connect;

    fn connect(version: ProtocolVersion, client_id: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let packet = Packet::Connect(Box::new(Connect::new(version, client_id)));
        packet.encode(version, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_connect_is_known_by_its_version_however_it_is_cut() {
        let v5 = Hello::V5 {
            client_id: "a".into(),
        };
        for (version, expected) in [
            (ProtocolVersion::V31, Hello::Relay),
            (ProtocolVersion::V311, Hello::Relay),
            (ProtocolVersion::V5, v5),
        ] {
            let bytes = connect(version, "a");
            assert_eq!(examine(&bytes), expected, "{version:?}");
            for cut in 0..bytes.len() {
                let seen = examine(&bytes[..cut]);
                assert!(
                    seen == Hello::Unfinished || seen == expected,
                    "{version:?}, {cut} bytes: {seen:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_connect_is_strange_at_once() {
        for bytes in [
            &b"GET / HTTP/1.1"[..],
            &[0x16, 3, 1],
            &[0x10, 0x80, 0x80, 0x80, 0x80, 1],
            &[0x10, 12, 0, 5],
            b"\x10\x0c\x00\x04MQTT\x06",
            b"\x10\x0c\x00\x04MQTX",
        ] {
            assert_eq!(examine(bytes), Hello::Strange, "{bytes:?}");
        }
    }

    #[test]
    fn a_malformed_connect_of_5_has_its_reason() {
        let mut bytes = connect(ProtocolVersion::V5, "a");
        // The reserved flag [MQTT-3.1.2-3].
        bytes[9] |= 1;
        assert_eq!(
            examine(&bytes),
            Hello::Malformed(ReasonCode::MalformedPacket)
        );
    }

    #[test]
    fn a_connect_that_is_too_long_is_relayed() {
        let mut bytes = connect(ProtocolVersion::V5, "a");
        bytes.truncate(9);
        bytes.splice(1..2, [0xFF, 0xFF, 0x7F]);
        bytes.resize(LONGEST_CONNECT, 0);
        // Clean start, keep alive, no properties, and a client identifier as long as it may be.
        bytes[11..17].copy_from_slice(&[2, 0, 60, 0, 0xFF, 0xFF]);
        assert_eq!(examine(&bytes[..LONGEST_CONNECT - 1]), Hello::Unfinished);
        assert_eq!(examine(&bytes), Hello::Relay);
    }

    #[test]
    fn a_refusal_names_the_other_server() {
        let bytes = refusal(
            ProtocolVersion::V5,
            ReasonCode::UseAnotherServer,
            Some("b:1883"),
        );
        let decoded = decode(&bytes, ProtocolVersion::V5, u32::MAX).unwrap();
        let Some((Packet::Connack(connack), _)) = decoded else {
            panic!("no CONNACK")
        };
        assert_eq!(connack.reason_code, ReasonCode::UseAnotherServer);
        assert_eq!(connack.server_reference, Some("b:1883"));
        let old = refusal(ProtocolVersion::V311, ReasonCode::ServerUnavailable, None);
        assert_eq!(old, [0x20, 2, 0, 3]);
    }
}
