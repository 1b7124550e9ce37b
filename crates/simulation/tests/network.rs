//! What a network of links costs a message, and how a large cluster finds itself and repairs itself.

#![allow(
    clippy::expect_used,
    missing_docs,
    reason = "a test says what holds by failing"
)]

use thicket_mqtt::{ProtocolVersion, Publish, Qos, SubscribeFilter, SubscriptionOptions};
use thicket_overlay::routing::RoutingMode;
use thicket_session::{
    client::{CleanStart, ClientConfig},
    time::Instant,
};
use thicket_simulation::{
    World,
    client::ClientEvent,
    links::{Host, Link, LinkId},
    net::Weather,
    spec::NodeSpec,
};

/// Nothing is slow but for the links.
const STILL: Weather = Weather {
    link_delay: (0, 0),
    client_delay: (0, 0),
    ..Weather::CALM
};

/// Two nodes with a link between them, the same both ways.
fn pair(link: Link) -> (World, [LinkId; 2]) {
    let mut world = World::new(7, STILL);
    let ways = [(0, 1), (1, 0)].map(|(from, to)| {
        let way = world.net.links.add(link.clone());
        let hosts = [Host::Node(from), Host::Node(to)];
        world.net.links.set_route(hosts[0], hosts[1], vec![way]);
        way
    });
    for node in 0..2 {
        world.add_node(NodeSpec::new(2));
        world.start(node);
    }
    world
        .run_until(20_000, World::is_whole)
        .expect("the nodes find each other");
    (world, ways)
}

fn client_at(world: &mut World, node: usize, name: &str) -> usize {
    let client = world.add_client(ClientConfig::new(ProtocolVersion::V5, name));
    world.connect_client(client, node, CleanStart::Yes);
    world.run_for(1_000);
    client
}

fn subscribe(world: &mut World, client: usize, filter: &str) {
    let now = Instant::from_millis(world.net.now);
    let filters = [SubscribeFilter {
        filter,
        options: SubscriptionOptions {
            qos: Qos::AtLeastOnce,
            ..SubscriptionOptions::default()
        },
    }];
    let machine = &mut world.clients[client].machine;
    machine.subscribe(now, &filters, None).expect("connected");
    world.clients[client].finish(&mut world.net);
    world.run_for(2_000);
    world.clients[client].take_events_without_times();
}

/// Publishes a message; when it was published.
fn publish(world: &mut World, client: usize, payload: &[u8]) -> u64 {
    let publish = Publish {
        qos: Qos::AtLeastOnce,
        ..Publish::new("topic", payload)
    };
    let now = world.net.now;
    let machine = &mut world.clients[client].machine;
    let published = machine.publish(Instant::from_millis(now), &publish);
    published.expect("connected, and within the window");
    world.clients[client].finish(&mut world.net);
    now
}

/// When each message came, in order.
fn arrivals(world: &mut World, client: usize) -> Vec<u64> {
    let events = world.clients[client].take_events();
    let came = events.into_iter().filter_map(|(at, event)| {
        let is_message = matches!(event, ClientEvent::Message { .. });
        is_message.then_some(at)
    });
    came.collect()
}

#[test]
fn a_message_over_an_idle_link_takes_as_long_as_the_link() {
    for delay in [5, 50] {
        let (mut world, _) = pair(Link::of_millis(delay));
        let subscriber = client_at(&mut world, 1, "subscriber");
        subscribe(&mut world, subscriber, "topic");
        let publisher = client_at(&mut world, 0, "publisher");
        for _ in 0..20 {
            let at = publish(&mut world, publisher, b"x");
            world.run_for(500);
            let came = arrivals(&mut world, subscriber);
            assert_eq!(came.len(), 1);
            let took = came[0] - at;
            assert!(
                (delay..=delay + 2).contains(&took),
                "{took} ms over {delay}"
            );
        }
    }
}

#[test]
fn a_narrow_link_takes_as_long_as_its_bandwidth_says_and_counts_what_it_carries() {
    let (mut world, ways) = pair(Link {
        bytes_per_second: Some(100_000),
        ..Link::of_millis(1)
    });
    let subscriber = client_at(&mut world, 1, "subscriber");
    subscribe(&mut world, subscriber, "topic");
    let publisher = client_at(&mut world, 0, "publisher");
    let before = world.net.links.carried(ways[0]);
    let at = publish(&mut world, publisher, &[0; 50_000]);
    world.run_for(2_000);
    let took = arrivals(&mut world, subscriber)[0] - at;
    assert!(
        (500..530).contains(&took),
        "half a second of bytes: {took} ms"
    );
    let carried = world.net.links.carried(ways[0]).bytes - before.bytes;
    assert!((50_000..53_000).contains(&carried), "{carried} bytes");
    assert!(world.net.sent_between_nodes()[&(0, 1)] >= carried);
}

#[test]
fn a_link_that_loses_segments_delays_messages_and_loses_none() {
    let (mut world, ways) = pair(Link {
        loss_millionths: 50_000,
        ..Link::of_millis(10)
    });
    let subscriber = client_at(&mut world, 1, "subscriber");
    subscribe(&mut world, subscriber, "topic");
    let publisher = client_at(&mut world, 0, "publisher");
    let published: Vec<u64> = (0..200)
        .map(|_| {
            let at = publish(&mut world, publisher, b"x");
            world.run_for(100);
            at
        })
        .collect();
    world.run_for(5_000);
    let came = arrivals(&mut world, subscriber);
    assert_eq!(came.len(), published.len());
    assert!(world.net.links.carried(ways[0]).lost > 0);
    let late = came
        .iter()
        .zip(&published)
        .filter(|(came, at)| *came - *at >= 200);
    let late = late.count();
    assert!(
        (1..100).contains(&late),
        "{late} of 200 waited for a retransmission"
    );
}

#[test]
fn forty_nodes_find_each_other_and_repair_their_trees_when_one_is_gone() {
    let mut world = World::new(3, STILL);
    for node in 0..40 {
        let mut spec = NodeSpec::new(1);
        spec.routing = RoutingMode::Tree;
        world.add_node(spec);
        world.start(node);
    }
    let converged = world.run_until(60_000, World::is_whole);
    let converged = converged.expect("forty nodes find each other");
    world.lose_power(12);
    let repaired = world.run_until(30_000, World::is_whole);
    let repaired = repaired.expect("the others notice");
    println!("40 nodes: converged in {converged} ms, repaired in {repaired} ms of virtual time");
    assert!(
        repaired >= 700,
        "a silent node is noticed by its silence: {repaired} ms"
    );
}

#[test]
fn a_delay_between_two_milliseconds_is_right_in_the_mean() {
    let (mut world, _) = pair(Link {
        delays_micros: [2_250].into(),
        ..Link::of_millis(0)
    });
    let subscriber = client_at(&mut world, 1, "subscriber");
    subscribe(&mut world, subscriber, "topic");
    let publisher = client_at(&mut world, 0, "publisher");
    let mut delays = Vec::new();
    for _ in 0..400 {
        let at = publish(&mut world, publisher, b"x");
        world.run_for(50);
        delays.extend(arrivals(&mut world, subscriber).iter().map(|it| it - at));
    }
    assert_eq!(delays.len(), 400);
    let mean = delays.iter().sum::<u64>() as f64 / 400.0;
    assert!((2.15..2.35).contains(&mean), "{mean}");
}

#[test]
fn headers_and_acknowledgements_count_where_a_link_has_them() {
    let (mut world, ways) = pair(Link {
        header_bytes: 66,
        ..Link::of_millis(5)
    });
    let client = client_at(&mut world, 0, "publisher");
    let subscriber = client_at(&mut world, 1, "subscriber");
    subscribe(&mut world, subscriber, "topic");
    let streams = |world: &World| {
        let sent = world.net.sent_between_nodes();
        sent.values().sum::<u64>()
    };
    let carried = |world: &World| {
        let both = ways.map(|way| world.net.links.carried(way));
        (
            both[0].bytes + both[1].bytes,
            both[0].segments + both[1].segments,
        )
    };
    let (streams_before, (bytes_before, segments_before)) = (streams(&world), carried(&world));
    publish(&mut world, client, b"x");
    world.run_for(2_000);
    let (bytes, segments) = carried(&world);
    let headers = 66 * (segments - segments_before);
    assert!(headers > 0);
    assert_eq!(
        bytes - bytes_before,
        streams(&world) - streams_before + headers
    );
}

#[test]
fn a_node_that_was_paused_goes_on_when_it_is_resumed() {
    let (mut world, _) = pair(Link::of_millis(5));
    let subscriber = client_at(&mut world, 1, "subscriber");
    subscribe(&mut world, subscriber, "topic");
    let publisher = client_at(&mut world, 0, "publisher");
    world.pause(1);
    publish(&mut world, publisher, b"x");
    world.run_for(300);
    assert!(arrivals(&mut world, subscriber).is_empty());
    world.resume(1);
    world.run_for(100);
    assert_eq!(arrivals(&mut world, subscriber).len(), 1);
}
