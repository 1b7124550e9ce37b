//! No bytes make the decoder panic, read past the packet or change its mind.

use super::{VERSIONS, packet_of_any_version};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use thicket_mqtt::{ApplicationProperties, ProtocolVersion, connect_version, decode, frame_header};

/// Decodes in every version; whatever is accepted must encode to a packet that means the same, and must not depend on what
/// follows it.
fn examine(bytes: &[u8]) -> Result<(), TestCaseError> {
    let _ = frame_header(bytes);
    let _ = connect_version(bytes);
    let _ = ApplicationProperties::from_encoded(bytes);
    for version in VERSIONS {
        let Ok(Some((packet, len))) = decode(bytes, version, 1 << 16) else {
            continue;
        };
        prop_assert!(len <= bytes.len());
        prop_assert_eq!(
            &decode(&bytes[..len], version, 1 << 16),
            &Ok(Some((packet.clone(), len)))
        );
        let mut again = Vec::new();
        packet
            .encode(version, &mut again)
            .expect("what was decoded can be encoded");
        let again_len = again.len();
        prop_assert!(again_len <= len);
        prop_assert_eq!(
            decode(&again, version, 1 << 16),
            Ok(Some((packet, again_len)))
        );
    }
    Ok(())
}

/// A change to an encoded packet.
#[derive(Debug, Clone)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Remove(prop::sample::Index),
    Truncate(prop::sample::Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<prop::sample::Index>;
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(vec![0, 1, 2, 3, 0x7F, 0x80, 0xFF])
    ];
    prop_oneof![
        4 => (index(), byte.clone()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => (index(), byte).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        1 => index().prop_map(Mutation::Remove),
        1 => index().prop_map(Mutation::Truncate),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutations: Vec<Mutation>) {
    for mutation in mutations {
        if bytes.is_empty() {
            return;
        }
        match mutation {
            Mutation::Set(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            Mutation::Insert(at, byte) => bytes.insert(at.index(bytes.len()), byte),
            Mutation::Remove(at) => {
                bytes.remove(at.index(bytes.len()));
            }
            Mutation::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
}

/// The packet with its remaining length made right again, so that mutations get past the frame.
fn reframe(bytes: &[u8]) -> Option<Vec<u8>> {
    let body = bytes.get(2..)?;
    let length = if body.len() < 128 {
        vec![body.len() as u8]
    } else {
        vec![body.len() as u8 | 128, (body.len() >> 7) as u8]
    };
    Some([&bytes[..1], &length, body].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn arbitrary_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        examine(&bytes)?;
        if let Some(framed) = reframe(&bytes) {
            examine(&framed)?;
        }
    }

    #[test]
    fn damaged_packets_are_survived(
        (version, packet) in packet_of_any_version(),
        mutations in prop::collection::vec(mutation(), 1..5),
    ) {
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).expect("valid packets encode");
        mutate(&mut bytes, mutations);
        examine(&bytes)?;
        if let Some(framed) = reframe(&bytes) {
            examine(&framed)?;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_part_of_a_packet_is_taken_for_the_whole((version, packet) in packet_of_any_version()) {
        let mut bytes = Vec::new();
        packet.encode(version, &mut bytes).expect("valid packets encode");
        for len in 0..bytes.len() {
            let part = &bytes[..len];
            prop_assert_eq!(decode(part, version, u32::MAX), Ok(None));
        }
    }
}

#[test]
fn packets_of_one_version_are_survived_in_another() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..500 {
        let tree = packet_of_any_version()
            .new_tree(&mut runner)
            .expect("no filters");
        let (version, packet) = tree.current();
        let mut bytes = Vec::new();
        packet
            .encode(version, &mut bytes)
            .expect("valid packets encode");
        examine(&bytes).expect("holds");
        // Nothing but a CONNECT decides the version.
        if let thicket_mqtt::Packet::Connect(_) = packet {
            for other in [
                ProtocolVersion::V31,
                ProtocolVersion::V311,
                ProtocolVersion::V5,
            ] {
                let decoded = decode(&bytes, other, u32::MAX);
                assert_eq!(decoded, Ok(Some((packet.clone(), bytes.len()))));
            }
        }
    }
}
