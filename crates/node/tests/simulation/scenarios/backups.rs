//! Backups of sessions on other nodes: what a client finds when the node that had its session is gone.

use thicket_mqtt::{Connect, Packet, Publish, Qos, Unsubscribe, Will};
use thicket_node::{MemoryReport, NodeLoad};

use super::{
    V5,
    cluster::{client_at, plain},
    id, resuming,
};
use thicket_simulation::{
    TesterId, World,
    net::{Parting, Weather},
    node::NodeSpec,
};

/// Plays a scenario on three nodes with one or two workers, in two kinds of weather.
#[track_caller]
pub(super) fn play(stores: bool, scenario: impl Fn(&mut World)) {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for index in 0..3_u8 {
            let mut spec = NodeSpec::new(1 + (index + seed as u8) % 2);
            spec.stores = stores;
            let node = world.add_node(spec);
            world.start(node);
        }
        become_covered(&mut world);
        scenario(&mut world);
    }
}

/// Waits until the nodes see each other and every session has its backup.
#[track_caller]
pub(super) fn become_covered(world: &mut World) {
    for _ in 0..60 {
        world.run_for(500);
        if world.is_covered() {
            return;
        }
    }
    panic!("every session gets its backup (seed {})", world.net.seed);
}

/// A client with a session at `node`, subscribed to `a/#` at QoS 2, that has gone.
#[track_caller]
pub(super) fn subscriber_gone_from(world: &mut World, node: usize) {
    let away = client_at(world, node, resuming(V5, "away", 1000), "CONNACK");
    world.subscribe(away, "a/#", 2);
    world.hang_up(away);
    become_covered(world);
}

/// A publication with identifier 7 at QoS 2 that was sent before.
fn sent_again() -> Packet<'static> {
    Packet::Publish(Publish {
        qos: Qos::ExactlyOnce,
        packet_id: Some(id(7)),
        dup: true,
        ..Publish::new("a", b"x")
    })
}

/// A publisher sends its publication with identifier 7 at QoS 2 again, where it has come to, and goes through with it.
#[track_caller]
pub(super) fn send_again(world: &mut World, publisher: TesterId) {
    world.send(publisher, &sent_again());
    world.expect(publisher, &["PUBREC 7"]);
    world.send(publisher, &Packet::Pubrel(plain(7)));
    world.expect(publisher, &["PUBCOMP 7"]);
}

#[test]
fn without_topics_backups_are_distributed_by_the_free_capacity_of_nodes() {
    for (free, at_least) in [
        ([50, 10, 90], [0, 20]),
        ([50, 90, 10], [20, 0]),
        ([50; 3], [8, 8]),
    ] {
        play(false, |world| {
            world.say_resources(&free);
            for number in 0..30 {
                let name = format!("client-{number}");
                let client = client_at(world, 0, resuming(V5, &name, 1000), "CONNACK");
                world.hang_up(client);
            }
            become_covered(world);
            let backups = |node| world.memory(node).iter().map(|it| it.backups).sum::<u64>();
            let held = [backups(1), backups(2)];
            assert_eq!(held[0] + held[1], 30, "{held:?}");
            let is_enough = held
                .iter()
                .zip(at_least)
                .all(|(held, least)| *held >= least);
            assert!(is_enough, "{free:?}: {held:?}");
        });
    }
}

#[test]
fn no_node_gets_much_more_than_its_share_of_backups_even_if_it_has_all_the_topics() {
    let mut world = World::new(1, Weather::CALM);
    for _ in 0..4 {
        let node = world.add_node(NodeSpec::new(1));
        world.start(node);
    }
    become_covered(&mut world);
    world.say_resources(&[50; 4]);
    let there = client_at(&mut world, 1, Connect::new(V5, "there"), "CONNACK");
    world.subscribe(there, "t/#", 1);
    for number in 0..450 {
        let name = format!("client-{number}");
        let client = client_at(&mut world, 0, resuming(V5, &name, 1000), "CONNACK");
        world.subscribe(client, "t/x", 1);
        world.hang_up(client);
    }
    become_covered(&mut world);
    let held = [1, 2, 3].map(|node| world.memory(node).iter().map(|it| it.backups).sum::<u64>());
    assert_eq!(held.iter().sum::<u64>(), 450, "{held:?}");
    // A third of them, a tenth more, and the few that topics alone decide about.
    assert!((151..=190).contains(&held[0]), "{held:?}");
    assert!(held[1..].iter().all(|held| *held <= 190), "{held:?}");
}

/// Sessions with as many messages each as a second that lasts.
const HEAVY: usize = 12;

/// Heavy sessions at node 0 of four; all their topics are wanted at node 1, so that is where their backups go.
fn heavy_sessions(world: &mut World) -> Vec<TesterId> {
    for _ in 0..4 {
        let node = world.add_node(NodeSpec::new(1));
        world.start(node);
    }
    become_covered(world);
    world.say_resources(&[50; 4]);
    let there = client_at(world, 1, Connect::new(V5, "there"), "CONNACK");
    for number in 0..HEAVY {
        world.subscribe(there, &format!("heavy/{number}"), 1);
    }
    let heavy = |number: usize, world: &mut World| {
        let name = format!("heavy-{number}");
        let connect = Connect {
            // It only receives.
            keep_alive: 0,
            ..resuming(V5, &name, 1000)
        };
        let client = client_at(world, 0, connect, "CONNACK");
        world.subscribe(client, &format!("heavy/{number}"), 1);
        client
    };
    let clients = (0..HEAVY).map(|number| heavy(number, world)).collect();
    become_covered(world);
    clients
}

fn backups_at(world: &World, nodes: [usize; 3]) -> [u64; 3] {
    nodes.map(|node| world.memory(node).iter().map(|it| it.backups).sum())
}

/// Each heavy session gets twenty messages a second; nodes measure their loads each second.
fn flow(world: &mut World, seconds: u64) {
    let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
    for _ in 0..seconds * 10 {
        for number in 0..HEAVY {
            for _ in 0..2 {
                world.publish(publisher, &format!("heavy/{number}"), "x", 0, 0);
            }
        }
        for node in 0..4 {
            world.set_load(node, NodeLoad::default());
        }
        world.run_for(100);
    }
    world.hang_up(publisher);
}

#[test]
fn no_node_is_to_take_over_much_more_than_its_share_of_the_load() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        let clients = heavy_sessions(&mut world);
        assert_eq!(backups_at(&world, [1, 2, 3]), [12, 0, 0]);
        // Loads are looked at every half a minute. At first they are means since the clients connected, one after the other.
        flow(&mut world, 130);
        become_covered(&mut world);
        assert_eq!(backups_at(&world, [1, 2, 3]), [4, 4, 4], "seed {seed}");
        for client in clients {
            world.hang_up(client);
        }
        // Nothing is lost when the node dies, wherever the clients come back.
        let publisher = client_at(&mut world, 3, Connect::new(V5, "later"), "CONNACK");
        for number in 0..HEAVY {
            let topic = format!("heavy/{number}");
            world.publish(publisher, &topic, "kept", 1, 1 + number as u16);
        }
        world.run_for(1000);
        assert_eq!(world.tester(publisher).take_heard().len(), HEAVY);
        world.kill(0);
        for number in 0..HEAVY {
            let name = format!("heavy-{number}");
            let back = world.connect(1 + number % 3, resuming(V5, &name, 1000));
            world.run_for(3000);
            let heard = world.tester(back).take_heard();
            let kept = format!("PUBLISH heavy/{number} 'kept' q1");
            let [connack, publish] = &heard[..] else {
                panic!("{name}: {heard:?}, seed {seed}");
            };
            assert_eq!(connack, "CONNACK present", "{name}, seed {seed}");
            assert!(publish.starts_with(&kept), "{heard:?}, seed {seed}");
        }
    }
}

#[test]
fn a_queue_is_found_on_any_node_when_the_node_that_had_it_is_gone() {
    for other in [0, 2] {
        play(false, |world| {
            subscriber_gone_from(world, 1);
            let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
            world.publish(publisher, "a/1", "one", 1, 1);
            world.publish(publisher, "a/2", "two", 2, 2);
            world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
            world.kill(1);
            // The others may not even know it yet.
            world.publish(publisher, "a/3", "three", 1, 3);
            world.expect(publisher, &["PUBACK 3"]);
            let back = world.connect(other, resuming(V5, "away", 1000));
            let expected = [
                "CONNACK present",
                "PUBLISH a/1 'one' q1 #21846",
                "PUBLISH a/2 'two' q2 #21847",
                "PUBLISH a/3 'three' q1 #21848",
            ];
            world.expect(back, &expected);
        });
    }
}

#[test]
fn the_protocol_version_of_a_promoted_session_is_unknown_until_its_client_connects() {
    play(false, |world| {
        subscriber_gone_from(world, 1);
        let reported = |world: &World| {
            let mut all = world.sessions().into_iter();
            let found = all.find(|(_, session)| session.client_id == "away");
            found.map(|(_, session)| session.protocol_version)
        };
        assert_eq!(reported(world), Some(Some(5)));
        world.kill(1);
        for _ in 0..60 {
            world.run_for(500);
            if reported(world).is_some() {
                break;
            }
        }
        assert_eq!(reported(world), Some(None), "promoted");
        client_at(world, 2, resuming(V5, "away", 1000), "CONNACK present");
        assert_eq!(reported(world), Some(Some(5)));
    });
}

#[test]
fn the_memory_report_has_the_bytes_of_backups() {
    let mut world = World::new(1, Weather::CALM);
    for _ in 0..2 {
        let node = world.add_node(NodeSpec::new(2));
        world.start(node);
    }
    become_covered(&mut world);
    subscriber_gone_from(&mut world, 1);
    let publisher = client_at(&mut world, 1, Connect::new(V5, "publisher"), "CONNACK");
    let payload = "x".repeat(1_000);
    for number in 1..=3 {
        world.publish(publisher, "a", &payload, 1, number);
    }
    world.expect(publisher, &["PUBACK 1", "PUBACK 2", "PUBACK 3"]);
    world.hang_up(publisher);
    let of_node = |world: &World, node| {
        let sum =
            |field: fn(&MemoryReport) -> u64| world.memory(node).iter().map(field).sum::<u64>();
        let counts: [u64; 5] = [
            sum(|it| it.sessions),
            sum(|it| it.queued_messages),
            sum(|it| it.backups),
            sum(|it| it.backup_messages),
            sum(|it| it.backup_stream_bytes),
        ];
        (counts, sum(|it| it.queued_bytes), sum(|it| it.backup_bytes))
    };
    world.run_for(1_000);
    let (primary, queued, none) = of_node(&world, 1);
    assert_eq!((primary, none), ([1, 3, 0, 0, 0], 0));
    assert!(queued > 3_000, "{queued}");
    assert_eq!(of_node(&world, 0), ([0, 0, 1, 3, 0], 0, queued));
    // What is told to a node that does not answer stays under way.
    world.net.part(0, 1, Parting::Held);
    let back = world.connect(1, resuming(V5, "away", 1000));
    world.run_for(100);
    world.hang_up(back);
    let (primary, ..) = of_node(&world, 1);
    assert!(primary[4] > 0, "{primary:?}");
}

#[test]
fn what_a_primary_has_not_named_is_bounded_at_its_backup_which_asks_for_the_rest() {
    let mut world = World::new(1, Weather::CALM);
    for queue_messages in [3, 10] {
        let mut spec = NodeSpec::new(1);
        spec.limits.queue_messages = queue_messages;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_covered(&mut world);
    subscriber_gone_from(&mut world, 1);
    let publisher = client_at(&mut world, 0, Connect::new(V5, "publisher"), "CONNACK");
    world.run_for(1_000);
    let held = |world: &World| {
        world
            .memory(0)
            .iter()
            .map(|it| it.backup_messages)
            .sum::<u64>()
    };
    world.net.pause(1, 500);
    for number in 1..=5 {
        world.publish(publisher, "a", &number.to_string(), 1, number);
    }
    world.run_for(200);
    assert_eq!(held(&world), 3);
    let dropped = |world: &World| {
        let all = world.traffic(0);
        all.iter().map(|it| it.queue_dropped_messages).sum::<u64>()
    };
    assert_eq!(dropped(&world), 0, "the primary decides");
    world.run_for(3_000);
    assert_eq!(held(&world), 5, "the primary has all of them");
    let back = world.connect(1, resuming(V5, "away", 1000));
    world.tester(back).acknowledges = true;
    assert_eq!(world.hear(back).len(), 6, "CONNACK and five messages");
}

#[test]
fn in_flight_messages_resume_after_failover() {
    play(false, |world| {
        let client = client_at(world, 1, resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        for number in 1..=3 {
            world.publish(publisher, "a", &number.to_string(), 2, number);
        }
        world.expect(publisher, &["PUBREC 1", "PUBREC 2", "PUBREC 3"]);
        let heard = world.hear(client);
        assert_eq!(heard.len(), 3, "{heard:?}");
        world.send(client, &Packet::Pubrec(plain(1)));
        world.expect(client, &["PUBREL 1"]);
        world.send(client, &Packet::Pubcomp(plain(1)));
        world.send(client, &Packet::Pubrec(plain(2)));
        world.expect(client, &["PUBREL 2"]);
        world.kill(1);
        let back = world.connect(2, resuming(V5, "client", 1000));
        let heard = world.hear(back);
        // PUBCOMP was not waited for by anybody: its PUBREL may come again.
        let expected = ["CONNACK present", "PUBREL 2", "PUBLISH a '3' q2 #3 dup"];
        let heard: Vec<&str> = heard.iter().map(String::as_str).collect();
        let heard: Vec<&str> = heard
            .into_iter()
            .filter(|said| *said != "PUBREL 1")
            .collect();
        assert_eq!(heard, expected, "seed {}", world.net.seed);
    });
}

#[test]
fn a_publication_that_is_sent_again_elsewhere_is_not_taken_twice() {
    play(false, |world| {
        let subscriber = client_at(world, 0, resuming(V5, "subscriber", 1000), "CONNACK");
        world.subscribe(subscriber, "a", 2);
        let publisher = client_at(world, 1, resuming(V5, "publisher", 1000), "CONNACK");
        become_covered(world);
        world.publish(publisher, "a", "x", 2, 7);
        world.expect(publisher, &["PUBREC 7"]);
        world.expect(subscriber, &["PUBLISH a 'x' q2 #1"]);
        world.kill(1);
        let back = client_at(world, 2, resuming(V5, "publisher", 1000), "CONNACK present");
        send_again(world, back);
        world.expect(subscriber, &[]);
    });
}

#[test]
fn a_publication_that_is_sent_again_when_the_subscriber_s_node_dies_is_not_taken_twice() {
    for (first, second) in [(1, 2), (2, 1)] {
        play(false, |world| {
            let subscriber = client_at(world, 0, resuming(V5, "subscriber", 1000), "CONNACK");
            world.subscribe(subscriber, "a", 2);
            world.hang_up(subscriber);
            let publisher = client_at(world, first, resuming(V5, "publisher", 1000), "CONNACK");
            become_covered(world);
            // The primary has it, and its publisher is not told before its node dies.
            world.net.part(first, second, Parting::Held);
            world.publish(publisher, "a", "x", 2, 7);
            world.run_for(400);
            world.kill(first);
            assert_eq!(world.tester(publisher).take_heard(), [""; 0]);
            world.run_for(8_000);
            world.net.heal(first, second);
            world.start(first);
            become_covered(world);
            let connect = resuming(V5, "publisher", 1000);
            let back = client_at(world, second, connect, "CONNACK present");
            become_covered(world);
            // The backup gets it once more, and does not hear what the primary makes of it.
            world.net.part(0, second, Parting::Held);
            world.send(back, &sent_again());
            world.run_for(100);
            world.kill(0);
            world.run_for(8_000);
            let subscriber = world.connect(first, resuming(V5, "subscriber", 1000));
            let heard = world.hear(subscriber);
            let came = heard.iter().filter(|said| said.contains("'x'")).count();
            assert_eq!(came, 1, "{heard:?}, seed {}", world.net.seed);
        });
    }
}

#[test]
fn an_unsubscribe_and_the_end_of_a_session_are_not_undone() {
    play(false, |world| {
        let client = client_at(world, 1, resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 1);
        world.subscribe(client, "b", 1);
        world.send(
            client,
            &Packet::Unsubscribe(Unsubscribe::new(id(9), vec!["a"])),
        );
        let heard = world.hear(client);
        assert_eq!(heard, ["UNSUBACK 9 [00]"]);
        let ended = client_at(world, 1, resuming(V5, "ended", 1000), "CONNACK");
        world.hang_up(ended);
        let clean = client_at(world, 1, Connect::new(V5, "ended"), "CONNACK");
        world.hang_up(clean);
        become_covered(world);
        world.kill(1);
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        world.publish(publisher, "a", "not wanted", 1, 1);
        world.publish(publisher, "b", "wanted", 1, 2);
        assert_eq!(world.hear(publisher), ["PUBACK 1 0x10", "PUBACK 2"]);
        let back = world.connect(2, resuming(V5, "client", 1000));
        world.expect(back, &["CONNACK present", "PUBLISH b 'wanted' q1 #21846"]);
        client_at(world, 2, resuming(V5, "ended", 1000), "CONNACK");
    });
}

#[test]
fn the_will_of_a_client_goes_out_when_its_node_dies() {
    play(false, |world| {
        let watcher = client_at(world, 0, Connect::new(V5, "watcher"), "CONNACK");
        world.subscribe(watcher, "will", 1);
        let connect = Connect {
            will: Some(Will::new("will", b"gone")),
            ..resuming(V5, "mortal", 1000)
        };
        client_at(world, 1, connect, "CONNACK");
        become_covered(world);
        world.kill(1);
        world.run_for(4_000);
        assert_eq!(world.hear(watcher), ["PUBLISH will 'gone'"]);
    });
}

#[test]
fn a_node_that_returns_with_its_data_gives_up_sessions_that_failed_over() {
    play(true, |world| {
        subscriber_gone_from(world, 1);
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        world.publish(publisher, "a/1", "one", 1, 1);
        world.expect(publisher, &["PUBACK 1"]);
        become_covered(world);
        world.kill(1);
        let back = world.connect(2, resuming(V5, "away", 1000));
        world.expect(back, &["CONNACK present", "PUBLISH a/1 'one' q1 #21846"]);
        world.send(back, &Packet::Puback(plain(21_846)));
        world.publish(publisher, "a/2", "two", 1, 2);
        world.expect(publisher, &["PUBACK 2"]);
        world.hear(back);
        world.send(back, &Packet::Puback(plain(21_847)));
        world.hang_up(back);
        world.start(1);
        become_covered(world);
        world.publish(publisher, "a/3", "three", 1, 3);
        world.expect(publisher, &["PUBACK 3"]);
        // What it had kept is done with, and what came meanwhile is not lost.
        let back = world.connect(1, resuming(V5, "away", 1000));
        world.expect(back, &["CONNACK present", "PUBLISH a/3 'three' q1 #21848"]);
    });
}

#[test]
fn a_node_is_drained_without_a_loss_and_without_a_will() {
    play(false, |world| {
        let watcher = client_at(world, 0, Connect::new(V5, "watcher"), "CONNACK");
        world.subscribe(watcher, "will/#", 1);
        subscriber_gone_from(world, 1);
        let with_will = |client_id, expiry| Connect {
            will: Some(Will::new("will/x", b"gone")),
            ..resuming(V5, client_id, expiry)
        };
        let here = client_at(world, 1, with_will("here", 1000), "CONNACK");
        world.subscribe(here, "b", 2);
        let clean = client_at(world, 1, with_will("clean", 0), "CONNACK");
        let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
        world.publish(publisher, "a/1", "one", 1, 1);
        world.publish(publisher, "b", "two", 2, 2);
        world.expect(publisher, &["PUBACK 1", "PUBREC 2"]);
        assert_eq!(world.hear(here), ["PUBLISH b 'two' q2 #1"]);
        assert!(world.drain(1), "nothing is left (seed {})", world.net.seed);
        assert_eq!(world.hear(here), ["DISCONNECT 0x9C", "closed"]);
        assert_eq!(world.hear(clean), ["DISCONNECT 0x9C", "closed"]);
        let late = world.connect(1, Connect::new(V5, "late"));
        assert_eq!(world.hear(late), ["CONNACK 0x9C", "closed"]);
        world.publish(publisher, "b", "three", 1, 3);
        world.expect(publisher, &["PUBACK 3"]);
        world.stop(1);
        let back = world.connect(2, resuming(V5, "here", 1000));
        let expected = [
            "CONNACK present",
            "PUBLISH b 'two' q2 #1 dup",
            "PUBLISH b 'three' q1 #2",
        ];
        world.expect(back, &expected);
        let back = world.connect(0, resuming(V5, "away", 1000));
        world.expect(back, &["CONNACK present", "PUBLISH a/1 'one' q1 #1"]);
        world.run_for(3_000);
        assert_eq!(world.hear(watcher), Vec::<String>::new());
    });
}

/// What a client sends while a drain begins is answered before its session goes, or not read: else it is taken for new where it is sent again.
#[test]
fn what_is_published_when_a_drain_begins_comes_once() {
    for delay in 0..40 {
        let mut world = World::new(delay, Weather::CALM);
        for _ in 0..3 {
            let node = world.add_node(NodeSpec::new(1));
            world.start(node);
        }
        become_covered(&mut world);
        let subscriber = client_at(&mut world, 0, Connect::new(V5, "subscriber"), "CONNACK");
        world.subscribe(subscriber, "a", 2);
        let publisher = client_at(&mut world, 1, resuming(V5, "publisher", 1000), "CONNACK");
        become_covered(&mut world);
        world.publish(publisher, "a", "one", 2, 1);
        world.net.now += delay / 8;
        world.nodes[1].drain(&mut world.net);
        world.run_for(delay % 8);
        world.nodes[1].drain(&mut world.net);
        assert!(world.drain(1), "nothing is left");
        let back = world.connect(2, resuming(V5, "publisher", 1000));
        let heard = world.hear(back);
        assert_eq!(heard.first().map(String::as_str), Some("CONNACK present"));
        let publish = Publish {
            qos: Qos::ExactlyOnce,
            packet_id: Some(id(1)),
            dup: true,
            ..Publish::new("a", b"one")
        };
        world.send(back, &Packet::Publish(publish));
        assert!(world.hear(back).starts_with(&["PUBREC 1".to_owned()]));
        assert_eq!(world.hear(subscriber), ["PUBLISH a 'one' q2 #1"], "{delay}");
    }
}

#[test]
fn clients_of_a_drained_node_do_not_all_go_at_once() {
    const CLIENTS: u64 = 300;
    play(false, |world| {
        for number in 0..CLIENTS {
            let client_id = format!("client-{number}");
            let connect = Connect {
                keep_alive: 0,
                ..Connect::new(V5, &client_id)
            };
            client_at(world, 1, connect, "CONNACK");
        }
        let left = world.nodes[1].drain(&mut world.net).connections;
        assert!(0 < left && left < CLIENTS, "{left} are left");
        assert!(world.drain(1), "nothing is left (seed {})", world.net.seed);
    });
}

#[test]
fn a_session_with_a_large_queue_has_its_backup_again_after_a_failover() {
    const MESSAGES: u16 = 24;
    let payload = "x".repeat(1_000_000);
    let mut world = World::new(1, Weather::CALM);
    for _ in 0..3 {
        let mut spec = NodeSpec::new(1);
        spec.sync_part_bytes = 1024 * 1024;
        spec.overlay_limits.control_bytes = 20 * 1024 * 1024;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_covered(&mut world);
    subscriber_gone_from(&mut world, 0);
    let publisher = client_at(&mut world, 1, Connect::new(V5, "publisher"), "CONNACK");
    for number in 1..=MESSAGES {
        world.publish(publisher, "a", &payload, 1, number);
        world.run_for(200);
    }
    become_covered(&mut world);
    world.kill(0);
    become_covered(&mut world);
    let sessions = world.sessions();
    let away = sessions.iter().find(|(_, it)| it.client_id == "away");
    let (node, queued) = away
        .map(|(node, it)| (*node, it.queued_messages))
        .expect("it is there");
    assert_eq!(queued, usize::from(MESSAGES));
    // The backup has all of it.
    world.kill(node);
    world.run_for(3_000);
    let sessions = world.sessions();
    let away = sessions.iter().find(|(_, it)| it.client_id == "away");
    assert_eq!(away.map(|(_, it)| it.queued_messages), Some(queued));
}

/// The primary sends the whole session to another node when one stands still. What it has finished by then is not part of it, and comes to the node that
/// stood still for another session there, which has no backup.
#[test]
fn what_was_finished_before_a_backup_was_replaced_does_not_come_from_the_former_one() {
    for (stands_still, other) in [(1, 2), (2, 1)] {
        for seed in 1..=3 {
            let mut world = World::new(seed, Weather::CALM);
            for index in 0..3 {
                let mut spec = NodeSpec::new(1);
                spec.backups = u8::from(index != stands_still);
                let node = world.add_node(spec);
                world.start(node);
            }
            become_covered(&mut world);
            let there = resuming(V5, "there", 1000);
            let there = client_at(&mut world, stands_still, there, "CONNACK");
            world.subscribe(there, "a", 1);
            let client = client_at(&mut world, 0, resuming(V5, "client", 1000), "CONNACK");
            world.subscribe(client, "a", 2);
            become_covered(&mut world);
            let publisher = client_at(&mut world, other, Connect::new(V5, "publisher"), "CONNACK");
            world.pause(stands_still);
            world.publish(publisher, "a", "finished", 2, 1);
            world.expect(client, &["PUBLISH a 'finished' q2 #1"]);
            world.send(client, &Packet::Pubrec(plain(1)));
            world.expect(client, &["PUBREL 1"]);
            world.send(client, &Packet::Pubcomp(plain(1)));
            // The node counts as down, and the other one has a backup instead.
            world.run_for(4_000);
            world.kill(0);
            world.run_for(2_000);
            world.resume(stands_still);
            world.run_for(4_000);
            let back = world.connect(other, resuming(V5, "client", 1000));
            world.expect(back, &["CONNACK present"]);
        }
    }
}

/// Sessions go to another node, because theirs is drained or because their clients connect there, and it dies at any moment of the time in which no third
/// node has them yet.
#[test]
fn sessions_whose_new_node_dies_at_once_have_all_that_was_acknowledged() {
    const SESSIONS: usize = 20;
    let mut lost = Vec::new();
    for (weather, drains) in [
        (Weather::CALM, true),
        (Weather::ROUGH, true),
        (Weather::CALM, false),
        (Weather::ROUGH, false),
    ] {
        for millis in 1..=40 {
            let mut world = World::new(millis, weather);
            for _ in 0..3 {
                let node = world.add_node(NodeSpec::new(1));
                world.start(node);
            }
            become_covered(&mut world);
            let names: Vec<String> = (0..SESSIONS).map(|it| format!("away-{it}")).collect();
            for name in &names {
                let away = client_at(&mut world, 0, resuming(V5, name, 1000), "CONNACK");
                world.subscribe(away, "a", 1);
                world.hang_up(away);
            }
            let publisher = client_at(&mut world, 1, Connect::new(V5, "publisher"), "CONNACK");
            world.publish(publisher, "a", &"x".repeat(100_000), 1, 1);
            world.expect(publisher, &["PUBACK 1"]);
            become_covered(&mut world);
            if !drains {
                for name in &names {
                    world.connect(1, resuming(V5, name, 1000));
                }
            }
            let mut acknowledged = vec!["1".to_owned()];
            for number in 2..=40 + millis as u16 {
                if drains {
                    world.nodes[0].drain(&mut world.net);
                }
                world.publish(publisher, "a", &number.to_string(), 1, number);
                world.run_for(1);
                for said in world.tester(publisher).take_heard() {
                    let number = said.strip_prefix("PUBACK ").expect("it is acknowledged");
                    acknowledged.push(number.to_owned());
                }
            }
            world.kill(1);
            world.run_for(5_000);
            for name in &names {
                let client = world.connect(2, resuming(V5, name, 1000));
                let heard = world.hear(client);
                let arrived = |number: &&String| {
                    let text = if *number == "1" { "x" } else { number };
                    let said = format!("PUBLISH a '{text}");
                    heard.iter().any(|it| it.starts_with(&said))
                };
                let missing = acknowledged.iter().filter(|it| !arrived(it)).count();
                if missing > 0 {
                    lost.push((weather.link_delay, drains, millis, name.clone(), missing));
                }
            }
        }
    }
    assert!(lost.is_empty(), "{lost:?}");
}
