//! Wills: when they are published and when not.

use thicket_mqtt::{Connect, Disconnect, Packet, ReasonCode, Will};

use super::{V5, V311, play, qos, resuming};
use thicket_simulation::{TesterId, World};

fn with_will(mut connect: Connect<'static>, delay_interval: u32) -> Connect<'static> {
    connect.will = Some(Will {
        qos: qos(1),
        delay_interval,
        ..Will::new("will", b"gone")
    });
    connect
}

fn watcher(world: &mut World) -> TesterId {
    let watcher = world.plain("watcher");
    world.subscribe(watcher, "will", 0);
    watcher
}

const GONE: &str = "PUBLISH will 'gone'";

/// What ends a connection.
type End = fn(&mut World, TesterId);

#[test]
fn a_will_is_published_unless_the_client_said_goodbye() {
    let cases: [(&str, End, bool); 5] = [
        (
            "the network fails",
            |world, client| world.hang_up(client),
            true,
        ),
        (
            "DISCONNECT",
            |world, client| world.send(client, &Packet::Disconnect(Disconnect::default())),
            false,
        ),
        (
            "DISCONNECT with will",
            |world, client| {
                let disconnect = Disconnect::new(ReasonCode::DisconnectWithWillMessage);
                world.send(client, &Packet::Disconnect(disconnect));
            },
            true,
        ),
        (
            "a breach of the protocol",
            |world, client| world.send_bytes(client, &[0xF0, 0]),
            true,
        ),
        ("silence", |world, _| world.run_for(100_000), true),
    ];
    for (name, end, published) in cases {
        for expiry in [0, 1000] {
            play(|world| {
                let watcher = watcher_without_keep_alive(world);
                let client = world.client(with_will(resuming(V5, "client", expiry), 0), "CONNACK");
                end(world, client);
                world.run_for(500);
                let heard = world.hear(watcher);
                let expected: &[&str] = if published { &[GONE] } else { &[] };
                assert_eq!(heard, expected, "{name}, expiry {expiry}");
            });
        }
    }
}

fn watcher_without_keep_alive(world: &mut World) -> TesterId {
    let connect = Connect {
        keep_alive: 0,
        ..Connect::new(V5, "watcher")
    };
    let watcher = world.client(connect, "CONNACK");
    world.subscribe(watcher, "will", 0);
    watcher
}

#[test]
fn a_delayed_will_waits_and_is_not_published_if_the_client_is_back() {
    play(|world| {
        let watcher = watcher(world);
        let client = world.client(with_will(resuming(V5, "client", 1000), 10), "CONNACK");
        world.hang_up(client);
        world.run_for(8_000);
        let client = world.client(
            with_will(resuming(V5, "client", 1000), 10),
            "CONNACK present",
        );
        world.run_for(10_000);
        world.expect(watcher, &[]);
        world.hang_up(client);
        world.run_for(8_000);
        world.expect(watcher, &[]);
        world.run_for(1_000);
        world.expect(watcher, &[GONE]);
    });
}

#[test]
fn a_will_does_not_wait_longer_than_its_session_lives() {
    play(|world| {
        let watcher = watcher(world);
        let client = world.client(with_will(resuming(V5, "client", 3), 100), "CONNACK");
        world.hang_up(client);
        world.expect(watcher, &[]);
        world.run_for(2_200);
        world.expect(watcher, &[GONE]);
        let client = world.client(with_will(resuming(V5, "client", 0), 100), "CONNACK");
        world.hang_up(client);
        world.expect(watcher, &[GONE]);
    });
}

#[test]
fn a_takeover_publishes_the_will_of_the_old_connection_unless_it_is_delayed() {
    play(|world| {
        let watcher = watcher(world);
        let connect = || resuming(V5, "client", 1000);
        world.client(with_will(connect(), 0), "CONNACK");
        world.client(with_will(connect(), 100), "CONNACK present");
        world.expect(watcher, &[GONE]);
        world.client(connect(), "CONNACK present");
        world.expect(watcher, &[]);
        // A clean start ends the session, and with it the waiting.
        world.client(with_will(connect(), 100), "CONNACK present");
        world.client(Connect::new(V5, "client"), "CONNACK");
        world.expect(watcher, &[GONE]);
    });
}

#[test]
fn a_retained_will_of_a_client_of_3_1_1_is_retained() {
    play(|world| {
        let mut connect = Connect::new(V311, "client");
        connect.will = Some(Will {
            retain: true,
            ..Will::new("will", b"gone")
        });
        let client = world.client(connect, "CONNACK");
        world.hang_up(client);
        world.run_for(500);
        let watcher = world.plain("watcher");
        world.send(
            watcher,
            &Packet::Subscribe(thicket_mqtt::Subscribe::new(super::id(1), "will", qos(0))),
        );
        world.expect(watcher, &["SUBACK 1 [00]", "PUBLISH will 'gone' retain"]);
    });
}
