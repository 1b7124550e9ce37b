//! Limits, sides that are down, sessions that are lost.

use super::world::{World, config};
use super::*;

const HERE: usize = 0;
const THERE: usize = 1;

fn world(version: ProtocolVersion, bounds: Bounds) -> World {
    let mut world = World::new(2);
    let config = BridgeConfig {
        bounds,
        ..config("b", version, vec![rule("#", Direction::Both, "", "")])
    };
    world.bridge(config, HERE, THERE);
    world.settle();
    world
}

#[test]
fn what_is_published_while_the_other_side_is_away_crosses_later_in_order() {
    for version in [V311, V5] {
        let mut world = world(version, Bounds::default());
        world.take_away(THERE);
        for number in 0..20 {
            world.brokers[HERE].publish("a", &number.to_string(), qos(1 + number % 2));
        }
        world.settle();
        let statistics = world.statistics(0);
        assert!(statistics.local.is_connected && !statistics.remote.is_connected);
        assert_eq!(world.brokers[THERE].published.len(), 0);
        world.away.clear();
        world.settle();
        for wanted in 1..3 {
            let of_qos = world.brokers[THERE]
                .published
                .iter()
                .filter(|kept| kept.qos == qos(wanted));
            let arrived: Vec<_> = of_qos
                .map(|kept| String::from_utf8_lossy(&kept.payload).into_owned())
                .collect();
            let expected: Vec<_> = (0..20)
                .filter(|number| 1 + number % 2 == wanted)
                .map(|number: u8| number.to_string())
                .collect();
            assert_eq!(arrived, expected, "{version:?}, QoS {wanted}");
        }
    }
}

#[test]
fn a_full_queue_drops_qos_0_and_leaves_the_rest_with_the_broker_it_came_from() {
    for (name, version, bounds) in [
        (
            "messages",
            V5,
            Bounds {
                messages: 3,
                bytes: usize::MAX,
            },
        ),
        (
            "bytes",
            V5,
            Bounds {
                messages: 100,
                bytes: 600,
            },
        ),
        (
            "3.1.1",
            V311,
            Bounds {
                messages: 3,
                bytes: usize::MAX,
            },
        ),
    ] {
        // The bounded direction is inward: the simple broker ignores Receive Maximum, so it exceeds the limit.
        let mut world = world(version, bounds);
        world.take_away(HERE);
        for number in 0..30 {
            world.brokers[THERE].publish("a", &number.to_string(), qos(number % 3));
        }
        world.settle();
        let inward = world.statistics(0).inward;
        assert!(
            inward.queue_messages <= bounds.messages && inward.queue_bytes <= bounds.bytes,
            "{name}: {inward:?}"
        );
        assert!(inward.dropped > 0, "{name}");
        world.away.clear();
        world.settle();
        for number in (0..30_u8).filter(|number| number % 3 > 0) {
            let count = world.brokers[HERE].count(&number.to_string());
            assert_eq!(count, 1, "{name}: {number}");
        }
        let asked = |(side, report): &(Side, Report)| {
            *side == Side::Remote && *report == Report::AskedAgain
        };
        assert!(world.spans[0].reports.iter().any(asked), "{name}");
    }
}

#[test]
fn a_bridge_that_is_killed_loses_no_message_of_qos_1_and_2() {
    for version in [V311, V5] {
        let mut world = world(version, Bounds::default());
        world.take_away(THERE);
        for number in 0..10 {
            world.brokers[HERE].publish("a", &number.to_string(), qos(1 + number % 2));
        }
        world.settle();
        world.kill(0);
        world.away.clear();
        world.settle();
        for number in 0..10 {
            assert_eq!(
                world.brokers[THERE].count(&number.to_string()),
                1,
                "{version:?} {number}"
            );
        }
    }
}

#[test]
fn a_broker_that_forgets_its_sessions_gets_what_was_open_anew() {
    for version in [V311, V5] {
        let mut world = world(version, Bounds::default());
        for number in 0..6 {
            world.brokers[HERE].publish("a", &number.to_string(), qos(1 + number % 2));
        }
        // The bridge has queued some, and sent them to a broker that fails before it reads them.
        world.down(0, Side::Local, usize::MAX);
        let count = world.spans[0].bridge.output(Side::Remote).len();
        let now = world.now;
        world.spans[0].bridge.consume(now, Side::Remote, count);
        world.take_away(THERE);
        world.brokers[THERE].forget();
        world.away.clear();
        world.settle();
        for number in 0..6 {
            assert_eq!(
                world.brokers[THERE].count(&number.to_string()),
                1,
                "{version:?} {number}"
            );
        }
        world.brokers[THERE].publish("b", "back", qos(1));
        world.settle();
        assert_eq!(
            world.brokers[HERE].count("back"),
            1,
            "{version:?}: it is subscribed again"
        );
    }
}

#[test]
fn waits_between_attempts_grow_to_their_bound_and_begin_anew_after_a_steady_connection() {
    let mut world = world(V5, Bounds::default());
    let wait = |world: &World| {
        let until = world.spans[0].bridge.poll_timeout().unwrap();
        until.since(world.now)
    };
    world.pass(std::time::Duration::from_secs(6));
    world.take_away(THERE);
    let mut waits = vec![wait(&world)];
    for _ in 0..12 {
        let next = wait(&world);
        world.pass(next);
        waits.push(wait(&world));
    }
    assert!(waits[0] <= FIRST_RETRY, "{waits:?}");
    let longest = BridgeConfig::new("", V5, Vec::new()).longest_retry;
    assert!(waits.iter().all(|wait| *wait <= longest), "{waits:?}");
    assert!(waits[12] >= longest / 2, "{waits:?}");
}

#[test]
fn a_message_whose_time_is_over_is_counted_and_acknowledged() {
    let mut world = world(V5, Bounds::default());
    world.take_away(THERE);
    let now = world.now;
    let publish = |packet_id, seconds| {
        let mut bytes = Vec::new();
        let publish = thicket_mqtt::Publish {
            qos: qos(1),
            packet_id: thicket_mqtt::PacketId::new(packet_id),
            message_expiry_interval: Some(seconds),
            ..thicket_mqtt::Publish::new("a", b"late")
        };
        publish.encode(V5, &mut bytes).unwrap();
        bytes
    };
    for (packet_id, seconds) in [(1, 1), (2, 3600)] {
        world.spans[0]
            .bridge
            .handle_bytes(now, Side::Local, &publish(packet_id, seconds));
    }
    world.pass(std::time::Duration::from_secs(2));
    world.away.clear();
    world.settle();
    let outward = world.statistics(0).outward;
    assert_eq!(
        (outward.expired, outward.forwarded, outward.queue_messages),
        (1, 1, 0)
    );
}

#[test]
fn a_stopped_bridge_says_goodbye_and_opens_nothing() {
    let mut world = world(V5, Bounds::default());
    world.spans[0].bridge.stop();
    world.follow(0);
    for side in Side::ALL {
        world.up(0, side, usize::MAX);
    }
    assert!(world.spans[0].bridge.is_stopped());
    assert_eq!(world.spans[0].bridge.poll_timeout(), None);
}

/// A bridge from THERE to HERE and back, that had an outage at one side while `meanwhile` happened.
fn after_an_outage_of(
    away: usize,
    version: ProtocolVersion,
    before: impl Fn(&mut World),
    meanwhile: impl Fn(&mut World),
) -> World {
    let mut world = world(version, Bounds::default());
    before(&mut world);
    world.settle();
    world.take_away(away);
    meanwhile(&mut world);
    world.settle();
    world.away.clear();
    world.settle();
    world
}

#[test]
fn a_retained_message_of_qos_0_crosses_after_the_outage_in_which_it_was_published() {
    for version in [V311, V5] {
        for (away, source) in [(THERE, THERE), (HERE, HERE)] {
            let world = after_an_outage_of(
                away,
                version,
                |world| world.brokers[source].retain("state", "1", qos(0)),
                |world| world.brokers[source].retain("state", "2", qos(0)),
            );
            let other = 1 - source;
            assert_eq!(
                world.brokers[other].retained("state").as_deref(),
                Some("2"),
                "{version:?}, {away}"
            );
        }
    }
}

#[test]
fn what_was_retained_before_an_outage_does_not_replace_what_was_published_in_it() {
    for version in [V311, V5] {
        for first in [HERE, THERE] {
            for number in 0..3 {
                let world = after_an_outage_of(
                    THERE,
                    version,
                    |world| world.brokers[first].retain("state", "1", qos(number)),
                    |world| world.brokers[HERE].retain("state", "2", qos(number)),
                );
                for broker in [HERE, THERE] {
                    assert_eq!(
                        world.brokers[broker].retained("state").as_deref(),
                        Some("2"),
                        "{version:?}, first {first}, QoS {number}, broker {broker}"
                    );
                }
            }
        }
    }
}

#[test]
fn more_retained_messages_than_the_queue_holds_cross_after_an_outage() {
    for version in [V311, V5] {
        let bounds = Bounds {
            messages: 3,
            bytes: usize::MAX,
        };
        let mut world = world(version, bounds);
        world.take_away(HERE);
        for number in 0..30 {
            world.brokers[THERE].retain(&format!("state/{number}"), "x", qos(1));
        }
        world.settle();
        world.away.clear();
        world.settle();
        // Of the other side, while there is nothing to forward to.
        world.take_away(HERE);
        world.cut(0, Side::Remote);
        world.settle();
        world.away.clear();
        world.settle();
        for number in 0..30 {
            let topic = format!("state/{number}");
            assert_eq!(
                world.brokers[HERE].retained(&topic).as_deref(),
                Some("x"),
                "{version:?} {topic}"
            );
        }
    }
}
