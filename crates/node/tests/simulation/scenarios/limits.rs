//! Limits of both sides: Receive Maximum, Maximum Packet Size, topic aliases, message expiry, queues.

use thicket_mqtt::{
    Acknowledgement, Connect, Packet, PacketId, Publish, ReasonCode, Subscribe, SubscribeFilter,
    SubscriptionOptions,
};

use thicket_node::{OnFull, TenantLimits};
use thicket_session::server::Message;

use super::{
    V5, V311,
    cluster::{become_whole, client_at},
    id, play, play_with, qos, resuming,
    rights::{as_user, policy, with},
};
use thicket_simulation::{TesterId, World, net::Weather, node::NodeSpec};

fn plain(packet_id: u16) -> Acknowledgement<'static> {
    Acknowledgement::new(id(packet_id), ReasonCode::Success)
}

#[test]
fn no_more_messages_are_in_flight_than_the_client_takes() {
    play(|world| {
        let mut connect = resuming(V5, "client", 1000);
        connect.receive_maximum = Some(2);
        let client = world.client(connect.clone(), "CONNACK");
        world.subscribe(client, "a", 2);
        let publisher = world.plain("publisher");
        for number in 1..=5 {
            world.publish(
                publisher,
                "a",
                &number.to_string(),
                1 + number as u8 % 2,
                number,
            );
        }
        let expected = ["PUBLISH a '1' q2 #1", "PUBLISH a '2' q1 #2"];
        world.expect(client, &expected);
        world.publish(publisher, "a", "0", 0, 0);
        world.run_for(500);
        world.tester(client).take_heard();
        world.send(client, &Packet::Pubrec(plain(1)));
        world.expect(client, &["PUBREL 1"]);
        world.send(client, &Packet::Pubcomp(plain(1)));
        world.expect(client, &["PUBLISH a '3' q2 #3"]);
        world.hang_up(client);
        world.run_for(100);
        let expected = [
            "CONNACK present",
            "PUBLISH a '2' q1 #2 dup",
            "PUBLISH a '3' q2 #3 dup",
        ];
        let client = world.client_with(connect, &expected);
        world.send(client, &Packet::Puback(plain(2)));
        world.expect(client, &["PUBLISH a '4' q1 #4"]);
    });
}

#[test]
fn a_client_that_sends_more_than_we_take_is_disconnected() {
    play_with(
        |spec| spec.limits.receive_maximum = 3,
        |world| {
            let client = world.plain("client");
            for number in 1..=3 {
                world.publish(client, "a", "", 2, number);
            }
            let expected = ["PUBREC 1 0x10", "PUBREC 2 0x10", "PUBREC 3 0x10"];
            world.expect(client, &expected);
            world.publish(client, "a", "", 2, 4);
            world.expect(client, &["DISCONNECT 0x93", "closed"]);
        },
    );
}

#[test]
fn what_is_larger_than_a_client_takes_is_not_sent_and_nothing_stalls() {
    play(|world| {
        let mut connect = resuming(V5, "client", 1000);
        connect.maximum_packet_size = Some(100);
        connect.receive_maximum = Some(1);
        let client = world.client(connect.clone(), "CONNACK");
        world.subscribe(client, "a", 2);
        let publisher = world.plain("publisher");
        let large = "x".repeat(100);
        for (number, of_qos) in [(1, 1), (2, 2)] {
            world.publish(publisher, "a", &large, of_qos, number);
        }
        world.publish(publisher, "a", &large, 0, 0);
        world.publish(publisher, "a", "small", 1, 3);
        let heard = world.hear(client);
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(heard[0].starts_with("PUBLISH a 'small' q1"), "{heard:?}");
        world.hang_up(client);
        world.run_for(100);
        for number in 4..=6 {
            world.publish(publisher, "a", &large, 1 + number as u8 % 2, number);
        }
        world.publish(publisher, "a", "again", 1, 7);
        world.run_for(500);
        let back = world.connect(0, connect);
        world.tester(back).acknowledges = true;
        let heard = world.hear(back);
        assert_eq!(heard.len(), 3, "{heard:?}");
        assert!(heard[1].starts_with("PUBLISH a 'small' q1"), "{heard:?}");
        assert!(heard[2].starts_with("PUBLISH a 'again' q1"), "{heard:?}");
    });
}

#[test]
fn a_packet_larger_than_we_take_ends_the_connection() {
    play_with(
        |spec| spec.limits.maximum_packet_size = 200,
        |world| {
            let client = world.plain("client");
            world.publish(client, "a", &"x".repeat(150), 1, 1);
            world.expect(client, &["PUBACK 1 0x10"]);
            world.publish(client, "a", &"x".repeat(250), 1, 1);
            world.expect(client, &["DISCONNECT 0x95", "closed"]);
        },
    );
}

#[test]
fn topic_aliases_work_in_both_directions_and_end_with_the_connection() {
    play(|world| {
        let connect = Connect {
            topic_alias_maximum: 1,
            ..Connect::new(V5, "client")
        };
        let client = world.client(connect, "CONNACK");
        world.subscribe(client, "#", 0);
        let publisher = world.plain("publisher");
        let send = |world: &mut thicket_simulation::World, topic, alias| {
            let publish = Publish {
                topic_alias: Some(alias),
                ..Publish::new(topic, b"x")
            };
            world.send(publisher, &Packet::Publish(publish));
        };
        send(world, "a", 1);
        send(world, "b", 2);
        send(world, "", 1);
        send(world, "", 2);
        send(world, "c", 1);
        send(world, "", 1);
        let expected = [
            "PUBLISH a@1 'x'",
            "PUBLISH b 'x'",
            "PUBLISH @1 'x'",
            "PUBLISH b 'x'",
            "PUBLISH c 'x'",
            "PUBLISH c 'x'",
        ];
        world.expect(client, &expected);
        send(world, "", 9);
        world.expect(publisher, &["DISCONNECT 0x82", "closed"]);
        let other = world.plain("other");
        let publish = Publish {
            topic_alias: Some(65),
            ..Publish::new("a", b"x")
        };
        world.send(other, &Packet::Publish(publish));
        world.expect(other, &["DISCONNECT 0x94", "closed"]);
    });
}

#[test]
fn a_message_that_waits_expires_and_one_that_leaves_says_what_is_left() {
    play(|world| {
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 1);
        world.hang_up(client);
        let publisher = world.plain("publisher");
        for (number, seconds) in [(1_u16, 5), (2, 20)] {
            let payload = number.to_string();
            let publish = Publish {
                qos: qos(1),
                packet_id: PacketId::new(number),
                message_expiry_interval: Some(seconds),
                ..Publish::new("a", payload.as_bytes())
            };
            world.send(publisher, &Packet::Publish(publish));
        }
        world.run_for(9_500);
        let heard = ["CONNACK present", "PUBLISH a '2' q1 #1 expiry=11"];
        world.client_with(resuming(V5, "client", 1000), &heard);
    });
}

#[test]
fn a_message_of_qos_2_carries_its_topic_also_where_the_client_takes_aliases() {
    play(|world| {
        let connect = Connect {
            topic_alias_maximum: 10,
            ..Connect::new(V5, "client")
        };
        let client = world.client(connect, "CONNACK");
        world.tester(client).acknowledges = true;
        world.subscribe(client, "a", 2);
        let publisher = world.plain("publisher");
        for (of_qos, number) in [(2, 1), (2, 2), (1, 3), (1, 4), (2, 5)] {
            world.publish(publisher, "a", &number.to_string(), of_qos, number);
        }
        world.run_for(500);
        let heard = world.hear(client);
        let published = heard.iter().filter(|said| said.starts_with("PUBLISH"));
        let topics: Vec<&str> = published
            .filter_map(|said| said.split(' ').nth(1))
            .collect();
        assert_eq!(topics, ["a", "a", "a@1", "@1", "a"], "{heard:?}");
    });
}

/// Publishes a message that expires after a second.
fn publish_expiring(world: &mut World, publisher: TesterId, topic: &str, number: u16) {
    let payload = format!("old-{number}");
    let publish = Publish {
        qos: qos(1),
        packet_id: PacketId::new(number),
        message_expiry_interval: Some(1),
        ..Publish::new(topic, payload.as_bytes())
    };
    world.send(publisher, &Packet::Publish(publish));
}

/// Messages that wait for a session, if it is there.
fn queued(world: &World, client_id: &str) -> Option<usize> {
    let sessions = world.sessions();
    let session = sessions.iter().find(|(_, it)| it.client_id == client_id);
    session.map(|(_, it)| it.queued_messages)
}

/// Queues with capacity for two small messages, by their number or by their bytes, that drop or refuse what is over it.
fn small_queues() -> impl Iterator<Item = impl Fn(&mut NodeSpec)> {
    [
        (OnFull::Drop, true),
        (OnFull::Drop, false),
        (OnFull::Refuse, true),
        (OnFull::Refuse, false),
    ]
    .into_iter()
    .map(|(on_full, by_messages)| {
        move |spec: &mut NodeSpec| {
            spec.limits.on_full = on_full;
            if by_messages {
                spec.limits.queue_messages = 2;
            } else {
                spec.limits.queue_bytes = 2 * Message::cost_of(6);
            }
        }
    })
}

#[test]
fn what_has_expired_takes_no_other_messages_place_in_a_queue() {
    for configure in small_queues() {
        for filter in ["a", "$share/group/a"] {
            play_with(&configure, |world| {
                let client = world.client(resuming(V5, "client", 1000), "CONNACK");
                world.subscribe(client, filter, 1);
                world.hang_up(client);
                world.run_for(500);
                let publisher = world.plain("publisher");
                for number in 1..=2 {
                    publish_expiring(world, publisher, "a", number);
                }
                world.expect(publisher, &["PUBACK 1", "PUBACK 2"]);
                // They have just expired, and no time is left to notice.
                world.run_for(1_000);
                for number in 3..=4 {
                    world.publish(publisher, "a", &number.to_string(), 1, number);
                }
                world.expect(publisher, &["PUBACK 3", "PUBACK 4"]);
                let heard = [
                    "CONNACK present",
                    "PUBLISH a '3' q1 #1",
                    "PUBLISH a '4' q1 #2",
                ];
                world.client_with(resuming(V5, "client", 1000), &heard);
                let expired = world.traffic(0).into_iter().map(|it| it.expired_messages);
                assert_eq!(expired.sum::<u64>(), 2, "seed {}", world.net.seed);
            });
        }
    }
}

#[test]
fn what_has_expired_is_dropped_without_its_client_between_messages_that_have_not() {
    play(|world| {
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 1);
        world.hang_up(client);
        world.run_for(500);
        let publisher = world.plain("publisher");
        for number in 1..=6 {
            if number % 2 == 0 {
                publish_expiring(world, publisher, "a", number);
            } else {
                world.publish(publisher, "a", &number.to_string(), 1, number);
            }
        }
        world.run_for(500);
        assert_eq!(queued(world, "client"), Some(6));
        world.run_for(2_500);
        assert_eq!(queued(world, "client"), Some(3));
        let heard = [
            "CONNACK present",
            "PUBLISH a '1' q1 #1",
            "PUBLISH a '3' q1 #2",
            "PUBLISH a '5' q1 #3",
        ];
        world.client_with(resuming(V5, "client", 1000), &heard);
    });
}

#[test]
fn thousands_of_messages_that_expire_at_once_are_dropped_in_several_rounds() {
    let world = &mut World::new(1, Weather::CALM);
    let node = world.add_node(NodeSpec::new(1));
    world.start(node);
    let client = world.client(resuming(V5, "client", 1000), "CONNACK");
    world.subscribe(client, "a", 1);
    world.hang_up(client);
    let publisher = world.plain("publisher");
    world.tester(publisher).acknowledges = true;
    for number in 1..=12_000 {
        publish_expiring(world, publisher, "a", number);
        if number % 500 == 0 {
            world.run_for(10);
        }
    }
    assert_eq!(queued(world, "client"), Some(12_000));
    world.run_for(5_000);
    assert_eq!(queued(world, "client"), Some(0));
}

#[test]
fn what_has_expired_of_one_session_takes_no_place_of_another_one_of_its_user() {
    let mut world = World::new(1, Weather::CALM);
    let mut spec = NodeSpec::new(1);
    with(policy(&["ann"], "pattern #"))(&mut spec);
    spec.listeners[0].allow_anonymous = true;
    spec.limits.user_queue_bytes = 2 * Message::cost_of(6);
    let node = world.add_node(spec);
    world.start(node);
    let world = &mut world;
    let of_ann = |client_id| as_user("ann", resuming(V5, client_id, 1000));
    for (client_id, topic) in [("one", "a"), ("two", "b")] {
        let client = world.client(of_ann(client_id), "CONNACK");
        world.subscribe(client, topic, 1);
        world.hang_up(client);
        world.run_for(500);
    }
    let publisher = world.plain("publisher");
    for number in 1..=2 {
        publish_expiring(world, publisher, "a", number);
    }
    world.publish(publisher, "b", "early", 1, 3);
    world.run_for(500);
    assert_eq!(queued(world, "two"), Some(0), "the bound is for both");
    world.run_for(2_500);
    world.publish(publisher, "b", "new", 1, 4);
    world.run_for(500);
    let counts = ["one", "two"].map(|client_id| queued(world, client_id));
    assert_eq!(counts, [Some(0), Some(1)]);
}

#[test]
fn what_has_expired_stays_away_after_sigkill_and_its_place_in_the_queue_is_free() {
    for configure in small_queues() {
        for kill_after_expiry in [false, true] {
            let mut world = World::new(1, Weather::CALM);
            let mut spec = NodeSpec::new(2);
            spec.stores = true;
            configure(&mut spec);
            let node = world.add_node(spec);
            world.start(node);
            let world = &mut world;
            let client = world.client(resuming(V5, "client", 1000), "CONNACK");
            world.subscribe(client, "a", 1);
            world.hang_up(client);
            world.run_for(500);
            let publisher = world.plain("publisher");
            for number in 1..=2 {
                publish_expiring(world, publisher, "a", number);
            }
            world.expect(publisher, &["PUBACK 1", "PUBACK 2"]);
            if kill_after_expiry {
                world.run_for(3_000);
                assert_eq!(queued(world, "client"), Some(0));
            }
            world.kill(node);
            world.start(node);
            world.run_for(3_000);
            assert_eq!(queued(world, "client"), Some(0), "{kill_after_expiry}");
            let publisher = world.plain("another publisher");
            for number in 3..=4 {
                world.publish(publisher, "a", &number.to_string(), 1, number);
            }
            world.expect(publisher, &["PUBACK 3", "PUBACK 4"]);
            // A gap in its sequences is no fault.
            world.kill(node);
            world.start(node);
            world.run_for(3_000);
            let heard = [
                "CONNACK present",
                "PUBLISH a '3' q1 #1",
                "PUBLISH a '4' q1 #2",
            ];
            world.client_with(resuming(V5, "client", 1000), &heard);
        }
    }
}

#[test]
fn what_has_expired_gives_its_place_back_at_the_backup_too_and_on_another_node() {
    for configure in small_queues() {
        let mut world = World::new(1, Weather::CALM);
        for _ in 0..3 {
            let mut spec = NodeSpec::new(1);
            spec.backups = 1;
            configure(&mut spec);
            let node = world.add_node(spec);
            world.start(node);
        }
        become_whole(&mut world);
        let world = &mut world;
        let client = client_at(world, 0, resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 1);
        world.hang_up(client);
        world.run_for(2_000);
        let at = |world: &World, client_id: &str| {
            let sessions = world.sessions();
            let session = sessions.iter().find(|(_, it)| it.client_id == client_id);
            session.map(|(node, _)| *node)
        };
        let publisher = client_at(world, 2, Connect::new(V5, "publisher"), "CONNACK");
        for round in 0..3 {
            for number in 1..=2 {
                publish_expiring(world, publisher, "a", number);
            }
            world.expect(publisher, &["PUBACK 1", "PUBACK 2"]);
            world.run_for(1_000);
            if round == 0 {
                let node = at(world, "client").expect("it is somewhere");
                assert_eq!(node, 0);
                world.kill(node);
                world.run_for(5_000);
                assert_ne!(at(world, "client"), None, "it has failed over");
            }
            world.run_for(3_000);
            assert_eq!(queued(world, "client"), Some(0), "round {round}");
        }
        for number in 3..=4 {
            world.publish(publisher, "a", &number.to_string(), 1, number);
        }
        world.expect(publisher, &["PUBACK 3", "PUBACK 4"]);
        let back = world.connect(2, resuming(V5, "client", 1000));
        let heard = world.hear(back);
        let payloads: Vec<bool> = ["'3'", "'4'"]
            .map(|payload| heard.iter().any(|said| said.contains(payload)))
            .to_vec();
        assert_eq!((heard.len(), payloads), (3, vec![true, true]), "{heard:?}");
    }
}

#[test]
fn a_queue_that_is_full_takes_no_more_and_keeps_what_it_has() {
    play_with(
        |spec| spec.limits.queue_messages = 3,
        |world| {
            let client = world.client(resuming(V5, "client", 1000), "CONNACK");
            world.subscribe(client, "a", 1);
            world.hang_up(client);
            world.run_for(500);
            let publisher = world.plain("publisher");
            for number in 1..=5 {
                world.publish(publisher, "a", &number.to_string(), 1, number);
            }
            world.run_for(500);
            let heard = [
                "CONNACK present",
                "PUBLISH a '1' q1 #1",
                "PUBLISH a '2' q1 #2",
                "PUBLISH a '3' q1 #3",
            ];
            world.client_with(resuming(V5, "client", 1000), &heard);
            let dropped: u64 = world
                .traffic(0)
                .iter()
                .map(|traffic| traffic.dropped_messages)
                .sum();
            assert_eq!(dropped, 2, "seed {}", world.net.seed);
        },
    );
}

#[test]
fn the_queues_of_a_users_sessions_are_full_together() {
    let payload = "x".repeat(900);
    let of_user = |client_id, user| as_user(user, resuming(V5, client_id, 1000));
    let clients = [("one", "ann"), ("two", "ann"), ("other", "bob")];
    let mut world = World::new(1, Weather::CALM);
    let mut spec = NodeSpec::new(1);
    with(policy(&["ann", "bob"], "pattern #"))(&mut spec);
    spec.listeners[0].allow_anonymous = true;
    // For four messages.
    spec.limits.user_queue_bytes = 4 * Message::cost_of(payload.len()) + 100;
    let node = world.add_node(spec);
    world.start(node);
    for (client_id, user) in clients {
        let client = world.client(of_user(client_id, user), "CONNACK");
        world.subscribe(client, "a", 1);
        world.hang_up(client);
        world.run_for(500);
    }
    let publisher = world.plain("publisher");
    for number in 1..=3 {
        world.publish(publisher, "a", &payload, 1, number);
    }
    world.run_for(500);
    let queued = |world: &World| {
        let sessions = world.sessions();
        clients.map(|(client_id, _)| {
            let session = sessions.iter().find(|(_, it)| it.client_id == client_id);
            session.map(|(_, it)| (it.queued_messages, it.dropped_messages))
        })
    };
    // Two messages in each of two queues.
    let expected = [Some((2, 1)), Some((2, 1)), Some((3, 0))];
    assert_eq!(queued(&world), expected);
    let dropped: u64 = world
        .traffic(node)
        .iter()
        .map(|it| it.queue_dropped_messages)
        .sum();
    assert_eq!(dropped, 2);
    // One of them is back: the other one's queue is below its limit again.
    let back = world.connect(node, of_user("one", "ann"));
    world.tester(back).acknowledges = true;
    assert_eq!(world.hear(back).len(), 3, "CONNACK and two messages");
    world.publish(publisher, "a", &payload, 1, 4);
    world.run_for(500);
    assert_eq!(queued(&world)[1], Some((3, 1)));
}

/// A node whose clients are those of a tenant.
fn of_tenant(limits: TenantLimits) -> NodeSpec {
    let mut spec = NodeSpec::new(1);
    spec.stores = true;
    spec.listeners[0].topic_prefix = "tenant/".into();
    spec.tenants = vec![TenantLimits {
        topic_prefix: "tenant/".into(),
        ..limits
    }];
    spec
}

#[test]
fn a_tenant_has_sessions_up_to_its_bound_also_after_a_restart() {
    let mut world = World::new(1, Weather::CALM);
    let node = world.add_node(of_tenant(TenantLimits {
        sessions: 2,
        ..TenantLimits::default()
    }));
    world.start(node);
    for client_id in ["one", "two"] {
        let client = world.client(resuming(V5, client_id, 1000), "CONNACK");
        world.hang_up(client);
    }
    world.run_for(500);
    world.client_with(resuming(V5, "three", 1000), &["CONNACK 0x97", "closed"]);
    world.plain("without a session that stays");
    world.stop(node);
    world.start(node);
    world.run_for(3_000);
    world.client_with(resuming(V5, "three", 1000), &["CONNACK 0x97", "closed"]);
    let ended = Connect {
        clean_start: true,
        ..Connect::new(V5, "two")
    };
    let two = world.client(ended, "CONNACK");
    world.hang_up(two);
    world.run_for(500);
    world.client(resuming(V5, "three", 1000), "CONNACK");
}

#[test]
fn the_queues_and_retained_messages_of_a_tenant_have_bounds_together() {
    let payload = "x".repeat(900);
    let mut world = World::new(1, Weather::CALM);
    let node = world.add_node(of_tenant(TenantLimits {
        queue_bytes: 4 * Message::cost_of(payload.len()) + 200,
        retained_messages: 2,
        ..TenantLimits::default()
    }));
    world.start(node);
    for client_id in ["one", "two"] {
        let client = world.client(resuming(V5, client_id, 1000), "CONNACK");
        world.subscribe(client, "a", 1);
        world.hang_up(client);
        world.run_for(500);
    }
    let publisher = world.plain("publisher");
    for number in 1..=3 {
        world.publish(publisher, "a", &payload, 1, number);
    }
    world.run_for(500);
    let queued = |world: &World| -> u32 {
        let sessions = world.sessions();
        sessions
            .iter()
            .map(|(_, it)| it.queued_messages as u32)
            .sum()
    };
    assert_eq!(queued(&world), 4);
    world.tester(publisher).take_heard();
    for (topic, expected) in [
        ("b", "PUBACK 9"),
        ("c", "PUBACK 9"),
        ("d", "PUBACK 9 0x97"),
        ("b", "PUBACK 9"),
    ] {
        let publish = Publish {
            qos: qos(1),
            retain: true,
            packet_id: PacketId::new(9),
            ..Publish::new(topic, b"x")
        };
        world.send(publisher, &Packet::Publish(publish));
        world.expect(publisher, &[expected]);
    }
    assert_eq!(world.retained_messages(node), 2);
}

#[test]
fn a_publisher_is_refused_while_a_queue_is_full_if_queues_refuse() {
    let configure = |spec: &mut NodeSpec| {
        spec.limits.queue_messages = 2;
        spec.limits.on_full = OnFull::Refuse;
    };
    play_with(configure, |world| {
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        world.hang_up(client);
        world.run_for(500);
        let reader = world.plain("reader");
        world.subscribe(reader, "a", 0);
        let publisher = world.plain("publisher");
        for number in 1..=2 {
            world.publish(publisher, "a", &number.to_string(), 1, number);
        }
        world.expect(publisher, &["PUBACK 1", "PUBACK 2"]);
        world.publish(publisher, "a", "3", 1, 3);
        world.expect(publisher, &["PUBACK 3 0x97"]);
        world.publish(publisher, "a", "4", 2, 4);
        world.expect(publisher, &["PUBREC 4 0x97"]);
        // Nobody keeps it, so no queue needs capacity for it.
        world.publish(publisher, "a", "5", 0, 0);
        let old = world.client(Connect::new(V311, "old"), "CONNACK");
        world.publish(old, "a", "6", 1, 1);
        world.expect(old, &["closed"]);
        world.run_for(500);
        let heard = [
            "CONNACK present",
            "PUBLISH a '1' q1 #1",
            "PUBLISH a '2' q1 #2",
        ];
        let back = world.client_with(resuming(V5, "client", 1000), &heard);
        world.publish(publisher, "a", "7", 1, 7);
        world.expect(publisher, &["PUBACK 7"]);
        world.expect(back, &["PUBLISH a '7' q1 #3"]);
        let traffic = world.traffic(0);
        let dropped: u64 = traffic.iter().map(|all| all.queue_dropped_messages).sum();
        let refused: u64 = traffic.iter().map(|all| all.queue_refused_messages).sum();
        assert_eq!((dropped, refused), (0, 3), "seed {}", world.net.seed);
    });
}

#[test]
fn a_member_of_a_shared_subscription_with_a_full_queue_is_passed_over() {
    for on_full in [OnFull::Drop, OnFull::Refuse] {
        let mut world = World::new(1, Weather::CALM);
        let mut spec = NodeSpec::new(1);
        spec.limits.queue_messages = 2;
        spec.limits.on_full = on_full;
        let node = world.add_node(spec);
        world.start(node);
        for name in ["one", "two"] {
            let member = world.client(resuming(V5, name, 1000), "CONNACK");
            world.subscribe(member, "$share/group/a", 1);
            world.hang_up(member);
        }
        world.run_for(500);
        // Two of one turn and two of the other, then all queues are full.
        let publisher = world.plain("publisher");
        for number in 1..=5 {
            world.publish(publisher, "a", &number.to_string(), 1, number);
        }
        let heard = world.hear(publisher);
        let last = match on_full {
            OnFull::Drop => "PUBACK 5",
            OnFull::Refuse => "PUBACK 5 0x97",
        };
        assert_eq!(
            heard,
            ["PUBACK 1", "PUBACK 2", "PUBACK 3", "PUBACK 4", last]
        );
        let back = world.connect(0, resuming(V5, "one", 1000));
        world.tester(back).acknowledges = true;
        assert_eq!(world.hear(back).len(), 3, "CONNACK and two messages");
        for number in 6..=7 {
            world.publish(publisher, "a", &number.to_string(), 1, number);
        }
        assert_eq!(world.hear(back).len(), 2, "those of the absent one too");
    }
}

#[test]
fn a_client_that_does_not_read_costs_a_bounded_buffer_and_loses_only_qos_0() {
    play_with(
        |spec| spec.limits.out_buffer_bytes = 10_000,
        |world| {
            world.net.weather.capacity = 1_000;
            let slow = world.client(resuming(V311, "slow", 1000), "CONNACK");
            world.tester(slow).acknowledges = true;
            world.subscribe(slow, "a", 1);
            world.tester(slow).is_asleep = true;
            let publisher = world.plain("publisher");
            world.tester(publisher).acknowledges = true;
            let payload = "x".repeat(1000);
            for number in 1..=100 {
                world.publish(publisher, "a", &payload, 0, 0);
                world.publish(publisher, "a", &number.to_string(), 1, number);
            }
            world.run_for(2_000);
            world.tester(slow).is_asleep = false;
            world.wake_tester(slow);
            world.run_for(5_000);
            let heard = world.tester(slow).take_heard();
            let numbered = heard.iter().filter(|said| said.contains(" q1 ")).count();
            assert_eq!(numbered, 100, "seed {}", world.net.seed);
            assert!(
                heard.len() < 150,
                "seed {}: {}",
                world.net.seed,
                heard.len()
            );
        },
    );
}

#[test]
fn a_session_may_not_be_asked_for_longer_than_the_node_grants() {
    play_with(
        |spec| spec.limits.session_expiry_maximum = 60,
        |world| {
            let client = world.client(resuming(V5, "client", 1000), "CONNACK expiry=60");
            world.hang_up(client);
            world.run_for(61_000);
            world.client(resuming(V5, "client", 50), "CONNACK");
            let old = world.client(resuming(V311, "old", 1000), "CONNACK");
            world.send(old, &Packet::Subscribe(Subscribe::new(id(1), "a", qos(0))));
            world.expect(old, &["SUBACK 1 [00]"]);
        },
    );
}

#[test]
fn a_burst_that_is_expensive_to_match_does_not_keep_others_waiting() {
    let mut world = World::new(1, Weather::CALM);
    let node = world.add_node(NodeSpec::new(1));
    world.start(node);
    world.run_for(1_000);
    let dear = world.plain("dear");
    for filter in overlapping(10) {
        let subscribe = Subscribe::new(id(1), &filter, qos(0));
        world.send(dear, &Packet::Subscribe(subscribe));
    }
    let other = world.plain("other");
    world.run_for(5_000);
    world.tester(dear).take_heard();
    let publisher = world.plain("publisher");
    const MESSAGES: usize = 1_000;
    for number in 0..MESSAGES {
        let topic = format!("{number}/a/a/a/a/a/a/a/a/a");
        world.send(publisher, &Packet::Publish(Publish::new(&topic, b"x")));
    }
    world.run_for(2);
    world.send(other, &Packet::Pingreq);
    let mut come = 0;
    let answered_after = loop {
        world.run_for(1);
        come += world.tester(dear).take_heard().len();
        if !world.tester(other).take_heard().is_empty() {
            break come;
        }
    };
    assert!(answered_after < MESSAGES, "all {answered_after} went first");
    world.run_for(1_000);
    come += world.tester(dear).take_heard().len();
    assert_eq!(come, MESSAGES, "none is lost");
}

/// The filters whose levels are `a` or `+`, all of them.
fn overlapping(levels: usize) -> Vec<String> {
    let word = |word: usize| {
        let level = |level: usize| if word >> level & 1 == 0 { "a" } else { "+" };
        (0..levels).map(level).collect::<Vec<_>>().join("/")
    };
    (0..1 << levels).map(word).collect()
}

#[test]
fn a_batch_that_is_expensive_to_match_goes_to_all_workers_and_comes_once() {
    const LEVELS: usize = 11;
    const MESSAGES: u16 = 300;
    let world = &mut World::new(1, Weather::CALM);
    for _ in 0..2 {
        let node = world.add_node(NodeSpec::new(2));
        world.start(node);
    }
    world.run_for(1_000);
    let dear = client_at(world, 1, Connect::new(V5, "dear"), "CONNACK");
    for (number, part) in overlapping(LEVELS).chunks(256).enumerate() {
        let asked = part.iter().map(|filter| SubscribeFilter {
            filter,
            options: SubscriptionOptions::default(),
        });
        let subscribe = Subscribe {
            filters: asked.collect(),
            ..Subscribe::new(id(1 + number as u16), "", qos(0))
        };
        world.send(dear, &Packet::Subscribe(subscribe));
        world.run_for(500);
    }
    let mut receivers = vec![dear];
    // On both workers there.
    for number in 0..4 {
        let name = format!("plain-{number}");
        let client = client_at(world, 1, Connect::new(V5, &name), "CONNACK");
        world.tester(client).acknowledges = true;
        world.subscribe(client, "#", 1);
        receivers.push(client);
    }
    let mut members = Vec::new();
    for number in 0..4 {
        let name = format!("member-{number}");
        let client = client_at(world, number % 2, Connect::new(V5, &name), "CONNACK");
        world.tester(client).acknowledges = true;
        world.subscribe(client, "$share/g/#", 1);
        members.push(client);
    }
    world.run_for(1_000);
    for client in receivers.iter().chain(&members) {
        world.tester(*client).take_heard();
    }
    let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
    world.tester(publisher).acknowledges = true;
    let _ = thicket_session::reached::take();
    // What waits for the link leaves in large batches.
    world.pause(1);
    for number in 1..=MESSAGES {
        let topic = format!("{number}{}", "/a".repeat(LEVELS - 1));
        world.publish(publisher, &topic, &number.to_string(), 1, number);
    }
    world.run_for(600);
    world.resume(1);
    world.run_for(5_000);
    let reached = thicket_session::reached::take();
    let unmatched = reached.get("hub: a message goes to all workers, unmatched");
    assert!(unmatched.is_some_and(|count| *count > 0), "{reached:?}");
    let mut come = |client: TesterId| {
        let heard = world.tester(client).take_heard();
        let messages = heard.iter().filter(|said| said.starts_with("PUBLISH"));
        messages
            .filter_map(|said| said.split('\'').nth(1)?.parse::<u16>().ok())
            .collect::<Vec<_>>()
    };
    for client in receivers {
        assert_eq!(come(client), (1..=MESSAGES).collect::<Vec<_>>());
    }
    let mut of_group: Vec<_> = members.into_iter().flat_map(come).collect();
    of_group.sort_unstable();
    assert_eq!(of_group, (1..=MESSAGES).collect::<Vec<_>>());
    let acknowledged = world.tester(publisher).take_heard();
    assert_eq!(acknowledged.len(), usize::from(MESSAGES));
}

fn two_nodes() -> World {
    let mut world = World::new(1, Weather::CALM);
    for _ in 0..2 {
        let node = world.add_node(NodeSpec::new(1));
        world.start(node);
    }
    world.run_for(1_000);
    world
}

/// A SUBSCRIBE of many filters that no other client has.
fn subscribe_to_many(world: &mut World, client: TesterId, packet_id: u16, name: &str, count: u16) {
    let filters: Vec<String> = (0..count).map(|it| format!("{name}/{it}/+")).collect();
    let asked = filters.iter().map(|filter| SubscribeFilter {
        filter,
        options: SubscriptionOptions::default(),
    });
    let subscribe = Subscribe {
        filters: asked.collect(),
        ..Subscribe::new(id(packet_id), "", qos(0))
    };
    world.send(client, &Packet::Subscribe(subscribe));
}

/// Subscriptions of all sessions of a node.
fn subscriptions(world: &World, node: usize) -> usize {
    let sessions = world.sessions().into_iter();
    let of_node = sessions.filter(|(at, _)| *at == node);
    of_node.map(|(_, session)| session.subscriptions).sum()
}

#[test]
fn a_client_makes_no_more_changes_than_other_nodes_keep_up_with() {
    let world = &mut two_nodes();
    let client = client_at(world, 0, Connect::new(V5, "client"), "CONNACK");
    // No answer comes from there.
    world.pause(1);
    for part in 1..=9 {
        subscribe_to_many(world, client, part, &format!("part-{part}"), 1_000);
    }
    world.run_for(100);
    assert_eq!(subscriptions(world, 0), 6_000);
    world.resume(1);
    world.run_for(1_000);
    assert_eq!(subscriptions(world, 0), 9_000);
    assert_eq!(world.tester(client).take_heard().len(), 9);
}

#[test]
fn sessions_that_end_at_once_end_in_turns_and_are_over_for_their_clients() {
    let world = &mut two_nodes();
    let clients: Vec<TesterId> = (0..10)
        .map(|number| {
            let name = format!("client-{number}");
            let connect = Connect {
                clean_start: false,
                ..Connect::new(V5, &name)
            };
            let client = client_at(world, 0, connect, "CONNACK");
            subscribe_to_many(world, client, 1, &name, 1_000);
            world.run_for(500);
            client
        })
        .collect();
    assert_eq!(subscriptions(world, 0), 10_000);
    world.pause(1);
    for client in clients {
        world.hang_up(client);
    }
    world.run_for(100);
    assert_eq!(subscriptions(world, 0), 4_000);
    let connect = Connect {
        clean_start: false,
        ..Connect::new(V5, "client-9")
    };
    let back = world.connect(0, connect);
    world.run_for(100);
    let said = world.tester(back).take_heard();
    assert_eq!(said, ["CONNACK"], "the session before is over");
    world.resume(1);
    world.run_for(1_000);
    assert_eq!(subscriptions(world, 0), 0);
    let publisher = client_at(world, 1, Connect::new(V5, "publisher"), "CONNACK");
    world.publish(publisher, "client-9/0/a", "x", 1, 1);
    world.expect(publisher, &["PUBACK 1 0x10"]);
    assert!(world.tester(back).take_heard().is_empty());
}

/// Clients before 5.0 cannot be told that a message was refused.
#[test]
fn a_topic_with_too_many_levels_is_counted_for_clients_of_every_version() {
    play_with(
        |spec| spec.limits.topic_levels = 3,
        |world| {
            let old = world.client(resuming(V311, "old", 0), "CONNACK");
            world.publish(old, "a/b/c/d", "", 1, 1);
            world.expect(old, &["PUBACK 1"]);
            world.publish(old, "a/b/c", "", 1, 2);
            world.expect(old, &["PUBACK 2"]);
            let new = world.plain("new");
            world.publish(new, "a/b/c/d", "", 1, 1);
            world.expect(new, &["PUBACK 1 0x90"]);
            let traffic = world.traffic(0);
            let refused: u64 = traffic.iter().map(|it| it.refused_messages).sum();
            assert_eq!(refused, 2);
        },
    );
}
