//! What a message between two brokers costs.

use crate::error::ParameterError;
use crate::ids::BrokerId;

/// Costs of a message from one broker to another, in messages between brokers of one site. By default all are 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Distances {
    /// By broker that sends, then by broker that receives; empty if all are 1.
    costs: Vec<Vec<f64>>,
}

impl Distances {
    /// `cost(from, to)` for each two of `brokers` brokers.
    ///
    /// # Errors
    /// A cost is below 1 or not finite.
    pub fn new(brokers: usize, cost: impl Fn(usize, usize) -> f64) -> Result<Self, ParameterError> {
        let row = |from: usize| (0..brokers).map(|to| cost(from, to)).collect();
        let costs: Vec<Vec<f64>> = (0..brokers).map(row).collect();
        let is_good = |cost: &&f64| cost.is_finite() && **cost >= 1.0;
        if let Some(bad) = costs.iter().flatten().find(|cost| !is_good(cost)) {
            let rule = "must be at least 1";
            return Err(ParameterError::new("cost between brokers", rule, bad));
        }
        if costs.iter().flatten().all(|cost| *cost == 1.0) {
            return Ok(Self::default());
        }
        Ok(Self { costs })
    }

    /// Of one message.
    #[must_use]
    pub fn between(&self, from: BrokerId, to: BrokerId) -> f64 {
        let row = self.costs.get(from.index());
        row.and_then(|row| row.get(to.index()))
            .copied()
            .unwrap_or(1.0)
    }

    /// Whether messages between a broker and the one that a client is near cost no more than within a site; any is near if that is unknown.
    #[must_use]
    pub fn is_near(&self, home: Option<BrokerId>, broker: BrokerId) -> bool {
        home.is_none_or(|home| home == broker || self.between(home, broker) <= 1.0)
    }

    /// Whether all brokers are at one site.
    #[must_use]
    pub const fn are_even(&self) -> bool {
        self.costs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cost_1_unless_something_else_is_said() {
        let even = Distances::default();
        assert!(even.are_even());
        assert_eq!(even.between(BrokerId(7), BrokerId(3)), 1.0);
        let two = Distances::new(2, |from, to| if from == to { 1.0 } else { 8.0 }).unwrap();
        assert!(!two.are_even());
        assert!(Distances::new(3, |_, _| 1.0).unwrap().are_even());
        assert_eq!(two.between(BrokerId(0), BrokerId(1)), 8.0);
        assert_eq!(two.between(BrokerId(2), BrokerId(1)), 1.0);
    }

    #[test]
    fn a_cost_that_is_none_is_refused() {
        for bad in [0.5, f64::NAN, f64::INFINITY] {
            assert!(Distances::new(2, |_, _| bad).is_err(), "{bad}");
        }
    }
}
