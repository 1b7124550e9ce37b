//! The named workloads.

use thicket_mqtt::{ProtocolVersion, Qos};

use crate::generator::{Arrivals, Load};
use crate::workload::Workload;

/// A workload with a name.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// W1 to W9, L1 and L2.
    pub name: &'static str,
    /// A short description.
    pub words: &'static str,
    /// The work.
    pub kind: CaseKind,
    /// The same case on one node, if this one uses two linked nodes, all publishers at the first and all subscribers at the second: only for Thicket
    /// brokers.
    pub on_one_node: Option<&'static str>,
}

/// The work of a case.
#[derive(Debug, Clone, PartialEq)]
pub enum CaseKind {
    /// Messages.
    Load {
        /// Traffic pattern.
        workload: Workload,
        /// Protocol.
        version: ProtocolVersion,
        /// Quality of service.
        qos: Qos,
        /// Payload in bytes.
        payload_len: usize,
        /// Load.
        load: Load,
    },
    /// Idle connections.
    Idle {
        /// Number of connections.
        connections: usize,
    },
}

/// Names of all cases, in order.
#[must_use]
pub fn case_names() -> [&'static str; 11] {
    [
        "W1", "W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9", "L1", "L2",
    ]
}

/// The case of this name.
#[must_use]
pub fn case(name: &str) -> Option<Case> {
    use ProtocolVersion::{V5, V311};
    use Qos::{AtLeastOnce, AtMostOnce, ExactlyOnce};
    let pairs = |pairs| Workload::Pair { pairs };
    let fan_out = Workload::FanOut {
        publishers: 1,
        subscribers: 500,
    };
    let fan_in = Workload::FanIn {
        publishers: 500,
        subscribers: 1,
    };
    let social = Workload::Social {
        topics: 1000,
        publishers: None,
        subscribers: 100,
        topics_per_subscriber: 10,
        alpha: 1.13,
    };
    let open = Load::Open {
        rate_per_s: 20_000.0,
        arrivals: Arrivals::Constant,
    };
    let case = |name, words, kind| {
        Some(Case {
            name,
            words,
            kind,
            on_one_node: None,
        })
    };
    let linked = |name, words, one| {
        let kind = self::case(one)?.kind;
        Some(Case {
            name,
            words,
            kind,
            on_one_node: Some(one),
        })
    };
    let window = |window| Load::Closed { window };
    let load = |workload, version, qos, payload_len, load| CaseKind::Load {
        workload,
        version,
        qos,
        payload_len,
        load,
    };
    match name {
        "W1" => case(
            "W1",
            "pair 100/100, QoS 0, 64 B, window 50",
            load(pairs(100), V311, AtMostOnce, 64, window(50)),
        ),
        "W2" => case(
            "W2",
            "pair 100/100, QoS 1, v5, 64 B, window 50",
            load(pairs(100), V5, AtLeastOnce, 64, window(50)),
        ),
        "W3" => case(
            "W3",
            "fan-out 1 -> 500, QoS 0, 64 B, window 50",
            load(fan_out, V311, AtMostOnce, 64, window(50)),
        ),
        "W4" => case(
            "W4",
            "fan-in 500 -> 1, QoS 1, 64 B, window 1",
            load(fan_in, V311, AtLeastOnce, 64, window(1)),
        ),
        "W5" => case(
            "W5",
            "social 1000 topics, 100 x 10, alpha 1.13, QoS 0, 200 B, window 5",
            load(social, V311, AtMostOnce, 200, window(5)),
        ),
        "W6" => case(
            "W6",
            "pair 10/10, QoS 1, 150 B, window 50",
            load(pairs(10), V311, AtLeastOnce, 150, window(50)),
        ),
        "W7" => case(
            "W7",
            "open loop 20,000 msg/s, pair 100/100, QoS 0, 64 B",
            load(pairs(100), V311, AtMostOnce, 64, open),
        ),
        "W8" => case(
            "W8",
            "10,000 idle connections",
            CaseKind::Idle {
                connections: 10_000,
            },
        ),
        "W9" => case(
            "W9",
            "pair 100/100, QoS 2, 64 B, window 20",
            load(pairs(100), V311, ExactlyOnce, 64, window(20)),
        ),
        "L1" => linked("L1", "W1 over two linked nodes, locality 0 %", "W1"),
        "L2" => linked("L2", "W2 over two linked nodes, locality 0 %", "W2"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_case() {
        for name in case_names() {
            let found = case(name).expect(name);
            assert_eq!(found.name, name);
            if let Some(one) = found.on_one_node {
                assert_eq!(case(one).map(|one| one.kind), Some(found.kind), "{name}");
            }
        }
        assert_eq!(case("W10"), None);
    }
}
