//! What two nodes do when one of them is a stranger, an impostor, slow or hostile.

mod pair;

use proptest::prelude::*;
use thicket_mqtt::Qos;
use thicket_overlay::record::Record;
use thicket_overlay::{
    ControlError, FarEnd, Forward, ForwardError, Incarnation, Input, InterestKey, InterestValue,
    LinkId, NodeId, NodeSlot, Output, OverlayConfig, Sharing, StreamId,
};

use pair::{A, B, Pair, config};

const PEER: NodeSlot = NodeSlot(1);

fn is_down(output: &Output) -> bool {
    matches!(output, Output::NodeDown { slot: PEER, .. })
}

fn with(node: u64, change: impl FnOnce(&mut OverlayConfig)) -> OverlayConfig {
    let mut config = config(node);
    change(&mut config);
    config
}

fn forward(pair: &mut Pair, number: u64, len: usize) -> Result<(), ForwardError> {
    let (payload, mut record) = (vec![0; len], Vec::new());
    let qos = if number == 0 {
        Qos::AtMostOnce
    } else {
        Qos::AtLeastOnce
    };
    Record {
        number,
        qos,
        topic: "a",
        payload: &payload,
        ..Record::default()
    }
    .encode(&mut record);
    let message = Forward {
        stream: StreamId(0),
        number,
        qos,
        destinations: &[PEER],
        interested: None,
        record: &record,
    };
    let now = pair.instant();
    pair.nodes[A].forward(now, message)
}

#[test]
fn strangers_are_refused_with_a_reason_that_both_ends_log() {
    let cases: Vec<(&str, OverlayConfig, OverlayConfig, &str)> = vec![
        (
            "another cluster",
            with(1, |config| config.cluster_name = "atoll".into()),
            config(2),
            "cluster \"atoll\" is not \"reef\"",
        ),
        (
            "the same identity",
            config(1),
            config(1),
            "node id 0000000000000001 is in use",
        ),
    ];
    for (name, a, b, reason) in cases {
        let mut pair = Pair::new(a, b);
        pair.dial();
        let told = [
            pair.events(A, "link refused by the other node"),
            pair.events(A, "link refused"),
        ]
        .concat();
        let told_b = [
            pair.events(B, "link refused by the other node"),
            pair.events(B, "link refused"),
        ]
        .concat();
        for told in [&told, &told_b] {
            assert!(
                told.iter().any(|line| line.contains(reason)),
                "{name}: {told:?}"
            );
        }
        assert!(pair.open.is_empty(), "{name}");
        assert!(
            pair.nodes[A].nodes().len() == 1 && pair.nodes[B].nodes().len() == 1,
            "{name}"
        );
        pair.advance(3000);
        let again = [
            pair.events(A, "link refused by the other node"),
            pair.events(A, "link refused"),
        ]
        .concat();
        assert_eq!(again, told, "{name}: the dialler says it once");
    }
}

#[test]
fn nodes_that_want_proof_of_links_are_up_for_each_other_where_there_is_some() {
    let wants = |config: &mut OverlayConfig| config.links_are_proved = true;
    for (name, proofs, is_up) in [
        ("both prove", [true, true], true),
        ("the dialler does not", [false, true], false),
        ("the acceptor does not", [true, false], false),
    ] {
        let mut pair = Pair::new(with(1, wants), with(2, wants));
        pair.proves = proofs;
        pair.dial();
        let reached = pair.nodes.each_ref().map(|node| node.reachable().len());
        assert_eq!(reached, [1 + usize::from(is_up); 2], "{name}");
        let refused = [A, B]
            .map(|side| pair.events(side, "link refused"))
            .concat();
        let text = "did not prove that it belongs to this cluster";
        let says_so = refused.iter().any(|line| line.contains(text));
        assert_eq!(says_so, !is_up, "{name}: {refused:?}");
    }
}

#[test]
fn of_two_processes_with_one_identity_the_later_one_is_told_to_end() {
    let started = |incarnation| {
        with(1, |config| {
            config.incarnation = Incarnation(incarnation);
            config.address = format!("{incarnation}:1883");
        })
    };
    let in_use = |pair: &Pair, side: usize| {
        let address = "10:1883".to_owned();
        let outputs = &pair.sides[side].outputs;
        outputs.contains(&Output::IdentityInUse { address })
    };
    let mut pair = Pair::new(started(11), started(10));
    pair.dial();
    assert!(in_use(&pair, A) && !in_use(&pair, B), "the later one dials");
    let mut pair = Pair::new(started(10), started(11));
    pair.dial();
    assert!(!in_use(&pair, A) && !in_use(&pair, B), "it is not told");
    let hears_of_it = Output::Dial {
        address: "10:1883".into(),
    };
    assert!(pair.sides[B].outputs.contains(&hears_of_it), "it asks");
}

#[test]
fn a_node_that_dials_itself_notices_and_stops() {
    // Both ends are one process when the seeds are the same.
    let now = thicket_session::time::Instant::from_millis(1000);
    let mut pair = Pair::new(config(1), config(1));
    pair.nodes[B] = thicket_overlay::Overlay::new(config(1), now, 1);
    pair.dial();
    pair.advance(20_000);
    assert!(
        pair.events(A, "link refused by the other node").is_empty(),
        "nothing to log"
    );
    let dials = pair.nodes[B].counters().refused_links;
    assert_eq!(dials, 1, "dialled once and never again");
}

#[test]
fn a_stale_incarnation_goes_above_the_remembered_one_before_the_node_is_up() {
    for (name, remembered, own) in [("lower", 10, 3), ("equal", 10, 10)] {
        let mut pair = Pair::linked(config(1), config(2));
        pair.cut();
        let now = pair.instant();
        let config = with(1, |config| config.incarnation = Incarnation(own));
        pair.nodes[A] = thicket_overlay::Overlay::new(config, now, 99);
        pair.sides[A].outputs.clear();
        pair.dial();
        pair.advance(3000);
        let outputs = &pair.sides[A].outputs;
        let jump = outputs.iter().position(|output| {
            *output
                == Output::IncarnationChanged {
                    incarnation: Incarnation(remembered + 1),
                }
        });
        let up = outputs
            .iter()
            .position(|output| matches!(output, Output::NodeUp { .. }));
        assert!(jump.is_some() && jump < up, "{name}: {outputs:?}");
        assert_eq!(
            pair.nodes[B].nodes()[1].incarnation,
            Incarnation(remembered + 1),
            "{name}"
        );
    }
}

#[test]
fn a_second_live_process_with_the_same_identity_is_refused_while_the_first_is_there() {
    let mut pair = Pair::linked(config(1), config(2));
    let now = pair.instant();
    let mut impostor = thicket_overlay::Overlay::new(
        with(1, |config| config.incarnation = Incarnation(99)),
        now,
        55,
    );
    let link = LinkId(77);
    impostor.handle_input(now, Input::Dialled { address: "b", link });
    let connect = impostor.pending_output(link).to_vec();
    pair.open.insert(link, true);
    pair.nodes[B].handle_input(
        now,
        Input::LinkAccepted {
            link,
            end: FarEnd::default(),
            bytes: &connect,
        },
    );
    let answer = pair.nodes[B].pending_output(link).to_vec();
    impostor.handle_received(now, link, &answer, |_| {});
    impostor.end_round(now);
    let outputs: Vec<_> = std::iter::from_fn(|| impostor.poll_output()).collect();
    let text = format!("{outputs:?}");
    assert!(
        text.contains("node id 0000000000000001 is in use"),
        "{text}"
    );
    assert!(
        !outputs
            .iter()
            .any(|output| matches!(output, Output::IncarnationChanged { .. })),
        "no climbing: {text}"
    );
    pair.run();
    assert!(
        pair.events(B, "link refused")
            .iter()
            .any(|line| line.contains("in use"))
    );
    assert_eq!(pair.nodes[B].reachable(), [NodeId(1), NodeId(2)]);
}

#[test]
fn what_is_not_admitted_holds_back_only_data_and_within_bounds() {
    let small = |config: &mut OverlayConfig| {
        config.limits.credit_bytes = 10_000;
        config.limits.resend_bytes = 100_000;
    };
    let mut pair = Pair::linked(with(1, small), with(2, small));
    let mut number = 0;
    let full = loop {
        number += 1;
        match forward(&mut pair, number, 1000) {
            Ok(()) => assert!(number < 1000, "never full"),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, ForwardError::Full { .. }));
    pair.run();
    assert_eq!(forward(&mut pair, 0, 1000), Ok(()), "no promise, no error");
    pair.run();
    let received: usize = pair.sides[B].delivered.iter().map(|(_, len)| len).sum();
    assert!((8_000..=10_000).contains(&received), "credit: {received}");
    assert_eq!(
        pair.nodes[A].nodes()[1].counters.dropped,
        1,
        "records without numbers beyond credit are dropped"
    );
    pair.nodes[A]
        .send_control(PEER, 5, b"overtakes")
        .expect("up");
    pair.run();
    let control = Output::Control {
        from: PEER,
        kind: 5,
        payload: b"overtakes".to_vec(),
    };
    assert!(pair.sides[B].outputs.contains(&control));
    while let Some(origin) = pair.sides[B].origins.pop() {
        let (number, _) = pair.sides[B].delivered.pop().expect("as many");
        pair.nodes[B].admitted(origin, number..=number);
        pair.run();
    }
    assert_eq!(pair.nodes[A].counters().unacknowledged_messages, 0);
}

#[test]
fn records_with_and_without_numbers_stay_in_order() {
    let mut pair = Pair::linked(config(1), config(2));
    for (at, number) in [0, 1, 0, 0, 2, 3, 0].into_iter().enumerate() {
        forward(&mut pair, number, at).expect("room");
    }
    pair.run();
    assert_eq!(
        pair.sides[B].delivered,
        [(0, 0), (1, 1), (0, 2), (0, 3), (2, 4), (3, 5), (0, 6)]
    );
}

#[test]
fn records_without_numbers_go_together_as_they_would_one_by_one() {
    let small = |config: &mut OverlayConfig| config.limits.credit_bytes = 10_000;
    for (name, lens) in [
        ("all fit", &[100, 0, 700][..]),
        ("some are over the credit", &[4000, 3000, 2000, 400, 300, 1]),
        ("one is too large for any but itself", &[9000, 8000]),
    ] {
        let delivered = [false, true].map(|together| {
            let mut pair = Pair::linked(with(1, small), with(2, small));
            let now = pair.instant();
            let mut records = Vec::new();
            for len in lens {
                let payload = vec![0; *len];
                let record = Record {
                    topic: "a",
                    payload: &payload,
                    ..Record::default()
                };
                record.encode(&mut records);
                if !together {
                    forward(&mut pair, 0, *len).expect("nothing refuses it");
                }
            }
            if together {
                let count = lens.len() as u32;
                pair.nodes[A].forward_plain_all(now, StreamId(0), &[PEER], &records, count);
            }
            pair.run();
            std::mem::take(&mut pair.sides[B].delivered)
        });
        assert_eq!(delivered[0], delivered[1], "{name}");
        assert!(!delivered[0].is_empty(), "{name}");
    }
}

/// The same as `forward` for numbers in a row from `first` on: whether they were taken.
fn forward_in_a_row(pair: &mut Pair, first: u64, lens: &[usize]) -> bool {
    let mut records = Vec::new();
    for (number, len) in (first..).zip(lens) {
        let payload = vec![0; *len];
        let record = Record {
            number,
            qos: Qos::AtLeastOnce,
            topic: "a",
            payload: &payload,
            ..Record::default()
        };
        record.encode(&mut records);
    }
    let (now, count) = (pair.instant(), lens.len() as u32);
    let node = &mut pair.nodes[A];
    node.forward_in_a_row(now, StreamId(0), first, &[PEER], &records, count)
}

#[test]
fn records_with_numbers_in_a_row_go_together_as_they_would_one_by_one() {
    for (name, credit, lens) in [
        ("all fit", 100_000, vec![100, 0, 700]),
        ("a batch and more", 1_000_000, vec![900; 400]),
        ("credit comes bit by bit", 10_000, vec![900; 60]),
        (
            "some are larger than the credit",
            10_000,
            vec![9000, 20_000, 1, 12_000, 5],
        ),
    ] {
        let small = |config: &mut OverlayConfig| config.limits.credit_bytes = credit;
        let went = [false, true].map(|together| {
            let mut pair = Pair::linked(with(1, small), with(2, small));
            forward(&mut pair, 0, 3).expect("nothing refuses it");
            if together {
                assert!(forward_in_a_row(&mut pair, 1, &lens), "{name}");
                assert!(!forward_in_a_row(&mut pair, 1, &lens), "{name}: not rising");
            } else {
                for (number, len) in (1..).zip(&lens) {
                    forward(&mut pair, number, *len).expect("room");
                }
            }
            for _ in 0..lens.len() {
                pair.run();
                let (from, to) = (
                    pair.sides[B].origins[0],
                    pair.sides[B].delivered.len() as u64,
                );
                pair.nodes[B].released(from.slot, from.incarnation, 100);
                pair.nodes[B].admitted(from, 1..=to);
            }
            pair.run();
            let acknowledged = pair.sides[A]
                .outputs
                .iter()
                .filter_map(|output| match output {
                    Output::Acknowledged { ranges, .. } => Some(ranges.clone()),
                    _ => None,
                });
            let acknowledged: Vec<u64> = acknowledged.flatten().flatten().collect();
            (std::mem::take(&mut pair.sides[B].delivered), acknowledged)
        });
        assert_eq!(went[0], went[1], "{name}");
        assert_eq!(went[1].0.len(), lens.len() + 1, "{name}");
        assert_eq!(went[1].1, Vec::from_iter(1..=lens.len() as u64), "{name}");
    }
}

#[test]
fn what_went_together_goes_again_over_another_link_and_finds_no_room_together() {
    let small = |config: &mut OverlayConfig| config.limits.resend_bytes = 3_000;
    let mut pair = Pair::linked(with(1, small), with(2, |_| {}));
    assert!(forward_in_a_row(&mut pair, 1, &[900; 2]));
    assert!(
        !forward_in_a_row(&mut pair, 3, &[900; 2]),
        "no room for both"
    );
    forward(&mut pair, 3, 900).expect("room for one");
    pair.run();
    assert_eq!(pair.sides[B].delivered, [(1, 900), (2, 900), (3, 900)]);
    pair.cut();
    pair.advance(900);
    let origin = pair.sides[B].origins[0];
    pair.nodes[B].admitted(origin, 1..=3);
    pair.run();
    assert!(forward_in_a_row(&mut pair, 4, &[900; 2]), "room again");
    pair.run();
    let numbers: Vec<u64> = pair.sides[B]
        .delivered
        .iter()
        .map(|(number, _)| *number)
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5], "what comes again is dropped");
}

#[test]
fn a_large_record_without_credit_does_not_hold_back_what_was_paid_for() {
    let small = |config: &mut OverlayConfig| config.limits.credit_bytes = 10_000;
    let mut pair = Pair::linked(with(1, small), with(2, small));
    let now = pair.instant();
    for (stream, number, len) in [(1, 0, 3000), (0, 1, 9000)] {
        let (payload, mut record) = (vec![0; len], Vec::new());
        Record {
            number,
            topic: "a",
            payload: &payload,
            ..Record::default()
        }
        .encode(&mut record);
        let (stream, qos) = (StreamId(stream), Qos::AtMostOnce);
        let message = Forward {
            stream,
            number,
            qos,
            destinations: &[PEER],
            interested: None,
            record: &record,
        };
        pair.nodes[A].forward(now, message).expect("room");
    }
    pair.run();
    assert_eq!(pair.sides[B].delivered, [(0, 3000)]);
    let origin = pair.sides[B].origins[0];
    pair.nodes[B].released(origin.slot, origin.incarnation, 4000);
    pair.run();
    assert_eq!(pair.sides[B].delivered, [(0, 3000), (1, 9000)]);
}

#[test]
fn a_socket_that_takes_nothing_makes_no_buffer_grow_beyond_credit_and_ends_by_silence() {
    let mut pair = Pair::linked(config(1), config(2));
    pair.is_writable[A] = false;
    for number in 1..=30_000 {
        forward(&mut pair, number, 1000).expect("room in the resend buffer");
    }
    pair.advance(900);
    let pending = pair.nodes[A].pending_output(LinkId(0)).len();
    assert!((200_000..400_000).contains(&pending), "{pending} bytes");
    pair.advance(600);
    assert!(
        pair.sides[B].outputs.iter().any(is_down),
        "silent for the other node"
    );
}

#[test]
fn an_expiry_counts_the_time_a_message_waits_for_its_link() {
    let mut pair = Pair::linked(config(1), config(2));
    pair.cut();
    let mut records = Vec::new();
    for (number, expiry_left_ms, payload) in [
        (1, Some(5000), &b"abc"[..]),
        (2, None, b"without"),
        (3, Some(7000), b""),
    ] {
        let record = Record {
            number,
            expiry_left_ms,
            topic: "a",
            payload,
            ..Record::default()
        };
        record.encode(&mut records);
    }
    let (now, node) = (pair.instant(), &mut pair.nodes[A]);
    assert!(node.forward_in_a_row(now, StreamId(0), 1, &[PEER], &records, 3));
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let noted = seen.clone();
    pair.tap = Box::new(move |side, bytes| {
        // Dialled again after 200 ms; anything between is the backoff's jitter.
        let windows = bytes.windows(8).filter(|_| side == A);
        let numbers =
            windows.filter_map(|window| Some(u64::from_le_bytes(window.try_into().ok()?)));
        let of = |left: u64| {
            [5000, 7000]
                .into_iter()
                .find(|it| (it - 200..*it).contains(&left))
        };
        noted.borrow_mut().extend(numbers.filter_map(of));
    });
    pair.advance(900);
    assert_eq!(pair.sides[B].delivered, [(1, 3), (2, 7), (3, 0)]);
    assert_eq!(*seen.borrow(), [5000, 7000]);
}

#[test]
fn control_outlives_a_broken_link_and_is_refused_where_nobody_is() {
    let mut pair = Pair::linked(config(1), config(2));
    pair.cut();
    pair.nodes[A]
        .send_control(PEER, 1, b"while lost")
        .expect("not given up yet");
    pair.advance(900);
    let control = Output::Control {
        from: PEER,
        kind: 1,
        payload: b"while lost".to_vec(),
    };
    assert_eq!(
        pair.sides[B]
            .outputs
            .iter()
            .filter(|output| **output == control)
            .count(),
        1
    );
    assert_eq!(
        pair.nodes[A].send_control(NodeSlot(9), 1, b""),
        Err(ControlError::NotUp { slot: NodeSlot(9) })
    );
    assert_eq!(
        pair.nodes[A].send_control(NodeSlot::LOCAL, 1, b""),
        Err(ControlError::NotUp {
            slot: NodeSlot::LOCAL
        })
    );
}

#[test]
fn a_node_that_is_back_has_applied_nothing_until_it_says_so() {
    let mut pair = Pair::linked(config(1), config(2));
    let confirm = |pair: &mut Pair| {
        for output in std::mem::take(&mut pair.sides[B].outputs) {
            if let Output::InterestChanged { slot, version, .. } = output {
                pair.nodes[B].interests_applied(slot, version);
            }
        }
        pair.run();
    };
    let key = InterestKey {
        filter: thicket_session::topic::TopicFilter::new("a/#").expect("a filter"),
        sharing: Sharing::Plain,
    };
    let value = InterestValue {
        qos: Qos::AtLeastOnce,
        persistent: true,
        weight: 1,
    };
    let version = pair.nodes[A].set_interest(key, value);
    pair.run();
    assert!(pair.nodes[A].settled_version() < version);
    confirm(&mut pair);
    assert_eq!(pair.nodes[A].settled_version(), version);
    pair.is_writable = [false; 2];
    pair.advance(20_000);
    let is_down = |pair: &Pair| pair.nodes[A].is_down(PEER);
    assert!(is_down(&pair));
    assert_eq!(pair.nodes[A].settled_version(), version, "nobody is there");
    pair.is_writable = [true; 2];
    pair.cut();
    pair.advance(20_000);
    assert!(!is_down(&pair));
    assert!(pair.nodes[A].settled_version() < version);
    confirm(&mut pair);
    assert_eq!(pair.nodes[A].settled_version(), version);
}

#[test]
fn a_node_that_shuts_down_is_marked_down_at_once() {
    let mut pair = Pair::linked(config(1), config(2));
    let now = pair.instant();
    forward(&mut pair, 1, 10).expect("room");
    pair.nodes[B].shut_down(now);
    pair.run();
    assert!(pair.sides[A].outputs.iter().any(is_down));
    let acknowledged = Output::Acknowledged {
        stream: StreamId(0),
        ranges: vec![1..=1],
    };
    assert!(
        pair.sides[A].outputs.contains(&acknowledged),
        "nobody is waited for"
    );
}

#[test]
fn numbers_of_a_stream_rise_and_records_have_a_maximum() {
    let mut pair = Pair::linked(config(1), config(2));
    forward(&mut pair, 5, 1).expect("room");
    assert_eq!(
        forward(&mut pair, 5, 1),
        Err(ForwardError::NumberNotRising { number: 5, last: 5 })
    );
    assert!(matches!(
        forward(&mut pair, 6, 17 << 20),
        Err(ForwardError::TooLarge { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn bytes_changed_on_their_way_end_links_at_worst(changes in proptest::collection::vec((0_usize..6000, any::<u8>()), 1..6), is_proved in any::<bool>()) {
        let change = |config: &mut OverlayConfig| config.links_are_proved = is_proved;
        let mut pair = Pair::new(with(1, change), with(2, change));
        let mut count = 0;
        pair.tap = Box::new(move |_, bytes| {
            for (at, with) in &changes {
                if let Some(byte) = at.checked_sub(count).and_then(|at| bytes.get_mut(at)) {
                    *byte = *with;
                }
            }
            count += bytes.len();
        });
        pair.dial();
        for number in 1..20 {
            let _ = forward(&mut pair, number, 20);
            let _ = pair.nodes[A].send_control(PEER, 1, b"x");
            pair.run();
        }
        pair.advance(2000);
    }

    #[test]
    fn any_bytes_may_come_from_a_stranger_and_from_a_linked_node(bytes in any::<Vec<u8>>(), is_linked in any::<bool>()) {
        let mut pair = if is_linked { Pair::linked(config(1), config(2)) } else { Pair::new(config(1), config(2)) };
        pair.open.insert(LinkId(0), is_linked);
        pair.deliver(B, LinkId(0), &bytes);
        pair.run();
    }
}
