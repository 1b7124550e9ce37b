//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK.

use super::{Accept, Case, MALFORMED, PROTOCOL, V5, V31, V311, bytes, check};
use thicket_mqtt::{Packet, Qos, RetainHandling, SubscriptionOptions, decode};

#[rustfmt::skip] // One line a case.
pub(super) const CASES: &[Case] = &[
    ("the example of two filters (5.0, 3.8.3)", V5, "82 [ 000A [ ] <a/b> 01 <c/d> 02 ]", Accept),
    ("the example of two filters (3.1.1, 3.8.3)", V311, "82 [ 000A <a/b> 01 <c/d> 02 ]", Accept),
    ("SUBSCRIBE (3.1)", V31, "82 [ 000A <a/b> 01 ]", Accept),
    ("no filter [MQTT-3.8.3-2]", V5, "82 [ 0001 [ ] ]", PROTOCOL),
    ("no filter [MQTT-3.8.3-3 v3.1.1]", V311, "82 [ 0001 ]", PROTOCOL),
    ("filter without options [MQTT-3.8.3-2]", V5, "82 [ 0001 [ ] <a> ]", MALFORMED),
    ("filter without QoS (3.1.1, 3.8.3)", V311, "82 [ 0001 <a> ]", MALFORMED),
    ("second filter cut short", V5, "82 [ 0001 [ ] <a> 00 0005 'b' ]", MALFORMED),
    ("packet identifier 0 [MQTT-2.2.1-3]", V5, "82 [ 0000 [ ] <a> 00 ]", PROTOCOL),
    ("packet identifier 0 [MQTT-2.3.1-1 v3.1.1]", V311, "82 [ 0000 <a> 00 ]", PROTOCOL),
    ("nothing at all", V5, "82 [ ]", MALFORMED),
    ("empty filter [MQTT-4.7.3-1]", V5, "82 [ 0001 [ ] <> 00 ]", PROTOCOL),
    ("empty filter [MQTT-4.7.3-1 v3.1.1]", V311, "82 [ 0001 <> 00 ]", PROTOCOL),
    ("filter not UTF-8 [MQTT-3.8.3-1]", V5, "82 [ 0001 [ ] 0001 FF 00 ]", MALFORMED),
    ("filter with U+0000 [MQTT-4.7.3-2]", V5, "82 [ 0001 [ ] 0001 00 00 ]", MALFORMED),
    ("filter that no topic can match is for the session to refuse", V5, "82 [ 0001 [ ] <a/#/b> 00 ]", Accept),
    ("all options (5.0, 3.8.3.1)", V5, "82 [ 0001 [ ] <a> 2E ]", Accept),
    ("reserved option bit 6 [MQTT-3.8.3-5]", V5, "82 [ 0001 [ ] <a> 40 ]", MALFORMED),
    ("reserved option bit 7 [MQTT-3.8.3-5]", V5, "82 [ 0001 [ ] <a> 80 ]", MALFORMED),
    ("reserved bits before 5.0 [MQTT-3.8.3-4 v3.1.1]", V311, "82 [ 0001 <a> 04 ]", MALFORMED),
    ("QoS 3 (5.0, 3.8.3.1)", V5, "82 [ 0001 [ ] <a> 03 ]", PROTOCOL),
    ("QoS 3 [MQTT-3.8.3-4 v3.1.1]", V311, "82 [ 0001 <a> 03 ]", PROTOCOL),
    ("retain handling 3 (5.0, 3.8.3.1)", V5, "82 [ 0001 [ ] <a> 30 ]", PROTOCOL),
    ("subscription identifier (5.0, 3.8.2.1.2)", V5, "82 [ 0001 [ 0B FFFFFF7F ] <a> 00 ]", Accept),
    ("subscription identifier 0 (5.0, 3.8.2.1.2)", V5, "82 [ 0001 [ 0B 00 ] <a> 00 ]", PROTOCOL),
    ("two subscription identifiers (5.0, 3.8.2.1.2)", V5, "82 [ 0001 [ 0B 01 0B 02 ] <a> 00 ]", PROTOCOL),
    ("user properties (5.0, 3.8.2.1.3)", V5, "82 [ 0001 [ 26 <a> <b> 26 <a> <b> ] <a> 00 ]", Accept),
    ("reason string (5.0, 2.2.2.2)", V5, "82 [ 0001 [ 1F <a> ] <a> 00 ]", MALFORMED),
    ("UNSUBSCRIBE (5.0, 3.10)", V5, "A2 [ 000A [ ] <a/b> <c/d> ]", Accept),
    ("the example (3.1.1, 3.10.3)", V311, "A2 [ 000A <a/b> <c/d> ]", Accept),
    ("UNSUBSCRIBE without filter [MQTT-3.10.3-2]", V5, "A2 [ 0001 [ ] ]", PROTOCOL),
    ("UNSUBSCRIBE without filter [MQTT-3.10.3-2 v3.1.1]", V311, "A2 [ 0001 ]", PROTOCOL),
    ("UNSUBSCRIBE with an empty filter [MQTT-4.7.3-1]", V5, "A2 [ 0001 [ ] <> ]", PROTOCOL),
    ("UNSUBSCRIBE for identifier 0 [MQTT-2.2.1-3]", V5, "A2 [ 0000 [ ] <a> ]", PROTOCOL),
    ("UNSUBSCRIBE with a filter not UTF-8 [MQTT-3.10.3-1]", V5, "A2 [ 0001 [ ] 0001 FF ]", MALFORMED),
    ("UNSUBSCRIBE cut short", V311, "A2 [ 0001 0003 'ab' ]", MALFORMED),
    ("UNSUBSCRIBE with subscription identifier (5.0, 2.2.2.2)", V5, "A2 [ 0001 [ 0B 01 ] <a> ]", MALFORMED),
    ("SUBACK with every QoS (5.0, 3.9.3)", V5, "90 [ 0001 [ ] 00 01 02 80 A2 ]", Accept),
    ("SUBACK (3.1.1, 3.9.3)", V311, "90 [ 0001 00 02 80 ]", Accept),
    ("SUBACK with code 3 [MQTT-3.9.3-2]", V5, "90 [ 0001 [ ] 03 ]", PROTOCOL),
    ("SUBACK with code 3 [MQTT-3.9.3-2 v3.1.1]", V311, "90 [ 0001 03 ]", PROTOCOL),
    ("SUBACK with a code of 5.0 before it [MQTT-3.9.3-2 v3.1.1]", V311, "90 [ 0001 87 ]", PROTOCOL),
    ("SUBACK without codes [MQTT-3.8.4-6]", V5, "90 [ 0001 [ ] ]", PROTOCOL),
    ("SUBACK without codes [MQTT-3.8.4-5 v3.1.1]", V311, "90 [ 0001 ]", PROTOCOL),
    ("SUBACK with text (5.0, 3.9.2.1)", V5, "90 [ 0001 [ 1F <r> 26 <a> <b> ] 00 ]", Accept),
    ("SUBACK with subscription identifier (5.0, 2.2.2.2)", V5, "90 [ 0001 [ 0B 01 ] 00 ]", MALFORMED),
    ("UNSUBACK (5.0, 3.11.3)", V5, "B0 [ 0001 [ ] 00 11 80 ]", Accept),
    ("UNSUBACK (3.1.1, 3.11)", V311, "B0 [ 0001 ]", Accept),
    ("UNSUBACK with codes before 5.0", V311, "B0 [ 0001 00 ]", MALFORMED),
    ("UNSUBACK without codes (5.0, 3.11.3)", V5, "B0 [ 0001 [ ] ]", PROTOCOL),
    ("UNSUBACK with granted QoS 1 [MQTT-3.11.3-2]", V5, "B0 [ 0001 [ ] 01 ]", PROTOCOL),
    ("UNSUBACK for identifier 0", V5, "B0 [ 0000 [ ] 00 ]", PROTOCOL),
];

#[test]
fn subscriptions_are_judged_as_the_specification_says() {
    check(CASES);
}

#[test]
fn subscription_options_are_read_bit_by_bit() {
    // 5.0, 3.8.3.1: retain handling 2, retain as published, no local, QoS 2.
    let packet = bytes("82 [ 0001 [ ] <a> 2E ]");
    let (packet, _) = decode(&packet, V5, 100).expect("valid").expect("whole");
    let Packet::Subscribe(subscribe) = packet else {
        panic!("{packet:?}")
    };
    let expected = SubscriptionOptions {
        qos: Qos::ExactlyOnce,
        no_local: true,
        retain_as_published: true,
        retain_handling: RetainHandling::DoNotSend,
    };
    assert_eq!(subscribe.filters[0].options, expected);
}
