//! One subject a file. Each scenario runs on worlds of one node with one to three workers, calm and rough.

mod backups;
mod bridges;
mod clocks;
mod cluster;
mod connecting;
mod durability;
mod flows;
mod handed;
mod hints;
mod keep_alive;
mod learned;
mod limits;
mod long_texts;
mod lost_nodes;
mod merging;
mod partitions;
mod rebalancing;
mod relocation;
mod replays;
mod restarts;
mod retained;
mod rights;
mod scram;
mod sessions;
mod several_backups;
mod shared;
mod standing_still;
mod subscriptions;
mod wills;

use thicket_mqtt::{Connect, ProtocolVersion};
pub use thicket_simulation::steps::{id, qos};
use thicket_simulation::{World, net::Weather, node::NodeSpec};

pub const V31: ProtocolVersion = ProtocolVersion::V31;
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

/// A CONNECT that resumes, of a session that lives for `expiry` seconds (3.1.1: for ever unless 0).
pub fn resuming(version: ProtocolVersion, client_id: &str, expiry: u32) -> Connect<'_> {
    Connect {
        clean_start: version == V311 && expiry == 0,
        session_expiry_interval: (version == V5 && expiry > 0).then_some(expiry),
        ..Connect::new(version, client_id)
    }
}
