//! Strategies: which brokers a client should have its sessions with.

mod attach;
mod capacity;
mod matching;
mod optimum;
mod options;
mod sets;
mod thicket;

use std::str::FromStr;

pub use attach::{LeastLoaded, RandomAttach, RoundRobin};
pub use matching::Matching;
pub use optimum::Optimum;
pub use options::{
    ActiveBy, IdleCluster, LoadMoment, MatchingOptions, MissingPublisher, PublisherIndicator,
    Subset, TestedLoad, Ties,
};
pub use thicket::{Thicket, ThicketOptions};

use crate::cluster::{Cluster, Dimension};
use crate::error::{ParameterError, at_least};
use crate::ids::{BrokerId, TopicId};

/// What a client does with one topic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// Publishes `rate` messages per second.
    Publisher {
        /// Messages per second.
        rate: f64,
    },
    /// Subscribes.
    Subscriber,
    /// Publishes `rate` messages per second and subscribes, over one session.
    Both {
        /// Messages per second.
        rate: f64,
    },
}

impl Role {
    /// Messages per second the client publishes; `None` for a mere subscriber.
    #[must_use]
    pub fn publish_rate(self) -> Option<f64> {
        match self {
            Self::Publisher { rate } | Self::Both { rate } => Some(rate),
            Self::Subscriber => None,
        }
    }

    /// Whether the client subscribes.
    #[must_use]
    pub fn subscribes(self) -> bool {
        match self {
            Self::Subscriber | Self::Both { .. } => true,
            Self::Publisher { .. } => false,
        }
    }

    /// The role of a client that has both. Their rates are of the same messages: that of `self` counts, if it has one.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        let rate = self.publish_rate().or(other.publish_rate());
        match (self.subscribes() || other.subscribes(), rate) {
            (true, Some(rate)) => Self::Both { rate },
            (true, None) => Self::Subscriber,
            (false, rate) => Self::Publisher {
                rate: rate.unwrap_or(0.0),
            },
        }
    }
}

/// One topic of a client (an element of Tc). A filter with wildcards is the list of the topics it matches (Detti footnote 3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interest {
    /// The topic, each once a client.
    pub topic: TopicId,
    /// What the client does with it.
    pub role: Role,
}

/// A client to be placed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Its topics without a broker (Tc), each once.
    pub interests: &'a [Interest],
    /// Brokers it has sessions with already and keeps, each once; empty for a new client.
    pub open: &'a [BrokerId],
    /// The broker that the client is near. It goes to no broker that is farther from there than 1 ([`Distances`](crate::Distances)). `None`: unknown.
    pub home: Option<BrokerId>,
}

/// Where a client's topics go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// One broker for each interest of the request, in its order.
    pub brokers: Vec<BrokerId>,
    /// Idle topics whose publishers should follow to the broker of their first subscriber.
    pub redirects: Vec<(TopicId, BrokerId)>,
}

/// Chooses brokers for clients that arrive one after the other.
///
/// The cluster given to the strategy is the state before the client; [`crate::Placer`] carries decisions out.
pub trait Strategy {
    /// Chooses a broker for every interest of `request`, using no more than the allowed sessions, open ones included.
    fn place(&mut self, cluster: &Cluster, request: &Request<'_>) -> Decision;

    /// The bounds the strategy works to.
    fn limits(&self) -> Limits;

    /// From now on at most this many sessions a client, at least 1; a strategy that gives each client one keeps to that.
    fn allow_sessions(&mut self, _max_sessions: usize) {}

    /// Whether all that a filter with wildcards matches is in one session of its client, as in a cluster of nodes. Otherwise each topic is placed by itself
    /// (Detti footnote 3).
    fn keeps_filters_whole(&self) -> bool {
        false
    }
}

/// Bounds on a placement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    max_sessions: usize,
    gamma: f64,
}

impl Limits {
    /// At most `max_sessions` sessions a client (Nses), and loads of at most `gamma` times the mean.
    ///
    /// # Errors
    /// `max_sessions` is 0, or `gamma` is below 1 or not a number.
    pub fn new(max_sessions: usize, gamma: f64) -> Result<Self, ParameterError> {
        at_least("max-sessions", max_sessions, 1)?;
        if gamma.is_nan() || gamma < 1.0 {
            return Err(ParameterError::new("gamma", "must be at least 1", gamma));
        }
        Ok(Self {
            max_sessions,
            gamma,
        })
    }

    /// The same with other sessions a client, at least 1.
    #[must_use]
    pub fn with_sessions(self, max_sessions: usize) -> Self {
        Self {
            max_sessions: max_sessions.max(1),
            ..self
        }
    }

    /// Sessions a client may have (Nses), at least 1.
    #[must_use]
    pub fn max_sessions(&self) -> usize {
        self.max_sessions
    }

    /// Fairness factor (gamma), at least 1.
    #[must_use]
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// Whether `broker` carries more than gamma times the mean in `dimension`.
    #[must_use]
    pub fn exceeded(&self, cluster: &Cluster, broker: BrokerId, dimension: Dimension) -> bool {
        let fair = self.gamma * cluster.total_load(dimension) / cluster.broker_count() as f64;
        // Sums of rates carry rounding; a broker exactly at the bound is within it.
        cluster.loads(dimension)[broker.index()] > fair * (1.0 + 1e-12)
    }
}

/// The strategies by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StrategyKind {
    /// [`RandomAttach`].
    Random,
    /// [`RoundRobin`].
    RoundRobin,
    /// [`LeastLoaded`].
    LeastLoaded,
    /// [`Matching::best_match`].
    BestMatch,
    /// [`Matching::multi_session`].
    MultiSession,
    /// [`Thicket`].
    Thicket,
    /// [`Optimum`].
    Optimum,
}

impl StrategyKind {
    /// All strategies but [`StrategyKind::Optimum`], which is for small cases only.
    pub const EVERYDAY: [Self; 6] = [
        Self::Random,
        Self::RoundRobin,
        Self::LeastLoaded,
        Self::BestMatch,
        Self::MultiSession,
        Self::Thicket,
    ];

    /// The name users give.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::LeastLoaded => "least-loaded",
            Self::BestMatch => "best-match",
            Self::MultiSession => "multi-session",
            Self::Thicket => "thicket",
            Self::Optimum => "optimum",
        }
    }

    /// The strategy itself. `seed` steers [`RandomAttach`] only; the others draw nothing.
    #[must_use]
    pub fn build(
        self,
        limits: Limits,
        matching: MatchingOptions,
        seed: u64,
    ) -> Box<dyn Strategy + Send> {
        match self {
            Self::Random => Box::new(RandomAttach::new(limits, seed)),
            Self::RoundRobin => Box::new(RoundRobin::new(limits)),
            Self::LeastLoaded => Box::new(LeastLoaded::new(limits)),
            Self::BestMatch => Box::new(Matching::best_match(limits, matching)),
            Self::MultiSession => Box::new(Matching::multi_session(limits, matching)),
            Self::Thicket => Box::new(Thicket::new(limits, ThicketOptions::default())),
            Self::Optimum => Box::new(Optimum::new(limits, matching)),
        }
    }
}

impl FromStr for StrategyKind {
    type Err = ParameterError;

    fn from_str(name: &str) -> Result<Self, ParameterError> {
        Self::EVERYDAY
            .into_iter()
            .chain([Self::Optimum])
            .find(|kind| kind.name() == name)
            .ok_or_else(|| {
                ParameterError::new(
                    "strategy",
                    "must be random, round-robin, least-loaded, best-match, multi-session, thicket or optimum",
                    name,
                )
            })
    }
}

/// What a request adds in each dimension, and so which loads concern it.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    /// Messages per second published, `None` when the client publishes nothing.
    input: Option<f64>,
    /// Messages per second received, `None` when the client subscribes to nothing.
    output: Option<f64>,
}

impl Demand {
    fn of<'a>(cluster: &Cluster, interests: impl IntoIterator<Item = &'a Interest>) -> Self {
        let mut demand = Self::default();
        for interest in interests {
            if let Some(rate) = interest.role.publish_rate() {
                *demand.input.get_or_insert(0.0) += rate;
            }
            if interest.role.subscribes() {
                *demand.output.get_or_insert(0.0) += cluster.rate(interest.topic);
            }
        }
        demand
    }

    /// The dimensions the client loads, each with what it adds.
    fn dimensions(self) -> impl Iterator<Item = (Dimension, f64)> {
        let input = self.input.map(|rate| (Dimension::Input, rate));
        let output = self.output.map(|rate| (Dimension::Output, rate));
        input.into_iter().chain(output)
    }

    /// The load that counts when brokers are compared: the sum over the dimensions the client loads.
    fn own_load(self, cluster: &Cluster, broker: BrokerId) -> f64 {
        self.dimensions()
            .map(|(dimension, _)| cluster.loads(dimension)[broker.index()])
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_its_strategy_and_others_are_refused() {
        for kind in StrategyKind::EVERYDAY {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert_eq!(
            "fastest".parse::<StrategyKind>().unwrap_err().to_string(),
            "strategy: must be random, round-robin, least-loaded, best-match, multi-session, thicket or optimum, not fastest"
        );
    }

    #[test]
    fn limits_are_named_with_their_rule() {
        let cases = [
            (
                Limits::new(0, 1.1),
                "max-sessions: must be at least 1, not 0",
            ),
            (Limits::new(4, 0.9), "gamma: must be at least 1, not 0.9"),
            (
                Limits::new(4, f64::NAN),
                "gamma: must be at least 1, not NaN",
            ),
        ];
        for (result, expected) in cases {
            assert_eq!(result.unwrap_err().to_string(), expected);
        }
    }
}
