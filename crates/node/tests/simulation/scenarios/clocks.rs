//! The wall clock is set back or forward by an hour, while a node runs or while it does not; the wall clocks of two nodes are a minute to years apart.

use std::ops::Range;

use thicket_mqtt::{Connect, Packet, Publish, Qos, Subscribe, Will};
use thicket_node::{Ban, BanSubject};
use thicket_session::time::WallClock;

use super::{V5, backups::become_covered, cluster::client_at, id, resuming};
use thicket_simulation::{
    TesterId, World,
    net::{Parting, Weather},
    node::NodeSpec,
};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const YEAR: u64 = 365 * 24 * HOUR;

/// Two nodes that keep what they store, an hour after the time that the world begins at.
#[track_caller]
fn play(scenario: impl Fn(&mut World)) {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH)] {
        let mut world = World::new(seed, weather);
        for _ in 0..2 {
            let mut spec = NodeSpec::new(2);
            spec.stores = true;
            spec.wall_ahead = HOUR;
            let node = world.add_node(spec);
            world.start(node);
        }
        world.run_for(5_000);
        assert!(world.is_whole(), "seed {seed}");
        scenario(&mut world);
    }
}

fn set_clock(world: &mut World, node: usize, ahead: u64) {
    world.nodes[node].spec.wall_ahead = ahead;
}

/// A retained message from a client of a node, which is there once it is acknowledged.
#[track_caller]
fn retain_at(world: &mut World, node: usize, payload: &str) {
    let publisher = client_at(world, node, Connect::new(V5, "publisher"), "CONNACK");
    let publish = Publish {
        qos: Qos::AtLeastOnce,
        packet_id: Some(id(7)),
        retain: true,
        ..Publish::new("a", payload.as_bytes())
    };
    world.send(publisher, &Packet::Publish(publish));
    let heard = world.hear(publisher);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].starts_with("PUBACK 7"), "{heard:?}");
    world.hang_up(publisher);
    world.run_for(1_000);
}

#[track_caller]
fn assert_retained_at(world: &mut World, nodes: Range<usize>, expected: &str) {
    for node in nodes {
        let client = client_at(world, node, Connect::new(V5, "looking"), "CONNACK");
        let subscribe = Subscribe::new(id(1), "a", Qos::AtMostOnce);
        world.send(client, &Packet::Subscribe(subscribe));
        let retained = format!("PUBLISH a '{expected}' retain");
        world.expect(client, &["SUBACK 1 [00]", &retained]);
        world.hang_up(client);
        world.run_for(1_000);
    }
}

#[test]
fn a_retained_message_is_replaced_though_the_clock_was_set_back() {
    for (written_at, replaced_at) in [(0, 0), (0, 1)] {
        play(|world| {
            retain_at(world, written_at, "old");
            for node in 0..2 {
                set_clock(world, node, 0);
            }
            retain_at(world, replaced_at, "new");
            assert_retained_at(world, 0..2, "new");
            set_clock(world, replaced_at, HOUR);
            retain_at(world, replaced_at, "newer");
            assert_retained_at(world, 0..2, "newer");
        });
    }
}

#[test]
fn a_retained_message_is_replaced_though_the_clock_was_set_back_while_the_nodes_were_down() {
    play(|world| {
        retain_at(world, 0, "old");
        for node in 0..2 {
            world.kill(node);
            set_clock(world, node, 0);
        }
        for node in 0..2 {
            world.start(node);
        }
        world.run_for(5_000);
        for (node, payload) in [(1, "new"), (0, "newer")] {
            retain_at(world, node, payload);
            assert_retained_at(world, 0..2, payload);
        }
    });
}

#[test]
fn wills_and_sessions_of_a_node_that_runs_do_not_go_by_the_wall_clock() {
    for ahead in [0, 2 * HOUR] {
        play(|world| {
            let watcher = client_at(world, 0, Connect::new(V5, "watcher"), "CONNACK");
            world.subscribe(watcher, "will", 0);
            let connect = Connect {
                will: Some(Will {
                    delay_interval: 20,
                    ..Will::new("will", b"gone")
                }),
                ..resuming(V5, "client", 40)
            };
            let client = client_at(world, 0, connect, "CONNACK");
            world.hang_up(client);
            world.run_for(1_000);
            set_clock(world, 0, ahead);
            world.run_for(15_000);
            world.expect(watcher, &[]);
            world.run_for(5_000);
            world.expect(watcher, &["PUBLISH will 'gone'"]);
            let back = client_at(world, 0, resuming(V5, "client", 40), "CONNACK present");
            world.hang_up(back);
            world.run_for(45_000);
            client_at(world, 0, resuming(V5, "client", 40), "CONNACK");
        });
    }
}

#[test]
fn a_step_between_stop_and_start_shifts_an_expiry_by_no_more_than_the_step() {
    for (ahead, expiry, is_there) in [
        (0, 100, true),
        (HOUR + 30_000, 100, true),
        (2 * HOUR, 100, false),
    ] {
        play(|world| {
            let client = client_at(world, 0, resuming(V5, "client", expiry), "CONNACK");
            world.hang_up(client);
            world.run_for(1_000);
            for node in 0..2 {
                world.kill(node);
            }
            set_clock(world, 0, ahead);
            for node in 0..2 {
                world.start(node);
            }
            world.run_for(5_000);
            let answer = if is_there {
                "CONNACK present"
            } else {
                "CONNACK"
            };
            let back = client_at(world, 0, resuming(V5, "client", expiry), answer);
            world.hang_up(back);
            world.run_for(110_000);
            client_at(world, 0, resuming(V5, "client", expiry), "CONNACK");
        });
    }
}

/// Three nodes. The clock of the second one is ahead of the clocks of the others, or behind.
#[track_caller]
fn play_apart(stores: bool, scenario: impl Fn(&mut World)) {
    let base = 20 * YEAR;
    for second in [
        base,
        base + MINUTE,
        base - MINUTE,
        base + 10 * YEAR,
        base - 10 * YEAR,
    ] {
        for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH)] {
            let mut world = World::new(seed, weather);
            for (workers, wall_ahead) in [(1, base), (2, second), (1, base)] {
                let mut spec = NodeSpec::new(workers);
                spec.stores = stores;
                spec.wall_ahead = wall_ahead;
                let node = world.add_node(spec);
                world.start(node);
            }
            become_covered(&mut world);
            scenario(&mut world);
        }
    }
}

/// Lets the world run until `millis` after `since`.
#[track_caller]
fn run_until(world: &mut World, since: u64, millis: u64) {
    let left = (since + millis).checked_sub(world.net.now);
    world.run_for(left.expect("it is not that late yet"));
}

/// A publication of QoS 1 with an expiry, acknowledged.
#[track_caller]
fn publish_expiring(world: &mut World, publisher: TesterId, topic: &str, seconds: u32, as_id: u16) {
    let payload = format!("{seconds} s");
    let publish = Publish {
        qos: Qos::AtLeastOnce,
        packet_id: Some(id(as_id)),
        message_expiry_interval: Some(seconds),
        ..Publish::new(topic, payload.as_bytes())
    };
    world.send(publisher, &Packet::Publish(publish));
    world.expect(publisher, &[&format!("PUBACK {as_id}")]);
}

/// What a client finds that connects to a node: whether its session is there, and the payloads with the seconds that they have left.
fn find(world: &mut World, node: usize, client_id: &str, expiry: u32) -> (bool, Vec<String>) {
    let client = world.connect(node, resuming(V5, client_id, expiry));
    let heard = world.hear(client);
    world.hang_up(client);
    let left = |said: &String| {
        let payload = said.split('\'').nth(1)?;
        let seconds = said.split(" expiry=").nth(1)?.split(' ').next()?;
        Some(format!("{payload}: {seconds}"))
    };
    let is_present = heard.iter().any(|said| said.starts_with("CONNACK present"));
    assert!(
        heard.iter().any(|said| said.starts_with("CONNACK")),
        "{heard:?}"
    );
    (is_present, heard.iter().filter_map(left).collect())
}

/// Whether these are the messages of one expiry each, with about so many seconds left.
fn have_left(found: &[String], expected: &[(u32, u32)]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, (expiry, left))| {
            let seconds = found.strip_prefix(&format!("{expiry} s: "));
            let seconds = seconds.and_then(|it| it.parse::<u32>().ok());
            seconds.is_some_and(|seconds| (*left..=*left + 8).contains(&seconds))
        })
}

#[test]
fn a_session_expires_after_its_interval_on_whichever_node_it_is() {
    for (first, second) in [(1, 2), (2, 1)] {
        play_apart(false, |world| {
            let client = client_at(world, first, resuming(V5, "c", 30), "CONNACK");
            world.hang_up(client);
            world.run_for(20_000);
            // It moves while its client is away, and again.
            assert!(find(world, second, "c", 30).0);
            world.run_for(20_000);
            assert!(find(world, first, "c", 30).0);
            world.run_for(35_000);
            assert!(!find(world, second, "c", 30).0, "it has expired");
        });
    }
}

#[test]
fn a_session_expires_after_its_interval_though_its_node_died_meanwhile() {
    for (node, other) in [(1, 2), (2, 1)] {
        for (back_at, is_there) in [(25_000, true), (35_000, false)] {
            play_apart(false, |world| {
                let client = client_at(world, node, resuming(V5, "c", 30), "CONNACK");
                world.subscribe(client, "a", 1);
                become_covered(world);
                world.hang_up(client);
                let gone_at = world.net.now;
                let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
                publish_expiring(world, publisher, "a", 100, 1);
                world.run_for(8_000);
                world.kill(node);
                run_until(world, gone_at, back_at);
                let (is_present, found) = find(world, other, "c", 30);
                assert_eq!(is_present, is_there);
                assert_eq!(found.len(), usize::from(is_there), "{found:?}");
            });
        }
    }
}

#[test]
fn a_drain_takes_sessions_along_with_the_time_that_they_have_left() {
    for (node, other) in [(1, 2), (2, 1)] {
        for (back_at, is_there) in [(25_000, true), (36_000, false)] {
            play_apart(false, |world| {
                let client = client_at(world, node, resuming(V5, "c", 30), "CONNACK");
                world.subscribe(client, "a", 1);
                become_covered(world);
                world.hang_up(client);
                let gone_at = world.net.now;
                world.run_for(5_000);
                assert!(world.drain(node), "nothing is left");
                world.stop(node);
                run_until(world, gone_at, back_at);
                assert_eq!(find(world, other, "c", 30).0, is_there);
            });
        }
    }
}

/// Messages that a replication stream carries whole: those of a shared subscription, retained ones, and those from before there was a backup.
#[test]
fn messages_keep_the_time_that_they_have_left_when_their_session_changes_nodes() {
    for (node, other) in [(1, 2), (2, 1)] {
        for dies in [false, true] {
            play_apart(false, |world| {
                let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
                let client = client_at(world, node, resuming(V5, "c", 1000), "CONNACK");
                world.subscribe(client, "$share/g/a", 1);
                world.subscribe(client, "b", 1);
                become_covered(world);
                world.hang_up(client);
                // What is sent while its node does not know that is sent again later, expired or
                // not.
                world.run_for(500);
                publish_expiring(world, publisher, "a", 2, 1);
                let began = world.net.now;
                publish_expiring(world, publisher, "a", 100, 2);
                publish_expiring(world, publisher, "b", 200, 3);
                publish_expiring(world, publisher, "b", 2, 4);
                world.run_for(3_000);
                if dies {
                    world.kill(node);
                }
                run_until(world, began, 10_000);
                let (is_present, found) = find(world, other, "c", 1000);
                assert!(is_present);
                assert!(have_left(&found, &[(100, 86), (200, 186)]), "{found:?}");
                run_until(world, began, 30_000);
                let back = if dies { 0 } else { node };
                // They were sent and not acknowledged.
                let (_, found) = find(world, back, "c", 1000);
                assert!(have_left(&found, &[(100, 66), (200, 166)]), "{found:?}");
            });
        }
    }
}

#[test]
fn a_delayed_will_is_published_after_its_delay_though_its_node_died_or_its_session_moved() {
    for (node, other) in [(1, 2), (2, 1)] {
        for dies in [false, true] {
            play_apart(false, |world| {
                let watcher = client_at(world, 0, resuming(V5, "watcher", 1000), "CONNACK");
                world.subscribe(watcher, "will", 1);
                let connect = Connect {
                    will: Some(Will {
                        delay_interval: 60,
                        ..Will::new("will", b"gone")
                    }),
                    ..resuming(V5, "c", 200)
                };
                let client = client_at(world, node, connect, "CONNACK");
                become_covered(world);
                world.hang_up(client);
                let gone_at = world.net.now;
                world.run_for(10_000);
                if dies {
                    world.kill(node);
                } else {
                    assert!(world.drain(node), "nothing is left");
                    world.stop(node);
                }
                run_until(world, gone_at, 55_000);
                world.expect(watcher, &[]);
                run_until(world, gone_at, 64_000);
                world.expect(watcher, &["PUBLISH will 'gone'"]);
                assert!(find(world, other, "c", 200).0);
            });
        }
    }
}

#[test]
fn a_ban_lasts_as_long_on_every_node() {
    for node in 0..2 {
        play_apart(false, |world| {
            let wall = world.nodes[node].clock(&world.net).wall.as_unix_millis();
            let ban = Ban {
                subject: BanSubject::client_id("c"),
                reason: String::new(),
                by: None,
                since: WallClock::from_unix_millis(wall),
                until: Some(WallClock::from_unix_millis(wall + 20_000)),
            };
            let connected: Vec<_> = (0..3)
                .map(|at| client_at(world, at, Connect::new(V5, "c"), "CONNACK"))
                .collect();
            world.tester(connected[2]).take_heard();
            let banned_at = world.net.now;
            world.ban(node, &ban);
            world.expect(connected[2], &["DISCONNECT 0x98", "closed"]);
            for at in 0..3 {
                let refused = world.connect(at, Connect::new(V5, "c"));
                world.expect(refused, &["CONNACK 0x8A", "closed"]);
                let listed = world.bans(at);
                assert_eq!(listed.len(), 1);
                let here = world.nodes[at].clock(&world.net).wall.as_unix_millis();
                let until = listed[0].until.expect("it ends").as_unix_millis();
                let left = until.saturating_sub(here);
                assert!((10_000..20_000).contains(&left), "{left}");
            }
            run_until(world, banned_at, 22_000);
            for at in 0..3 {
                assert_eq!(world.bans(at), []);
                let client = client_at(world, at, Connect::new(V5, "c"), "CONNACK");
                world.hang_up(client);
            }
        });
    }
}

#[test]
fn a_retained_message_expires_after_its_interval_on_every_node() {
    for node in 0..2 {
        play_apart(false, |world| {
            world.kill(2);
            world.run_for(3_000);
            let publisher = client_at(world, node, Connect::new(V5, "publisher"), "CONNACK");
            let publish = Publish {
                qos: Qos::AtLeastOnce,
                packet_id: Some(id(1)),
                retain: true,
                message_expiry_interval: Some(30),
                ..Publish::new("a", b"30 s")
            };
            world.send(publisher, &Packet::Publish(publish));
            let began = world.net.now;
            world.run_for(5_000);
            // This node gets it when it joins.
            world.start(2);
            become_covered(world);
            let look = |world: &mut World, at: usize| {
                let client = client_at(world, at, Connect::new(V5, "looking"), "CONNACK");
                let subscribe = Subscribe::new(id(1), "a", Qos::AtMostOnce);
                world.send(client, &Packet::Subscribe(subscribe));
                let heard = world.hear(client);
                world.hang_up(client);
                heard.len() - 1
            };
            run_until(world, began, 24_000);
            assert_eq!([0, 1, 2].map(|at| look(world, at)), [1; 3]);
            run_until(world, began, 33_000);
            assert_eq!([0, 1, 2].map(|at| look(world, at)), [0; 3]);
        });
    }
}

#[test]
fn what_is_kept_for_a_node_that_is_down_has_the_time_left_when_the_node_is_back() {
    for (node, publishes) in [(1, 0), (0, 1)] {
        play_apart(true, |world| {
            let client = client_at(world, node, resuming(V5, "c", 1000), "CONNACK");
            world.subscribe(client, "a", 1);
            become_covered(world);
            let publisher = client_at(world, publishes, Connect::new(V5, "publisher"), "CONNACK");
            // All that have the session are out of reach.
            for other in (0..3).filter(|other| *other != publishes) {
                world.lose_power(other);
            }
            world.run_for(3_000);
            let began = world.net.now;
            publish_expiring(world, publisher, "a", 5, 1);
            publish_expiring(world, publisher, "a", 100, 2);
            run_until(world, began, 15_000);
            for other in (0..3).filter(|other| *other != publishes) {
                world.start(other);
            }
            become_covered(world);
            run_until(world, began, 25_000);
            let (is_present, found) = find(world, node, "c", 1000);
            assert!(is_present);
            assert!(have_left(&found, &[(100, 72)]), "{found:?}");
        });
    }
}

#[test]
fn what_was_stored_expires_after_the_time_that_was_left_on_whichever_node() {
    for (node, other) in [(1, 2), (2, 1)] {
        play_apart(true, |world| {
            let publisher = client_at(world, 0, Connect::new(V5, "publisher"), "CONNACK");
            let client = client_at(world, node, resuming(V5, "c", 60), "CONNACK");
            world.subscribe(client, "a", 1);
            become_covered(world);
            world.hang_up(client);
            let began = world.net.now;
            publish_expiring(world, publisher, "a", 100, 1);
            for at in 0..3 {
                world.kill(at);
            }
            world.run_for(10_000);
            for at in 0..3 {
                world.start(at);
            }
            become_covered(world);
            run_until(world, began, 30_000);
            let (is_present, found) = find(world, other, "c", 60);
            assert!(is_present);
            assert!(have_left(&found, &[(100, 66)]), "{found:?}");
            world.run_for(65_000);
            assert!(!find(world, node, "c", 60).0, "it has expired");
        });
    }
}

#[test]
fn of_two_writes_to_a_topic_the_later_one_stays_though_clocks_are_years_apart() {
    for (first, second) in [(0, 1), (1, 0), (1, 2)] {
        play_apart(false, |world| {
            retain_at(world, first, "old");
            retain_at(world, second, "new");
            assert_retained_at(world, 0..3, "new");
            // The node is set right.
            let right = world.nodes[0].spec.wall_ahead;
            set_clock(world, 1, right);
            retain_at(world, first, "newer");
            assert_retained_at(world, 0..3, "newer");
            retain_at(world, second, "newest");
            assert_retained_at(world, 0..3, "newest");
        });
    }
}

#[test]
fn of_two_writes_on_two_sides_of_a_partition_the_later_one_stays_though_clocks_are_years_apart() {
    for (first, second) in [(0, 1), (1, 0)] {
        play_apart(false, |world| {
            for other in [0, 2] {
                world.net.part(1, other, Parting::Cut);
            }
            world.run_for(5_000);
            retain_at(world, first, "old");
            world.run_for(5_000);
            retain_at(world, second, "new");
            for other in [0, 2] {
                world.net.heal(1, other);
            }
            become_covered(world);
            assert_retained_at(world, 0..3, "new");
        });
    }
}
