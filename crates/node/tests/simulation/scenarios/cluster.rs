//! Several nodes: those that come later, those that go and return, those of another cluster, sessions that move.

use thicket_mqtt::{Acknowledgement, Connect, Packet, PacketId, Publish, ReasonCode, Will};

use thicket_node::{NodeLoad, OnFull, Rates};
use thicket_overlay::routing::RoutingMode;

use super::{V5, V311, id, qos, resuming};
use thicket_simulation::{
    TesterId, World,
    net::{Parting, Weather},
    node::NodeSpec,
};

/// Plays a scenario on three nodes with one to three workers, in two kinds of weather and with every way to route.
#[track_caller]
fn play(scenario: impl Fn(&mut World)) {
    for routing in RoutingMode::ALL {
        for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
            let mut world = World::new(seed, weather);
            for index in 0..3_u8 {
                let mut spec = NodeSpec::new(1 + (index + seed as u8) % 3);
                spec.routing = routing;
                let node = world.add_node(spec);
                world.start(node);
            }
            become_whole(&mut world);
            scenario(&mut world);
        }
    }
}

#[track_caller]
pub fn become_whole(world: &mut World) {
    for _ in 0..60 {
        world.run_for(500);
        if world.is_whole() {
            // Also the links' first interests.
            world.run_for(500);
            return;
        }
    }
    panic!("the nodes find each other (seed {})", world.net.seed);
}

#[track_caller]
pub(super) fn client_at(
    world: &mut World,
    node: usize,
    connect: Connect<'_>,
    connack: &str,
) -> TesterId {
    let tester = world.connect(node, connect);
    world.expect(tester, &[connack]);
    tester
}

pub(super) fn plain(packet_id: u16) -> Acknowledgement<'static> {
    Acknowledgement::new(id(packet_id), ReasonCode::Success)
}

#[test]
fn a_queue_that_is_full_on_another_node_refuses_the_publisher_with_on_full_refuse() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for workers in 1..=2 {
            let mut spec = NodeSpec::new(workers);
            spec.limits.queue_messages = 2;
            spec.limits.on_full = OnFull::Refuse;
            let node = world.add_node(spec);
            world.start(node);
        }
        become_whole(&mut world);
        let client = client_at(&mut world, 1, resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        world.hang_up(client);
        world.run_for(500);
        let publisher = client_at(&mut world, 0, Connect::new(V5, "publisher"), "CONNACK");
        for number in 1..=3 {
            world.publish(publisher, "a", &number.to_string(), 1, number);
        }
        world.publish(publisher, "a", "4", 2, 4);
        let expected = ["PUBACK 1", "PUBACK 2", "PUBACK 3 0x97", "PUBREC 4 0x97"];
        world.expect(publisher, &expected);
        let old = client_at(&mut world, 0, Connect::new(V311, "old"), "CONNACK");
        world.publish(old, "a", "5", 1, 1);
        world.expect(old, &["closed"]);
        let back = world.connect(1, resuming(V5, "client", 1000));
        world.tester(back).acknowledges = true;
        let heard = world.hear(back);
        assert_eq!(heard.len(), 3, "seed {seed}: {heard:?}");
        world.publish(publisher, "a", "again", 2, 4);
        world.expect(publisher, &["PUBREC 4"]);
    }
}

#[test]
fn a_publisher_that_is_back_before_its_message_is_refused_receives_the_refusal() {
    let mut world = World::new(1, Weather::CALM);
    for workers in 1..=2 {
        let mut spec = NodeSpec::new(workers);
        spec.limits.queue_messages = 1;
        spec.limits.on_full = OnFull::Refuse;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_whole(&mut world);
    let client = client_at(&mut world, 1, resuming(V5, "client", 1000), "CONNACK");
    world.subscribe(client, "a", 2);
    world.hang_up(client);
    world.run_for(500);
    let publisher = client_at(&mut world, 0, resuming(V5, "publisher", 1000), "CONNACK");
    world.publish(publisher, "a", "first", 2, 1);
    world.expect(publisher, &["PUBREC 1"]);
    let now = world.net.now;
    world.net.pause(1, 300);
    world.publish(publisher, "a", "second", 2, 2);
    world.hang_up(publisher);
    world.run_for(50);
    let back = world.connect(0, resuming(V5, "publisher", 1000));
    let again = Publish {
        dup: true,
        qos: qos(2),
        packet_id: PacketId::new(2),
        ..Publish::new("a", b"second")
    };
    world.send(back, &Packet::Publish(again));
    world.run_for(50);
    assert!(world.net.now < now + 300, "the other node has not answered");
    world.expect(back, &["CONNACK present", "PUBREC 2 0x97"]);
    world.publish(back, "b", "another", 2, 2);
    world.expect(back, &["PUBREC 2 0x10"]);
}

#[test]
fn messages_of_every_qos_reach_subscribers_on_other_nodes() {
    play(|world| {
        let subscriber = client_at(world, 2, Connect::new(V5, "subscriber"), "CONNACK");
        world.tester(subscriber).acknowledges = true;
        world.subscribe(subscriber, "site/+/temp", 2);
        let publisher = client_at(world, 0, Connect::new(V311, "publisher"), "CONNACK");
        world.publish(publisher, "site/1/temp", "a", 0, 0);
        world.publish(publisher, "site/1/temp", "b", 1, 1);
        world.publish(publisher, "site/1/temp", "c", 2, 2);
        world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
        let mut heard = world.tester(subscriber).take_heard();
        heard.retain(|said| said.starts_with("PUBLISH"));
        heard.sort();
        let expected = [
            "PUBLISH site/1/temp 'a'",
            "PUBLISH site/1/temp 'b' q1 #1",
            "PUBLISH site/1/temp 'c' q2 #2",
        ];
        assert_eq!(heard, expected, "seed {}", world.net.seed);
    });
}

#[test]
fn a_node_that_starts_later_serves_at_once_what_the_others_have() {
    play(|world| {
        let subscriber = client_at(world, 0, Connect::new(V5, "subscriber"), "CONNACK");
        world.subscribe(subscriber, "a", 1);
        let publish = Publish {
            retain: true,
            qos: qos(1),
            packet_id: PacketId::new(1),
            ..Publish::new("retained", b"kept")
        };
        world.send(subscriber, &Packet::Publish(publish));
        world.run_for(500);
        world.tester(subscriber).take_heard();
        let late = world.add_node(NodeSpec::new(2));
        world.start(late);
        let publisher = world.connect(late, Connect::new(V5, "publisher"));
        world.publish(publisher, "a", "x", 1, 1);
        become_whole(world);
        assert_eq!(world.hear(publisher), ["CONNACK", "PUBACK 1"]);
        world.expect(subscriber, &["PUBLISH a 'x' q1 #1"]);
        let packet = thicket_mqtt::Subscribe::new(id(2), "retained", qos(0));
        world.send(publisher, &Packet::Subscribe(packet));
        let expected = ["SUBACK 2 [00]", "PUBLISH retained 'kept' retain"];
        world.expect(publisher, &expected);
    });
}

#[test]
fn nodes_that_start_together_register_once_not_with_each_link() {
    let weather = Weather {
        link_delay: (10, 10),
        ..Weather::CALM
    };
    let mut world = World::new(1, weather);
    let count = 20;
    for _ in 0..count {
        let node = world.add_node(NodeSpec::new(1));
        world.start(node);
    }
    become_whole(&mut world);
    let sent: u64 = world.net.sent_between_nodes().values().sum();
    // A view for each round in which a link comes up, or members sent at once, cost half as much again.
    assert!(sent / count < 35_000, "{sent} bytes");
}

#[test]
fn a_node_that_stands_still_while_it_joins_does_not_keep_sessions_of_the_others_from_beginning() {
    let mut worlds = 0;
    for stops_after in 0..200 {
        let mut world = World::new(stops_after, Weather::CALM);
        for _ in 0..3 {
            world.add_node(NodeSpec::new(1));
        }
        world.start(0);
        world.run_for(1_000);
        world.start(1);
        world.start(2);
        world.run_for(stops_after);
        let _ = thicket_session::reached::take();
        world.pause(2);
        // Shorter than it takes to give a node up.
        world.run_for(300);
        if thicket_session::reached::take().contains_key("time JOINING") {
            let client = world.connect(0, resuming(V5, "client", 1000));
            world.run_for(100);
            assert_eq!(world.tester(client).take_heard(), ["CONNACK"]);
            worlds += 1;
        }
    }
    assert!(worlds > 0, "none stops when it has a link and is not up");
}

#[test]
fn a_node_that_stops_is_marked_down_at_once_and_returns_with_a_higher_incarnation() {
    play(|world| {
        let subscriber = client_at(world, 0, Connect::new(V5, "subscriber"), "CONNACK");
        world.subscribe(subscriber, "a", 2);
        for round in 1..=3_u16 {
            let leaving = client_at(world, 1, Connect::new(V5, "leaving"), "CONNACK");
            world.subscribe(leaving, "a", 1);
            world.stop(1);
            world.run_for(200);
            let heard = world.hear(leaving);
            assert_eq!(
                heard,
                ["DISCONNECT 0x8B", "closed"],
                "seed {}",
                world.net.seed
            );
            // Nobody waits for the node that has gone.
            let publisher = client_at(world, 2, Connect::new(V5, "publisher"), "CONNACK");
            world.publish(publisher, "a", "x", 1, round);
            world.expect(publisher, &[&format!("PUBACK {round}")]);
            world.start(1);
            become_whole(world);
            let incarnations: Vec<u64> = world.incarnations(0);
            assert!(
                incarnations.contains(&(u64::from(round) + 1)),
                "{incarnations:?}"
            );
            let returned = client_at(world, 1, Connect::new(V5, "returned"), "CONNACK");
            world.publish(returned, "a", "y", 1, round);
            world.expect(returned, &[&format!("PUBACK {round}")]);
            let heard = world.tester(subscriber).take_heard();
            assert_eq!(heard.len(), 2, "seed {}: {heard:?}", world.net.seed);
        }
    });
}

#[test]
fn a_node_whose_incarnation_was_set_back_jumps_above_the_one_that_is_remembered() {
    play(|world| {
        let subscriber = client_at(world, 0, Connect::new(V5, "subscriber"), "CONNACK");
        world.subscribe(subscriber, "a", 2);
        for round in 1..=3_u16 {
            world.kill(1);
            world.run_for(300);
            world.nodes[1].forget_incarnation();
            world.start(1);
            become_whole(world);
            let highest = world.incarnations(0).into_iter().max();
            assert!(
                highest > Some(u64::from(round)),
                "seed {}: {highest:?}",
                world.net.seed
            );
            let publisher = client_at(world, 1, Connect::new(V5, "publisher"), "CONNACK");
            for (qos, as_id) in [(1, 1), (2, 2)] {
                world.publish(publisher, "a", "x", qos, as_id);
            }
            world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
            let heard = world.hear(subscriber);
            let messages = heard.iter().filter(|said| said.starts_with("PUBLISH"));
            assert_eq!(messages.count(), 2, "seed {}: {heard:?}", world.net.seed);
        }
    });
}

#[test]
fn two_clusters_that_hear_of_each_other_never_merge() {
    for seed in 1..=3 {
        let mut world = World::new(seed, Weather::ROUGH);
        for index in 0..4 {
            let mut spec = NodeSpec::new(1);
            if index % 2 == 1 {
                spec.cluster_name = "another".into();
            }
            let node = world.add_node(spec);
            world.start(node);
        }
        world.run_for(10_000);
        for node in 0..4 {
            assert_eq!(world.reachable_from(node), [node % 2, node % 2 + 2]);
        }
        let subscriber = client_at(&mut world, 0, Connect::new(V5, "same"), "CONNACK");
        world.subscribe(subscriber, "a", 0);
        let publisher = client_at(&mut world, 1, Connect::new(V5, "same"), "CONNACK");
        world.publish(publisher, "a", "x", 1, 1);
        world.expect(publisher, &["PUBACK 1 0x10"]);
        world.expect(subscriber, &[]);
    }
}

#[test]
fn a_session_is_found_from_any_node_and_moves_with_all_it_has() {
    play(|world| {
        let client = client_at(world, 0, resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        let publisher = client_at(world, 1, Connect::new(V5, "publisher"), "CONNACK");
        for number in 1..=3 {
            world.publish(publisher, "a", &number.to_string(), 2, number);
        }
        world.run_for(500);
        world.send(client, &Packet::Pubrec(plain(2)));
        world.publish(client, "b", "held", 2, 9);
        world.run_for(500);
        world.hang_up(client);
        world.run_for(500);
        world.publish(publisher, "a", "4", 1, 4);
        world.run_for(500);
        let moved = world.connect(2, resuming(V5, "client", 1000));
        let expected = [
            "CONNACK present",
            "PUBLISH a '1' q2 #1 dup",
            "PUBREL 2",
            "PUBLISH a '3' q2 #3 dup",
            "PUBLISH a '4' q1 #4",
        ];
        world.expect(moved, &expected);
        // The message that was taken at the first node is not taken again.
        world.publish(moved, "b", "held", 2, 9);
        world.expect(moved, &["PUBREC 9"]);
        assert_eq!(world.sessions().len(), 2, "seed {}", world.net.seed);
    });
}

#[test]
fn a_client_identifier_is_taken_over_across_nodes_with_its_will() {
    play(|world| {
        let watcher = client_at(world, 1, Connect::new(V5, "watcher"), "CONNACK");
        world.subscribe(watcher, "will", 0);
        let with_will = |delay_interval| {
            let will = Will {
                delay_interval,
                ..Will::new("will", b"gone")
            };
            Connect {
                will: Some(will),
                ..resuming(V5, "client", 1000)
            }
        };
        let first = client_at(world, 0, with_will(0), "CONNACK");
        let second = client_at(world, 2, with_will(3), "CONNACK present");
        world.expect(first, &["DISCONNECT 0x8E", "closed"]);
        world.expect(watcher, &["PUBLISH will 'gone'"]);
        // A delayed will waits on the node where the session is, and is not due when the client is back.
        world.hang_up(second);
        let third = client_at(world, 1, with_will(3), "CONNACK present");
        world.run_for(5_000);
        world.expect(watcher, &[]);
        world.hang_up(third);
        world.run_for(5_000);
        world.expect(watcher, &["PUBLISH will 'gone'"]);
        client_at(world, 0, Connect::new(V5, "client"), "CONNACK");
        assert_eq!(world.sessions().len(), 2, "seed {}", world.net.seed);
    });
}

#[test]
fn shared_subscriptions_are_fair_across_nodes() {
    play(|world| {
        let mut members = Vec::new();
        for (node, name) in [(0, "a"), (1, "b"), (1, "c"), (2, "d")] {
            let member = client_at(world, node, Connect::new(V5, name), "CONNACK");
            world.tester(member).acknowledges = true;
            world.subscribe(member, "$share/group/t", 1);
            members.push(member);
        }
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        for number in 1..=100 {
            world.publish(publisher, "t", "x", 1, number);
        }
        world.run_for(3_000);
        let counts: Vec<usize> = members
            .iter()
            .map(|member| world.tester(*member).take_heard().len())
            .collect();
        assert_eq!(counts.iter().sum::<usize>(), 100, "{counts:?}");
        let fair = counts.iter().all(|count| (12..=38).contains(count));
        assert!(fair, "seed {}: {counts:?}", world.net.seed);
    });
}

#[test]
fn partitioned_nodes_serve_and_retained_messages_converge_when_the_partition_heals() {
    for parting in [Parting::Cut, Parting::Held] {
        play(|world| {
            for other in [1, 2] {
                world.net.part(0, other, parting);
            }
            world.run_for(5_000);
            for (node, name) in [(0, "left"), (1, "right")] {
                let client = client_at(world, node, Connect::new(V5, name), "CONNACK");
                for topic in [name, "both"] {
                    let publish = Publish {
                        retain: true,
                        ..Publish::new(topic, name.as_bytes())
                    };
                    world.send(client, &Packet::Publish(publish));
                    world.run_for(100);
                }
            }
            for other in [1, 2] {
                world.net.heal(0, other);
            }
            become_whole(world);
            world.run_for(2_000);
            for node in 0..3 {
                let name = format!("reader-{node}");
                let reader = client_at(world, node, Connect::new(V5, &name), "CONNACK");
                let packet = thicket_mqtt::Subscribe::new(id(1), "#", qos(0));
                world.send(reader, &Packet::Subscribe(packet));
                let mut heard = world.hear(reader);
                assert_eq!(heard.remove(0), "SUBACK 1 [00]");
                heard.sort();
                let expected = [
                    "PUBLISH both 'right' retain",
                    "PUBLISH left 'left' retain",
                    "PUBLISH right 'right' retain",
                ];
                assert_eq!(heard, expected, "node {node}, seed {}", world.net.seed);
            }
        });
    }
}

/// Nobody waits for acknowledgements of what is published at QoS 0, and one of the two others did not receive it.
#[test]
fn what_a_node_retained_last_before_it_died_is_the_same_at_all_others() {
    play(|world| {
        let dies = client_at(world, 2, Connect::new(V5, "publisher"), "CONNACK");
        let watcher = client_at(world, 1, Connect::new(V5, "watcher"), "CONNACK");
        world.subscribe(watcher, "#", 0);
        let retain = |world: &mut World, topic: &str, payload: &str| {
            let publish = Publish {
                retain: true,
                ..Publish::new(topic, payload.as_bytes())
            };
            world.send(dies, &Packet::Publish(publish));
        };
        for topic in ["kept", "removed"] {
            retain(world, topic, "old");
        }
        world.run_for(7_000);
        world.net.part(1, 2, Parting::Held);
        retain(world, "kept", "new");
        retain(world, "removed", "");
        world.run_for(100);
        world.kill(2);
        world.run_for(3_000);
        let mut heard = world.tester(watcher).take_heard();
        heard.sort();
        let expected = [
            "PUBLISH kept 'new'",
            "PUBLISH kept 'old'",
            "PUBLISH removed ''",
            "PUBLISH removed 'old'",
        ];
        assert_eq!(heard, expected, "seed {}", world.net.seed);
        for node in 0..2 {
            let name = format!("reader-{node}");
            let reader = client_at(world, node, Connect::new(V5, &name), "CONNACK");
            let packet = thicket_mqtt::Subscribe::new(id(1), "#", qos(0));
            world.send(reader, &Packet::Subscribe(packet));
            let expected = ["SUBACK 1 [00]", "PUBLISH kept 'new' retain"];
            world.expect(reader, &expected);
        }
    });
}

#[test]
fn a_small_message_rate_that_stays_is_the_same_at_all_nodes() {
    play(|world| {
        for in_messages in [7, 9, 0] {
            let load = NodeLoad {
                external: Rates {
                    in_messages,
                    ..Rates::default()
                },
                ..NodeLoad::default()
            };
            for _ in 0..8 {
                world.set_load(2, load);
                world.run_for(1000);
            }
            for node in 0..3 {
                let seen = world.load_seen_from(node, 2).expect("the node is up");
                assert_eq!(seen.external.in_messages, in_messages, "at node {node}");
            }
        }
    });
}
