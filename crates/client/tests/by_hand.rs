//! What the client says and does, packet by packet, against brokers made by hand.

use std::num::NonZeroU16;
use std::time::Duration;

use thicket_client::{Client, Error, Message, Options, Placement, Qos, ReasonCode};
use thicket_mqtt::{Acknowledgement, Connack, Disconnect, Packet, PacketId, Publish, Suback};
use tokio::task::JoinHandle;

mod by_hand {
    pub mod peers;
}

use by_hand::peers::{Broker, Connection, Control, Said, TIMEOUT, placement, problem};

fn open(broker: &Broker, filters: &[&str]) -> JoinHandle<Result<Client, Error>> {
    tokio::spawn(Client::connect(Options {
        client_id: "c".to_owned(),
        subscribe: filters
            .iter()
            .map(|filter| ((*filter).to_owned(), Qos::AtLeastOnce.into()))
            .collect(),
        first_pause: Duration::from_millis(10),
        quiet: Duration::from_millis(50),
        ..Options::new(format!("mqtt://{}", broker.address()))
    }))
}

fn publish(client: &Client, topic: &str, qos: Qos) -> JoinHandle<Result<ReasonCode, Error>> {
    let (client, message) = (client.clone(), Message::new(topic, "1").qos(qos));
    tokio::spawn(async move { client.publish(message).await })
}

#[tokio::test]
async fn connack_with_a_server_reference_is_followed_and_said_until_it_goes_round() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &[]);
    for turn in 0..5 {
        let (here, there) = if turn % 2 == 0 {
            (&first, &second)
        } else {
            (&second, &first)
        };
        let mut connection = here.next().await;
        assert_eq!(connection.value("thicket-max-sessions"), Some("4"));
        let hops = (turn > 0).then(|| turn.to_string());
        assert_eq!(connection.value("thicket-redirected"), hops.as_deref());
        connection.send_to(&there.address()).await;
    }
    let mut last = first.next().await;
    assert_eq!(last.value("thicket-redirected"), None, "it begins anew");
    last.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    assert_eq!(client.status().sessions[&1], first.address());
}

#[tokio::test]
async fn of_several_servers_in_a_reference_the_first_that_answers_is_asked_as_redirected() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let closed = Broker::start().await.address();
    let opening = open(&first, &[]);
    let mut connection = first.next().await;
    let reference = format!("bad@host {closed} {}", second.address());
    connection.send_to(&reference).await;
    let mut there = second.next().await;
    assert_eq!(there.value("thicket-redirected"), Some("1"));
    there.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    assert_eq!(client.status().sessions[&1], second.address());
}

#[tokio::test]
async fn a_session_is_left_when_it_is_silent_and_a_ping_is_answered() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &["a", "b"]);
    let mut connection = first.next().await;
    let both: [(&str, &Broker, &[&str]); 2] = [("c", &first, &["a"]), ("c~2", &second, &["b"])];
    connection.place(false, &both).await;
    assert_eq!(connection.grant(|_| None).await.0, "a");
    let mut there = second.next().await;
    there.accept().await;
    assert_eq!(there.grant(|_| None).await.0, "b");
    let client = opening.await.expect("no panic").expect("served");
    drop(connection);
    let mut back = first.next().await;
    back.place(true, &[("c", &first, &["a", "b"])]).await;
    assert_eq!(back.grant(|_| None).await.0, "b");
    let Said::Unsubscribe(packet_id, _) = there.read().await else {
        panic!("expected UNSUBSCRIBE");
    };
    there.unsuback(packet_id).await;
    assert_eq!(there.read().await, Said::Pingreq);
    let late = PacketId(NonZeroU16::MIN);
    let publish = Publish {
        packet_id: Some(late),
        qos: Qos::AtLeastOnce,
        ..Publish::new("b", b"late")
    };
    there.write(&Packet::Publish(publish)).await;
    there.write(&Packet::Pingresp).await;
    assert_eq!(there.read().await, Said::Pingreq);
    there.write(&Packet::Pingresp).await;
    let message = client.next().await.expect("it serves");
    assert_eq!(message.text(), Some("late"));
    message.acknowledge();
    assert_eq!(there.read().await, Said::Puback(late));
    assert_eq!(there.read().await, Said::Disconnect(Some(0)));
}

#[tokio::test]
async fn disconnect_with_a_server_reference_takes_what_is_under_way_along() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &["a"]);
    let mut connection = first.next().await;
    connection.accept().await;
    connection.grant(|_| None).await;
    let client = opening.await.expect("no panic").expect("served");
    let once = publish(&client, "one", Qos::AtLeastOnce);
    let (_, one, _) = connection.take_publish().await;
    let twice = publish(&client, "two", Qos::ExactlyOnce);
    let (_, two, _) = connection.take_publish().await;
    let pubrec = Acknowledgement::new(two, ReasonCode::Success);
    connection.write(&Packet::Pubrec(pubrec)).await;
    assert_eq!(connection.read().await, Said::Pubrel(two));
    let address = second.address();
    let goodbye = Disconnect {
        server_reference: Some(&address),
        ..Disconnect::new(ReasonCode::ServerMoved)
    };
    connection.write(&Packet::Disconnect(goodbye)).await;
    let mut there = second.next().await;
    assert_eq!(there.value("thicket-redirected"), Some("1"));
    there.resume().await;
    let mut said = [there.read().await, there.read().await];
    said.sort_by_key(|said| matches!(said, Said::Pubrel(_)));
    let again = Said::Publish("one".to_owned(), Some(one), true);
    assert_eq!(
        said,
        [again, Said::Pubrel(two)],
        "the same exchanges, and no subscription"
    );
    there.puback(one, None).await;
    let unknown = Acknowledgement::new(two, ReasonCode::PacketIdentifierNotFound);
    there.write(&Packet::Pubcomp(unknown)).await;
    once.await.expect("no panic").expect("acknowledged");
    twice.await.expect("no panic").expect("it was received");
    let closing = tokio::spawn(async move { client.close().await });
    assert_eq!(there.read().await, Said::Disconnect(Some(0)));
    closing.await.expect("no panic");
}

#[tokio::test]
async fn topics_that_nobody_declared_are_named_when_the_client_connects_again() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &[]);
    let mut connection = first.next().await;
    assert_eq!(connection.value("thicket-publish"), None);
    connection.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    let publishing = publish(&client, "undeclared", Qos::AtLeastOnce);
    let (_, packet_id, _) = connection.take_publish().await;
    connection.puback(packet_id, None).await;
    publishing.await.expect("no panic").expect("acknowledged");
    let address = second.address();
    let elsewhere = Disconnect {
        server_reference: Some(&address),
        ..Disconnect::new(ReasonCode::UseAnotherServer)
    };
    connection.write(&Packet::Disconnect(elsewhere)).await;
    let there = second.next().await;
    assert_eq!(there.value("thicket-publish"), Some("undeclared"));
    let named = there
        .said
        .iter()
        .filter(|(name, _)| name == "thicket-publish");
    assert_eq!(named.count(), 1);
}

/// A client whose only session is placed at the second broker, which has its CONNECT.
async fn moving(first: &Broker, second: &Broker) -> (Client, Connection, Connection) {
    let opening = open(first, &[]);
    let mut here = first.next().await;
    here.place(false, &[("c", second, &[])]).await;
    let client = opening.await.expect("no panic").expect("served");
    (client, here, second.next().await)
}

fn close(client: Client) -> JoinHandle<()> {
    tokio::spawn(async move { client.close().await })
}

/// The client is in `close` when this returns: it accepts no commands.
async fn closes(client: &Client) {
    client.wait_for(|_| false).await;
}

#[tokio::test]
async fn a_session_whose_connect_is_not_answered_when_the_client_closes_is_ended_when_it_is() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &[]);
    let mut here = first.next().await;
    let both: [(&str, &Broker, &[&str]); 2] = [("c", &first, &[]), ("c~2", &second, &["t"])];
    here.place(false, &both).await;
    let client = opening.await.expect("no panic").expect("served");
    let mut there = second.next().await;
    let closing = close(client);
    assert_eq!(here.read().await, Said::Disconnect(Some(0)));
    there.accept().await;
    assert_eq!(there.read().await, Said::Disconnect(Some(0)));
    closing.await.expect("no panic");
}

#[tokio::test]
async fn a_session_that_moves_when_the_client_closes_is_ended_where_it_has_moved() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let (client, _here, mut there) = moving(&first, &second).await;
    let closing = close(client.clone());
    closes(&client).await;
    there.resume().await;
    assert_eq!(there.read().await, Said::Disconnect(Some(0)));
    closing.await.expect("no panic");
}

#[tokio::test]
async fn a_session_that_the_other_broker_refuses_when_the_client_closes_is_ended_where_it_was() {
    for refusal in [ReasonCode::NotAuthorized, ReasonCode::ServerBusy] {
        let (first, second) = (Broker::start().await, Broker::start().await);
        let (client, _here, mut there) = moving(&first, &second).await;
        let closing = close(client.clone());
        closes(&client).await;
        there.connack(Connack::new(refusal)).await;
        let mut back = first.next().await;
        assert_eq!(back.value("thicket-redirected"), Some("1"), "it serves");
        back.resume().await;
        assert_eq!(back.read().await, Said::Disconnect(Some(0)), "{refusal:?}");
        closing.await.expect("no panic");
    }
}

#[tokio::test]
async fn a_session_that_is_sent_elsewhere_when_the_client_closes_is_ended_there() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &[]);
    let mut here = first.next().await;
    here.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    let publishing = publish(&client, "t", Qos::AtLeastOnce);
    let (_, packet_id, _) = here.take_publish().await;
    let closing = close(client.clone());
    closes(&client).await;
    let address = second.address();
    let elsewhere = Disconnect {
        server_reference: Some(&address),
        ..Disconnect::new(ReasonCode::ServerMoved)
    };
    here.write(&Packet::Disconnect(elsewhere)).await;
    let mut there = second.next().await;
    there.resume().await;
    let again = Said::Publish("t".to_owned(), Some(packet_id), true);
    assert_eq!(there.read().await, again);
    there.puback(packet_id, None).await;
    assert_eq!(there.read().await, Said::Disconnect(Some(0)));
    publishing.await.expect("no panic").expect("acknowledged");
    closing.await.expect("no panic");
}

#[tokio::test]
async fn a_client_that_closes_does_not_wait_for_ever_for_a_broker_that_does_not_answer() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let (client, _here, _there) = moving(&first, &second).await;
    let closed = tokio::time::timeout(TIMEOUT, client.close()).await;
    closed.expect("it ends");
}

#[tokio::test]
async fn a_subscription_in_doubt_is_asked_for_again_or_ended() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &[]);
    let mut connection = first.next().await;
    connection.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    let subscribing = ["goes", "stays"].map(|filter| {
        let client = client.clone();
        tokio::spawn(async move { client.subscribe(filter, Qos::AtLeastOnce).await })
    });
    for _ in 0..2 {
        let asked = connection.read().await;
        assert!(matches!(asked, Said::Subscribe(..)), "{asked:?}");
    }
    drop(connection);
    let mut back = first.next().await;
    let both: [(&str, &Broker, &[&str]); 2] =
        [("c", &first, &["stays"]), ("c~2", &second, &["goes"])];
    back.place(true, &both).await;
    let asked = back.grant(|_| None).await;
    assert_eq!(
        asked,
        ("stays".to_owned(), 1),
        "retained messages if it is new"
    );
    let Said::Unsubscribe(packet_id, filter) = back.read().await else {
        panic!("expected UNSUBSCRIBE");
    };
    assert_eq!(filter, "goes");
    back.unsuback(packet_id).await;
    let mut there = second.next().await;
    there.accept().await;
    assert_eq!(there.grant(|_| None).await.0, "goes");
    for subscribing in subscribing {
        let granted = subscribing.await.expect("no panic").expect("granted");
        assert_eq!(granted, Qos::AtLeastOnce);
    }
}

#[tokio::test]
async fn filters_that_do_not_fit_into_one_unsubscribe_are_ended_one_after_the_other() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let filters = ["a", "b", "c"].map(|letter| letter.repeat(60));
    let [a, b, c] = filters.each_ref().map(String::as_str);
    let opening = open(&first, &[a, b, c]);
    let mut connection = first.next().await;
    connection.accept().await;
    for _ in 0..3 {
        connection.grant(|_| None).await;
    }
    let _client = opening.await.expect("no panic").expect("served");
    drop(connection);
    let mut back = first.next().await;
    let moved: [(&str, &Broker, &[&str]); 2] = [("c", &first, &[]), ("c~2", &second, &[a, b, c])];
    let answer = placement(&moved);
    back.connack(Connack {
        session_present: true,
        maximum_packet_size: Some(100),
        user_properties: vec![("thicket-placement", &answer)],
        ..Connack::default()
    })
    .await;
    let mut there = second.next().await;
    there.accept().await;
    for _ in 0..3 {
        there.grant(|_| None).await;
    }
    let mut ended = Vec::new();
    for _ in 0..3 {
        let (packet_id, filter) = loop {
            match back.read().await {
                Said::Unsubscribe(packet_id, filter) => break (packet_id, filter),
                // It was silent for a moment.
                Said::Pingreq => {}
                other => panic!("expected UNSUBSCRIBE: {other:?}"),
            }
        };
        ended.push(filter);
        back.unsuback(packet_id).await;
    }
    ended.sort();
    assert_eq!(ended, filters);
}

#[tokio::test]
async fn without_a_control_plane_any_broker_serves() {
    let broker = Broker::start().await;
    let closed = Broker::start().await.address();
    let opening = tokio::spawn(Client::connect(Options {
        placement: Placement::Http(vec![format!("http://{closed}")]),
        ..Options::new(format!("mqtt://{}", broker.address()))
    }));
    let mut connection = broker.next().await;
    connection.accept().await;
    let status = opening.await.expect("no panic").expect("served").status();
    assert!(!status.is_placed);
    let problem = status.last_problem.expect("nobody answered");
    assert!(problem.contains(&closed), "{problem}");
}

#[tokio::test]
async fn a_client_that_is_sent_elsewhere_asks_its_control_plane_anew() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let control = Control::start().await;
    let opening = tokio::spawn(Client::connect(Options {
        client_id: "c".to_owned(),
        user_name: Some("u".to_owned()),
        password: Some("pä".into()),
        placement: Placement::Http(vec![control.url()]),
        ..Options::new(format!("mqtt://{}", first.address()))
    }));
    let asked = control.next().await;
    assert!(asked.head.contains("Basic dTpww6Q="), "{}", asked.head);
    asked.answer(&[("c", &first, &[])]).await;
    let mut connection = first.next().await;
    assert_eq!(connection.value("thicket-max-sessions"), None);
    connection.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    assert!(client.status().is_placed);
    let publishing = publish(&client, "undeclared", Qos::AtLeastOnce);
    let (_, packet_id, _) = connection.take_publish().await;
    connection.puback(packet_id, None).await;
    publishing.await.expect("no panic").expect("acknowledged");
    let address = second.address();
    let elsewhere = Disconnect {
        server_reference: Some(&address),
        ..Disconnect::new(ReasonCode::UseAnotherServer)
    };
    connection.write(&Packet::Disconnect(elsewhere)).await;
    let mut there = second.next().await;
    there.resume().await;
    let asked = control.next().await;
    assert_eq!(asked.request["publish"], serde_json::json!(["undeclared"]));
    asked.answer(&[("c", &first, &[])]).await;
    first.next().await;
}

#[tokio::test]
async fn topics_that_the_broker_refuses_are_not_named() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &[]);
    let mut connection = first.next().await;
    connection.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    let publishing = publish(&client, "secret", Qos::AtLeastOnce);
    let (_, packet_id, _) = connection.take_publish().await;
    let refused = Acknowledgement::new(packet_id, ReasonCode::NotAuthorized);
    connection.write(&Packet::Puback(refused)).await;
    let refused = publishing.await.expect("no panic");
    assert!(matches!(
        refused,
        Err(Error::Refused(ReasonCode::NotAuthorized))
    ));
    let address = second.address();
    let elsewhere = Disconnect {
        server_reference: Some(&address),
        ..Disconnect::new(ReasonCode::UseAnotherServer)
    };
    connection.write(&Packet::Disconnect(elsewhere)).await;
    let there = second.next().await;
    assert_eq!(
        there.value("thicket-publish"),
        None,
        "the whole request could be refused for it"
    );
}

#[tokio::test]
async fn what_a_control_plane_denies_is_left_out_and_the_rest_is_asked_for_at_once() {
    let broker = Broker::start().await;
    let control = Control::start().await;
    let filters = ["no", "yes"].map(|filter| (filter.to_owned(), Qos::AtLeastOnce.into()));
    let opening = tokio::spawn(Client::connect(Options {
        client_id: "c".to_owned(),
        publish: vec!["denied".to_owned(), "ok".to_owned()],
        subscribe: filters.into(),
        placement: Placement::Http(vec![control.url()]),
        ..Options::new(format!("mqtt://{}", broker.address()))
    }));
    let asked = control.next().await;
    let all = serde_json::json!([["denied", "ok"], ["no", "yes"]]);
    assert_eq!(asked.names(), all);
    asked.refuse("publish[0]").await;
    let asked = control.next().await;
    let rest = serde_json::json!([["ok"], ["no", "yes"]]);
    assert_eq!(asked.names(), rest);
    asked.refuse("subscribe[0]").await;
    let asked = control.next().await;
    assert_eq!(asked.names(), serde_json::json!([["ok"], ["yes"]]));
    asked.answer(&[("c", &broker, &["yes"])]).await;
    let mut connection = broker.next().await;
    connection.accept().await;
    let granted = [
        connection.grant(|_| None).await.0,
        connection.grant(|_| None).await.0,
    ];
    assert_eq!(granted, ["no", "yes"]);
    let client = opening.await.expect("no panic").expect("served");
    assert!(client.status().is_placed);
    let asked = control.next().await;
    assert_eq!(asked.names(), rest, "the broker has granted the filter");
    asked.answer(&[("c", &broker, &["yes", "no"])]).await;

    // Nobody refuses a message of QoS 0.
    let publishing = publish(&client, "secret", Qos::AtMostOnce);
    publishing.await.expect("no panic").expect("sent");
    let asked = control.next().await;
    assert_eq!(
        asked.request["publish"],
        serde_json::json!(["ok", "secret"])
    );
    asked.refuse("publish[1]").await;
    let asked = control.next().await;
    assert_eq!(asked.names(), rest);
    asked.answer(&[("c", &broker, &["yes", "no"])]).await;
    for topic in ["secret", "open"] {
        let publishing = publish(&client, topic, Qos::AtMostOnce);
        publishing.await.expect("no panic").expect("sent");
    }
    let asked = control.next().await;
    assert_eq!(asked.request["publish"], serde_json::json!(["ok", "open"]));
}

#[tokio::test]
async fn what_a_broker_denies_in_connack_is_left_out_and_the_rest_is_asked_for_at_once() {
    let broker = Broker::start().await;
    let opening = tokio::spawn(Client::connect(Options {
        client_id: "c".to_owned(),
        publish: vec!["denied".to_owned(), "ok".to_owned()],
        subscribe: [("no".to_owned(), Qos::AtLeastOnce.into())].into(),
        ..Options::new(format!("mqtt://{}", broker.address()))
    }));
    let mut connections = Vec::new();
    for (publish, subscribe, field) in [
        (&["denied", "ok"][..], &["no"][..], "publish[0]"),
        (&["ok"], &["no"], "subscribe[0]"),
        (&["ok"], &[], "publish[7]"),
    ] {
        let mut connection = broker.next().await;
        assert_eq!(connection.values("thicket-publish"), publish);
        assert_eq!(connection.values("thicket-subscribe"), subscribe);
        assert_eq!(connection.value("thicket-redirected"), None);
        let answer = problem(field);
        connection
            .connack(Connack {
                session_present: !connections.is_empty(),
                user_properties: vec![("thicket-placement", &answer)],
                ..Connack::default()
            })
            .await;
        connections.push(connection);
    }
    // A field that names nothing is no reason to ask again.
    let mut last = connections.pop().expect("three");
    assert_eq!(last.grant(|_| None).await.0, "no");
    let client = opening.await.expect("no panic").expect("served");
    let status = client.status();
    assert!(!status.is_placed);
    let problem = status.last_problem.expect("three");
    assert!(problem.contains("publish[7]"), "{problem}");
    drop(last);
    let again = broker.next().await;
    assert_eq!(again.values("thicket-publish"), ["ok"]);
    assert_eq!(again.values("thicket-subscribe"), ["no"], "it was granted");
}

#[tokio::test]
async fn a_lost_session_has_qos_1_published_anew_and_qos_2_reported() {
    let broker = Broker::start().await;
    let opening = open(&broker, &["a"]);
    let mut connection = broker.next().await;
    connection.accept().await;
    connection.grant(|_| None).await;
    let client = opening.await.expect("no panic").expect("served");
    let twice = publish(&client, "two", Qos::ExactlyOnce);
    connection.take_publish().await;
    let once = publish(&client, "one", Qos::AtLeastOnce);
    connection.take_publish().await;
    drop(connection);
    let mut again = broker.next().await;
    again.accept().await;
    let unknown = twice.await.expect("no panic");
    assert!(matches!(unknown, Err(Error::OutcomeUnknown)), "{unknown:?}");
    let filter = again.grant(|_| None).await.0;
    assert_eq!(filter, "a", "subscribed again");
    let (topic, packet_id, dup) = again.take_publish().await;
    assert_eq!((&*topic, dup), ("one", false));
    again.puback(packet_id, None).await;
    once.await.expect("no panic").expect("acknowledged");
}

#[tokio::test]
async fn a_better_node_for_a_filter_or_a_topic_is_followed() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &["a", "stays"]);
    let mut connection = first.next().await;
    assert_eq!(connection.value("thicket-place"), Some("1"));
    connection.accept().await;
    let better = second.address();
    for _ in 0..2 {
        connection
            .grant(|filter| (filter == "a").then(|| better.clone()))
            .await;
    }
    let mut there = second.next().await;
    assert_eq!(there.client_id, "c~2");
    assert_eq!(
        there.value("thicket-max-sessions"),
        None,
        "only the first asks"
    );
    there.accept().await;
    let granted = there.grant(|_| None).await;
    assert_eq!(
        granted,
        ("a".to_owned(), 2),
        "nothing retained: that has come already"
    );
    let Said::Unsubscribe(packet_id, filter) = connection.read().await else {
        panic!("expected UNSUBSCRIBE");
    };
    assert_eq!(filter, "a");
    connection.unsuback(packet_id).await;
    let client = opening.await.expect("no panic").expect("served");
    let publishing = publish(&client, "t", Qos::AtLeastOnce);
    let packet_id = loop {
        // Between them it asks whether anything is under way still.
        if let Said::Publish(_, Some(packet_id), _) = connection.read().await {
            break packet_id;
        }
    };
    connection.puback(packet_id, Some(&better)).await;
    publishing.await.expect("no panic").expect("acknowledged");
    let publishing = publish(&client, "t", Qos::AtLeastOnce);
    let (topic, packet_id, _) = there.take_publish().await;
    assert_eq!(topic, "t");
    there.puback(packet_id, None).await;
    publishing.await.expect("no panic").expect("acknowledged");
}

#[tokio::test]
async fn a_further_session_that_is_refused_leaves_its_topics_to_the_first() {
    let (first, second) = (Broker::start().await, Broker::start().await);
    let opening = open(&first, &["a"]);
    let mut connection = first.next().await;
    let answer = format!(
        r#"{{"sessions":[{{"address":"{}","client_id":"c"}},{{"address":"{}","client_id":"c~2","publish":["x"],"subscribe":["a"]}}]}}"#,
        first.address(),
        second.address()
    );
    connection
        .connack(Connack {
            user_properties: vec![("thicket-placement", &answer)],
            ..Connack::default()
        })
        .await;
    let mut refused = second.next().await;
    refused
        .connack(Connack::new(ReasonCode::NotAuthorized))
        .await;
    // The first takes the filter when the second session is refused.
    let mut has_filter = false;
    let mut publishing = None;
    let mut opening = Some(opening);
    loop {
        if has_filter && let Some(opening) = opening.take_if(|it| it.is_finished()) {
            let client = opening.await.expect("no panic").expect("served");
            publishing = Some(publish(&client, "x", Qos::AtLeastOnce));
        }
        let pause = tokio::time::sleep(Duration::from_millis(20));
        let said = tokio::select! {
            said = connection.read() => said,
            () = pause => continue,
        };
        match said {
            Said::Subscribe(packet_id, filter, _) => {
                assert_eq!(filter, "a");
                has_filter = true;
                let granted = Suback::new(packet_id, vec![ReasonCode::GrantedQos1]);
                connection.write(&Packet::Suback(granted)).await;
            }
            Said::Unsubscribe(packet_id, _) => {
                has_filter = false;
                connection.unsuback(packet_id).await;
            }
            Said::Publish(topic, Some(packet_id), _) => {
                assert_eq!(topic, "x");
                assert!(has_filter);
                connection.puback(packet_id, None).await;
                break;
            }
            _ => {}
        }
    }
    let publishing = publishing.expect("it has published");
    publishing.await.expect("no panic").expect("acknowledged");
}

#[tokio::test]
async fn refusals_and_wrong_options_are_told() {
    let broker = Broker::start().await;
    let opening = open(&broker, &[]);
    let mut connection = broker.next().await;
    connection
        .connack(Connack::new(ReasonCode::BadUserNameOrPassword))
        .await;
    let refused = opening.await.expect("no panic").map(|_| ());
    assert!(matches!(
        refused,
        Err(Error::Refused(ReasonCode::BadUserNameOrPassword))
    ));
    let good = Options::new("mqtt://127.0.0.1:1");
    for (name, options) in [
        ("servers", Options::new("http://a")),
        (
            "max_sessions",
            Options {
                max_sessions: 0,
                ..good.clone()
            },
        ),
        (
            "rates",
            Options {
                rates: [("a".to_owned(), f64::NAN)].into(),
                ..good.clone()
            },
        ),
        (
            "send_queue",
            Options {
                send_queue: 0,
                ..good.clone()
            },
        ),
        (
            "resume",
            Options {
                resume: true,
                ..good.clone()
            },
        ),
    ] {
        let error = Client::connect(options).await.map(|_| ()).expect_err(name);
        assert!(error.to_string().starts_with(name), "{name}: {error}");
    }
    let connect_timeout = Duration::from_millis(300);
    let nobody = Client::connect(Options {
        connect_timeout,
        ..good
    })
    .await;
    assert!(
        matches!(nobody.map(|_| ()), Err(Error::Connect(problem)) if problem.contains("127.0.0.1:1"))
    );
}
