//! Bridges of other brokers, as Mosquitto has them: the state topic below `$SYS`, and the bit in CONNECT that says that it is one.

use thicket_mqtt::{Connect, Packet, PacketId, ProtocolVersion, Publish, Subscribe, Will};

use super::{
    V5, V311, id, play, play_with, qos, resuming,
    rights::{as_user, policy, with},
};
use thicket_simulation::{TesterId, World};

const V31: ProtocolVersion = ProtocolVersion::V31;
const STATE: &str = "$SYS/broker/connection/edge/state";

/// The CONNECT of a Mosquitto with a bridge: `cleansession false`, `notifications true`.
fn edge(version: ProtocolVersion) -> Connect<'static> {
    Connect {
        bridge: version != V5,
        clean_start: false,
        session_expiry_interval: (version == V5).then_some(u32::MAX),
        will: Some(Will {
            qos: qos(1),
            retain: true,
            ..Will::new(STATE, b"0")
        }),
        ..Connect::new(version, "edge")
    }
}

fn publish_retained(world: &mut World, tester: TesterId, topic: &str, payload: &str, as_id: u16) {
    let publish = Publish {
        qos: qos(1),
        retain: true,
        packet_id: PacketId::new(as_id),
        ..Publish::new(topic, payload.as_bytes())
    };
    world.send(tester, &Packet::Publish(publish));
}

/// What a new subscriber receives of the states of bridges.
fn retained_states(world: &mut World, client_id: &str) -> Vec<String> {
    let asking = world.plain(client_id);
    let filter = "$SYS/broker/connection/#";
    world.send(
        asking,
        &Packet::Subscribe(Subscribe::new(id(1), filter, qos(0))),
    );
    let mut heard = world.hear(asking);
    assert_eq!(heard.remove(0), "SUBACK 1 [00]");
    heard
}

#[test]
fn a_bridge_says_below_sys_whether_it_is_connected() {
    for version in [V31, V311, V5] {
        play(|world| {
            let watcher = world.plain("watcher");
            world.subscribe(watcher, "$SYS/#", 0);
            let everything = world.plain("everything");
            world.subscribe(everything, "#", 0);
            let bridge = world.client(edge(version), "CONNACK");
            publish_retained(world, bridge, STATE, "1", 1);
            world.expect(bridge, &["PUBACK 1"]);
            world.expect(watcher, &[&format!("PUBLISH {STATE} '1'")]);
            assert_eq!(
                retained_states(world, "before"),
                [format!("PUBLISH {STATE} '1' retain")]
            );
            world.hang_up(bridge);
            world.expect(watcher, &[&format!("PUBLISH {STATE} '0'")]);
            assert_eq!(
                retained_states(world, "after"),
                [format!("PUBLISH {STATE} '0' retain")]
            );
            // [MQTT-4.7.2-1]
            world.expect(everything, &[]);
        });
    }
}

#[test]
fn no_client_publishes_the_values_that_the_node_itself_publishes() {
    let topics = [
        "$SYS/broker/uptime",
        "$SYS/broker/version",
        "$SYS/broker/connection",
        "$SYS/broker/connection/edge",
        "$SYS/broker/connection/state",
        "$SYS/broker/connection/edge/states",
        "$SYS/broker/clients/connection/edge/state",
        "$SYS/broker/connections/edge/state",
    ];
    play(|world| {
        let watcher = world.plain("watcher");
        world.subscribe(watcher, "$SYS/#", 0);
        for version in [V311, V5] {
            for topic in topics {
                let connect = Connect {
                    will: Some(Will::new(topic, b"forged")),
                    ..edge(version)
                };
                world.client_with(connect, &["CONNACK 0x87", "closed"]);
                let bridge = world.connect(0, edge(version));
                world.hear(bridge);
                publish_retained(world, bridge, topic, "forged", 1);
                let refused = if version == V5 {
                    "PUBACK 1 0x87"
                } else {
                    "PUBACK 1"
                };
                world.expect(bridge, &[refused]);
            }
        }
        let heard = world.tester(watcher).take_heard();
        assert!(!heard.iter().any(|it| it.contains("forged")), "{heard:?}");
    });
}

#[test]
fn a_bridge_without_the_right_to_its_state_topic_is_connected_all_the_same() {
    let cases = [
        ("user edge\ntopic readwrite #\n", false),
        (
            "user edge\ntopic readwrite #\npattern write $SYS/broker/connection/%c/state\n",
            true,
        ),
        (
            "user edge\ntopic readwrite #\npattern write $SYS/broker/connection/other-%c/state\n",
            false,
        ),
    ];
    for (acl, may) in cases {
        let acl = format!("{acl}user watcher\ntopic read $SYS/#\n");
        for version in [V31, V311, V5] {
            play_with(with(policy(&["edge", "watcher"], &acl)), |world| {
                let watcher = as_user("watcher", Connect::new(V5, "watcher"));
                let watcher = world.client(watcher, "CONNACK");
                world.subscribe(watcher, "$SYS/#", 0);
                let bridge = world.client(as_user("edge", edge(version)), "CONNACK");
                publish_retained(world, bridge, STATE, "1", 1);
                let answer = match (may, version) {
                    (false, V5) => "PUBACK 1 0x87",
                    (_, _) => "PUBACK 1",
                };
                world.expect(bridge, &[answer]);
                world.hang_up(bridge);
                let heard = world.hear(watcher);
                let states = ["1", "0"].map(|state| format!("PUBLISH {STATE} '{state}'"));
                assert_eq!(heard, if may { &states[..] } else { &[] }, "{version:?}");
            });
        }
    }
}

#[test]
fn the_state_of_a_tenants_bridge_is_below_the_tenants_prefix() {
    play_with(
        |spec| spec.listeners[0].topic_prefix = "tenant/".into(),
        |world| {
            let watcher = world.plain("watcher");
            world.subscribe(watcher, "$SYS/broker/connection/#", 0);
            let bridge = world.client(edge(V311), "CONNACK");
            publish_retained(world, bridge, STATE, "1", 1);
            world.expect(bridge, &["PUBACK 1"]);
            world.hang_up(bridge);
            world.expect(
                watcher,
                &[
                    &format!("PUBLISH {STATE} '1'"),
                    &format!("PUBLISH {STATE} '0'"),
                ],
            );
        },
    );
}

#[test]
fn a_bridge_of_an_older_version_gets_no_echo_and_retain_as_published() {
    for version in [V31, V311] {
        for clean_start in [true, false] {
            play(|world| {
                let connect = Connect {
                    clean_start,
                    ..edge(version)
                };
                let bridge = world.client(connect, "CONNACK");
                world.subscribe(bridge, "#", 1);
                publish_retained(world, bridge, "own", "x", 7);
                let heard = world.hear(bridge);
                assert!(
                    heard == ["PUBACK 7"] || heard == ["PUBACK 7 0x10"],
                    "{heard:?}"
                );
                let other = world.plain("other");
                publish_retained(world, other, "kept", "x", 1);
                world.publish(other, "passing", "x", 0, 0);
                world.expect(
                    bridge,
                    &["PUBLISH kept 'x' q1 #1 retain", "PUBLISH passing 'x'"],
                );
            });
        }
    }
}

#[test]
fn a_client_that_is_no_bridge_gets_its_own_messages_and_no_retain() {
    play(|world| {
        let connect = Connect {
            bridge: false,
            ..edge(V311)
        };
        let client = world.client(connect, "CONNACK");
        world.subscribe(client, "#", 0);
        publish_retained(world, client, "own", "x", 7);
        let mut heard = world.hear(client);
        heard.sort();
        assert_eq!(heard, ["PUBACK 7", "PUBLISH own 'x'"]);
    });
}

#[test]
fn what_waited_for_a_bridge_is_no_echo_and_keeps_its_retain() {
    play(|world| {
        let bridge = world.client(edge(V311), "CONNACK");
        world.subscribe(bridge, "kept/#", 1);
        world.hang_up(bridge);
        let other = world.client(resuming(V5, "other", 0), "CONNACK");
        publish_retained(world, other, "kept/x", "x", 1);
        world.hear(other);
        world.client_with(
            edge(V311),
            &["CONNACK present", "PUBLISH kept/x 'x' q1 #1 retain"],
        );
    });
}

#[test]
fn a_bridge_may_share_a_subscription() {
    play(|world| {
        let bridge = world.client(edge(V311), "CONNACK");
        world.subscribe(bridge, "$share/group/kept", 1);
        let other = world.plain("other");
        publish_retained(world, other, "kept", "x", 1);
        let heard = world.hear(bridge);
        let is_it = |line: &String| line.starts_with("PUBLISH kept 'x' q1 #1");
        assert!(heard.len() == 1 && heard.iter().all(is_it), "{heard:?}");
    });
}
