//! Packets are written as the specification draws them; the hexadecimal bytes can be read without the code.

use thicket_mqtt::{
    Acknowledgement, Auth, Connack, Connect, Disconnect, Login, Packet, PacketId, ProtocolVersion,
    Publish, Qos, ReasonCode, Suback, Subscribe, Unsuback, Unsubscribe, Will, decode,
};

fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("no test uses 0")
}

/// Bytes of hexadecimal text.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|char| *char != ' ').collect();
    let byte = |pair: &[char]| pair.iter().collect::<String>();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(&byte(pair), 16).expect("hex"))
        .collect()
}

fn check_golden(name: &str, version: ProtocolVersion, packet: &Packet<'_>, expected: &str) {
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes).expect("encodes");
    assert_eq!(bytes, hex(expected), "{name}: {bytes:02X?}");
}

#[test]
fn messages_and_acknowledgements_are_written_as_the_specification_draws_them() {
    use ProtocolVersion::{V5, V31, V311};
    let a_b = Publish {
        qos: Qos::AtLeastOnce,
        packet_id: Some(id(10)),
        ..Publish::new("a/b", b"")
    };
    let ack = |code| Acknowledgement::new(id(10), code);
    let told = Acknowledgement {
        reason_string: Some("no"),
        user_properties: vec![("a", "b")],
        ..ack(ReasonCode::NotAuthorized)
    };
    let leaving = Disconnect {
        session_expiry_interval: Some(0),
        ..Disconnect::new(ReasonCode::DisconnectWithWillMessage)
    };
    #[rustfmt::skip] // One line a case.
    let cases = [
        ("PUBLISH, 3.1.1 example 3.3.2.3", V311, Packet::Publish(a_b), "32 07 0003 612F62 000A"),
        ("PUBLISH, 5.0 example 3.3.2", V5, Packet::Publish(a_b), "32 08 0003 612F62 000A 00"),
        ("PUBACK, 3.1.1", V311, Packet::Puback(ack(ReasonCode::NotAuthorized)), "40 02 000A"),
        ("PUBACK, success (5.0, 3.4.2.1)", V5, Packet::Puback(ack(ReasonCode::Success)), "40 02 000A"),
        ("PUBACK, failure", V5, Packet::Puback(ack(ReasonCode::NotAuthorized)), "40 03 000A 87"),
        ("PUBACK, explained", V5, Packet::Puback(told), "40 10 000A 87 0C 1F 0002 6E6F 26 0001 61 0001 62"),
        ("PUBREC", V5, Packet::Pubrec(ack(ReasonCode::Success)), "50 02 000A"),
        ("PUBREL", V5, Packet::Pubrel(ack(ReasonCode::Success)), "62 02 000A"),
        ("PUBREL, 3.1", V31, Packet::Pubrel(ack(ReasonCode::Success)), "62 02 000A"),
        ("PUBCOMP", V5, Packet::Pubcomp(ack(ReasonCode::PacketIdentifierNotFound)), "70 03 000A 92"),
        ("PINGREQ", V5, Packet::Pingreq, "C0 00"),
        ("PINGRESP", V311, Packet::Pingresp, "D0 00"),
        ("DISCONNECT, 3.1.1", V311, Packet::Disconnect(Disconnect::new(ReasonCode::ServerBusy)), "E0 00"),
        ("DISCONNECT, success (5.0, 3.14.2.1)", V5, Packet::Disconnect(Disconnect::default()), "E0 00"),
        ("DISCONNECT, code alone", V5, Packet::Disconnect(Disconnect::new(ReasonCode::SessionTakenOver)), "E0 01 8E"),
        ("DISCONNECT, with will", V5, Packet::Disconnect(leaving), "E0 07 04 05 11 00000000"),
        ("AUTH, success (5.0, 3.15.2.1)", V5, Packet::Auth(Auth::default()), "F0 00"),
    ];
    for (name, version, packet, expected) in cases {
        check_golden(name, version, &packet, expected);
    }
}

#[test]
fn connects_and_subscriptions_are_written_as_the_specification_draws_them() {
    use ProtocolVersion::{V5, V31, V311};
    let connect = |version| {
        Packet::Connect(Box::new(Connect {
            keep_alive: 10,
            ..Connect::new(version, "c")
        }))
    };
    let bridge = Connect {
        bridge: true,
        clean_start: false,
        ..Connect::new(V311, "c")
    };
    let will = Will {
        qos: Qos::ExactlyOnce,
        retain: true,
        delay_interval: 1,
        ..Will::new("w", b"m")
    };
    let full = Connect {
        will: Some(will),
        login: Login {
            user_name: Some("u"),
            password: Some(b"p"),
        },
        session_expiry_interval: Some(10),
        request_problem_information: false,
        ..Connect::new(V5, "c")
    };
    let refused = Connack {
        session_present: true,
        ..Connack::new(ReasonCode::Banned)
    };
    let resumed = Connack {
        session_present: true,
        ..Connack::default()
    };
    let codes = vec![
        ReasonCode::Success,
        ReasonCode::GrantedQos2,
        ReasonCode::NotAuthorized,
    ];
    let suback = Packet::Suback(Suback::new(id(10), codes));
    let unsuback = Packet::Unsuback(Unsuback::new(
        id(10),
        vec![ReasonCode::NoSubscriptionExisted],
    ));
    let subscribe = Subscribe {
        subscription_identifier: Some(128),
        ..Subscribe::new(id(10), "a/b", Qos::AtLeastOnce)
    };
    let subscribe = Packet::Subscribe(subscribe);
    let unsubscribe = Packet::Unsubscribe(Unsubscribe::new(id(10), vec!["a/b", "c/d"]));
    let connack = |connack: &Connack<'static>| Packet::Connack(Box::new(connack.clone()));
    #[rustfmt::skip] // One line a case.
    let cases = [
        ("CONNECT, 3.1", V5, connect(V31), "10 0F 0006 4D5149736470 03 02 000A 0001 63"),
        ("CONNECT, 3.1.1", V5, connect(V311), "10 0D 0004 4D515454 04 02 000A 0001 63"),
        ("CONNECT, 5.0", V311, connect(V5), "10 0E 0004 4D515454 05 02 000A 00 0001 63"),
        ("CONNECT of a bridge", V311, Packet::Connect(Box::new(bridge)), "10 0D 0004 4D515454 84 00 003C 0001 63"),
        ("CONNECT with everything that has a flag", V5, Packet::Connect(Box::new(full)), "10 27 0004 4D515454 05 F6 003C 07 11 0000000A 17 00 0001 63 05 18 00000001 0001 77 0001 6D 0001 75 0001 70"),
        ("CONNACK, 3.1.1, return code 5 for Banned", V311, connack(&refused), "20 02 00 05"),
        ("CONNACK, refusals claim no session [MQTT-3.2.2-6]", V5, connack(&refused), "20 03 00 8A 00"),
        ("CONNACK, session present", V311, connack(&resumed), "20 02 01 00"),
        ("CONNACK, 3.1 does not know session present", V31, connack(&resumed), "20 02 00 00"),
        ("SUBSCRIBE, 3.1.1", V311, subscribe.clone(), "82 08 000A 0003 612F62 01"),
        ("SUBSCRIBE, 5.0", V5, subscribe, "82 0C 000A 03 0B 8001 0003 612F62 01"),
        ("SUBACK, 3.1.1, one code for all failures", V311, suback.clone(), "90 05 000A 00 02 80"),
        ("SUBACK, 5.0", V5, suback, "90 06 000A 00 00 02 87"),
        ("UNSUBSCRIBE, 3.1.1 example 3.10.3", V311, unsubscribe, "A2 0C 000A 0003 612F62 0003 632F64"),
        ("UNSUBACK, 3.1.1", V311, unsuback.clone(), "B0 02 000A"),
        ("UNSUBACK, 5.0", V5, unsuback, "B0 04 000A 00 11"),
    ];
    for (name, version, packet, expected) in cases {
        check_golden(name, version, &packet, expected);
    }
}

#[test]
fn the_remaining_length_grows_at_the_borders_of_the_specification() {
    // Table 1-1 of 5.0, with a topic of one character in 3.1.1: three bytes besides the payload.
    let cases = [
        (127, "7F"),
        (128, "8001"),
        (16_383, "FF7F"),
        (16_384, "808001"),
        (2_097_151, "FFFF7F"),
        (2_097_152, "80808001"),
    ];
    for (remaining, expected) in cases {
        let payload = vec![b'x'; remaining - 3];
        let publish = Publish::new("t", &payload);
        let mut bytes = Vec::new();
        publish
            .encode(ProtocolVersion::V311, &mut bytes)
            .expect("encodes");
        let expected = hex(expected);
        assert_eq!(&bytes[1..1 + expected.len()], expected, "{remaining}");
        assert_eq!(bytes.len(), 1 + expected.len() + remaining);
        assert_eq!(bytes.len(), publish.encoded_len(ProtocolVersion::V311));
        // The same length by the way of all other packets.
        let reason = "r".repeat(60_000.min(remaining));
        let user_properties = vec![("u", reason.as_str()); remaining / 60_000];
        let packet = Packet::Disconnect(Disconnect {
            user_properties,
            reason_string: Some("x"),
            ..Disconnect::default()
        });
        let mut bytes = Vec::new();
        packet
            .encode(ProtocolVersion::V5, &mut bytes)
            .expect("encodes");
        assert_eq!(
            decode(&bytes, ProtocolVersion::V5, u32::MAX),
            Ok(Some((packet, bytes.len())))
        );
    }
}
