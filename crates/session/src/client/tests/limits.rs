//! What the server allows, what we allow it, and what the caller may not do.

use thicket_mqtt::{EncodeError, SubscribeFilter, SubscriptionOptions};

use super::*;
use crate::topic::TopicNameError;

fn connected_with(config: ClientConfig, connack: &Connack<'_>) -> Bench {
    let mut bench = Bench::new(config);
    bench.reconnect(CleanStart::Yes, connack);
    bench.events();
    bench
}

fn v5() -> ClientConfig {
    ClientConfig::new(V5, "c")
}

#[test]
fn messages_the_server_does_not_take_are_refused_before_they_are_sent() {
    // [MQTT-3.2.2-11] [MQTT-3.2.2-14] [MQTT-3.2.2-15]
    let connack = Connack {
        maximum_qos: Some(Qos::AtLeastOnce),
        retain_available: Some(false),
        maximum_packet_size: Some(20),
        ..Connack::default()
    };
    let not_supported = |reason_code| Err(ClientError::NotSupported { reason_code });
    let large = "x".repeat(20);
    type Published = Result<Option<u16>, ClientError>;
    let cases: Vec<(&str, Publish<'_>, Published)> = vec![
        ("fine", message("a", "x", 1), Ok(Some(1))),
        (
            "QoS",
            message("a", "x", 2),
            not_supported(ReasonCode::QosNotSupported),
        ),
        (
            "retain",
            Publish {
                retain: true,
                ..message("a", "x", 0)
            },
            not_supported(ReasonCode::RetainNotSupported),
        ),
        ("just fits", message("a", &large[..14], 0), Ok(None)),
        (
            "a byte too many",
            message("a", &large[..15], 0),
            Err(ClientError::PacketTooLarge {
                bytes: 21,
                maximum: 20,
            }),
        ),
        (
            "the packet id counts",
            message("a", &large[..13], 1),
            Err(ClientError::PacketTooLarge {
                bytes: 21,
                maximum: 20,
            }),
        ),
        (
            "wildcard",
            message("a/#", "x", 0),
            Err(ClientError::TopicName(TopicNameError::Wildcard {
                wildcard: '#',
            })),
        ),
        (
            "no topic",
            message("", "x", 0),
            Err(ClientError::TopicName(TopicNameError::Empty)),
        ),
        (
            "dup",
            Publish {
                dup: true,
                ..message("a", "x", 1)
            },
            Err(ClientError::ReservedField),
        ),
        (
            "alias",
            Publish {
                topic_alias: Some(1),
                ..message("a", "x", 0)
            },
            Err(ClientError::ReservedField),
        ),
        (
            "id",
            Publish {
                packet_id: Some(id(1)),
                ..message("a", "x", 1)
            },
            Err(ClientError::ReservedField),
        ),
        (
            "subscription identifier",
            Publish {
                subscription_identifiers: (&[1]).into(),
                ..message("a", "x", 0)
            },
            Err(ClientError::ReservedField),
        ),
    ];
    for (name, publish, expected) in cases {
        let mut bench = connected_with(v5(), &connack);
        assert_eq!(bench.publish(&publish), expected, "{name}");
        assert_eq!(bench.sent().len(), usize::from(expected.is_ok()), "{name}");
        assert_eq!(
            bench.client.inflight(),
            usize::from(expected == Ok(Some(1))),
            "{name}"
        );
        assert!(
            expected.is_ok() || !expected.unwrap_err().is_would_block(),
            "{name}"
        );
    }
}

#[test]
fn subscriptions_the_server_does_not_take_are_refused_before_they_are_sent() {
    let connack = Connack {
        wildcard_subscription_available: Some(false),
        subscription_identifiers_available: Some(false),
        shared_subscription_available: Some(false),
        maximum_packet_size: Some(50),
        ..Connack::default()
    };
    let refused = |reason_code| Err(ClientError::NotSupported { reason_code });
    let no_local = SubscriptionOptions {
        no_local: true,
        ..SubscriptionOptions::default()
    };
    let plain = SubscriptionOptions::default();
    let long = "x".repeat(60);
    type Case<'a> = (
        &'a str,
        &'a str,
        SubscriptionOptions,
        Option<u32>,
        Result<(), ClientError>,
    );
    let cases: Vec<Case<'_>> = vec![
        ("fine", "a", no_local, None, Ok(())),
        (
            "wildcard",
            "a/#",
            plain,
            None,
            refused(ReasonCode::WildcardSubscriptionsNotSupported),
        ),
        (
            "identifier",
            "a",
            plain,
            Some(1),
            refused(ReasonCode::SubscriptionIdentifiersNotSupported),
        ),
        (
            "shared",
            "$share/g/a",
            plain,
            None,
            refused(ReasonCode::SharedSubscriptionsNotSupported),
        ),
        (
            "no local on shared",
            "$share/g/a",
            no_local,
            None,
            Err(ClientError::NoLocalOnShared),
        ),
        (
            "too long",
            &long,
            plain,
            None,
            Err(ClientError::PacketTooLarge {
                bytes: 68,
                maximum: 50,
            }),
        ),
    ];
    for (name, filter, options, identifier, expected) in cases {
        let mut bench = connected_with(v5(), &connack);
        let found = bench.client.subscribe(
            bench.now,
            &[SubscribeFilter { filter, options }],
            identifier,
        );
        assert_eq!(found.map(|_| ()), expected, "{name}");
        assert_eq!(bench.sent().len(), usize::from(expected.is_ok()), "{name}");
        assert_eq!(
            bench.publish(&message("a", "", 1)),
            Ok(Some(1 + u16::from(expected.is_ok()))),
            "{name}"
        );
    }
    let mut bench = connected_with(v5(), &connack);
    assert!(matches!(
        bench.client.subscribe(bench.now, &[], None),
        Err(ClientError::Encode(EncodeError::ListEmpty { .. }))
    ));
    assert!(matches!(
        bench.client.unsubscribe(bench.now, &["a/#/b"]),
        Err(ClientError::Filter(_))
    ));
}

#[test]
fn no_more_messages_are_open_than_both_sides_allow() {
    for (servers, ours, expected) in [(Some(3), 10, 3), (None, 4, 4), (Some(10), 2, 2)] {
        let config = ClientConfig {
            maximum_inflight: ours,
            ..v5()
        };
        let mut bench = connected_with(
            config,
            &Connack {
                receive_maximum: servers,
                ..Connack::default()
            },
        );
        for number in 0..expected {
            assert!(
                bench
                    .publish(&message("a", "x", 1 + (number % 2) as u8))
                    .is_ok()
            );
        }
        let error = bench.publish(&message("a", "x", 1)).unwrap_err();
        assert_eq!(
            (error, error.is_would_block()),
            (ClientError::InflightFull { maximum: expected }, true)
        );
        assert!(
            bench.publish(&message("a", "x", 0)).is_ok(),
            "QoS 0 is not held up [MQTT-3.3.4-8]"
        );
        bench.feed(&Packet::Pubrec(acknowledgement(2)));
        assert!(
            bench.publish(&message("a", "x", 1)).is_err(),
            "PUBREC frees nothing"
        );
        bench.feed(&Packet::Puback(acknowledgement(1)));
        assert!(bench.publish(&message("a", "x", 1)).is_ok());
    }
}

#[test]
fn a_resumed_session_keeps_to_the_new_limits() {
    let mut bench = connected_with(v5(), &Connack::default());
    let large = "x".repeat(100);
    for (payload, number) in [("1", 1), (large.as_str(), 1), ("3", 2), ("4", 1)] {
        bench.publish(&message("a", payload, number)).unwrap();
    }
    bench.client.handle_closed();
    let connack = Connack {
        session_present: true,
        receive_maximum: Some(1),
        maximum_packet_size: Some(50),
        maximum_qos: Some(Qos::AtLeastOnce),
        ..Connack::default()
    };
    bench.reconnect(CleanStart::No, &connack);
    let events = bench.events();
    assert!(
        events[1].starts_with("#2 discarded a=xxx") && events[2].starts_with("#3 discarded a=3"),
        "{events:?}"
    );
    assert_eq!(bench.sent(), ["PUBREL #3", "a=1 q1 #1 dup"]);
    assert_eq!(
        bench.publish(&message("a", "new", 1)),
        Err(ClientError::InflightFull { maximum: 1 }),
        "old ones first"
    );
    bench.feed(&Packet::Puback(acknowledgement(1)));
    assert_eq!(bench.sent(), ["a=4 q1 #4 dup"]);
    bench.feed(&Packet::Puback(acknowledgement(4)));
    assert!(bench.publish(&message("a", "new", 1)).is_ok());
}

#[test]
fn the_output_has_a_bound_that_acknowledgements_may_pass() {
    let config = ClientConfig {
        maximum_output_bytes: 20,
        ..v5()
    };
    let mut bench = connected_with(config, &Connack::default());
    let large = "x".repeat(30);
    assert!(
        bench.publish(&message("a", &large, 1)).is_ok(),
        "one always fits"
    );
    let error = bench.publish(&message("a", "x", 0)).unwrap_err();
    assert_eq!(
        (error, error.is_would_block()),
        (ClientError::OutputFull { bytes: 38 }, true)
    );
    bench.feed(&delivery("b", "y", 1, 7));
    assert_eq!(bench.client.output().len(), 38 + 4);
    bench.client.consume(30);
    assert!(bench.publish(&message("a", "x", 0)).is_ok());

    // A resumed session sends as the output drains.
    bench.client.handle_closed();
    bench.events();
    bench.client.connect(bench.now, CleanStart::No).unwrap();
    bench.feed(&Packet::Connack(Box::new(Connack {
        session_present: true,
        ..Connack::default()
    })));
    let connect = bench.client.output().len();
    assert!(connect > 20, "the CONNECT was not written yet");
    assert_eq!(bench.sent(), ["CONNECT c"]);
    assert_eq!(bench.sent(), [format!("a={large} q1 #1 dup")]);
}

#[test]
fn aliases_are_used_within_the_servers_maximum_and_never_survive_a_connection() {
    // [MQTT-3.2.2-17] [MQTT-3.2.2-18] [MQTT-3.3.2-7]
    for (servers, ours, expected) in [
        (None, 5, 0),
        (Some(0), 5, 0),
        (Some(3), 0, 0),
        (Some(1), 5, 1),
        (Some(5), 1, 1),
    ] {
        let config = ClientConfig {
            outbound_topic_aliases: ours,
            ..v5()
        };
        let mut bench = connected_with(
            config,
            &Connack {
                topic_alias_maximum: servers,
                ..Connack::default()
            },
        );
        for payload in ["1", "2"] {
            bench.publish(&message("a/long/topic", payload, 0)).unwrap();
        }
        bench.publish(&message("a/long/topic", "3", 1)).unwrap();
        let words = if expected == 0 {
            ["a/long/topic=1", "a/long/topic=2", "a/long/topic=3 q1 #1"]
        } else {
            ["a/long/topic=1 alias 1", "=2 alias 1", "=3 q1 #1 alias 1"]
        };
        assert_eq!(bench.sent(), words);
        bench.client.handle_closed();
        bench.reconnect(
            CleanStart::No,
            &Connack {
                session_present: true,
                topic_alias_maximum: servers,
                ..Connack::default()
            },
        );
        assert_eq!(bench.sent(), ["a/long/topic=3 q1 #1 dup"]);
        bench.publish(&message("a/long/topic", "4", 0)).unwrap();
        assert!(
            bench.sent()[0].starts_with("a/long/topic=4"),
            "defined anew"
        );
    }
}

#[test]
fn an_alias_does_not_make_a_packet_too_large() {
    let config = ClientConfig {
        outbound_topic_aliases: 1,
        ..v5()
    };
    let connack = Connack {
        topic_alias_maximum: Some(1),
        maximum_packet_size: Some(20),
        ..Connack::default()
    };
    let mut bench = connected_with(config, &connack);
    bench.publish(&message("a/topic", "12345678", 0)).unwrap();
    assert_eq!(bench.client.output().len(), 20);
    assert_eq!(bench.sent(), ["a/topic=12345678"]);
}

#[test]
fn the_servers_aliases_are_understood_within_our_maximum() {
    // [MQTT-3.3.2-10]
    let config = ClientConfig {
        topic_alias_maximum: 2,
        ..v5()
    };
    let aliased = |topic: &'static str, alias, number, packet_id| {
        let publish = message(topic, "x", number);
        Packet::Publish(Publish {
            topic_alias: Some(alias),
            packet_id: PacketId::new(packet_id),
            ..publish
        })
    };
    let mut bench = connected_with(config.clone(), &Connack::default());
    bench.feed(&aliased("a/b", 2, 0, 0));
    bench.feed(&aliased("", 2, 1, 1));
    bench.feed(&aliased("c", 2, 2, 2));
    bench.feed(&aliased("d", 2, 2, 2));
    bench.feed(&aliased("", 2, 0, 0));
    assert_eq!(
        bench.events(),
        ["a/b=x", "a/b=x q1 #1", "c=x q2 #2", "d=x"],
        "a repeated message teaches an alias, too"
    );
    bench.sent();
    bench.feed(&aliased("", 1, 0, 0));
    assert_eq!(
        (bench.events(), bench.sent()),
        (
            vec!["error: topic alias 1 stands for no topic".into()],
            vec!["DISCONNECT ProtocolError".into()]
        )
    );

    let mut bench = connected_with(config, &Connack::default());
    bench.feed(&aliased("a", 3, 0, 0));
    assert_eq!(bench.sent(), ["DISCONNECT TopicAliasInvalid"]);
}

#[test]
fn our_receive_maximum_is_held_against_a_5_0_server_only() {
    for (version, expected) in [
        (V5, vec!["PUBREC #1", "DISCONNECT ReceiveMaximumExceeded"]),
        (V311, vec!["PUBREC #1", "PUBREC #2"]),
    ] {
        let config = ClientConfig {
            receive_maximum: 1,
            ..ClientConfig::new(version, "c")
        };
        let mut bench = Bench::connected(config);
        bench.feed(&delivery("a", "x", 2, 1));
        bench.feed(&delivery("a", "x", 2, 2));
        assert_eq!(bench.sent(), expected, "{version:?}");
    }
}
