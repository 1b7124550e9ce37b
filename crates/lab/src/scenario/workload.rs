//! Clients and load as in the file, in the terms of the load generator.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use thicket_bench::generator::{self, Arrivals, Load, Node, Span, Until};
use thicket_bench::workload::{Attachment, Figures, Pattern, Workload as Plan};
use thicket_mqtt::{ProtocolVersion, Qos};

use super::network::known;
use super::units::{NonNegative, Positive};
use super::{Phases, Scenario};

/// The workload of a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Traffic pattern.
    pub pattern: Pattern,
    /// Publishers, with a topic each: pairs of `pair`.
    #[serde(default)]
    pub publishers: Option<usize>,
    /// Subscribers.
    #[serde(default)]
    pub subscribers: Option<usize>,
    /// Topics of `social`.
    #[serde(default)]
    pub topics: Option<usize>,
    /// Distinct topics of each subscriber of `social`.
    #[serde(default)]
    pub topics_per_subscriber: Option<usize>,
    /// Zipf's alpha of `social` and `iot`.
    #[serde(default)]
    pub alpha: Option<f64>,
    /// Levels of the tree of `iot`.
    #[serde(default)]
    pub depth: Option<usize>,
    /// Children of a node in the tree of `iot`.
    #[serde(default)]
    pub fan_out: Option<usize>,
    /// Groups of `shared`.
    #[serde(default)]
    pub groups: Option<usize>,
    /// Members of each group of `shared`.
    #[serde(default)]
    pub members: Option<usize>,
    /// Payload; at least 16 bytes, for number and time.
    #[serde(default = "payload")]
    pub payload_bytes: usize,
    /// Quality of service of publications and subscriptions.
    #[serde(default)]
    pub qos: u8,
    /// Protocol version: 3.1.1 or 5.
    #[serde(default)]
    pub mqtt: Version,
    /// Open loop: messages a second of all publishers together.
    #[serde(default)]
    pub rate_per_s: Option<Positive>,
    /// Closed loop: messages in transit for each publisher.
    #[serde(default)]
    pub window: Option<u32>,
    /// Ends after this many messages.
    #[serde(default)]
    pub messages: Option<u64>,
    /// Ends after this many seconds.
    #[serde(default)]
    pub seconds: Option<Positive>,
    /// Load before the measured interval.
    #[serde(default)]
    pub warm_up_s: Option<NonNegative>,
    /// Clients use TLS, on another port of the same brokers.
    #[serde(default)]
    pub tls: bool,
    /// Where clients are.
    #[serde(default)]
    pub placement: Placement,
}

/// Protocol versions of clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum Version {
    /// MQTT 3.1.1.
    #[default]
    #[serde(rename = "3.1.1")]
    V311,
    /// MQTT 5.0.
    #[serde(rename = "5")]
    V5,
}

/// Where clients are: each connects to the broker of its own site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In turn.
    #[default]
    RoundRobin,
    /// Each at a random site.
    Random,
    /// All at the first site.
    #[serde(rename = "locality-100")]
    Locality100,
    /// BORDER's 50 %: publishers at the first site, subscribers at random ones.
    #[serde(rename = "locality-50-border")]
    Locality50Border,
    /// Overlays' 50 %: all clients at random sites.
    #[serde(rename = "locality-50-overlays")]
    Locality50Overlays,
    /// Publishers at the first site, subscribers at the second.
    #[serde(rename = "locality-0")]
    Locality0,
    /// Publishers at one named site, subscribers at another: `{ sites = { publishers = "s1", subscribers = "s4" } }`.
    Sites {
        /// Site of all publishers.
        publishers: String,
        /// Site of all subscribers.
        subscribers: String,
    },
}

const fn payload() -> usize {
    64
}

impl Workload {
    /// `is_measured`: the measurement has its own load, so rate and length may be missing.
    pub(super) fn check(&self, names: &[String], is_measured: bool) -> Result<(), String> {
        if self.qos > 2 {
            return Err(format!("workload.qos: {} is not 0, 1 or 2", self.qos));
        }
        if self.payload_bytes < 16 {
            return Err(format!(
                "workload.payload_bytes: {} is below 16, the bytes of number and time",
                self.payload_bytes
            ));
        }
        if self.rate_per_s.is_some() == self.window.is_some() && !is_measured {
            return Err("workload: give rate_per_s (open loop) or window (closed loop)".to_owned());
        }
        if self.messages.is_some() == self.seconds.is_some() && !is_measured {
            return Err("workload: give messages or seconds, the length of the load".to_owned());
        }
        self.check_keys()?;
        match &self.placement {
            Placement::Sites {
                publishers,
                subscribers,
            } => {
                known(publishers, names, "workload.placement.sites.publishers")?;
                known(subscribers, names, "workload.placement.sites.subscribers")?;
            }
            Placement::Locality0 if names.len() < 2 => {
                return Err("workload.placement: locality-0 needs two sites".to_owned());
            }
            _ => {}
        }
        self.plan()
            .plan("check", 1)
            .map(drop)
            .map_err(|error| format!("workload: {error}"))
    }

    /// The parameters of patterns that the file has.
    fn parameters(&self) -> Vec<&'static str> {
        [
            ("publishers", self.publishers.is_some()),
            ("subscribers", self.subscribers.is_some()),
            ("topics", self.topics.is_some()),
            (
                "topics_per_subscriber",
                self.topics_per_subscriber.is_some(),
            ),
            ("alpha", self.alpha.is_some()),
            ("depth", self.depth.is_some()),
            ("fan_out", self.fan_out.is_some()),
            ("groups", self.groups.is_some()),
            ("members", self.members.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, is_given)| is_given.then_some(key))
        .collect()
    }

    /// An error if it has a parameter that its pattern does not use.
    fn check_keys(&self) -> Result<(), String> {
        let used: &[&str] = match self.pattern {
            Pattern::Pair => &["publishers"],
            Pattern::FanOut | Pattern::FanIn => &["publishers", "subscribers"],
            Pattern::Social => &["topics", "subscribers", "topics_per_subscriber", "alpha"],
            Pattern::Iot => &["depth", "fan_out", "alpha", "subscribers"],
            Pattern::Shared => &["publishers", "groups", "members"],
        };
        match (self.parameters().into_iter()).find(|key| !used.contains(key)) {
            Some(key) => Err(format!(
                "workload.{key}: the pattern does not use it, only {}",
                used.join(", ")
            )),
            None => Ok(()),
        }
    }

    /// An error if it has a key that a measurement of a crash does not use: that has its own clients.
    pub(super) fn check_crash(&self) -> Result<(), String> {
        let others = [
            ("window", self.window.is_some()),
            ("messages", self.messages.is_some()),
            ("seconds", self.seconds.is_some()),
            ("warm_up_s", self.warm_up_s.is_some()),
            ("mqtt", self.mqtt != Version::default()),
            ("tls", self.tls),
            ("placement", self.placement != Placement::default()),
        ];
        let others = (others.into_iter()).filter_map(|(key, is_given)| is_given.then_some(key));
        let unused = self.parameters().into_iter().chain(others).next();
        let unused = unused.or((self.pattern != Pattern::FanOut).then_some("pattern"));
        match unused {
            Some(key) => Err(format!(
                "workload.{key}: measure.kind = \"crash\" has a publisher and a subscriber at the first site and a subscriber at measure.site \
                 (pattern \"fan-out\"); it uses rate_per_s, qos and payload_bytes only"
            )),
            None => Ok(()),
        }
    }

    /// The pattern with its parameters.
    #[must_use]
    pub fn plan(&self) -> Plan {
        self.pattern.with(&Figures {
            publishers: self.publishers,
            subscribers: self.subscribers,
            topics: self.topics,
            topics_per_subscriber: self.topics_per_subscriber,
            alpha: self.alpha,
            depth: self.depth,
            fan_out: self.fan_out,
            levels: None,
            groups: self.groups,
            members: self.members,
        })
    }

    /// The rate or window of the load.
    #[must_use]
    pub fn load(&self) -> Load {
        match (self.rate_per_s, self.window) {
            (Some(rate), _) => Load::Open {
                rate_per_s: rate.value(),
                arrivals: Arrivals::Constant,
            },
            (None, window) => Load::Closed {
                window: window.unwrap_or(1),
            },
        }
    }

    /// The duration of the load.
    #[must_use]
    pub fn span(&self, phases: &Phases) -> Span {
        let warm_up = self.warm_up_s.map_or(0.0, NonNegative::value);
        Span {
            warm_up: Duration::from_secs_f64(warm_up),
            until: match (self.messages, self.seconds) {
                (Some(count), _) => Until::Published(count),
                (None, seconds) => Until::Elapsed(Duration::from_secs_f64(
                    seconds.map_or(1.0, Positive::value),
                )),
            },
            drain: Duration::from_secs_f64(phases.drain_s.value()),
        }
    }
}

/// The load generator's settings for a cell: `nodes` has one entry for each site.
#[must_use]
pub fn clients(
    scenario: &Scenario,
    names: &[String],
    nodes: &[Node],
    prefix: &str,
    seed: u64,
) -> generator::Scenario {
    let workload = &scenario.workload;
    // Clients are at sites that have a broker from the start.
    let later = &scenario.network.later;
    let (names, nodes): (Vec<&String>, Vec<Node>) = names
        .iter()
        .zip(nodes.iter().cloned())
        .filter(|(name, _)| !later.contains(name))
        .unzip();
    let at = |site: &String| names.iter().position(|name| *name == site).unwrap_or(0);
    let (nodes, attachment) = match &workload.placement {
        Placement::RoundRobin => (nodes, Attachment::RoundRobin),
        Placement::Random => (nodes, Attachment::Random),
        Placement::Locality100 => (nodes, Attachment::Locality100),
        Placement::Locality50Border => (nodes, Attachment::Locality50Border),
        Placement::Locality50Overlays => (nodes, Attachment::Locality50Overlays),
        Placement::Locality0 => (nodes, Attachment::Locality0),
        Placement::Sites {
            publishers,
            subscribers,
        } => {
            let two = vec![
                nodes[at(publishers)].clone(),
                nodes[at(subscribers)].clone(),
            ];
            (two, Attachment::Locality0)
        }
    };
    let mut clients = generator::Scenario::new(nodes, workload.plan());
    clients.attachment = attachment;
    clients.version = match workload.mqtt {
        Version::V311 => ProtocolVersion::V311,
        Version::V5 => ProtocolVersion::V5,
    };
    clients.qos = Qos::from_bits(workload.qos).unwrap_or_default();
    clients.payload_len = workload.payload_bytes;
    clients.prefix = prefix.to_owned();
    clients.seed = seed;
    clients.settle = Duration::from_secs_f64(scenario.phases.settle_s.value());
    clients
}
