use thicket_placement::{Asked, Placement};

use super::*;
use crate::{
    NodeState,
    hub::{control::Follows, hints::HINT_KINDS},
    messages::ClientActivity,
};

fn retained(node: u64, record: &[u8]) -> RetainedRecord<'_> {
    let origin = Origin {
        node: NodeId(node),
        incarnation: Incarnation(3),
        stream: StreamId(4),
    };
    RetainedRecord { origin, record }
}

fn refused() -> RefusedNumbers {
    RefusedNumbers {
        incarnation: Incarnation(5),
        stream: StreamId(6),
        runs: vec![(1, 3), (7, 7)],
    }
}

const fn registration(client_id: &str, epoch: u64, state: Registrable) -> Registration<'_> {
    Registration {
        client_id,
        epoch: Epoch::from_bits(epoch),
        state,
    }
}

fn membership(node: u64, name: &str) -> Membership<'_> {
    Membership {
        node: NodeId(node),
        changes: 3,
        name,
    }
}

fn state() -> NodeState {
    let rates = |first| crate::Rates {
        in_messages: first,
        in_bytes: first + 1,
        out_messages: first + 2,
        out_bytes: first + 3,
    };
    let address = |transport, topic_prefix: &str| crate::ClientAddress {
        likeness: crate::ListenerLikeness {
            transport,
            topic_prefix: topic_prefix.into(),
        },
        address: "host:1".into(),
    };
    NodeState {
        load: crate::NodeLoad {
            cpu_permille: Some(500),
            external: rates(1),
            internal: rates(5),
            connections: 9,
            memory_bytes: Some(10),
            memory_limit_bytes: Some(11),
            is_draining: true,
            is_full: true,
            is_starting: true,
        },
        addresses: vec![
            address(crate::ClientTransport::Tcp, ""),
            address(crate::ClientTransport::Wss, "tenant/"),
        ],
        http_address: Some("host:2".into()),
    }
}

fn asked() -> Asked {
    let wanted = |best, rate| thicket_placement::Wanted {
        filter: "a/+".to_owned(),
        best,
        rate,
    };
    Asked {
        client_id: "c".to_owned(),
        publish: vec![("x".to_owned(), Some(2.5)), ("y".to_owned(), None)],
        subscribe: vec![wanted(Some(7), None), wanted(None, Some(1.0))],
        max_sessions: 4,
        home: None,
    }
}

fn placement() -> Placement {
    let session = |number, node| thicket_placement::PlacedSession {
        number,
        node,
        publish: vec![("x".to_owned(), 2.5)],
        subscribe: vec![("y".to_owned(), 1.0), ("z".to_owned(), 0.0)],
    };
    Placement {
        client_id: "c".to_owned(),
        sessions: vec![session(1, 5), session(2, 6)],
    }
}

fn granted(source: Option<NodeId>) -> Message<'static> {
    let epoch = Epoch::from_bits(9);
    Message::ClaimAnswered {
        request: 1,
        grant: Some(Grant { epoch, source }),
        client_id: "c",
    }
}

fn messages() -> Vec<Message<'static>> {
    let part = Part {
        bytes: b"part",
        is_last: true,
    };
    let stream = ReplicationStream { worker: 1, id: 2 };
    let report = |report| Message::BackupReport { stream, report };
    vec![
        Message::Claim {
            request: 1,
            view: 2,
            client_id: "c",
        },
        granted(Some(NodeId(4))),
        granted(None),
        Message::ClaimAnswered {
            request: 3,
            grant: None,
            client_id: "c",
        },
        Message::RegisterAsked {
            round: 4,
            unix_ms: 1_700_000_000_000,
        },
        Message::Register {
            round: 4,
            is_first: true,
            sessions: vec![
                registration("a", 1, Registrable::Claimed),
                registration("a", 2, Registrable::Connected),
                registration("a", 3, Registrable::Ended),
                registration("a", 4, Registrable::Waiting),
            ],
        },
        Message::RegisterEnd { round: 4, view: 5 },
        Message::Release {
            client_id: "c",
            release: Released::Ended,
        },
        Message::Release {
            client_id: "c",
            release: Released::Unclaimed,
        },
        Message::Release {
            client_id: "c",
            release: Released::Gone,
        },
        Message::Owned {
            client_id: "c",
            epoch: Epoch::from_bits(6),
        },
        Message::Evict {
            client_id: "c",
            epoch: Epoch::from_bits(7),
            has_ended: true,
        },
        Message::Fetch {
            request: 8,
            client_id: "c",
            purpose: Purpose::Merge,
        },
        Message::Contested { client_id: "c" },
        Message::Merge {
            epoch: Epoch::from_bits(12),
            source: NodeId(4),
            source_epoch: Epoch::from_bits(10),
            client_id: "c",
        },
        Message::Fetched {
            request: 8,
            answer: FetchAnswer::Part(part),
        },
        Message::FetchQueue { request: 8 },
        Message::Fetched {
            request: 8,
            answer: FetchAnswer::Elsewhere,
        },
        Message::Fetched {
            request: 8,
            answer: FetchAnswer::Gone,
        },
        Message::CancelSwitchover { client_id: "c" },
        Message::Barrier { request: 8 },
        Message::BarrierDone { request: 8 },
        Message::RetainedDigest {
            digest: 10,
            is_answer: true,
        },
        Message::Retained {
            messages: vec![retained(1, b"record"), retained(2, b"")],
        },
        Message::Refused(refused()),
        Message::MembersRefused(refused()),
        Message::RefusalNoted(refused()),
        Message::Replicate {
            stream,
            position: 3,
            part,
        },
        report(BackupReport::Held {
            applied: 3,
            held: 1,
        }),
        report(BackupReport::Missing(vec![(3, 4), (5, 6)])),
        report(BackupReport::Misrouted(MisroutedMessage {
            session: 3,
            origin: retained(4, b"").origin,
            bytes: b"record".to_vec(),
        })),
        Message::Members(vec![membership(1, "north"), membership(2, "")]),
        Message::Settings(vec![("routing", "mesh"), ("name", "")]),
        Message::Place {
            request: 1,
            order: PlacementOrder::Place {
                asked: asked(),
                payer: None,
            },
        },
        Message::Place {
            request: 1,
            order: PlacementOrder::Place {
                asked: asked(),
                payer: Some("user ada".into()),
            },
        },
        Message::PlaceDone {
            request: 1,
            problem: "rate",
        },
        Message::Placement {
            follows: Follows::Subscribers,
            payer: None,
            placement: placement(),
        },
        Message::Placement {
            follows: Follows::Request { max_sessions: 0 },
            payer: None,
            placement: placement(),
        },
        Message::Placement {
            follows: Follows::Request { max_sessions: 4 },
            payer: Some("address 10.0.0.1".into()),
            placement: placement(),
        },
        Message::Placement {
            follows: Follows::Activity { refused: 3 },
            payer: None,
            placement: placement(),
        },
        Message::Unplaced { client_id: "c" },
        Message::Place {
            request: 1,
            order: PlacementOrder::Remove("c".to_owned()),
        },
        Message::Topics {
            is_first: true,
            topics: vec![("a/b", 1024), ("c", 0)],
        },
        Message::State(NodeState::default()),
        Message::State(state()),
        Message::Moved {
            to: NodeId(5),
            reason: RedirectionReason::Rebalanced,
            client_id: "c",
        },
        Message::ActivityRequested {
            round: 3,
            cursor: 1 << 32 | 7,
        },
        Message::Activity {
            round: 3,
            next: u64::MAX,
            clients: vec![ClientActivity {
                client_id: "c".into(),
                can_move: true,
                millis_per_s: 1_500,
                publishes: vec![("a/b".into(), 900)],
                filters: vec!["a/+".into(), "b".into()],
            }],
        },
        Message::MovesOrdered {
            to: NodeId(5),
            reason: MoveReason::Topics,
            clients: vec!["c", "d"],
        },
        Message::RebalanceAsked {
            request: 4,
            wish: RebalanceWish::DryRun,
        },
        Message::RebalanceAnswered {
            request: 4,
            answer: Ok("{}".into()),
        },
        Message::RebalanceAnswered {
            request: 4,
            answer: Err(RebalanceError::Moving),
        },
        Message::Clock {
            unix_ms: 1_700_000_000_000,
        },
    ]
}

/// Kind and payload of each of [`messages`], a line each: nodes of the same wire version must read each other.
const KNOWN: &str = include_str!("known.txt");

#[test]
fn messages_have_the_bytes_that_nodes_of_this_wire_version_know() {
    let line = |message: &Message<'_>| {
        let (kind, payload) = message.encode();
        let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{kind} {hex}\n")
    };
    let written: String = messages().iter().map(line).collect();
    assert_eq!(written, KNOWN, "what is written now:\n{written}");
}

#[test]
fn every_message_is_read_as_it_was_written() {
    for message in messages() {
        let (kind, payload) = message.encode();
        assert!(!HINT_KINDS.contains(&kind), "{kind} is that of a hint");
        assert_eq!(Message::decode(kind, &payload), Some(message));
    }
}

#[test]
fn shortened_and_lengthened_messages_and_unknown_kinds_are_refused() {
    for message in messages() {
        let (kind, mut payload) = message.encode();
        let is_list = matches!(
            message,
            Message::Register { .. }
                | Message::Retained { .. }
                | Message::Refused(_)
                | Message::MembersRefused(_)
                | Message::RefusalNoted(_)
                | Message::BackupReport {
                    report: BackupReport::Missing(_),
                    ..
                }
                | Message::Members(_)
                | Message::Settings(_)
                | Message::State(_)
                | Message::Topics { .. }
                | Message::Place {
                    order: PlacementOrder::Place { .. },
                    ..
                }
                | Message::Placement { .. }
                | Message::Activity { .. }
                | Message::MovesOrdered { .. }
        );
        for len in 0..payload.len() {
            let shorter = Message::decode(kind, &payload[..len]);
            assert!(shorter.is_none() || is_list, "{message:?} cut to {len}");
        }
        payload.push(0);
        assert_eq!(
            Message::decode(kind, &payload),
            None,
            "{message:?} and a byte"
        );
        assert_eq!(Message::decode(200, &payload), None);
    }
}
