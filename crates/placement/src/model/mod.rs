//! The traffic model of the random-attach strategy (Detti section III).

mod popularity;
mod space;

pub use popularity::{Scenario, Tree, zipf};
pub use space::{Natural, decision_space};

use crate::error::{ParameterError, at_least, check_rate, count};

/// What the model predicts for one cluster size under random attachment. Traffics are in messages per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Number of brokers (M).
    pub broker_count: usize,
    /// Messages received from publishers by all brokers (Aei, Detti Eq. 4).
    pub external_in: f64,
    /// Messages sent to subscribers by all brokers (Aeo, Detti Eq. 5).
    pub external_out: f64,
    /// Messages received from other brokers, by all brokers (Ai, Detti Eq. 6). As many are sent to other brokers.
    pub internal: f64,
}

impl Prediction {
    /// Growth of the routing load by internal traffic, 1 without any (h_rt, Detti Eq. 13).
    #[must_use]
    pub fn routing_overhead(&self) -> f64 {
        overhead(self.internal, self.external_in)
    }

    /// Growth of the forwarding load by internal traffic, 1 without any (h_fw, Detti Eq. 13).
    #[must_use]
    pub fn forwarding_overhead(&self) -> f64 {
        overhead(self.internal, self.external_out)
    }
}

/// 1 + internal / external (Detti Eq. 13). A cluster without traffic has no overhead: 1.
#[must_use]
pub fn overhead(internal: f64, external: f64) -> f64 {
    if internal == 0.0 {
        1.0
    } else {
        1.0 + internal / external
    }
}

/// Jain's index of fairness, from 1 / M (one broker does all) to 1 (all do the same) (Detti Eq. 14).
///
/// `loads` has one entry a broker; the paper takes the sum of the four traffics. Without any load: 1.
#[must_use]
pub fn jain(loads: &[f64]) -> f64 {
    let sum: f64 = loads.iter().sum();
    let squares: f64 = loads.iter().map(|load| load * load).sum();
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (loads.len() as f64 * squares)
    }
}

/// A population of subscribers over topics with given probabilities and rates: everything Eq. 4-7 need.
#[derive(Debug, Clone)]
pub struct TrafficModel {
    subscriber_count: usize,
    probabilities: Vec<f64>,
    rates: Vec<f64>,
}

impl TrafficModel {
    /// A model of `subscriber_count` subscribers (Nsub), each following `scenario`.
    ///
    /// `rates` has one entry a topic, in the scenario's order, in messages per second (lambda_j).
    ///
    /// # Errors
    /// `subscribers` is 0, `rates` has another length than the scenario has topics, or a rate is negative or not finite.
    pub fn new(
        scenario: &Scenario,
        subscriber_count: usize,
        rates: Vec<f64>,
    ) -> Result<Self, ParameterError> {
        count("subscribers", subscriber_count)?;
        let probabilities = scenario.subscription_probabilities();
        if rates.len() != probabilities.len() {
            return Err(ParameterError::new(
                "rate",
                format!("must be given for each of {} topics", probabilities.len()),
                rates.len(),
            ));
        }
        rates
            .iter()
            .try_for_each(|rate| check_rate("rate", *rate))?;
        Ok(Self {
            subscriber_count,
            probabilities,
            rates,
        })
    }

    /// The same rate on every topic of `scenario`.
    ///
    /// # Errors
    /// As [`TrafficModel::new`].
    pub fn with_equal_rates(
        scenario: &Scenario,
        subscriber_count: usize,
        rate: f64,
    ) -> Result<Self, ParameterError> {
        Self::new(
            scenario,
            subscriber_count,
            vec![rate; scenario.topic_count()],
        )
    }

    /// Probability that a subscriber follows a topic, one entry a topic (Ps_j, Detti Eq. 2 and 3).
    #[must_use]
    pub fn subscription_probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// Total external input (Aei, Detti Eq. 4).
    #[must_use]
    pub fn external_in(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Total external output (Aeo, Detti Eq. 5).
    #[must_use]
    pub fn external_out(&self) -> f64 {
        let per_subscriber: f64 = self
            .probabilities
            .iter()
            .zip(&self.rates)
            .map(|(probability, rate)| probability * rate)
            .sum();
        self.subscriber_count as f64 * per_subscriber
    }

    /// Total internal traffic of `broker_count` brokers (Ai, Detti Eq. 6).
    #[must_use]
    pub fn internal(&self, broker_count: usize) -> f64 {
        let received: f64 = self
            .probabilities
            .iter()
            .zip(&self.rates)
            .map(|(probability, rate)| {
                broker_probability(*probability, self.subscriber_count, broker_count) * rate
            })
            .sum();
        (broker_count as f64 - 1.0) * received
    }

    /// All of Eq. 4-6 for a cluster of `broker_count` brokers.
    ///
    /// # Errors
    /// `broker_count` is 0.
    pub fn predict(&self, broker_count: usize) -> Result<Prediction, ParameterError> {
        at_least("brokers", broker_count, 1)?;
        Ok(Prediction {
            broker_count,
            external_in: self.external_in(),
            external_out: self.external_out(),
            internal: self.internal(broker_count),
        })
    }
}

/// Probability that a broker has at least one subscriber of a topic (Pbs_j, Detti Eq. 7).
///
/// The binomial sum is a mixture: each subscriber is at this broker with 1 / M and follows the topic with Ps_j, all
/// independent, so none does both with probability (1 - Ps_j / M)^Nsub. Logarithms keep the digits of small values.
#[must_use]
pub fn broker_probability(
    subscription_probability: f64,
    subscriber_count: usize,
    broker_count: usize,
) -> f64 {
    let both = subscription_probability / broker_count as f64;
    -libm::expm1(subscriber_count as f64 * libm::log1p(-both))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eq. 7 as printed: the sum over the number of subscribers at the broker.
    fn broker_probability_by_sum(probability: f64, subscribers: usize, brokers: usize) -> f64 {
        let here = 1.0 / brokers as f64;
        let mut choose = 1.0;
        let mut total = 0.0;
        for at_broker in 0..=subscribers {
            let binomial = choose
                * here.powi(at_broker as i32)
                * (1.0 - here).powi((subscribers - at_broker) as i32);
            total += binomial * (1.0 - (1.0 - probability).powi(at_broker as i32));
            choose *= (subscribers - at_broker) as f64 / (at_broker + 1) as f64;
        }
        total
    }

    #[test]
    fn the_closed_form_is_the_binomial_sum() {
        for brokers in [1, 2, 5, 20] {
            for subscribers in [1, 2, 10, 40] {
                for probability in [0.0, 1e-6, 0.1, 0.7, 1.0] {
                    let closed = broker_probability(probability, subscribers, brokers);
                    let summed = broker_probability_by_sum(probability, subscribers, brokers);
                    assert!(
                        (closed - summed).abs() <= 1e-12,
                        "{brokers} brokers, {subscribers} subscribers, {probability}: {closed} {summed}"
                    );
                }
            }
        }
    }

    #[test]
    fn two_brokers_two_subscribers_two_topics_by_hand() {
        // Each of 2 subscribers follows one of 2 equally popular topics: Ps = 1/2. Pbs = 1 - (1 - 1/4)^2 = 7/16.
        let scenario = Scenario::social(2, 1, 0.0).unwrap();
        let model = TrafficModel::new(&scenario, 2, vec![3.0, 5.0]).unwrap();
        let prediction = model.predict(2).unwrap();
        assert_eq!(prediction.external_in, 8.0);
        assert!((prediction.external_out - 8.0).abs() < 1e-12);
        assert!((prediction.internal - 3.5).abs() < 1e-12);
        assert!((prediction.routing_overhead() - 1.4375).abs() < 1e-12);
        assert!((prediction.forwarding_overhead() - 1.4375).abs() < 1e-12);
    }

    #[test]
    fn one_broker_has_no_internal_traffic() {
        let scenario = Scenario::social(100, 10, 1.13).unwrap();
        let model = TrafficModel::with_equal_rates(&scenario, 50, 2.0).unwrap();
        assert_eq!(model.predict(1).unwrap().internal, 0.0);
        assert_eq!(model.predict(1).unwrap().routing_overhead(), 1.0);
    }

    #[test]
    fn jain_is_one_when_equal_and_one_over_m_when_one_broker_does_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[7.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
        // (1 + 2 + 3)^2 / (3 (1 + 4 + 9)) = 36 / 42.
        assert!((jain(&[1.0, 2.0, 3.0]) - 36.0 / 42.0).abs() < 1e-15);
    }

    #[test]
    fn bad_parameters_are_named_with_their_rule() {
        let scenario = Scenario::social(10, 2, 1.0).unwrap();
        let cases = [
            (
                TrafficModel::with_equal_rates(&scenario, 0, 1.0).unwrap_err(),
                "subscribers: must be at least 1, not 0",
            ),
            (
                TrafficModel::with_equal_rates(&scenario, 5, -1.0).unwrap_err(),
                "rate: must be a number of messages per second, at least 0, not -1",
            ),
            (
                TrafficModel::new(&scenario, 5, vec![1.0]).unwrap_err(),
                "rate: must be given for each of 10 topics, not 1",
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(error.to_string(), expected);
        }
    }
}
