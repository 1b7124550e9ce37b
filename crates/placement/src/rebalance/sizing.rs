//! How many nodes the load needs, for an autoscaler: slow to go down, and never swinging.

/// The load of all nodes, at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SizingReading {
    /// Milliseconds, of any clock that never goes back.
    pub at_ms: u64,
    /// Nodes that accept clients.
    pub nodes: usize,
    /// CPU of these together: 1 is all that one of them may use.
    pub cpu: f64,
    /// The part of it that internal traffic costs, 0 to 1: it grows with the number of nodes.
    pub internal_share: f64,
}

/// A number of nodes that follows the load with hysteresis.
#[derive(Debug, Clone, Default)]
pub struct Sizing {
    desired: Option<usize>,
    /// Since when another number would be right.
    differs_since: Option<(u64, bool)>,
}

impl Sizing {
    /// The part of its CPU that a node should use at most.
    const GOAL: f64 = 0.6;
    /// More nodes are requested when one uses more than this.
    const HIGH: f64 = 0.7;
    /// Fewer are requested only if each of the fewer would use no more than this.
    const LOW: f64 = 0.5;
    /// The load must be high for this time, ms.
    const RAISED_AFTER_MS: u64 = 30_000;
    /// It must be low for this time.
    const LOWERED_AFTER_MS: u64 = 300_000;

    /// Nodes that the load needs, at least 1.
    pub fn desired(&mut self, reading: SizingReading) -> usize {
        let now = reading.nodes.max(1);
        let desired = *self.desired.get_or_insert(now);
        let is_high = reading.cpu_of_each(desired) > Self::HIGH;
        let is_low = desired > 1 && reading.cpu_of_each(desired - 1) <= Self::LOW;
        if !is_high && !is_low {
            self.differs_since = None;
            return desired;
        }
        let since = match self.differs_since {
            Some((since, high)) if high == is_high => since,
            _ => reading.at_ms,
        };
        self.differs_since = Some((since, is_high));
        let patience = if is_high {
            Self::RAISED_AFTER_MS
        } else {
            Self::LOWERED_AFTER_MS
        };
        if reading.at_ms.saturating_sub(since) < patience {
            return desired;
        }
        self.differs_since = None;
        let goal = if is_high { Self::GOAL } else { Self::LOW };
        let most = 2 * now + 1;
        let needed = (1..=most).find(|nodes| reading.cpu_of_each(*nodes) <= goal);
        let needed = needed.unwrap_or(most);
        self.desired = Some(needed);
        needed
    }
}

impl SizingReading {
    /// CPU of each, if there were `nodes` nodes: of n nodes a message crosses to n - 1 others at most (Detti Eq. 4, few subscribers a topic).
    fn cpu_of_each(&self, nodes: usize) -> f64 {
        let crossing = |nodes: usize| 1.0 - 1.0 / nodes as f64;
        let external = self.cpu * (1.0 - self.internal_share);
        let now = crossing(self.nodes.max(1));
        let internal = if now > 0.0 {
            self.cpu * self.internal_share * crossing(nodes) / now
        } else {
            0.0
        };
        (external + internal) / nodes as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_s: u64, nodes: usize, cpu: f64) -> SizingReading {
        SizingReading {
            at_ms: at_s * 1000,
            nodes,
            cpu,
            internal_share: 0.0,
        }
    }

    #[test]
    fn more_nodes_are_asked_for_after_half_a_minute_and_fewer_after_five() {
        let mut sizing = Sizing::default();
        assert_eq!(sizing.desired(reading(0, 3, 1.5)), 3);
        assert_eq!(sizing.desired(reading(10, 3, 2.4)), 3);
        assert_eq!(sizing.desired(reading(39, 3, 2.4)), 3);
        assert_eq!(
            sizing.desired(reading(40, 3, 2.4)),
            4,
            "2.4 / 4 is the goal"
        );
        assert_eq!(sizing.desired(reading(50, 4, 2.4)), 4);
        assert_eq!(sizing.desired(reading(60, 4, 0.9)), 4);
        assert_eq!(sizing.desired(reading(359, 4, 0.9)), 4);
        assert_eq!(sizing.desired(reading(360, 4, 0.9)), 2);
    }

    #[test]
    fn a_load_that_swings_asks_for_nothing() {
        let mut sizing = Sizing::default();
        for second in 0..2_000 {
            let cpu = if (second / 10) % 2 == 0 { 0.5 } else { 2.4 };
            assert_eq!(sizing.desired(reading(second, 3, cpu)), 3, "{second}");
        }
    }

    #[test]
    fn internal_traffic_grows_with_the_nodes() {
        let internal = SizingReading {
            internal_share: 0.5,
            ..reading(0, 2, 1.6)
        };
        let none = reading(0, 2, 1.6);
        assert!(internal.cpu_of_each(4) > none.cpu_of_each(4));
        assert_eq!(internal.cpu_of_each(2), 0.8);
    }
}
