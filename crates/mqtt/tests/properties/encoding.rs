//! Encoding and decoding agree.

use super::{arbitrary, packet_of_any_version};
use proptest::prelude::*;
use thicket_mqtt::{
    ApplicationProperties, EncodeError, Packet, ProtocolVersion, UserProperties, decode,
    frame_header,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn decoding_after_encoding_is_the_identity((version, packet) in packet_of_any_version()) {
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).expect("valid packets encode");
        let len = bytes.len();
        let header = frame_header(&bytes).expect("minimal").expect("whole");
        prop_assert_eq!(header.packet_len, len);
        bytes.extend_from_slice(b"\xFF\xFF");
        prop_assert_eq!(decode(&bytes, version, len as u32), Ok(Some((packet, len))));
    }

    #[test]
    fn a_publish_is_as_long_as_announced_and_its_identifier_stands_where_said(
        (version, publish) in version_and_publish(),
    ) {
        let mut bytes = b"others".to_vec();
        let at = publish.encode(version, &mut bytes).expect("valid packets encode");
        prop_assert_eq!(bytes.len() - 6, publish.encoded_len(version));
        prop_assert_eq!(at.is_some(), publish.packet_id.is_some());
        if let (Some(at), Some(id)) = (at, publish.packet_id) {
            prop_assert_eq!(&bytes[at..at + 2], &id.value().to_be_bytes());
        }
    }

    #[test]
    fn application_properties_are_passed_on_unaltered_whatever_stands_between_them(
        publish in arbitrary::publish(ProtocolVersion::V5),
        gaps in prop::collection::vec(0..4usize, 3),
    ) {
        let mut expected = Vec::new();
        publish.properties.write_to(&mut expected);
        // The same properties with those of the hop strewn in between.
        let list: Vec<_> = publish.properties.iter().collect();
        let mut section = Vec::new();
        let hop: [&[u8]; 3] = [b"\x23\x00\x01", b"\x02\x00\x00\x00\x05", b"\x0B\x80\x01"];
        for index in 0..=list.len().max(4) {
            for (gap, bytes) in gaps.iter().zip(hop) {
                if *gap == index {
                    section.extend_from_slice(bytes);
                }
            }
            if let Some(&property) = list.get(index) {
                section.extend(ApplicationProperties::build([property]).expect("short"));
            }
        }
        let mut bytes = b"\x00\x01t".to_vec();
        bytes.extend(length(section.len()));
        bytes.extend(section);
        let mut packet = vec![0x30];
        packet.extend(length(bytes.len()));
        packet.extend(bytes);
        let (decoded, _) = decode(&packet, ProtocolVersion::V5, u32::MAX).expect("valid").expect("whole");
        let Packet::Publish(decoded) = decoded else { panic!("{decoded:?}") };
        prop_assert_eq!(decoded.properties, publish.properties);
        prop_assert_eq!(decoded.properties.encoded_len(), expected.len());
        let mut passed_on = Vec::new();
        decoded.properties.write_to(&mut passed_on);
        prop_assert_eq!(&passed_on, &expected);
        prop_assert_eq!(ApplicationProperties::from_encoded(&passed_on), Ok(publish.properties));
    }

    #[test]
    fn a_packet_within_a_maximum_keeps_all_it_can(
        (version, packet) in packet_of_any_version(),
        share in 0..120usize,
    ) {
        let mut whole = Vec::new();
        packet.encode(version, &mut whole).expect("valid packets encode");
        let maximum = (whole.len() * share / 100) as u32;
        let mut bytes = b"before".to_vec();
        match packet.encode_within(version, maximum, &mut bytes) {
            Ok(()) => {
                let packet_len = bytes.len() - 6;
                prop_assert!(packet_len <= maximum as usize);
                let (decoded, _) = decode(&bytes[6..], version, maximum).expect("valid").expect("whole");
                let (left, without_reason, shortest) = (decoded.clone(), without_reason(packet.clone()), shortest(packet.clone()));
                prop_assert!([&packet, &without_reason, &shortest].contains(&&left));
                if whole.len() <= maximum as usize {
                    prop_assert_eq!(decoded, packet);
                }
            }
            Err(EncodeError::TooLarge { packet_len, maximum: stated }) => {
                prop_assert_eq!(&bytes, b"before");
                prop_assert_eq!(stated, maximum);
                prop_assert!(packet_len > maximum as usize);
                let mut least = Vec::new();
                shortest(packet).encode(version, &mut least).expect("valid packets encode");
                prop_assert_eq!(least.len(), packet_len);
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn version_and_publish() -> impl Strategy<Value = (ProtocolVersion, thicket_mqtt::Publish<'static>)>
{
    prop_oneof![
        arbitrary::publish(ProtocolVersion::V311)
            .prop_map(|publish| (ProtocolVersion::V311, publish)),
        arbitrary::publish(ProtocolVersion::V5).prop_map(|publish| (ProtocolVersion::V5, publish)),
        // Properties that an older receiver does not get.
        arbitrary::publish(ProtocolVersion::V5)
            .prop_filter("an alias needs 5.0", |publish| !publish.topic.is_empty())
            .prop_map(|publish| (ProtocolVersion::V311, publish)),
    ]
}

fn length(value: usize) -> Vec<u8> {
    if value < 128 {
        vec![value as u8]
    } else {
        vec![value as u8 | 128, (value >> 7) as u8]
    }
}

/// The optional texts of an answer; `None` for packets that are never shortened.
fn diagnostics<'p, 'a>(
    packet: &'p mut Packet<'a>,
) -> Option<(&'p mut Option<&'a str>, &'p mut UserProperties<'a>)> {
    match packet {
        Packet::Connack(packet) => Some((&mut packet.reason_string, &mut packet.user_properties)),
        Packet::Puback(packet)
        | Packet::Pubrec(packet)
        | Packet::Pubrel(packet)
        | Packet::Pubcomp(packet) => Some((&mut packet.reason_string, &mut packet.user_properties)),
        Packet::Suback(packet) => Some((&mut packet.reason_string, &mut packet.user_properties)),
        Packet::Unsuback(packet) => Some((&mut packet.reason_string, &mut packet.user_properties)),
        Packet::Disconnect(packet) => {
            Some((&mut packet.reason_string, &mut packet.user_properties))
        }
        Packet::Auth(packet) => Some((&mut packet.reason_string, &mut packet.user_properties)),
        _ => None,
    }
}

fn without_reason(mut packet: Packet<'_>) -> Packet<'_> {
    if let Some((reason_string, _)) = diagnostics(&mut packet) {
        *reason_string = None;
    }
    packet
}

fn shortest(mut packet: Packet<'_>) -> Packet<'_> {
    if let Some((reason_string, user_properties)) = diagnostics(&mut packet) {
        *reason_string = None;
        user_properties.clear();
    }
    packet
}
