//! Patterns by name, with default figures: the same for every command and file.

use serde::{Deserialize, Serialize};

use super::{MAX_DEPTH, Workload, level_probabilities};

/// Traffic patterns by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// N publishers with a topic and a subscriber each.
    Pair,
    /// Every subscriber subscribes to every topic.
    FanOut,
    /// Many publishers, every subscriber receives all through one `+`.
    FanIn,
    /// Subscribers follow topics drawn by Zipf's law.
    Social,
    /// A tree of places, subscribers at drawn levels of it.
    Iot,
    /// Groups that share the messages between their members.
    Shared,
}

/// Chosen figures of a pattern; `None` is the default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Figures {
    /// Publishers, with a topic each: pairs of `pair`. 100, 1 in fan-out. In `social` they draw a
    /// topic each; without a number each topic has one.
    pub publishers: Option<usize>,
    /// Subscribers. 100, 1 in fan-in.
    pub subscribers: Option<usize>,
    /// Topics of `social`. 1000.
    pub topics: Option<usize>,
    /// Distinct topics of each subscriber of `social`. 10.
    pub topics_per_subscriber: Option<usize>,
    /// Zipf's alpha: of topics in `social`, of levels in `iot`. 1.13, 1.5 in iot.
    pub alpha: Option<f64>,
    /// Levels of the tree of `iot`. 4.
    pub depth: Option<usize>,
    /// Children of a node in the tree of `iot`. 10.
    pub fan_out: Option<usize>,
    /// Probability of each level of `iot`, instead of alpha.
    pub levels: Option<Vec<f64>>,
    /// Groups of `shared`. 1.
    pub groups: Option<usize>,
    /// Members of each group of `shared`. 10.
    pub members: Option<usize>,
}

impl Pattern {
    /// The pattern with these figures, and defaults for the rest.
    #[must_use]
    pub fn with(self, figures: &Figures) -> Workload {
        let publishers = |default| figures.publishers.unwrap_or(default);
        let subscribers = |default| figures.subscribers.unwrap_or(default);
        match self {
            Self::Pair => Workload::Pair {
                pairs: publishers(100),
            },
            Self::FanOut => Workload::FanOut {
                publishers: publishers(1),
                subscribers: subscribers(100),
            },
            Self::FanIn => Workload::FanIn {
                publishers: publishers(100),
                subscribers: subscribers(1),
            },
            Self::Social => Workload::Social {
                topics: figures.topics.unwrap_or(1000),
                publishers: figures.publishers,
                subscribers: subscribers(100),
                topics_per_subscriber: figures.topics_per_subscriber.unwrap_or(10),
                alpha: figures.alpha.unwrap_or(1.13),
            },
            Self::Iot => {
                let depth = figures.depth.unwrap_or(4);
                // A depth above the bound is refused with the plan.
                let levels = depth.min(MAX_DEPTH);
                let drawn = || level_probabilities(levels, figures.alpha.unwrap_or(1.5));
                Workload::Iot {
                    depth,
                    fan_out: figures.fan_out.unwrap_or(10),
                    level_probabilities: figures.levels.clone().unwrap_or_else(drawn),
                    subscribers: subscribers(100),
                }
            }
            Self::Shared => Workload::Shared {
                publishers: publishers(100),
                groups: figures.groups.unwrap_or(1),
                members: figures.members.unwrap_or(10),
            },
        }
    }
}
