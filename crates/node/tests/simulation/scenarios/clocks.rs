//! The wall clock is set back or forward by an hour, while a node runs or while it does not.

use thicket_mqtt::{Connect, Packet, Publish, Qos, Subscribe, Will};

use super::{V5, cluster::client_at, id, resuming};
use thicket_simulation::{World, net::Weather, node::NodeSpec};

const HOUR: u64 = 3_600_000;

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
fn retain(world: &mut World, node: usize, payload: &str) {
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
fn assert_retained_everywhere(world: &mut World, expected: &str) {
    for node in 0..2 {
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
            retain(world, written_at, "old");
            for node in 0..2 {
                set_clock(world, node, 0);
            }
            retain(world, replaced_at, "new");
            assert_retained_everywhere(world, "new");
            set_clock(world, replaced_at, HOUR);
            retain(world, replaced_at, "newer");
            assert_retained_everywhere(world, "newer");
        });
    }
}

#[test]
fn a_retained_message_is_replaced_though_the_clock_was_set_back_while_the_nodes_were_down() {
    play(|world| {
        retain(world, 0, "old");
        for node in 0..2 {
            world.kill(node);
            set_clock(world, node, 0);
        }
        for node in 0..2 {
            world.start(node);
        }
        world.run_for(5_000);
        for (node, payload) in [(1, "new"), (0, "newer")] {
            retain(world, node, payload);
            assert_retained_everywhere(world, payload);
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
