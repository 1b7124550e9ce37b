//! The client library against nodes that are processes of their own, and that die.

mod client {
    pub mod control;
    pub mod nodes;
}

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::control::{Control, Session};
use client::nodes::Cluster;
use thicket_client::{Client, Error, Message, Options, Placement, Qos};

/// Longer than anything takes on a loaded machine; reached only when a test fails.
const TIMEOUT: Duration = Duration::from_secs(60);

fn options(cluster: &Cluster, client_id: &str) -> Options {
    Options {
        servers: cluster.urls(),
        client_id: client_id.to_owned(),
        ..Options::new("mqtt://unused")
    }
}

async fn connect(options: Options) -> Client {
    Client::connect(options).await.expect("a node takes it")
}

async fn next(client: &Client) -> Message {
    tokio::time::timeout(TIMEOUT, client.next())
        .await
        .expect("in time")
        .expect("the client serves")
        .into_message()
}

/// Publishes `0..count` on each topic, one task a topic, and calls `at` with the number of the messages before each of the first topic.
async fn publish_all(
    client: &Client,
    topics: &[&str],
    qos: Qos,
    count: usize,
    mut at: impl FnMut(usize),
) {
    let mut tasks = Vec::new();
    for topic in &topics[1..] {
        let (client, topic) = (client.clone(), (*topic).to_owned());
        tasks.push(tokio::spawn(async move {
            for number in 0..count {
                let message = Message::new(&*topic, number.to_string()).qos(qos);
                client.publish(message).await.expect("acknowledged");
            }
        }));
    }
    for number in 0..count {
        at(number);
        let message = Message::new(topics[0], number.to_string()).qos(qos);
        client.publish(message).await.expect("acknowledged");
    }
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// Reads until `count` different messages of each topic are there, and then what else comes: how often each came, and whether in order.
async fn read_all(
    client: &Client,
    topics: usize,
    count: usize,
) -> BTreeMap<(String, usize), usize> {
    let mut seen = BTreeMap::new();
    while seen.len() < topics * count {
        let message = next(client).await;
        let number = message
            .text()
            .and_then(|text| text.parse().ok())
            .expect("a number");
        let times = seen.entry((message.topic, number)).or_insert(0);
        *times += 1;
    }
    // A message after all others: what was to come twice has come by then, as each topic keeps its order.
    while let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(1), client.next()).await
    {
        let message = message.into_message();
        let number = message
            .text()
            .and_then(|text| text.parse().ok())
            .expect("a number");
        *seen.entry((message.topic, number)).or_insert(0) += 1;
    }
    seen
}

fn twice(seen: &BTreeMap<(String, usize), usize>) -> Vec<&(String, usize)> {
    seen.iter()
        .filter(|(_, times)| **times > 1)
        .map(|(message, _)| message)
        .collect()
}

#[tokio::test]
async fn one_object_subscribes_publishes_and_hands_out_messages() {
    let cluster = Cluster::start(1);
    let client = connect(options(&cluster, "")).await;
    assert!(client.client_id().starts_with("thicket-"));
    let granted = client
        .subscribe("a/+", Qos::ExactlyOnce)
        .await
        .expect("granted");
    assert_eq!(granted, Qos::ExactlyOnce);
    assert_eq!(
        client
            .subscribe("a/+", Qos::ExactlyOnce)
            .await
            .expect("again"),
        granted
    );
    let mut message = Message::new("a/b", "hello").qos(Qos::ExactlyOnce);
    message.properties.content_type = Some("text/plain".to_owned());
    message.properties.user = vec![("k".to_owned(), "v".to_owned())];
    client.publish(message.clone()).await.expect("acknowledged");
    assert_eq!(next(&client).await, message);
    client.unsubscribe("a/+").await.expect("done");
    assert!(matches!(
        client.subscribe("a/#/b", Qos::AtMostOnce).await,
        Err(Error::Filter { .. })
    ));
    assert!(matches!(
        client.publish(Message::new("a/+", "")).await,
        Err(Error::Topic { .. })
    ));
    client.close().await;
    assert!(client.next().await.is_none());
    assert!(matches!(
        client.publish(Message::new("a", "")).await,
        Err(Error::Closed)
    ));
    assert!(matches!(
        client.subscribe("a", Qos::AtMostOnce).await,
        Err(Error::Closed)
    ));
}

#[tokio::test]
async fn who_takes_a_client_identifier_over_ends_the_client_before() {
    let cluster = Cluster::start(1);
    let first = connect(options(&cluster, "same")).await;
    let second = connect(options(&cluster, "same")).await;
    let status = first.wait_for(|_| false).await;
    assert!(matches!(status.ended, Some(Error::TakenOver)));
    assert!(first.next().await.is_none());
    second
        .publish(Message::new("a", "1").qos(Qos::AtLeastOnce))
        .await
        .expect("it serves");
}

#[tokio::test]
async fn a_session_of_an_earlier_run_is_taken_up() {
    let cluster = Cluster::start(1);
    let kept = Options {
        resume: true,
        ..options(&cluster, "kept")
    };
    let earlier = connect(kept.clone()).await;
    earlier
        .subscribe("a", Qos::AtLeastOnce)
        .await
        .expect("granted");
    earlier.close().await;
    let other = connect(options(&cluster, "other")).await;
    other
        .publish(Message::new("a", "meanwhile").qos(Qos::AtLeastOnce))
        .await
        .expect("acknowledged");
    let later = connect(kept).await;
    assert_eq!(next(&later).await.text(), Some("meanwhile"));
}

#[tokio::test]
async fn topics_are_where_the_control_plane_puts_them() {
    let cluster = Cluster::start(3);
    let control = Control::start(
        &cluster,
        &[("c", 1, &["x"], &["a/+", "b"]), ("c~2", 2, &["y"], &["c"])],
    );
    let client = connect(Options {
        placement: Placement::Http(vec!["http://127.0.0.1:1".to_owned(), control.url()]),
        publish: vec!["x".to_owned(), "y".to_owned()],
        subscribe: vec![
            ("a/+".to_owned(), Qos::AtLeastOnce.into()),
            ("b".to_owned(), Qos::AtLeastOnce.into()),
            ("c".to_owned(), Qos::AtLeastOnce.into()),
        ],
        ..options(&cluster, "c")
    })
    .await;
    let status = client.wait_for(|status| status.sessions.len() == 2).await;
    assert_eq!(status.sessions[&1], cluster.address(1));
    assert_eq!(status.sessions[&2], cluster.address(2));
    assert!(status.is_placed);
    for filter in ["a/+", "b", "c"] {
        client
            .subscribe(filter, Qos::AtLeastOnce)
            .await
            .expect("granted");
    }
    cluster.wait_for_subscriptions(1, &["a/+", "b"]).await;
    cluster.wait_for_subscriptions(2, &["c"]).await;
    let publisher = connect(options(&cluster, "publisher")).await;
    for topic in ["a/1", "b", "c"] {
        publisher
            .publish(Message::new(topic, "1").qos(Qos::AtLeastOnce))
            .await
            .expect("acknowledged");
    }
    // At QoS 1 one may come twice.
    let mut topics = BTreeSet::new();
    while topics.len() < 3 {
        topics.insert(next(&client).await.topic);
    }
    assert!(topics.iter().eq(["a/1", "b", "c"]), "{topics:?}");
    let request = control.last_request();
    assert_eq!(request["client_id"], "c");
    assert_eq!(request["max_sessions"], 4);
    assert_eq!(request["subscribe"], serde_json::json!(["a/+", "b", "c"]));
    client.close().await;
}

/// Subscriptions go round the nodes, again and again, while messages come: none is lost, and at QoS 2 none comes twice.
#[tokio::test]
async fn subscriptions_that_move_lose_nothing_and_at_qos_2_repeat_nothing() {
    let cluster = Cluster::start(3);
    let topics = ["m/0", "m/1", "m/2", "m/3"];
    let control = Control::start(&cluster, &[("mover", 0, &[], &topics)]);
    let client = connect(Options {
        placement: Placement::Http(vec![control.url()]),
        subscribe: topics
            .iter()
            .map(|topic| ((*topic).to_owned(), Qos::ExactlyOnce.into()))
            .collect(),
        quiet: Duration::from_millis(50),
        ..options(&cluster, "mover")
    })
    .await;
    for topic in topics {
        client
            .subscribe(topic, Qos::ExactlyOnce)
            .await
            .expect("granted");
    }
    let publisher = connect(options(&cluster, "publisher")).await;
    const COUNT: usize = 600;
    let reading = tokio::spawn({
        let client = client.clone();
        async move { read_all(&client, 4, COUNT).await }
    });
    let layouts: [&[Session<'_>]; 4] = [
        &[
            ("mover", 0, &[], &["m/0", "m/1"]),
            ("mover~2", 1, &[], &["m/2", "m/3"]),
        ],
        &[
            ("mover", 0, &[], &["m/2"]),
            ("mover~2", 1, &[], &["m/0"]),
            ("mover~3", 2, &[], &["m/1", "m/3"]),
        ],
        &[
            ("mover", 2, &[], &["m/0", "m/1", "m/2"]),
            ("mover~2", 0, &[], &["m/3"]),
        ],
        &[("mover", 1, &[], &["m/0", "m/1", "m/2", "m/3"])],
    ];
    let moves = tokio::spawn({
        let (client, control, addresses) = (client.clone(), control.clone(), cluster.addresses());
        async move {
            let mut moves = 0;
            for layout in layouts.iter().cycle().take(12) {
                control.place(&addresses, layout);
                // A filter that comes or goes has the control plane asked again.
                let extra = format!("extra/{moves}");
                client
                    .subscribe(&extra, Qos::AtMostOnce)
                    .await
                    .expect("granted");
                client.unsubscribe(&extra).await.expect("done");
                tokio::time::sleep(Duration::from_millis(400)).await;
                moves += 1;
            }
            moves
        }
    });
    publish_all(&publisher, &topics, Qos::ExactlyOnce, COUNT, |_| {}).await;
    let seen = reading.await.expect("no panic");
    assert_eq!(twice(&seen), Vec::<&(String, usize)>::new());
    assert!(
        control.asked() > 4,
        "the control plane was asked {} times",
        control.asked()
    );
    moves.abort();
}

#[tokio::test]
async fn nodes_that_die_lose_nothing_and_at_qos_2_repeat_nothing() {
    for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut cluster = Cluster::start(4);
        let topics = ["d/0", "d/1", "d/2"];
        let control = Control::start(
            &cluster,
            &[
                ("reader", 0, &[], &["d/0"]),
                ("reader~2", 1, &[], &["d/1", "d/2"]),
            ],
        );
        let writes = Control::start(
            &cluster,
            &[
                ("writer", 2, &["d/0", "d/2"], &[]),
                ("writer~2", 1, &["d/1"], &[]),
            ],
        );
        let reader = connect(Options {
            placement: Placement::Http(vec![control.url()]),
            subscribe: topics
                .iter()
                .map(|topic| ((*topic).to_owned(), qos.into()))
                .collect(),
            ..options(&cluster, "reader")
        })
        .await;
        for topic in topics {
            reader.subscribe(topic, qos).await.expect("granted");
        }
        let writer = connect(Options {
            placement: Placement::Http(vec![writes.url()]),
            publish: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            ..options(&cluster, "writer")
        })
        .await;
        const COUNT: usize = 400;
        let reading = tokio::spawn({
            let reader = reader.clone();
            async move { read_all(&reader, 3, COUNT).await }
        });
        publish_all(&writer, &topics, qos, COUNT, |number| match number {
            100 => cluster.kill(1),
            250 => cluster.kill(2),
            _ => {}
        })
        .await;
        let seen = reading.await.expect("no panic");
        assert_eq!(seen.len(), 3 * COUNT);
        if qos == Qos::ExactlyOnce {
            assert_eq!(twice(&seen), Vec::<&(String, usize)>::new());
        }
        println!(
            "{qos:?}: {} messages, {} came twice",
            seen.len(),
            twice(&seen).len()
        );
    }
}

#[tokio::test]
async fn a_node_that_is_drained_sends_its_clients_on() {
    let cluster = Cluster::start(3);
    let control = Control::start(&cluster, &[("sent", 0, &[], &["t"])]);
    let client = connect(Options {
        placement: Placement::Http(vec![control.url()]),
        ..options(&cluster, "sent")
    })
    .await;
    assert_eq!(client.status().sessions[&1], cluster.address(0));
    client
        .subscribe("t", Qos::ExactlyOnce)
        .await
        .expect("granted");
    let publisher = connect(Options {
        servers: vec![cluster.url(2)],
        ..options(&cluster, "publisher")
    })
    .await;
    const COUNT: usize = 300;
    let reading = tokio::spawn({
        let client = client.clone();
        async move { read_all(&client, 1, COUNT).await }
    });
    let mut drain = None;
    publish_all(&publisher, &["t"], Qos::ExactlyOnce, COUNT, |number| {
        if number == 100 {
            drain = Some(cluster.drain(0));
        }
    })
    .await;
    assert!(drain.expect("begun").wait().expect("ctl ran").success());
    let seen = reading.await.expect("no panic");
    assert_eq!(twice(&seen), Vec::<&(String, usize)>::new());
    let status = client.wait_for(|status| !status.sessions.is_empty()).await;
    assert_ne!(status.sessions.get(&1), Some(&cluster.address(0)));
}
