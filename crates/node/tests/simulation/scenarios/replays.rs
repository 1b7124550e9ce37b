//! Retained messages that are on their way to a subscription when something happens to its session: all of them come.

use std::collections::BTreeMap;

use thicket_mqtt::{
    Disconnect, Packet, PacketId, ProtocolVersion, Publish, ReasonCode, RetainHandling, Subscribe,
    SubscribeFilter, SubscriptionOptions, Unsubscribe,
};
use thicket_session::{
    client::{CleanStart, ClientConfig},
    time::Instant,
};
use thicket_simulation::{
    TesterId, World,
    client::ClientEvent,
    net::{Parting, Weather},
    node::NodeSpec,
};

use super::{
    V5, V311,
    backups::become_covered,
    cluster::{client_at, plain},
    id, qos, resuming,
};

/// Topics of the messages that are retained: more than two pages.
const COUNT: usize = 1_200;

fn topic(number: usize) -> String {
    format!("a/{number:04}")
}

/// A client that retains these messages at a node.
fn retain(world: &mut World, node: usize, messages: &[(String, &str)], of_qos: u8) {
    let publisher = client_at(world, node, resuming(V5, "publisher", 0), "CONNACK");
    world.tester(publisher).acknowledges = true;
    for some in messages.chunks(200) {
        for (index, (topic, payload)) in some.iter().enumerate() {
            let publish = Publish {
                retain: true,
                qos: qos(of_qos),
                packet_id: PacketId::new(index as u16 + 1),
                ..Publish::new(topic, payload.as_bytes())
            };
            world.send(publisher, &Packet::Publish(publish));
        }
        let mut acknowledged = 0;
        for _ in 0..60 {
            let heard = world.hear(publisher);
            let ends = |said: &&String| said.starts_with("PUBACK") || said.starts_with("PUBCOMP");
            acknowledged += heard.iter().filter(ends).count();
            if acknowledged == some.len() {
                break;
            }
        }
        assert_eq!(acknowledged, some.len(), "seed {}", world.net.seed);
    }
    world.hang_up(publisher);
    world.run_for(1_000);
}

fn retain_many(world: &mut World, of_qos: u8) {
    let messages: Vec<_> = (0..COUNT).map(|number| (topic(number), "x")).collect();
    retain(world, 0, &messages, of_qos);
}

/// A client that does what the standard asks of one, and what it got by topic.
struct Reader {
    client: usize,
    got: BTreeMap<String, Vec<String>>,
}

impl Reader {
    fn new(world: &mut World, version: ProtocolVersion, receive_maximum: u16) -> Self {
        let mut config = ClientConfig::new(version, "reader");
        config.keep_alive = 0;
        config.session_expiry_interval = 1_000_000;
        config.receive_maximum = receive_maximum;
        Self {
            client: world.add_client(config),
            got: BTreeMap::new(),
        }
    }

    /// Connects, again and again until the session is served.
    fn connect(&mut self, world: &mut World, node: usize) {
        for _ in 0..10 {
            let World { clients, net, .. } = world;
            clients[self.client].drop_connection(net);
            world.run_for(100);
            world.connect_client(self.client, node, CleanStart::No);
            for _ in 0..50 {
                world.run_for(100);
                self.take(world);
                if world.clients[self.client].is_connected() {
                    return;
                }
            }
        }
        panic!("the client connects (seed {})", world.net.seed);
    }

    fn subscribe(&self, world: &mut World, filter: &str, options: SubscriptionOptions) {
        let now = Instant::from_millis(world.net.now);
        let client = &mut world.clients[self.client];
        let filters = [SubscribeFilter { filter, options }];
        client
            .machine
            .subscribe(now, &filters, None)
            .expect("it is connected");
        client.finish(&mut world.net);
    }

    fn take(&mut self, world: &mut World) {
        for event in world.clients[self.client].take_events_without_times() {
            if let ClientEvent::Message { topic, payload, .. } = event {
                let payload = String::from_utf8(payload).expect("a text");
                self.got.entry(topic).or_default().push(payload);
            }
        }
    }

    /// Waits until it has got messages of so many topics.
    fn wait_for(&mut self, world: &mut World, topics: usize) -> bool {
        for _ in 0..6_000 {
            self.take(world);
            if self.got.len() >= topics {
                return true;
            }
            world.run_for(10);
        }
        false
    }

    fn repeated(&self) -> usize {
        let counts = self.got.values().map(Vec::len);
        counts.filter(|count| *count > 1).count()
    }
}

fn of_qos(granted: u8) -> SubscriptionOptions {
    SubscriptionOptions {
        qos: qos(granted),
        ..SubscriptionOptions::default()
    }
}

/// Three nodes that store; sessions have a backup.
fn three_nodes(seed: u64, weather: Weather) -> World {
    let mut world = World::new(seed, weather);
    for index in 0..3_u8 {
        let mut spec = NodeSpec::new(1 + (index + seed as u8) % 2);
        spec.stores = true;
        let node = world.add_node(spec);
        world.start(node);
    }
    become_covered(&mut world);
    world
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Interruption {
    LostConnection,
    OtherNode,
    Killed,
    KilledAndRestarted,
    StoppedAndRestarted,
    Drained,
}

impl Interruption {
    const ALL: [Self; 6] = [
        Self::LostConnection,
        Self::OtherNode,
        Self::Killed,
        Self::KilledAndRestarted,
        Self::StoppedAndRestarted,
        Self::Drained,
    ];

    /// Interrupts what the node sends. Returns where the client connects.
    fn play(self, world: &mut World, reader: &Reader, node: usize) -> usize {
        let other = (node + 1) % 3;
        match self {
            Self::LostConnection => {
                world.cut_client(reader.client);
                node
            }
            Self::OtherNode => {
                world.cut_client(reader.client);
                other
            }
            Self::Killed => {
                world.kill(node);
                other
            }
            Self::KilledAndRestarted => {
                world.kill(node);
                // Before its backups are promoted.
                world.start(node);
                node
            }
            Self::StoppedAndRestarted => {
                world.stop(node);
                world.start(node);
                node
            }
            Self::Drained => {
                assert!(world.drain(node), "nothing is left");
                other
            }
        }
    }
}

#[test]
fn retained_messages_come_whatever_interrupts_them() {
    for interruption in Interruption::ALL {
        for (seed, version, granted) in [(1, V5, 1), (2, V311, 2), (3, V5, 2), (4, V5, 0)] {
            let weather = if seed == 1 {
                Weather::CALM
            } else {
                Weather::ROUGH
            };
            let mut world = three_nodes(seed, weather);
            let world = &mut world;
            retain_many(world, 1.max(granted));
            let case = format!("{interruption:?}, {version:?}, QoS {granted}, seed {seed}");
            let mut reader = Reader::new(world, version, 5);
            reader.connect(world, 0);
            become_covered(world);
            reader.subscribe(world, "a/#", of_qos(granted));
            assert!(reader.wait_for(world, 1), "{case}");
            let node = interruption.play(world, &reader, 0);
            reader.connect(world, node);
            let is_all = reader.wait_for(world, COUNT);
            if granted == 0 {
                // What was on its way to the client is lost with the connection, and no more than that.
                assert!(reader.got.contains_key(&topic(COUNT - 1)), "{case}");
            } else {
                assert!(is_all, "{case}: {} of {COUNT}", reader.got.len());
            }
            if granted == 2 {
                assert_eq!(reader.repeated(), 0, "{case}");
            }
        }
    }
}

#[test]
fn retained_messages_come_from_both_branches_of_a_session_and_after_their_merge() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        for granted in [1, 2] {
            let mut world = three_nodes(seed, weather);
            let world = &mut world;
            retain_many(world, granted);
            let mut reader = Reader::new(world, V5, 5);
            reader.connect(world, 0);
            become_covered(world);
            reader.subscribe(world, "a/#", of_qos(granted));
            assert!(reader.wait_for(world, 1), "seed {seed}");
            world.cut_client(reader.client);
            for other in [1, 2] {
                world.net.part(0, other, Parting::Cut);
            }
            world.run_for(5_000);
            let sides: &[usize] = if granted == 1 { &[1, 0] } else { &[1] };
            for node in sides {
                let before = reader.got.len();
                reader.connect(world, *node);
                reader.wait_for(world, before + 20);
                world.cut_client(reader.client);
            }
            for other in [1, 2] {
                world.net.heal(0, other);
            }
            become_covered(world);
            world.run_for(1_000);
            reader.connect(world, 2);
            let is_all = reader.wait_for(world, COUNT);
            assert!(is_all, "QoS {granted}, seed {seed}: {}", reader.got.len());
            if granted == 2 {
                // What either branch was sending when the partition began.
                assert!(reader.repeated() <= 5, "seed {seed}");
            }
        }
    }
}

#[test]
fn retained_messages_come_to_a_client_that_leaves_with_its_suback() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        for version in [V311, V5] {
            let mut world = three_nodes(seed, weather);
            let world = &mut world;
            let messages: Vec<_> = (0..5).map(|number| (topic(number), "x")).collect();
            retain(world, 0, &messages, 1);
            for round in 0..8 {
                let name = format!("client-{round}");
                let connect = || resuming(version, &name, 1_000);
                let client = client_at(world, 1, connect(), "CONNACK");
                let subscribe = Subscribe::new(id(1), "a/#", qos(1));
                world.send(client, &Packet::Subscribe(subscribe));
                if round % 2 == 0 {
                    let is_suback = |said: &String| said.starts_with("SUBACK");
                    while !world.tester(client).take_heard().iter().any(is_suback) {
                        world.run_for(1);
                    }
                }
                let bye = Disconnect::new(ReasonCode::Success);
                world.send(client, &Packet::Disconnect(bye));
                // Otherwise a node may close the connection before it has read what is sent here.
                let is_closed = |said: &String| said == "closed";
                while !world.tester(client).take_heard().iter().any(is_closed) {
                    world.run_for(1);
                }
                world.run_for(round / 4 * 500);
                let node = 1 + round as usize / 2 % 2;
                let again = world.connect(node, connect());
                world.tester(again).acknowledges = true;
                world.run_for(3_000);
                let heard = world.tester(again).take_heard();
                for number in 0..5 {
                    let words = format!("PUBLISH {} ", topic(number));
                    assert!(
                        heard.iter().any(|said| said.starts_with(&words)),
                        "round {round}, {version:?}, seed {seed}: {heard:?}"
                    );
                }
                world.hang_up(again);
                world.run_for(500);
            }
        }
    }
}

#[test]
fn retained_messages_do_not_count_towards_the_bounds_of_the_queue() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH)] {
        for (messages, bytes) in [(10, u64::MAX), (u32::MAX, 2_000)] {
            for (version, expiry) in [(V5, 0), (V5, 1_000), (V311, 1_000)] {
                let mut world = World::new(seed, weather);
                let mut spec = NodeSpec::new(2);
                spec.limits.queue_messages = messages;
                spec.limits.queue_bytes = bytes;
                spec.limits.inflight_maximum = 5;
                let node = world.add_node(spec);
                world.start(node);
                let world = &mut world;
                retain_many(world, 1);
                let client = world.client(resuming(version, "client", expiry), "CONNACK");
                world.tester(client).acknowledges = true;
                world.send(
                    client,
                    &Packet::Subscribe(Subscribe::new(id(1), "a/+", qos(1))),
                );
                world.run_for(60_000);
                let heard = world.tester(client).take_heard();
                assert_eq!(heard.len(), COUNT + 1, "seed {seed}, {version:?}");
            }
        }
    }
}

/// The payloads of one topic in what was received.
fn payloads(heard: &[String], topic: &str) -> Vec<String> {
    let start = format!("PUBLISH {topic} '");
    let of_topic = heard.iter().filter_map(|said| said.strip_prefix(&start));
    of_topic
        .filter_map(|said| said.split('\'').next().map(str::to_owned))
        .collect()
}

fn publish_retained(
    world: &mut World,
    publisher: TesterId,
    topic: &str,
    payload: &str,
    of_qos: u8,
) {
    let publish = Publish {
        retain: true,
        qos: qos(of_qos),
        packet_id: PacketId::new(1).filter(|_| of_qos > 0),
        ..Publish::new(topic, payload.as_bytes())
    };
    world.send(publisher, &Packet::Publish(publish));
    world.hear(publisher);
}

#[test]
fn a_retained_message_does_not_come_behind_a_newer_one_of_its_topic() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        for newer_qos in [0, 1] {
            for expiry in [0, 1_000] {
                let mut world = three_nodes(seed, weather);
                let world = &mut world;
                let messages: Vec<_> = (0..20).map(|number| (topic(number), "old")).collect();
                retain(world, 0, &messages, 1);
                let mut connect = resuming(V5, "client", expiry);
                connect.receive_maximum = Some(2);
                let client = client_at(world, 1, connect, "CONNACK");
                let subscribe = Subscribe::new(id(1), "a/#", qos(1));
                world.send(client, &Packet::Subscribe(subscribe));
                world.run_for(1_000);
                let publisher = client_at(world, 2, resuming(V5, "publisher", 0), "CONNACK");
                for number in [0, 5, 19] {
                    publish_retained(world, publisher, &topic(number), "new", newer_qos);
                }
                publish_retained(world, publisher, &topic(6), "", newer_qos);
                let mut heard = world.tester(client).take_heard();
                for packet_id in [1, 2] {
                    world.send(client, &Packet::Puback(plain(packet_id)));
                }
                world.tester(client).acknowledges = true;
                world.run_for(20_000);
                heard.extend(world.tester(client).take_heard());
                let case = format!("seed {seed}, QoS {newer_qos}, expiry {expiry}: {heard:?}");
                for number in 0..20 {
                    let expected: &[&str] = match number {
                        0 => &["old", "new"],
                        5 | 19 => &["new"],
                        6 => &[""],
                        _ => &["old"],
                    };
                    assert_eq!(
                        payloads(&heard, &topic(number)),
                        expected,
                        "{number}, {case}"
                    );
                }
            }
        }
    }
}

/// While the client is away its session gets messages of QoS 1, and none of QoS 0: those it gets as retained ones.
#[test]
fn what_is_retained_anew_while_the_client_is_away_comes_once() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
        for node in [1, 2] {
            let mut world = three_nodes(seed, weather);
            let world = &mut world;
            let messages: Vec<_> = (0..20).map(|number| (topic(number), "old")).collect();
            retain(world, 0, &messages, 1);
            let connect = || {
                let mut connect = resuming(V5, "client", 1_000);
                connect.receive_maximum = Some(2);
                connect
            };
            let client = client_at(world, 1, connect(), "CONNACK");
            let subscribe = Subscribe::new(id(1), "a/#", qos(2));
            world.send(client, &Packet::Subscribe(subscribe));
            world.run_for(1_000);
            world.hang_up(client);
            world.run_for(1_000);
            let publisher = client_at(world, 2, resuming(V5, "publisher", 0), "CONNACK");
            publish_retained(world, publisher, &topic(10), "of QoS 1", 1);
            publish_retained(world, publisher, &topic(11), "of QoS 0", 0);
            publish_retained(world, publisher, &topic(12), "", 1);
            publish_retained(world, publisher, &topic(20), "another", 1);
            let again = world.connect(node, connect());
            world.tester(again).acknowledges = true;
            world.run_for(20_000);
            let heard = world.tester(again).take_heard();
            for number in 0..=20 {
                let expected: &[&str] = match number {
                    10 => &["of QoS 1"],
                    11 => &["of QoS 0"],
                    12 => &[""],
                    20 => &["another"],
                    _ => &["old"],
                };
                let came = payloads(&heard, &topic(number));
                assert_eq!(
                    came, expected,
                    "{number}, node {node}, seed {seed}: {heard:?}"
                );
            }
        }
    }
}

#[test]
fn unsubscribe_ends_retained_messages_and_another_subscribe_begins_them_anew() {
    for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH)] {
        let mut world = three_nodes(seed, weather);
        let world = &mut world;
        let messages: Vec<_> = (0..50).map(|number| (topic(number), "x")).collect();
        retain(world, 0, &messages, 1);
        for (retain_handling, unsubscribes, repeated) in [
            (None, true, 0),
            (Some(RetainHandling::SendAtSubscribe), false, 2),
            (Some(RetainHandling::SendIfNew), false, 0),
            (Some(RetainHandling::DoNotSend), false, 0),
            (Some(RetainHandling::SendAtSubscribe), true, 2),
            (Some(RetainHandling::SendIfNew), true, 2),
            (Some(RetainHandling::DoNotSend), true, 0),
        ] {
            let mut connect = resuming(V5, "client", 0);
            connect.receive_maximum = Some(2);
            let client = client_at(world, 1, connect, "CONNACK");
            let subscribe = |retain_handling| {
                let mut subscribe = Subscribe::new(id(1), "a/#", qos(1));
                subscribe.filters[0].options.retain_handling = retain_handling;
                subscribe
            };
            let first = subscribe(RetainHandling::SendAtSubscribe);
            world.send(client, &Packet::Subscribe(first));
            world.run_for(1_000);
            if unsubscribes {
                let unsubscribe = Unsubscribe::new(id(2), vec!["a/#"]);
                world.send(client, &Packet::Unsubscribe(unsubscribe));
            }
            if let Some(retain_handling) = retain_handling {
                world.send(client, &Packet::Subscribe(subscribe(retain_handling)));
            }
            world.run_for(1_000);
            let mut heard = world.tester(client).take_heard();
            for packet_id in [1, 2] {
                world.send(client, &Packet::Puback(plain(packet_id)));
            }
            world.tester(client).acknowledges = true;
            world.run_for(20_000);
            heard.extend(world.tester(client).take_heard());
            let came: Vec<_> = (0..50)
                .map(|number| payloads(&heard, &topic(number)).len())
                .collect();
            let asks_again = retain_handling.is_some_and(|it| it != RetainHandling::DoNotSend);
            let others = usize::from(!unsubscribes || asks_again);
            let begun = 1 + usize::from(repeated == 2);
            let mut expected = vec![others; 50];
            expected[..2].fill(begun);
            let case = format!("{retain_handling:?}, {unsubscribes}, seed {seed}");
            assert_eq!(came, expected, "{case}: {heard:?}");
            world.hang_up(client);
            world.run_for(500);
        }
    }
}
