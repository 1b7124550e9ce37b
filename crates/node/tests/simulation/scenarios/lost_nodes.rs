//! Wills of clients whose node is gone: another node holds each, that of a session which ends with its connection too.

use thicket_mqtt::{Connect, Disconnect, Packet, ProtocolVersion, Subscribe, Will};
use thicket_node::Partition;

use super::{
    V5, V311,
    backups::{become_covered, play},
    cluster::client_at,
    id, qos, resuming, rights,
};
use thicket_simulation::{
    TesterId, World,
    net::{Parting, Weather},
    node::NodeSpec,
};

const GONE: &str = "PUBLISH will/mortal 'gone' q1 #1";

/// A CONNECT with a will of QoS 1 to `will/mortal`, of a session that ends with its connection.
fn mortal(version: ProtocolVersion, delay_interval: u32) -> Connect<'static> {
    Connect {
        will: Some(Will {
            qos: qos(1),
            delay_interval,
            ..Will::new("will/mortal", b"gone")
        }),
        ..resuming(version, "mortal", 0)
    }
}

/// Somebody at a node who hears all wills.
fn watcher_at(world: &mut World, node: usize) -> TesterId {
    let watcher = client_at(world, node, Connect::new(V5, "watcher"), "CONNACK");
    world.subscribe(watcher, "will/#", 1);
    watcher
}

#[track_caller]
fn expect_within(world: &mut World, tester: TesterId, millis: u64, expected: &[&str]) {
    world.run_for(millis);
    let heard = world.tester(tester).take_heard();
    assert_eq!(heard, expected, "seed {}", world.net.seed);
}

/// The node that holds wills of other nodes' clients.
#[track_caller]
fn holder(world: &World) -> usize {
    let holds = |node: &usize| world.memory(*node).iter().any(|it| it.held_wills > 0);
    let mut holders = (0..world.nodes.len()).filter(holds);
    let holder = holders.next().expect("a node holds the will");
    assert_eq!(holders.next(), None, "and no other");
    holder
}

/// What two nodes are called that are not `node`.
fn others(node: usize) -> (usize, usize) {
    ((node + 1) % 3, (node + 2) % 3)
}

#[test]
fn a_will_goes_out_once_when_the_node_of_a_clean_session_dies() {
    for (version, delay) in [(V311, 0), (V5, 0), (V5, 100)] {
        play(false, |world| {
            let watcher = watcher_at(world, 0);
            let away = client_at(world, 2, resuming(V5, "away", 1000), "CONNACK");
            world.subscribe(away, "will/#", 1);
            world.hang_up(away);
            client_at(world, 1, mortal(version, delay), "CONNACK");
            world.kill(1);
            // A delay ends with the session, and that with the connection.
            expect_within(world, watcher, 4_000, &[GONE]);
            world.start(1);
            become_covered(world);
            world.expect(watcher, &[]);
            let away = world.connect(0, resuming(V5, "away", 1000));
            let heard = world.hear(away);
            assert_eq!(heard.len(), 2, "{heard:?}");
            assert!(heard[1].starts_with("PUBLISH will/mortal 'gone'"));
        });
    }
}

#[test]
fn a_will_that_was_called_off_or_has_gone_out_does_not_go_out_when_the_node_dies() {
    type End = fn(&mut World, TesterId);
    let cases: [(&str, End, &[&str]); 3] = [
        (
            "DISCONNECT",
            |world, client| world.send(client, &Packet::Disconnect(Disconnect::default())),
            &[],
        ),
        (
            "the network fails",
            |world, client| world.hang_up(client),
            &[GONE],
        ),
        (
            "another connection without a will",
            |world, _| {
                client_at(world, 1, resuming(V5, "mortal", 0), "CONNACK");
            },
            &[GONE],
        ),
    ];
    for (name, end, expected) in cases {
        play(false, |world| {
            let watcher = watcher_at(world, 0);
            let client = client_at(world, 1, mortal(V5, 0), "CONNACK");
            end(world, client);
            world.run_for(1_000);
            world.kill(1);
            world.run_for(4_000);
            let heard = world.tester(watcher).take_heard();
            assert_eq!(heard, expected, "{name}, seed {}", world.net.seed);
        });
    }
}

#[test]
fn after_a_takeover_on_another_node_only_the_death_of_that_one_counts() {
    for expiry in [0, 1000] {
        play(false, |world| {
            let connect = || Connect {
                session_expiry_interval: (expiry > 0).then_some(expiry),
                clean_start: expiry == 0,
                ..mortal(V5, 0)
            };
            let watcher = watcher_at(world, 0);
            client_at(world, 1, connect(), "CONNACK");
            become_covered(world);
            let second = world.connect(2, connect());
            // Whoever held the first one's will has forgotten it when the second one is answered.
            while world.tester(second).take_heard().is_empty() {
                world.run_for(1);
            }
            world.kill(1);
            expect_within(world, watcher, 4_000, &[GONE]);
            world.start(1);
            become_covered(world);
            world.kill(2);
            expect_within(world, watcher, 4_000, &["PUBLISH will/mortal 'gone' q1 #2"]);
        });
    }
}

#[test]
fn a_will_goes_out_though_its_node_dies_before_all_have_it() {
    for (expiry, node) in [(0, 0), (0, 2), (1000, 0), (1000, 2)] {
        play(false, |world| {
            let watcher = watcher_at(world, node);
            let mut connect = mortal(V5, 0);
            connect.session_expiry_interval = (expiry > 0).then_some(expiry);
            let client = client_at(world, 1, connect, "CONNACK");
            become_covered(world);
            // The will is on its way to the watcher, and whoever has the backup hears that it goes out.
            world.net.part(1, node, Parting::Held);
            world.hang_up(client);
            world.run_for(200);
            world.kill(1);
            world.run_for(8_000);
            let heard = world.tester(watcher).take_heard();
            let seed = world.net.seed;
            assert!(
                !heard.is_empty(),
                "node {node}, expiry {expiry}, seed {seed}"
            );
            assert!(
                heard
                    .iter()
                    .all(|it| it.starts_with("PUBLISH will/mortal 'gone'")),
                "{heard:?}"
            );
        });
    }
}

#[test]
fn a_will_is_not_published_twice_if_only_its_node_considered_the_holder_down() {
    let mut found = 0;
    for seed in 1..=400 {
        let mut world = World::new(seed, Weather::CALM);
        for _ in 0..2 {
            let node = world.add_node(NodeSpec::new(1));
            world.start(node);
        }
        become_covered(&mut world);
        let client = client_at(&mut world, 0, mortal(V5, 0), "CONNACK");
        let watcher = watcher_at(&mut world, 1);
        world.net.part(0, 1, Parting::Held);
        let sees = |world: &World, node: usize| world.reachable_from(node).len() > 1;
        while sees(&world, 0) && sees(&world, 1) {
            world.run_for(1);
        }
        if !sees(&world, 1) {
            continue;
        }
        world.net.heal(0, 1);
        world.hang_up(client);
        become_covered(&mut world);
        let mut events = world.nodes[1].events.iter();
        found += usize::from(!events.any(|(_, event)| event.message == "node is down"));
        world.tester(watcher).take_heard();
        world.kill(0);
        expect_within(&mut world, watcher, 4_000, &[]);
    }
    assert!(found > 0, "in one run of a hundred only one node notices");
}

#[test]
fn a_client_that_is_back_on_another_node_speaks_after_its_will() {
    play(false, |world| {
        let watcher = watcher_at(world, 0);
        client_at(world, 1, mortal(V5, 0), "CONNACK");
        world.kill(1);
        let back = world.connect(2, mortal(V5, 0));
        for _ in 0..10_000 {
            if !world.tester(back).take_heard().is_empty() {
                break;
            }
            world.run_for(1);
        }
        world.publish(back, "will/mortal", "here", 1, 1);
        let heard = world.hear(watcher);
        let expected = [GONE, "PUBLISH will/mortal 'here' q1 #2"];
        assert_eq!(heard, expected, "seed {}", world.net.seed);
    });
}

#[test]
fn a_retained_will_of_a_dead_node_is_kept_by_all_nodes() {
    play(false, |world| {
        let mut connect = mortal(V5, 0);
        if let Some(will) = &mut connect.will {
            will.retain = true;
        }
        client_at(world, 1, connect, "CONNACK");
        world.kill(1);
        world.run_for(4_000);
        world.start(1);
        become_covered(world);
        world.run_for(1_000);
        for node in 0..3 {
            let name = format!("late-{node}");
            let late = client_at(world, node, Connect::new(V5, &name), "CONNACK");
            let subscribe = Subscribe::new(id(1), "will/#", qos(0));
            world.send(late, &Packet::Subscribe(subscribe));
            let expected = ["SUBACK 1 [00]", "PUBLISH will/mortal 'gone' retain"];
            world.expect(late, &expected);
        }
    });
}

#[test]
fn another_node_holds_the_will_when_its_holder_dies_first() {
    play(false, |world| {
        client_at(world, 1, mortal(V5, 0), "CONNACK");
        let first = holder(world);
        world.kill(first);
        let (one, other) = others(first);
        let watcher = watcher_at(world, if one == 1 { other } else { one });
        world.run_for(4_000);
        world.expect(watcher, &[]);
        assert_ne!(holder(world), first);
        world.kill(1);
        expect_within(world, watcher, 4_000, &[GONE]);
    });
}

#[test]
fn a_will_is_replicated_again_to_a_holder_that_has_lost_it() {
    type Loss = fn(&mut World);
    let losses: [(&str, Loss); 2] = [
        ("its links break", |world| {
            for link in world.net.links() {
                world.cut_link(link);
            }
        }),
        ("it is started again", |world| {
            world.kill(0);
            world.run_for(500);
            world.start(0);
        }),
    ];
    for (name, loss) in losses {
        for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
            let mut world = World::new(seed, weather);
            for workers in 1..=2 {
                let node = world.add_node(NodeSpec::new(workers));
                world.start(node);
            }
            become_covered(&mut world);
            client_at(&mut world, 1, mortal(V5, 0), "CONNACK");
            loss(&mut world);
            world.run_for(3_000);
            become_covered(&mut world);
            let watcher = watcher_at(&mut world, 0);
            world.kill(1);
            world.run_for(4_000);
            let heard = world.tester(watcher).take_heard();
            assert_eq!(heard, [GONE], "{name}, seed {seed}");
        }
    }
}

#[test]
fn a_session_that_does_not_outlive_its_connection_any_more_has_its_will_held() {
    play(false, |world| {
        let watcher = watcher_at(world, 0);
        let before = client_at(world, 1, resuming(V5, "mortal", 1000), "CONNACK");
        world.subscribe(before, "a", 1);
        world.hang_up(before);
        let connect = Connect {
            clean_start: false,
            ..mortal(V5, 0)
        };
        client_at(world, 1, connect, "CONNACK present");
        world.kill(1);
        expect_within(world, watcher, 4_000, &[GONE]);
        // Of the session itself nothing is left.
        client_at(world, 2, resuming(V5, "mortal", 1000), "CONNACK");
    });
}

#[test]
fn a_will_is_held_from_when_there_is_another_node() {
    let mut world = World::new(1, Weather::CALM);
    for _ in 0..2 {
        world.add_node(NodeSpec::new(1));
    }
    world.start(0);
    world.run_for(2_000);
    client_at(&mut world, 0, mortal(V5, 0), "CONNACK");
    let quiet = Connect::new(V5, "quiet");
    client_at(&mut world, 0, quiet, "CONNACK");
    world.start(1);
    become_covered(&mut world);
    assert_eq!(holder(&world), 1);
    let watcher = watcher_at(&mut world, 1);
    world.kill(0);
    expect_within(&mut world, watcher, 4_000, &[GONE]);
    let held = |it: &thicket_node::MemoryReport| it.held_wills + it.held_will_bytes;
    assert_eq!(world.memory(1).iter().map(held).sum::<u64>(), 0);
    let counted = world
        .traffic(1)
        .iter()
        .map(|it| it.wills_of_lost_nodes)
        .sum::<u64>();
    assert_eq!(counted, 1);
}

#[test]
fn a_partition_may_publish_a_will_too_early_and_its_session_has_it_again_afterwards() {
    for parting in [Parting::Cut, Parting::Held] {
        play(false, |world| {
            let client = client_at(world, 1, mortal(V5, 0), "CONNACK");
            let watcher = watcher_at(world, 0);
            for other in [0, 2] {
                world.net.part(1, other, parting);
            }
            expect_within(world, watcher, 6_000, &[GONE]);
            for other in [0, 2] {
                world.net.heal(1, other);
            }
            become_covered(world);
            world.run_for(3_000);
            world.send(client, &Packet::Pingreq);
            world.expect(client, &["PINGRESP"]);
            world.expect(watcher, &[]);
            world.kill(1);
            expect_within(world, watcher, 4_000, &["PUBLISH will/mortal 'gone' q1 #2"]);
        });
    }
}

#[test]
fn a_holder_on_the_smaller_side_does_not_publish_later_what_others_published() {
    for parting in [Parting::Cut, Parting::Held] {
        for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH)] {
            let mut world = World::new(seed, weather);
            for _ in 0..5 {
                let mut spec = NodeSpec::new(1);
                spec.partition = Partition::Majority;
                let node = world.add_node(spec);
                world.start(node);
            }
            become_covered(&mut world);
            client_at(&mut world, 1, mortal(V5, 0), "CONNACK");
            let first = holder(&world);
            let watcher = watcher_at(&mut world, if first == 0 { 2 } else { 0 });
            for other in (0..5).filter(|other| *other != first) {
                world.net.part(first, other, parting);
            }
            world.run_for(4_000);
            world.kill(1);
            expect_within(&mut world, watcher, 4_000, &[GONE]);
            world.start(1);
            world.run_for(2_000);
            for other in (0..5).filter(|other| *other != first) {
                world.net.heal(first, other);
            }
            become_covered(&mut world);
            expect_within(&mut world, watcher, 3_000, &[]);
        }
    }
}

#[test]
fn a_node_that_is_drained_or_stopped_leaves_no_will_behind() {
    play(false, |world| {
        let watcher = watcher_at(world, 0);
        client_at(world, 1, mortal(V5, 0), "CONNACK");
        assert!(world.drain(1), "nothing is left (seed {})", world.net.seed);
        world.kill(1);
        expect_within(world, watcher, 4_000, &[]);
    });
    play(false, |world| {
        let watcher = watcher_at(world, 0);
        client_at(world, 1, mortal(V5, 0), "CONNACK");
        world.stop(1);
        expect_within(world, watcher, 4_000, &[GONE]);
    });
}

#[test]
fn nobody_publishes_a_will_that_its_client_may_not() {
    const MAY: &str = "user ann\ntopic will/#\nuser watcher\ntopic will/#\n";
    const MAY_NOT: &str = "user ann\ntopic other/#\nuser watcher\ntopic will/#\n";
    for expiry in [0, 1000] {
        let cases: [(&[&str], bool); 3] =
            [(&[], true), (&[MAY_NOT], false), (&[MAY_NOT, MAY], true)];
        for (reloaded, goes_out) in cases {
            let mut world = World::new(1, Weather::CALM);
            let policy = |acl: &str| rights::policy(&["ann", "watcher"], acl);
            for _ in 0..2 {
                let mut spec = NodeSpec::new(1);
                rights::with(policy(MAY))(&mut spec);
                let node = world.add_node(spec);
                world.start(node);
            }
            become_covered(&mut world);
            let connect = rights::as_user("watcher", Connect::new(V5, "watcher"));
            let watcher = client_at(&mut world, 0, connect, "CONNACK");
            world.subscribe(watcher, "will/#", 1);
            let connect = Connect {
                session_expiry_interval: (expiry > 0).then_some(expiry),
                ..rights::as_user("ann", mortal(V5, 0))
            };
            client_at(&mut world, 1, connect, "CONNACK");
            for acl in reloaded {
                world.reload(1, policy(acl));
                world.run_for(1_000);
            }
            world.kill(1);
            let expected: &[&str] = if goes_out { &[GONE] } else { &[] };
            expect_within(&mut world, watcher, 5_000, expected);
        }
    }
}

#[test]
fn a_persistent_session_that_fails_over_leaves_no_will_without_delay_unsent() {
    for (delay, expected) in [(0, &[GONE][..]), (100, &[])] {
        play(false, |world| {
            let watcher = watcher_at(world, 0);
            let persistent = || Connect {
                session_expiry_interval: Some(1000),
                clean_start: false,
                ..mortal(V5, delay)
            };
            client_at(world, 1, persistent(), "CONNACK");
            world.kill(1);
            for node in [0, 2] {
                let back = world.connect(node, persistent());
                for _ in 0..10_000 {
                    if !world.tester(back).take_heard().is_empty() {
                        break;
                    }
                    world.run_for(1);
                }
                world.send(back, &Packet::Disconnect(Disconnect::default()));
                // It arrives before the client connects to the next node, which would end the connection without it.
                world.run_for(100);
            }
            expect_within(world, watcher, 4_000, expected);
        });
    }
}

/// How long a CONNECT waits for its CONNACK, ms; only bytes between nodes take time, each way as long as the next.
fn connect_millis(world: &mut World, connect: Connect<'_>) -> u64 {
    let tester = world.connect(0, connect);
    let began = world.net.now;
    for _ in 0..10_000 {
        world.wake_tester(tester);
        world.run_for(1);
        if !world.tester(tester).take_heard().is_empty() {
            world.send(tester, &Packet::Disconnect(Disconnect::default()));
            world.run_for(1_000);
            return world.net.now - 1_000 - began;
        }
    }
    panic!("CONNACK comes");
}

#[test]
fn a_connect_with_a_will_waits_one_round_trip_between_nodes_longer_and_any_other_none() {
    const ONE_WAY: u64 = 100;
    let of_nodes = |count: usize| {
        let mut world = World::new(1, Weather::CALM);
        for _ in 0..count {
            let node = world.add_node(NodeSpec::new(1));
            world.start(node);
        }
        become_covered(&mut world);
        world.net.weather = Weather {
            link_delay: (ONE_WAY, ONE_WAY),
            client_delay: (0, 0),
            ..Weather::CALM
        };
        let clean = || resuming(V5, "mortal", 0);
        let plain = connect_millis(&mut world, clean());
        let with_will = connect_millis(&mut world, mortal(V5, 0));
        let again = connect_millis(&mut world, clean());
        let persistent = connect_millis(&mut world, resuming(V5, "mortal", 1000));
        let round_trips = |millis: u64| (millis + ONE_WAY) / (2 * ONE_WAY);
        [plain, with_will, again, persistent].map(round_trips)
    };
    // The client identifier falls to node 0 of one, and to another one of two.
    for count in 1..=3 {
        let [plain, with_will, again, persistent] = of_nodes(count);
        let more = u64::from(count > 1);
        assert_eq!(
            (again, with_will - plain, persistent - plain),
            (plain, more, more),
            "{count} nodes"
        );
    }
}
