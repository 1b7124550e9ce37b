//! Fixed header, and the data types every packet is made of.

use super::{Accept, Case, MALFORMED, ReasonCode, V5, V31, V311, bytes, check};
use thicket_mqtt::{DecodeError, FrameHeader, PacketKind, decode, frame_header};

#[rustfmt::skip] // One line a case.
pub(super) const CASES: &[Case] = &[
    ("packet type 0 is reserved (5.0, table 2-1)", V5, "00 00", MALFORMED),
    ("packet type 0 is reserved (3.1.1, table 2.1)", V311, "00 00", MALFORMED),
    ("packet type 15 is reserved (3.1.1, table 2.1)", V311, "F0 00", MALFORMED),
    ("packet type 15 is reserved (3.1, 2.1)", V31, "F0 00", MALFORMED),
    ("PINGREQ (5.0, 3.12)", V5, "C0 00", Accept),
    ("PINGREQ (3.1.1, 3.12)", V311, "C0 00", Accept),
    ("PINGRESP (5.0, 3.13)", V5, "D0 00", Accept),
    ("PINGREQ with flags [MQTT-2.1.3-1]", V5, "C1 00", MALFORMED),
    ("PINGREQ with flags [MQTT-2.2.2-1 v3.1.1]", V311, "C8 00", MALFORMED),
    ("PINGRESP with flags [MQTT-2.1.3-1]", V5, "D2 00", MALFORMED),
    ("CONNECT with flags [MQTT-2.1.3-1]", V5, "11 [ <MQTT> 05 02 003C [ ] 0000 ]", MALFORMED),
    ("CONNACK with flags [MQTT-2.1.3-1]", V5, "21 [ 00 00 [ ] ]", MALFORMED),
    ("PUBACK with flags [MQTT-2.1.3-1]", V5, "42 [ 0001 ]", MALFORMED),
    ("PUBREC with flags [MQTT-2.1.3-1]", V5, "52 [ 0001 ]", MALFORMED),
    ("PUBCOMP with flags [MQTT-2.1.3-1]", V5, "72 [ 0001 ]", MALFORMED),
    ("PUBREL without its flags [MQTT-3.6.1-1]", V5, "60 [ 0001 ]", MALFORMED),
    ("PUBREL without its flags [MQTT-3.6.1-1 v3.1.1]", V311, "60 [ 0001 ]", MALFORMED),
    ("PUBREL with DUP", V311, "6A [ 0001 ]", MALFORMED),
    ("PUBREL with DUP (3.1, 3.6: a repeated one has it)", V31, "6A [ 0001 ]", Accept),
    ("SUBSCRIBE without its flags [MQTT-3.8.1-1]", V5, "80 [ 0001 [ ] <a> 00 ]", MALFORMED),
    ("SUBSCRIBE without its flags [MQTT-3.8.1-1 v3.1.1]", V311, "80 [ 0001 <a> 00 ]", MALFORMED),
    ("SUBSCRIBE with DUP (3.1, 3.8: a repeated one has it)", V31, "8A [ 0001 <a> 00 ]", Accept),
    ("UNSUBSCRIBE without its flags [MQTT-3.10.1-1]", V5, "A0 [ 0001 [ ] <a> ]", MALFORMED),
    ("SUBACK with flags [MQTT-2.1.3-1]", V5, "92 [ 0001 [ ] 00 ]", MALFORMED),
    ("UNSUBACK with flags [MQTT-2.1.3-1]", V5, "B2 [ 0001 [ ] 00 ]", MALFORMED),
    ("DISCONNECT with flags [MQTT-3.14.1-1]", V5, "E1 00", MALFORMED),
    ("DISCONNECT with flags [MQTT-3.14.1-1 v3.1.1]", V311, "E2 00", MALFORMED),
    ("AUTH with flags [MQTT-3.15.1-1]", V5, "F1 00", MALFORMED),
    ("remaining length in two bytes for 0 [MQTT-1.5.5-1]", V5, "C0 80 00", MALFORMED),
    ("remaining length in two bytes for 0, 3.1.1 treated alike", V311, "C0 80 00", MALFORMED),
    ("remaining length in four bytes for 2 [MQTT-1.5.5-1]", V5, "40 82 80 80 00 0001", MALFORMED),
    ("remaining length of five bytes (5.0, 2.1.4)", V5, "30 FF FF FF FF 01", MALFORMED),
    ("remaining length of five bytes (3.1.1, 2.2.3)", V311, "30 FF FF FF FF 01", MALFORMED),
    ("property length not minimal [MQTT-1.5.5-1]", V5, "30 [ <a> 80 00 ]", MALFORMED),
    ("property length of five bytes (5.0, 1.5.5)", V5, "30 [ <a> FF FF FF FF 01 ]", MALFORMED),
    ("PINGREQ with a byte too many (5.0, 3.12.1)", V5, "C0 [ 00 ]", MALFORMED),
    ("PINGRESP with a byte too many (3.1.1, 3.13.1)", V311, "D0 [ 00 ]", MALFORMED),
    ("overlong encoding of / [MQTT-1.5.4-1]", V5, "30 [ 0002 C0AF [ ] ]", MALFORMED),
    ("lone continuation byte [MQTT-1.5.3-1 v3.1.1]", V311, "30 [ 0001 80 ]", MALFORMED),
    ("high surrogate U+D800 [MQTT-1.5.4-1]", V5, "30 [ 0003 EDA080 [ ] ]", MALFORMED),
    ("low surrogate U+DFFF [MQTT-1.5.4-1]", V5, "30 [ 0003 EDBFBF [ ] ]", MALFORMED),
    ("code point above U+10FFFF [MQTT-1.5.4-1]", V5, "30 [ 0004 F4908080 [ ] ]", MALFORMED),
    ("character cut short [MQTT-1.5.4-1]", V5, "30 [ 0002 E282 [ ] ]", MALFORMED),
    ("U+0000 [MQTT-1.5.4-2]", V5, "30 [ 0003 610062 [ ] ]", MALFORMED),
    ("U+0000 [MQTT-1.5.3-2 v3.1.1]", V311, "30 [ 0003 610062 ]", MALFORMED),
    ("byte order mark [MQTT-1.5.4-3]", V5, "30 [ 0004 EFBBBF61 [ ] ]", Accept),
    ("byte order mark [MQTT-1.5.3-3 v3.1.1]", V311, "30 [ 0003 EFBBBF ]", Accept),
    ("U+0001 in a topic (5.0, 1.5.4: may be refused)", V5, "30 [ 0002 6101 [ ] ]", MALFORMED),
    ("U+001F in a topic (3.1.1, 1.5.3: may be refused)", V311, "30 [ 0002 1F61 ]", MALFORMED),
    ("U+007F in a topic (5.0, 1.5.4: may be refused)", V5, "30 [ 0003 617F62 [ ] ]", MALFORMED),
    ("U+009F in a topic (5.0, 1.5.4: may be refused)", V5, "30 [ 0003 61C29F [ ] ]", MALFORMED),
    ("U+00A0 in a topic is no control character", V5, "30 [ 0003 61C2A0 [ ] ]", Accept),
    ("U+0001 in a filter (3.1.1, 1.5.3: may be refused)", V311, "82 [ 0001 0002 6101 00 ]", MALFORMED),
    ("U+0080 in a client identifier (5.0, 1.5.4: may be refused)", V5, "10 [ <MQTT> 05 02 003C [ ] 0002 C280 ]", MALFORMED),
    ("U+001B in a user name (3.1.1, 1.5.3: may be refused)", V311, "10 [ <MQTT> 04 82 003C <a> 0001 1B ]", MALFORMED),
    ("control characters in a user property (5.0, 1.5.4)", V5, "30 [ <a> [ 26 0002 0A7F 0001 09 ] ]", Accept),
    ("non-characters (5.0, 1.5.4: should not, yet may)", V5, "30 [ 0003 EFBFBF [ ] ]", Accept),
    ("the example: A and U+2A6D4 (5.0, 1.5.4)", V5, "30 [ 0005 41F0AA9B94 [ ] ]", Accept),
];

#[test]
fn fixed_headers_and_data_types_are_judged_as_the_specification_says() {
    check(CASES);
}

#[test]
fn a_byte_order_mark_is_kept() {
    let packet = bytes("30 [ 0004 EFBBBF61 ]");
    let (packet, _) = decode(&packet, V311, 100).expect("valid").expect("whole");
    let thicket_mqtt::Packet::Publish(publish) = packet else {
        panic!("{packet:?}")
    };
    assert_eq!(publish.topic, "\u{FEFF}a");
}

#[test]
fn the_frame_header_is_read_as_soon_as_it_is_whole() {
    // Table 1-1 of 5.0: the borders of the lengths.
    let cases: [(&str, Option<usize>); 11] = [
        ("", None),
        ("30", None),
        ("30 80", None),
        ("30 FF FF FF", None),
        ("30 00", Some(2)),
        ("30 7F", Some(2 + 127)),
        ("30 80 01", Some(3 + 128)),
        ("30 FF 7F", Some(3 + 16_383)),
        ("30 80 80 01", Some(4 + 16_384)),
        ("30 80 80 80 01", Some(5 + 2_097_152)),
        ("30 FF FF FF 7F", Some(5 + 268_435_455)),
    ];
    for (notation, packet_len) in cases {
        let header = packet_len.map(|packet_len| FrameHeader {
            first_byte: 0x30,
            packet_len,
        });
        assert_eq!(frame_header(&bytes(notation)), Ok(header), "{notation}");
    }
    assert_eq!(
        frame_header(&bytes("30 FF FF FF 80")),
        Err(DecodeError::VariableByteIntegerTooLong)
    );
}

#[test]
fn what_the_first_bytes_show_is_refused_before_the_rest_is_there() {
    let cases = [
        ("reserved type", V5, "00"),
        ("AUTH before 5.0", V311, "F0"),
        ("PUBREL without flags", V5, "60"),
        ("QoS 3", V5, "36"),
        ("DUP with QoS 0", V311, "38"),
        ("remaining length too long", V5, "30 80 80 80 80"),
        ("remaining length not minimal", V5, "30 80 80 00"),
        ("PINGREQ with a body", V5, "C0 01"),
        ("PUBACK of five bytes before 5.0", V311, "40 05"),
        ("PUBACK of one byte", V5, "40 01"),
        ("DISCONNECT with a body before 5.0", V31, "E0 01"),
    ];
    for (name, version, notation) in cases {
        let start = bytes(notation);
        let outcome = decode(&start, version, u32::MAX);
        let code = outcome.map_err(|error| error.reason_code());
        assert_eq!(code, Err(ReasonCode::MalformedPacket), "{name}");
    }
}

#[test]
fn a_packet_is_accepted_up_to_the_maximum_and_refused_by_its_claim_above_it() {
    let packet = bytes("30 [ <abc> [ ] 'def' ]");
    assert_eq!(packet.len(), 11);
    assert!(matches!(decode(&packet, V5, 11), Ok(Some((_, 11)))));
    let too_large = DecodeError::PacketTooLarge {
        packet_len: 11,
        maximum: 10,
    };
    assert_eq!(decode(&packet, V5, 10), Err(too_large));
    assert_eq!(decode(&packet[..2], V5, 10), Err(too_large));
    assert_eq!(too_large.reason_code(), ReasonCode::PacketTooLarge);
    let giant = bytes("30 FF FF FF 7F");
    let claimed = DecodeError::PacketTooLarge {
        packet_len: 268_435_460,
        maximum: 1 << 20,
    };
    assert_eq!(decode(&giant, V5, 1 << 20), Err(claimed));
}

#[test]
fn errors_say_which_value_offends() {
    let error = decode(&[0x62, 0x01], V311, 100).expect_err("too short");
    assert_eq!(error.to_string(), "Pubrel cannot have remaining length 1");
    let error = DecodeError::HeaderFlagsInvalid {
        kind: PacketKind::Pubrel,
        flags: 1,
    };
    assert_eq!(
        error.to_string(),
        "header flags 0b0001 are not those of Pubrel"
    );
}
