//! Tests of the outbound half of a session.

use super::inherited::BRANCH;
use super::*;
use crate::server::MessageId;
use thicket_mqtt::Publish;

const LIMITS: OutboundLimits = OutboundLimits {
    messages: 100,
    bytes: 1_000_000,
};

fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("not zero")
}

fn delivery(qos: Qos, payload: &[u8], expires_at: Option<Instant>) -> Delivery {
    let publish = Publish {
        qos,
        ..Publish::new("a", payload)
    };
    let message = Rc::new(Message::new(MessageId::default(), &publish, expires_at));
    Delivery {
        message,
        qos,
        retain: false,
        identifiers: MatchedIdentifiers::None,
        group: None,
    }
}

fn sent(started: Option<Started>) -> (u16, bool, Vec<u8>) {
    match started {
        Some(Started::Publish {
            packet_id,
            dup,
            delivery,
        }) => (
            packet_id.map_or(0, PacketId::value),
            dup,
            delivery.message.payload().to_vec(),
        ),
        other => panic!("not a PUBLISH: {other:?}"),
    }
}

fn outbound_with(qos: Qos, count: u8) -> Outbound {
    let mut outbound = Outbound::new(LIMITS, true);
    for number in 0..count {
        outbound
            .enqueue(delivery(qos, &[number], None))
            .expect("room");
    }
    outbound
}

/// One row a pair of the table in the module's documentation.
#[test]
fn every_pair_of_state_and_event_is_answered_as_the_table_says() {
    let free = || Outbound::new(LIMITS, true);
    let await_puback = || {
        let mut outbound = outbound_with(Qos::AtLeastOnce, 1);
        outbound.pull(Instant::from_millis(0), 10);
        outbound
    };
    let await_pubrec = || {
        let mut outbound = outbound_with(Qos::ExactlyOnce, 1);
        outbound.pull(Instant::from_millis(0), 10);
        outbound
    };
    let await_pubcomp = || {
        let mut outbound = await_pubrec();
        outbound.handle_pubrec(id(1), false);
        outbound
    };
    use Acknowledged::{Done, SendPubrel, Unknown, Wrong};
    type Build<'a> = &'a dyn Fn() -> Outbound;
    let rows: [(&str, Build<'_>, [Acknowledged; 4]); 4] = [
        ("free", &free, [Unknown, Unknown, Unknown, Unknown]),
        ("awaits PUBACK", &await_puback, [Done, Wrong, Wrong, Wrong]),
        (
            "awaits PUBREC",
            &await_pubrec,
            [Wrong, SendPubrel, Done, Wrong],
        ),
        (
            "awaits PUBCOMP",
            &await_pubcomp,
            [Wrong, SendPubrel, Done, Done],
        ),
    ];
    for (name, build, [puback, pubrec, refused, pubcomp]) in rows {
        assert_eq!(build().handle_puback(id(1)), puback, "{name}, PUBACK");
        assert_eq!(
            build().handle_pubrec(id(1), false),
            pubrec,
            "{name}, PUBREC"
        );
        assert_eq!(
            build().handle_pubrec(id(1), true),
            refused,
            "{name}, PUBREC >= 0x80"
        );
        assert_eq!(build().handle_pubcomp(id(1)), pubcomp, "{name}, PUBCOMP");
    }
}

#[test]
fn identifiers_start_at_one_and_count_up() {
    // [MQTT-2.2.1-4]
    let mut outbound = outbound_with(Qos::AtLeastOnce, 3);
    for number in 1..=3 {
        assert_eq!(sent(outbound.pull(Instant::from_millis(0), 10)).0, number);
    }
}

#[test]
fn no_more_than_the_window_is_in_flight_and_an_acknowledgement_makes_room() {
    // [MQTT-4.9.0-2]
    let mut outbound = outbound_with(Qos::AtLeastOnce, 3);
    assert_eq!(sent(outbound.pull(Instant::from_millis(0), 2)).0, 1);
    assert_eq!(sent(outbound.pull(Instant::from_millis(0), 2)).0, 2);
    assert_eq!(outbound.pull(Instant::from_millis(0), 2), None);
    outbound.handle_puback(id(2));
    assert_eq!(sent(outbound.pull(Instant::from_millis(0), 2)).0, 3);
}

#[test]
fn a_resumed_session_sends_again_in_order_with_dup_within_the_new_window_and_then_goes_on() {
    let mut outbound = outbound_with(Qos::ExactlyOnce, 4);
    for _ in 0..3 {
        outbound.pull(Instant::from_millis(0), 10);
    }
    outbound.handle_pubrec(id(2), false);
    outbound.handle_resume();
    assert_eq!(
        sent(outbound.pull(Instant::from_millis(0), 1)),
        (1, true, vec![0])
    );
    assert_eq!(
        outbound.pull(Instant::from_millis(0), 1),
        Some(Started::Pubrel(id(2)))
    );
    assert_eq!(
        outbound.pull(Instant::from_millis(0), 1),
        None,
        "the window is full"
    );
    outbound.handle_pubrec(id(1), false);
    outbound.handle_pubcomp(id(1));
    assert_eq!(
        sent(outbound.pull(Instant::from_millis(0), 1)),
        (3, true, vec![2])
    );
    outbound.handle_pubrec(id(3), true);
    assert_eq!(
        sent(outbound.pull(Instant::from_millis(0), 1)),
        (4, false, vec![3])
    );
}

#[test]
fn an_identifier_in_use_is_not_given_again_after_the_counter_wraps() {
    // [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1]
    let mut outbound = outbound_with(Qos::AtLeastOnce, 1);
    outbound.set_next_packet_id(id(u16::MAX));
    assert_eq!(sent(outbound.pull(Instant::from_millis(0), 10)).0, u16::MAX);
    outbound
        .enqueue(delivery(Qos::AtLeastOnce, b"", None))
        .expect("room");
    assert_eq!(sent(outbound.pull(Instant::from_millis(0), 10)).0, 1);
    assert_eq!(outbound.handle_puback(id(u16::MAX)), Acknowledged::Done);
    assert_eq!(outbound.handle_puback(id(1)), Acknowledged::Done);
    assert_eq!(outbound.inflight(), 0);
}

#[test]
fn what_expired_in_the_queue_is_not_sent() {
    // [MQTT-3.3.2-5]
    let mut outbound = Outbound::new(LIMITS, true);
    outbound
        .enqueue(delivery(
            Qos::AtLeastOnce,
            b"old",
            Some(Instant::from_millis(5)),
        ))
        .expect("room");
    outbound
        .enqueue(delivery(Qos::AtLeastOnce, b"new", None))
        .expect("room");
    assert!(matches!(
        outbound.pull(Instant::from_millis(5), 10),
        Some(Started::Expired(_))
    ));
    assert_eq!(
        sent(outbound.pull(Instant::from_millis(5), 10)),
        (1, false, b"new".to_vec())
    );
}

/// What waits, with its sequences.
fn waiting(outbound: &Outbound) -> Vec<(u64, Vec<u8>)> {
    let queue = outbound.queue_from(0);
    queue
        .map(|(sequence, delivery)| (sequence, delivery.message.payload().to_vec()))
        .collect()
}

#[test]
fn what_expired_anywhere_in_the_queue_is_dropped_and_no_longer_counts() {
    // [MQTT-3.3.2-5]
    let mut outbound = Outbound::new(LIMITS, true);
    let tally = Tally::default();
    outbound.set_tally(Some(tally.clone()));
    for (payload, expires_ms) in [
        (0, None),
        (1, Some(5)),
        (2, Some(9)),
        (3, Some(5)),
        (4, None),
    ] {
        let expires_at = expires_ms.map(Instant::from_millis);
        outbound.enqueue_accepted(delivery(Qos::AtLeastOnce, &[payload], expires_at));
    }
    assert_eq!(outbound.next_expiry(), Some(Instant::from_millis(5)));
    assert_eq!(outbound.drop_expired(Instant::from_millis(4)), None);
    let five = Instant::from_millis(5);
    assert_eq!(outbound.drop_expired(five), Some(2));
    assert_eq!(outbound.drop_expired(five), Some(4));
    assert_eq!(outbound.drop_expired(five), None);
    assert_eq!(outbound.next_expiry(), Some(Instant::from_millis(9)));
    let left = [(1, vec![0]), (3, vec![2]), (5, vec![4])];
    assert_eq!(waiting(&outbound), left);
    assert_eq!((outbound.queued(), tally.waiting().messages), (3, 3));
    assert_eq!(outbound.queued_bytes(), tally.waiting().bytes);
    assert_eq!(
        sent(outbound.pull(five, 10)),
        (1, false, vec![0]),
        "the rest is sent in order"
    );
    assert_eq!(sent(outbound.pull(five, 10)), (2, false, vec![2]));
    assert_eq!(outbound.next_expiry(), None, "it no longer waits");
    assert_eq!(outbound.sequence_of(id(2)), 3);
    assert_eq!(sent(outbound.pull(five, 10)), (3, false, vec![4]));
    assert_eq!(tally.waiting(), Waiting::default());
}

#[test]
fn a_queue_that_is_resequenced_expires_as_before() {
    let mut outbound = Outbound::new(LIMITS, true);
    for payload in 0..4 {
        let expires_at = (payload % 2 == 1).then(|| Instant::from_millis(5));
        outbound.enqueue_accepted(delivery(Qos::AtLeastOnce, &[payload], expires_at));
    }
    outbound.retain_queue(|delivery| delivery.message.payload() != [1]);
    assert!(outbound.adopt(Vec::new()).is_empty());
    let queue = [(5, vec![0]), (6, vec![2]), (7, vec![3])];
    assert_eq!(waiting(&outbound), queue);
    assert_eq!(outbound.drop_expired(Instant::from_millis(5)), Some(7));
    assert_eq!(outbound.drop_expired(Instant::from_millis(5)), None);
    assert_eq!(outbound.take_queue().len(), 2);
    assert_eq!((outbound.queued(), outbound.queued_bytes()), (0, 0));
}

#[test]
fn a_full_queue_refuses_by_messages_and_by_bytes() {
    let mut by_messages = Outbound::new(
        OutboundLimits {
            messages: 1,
            bytes: 1_000_000,
        },
        true,
    );
    assert_eq!(
        by_messages.enqueue(delivery(Qos::AtLeastOnce, b"", None)),
        Ok(())
    );
    assert_eq!(
        by_messages.enqueue(delivery(Qos::AtLeastOnce, b"", None)),
        Err(QueueFull)
    );
    let mut by_bytes = Outbound::new(
        OutboundLimits {
            messages: 10,
            bytes: 200,
        },
        true,
    );
    assert_eq!(
        by_bytes.enqueue(delivery(Qos::AtLeastOnce, &[0; 500], None)),
        Err(QueueFull)
    );
    assert_eq!(by_bytes.queued_bytes(), 0);
}

#[test]
fn a_tally_counts_what_waits_in_the_queues_that_have_it() {
    let tally = Tally::default();
    let mut one = outbound_with(Qos::AtLeastOnce, 3);
    let mut other = Outbound::new(LIMITS, true);
    for outbound in [&mut one, &mut other] {
        outbound.set_tally(Some(tally.clone()));
    }
    let expect = |one: &Outbound, other: &Outbound, messages: u64| {
        let expected = Waiting {
            messages,
            bytes: one.queued_bytes() + other.queued_bytes(),
        };
        assert_eq!(tally.waiting(), expected);
    };
    expect(&one, &other, 3);
    one.pull(Instant::from_millis(0), 10);
    other.enqueue_accepted(delivery(Qos::AtMostOnce, b"long", None));
    expect(&one, &other, 3);
    let taken = one.take_queue();
    expect(&one, &other, 1);
    for delivery in taken {
        one.enqueue_accepted(delivery);
    }
    expect(&one, &other, 3);
    one.set_tally(None);
    expect(&Outbound::new(LIMITS, true), &other, 1);
    other.restore_stored([], [(8, delivery(Qos::AtLeastOnce, b"stored", None))], 9);
    expect(&Outbound::new(LIMITS, true), &other, 2);
}

#[test]
fn queues_that_share_a_bound_are_full_together() {
    let message = || delivery(Qos::AtLeastOnce, b"x", None);
    let whole = Tally::default();
    let part = whole.part(Some(2 * message().message.cost()));
    let [mut one, mut other, mut third] = [(); 3].map(|()| Outbound::new(LIMITS, true));
    one.set_tally(Some(part.clone()));
    other.set_tally(Some(part.clone()));
    third.set_tally(Some(whole.part(None)));
    assert_eq!(one.enqueue(message()), Ok(()));
    assert_eq!(other.enqueue(message()), Ok(()));
    for outbound in [&mut one, &mut other] {
        assert_eq!(outbound.enqueue(message()), Err(QueueFull));
    }
    assert_eq!(third.enqueue(message()), Ok(()), "it has another tally");
    // What another node has accepted is taken in any case.
    one.enqueue_accepted(message());
    assert_eq!((part.waiting().messages, whole.waiting().messages), (3, 4));
    one.pull(Instant::from_millis(0), 10);
    assert_eq!(other.enqueue(message()), Err(QueueFull));
    one.pull(Instant::from_millis(0), 10);
    assert_eq!(other.enqueue(message()), Ok(()));
    other.set_tally(None);
    assert_eq!(part.waiting(), Waiting::default());
    assert_eq!(whole.waiting().messages, 1);
}

#[test]
fn a_restored_window_is_the_one_that_was_saved() {
    let mut outbound = outbound_with(Qos::ExactlyOnce, 3);
    for _ in 0..3 {
        outbound.pull(Instant::from_millis(0), 10);
    }
    outbound.handle_pubrec(id(1), false);
    outbound.handle_pubrec(id(2), true);
    let saved: Vec<_> = outbound.in_flight().collect();
    let mut restored = Outbound::new(LIMITS, true);
    restored.restore(saved.clone());
    assert_eq!(restored.in_flight().collect::<Vec<_>>(), saved);
    assert_eq!(restored.next_packet_id(), id(4));
    assert_eq!(
        restored.pull(Instant::from_millis(0), 10),
        Some(Started::Pubrel(id(1)))
    );
    assert_eq!(
        sent(restored.pull(Instant::from_millis(0), 10)),
        (3, true, vec![2])
    );
}

/// Packet identifiers in flight, in order, with what their messages say.
fn flying(outbound: &Outbound) -> Vec<(u16, Vec<u8>)> {
    let in_flight = outbound.in_flight().map(|redelivery| match redelivery {
        Redelivery::Publish(id, delivery) => (id.value(), delivery.message.payload().to_vec()),
        Redelivery::Pubrel(id) => (id.value(), b"pubrel".to_vec()),
    });
    in_flight.collect()
}

#[test]
fn another_node_that_goes_on_gives_other_identifiers_and_ends_what_was_begun() {
    let mut outbound = outbound_with(Qos::ExactlyOnce, 4);
    let now = Instant::from_millis(0);
    outbound.pull(now, 2);
    outbound.pull(now, 2);
    outbound.branch();
    outbound.handle_resume();
    assert_eq!(sent(outbound.pull(now, 3)), (1, true, vec![0]));
    assert_eq!(sent(outbound.pull(now, 3)), (2, true, vec![1]));
    let first = 2 + BRANCH + 1;
    assert_eq!(sent(outbound.pull(now, 3)), (first, false, vec![2]));
    assert_eq!(outbound.pull(now, 3), None, "the window counts all");
    assert_eq!(
        outbound.handle_pubrec(id(2), false),
        Acknowledged::SendPubrel
    );
    assert_eq!(outbound.handle_pubcomp(id(2)), Acknowledged::Done);
    assert_eq!(outbound.handle_pubcomp(id(2)), Acknowledged::Unknown);
    assert_eq!(sent(outbound.pull(now, 3)), (first + 1, false, vec![3]));
    assert_eq!(outbound.sequence_of(id(1)), 1);
    let expected = [(1, vec![0]), (first, vec![2]), (first + 1, vec![3])];
    assert_eq!(flying(&outbound), expected);
}

#[test]
fn what_is_far_apart_is_restored_without_the_identifiers_between() {
    let mut outbound = Outbound::new(LIMITS, true);
    let publish = |value, payload: u8| {
        Redelivery::Publish(id(value), delivery(Qos::AtLeastOnce, &[payload], None))
    };
    outbound.restore([publish(7, 0), publish(40_000, 1), publish(40_002, 2)]);
    outbound.set_next_packet_id(id(60_000));
    assert_eq!(outbound.next_packet_id(), id(60_000));
    assert!(outbound.slots.is_empty(), "nothing of this size is kept");
    let expected = [(7, vec![0]), (40_000, vec![1]), (40_002, vec![2])];
    assert_eq!(flying(&outbound), expected);
    for value in [7, 40_000, 40_002] {
        assert_eq!(outbound.handle_puback(id(value)), Acknowledged::Done);
    }
    assert!(outbound.is_empty());
}

#[test]
fn what_is_in_flight_under_identifiers_that_do_not_ascend_is_restored_in_its_order() {
    let mut outbound = Outbound::new(LIMITS, true);
    let publish = |value, payload: u8| {
        Redelivery::Publish(id(value), delivery(Qos::AtLeastOnce, &[payload], None))
    };
    let twice = publish(9, 5);
    outbound.restore([
        publish(7, 0),
        publish(10, 1),
        publish(8, 2),
        publish(9, 3),
        publish(6, 4),
        twice,
    ]);
    let expected = [
        (7, vec![0]),
        (10, vec![1]),
        (8, vec![2]),
        (9, vec![3]),
        (6, vec![4]),
    ];
    assert_eq!(flying(&outbound), expected);
    outbound.set_next_packet_id(id(11));
    let now = Instant::from_millis(0);
    for (value, payload) in expected {
        assert_eq!(sent(outbound.pull(now, 9)), (value, true, payload));
    }
    let begun = outbound.begin(Qos::AtLeastOnce, 9, false, || {
        delivery(Qos::AtLeastOnce, &[6], None)
    });
    assert_eq!(begun, Some(id(11)), "7 to 10 are in use");
    for value in [10, 6, 7, 11, 9, 8] {
        assert_eq!(outbound.handle_puback(id(value)), Acknowledged::Done);
    }
    assert!(outbound.is_empty());
}

#[test]
fn identifiers_that_are_in_use_for_what_was_inherited_are_passed_over() {
    let mut outbound = Outbound::new(LIMITS, true);
    let publish = |value| Redelivery::Publish(id(value), delivery(Qos::AtLeastOnce, &[9], None));
    outbound.restore([publish(1), publish(100)]);
    outbound.handle_puback(id(100));
    outbound.set_next_packet_id(id(u16::MAX));
    outbound.handle_resume();
    let now = Instant::from_millis(0);
    outbound.pull(now, 9);
    let begun: Vec<u16> = (0..3)
        .filter_map(|_| {
            let id = outbound.begin(Qos::AtLeastOnce, 9, false, || {
                delivery(Qos::AtLeastOnce, &[1], None)
            });
            id.map(PacketId::value)
        })
        .collect();
    assert_eq!(begun, [u16::MAX, 2, 3], "1 is in use");
}

#[test]
fn what_another_node_had_in_flight_is_adopted_unless_its_identifier_is_in_use() {
    let mut outbound = outbound_with(Qos::AtLeastOnce, 3);
    let now = Instant::from_millis(0);
    outbound.pull(now, 9);
    let theirs =
        |value| Redelivery::Publish(id(value), delivery(Qos::ExactlyOnce, &[value as u8], None));
    let left = outbound.adopt(vec![theirs(1), theirs(50), Redelivery::Pubrel(id(51))]);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].message.payload(), [1]);
    let expected = [(1, vec![0]), (50, vec![50]), (51, b"pubrel".to_vec())];
    assert_eq!(flying(&outbound), expected);
    assert_eq!(sent(outbound.pull(now, 9)), (50, true, vec![50]));
    assert_eq!(outbound.pull(now, 9), Some(Started::Pubrel(id(51))));
    assert_eq!(sent(outbound.pull(now, 9)), (2, false, vec![1]));
    let sequences: Vec<u64> = outbound.held_from(0).map(|held| held.sequence()).collect();
    assert!(sequences.is_sorted_by(|a, b| a < b), "{sequences:?}");
    assert_eq!(
        sequences.last().map(|last| last + 1),
        Some(outbound.next_sequence())
    );
}

/// Sends what the window of ten allows, and acknowledges all of it but what `stays` says.
fn serve(outbound: &mut Outbound, stays: impl Fn(u16) -> bool) {
    let now = Instant::from_millis(0);
    while let Some(started) = outbound.pull(now, 10) {
        let (value, is_again, _) = sent(Some(started));
        assert!(!is_again, "{value}");
        if !stays(value) {
            assert_eq!(outbound.handle_puback(id(value)), Acknowledged::Done);
        }
    }
}

#[test]
fn a_message_that_is_never_acknowledged_leaves_all_other_identifiers_to_others() {
    // [MQTT-2.2.1-4]
    let mut outbound = Outbound::new(LIMITS, true);
    let mut in_use = std::collections::BTreeSet::new();
    let stays = [3, 500, 65_000];
    for number in 0..200_000_u32 {
        outbound
            .enqueue(delivery(Qos::AtLeastOnce, &number.to_le_bytes(), None))
            .expect("below its bound");
        let (value, _, payload) = sent(outbound.pull(Instant::from_millis(0), 10));
        assert!(in_use.insert(value), "{value} is in use");
        assert_eq!(payload, number.to_le_bytes());
        if !(number < 65_535 && stays.contains(&value)) {
            assert_eq!(outbound.handle_puback(id(value)), Acknowledged::Done);
            in_use.remove(&value);
        }
        assert!(outbound.slots.len() <= 2 * GAP + 10, "{number}");
    }
    assert_eq!(outbound.inflight(), 3);
    // They are sent again in their order, and end when they are acknowledged.
    outbound.handle_resume();
    for value in stays {
        let (again, dup, _) = sent(outbound.pull(Instant::from_millis(0), 10));
        assert_eq!((again, dup), (value, true));
        assert_eq!(outbound.handle_puback(id(value)), Acknowledged::Done);
    }
    assert!(outbound.is_empty());
}

#[test]
fn identifiers_are_given_in_the_same_order_by_a_session_that_was_restored() {
    let mut outbound = Outbound::new(LIMITS, true);
    for number in 0..60_000_u32 {
        outbound.enqueue_accepted(delivery(Qos::AtLeastOnce, &number.to_le_bytes(), None));
        serve(&mut outbound, |value| value % 10_000 == 7);
    }
    let mut restored = Outbound::new(LIMITS, true);
    restored.restore(outbound.in_flight());
    restored.set_next_packet_id(outbound.next_packet_id());
    restored.handle_resume();
    while restored.pull(Instant::from_millis(0), 10).is_some() {}
    assert_eq!(flying(&restored), flying(&outbound));
    for number in 0..70_000_u32 {
        let [one, other] = [&mut outbound, &mut restored].map(|outbound| {
            outbound.enqueue_accepted(delivery(Qos::AtLeastOnce, &number.to_le_bytes(), None));
            let (value, _, _) = sent(outbound.pull(Instant::from_millis(0), 10));
            outbound.handle_puback(id(value));
            value
        });
        assert_eq!(one, other);
        let is_in_use = one % 10_000 == 7 && one < 60_000;
        assert!(!is_in_use, "{one}");
    }
}

#[test]
fn a_client_that_acknowledges_nothing_is_sent_as_many_as_may_be_in_flight() {
    let mut outbound = Outbound::new(LIMITS, true);
    let begin = |outbound: &mut Outbound| {
        let kept = || delivery(Qos::AtLeastOnce, b"", None);
        outbound.begin(Qos::AtLeastOnce, u16::MAX, false, kept)
    };
    let begun: Vec<PacketId> = std::iter::from_fn(|| begin(&mut outbound)).collect();
    assert_eq!((begun.len(), outbound.inflight()), (IN_FLIGHT, IN_FLIGHT));
    // What is acknowledged out of order makes a place each time, and no identifier in use is given again.
    let mut in_use: std::collections::BTreeSet<PacketId> = begun.iter().copied().collect();
    for packet_id in begun.iter().step_by(2) {
        assert_eq!(outbound.handle_puback(*packet_id), Acknowledged::Done);
        in_use.remove(packet_id);
        let next = begin(&mut outbound).expect("one is free");
        assert!(in_use.insert(next), "{next:?}");
        assert_eq!(begin(&mut outbound), None);
    }
    for packet_id in in_use {
        assert_eq!(outbound.handle_puback(packet_id), Acknowledged::Done);
    }
    assert!(outbound.is_empty());
}
