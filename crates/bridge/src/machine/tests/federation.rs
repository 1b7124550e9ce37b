//! What crosses, under which name, and that it does not return.

use super::world::{World, config};
use super::*;

const HERE: usize = 0;
const THERE: usize = 1;

fn one_bridge(version: ProtocolVersion, rules: Vec<Rule>) -> World {
    let mut world = World::new(2);
    world.bridge(config("b", version, rules), HERE, THERE);
    world.settle();
    world
}

fn last(world: &World, broker: usize) -> (String, u8) {
    let kept = world.brokers[broker].published.last().unwrap();
    (kept.topic.clone(), kept.qos as u8)
}

#[test]
fn messages_cross_as_their_rules_say_and_keep_their_qos() {
    for version in [V311, V5] {
        let mut world = one_bridge(
            version,
            vec![
                rule("out/#", Direction::Out, "", "far/"),
                rule("in/#", Direction::In, "near/", ""),
                rule("#", Direction::Both, "ours/", "theirs/"),
            ],
        );
        let cases = [
            ("out", HERE, "out/a", THERE, "far/out/a"),
            ("in", THERE, "in/a", HERE, "near/in/a"),
            ("both, out", HERE, "ours/a", THERE, "theirs/a"),
            ("both, in", THERE, "theirs/b", HERE, "ours/b"),
        ];
        for (name, from, topic, to, expected) in cases {
            for number in 0..3 {
                let payload = format!("{name} {number}");
                world.brokers[from].publish(topic, &payload, qos(number));
                world.settle();
                assert_eq!(
                    world.brokers[to].count(&payload),
                    1,
                    "{version:?} {payload}"
                );
                assert_eq!(
                    last(&world, to),
                    (expected.to_owned(), number),
                    "{version:?} {payload}"
                );
                assert_eq!(
                    world.brokers[from].count(&payload),
                    1,
                    "{version:?} {payload}: no echo"
                );
            }
        }
        world.brokers[HERE].publish("in/a", "wrong way", qos(1));
        world.brokers[THERE].publish("other", "no rule", qos(1));
        world.settle();
        assert_eq!(
            world.brokers[THERE].count("wrong way") + world.brokers[HERE].count("no rule"),
            0
        );
    }
}

#[test]
fn a_rule_may_lower_the_qos() {
    let mut world = World::new(2);
    let low = Rule::new(&RuleConfig {
        qos: qos(0),
        ..RuleConfig::new("#", Direction::Out)
    });
    world.bridge(config("b", V5, vec![low.unwrap()]), HERE, THERE);
    world.settle();
    world.brokers[HERE].publish("a", "1", qos(2));
    world.settle();
    assert_eq!(last(&world, THERE), ("a".to_owned(), 0));
}

#[test]
fn an_echo_of_3_1_1_is_dropped_once_and_what_others_say_passes() {
    let mut world = one_bridge(V311, vec![rule("#", Direction::Both, "", "")]);
    for number in 0..3 {
        world.brokers[HERE].publish("lamp", "on", qos(number));
    }
    world.settle();
    assert_eq!(world.brokers[HERE].count("on"), 3, "no echo");
    assert_eq!(world.statistics(0).inward.looped, 3);
    world.brokers[THERE].publish("lamp", "on", qos(1));
    world.settle();
    assert_eq!(
        world.brokers[HERE].count("on"),
        4,
        "the same of somebody else"
    );
    assert_eq!(world.brokers[THERE].count("on"), 4);
}

#[test]
fn without_no_local_the_mark_stops_an_echo() {
    // The simple broker supports No Local; a message that was marked before tests the second mechanism.
    let mut world = one_bridge(V5, vec![rule("#", Direction::Both, "", "")]);
    world.brokers[HERE].publish("a", "1", qos(1));
    world.settle();
    let marked = world.brokers[THERE].published.last().unwrap().clone();
    assert!(!marked.properties.is_empty(), "it carries a mark");
    world.brokers[THERE].publish_kept(marked);
    world.settle();
    assert_eq!(world.brokers[HERE].count("1"), 1);
    assert_eq!(world.statistics(0).inward.looped, 1);
}

/// Publishes everywhere and settles, which panics if a message loops.
fn check_ring(name: &str, world: &mut World, most: usize) {
    for broker in 0..world.brokers.len() {
        for number in 0..3 {
            let payload = format!("{broker} {number}");
            world.brokers[broker].publish("a", &payload, qos(number));
            world.settle();
            for (other, entry) in world.brokers.iter().enumerate() {
                let count = entry.count(&payload);
                assert!(
                    (1..=most).contains(&count),
                    "{name}: {payload} was {count} times at {other}"
                );
            }
        }
    }
}

#[test]
fn two_bridges_between_the_same_brokers_make_no_loop() {
    for (name, first, second, most) in [
        ("5.0", V5, V5, 4),
        ("3.1.1", V311, V311, 50),
        ("5.0 and 3.1.1", V5, V311, 50),
        ("3.1.1 and 5.0", V311, V5, 50),
    ] {
        let mut world = World::new(2);
        let rules = || vec![rule("#", Direction::Both, "", "")];
        world.bridge(config("b1", first, rules()), HERE, THERE);
        world.bridge(config("b2", second, rules()), HERE, THERE);
        world.settle();
        check_ring(name, &mut world, most);
    }
}

#[test]
fn two_bridges_with_one_identifier_do_not_send_back_what_the_other_brought() {
    let mut world = World::new(2);
    for _ in 0..2 {
        world.bridge(
            config("b", V5, vec![rule("#", Direction::Both, "", "")]),
            HERE,
            THERE,
        );
    }
    // The second bridge has sessions of its own.
    world.rename_last("second");
    world.settle();
    world.brokers[HERE].publish("a", "1", qos(1));
    world.settle();
    assert_eq!(world.brokers[HERE].count("1"), 1);
    assert_eq!(world.brokers[THERE].count("1"), 2, "each brings it");
}

#[test]
fn a_ring_of_bridges_makes_no_loop() {
    // Two nodes, 0 and 2, and two brokers of another kind, 1 and 3.
    let spans = [(0, 1), (2, 1), (2, 3), (0, 3)];
    for (name, versions, most) in [
        ("5.0", [V5; 4], 3),
        ("3.1.1", [V311; 4], 50),
        ("one of 3.1.1", [V5, V311, V5, V5], 50),
        ("a broker of 3.1.1", [V311, V311, V5, V5], 50),
        ("one of 5.0", [V311, V311, V5, V311], 50),
    ] {
        let mut world = World::new(4);
        for (number, ((local, remote), version)) in spans.into_iter().zip(versions).enumerate() {
            let rules = vec![rule("#", Direction::Both, "", "")];
            world.bridge(config(&format!("b{number}"), version, rules), local, remote);
        }
        world.settle();
        check_ring(name, &mut world, most);
    }
}

#[test]
fn a_chain_of_bridges_carries_from_end_to_end() {
    let mut world = World::new(4);
    for number in 0..3 {
        let version = if number == 1 { V311 } else { V5 };
        let rules = vec![rule("#", Direction::Both, "", "")];
        world.bridge(
            config(&format!("b{number}"), version, rules),
            number,
            number + 1,
        );
    }
    world.settle();
    world.brokers[0].publish("a", "from 0", qos(2));
    world.brokers[3].publish("a", "from 3", qos(1));
    world.settle();
    for broker in 0..4 {
        assert_eq!(world.brokers[broker].count("from 0"), 1, "at {broker}");
        assert_eq!(world.brokers[broker].count("from 3"), 1, "at {broker}");
    }
}
