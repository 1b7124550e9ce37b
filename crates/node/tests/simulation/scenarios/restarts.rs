//! Nodes with data that restart while they do not see each other: boots one after the other, nodes that are up in turn,
//! a restart during a partition, single nodes that become a cluster. Nothing acknowledged is lost, nothing completed comes
//! again.

use std::time::Duration;

use thicket_mqtt::{Connect, Disconnect, Packet, ReasonCode, Unsubscribe};

use super::{V5, backups::become_covered, cluster::client_at, id, merging::messages, resuming};
use thicket_simulation::{
    TesterId, World,
    net::{Parting, Weather},
    node::NodeSpec,
};

const AWAY: &str = "away";

/// Nodes with data, one or two workers each, that have found each other.
fn nodes_with_data(seed: u64, weather: Weather, count: u8, backups: u8) -> World {
    let mut world = World::new(seed, weather);
    for index in 0..count {
        let mut spec = NodeSpec::new(1 + (index + seed as u8) % 2);
        spec.stores = true;
        spec.backups = backups;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_covered(&mut world);
    world
}

fn weathers() -> impl Iterator<Item = (u64, Weather)> {
    [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)].into_iter()
}

/// A session at a node, subscribed to these filters at QoS 2, whose client has gone.
#[track_caller]
fn subscriber_gone(world: &mut World, node: usize, connack: &str, filters: &[&str]) {
    let client = client_at(world, node, resuming(V5, AWAY, 100_000), connack);
    for filter in filters {
        world.subscribe(client, filter, 2);
    }
    world.send(
        client,
        &Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
    );
    world.run_for(100);
}

/// Publishes at a node; each message must be acknowledged.
#[track_caller]
fn publish_at(world: &mut World, node: usize, topic: &str, payloads: &[&str], qos: u8) {
    let name = format!("publisher-{node}");
    let publisher = client_at(world, node, Connect::new(V5, &name), "CONNACK");
    for (index, payload) in payloads.iter().enumerate() {
        let packet_id = index as u16 + 1;
        world.publish(publisher, topic, payload, qos, packet_id);
        let taken = format!("{} {packet_id}", ["PUBACK", "PUBREC"][usize::from(qos) - 1]);
        let heard = world.hear(publisher);
        let is_taken = heard == [taken.as_str()] || heard == [format!("{taken} 0x10")];
        assert!(is_taken, "{heard:?} (seed {})", world.net.seed);
    }
    world.send(
        publisher,
        &Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
    );
    world.run_for(100);
}

/// The client comes back to a node, takes everything that waits for it and completes it, and goes.
#[track_caller]
fn fetch_at(world: &mut World, node: usize, topic_is_live: Option<&str>) -> Vec<String> {
    let client = world.connect(node, resuming(V5, AWAY, 100_000));
    world.tester(client).acknowledges = true;
    world.run_for(2_000);
    let mut heard = messages(world, client);
    if let Some(topic) = topic_is_live {
        // Its subscription is there too.
        publish_at(world, node, topic, &["live"], 1);
        heard.extend(messages(world, client));
    }
    leave(world, client);
    heard
}

#[track_caller]
fn subscriber_takes(world: &mut World, node: usize, expected: &[&str]) {
    assert_eq!(
        fetch_at(world, node, None),
        expected,
        "seed {}",
        world.net.seed
    );
}

fn leave(world: &mut World, client: TesterId) {
    world.send(
        client,
        &Packet::Disconnect(Disconnect::new(ReasonCode::Success)),
    );
    world.run_for(100);
}

fn all_at_qos_2(payloads: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = payloads
        .iter()
        .map(|payload| format!("PUBLISH a '{payload}' q2"))
        .collect();
    all.sort();
    all
}

type Stop = fn(&mut World, usize);

const STOPS: [(&str, Stop); 3] = [
    ("SIGTERM", World::stop),
    ("SIGKILL", World::kill),
    ("power", World::lose_power),
];

/// A client that comes back to the first node that is up, before the others are, finds everything when they are.
#[test]
fn nodes_that_boot_one_after_the_other_lose_no_session_though_its_client_comes_before_all_are_up() {
    for (how, stop) in STOPS {
        for backups in [0, 1, 2] {
            for (seed, weather) in weathers() {
                for gap in [100, 1_000, 10_000] {
                    for order in [[1, 0, 2], [2, 1, 0], [0, 1, 2]] {
                        let mut world = nodes_with_data(seed, weather, 3, backups);
                        subscriber_gone(&mut world, 0, "CONNACK", &["a"]);
                        become_covered(&mut world);
                        publish_at(&mut world, 1, "a", &["one", "two"], 2);
                        for node in 0..3 {
                            stop(&mut world, node);
                        }
                        world.run_for(500);
                        world.start(order[0]);
                        world.run_for(gap);
                        // Whatever it finds: it stays for a while.
                        let early = world.connect(order[0], resuming(V5, AWAY, 100_000));
                        world.tester(early).acknowledges = true;
                        for node in &order[1..] {
                            world.run_for(gap);
                            world.start(*node);
                        }
                        become_covered(&mut world);
                        world.run_for(3_000);
                        let mut heard = messages(&mut world, early);
                        leave(&mut world, early);
                        heard.extend(fetch_at(&mut world, order[0], Some("a")));
                        heard.sort();
                        let mut expected = all_at_qos_2(&["one", "two"]);
                        expected.insert(0, "PUBLISH a 'live' q1".to_owned());
                        assert_eq!(
                            heard, expected,
                            "{how}, {backups} backups, order {order:?}, gap {gap} ms, seed {seed}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_node_that_restarts_during_a_partition_keeps_what_it_acknowledged() {
    for restarted in [0, 1] {
        for parting in [Parting::Cut, Parting::Held] {
            for (seed, weather) in weathers() {
                let mut world = nodes_with_data(seed, weather, 2, 1);
                subscriber_gone(&mut world, 0, "CONNACK", &["a"]);
                become_covered(&mut world);
                publish_at(&mut world, 0, "a", &["before"], 2);
                world.net.part(0, 1, parting);
                world.run_for(3_000);
                publish_at(&mut world, 0, "a", &["north"], 2);
                publish_at(&mut world, 1, "a", &["south"], 2);
                world.kill(restarted);
                world.run_for(500);
                world.start(restarted);
                world.run_for(15_000);
                world.net.heal(0, 1);
                become_covered(&mut world);
                world.run_for(2_000);
                let heard = fetch_at(&mut world, 1, None);
                let expected = all_at_qos_2(&["before", "north", "south"]);
                assert_eq!(
                    heard, expected,
                    "node {restarted} restarted, {parting:?}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn nodes_that_are_up_in_turn_lose_nothing_and_deliver_once() {
    for completes in [false, true] {
        for (seed, weather) in weathers() {
            let mut world = nodes_with_data(seed, weather, 2, 1);
            subscriber_gone(&mut world, 0, "CONNACK", &["a"]);
            become_covered(&mut world);
            publish_at(&mut world, 1, "a", &["one", "two"], 2);
            world.kill(0);
            world.run_for(5_000);
            // The backup is promoted, and serves.
            publish_at(&mut world, 1, "a", &["three"], 2);
            let mut expected = all_at_qos_2(&["one", "two", "three"]);
            if completes {
                let heard = fetch_at(&mut world, 1, None);
                assert_eq!(heard, expected, "seed {seed}");
                expected.clear();
            }
            publish_at(&mut world, 1, "a", &["four"], 2);
            expected.extend(all_at_qos_2(&["four"]));
            world.kill(1);
            world.run_for(500);
            world.start(0);
            world.run_for(15_000);
            // It has what it had before, and accepts more.
            publish_at(&mut world, 0, "a", &["five"], 2);
            expected.extend(all_at_qos_2(&["five"]));
            world.start(1);
            become_covered(&mut world);
            world.run_for(3_000);
            let mut heard = fetch_at(&mut world, 0, Some("a"));
            heard.sort();
            expected.push("PUBLISH a 'live' q1".to_owned());
            expected.sort();
            assert_eq!(heard, expected, "completes {completes}, seed {seed}");
        }
    }
}

#[test]
fn what_a_client_asked_for_at_nodes_that_are_up_in_turn_holds() {
    for (seed, weather) in weathers() {
        let mut world = nodes_with_data(seed, weather, 2, 1);
        subscriber_gone(&mut world, 0, "CONNACK", &["a", "given up"]);
        become_covered(&mut world);
        world.kill(0);
        world.run_for(5_000);
        // At the node that was promoted one filter is given up, and one is new.
        let client = client_at(
            &mut world,
            1,
            resuming(V5, AWAY, 100_000),
            "CONNACK present",
        );
        let unsubscribe = Unsubscribe::new(id(9), vec!["given up"]);
        world.send(client, &Packet::Unsubscribe(unsubscribe));
        world.expect(client, &["UNSUBACK 9 [00]"]);
        world.subscribe(client, "b", 1);
        leave(&mut world, client);
        world.kill(1);
        world.run_for(500);
        world.start(0);
        world.run_for(15_000);
        publish_at(&mut world, 0, "a", &["north"], 1);
        subscriber_takes(&mut world, 0, &["PUBLISH a 'north' q1"]);
        let client = client_at(
            &mut world,
            0,
            resuming(V5, AWAY, 100_000),
            "CONNACK present",
        );
        world.subscribe(client, "c", 1);
        leave(&mut world, client);
        world.start(1);
        become_covered(&mut world);
        world.run_for(3_000);
        for topic in ["a", "b", "c", "given up"] {
            publish_at(&mut world, 1, topic, &["after"], 1);
        }
        let expected = ["a", "b", "c"].map(|topic| format!("PUBLISH {topic} 'after' q1"));
        assert_eq!(fetch_at(&mut world, 0, None), expected, "seed {seed}");
    }
}

#[test]
fn single_nodes_with_a_session_of_one_client_become_a_cluster_and_lose_neither() {
    for restarted in [None, Some(0), Some(1)] {
        for (seed, weather) in weathers() {
            let mut world = World::new(seed, weather);
            for index in 0..2_u8 {
                let mut spec = NodeSpec::new(1 + (index + seed as u8) % 2);
                spec.stores = true;
                world.add_node(spec);
            }
            world.net.part(0, 1, Parting::Cut);
            world.start(0);
            world.start(1);
            world.run_for(15_000);
            for node in [0, 1] {
                let topic = ["a", "b"][node];
                subscriber_gone(&mut world, node, "CONNACK", &[topic]);
                publish_at(&mut world, node, topic, &[["north", "south"][node]], 2);
            }
            if let Some(node) = restarted {
                world.kill(node);
                world.run_for(500);
                world.start(node);
                world.run_for(15_000);
            }
            world.net.heal(0, 1);
            become_covered(&mut world);
            world.run_for(3_000);
            let mut heard = fetch_at(&mut world, 0, Some("a"));
            heard.extend(fetch_at(&mut world, 1, Some("b")));
            heard.sort();
            let expected = [
                "PUBLISH a 'live' q1",
                "PUBLISH a 'north' q2",
                "PUBLISH b 'live' q1",
                "PUBLISH b 'south' q2",
            ];
            assert_eq!(heard, expected, "restarted {restarted:?}, seed {seed}");
        }
    }
}

/// Where nobody serves, the first node waits for the last one: so its clients get their sessions,
/// and what is published reaches the sessions of nodes that come later.
#[test]
fn a_node_that_starts_where_none_serves_waits_for_the_other_members() {
    for (seed, weather) in weathers() {
        for gap in [100, 3_000, 10_000] {
            let mut world = nodes_with_data(seed, weather, 3, 1);
            subscriber_gone(&mut world, 1, "CONNACK", &["a"]);
            become_covered(&mut world);
            for node in 0..3 {
                world.kill(node);
                world.nodes[node].spec.restart_grace = Duration::from_secs(30);
            }
            for node in 0..3 {
                world.start(node);
                world.run_for(gap);
                let early = world.connect(node, Connect::new(V5, "early"));
                let heard = world.hear(early);
                let is_last = node == 2;
                let is_let_in = heard.iter().any(|said| said == "CONNACK");
                assert!(
                    is_last || gap < 1_000 || !is_let_in,
                    "{node}, {gap} ms: {heard:?}"
                );
                world.hang_up(early);
            }
            become_covered(&mut world);
            publish_at(&mut world, 0, "a", &["after"], 2);
            let heard = fetch_at(&mut world, 0, None);
            assert_eq!(heard, all_at_qos_2(&["after"]), "seed {seed}, {gap} ms");
        }
    }
}

/// The others may be gone for good: a node waits so long and no longer, and not at all beside one
/// that serves.
#[test]
fn a_node_waits_for_the_other_members_for_a_bounded_time() {
    let mut world = nodes_with_data(1, Weather::CALM, 3, 1);
    for node in 0..3 {
        world.nodes[node].spec.restart_grace = Duration::from_secs(30);
    }
    // Two are gone; the third has served all the time, and the second finds it.
    world.kill(0);
    world.kill(1);
    world.run_for(5_000);
    world.start(1);
    world.run_for(3_000);
    client_at(&mut world, 1, Connect::new(V5, "beside"), "CONNACK");
    world.kill(1);
    world.kill(2);
    world.start(2);
    let began = world.net.now;
    world.run_for(25_000);
    let early = world.connect(2, Connect::new(V5, "early"));
    assert!(!world.hear(early).iter().any(|said| said == "CONNACK"));
    world.run_for(began + 35_000 - world.net.now);
    client_at(&mut world, 2, Connect::new(V5, "alone"), "CONNACK");
}
