//! PUBLISH.

use super::{Accept, Case, MALFORMED, PROTOCOL, ReasonCode, Refuse, V5, V31, V311, bytes, check};
use thicket_mqtt::{ApplicationProperty, DecodeError, Packet, Qos, decode};

const TOPIC: super::Verdict = Refuse(ReasonCode::TopicNameInvalid);
const ALIAS: super::Verdict = Refuse(ReasonCode::TopicAliasInvalid);

#[rustfmt::skip] // One line a case.
pub(super) const CASES: &[Case] = &[
    ("no payload (5.0, 3.3.3)", V5, "30 [ <a> [ ] ]", Accept),
    ("no payload (3.1.1, 3.3.3)", V311, "30 [ <a> ]", Accept),
    ("no payload (3.1)", V31, "30 [ <a> ]", Accept),
    ("the example: a/b with packet identifier 10 (5.0, 3.3.2)", V5, "32 [ <a/b> 000A [ ] ]", Accept),
    ("the example: a/b with packet identifier 10 (3.1.1, 3.3.2.3)", V311, "32 [ <a/b> 000A ]", Accept),
    ("retained, QoS 2, repeated", V5, "3D [ <a> FFFF [ ] 'x' ]", Accept),
    ("QoS 3 [MQTT-3.3.1-4]", V5, "36 [ <a> 0001 [ ] ]", MALFORMED),
    ("QoS 3 [MQTT-3.3.1-4 v3.1.1]", V311, "36 [ <a> 0001 ]", MALFORMED),
    ("QoS 3 with DUP [MQTT-3.3.1-4]", V5, "3E [ <a> 0001 [ ] ]", MALFORMED),
    ("DUP with QoS 0 [MQTT-3.3.1-2]", V5, "38 [ <a> [ ] ]", MALFORMED),
    ("DUP with QoS 0 [MQTT-3.3.1-2 v3.1.1]", V311, "39 [ <a> ]", MALFORMED),
    ("packet identifier 0 [MQTT-2.2.1-3]", V5, "32 [ <a> 0000 [ ] ]", PROTOCOL),
    ("packet identifier 0 [MQTT-2.3.1-1 v3.1.1]", V311, "34 [ <a> 0000 ]", PROTOCOL),
    ("no packet identifier", V5, "32 [ <a> ]", MALFORMED),
    ("half a packet identifier", V311, "32 [ <a> 00 ]", MALFORMED),
    ("nothing at all", V5, "30 [ ]", MALFORMED),
    ("nothing at all", V311, "30 [ ]", MALFORMED),
    ("topic over the end", V5, "30 [ 0005 'abc' ]", MALFORMED),
    ("topic with # [MQTT-3.3.2-2]", V5, "30 [ <a/#> [ ] ]", TOPIC),
    ("topic with + [MQTT-3.3.2-2]", V5, "30 [ <a/+/b> [ ] ]", TOPIC),
    ("topic with + in a level [MQTT-3.3.2-2 v3.1.1]", V311, "30 [ <ab+> ]", TOPIC),
    ("topic with # (3.1, 3.3)", V31, "30 [ <#> ]", TOPIC),
    ("topic of only / (5.0, 4.7.1.1)", V5, "30 [ </> [ ] ]", Accept),
    ("topic with $", V5, "30 [ <$SYS/x> [ ] ]", Accept),
    ("topic not UTF-8 [MQTT-3.3.2-1]", V5, "30 [ 0002 'a' FF [ ] ]", MALFORMED),
    ("empty topic without alias (5.0, 3.3.2.1)", V5, "30 [ <> [ ] ]", PROTOCOL),
    ("empty topic [MQTT-4.7.3-1 v3.1.1]", V311, "30 [ <> ]", TOPIC),
    ("empty topic with alias (5.0, 3.3.2.3.4)", V5, "30 [ <> [ 23 0001 ] ]", Accept),
    ("topic with alias (5.0, 3.3.2.3.4)", V5, "30 [ <a> [ 23 FFFF ] ]", Accept),
    ("alias 0 [MQTT-3.3.2-8]", V5, "30 [ <a> [ 23 0000 ] ]", ALIAS),
    ("alias twice (5.0, 3.3.2.3.4)", V5, "30 [ <a> [ 23 0001 23 0001 ] ]", PROTOCOL),
    ("no property length [MQTT-2.2.2-1]", V5, "30 [ <a> ]", MALFORMED),
    ("property length over the end", V5, "30 [ <a> 05 01 00 ]", MALFORMED),
    ("property over the property length", V5, "30 [ <a> 02 23 0001 ]", MALFORMED),
    ("property without value", V5, "30 [ <a> [ 02 ] ]", MALFORMED),
    ("property identifier not minimal [MQTT-1.5.5-1]", V5, "30 [ <a> [ 81 00 00 ] ]", MALFORMED),
    ("all properties (5.0, 3.3.2.3)", V5, "30 [ <a> [ 01 01 02 00000000 23 0001 08 <r> 09 0001 00 26 <a> <b> 26 <a> <b> 0B 01 0B FFFFFF7F 03 <t> ] 'x' ]", Accept),
    ("message expiry 0 (5.0, 3.3.2.3.3)", V5, "30 [ <a> [ 02 00000000 ] ]", Accept),
    ("message expiry twice (5.0, 3.3.2.3.3)", V5, "30 [ <a> [ 02 00000001 02 00000001 ] ]", PROTOCOL),
    ("payload format 0 (5.0, 3.3.2.3.2)", V5, "30 [ <a> [ 01 00 ] ]", Accept),
    ("payload format 2 (5.0, 3.3.2.3.2)", V5, "30 [ <a> [ 01 02 ] ]", PROTOCOL),
    ("payload format twice (5.0, 3.3.2.3.2)", V5, "30 [ <a> [ 01 00 01 00 ] ]", PROTOCOL),
    ("response topic with # [MQTT-3.3.2-14]", V5, "30 [ <a> [ 08 <r/#> ] ]", PROTOCOL),
    ("response topic with + [MQTT-3.3.2-14]", V5, "30 [ <a> [ 08 <+> ] ]", PROTOCOL),
    ("empty response topic [MQTT-4.7.3-1]", V5, "30 [ <a> [ 08 <> ] ]", PROTOCOL),
    ("response topic not UTF-8 [MQTT-3.3.2-13]", V5, "30 [ <a> [ 08 0001 FF ] ]", MALFORMED),
    ("response topic twice (5.0, 3.3.2.3.5)", V5, "30 [ <a> [ 08 <r> 08 <r> ] ]", PROTOCOL),
    ("correlation data of no bytes (5.0, 3.3.2.3.6)", V5, "30 [ <a> [ 09 0000 ] ]", Accept),
    ("correlation data twice (5.0, 3.3.2.3.6)", V5, "30 [ <a> [ 09 0000 09 0000 ] ]", PROTOCOL),
    ("content type not UTF-8 [MQTT-3.3.2-19]", V5, "30 [ <a> [ 03 0001 FE ] ]", MALFORMED),
    ("content type twice (5.0, 3.3.2.3.9)", V5, "30 [ <a> [ 03 <t> 03 <t> ] ]", PROTOCOL),
    ("empty user property (5.0, 2.2.2.2)", V5, "30 [ <a> [ 26 <> <> ] ]", Accept),
    ("half a user property [MQTT-1.5.7-1]", V5, "30 [ <a> [ 26 <a> ] ]", MALFORMED),
    ("user property not UTF-8 [MQTT-1.5.7-1]", V5, "30 [ <a> [ 26 0001 FF <b> ] ]", MALFORMED),
    ("subscription identifier 0 (5.0, 3.3.2.3.8)", V5, "30 [ <a> [ 0B 00 ] ]", PROTOCOL),
    ("subscription identifier of five bytes", V5, "30 [ <a> [ 0B FFFFFFFF01 ] ]", MALFORMED),
    ("subscription identifier not minimal [MQTT-1.5.5-1]", V5, "30 [ <a> [ 0B 8100 ] ]", MALFORMED),
    ("session expiry (5.0, 2.2.2.2)", V5, "30 [ <a> [ 11 00000001 ] ]", MALFORMED),
    ("reason string (5.0, 2.2.2.2)", V5, "30 [ <a> [ 1F <a> ] ]", MALFORMED),
    ("unknown property 0 (5.0, 2.2.2.2)", V5, "30 [ <a> [ 00 00 ] ]", MALFORMED),
    ("property length in 3.1.1 is payload", V311, "30 [ <a> 7F ]", Accept),
];

#[test]
fn publishes_are_judged_as_the_specification_says() {
    check(CASES);
}

#[test]
fn every_field_of_a_publish_is_read_from_its_place() {
    let packet =
        bytes("3D [ <a/b> 000A [ 01 01 02 00000102 23 0007 08 <r> 0B 80 01 03 <t> ] 'xyz' ]");
    let (packet, len) = decode(&packet, V5, 100).expect("valid").expect("whole");
    let Packet::Publish(publish) = packet else {
        panic!("{packet:?}")
    };
    assert_eq!(
        (publish.dup, publish.qos, publish.retain),
        (true, Qos::ExactlyOnce, true)
    );
    assert_eq!((publish.topic, publish.payload), ("a/b", b"xyz".as_slice()));
    assert_eq!(publish.packet_id.map(|id| id.value()), Some(10));
    assert_eq!(publish.topic_alias, Some(7));
    assert_eq!(publish.message_expiry_interval, Some(0x102));
    assert!(publish.subscription_identifiers.iter().eq([128]));
    let passed_on = [
        ApplicationProperty::PayloadFormatIndicator(1),
        ApplicationProperty::ResponseTopic("r"),
        ApplicationProperty::ContentType("t"),
    ];
    assert!(publish.properties.iter().eq(passed_on));
    let mut written = Vec::new();
    publish.properties.write_to(&mut written);
    assert_eq!(written, bytes("01 01 08 <r> 03 <t>"));
    assert_eq!(written.len(), publish.properties.encoded_len());
    assert_eq!(len, 34);
}

#[test]
fn an_alias_that_is_zero_is_told_from_other_errors() {
    let outcome = decode(&[0x30, 7, 0, 1, b'a', 3, 0x23, 0, 0], V5, 100);
    assert_eq!(outcome, Err(DecodeError::TopicAliasZero));
}
