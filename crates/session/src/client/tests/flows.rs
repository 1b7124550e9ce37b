//! QoS 1 and 2 in both directions, subscriptions, and what is left when a session continues.

use thicket_mqtt::{Suback, SubscribeFilter, SubscriptionOptions, Unsuback};

use super::*;

#[test]
fn messages_are_sent_by_the_rules_of_their_qos() {
    for version in [V311, V5] {
        let mut bench = Bench::with_version(version);
        assert_eq!(bench.publish(&message("a", "0", 0)), Ok(None));
        assert_eq!(bench.publish(&message("a", "1", 1)), Ok(Some(1)));
        assert_eq!(bench.publish(&message("a", "2", 2)), Ok(Some(2)));
        assert_eq!(bench.sent(), ["a=0", "a=1 q1 #1", "a=2 q2 #2"]);
        assert_eq!(bench.client.inflight(), 2);
        bench.feed(&Packet::Pubrec(acknowledgement(2)));
        assert_eq!(
            (bench.sent(), bench.events()),
            (vec!["PUBREL #2".to_owned()], vec![])
        );
        bench.feed(&Packet::Puback(acknowledgement(1)));
        bench.feed(&Packet::Pubcomp(acknowledgement(2)));
        assert_eq!(bench.events(), ["#1 Success", "#2 Success"]);
        assert_eq!((bench.sent().len(), bench.client.inflight()), (0, 0));
        assert_eq!(
            bench.publish(&message("a", "3", 1)),
            Ok(Some(1)),
            "the identifier is free again"
        );
    }
}

#[test]
fn refused_messages_are_settled_with_the_servers_reason() {
    let mut bench = Bench::with_version(V5);
    bench.publish(&message("a", "1", 1)).unwrap();
    bench.publish(&message("a", "2", 2)).unwrap();
    bench.sent();
    bench.feed(&Packet::Puback(Acknowledgement::new(
        id(1),
        ReasonCode::QuotaExceeded,
    )));
    bench.feed(&Packet::Pubrec(Acknowledgement::new(
        id(2),
        ReasonCode::NotAuthorized,
    )));
    assert_eq!(bench.events(), ["#1 QuotaExceeded", "#2 NotAuthorized"]);
    assert_eq!((bench.sent().len(), bench.client.inflight()), (0, 0));
}

#[test]
fn acknowledgements_for_unknown_identifiers_are_answered_and_wrong_ones_end_the_connection() {
    let cases: &[(&str, Packet<'_>, &[&str], bool)] = &[
        ("PUBACK", Packet::Puback(acknowledgement(7)), &[], true),
        (
            "PUBREC",
            Packet::Pubrec(acknowledgement(7)),
            &["PUBREL #7 PacketIdentifierNotFound"],
            true,
        ),
        (
            "PUBREL",
            Packet::Pubrel(acknowledgement(7)),
            &["PUBCOMP #7 PacketIdentifierNotFound"],
            true,
        ),
        ("PUBCOMP", Packet::Pubcomp(acknowledgement(7)), &[], true),
        (
            "PUBCOMP for QoS 1",
            Packet::Pubcomp(acknowledgement(1)),
            &["DISCONNECT ProtocolError"],
            false,
        ),
        (
            "SUBACK",
            Packet::Suback(Suback::new(id(7), vec![ReasonCode::Success])),
            &["DISCONNECT ProtocolError"],
            false,
        ),
    ];
    for (name, packet, expected, stays) in cases {
        let mut bench = Bench::with_version(V5);
        bench.publish(&message("a", "1", 1)).unwrap();
        bench.sent();
        bench.feed(packet);
        assert_eq!(bench.sent(), *expected, "{name}");
        assert_eq!(
            bench.client.state() == ConnectionState::Connected,
            *stays,
            "{name}"
        );
    }
}

#[test]
fn messages_are_received_by_the_rules_of_their_qos() {
    // [MQTT-4.5.0-2] [MQTT-4.3.2-4] [MQTT-4.3.3-8] [MQTT-4.3.3-11]
    for version in [V311, V5] {
        let mut bench = Bench::with_version(version);
        bench.feed(&delivery("a", "0", 0, 0));
        bench.feed(&delivery("a", "1", 1, 5));
        bench.feed(&delivery("a", "2", 2, 6));
        bench.feed(&delivery("a", "2", 2, 6));
        bench.feed(&Packet::Pubrel(acknowledgement(6)));
        bench.feed(&delivery("a", "3", 2, 6));
        assert_eq!(
            bench.events(),
            ["a=0", "a=1 q1 #5", "a=2 q2 #6", "a=3 q2 #6"]
        );
        assert_eq!(
            bench.sent(),
            [
                "PUBACK #5",
                "PUBREC #6",
                "PUBREC #6",
                "PUBCOMP #6",
                "PUBREC #6"
            ]
        );
    }
}

#[test]
fn a_message_is_acknowledged_when_the_caller_says_so() {
    let manual = |version| ClientConfig {
        acknowledgement: AcknowledgementMode::Manual,
        ..ClientConfig::new(version, "c")
    };
    let mut bench = Bench::connected(manual(V5));
    bench.feed(&delivery("a", "1", 1, 1));
    bench.feed(&delivery("a", "2", 2, 2));
    bench.feed(&delivery("a", "3", 1, 3));
    assert_eq!((bench.events().len(), bench.sent().len()), (3, 0));
    let now = bench.now;
    bench
        .client
        .acknowledge(now, id(3), ReasonCode::Success)
        .unwrap();
    bench
        .client
        .acknowledge(now, id(2), ReasonCode::QuotaExceeded)
        .unwrap();
    bench
        .client
        .acknowledge(now, id(1), ReasonCode::Success)
        .unwrap();
    assert_eq!(
        bench.sent(),
        ["PUBREC #2 QuotaExceeded", "PUBACK #1", "PUBACK #3"]
    );
    let unknown = Err(ClientError::NotAwaitingAcknowledgement { packet_id: id(3) });
    assert_eq!(
        bench.client.acknowledge(now, id(3), ReasonCode::Success),
        unknown
    );
    assert!(
        bench
            .client
            .acknowledge(now, id(3), ReasonCode::ServerBusy)
            .is_err(),
        "no code of PUBACK"
    );

    let mut old = Bench::connected(manual(V311));
    old.feed(&delivery("a", "1", 2, 1));
    old.client
        .acknowledge(now, id(1), ReasonCode::QuotaExceeded)
        .unwrap();
    old.feed(&delivery("a", "1", 2, 1));
    assert_eq!(
        old.sent(),
        ["PUBREC #1", "PUBREC #1"],
        "3.1.1 cannot refuse"
    );
}

#[test]
fn a_message_of_qos_2_acknowledged_without_a_connection_is_not_delivered_again() {
    let config = ClientConfig {
        acknowledgement: AcknowledgementMode::Manual,
        ..ClientConfig::new(V5, "c")
    };
    let mut bench = Bench::connected(config);
    bench.feed(&delivery("a", "1", 2, 1));
    bench.feed(&delivery("a", "2", 1, 2));
    bench.client.handle_closed();
    bench
        .client
        .acknowledge(bench.now, id(1), ReasonCode::Success)
        .unwrap();
    assert!(
        bench
            .client
            .acknowledge(bench.now, id(2), ReasonCode::Success)
            .is_err(),
        "QoS 1 comes again"
    );
    assert!(bench.sent().is_empty());
    bench.reconnect(
        CleanStart::No,
        &Connack {
            session_present: true,
            ..Connack::default()
        },
    );
    bench.events();
    bench.feed(&delivery("a", "1", 2, 1));
    bench.feed(&delivery("a", "2", 1, 2));
    assert_eq!(
        (bench.events(), bench.sent()),
        (vec!["a=2 q1 #2".to_owned()], vec!["PUBREC #1".to_owned()])
    );
}

#[test]
fn subscriptions_are_asked_for_and_ended() {
    for version in [V311, V5] {
        let mut bench = Bench::with_version(version);
        let filter = |filter| SubscribeFilter {
            filter,
            options: SubscriptionOptions::default(),
        };
        let asked = bench
            .client
            .subscribe(bench.now, &[filter("a/+"), filter("$share/g/b")], None);
        assert_eq!(asked, Ok(id(1)));
        assert_eq!(bench.client.unsubscribe(bench.now, &["a/+"]), Ok(id(2)));
        assert_eq!(
            bench.publish(&message("a", "x", 1)),
            Ok(Some(3)),
            "one set of identifiers for all"
        );
        assert_eq!(
            bench.sent(),
            ["SUBSCRIBE #1", "UNSUBSCRIBE #2", "a=x q1 #3"]
        );
        let codes = vec![ReasonCode::Success, ReasonCode::UnspecifiedError];
        bench.feed(&Packet::Suback(Suback::new(id(1), codes)));
        bench.feed(&Packet::Unsuback(Unsuback::new(
            id(2),
            vec![ReasonCode::Success],
        )));
        let unsubscribed = if version == V5 {
            "#2 unsubscribed [Success]"
        } else {
            "#2 unsubscribed []"
        };
        assert_eq!(
            bench.events(),
            ["#1 subscribed [Success, UnspecifiedError]", unsubscribed]
        );
        assert_eq!(bench.client.inflight(), 1, "requests do not count");
    }
}

fn resumed() -> Connack<'static> {
    Connack {
        session_present: true,
        ..Connack::default()
    }
}

#[test]
fn a_resumed_session_sends_again_what_is_open_and_nothing_else() {
    // [MQTT-4.4.0-1] [MQTT-4.6.0-1]
    for version in [V311, V5] {
        let mut bench = Bench::with_version(version);
        for (payload, number) in [("1", 1), ("2", 2), ("3", 2), ("0", 0), ("4", 1)] {
            bench.publish(&message("a", payload, number)).unwrap();
        }
        bench.sent();
        bench.feed(&Packet::Pubrec(acknowledgement(3)));
        bench.feed(&Packet::Puback(acknowledgement(1)));
        bench.publish(&message("a", "5", 1)).unwrap();
        bench.client.handle_closed();
        bench.events();
        bench.reconnect(CleanStart::No, &resumed());
        assert_eq!(bench.events(), ["connected, session true"]);
        assert_eq!(
            bench.sent(),
            [
                "PUBREL #3",
                "a=2 q2 #2 dup",
                "a=4 q1 #4 dup",
                "a=5 q1 #1 dup"
            ]
        );
        assert_eq!(bench.client.inflight(), 4);
        bench.feed(&Packet::Pubcomp(acknowledgement(3)));
        bench.feed(&Packet::Pubrec(acknowledgement(2)));
        bench.feed(&Packet::Puback(acknowledgement(1)));
        assert_eq!(
            (bench.events(), bench.sent()),
            (
                vec!["#3 Success".into(), "#1 Success".into()],
                vec!["PUBREL #2".into()]
            )
        );
        bench.client.handle_closed();
        bench.reconnect(CleanStart::No, &resumed());
        assert_eq!(bench.sent(), ["PUBREL #2", "a=4 q1 #4 dup"]);
    }
}

#[test]
fn a_3_1_server_is_taken_to_have_the_session_since_it_cannot_say() {
    let mut bench = Bench::with_version(ProtocolVersion::V31);
    bench.publish(&message("a", "1", 1)).unwrap();
    bench.client.handle_closed();
    bench.reconnect(CleanStart::No, &Connack::default());
    assert_eq!(bench.events(), ["connected, session true"]);
    assert_eq!(bench.sent(), ["a=1 q1 #1 dup"]);
    bench.client.handle_closed();
    bench.reconnect(CleanStart::Yes, &Connack::default());
    assert_eq!(
        bench.events(),
        ["connected, session false", "#1 discarded a=1 q1 #1"]
    );
}

#[test]
fn a_lost_session_is_dropped_and_said_to_be() {
    // [MQTT-3.2.2-5]
    let mut bench = Bench::with_version(V5);
    for (payload, number) in [("1", 1), ("2", 2), ("3", 2)] {
        bench.publish(&message("a", payload, number)).unwrap();
    }
    bench.sent();
    bench.feed(&Packet::Pubrec(acknowledgement(3)));
    bench.feed(&delivery("b", "x", 2, 9));
    bench.client.handle_closed();
    bench.events();
    bench.reconnect(CleanStart::No, &Connack::default());
    let expected = [
        "connected, session false",
        "#3 Success",
        "#1 discarded a=1 q1 #1",
        "#2 discarded a=2 q2 #2",
    ];
    assert_eq!(bench.events(), expected);
    assert_eq!((bench.sent().len(), bench.client.inflight()), (0, 0));
    bench.feed(&delivery("b", "new", 2, 9));
    assert_eq!(
        bench.events(),
        ["b=new q2 #9"],
        "the identifier means a new message now"
    );
}

#[test]
fn a_session_present_after_a_clean_start_is_refused() {
    // [MQTT-3.2.2-4]
    let mut bench = Bench::new(ClientConfig::new(V5, "c"));
    bench.reconnect(CleanStart::Yes, &resumed());
    assert_eq!(bench.sent(), ["DISCONNECT ProtocolError"]);
    // One that the client does not remember is not: another process may have made it.
    let mut bench = Bench::new(ClientConfig::new(V5, "c"));
    bench.reconnect(CleanStart::No, &resumed());
    assert_eq!(bench.client.state(), ConnectionState::Connected);
}

#[test]
fn with_identifiers_only_a_broken_connection_discards() {
    let config = ClientConfig {
        inflight: InflightMode::KeepIdsOnly,
        ..ClientConfig::new(V5, "c")
    };
    let mut bench = Bench::connected(config);
    bench.publish(&message("a", "1", 1)).unwrap();
    bench.publish(&message("a", "2", 2)).unwrap();
    bench.client.handle_closed();
    bench.reconnect(CleanStart::No, &resumed());
    assert_eq!(
        bench.events(),
        ["connected, session true", "#1 discarded ", "#2 discarded "]
    );
    assert_eq!(bench.sent(), ["PUBREL #2"]);
    bench.feed(&Packet::Pubcomp(Acknowledgement::new(
        id(2),
        ReasonCode::PacketIdentifierNotFound,
    )));
    assert!(bench.events().is_empty());
}

#[test]
fn the_property_asked_for_is_handed_out_with_the_identifier_it_came_for() {
    let mut bench = Bench::connected(ClientConfig {
        acknowledgement_property: Some("place".to_owned()),
        ..ClientConfig::new(V5, "c")
    });
    bench.publish(&message("a", "1", 1)).unwrap();
    bench.publish(&message("a", "2", 1)).unwrap();
    bench.feed(&Packet::Puback(Acknowledgement {
        user_properties: vec![("other", "x"), ("place", "b:1883")],
        ..acknowledgement(1)
    }));
    bench.feed(&Packet::Puback(acknowledgement(2)));
    let next = bench.client.poll_acknowledgement_property();
    assert_eq!(next, Some((id(1), "b:1883".to_owned())));
    assert_eq!(bench.client.poll_acknowledgement_property(), None);
}
