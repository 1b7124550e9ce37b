//! Options of subscriptions, and reason codes, packet by packet against a broker made by hand.

use std::time::Duration;

use thicket_client::{
    Client, Error, Message, Options, Qos, ReasonCode, RetainHandling, SubscriptionOptions,
};
use thicket_mqtt::{Acknowledgement, Packet, PacketId, Publish, Suback, decode};
use tokio::io::AsyncReadExt;

#[allow(dead_code, reason = "other tests use the rest")]
mod by_hand {
    pub mod peers;
}

use by_hand::peers::{Broker, Connection, Said, TIMEOUT, V5};

const ALL: SubscriptionOptions = SubscriptionOptions {
    qos: Qos::AtLeastOnce,
    no_local: true,
    retain_as_published: true,
    retain_handling: RetainHandling::DoNotSend,
    identifier: Some(300),
};

/// The SUBSCRIBE that must come.
async fn subscribe(connection: &mut Connection) -> (PacketId, SubscriptionOptions) {
    loop {
        if let Some((packet, len)) = decode(&connection.bytes, V5, u32::MAX).expect("a packet") {
            let Packet::Subscribe(request) = packet else {
                panic!("expected SUBSCRIBE: {packet:?}");
            };
            let options = request.filters[0].options;
            let found = SubscriptionOptions {
                qos: options.qos,
                no_local: options.no_local,
                retain_as_published: options.retain_as_published,
                retain_handling: options.retain_handling,
                identifier: request.subscription_identifier,
            };
            let found = (request.packet_id, found);
            connection.bytes.drain(..len);
            return found;
        }
        let read = connection.stream.read_buf(&mut connection.bytes);
        let count = tokio::time::timeout(TIMEOUT, read).await.expect("in time");
        assert!(count.expect("a connection") > 0, "the client closed it");
    }
}

async fn suback(connection: &mut Connection, packet_id: PacketId, code: ReasonCode) {
    let suback = Suback::new(packet_id, vec![code]);
    connection.write(&Packet::Suback(suback)).await;
}

#[tokio::test]
async fn the_options_of_a_subscription_go_to_the_broker_and_new_ones_replace_them() {
    let broker = Broker::start().await;
    let opening = tokio::spawn(Client::connect(Options {
        subscribe: vec![("a".to_owned(), ALL)],
        first_pause: Duration::from_millis(10),
        ..Options::new(format!("mqtt://{}", broker.address()))
    }));
    let mut connection = broker.next().await;
    connection.accept().await;
    let (packet_id, options) = subscribe(&mut connection).await;
    assert_eq!(options, ALL);
    suback(&mut connection, packet_id, ReasonCode::GrantedQos1).await;
    let client = opening.await.expect("no panic").expect("served");
    let same = client.subscribe("a", ALL).await.expect("granted");
    assert_eq!(same, Qos::AtLeastOnce);
    let other = SubscriptionOptions {
        retain_handling: RetainHandling::SendIfNew,
        ..Qos::ExactlyOnce.into()
    };
    let replacing = tokio::spawn({
        let client = client.clone();
        async move { client.subscribe("a", other).await }
    });
    let (packet_id, options) = subscribe(&mut connection).await;
    assert_eq!(options, other, "nothing was sent for the same options");
    suback(&mut connection, packet_id, ReasonCode::GrantedQos2).await;
    let granted = replacing.await.expect("no panic").expect("granted");
    assert_eq!(granted, Qos::ExactlyOnce);
    let publish = Publish {
        subscription_identifiers: (&[300, 7]).into(),
        ..Publish::new("a", b"1")
    };
    connection.write(&Packet::Publish(publish)).await;
    let message = client.next().await.expect("it serves");
    assert_eq!(message.properties.subscription_identifiers, [300, 7]);
    drop(connection);
    let mut back = broker.next().await;
    back.accept().await;
    let (_, options) = subscribe(&mut back).await;
    assert_eq!(
        options, other,
        "a session that was lost is subscribed with the new options"
    );
}

#[tokio::test]
async fn options_that_no_subscription_can_have_are_refused() {
    let broker = Broker::start().await;
    let opening = tokio::spawn(Client::connect(Options::new(format!(
        "mqtt://{}",
        broker.address()
    ))));
    broker.next().await.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    let identifier = Some(0);
    let zero = SubscriptionOptions { identifier, ..ALL };
    for (name, filter, options) in [("identifier", "a", zero), ("no_local", "$share/g/a", ALL)] {
        let refused = client.subscribe(filter, options).await;
        let is_named = matches!(refused, Err(Error::Option { option, .. }) if option == name);
        assert!(is_named, "{name}");
    }
}

#[tokio::test]
async fn the_reason_code_of_an_acknowledgement_is_returned() {
    let broker = Broker::start().await;
    let opening = tokio::spawn(Client::connect(Options::new(format!(
        "mqtt://{}",
        broker.address()
    ))));
    let mut connection = broker.next().await;
    connection.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    for code in [ReasonCode::Success, ReasonCode::NoMatchingSubscribers] {
        let publishing = tokio::spawn({
            let client = client.clone();
            async move {
                let message = Message::new("t", "1").qos(Qos::AtLeastOnce);
                client.publish(message).await
            }
        });
        let Said::Publish(_, Some(packet_id), _) = connection.read().await else {
            panic!("expected PUBLISH");
        };
        let puback = Packet::Puback(Acknowledgement::new(packet_id, code));
        connection.write(&puback).await;
        let answer = publishing.await.expect("no panic");
        assert_eq!(answer.expect("acknowledged"), code);
    }
    let sent = client.publish(Message::new("t", "")).await;
    assert_eq!(sent.expect("sent"), ReasonCode::Success);
}
