//! The states of the connection, keep alive, authentication.

use thicket_mqtt::{Auth, Disconnect, Login, Suback};

use super::*;

type Input = fn(&mut Bench) -> Option<ClientError>;

/// What can happen to a client, as the table of the module has it.
fn inputs() -> Vec<(&'static str, Input)> {
    vec![
        ("connect", |bench| {
            bench.client.connect(bench.now, CleanStart::Yes).err()
        }),
        ("CONNACK", |bench| {
            feed(bench, &Packet::Connack(Box::default()))
        }),
        ("CONNACK 0x87", |bench| {
            feed(
                bench,
                &Packet::Connack(Box::new(Connack::new(ReasonCode::NotAuthorized))),
            )
        }),
        ("PUBLISH", |bench| feed(bench, &delivery("a", "x", 0, 0))),
        ("PUBACK", |bench| {
            feed(bench, &Packet::Puback(acknowledgement(9)))
        }),
        ("PINGRESP", |bench| feed(bench, &Packet::Pingresp)),
        ("PINGREQ", |bench| feed(bench, &Packet::Pingreq)),
        ("DISCONNECT", |bench| {
            feed(
                bench,
                &Packet::Disconnect(Disconnect::new(ReasonCode::ServerBusy)),
            )
        }),
        ("AUTH", |bench| {
            feed(bench, &auth(ReasonCode::ContinueAuthentication))
        }),
        ("malformed", |bench| {
            bench.feed_bytes(&[0x00, 0x00]);
            None
        }),
        ("ten seconds", |bench| {
            bench.pass(10);
            None
        }),
        ("publish", |bench| {
            bench.publish(&message("a", "x", 1)).err()
        }),
        ("ping", |bench| bench.client.ping(bench.now).err()),
        ("disconnect", |bench| {
            bench.client.disconnect(&Disconnect::default()).err()
        }),
        ("closed", |bench| {
            bench.client.handle_closed();
            None
        }),
    ]
}

fn feed(bench: &mut Bench, packet: &Packet<'_>) -> Option<ClientError> {
    bench.feed(packet);
    None
}

fn auth(reason_code: ReasonCode) -> Packet<'static> {
    Packet::Auth(Auth {
        reason_code,
        authentication_method: Some("m"),
        ..Auth::default()
    })
}

#[test]
fn every_pair_of_state_and_input_leads_where_the_table_says() {
    // A letter an input, in the order of `inputs`: d disconnected, c connecting, o connected, x closing, w wrong state.
    let table = [
        ("disconnected", "cddddddddddwwwd"),
        ("connecting", "woxxxxxxxxxwwxd"),
        ("connected", "wxxoooxxxxooox d"),
        ("closing", "wxxxxxxxxxxwwwd"),
    ];
    for (state, row) in table {
        let row: Vec<char> = row.chars().filter(|letter| *letter != ' ').collect();
        assert_eq!(row.len(), inputs().len());
        for ((name, input), expected) in inputs().into_iter().zip(row) {
            let mut bench = Bench::new(ClientConfig::new(V5, "c"));
            if state != "disconnected" {
                bench.client.connect(bench.now, CleanStart::Yes).unwrap();
            }
            if state == "connected" || state == "closing" {
                bench.feed(&Packet::Connack(Box::default()));
            }
            if state == "closing" {
                bench.client.disconnect(&Disconnect::default()).unwrap();
            }
            bench.events();
            let before = bench.client.state();
            let pending = bench.client.output().len();
            let error = input(&mut bench);
            if expected == 'w' {
                assert_eq!(
                    error,
                    Some(ClientError::WrongState { state: before }),
                    "{state}, {name}"
                );
                assert_eq!(
                    (bench.client.state(), bench.client.output().len()),
                    (before, pending),
                    "{state}, {name}"
                );
                continue;
            }
            assert_eq!(error, None, "{state}, {name}");
            let after = match bench.client.state() {
                ConnectionState::Disconnected => 'd',
                ConnectionState::Connecting => 'c',
                ConnectionState::Connected => 'o',
                ConnectionState::Closing => 'x',
            };
            assert_eq!(after, expected, "{state}, {name}: {:?}", bench.events);
            // The caller gets one event when a connection ends, unless it ended it.
            let says_why =
                before != ConnectionState::Closing && after == 'x' && name != "disconnect";
            let is_why = |event: &&String| {
                ["error", "refused", "by server", "ConnectTimeout"]
                    .iter()
                    .any(|why| event.starts_with(why))
            };
            assert_eq!(
                bench.events.iter().filter(is_why).count(),
                usize::from(says_why),
                "{state}, {name}"
            );
        }
    }
}

#[test]
fn a_server_that_breaks_the_protocol_is_told_why_in_5_0_only() {
    for (version, expected) in [(V5, vec!["DISCONNECT ProtocolError"]), (V311, vec![])] {
        let mut bench = Bench::with_version(version);
        bench.feed(&Packet::Connack(Box::default()));
        assert_eq!(bench.sent(), expected);
        assert_eq!(bench.events(), ["error: Connack came while Connected"]);
        bench.feed(&delivery("a", "x", 0, 0));
        assert!(bench.events().is_empty(), "nothing is read after that");
    }
    // Before 5.0 a server sends no DISCONNECT.
    let mut bench = Bench::with_version(V311);
    bench.feed_bytes(&[0xE0, 0x00]);
    assert_eq!(bench.events(), ["error: Disconnect came while Connected"]);
}

#[test]
fn the_connect_says_what_is_configured() {
    let config = ClientConfig {
        keep_alive: 7,
        will: Some(WillConfig {
            topic: "w".into(),
            payload: b"gone".to_vec(),
            qos: Qos::AtLeastOnce,
            ..WillConfig::default()
        }),
        user_name: Some("u".into()),
        password: Some(b"p".to_vec()),
        session_expiry_interval: 60,
        receive_maximum: 5,
        topic_alias_maximum: 3,
        user_properties: vec![("k".into(), "v".into())],
        ..ClientConfig::new(V5, "c")
    };
    let mut client = Client::new(config);
    client.connect(Instant::default(), CleanStart::No).unwrap();
    let Some((Packet::Connect(connect), _)) = decode(client.output(), V5, u32::MAX).unwrap() else {
        panic!()
    };
    assert_eq!(
        (
            connect.version,
            connect.client_id,
            connect.clean_start,
            connect.keep_alive
        ),
        (V5, "c", false, 7)
    );
    let will = connect.will.unwrap();
    assert_eq!(
        (will.topic, will.payload, will.qos),
        ("w", b"gone".as_slice(), Qos::AtLeastOnce)
    );
    assert_eq!(
        connect.login,
        Login {
            user_name: Some("u"),
            password: Some(b"p")
        }
    );
    assert_eq!(
        (connect.session_expiry_interval, connect.receive_maximum),
        (Some(60), Some(5))
    );
    assert_eq!(
        (connect.topic_alias_maximum, connect.maximum_packet_size),
        (3, Some(16 << 20))
    );
    assert_eq!(connect.user_properties, [("k", "v")]);
}

#[test]
fn a_configuration_that_no_connect_can_say_is_refused() {
    let will = WillConfig {
        topic: "a/+".into(),
        ..WillConfig::default()
    };
    let mut client = Client::new(ClientConfig {
        will: Some(will),
        ..ClientConfig::new(V5, "c")
    });
    assert!(matches!(
        client.connect(Instant::default(), CleanStart::Yes),
        Err(ClientError::TopicName(_))
    ));
    assert_eq!(
        (client.state(), client.output()),
        (ConnectionState::Disconnected, [].as_slice())
    );
}

#[test]
fn an_assigned_client_identifier_is_used_from_then_on() {
    let mut bench = Bench::new(ClientConfig::new(V5, ""));
    let connack = Connack {
        assigned_client_identifier: Some("auto-1"),
        ..Connack::default()
    };
    bench.reconnect(CleanStart::Yes, &connack);
    bench.client.handle_closed();
    bench.client.connect(bench.now, CleanStart::No).unwrap();
    assert_eq!(bench.sent(), ["CONNECT auto-1"]);
}

#[test]
fn a_ping_goes_out_when_nothing_else_does() {
    // [MQTT-3.1.2-20]
    let mut bench = Bench::with_version(V5);
    assert_eq!(
        bench.client.poll_timeout(),
        Some(bench.now + std::time::Duration::from_secs(45))
    );
    bench.pass(40);
    bench.publish(&message("a", "x", 0)).unwrap();
    bench.pass(40);
    assert_eq!(bench.sent(), ["a=x"]);
    bench.pass(5);
    assert_eq!(bench.sent(), ["Pingreq"]);
    bench.feed(&Packet::Pingresp);
    assert_eq!(bench.events(), ["pong"]);
    bench.pass(45);
    assert_eq!(bench.sent(), ["Pingreq"]);
    bench.pass(9);
    bench.feed(&delivery("a", "x", 0, 0));
    bench.pass(9);
    assert_eq!(
        bench.events(),
        ["a=x"],
        "a message shows that the server lives"
    );
    bench.pass(1);
    assert_eq!(bench.events(), ["PingTimeout"]);
    assert_eq!(
        (bench.client.state(), bench.client.poll_timeout()),
        (ConnectionState::Closing, None)
    );
}

#[test]
fn an_acknowledgement_counts_as_something_sent() {
    let mut bench = Bench::with_version(V5);
    bench.pass(40);
    bench.feed(&delivery("a", "x", 1, 1));
    bench.pass(40);
    assert_eq!(bench.sent(), ["PUBACK #1"]);
}

#[test]
fn the_servers_keep_alive_holds() {
    // [MQTT-3.1.2-21] [MQTT-3.2.2-21]
    for (server, seconds) in [(Some(4), Some(3)), (None, Some(45)), (Some(0), None)] {
        let mut bench = Bench::new(ClientConfig::new(V5, "c"));
        bench.reconnect(
            CleanStart::Yes,
            &Connack {
                server_keep_alive: server,
                ..Connack::default()
            },
        );
        let deadline = seconds.map(|seconds| bench.now + std::time::Duration::from_secs(seconds));
        assert_eq!(bench.client.poll_timeout(), deadline, "{server:?}");
    }
}

#[test]
fn a_connack_that_comes_late_does_not_prolong_the_silence_that_the_server_hears() {
    let config = ClientConfig {
        keep_alive: 8,
        ..ClientConfig::new(V5, "c")
    };
    let mut bench = Bench::new(config);
    let begun = bench.now;
    bench.client.connect(begun, CleanStart::Yes).unwrap();
    bench.sent();
    bench.pass(9);
    bench.feed(&Packet::Connack(Box::default()));
    let due = begun + std::time::Duration::from_secs(6);
    assert_eq!(bench.client.poll_timeout(), Some(due), "at once");
}

#[test]
fn an_authentication_goes_back_and_forth_before_the_connack_and_again_later() {
    // [MQTT-4.12.0-3] [MQTT-4.12.1-1]
    let authentication = AuthenticationConfig {
        method: "m".into(),
        data: None,
    };
    let config = ClientConfig {
        authentication: Some(authentication),
        ..ClientConfig::new(V5, "c")
    };
    let mut bench = Bench::new(config);
    bench.client.connect(bench.now, CleanStart::Yes).unwrap();
    bench.sent();
    bench.pass(9);
    bench.feed(&auth(ReasonCode::ContinueAuthentication));
    let Packet::Auth(answer) = auth(ReasonCode::ContinueAuthentication) else {
        unreachable!()
    };
    bench.client.authenticate(bench.now, &answer).unwrap();
    bench.pass(9);
    bench.feed(&Packet::Connack(Box::new(Connack {
        authentication_method: Some("m"),
        ..Connack::default()
    })));
    assert_eq!(
        bench.events(),
        ["auth ContinueAuthentication", "connected, session false"]
    );
    let again = Auth {
        reason_code: ReasonCode::ReAuthenticate,
        ..answer.clone()
    };
    bench.client.authenticate(bench.now, &again).unwrap();
    assert_eq!(
        bench.sent(),
        ["AUTH ContinueAuthentication", "AUTH ReAuthenticate"]
    );
    bench.feed(&auth(ReasonCode::Success));
    assert_eq!(bench.events(), ["auth Success"]);

    let mut without = Bench::with_version(V5);
    assert_eq!(
        without.client.authenticate(without.now, &answer),
        Err(ClientError::NoAuthenticationMethod)
    );
}

#[test]
fn a_disconnect_is_the_last_packet() {
    // [MQTT-3.14.4-1]
    type Expected = Result<Vec<&'static str>, ClientError>;
    let with = |reason_code, session_expiry_interval| Disconnect {
        reason_code,
        session_expiry_interval,
        ..Disconnect::default()
    };
    let will = ReasonCode::DisconnectWithWillMessage;
    let cases: Vec<(&str, ProtocolVersion, Disconnect<'_>, Expected)> = vec![
        (
            "plain",
            V5,
            Disconnect::default(),
            Ok(vec!["a=x", "DISCONNECT Success"]),
        ),
        (
            "plain, 3.1.1",
            V311,
            Disconnect::default(),
            Ok(vec!["a=x", "DISCONNECT Success"]),
        ),
        (
            "with will",
            V5,
            with(will, None),
            Ok(vec!["a=x", "DISCONNECT DisconnectWithWillMessage"]),
        ),
        ("with will, 3.1.1", V311, with(will, None), Ok(vec!["a=x"])),
        (
            "expiry out of nothing",
            V5,
            with(ReasonCode::Success, Some(1)),
            Err(ClientError::SessionExpiryInterval),
        ),
    ];
    for (name, version, disconnect, expected) in cases {
        let mut bench = Bench::with_version(version);
        bench.publish(&message("a", "x", 0)).unwrap();
        let result = bench.client.disconnect(&disconnect);
        match expected {
            Ok(words) => {
                assert_eq!(
                    (result, bench.client.state()),
                    (Ok(()), ConnectionState::Closing),
                    "{name}"
                );
                assert!(bench.publish(&message("a", "y", 0)).is_err(), "{name}");
                assert_eq!(bench.sent(), words, "{name}");
            }
            Err(error) => assert_eq!(
                (result, bench.client.state()),
                (Err(error), ConnectionState::Connected),
                "{name}"
            ),
        }
    }
}

#[test]
fn packets_cut_anywhere_mean_the_same() {
    let mut stream = Vec::new();
    let long = "x".repeat(300);
    let packets = [
        Packet::Connack(Box::new(Connack {
            reason_string: Some("welcome"),
            ..Connack::default()
        })),
        delivery("a", "one", 0, 0),
        delivery("a/b", &long, 1, 1),
        Packet::Pingresp,
        delivery("c", "", 2, 2),
        Packet::Pubrel(acknowledgement(2)),
        Packet::Suback(Suback::new(id(9), vec![ReasonCode::Success])),
    ];
    for packet in &packets {
        packet.encode(V5, &mut stream).unwrap();
    }
    let mut expected = None;
    for step in (1..stream.len()).rev() {
        let mut bench = Bench::new(ClientConfig::new(V5, "c"));
        bench.client.connect(bench.now, CleanStart::Yes).unwrap();
        for piece in stream.chunks(step) {
            bench.feed_bytes(piece);
        }
        let found = (bench.events(), bench.sent());
        assert_eq!(found.0.len(), 6, "the last one is an error");
        assert_eq!(
            found,
            *expected.get_or_insert_with(|| found.clone()),
            "{step} bytes at once"
        );
    }
}

#[test]
fn no_memory_is_set_aside_for_a_length_merely_claimed() {
    let mut bench = Bench::with_version(V5);
    bench.feed_bytes(&[0x30, 0xFF, 0xFF, 0xFF, 0x03, 0, 1, b'a', 0]);
    assert_eq!(bench.events(), [""; 0]);
    assert!(bench.client.partial.capacity() < 100);
    bench.feed_bytes(&[0; 50]);
    assert!(bench.client.partial.capacity() < 1000);

    let config = ClientConfig {
        maximum_packet_size: 1000,
        ..ClientConfig::new(V5, "c")
    };
    let mut bench = Bench::connected(config);
    bench.feed_bytes(&[0x30, 0xFF, 0x7F]);
    assert_eq!(bench.sent(), ["DISCONNECT PacketTooLarge"]);
}
