//! PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT and AUTH.

use super::{Accept, Case, MALFORMED, PROTOCOL, V5, V31, V311, check};

#[rustfmt::skip] // One line a case.
pub(super) const CASES: &[Case] = &[
    ("PUBACK of length 2 (5.0, 3.4.2.1)", V5, "40 [ 0001 ]", Accept),
    ("PUBACK of length 3 (5.0, 3.4.2.2.1)", V5, "40 [ 0001 10 ]", Accept),
    ("PUBACK of length 4", V5, "40 [ 0001 00 [ ] ]", Accept),
    ("PUBACK (3.1.1, 3.4)", V311, "40 [ 0001 ]", Accept),
    ("PUBACK (3.1)", V31, "40 [ 0001 ]", Accept),
    ("PUBACK with a reason before 5.0", V311, "40 [ 0001 00 ]", MALFORMED),
    ("PUBACK without identifier", V5, "40 [ ]", MALFORMED),
    ("PUBACK with half an identifier", V5, "40 [ 01 ]", MALFORMED),
    ("PUBACK cut short before 5.0", V311, "40 [ 01 ]", MALFORMED),
    ("PUBACK for identifier 0 [MQTT-2.2.1-5]", V5, "40 [ 0000 ]", PROTOCOL),
    ("PUBACK for identifier 0 [MQTT-2.3.1-6 v3.1.1]", V311, "40 [ 0000 ]", PROTOCOL),
    ("PUBACK with code of PUBREL [MQTT-3.4.2-1]", V5, "40 [ 0001 92 ]", PROTOCOL),
    ("PUBACK with unknown code [MQTT-3.4.2-1]", V5, "40 [ 0001 55 ]", PROTOCOL),
    ("PUBACK with text (5.0, 3.4.2.2)", V5, "40 [ 0001 87 [ 1F <no> 26 <a> <b> 26 <a> <b> ] ]", Accept),
    ("PUBACK with two reason strings (5.0, 3.4.2.2.2)", V5, "40 [ 0001 87 [ 1F <a> 1F <b> ] ]", PROTOCOL),
    ("PUBACK with server reference (5.0, 2.2.2.2)", V5, "40 [ 0001 00 [ 1C <a> ] ]", MALFORMED),
    ("PUBACK with a byte too many", V5, "40 [ 0001 00 [ ] 00 ]", MALFORMED),
    ("PUBREC of length 2 (5.0, 3.5.2.1)", V5, "50 [ 0001 ]", Accept),
    ("PUBREC with quota exceeded (5.0, 3.5.2.1)", V5, "50 [ 0001 97 ]", Accept),
    ("PUBREC with code of PUBCOMP [MQTT-3.5.2-1]", V5, "50 [ 0001 92 ]", PROTOCOL),
    ("PUBREL of length 2 (5.0, 3.6.2.1)", V5, "62 [ 0001 ]", Accept),
    ("PUBREL not found (5.0, 3.6.2.1)", V5, "62 [ 0001 92 ]", Accept),
    ("PUBREL with code of PUBACK [MQTT-3.6.2-1]", V5, "62 [ 0001 10 ]", PROTOCOL),
    ("PUBREL (3.1.1, 3.6)", V311, "62 [ 0001 ]", Accept),
    ("PUBREL for identifier 0", V311, "62 [ 0000 ]", PROTOCOL),
    ("PUBCOMP of length 2 (5.0, 3.7.2.1)", V5, "70 [ 0001 ]", Accept),
    ("PUBCOMP not found (5.0, 3.7.2.1)", V5, "70 [ 0001 92 [ ] ]", Accept),
    ("PUBCOMP with code of PUBREC [MQTT-3.7.2-1]", V5, "70 [ 0001 91 ]", PROTOCOL),
    ("DISCONNECT of length 0 (5.0, 3.14.2.1)", V5, "E0 [ ]", Accept),
    ("DISCONNECT of length 1 (5.0, 3.14.2.2.1)", V5, "E0 [ 04 ]", Accept),
    ("DISCONNECT of length 2", V5, "E0 [ 00 [ ] ]", Accept),
    ("the example (5.0, 3.14.2.2)", V5, "E0 07 00 05 11 00000000", Accept),
    ("DISCONNECT (3.1.1, 3.14)", V311, "E0 [ ]", Accept),
    ("DISCONNECT with a body before 5.0", V311, "E0 [ 00 ]", MALFORMED),
    ("DISCONNECT with server reference (5.0, 3.14.2.2.5)", V5, "E0 [ 9C [ 1C <b> 1F <r> 26 <a> <b> ] ]", Accept),
    ("DISCONNECT with code of CONNACK [MQTT-3.14.2-1]", V5, "E0 [ 85 ]", PROTOCOL),
    ("DISCONNECT with granted QoS 1 [MQTT-3.14.2-1]", V5, "E0 [ 01 ]", PROTOCOL),
    ("DISCONNECT with session expiry twice (5.0, 3.14.2.2.2)", V5, "E0 [ 00 [ 11 00000000 11 00000000 ] ]", PROTOCOL),
    ("DISCONNECT with topic alias (5.0, 2.2.2.2)", V5, "E0 [ 00 [ 23 0001 ] ]", MALFORMED),
    ("DISCONNECT with a byte too many", V5, "E0 [ 00 [ ] 00 ]", MALFORMED),
    ("AUTH of length 0 (5.0, 3.15.2.1)", V5, "F0 [ ]", Accept),
    ("AUTH going on (5.0, 3.15.2.2)", V5, "F0 [ 18 [ 15 <M> 16 0001 00 ] ]", Accept),
    ("AUTH again", V5, "F0 [ 19 [ 15 <M> ] ]", Accept),
    ("AUTH of length 1 has no properties [MQTT-2.2.2-1]", V5, "F0 [ 18 ]", MALFORMED),
    ("AUTH with code of CONNACK [MQTT-3.15.2-1]", V5, "F0 [ 8C [ 15 <M> ] ]", PROTOCOL),
    ("AUTH without method (5.0, 3.15.2.2.2)", V5, "F0 [ 18 [ ] ]", PROTOCOL),
    ("AUTH with method twice (5.0, 3.15.2.2.2)", V5, "F0 [ 18 [ 15 <M> 15 <M> ] ]", PROTOCOL),
    ("AUTH with session expiry (5.0, 2.2.2.2)", V5, "F0 [ 18 [ 15 <M> 11 00000000 ] ]", MALFORMED),
    ("AUTH with a byte too many", V5, "F0 [ 18 [ 15 <M> ] 00 ]", MALFORMED),
];

#[test]
fn acknowledgements_are_judged_as_the_specification_says() {
    check(CASES);
}
