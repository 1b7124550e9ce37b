//! Clusters whose smaller side does not serve: what clients hear there, and that service resumes.

use thicket_mqtt::{Connect, Packet, Publish, Subscribe, Unsubscribe};
use thicket_node::{ForgetError, OnFull, Partition};

use super::{
    V5, V311, backups::become_covered, cluster::client_at, id, merging::messages, qos, resuming,
};
use thicket_simulation::{
    TesterId, World,
    net::{Parting, Weather},
    node::NodeSpec,
};

/// Plays a scenario on so many nodes, with links that break and links that fall silent.
#[track_caller]
fn play(nodes: u8, stores: bool, scenario: impl Fn(&mut World, Parting)) {
    for parting in [Parting::Cut, Parting::Held] {
        for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
            let mut world = World::new(seed, weather);
            for index in 0..nodes {
                let mut spec = NodeSpec::new(1 + (index + seed as u8) % 2);
                spec.partition = Partition::Majority;
                spec.stores = stores;
                let node = world.add_node(spec);
                world.start(node);
            }
            become_covered(&mut world);
            scenario(&mut world, parting);
        }
    }
}

/// Node 0 sees nobody any more.
fn part(world: &mut World, parting: Parting) {
    for other in 1..world.nodes.len() {
        world.net.part(0, other, parting);
    }
    world.run_for(3_000);
}

fn heal(world: &mut World) {
    for other in 1..world.nodes.len() {
        world.net.heal(0, other);
    }
    become_covered(world);
    world.run_for(1_000);
}

#[track_caller]
fn refuses_newcomers(world: &mut World, node: usize) {
    for version in [V5, V311] {
        let client = world.connect(node, Connect::new(version, "newcomer"));
        // Before 5.0 it is 3 in the packet.
        world.expect(client, &["CONNACK 0x88", "closed"]);
    }
}

#[track_caller]
fn serves(world: &mut World, node: usize) {
    let name = format!("served-{node}");
    let client = client_at(world, node, Connect::new(V5, &name), "CONNACK");
    world.subscribe(client, &name, 1);
    world.publish(client, &name, "x", 1, 1);
    let expected = [format!("PUBLISH {name} 'x' q1 #1"), "PUBACK 1".to_owned()];
    let mut heard = world.hear(client);
    heard.sort();
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(heard, expected, "node {node}, seed {}", world.net.seed);
    world.hang_up(client);
}

#[test]
fn the_smaller_side_refuses_with_the_right_codes_the_larger_one_serves_and_it_heals() {
    play(3, false, |world, parting| {
        let reader = client_at(world, 0, Connect::new(V5, "reader"), "CONNACK");
        world.subscribe(reader, "a", 0);
        let five = client_at(world, 0, resuming(V5, "five", 1000), "CONNACK");
        world.subscribe(five, "five", 2);
        let three = client_at(world, 0, resuming(V311, "three", 1), "CONNACK");
        let clean = client_at(world, 0, Connect::new(V5, "clean"), "CONNACK");
        world.subscribe(clean, "clean", 1);
        become_covered(world);
        part(world, parting);

        for (packet_id, of_qos) in [(1, 1), (2, 2)] {
            world.publish(five, "a", "x", of_qos, packet_id);
        }
        world.expect(five, &["PUBACK 1 0x97", "PUBREC 2 0x97"]);
        world.publish(five, "a", "best effort", 0, 0);
        world.expect(reader, &["PUBLISH a 'best effort'"]);
        let retained = Publish {
            retain: true,
            qos: qos(1),
            packet_id: Some(id(3)),
            ..Publish::new("kept", b"x")
        };
        world.send(five, &Packet::Publish(retained));
        world.expect(five, &["PUBACK 3 0x97"]);
        world.send(
            five,
            &Packet::Subscribe(Subscribe::new(id(4), "more", qos(1))),
        );
        world.expect(five, &["SUBACK 4 [97]"]);
        world.send(
            five,
            &Packet::Unsubscribe(Unsubscribe::new(id(5), vec!["five"])),
        );
        world.expect(five, &["UNSUBACK 5 [83]"]);
        world.send(
            clean,
            &Packet::Unsubscribe(Unsubscribe::new(id(5), vec!["clean"])),
        );
        world.expect(clean, &["UNSUBACK 5 [00]"]);
        world.send(
            three,
            &Packet::Subscribe(Subscribe::new(id(6), "more", qos(1))),
        );
        world.expect(three, &["SUBACK 6 [80]"]);
        world.publish(three, "a", "x", 2, 7);
        world.expect(three, &["closed"]);
        refuses_newcomers(world, 0);
        for node in [1, 2] {
            serves(world, node);
        }
        // Its session went on where its backup was.
        let moved = client_at(world, 1, resuming(V5, "five", 1000), "CONNACK present");
        world.publish(moved, "five", "y", 1, 1);
        let heard = world.hear(moved);
        assert!(heard[0].starts_with("PUBLISH five 'y' q1 #"), "{heard:?}");
        assert_eq!(heard[1..], ["PUBACK 1"]);

        heal(world);
        for node in 0..3 {
            serves(world, node);
        }
        let back = client_at(world, 0, resuming(V311, "three", 1), "CONNACK present");
        let again = Publish {
            qos: qos(2),
            packet_id: Some(id(7)),
            dup: true,
            ..Publish::new("a", b"x")
        };
        world.send(back, &Packet::Publish(again));
        world.expect(back, &["PUBREC 7"]);
        world.expect(reader, &["PUBLISH a 'x'"]);
    });
}

#[test]
fn what_is_in_flight_when_the_others_fall_silent_is_not_acknowledged() {
    play(3, false, |world, parting| {
        let away = client_at(world, 1, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 1);
        world.hang_up(away);
        become_covered(world);
        let five = client_at(world, 0, Connect::new(V5, "five"), "CONNACK");
        let three = client_at(world, 0, resuming(V311, "three", 1), "CONNACK");
        let kept = client_at(world, 0, resuming(V5, "kept", 1000), "CONNACK");
        let subscriber = client_at(world, 0, Connect::new(V5, "subscriber"), "CONNACK");
        for other in [1, 2] {
            world.net.part(0, other, parting);
        }
        // Nobody knows yet.
        world.publish(five, "a", "lost", 1, 1);
        world.publish(five, "a", "lost", 2, 2);
        world.publish(three, "a", "lost", 1, 1);
        world.publish(kept, "a", "again", 2, 2);
        world.send(
            subscriber,
            &Packet::Subscribe(Subscribe::new(id(1), "b", qos(1))),
        );
        world.run_for(3_000);
        world.expect(five, &["PUBACK 1 0x97", "PUBREC 2 0x97"]);
        world.expect(three, &["closed"]);
        world.expect(kept, &["DISCONNECT 0x97", "closed"]);
        world.expect(subscriber, &["DISCONNECT 0x97", "closed"]);
        heal(world);
        let kept = client_at(world, 1, resuming(V5, "kept", 1000), "CONNACK present");
        let again = Publish {
            qos: qos(2),
            packet_id: Some(id(2)),
            dup: true,
            ..Publish::new("a", b"again")
        };
        world.send(kept, &Packet::Publish(again));
        world.expect(kept, &["PUBREC 2"]);
        world.publish(five, "a", "kept", 1, 1);
        world.expect(five, &["PUBACK 1"]);
        let back = world.connect(2, resuming(V5, "away", 1000));
        let heard = world.hear(back);
        assert_eq!(heard.first().map(String::as_str), Some("CONNACK present"));
        let again = heard.iter().filter(|said| said.contains("'again'"));
        assert_eq!(again.count(), 1, "{heard:?}");
        assert!(
            heard.last().is_some_and(|last| last.contains("'kept'")),
            "{heard:?}"
        );
    });
}

#[test]
fn two_partitioned_nodes_both_refuse_until_one_is_forgotten() {
    play(2, true, |world, parting| {
        part(world, parting);
        for node in 0..2 {
            refuses_newcomers(world, node);
        }
        heal(world);
        for node in 0..2 {
            serves(world, node);
        }
        let away = client_at(world, 1, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 1);
        world.hang_up(away);
        become_covered(world);
        world.publish_at(0, "a", "kept");
        let name = world.nodes[1].id.to_string();
        let up = world.forget(0, &name);
        assert_eq!(up, Err(ForgetError::Up { node: name.clone() }));
        world.kill(1);
        world.run_for(3_000);
        refuses_newcomers(world, 0);
        // A start does not make it forget who belongs to the cluster.
        world.kill(0);
        world.start(0);
        world.run_for(3_000);
        refuses_newcomers(world, 0);
        assert_eq!(world.forget(0, &name), Ok(()));
        world.run_for(1_000);
        serves(world, 0);
        // A node that was forgotten joins again.
        world.start(1);
        become_covered(world);
        for node in 0..2 {
            serves(world, node);
        }
        part(world, parting);
        refuses_newcomers(world, 0);
    });
}

#[test]
fn backups_are_promoted_when_the_node_that_is_down_is_forgotten() {
    play(2, false, |world, _| {
        let away = client_at(world, 1, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 1);
        world.hang_up(away);
        become_covered(world);
        world.publish_at(0, "a", "kept");
        world.kill(1);
        world.run_for(3_000);
        refuses_newcomers(world, 0);
        let name = world.nodes[1].id.to_string();
        assert_eq!(world.forget(0, &name), Ok(()));
        world.run_for(1_000);
        let back = world.connect(0, resuming(V5, "away", 1000));
        let heard = world.hear(back);
        assert_eq!(heard[0], "CONNACK present");
        assert!(heard[1].starts_with("PUBLISH a 'kept' q1 #"), "{heard:?}");
    });
}

#[test]
fn backups_without_quorum_are_not_promoted_and_get_a_full_sync() {
    play(3, false, |world, parting| {
        let clients: Vec<_> = (0..6)
            .map(|index| {
                let (name, node) = (format!("client-{index}"), 1 + index % 2);
                let client = client_at(world, node, resuming(V5, &name, 1000), "CONNACK");
                world.subscribe(client, &name, 1);
                (name, node, client)
            })
            .collect();
        become_covered(world);
        part(world, parting);
        let counted = world.traffic(0).iter().map(|it| it.sessions).sum::<u64>();
        assert_eq!(counted, 0, "no backup became a session");
        for (name, node, _) in &clients {
            world.publish_at(*node, name, "meanwhile");
        }
        heal(world);
        for (name, _, client) in &clients {
            let expected = format!("PUBLISH {name} 'meanwhile' q1 #1");
            world.expect(*client, &[&expected]);
        }
        // The backups are good again: a node may die.
        world.kill(1);
        world.run_for(3_000);
        for (name, _, _) in &clients {
            let back = world.connect(0, resuming(V5, name, 1000));
            let heard = world.hear(back);
            assert_eq!(heard.first().map(String::as_str), Some("CONNACK present"));
        }
    });
}

/// Four nodes, of which two are drained and stopped one after the other.
fn leave_on_purpose(stores: bool, seed: u64) -> World {
    let mut world = World::new(seed, Weather::CALM);
    for _ in 0..4 {
        let mut spec = NodeSpec::new(1);
        spec.partition = Partition::Majority;
        spec.stores = stores;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_covered(&mut world);
    for node in [3, 2] {
        assert!(world.drain(node), "node {node}, seed {seed}");
        world.stop(node);
        world.run_for(3_000);
    }
    world
}

#[test]
fn a_node_that_leaves_on_purpose_and_stores_nothing_is_no_member_any_more() {
    for seed in 1..4 {
        let mut world = leave_on_purpose(false, seed);
        serves(&mut world, 0);
        serves(&mut world, 1);
        // What comes back belongs to the cluster again, and counts when it is killed.
        for node in [2, 3] {
            world.start(node);
            become_covered(&mut world);
        }
        world.kill(2);
        world.kill(3);
        world.run_for(3_000);
        refuses_newcomers(&mut world, 0);
        refuses_newcomers(&mut world, 1);
    }
}

/// A node stands still for just so long that the others declare it down, and is back before they have heard from each other since. They have seen each
/// other all the time. What they accept before it is decided who is down reaches the clients of the node that was away, too.
#[test]
fn nodes_that_stayed_linked_serve_while_a_third_is_down_for_a_moment() {
    let mut were_down = 0;
    for (seed, millis) in (0..80).map(|step| (step, 700 + 5 * step)) {
        let mut world = World::new(seed, [Weather::CALM, Weather::ROUGH][seed as usize % 2]);
        for workers in [1, 2, 1] {
            let node = world.add_node(NodeSpec {
                partition: Partition::Majority,
                ..NodeSpec::new(workers)
            });
            world.start(node);
        }
        let world = &mut world;
        become_covered(world);
        let subscriber = client_at(world, 1, resuming(V5, "subscriber", 1000), "CONNACK");
        world.subscribe(subscriber, "a", 1);
        let away = client_at(world, 2, resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 1);
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        become_covered(world);
        world.net.pause(2, millis);
        for packet_id in 1..=20 {
            world.publish(publisher, "a", &packet_id.to_string(), 1, packet_id);
            world.run_for(150);
        }
        become_covered(world);
        let is_down = |(_, event): &(u64, thicket_node::Event)| event.message == "node is down";
        were_down += world.nodes[0]
            .events
            .iter()
            .filter(|it| is_down(it))
            .count();
        let answers = world.hear(publisher);
        let expected: Vec<String> = (1..=20).map(|id| format!("PUBACK {id}")).collect();
        assert_eq!(answers, expected, "seed {seed}, {millis} ms");
        let came = world.hear(subscriber);
        let came = came.iter().filter(|it| it.starts_with("PUBLISH"));
        assert_eq!(came.count(), 20, "seed {seed}, {millis} ms");
        let mut came = messages(world, away);
        came.dedup();
        assert_eq!(came.len(), 20, "seed {seed}, {millis} ms: {came:?}");
    }
    assert!(were_down > 0);
}

/// A drained node has handed sessions over to a node that stands still, for just so long that it is declared down and is back at once.
#[test]
fn a_drain_ends_though_a_node_that_it_hands_sessions_to_is_down_for_a_moment() {
    let mut were_down = 0;
    for (seed, millis) in (0..80).map(|step| (step, 700 + 5 * step)) {
        for partition in [Partition::Serve, Partition::Majority] {
            let mut world = World::new(seed, [Weather::CALM, Weather::ROUGH][seed as usize % 2]);
            for workers in [1, 2, 1] {
                let spec = NodeSpec::new(workers);
                let node = world.add_node(NodeSpec { partition, ..spec });
                world.start(node);
            }
            let world = &mut world;
            become_covered(world);
            for name in ["one", "two", "three", "four"] {
                let subscriber = client_at(world, 1, resuming(V5, name, 1000), "CONNACK");
                world.subscribe(subscriber, "a", 1);
            }
            become_covered(world);
            world.net.pause(2, millis);
            world.run_for(200);
            assert!(world.drain(1), "seed {seed}, {millis} ms, {partition:?}");
            let is_down =
                |(_, event): &&(u64, thicket_node::Event)| event.message == "node is down";
            were_down += world.nodes[1].events.iter().filter(is_down).count();
        }
    }
    assert!(were_down > 0);
}

/// A node stands still, its sessions fail over, and one of the nodes that have them now is drained. The clients are connected all the time.
#[test]
fn clients_stay_where_they_are_though_their_sessions_are_handed_on_meanwhile() {
    for seed in 0..20 {
        let mut world = World::new(seed, [Weather::CALM, Weather::ROUGH][seed as usize % 2]);
        for workers in [1, 2, 1] {
            let node = world.add_node(NodeSpec::new(workers));
            world.start(node);
        }
        let world = &mut world;
        become_covered(world);
        let publisher = client_at(world, 0, resuming(V5, "publisher", 1000), "CONNACK");
        let names = ["one", "two", "three", "four"];
        let clients = names.map(|name| {
            let client = client_at(world, 0, resuming(V5, name, 1000), "CONNACK");
            world.subscribe(client, "a", 2);
            client
        });
        become_covered(world);
        world.net.pause(0, 4_000);
        for packet_id in 1..=4 {
            world.publish(publisher, "a", &packet_id.to_string(), 2, packet_id);
        }
        world.run_for(2_000);
        assert!(world.drain(1), "seed {seed}");
        world.run_for(5_000);
        let answers = world.hear(publisher);
        assert_eq!(
            answers,
            [1, 2, 3, 4].map(|id| format!("PUBREC {id}")),
            "seed {seed}"
        );
        for client in clients {
            let came = messages(world, client);
            assert_eq!(
                came,
                [1, 2, 3, 4].map(|id| format!("PUBLISH a '{id}' q2")),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_node_that_leaves_on_purpose_and_stores_stays_a_member() {
    let mut world = leave_on_purpose(true, 1);
    refuses_newcomers(&mut world, 0);
    refuses_newcomers(&mut world, 1);
}

#[test]
fn a_node_that_comes_later_learns_who_belongs_to_the_cluster() {
    let mut world = World::new(1, Weather::CALM);
    let add = |world: &mut World| {
        let mut spec = NodeSpec::new(1);
        spec.partition = Partition::Majority;
        let node = world.add_node(spec);
        world.start(node);
        become_covered(world);
    };
    (0..3).for_each(|_| add(&mut world));
    world.kill(2);
    world.run_for(3_000);
    add(&mut world);
    // Four have joined; the two that see each other are not more than half of them.
    world.kill(1);
    world.run_for(3_000);
    for node in [0, 3] {
        refuses_newcomers(&mut world, node);
    }
    let name = world.nodes[2].id.to_string();
    assert_eq!(world.forget(3, &name), Ok(()));
    world.run_for(1_000);
    for node in [0, 3] {
        serves(&mut world, node);
    }
    let unknown = world.forget(0, "nobody");
    assert_eq!(
        unknown,
        Err(ForgetError::Unknown {
            node: "nobody".into()
        })
    );
}

/// As [`play`], with nodes that have names.
#[track_caller]
fn play_named(nodes: u8, stores: bool, scenario: impl Fn(&mut World, Parting)) {
    for parting in [Parting::Cut, Parting::Held] {
        for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
            let mut world = World::new(seed, weather);
            for index in 0..nodes {
                let mut spec = NodeSpec::new(1);
                spec.name = Some(format!("node-{index}"));
                spec.partition = Partition::Majority;
                spec.stores = stores;
                let node = world.add_node(spec);
                world.start(node);
            }
            become_covered(&mut world);
            scenario(&mut world, parting);
        }
    }
}

/// How many members each node that is up counts.
fn members(world: &World) -> Vec<u64> {
    let machines = world.nodes.iter().filter_map(|node| node.machines.as_ref());
    machines
        .map(|it| it.hub.view().membership().members)
        .collect()
}

#[test]
fn a_node_that_starts_again_and_again_without_its_data_takes_no_majority_away() {
    for stores in [false, true] {
        play_named(3, stores, |world, _| {
            for _ in 0..4 {
                world.kill(2);
                world.lose_data(2);
                world.run_for(3_000);
                for node in [0, 1] {
                    serves(world, node);
                }
                world.start(2);
                become_covered(world);
                world.run_for(3_000);
                assert_eq!(members(world), [3, 3, 3], "seed {}", world.net.seed);
            }
            // At once, before the others have noticed that the node before is gone.
            for _ in 0..4 {
                world.lose_power(2);
                world.lose_data(2);
                world.start(2);
                world.run_for(200);
            }
            become_covered(world);
            world.run_for(3_000);
            for node in 0..3 {
                serves(world, node);
            }
            assert_eq!(members(world), [3, 3, 3], "seed {}", world.net.seed);
        });
    }
}

#[test]
fn the_addresses_of_members_that_are_down_outlive_a_start_of_the_others() {
    play_named(3, true, |world, _| {
        world.kill(2);
        world.run_for(3_000);
        for node in [0, 1] {
            world.kill(node);
            world.start(node);
            become_covered(world);
        }
        world.lose_data(2);
        world.start(2);
        become_covered(world);
        world.run_for(3_000);
        assert_eq!(members(world), [3, 3, 3], "seed {}", world.net.seed);
    });
}

#[test]
fn a_side_without_quorum_replaces_no_member() {
    play_named(3, true, |world, parting| {
        // Node 0 sees nobody; node 2 comes back as another one on its side alone.
        part(world, parting);
        world.kill(2);
        world.lose_data(2);
        world.net.part(1, 2, parting);
        world.net.heal(0, 2);
        world.run_for(3_000);
        world.start(2);
        world.run_for(5_000);
        for node in 0..3 {
            refuses_newcomers(world, node);
        }
        assert_eq!(members(world), [4, 3, 4], "seed {}", world.net.seed);
        world.net.heal(1, 2);
        heal(world);
        world.run_for(3_000);
        for node in 0..3 {
            serves(world, node);
        }
        assert_eq!(members(world), [3, 3, 3], "seed {}", world.net.seed);
    });
}

/// Steps of these scenarios.
trait Steps {
    #[track_caller]
    fn publish_at(&mut self, node: usize, topic: &str, payload: &str);
}

impl Steps for World {
    /// A client comes, publishes at QoS 1, is answered and goes.
    #[track_caller]
    fn publish_at(&mut self, node: usize, topic: &str, payload: &str) {
        let publisher = client_at(self, node, Connect::new(V5, "publisher"), "CONNACK");
        self.publish(publisher, topic, payload, 1, 1);
        self.expect(publisher, &["PUBACK 1"]);
        self.hang_up(publisher);
        self.run_for(500);
    }
}

/// Three nodes, the first two of which lose their link; the third keeps its links with both. There is a publisher at each of the two.
fn part_two_of_three(
    configure: impl Fn(&mut NodeSpec),
    scenario: impl Fn(&mut World, [TesterId; 2]),
) {
    for parting in [Parting::Cut, Parting::Held] {
        let mut world = World::new(2, Weather::ROUGH);
        for index in 0..3 {
            let mut spec = NodeSpec::new(1 + index % 2);
            spec.partition = Partition::Majority;
            configure(&mut spec);
            let node = world.add_node(spec);
            world.start(node);
        }
        become_covered(&mut world);
        let reader = client_at(&mut world, 1, resuming(V5, "reader", 1000), "CONNACK");
        world.subscribe(reader, "a", 1);
        become_covered(&mut world);
        let publishers = [0, 1].map(|node| {
            let name = format!("publisher-{node}");
            client_at(&mut world, node, Connect::new(V5, &name), "CONNACK")
        });
        world.net.part(0, 1, parting);
        scenario(&mut world, publishers);
        world.net.heal(0, 1);
        become_covered(&mut world);
        for node in 0..3 {
            serves(&mut world, node);
        }
    }
}

#[test]
fn two_nodes_that_are_linked_only_through_a_third_serve() {
    part_two_of_three(
        |_| {},
        |world, publishers| {
            for publisher in publishers {
                world.publish(publisher, "a", "x", 1, 1);
            }
            for _ in 0..1_000 {
                world.run_for(10);
                for node in 0..3 {
                    let membership = world.membership(node);
                    assert_eq!((membership.serves, membership.reachable), (true, 3));
                }
            }
            for (node, publisher) in publishers.into_iter().enumerate() {
                assert_eq!(world.hear(publisher), ["PUBACK 1"]);
                serves(world, node);
            }
        },
    );
}

#[test]
fn two_nodes_without_any_path_to_each_other_both_refuse() {
    part_two_of_three(
        |spec| spec.tunnels = false,
        |world, publishers| {
            let [publisher, _] = publishers;
            world.publish(publisher, "a", "while the other one is waited for", 1, 1);
            world.run_for(6_000);
            world.publish(publisher, "a", "while it is unsure what has gone", 1, 2);
            world.expect(publisher, &[]);
            world.run_for(5_000);
            world.expect(publisher, &["PUBACK 1 0x97", "PUBACK 2 0x97"]);
            for (node, publisher) in publishers.into_iter().enumerate() {
                assert!(!world.membership(node).serves);
                refuses_newcomers(world, node);
                world.publish(publisher, "a", "x", 1, 3);
                world.expect(publisher, &["PUBACK 3 0x97"]);
            }
            assert!(world.membership(2).serves);
        },
    );
}

#[test]
fn what_waits_while_a_node_is_suspected_is_bounded() {
    let configure = |spec: &mut NodeSpec| {
        spec.tunnels = false;
        spec.hint_bytes = 3_000;
        spec.limits.on_full = OnFull::Refuse;
    };
    part_two_of_three(configure, |world, _| {
        let names: Vec<String> = (0..60).map(|number| format!("client-{number}")).collect();
        let connect = |name: &String| world.connect(0, Connect::new(V5, name));
        let clients: Vec<TesterId> = names.iter().map(connect).collect();
        world.run_for(1_000);
        let large = "x".repeat(1_200);
        let mut answers = Vec::new();
        // One message after the other, until one is answered.
        for client in clients {
            // The registrars of some are out of reach.
            if world.tester(client).take_heard() != ["CONNACK"] {
                continue;
            }
            world.publish(client, "a", &large, 1, 1);
            world.run_for(200);
            answers.push((client, world.tester(client).take_heard()));
            if answers
                .last()
                .is_some_and(|(_, answers)| !answers.is_empty())
            {
                break;
            }
        }
        // Two are within the bound, so the third is the first that is answered.
        let (_, last) = answers.pop().expect("there are clients");
        assert_eq!(last, ["PUBACK 1 0x97"]);
        for (client, _) in answers.iter().rev().take(2) {
            assert!(world.tester(*client).take_heard().is_empty());
        }
        world.run_for(10_000);
        for (client, _) in answers {
            assert_eq!(world.tester(client).take_heard(), ["PUBACK 1 0x97"]);
        }
    });
}
