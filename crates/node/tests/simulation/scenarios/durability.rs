//! A node that keeps data is killed at once and started again: what it has acknowledged is still there.

use thicket_mqtt::{
    Acknowledgement, Connect, Disconnect, Packet, PacketId, Publish, ReasonCode, Unsubscribe, Will,
};

use super::{
    V5, V311,
    cluster::{become_whole, client_at},
    id, play_with, qos, resuming,
};
use thicket_simulation::{TesterId, World, net::Weather, node::NodeSpec};

#[track_caller]
fn play(scenario: impl Fn(&mut World)) {
    play_with(|spec| spec.stores = true, scenario);
}

/// The node is gone, and back.
fn restart(world: &mut World) {
    world.kill(0);
    world.run_for(500);
    world.start(0);
    world.run_for(1_000);
}

fn plain(packet_id: u16) -> Acknowledgement<'static> {
    Acknowledgement::new(id(packet_id), ReasonCode::Success)
}

fn publish_again(world: &mut World, tester: TesterId, topic: &str, payload: &str, as_id: u16) {
    let publish = Publish {
        qos: qos(2),
        packet_id: PacketId::new(as_id),
        dup: true,
        ..Publish::new(topic, payload.as_bytes())
    };
    world.send(tester, &Packet::Publish(publish));
}

#[test]
fn subscription_and_queue_of_a_session_outlive_the_node() {
    for version in [V311, V5] {
        play(|world| {
            let publisher = world.plain("publisher");
            let away = world.client(resuming(version, "away", 1000), "CONNACK");
            world.subscribe(away, "a/#", 2);
            world.hang_up(away);
            world.run_for(100);
            world.publish(publisher, "a/1", "one", 1, 1);
            world.publish(publisher, "a/2", "two", 2, 2);
            world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
            restart(world);
            let publisher = world.plain("publisher");
            world.publish(publisher, "a/3", "three", 1, 3);
            world.expect(publisher, &["PUBACK 3"]);
            world.client_with(
                resuming(version, "away", 1000),
                &[
                    "CONNACK present",
                    "PUBLISH a/1 'one' q1 #1",
                    "PUBLISH a/2 'two' q2 #2",
                    "PUBLISH a/3 'three' q1 #3",
                ],
            );
        });
    }
}

#[test]
fn what_was_in_flight_comes_again_with_its_identifier_and_what_was_acknowledged_does_not() {
    play(|world| {
        let publisher = world.plain("publisher");
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        for (qos, number) in [(1, 1), (2, 2), (2, 3), (1, 4), (2, 5)] {
            world.publish(publisher, "a", &number.to_string(), qos, number);
        }
        world.run_for(500);
        world.send(client, &Packet::Puback(plain(4)));
        world.send(client, &Packet::Pubrec(plain(3)));
        world.send(client, &Packet::Pubrec(plain(5)));
        world.send(client, &Packet::Pubcomp(plain(5)));
        world.run_for(500);
        restart(world);
        let publisher = world.plain("publisher");
        world.publish(publisher, "a", "6", 1, 6);
        world.expect(publisher, &["PUBACK 6"]);
        let expected = [
            "CONNACK present",
            "PUBLISH a '1' q1 #1 dup",
            "PUBLISH a '2' q2 #2 dup",
            "PUBREL 3",
            "PUBLISH a '6' q1 #4",
        ];
        world.client_with(resuming(V5, "client", 1000), &expected);
    });
}

#[test]
fn a_qos_2_publication_that_was_answered_is_not_delivered_again() {
    play(|world| {
        let away = world.client(resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 2);
        world.hang_up(away);
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.publish(client, "a", "x", 2, 5);
        world.expect(client, &["PUBREC 5"]);
        restart(world);
        let client = world.client(resuming(V5, "client", 1000), "CONNACK present");
        publish_again(world, client, "a", "x", 5);
        world.expect(client, &["PUBREC 5"]);
        world.send(client, &Packet::Pubrel(plain(5)));
        world.expect(client, &["PUBCOMP 5"]);
        restart(world);
        let client = world.client(resuming(V5, "client", 1000), "CONNACK present");
        world.publish(client, "a", "y", 2, 5);
        world.expect(client, &["PUBREC 5"]);
        world.client_with(
            resuming(V5, "away", 1000),
            &[
                "CONNACK present",
                "PUBLISH a 'x' q2 #1",
                "PUBLISH a 'y' q2 #2",
            ],
        );
    });
}

/// The node may stop anywhere between the PUBLISH and the PUBREC; whoever got the message already does not get it twice.
#[test]
fn a_qos_2_publication_that_a_stop_interrupted_is_delivered_once() {
    for after_ms in 0..12 {
        play(|world| {
            for name in ["away", "other"] {
                let away = world.client(resuming(V5, name, 1000), "CONNACK");
                world.subscribe(away, "a", 2);
                world.hang_up(away);
            }
            let client = world.client(resuming(V5, "client", 1000), "CONNACK");
            world.publish(client, "a", "x", 2, 5);
            world.run_for(after_ms);
            restart(world);
            let client = world.client(resuming(V5, "client", 1000), "CONNACK present");
            publish_again(world, client, "a", "x", 5);
            world.expect(client, &["PUBREC 5"]);
            for name in ["away", "other"] {
                world.client_with(
                    resuming(V5, name, 1000),
                    &["CONNACK present", "PUBLISH a 'x' q2 #1"],
                );
            }
        });
    }
}

#[test]
fn an_unsubscribe_is_not_undone_and_an_ended_session_stays_ended() {
    play(|world| {
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 1);
        world.subscribe(client, "b", 1);
        let unsubscribe = Unsubscribe::new(id(9), vec!["a"]);
        world.send(client, &Packet::Unsubscribe(unsubscribe));
        world.expect(client, &["UNSUBACK 9 [00]"]);
        let ended = world.client(resuming(V5, "ended", 1000), "CONNACK");
        world.subscribe(ended, "a", 1);
        let disconnect = Disconnect {
            session_expiry_interval: Some(0),
            ..Disconnect::default()
        };
        world.send(ended, &Packet::Disconnect(disconnect));
        world.run_for(500);
        restart(world);
        let publisher = world.plain("publisher");
        world.publish(publisher, "a", "x", 1, 1);
        world.publish(publisher, "b", "y", 1, 2);
        world.expect(publisher, &["PUBACK 1 0x10", "PUBACK 2"]);
        world.client_with(
            resuming(V5, "client", 1000),
            &["CONNACK present", "PUBLISH b 'y' q1 #1"],
        );
        world.client(resuming(V5, "ended", 1000), "CONNACK");
    });
}

#[test]
fn expiry_counts_on_while_the_node_is_down() {
    play(|world| {
        let short = world.client(resuming(V5, "short", 5), "CONNACK");
        let long = world.client(resuming(V5, "long", 50), "CONNACK");
        world.hang_up(short);
        world.hang_up(long);
        world.run_for(1_000);
        world.kill(0);
        world.run_for(10_000);
        world.start(0);
        world.run_for(1_000);
        world.client(resuming(V5, "long", 50), "CONNACK present");
        world.client(resuming(V5, "short", 5), "CONNACK");
    });
}

#[test]
fn a_message_expires_at_its_time_whether_the_node_runs_or_not() {
    play(|world| {
        let away = world.client(resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 1);
        world.hang_up(away);
        let publisher = world.plain("publisher");
        for (seconds, as_id) in [(5, 1), (100, 2)] {
            let publish = Publish {
                qos: qos(1),
                packet_id: PacketId::new(as_id),
                message_expiry_interval: Some(seconds),
                ..Publish::new("a", b"x")
            };
            world.send(publisher, &Packet::Publish(publish));
        }
        world.expect(publisher, &["PUBACK 1", "PUBACK 2"]);
        world.kill(0);
        world.run_for(10_000);
        world.start(0);
        world.run_for(1_000);
        let back = world.connect(0, resuming(V5, "away", 1000));
        let heard = world.hear(back);
        assert_eq!(heard.len(), 2, "{heard:?}");
        assert!(
            heard[1].starts_with("PUBLISH a 'x' q1 #1 expiry=8"),
            "{heard:?}"
        );
    });
}

#[test]
fn a_will_of_a_client_that_was_connected_or_away_is_published_after_the_start() {
    play(|world| {
        let watcher = world.client(resuming(V5, "watcher", 1000), "CONNACK");
        world.subscribe(watcher, "will", 1);
        let with_will = |client_id, payload, delay_interval| {
            let mut connect = resuming(V5, client_id, 1000);
            connect.will = Some(Will {
                qos: qos(1),
                delay_interval,
                ..Will::new("will", payload)
            });
            connect
        };
        world.client(with_will("connected", b"connected", 0), "CONNACK");
        let away = world.client(with_will("away", b"away", 8), "CONNACK");
        world.hang_up(away);
        world.run_for(500);
        restart(world);
        world.run_for(2_000);
        let watcher = world.client_with(
            resuming(V5, "watcher", 1000),
            &["CONNACK present", "PUBLISH will 'connected' q1 #1"],
        );
        world.run_for(8_000);
        world.expect(watcher, &["PUBLISH will 'away' q1 #2"]);
        restart(world);
        world.run_for(20_000);
        world.client_with(
            resuming(V5, "watcher", 1000),
            &[
                "CONNACK present",
                "PUBLISH will 'connected' q1 #1 dup",
                "PUBLISH will 'away' q1 #2 dup",
            ],
        );
    });
}

#[test]
fn retained_messages_outlive_the_node_and_removed_ones_stay_removed() {
    play(|world| {
        let publisher = world.plain("publisher");
        for (topic, payload) in [("r/1", "one"), ("r/2", "two"), ("r/2", "")] {
            let publish = Publish {
                qos: qos(1),
                packet_id: PacketId::new(1),
                retain: true,
                ..Publish::new(topic, payload.as_bytes())
            };
            world.send(publisher, &Packet::Publish(publish));
            world.expect(publisher, &["PUBACK 1"]);
        }
        restart(world);
        let subscriber = world.plain("subscriber");
        world.send(
            subscriber,
            &Packet::Subscribe(thicket_mqtt::Subscribe::new(id(1), "r/#", qos(0))),
        );
        world.expect(subscriber, &["SUBACK 1 [00]", "PUBLISH r/1 'one' retain"]);
    });
}

/// Long queues, so that the log is written again several times, and messages that several sessions share.
#[test]
fn a_log_that_was_written_again_holds_what_lives_and_is_short() {
    play_with(
        |spec| {
            spec.stores = true;
            spec.small_log_bytes = 4_000;
        },
        |world| {
            for name in ["away", "other"] {
                let away = world.client(resuming(V5, name, 1000), "CONNACK");
                world.subscribe(away, "keep", 1);
                world.hang_up(away);
            }
            let busy = world.client(resuming(V5, "busy", 1000), "CONNACK");
            world.subscribe(busy, "busy", 1);
            let publisher = world.plain("publisher");
            let mut kept = Vec::new();
            for number in 1..=150_u16 {
                let topic = if number % 50 == 0 { "keep" } else { "busy" };
                if topic == "keep" {
                    kept.push(format!("PUBLISH keep '{number}' q1 #{}", kept.len() + 1));
                }
                world.publish(publisher, topic, &number.to_string(), 1, number);
                world.run_for(20);
                if topic == "busy" {
                    world.send(busy, &Packet::Puback(plain(number - number / 50)));
                }
            }
            world.run_for(1_000);
            restart(world);
            for name in ["away", "other"] {
                let kept = kept.iter().map(String::as_str);
                let expected: Vec<&str> = ["CONNACK present"].into_iter().chain(kept).collect();
                world.client_with(resuming(V5, name, 1000), &expected);
            }
            world.client(resuming(V5, "busy", 1000), "CONNACK present");
            let removed = world.nodes[0].disk.removed_segments;
            assert!(removed > 0, "no segment was removed");
        },
    );
}

#[test]
fn sessions_are_found_after_the_number_of_workers_has_changed() {
    play(|world| {
        let publisher = world.plain("publisher");
        for number in 0..6 {
            let name = format!("away {number}");
            let away = world.client(resuming(V5, &name, 1000), "CONNACK");
            world.subscribe(away, "a", 1);
            world.hang_up(away);
        }
        world.run_for(100);
        world.publish(publisher, "a", "x", 1, 1);
        world.expect(publisher, &["PUBACK 1"]);
        for workers in [1, 4, 2] {
            world.kill(0);
            world.nodes[0].spec.workers = workers;
            world.start(0);
            world.run_for(1_000);
        }
        for number in 0..6 {
            let name = format!("away {number}");
            let expected = ["CONNACK present", "PUBLISH a 'x' q1 #1"];
            world.client_with(resuming(V5, &name, 1000), &expected);
        }
    });
}

#[test]
fn a_full_disk_refuses_new_messages_keeps_the_old_ones_and_serves_on_when_there_is_room() {
    play(|world| {
        let away = world.client(resuming(V5, "away", 1000), "CONNACK");
        world.subscribe(away, "a", 1);
        world.hang_up(away);
        let publisher = world.plain("publisher");
        world.publish(publisher, "a", "one", 1, 1);
        world.expect(publisher, &["PUBACK 1"]);
        world.set_space(0, 1_000);
        world.publish(publisher, "a", "two", 1, 2);
        world.expect(publisher, &["PUBACK 2 0x97"]);
        world.publish(publisher, "nobody", "three", 1, 3);
        world.expect(publisher, &["PUBACK 3 0x10"]);
        let old = world.client(Connect::new(V311, "old"), "CONNACK");
        world.publish(old, "a", "four", 1, 4);
        world.expect(old, &["closed"]);
        world.set_space(0, u64::MAX);
        world.publish(publisher, "a", "five", 1, 5);
        world.expect(publisher, &["PUBACK 5"]);
        restart(world);
        world.client_with(
            resuming(V5, "away", 1000),
            &[
                "CONNACK present",
                "PUBLISH a 'one' q1 #1",
                "PUBLISH a 'five' q1 #2",
            ],
        );
    });
}

#[test]
fn a_client_whose_session_is_on_a_node_with_a_stalled_disk_is_answered_in_time_and_loses_nothing() {
    let mut world = World::new(1, Weather::CALM);
    for _ in 0..2 {
        let mut spec = NodeSpec::new(2);
        spec.stores = true;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_whole(&mut world);
    let away = client_at(&mut world, 0, resuming(V5, "away", 1000), "CONNACK");
    world.subscribe(away, "a", 1);
    world.hang_up(away);
    let publisher = client_at(&mut world, 1, Connect::new(V5, "publisher"), "CONNACK");
    world.publish(publisher, "a", "one", 1, 1);
    world.expect(publisher, &["PUBACK 1"]);
    // The node is up, as its hub has nothing to store.
    world.run_for(1_000);
    world.stall_disk(0, 15_000);
    let early = world.connect(1, resuming(V5, "away", 1000));
    world.run_for(11_000);
    assert_eq!(
        world.tester(early).take_heard(),
        ["CONNACK 0x88", "closed"],
        "Server unavailable: what the session has is not known yet"
    );
    world.run_for(5_000);
    let late = world.connect(1, resuming(V5, "away", 1000));
    world.expect(late, &["CONNACK present", "PUBLISH a 'one' q1 #1"]);
}

#[test]
fn a_will_that_goes_out_when_the_node_is_killed_is_not_lost() {
    for millis in 0..12 {
        play(|world| {
            let watcher = world.client(resuming(V5, "watcher", 1000), "CONNACK");
            world.subscribe(watcher, "will", 1);
            world.hang_up(watcher);
            let connect = Connect {
                will: Some(Will {
                    qos: qos(1),
                    ..Will::new("will", b"gone")
                }),
                ..resuming(V5, "client", 1000)
            };
            let client = world.client(connect, "CONNACK");
            world.hang_up(client);
            world.run_for(millis);
            restart(world);
            world.run_for(1_000);
            let watcher = world.connect(0, resuming(V5, "watcher", 1000));
            let heard = world.hear(watcher);
            let is_will = |said: &&String| said.starts_with("PUBLISH will 'gone'");
            let came = heard.iter().filter(is_will).count();
            assert!((1..=2).contains(&came), "{millis} ms: {heard:?}");
        });
    }
}
