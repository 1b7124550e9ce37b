//! Keep alive, and connections that never get anywhere.

use thicket_mqtt::{Connect, Packet};

use super::{V5, V31, V311, play, play_with};

fn with_keep_alive(seconds: u16) -> Connect<'static> {
    Connect {
        keep_alive: seconds,
        ..Connect::new(V5, "client")
    }
}

#[test]
fn silence_of_one_and_a_half_times_the_keep_alive_ends_a_connection() {
    play(|world| {
        let client = world.client(with_keep_alive(10), "CONNACK");
        world.run_for(12_500);
        world.expect(client, &[]);
        world.run_for(1_000);
        world.expect(client, &["DISCONNECT 0x8D", "closed"]);
        let old = Connect {
            keep_alive: 10,
            ..Connect::new(V311, "old")
        };
        let old = world.client(old, "CONNACK");
        world.run_for(16_000);
        world.expect(old, &["closed"]);
    });
}

#[test]
fn any_packet_keeps_a_connection_and_half_a_packet_does_not() {
    play(|world| {
        let client = world.client(with_keep_alive(10), "CONNACK");
        for _ in 0..5 {
            world.run_for(12_000);
            world.send(client, &Packet::Pingreq);
            world.expect(client, &["PINGRESP"]);
        }
        // A PUBLISH that claims 100 bytes and dribbles in.
        world.send_bytes(client, &[0x30, 100, 0, 1, b'a', 0]);
        for _ in 0..13 {
            world.run_for(1_000);
            world.send_bytes(client, b"x");
        }
        world.run_for(1_500);
        world.expect(client, &["DISCONNECT 0x8D", "closed"]);
    });
}

#[test]
fn without_keep_alive_silence_is_allowed_unless_the_node_says_otherwise() {
    play(|world| {
        let client = world.client(with_keep_alive(0), "CONNACK");
        world.run_for(1_000_000);
        world.send(client, &Packet::Pingreq);
        world.expect(client, &["PINGRESP"]);
    });
    play_with(
        |spec| spec.limits.keep_alive_maximum = 20,
        |world| {
            let client = world.client(with_keep_alive(0), "CONNACK keep_alive=20");
            world.run_for(31_000);
            world.expect(client, &["DISCONNECT 0x8D", "closed"]);
            world.client(with_keep_alive(10), "CONNACK");
        },
    );
}

#[test]
fn older_clients_keep_the_keep_alive_that_they_ask_for_as_they_receive_no_other() {
    play_with(
        |spec| spec.limits.keep_alive_maximum = 20,
        |world| {
            let of = |version, client_id, seconds| Connect {
                keep_alive: seconds,
                ..Connect::new(version, client_id)
            };
            let [old, silent] =
                [(V31, "old", 60), (V311, "silent", 0)].map(|(version, client_id, seconds)| {
                    world.client(of(version, client_id, seconds), "CONNACK")
                });
            world.run_for(85_000);
            for client in [old, silent] {
                world.send(client, &Packet::Pingreq);
                world.expect(client, &["PINGRESP"]);
            }
            world.run_for(91_000);
            world.expect(old, &["closed"]);
            world.send(silent, &Packet::Pingreq);
            world.expect(silent, &["PINGRESP"]);
            // One that can know it keeps to it.
            let new = world.client(of(V5, "new", 60), "CONNACK keep_alive=20");
            world.run_for(31_000);
            world.expect(new, &["DISCONNECT 0x8D", "closed"]);
        },
    );
}

#[test]
fn a_connection_without_a_whole_connect_is_closed_in_time() {
    play(|world| {
        let silent = world.open(0, V5);
        let dribbling = world.open(0, V5);
        for byte in [0x10_u8, 50, 0, 4, b'M', b'Q', b'T', b'T', 5] {
            world.send_bytes(dribbling, &[byte]);
            world.run_for(1_200);
        }
        world.run_for(1_000);
        world.expect(silent, &["closed"]);
        world.expect(dribbling, &["closed"]);
    });
}
