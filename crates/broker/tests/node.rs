//! One node over real sockets.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;

use support::{TIMEOUT, TestClient, alone, directory, http, http_as, start, wait_for_http};
use thicket_broker::{Node, Settings, StartError, hash_password};
use thicket_mqtt::{Packet, ProtocolVersion, Publish, Qos, ReasonCode};
use thicket_session::client::{CleanStart, ClientConfig};

/// 3.1.1, clean session, client identifier `a`.
const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a";
const ALL_QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

#[test]
fn messages_of_every_qos_reach_clients_of_every_worker() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut subscribers: Vec<_> = (0..8)
        .map(|n| TestClient::connect(address, &format!("s{n}")))
        .collect();
    for subscriber in &mut subscribers {
        subscriber.subscribe("site/+/temp", Qos::ExactlyOnce);
    }
    let mut publisher = TestClient::connect(address, "p");
    for (n, qos) in ALL_QOS.into_iter().enumerate() {
        publisher.publish(&format!("site/{n}/temp"), b"21", qos);
    }
    for subscriber in &mut subscribers {
        for (n, qos) in ALL_QOS.into_iter().enumerate() {
            let message = subscriber.message();
            assert_eq!(
                (message.topic, message.qos),
                (format!("site/{n}/temp"), qos)
            );
        }
    }
}

#[test]
fn a_message_larger_than_a_read_arrives_whole_and_in_order() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut subscriber = TestClient::connect(address, "s");
    subscriber.subscribe("big", Qos::AtLeastOnce);
    let mut publisher = TestClient::connect(address, "p");
    let payload: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
    for _ in 0..4 {
        publisher.publish("big", &payload, Qos::AtLeastOnce);
        publisher.publish("big", b"small", Qos::AtLeastOnce);
    }
    for _ in 0..4 {
        assert!(subscriber.message().payload == payload);
        assert_eq!(subscriber.message().payload, b"small");
    }
}

#[test]
fn a_connect_that_comes_byte_by_byte_is_answered() {
    let node = start(alone());
    let mut stream = TcpStream::connect(node.addresses()[0]).expect("the node listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    for byte in CONNECT {
        stream.write_all(&[*byte]).expect("the node reads");
    }
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).expect("a CONNACK");
    assert_eq!(answer, [0x20, 2, 0, 0]);
}

#[test]
fn what_was_sent_before_the_end_of_a_connection_is_delivered() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut subscriber = TestClient::connect(address, "s");
    subscriber.subscribe("last", Qos::AtMostOnce);
    for n in 0..20 {
        let mut stream = TcpStream::connect(address).expect("the node listens");
        stream.write_all(CONNECT).expect("the node reads");
        stream.read_exact(&mut [0; 4]).expect("a CONNACK");
        let payload = [b'0' + n];
        let mut bytes = Vec::new();
        let version = ProtocolVersion::V311;
        Publish::new("last", &payload)
            .encode(version, &mut bytes)
            .expect("a good message");
        stream.write_all(&bytes).expect("the node reads");
        drop(stream);
        assert_eq!(subscriber.message().payload, payload);
    }
}

#[test]
fn bytes_that_are_no_mqtt_end_only_their_own_connection() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut client = TestClient::connect(address, "a");
    client.subscribe("t", Qos::AtMostOnce);
    for noise in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 64],
        &[0x10, 0xff, 0xff, 0xff, 0xff],
    ] {
        let mut stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
        stream.write_all(noise).expect("the node reads");
        let mut rest = Vec::new();
        // An end or a reset: either way it is over.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 64, "{rest:?}");
    }
    client.publish("t", b"still here", Qos::AtLeastOnce);
    assert_eq!(client.message().payload, b"still here");
}

#[test]
fn a_client_identifier_is_connected_once_whatever_worker_it_comes_to() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut before = TestClient::connect(address, "same");
    for _ in 0..12 {
        let now = TestClient::connect(address, "same");
        assert_eq!(before.ended(), Some(ReasonCode::SessionTakenOver));
        before = now;
    }
    wait_for_http(&node, "/v1/sessions", |sessions| {
        sessions.as_array().is_some_and(|all| all.len() == 1)
    });
}

#[test]
fn a_persistent_session_gets_what_it_missed_whatever_worker_it_comes_back_to() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut config = ClientConfig::new(ProtocolVersion::V5, "kept");
    config.session_expiry_interval = 600;
    let mut kept =
        TestClient::try_connect(address, config.clone(), CleanStart::Yes).expect("accepted");
    kept.subscribe("news/#", Qos::ExactlyOnce);
    kept.disconnect();
    let mut publisher = TestClient::connect(address, "p");
    for round in 0..6 {
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            publisher.publish("news/today", format!("{round} {qos:?}").as_bytes(), qos);
        }
        let mut back =
            TestClient::try_connect(address, config.clone(), CleanStart::No).expect("accepted");
        assert!(back.session_present());
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            assert_eq!(back.text().1, format!("{round} {qos:?}"));
        }
        back.disconnect();
    }
}

#[test]
fn a_subscriber_that_does_not_read_holds_nobody_up() {
    let node = start(Settings {
        out_buffer_bytes: Some(64 * 1024),
        ..alone()
    });
    let address = node.addresses()[0];
    // Subscribes, and never reads again.
    let mut asleep = TestClient::connect(address, "asleep");
    asleep.subscribe("load", Qos::AtMostOnce);
    let mut awake = TestClient::connect(address, "awake");
    awake.subscribe("load", Qos::AtLeastOnce);
    let mut publisher = TestClient::connect(address, "p");
    let payload = vec![7; 64 * 1024];
    // Far more than the sockets and the out-buffer of the one asleep take together.
    for _ in 0..400 {
        publisher.publish("load", &payload, Qos::AtLeastOnce);
        assert_eq!(awake.message().payload.len(), payload.len());
    }
    wait_for_http(&node, "/v1/traffic", |traffic| {
        traffic["total"]["dropped_messages"].as_u64() > Some(0)
    });
}

#[test]
fn users_are_let_in_by_their_password_only() {
    let data = directory();
    let hash = hash_password(b"secret").expect("randomness");
    std::fs::write(data.path().join("users"), format!("ann:{hash}\n")).expect("writable");
    let closed = start(Settings {
        users: Some(data.path().join("users")),
        ..alone()
    });
    let users = Some(data.path().join("users"));
    let open = start(Settings {
        users,
        allow_anonymous: Some(true),
        ..alone()
    });
    let refused = Err(ReasonCode::BadUserNameOrPassword);
    let cases = [
        ("right", &closed, Some(("ann", "secret")), Ok(())),
        ("wrong password", &closed, Some(("ann", "Secret")), refused),
        ("wrong name", &closed, Some(("bob", "secret")), refused),
        (
            "nameless where names are wanted",
            &closed,
            None,
            Err(ReasonCode::NotAuthorized),
        ),
        ("nameless where that is allowed", &open, None, Ok(())),
        (
            "wrong password where nameless is allowed",
            &open,
            Some(("ann", "x")),
            refused,
        ),
    ];
    for (name, node, login, expected) in cases {
        let mut config = ClientConfig::new(ProtocolVersion::V5, "c");
        if let Some((user, password)) = login {
            config.user_name = Some(user.into());
            config.password = Some(password.into());
        }
        let result = TestClient::try_connect(node.addresses()[0], config, CleanStart::Yes);
        assert_eq!(result.map(|_| ()), expected, "{name}");
    }
}

#[test]
fn the_api_tells_of_sessions_subscriptions_and_traffic() {
    let node = start(alone());
    let mut client = TestClient::connect(node.addresses()[0], "c1");
    client.subscribe("$share/g/a/+", Qos::AtLeastOnce);
    client.publish("a/b", b"12345", Qos::AtLeastOnce);
    client.message();
    let json = |path: &str| -> serde_json::Value {
        let (status, body) = http(&node, path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    };
    let sessions = json("/v1/sessions");
    assert_eq!(sessions[0]["client_id"], "c1");
    assert_eq!(sessions[0]["connected"], true);
    assert_eq!(sessions[0]["protocol_version"], 5);
    let subscriptions = json("/v1/subscriptions");
    assert_eq!(subscriptions[0]["filter"], "$share/g/a/+");
    assert_eq!(subscriptions[0]["qos"], 1);
    let traffic = json("/v1/traffic");
    assert_eq!(traffic["total"]["external_in_messages"], 1);
    assert_eq!(traffic["total"]["external_out_messages"], 1);
    assert_eq!(traffic["workers"].as_array().map(Vec::len), Some(3));
    let (status, metrics) = http(&node, "/metrics");
    assert_eq!(status, 200);
    let line = "thicket_messages_total{traffic=\"external\",direction=\"in\"} 1";
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

#[test]
fn the_api_tells_of_health_and_refuses_foreign_names() {
    let node = start(alone());
    let address = node.http_address().expect("the API is on");
    assert_eq!(http(&node, "/v1/health/live").0, 200);
    assert_eq!(http(&node, "/v1/health/ready").0, 200);
    assert_eq!(http(&node, "/v1/nothing").0, 404);
    assert_eq!(http_as(address, "/v1/sessions", "rebound.example").0, 403);
}

#[test]
fn a_node_that_stops_says_so_to_its_clients() {
    let node = start(alone());
    let address = node.addresses()[0];
    let mut clients: Vec<_> = (0..6)
        .map(|n| TestClient::connect(address, &format!("c{n}")))
        .collect();
    node.stop();
    for client in &mut clients {
        assert_eq!(client.ended(), Some(ReasonCode::ServerShuttingDown));
    }
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_port_in_use_is_refused_in_words() {
    let node = start(alone());
    let taken = node.addresses()[0];
    let settings = Settings {
        listen: Some(vec![taken.to_string()]),
        ..alone()
    };
    let error = Node::start(settings.check().expect("good settings")).expect_err("taken");
    assert!(matches!(error, StartError::Bind { key: "listen", .. }));
    let words = error.to_string();
    assert!(
        words.contains(&taken.to_string()) && words.contains("in use"),
        "{words}"
    );
}

#[test]
fn a_node_keeps_its_identity_in_its_data_directory() {
    let directory = directory();
    let data = Some(directory.path().join("node"));
    let first = start(Settings {
        data: data.clone(),
        ..alone()
    });
    let id = first.id();
    first.stop();
    let second = start(Settings { data, ..alone() });
    assert_eq!(second.id(), id);
    assert_ne!(start(alone()).id(), id);
}

#[test]
fn both_families_of_addresses_are_served_by_one_node() {
    let listen = Some(vec!["127.0.0.1:0".into(), "[::1]:0".into()]);
    let node = start(Settings { listen, ..alone() });
    let mut clients: Vec<_> = node
        .addresses()
        .iter()
        .map(|address| TestClient::connect(*address, &format!("c{}", address.is_ipv6())))
        .collect();
    for client in &mut clients {
        client.subscribe("t", Qos::AtMostOnce);
    }
    clients[0].publish("t", b"x", Qos::AtMostOnce);
    for client in &mut clients {
        assert_eq!(client.message().payload, b"x");
    }
}

#[test]
fn every_packet_kind_a_client_must_not_send_first_is_refused() {
    let node = start(alone());
    let mut bytes = Vec::new();
    Packet::Pingreq
        .encode(ProtocolVersion::V5, &mut bytes)
        .expect("a packet");
    let mut stream = TcpStream::connect(node.addresses()[0]).expect("the node listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream.write_all(&bytes).expect("the node reads");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
}
