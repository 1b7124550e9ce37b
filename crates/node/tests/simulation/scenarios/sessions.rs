//! Sessions that outlive their connections: queue, redelivery, expiry, takeover.

use thicket_mqtt::{Acknowledgement, Connect, Disconnect, Packet, ReasonCode};

use super::{V5, V311, id, play, resuming};

fn plain(packet_id: u16) -> Acknowledgement<'static> {
    Acknowledgement::new(id(packet_id), ReasonCode::Success)
}

#[test]
fn what_came_while_a_client_was_away_is_delivered_in_order_when_it_is_back() {
    for version in [V311, V5] {
        play(|world| {
            let publisher = world.plain("publisher");
            let connack = "CONNACK";
            let away = world.client(resuming(version, "away", 1000), connack);
            world.subscribe(away, "a/#", 2);
            world.hang_up(away);
            world.run_for(100);
            world.publish(publisher, "a/0", "not kept", 0, 0);
            world.publish(publisher, "a/1", "one", 1, 1);
            world.publish(publisher, "a/2", "two", 2, 2);
            world.publish(publisher, "a/1", "three", 1, 3);
            world.expect(publisher, &["PUBACK 1", "PUBREC 2", "PUBACK 3"]);
            let back = world.client_with(
                resuming(version, "away", 1000),
                &[
                    "CONNACK present",
                    "PUBLISH a/1 'one' q1 #1",
                    "PUBLISH a/2 'two' q2 #2",
                    "PUBLISH a/1 'three' q1 #3",
                ],
            );
            world.send(back, &Packet::Puback(plain(1)));
            world.send(back, &Packet::Pubrec(plain(2)));
            world.send(back, &Packet::Pubcomp(plain(2)));
            world.send(back, &Packet::Puback(plain(3)));
            world.expect(back, &["PUBREL 2"]);
        });
    }
}

#[test]
fn what_is_not_acknowledged_is_delivered_again_with_dup_and_the_same_identifier() {
    play(|world| {
        let publisher = world.plain("publisher");
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.subscribe(client, "a", 2);
        for (qos, number) in [(1, 1), (2, 2), (2, 3), (1, 4)] {
            world.publish(publisher, "a", &number.to_string(), qos, number);
        }
        world.run_for(500);
        world.send(client, &Packet::Puback(plain(4)));
        world.send(client, &Packet::Pubrec(plain(3)));
        world.run_for(500);
        world.hang_up(client);
        world.run_for(100);
        world.publish(publisher, "a", "5", 1, 5);
        world.run_for(100);
        let expected = [
            "CONNACK present",
            "PUBLISH a '1' q1 #1 dup",
            "PUBLISH a '2' q2 #2 dup",
            "PUBREL 3",
            "PUBLISH a '5' q1 #5",
        ];
        world.client_with(resuming(V5, "client", 1000), &expected);
    });
}

#[test]
fn a_qos_2_publish_goes_on_over_connections() {
    play(|world| {
        let subscriber = world.plain("subscriber");
        world.subscribe(subscriber, "a", 0);
        let client = world.client(resuming(V5, "client", 1000), "CONNACK");
        world.publish(client, "a", "x", 2, 5);
        world.run_for(500);
        world.hang_up(client);
        let client = world.client(resuming(V5, "client", 1000), "CONNACK present");
        world.publish(client, "a", "x", 2, 5);
        world.expect(client, &["PUBREC 5"]);
        world.hang_up(client);
        let client = world.client(resuming(V5, "client", 1000), "CONNACK present");
        world.send(client, &Packet::Pubrel(plain(5)));
        world.expect(client, &["PUBCOMP 5"]);
        world.expect(subscriber, &["PUBLISH a 'x'"]);
    });
}

#[test]
fn a_clean_start_finds_no_session_and_ends_the_old_one() {
    for version in [V311, V5] {
        play(|world| {
            let old = world.client(resuming(version, "client", 1000), "CONNACK");
            world.subscribe(old, "a", 1);
            world.hang_up(old);
            let new = world.client(Connect::new(version, "client"), "CONNACK");
            world.publish(new, "a", "x", 1, 1);
            let code = if version == V5 {
                "PUBACK 1 0x10"
            } else {
                "PUBACK 1"
            };
            world.expect(new, &[code]);
            world.hang_up(new);
            world.client(resuming(version, "client", 1000), "CONNACK");
        });
    }
}

#[test]
fn a_session_lives_as_long_as_was_agreed() {
    play(|world| {
        let client = world.client(resuming(V5, "client", 10), "CONNACK");
        world.hang_up(client);
        world.run_for(8_000);
        let client = world.client(resuming(V5, "client", 10), "CONNACK present");
        world.hang_up(client);
        world.run_for(10_100);
        let client = world.client(resuming(V5, "client", 10), "CONNACK");
        // DISCONNECT may change the time.
        let disconnect = Disconnect {
            session_expiry_interval: Some(100),
            ..Disconnect::default()
        };
        world.send(client, &Packet::Disconnect(disconnect));
        world.expect(client, &["closed"]);
        world.run_for(50_000);
        let client = world.client(resuming(V5, "client", 10), "CONNACK present");
        let disconnect = Disconnect {
            session_expiry_interval: Some(0),
            ..Disconnect::default()
        };
        world.send(client, &Packet::Disconnect(disconnect));
        world.expect(client, &["closed"]);
        world.client(resuming(V5, "client", 10), "CONNACK");
    });
}

#[test]
fn a_session_that_was_to_end_with_its_connection_cannot_be_prolonged_by_disconnect() {
    play(|world| {
        let client = world.plain("client");
        let disconnect = Disconnect {
            session_expiry_interval: Some(100),
            ..Disconnect::default()
        };
        world.send(client, &Packet::Disconnect(disconnect));
        world.expect(client, &["DISCONNECT 0x82", "closed"]);
    });
}

#[test]
fn a_connection_is_taken_over_and_its_session_goes_on_in_the_new_one() {
    for version in [V311, V5] {
        play(|world| {
            let first = world.client(resuming(version, "client", 1000), "CONNACK");
            world.subscribe(first, "a", 1);
            let second = world.client(resuming(version, "client", 1000), "CONNACK present");
            let expected: &[&str] = match version {
                V5 => &["DISCONNECT 0x8E", "closed"],
                _ => &["closed"],
            };
            world.expect(first, expected);
            world.publish(second, "a", "x", 1, 1);
            let mut heard = world.hear(second);
            heard.sort();
            assert_eq!(heard, ["PUBACK 1", "PUBLISH a 'x' q1 #1"]);
        });
    }
}

#[test]
fn many_connections_at_once_leave_one_in_the_end() {
    play(|world| {
        let testers: Vec<_> = (0..10)
            .map(|_| world.connect(0, resuming(V5, "client", 1000)))
            .collect();
        world.run_for(2_000);
        let mut open = 0;
        for tester in testers {
            let heard = world.tester(tester).take_heard();
            match heard.last().map(String::as_str) {
                Some("closed") => assert_eq!(heard[heard.len() - 2], "DISCONNECT 0x8E"),
                Some(_) => {
                    assert!(heard[0].starts_with("CONNACK"), "{heard:?}");
                    open += 1;
                }
                None => panic!("seed {}: no answer", world.net.seed),
            }
        }
        assert_eq!(open, 1, "seed {}", world.net.seed);
        let sessions = world.sessions();
        assert_eq!(sessions.len(), 1, "seed {}", world.net.seed);
    });
}

#[test]
fn a_client_without_identifier_gets_one() {
    play(|world| {
        let one = world.client(Connect::new(V5, ""), "CONNACK assigned");
        let other = world.client(Connect::new(V5, ""), "CONNACK assigned");
        world.client(Connect::new(V311, ""), "CONNACK");
        world.subscribe(one, "a", 0);
        world.publish(other, "a", "x", 0, 0);
        world.expect(one, &["PUBLISH a 'x'"]);
        let refused = world.connect(0, resuming(V311, "", 1000));
        world.expect(refused, &["CONNACK 0x85", "closed"]);
    });
}
