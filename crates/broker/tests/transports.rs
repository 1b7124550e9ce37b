//! Listeners for TLS, WebSocket, Unix sockets and PROXY headers, over real sockets.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use support::certificates::Authority;
use support::{TIMEOUT, TestClient, alone, directory, http, plain, start, wait_for_http};
use tempfile::TempDir;
use thicket_broker::{ClientCertificateChoice, ListenerSettings, Node, Settings, hash_password};
use thicket_mqtt::{ProtocolVersion, Publish, Qos, ReasonCode};
use thicket_session::client::{CleanStart, ClientConfig};
use thicket_transport::client::{self, Place, Target};

/// 3.1.1, clean session, client identifier `a`.
const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a";
const ALL_QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

fn listener(address: &str) -> ListenerSettings {
    ListenerSettings {
        address: Some(address.to_owned()),
        ..ListenerSettings::default()
    }
}

/// A node with these listeners and a certificate of `authority`.
fn node_with(authority: &Authority, listeners: Vec<ListenerSettings>) -> Node {
    let (certificate, key) = authority.issue("server");
    start(Settings {
        listen: None,
        listener: Some(listeners),
        tls_certificate: Some(certificate),
        tls_key: Some(key),
        ..alone()
    })
}

/// A raw connection with a bound on waiting.
fn raw(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the node listens");
    stream.set_nodelay(true).expect("a socket");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    stream
}

/// What the node says until it ends the connection.
fn last_words(mut stream: impl Read) -> Vec<u8> {
    let mut words = Vec::new();
    match stream.read_to_end(&mut words) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("the node does not end the connection")
        }
        // An end or a reset: either way it is over.
        Ok(_) | Err(_) => words,
    }
}

/// The same node on everything it can listen on: its addresses in this order, the Unix socket last.
fn everywhere(name: &str) -> (Node, TempDir, Vec<(&'static str, Target)>) {
    let authority = Authority::new(name);
    let directory = directory();
    let socket = directory.path().join("thicket.sock");
    let unix = format!("unix:{}", socket.display());
    let addresses = [
        "127.0.0.1:0",
        "tls://127.0.0.1:0",
        "ws://127.0.0.1:0/mqtt",
        "wss://127.0.0.1:0",
        &unix,
    ];
    let node = node_with(&authority, addresses.into_iter().map(listener).collect());
    let tls = authority.client(None);
    let [tcp, tls_at, ws, wss] = *node.addresses() else {
        panic!("four listeners have addresses")
    };
    let target = |address, is_tls: bool, is_websocket: bool| Target {
        tls: is_tls.then(|| tls.clone()),
        websocket: is_websocket.then(|| "/mqtt".to_owned()),
        ..plain(address)
    };
    let unix = Target {
        place: Place::Unix(socket),
        tls: None,
        websocket: None,
    };
    let targets = vec![
        ("tcp", target(tcp, false, false)),
        ("tls", target(tls_at, true, false)),
        ("ws", target(ws, false, true)),
        ("wss", target(wss, true, true)),
        ("unix", unix),
    ];
    (node, directory, targets)
}

#[test]
fn messages_of_every_qos_and_size_pass_between_all_transports() {
    let (_node, _directory, targets) = everywhere("all");
    let mut subscribers: Vec<_> = targets
        .iter()
        .map(|(name, target)| {
            let mut subscriber = TestClient::connect_to(target, &format!("s-{name}"));
            subscriber.subscribe("t/#", Qos::ExactlyOnce);
            subscriber
        })
        .collect();
    // Larger than a record of TLS, a short frame, a socket's buffer.
    let sizes = [1, 200, 20_000, 900_000];
    for (name, target) in &targets {
        let mut publisher = TestClient::connect_to(target, &format!("p-{name}"));
        for qos in ALL_QOS {
            for size in sizes {
                let payload: Vec<u8> = (0..size).map(|n: u32| (n % 251) as u8).collect();
                publisher.publish(&format!("t/{name}"), &payload, qos);
                for (subscriber, (of, _)) in subscribers.iter_mut().zip(&targets) {
                    let message = subscriber.message();
                    assert!(
                        message.payload == payload && message.qos == qos,
                        "{size} bytes at {qos:?} from {name} to {of}: {} came at {:?}",
                        message.payload.len(),
                        message.qos
                    );
                }
            }
        }
    }
}

#[test]
fn a_slow_client_of_any_transport_gets_every_byte_in_order() {
    let (_node, _directory, targets) = everywhere("slow");
    for (name, target) in &targets {
        let mut slow = TestClient::connect_to(target, &format!("slow-{name}"));
        slow.subscribe("load", Qos::AtLeastOnce);
        let mut publisher = TestClient::connect_to(&targets[0].1, "p");
        let count = 100_u32;
        for n in 0..count {
            let mut payload = vec![n as u8; 60_000];
            payload[..4].copy_from_slice(&n.to_be_bytes());
            // Nobody reads meanwhile: sockets fill up, then buffers, then the queue.
            publisher.publish("load", &payload, Qos::AtLeastOnce);
        }
        for n in 0..count {
            let payload = slow.message().payload;
            assert_eq!(payload[..4], n.to_be_bytes(), "{name}");
            assert!(payload[4..].iter().all(|byte| *byte == n as u8), "{name}");
        }
        slow.disconnect();
    }
}

#[test]
fn a_session_is_taken_over_across_transports_and_workers() {
    let (_node, _directory, targets) = everywhere("takeover");
    let mut before = TestClient::connect_to(&targets[0].1, "same");
    for (_, target) in targets.iter().cycle().skip(1).take(12) {
        let mut now = TestClient::connect_to(target, "same");
        assert_eq!(before.ended(), Some(ReasonCode::SessionTakenOver));
        now.subscribe("t", Qos::AtLeastOnce);
        now.publish("t", b"x", Qos::AtLeastOnce);
        assert_eq!(now.message().payload, b"x");
        before = now;
    }
}

#[test]
fn each_listener_puts_its_prefix_before_topics_and_takes_it_off_again() {
    let with_prefix = |prefix: &str| ListenerSettings {
        topic_prefix: Some(prefix.to_owned()),
        ..listener("127.0.0.1:0")
    };
    let node = start(Settings {
        listen: Some(vec!["127.0.0.1:0".into()]),
        listener: Some(vec![with_prefix("one/"), with_prefix("two/")]),
        ..alone()
    });
    let connect = |index: usize, id: &str| TestClient::connect(node.addresses()[index], id);
    let mut subscribers: Vec<_> = (0..3)
        .map(|index| {
            let mut client = connect(index, &format!("s{index}"));
            client.subscribe("#", Qos::AtLeastOnce);
            client
        })
        .collect();
    for (index, topic) in [(1, "a"), (2, "a/b"), (0, "two/c"), (0, "three")] {
        let mut publisher = connect(index, "p");
        publisher.publish(topic, topic.as_bytes(), Qos::AtLeastOnce);
    }
    let expected: [&[&str]; 3] = [
        &["one/a", "two/a/b", "two/c", "three"],
        &["a"],
        &["a/b", "c"],
    ];
    for (subscriber, expected) in subscribers.iter_mut().zip(expected) {
        for topic in expected {
            assert_eq!(subscriber.text().0, *topic);
        }
    }
    // Nothing of another prefix has come: this is the next thing each of them gets.
    for (index, subscriber) in subscribers.iter_mut().enumerate().skip(1) {
        connect(index, "p").publish("end", b"", Qos::AtLeastOnce);
        assert_eq!(subscriber.text().0, "end");
    }
}

#[test]
fn each_listener_has_its_own_users_and_its_own_packet_size() {
    let data = directory();
    let file = |name: &str| {
        let path = data.path().join(name);
        let hash = hash_password(b"secret").expect("randomness");
        std::fs::write(&path, format!("{name}:{hash}\n")).expect("writable");
        Some(path)
    };
    let node = start(Settings {
        users: file("ann"),
        listen: Some(vec!["127.0.0.1:0".into()]),
        listener: Some(vec![
            ListenerSettings {
                users: file("bob"),
                ..listener("127.0.0.1:0")
            },
            ListenerSettings {
                allow_anonymous: Some(true),
                maximum_packet_size: Some(100),
                ..listener("127.0.0.1:0")
            },
        ]),
        ..alone()
    });
    let (bad, nobody) = (
        Err(ReasonCode::BadUserNameOrPassword),
        Err(ReasonCode::NotAuthorized),
    );
    let cases = [
        (0, Some("ann"), Ok(())),
        (0, Some("bob"), bad),
        (0, None, nobody),
        (1, Some("ann"), bad),
        (1, Some("bob"), Ok(())),
        (1, None, nobody),
        (2, Some("ann"), Ok(())),
        (2, None, Ok(())),
    ];
    for (index, user, expected) in cases {
        let mut config = ClientConfig::new(ProtocolVersion::V5, "c");
        config.user_name = user.map(str::to_owned);
        config.password = user.map(|_| b"secret".to_vec());
        let result = TestClient::try_connect(node.addresses()[index], config, CleanStart::Yes);
        assert_eq!(result.map(|_| ()), expected, "{user:?} at listener {index}");
    }
    let mut small = raw(node.addresses()[2]);
    small.write_all(CONNECT).expect("the node reads");
    small.read_exact(&mut [0; 4]).expect("a CONNACK");
    small.write_all(&[0x30, 101]).expect("the node reads");
    assert_eq!(last_words(small), b"");
}

#[test]
fn a_listener_takes_as_many_connections_as_it_may_and_others_go_on() {
    let node = start(Settings {
        listen: Some(vec!["127.0.0.1:0".into()]),
        listener: Some(vec![ListenerSettings {
            connections: Some(2),
            ..listener("127.0.0.1:0")
        }]),
        ..alone()
    });
    let (open, bounded) = (node.addresses()[0], node.addresses()[1]);
    let first = TestClient::connect(bounded, "a");
    let _second = TestClient::connect(bounded, "b");
    assert_eq!(last_words(raw(bounded)), b"");
    let mut other = TestClient::connect(open, "c");
    other.publish("t", b"", Qos::AtLeastOnce);
    first.disconnect();
    // The place is free once the node has closed its end.
    wait_for_http(&node, "/v1/sessions", |sessions| {
        sessions.as_array().is_some_and(|all| all.len() == 2)
    });
    let mut third = TestClient::connect(bounded, "d");
    third.publish("t", b"", Qos::AtLeastOnce);
}

#[test]
fn a_client_certificate_is_asked_for_as_configured() {
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let asking = |choice| ListenerSettings {
        tls_client_ca: Some(ours.file()),
        tls_client_certificate: Some(choice),
        ..listener("tls://127.0.0.1:0")
    };
    let listeners = vec![
        listener("tls://127.0.0.1:0"),
        asking(ClientCertificateChoice::Optional),
        asking(ClientCertificateChoice::Required),
    ];
    let node = node_with(&ours, listeners);
    let (good, bad) = (ours.issue("sensor-7"), foreign.issue("sensor-7"));
    let cases = [
        ("not asked, none", 0, None, true),
        ("optional, none", 1, None, true),
        ("optional, good", 1, Some(good.clone()), true),
        ("optional, foreign", 1, Some(bad.clone()), false),
        ("required, none", 2, None, false),
        ("required, good", 2, Some(good), true),
        ("required, foreign", 2, Some(bad), false),
    ];
    for (name, index, identity, expected) in cases {
        let target = Target {
            tls: Some(ours.client(identity)),
            ..plain(node.addresses()[index])
        };
        assert_eq!(is_served(&target), expected, "{name}");
    }
}

/// Whether the node answers a CONNECT. With TLS 1.3 a client that was refused hears of it only when it reads.
fn is_served(target: &Target) -> bool {
    let Ok((mut reader, writer)) = client::connect(target) else {
        return false;
    };
    reader.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let _ = writer.write_all(CONNECT);
    reader.read_exact(&mut [0; 4]).is_ok()
}

#[test]
fn certificates_are_read_again_without_ending_a_connection() {
    let (first, second) = (Authority::new("reload-1"), Authority::new("reload-2"));
    let node = node_with(&first, vec![listener("tls://127.0.0.1:0")]);
    let believing = |authority: &Authority| Target {
        tls: Some(authority.client(None)),
        ..plain(node.addresses()[0])
    };
    let mut standing = TestClient::connect_to(&believing(&first), "standing");
    let file = |authority: &Authority| authority.file().with_file_name("server.crt");
    let good = std::fs::read(file(&first)).expect("written before");
    std::fs::write(file(&first), "no certificate").expect("writable");
    let problems = node.reload();
    assert!(
        problems.len() == 1 && problems[0].contains("no certificate in"),
        "{problems:?}"
    );
    assert!(is_served(&believing(&first)), "the one in use stays");
    let (certificate, key) = second.issue("server");
    std::fs::copy(&certificate, file(&first)).expect("writable");
    assert_eq!(node.reload().len(), 1, "the key is still the old one");
    assert!(is_served(&believing(&first)));
    std::fs::copy(&key, file(&first).with_extension("key")).expect("writable");
    assert_eq!(node.reload(), Vec::<String>::new());
    assert!(is_served(&believing(&second)));
    assert!(!is_served(&believing(&first)));
    standing.publish("t", &good, Qos::AtLeastOnce);
}

#[test]
fn the_address_in_a_proxy_header_is_the_clients() {
    let proxied = |address| ListenerSettings {
        proxy_protocol: Some(true),
        ..listener(address)
    };
    let node = start(Settings {
        listen: None,
        listener: Some(vec![proxied("127.0.0.1:0")]),
        ..alone()
    });
    let v2 =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x01\x9c\x40\x07\x5b";
    let cases: [(&[u8], &str); 3] = [
        (
            b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 1883\r\n",
            "[2001:db8::7]:40000",
        ),
        (v2, "192.0.2.7:40000"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
    ];
    for (header, expected) in cases {
        for step in [1, 7, 1000] {
            let mut stream = raw(node.addresses()[0]);
            for piece in [header, CONNECT].concat().chunks(step) {
                stream.write_all(piece).expect("the node reads");
            }
            stream.read_exact(&mut [0; 4]).expect("a CONNACK");
            wait_for_http(&node, "/v1/sessions", |sessions| {
                let peer = sessions[0]["peer"].as_str();
                peer.is_some_and(|peer| peer.starts_with(expected))
            });
        }
    }
}

#[test]
fn without_a_good_proxy_header_a_connection_ends() {
    let node = start(Settings {
        listen: None,
        listener: Some(vec![ListenerSettings {
            proxy_protocol: Some(true),
            ..listener("127.0.0.1:0")
        }]),
        connect_timeout_s: Some(1),
        ..alone()
    });
    let cases: [(&str, &[u8]); 4] = [
        ("MQTT at once", CONNECT),
        ("a torn header", b"PROXY TCP4 192.0.2.7\r\n"),
        ("half a header", b"PROXY TCP4 192.0"),
        ("nothing", b""),
    ];
    for (name, bytes) in cases {
        let mut stream = raw(node.addresses()[0]);
        stream.write_all(bytes).expect("the node reads");
        assert_eq!(last_words(stream), b"", "{name}");
    }
    assert_eq!(http(&node, "/v1/health/live").0, 200);
}

#[test]
fn a_proxy_header_comes_before_tls_and_websocket() {
    let authority = Authority::new("proxied-wss");
    let node = node_with(
        &authority,
        vec![ListenerSettings {
            proxy_protocol: Some(true),
            ..listener("wss://127.0.0.1:0")
        }],
    );
    // A balancer that puts a header before whatever its client says.
    let balancer = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let behind = node.addresses()[0];
    let at = balancer.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut client, _) = balancer.accept().expect("a client");
        let mut node = TcpStream::connect(behind).expect("the node listens");
        node.write_all(b"PROXY TCP4 192.0.2.9 192.0.2.1 40000 1883\r\n")
            .expect("the node reads");
        let (mut to_client, mut from_node) = (
            client.try_clone().expect("a socket"),
            node.try_clone().expect("a socket"),
        );
        std::thread::spawn(move || std::io::copy(&mut from_node, &mut to_client));
        let _ = std::io::copy(&mut client, &mut node);
    });
    let target = Target {
        tls: Some(authority.client(None)),
        websocket: Some("/mqtt".to_owned()),
        ..plain(at)
    };
    let mut client = TestClient::connect_to(&target, "c");
    client.subscribe("t", Qos::AtLeastOnce);
    client.publish("t", b"x", Qos::AtLeastOnce);
    assert_eq!(client.message().payload, b"x");
    wait_for_http(&node, "/v1/sessions", |sessions| {
        sessions[0]["peer"] == "192.0.2.9:40000"
    });
}

/// A WebSocket client by hand.
fn upgrade(address: SocketAddr) -> TcpStream {
    let mut stream = raw(address);
    stream
        .write_all(
            b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n",
        )
        .expect("the node reads");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        answer.extend(byte);
    }
    assert!(
        answer.starts_with(b"HTTP/1.1 101 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    stream
}

/// A masked frame; the mask is all zeros, so the payload can be read.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).expect("short");
    [&[first, 0x80 | len, 0, 0, 0, 0], payload].concat()
}

fn websocket_node() -> Node {
    start(Settings {
        listen: Some(vec!["ws://127.0.0.1:0".into()]),
        ..alone()
    })
}

#[test]
fn packets_may_be_split_over_frames_or_share_one() {
    let node = websocket_node();
    let mut publish = Vec::new();
    Publish::new("t", b"x")
        .encode(ProtocolVersion::V311, &mut publish)
        .expect("a good message");
    let mut subscriber = TestClient::connect_to(
        &Target {
            websocket: Some("/mqtt".to_owned()),
            ..plain(node.addresses()[0])
        },
        "s",
    );
    subscriber.subscribe("t", Qos::AtMostOnce);
    let together = [CONNECT, &publish[..]].concat();
    let split: Vec<u8> = together
        .iter()
        .enumerate()
        .flat_map(|(n, byte)| frame(if n == 0 { 0x02 } else { 0x00 }, &[*byte]))
        .chain(frame(0x80, b""))
        .collect();
    for bytes in [frame(0x82, &together), split] {
        let mut stream = upgrade(node.addresses()[0]);
        stream.write_all(&bytes).expect("the node reads");
        let mut connack = [0; 6];
        stream
            .read_exact(&mut connack)
            .expect("a CONNACK in a frame");
        assert_eq!(connack, [0x82, 4, 0x20, 2, 0, 0]);
        assert_eq!(subscriber.message().payload, b"x");
    }
}

#[test]
fn pings_are_answered_and_bad_frames_end_the_connection_with_their_status() {
    let node = websocket_node();
    let mut stream = upgrade(node.addresses()[0]);
    stream
        .write_all(&frame(0x89, b"hello"))
        .expect("the node reads");
    let mut pong = [0; 7];
    stream.read_exact(&mut pong).expect("a pong");
    assert_eq!(pong, *b"\x8a\x05hello");
    let too_long = [0x82, 0xff, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let cases: [(&str, Vec<u8>, [u8; 4]); 4] = [
        ("a close", frame(0x88, &[0x03, 0xe9]), [0x88, 2, 0x03, 0xe9]),
        ("text", frame(0x81, b"x"), [0x88, 2, 0x03, 0xeb]),
        ("not masked", vec![0x82, 1, 0], [0x88, 2, 0x03, 0xea]),
        ("a giant claim", too_long.to_vec(), [0x88, 2, 0x03, 0xf1]),
    ];
    for (name, bytes, expected) in cases {
        let mut stream = upgrade(node.addresses()[0]);
        stream.write_all(&bytes).expect("the node reads");
        assert_eq!(last_words(stream), expected, "{name}");
    }
}

#[test]
fn a_node_that_stops_says_goodbye_in_every_layer() {
    let (node, _directory, targets) = everywhere("goodbye");
    let mut clients: Vec<_> = targets
        .iter()
        .map(|(name, target)| TestClient::connect_to(target, name))
        .collect();
    let socket = targets.iter().find_map(|(_, target)| match &target.place {
        Place::Unix(path) => Some(path.clone()),
        Place::Tcp(..) => None,
    });
    node.stop();
    for client in &mut clients {
        assert_eq!(client.ended(), Some(ReasonCode::ServerShuttingDown));
    }
    assert!(!socket.expect("one is a Unix socket").exists());
}

#[test]
fn noise_on_any_transport_ends_only_its_own_connection() {
    let (node, _directory, targets) = everywhere("noise");
    let mut witness = TestClient::connect_to(&targets[1].1, "witness");
    witness.subscribe("t", Qos::AtLeastOnce);
    let noise: [&[u8]; 5] = [
        CONNECT,
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 5000],
        // A handshake of TLS that claims more than it sends.
        &[0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0xff, 0xff, 0xff],
        b"GET /mqtt HTTP/1.1\r\n",
    ];
    let layered = &node.addresses()[1..];
    for address in layered {
        for bytes in noise {
            let mut stream = raw(*address);
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            last_words(stream);
        }
    }
    witness.publish("t", b"still here", Qos::AtLeastOnce);
    assert_eq!(witness.message().payload, b"still here");
}

#[test]
fn a_listener_that_makes_no_sense_is_refused_in_words() {
    let with = |listener: ListenerSettings| Settings {
        listen: None,
        listener: Some(vec![listener]),
        ..Settings::default()
    };
    let file = Some(PathBuf::from("/nowhere"));
    let cases = [
        (
            "no address",
            with(ListenerSettings::default()),
            "without an address",
        ),
        (
            "no certificate",
            with(listener("tls://127.0.0.1:0")),
            "a `tls_certificate`",
        ),
        (
            "no such file",
            with(ListenerSettings {
                tls_certificate: file.clone(),
                tls_key: file.clone(),
                ..listener("tls://127.0.0.1:0")
            }),
            "/nowhere",
        ),
        (
            "TLS keys without TLS",
            with(ListenerSettings {
                tls_key: file.clone(),
                ..listener("127.0.0.1:0")
            }),
            "not tls or wss",
        ),
        (
            "path without WebSocket",
            with(ListenerSettings {
                websocket_path: Some("/x".into()),
                ..listener("127.0.0.1:0")
            }),
            "not ws or wss",
        ),
        (
            "wildcard in the prefix",
            with(ListenerSettings {
                topic_prefix: Some("a/#/".into()),
                ..listener("127.0.0.1:0")
            }),
            "topic_prefix",
        ),
        ("no path", with(listener("unix:")), "unix:PATH"),
        (
            "open and nobody said who",
            with(listener("0.0.0.0:0")),
            "who may connect",
        ),
        (
            "two transports",
            with(ListenerSettings {
                transport: Some(thicket_broker::TransportChoice::Tcp),
                ..listener("ws://127.0.0.1:0")
            }),
            "key `transport`",
        ),
    ];
    for (name, settings, expected) in cases {
        let error = settings.check().expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}
