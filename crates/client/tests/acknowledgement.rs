//! Messages are acknowledged by the application, packet by packet against brokers made by hand.

use std::time::Duration;

use thicket_client::{Acknowledge, Client, Delivery, Message, Options, Qos};
use thicket_mqtt::{Acknowledgement, Connack, Packet, PacketId, Publish, ReasonCode};

#[allow(dead_code, reason = "other tests use the rest")]
mod by_hand {
    pub mod peers;
}

use by_hand::peers::{Broker, Connection, Said, TIMEOUT};

fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("not 0")
}

async fn open(broker: &Broker, options: impl FnOnce(&mut Options)) -> (Client, Connection) {
    let mut chosen = Options::new(format!("mqtt://{}", broker.address()));
    chosen.client_id = "c".to_owned();
    chosen.first_pause = Duration::from_millis(10);
    options(&mut chosen);
    let opening = tokio::spawn(Client::connect(chosen));
    let mut connection = broker.next().await;
    connection.accept().await;
    let client = opening.await.expect("no panic").expect("served");
    (client, connection)
}

fn manual(options: &mut Options) {
    options.acknowledge = Acknowledge::Manual;
}

/// A message whose payload is `text`.
async fn send(connection: &mut Connection, qos: Qos, value: u16, text: &str, dup: bool) {
    let publish = Publish {
        packet_id: (qos != Qos::AtMostOnce).then(|| id(value)),
        qos,
        dup,
        ..Publish::new("t", text.as_bytes())
    };
    connection.write(&Packet::Publish(publish)).await;
}

async fn send_all(connection: &mut Connection, qos: Qos, values: &[u16]) {
    for value in values {
        send(connection, qos, *value, &value.to_string(), false).await;
    }
}

async fn next(client: &Client) -> Delivery {
    let next = tokio::time::timeout(TIMEOUT, client.next()).await;
    next.expect("in time").expect("it serves")
}

/// The client has sent nothing: what it sends afterwards comes next.
async fn nothing(client: &Client, connection: &mut Connection) {
    client
        .publish(Message::new("probe", ""))
        .await
        .expect("sent");
    let probe = Said::Publish("probe".to_owned(), None, false);
    assert_eq!(connection.read().await, probe);
}

/// The client publishes a message at QoS 1, and its broker acknowledges it.
async fn publish_one(client: &Client, connection: &mut Connection) {
    let publishing = tokio::spawn({
        let client = client.clone();
        async move {
            let mine = Message::new("mine", "1").qos(Qos::AtLeastOnce);
            client.publish(mine).await
        }
    });
    let Said::Publish(_, Some(packet_id), _) = connection.read().await else {
        panic!("expected PUBLISH");
    };
    connection.puback(packet_id, None).await;
    publishing.await.expect("no panic").expect("acknowledged");
}

async fn reconnected(
    client: &Client,
    broker: &Broker,
    connection: Connection,
    session_present: bool,
) -> Connection {
    drop(connection);
    let mut again = broker.next().await;
    again
        .connack(Connack {
            session_present,
            ..Connack::default()
        })
        .await;
    nothing(client, &mut again).await;
    again
}

#[tokio::test]
async fn asking_for_the_next_message_acknowledges_the_one_before() {
    let broker = Broker::start().await;
    let (client, mut connection) = open(&broker, |_| ()).await;
    send_all(&mut connection, Qos::AtLeastOnce, &[1, 2]).await;
    assert_eq!(next(&client).await.text(), Some("1"));
    nothing(&client, &mut connection).await;
    assert_eq!(next(&client).await.text(), Some("2"));
    assert_eq!(connection.read().await, Said::Puback(id(1)));
    client.close().await;
    assert_eq!(connection.read().await, Said::Disconnect(Some(0)));
}

#[tokio::test]
async fn acknowledgements_leave_in_the_order_of_arrival() {
    let broker = Broker::start().await;
    let (client, mut connection) = open(&broker, manual).await;
    send_all(&mut connection, Qos::AtLeastOnce, &[1, 2, 3]).await;
    let (one, two, three) = (
        next(&client).await,
        next(&client).await,
        next(&client).await,
    );
    for message in [&three, &two, &three] {
        message.acknowledge();
    }
    nothing(&client, &mut connection).await;
    one.acknowledge();
    for value in [1, 2, 3] {
        assert_eq!(connection.read().await, Said::Puback(id(value)));
    }
}

#[tokio::test]
async fn qos_2_is_received_when_the_application_acknowledges_and_delivered_once() {
    let broker = Broker::start().await;
    let (client, mut connection) = open(&broker, manual).await;
    send_all(&mut connection, Qos::ExactlyOnce, &[1]).await;
    let message = next(&client).await;
    nothing(&client, &mut connection).await;
    let mut connection = reconnected(&client, &broker, connection, true).await;
    send(&mut connection, Qos::ExactlyOnce, 1, "1", true).await;
    nothing(&client, &mut connection).await;
    message.acknowledge();
    assert_eq!(connection.read().await, Said::Pubrec(id(1)));
    let mut connection = reconnected(&client, &broker, connection, true).await;
    send(&mut connection, Qos::ExactlyOnce, 1, "1", true).await;
    assert_eq!(connection.read().await, Said::Pubrec(id(1)));
    let pubrel = Acknowledgement::new(id(1), ReasonCode::Success);
    connection.write(&Packet::Pubrel(pubrel)).await;
    assert_eq!(connection.read().await, Said::Pubcomp(id(1)));
    send(&mut connection, Qos::ExactlyOnce, 1, "new", false).await;
    assert_eq!(next(&client).await.text(), Some("new"));
}

#[tokio::test]
async fn qos_2_that_is_acknowledged_without_a_connection_is_received_on_the_next() {
    let broker = Broker::start().await;
    let (client, mut connection) = open(&broker, manual).await;
    send_all(&mut connection, Qos::ExactlyOnce, &[1]).await;
    let message = next(&client).await;
    drop(connection);
    client.wait_for(|status| status.sessions.is_empty()).await;
    message.acknowledge();
    let mut connection = broker.next().await;
    connection.resume().await;
    send(&mut connection, Qos::ExactlyOnce, 1, "1", true).await;
    assert_eq!(connection.read().await, Said::Pubrec(id(1)));
}

#[tokio::test]
async fn an_acknowledgement_for_an_earlier_connection_has_no_effect_at_qos_1() {
    let broker = Broker::start().await;
    let (client, mut connection) = open(&broker, manual).await;
    send_all(&mut connection, Qos::AtLeastOnce, &[1, 2, 3]).await;
    let earlier = next(&client).await;
    let mut connection = reconnected(&client, &broker, connection, true).await;
    // The broker may use an identifier for another message after a message expired.
    send(&mut connection, Qos::AtLeastOnce, 1, "other", false).await;
    send(&mut connection, Qos::AtLeastOnce, 3, "3", true).await;
    let other = next(&client).await;
    assert_eq!(
        other.text(),
        Some("other"),
        "what is sent again is delivered once: the rest of the queue was dropped"
    );
    earlier.acknowledge();
    nothing(&client, &mut connection).await;
    other.acknowledge();
    assert_eq!(connection.read().await, Said::Puback(id(1)));
    assert_eq!(next(&client).await.text(), Some("3"));
}

#[tokio::test]
async fn a_lost_session_leaves_the_queue_to_the_application() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let broker = Broker::start().await;
        let (client, mut connection) = open(&broker, |_| ()).await;
        send_all(&mut connection, qos, &[1, 2]).await;
        assert_eq!(next(&client).await.text(), Some("1"));
        let mut connection = reconnected(&client, &broker, connection, false).await;
        send(&mut connection, qos, 1, "new", false).await;
        assert_eq!(next(&client).await.text(), Some("2"), "{qos:?}");
        assert_eq!(next(&client).await.text(), Some("new"), "{qos:?}");
        nothing(&client, &mut connection).await;
        let asking = tokio::spawn(async move { client.next().await });
        let expected = match qos {
            Qos::ExactlyOnce => Said::Pubrec(id(1)),
            Qos::AtMostOnce | Qos::AtLeastOnce => Said::Puback(id(1)),
        };
        assert_eq!(connection.read().await, expected);
        asking.abort();
    }
}

#[tokio::test]
async fn the_window_bounds_what_is_not_acknowledged_and_publishing_goes_on_meanwhile() {
    let broker = Broker::start().await;
    let (client, mut connection) = open(&broker, |options| options.receive_queue = 2).await;
    send_all(&mut connection, Qos::AtLeastOnce, &[1, 2]).await;
    publish_one(&client, &mut connection).await;
    send_all(&mut connection, Qos::AtLeastOnce, &[3]).await;
    let mut again = broker.next().await;
    again.resume().await;
    let problem = client.status().last_problem.unwrap_or_default();
    assert!(problem.contains("more than 2 messages"), "{problem}");
}

#[tokio::test]
async fn after_the_end_nothing_comes_that_the_broker_will_send_again() {
    let broker = Broker::start().await;
    let (client, mut connection) = open(&broker, |options| options.resume = true).await;
    send(&mut connection, Qos::AtLeastOnce, 1, "1", false).await;
    send(&mut connection, Qos::AtMostOnce, 0, "0", false).await;
    publish_one(&client, &mut connection).await;
    client.close().await;
    assert_eq!(next(&client).await.text(), Some("0"));
    assert!(client.next().await.is_none());
}
