//! The parameters of one point of a study, in the paper's terms.

use super::{ArrivalOrder, Rates, Workload, WorkloadOptions};
use crate::error::{ParameterError, at_least};
use crate::model::{Natural, Prediction, Scenario, TrafficModel, Tree, decision_space};
use crate::strategy::Limits;

/// Which scenario, with the parameters only it has.
#[derive(Debug, Clone, PartialEq)]
pub enum Application {
    /// Detti III-A.
    Social {
        /// Distinct topics a subscriber follows (Nsxs).
        subscriptions: usize,
    },
    /// Detti III-B.
    Iot {
        /// Levels of the tree (d).
        depth: usize,
        /// Children of a node (f); the least with a leaf for each topic when not given.
        fanout: Option<usize>,
        /// Probability of each level (Pl), the root first; by Eq. 15 and alpha when not given.
        levels: Option<Vec<f64>>,
    },
}

/// One point of a study. Unchecked: [`Setting::scenario`] and [`Setting::limits`] check.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Which scenario.
    pub application: Application,
    /// Number of topics (Ntop), each with one publisher.
    pub topics: usize,
    /// Number of subscribers (Nsub).
    pub subscribers: usize,
    /// Zipf shape (alpha): of the topics in the social scenario, of the levels in the IoT scenario.
    pub alpha: f64,
    /// Messages per second on the topics (lambda_j).
    pub rates: Rates,
    /// Number of brokers (M).
    pub brokers: usize,
    /// Sessions a client may have (Nses).
    pub max_sessions: usize,
    /// Fairness factor (gamma).
    pub gamma: f64,
}

impl Setting {
    /// The paper's Fig. 13 with 8 brokers: social, 5000 topics, 5000 subscribers to 10 of them, alpha 1.13, one message per
    /// second, four sessions, gamma 1.1.
    #[must_use]
    pub fn figure_13() -> Self {
        Self {
            application: Application::Social { subscriptions: 10 },
            topics: 5000,
            subscribers: 5000,
            alpha: 1.13,
            rates: Rates::Equal(1.0),
            brokers: 8,
            max_sessions: 4,
            gamma: 1.1,
        }
    }

    /// The scenario.
    ///
    /// # Errors
    /// A parameter breaks its rule.
    pub fn scenario(&self) -> Result<Scenario, ParameterError> {
        match &self.application {
            Application::Social { subscriptions } => {
                Scenario::social(self.topics, *subscriptions, self.alpha)
            }
            Application::Iot {
                depth,
                fanout,
                levels,
            } => {
                at_least("depth", *depth, 2)?;
                let fanout = fanout.unwrap_or_else(|| least_fanout(self.topics, *depth));
                let tree = match levels {
                    Some(levels) if levels.len() != *depth => {
                        return Err(ParameterError::new(
                            "levels",
                            format!("must be one probability for each of {depth} levels"),
                            levels.len(),
                        ));
                    }
                    Some(levels) => Tree::new(fanout, levels.clone())?,
                    None => Tree::with_zipf_levels(fanout, *depth, self.alpha)?,
                };
                Scenario::iot(self.topics, tree)
            }
        }
    }

    /// The bounds for strategies.
    ///
    /// # Errors
    /// Nses is 0 or gamma below 1.
    pub fn limits(&self) -> Result<Limits, ParameterError> {
        Limits::new(self.max_sessions, self.gamma)
    }

    /// The workload of `seed` with its clients in `order`.
    ///
    /// # Errors
    /// A parameter breaks its rule.
    pub fn workload(&self, order: ArrivalOrder, seed: u64) -> Result<Workload, ParameterError> {
        let options = WorkloadOptions {
            scenario: self.scenario()?,
            subscriber_count: self.subscribers,
            rates: self.rates,
            order,
        };
        Workload::draw(&options, seed)
    }

    /// The prediction of the model for random attachment, with the mean rate on every topic.
    ///
    /// # Errors
    /// A parameter breaks its rule.
    pub fn predict(&self) -> Result<Prediction, ParameterError> {
        let scenario = self.scenario()?;
        TrafficModel::with_equal_rates(&scenario, self.subscribers, self.rates.mean())?
            .predict(self.brokers)
    }

    /// Eq. 12 for a subscriber of the social scenario; `None` in the IoT scenario, where subscribers differ.
    #[must_use]
    pub fn decision_space(&self) -> Option<Natural> {
        match self.application {
            Application::Social { subscriptions } => Some(decision_space(
                self.brokers as u32,
                subscriptions as u32,
                self.max_sessions as u32,
            )),
            Application::Iot { .. } => None,
        }
    }

    /// The theoretical value of the measure `name` of [`super::Measures`]: the model of random attachment, the upper bound of Eq. 12 for `choices`,
    /// the least possible value 1 / M for `jain`; `None` where there is none.
    ///
    /// # Errors
    /// A parameter breaks its rule.
    pub fn theory(&self, name: &str) -> Result<Option<f64>, ParameterError> {
        let prediction = self.predict()?;
        Ok(match name {
            "internal" => Some(prediction.internal),
            "external_in" => Some(prediction.external_in),
            "external_out" => Some(prediction.external_out),
            "routing_overhead" => Some(prediction.routing_overhead()),
            "forwarding_overhead" => Some(prediction.forwarding_overhead()),
            "jain" => Some(1.0 / self.brokers as f64),
            "choices" => self.decision_space().map(|space| space.to_f64()),
            _ => None,
        })
    }
}

/// The least fan-out whose leaves are as many as the topics.
fn least_fanout(topics: usize, depth: usize) -> usize {
    let leaves = |fanout: usize| (fanout as u128).saturating_pow(depth as u32 - 1);
    let (mut low, mut high) = (1, topics.max(1));
    while low < high {
        let middle = low + (high - low) / 2;
        if leaves(middle) >= topics as u128 {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// What a sweep varies: the x axis of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// M.
    Brokers,
    /// Nsub.
    Subscribers,
    /// Nsxs.
    Subscriptions,
    /// Nses.
    MaxSessions,
    /// Alpha.
    Alpha,
}

impl Axis {
    /// The name of the parameter, as in the rows of results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Brokers => "brokers",
            Self::Subscribers => "subscribers",
            Self::Subscriptions => "subscriptions",
            Self::MaxSessions => "max_sessions",
            Self::Alpha => "alpha",
        }
    }

    /// Words for the axis.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Brokers => "Number of brokers (M)",
            Self::Subscribers => "Number of subscribers (Nsub)",
            Self::Subscriptions => "Subscriptions per subscriber (Nsxs)",
            Self::MaxSessions => "Sessions per client (Nses)",
            Self::Alpha => "Zipf shape (alpha)",
        }
    }

    /// Where `setting` lies on the axis; 0 subscriptions in the IoT scenario.
    #[must_use]
    pub fn value(self, setting: &Setting) -> f64 {
        match self {
            Self::Brokers => setting.brokers as f64,
            Self::Subscribers => setting.subscribers as f64,
            Self::Subscriptions => match setting.application {
                Application::Social { subscriptions } => subscriptions as f64,
                Application::Iot { .. } => 0.0,
            },
            Self::MaxSessions => setting.max_sessions as f64,
            Self::Alpha => setting.alpha,
        }
    }

    /// `setting` moved to `value` on the axis; unchanged where the axis does not apply.
    #[must_use]
    pub fn at(self, setting: &Setting, value: f64) -> Setting {
        let mut moved = setting.clone();
        match self {
            Self::Brokers => moved.brokers = value as usize,
            Self::Subscribers => moved.subscribers = value as usize,
            Self::Subscriptions => {
                if let Application::Social { subscriptions } = &mut moved.application {
                    *subscriptions = value as usize;
                }
            }
            Self::MaxSessions => moved.max_sessions = value as usize,
            Self::Alpha => moved.alpha = value,
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_fanout_has_a_leaf_for_each_topic_and_one_less_has_not() {
        for (topics, depth, expected) in [
            (1000, 4, 10),
            (1001, 4, 11),
            (5000, 4, 18),
            (5, 2, 5),
            (1, 9, 1),
            (2, 9, 2),
        ] {
            assert_eq!(least_fanout(topics, depth), expected, "{topics} {depth}");
        }
    }

    #[test]
    fn levels_must_be_as_many_as_the_depth() {
        let setting = Setting {
            application: Application::Iot {
                depth: 3,
                fanout: Some(3),
                levels: Some(vec![0.5, 0.5]),
            },
            ..Setting::figure_13()
        };
        assert_eq!(
            setting.scenario().unwrap_err().to_string(),
            "levels: must be one probability for each of 3 levels, not 2"
        );
    }

    #[test]
    fn an_axis_moves_the_parameter_it_names() {
        let start = Setting::figure_13();
        for (axis, value) in [
            (Axis::Brokers, 20.0),
            (Axis::Subscribers, 100.0),
            (Axis::Subscriptions, 5.0),
            (Axis::MaxSessions, 2.0),
            (Axis::Alpha, 0.5),
        ] {
            assert_ne!(axis.value(&start), value);
            assert_eq!(axis.value(&axis.at(&start, value)), value);
        }
    }
}
