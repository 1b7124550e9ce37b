//! What is published for a session of which no backup is in reach: it is kept by those who took it, and comes when the session's node is
//! back.

use thicket_mqtt::{Connect, Packet, Publish, Qos};
use thicket_node::{HintsReport, OnFull};

use super::{V5, V311, backups::become_covered, cluster::client_at, id, resuming};
use thicket_simulation::{
    TesterId, World,
    net::{Parting, Weather},
    node::NodeSpec,
};

/// Plays a scenario on nodes that are all configured alike, with links that break and links that fall silent.
#[track_caller]
fn play(nodes: u8, configure: impl Fn(&mut NodeSpec), scenario: impl Fn(&mut World, Parting)) {
    for parting in [Parting::Cut, Parting::Held] {
        for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (4, Weather::ROUGH)] {
            let mut world = World::new(seed, weather);
            for index in 0..nodes {
                let mut spec = NodeSpec::new(1 + (index + seed as u8) % 2);
                configure(&mut spec);
                let node = world.add_node(spec);
                world.start(node);
            }
            become_covered(&mut world);
            scenario(&mut world, parting);
        }
    }
}

/// A session at node 1 that subscribes to `a/#` at QoS 2, with its backup, if there is one, at node 2; its client has gone.
#[track_caller]
fn subscribe_at_one(world: &mut World) {
    let decoy = client_at(world, 2, Connect::new(V5, "decoy"), "CONNACK");
    world.subscribe(decoy, "a/#", 0);
    let away = client_at(world, 1, resuming(V5, "away", 1000), "CONNACK");
    world.subscribe(away, "a/#", 2);
    world.hang_up(away);
    world.hang_up(decoy);
    become_covered(world);
    let backups: u64 = world.memory(2).iter().map(|memory| memory.backups).sum();
    let is_copied = world.nodes[2].spec.backups > 0;
    assert_eq!(backups > 0, is_copied, "seed {}", world.net.seed);
    world.run_for(1_000);
}

/// Nodes 1 and 2 see each other, and nobody else.
fn part(world: &mut World, parting: Parting) {
    for (one, other) in across(world) {
        world.net.part(one, other, parting);
    }
    world.run_for(3_000);
}

fn heal(world: &mut World) {
    for (one, other) in across(world) {
        world.net.heal(one, other);
    }
    world.run_for(6_000);
}

fn across(world: &World) -> Vec<(usize, usize)> {
    let far = (0..world.nodes.len()).filter(|node| ![1, 2].contains(node));
    far.flat_map(|far| [(far, 1), (far, 2)]).collect()
}

fn hints(world: &World, node: usize) -> HintsReport {
    let machines = world.nodes[node].machines.as_ref();
    machines.map(|it| it.hub.view().hints()).unwrap_or_default()
}

/// Publishes at both qualities of service, and is answered.
#[track_caller]
fn publish_both(world: &mut World, publisher: TesterId) {
    world.publish(publisher, "a/1", "best effort", 0, 0);
    world.publish(publisher, "a/1", "one", 1, 1);
    world.publish(publisher, "a/2", "two", 2, 2);
    world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
}

/// Publishes at a node while nodes 1 and 2, which have the session, are partitioned from it.
#[track_caller]
fn publish_apart(world: &mut World, parting: Parting, node: usize) {
    subscribe_at_one(world);
    let publisher = client_at(world, node, resuming(V5, "publisher", 1000), "CONNACK");
    part(world, parting);
    publish_both(world, publisher);
}

/// The session's client comes to a node; how often each payload reaches it.
#[track_caller]
fn expect_at(world: &mut World, node: usize, expected: &[(&str, usize)]) {
    let back = world.connect(node, resuming(V5, "away", 1000));
    world.run_for(2_000);
    let heard = world.hear(back);
    let seed = world.net.seed;
    assert_eq!(
        heard.first().map(String::as_str),
        Some("CONNACK present"),
        "seed {seed}"
    );
    for (payload, times) in expected {
        let payload = format!("'{payload}'");
        let count = heard.iter().filter(|said| said.contains(&payload)).count();
        assert_eq!(count, *times, "{payload}, seed {seed}: {heard:?}");
    }
}

const BOTH: [(&str, usize); 3] = [("best effort", 0), ("one", 1), ("two", 1)];

#[test]
fn what_is_published_out_of_reach_of_all_replicas_comes_once_when_the_partition_heals() {
    for node in [0, 1, 2] {
        play(
            3,
            |_| {},
            |world, parting| {
                publish_apart(world, parting, 0);
                assert!(hints(world, 0).messages >= 2, "nobody else is there");
                heal(world);
                assert_eq!(hints(world, 0).messages, 0, "seed {}", world.net.seed);
                expect_at(world, node, &BOTH);
            },
        );
    }
}

#[test]
fn what_came_before_a_partition_does_not_come_again_after_it() {
    for delay in 1..12 {
        play(
            4,
            |_| {},
            |world, parting| {
                subscribe_at_one(world);
                let client = client_at(world, 1, resuming(V5, "away", 1000), "CONNACK present");
                // What this one takes is admitted when the node beyond the partition has it, or is down.
                let decoy = client_at(world, 3, Connect::new(V5, "decoy"), "CONNACK");
                world.subscribe(decoy, "b/#", 0);
                let other = client_at(world, 1, resuming(V5, "other", 1000), "CONNACK");
                world.subscribe(other, "b/#", 2);
                become_covered(world);
                world.subscribe(other, "a/#", 2);
                world.hang_up(decoy);
                let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
                world.hear(client);
                world.publish(publisher, "a/1", "one", 2, 1);
                world.run_for(delay);
                part(world, parting);
                heal(world);
                let heard = world.hear(client);
                let times = heard.iter().filter(|said| said.contains("'one'")).count();
                let seed = world.net.seed;
                assert_eq!(times, 1, "{delay} ms, seed {seed}: {heard:?}");
            },
        );
    }
}

#[test]
fn a_client_that_is_connected_on_the_other_side_gets_it_too() {
    play(
        3,
        |_| {},
        |world, parting| {
            subscribe_at_one(world);
            let connected = client_at(world, 1, resuming(V5, "connected", 1000), "CONNACK");
            world.subscribe(connected, "a/1", 1);
            become_covered(world);
            world.run_for(1_000);
            let publisher = client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
            part(world, parting);
            publish_both(world, publisher);
            world.expect(connected, &[]);
            heal(world);
            let heard = world.hear(connected);
            assert_eq!(
                heard,
                ["PUBLISH a/1 'one' q1 #1"],
                "seed {}",
                world.net.seed
            );
        },
    );
}

#[test]
fn without_backups_what_is_published_while_a_node_is_down_comes_when_it_is_back_with_its_data() {
    let configure = |spec: &mut NodeSpec| {
        spec.backups = 0;
        spec.stores = true;
    };
    play(3, configure, |world, _| {
        subscribe_at_one(world);
        let publisher = client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
        world.publish(publisher, "a/0", "before", 1, 3);
        world.expect(publisher, &["PUBACK 3"]);
        world.kill(1);
        // The others may not even know it yet.
        world.publish(publisher, "a/0", "unnoticed", 1, 4);
        world.expect(publisher, &["PUBACK 4"]);
        world.run_for(3_000);
        publish_both(world, publisher);
        world.start(1);
        world.run_for(6_000);
        for node in [0, 2] {
            assert_eq!(hints(world, node).messages, 0, "seed {}", world.net.seed);
        }
        expect_at(
            world,
            1,
            &[("before", 1), ("unnoticed", 1), BOTH[1], BOTH[2]],
        );
    });
}

/// A node reads what was sent to it while it stood still before it learns where sessions have moved meanwhile.
#[test]
fn what_a_node_that_stood_still_publishes_first_reaches_a_session_that_has_moved() {
    for seed in 1..=20 {
        let mut world = World::new(seed, Weather::CALM);
        for _ in 0..4 {
            let node = world.add_node(NodeSpec::new(1));
            world.start(node);
        }
        become_covered(&mut world);
        subscribe_at_one(&mut world);
        let publisher = client_at(&mut world, 0, resuming(V5, "publisher", 1000), "CONNACK");
        world.net.pause(0, 1_500);
        world.run_for(1_200);
        let moved = client_at(&mut world, 3, resuming(V5, "away", 1000), "CONNACK present");
        world.hang_up(moved);
        publish_both(&mut world, publisher);
        world.run_for(8_000);
        expect_at(&mut world, 3, &BOTH[1..]);
    }
}

/// The session moves among the nodes out of reach while messages are kept for the node that had it.
#[test]
fn what_is_kept_for_a_session_follows_it_to_the_node_to_which_it_has_moved() {
    for path in [&[3][..], &[3, 4], &[4, 3]] {
        for order in [[1, 2, 3, 4], [4, 3, 2, 1]] {
            for wait in [0, 1_000] {
                play(
                    5,
                    |_| {},
                    |world, parting| {
                        subscribe_at_one(world);
                        let publisher =
                            client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
                        for other in order {
                            world.net.part(0, other, parting);
                        }
                        world.run_for(3_000);
                        for node in path {
                            let away = client_at(
                                world,
                                *node,
                                resuming(V5, "away", 1000),
                                "CONNACK present",
                            );
                            world.hang_up(away);
                            world.run_for(3_000);
                        }
                        publish_both(world, publisher);
                        let [first, others @ ..] = order;
                        world.net.heal(0, first);
                        world.run_for(wait);
                        // It has a node back that has not the session any more.
                        world.publish(publisher, "a/3", "between", 1, 3);
                        for other in others {
                            world.net.heal(0, other);
                            world.run_for(wait);
                        }
                        world.run_for(8_000);
                        world.expect(publisher, &["PUBACK 3"]);
                        assert_eq!(hints(world, 0).messages, 0, "seed {}", world.net.seed);
                        let expected = [BOTH[0], BOTH[1], BOTH[2], ("between", 1)];
                        expect_at(world, path[path.len() - 1], &expected);
                    },
                );
            }
        }
    }
}

#[test]
fn when_all_who_have_a_session_die_what_is_published_meanwhile_comes_to_the_one_that_is_back() {
    play(
        3,
        |spec| spec.stores = true,
        |world, _| {
            subscribe_at_one(world);
            let publisher = client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
            world.kill(1);
            world.kill(2);
            world.run_for(3_000);
            publish_both(world, publisher);
            world.start(1);
            world.run_for(6_000);
            expect_at(world, 1, &BOTH);
        },
    );
}

#[test]
fn the_second_keeper_delivers_a_message_when_the_first_one_dies() {
    play(
        4,
        |_| {},
        |world, parting| {
            publish_apart(world, parting, 0);
            assert!(hints(world, 3).messages >= 2, "it is kept twice");
            world.kill(0);
            world.run_for(3_000);
            heal(world);
            expect_at(world, 1, &BOTH);
        },
    );
}

#[test]
fn a_message_kept_by_two_nodes_is_delivered_once() {
    play(
        4,
        |_| {},
        |world, parting| {
            publish_apart(world, parting, 3);
            heal(world);
            for node in 0..4 {
                assert_eq!(hints(world, node).messages, 0, "node {node}");
            }
            expect_at(world, 2, &BOTH);
        },
    );
}

#[test]
fn what_expires_meanwhile_does_not_come() {
    play(
        3,
        |_| {},
        |world, parting| {
            subscribe_at_one(world);
            let publisher = client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
            part(world, parting);
            for (packet_id, seconds, payload) in [(1, 5, "short"), (2, 500, "long")] {
                let publish = Publish {
                    qos: Qos::AtLeastOnce,
                    packet_id: Some(id(packet_id)),
                    message_expiry_interval: Some(seconds),
                    ..Publish::new("a/1", payload.as_bytes())
                };
                world.send(publisher, &Packet::Publish(publish));
            }
            world.expect(publisher, &["PUBACK 1", "PUBACK 2"]);
            let before = hints(world, 0).messages;
            world.run_for(10_000);
            assert!(hints(world, 0).messages < before, "it makes room");
            heal(world);
            expect_at(world, 1, &[("short", 0), ("long", 1)]);
        },
    );
}

#[test]
fn beyond_the_bound_messages_are_dropped_or_refused_and_counted() {
    for on_full in [OnFull::Drop, OnFull::Refuse] {
        let configure = |spec: &mut NodeSpec| {
            spec.hint_bytes = 2_000;
            spec.limits.on_full = on_full;
        };
        play(3, configure, |world, parting| {
            subscribe_at_one(world);
            let five = client_at(world, 0, Connect::new(V5, "five"), "CONNACK");
            let three = client_at(world, 0, Connect::new(V311, "three"), "CONNACK");
            part(world, parting);
            let large = "x".repeat(1_200);
            world.publish(five, "a/1", &large, 1, 1);
            world.expect(five, &["PUBACK 1"]);
            world.publish(five, "a/1", &large, 1, 2);
            world.publish(five, "a/1", &large, 2, 3);
            world.publish(three, "a/1", &large, 1, 4);
            let expected: [&[&str]; 2] = match on_full {
                OnFull::Drop => [&["PUBACK 2", "PUBREC 3"], &["PUBACK 4"]],
                OnFull::Refuse => [&["PUBACK 2 0x97", "PUBREC 3 0x97"], &["closed"]],
            };
            world.expect(five, expected[0]);
            world.expect(three, expected[1]);
            let report = hints(world, 0);
            assert!(report.dropped_messages >= 3, "{report:?}");
            assert!(report.bytes <= 4 * 2_000, "{report:?}");
            world.publish(five, "b", "nobody's", 1, 5);
            world.expect(five, &["PUBACK 5 0x10"]);
            heal(world);
            expect_at(world, 1, &[(&large, 1)]);
        });
    }
}

#[test]
fn nothing_is_kept_any_more_for_a_node_that_is_forgotten() {
    let configure = |spec: &mut NodeSpec| spec.backups = 0;
    play(3, configure, |world, _| {
        subscribe_at_one(world);
        world.kill(1);
        world.run_for(3_000);
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        world.publish(publisher, "a/1", "kept", 1, 1);
        world.expect(publisher, &["PUBACK 1"]);
        for node in [0, 2] {
            assert_eq!(hints(world, node).messages, 1, "node {node}");
        }
        let name = world.nodes[1].id.to_string();
        let node = &mut world.nodes[0];
        assert_eq!(node.forget(&mut world.net, &name), Ok(()));
        world.run_for(1_000);
        for node in [0, 2] {
            assert_eq!(hints(world, node).messages, 0, "node {node}");
        }
        world.publish(publisher, "a/1", "not kept", 1, 2);
        world.expect(publisher, &["PUBACK 2 0x10"]);
    });
}

#[test]
fn no_hints_are_kept_once_all_sessions_have_failed_over() {
    play(
        3,
        |_| {},
        |world, _| {
            subscribe_at_one(world);
            let publisher = client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
            world.kill(1);
            world.publish(publisher, "a/0", "unnoticed", 1, 3);
            world.expect(publisher, &["PUBACK 3"]);
            world.run_for(3_000);
            publish_both(world, publisher);
            for node in [0, 2] {
                assert_eq!(hints(world, node).messages, 0, "node {node}");
            }
            // Where they went on they have backups again: its death changes nothing.
            become_covered(world);
            world.run_for(1_000);
            world.kill(2);
            world.run_for(3_000);
            world.publish(publisher, "a/3", "three", 1, 4);
            world.expect(publisher, &["PUBACK 4"]);
            assert_eq!(hints(world, 0).messages, 0);
            expect_at(
                world,
                0,
                &[("unnoticed", 1), BOTH[1], BOTH[2], ("three", 1)],
            );
        },
    );
}

#[test]
fn a_session_that_moves_when_its_node_is_back_takes_along_what_was_kept_for_it() {
    play(
        3,
        |_| {},
        |world, parting| {
            subscribe_at_one(world);
            let publisher = client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
            part(world, parting);
            for packet_id in 1..=200 {
                world.publish(publisher, "a/1", &format!("m{packet_id}."), 2, packet_id);
            }
            world.run_for(2_000);
            for (one, other) in across(world) {
                world.net.heal(one, other);
            }
            // Its client is at the door of the node that took them, before anybody sees anybody again.
            let back = world.connect(0, resuming(V5, "away", 1000));
            world.run_for(10_000);
            let heard = world.hear(back);
            let all = (1..=200).map(|number| format!("'m{number}.'"));
            let lacking: Vec<String> = all
                .filter(|payload| heard.iter().filter(|it| it.contains(payload)).count() != 1)
                .collect();
            let is_present = heard.first().is_some_and(|said| said == "CONNACK present");
            assert!(
                !is_present || lacking.is_empty(),
                "seed {}: {lacking:?}",
                world.net.seed
            );
        },
    );
}
