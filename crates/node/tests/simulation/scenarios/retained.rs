//! Retained messages.

use thicket_mqtt::{
    Connect, Packet, PacketId, Publish, RetainHandling, Subscribe, SubscriptionOptions, Unsubscribe,
};

use super::{
    V5,
    cluster::{become_whole, client_at},
    id, play, qos, resuming,
    rights::{as_user, policy, with},
};
use thicket_simulation::{TesterId, World, net::Weather, node::NodeSpec};

fn retain(world: &mut World, client: TesterId, topic: &str, payload: &str) {
    let publish = Publish {
        retain: true,
        qos: qos(1),
        packet_id: PacketId::new(1),
        ..Publish::new(topic, payload.as_bytes())
    };
    world.send(client, &Packet::Publish(publish));
    let heard = world.hear(client);
    assert!(
        heard.iter().any(|said| said.starts_with("PUBACK 1")),
        "{heard:?}"
    );
}

fn subscribe(world: &mut World, client: TesterId, filter: &str, options: SubscriptionOptions) {
    let mut subscribe = Subscribe::new(id(1), filter, qos(0));
    subscribe.filters[0].options = options;
    world.send(client, &Packet::Subscribe(subscribe));
}

#[test]
fn a_new_subscription_gets_what_is_retained_after_its_suback() {
    play(|world| {
        let publisher = world.plain("publisher");
        retain(world, publisher, "a/1", "one");
        retain(world, publisher, "a/2", "old");
        retain(world, publisher, "a/2", "two");
        retain(world, publisher, "a/3", "three");
        retain(world, publisher, "a/3", "");
        retain(world, publisher, "b", "other");
        let client = world.plain("client");
        subscribe(world, client, "a/+", SubscriptionOptions::default());
        let mut heard = world.hear(client);
        assert_eq!(heard.remove(0), "SUBACK 1 [00]");
        heard.sort();
        assert_eq!(
            heard,
            ["PUBLISH a/1 'one' retain", "PUBLISH a/2 'two' retain"]
        );
    });
}

/// Its last value is said again where another one may have come last.
#[test]
fn what_several_connections_write_in_turn_comes_once_to_subscribers_of_qos_0() {
    play(|world| {
        let subscribers: Vec<_> = (0..4)
            .map(|number| world.plain(&format!("subscriber-{number}")))
            .collect();
        for subscriber in &subscribers {
            world.subscribe(*subscriber, "a", 0);
        }
        let payloads = ["1", "2", "3", "4"];
        let publishers = payloads.map(|payload| world.plain(&format!("publisher-{payload}")));
        for (publisher, payload) in publishers.into_iter().zip(payloads) {
            retain(world, publisher, "a", payload);
        }
        for subscriber in subscribers {
            let expected = payloads.map(|payload| format!("PUBLISH a '{payload}'"));
            assert_eq!(world.hear(subscriber), expected, "{}", world.net.seed);
        }
    });
}

#[test]
fn retain_handling_says_when_retained_messages_are_sent() {
    let message = "PUBLISH a 'x' retain";
    let cases = [
        (RetainHandling::SendAtSubscribe, true, true),
        (RetainHandling::SendIfNew, true, false),
        (RetainHandling::DoNotSend, false, false),
    ];
    for (retain_handling, at_first, again) in cases {
        play(|world| {
            let publisher = world.plain("publisher");
            retain(world, publisher, "a", "x");
            let client = world.plain("client");
            for sent in [at_first, again] {
                let options = SubscriptionOptions {
                    retain_handling,
                    ..SubscriptionOptions::default()
                };
                subscribe(world, client, "a", options);
                let heard = world.hear(client);
                let expected: &[&str] = match sent {
                    true => &["SUBACK 1 [00]", message],
                    false => &["SUBACK 1 [00]"],
                };
                assert_eq!(heard, expected, "{retain_handling:?}");
            }
        });
    }
}

#[test]
fn retain_as_published_keeps_the_flag_of_a_message_on_its_way() {
    for (retain_as_published, expected) in
        [(false, "PUBLISH a 'x'"), (true, "PUBLISH a 'x' retain")]
    {
        play(|world| {
            let client = world.plain("client");
            let options = SubscriptionOptions {
                retain_as_published,
                ..SubscriptionOptions::default()
            };
            subscribe(world, client, "a", options);
            world.expect(client, &["SUBACK 1 [00]"]);
            let publisher = world.plain("publisher");
            retain(world, publisher, "a", "x");
            world.expect(client, &[expected]);
        });
    }
}

#[test]
fn a_retained_message_goes_when_it_expires_and_says_what_is_left() {
    play(|world| {
        let publisher = world.plain("publisher");
        let publish = Publish {
            retain: true,
            message_expiry_interval: Some(10),
            ..Publish::new("a", b"x")
        };
        world.send(publisher, &Packet::Publish(publish));
        world.run_for(4_500);
        let client = world.plain("client");
        subscribe(world, client, "a", SubscriptionOptions::default());
        let heard = world.hear(client);
        assert_eq!(heard, ["SUBACK 1 [00]", "PUBLISH a 'x' retain expiry=5"]);
        world.run_for(5_000);
        subscribe(world, client, "a", SubscriptionOptions::default());
        world.expect(client, &["SUBACK 1 [00]"]);
    });
}

#[test]
fn what_has_expired_leaves_its_capacity_on_every_node_though_nobody_asks_for_it() {
    let puback = |code: &str| format!("PUBACK 1{code}");
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for node in 0..3 {
            let mut spec = NodeSpec::new(2);
            spec.retained.messages = 20;
            spec.retained.user_messages = 10;
            with(policy(&["ann", "bob", "eve"], "pattern #"))(&mut spec);
            // The last one stores, and is started anew below.
            spec.stores = node == 2;
            world.add_node(spec);
            world.start(node);
        }
        world.run_for(3_000);
        let clients = [0, 1, 2].map(|node| {
            let name = format!("client-{node}");
            let connect = Connect {
                keep_alive: 0,
                ..Connect::new(V5, &name)
            };
            let connect = as_user(["ann", "bob", "eve"][node], connect);
            client_at(&mut world, node, connect, "CONNACK")
        });
        let retain = |world: &mut World, node: usize, topic: &str, expiry: Option<u32>| {
            let publish = Publish {
                retain: true,
                qos: qos(1),
                packet_id: PacketId::new(1),
                message_expiry_interval: expiry,
                ..Publish::new(topic, b"x")
            };
            world.send(clients[node], &Packet::Publish(publish));
            world.hear(clients[node]).pop().unwrap_or_default()
        };
        for number in 0..10 {
            // Some are written again, to expire at another time or never.
            let expiry = [Some(30), Some(500), None][number % 3];
            retain(&mut world, 0, &format!("a/{number}"), expiry);
            retain(&mut world, 0, &format!("a/{number}"), Some(200));
            retain(&mut world, 1, &format!("b/{number}"), Some(200));
        }
        for node in 0..3 {
            assert_eq!(
                world.retained_messages(node),
                20,
                "node {node}, seed {seed}"
            );
            let refused = retain(&mut world, node, "more", None);
            assert_eq!(refused, puback(" 0x97"), "node {node}, seed {seed}");
        }
        world.stop(2);
        world.run_for(210_000);
        world.start(2);
        world.run_for(5_000);
        for node in 0..3 {
            assert_eq!(world.retained_messages(node), 0, "node {node}, seed {seed}");
        }
        for number in 0..10 {
            for node in 0..2 {
                let kept = retain(&mut world, node, &format!("c/{node}/{number}"), None);
                assert!(!kept.contains("0x97"), "node {node}, seed {seed}: {kept}");
            }
        }
        for node in 0..3 {
            assert_eq!(
                world.retained_messages(node),
                20,
                "node {node}, seed {seed}"
            );
        }
    }
}

#[test]
fn a_shared_subscription_gets_nothing_retained() {
    play(|world| {
        let publisher = world.plain("publisher");
        retain(world, publisher, "a", "x");
        let client = world.plain("client");
        world.subscribe(client, "$share/g/a", 1);
        world.expect(client, &[]);
    });
}

#[test]
fn many_retained_messages_arrive_through_a_small_window() {
    play(|world| {
        let publisher = world.plain("publisher");
        for number in 0..1500 {
            let topic = format!("a/{number}");
            let publish = Publish {
                retain: true,
                ..Publish::new(&topic, &[b'x'; 100])
            };
            world.send(publisher, &Packet::Publish(publish));
        }
        world.run_for(3_000);
        let mut connect = resuming(V5, "client", 0);
        connect.receive_maximum = Some(3);
        let client = world.client(connect, "CONNACK");
        let publish = Publish {
            retain: true,
            qos: qos(1),
            packet_id: PacketId::new(1),
            ..Publish::new("a/last", b"x")
        };
        world.send(publisher, &Packet::Publish(publish));
        world.run_for(1_000);
        world.tester(client).acknowledges = true;
        world.send(
            client,
            &Packet::Subscribe(Subscribe::new(id(1), "a/#", qos(1))),
        );
        world.run_for(60_000);
        let heard = world.tester(client).take_heard();
        assert_eq!(heard.len(), 1502, "seed {}", world.net.seed);
    });
}

#[test]
fn what_is_retained_does_not_come_for_a_subscription_that_is_gone_before_its_suback() {
    play(|world| {
        let publisher = world.plain("publisher");
        retain(world, publisher, "a", "x");
        let client = world.plain("client");
        for filters in [["a", "+"], ["a", "$share/g/a"]] {
            for filter in filters {
                subscribe(world, client, filter, SubscriptionOptions::default());
            }
            let gone = Unsubscribe::new(id(2), vec![filters[1]]);
            world.send(client, &Packet::Unsubscribe(gone));
            let messages = world.hear(client);
            let messages: Vec<_> = messages
                .iter()
                .filter(|said| said.starts_with("PUBLISH"))
                .collect();
            // [MQTT-3.10.4-2]: one for the filter that is left.
            assert_eq!(messages, ["PUBLISH a 'x' retain"], "without {}", filters[1]);
        }
    });
}

#[test]
fn what_is_retained_while_somebody_subscribes_comes_once() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for _ in 0..2 {
            let node = world.add_node(NodeSpec::new(2));
            world.start(node);
        }
        world.run_for(3_000);
        let publishers = [0, 1].map(|node| {
            let client_id = ["here", "there"][node];
            client_at(&mut world, node, Connect::new(V5, client_id), "CONNACK")
        });
        for round in 0..120 {
            let name = format!("client-{round}");
            let client = client_at(&mut world, 0, Connect::new(V5, &name), "CONNACK");
            let topic = format!("a/{round}");
            world.send(
                client,
                &Packet::Subscribe(Subscribe::new(id(1), &topic, qos(2))),
            );
            world.run_for(round / 2 % 30);
            let publish = Publish {
                retain: true,
                ..Publish::new(&topic, b"x")
            };
            let publisher = publishers[round as usize % 2];
            world.send(publisher, &Packet::Publish(publish));
            let mut heard = world.hear(client);
            heard.retain(|said| said.starts_with("PUBLISH"));
            assert_eq!(heard.len(), 1, "round {round}, seed {seed}: {heard:?}");
            world.hang_up(client);
        }
    }
}

#[test]
fn the_last_message_of_a_topic_that_several_write_is_the_retained_one() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for _ in 0..2 {
            let node = world.add_node(NodeSpec::new(2));
            world.start(node);
        }
        world.run_for(3_000);
        let client = |world: &mut World, name: &str, node: usize| {
            let connect = Connect {
                keep_alive: 0,
                ..Connect::new(V5, name)
            };
            client_at(world, node, connect, "CONNACK")
        };
        let names = ["w-0", "w-1", "w-2", "w-3"];
        let writers: Vec<TesterId> = (0..4)
            .map(|index| client(&mut world, names[index], index % 2))
            .collect();
        let readers: Vec<TesterId> = (0..4)
            .map(|index| client(&mut world, &format!("r-{index}"), index % 2))
            .collect();
        for reader in &readers {
            world.subscribe(*reader, "a/#", 1);
        }
        for round in 0..40 {
            let topic = format!("a/{round}");
            for (index, writer) in writers.iter().enumerate() {
                // Every fifth time the topic is emptied by one of them.
                let payload = if round % 5 == 0 && index == 2 {
                    String::new()
                } else {
                    format!("{index}")
                };
                let publish = Publish {
                    retain: true,
                    ..Publish::new(&topic, payload.as_bytes())
                };
                world.send(*writer, &Packet::Publish(publish));
                world.run_for(round % 3);
            }
            world.run_for(500);
            let late = client(&mut world, &format!("late-{round}"), round as usize % 2);
            subscribe(&mut world, late, &topic, SubscriptionOptions::default());
            let kept = world.hear(late);
            let kept = kept.iter().find(|said| said.starts_with("PUBLISH"));
            let kept = kept.map_or(format!("PUBLISH {topic} ''"), |said| {
                said.replace(" retain", "")
            });
            for reader in &readers {
                let heard = world.tester(*reader).take_heard();
                let last = heard.last().and_then(|said| said.split(" q1").next());
                assert_eq!(last, Some(&*kept), "{heard:?}, seed {seed}");
            }
            world.hang_up(late);
        }
    }
}

#[test]
fn a_user_has_one_quota_of_retained_messages_at_all_nodes() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for workers in 1..=3 {
            let mut spec = NodeSpec::new(workers);
            spec.retained.user_messages = 2;
            with(policy(&["ann"], "pattern #"))(&mut spec);
            spec.listeners[0].allow_anonymous = true;
            let node = world.add_node(spec);
            world.start(node);
        }
        become_whole(&mut world);
        let of_user = |client_id: &'static str| as_user("ann", Connect::new(V5, client_id));
        let names = ["first", "second", "third"];
        let clients =
            [0, 1, 2].map(|node| client_at(&mut world, node, of_user(names[node]), "CONNACK"));
        let other = client_at(&mut world, 2, Connect::new(V5, "other"), "CONNACK");
        let retain = |world: &mut World, client, topic, payload, code: &str| {
            let publish = Publish {
                qos: qos(1),
                retain: true,
                packet_id: PacketId::new(1),
                ..Publish::new(topic, payload)
            };
            world.send(client, &Packet::Publish(publish));
            let expected = format!("PUBACK 1{code}");
            world.expect(client, &[&expected]);
        };
        retain(&mut world, clients[0], "a", b"x", "");
        retain(&mut world, clients[1], "b", b"x", "");
        retain(&mut world, clients[2], "c", b"x", " 0x97");
        retain(&mut world, clients[2], "a", b"in its place", "");
        retain(&mut world, other, "d", b"somebody else's", "");
        retain(&mut world, clients[2], "b", b"", "");
        retain(&mut world, clients[0], "c", b"x", "");
        retain(&mut world, clients[1], "e", b"x", " 0x97");
        for node in 0..3 {
            assert_eq!(world.retained_messages(node), 3, "seed {seed}");
        }
    }
}
