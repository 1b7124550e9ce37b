//! A server that sends whatever it likes: nothing panics, and each message is accounted for once.

use proptest::prelude::*;
use thicket_mqtt::{Suback, SubscribeFilter, SubscriptionOptions, Unsuback};

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Publish(u8),
    Subscribe,
    Unsubscribe,
    Acknowledge(u16),
    /// Which packet, its identifier, whether it is an error.
    Answer(u8, u16, bool),
    Deliver(u8, u16),
    Bytes(Vec<u8>),
    Pass(u64),
    /// Whether the server has the session, the Receive Maximum, the Maximum Packet Size.
    Break(bool, u16, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1_u8..3).prop_map(Step::Publish),
        1 => Just(Step::Subscribe),
        1 => Just(Step::Unsubscribe),
        2 => (1_u16..5).prop_map(Step::Acknowledge),
        6 => (0_u8..6, 1_u16..5, any::<bool>()).prop_map(|(kind, id, fails)| Step::Answer(kind, id, fails)),
        4 => (0_u8..3, 1_u16..5).prop_map(|(qos, id)| Step::Deliver(qos, id)),
        1 => prop::collection::vec(any::<u8>(), 0..8).prop_map(Step::Bytes),
        1 => (0_u64..50).prop_map(Step::Pass),
        2 => (any::<bool>(), 1_u16..4, 10_u32..40).prop_map(|(present, window, size)| Step::Break(present, window, size)),
    ]
}

fn answer(kind: u8, packet_id: u16, fails: bool) -> Packet<'static> {
    let code = if fails {
        ReasonCode::NotAuthorized
    } else {
        ReasonCode::Success
    };
    let unknown = if fails {
        ReasonCode::PacketIdentifierNotFound
    } else {
        ReasonCode::Success
    };
    let packet_id = id(packet_id);
    match kind {
        0 => Packet::Puback(Acknowledgement::new(packet_id, code)),
        1 => Packet::Pubrec(Acknowledgement::new(packet_id, code)),
        2 => Packet::Pubcomp(Acknowledgement::new(packet_id, unknown)),
        3 => Packet::Pubrel(Acknowledgement::new(packet_id, unknown)),
        4 => Packet::Suback(Suback::new(packet_id, vec![code])),
        _ => Packet::Unsuback(Unsuback::new(packet_id, vec![code])),
    }
}

fn take(bench: &mut Bench, step: &Step, window: &mut u16) -> usize {
    let now = bench.now;
    let options = SubscriptionOptions::default();
    match step {
        Step::Publish(number) => {
            let payload = "x".repeat(usize::from(*number) * 10);
            return usize::from(bench.publish(&message("a", &payload, *number)).is_ok());
        }
        Step::Subscribe => drop(bench.client.subscribe(
            now,
            &[SubscribeFilter {
                filter: "a",
                options,
            }],
            None,
        )),
        Step::Unsubscribe => drop(bench.client.unsubscribe(now, &["a"])),
        Step::Acknowledge(packet_id) => drop(bench.client.acknowledge(
            now,
            id(*packet_id),
            ReasonCode::Success,
        )),
        Step::Answer(kind, packet_id, fails) => bench.feed(&answer(*kind, *packet_id, *fails)),
        Step::Deliver(number, packet_id) => {
            let packet_id = if *number == 0 { 0 } else { *packet_id };
            bench.feed(&delivery("a", "x", *number, packet_id));
        }
        Step::Bytes(bytes) => bench.feed_bytes(bytes),
        Step::Pass(seconds) => bench.pass(*seconds),
        Step::Break(session_present, receive_maximum, maximum_packet_size) => {
            *window = *receive_maximum;
            bench.client.handle_closed();
            bench.reconnect(
                CleanStart::No,
                &Connack {
                    session_present: *session_present,
                    receive_maximum: Some(*receive_maximum),
                    maximum_packet_size: Some(*maximum_packet_size),
                    ..Connack::default()
                },
            );
        }
    }
    0
}

proptest! {
    #[test]
    fn each_message_ends_once_whatever_the_server_does(
        steps in prop::collection::vec(step(), 1..100),
        is_manual in any::<bool>(),
        keeps_ids_only in any::<bool>(),
    ) {
        let config = ClientConfig {
            acknowledgement: if is_manual { AcknowledgementMode::Manual } else { AcknowledgementMode::Automatic },
            inflight: if keeps_ids_only { InflightMode::KeepIdsOnly } else { InflightMode::KeepMessages },
            receive_maximum: 3,
            ..ClientConfig::new(V5, "c")
        };
        let mut bench = Bench::connected(config);
        let (mut published, mut window) = (0, u16::MAX);
        for step in &steps {
            let sent_before = bench.client.inflight();
            published += take(&mut bench, step, &mut window);
            // What waits for PUBCOMP at a reconnect may be over a smaller Receive Maximum; no PUBLISH is added to it then. A
            // PUBREC for a message that was not sent again yet adds its PUBREL.
            let from_pubrec = usize::from(matches!(step, Step::Answer(1, _, false)));
            let bound = (sent_before + from_pubrec).max(usize::from(window));
            prop_assert!(bench.client.inflight() <= bound, "{:?}", step);
        }
        // A server without the session settles the account.
        take(&mut bench, &Step::Break(false, 1, 100), &mut window);
        let ends = bench.events.iter().filter(|event| event.starts_with('#') && !event.contains("subscribed"));
        prop_assert_eq!(ends.count(), published);
        prop_assert_eq!(bench.client.inflight(), 0);
        prop_assert_eq!(bench.client.inbound.unacknowledged(), 0);
        // Each connection ends at most once, and nothing follows its end.
        let mut is_over = false;
        for event in &bench.events {
            let is_end = ["error", "PingTimeout"].iter().any(|end| event.starts_with(end)) || event.starts_with("by server");
            prop_assert!(!is_over || event.starts_with("connected"), "{} after the end", event);
            is_over = is_end;
        }
    }
}
