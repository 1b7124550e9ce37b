//! Whether the cluster has changed enough to examine its clients again: that is expensive, and mostly nothing has changed.

use std::collections::BTreeMap;

use thicket_overlay::NodeId;
use thicket_placement::CONNECTION_LOAD;

use super::inventory::KnownNode;

/// The weight of the newest second in a trend: it follows in half a minute, and swings of some seconds hardly show.
const NEWEST: f64 = 1.0 / 30.0;
/// A change by less than this part does not count.
const CHANGED: f64 = 0.2;
/// A change of a node's part of the load of all nodes by less than this part does not count: where all have their shares, the first that a plan would
/// move clients from has a tenth more.
const SHIFTED: f64 = 0.1;

/// What the rebalancer tracks of the nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::hub::placing) struct Trend {
    /// Of those that accept clients: messages a second with clients, and what their connections count.
    loads: BTreeMap<NodeId, f64>,
    internal: f64,
}

impl Trend {
    /// A second later.
    pub fn follow(&mut self, nodes: &[KnownNode]) {
        let is_first = self.loads.is_empty();
        let step = |known: &mut f64, now: f64| *known += NEWEST * (now - *known);
        let serving = nodes.iter().filter(|it| it.takes_clients);
        let before = std::mem::take(&mut self.loads);
        for known in serving {
            let now = known.load.external.messages() as f64
                + CONNECTION_LOAD * known.load.connections as f64;
            let mut load = before.get(&known.node).copied().unwrap_or(now);
            step(&mut load, now);
            self.loads.insert(known.node, load);
        }
        let internal: u64 = nodes.iter().map(|it| it.load.internal.in_messages).sum();
        if is_first {
            self.internal = internal as f64;
        }
        step(&mut self.internal, internal as f64);
    }

    /// What has changed since a plan was made; `None`: nothing that matters.
    pub fn differs(&self, then: Option<&Self>, noise: f64) -> Option<&'static str> {
        let Some(then) = then else {
            return Some("started");
        };
        if !self.loads.keys().eq(then.loads.keys()) {
            return Some("nodes");
        }
        let differ = |now: f64, then: f64, part: f64| {
            let distance = (now - then).abs();
            distance > noise && distance > part * then
        };
        // What each node had then, if all had as much more or less as they have together.
        let growth = self.all() / then.all().max(f64::MIN_POSITIVE);
        let mut pairs = self.loads.values().zip(then.loads.values());
        let has_changed = pairs.any(|(now, then)| {
            differ(*now, *then, CHANGED) || differ(*now, growth * then, SHIFTED)
        });
        if has_changed {
            return Some("load");
        }
        differ(self.internal, then.internal, CHANGED).then_some("traffic")
    }

    fn all(&self) -> f64 {
        self.loads.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NodeLoad, Rates};

    fn nodes(messages: &[u64]) -> Vec<KnownNode> {
        let node = |(index, messages): (usize, &u64)| KnownNode {
            node: NodeId(index as u64),
            load: NodeLoad {
                external: Rates {
                    in_messages: *messages,
                    ..Rates::default()
                },
                ..NodeLoad::default()
            },
            takes_clients: true,
        };
        messages.iter().enumerate().map(node).collect()
    }

    #[test]
    fn constant_load_is_looked_at_once_and_a_change_or_a_node_again() {
        let mut trend = Trend::default();
        trend.follow(&nodes(&[1000, 1000]));
        assert_eq!(trend.differs(None, 20.0), Some("started"));
        let then = trend.clone();
        for _ in 0..100 {
            trend.follow(&nodes(&[1010, 1000]));
            assert_eq!(trend.differs(Some(&then), 20.0), None);
        }
        trend.follow(&nodes(&[1010, 1000, 0]));
        assert_eq!(trend.differs(Some(&then), 20.0), Some("nodes"));
        let mut trend = then.clone();
        for _ in 0..15 {
            trend.follow(&nodes(&[1000, 2000]));
        }
        assert_eq!(trend.differs(Some(&then), 20.0), Some("load"));
    }

    #[test]
    fn a_tenth_of_its_share_more_is_a_change_unless_all_have_as_much_more() {
        let mut trend = Trend::default();
        trend.follow(&nodes(&[1000, 1000, 1000]));
        let then = trend.clone();
        for _ in 0..300 {
            trend.follow(&nodes(&[1150, 1150, 1150]));
            assert_eq!(trend.differs(Some(&then), 20.0), None);
        }
        for _ in 0..300 {
            trend.follow(&nodes(&[1150, 1000, 1000]));
        }
        // 1150 of 3150, where 1050 would be its share.
        assert_eq!(trend.differs(Some(&then), 20.0), None);
        for _ in 0..300 {
            trend.follow(&nodes(&[1190, 1000, 1000]));
        }
        assert_eq!(trend.differs(Some(&then), 20.0), Some("load"));
    }

    #[test]
    fn load_that_swings_every_ten_seconds_by_half_is_constant() {
        let mut trend = Trend::default();
        trend.follow(&nodes(&[1000]));
        let then = trend.clone();
        for second in 0..600 {
            let high = second / 10 % 2 == 0;
            trend.follow(&nodes(&[if high { 1500 } else { 500 }]));
            assert_eq!(trend.differs(Some(&then), 20.0), None, "{second} {trend:?}");
        }
    }
}
