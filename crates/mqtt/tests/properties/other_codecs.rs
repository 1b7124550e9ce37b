//! Two independent codecs read our packets as we mean them: each decodes our bytes and encodes what it understood, and that
//! must decode to the packet we started from.
//!
//! Both accept packets that the specification refuses, so only valid packets are compared; refusals are pinned by the
//! tables of verdicts. Where a codec refuses or loses what the specification allows, it is not asked (`is_known_to_*`).

use super::packet_of_any_version;
use mqtt_protocol_core::mqtt::packet::{v3_1_1, v5_0};
use proptest::prelude::*;
use thicket_mqtt::{
    ApplicationProperties, ApplicationProperty, Packet, PacketKind, ProtocolVersion, decode,
    frame_header,
};

fn through_mqtt_proto(bytes: &[u8], version: ProtocolVersion) -> Result<Vec<u8>, String> {
    if version.has_properties() {
        let packet = mqtt_proto::v5::Packet::decode(bytes).map_err(|error| error.to_string())?;
        let encoded = packet
            .ok_or("incomplete")?
            .encode()
            .map_err(|error| error.to_string())?;
        Ok(encoded.as_ref().to_vec())
    } else {
        let packet = mqtt_proto::v3::Packet::decode(bytes).map_err(|error| error.to_string())?;
        let encoded = packet
            .ok_or("incomplete")?
            .encode()
            .map_err(|error| error.to_string())?;
        Ok(encoded.as_ref().to_vec())
    }
}

fn through_mqtt_protocol_core(
    bytes: &[u8],
    version: ProtocolVersion,
    kind: PacketKind,
) -> Result<Vec<u8>, String> {
    /// Parses with the type of the packet and encodes again.
    macro_rules! again {
        ($packet:ty, $body:expr) => {
            <$packet>::parse($body).map(|(packet, _)| packet.to_continuous_buffer())
        };
        ($packet:ty, $flags:expr, $body:expr) => {
            <$packet>::parse($flags, $body.into()).map(|(packet, _)| packet.to_continuous_buffer())
        };
    }
    let header = frame_header(bytes).expect("minimal").expect("whole");
    let length_len = bytes[1..]
        .iter()
        .take_while(|byte| **byte & 0x80 != 0)
        .count()
        + 1;
    let body = &bytes[1 + length_len..header.packet_len];
    let flags = header.first_byte & 0x0F;
    let parsed = if version.has_properties() {
        match kind {
            PacketKind::Connect => again!(v5_0::Connect, body),
            PacketKind::Connack => again!(v5_0::Connack, body),
            PacketKind::Publish => again!(v5_0::Publish, flags, body),
            PacketKind::Puback => again!(v5_0::Puback, body),
            PacketKind::Pubrec => again!(v5_0::Pubrec, body),
            PacketKind::Pubrel => again!(v5_0::Pubrel, body),
            PacketKind::Pubcomp => again!(v5_0::Pubcomp, body),
            PacketKind::Subscribe => again!(v5_0::Subscribe, body),
            PacketKind::Suback => again!(v5_0::Suback, body),
            PacketKind::Unsubscribe => again!(v5_0::Unsubscribe, body),
            PacketKind::Unsuback => again!(v5_0::Unsuback, body),
            PacketKind::Pingreq => again!(v5_0::Pingreq, body),
            PacketKind::Pingresp => again!(v5_0::Pingresp, body),
            PacketKind::Disconnect => again!(v5_0::Disconnect, body),
            PacketKind::Auth => again!(v5_0::Auth, body),
        }
    } else {
        match kind {
            PacketKind::Connect => again!(v3_1_1::Connect, body),
            PacketKind::Connack => again!(v3_1_1::Connack, body),
            PacketKind::Publish => again!(v3_1_1::Publish, flags, body),
            PacketKind::Puback => again!(v3_1_1::Puback, body),
            PacketKind::Pubrec => again!(v3_1_1::Pubrec, body),
            PacketKind::Pubrel => again!(v3_1_1::Pubrel, body),
            PacketKind::Pubcomp => again!(v3_1_1::Pubcomp, body),
            PacketKind::Subscribe => again!(v3_1_1::Subscribe, body),
            PacketKind::Suback => again!(v3_1_1::Suback, body),
            PacketKind::Unsubscribe => again!(v3_1_1::Unsubscribe, body),
            PacketKind::Unsuback => again!(v3_1_1::Unsuback, body),
            PacketKind::Pingreq => again!(v3_1_1::Pingreq, body),
            PacketKind::Pingresp => again!(v3_1_1::Pingresp, body),
            PacketKind::Disconnect => again!(v3_1_1::Disconnect, body),
            PacketKind::Auth => unreachable!("there is none before 5.0"),
        }
    };
    parsed.map_err(|error| format!("{error:?}"))
}

/// The packet without the order between properties of different kinds, which only a server must keep.
fn unordered(packet: &Packet<'static>) -> Packet<'static> {
    let mut packet = packet.clone();
    match &mut packet {
        Packet::Publish(publish) => publish.properties = sorted(publish.properties),
        Packet::Connect(connect) => {
            if let Some(will) = &mut connect.will {
                will.properties = sorted(will.properties);
            }
        }
        _ => {}
    }
    packet
}

fn sorted(properties: ApplicationProperties<'static>) -> ApplicationProperties<'static> {
    let mut list: Vec<_> = properties.iter().collect();
    // Stable, so that user properties keep their order.
    list.sort_by_key(|property| match property {
        ApplicationProperty::PayloadFormatIndicator(_) => 0,
        ApplicationProperty::ContentType(_) => 1,
        ApplicationProperty::ResponseTopic(_) => 2,
        ApplicationProperty::CorrelationData(_) => 3,
        ApplicationProperty::UserProperty(..) => 4,
    });
    let bytes = ApplicationProperties::build(list).expect("short").leak();
    ApplicationProperties::from_encoded(bytes).expect("valid")
}

fn decoded(bytes: Vec<u8>, version: ProtocolVersion) -> Packet<'static> {
    let bytes = bytes.leak();
    match decode(bytes, version, u32::MAX) {
        Ok(Some((packet, len))) if len == bytes.len() => packet,
        other => panic!("{bytes:02X?}: {other:?}"),
    }
}

/// Whether `mqtt-proto` can take the packet.
fn is_known_to_mqtt_proto(packet: &Packet<'_>, version: ProtocolVersion) -> bool {
    match packet {
        Packet::Connect(connect) => {
            let will_format = connect
                .will
                .as_ref()
                .is_none_or(|will| is_text_if_declared(will.properties, will.payload));
            // It has no bridges, and checks payloads, which the specification leaves open (5.0, 3.1.3.2.3).
            !connect.bridge && will_format
        }
        // It keeps one subscription identifier, and checks payloads (5.0, 3.3.2.3.2).
        Packet::Publish(publish) => {
            publish.subscription_identifiers.iter().count() < 2
                && is_text_if_declared(publish.properties, publish.payload)
        }
        // It writes the failure code of 3.x as 3.
        Packet::Suback(suback) => {
            version.has_properties() || suback.reason_codes.iter().all(|code| !code.is_error())
        }
        _ => true,
    }
}

fn is_text_if_declared(properties: ApplicationProperties<'_>, payload: &[u8]) -> bool {
    let declared = ApplicationProperty::PayloadFormatIndicator(1);
    std::str::from_utf8(payload).is_ok() || properties.iter().all(|property| property != declared)
}

/// Whether `mqtt-protocol-core` can take the packet.
fn is_known_to_mqtt_protocol_core(packet: &Packet<'_>, version: ProtocolVersion) -> bool {
    // It has no 3.1.
    version != ProtocolVersion::V31
        && match packet {
            // It has no bridges, and takes a password without a user name for an error in 5.0 too.
            Packet::Connect(connect) => {
                let login = connect.login;
                !connect.bridge && (login.password.is_none() || login.user_name.is_some())
            }
            _ => true,
        }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn mqtt_proto_understands_our_packets((version, packet) in packet_of_any_version()) {
        prop_assume!(is_known_to_mqtt_proto(&packet, version));
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).expect("valid packets encode");
        let again = through_mqtt_proto(&bytes, version);
        prop_assert!(again.is_ok(), "{:?}", again);
        prop_assert_eq!(unordered(&decoded(again.unwrap_or_default(), version)), unordered(&packet));
    }

    #[test]
    fn mqtt_protocol_core_understands_our_packets((version, packet) in packet_of_any_version()) {
        prop_assume!(is_known_to_mqtt_protocol_core(&packet, version));
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).expect("valid packets encode");
        let again = through_mqtt_protocol_core(&bytes, version, packet.kind());
        prop_assert!(again.is_ok(), "{:?}", again);
        prop_assert_eq!(unordered(&decoded(again.unwrap_or_default(), version)), unordered(&packet));
    }
}
