use proptest::prelude::*;

use super::*;
use crate::identity::Incarnation;
use crate::routing::ListedLink;

const fn listed(node: u64, rtt: u32, epoch: u32) -> ListedLink {
    let node = NodeId(node);
    ListedLink { node, rtt, epoch }
}

fn record() -> NodeRecord {
    NodeRecord {
        node: NodeId(7),
        incarnation: Incarnation(2),
        version: 300,
        process: 9,
        name: "north".into(),
        address: "127.0.0.1:1883".into(),
        clients: 12,
        subscriptions: 40,
        interest_version: 5,
        capability: 150,
        roots: 2,
        rate: 64,
        routing: 1,
        links: [listed(8, 3, 1), listed(9, 200, 700)].into(),
    }
}

fn changed_record() -> RecordChange {
    let after = NodeRecord {
        version: 301,
        links: [listed(8, 4, 1), listed(10, 9, 700)].into(),
        ..record()
    };
    RecordChange::between(&record(), &after).expect("it is later")
}

fn change(filter: &str, sharing: Sharing, value: Option<InterestValue>) -> InterestChange {
    InterestChange {
        key: InterestKey {
            filter: TopicFilter::new(filter).expect("a filter"),
            sharing,
        },
        value,
    }
}

fn changes() -> Vec<InterestChange> {
    let value = InterestValue {
        qos: Qos::ExactlyOnce,
        persistent: true,
        weight: 0,
    };
    vec![
        change("a/+/#", Sharing::Plain, Some(value)),
        change(
            "a",
            Sharing::Group("g".into()),
            Some(InterestValue {
                persistent: false,
                weight: 300,
                ..value
            }),
        ),
        change("b", Sharing::Plain, None),
    ]
}

fn encoded_messages() -> Vec<(Channel, Vec<u8>)> {
    let (mut entries, mut streams) = (Vec::new(), Vec::new());
    for change in changes() {
        put_change(&mut entries, &change.key, change.value);
    }
    let stream = AcknowledgedStream {
        origin: NodeId(1),
        incarnation: Incarnation(2),
        stream: StreamId(3),
    };
    put_stream(&mut streams, stream, 2, [4..=9, 300..=300].into_iter());
    let resume = Resume {
        given_up: 300,
        interests_received: None,
        interests_applied: Some(0),
        control_received: 8,
        credit_limit: u64::MAX,
        credit_window: 1 << 20,
    };
    let batch = |kind| {
        Message::Interests(InterestBatch {
            kind,
            from: 1,
            to: 200,
            entries: &entries,
        })
    };
    let messages = [
        Message::Candidate {
            has_link: true,
            selects_seen: 200,
        },
        Message::Select,
        Message::Resume(resume),
        Message::Advertisement {
            origin: NodeId(3),
            topic: "tide/height",
        },
        Message::Hello {
            sequence: 1,
            rtt_us: Some(0),
        },
        Message::HelloReply { sequence: u64::MAX },
        Message::Leaving,
        Message::Record(record()),
        Message::Versions(RecordVersions::of([record()].iter())),
        Message::Change(changed_record()),
        batch(InterestBatchKind::Changes),
        batch(InterestBatchKind::SnapshotPart),
        batch(InterestBatchKind::SnapshotEnd),
        Message::InterestsApplied { version: 128 },
        Message::Acknowledge(AcknowledgeView {
            credit_limit: 1000,
            control_received: 1,
            streams: &streams,
        }),
        Message::Control {
            sequence: 3,
            kind: 200,
            payload: b"claim",
        },
    ];
    let encode = |message: &Message<'_>| {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        assert_eq!(
            Message::decode(message.channel(), &bytes).as_ref(),
            Ok(message)
        );
        (message.channel(), bytes)
    };
    messages.iter().map(encode).collect()
}

#[test]
fn every_message_is_read_as_it_was_written_and_a_cut_one_is_refused_or_shorter() {
    for (channel, bytes) in encoded_messages() {
        for len in 0..bytes.len() {
            // Lists extend to the end of a packet: a cut may fall between two entries, which must not panic either.
            if let Ok(message) = Message::decode(channel, &bytes[..len]) {
                read_all(&message);
            }
        }
    }
}

#[test]
fn changes_and_ranges_are_read_as_they_were_written() {
    let messages = encoded_messages();
    let read: Vec<_> = messages
        .iter()
        .filter_map(|(channel, bytes)| Message::decode(*channel, bytes).ok())
        .collect();
    assert_eq!(read.len(), messages.len());
    for message in read {
        if let Message::Interests(batch) = message {
            assert_eq!(
                batch.changes().collect::<Result<Vec<_>, _>>(),
                Ok(changes())
            );
        } else if let Message::Acknowledge(view) = message {
            let mut ranges = Vec::new();
            assert_eq!(
                view.for_each_range(|stream, range| ranges.push((stream.stream, range))),
                Ok(())
            );
            assert_eq!(ranges, [(StreamId(3), 4..=9), (StreamId(3), 300..=300)]);
        }
    }
}

fn read_all(message: &Message<'_>) {
    if let Message::Interests(batch) = message {
        batch.changes().for_each(drop);
    } else if let Message::Acknowledge(view) = message {
        let _ = view.for_each_range(|_, _| {});
    }
}

proptest! {
    #[test]
    fn mutated_messages_are_refused_or_read(which in any::<prop::sample::Index>(), edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let messages = encoded_messages();
        let (channel, mut bytes) = messages[which.index(messages.len())].clone();
        for (at, with) in edits {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        if let Ok(message) = Message::decode(channel, &bytes) {
            read_all(&message);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(channel in 0_usize..6, bytes in any::<Vec<u8>>()) {
        if let Ok(message) = Message::decode(Channel::ALL[channel], &bytes) {
            read_all(&message);
        }
    }
}
