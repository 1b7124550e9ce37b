//! From CONNECT to CONNACK: refusals, users, clients in a hurry, clients that vanish.

use thicket_mqtt::{Connect, Disconnect, Login, Packet, PacketId, Publish, Subscribe};

use super::{V5, V311, id, play, play_with, qos, resuming};

#[test]
fn what_is_no_connect_is_refused_or_just_closed() {
    let cases: [(&str, &[u8], &[&str]); 4] = [
        ("PINGREQ first", &[0xC0, 0], &["closed"]),
        ("nonsense", b"GET / HTTP/1.1\r\n\r\n", &["closed"]),
        (
            "an unknown protocol version",
            &[
                0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 9, 2, 0, 60, 0, 1, b'a',
            ],
            &["CONNACK 0x84", "closed"],
        ),
        (
            "a reserved flag",
            &[
                0x10, 14, 0, 4, b'M', b'Q', b'T', b'T', 5, 3, 0, 60, 0, 0, 1, b'a',
            ],
            &["CONNACK 0x81", "closed"],
        ),
    ];
    for (name, bytes, expected) in cases {
        play(|world| {
            let tester = world.open(0, V5);
            world.send_bytes(tester, bytes);
            assert_eq!(world.hear(tester), expected, "{name}");
        });
    }
}

#[test]
fn users_are_asked_where_anonymous_clients_are_not_allowed() {
    let cases = [
        (Some("good"), "CONNACK", None),
        (Some("bad"), "CONNACK 0x86", Some("closed")),
        (Some("anybody"), "CONNACK 0x88", Some("closed")),
        (None, "CONNACK 0x87", Some("closed")),
    ];
    for (user_name, connack, closed) in cases {
        play_with(
            |spec| spec.listeners[0].allow_anonymous = false,
            |world| {
                let login = Login {
                    user_name,
                    password: None,
                };
                let connect = Connect {
                    login,
                    ..Connect::new(V5, "client")
                };
                let tester = world.connect(0, connect);
                let mut expected = vec![connack];
                expected.extend(closed);
                assert_eq!(world.hear(tester), expected, "{user_name:?}");
            },
        );
    }
}

#[test]
fn packets_sent_before_the_connack_are_processed_after_it() {
    play(|world| {
        let tester = world.connect(0, Connect::new(V5, "client"));
        let publish = Publish {
            qos: qos(1),
            packet_id: PacketId::new(2),
            ..Publish::new("a", b"x")
        };
        world.send(
            tester,
            &Packet::Subscribe(Subscribe::new(id(1), "a", qos(0))),
        );
        world.send(tester, &Packet::Publish(publish));
        world.send(tester, &Packet::Pingreq);
        let mut heard = world.hear(tester);
        assert_eq!(heard.remove(0), "CONNACK");
        heard.sort();
        assert_eq!(
            heard,
            ["PINGRESP", "PUBACK 2", "PUBLISH a 'x'", "SUBACK 1 [00]"]
        );
    });
}

#[test]
fn a_client_that_talks_much_before_its_connack_loses_nothing() {
    play(|world| {
        let subscriber = world.plain("subscriber");
        world.subscribe(subscriber, "a", 0);
        world.tester(subscriber).take_heard();
        let tester = world.connect(0, Connect::new(V5, "client"));
        let payload = "x".repeat(2_000);
        for _ in 0..100 {
            world.publish(tester, "a", &payload, 0, 0);
        }
        world.run_for(10_000);
        let heard = world.tester(subscriber).take_heard();
        assert_eq!(heard.len(), 100, "seed {}", world.net.seed);
    });
}

#[test]
fn a_client_that_vanishes_while_it_connects_leaves_nothing_behind() {
    for version in [V311, V5] {
        for delay in 0..12 {
            play(|world| {
                let tester = world.connect(0, Connect::new(version, "client"));
                world.run_for(delay);
                world.hang_up(tester);
                world.run_for(1_000);
                let sessions = world.sessions();
                assert_eq!(sessions, [], "seed {}, {delay} ms", world.net.seed);
                let again = world.client(Connect::new(version, "client"), "CONNACK");
                world.send(again, &Packet::Disconnect(Disconnect::default()));
                world.expect(again, &["closed"]);
            });
        }
    }
}

#[test]
fn clients_that_come_and_go_with_one_identifier_find_their_session() {
    play(|world| {
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 1);
        world.hang_up(client);
        for delay in 0..30 {
            let tester = world.connect(0, resuming(V5, "client", 1000));
            world.run_for(delay);
            world.hang_up(tester);
        }
        world.run_for(500);
        world.client(resuming(V5, "client", 1000), "CONNACK present");
    });
}

#[test]
fn a_second_connect_is_a_protocol_error() {
    play(|world| {
        let client = world.plain("client");
        world.send(
            client,
            &Packet::Connect(Box::new(Connect::new(V5, "client"))),
        );
        world.expect(client, &["DISCONNECT 0x82", "closed"]);
    });
}

#[test]
fn packets_sent_before_the_connack_are_processed_even_if_the_client_closes_at_once() {
    for goodbye in [true, false] {
        play(|world| {
            let subscriber = world.plain("subscriber");
            world.subscribe(subscriber, "a", 0);
            let hasty = world.connect(0, Connect::new(V5, "hasty"));
            world.publish(hasty, "a", "x", 0, 0);
            if goodbye {
                world.send(hasty, &Packet::Disconnect(Disconnect::default()));
            }
            world.hang_up(hasty);
            world.expect(subscriber, &["PUBLISH a 'x'"]);
        });
    }
}
