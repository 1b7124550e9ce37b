use proptest::prelude::*;

use super::*;

fn owned_record() -> impl Strategy<Value = Vec<u8>> {
    let numbers = (any::<u64>(), 0_u8..3, any::<bool>(), any::<Option<u64>>());
    let ids = (
        any::<Option<(u64, u16)>>(),
        any::<Option<(u128, u16, u32)>>(),
        any::<Option<String>>(),
    );
    let lists = (
        proptest::collection::vec(("[a-z]{0,4}", "[a-z/]{0,9}"), 0..3),
        proptest::collection::vec(any::<u64>(), 0..4),
    );
    (
        numbers,
        ids,
        lists,
        "[a-z/]{1,40}",
        any::<Vec<u8>>(),
        any::<bool>(),
    )
        .prop_map(
            |(
                (number, qos, retain, expiry),
                (time, publication, publisher),
                (shared, nodes),
                topic,
                payload,
                properties,
            )| {
                let (mut choices, mut destinations, mut encoded) =
                    (Vec::new(), Vec::new(), Vec::new());
                let record = Record {
                    number,
                    qos: Qos::from_bits(qos).expect("below 3"),
                    retain,
                    expiry_left_ms: expiry,
                    time: time.map(|(millis, counter)| HybridTime { millis, counter }),
                    publication: publication.map(|(session, packet_id, generation)| {
                        PublicationId {
                            session,
                            packet_id,
                            generation,
                        }
                    }),
                    publisher: publisher.as_deref(),
                    shared: SharedChoices::build(
                        shared.iter().map(|(group, filter)| (&**group, &**filter)),
                        &mut choices,
                    ),
                    destinations: Destinations::build(
                        nodes.into_iter().map(NodeId),
                        &mut destinations,
                    ),
                    topic: &topic,
                    properties: ApplicationProperties::from_encoded(if properties {
                        PROPERTIES
                    } else {
                        &[]
                    })
                    .expect("a content type"),
                    payload: &payload,
                };
                record.encode(&mut encoded);
                assert_eq!(encoded.len(), record.encoded_len());
                let (decoded, len) = Record::decode(&encoded).expect("just encoded");
                assert_eq!((decoded, len), (record, encoded.len()));
                encoded
            },
        )
}

/// Content Type "a" (5.0, 3.3.2.3.9).
const PROPERTIES: &[u8] = &[0x03, 0x00, 0x01, b'a'];

proptest! {
    #[test]
    fn a_record_is_decoded_as_it_was_encoded(_bytes in owned_record()) {}

    #[test]
    fn nothing_of_a_record_is_left_in_the_one_behind_it(records in proptest::collection::vec((owned_record(), any::<bool>()), 0..6)) {
        let plain = Record { number: 9, topic: "plain", payload: b"x", ..Record::default() };
        let bytes: Vec<u8> = records.into_iter().flat_map(|(mut bytes, is_plain)| {
            if is_plain {
                bytes.clear();
                plain.encode(&mut bytes);
            }
            bytes
        }).collect();
        let (mut one, mut record) = (Records::new(&bytes), Record::default());
        for next in Records::new(&bytes) {
            let (expected, its_bytes) = next.expect("just encoded");
            prop_assert_eq!(one.read_into(&mut record), Ok(Some(its_bytes)));
            prop_assert_eq!(record, expected);
        }
        prop_assert_eq!(one.read_into(&mut record), Ok(None));
    }

    #[test]
    fn a_mutated_record_is_refused_or_read_within_its_bytes(
        mut bytes in owned_record(), at in any::<prop::sample::Index>(), with in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = with;
        if let Ok((record, len)) = Record::decode(&bytes) {
            prop_assert!(len <= bytes.len());
            prop_assert_eq!(record.encoded_len() <= len + 9, true);
            record.shared.iter().for_each(drop);
            record.destinations.iter().for_each(drop);
        }
        bytes.truncate(cut.index(bytes.len()));
        age_expiry(&mut bytes, 7);
        let _ = Record::decode(&bytes);
        let _ = BatchHeader::decode(&bytes).map(|(_, records)| records.for_each(drop));
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in any::<Vec<u8>>()) {
        let _ = Record::decode(&bytes);
        let _ = BatchHeader::decode(&bytes).map(|(_, records)| records.for_each(drop));
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let mut bytes = Vec::new();
    let record = Record {
        number: 300,
        qos: Qos::AtLeastOnce,
        expiry_left_ms: Some(1000),
        topic: "a/b",
        payload: b"21",
        ..Record::default()
    };
    record.encode(&mut bytes);
    let expected = [
        &[18_u8][..],                 // length of what follows
        &[0b0000_1001, 0],            // QoS 1, expiry
        &[0xE8, 3, 0, 0, 0, 0, 0, 0], // 1000 ms
        &[0xAC, 0x02],                // number 300
        &[3, b'a', b'/', b'b'],       // topic
        b"21",
    ]
    .concat();
    assert_eq!(bytes, expected);
    age_expiry(&mut bytes, 400);
    assert_eq!(
        Record::decode(&bytes).map(|(record, _)| record.expiry_left_ms),
        Ok(Some(600))
    );
    age_expiry(&mut bytes, 601);
    assert_eq!(
        Record::decode(&bytes).map(|(record, _)| record.expiry_left_ms),
        Ok(Some(0))
    );
}

#[test]
fn what_is_no_record_is_refused() {
    let cases: &[(&str, &[u8])] = &[
        ("nothing", &[]),
        ("length without body", &[5]),
        ("reserved flag", &[6, 0, 0x80, 1, 1, b'a', 0]),
        ("QoS 3", &[6, 3, 0, 1, 1, b'a', 0]),
        ("empty topic", &[4, 0, 0, 1, 0]),
        ("wildcard in the topic", &[5, 0, 0, 1, 1, b'#']),
        ("topic not UTF-8", &[5, 0, 0, 1, 1, 0xFF]),
        ("topic past the end", &[5, 0, 0, 1, 9, b'a']),
        (
            "destinations not in eights",
            &[9, 0, 1, 1, 3, 1, 2, 3, 1, b'a'],
        ),
        (
            "no destinations despite the flag",
            &[6, 0, 1, 1, 0, 1, b'a'],
        ),
        (
            "properties that are none",
            &[8, 0, 2, 1, 1, b'a', 2, 0x7F, 0],
        ),
    ];
    for (name, bytes) in cases {
        assert!(Record::decode(bytes).is_err(), "{name}");
    }
}

#[test]
fn a_batch_yields_its_records_and_stops_at_the_first_bad_one() {
    let header = BatchHeader {
        origin: NodeId(7),
        incarnation: Incarnation(2),
        stream: StreamId(1),
        low: 130,
    };
    let mut bytes = Vec::new();
    header.encode(&mut bytes);
    for number in [1, 2] {
        Record {
            number,
            topic: "a",
            ..Record::default()
        }
        .encode(&mut bytes);
    }
    bytes.extend_from_slice(&[200, 1, 1]);
    let (decoded, records) = BatchHeader::decode(&bytes).expect("a header");
    assert_eq!(decoded, header);
    let numbers: Vec<_> = records
        .map(|record| record.map(|(record, _)| record.number).ok())
        .collect();
    assert_eq!(numbers, [Some(1), Some(2), None]);
    bytes[0] = 9;
    assert!(BatchHeader::decode(&bytes).is_err(), "another version");
}

#[test]
fn records_back_to_back_are_split_where_they_end_and_whatever_is_no_whole_record_ends_it() {
    let mut bytes = Vec::new();
    let mut lens = Vec::new();
    for (topic, payload) in [("a", 0), ("a", 300), ("b/c", 7), ("a", 1)] {
        let payload = vec![1; payload];
        let record = Record {
            topic,
            payload: &payload,
            ..Record::default()
        };
        record.encode(&mut bytes);
        lens.push(record.encoded_len());
    }
    let whole: Vec<usize> = split(&bytes).map(<[u8]>::len).collect();
    assert_eq!(whole, lens);
    let topics = Records::new(&bytes).map(|record| record.expect("just encoded").0.topic);
    assert_eq!(topics.collect::<Vec<_>>(), ["a", "a", "b/c", "a"]);
    let cut = bytes.len() - 1;
    let cut: Vec<usize> = split(&bytes[..cut]).map(<[u8]>::len).collect();
    assert_eq!(cut, lens[..3]);
    assert_eq!(split(&[0x80]).count(), 0);
}
