//! Topics and filters that are too long only with the prefix of their listener.

use thicket_mqtt::{Connect, Packet, Publish, Subscribe};
use thicket_overlay::routing::RoutingMode;
use thicket_simulation::{World, net::Weather, node::NodeSpec};

use super::{
    V5, V311,
    cluster::{become_whole, client_at},
    id, qos, resuming,
};

const PREFIX: &str = "tenant/";

/// Two nodes with a listener that has a prefix, for every way to route.
#[track_caller]
fn play(scenario: impl Fn(&mut World)) {
    for routing in RoutingMode::ALL {
        let mut world = World::new(1, Weather::CALM);
        for _ in 0..2 {
            let mut spec = NodeSpec::new(2);
            spec.routing = routing;
            spec.listeners[0].topic_prefix = PREFIX.into();
            let node = world.add_node(spec);
            world.start(node);
        }
        become_whole(&mut world);
        scenario(&mut world);
    }
}

fn topic(with_prefix: usize) -> String {
    "a".repeat(with_prefix - PREFIX.len())
}

#[test]
fn a_topic_that_is_too_long_with_the_prefix_is_refused_and_the_nodes_stay_linked() {
    play(|world| {
        let subscriber = client_at(world, 1, resuming(V5, "subscriber", 1000), "CONNACK");
        world.subscribe(subscriber, "+", 2);
        let new = client_at(world, 0, Connect::new(V5, "new"), "CONNACK");
        let old = client_at(world, 0, resuming(V311, "old", 0), "CONNACK");
        let (longest, too_long) = (topic(65_535), topic(65_536));
        world.publish(new, &too_long, "x", 1, 1);
        world.expect(new, &["PUBACK 1 0x90"]);
        world.publish(new, &too_long, "x", 2, 2);
        world.expect(new, &["PUBREC 2 0x90"]);
        world.publish(new, &too_long, "x", 0, 0);
        let mut publish = Publish::new(&too_long, b"x");
        publish.topic_alias = Some(1);
        publish.qos = qos(1);
        publish.packet_id = Some(id(3));
        world.send(new, &Packet::Publish(publish));
        world.expect(new, &["PUBACK 3 0x90"]);
        publish.topic = "";
        publish.packet_id = Some(id(4));
        world.send(new, &Packet::Publish(publish));
        world.expect(new, &["PUBACK 4 0x90"]);
        // Clients before 5.0 cannot be told.
        world.publish(old, &too_long, "x", 1, 1);
        world.expect(old, &["PUBACK 1"]);
        world.run_for(5_000);
        assert!(world.is_whole());
        world.expect(subscriber, &[]);
        world.publish(new, &longest, "x", 1, 5);
        world.expect(new, &["PUBACK 5"]);
        world.publish(new, "b", "x", 1, 6);
        world.expect(new, &["PUBACK 6"]);
        let heard = world.hear(subscriber);
        assert_eq!(heard.len(), 2);
    });
}

#[test]
fn a_filter_that_is_too_long_with_the_prefix_is_refused_by_itself() {
    play(|world| {
        let client = client_at(world, 0, resuming(V5, "client", 1000), "CONNACK");
        let share = "$share/g/";
        let cases = [
            (topic(65_520), "SUBACK 1 [01]"),
            (topic(65_521), "SUBACK 1 [8F]"),
            (
                format!("{share}{}", topic(65_520 - share.len())),
                "SUBACK 1 [01]",
            ),
            (
                format!("{share}{}", topic(65_521 - share.len())),
                "SUBACK 1 [8F]",
            ),
        ];
        for (filter, expected) in cases {
            world.send(
                client,
                &Packet::Subscribe(Subscribe::new(id(1), &filter, qos(1))),
            );
            world.expect(client, &[expected]);
        }
    });
}
