//! Packets become the bytes that the specification draws, and those become the packets again.

use thicket_mqtt::{
    Acknowledgement, ApplicationProperties, ApplicationProperty, Auth, Connack, Connect,
    Disconnect, EncodeError, Packet, PacketId, PacketKind, ProtocolVersion, Publish, Qos,
    ReasonCode, Suback, Subscribe, Unsuback, Unsubscribe, Will, decode,
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

#[test]
fn what_cannot_be_encoded_is_refused_and_leaves_the_output_as_it_was() {
    use ProtocolVersion::{V5, V311};
    let long = "x".repeat(65_536);
    let giant = vec![0; 268_435_455];
    let publish = |change: fn(&mut Publish<'_>)| {
        let mut publish = Publish::new("t", b"p");
        change(&mut publish);
        Packet::Publish(publish)
    };
    let auth = |method| Auth {
        authentication_method: method,
        ..Auth::default()
    };
    let data = Auth {
        authentication_data: Some(b"d"),
        ..Auth::default()
    };
    let password = Connect {
        login: thicket_mqtt::Login {
            user_name: None,
            password: Some(b"p"),
        },
        ..Connect::new(V311, "c")
    };
    let receive_maximum = Connack {
        receive_maximum: Some(0),
        ..Connack::default()
    };
    let long_reason = Acknowledgement {
        reason_string: Some(&long),
        ..Acknowledgement::new(id(1), ReasonCode::Success)
    };
    let identifier = Subscribe {
        subscription_identifier: Some(0),
        ..Subscribe::new(id(1), "a", Qos::AtMostOnce)
    };
    let kind = PacketKind::Suback;
    #[rustfmt::skip] // One line a case.
    let cases = [
        (V311, Packet::Publish(Publish::new(&long, b"")), EncodeError::StringTooLong { len: 65_536 }),
        (V311, Packet::Publish(Publish::new("t", &giant)), EncodeError::PacketTooLong { len: 268_435_458 }),
        (V5, publish(|publish| publish.topic = ""), EncodeError::TopicMissing),
        (V311, publish(|publish| (publish.topic, publish.topic_alias) = ("", Some(1))), EncodeError::TopicMissing),
        (V5, publish(|publish| publish.qos = Qos::AtLeastOnce), EncodeError::PacketIdMismatch),
        (V5, publish(|publish| publish.packet_id = PacketId::new(1)), EncodeError::PacketIdMismatch),
        (V5, publish(|publish| publish.topic_alias = Some(0)), EncodeError::PropertyZero { id: 0x23 }),
        (V5, publish(|publish| publish.subscription_identifiers = (&[268_435_456]).into()), EncodeError::SubscriptionIdentifierInvalid { value: 268_435_456 }),
        (V5, Packet::Puback(long_reason), EncodeError::StringTooLong { len: 65_536 }),
        (V5, Packet::Subscribe(identifier), EncodeError::SubscriptionIdentifierInvalid { value: 0 }),
        (V5, Packet::Suback(Suback::new(id(1), vec![])), EncodeError::ListEmpty { kind }),
        (V5, Packet::Suback(Suback::new(id(1), vec![ReasonCode::ServerBusy])), EncodeError::ReasonCodeInvalid { kind, code: ReasonCode::ServerBusy }),
        (V5, Packet::Connack(Box::new(receive_maximum)), EncodeError::PropertyZero { id: 0x21 }),
        (V311, Packet::Connect(Box::new(password)), EncodeError::PasswordWithoutUserName),
        (V5, Packet::Auth(data), EncodeError::AuthenticationMethodMissing),
        (V311, Packet::Auth(auth(Some("M"))), EncodeError::NotInVersion { kind: PacketKind::Auth }),
    ];
    for (version, packet, expected) in cases {
        let mut out = b"before".to_vec();
        assert_eq!(packet.encode(version, &mut out), Err(expected));
        assert_eq!(
            packet.encode_within(version, u32::MAX, &mut out),
            Err(expected)
        );
        assert_eq!(out, b"before", "{expected}");
    }
}

/// Every kind of answer with a reason string and a user property, and its size with both, without the reason, with neither.
fn answers_with_a_reason() -> [(&'static str, Packet<'static>, [usize; 3]); 9] {
    let ack = Acknowledgement {
        reason_string: Some("no"),
        user_properties: vec![("a", "b")],
        ..Acknowledgement::new(id(10), ReasonCode::PacketIdentifierNotFound)
    };
    let refused = Acknowledgement {
        reason_code: ReasonCode::NotAuthorized,
        ..ack.clone()
    };
    let suback = Suback {
        reason_string: Some("no"),
        user_properties: vec![("a", "b")],
        ..Suback::new(id(10), vec![ReasonCode::NotAuthorized])
    };
    let unsuback = Unsuback {
        reason_string: Some("no"),
        user_properties: vec![("a", "b")],
        ..Unsuback::new(id(10), vec![ReasonCode::NotAuthorized])
    };
    let disconnect = Disconnect {
        reason_string: Some("no"),
        user_properties: vec![("a", "b")],
        ..Disconnect::new(ReasonCode::NotAuthorized)
    };
    let auth = Auth {
        reason_code: ReasonCode::ContinueAuthentication,
        authentication_method: Some("m"),
        reason_string: Some("no"),
        user_properties: vec![("a", "b")],
        ..Auth::default()
    };
    let connack = Connack {
        reason_string: Some("no"),
        user_properties: vec![("a", "b")],
        ..Connack::new(ReasonCode::NotAuthorized)
    };
    #[rustfmt::skip] // One line a case.
    let answers = [
        ("PUBACK [MQTT-3.4.2-2] [MQTT-3.4.2-3]", Packet::Puback(refused.clone()), [18, 13, 5]),
        ("PUBREC [MQTT-3.5.2-2] [MQTT-3.5.2-3]", Packet::Pubrec(refused), [18, 13, 5]),
        ("PUBREL [MQTT-3.6.2-2] [MQTT-3.6.2-3]", Packet::Pubrel(ack.clone()), [18, 13, 5]),
        ("PUBCOMP [MQTT-3.7.2-2] [MQTT-3.7.2-3]", Packet::Pubcomp(ack), [18, 13, 5]),
        ("SUBACK [MQTT-3.9.2-1] [MQTT-3.9.2-2]", Packet::Suback(suback), [18, 13, 6]),
        ("UNSUBACK [MQTT-3.11.2-1] [MQTT-3.11.2-2]", Packet::Unsuback(unsuback), [18, 13, 6]),
        ("DISCONNECT [MQTT-3.14.2-3] [MQTT-3.14.2-4]", Packet::Disconnect(disconnect), [16, 11, 3]),
        ("AUTH [MQTT-3.15.2-2] [MQTT-3.15.2-3]", Packet::Auth(auth), [20, 15, 8]),
        ("CONNACK [MQTT-3.2.2-19] [MQTT-3.2.2-20]", Packet::Connack(Box::new(connack)), [17, 12, 5]),
    ];
    answers
}

#[test]
fn an_answer_goes_without_its_reason_then_without_user_properties_to_fit() {
    for (name, packet, [both, no_reason, neither]) in answers_with_a_reason() {
        let cases = [
            (both + 1, Ok(both)),
            (both, Ok(both)),
            (both - 1, Ok(no_reason)),
            (no_reason, Ok(no_reason)),
            (no_reason - 1, Ok(neither)),
            (neither, Ok(neither)),
            (neither - 1, Err(neither)),
            (0, Err(neither)),
        ];
        for (maximum, expected) in cases {
            let mut out = Vec::new();
            let outcome = packet.encode_within(ProtocolVersion::V5, maximum as u32, &mut out);
            let outcome = match outcome {
                Ok(()) => Ok(out.len()),
                Err(EncodeError::TooLarge { packet_len, .. }) => Err(packet_len),
                Err(other) => panic!("{name}: {other}"),
            };
            assert_eq!(outcome, expected, "{name}, maximum {maximum}");
        }
    }
}
