//! CONNACK.

use super::{Accept, Case, MALFORMED, PROTOCOL, V5, V31, V311, check};

#[rustfmt::skip] // One line a case.
pub(super) const CASES: &[Case] = &[
    ("accepted (5.0, 3.2.2)", V5, "20 [ 00 00 [ ] ]", Accept),
    ("accepted (3.1.1, 3.2)", V311, "20 [ 00 00 ]", Accept),
    ("session present [MQTT-3.2.2-3]", V5, "20 [ 01 00 [ ] ]", Accept),
    ("session present [MQTT-3.2.2-2 v3.1.1]", V311, "20 [ 01 00 ]", Accept),
    ("reserved flags [MQTT-3.2.2-1]", V5, "20 [ 02 00 [ ] ]", MALFORMED),
    ("reserved flags (3.1.1, 3.2.2.1)", V311, "20 [ 80 00 ]", MALFORMED),
    ("the flags are not used in 3.1", V31, "20 [ 80 00 ]", Accept),
    ("session present in a refusal [MQTT-3.2.2-6]", V5, "20 [ 01 87 [ ] ]", PROTOCOL),
    ("session present in a refusal [MQTT-3.2.2-4 v3.1.1]", V311, "20 [ 01 05 ]", PROTOCOL),
    ("code of another packet [MQTT-3.2.2-8]", V5, "20 [ 00 01 [ ] ]", PROTOCOL),
    ("code of DISCONNECT [MQTT-3.2.2-8]", V5, "20 [ 00 8E [ ] ]", PROTOCOL),
    ("unknown code [MQTT-3.2.2-8]", V5, "20 [ 00 FF [ ] ]", PROTOCOL),
    ("return code 5 (3.1.1, table 3.1)", V311, "20 [ 00 05 ]", Accept),
    ("return code 6 is reserved (3.1.1, table 3.1)", V311, "20 [ 00 06 ]", PROTOCOL),
    ("no property length [MQTT-2.2.2-1]", V5, "20 [ 00 00 ]", MALFORMED),
    ("a byte too many", V5, "20 [ 00 00 [ ] 00 ]", MALFORMED),
    ("a byte too many (3.1.1, 3.2.1)", V311, "20 [ 00 00 00 ]", MALFORMED),
    ("a byte too few", V311, "20 [ 00 ]", MALFORMED),
    ("all properties (5.0, 3.2.2.3)", V5, "20 [ 00 00 [ 11 00000001 21 0001 24 01 25 00 27 00000010 12 <id> 22 0000 1F <why> 26 <a> <b> 28 00 29 01 2A 01 13 0000 1A <r> 1C <s> 15 <M> 16 0000 ] ]", Accept),
    ("receive maximum 0 (5.0, 3.2.2.3.3)", V5, "20 [ 00 00 [ 21 0000 ] ]", PROTOCOL),
    ("maximum QoS 2 (5.0, 3.2.2.3.4)", V5, "20 [ 00 00 [ 24 02 ] ]", PROTOCOL),
    ("retain available 2 (5.0, 3.2.2.3.5)", V5, "20 [ 00 00 [ 25 02 ] ]", PROTOCOL),
    ("maximum packet size 0 (5.0, 3.2.2.3.6)", V5, "20 [ 00 00 [ 27 00000000 ] ]", PROTOCOL),
    ("wildcard subscription available 2 (5.0, 3.2.2.3.11)", V5, "20 [ 00 00 [ 28 02 ] ]", PROTOCOL),
    ("subscription identifiers available 2 (5.0, 3.2.2.3.12)", V5, "20 [ 00 00 [ 29 02 ] ]", PROTOCOL),
    ("shared subscription available 2 (5.0, 3.2.2.3.13)", V5, "20 [ 00 00 [ 2A 02 ] ]", PROTOCOL),
    ("reason string twice (5.0, 3.2.2.3.9)", V5, "20 [ 00 00 [ 1F <a> 1F <a> ] ]", PROTOCOL),
    ("will delay (5.0, 2.2.2.2)", V5, "20 [ 00 00 [ 18 00000001 ] ]", MALFORMED),
    ("authentication data alone", V5, "20 [ 00 00 [ 16 0000 ] ]", PROTOCOL),
];

#[test]
fn connacks_are_judged_as_the_specification_says() {
    check(CASES);
}
