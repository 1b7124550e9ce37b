//! Every packet survives being encoded and decoded.

use thicket_mqtt::{
    Acknowledgement, ApplicationProperties, ApplicationProperty, Auth, Connack, Connect,
    Disconnect, Packet, PacketId, ProtocolVersion, Publish, Qos, ReasonCode, Suback, Subscribe,
    Unsuback, Unsubscribe, Will, decode,
};

const VERSIONS: [ProtocolVersion; 3] = [
    ProtocolVersion::V31,
    ProtocolVersion::V311,
    ProtocolVersion::V5,
];

fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("no test uses 0")
}

/// Packets that mean the same in every version.
fn plain_packets(version: ProtocolVersion) -> Vec<Packet<'static>> {
    let mut connect = Connect::new(version, "otter");
    connect.will = Some(Will {
        qos: Qos::AtLeastOnce,
        retain: true,
        ..Will::new("holt", b"gone")
    });
    connect.login.user_name = Some("lutra");
    connect.login.password = Some(b"fish");
    let ack = Acknowledgement::new(id(7), ReasonCode::Success);
    let publish = Publish {
        qos: Qos::ExactlyOnce,
        dup: true,
        retain: true,
        packet_id: Some(id(0xFFFF)),
        ..Publish::new("river/bank", b"slide")
    };
    let unsuback_codes = if version.has_properties() {
        vec![ReasonCode::NoSubscriptionExisted]
    } else {
        vec![]
    };
    let mut packets = vec![
        Packet::Connect(Box::new(connect)),
        Packet::Connack(Box::default()),
        Packet::Connack(Box::new(Connack::new(ReasonCode::NotAuthorized))),
        Packet::Publish(Publish::new("river", b"")),
        Packet::Publish(publish),
        Packet::Puback(ack.clone()),
        Packet::Pubrec(ack.clone()),
        Packet::Pubrel(ack.clone()),
        Packet::Pubcomp(ack),
        Packet::Subscribe(Subscribe::new(id(1), "river/#", Qos::ExactlyOnce)),
        Packet::Suback(Suback::new(
            id(1),
            vec![ReasonCode::GrantedQos2, ReasonCode::UnspecifiedError],
        )),
        Packet::Unsubscribe(Unsubscribe::new(id(2), vec!["river/#", "bank"])),
        Packet::Unsuback(Unsuback::new(id(2), unsuback_codes)),
        Packet::Pingreq,
        Packet::Pingresp,
        Packet::Disconnect(Disconnect::default()),
    ];
    if version.has_properties() {
        packets.push(Packet::Auth(Auth {
            reason_code: ReasonCode::ContinueAuthentication,
            authentication_method: Some("SCRAM"),
            authentication_data: Some(b"\0\xFF"),
            reason_string: Some("go on"),
            user_properties: vec![("a", "b"), ("a", "c")],
        }));
    }
    packets
}

#[test]
fn every_kind_of_packet_decodes_to_what_was_encoded() {
    for version in VERSIONS {
        for packet in plain_packets(version) {
            let mut bytes = b"before".to_vec();
            packet.encode(version, &mut bytes).expect("encodes");
            let encoded_len = bytes.len() - 6;
            bytes.extend_from_slice(b"after");
            let decoded = decode(&bytes[6..], version, u32::MAX);
            assert_eq!(decoded, Ok(Some((packet, encoded_len))), "{version:?}");
        }
    }
}

#[test]
fn properties_of_a_publish_survive_and_those_of_the_message_can_be_passed_on() {
    let list = [
        ApplicationProperty::PayloadFormatIndicator(1),
        ApplicationProperty::UserProperty("shore", "left"),
        ApplicationProperty::UserProperty("shore", "right"),
    ];
    let encoded = ApplicationProperties::build(list).expect("short");
    let publish = Publish {
        topic_alias: Some(3),
        message_expiry_interval: Some(0),
        subscription_identifiers: (&[5, 200_000, 5]).into(),
        properties: ApplicationProperties::from_encoded(&encoded).expect("valid"),
        ..Publish::new("", b"splash")
    };
    let mut bytes = Vec::new();
    publish
        .encode(ProtocolVersion::V5, &mut bytes)
        .expect("encodes");
    let (decoded, len) = decode(&bytes, ProtocolVersion::V5, u32::MAX)
        .expect("valid")
        .expect("whole");
    assert_eq!(len, bytes.len());
    let Packet::Publish(decoded) = decoded else {
        panic!("{decoded:?} is no PUBLISH")
    };
    assert_eq!(decoded, publish);
    assert!(decoded.properties.iter().eq(list));
    assert!(decoded.subscription_identifiers.iter().eq([5, 200_000, 5]));
    let mut passed_on = Vec::new();
    decoded.properties.write_to(&mut passed_on);
    assert_eq!(passed_on, encoded);
}
