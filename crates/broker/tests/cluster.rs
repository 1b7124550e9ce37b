//! Several nodes over real sockets: they find each other, and are one broker.

mod support;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};
use support::{TestClient, alone, directory, http, start, wait_for_http};
use thicket_broker::{DiscoverChoice, Node, Settings};
use thicket_mqtt::{ProtocolVersion, Publish, Qos};
use thicket_session::client::{CleanStart, ClientConfig};

const ALL_QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

/// Settings of a node with two workers that knows `seeds`.
fn with_seeds(seeds: &[SocketAddr]) -> Settings {
    let seed = Some(seeds.iter().map(ToString::to_string).collect());
    Settings {
        seed,
        workers: Some(2),
        ..alone()
    }
}

/// Three nodes of which each knows the first.
fn three() -> [Node; 3] {
    let first = start(with_seeds(&[]));
    let seed = first.addresses()[0];
    let nodes = [
        first,
        start(with_seeds(&[seed])),
        start(with_seeds(&[seed])),
    ];
    wait_until_all_see(&nodes, 3);
    nodes
}

fn reachable(nodes: &serde_json::Value) -> usize {
    let all = nodes.as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter()
        .filter(|node| node["is_self"] == true || node["reachable"] == true)
        .count()
}

fn wait_until_all_see(nodes: &[Node], count: usize) {
    for node in nodes {
        wait_for_http(node, "/v1/nodes", |nodes| reachable(nodes) == count);
    }
}

#[test]
fn nodes_find_each_other_by_a_seed_and_pass_messages_of_every_qos() {
    let nodes = three();
    let mut subscribers: Vec<_> = nodes
        .iter()
        .enumerate()
        .map(|(n, node)| TestClient::connect(node.addresses()[0], &format!("s{n}")))
        .collect();
    for subscriber in &mut subscribers {
        subscriber.subscribe("site/+/temp", Qos::ExactlyOnce);
    }
    for (n, node) in nodes.iter().enumerate() {
        let mut publisher = TestClient::connect(node.addresses()[0], &format!("p{n}"));
        for qos in ALL_QOS {
            publisher.publish(
                &format!("site/{n}/temp"),
                format!("{qos:?}").as_bytes(),
                qos,
            );
        }
        for subscriber in &mut subscribers {
            let mut received: Vec<_> = ALL_QOS.iter().map(|_| subscriber.message()).collect();
            received.sort_by_key(|message| message.qos);
            for (message, qos) in received.into_iter().zip(ALL_QOS) {
                assert_eq!(
                    (message.topic, message.qos),
                    (format!("site/{n}/temp"), qos)
                );
                assert_eq!(message.payload, format!("{qos:?}").as_bytes());
            }
        }
    }
}

#[test]
fn nodes_of_one_host_find_each_other_by_multicast() {
    // A port of our own, so that other runs on this host are not heard.
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|socket| socket.local_addr());
    let port = port.expect("a free port").port();
    let settings = || Settings {
        discover: Some(vec![DiscoverChoice::Multicast]),
        multicast_group: Some(format!("239.255.18.85:{port}")),
        multicast_ttl: Some(0),
        multicast_interval_ms: Some(200),
        ..with_seeds(&[])
    };
    let nodes = [start(settings()), start(settings()), start(settings())];
    wait_until_all_see(&nodes, 3);
}

#[test]
fn nodes_find_each_other_by_a_name_that_is_looked_up_again() {
    // The second node is not there yet when the first looks for it.
    let (_reserved, port) = reserve_port();
    let first = start(Settings {
        discover: Some(vec![DiscoverChoice::Dns]),
        dns_name: Some(vec![format!("localhost:{port}")]),
        dns_interval_s: Some(1),
        ..with_seeds(&[])
    });
    let second = start(Settings {
        listen: Some(vec![format!("127.0.0.1:{port}")]),
        ..with_seeds(&[])
    });
    wait_until_all_see(&[first, second], 2);
}

#[test]
fn strangers_stay_strangers() {
    let data = directory();
    let secret = |name: &str, text: &str| {
        let path = data.path().join(name);
        std::fs::write(&path, text).expect("writable");
        Some(path)
    };
    let ours = secret("ours", "m8Zr1kqVb0XnTf5cWj7sLy3aHu9dPe2gKo4iRxQwEtA=");
    let home = start(Settings {
        cluster_secret_file: ours.clone(),
        ..with_seeds(&[])
    });
    let seeds = [home.addresses()[0]];
    let strangers = [
        start(Settings {
            cluster_secret_file: secret("theirs", "Ub6YdNf2hQp9vJx4Cg8tKr0zMe5wAl7iSoD3yBqVnZE="),
            ..with_seeds(&seeds)
        }),
        start(Settings {
            cluster_secret_file: None,
            ..with_seeds(&seeds)
        }),
        start(Settings {
            cluster_name: Some("other".into()),
            cluster_secret_file: ours.clone(),
            ..with_seeds(&seeds)
        }),
    ];
    let friend = start(Settings {
        cluster_secret_file: ours,
        ..with_seeds(&seeds)
    });
    wait_until_all_see(&[home, friend], 2);
    for stranger in &strangers {
        let (_, body) = http(stranger, "/v1/nodes");
        assert_eq!(
            reachable(&serde_json::from_str(&body).expect("JSON")),
            1,
            "{body}"
        );
    }
}

#[test]
fn a_retained_message_is_found_on_every_node() {
    let nodes = three();
    let mut publisher = TestClient::connect(nodes[0].addresses()[0], "p");
    let publish = Publish {
        qos: Qos::AtLeastOnce,
        retain: true,
        ..Publish::new("state/1", b"on")
    };
    publisher.send(&publish);
    publisher.publish("flush", b"", Qos::AtLeastOnce);
    for node in &nodes {
        wait_for_http(node, "/v1/traffic", |it| {
            it["total"]["retained_messages"] == 1
        });
        let mut late = TestClient::connect(node.addresses()[0], "late");
        late.subscribe("state/#", Qos::AtLeastOnce);
        let message = late.message();
        assert_eq!(
            (message.payload.as_slice(), message.retain),
            (&b"on"[..], true)
        );
    }
}

#[test]
fn a_session_is_found_from_every_node() {
    let nodes = three();
    let mut config = ClientConfig::new(ProtocolVersion::V5, "wanderer");
    config.session_expiry_interval = 600;
    let connect = |node: &Node, clean_start| {
        TestClient::try_connect(node.addresses()[0], config.clone(), clean_start).expect("accepted")
    };
    let mut first = connect(&nodes[0], CleanStart::Yes);
    first.subscribe("news", Qos::ExactlyOnce);
    first.disconnect();
    for round in 0..6 {
        let mut publisher = TestClient::connect(nodes[(round + 1) % 3].addresses()[0], "p");
        publisher.publish("news", round.to_string().as_bytes(), Qos::ExactlyOnce);
        let mut back = connect(&nodes[(round + 2) % 3], CleanStart::No);
        assert!(back.session_present(), "round {round}");
        assert_eq!(back.text().1, round.to_string());
        back.disconnect();
    }
}

#[test]
fn a_node_that_stops_is_missed_and_one_that_comes_back_joins_again() {
    let (_reserved, port) = reserve_port();
    let settings = |seeds: &[SocketAddr]| Settings {
        listen: Some(vec![format!("127.0.0.1:{port}")]),
        ..with_seeds(seeds)
    };
    let stays = start(with_seeds(&[SocketAddr::from((Ipv4Addr::LOCALHOST, port))]));
    let leaves = start(settings(&[]));
    let both = [stays, leaves];
    wait_until_all_see(&both, 2);
    let [stays, leaves] = both;
    leaves.stop();
    wait_for_http(&stays, "/v1/nodes", |nodes| reachable(nodes) == 1);
    let back = start(settings(&[]));
    wait_until_all_see(&[stays, back], 2);
}

#[test]
fn the_table_of_nodes_counts_the_clients_of_each() {
    let nodes = three();
    let mut client = TestClient::connect(nodes[1].addresses()[0], "c");
    client.subscribe("a", Qos::AtMostOnce);
    client.subscribe("b", Qos::AtMostOnce);
    let id = format!("{:016x}", nodes[1].id().0);
    for node in &nodes {
        wait_for_http(node, "/v1/nodes", |nodes| {
            let all = nodes.as_array().map(Vec::as_slice).unwrap_or_default();
            all.iter()
                .any(|it| it["id"] == id.as_str() && it["clients"] == 1 && it["subscriptions"] == 2)
        });
    }
}

/// A port where nobody listens and that no other socket is given, as long as the first of both is there. A node may listen on it.
fn reserve_port() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("as nodes do");
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).expect("a free port");
    let address = socket.local_addr().expect("bound").as_socket();
    (socket, address.expect("IPv4").port())
}
