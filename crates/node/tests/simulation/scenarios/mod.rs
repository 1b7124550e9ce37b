//! One subject a file. Each scenario runs on worlds of one node with one to three workers, calm and rough.

mod clocks;
mod cluster;
mod connecting;
mod copies;
mod durability;
mod flows;
mod keep_alive;
mod limits;
mod lost_nodes;
mod merging;
mod partitions;
mod relocation;
mod retained;
mod rights;
mod scram;
mod sessions;
mod shared;
mod subscriptions;
mod versions;
mod wills;

use thicket_mqtt::{Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, Subscribe};

use crate::world::{TesterId, World, net::Weather, node::NodeSpec};

pub const V311: ProtocolVersion = ProtocolVersion::V311;
pub const V5: ProtocolVersion = ProtocolVersion::V5;

/// Plays a scenario on a node with one to three workers, in two kinds of weather.
#[track_caller]
pub fn play(scenario: impl Fn(&mut World)) {
    play_with(|_| {}, scenario);
}

/// The same on nodes that are configured otherwise.
#[track_caller]
pub fn play_with(configure: impl Fn(&mut NodeSpec), scenario: impl Fn(&mut World)) {
    for workers in 1..=3 {
        for (seed, weather) in [(1, Weather::CALM), (2, Weather::ROUGH), (3, Weather::ROUGH)] {
            let mut world = World::new(seed * 1000 + u64::from(workers), weather);
            let mut spec = NodeSpec::new(workers);
            configure(&mut spec);
            let node = world.add_node(spec);
            world.start(node);
            scenario(&mut world);
            for traffic in world.traffic(node) {
                assert_eq!(
                    traffic.unacknowledged_messages, 0,
                    "a publisher is still owed (seed {})",
                    world.net.seed
                );
            }
        }
    }
}

pub fn id(value: u16) -> PacketId {
    PacketId::new(value).expect("not zero")
}

pub fn qos(value: u8) -> Qos {
    Qos::from_bits(value).expect("0, 1 or 2")
}

/// A CONNECT that resumes, of a session that lives for `expiry` seconds (3.1.1: for ever unless 0).
pub fn resuming(version: ProtocolVersion, client_id: &str, expiry: u32) -> Connect<'_> {
    Connect {
        clean_start: version == V311 && expiry == 0,
        session_expiry_interval: (version == V5 && expiry > 0).then_some(expiry),
        ..Connect::new(version, client_id)
    }
}

impl World {
    /// A client in service, its CONNACK heard.
    #[track_caller]
    pub fn client(&mut self, connect: Connect<'_>, connack: &str) -> TesterId {
        let tester = self.connect(0, connect);
        self.expect(tester, &[connack]);
        tester
    }

    /// A client in service that hears at once what waited for it.
    #[track_caller]
    pub fn client_with(&mut self, connect: Connect<'_>, expected: &[&str]) -> TesterId {
        let tester = self.connect(0, connect);
        self.expect(tester, expected);
        tester
    }

    /// Lets a second pass; what the tester heard meanwhile.
    pub fn hear(&mut self, tester: TesterId) -> Vec<String> {
        self.run_for(1_000);
        self.tester(tester).take_heard()
    }

    /// A 5.0 client in service, whose session ends with its connection.
    #[track_caller]
    pub fn plain(&mut self, client_id: &str) -> TesterId {
        self.client(Connect::new(V5, client_id), "CONNACK")
    }

    /// Subscribes with packet identifier 1 and hears that it worked.
    #[track_caller]
    pub fn subscribe(&mut self, tester: TesterId, filter: &str, granted: u8) {
        self.send(
            tester,
            &Packet::Subscribe(Subscribe::new(id(1), filter, qos(granted))),
        );
        self.expect(tester, &[&format!("SUBACK 1 [{granted:02X}]")]);
    }

    /// Sends a PUBLISH; with an identifier if it has a QoS.
    pub fn publish(
        &mut self,
        tester: TesterId,
        topic: &str,
        payload: &str,
        of_qos: u8,
        as_id: u16,
    ) {
        let publish = Publish {
            qos: qos(of_qos),
            packet_id: PacketId::new(as_id),
            ..Publish::new(topic, payload.as_bytes())
        };
        self.send(tester, &Packet::Publish(publish));
    }
}
