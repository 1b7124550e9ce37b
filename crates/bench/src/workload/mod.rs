//! Publishers and subscribers and their topics: the plan of a run, made before the first connection.

mod attach;
mod build;
mod pattern;
mod topic;

use serde::Serialize;

pub use attach::{Attachment, attach};
pub use pattern::{Figures, Pattern};
pub use topic::TopicTemplate;

/// A traffic pattern. Counts are of clients or topics, at least 1 each.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Workload {
    /// `pairs` publishers, each with a topic and a subscriber of its own (Detti Fig. 2; Comparison 3.2).
    Pair {
        /// Pairs.
        pairs: usize,
    },
    /// Every subscriber subscribes to the topic of every publisher.
    FanOut {
        /// Publishers, a topic each.
        publishers: usize,
        /// Subscribers.
        subscribers: usize,
    },
    /// Many publishers with a topic each; every subscriber receives all through one `+`.
    FanIn {
        /// Publishers, a topic each.
        publishers: usize,
        /// Subscribers.
        subscribers: usize,
    },
    /// A social network: subscribers follow distinct topics chosen by Zipf's law (Detti III-A).
    Social {
        /// Topics (Ntop).
        topics: usize,
        /// Publishers that draw a topic each, by the same law as subscribers, who draw among what
        /// is published (Overlays 6). `None`: each topic has one.
        publishers: Option<usize>,
        /// Subscribers (Nsub).
        subscribers: usize,
        /// Distinct topics of each subscriber (Nsxs).
        topics_per_subscriber: usize,
        /// Shape of the popularity.
        alpha: f64,
    },
    /// A tree of places: a publisher at every leaf, subscribers at nodes of a random level (Detti III-B).
    Iot {
        /// Levels of the tree of subscriptions (d): the first is `#`, the last the leaves.
        depth: usize,
        /// Children of a node (f).
        fan_out: usize,
        /// Probability of each level (Pl), `depth` of them; need not add up to 1.
        level_probabilities: Vec<f64>,
        /// Subscribers.
        subscribers: usize,
    },
    /// Clients that connect and stay idle (Comparison M3).
    Idle {
        /// Clients.
        clients: usize,
    },
    /// Groups of subscribers that share the topics of all publishers between them.
    Shared {
        /// Publishers, a topic each.
        publishers: usize,
        /// Groups; each receives every message once.
        groups: usize,
        /// Members of a group.
        members: usize,
    },
}

/// The content of a run. A publisher has one topic: a *stream*, identified by its index here.
/// Several publishers may have the same topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Topic of each stream.
    pub topics: Vec<String>,
    /// Subscribers.
    pub subscribers: Vec<SubscriberPlan>,
    /// Streams that each audience must receive: sorted, each once. A subscriber without a group is an audience of one.
    pub audiences: Vec<Vec<u32>>,
}

/// One subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriberPlan {
    /// Topic filters to subscribe to: distinct and not overlapping, so that a message arrives once.
    pub filters: Vec<String>,
    /// Index of its audience.
    pub audience: u32,
}

/// Misuse: a workload that cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A count is 0.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    /// A subscriber cannot follow more distinct topics than there are.
    #[error("a subscriber cannot follow {wanted} distinct topics of {topics}")]
    TooFewTopics {
        /// Topics requested.
        wanted: usize,
        /// Topics available.
        topics: usize,
    },
    /// The probabilities of the levels do not match the tree.
    #[error(
        "{given} level probabilities for a tree of {depth} levels; they must not be negative, and one must be above 0"
    )]
    Levels {
        /// Levels of the tree.
        depth: usize,
        /// Probabilities given.
        given: usize,
    },
    /// More streams than a run can have.
    #[error("{0} streams are more than a run can hold (at most 1,000,000)")]
    TooLarge(usize),
    /// A count is above its bound.
    #[error("{name} must be at most {most}, not {count}")]
    TooMany {
        /// Its name.
        name: &'static str,
        /// As given.
        count: usize,
        /// The bound.
        most: usize,
    },
    /// Topics cannot be named so.
    #[error("{0}")]
    Topic(String),
    /// A shape of the popularity that no law has.
    #[error("alpha must be a number of 0 or more, not {0}")]
    Alpha(f64),
}

impl PlanError {
    /// The field of [`Figures`] that it is about, or `topic`, if it is about one.
    #[must_use]
    pub fn figure(&self) -> Option<&'static str> {
        match self {
            Self::Zero(name) | Self::TooMany { name, .. } => match *name {
                "publishers" | "pairs" => Some("publishers"),
                "subscribers" => Some("subscribers"),
                "topics" => Some("topics"),
                TOPICS_OF_A_SUBSCRIBER => Some("topics_per_subscriber"),
                "depth" => Some("depth"),
                "fan-out" => Some("fan_out"),
                "groups" => Some("groups"),
                "members" => Some("members"),
                _ => None,
            },
            Self::TooFewTopics { .. } => Some("topics_per_subscriber"),
            Self::Levels { .. } => Some("levels"),
            Self::Alpha(_) => Some("alpha"),
            Self::Topic(_) => Some("topic"),
            Self::TooLarge(_) => None,
        }
    }
}

/// How errors name the distinct topics that each subscriber follows.
const TOPICS_OF_A_SUBSCRIBER: &str = "topics of a subscriber";
/// Most levels of a tree of places.
const MAX_DEPTH: usize = 64;

impl Workload {
    /// The name of the pattern.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pair { .. } => "pair",
            Self::FanOut { .. } => "fan-out",
            Self::FanIn { .. } => "fan-in",
            Self::Social { .. } => "social",
            Self::Iot { .. } => "iot",
            Self::Idle { .. } => "idle",
            Self::Shared { .. } => "shared",
        }
    }

    /// The pattern with its figures, in short.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Pair { pairs } => format!("pair {pairs}/{pairs}"),
            Self::FanOut {
                publishers,
                subscribers,
            } => format!("fan-out {publishers} -> {subscribers}"),
            Self::FanIn {
                publishers,
                subscribers,
            } => format!("fan-in {publishers} -> {subscribers}"),
            Self::Social {
                topics,
                publishers,
                subscribers,
                topics_per_subscriber,
                alpha,
            } => {
                let publishers =
                    publishers.map_or(String::new(), |count| format!(" {count} publishers,"));
                format!(
                    "social{publishers} {topics} topics, {subscribers} subscribers x {topics_per_subscriber}, alpha {alpha}"
                )
            }
            Self::Iot {
                depth,
                fan_out,
                level_probabilities,
                subscribers,
            } => {
                format!(
                    "iot depth {depth}, fan-out {fan_out}, levels {level_probabilities:?}, {subscribers} subscribers"
                )
            }
            Self::Idle { clients } => format!("{clients} idle clients"),
            Self::Shared {
                publishers,
                groups,
                members,
            } => {
                format!("shared {publishers} publishers, {groups} groups x {members}")
            }
        }
    }

    /// Makes the plan. Topics start with `prefix` and a slash; the same seed gives the same plan.
    pub fn plan(&self, prefix: &str, seed: u64) -> Result<Plan, PlanError> {
        self.plan_named(None, prefix, seed)
    }

    /// The same with topics named by a template, if one is given.
    pub fn plan_named(
        &self,
        template: Option<&TopicTemplate>,
        run: &str,
        seed: u64,
    ) -> Result<Plan, PlanError> {
        let usual = TopicTemplate::of_pattern(self.level());
        let template = template.unwrap_or(&usual);
        build::build(
            self,
            &build::Names {
                template,
                run,
                seed,
            },
        )
    }

    /// The second level of the usual names of topics.
    const fn level(&self) -> &'static str {
        match self {
            Self::FanOut { .. } => "out",
            Self::FanIn { .. } => "in",
            Self::Pair { .. }
            | Self::Social { .. }
            | Self::Iot { .. }
            | Self::Idle { .. }
            | Self::Shared { .. } => self.name(),
        }
    }
}

/// The probabilities of the levels by a reversed Zipf law over the levels below the root, whose own is 0 (Detti Eq. 15).
#[must_use]
pub fn level_probabilities(depth: usize, alpha: f64) -> Vec<f64> {
    let weight = |level: usize| {
        if level == 0 {
            0.0
        } else {
            ((depth - level) as f64).powf(-alpha)
        }
    };
    let sum: f64 = (0..depth).map(weight).sum();
    (0..depth).map(|level| weight(level) / sum).collect()
}
