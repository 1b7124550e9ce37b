//! QoS 0, 1 and 2 in both directions.

use thicket_mqtt::{Acknowledgement, Packet, ReasonCode};

use super::{V5, V311, id, play, resuming};

fn plain(packet_id: u16) -> Acknowledgement<'static> {
    Acknowledgement::new(id(packet_id), ReasonCode::Success)
}

#[test]
fn a_message_arrives_with_the_lower_of_published_and_granted_qos() {
    for version in [V311, V5] {
        play(|world| {
            let subscriber = world.client(resuming(version, "subscriber", 0), "CONNACK");
            let publisher = world.client(resuming(version, "publisher", 0), "CONNACK");
            world.tester(subscriber).acknowledges = true;
            world.tester(publisher).acknowledges = true;
            for granted in 0..=2_u8 {
                world.subscribe(subscriber, "a/+", granted);
                for published in 0..=2_u8 {
                    let number = u16::from(published > 0);
                    world.publish(publisher, "a/b", "x", published, number);
                    let answer: &[&str] = match published {
                        0 => &[],
                        1 => &["PUBACK 1"],
                        _ => &["PUBREC 1", "PUBCOMP 1"],
                    };
                    world.expect(publisher, answer);
                    let heard = world.tester(subscriber).take_heard();
                    match granted.min(published) {
                        0 => assert_eq!(heard, ["PUBLISH a/b 'x'"]),
                        1 => {
                            assert_eq!(heard.len(), 1, "{heard:?}");
                            assert!(heard[0].starts_with("PUBLISH a/b 'x' q1 #"), "{heard:?}");
                        }
                        _ => {
                            assert_eq!(heard.len(), 2, "{heard:?}");
                            assert!(heard[0].starts_with("PUBLISH a/b 'x' q2 #"), "{heard:?}");
                            assert!(heard[1].starts_with("PUBREL "), "{heard:?}");
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn a_qos_2_publish_sent_twice_is_delivered_once_until_it_is_released() {
    play(|world| {
        let subscriber = world.plain("subscriber");
        let publisher = world.plain("publisher");
        world.subscribe(subscriber, "a", 0);
        world.publish(publisher, "a", "first", 2, 7);
        world.expect(publisher, &["PUBREC 7"]);
        world.publish(publisher, "a", "first", 2, 7);
        world.expect(publisher, &["PUBREC 7"]);
        world.send(publisher, &Packet::Pubrel(plain(7)));
        world.expect(publisher, &["PUBCOMP 7"]);
        world.publish(publisher, "a", "second", 2, 7);
        world.expect(publisher, &["PUBREC 7"]);
        world.expect(subscriber, &["PUBLISH a 'first'", "PUBLISH a 'second'"]);
    });
}

#[test]
fn pubrel_for_unknown_id_is_answered_with_packet_identifier_not_found() {
    play(|world| {
        let client = world.plain("client");
        world.send(client, &Packet::Pubrel(plain(9)));
        world.expect(client, &["PUBCOMP 9 0x92"]);
        world.send(client, &Packet::Pubrec(plain(9)));
        world.expect(client, &["PUBREL 9 0x92"]);
        // What was refused there ends with that [MQTT-4.3.3-4].
        let refused = Acknowledgement::new(id(9), ReasonCode::UnspecifiedError);
        world.send(client, &Packet::Pubrec(refused));
        world.expect(client, &[]);
    });
    play(|world| {
        let client = world.client(resuming(V311, "client", 0), "CONNACK");
        world.send(client, &Packet::Pubrel(plain(9)));
        world.expect(client, &["PUBCOMP 9"]);
    });
}

#[test]
fn a_publisher_is_told_that_there_are_no_matching_subscribers() {
    play(|world| {
        let publisher = world.plain("publisher");
        world.publish(publisher, "a", "", 1, 1);
        world.expect(publisher, &["PUBACK 1 0x10"]);
        world.publish(publisher, "a", "", 2, 2);
        world.expect(publisher, &["PUBREC 2 0x10"]);
        world.send(publisher, &Packet::Pubrel(plain(2)));
        world.expect(publisher, &["PUBCOMP 2"]);
    });
}

#[test]
fn acknowledgements_come_in_the_order_of_the_messages() {
    play(|world| {
        let subscribers: Vec<_> = ["one", "two", "three"]
            .into_iter()
            .map(|name| world.plain(name))
            .collect();
        for subscriber in &subscribers {
            world.subscribe(*subscriber, "wanted", 1);
        }
        let publisher = world.plain("publisher");
        for number in 1..=20_u16 {
            let topic = if number % 2 == 0 {
                "wanted"
            } else {
                "unwanted"
            };
            world.publish(publisher, topic, "", 1, number);
        }
        let expected: Vec<String> = (1..=20)
            .map(|number| match number % 2 {
                0 => format!("PUBACK {number}"),
                _ => format!("PUBACK {number} 0x10"),
            })
            .collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        world.expect(publisher, &expected);
    });
}
