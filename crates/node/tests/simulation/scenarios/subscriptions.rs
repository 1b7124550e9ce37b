//! Filters and the options of subscriptions.

use thicket_mqtt::{Packet, Publish, Subscribe, SubscribeFilter, Unsubscribe};

use super::{V311, id, play, play_with, qos, resuming};

#[test]
fn filters_match_what_the_specification_says() {
    let cases: [(&str, &[&str], &[&str]); 6] = [
        (
            "sport/tennis/#",
            &["sport/tennis", "sport/tennis/a/b"],
            &["sport", "sport/tennis2"],
        ),
        (
            "+/tennis/#",
            &["sport/tennis", "/tennis/x"],
            &["sport/a/tennis"],
        ),
        ("+/+", &["/finance", "a/b"], &["a", "a/b/c"]),
        ("#", &["a", "/"], &["$other/a"]),
        ("+/monitor", &["a/monitor"], &["$other/monitor"]),
        ("$other/#", &["$other/monitor"], &["other/monitor"]),
    ];
    for (filter, matching, others) in cases {
        play(|world| {
            let client = world.plain("client");
            let publisher = world.plain("publisher");
            world.subscribe(client, filter, 0);
            for topic in matching.iter().chain(others) {
                world.publish(publisher, topic, "", 0, 0);
            }
            let expected: Vec<String> = matching
                .iter()
                .map(|topic| format!("PUBLISH {topic} ''"))
                .collect();
            assert_eq!(world.hear(client), expected, "{filter}");
        });
    }
}

#[test]
fn overlapping_subscriptions_make_one_copy_with_all_identifiers() {
    play(|world| {
        let client = world.plain("client");
        for (number, filter) in [(1, "a/+"), (2, "a/#"), (7, "#")] {
            let subscribe = Subscribe {
                subscription_identifier: Some(number),
                ..Subscribe::new(id(1), filter, qos(number.min(2) as u8))
            };
            world.send(client, &Packet::Subscribe(subscribe));
        }
        world.run_for(500);
        world.tester(client).take_heard();
        let publisher = world.plain("publisher");
        world.publish(publisher, "a/b", "x", 1, 1);
        let heard = world.hear(client);
        assert_eq!(heard.len(), 1, "{heard:?}");
        let (words, identifiers) = heard[0].split_once(" sub=").expect("identifiers");
        assert_eq!(words, "PUBLISH a/b 'x' q1 #1");
        let mut identifiers: Vec<char> = identifiers.chars().filter(char::is_ascii_digit).collect();
        identifiers.sort_unstable();
        assert_eq!(identifiers, ['1', '2', '7']);
    });
}

#[test]
fn no_local_keeps_a_clients_own_messages_from_it() {
    play(|world| {
        let client = world.plain("client");
        let other = world.plain("other");
        let mut subscribe = Subscribe::new(id(1), "a", qos(0));
        subscribe.filters[0].options.no_local = true;
        world.send(client, &Packet::Subscribe(subscribe));
        world.expect(client, &["SUBACK 1 [00]"]);
        world.subscribe(other, "a", 0);
        world.publish(client, "a", "mine", 0, 0);
        world.run_for(500);
        world.publish(other, "a", "yours", 0, 0);
        world.expect(client, &["PUBLISH a 'yours'"]);
        world.expect(other, &["PUBLISH a 'mine'", "PUBLISH a 'yours'"]);
    });
}

#[test]
fn each_filter_of_a_subscribe_gets_its_code() {
    let asked = [
        "a/b",
        "a/#/b",
        "a+",
        "$share/g/a",
        "$share/g",
        "$share//a",
        "$thicket/x",
    ];
    let subscribe = || {
        let filters = asked
            .iter()
            .map(|filter| SubscribeFilter {
                filter,
                options: thicket_mqtt::SubscriptionOptions {
                    qos: qos(1),
                    ..thicket_mqtt::SubscriptionOptions::default()
                },
            })
            .collect();
        Subscribe {
            filters,
            ..Subscribe::new(id(3), "", qos(0))
        }
    };
    play(|world| {
        let client = world.plain("client");
        world.send(client, &Packet::Subscribe(subscribe()));
        world.expect(client, &["SUBACK 3 [01 8F 8F 01 8F 8F 87]"]);
        let old = world.client(resuming(V311, "old", 0), "CONNACK");
        world.send(old, &Packet::Subscribe(subscribe()));
        world.expect(old, &["SUBACK 3 [01 80 80 01 80 80 80]"]);
    });
}

#[test]
fn an_unsubscribed_filter_gets_nothing_more() {
    play(|world| {
        let client = world.plain("client");
        let publisher = world.plain("publisher");
        world.subscribe(client, "a", 1);
        let filters = vec!["a", "b"];
        world.send(
            client,
            &Packet::Unsubscribe(Unsubscribe::new(id(2), filters)),
        );
        world.expect(client, &["UNSUBACK 2 [00 11]"]);
        world.run_for(100);
        world.publish(publisher, "a", "", 1, 1);
        world.expect(publisher, &["PUBACK 1 0x10"]);
        world.expect(client, &[]);
    });
}

#[test]
fn a_listeners_topic_prefix_is_put_before_topics_and_taken_off_again() {
    play_with(
        |spec| spec.listeners[0].topic_prefix = "tenant/".into(),
        |world| {
            let client = world.plain("client");
            world.subscribe(client, "#", 0);
            let mut publish = Publish::new("a", b"x");
            publish.topic_alias = Some(1);
            world.send(client, &Packet::Publish(publish));
            publish.topic = "";
            world.send(client, &Packet::Publish(publish));
            world.expect(client, &["PUBLISH a 'x'", "PUBLISH a 'x'"]);
        },
    );
}

#[test]
fn nobody_may_publish_to_reserved_topics_or_subscribe_to_too_much() {
    play_with(
        |spec| spec.limits.subscriptions = 1,
        |world| {
            let client = world.plain("client");
            world.publish(client, "$SYS/x", "", 1, 1);
            world.expect(client, &["PUBACK 1 0x87"]);
            world.publish(client, "$thicket/x", "", 2, 2);
            world.expect(client, &["PUBREC 2 0x87"]);
            world.subscribe(client, "a", 0);
            world.send(
                client,
                &Packet::Subscribe(Subscribe::new(id(1), "b", qos(0))),
            );
            world.expect(client, &["SUBACK 1 [97]"]);
            world.subscribe(client, "a", 1);
        },
    );
}
