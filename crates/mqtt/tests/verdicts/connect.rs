//! CONNECT: protocol, flags, payload, properties, will.

use super::{
    Accept, Case, MALFORMED, PROTOCOL, ReasonCode, Refuse, V5, V31, V311, bytes, check, refusal,
};
use thicket_mqtt::{Packet, ProtocolVersion, Qos, connect_version, decode};

const VERSION: super::Verdict = Refuse(ReasonCode::UnsupportedProtocolVersion);
const TOPIC: super::Verdict = Refuse(ReasonCode::TopicNameInvalid);

/// The version given is that of nobody: a CONNECT brings its own.
#[rustfmt::skip] // One line a case.
pub(super) const CASES: &[Case] = &[
    ("smallest 5.0", V311, "10 [ <MQTT> 05 00 0000 [ ] <> ]", Accept),
    ("smallest 3.1.1", V5, "10 [ <MQTT> 04 02 0000 <> ]", Accept),
    ("smallest 3.1", V5, "10 [ <MQIsdp> 03 02 0000 <a> ]", Accept),
    ("client id over 23 bytes in 3.1", V5, "10 [ <MQIsdp> 03 02 0000 <abcdefghijklmnopqrstuvwxyz> ]", Accept),
    ("empty client id in 3.1 is for the session to refuse", V5, "10 [ <MQIsdp> 03 02 0000 <> ]", Accept),
    ("empty client id with clean session 0 likewise", V5, "10 [ <MQTT> 04 00 0000 <> ]", Accept),
    ("bridge of 3.1.1", V5, "10 [ <MQTT> 84 02 0000 <a> ]", Accept),
    ("bridge of 3.1", V5, "10 [ <MQIsdp> 83 02 0000 <a> ]", Accept),
    ("there is no bridge of 5.0", V5, "10 [ <MQTT> 85 02 0000 [ ] <a> ]", VERSION),
    ("wrong name [MQTT-3.1.2-1]", V5, "10 [ <MQTS> 05 02 0000 [ ] <a> ]", VERSION),
    ("name in another case [MQTT-3.1.2-1]", V5, "10 [ <mqtt> 05 02 0000 [ ] <a> ]", VERSION),
    ("wrong name [MQTT-3.1.2-1 v3.1.1]", V5, "10 [ <HTTP> 04 02 0000 <a> ]", VERSION),
    ("name that is no string", V5, "10 [ 0004 'MQ' FF 'T' 04 02 0000 <a> ]", MALFORMED),
    ("level 6 [MQTT-3.1.2-2]", V5, "10 [ <MQTT> 06 02 0000 [ ] <a> ]", VERSION),
    ("level 3 with the name MQTT [MQTT-3.1.2-2 v3.1.1]", V5, "10 [ <MQTT> 03 02 0000 <a> ]", VERSION),
    ("level 4 with the name MQIsdp", V5, "10 [ <MQIsdp> 04 02 0000 <a> ]", VERSION),
    ("level 0 [MQTT-3.1.2-2]", V5, "10 [ <MQTT> 00 02 0000 <a> ]", VERSION),
    ("nothing after the level", V5, "10 [ <MQTT> 05 ]", MALFORMED),
    ("no payload [MQTT-3.1.3-3]", V5, "10 [ <MQTT> 05 02 0000 [ ] ]", MALFORMED),
    ("no payload [MQTT-3.1.3-3 v3.1.1]", V5, "10 [ <MQTT> 04 02 0000 ]", MALFORMED),
    ("empty packet", V5, "10 [ ]", MALFORMED),
    ("reserved flag [MQTT-3.1.2-3]", V5, "10 [ <MQTT> 05 03 0000 [ ] <a> ]", MALFORMED),
    ("reserved flag [MQTT-3.1.2-3 v3.1.1]", V5, "10 [ <MQTT> 04 03 0000 <a> ]", MALFORMED),
    ("reserved flag is not used in 3.1", V5, "10 [ <MQIsdp> 03 03 0000 <a> ]", Accept),
    ("will QoS without will [MQTT-3.1.2-11]", V5, "10 [ <MQTT> 05 0A 0000 [ ] <a> ]", MALFORMED),
    ("will QoS without will [MQTT-3.1.2-13 v3.1.1]", V5, "10 [ <MQTT> 04 12 0000 <a> ]", MALFORMED),
    ("will retain without will [MQTT-3.1.2-13]", V5, "10 [ <MQTT> 05 22 0000 [ ] <a> ]", MALFORMED),
    ("will retain without will [MQTT-3.1.2-15 v3.1.1]", V5, "10 [ <MQTT> 04 22 0000 <a> ]", MALFORMED),
    ("will QoS 3 [MQTT-3.1.2-12]", V5, "10 [ <MQTT> 05 1E 0000 [ ] <a> [ ] <t> <p> ]", MALFORMED),
    ("will QoS 3 [MQTT-3.1.2-14 v3.1.1]", V5, "10 [ <MQTT> 04 1E 0000 <a> <t> <p> ]", MALFORMED),
    ("will with everything [MQTT-3.1.2-9]", V5, "10 [ <MQTT> 05 36 0000 [ ] <a> [ 18 00000005 02 00000000 ] <t> <p> ]", Accept),
    ("will without payload field [MQTT-3.1.2-9]", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> [ ] <t> ]", MALFORMED),
    ("will without properties [MQTT-3.1.2-9]", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> <t> <p> ]", MALFORMED),
    ("will of zero bytes", V5, "10 [ <MQTT> 04 06 0000 <a> <t> <> ]", Accept),
    ("will topic with # [MQTT-4.7.0-1]", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> [ ] <t/#> <p> ]", TOPIC),
    ("will topic with + [MQTT-4.7.1-1 v3.1.1]", V5, "10 [ <MQTT> 04 06 0000 <a> <+/t> <p> ]", TOPIC),
    ("empty will topic [MQTT-4.7.3-1]", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> [ ] <> <p> ]", TOPIC),
    ("will topic not UTF-8 [MQTT-3.1.3-11]", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> [ ] 0001 FF <p> ]", MALFORMED),
    ("client id not UTF-8 [MQTT-3.1.3-4]", V5, "10 [ <MQTT> 05 02 0000 [ ] 0001 FF ]", MALFORMED),
    ("client id with U+0000 [MQTT-1.5.4-2]", V5, "10 [ <MQTT> 05 02 0000 [ ] 0001 00 ]", MALFORMED),
    ("user name and password [MQTT-3.1.2-17] [MQTT-3.1.2-19]", V5, "10 [ <MQTT> 05 C2 0000 [ ] <a> <u> <p> ]", Accept),
    ("user name not UTF-8 [MQTT-3.1.3-12]", V5, "10 [ <MQTT> 05 82 0000 [ ] <a> 0001 FF ]", MALFORMED),
    ("password of any bytes (5.0, 3.1.3.6)", V5, "10 [ <MQTT> 05 C2 0000 [ ] <a> <u> 0002 00FF ]", Accept),
    ("password alone (5.0, 3.1.2.9)", V5, "10 [ <MQTT> 05 42 0000 [ ] <a> <p> ]", Accept),
    ("password alone [MQTT-3.1.2-22 v3.1.1]", V5, "10 [ <MQTT> 04 42 0000 <a> <p> ]", MALFORMED),
    ("user name missing [MQTT-3.1.2-17]", V5, "10 [ <MQTT> 05 82 0000 [ ] <a> ]", MALFORMED),
    ("user name missing [MQTT-3.1.2-19 v3.1.1]", V5, "10 [ <MQTT> 04 82 0000 <a> ]", MALFORMED),
    ("user name missing (3.1, 3.1: the remaining length counts)", V5, "10 [ <MQIsdp> 03 82 0000 <a> ]", Accept),
    ("password missing [MQTT-3.1.2-19]", V5, "10 [ <MQTT> 05 C2 0000 [ ] <a> <u> ]", MALFORMED),
    ("user name without flag [MQTT-3.1.2-16]", V5, "10 [ <MQTT> 05 02 0000 [ ] <a> <u> ]", MALFORMED),
    ("password without flag [MQTT-3.1.2-18]", V5, "10 [ <MQTT> 05 82 0000 [ ] <a> <u> <p> ]", MALFORMED),
    ("bytes after the payload (3.1.1, 3.1.3)", V5, "10 [ <MQTT> 04 02 0000 <a> 00 ]", MALFORMED),
    ("property length missing [MQTT-2.2.2-1]", V5, "10 [ <MQTT> 05 02 0000 ]", MALFORMED),
    ("property length over the end", V5, "10 [ <MQTT> 05 02 0000 7F <a> ]", MALFORMED),
    ("all properties (5.0, 3.1.2.11)", V5, "10 [ <MQTT> 05 02 0000 [ 11 FFFFFFFF 21 0001 27 00000001 22 FFFF 19 01 17 00 26 <a> <b> 26 <a> <b> 15 <M> 16 0001 00 ] <a> ]", Accept),
    ("session expiry twice (5.0, 3.1.2.11.2)", V5, "10 [ <MQTT> 05 02 0000 [ 11 00000000 11 00000000 ] <a> ]", PROTOCOL),
    ("receive maximum 0 (5.0, 3.1.2.11.3)", V5, "10 [ <MQTT> 05 02 0000 [ 21 0000 ] <a> ]", PROTOCOL),
    ("receive maximum twice (5.0, 3.1.2.11.3)", V5, "10 [ <MQTT> 05 02 0000 [ 21 0001 21 0001 ] <a> ]", PROTOCOL),
    ("maximum packet size 0 (5.0, 3.1.2.11.4)", V5, "10 [ <MQTT> 05 02 0000 [ 27 00000000 ] <a> ]", PROTOCOL),
    ("topic alias maximum 0 (5.0, 3.1.2.11.5)", V5, "10 [ <MQTT> 05 02 0000 [ 22 0000 ] <a> ]", Accept),
    ("request response information 2 (5.0, 3.1.2.11.6)", V5, "10 [ <MQTT> 05 02 0000 [ 19 02 ] <a> ]", PROTOCOL),
    ("request problem information 2 (5.0, 3.1.2.11.7)", V5, "10 [ <MQTT> 05 02 0000 [ 17 02 ] <a> ]", PROTOCOL),
    ("authentication data alone (5.0, 3.1.2.11.10)", V5, "10 [ <MQTT> 05 02 0000 [ 16 0001 00 ] <a> ]", PROTOCOL),
    ("property of another packet (5.0, 2.2.2.2)", V5, "10 [ <MQTT> 05 02 0000 [ 01 00 ] <a> ]", MALFORMED),
    ("will delay outside the will (5.0, 2.2.2.2)", V5, "10 [ <MQTT> 05 02 0000 [ 18 00000001 ] <a> ]", MALFORMED),
    ("unknown property (5.0, 2.2.2.2)", V5, "10 [ <MQTT> 05 02 0000 [ 7E 00 ] <a> ]", MALFORMED),
    ("unknown property of two bytes (5.0, 2.2.2.2)", V5, "10 [ <MQTT> 05 02 0000 [ 91 02 00000000 ] <a> ]", MALFORMED),
    ("property cut short", V5, "10 [ <MQTT> 05 02 0000 [ 11 0000 ] <a> ]", MALFORMED),
    ("user property with U+0000 [MQTT-1.5.7-1]", V5, "10 [ <MQTT> 05 02 0000 [ 26 <a> 0001 00 ] <a> ]", MALFORMED),
    ("will delay twice (5.0, 3.1.3.2.2)", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> [ 18 00000001 18 00000001 ] <t> <p> ]", PROTOCOL),
    ("topic alias in the will (5.0, 2.2.2.2)", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> [ 23 0001 ] <t> <p> ]", MALFORMED),
    ("will payload format 2 (5.0, 3.1.3.2.3)", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> [ 01 02 ] <t> <p> ]", PROTOCOL),
    ("will response topic with # (5.0, 3.1.3.2.6)", V5, "10 [ <MQTT> 05 06 0000 [ ] <a> [ 08 <r/#> ] <t> <p> ]", PROTOCOL),
];

#[test]
fn connects_are_judged_as_the_specification_says() {
    check(CASES);
}

#[test]
fn an_unsupported_protocol_tells_which_shape_of_connack_answers() {
    let cases = [
        ("10 [ <MQTT> 06 02 0000 [ ] <a> ]", Some(V5)),
        ("10 [ <MQTT> 85 02 0000 [ ] <a> ]", Some(V5)),
        ("10 [ <MQTX> 05 02 0000 [ ] <a> ]", Some(V5)),
        ("10 [ <MQTT> 03 02 0000 <a> ]", Some(V311)),
        ("10 [ <MQTT> 82 02 0000 <a> ]", Some(V311)),
        ("10 [ <MQTX> 04 02 0000 <a> ]", Some(V311)),
        ("10 [ <MQTT> 04 03 0000 <a> ]", None),
    ];
    for (notation, version) in cases {
        assert_eq!(
            refusal(V5, notation).connack_version(),
            version,
            "{notation}"
        );
    }
}

#[test]
fn the_version_of_a_refused_connect_can_be_seen_from_its_first_bytes() {
    let cases: [(&str, Option<ProtocolVersion>); 7] = [
        ("10 FF 01 <MQTT> 05", Some(V5)),
        ("10 [ <MQTT> 84 03 0000 <a> ]", Some(V311)),
        ("10 [ <MQIsdp> 03 ]", Some(V31)),
        ("10 7F <MQTT>", None),
        ("10 7F <MQTT> 06", None),
        ("20 7F <MQTT> 05", None),
        ("", None),
    ];
    for (notation, version) in cases {
        assert_eq!(connect_version(&bytes(notation)), version, "{notation}");
    }
}

#[test]
fn the_example_of_the_specification_is_read_as_it_explains() {
    // The variable header of 5.0, 3.1.2.12, with the client identifier, will, user name and password that its flags announce.
    let packet = bytes("10 [ <MQTT> 05 CE 000A 05 11 0000000A <> [ ] <w> <m> <u> <p> ]");
    let (packet, _) = decode(&packet, V311, 100).expect("valid").expect("whole");
    let Packet::Connect(connect) = packet else {
        panic!("{packet:?}")
    };
    assert_eq!(
        (connect.version, connect.bridge, connect.clean_start),
        (V5, false, true)
    );
    assert_eq!((connect.keep_alive, connect.client_id), (10, ""));
    assert_eq!(connect.session_expiry_interval, Some(10));
    assert_eq!(connect.login.user_name, Some("u"));
    assert_eq!(connect.login.password, Some(b"p".as_slice()));
    let will = connect.will.expect("announced");
    assert_eq!((will.qos, will.retain), (Qos::AtLeastOnce, false));
    assert_eq!((will.topic, will.payload), ("w", b"m".as_slice()));
}

#[test]
fn the_bridge_bit_is_kept_and_taken_off_the_level() {
    for (notation, version) in [
        ("10 [ <MQTT> 84 02 0000 <a> ]", V311),
        ("10 [ <MQIsdp> 83 02 0000 <a> ]", V31),
    ] {
        let packet = bytes(notation);
        let (packet, _) = decode(&packet, V5, 100).expect("valid").expect("whole");
        let Packet::Connect(connect) = packet else {
            panic!("{packet:?}")
        };
        assert_eq!(
            (connect.version, connect.bridge),
            (version, true),
            "{notation}"
        );
    }
}
