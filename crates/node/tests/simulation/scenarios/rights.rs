//! What clients may publish and subscribe to, and what happens when that changes.

use thicket_access::{Acl, Algorithm, Policy, Tokens, Users, scram::Credential};
use thicket_mqtt::{Connect, Login, Packet, PacketId, ProtocolVersion, Publish, Subscribe, Will};

use super::{V5, V311, id, play_with, qos, resuming};
use thicket_simulation::{TesterId, World, net::Weather, node::NodeSpec};

/// Made with another implementation: `sub` is `ann`, `exp` is 2000000000.
const EC_KEY: &str = "\
-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEVTgwenvixTQQm+zUj3ofvlvRcWT/
U0REs7loAIxIt6YDxSjCehVdKBgtm7jiiElcS3IN6a/gqJrl47Or3CnSuA==
-----END PUBLIC KEY-----
";
const EC_TOKEN: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiAiYW5uIiwgImV4cCI6IDIwMDAwMDAwMDB9.YficZkb_VDH03cSCQjjfSVoHbGHt\
     TtFbVQIlcsl8Ufrvfbhq8e-9gkaG976P32ijYvcuAA0LtMVjPatlQHB9rQ";
/// Everybody's password is its name.
pub fn policy(names: &[&str], acl: &str) -> Policy {
    let line = |name: &&str| {
        format!(
            "{name}:{}\n",
            Credential::new(name.as_bytes(), b"salt", 4096)
        )
    };
    let users: String = names.iter().map(line).collect();
    Policy {
        users: Some(Users::parse(&users).expect("good users")),
        acl: Some(Acl::parse(acl).expect("a good ACL")),
        ..Policy::default()
    }
}

pub fn with(policy: Policy) -> impl Fn(&mut NodeSpec) {
    let policy = std::sync::Arc::new(policy);
    move |spec| {
        spec.listeners[0].allow_anonymous = false;
        spec.policy = Some(policy.clone());
    }
}

pub fn as_user<'a>(name: &'a str, connect: Connect<'a>) -> Connect<'a> {
    let login = Login {
        user_name: Some(name),
        password: Some(name.as_bytes()),
    };
    Connect { login, ..connect }
}

/// Steps of these scenarios.
trait Steps {
    #[track_caller]
    fn user(&mut self, name: &str, version: ProtocolVersion, client_id: &str) -> TesterId;
    #[track_caller]
    fn expect_acknowledged(&mut self, tester: TesterId, packet_id: u16);
    fn count(&self, count: impl Fn(&thicket_node::Traffic) -> u64) -> u64;
}

impl Steps for World {
    #[track_caller]
    fn user(&mut self, name: &str, version: ProtocolVersion, client_id: &str) -> TesterId {
        self.client(as_user(name, Connect::new(version, client_id)), "CONNACK")
    }

    /// Another worker counts as a recipient, also when nobody there may read the message.
    #[track_caller]
    fn expect_acknowledged(&mut self, tester: TesterId, packet_id: u16) {
        let heard = self.hear(tester);
        let plain = format!("PUBACK {packet_id}");
        assert!(
            heard == [plain.clone()] || heard == [format!("{plain} 0x10")],
            "{heard:?}"
        );
    }

    fn count(&self, count: impl Fn(&thicket_node::Traffic) -> u64) -> u64 {
        self.traffic(0).iter().map(count).sum()
    }
}

const ACL: &str = "\
user ann
topic home/#
topic deny home/safe/#
user bob
topic read home/+
topic write bob/#
pattern write devices/%c/up
";

#[test]
fn what_may_not_be_published_is_refused_or_dropped_and_counted() {
    let cases: [(ProtocolVersion, u8, &[&str]); 6] = [
        (V5, 0, &[]),
        (V5, 1, &["PUBACK 7 0x87"]),
        (V5, 2, &["PUBREC 7 0x87"]),
        (V311, 0, &[]),
        // [MQTT-3.3.5-2 v3.1.1]: acknowledged as if all were well.
        (V311, 1, &["PUBACK 7"]),
        (V311, 2, &["PUBREC 7"]),
    ];
    for (version, of_qos, expected) in cases {
        play_with(with(policy(&["ann", "bob"], ACL)), |world| {
            let ann = world.user("ann", V5, "ann");
            world.subscribe(ann, "home/#", 0);
            let bob = world.user("bob", version, "bob");
            world.publish(
                bob,
                "home/lamp",
                "no",
                of_qos,
                if of_qos > 0 { 7 } else { 0 },
            );
            world.expect(bob, expected);
            world.expect(ann, &[]);
            assert_eq!(world.count(|it| it.refused_messages), 1);
            world.publish(bob, "devices/bob/up", "yes", 0, 0);
            world.publish(bob, "devices/ann/up", "no", 0, 0);
            world.expect(bob, &[]);
            assert_eq!(world.count(|it| it.refused_messages), 2);
        });
    }
}

#[test]
fn what_was_refused_at_qos_2_may_come_again_under_its_identifier() {
    play_with(with(policy(&["bob"], ACL)), |world| {
        let bob = world.user("bob", V5, "bob");
        world.publish(bob, "home/lamp", "no", 2, 7);
        world.expect(bob, &["PUBREC 7 0x87"]);
        world.publish(bob, "bob/x", "yes", 2, 7);
        world.expect(bob, &["PUBREC 7 0x10"]);
    });
}

#[test]
fn a_topic_alias_does_not_get_round_a_rule() {
    play_with(with(policy(&["bob"], ACL)), |world| {
        let bob = world.user("bob", V5, "bob");
        let send = |world: &mut World, topic, packet_id| {
            let publish = Publish {
                qos: qos(1),
                packet_id: PacketId::new(packet_id),
                topic_alias: Some(1),
                ..Publish::new(topic, b"x")
            };
            world.send(bob, &Packet::Publish(publish));
        };
        send(world, "home/lamp", 1);
        send(world, "", 2);
        world.expect(bob, &["PUBACK 1 0x87", "PUBACK 2 0x87"]);
        send(world, "bob/x", 3);
        send(world, "", 4);
        world.expect(bob, &["PUBACK 3 0x10", "PUBACK 4 0x10"]);
    });
}

#[test]
fn a_filter_that_matches_an_allowed_topic_is_granted() {
    // Who, filter, SUBACK code in 5.0 and in 3.1.1.
    let cases = [
        ("ann", "home/#", 0x00, 0x00),
        ("ann", "#", 0x00, 0x00),
        ("ann", "home/safe/x", 0x87, 0x80),
        ("ann", "garden/#", 0x87, 0x80),
        ("bob", "bob/#", 0x87, 0x80),
        ("bob", "devices/bob/up", 0x87, 0x80),
        ("bob", "+/lamp", 0x00, 0x00),
        ("bob", "$share/g/home/+", 0x00, 0x00),
        ("bob", "$share/g/home/#", 0x87, 0x80),
        ("ann", "$share/g/home/+", 0x87, 0x80),
        ("ann", "$share/g/home/lamp", 0x00, 0x00),
        ("ann", "$share/g/home/#", 0x87, 0x80),
    ];
    for (name, filter, v5, v311) in cases {
        for (version, code) in [(V5, v5), (V311, v311)] {
            play_with(with(policy(&["ann", "bob"], ACL)), |world| {
                let tester = world.user(name, version, "client");
                world.send(
                    tester,
                    &Packet::Subscribe(Subscribe::new(id(1), filter, qos(0))),
                );
                let expected = format!("SUBACK 1 [{code:02X}]");
                world.expect(tester, &[&expected]);
            });
        }
    }
}

#[test]
fn only_what_may_be_read_is_delivered_live_and_retained() {
    let acl = "user root\ntopic #\nuser ann\ntopic read home/#\ntopic deny home/safe/#";
    play_with(with(policy(&["root", "ann"], acl)), |world| {
        let root = world.user("root", V5, "root");
        for (topic, payload) in [("home/a", "1"), ("home/safe/b", "2"), ("garden/c", "3")] {
            let publish = Publish {
                retain: true,
                ..Publish::new(topic, payload.as_bytes())
            };
            world.send(root, &Packet::Publish(publish));
        }
        world.expect(root, &[]);
        let ann = world.user("ann", V5, "ann");
        world.send(ann, &Packet::Subscribe(Subscribe::new(id(1), "#", qos(1))));
        world.expect(ann, &["SUBACK 1 [01]", "PUBLISH home/a '1' retain"]);
        assert_eq!(world.count(|it| it.withheld_messages), 2);
        for topic in ["home/a", "home/safe/b", "garden/c"] {
            world.publish(root, topic, "live", 0, 0);
        }
        world.expect(ann, &["PUBLISH home/a 'live'"]);
        assert_eq!(world.count(|it| it.withheld_messages), 4);
    });
}

#[test]
fn a_will_that_may_not_be_published_is_refused_with_its_connect() {
    let cases = [
        ("bob/gone", "CONNACK", false),
        ("home/gone", "CONNACK 0x87", true),
    ];
    for (topic, connack, is_refused) in cases {
        play_with(with(policy(&["bob"], ACL)), |world| {
            let connect = Connect {
                will: Some(Will::new(topic, b"x")),
                ..as_user("bob", Connect::new(V5, "bob"))
            };
            let tester = world.connect(0, connect);
            let mut expected = vec![connack];
            expected.extend(is_refused.then_some("closed"));
            assert_eq!(world.hear(tester), expected, "{topic}");
        });
    }
}

#[test]
fn what_was_queued_under_other_rights_is_looked_at_again() {
    let before = "user root\ntopic #\nuser ann\ntopic read #";
    let after = "user root\ntopic #\nuser ann\ntopic read home/#";
    play_with(with(policy(&["root", "ann"], before)), |world| {
        let ann = world.client(as_user("ann", resuming(V5, "ann", 1000)), "CONNACK");
        world.subscribe(ann, "#", 1);
        world.hang_up(ann);
        let root = world.user("root", V5, "root");
        world.publish(root, "home/a", "1", 1, 1);
        world.publish(root, "garden/b", "2", 1, 2);
        world.expect(root, &["PUBACK 1", "PUBACK 2"]);
        world.reload(0, policy(&["root", "ann"], after));
        world.publish(root, "garden/b", "3", 1, 3);
        world.expect_acknowledged(root, 3);
        world.client_with(
            as_user("ann", resuming(V5, "ann", 1000)),
            &["CONNACK present", "PUBLISH home/a '1' q1 #1"],
        );
        assert_eq!(world.count(|it| it.withheld_messages), 2);
    });
}

#[test]
fn a_reload_changes_the_rights_of_those_connected() {
    let before = "user root\ntopic #\nuser ann\ntopic #";
    let after = "user root\ntopic #\nuser ann\ntopic read home/+";
    play_with(with(policy(&["root", "ann"], before)), |world| {
        let (root, ann) = (world.user("root", V5, "root"), world.user("ann", V5, "ann"));
        for filter in ["#", "$share/g/home/#"] {
            world.subscribe(ann, filter, 1);
        }
        world.reload(0, policy(&["root", "ann"], after));
        world.expect(ann, &[]);
        world.publish(ann, "home/a", "no", 1, 1);
        world.expect(ann, &["PUBACK 1 0x87"]);
        world.publish(root, "garden/b", "no", 0, 0);
        // Once: the shared subscription reached too far and is gone.
        world.publish(root, "home/a", "yes", 0, 0);
        world.expect(ann, &["PUBLISH home/a 'yes'"]);
        world.reload(0, policy(&["root", "ann"], before));
        world.publish(root, "garden/b", "yes", 0, 0);
        world.expect(ann, &["PUBLISH garden/b 'yes'"]);
    });
}

#[test]
fn a_reload_disconnects_clients_whose_user_is_removed_or_has_another_password() {
    for (version, expected) in [
        (V5, &["DISCONNECT 0x87", "closed"][..]),
        (V311, &["closed"][..]),
    ] {
        play_with(with(policy(&["ann", "bob", "eve"], "pattern #")), |world| {
            let ann = world.user("ann", version, "ann");
            let (bob, eve) = (
                world.user("bob", version, "bob"),
                world.user("eve", version, "eve"),
            );
            let mut after = policy(&["ann"], "pattern #");
            let other = Credential::new(b"another", b"salt", 4096);
            let kept = Credential::new(b"ann", b"salt", 4096);
            let text = format!("ann:{kept}\nbob:{other}\n");
            after.users = Some(Users::parse(&text).expect("good users"));
            world.reload(0, after);
            world.expect(ann, &[]);
            for gone in [bob, eve] {
                world.expect(gone, expected);
            }
            let again = world.connect(0, as_user("eve", Connect::new(V5, "eve")));
            world.expect(again, &["CONNACK 0x86", "closed"]);
        });
    }
}

#[test]
fn a_session_whose_user_is_gone_gets_nothing_more() {
    let acl = "user root\ntopic #\nuser ann\ntopic #";
    play_with(with(policy(&["root", "ann"], acl)), |world| {
        let ann = world.client(as_user("ann", resuming(V5, "ann", 1000)), "CONNACK");
        world.subscribe(ann, "#", 1);
        world.reload(0, policy(&["root"], acl));
        world.expect(ann, &["DISCONNECT 0x87", "closed"]);
        let root = world.user("root", V5, "root");
        world.publish(root, "home/a", "1", 1, 1);
        world.expect_acknowledged(root, 1);
        assert_eq!(world.count(|it| it.withheld_messages), 1);
    });
}

/// Nodes that accept the token, ten seconds before its `exp`; and there is leeway of thirty.
fn near_the_end_of_a_token() -> impl Fn(&mut NodeSpec) {
    let tokens = Tokens::new(Algorithm::Es256, EC_KEY.as_bytes(), None, None).expect("a key");
    let policy = Policy {
        tokens: Some(tokens),
        ..Policy::default()
    };
    let configure = with(policy);
    move |spec| {
        configure(spec);
        spec.wall_ahead = 299_999_990 * 1000;
    }
}

fn with_token() -> Connect<'static> {
    let login = Login {
        user_name: None,
        password: Some(EC_TOKEN.as_bytes()),
    };
    Connect {
        login,
        keep_alive: 0,
        ..Connect::new(V5, "client")
    }
}

#[test]
fn a_connection_ends_with_its_token() {
    play_with(near_the_end_of_a_token(), |world| {
        let tester = world.client(with_token(), "CONNACK");
        world.run_for(35_000);
        world.expect(tester, &[]);
        world.run_for(10_000);
        world.expect(tester, &["DISCONNECT 0xA0", "closed"]);
    });
}

#[test]
fn a_connection_ends_with_its_token_though_the_clock_was_set() {
    play_with(near_the_end_of_a_token(), |world| {
        let tester = world.client(with_token(), "CONNACK");
        world.nodes[0].spec.wall_ahead -= 60_000;
        world.run_for(60_000);
        world.expect(tester, &[]);
        world.nodes[0].spec.wall_ahead += 60_000;
        world.run_for(1_000);
        world.expect(tester, &["DISCONNECT 0xA0", "closed"]);
    });
}

#[test]
fn what_came_while_a_node_stood_still_is_not_published_if_the_token_has_expired_since() {
    for is_suspended in [false, true] {
        let configure = near_the_end_of_a_token();
        let configure = |spec: &mut NodeSpec| {
            configure(spec);
            if let Some(policy) = &mut spec.policy {
                std::sync::Arc::make_mut(policy).allows_anonymous = true;
            }
        };
        play_with(configure, |world| {
            let watcher = Connect {
                keep_alive: 0,
                ..Connect::new(V5, "watcher")
            };
            let watcher = world.client(watcher, "CONNACK");
            world.subscribe(watcher, "a", 0);
            let tester = world.client(with_token(), "CONNACK");
            world.run_for(30_000);
            if is_suspended {
                world.freeze(0, 60_000);
                world.nodes[0].spec.wall_ahead += 60_000;
            } else {
                world.net.pause(0, 60_000);
            }
            world.run_for(50_000);
            world.publish(tester, "a", "too late", 1, 1);
            world.run_for(11_000);
            world.expect(tester, &["DISCONNECT 0xA0", "closed"]);
            world.expect(watcher, &[]);
        });
    }
}

#[test]
fn a_client_whose_token_expires_while_its_session_fails_over_is_refused() {
    let configure = near_the_end_of_a_token();
    for seed in 0..10 {
        let mut world = World::new(seed, Weather::CALM);
        for _ in 0..2 {
            let mut spec = NodeSpec::new(2);
            configure(&mut spec);
            if let Some(policy) = &mut spec.policy {
                std::sync::Arc::make_mut(policy).allows_anonymous = true;
            }
            let node = world.add_node(spec);
            world.start(node);
        }
        world.run_for(5_000);
        let connect = Connect {
            clean_start: false,
            session_expiry_interval: Some(1_000),
            ..with_token()
        };
        let away = world.connect(1, connect.clone());
        world.expect(away, &["CONNACK"]);
        world.subscribe(away, "a", 1);
        world.hang_up(away);
        world.run_for(1_000);
        let publisher = world.plain("publisher");
        world.publish(publisher, "a", "waits", 1, 1);
        world.expect(publisher, &["PUBACK 1"]);
        // Half a second before the end, on a node that has to wait for the other one.
        let end = 40_000;
        world.run_for(end - 500 - world.net.now);
        world.pause(1);
        let back = world.connect(0, connect);
        world.run_for(10_000);
        world.expect(back, &["CONNACK 0x86", "closed"]);
    }
}

#[test]
fn what_a_node_kept_over_a_restart_is_looked_at_under_the_rights_of_then() {
    let before = policy(
        &["root", "ann"],
        "user root\ntopic #\nuser ann\ntopic read #",
    );
    let after = policy(
        &["root", "ann"],
        "user root\ntopic #\nuser ann\ntopic read home/#",
    );
    let (configure, after) = (with(before), std::sync::Arc::new(after));
    let stored = |spec: &mut NodeSpec| {
        configure(spec);
        spec.stores = true;
    };
    play_with(stored, |world| {
        let ann = world.client(as_user("ann", resuming(V5, "ann", 1000)), "CONNACK");
        world.subscribe(ann, "#", 1);
        let root = world.user("root", V5, "root");
        world.publish(root, "garden/sent", "1", 1, 1);
        world.expect(ann, &["PUBLISH garden/sent '1' q1 #1"]);
        world.hang_up(ann);
        world.run_for(1_000);
        world.publish(root, "garden/queued", "2", 1, 2);
        world.publish(root, "home/queued", "3", 1, 3);
        world.expect(root, &["PUBACK 1", "PUBACK 2", "PUBACK 3"]);
        for expected in [
            &["CONNACK present", "PUBLISH home/queued '3' q1 #3"][..],
            &["CONNACK present", "PUBLISH home/queued '3' q1 #3 dup"][..],
        ] {
            world.kill(0);
            world.nodes[0].spec.policy = Some(after.clone());
            world.start(0);
            world.run_for(1_000);
            let again = world.client_with(as_user("ann", resuming(V5, "ann", 1000)), expected);
            world.hang_up(again);
            world.run_for(100);
        }
    });
}

#[test]
fn another_user_with_the_same_client_identifier_has_a_session_of_its_own() {
    let users = policy(&["ann", "bob"], "user ann\ntopic #\nuser bob\ntopic #\n");
    play_with(with(users), |world| {
        let lamp = |name| as_user(name, resuming(V5, "lamp", 1000));
        let ann = world.client(lamp("ann"), "CONNACK");
        world.subscribe(ann, "a", 1);
        let bob = world.client(lamp("bob"), "CONNACK");
        // Nobody was disconnected for it.
        world.publish(ann, "b", "", 1, 1);
        world.expect(ann, &["PUBACK 1 0x10"]);
        world.hang_up(ann);
        world.run_for(100);
        world.publish(bob, "a", "for ann", 1, 1);
        world.expect_acknowledged(bob, 1);
        // Neither a Clean Start nor a return of the other one touches what waits.
        world.hang_up(bob);
        world.run_for(100);
        let clean = Connect {
            clean_start: true,
            ..lamp("bob")
        };
        world.client(clean, "CONNACK");
        let expected = ["CONNACK present", "PUBLISH a 'for ann' q1 #1"];
        world.client_with(lamp("ann"), &expected);
    });
}
