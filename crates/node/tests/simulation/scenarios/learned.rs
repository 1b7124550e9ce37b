//! Clients before 5.0 that ask nobody: nodes learn what they do, and refuse them where it is not done.

use thicket_mqtt::{Connect, Will};
use thicket_node::{ClientAddress, ClientTransport, ListenerLikeness, NodeLoad, RedirectionConfig};
use thicket_placement::{Policy, SitePrices};
use thicket_simulation::{World, net::Weather, node::NodeSpec};

use super::{V5, V311, backups::become_covered, cluster::client_at, qos, resuming};

/// The node where the topic is.
const HOME: usize = 2;
/// Looks at clients are less than this apart.
const LOOKED_S: u64 = 20;
const REFUSALS: u8 = 2;
/// Server unavailable, and the connection is over.
const REFUSED: [&str; 2] = ["CONNACK 0x88", "closed"];

fn redirection_of(node: usize) -> RedirectionConfig {
    let likeness = ListenerLikeness {
        transport: ClientTransport::Tcp,
        topic_prefix: "".into(),
    };
    RedirectionConfig {
        policy: Some(Policy::Cpu),
        by_topics: true,
        refusals: REFUSALS,
        listeners: vec![Some(likeness.clone())],
        addresses: vec![ClientAddress {
            likeness,
            address: format!("{node}:1883").into(),
        }],
        ..RedirectionConfig::default()
    }
}

/// Four nodes, at each of which a client wants a topic of its own.
fn play(scenario: impl Fn(&mut World)) {
    play_with(|_, _| {}, scenario);
}

/// The same, with nodes that are configured otherwise by their numbers.
fn play_with(configure: impl Fn(usize, &mut RedirectionConfig), scenario: impl Fn(&mut World)) {
    // All nodes are at one site: clients are not sent farther.
    let rough = Weather {
        link_delay: (0, 2),
        ..Weather::ROUGH
    };
    for (seed, weather) in [(1, Weather::CALM), (2, rough), (3, rough)] {
        let mut world = World::new(seed, weather);
        for index in 0..4 {
            let mut spec = NodeSpec::new(1 + (index as u8 + seed as u8) % 2);
            spec.redirection = redirection_of(index);
            configure(index, &mut spec.redirection);
            let node = world.add_node(spec);
            world.start(node);
        }
        become_covered(&mut world);
        for node in 0..4 {
            let connect = resuming(V311, ["a", "b", "c", "d"][node], 0);
            let client = client_at(&mut world, node, connect, "CONNACK");
            let topic = if node == HOME {
                "hot"
            } else {
                ["x", "y", "", "z"][node]
            };
            world.subscribe(client, topic, 1);
        }
        scenario(&mut world);
    }
}

/// Nodes measure their loads each second.
fn pass(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        for node in 0..4 {
            world.set_load(node, NodeLoad::default());
        }
        world.run_for(1000);
    }
}

/// A persistent session that wants the topic is at node 1, and its client is known everywhere.
fn learn(world: &mut World) {
    let client = client_at(world, 1, resuming(V311, "roamer", 1), "CONNACK");
    world.subscribe(client, "hot", 1);
    pass(world, LOOKED_S);
    become_covered(world);
    world.hang_up(client);
}

#[track_caller]
fn refused_at(world: &mut World, node: usize) {
    let client = world.connect(node, resuming(V311, "roamer", 1));
    world.expect(client, &REFUSED);
}

#[test]
fn a_backup_is_where_the_topics_of_its_session_are_wanted() {
    play(|world| {
        learn(world);
        let backups = |node| world.memory(node).iter().map(|it| it.backups).sum::<u64>();
        let backups: Vec<u64> = (0..4).map(backups).collect();
        assert_eq!(backups, [0, 0, 1, 0]);
    });
}

#[test]
fn a_client_is_refused_until_it_comes_where_its_topics_are_and_finds_its_session_there() {
    play(|world| {
        learn(world);
        for node in [0, 3] {
            refused_at(world, node);
        }
        let connect = resuming(V311, "roamer", 1);
        let client = client_at(world, HOME, connect, "CONNACK present");
        // From now on it is known there, and its refusals are forgotten.
        world.run_for(1000);
        world.hang_up(client);
        refused_at(world, 1);
    });
}

/// Nodes 0 and 1 at one site, 2 and 3 at another one; a price is for both directions.
fn two_sites(price: Option<&str>) -> impl Fn(usize, &mut RedirectionConfig) {
    let prices = SitePrices::parse(price).expect("a price");
    move |node, config| {
        config.site = Some(if node < HOME { "south" } else { "north" }.into());
        config.site_prices = prices.clone();
    }
}

#[test]
fn a_client_is_not_sent_to_a_site_where_its_messages_would_be_paid_for() {
    play_with(two_sites(Some("*:*=0.02")), |world| {
        learn(world);
        let connect = resuming(V311, "roamer", 1);
        client_at(world, 0, connect, "CONNACK present");
    });
}

#[test]
fn a_client_is_sent_within_a_site_that_has_prices() {
    play_with(two_sites(Some("south:north=0.02")), |world| {
        learn(world);
        // It comes to the other site by itself, where another node has its topic.
        refused_at(world, 3);
    });
}

#[test]
fn sites_without_prices_are_as_far_from_each_other_as_their_round_trips_say() {
    play_with(two_sites(None), |world| {
        learn(world);
        refused_at(world, 0);
    });
}

#[test]
fn a_client_is_refused_so_often_and_no_more_and_one_that_gives_up_is_served_when_it_is_back() {
    play(|world| {
        learn(world);
        for node in [0, 1] {
            refused_at(world, node);
        }
        let connect = resuming(V311, "roamer", 1);
        let client = client_at(world, 3, connect, "CONNACK present");
        world.run_for(1000);
        world.hang_up(client);
        refused_at(world, 0);
        pass(world, 61);
        client_at(world, 0, resuming(V311, "roamer", 1), "CONNACK present");
    });
}

#[test]
fn a_client_whose_session_ends_with_a_drained_node_is_sent_where_its_topics_are() {
    play(|world| {
        let clients = ["one", "two", "three"].map(|client_id| {
            let connect = Connect::new(V5, client_id);
            let client = client_at(world, 1, connect, "CONNACK");
            world.subscribe(client, "hot", 1);
            client
        });
        pass(world, 2);
        assert!(world.drain(1), "nothing is left (seed {})", world.net.seed);
        for client in clients {
            let to_home = format!("DISCONNECT 0x9C to {HOME}:1883");
            assert_eq!(world.hear(client), [to_home.as_str(), "closed"]);
        }
    });
}

#[test]
fn a_client_without_learned_topics_is_served_by_the_node_it_connects_to() {
    play(|world| {
        learn(world);
        client_at(world, 0, resuming(V311, "new", 1), "CONNACK");
    });
}

/// Much is published at `HOME`, until all nodes know.
fn publish_at_home(world: &mut World) {
    let publisher = client_at(world, HOME, resuming(V5, "publisher", 0), "CONNACK");
    for _ in 0..10 {
        for _ in 0..50 {
            world.publish(publisher, "hot", "x", 0, 0);
        }
        pass(world, 1);
    }
    become_covered(world);
}

/// A client with a will that asks for its placement, and wants what is published at `HOME`.
fn placed() -> Connect<'static> {
    let asked = [("thicket-max-sessions", "2"), ("thicket-subscribe", "hot")];
    Connect {
        user_properties: asked.to_vec(),
        will: Some(Will {
            qos: qos(1),
            retain: true,
            ..Will::new("state", b"gone")
        }),
        ..resuming(V5, "placed", 1000)
    }
}

#[test]
fn the_will_of_a_client_that_asks_for_placements_goes_out_only_when_it_is_gone() {
    let stays = |_: usize, config: &mut RedirectionConfig| config.by_topics = false;
    play_with(stays, |world| {
        let seed = world.net.seed;
        let watcher = client_at(world, 0, Connect::new(V5, "watcher"), "CONNACK");
        world.subscribe(watcher, "state", 1);
        publish_at_home(world);
        client_at(world, 1, placed(), "CONNACK");
        become_covered(world);
        let now = world.nodes[1].clock(&world.net);
        let hub = &world.nodes[1].machines.as_ref().expect("it is up").hub;
        let placement = hub.view().placement(now, "placed").expect("it asked");
        let told = placement.sessions[0].node.clone();
        let nodes = 0..4;
        let (told, others): (Vec<usize>, Vec<usize>) =
            nodes.partition(|node| world.nodes[*node].id.to_string() == told);
        assert_ne!(told, [1], "seed {seed}");
        client_at(world, told[0], placed(), "CONNACK present");
        become_covered(world);
        assert_eq!(world.hear(watcher), [""; 0], "seed {seed}");
        // It asks again where it is, then at a node where it was not placed.
        client_at(world, told[0], placed(), "CONNACK present");
        let last = client_at(world, others[0], placed(), "CONNACK present");
        become_covered(world);
        assert_eq!(world.hear(watcher), [""; 0], "seed {seed}");
        world.hang_up(last);
        world.run_for(1_000);
        assert_eq!(world.hear(watcher).len(), 1, "seed {seed}");
    });
}

#[test]
fn the_will_of_a_client_that_is_redirected_while_it_is_connected_is_not_published() {
    let redirected = std::cell::Cell::new(0);
    play(|world| {
        let seed = world.net.seed;
        let watcher = client_at(world, 0, Connect::new(V5, "watcher"), "CONNACK");
        world.subscribe(watcher, "state", 1);
        // Nobody publishes what it wants yet.
        let connect = Connect {
            will: placed().will,
            ..resuming(V5, "client", 1000)
        };
        let client = client_at(world, 1, connect.clone(), "CONNACK");
        world.subscribe(client, "hot", 1);
        publish_at_home(world);
        let again = world.connect(1, connect.clone());
        let answer = world.hear(again);
        let to = answer[0].strip_prefix("CONNACK 0x9D to ");
        let to = to.and_then(|to| to.split(':').next()?.parse::<usize>().ok());
        // Not in every weather: its node may not know yet that another one is better.
        let Some(to) = to else { return };
        redirected.set(redirected.get() + 1);
        client_at(world, to, connect, "CONNACK present");
        become_covered(world);
        assert_eq!(world.hear(watcher), [""; 0], "seed {seed}");
    });
    assert!(redirected.get() > 0);
}

#[test]
fn a_client_that_asks_for_its_placement_while_a_node_dies_has_one() {
    play(|world| {
        let seed = world.net.seed;
        world.kill(3);
        let names: Vec<String> = (0..300).map(|number| format!("asks-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            let connect = Connect {
                user_properties: vec![
                    ("thicket-max-sessions", "1"),
                    ("thicket-publish", name.as_str()),
                ],
                ..resuming(V5, name, 0)
            };
            world.connect(number % 3, connect);
            world.run_for(2);
        }
        world.run_for(1_000);
        for (number, name) in names.iter().enumerate() {
            let node = &world.nodes[number % 3];
            let hub = &node.machines.as_ref().expect("it is up").hub;
            let placement = hub.view().placement(node.clock(&world.net), name);
            assert!(placement.is_some(), "{name}, seed {seed}");
        }
    });
}
