//! Publishers that go to the worker where their messages go.

use std::{cell::Cell, collections::BTreeSet};

use thicket_mqtt::{Connect, Packet, PacketId, Publish, Qos, Will};

use super::{
    V5,
    cluster::plain,
    play_with,
    rights::{as_user, policy, with},
};
use thicket_simulation::{TesterId, World, node::NodeSpec};

fn soon(spec: &mut NodeSpec) {
    spec.limits.relocate_after = 4;
}

/// The worker that has a client's session.
fn worker_of(world: &World, client_id: &str) -> u8 {
    let sessions = world.sessions();
    let found = sessions.iter().find(|(_, it)| it.client_id == client_id);
    found.expect("it is connected").1.worker
}

fn relocated(world: &World) -> u64 {
    world
        .traffic(0)
        .iter()
        .map(|traffic| traffic.relocated_connections)
        .sum()
}

/// Publishes `count` messages with rising numbers, of one QoS after the other, some time apart, and hears what they are answered.
fn publish_many(world: &mut World, publisher: TesterId, topic: &str, count: u16) {
    for number in 1..=count {
        let of_qos = (number % 3) as u8;
        let as_id = if of_qos == 0 { 0 } else { number };
        world.publish(publisher, topic, &number.to_string(), of_qos, as_id);
        world.run_for(20);
    }
}

fn payloads(heard: &[String]) -> Vec<String> {
    let quoted = |line: &String| line.split('\'').nth(1).map(str::to_owned);
    heard.iter().filter_map(quoted).collect()
}

#[test]
fn a_publisher_is_relocated_to_the_worker_of_its_subscribers_without_loss_or_reordering() {
    let went = Cell::new(0);
    for names in [["a", "b"], ["c", "d"], ["e", "f"]] {
        play_with(soon, |world| {
            let subscriber = world.plain(names[0]);
            world.subscribe(subscriber, "t", 0);
            let publisher = world.plain(names[1]);
            world.tester(publisher).acknowledges = true;
            let was_partitioned = worker_of(world, names[0]) != worker_of(world, names[1]);
            publish_many(world, publisher, "t", 100);
            world.run_for(2_000);
            let heard = world.tester(subscriber).take_heard();
            let expected: Vec<String> = (1..=100).map(|number| number.to_string()).collect();
            assert_eq!(payloads(&heard), expected);
            let answers = world.tester(publisher).take_heard();
            let acknowledged =
                |kind: &str| answers.iter().filter(|it| it.starts_with(kind)).count();
            assert_eq!(
                [acknowledged("PUBACK"), acknowledged("PUBCOMP")],
                [34, 33],
                "{answers:?}"
            );
            assert_eq!(relocated(world), u64::from(was_partitioned));
            went.set(went.get() + relocated(world));
            assert_eq!(worker_of(world, names[0]), worker_of(world, names[1]));
        });
    }
    assert!(went.get() > 0, "none was on another worker");
}

#[test]
fn what_a_publisher_that_went_elsewhere_retains_counts_as_before() {
    let went = Cell::new(0);
    for names in [["a", "b"], ["c", "d"], ["e", "f"]] {
        let configure = |spec: &mut NodeSpec| {
            soon(spec);
            spec.retained.user_messages = 2;
            with(policy(&["ann"], "pattern #"))(spec);
            spec.listeners[0].allow_anonymous = true;
        };
        play_with(configure, |world| {
            let subscriber = world.plain(names[0]);
            world.subscribe(subscriber, "t", 0);
            let publisher = world.client(as_user("ann", Connect::new(V5, names[1])), "CONNACK");
            world.tester(publisher).acknowledges = true;
            publish_many(world, publisher, "t", 100);
            world.run_for(2_000);
            went.set(went.get() + relocated(world));
            world.tester(publisher).take_heard();
            for (topic, code) in [("x", ""), ("y", ""), ("z", " 0x97")] {
                let publish = Publish {
                    qos: Qos::AtLeastOnce,
                    retain: true,
                    packet_id: PacketId::new(1),
                    ..Publish::new(topic, b"x")
                };
                world.send(publisher, &Packet::Publish(publish));
                world.expect(publisher, &[&format!("PUBACK 1{code}")]);
            }
        });
    }
    assert!(went.get() > 0, "none was on another worker");
}

#[test]
fn clients_with_subscriptions_a_will_or_a_persistent_session_are_not_relocated() {
    play_with(soon, |world| {
        let subscriber = world.plain("recipient");
        world.subscribe(subscriber, "t", 0);
        let subscribed = world.plain("subscribed");
        world.subscribe(subscribed, "other", 0);
        let with_will = Connect {
            will: Some(Will::new("gone", b"")),
            ..Connect::new(V5, "will")
        };
        let with_will = world.client(with_will, "CONNACK");
        let persistent = Connect {
            session_expiry_interval: Some(60),
            ..Connect::new(V5, "persistent")
        };
        let persistent = world.client(persistent, "CONNACK");
        for _ in 0..60 {
            for publisher in [subscribed, with_will, persistent] {
                world.publish(publisher, "t", "x", 0, 0);
            }
            world.run_for(20);
        }
        assert_eq!(relocated(world), 0);
    });
}

#[test]
fn a_publisher_with_subscribers_on_both_workers_stays() {
    play_with(soon, |world| {
        // One a worker, and more.
        for name in ["one", "two", "three", "four", "five", "six"] {
            let subscriber = world.plain(name);
            world.subscribe(subscriber, "t", 0);
        }
        let workers: BTreeSet<u8> = world.sessions().iter().map(|(_, it)| it.worker).collect();
        let publisher = world.plain("publisher");
        publish_many(world, publisher, "t", 60);
        if workers.len() != 1 {
            assert_eq!(relocated(world), 0);
        }
    });
}

#[test]
fn a_publisher_does_not_overtake_what_it_sent_to_be_retained_without_acknowledgement() {
    let went = Cell::new(0);
    play_with(soon, |world| {
        let subscriber = world.plain("a");
        world.subscribe(subscriber, "t", 0);
        let publisher = world.plain("c");
        world.tester(publisher).acknowledges = true;
        let retained = Publish {
            retain: true,
            ..Publish::new("retained", b"0")
        };
        world.send(publisher, &Packet::Publish(retained));
        publish_many(world, publisher, "t", 100);
        assert_eq!(relocated(world), 0, "it may still be on its way");
        // Until it has arrived for certain.
        publish_many(world, publisher, "t", 900);
        went.set(went.get() + relocated(world));
        assert_eq!(payloads(&world.hear(subscriber)).len(), 1_000);
    });
    assert!(went.get() > 0, "none went");
}

#[test]
fn a_packet_that_had_come_in_part_and_an_alias_go_along() {
    play_with(soon, |world| {
        let subscriber = world.plain("a");
        world.subscribe(subscriber, "t", 0);
        let publisher = world.plain("b");
        let with_alias = |topic| Publish {
            topic_alias: Some(1),
            ..Publish::new(topic, b"x")
        };
        world.send(publisher, &Packet::Publish(with_alias("t")));
        let mut bytes = Vec::new();
        let packet = Packet::Publish(with_alias(""));
        packet.encode(V5, &mut bytes).expect("short");
        for _ in 0..60 {
            // The end of one packet and the beginning of the next.
            let (head, tail) = bytes.split_at(bytes.len() / 2);
            world.send_bytes(publisher, head);
            world.run_for(20);
            world.send_bytes(publisher, tail);
        }
        world.run_for(1_000);
        assert_eq!(world.tester(subscriber).take_heard().len(), 61);
    });
}

#[test]
fn what_a_client_has_not_released_yet_goes_along() {
    let went = Cell::new(0);
    for names in [["a", "b"], ["c", "d"], ["e", "f"]] {
        play_with(soon, |world| {
            let subscriber = world.plain(names[0]);
            world.subscribe(subscriber, "t", 0);
            let publisher = world.plain(names[1]);
            for id in 1..=40 {
                world.publish(publisher, "t", &id.to_string(), 2, id);
                world.run_for(20);
            }
            world.run_for(1_000);
            went.set(went.get() + relocated(world));
            assert_eq!(worker_of(world, names[0]), worker_of(world, names[1]));
            let expected: Vec<String> = (1..=40).map(|id| format!("PUBREC {id}")).collect();
            assert_eq!(world.tester(publisher).take_heard(), expected);
            let again = Publish {
                dup: true,
                qos: Qos::ExactlyOnce,
                packet_id: PacketId::new(40),
                ..Publish::new("t", b"40")
            };
            world.send(publisher, &Packet::Publish(again));
            world.expect(publisher, &["PUBREC 40"]);
            for id in 1..=40 {
                world.send(publisher, &Packet::Pubrel(plain(id)));
                world.expect(publisher, &[&format!("PUBCOMP {id}")]);
            }
            assert_eq!(world.tester(subscriber).take_heard().len(), 40);
        });
    }
    assert!(went.get() > 0, "none was on another worker");
}

#[test]
fn what_a_client_releases_while_it_goes_is_released() {
    for pause in [0, 3, 10, 40] {
        play_with(soon, |world| {
            let subscriber = world.plain("a");
            world.subscribe(subscriber, "t", 0);
            let publisher = world.plain("b");
            for id in 1..=60 {
                world.publish(publisher, "t", &id.to_string(), 2, id);
                world.run_for(10);
                // In two halves, so that one of them may come where its client is no more.
                let mut bytes = Vec::new();
                let pubrel = Packet::Pubrel(plain(id));
                pubrel.encode(V5, &mut bytes).expect("short");
                world.send_bytes(publisher, &bytes[..3]);
                world.run_for(pause);
                world.send_bytes(publisher, &bytes[3..]);
            }
            world.run_for(1_000);
            let heard = world.tester(publisher).take_heard();
            let released = |it: &&String| it.starts_with("PUBCOMP") && !it.contains("0x");
            assert_eq!(heard.iter().filter(released).count(), 60, "{heard:?}");
            assert_eq!(heard.len(), 120, "{heard:?}");
            assert_eq!(world.tester(subscriber).take_heard().len(), 60);
        });
    }
}

#[test]
fn a_client_that_connects_again_while_it_goes_is_the_one_that_stays() {
    for pause in [260, 300, 340, 380] {
        play_with(soon, |world| {
            let subscriber = world.plain("a");
            world.subscribe(subscriber, "t", 0);
            let first = world.plain("b");
            for _ in 0..pause / 20 {
                world.publish(first, "t", "x", 0, 0);
                world.run_for(20);
            }
            let second = world.plain("b");
            world.run_for(500);
            let said = world.tester(first).take_heard();
            assert_eq!(said, ["DISCONNECT 0x8E", "closed"], "{said:?}");
            world.tester(subscriber).take_heard();
            world.publish(second, "t", "y", 1, 1);
            world.expect(second, &["PUBACK 1"]);
            world.expect(subscriber, &["PUBLISH t 'y'"]);
            let mut sessions = world.sessions();
            sessions.retain(|(_, it)| it.client_id == "b");
            assert_eq!(sessions.len(), 1);
        });
    }
}
