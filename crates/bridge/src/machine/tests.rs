//! Bridges between simple brokers, over connections that break anywhere, in virtual time.

mod broker;
mod federation;
mod lossy;
mod queues;
mod world;

use thicket_mqtt::{ProtocolVersion, Qos};

use super::*;
use crate::{Direction, RuleConfig};

const V311: ProtocolVersion = ProtocolVersion::V311;
const V5: ProtocolVersion = ProtocolVersion::V5;

fn qos(number: u8) -> Qos {
    Qos::from_bits(number).unwrap()
}

fn rule(topic: &str, direction: Direction, local: &str, remote: &str) -> Rule {
    Rule::new(&RuleConfig {
        local_prefix: local.into(),
        remote_prefix: remote.into(),
        qos: Qos::ExactlyOnce,
        ..RuleConfig::new(topic, direction)
    })
    .unwrap()
}
