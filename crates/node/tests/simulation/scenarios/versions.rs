//! A cluster that is brought to a new release node by node: two adjacent wire versions side by side.

use thicket_mqtt::{Connect, Packet, Publish, Subscribe};
use thicket_node::{ClientAddress, ClientTransport, ListenerLikeness, NodeLoad, RedirectionConfig};
use thicket_overlay::WireVersion;
use thicket_placement::Policy;

use super::{
    V5,
    cluster::{client_at, plain},
    copies::become_covered,
    id, qos, resuming,
};
use thicket_simulation::{World, net::Weather, node::NodeSpec};

/// Plays a scenario on three nodes, one of which, each in turn, knows nothing newer than version 3.
#[track_caller]
fn play(scenario: impl Fn(&mut World, usize)) {
    for (old, weather) in [(0, Weather::CALM), (1, Weather::ROUGH), (2, Weather::ROUGH)] {
        let mut world = World::new(old as u64 + 1, weather);
        for index in 0..3 {
            let mut spec = NodeSpec::new(1 + (index % 2) as u8);
            if index == old {
                spec.wire = WireVersion::V3;
            }
            let node = world.add_node(spec);
            world.start(node);
        }
        become_covered(&mut world);
        scenario(&mut world, old);
    }
}

#[test]
fn messages_and_sessions_pass_between_nodes_of_two_versions() {
    play(|world, old| {
        let (new, other) = ((old + 1) % 3, (old + 2) % 3);
        let first = client_at(world, new, resuming(V5, "mover", 1000), "CONNACK");
        world.subscribe(first, "a/#", 2);
        become_covered(world);
        let publishers: Vec<_> = (0..3)
            .map(|node| {
                let name = format!("publisher-{node}");
                client_at(world, node, Connect::new(V5, &name), "CONNACK")
            })
            .collect();
        for (node, publisher) in publishers.iter().enumerate() {
            world.publish(*publisher, &format!("a/{node}"), "x", 2, 1);
            world.expect(*publisher, &["PUBREC 1"]);
        }
        let mut heard = world.hear(first);
        heard.sort();
        assert_eq!(heard.len(), 3, "{heard:?}");
        // To the old node and on to the other new one, with what came meanwhile.
        world.hang_up(first);
        let retained = Publish {
            retain: true,
            ..Publish::new("kept", b"r")
        };
        world.send(publishers[old], &Packet::Publish(retained));
        let second = world.connect(old, resuming(V5, "mover", 1000));
        let heard = world.hear(second);
        assert_eq!(heard.first().map(String::as_str), Some("CONNACK present"));
        assert_eq!(heard.len(), 4, "all three are sent again: {heard:?}");
        let kept = Subscribe::new(id(1), "kept", qos(0));
        world.send(second, &Packet::Subscribe(kept));
        world.expect(second, &["SUBACK 1 [00]", "PUBLISH kept 'r' retain"]);
        world.hang_up(second);
        let third = world.connect(other, resuming(V5, "mover", 1000));
        let heard = world.hear(third);
        assert_eq!(heard.first().map(String::as_str), Some("CONNACK present"));
    });
}

#[test]
fn copies_pass_between_nodes_of_two_versions() {
    for kills_the_old_one in [true, false] {
        play(|world, old| {
            let (new, other) = ((old + 1) % 3, (old + 2) % 3);
            let dies = if kills_the_old_one { old } else { new };
            let lives = if kills_the_old_one { new } else { old };
            let client = client_at(world, dies, resuming(V5, "away", 1000), "CONNACK");
            world.subscribe(client, "a", 2);
            world.hang_up(client);
            become_covered(world);
            let publisher = client_at(world, other, Connect::new(V5, "publisher"), "CONNACK");
            world.publish(publisher, "a", "one", 1, 1);
            world.publish(publisher, "a", "two", 2, 2);
            world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
            world.kill(dies);
            let back = world.connect(lives, resuming(V5, "away", 1000));
            let expected = [
                "CONNACK present",
                "PUBLISH a 'one' q1 #21846",
                "PUBLISH a 'two' q2 #21847",
            ];
            world.expect(back, &expected);
        });
    }
}

#[test]
fn a_copy_at_a_node_of_either_version_has_what_its_owner_said_in_a_row() {
    let [old, new] = [WireVersion::V5, WireVersion::NEWEST];
    for (wires, seed) in [([new, new], 1), ([old, new], 2), ([new, old], 3)] {
        let mut world = World::new(seed, Weather::CALM);
        for wire in wires {
            let mut spec = NodeSpec::new(1);
            spec.wire = wire;
            let node = world.add_node(spec);
            world.start(node);
        }
        become_covered(&mut world);
        let subscriber = client_at(&mut world, 0, resuming(V5, "taker", 1000), "CONNACK");
        world.subscribe(subscriber, "a", 1);
        become_covered(&mut world);
        let publisher = client_at(&mut world, 1, Connect::new(V5, "publisher"), "CONNACK");
        for number in 1..=20 {
            world.publish(publisher, "a", &number.to_string(), 1, number);
        }
        world.run_for(100);
        assert_eq!(world.tester(subscriber).take_heard().len(), 20);
        for packet_id in [1, 2, 3, 5] {
            world.send(subscriber, &Packet::Puback(plain(packet_id)));
        }
        world.run_for(1_000);
        world.stop(0);
        let back = world.connect(1, resuming(V5, "taker", 1000));
        let left = std::iter::once(4).chain(6..=20);
        let expected: Vec<String> = std::iter::once("CONNACK present".to_owned())
            .chain(left.map(|number| format!("PUBLISH a '{number}' q1 #{number} dup")))
            .collect();
        assert_eq!(world.hear(back), expected, "{wires:?}");
    }
}

#[test]
fn what_a_node_of_the_version_before_does_not_tell_is_unknown_and_nobody_is_sent_there() {
    const OLD: usize = 0;
    const FULL: usize = 1;
    const EMPTY: usize = 2;
    let mut world = World::new(1, Weather::CALM);
    for index in [OLD, FULL, EMPTY] {
        let likeness = ListenerLikeness {
            transport: ClientTransport::Tcp,
            topic_prefix: "".into(),
        };
        let mut spec = NodeSpec::new(1);
        spec.redirection = RedirectionConfig {
            policy: Some(Policy::Cpu),
            listeners: vec![Some(likeness.clone())],
            addresses: vec![ClientAddress {
                likeness,
                address: format!("{index}:1883").into(),
            }],
            ..RedirectionConfig::default()
        };
        if index == OLD {
            spec.wire = WireVersion::V6;
        }
        let node = world.add_node(spec);
        world.start(node);
    }
    become_covered(&mut world);
    for (node, cpu) in [(OLD, 0), (FULL, 900), (EMPTY, 300)] {
        let load = NodeLoad {
            cpu_permille: Some(cpu),
            connections: 100,
            ..NodeLoad::default()
        };
        world.set_load(node, load);
    }
    world.run_for(1_000);
    let told = |world: &World, node: usize, of: usize| {
        let machines = world.nodes[node].machines.as_ref().unwrap();
        let id = world.nodes[of].id.to_string();
        let mut reports = machines.hub.nodes().into_iter();
        let report = reports.find(|report| report.id == id).unwrap();
        assert!(report.is_self || report.reachable);
        report.state.and_then(|state| state.load.cpu_permille)
    };
    assert_eq!(told(&world, FULL, OLD), None, "not 0");
    assert_eq!(told(&world, OLD, FULL), None);
    assert_eq!(told(&world, FULL, EMPTY), Some(300));
    // The old one would be the emptiest if what it does not tell were 0.
    for number in 0..8 {
        let name = format!("new-{number}");
        let client = world.connect(FULL, Connect::new(V5, &name));
        world.expect(client, &["CONNACK 0x9C to 2:1883", "closed"]);
        // Until a decision counts no more.
        world.run_for(10_000);
    }
    let client = world.connect(OLD, Connect::new(V5, "at the old one"));
    world.expect(client, &["CONNACK"]);
}
