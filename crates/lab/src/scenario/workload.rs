//! Clients and load as in the file, in the terms of the load generator.

use std::fmt;
use std::time::Duration;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use thicket_bench::generator::{Arrivals, Load, Span, Until};
use thicket_bench::placement::Load as PlacementLoad;
use thicket_bench::workload::{Figures, Pattern, PlanError, TopicTemplate, Workload as Plan};

use super::measure::Measure;
use super::message::{MAX_PAYLOAD, PayloadLaw, STAMP, Will};
use super::phases::Phases;
use crate::network::known;
use crate::units::{NonNegative, Positive};

/// The password of `workload.user`: a variable, as files with passwords are passed on.
const PASSWORD: &str = "THICKET_BENCH_PASSWORD";
/// Default standard deviation of log-normal gaps over their mean.
const VARIATION: f64 = 0.5;

/// The workload of a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Traffic pattern.
    pub pattern: Pattern,
    /// Publishers, with a topic each: pairs of `pair`. Those of `social` draw a topic each; without
    /// a number each topic has one.
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
    /// Probability of each level of the tree of `iot`, the root first, instead of `alpha`.
    #[serde(default)]
    pub levels: Option<Vec<f64>>,
    /// Groups of `shared`.
    #[serde(default)]
    pub groups: Option<usize>,
    /// Members of each group of `shared`.
    #[serde(default)]
    pub members: Option<usize>,
    /// Payload. It has number and time in 16 bytes: below that there is no delay, below 4 messages are only counted.
    #[serde(default = "payload")]
    pub payload_bytes: usize,
    /// The law of payloads, instead of `payload_bytes`.
    #[serde(default)]
    pub payload: Option<PayloadLaw>,
    /// Names of topics, a text with `{run}`, `{n}` and `{random}`.
    #[serde(default)]
    pub topic: Option<String>,
    /// Quality of service of publications, and of subscriptions unless they have their own.
    #[serde(default)]
    pub qos: u8,
    /// Quality of service of subscriptions.
    #[serde(default)]
    pub subscriber_qos: Option<u8>,
    /// Publications have the RETAIN flag.
    #[serde(default)]
    pub retain: bool,
    /// The will of every client.
    #[serde(default)]
    pub will: Option<Will>,
    /// Keep Alive of every client in seconds; 0: off.
    #[serde(default)]
    pub keep_alive_s: u16,
    /// Connections begun in a second at most.
    #[serde(default)]
    pub connects_per_s: Option<Positive>,
    /// Protocol version: 3.1.1 or 5.
    #[serde(default)]
    pub mqtt: Version,
    /// Open loop: messages a second of all publishers together.
    #[serde(default)]
    pub rate_per_s: Option<Positive>,
    /// Open loop: spacing of the messages.
    #[serde(default)]
    pub arrivals: Spacing,
    /// Standard deviation of log-normal gaps over their mean (default 0.5).
    #[serde(default)]
    pub variation: Option<Positive>,
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
    /// Subscribers have sessions that outlive their connections.
    #[serde(default)]
    pub persistent: bool,
    /// User name of all clients; the password is in THICKET_BENCH_PASSWORD.
    #[serde(default)]
    pub user: Option<String>,
    /// How a Server Reference in a CONNACK is handled.
    #[serde(default)]
    pub redirect: Reference,
    /// Clients use TLS, on another port of the same brokers.
    #[serde(default)]
    pub tls: bool,
    /// Clients use WebSocket, on another port of the same brokers, over TLS if they use that too.
    #[serde(default)]
    pub websocket: bool,
    /// Threads of the load generator (default 1); more than one for `pair`, whose pairs they share out.
    #[serde(default)]
    pub threads: Option<usize>,
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

/// Spacing of messages in an open loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// Even, the publishers in turn.
    #[default]
    Constant,
    /// A Poisson process at each publisher.
    Poisson,
    /// Log-normal gaps at each publisher.
    LogNormal,
}

/// What clients have over TCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Layers {
    /// TLS.
    pub tls: bool,
    /// WebSocket, over TLS if both are used.
    pub websocket: bool,
}

impl Layers {
    /// Whether TLS, WebSocket, and both are used.
    pub(crate) const fn parts(self) -> [bool; 3] {
        [self.tls, self.websocket, self.tls && self.websocket]
    }

    /// The port of brokers for them.
    #[must_use]
    pub const fn port(self) -> u16 {
        match (self.tls, self.websocket) {
            (false, false) => 1883,
            (true, false) => 8883,
            (false, true) => 8083,
            (true, true) => 8084,
        }
    }

    /// Those of either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            tls: self.tls || other.tls,
            websocket: self.websocket || other.websocket,
        }
    }
}

/// How a Server Reference in a CONNACK is handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reference {
    /// The client goes there, once.
    #[default]
    Follow,
    /// It is an error.
    Ignore,
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
    /// Publishers at named sites in turn, subscribers at others: `{ sites = { publishers = "s1", subscribers = ["s3", "s4"] } }`.
    Sites {
        /// Sites of publishers.
        publishers: Sites,
        /// Sites of subscribers.
        subscribers: Sites,
    },
}

/// Named sites, each as often as it is named: a name, or a list that has one at least.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Sites(Vec<String>);

impl Sites {
    /// Their names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Sites {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [only] => formatter.write_str(only),
            several => write!(formatter, "{} in turn", several.join(", ")),
        }
    }
}

impl<'de> Deserialize<'de> for Sites {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SitesVisitor)
    }
}

struct SitesVisitor;

impl<'de> Visitor<'de> for SitesVisitor {
    type Value = Sites;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a site, or a list of such names")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Sites, E> {
        Ok(Sites(vec![name.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sites, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = list.next_element()? {
            names.push(name);
        }
        if names.is_empty() {
            return Err(de::Error::invalid_length(0, &"one site at least"));
        }
        Ok(Sites(names))
    }
}

const fn payload() -> usize {
    64
}

/// The parameters that a pattern uses.
const fn parameters_of(pattern: Pattern) -> &'static [&'static str] {
    match pattern {
        Pattern::Pair => &["publishers"],
        Pattern::FanOut | Pattern::FanIn => &["publishers", "subscribers"],
        Pattern::Social => &[
            "topics",
            "publishers",
            "subscribers",
            "topics_per_subscriber",
            "alpha",
        ],
        Pattern::Iot => &["depth", "fan_out", "alpha", "levels", "subscribers"],
        Pattern::Shared => &["publishers", "groups", "members"],
    }
}

/// What to write instead of an unknown key of the workload: of all keys most are of other patterns.
pub(super) fn unknown_key(key: &str, pattern: Option<Pattern>) -> String {
    let Some(pattern) = pattern else {
        return format!("workload.{key}: unknown key");
    };
    let name = serde_json::to_value(pattern).unwrap_or_default();
    let name = name.as_str().unwrap_or_default();
    let pairs = match (pattern, key) {
        (Pattern::Pair, "pairs") => ", the number of pairs",
        _ => "",
    };
    format!(
        "workload.{key}: unknown key; the parameters of the pattern {name} are {}{pairs}; of every load: {}",
        parameters_of(pattern).join(", "),
        OF_EVERY_LOAD.join(", ")
    )
}

/// The keys that do not depend on the pattern.
const OF_EVERY_LOAD: [&str; 23] = [
    "payload_bytes",
    "payload",
    "topic",
    "qos",
    "subscriber_qos",
    "retain",
    "will",
    "keep_alive_s",
    "connects_per_s",
    "mqtt",
    "rate_per_s",
    "window",
    "messages",
    "seconds",
    "placement",
    "persistent",
    "arrivals",
    "variation",
    "warm_up_s",
    "user",
    "redirect",
    "tls, websocket",
    "threads",
];

impl Workload {
    /// Checks it in combination with the measurement, which may have its own load: rate and length may be missing then.
    pub(super) fn check(&self, names: &[String], measure: &Measure) -> Result<(), String> {
        let is_measured = measure.has_own_load();
        self.check_threads(measure)?;
        self.check_clients(measure)?;
        if self.payload_bytes > MAX_PAYLOAD {
            return Err(format!(
                "workload.payload_bytes: {} is above {MAX_PAYLOAD}, what one packet carries",
                self.payload_bytes
            ));
        }
        if let Some(alpha) = self.alpha.filter(|alpha| !(0.0..1e9).contains(alpha)) {
            return Err(format!(
                "workload.alpha: {alpha} is not a number from 0 to 1e9"
            ));
        }
        if self.messages == Some(0) {
            return Err("workload.messages: 0 is no load".to_owned());
        }
        if self.payload_bytes < STAMP && measure.needs_stamps() {
            return Err(format!(
                "workload.payload_bytes: {} is below {STAMP}, the bytes of number and time",
                self.payload_bytes
            ));
        }
        if self.arrivals != Spacing::Constant && self.rate_per_s.is_none() && !is_measured {
            return Err("workload.arrivals: only a load at rate_per_s has a spacing".to_owned());
        }
        if self.variation.is_some() && self.arrivals != Spacing::LogNormal {
            return Err("workload.variation: only log-normal arrivals have one".to_owned());
        }
        if self.levels.is_some() && self.alpha.is_some() {
            return Err("workload.levels: alpha says the same thing, give one".to_owned());
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
                for (sites, role) in [(publishers, "publishers"), (subscribers, "subscribers")] {
                    let key = format!("workload.placement.sites.{role}");
                    let mut named = sites.names().iter();
                    named.try_for_each(|site| known(site, names, &key))?;
                }
            }
            Placement::Locality0 if names.len() < 2 => {
                return Err("workload.placement: locality-0 needs two sites".to_owned());
            }
            _ => {}
        }
        let topic = self.topic()?;
        let plan = self.plan().plan_named(topic.as_ref(), "check", 1);
        if let (Ok(plan), true) = (&plan, self.payload_bytes < STAMP)
            && !all_differ(&plan.topics)
        {
            return Err(format!(
                "workload.payload_bytes: {} is below {STAMP}, and publishers of one topic are told apart by what these hold",
                self.payload_bytes
            ));
        }
        plan.map(drop).map_err(|error| match self.key_of(&error) {
            Some(key) => format!("workload.{key}: {error}"),
            None => format!("workload: {error}"),
        })
    }

    /// Checks what clients say of themselves and of their messages.
    fn check_clients(&self, measure: &Measure) -> Result<(), String> {
        let qos = [
            ("qos", Some(self.qos)),
            ("subscriber_qos", self.subscriber_qos),
        ];
        if let Some((key, Some(qos))) = qos.iter().find(|(_, it)| it.is_some_and(|it| it > 2)) {
            return Err(format!("workload.{key}: {qos} is not 0, 1 or 2"));
        }
        if let Some(law) = &self.payload {
            law.sizes(1)?;
            if self.payload_bytes != payload() {
                return Err(
                    "workload.payload_bytes: payload says the same thing, give one".to_owned(),
                );
            }
        }
        self.will.as_ref().map_or(Ok(()), Will::check)?;
        let topic = self.topic()?;
        let is_same_in_all_runs = topic.as_ref().is_some_and(|it| !it.names_run());
        if is_same_in_all_runs && (self.retain || self.persistent || self.threads() > 1) {
            return Err(
                "workload.topic: what retained messages, persistent sessions and several threads leave is told apart by {run}, which it lacks"
                    .to_owned(),
            );
        }
        let is_load = matches!(
            measure,
            Measure::Load | Measure::Throughput { .. } | Measure::MostConnections { .. }
        );
        match self.of_messages() {
            Some(key) if !is_load => Err(format!(
                "workload.{key}: only a load and a search for the highest rate use it"
            )),
            _ => Ok(()),
        }
    }

    /// The keys given about messages and CONNECTs that only the load generator's clients follow.
    fn of_messages(&self) -> Option<&'static str> {
        [
            ("payload", self.payload.is_some()),
            ("topic", self.topic.is_some()),
            ("subscriber_qos", self.subscriber_qos.is_some()),
            ("retain", self.retain),
            ("will", self.will.is_some()),
            ("keep_alive_s", self.keep_alive_s > 0),
            ("connects_per_s", self.connects_per_s.is_some()),
        ]
        .into_iter()
        .find_map(|(key, is_given)| is_given.then_some(key))
    }

    /// Names of topics; an error names the key.
    pub(super) fn topic(&self) -> Result<Option<TopicTemplate>, String> {
        let topic = self.topic.as_deref().map(TopicTemplate::parse).transpose();
        topic.map_err(|reason| format!("workload.topic: {reason}"))
    }

    /// The key that an error of the plan is about.
    fn key_of(&self, error: &PlanError) -> Option<&'static str> {
        match error {
            // Too many streams: each pattern has a key for them.
            PlanError::TooLarge(_) => Some(match self.pattern {
                Pattern::Pair | Pattern::FanOut | Pattern::FanIn | Pattern::Shared => "publishers",
                Pattern::Social => "topics",
                Pattern::Iot => "fan_out",
            }),
            PlanError::Levels { .. } if self.levels.is_none() => Some("alpha"),
            other => other.figure(),
        }
    }

    /// Threads of the load generator.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or(1)
    }

    /// An error unless the load can be shared out over its threads.
    fn check_threads(&self, measure: &Measure) -> Result<(), String> {
        let Some(threads) = self.threads else {
            return Ok(());
        };
        let pairs = match self.plan() {
            Plan::Pair { pairs } => pairs,
            _ if threads == 1 => return Ok(()),
            _ => {
                return Err(
                    "workload.threads: only the pattern pair can be shared out over several"
                        .to_owned(),
                );
            }
        };
        if threads == 0 || threads > pairs {
            return Err(format!(
                "workload.threads: {threads} is not from 1 to {pairs}, the number of pairs"
            ));
        }
        match measure {
            Measure::Load | Measure::Throughput { .. } => Ok(()),
            Measure::Connections { .. }
            | Measure::MostConnections { .. }
            | Measure::Placement
            | Measure::Crash { .. }
            | Measure::Arrivals { .. } => Err(
                "workload.threads: only a load and a search for the highest rate have several"
                    .to_owned(),
            ),
        }
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
            ("levels", self.levels.is_some()),
            ("groups", self.groups.is_some()),
            ("members", self.members.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, is_given)| is_given.then_some(key))
        .collect()
    }

    /// An error if it has a parameter that its pattern does not use.
    fn check_keys(&self) -> Result<(), String> {
        let used = parameters_of(self.pattern);
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
            ("mqtt", self.mqtt != Version::default()),
            ("tls", self.tls),
            ("websocket", self.websocket),
            ("placement", self.placement != Placement::default()),
        ];
        let others = (others.into_iter()).filter_map(|(key, is_given)| is_given.then_some(key));
        let of_generator = self.of_generator().into_iter();
        let unused = (self.parameters().into_iter())
            .chain(others)
            .chain(of_generator)
            .next();
        let unused = unused.or((self.pattern != Pattern::FanOut).then_some("pattern"));
        match unused {
            Some(key) => Err(format!(
                "workload.{key}: measure.kind = \"crash\" has a publisher and a subscriber at the first site and a subscriber at measure.site \
                 (pattern \"fan-out\"); it uses rate_per_s, qos and payload_bytes only"
            )),
            None => Ok(()),
        }
    }

    /// The keys given that only the load generator's clients follow.
    pub(super) fn of_generator(&self) -> Option<&'static str> {
        [
            ("warm_up_s", self.warm_up_s.is_some()),
            ("arrivals", self.arrivals != Spacing::Constant),
            ("persistent", self.persistent),
            ("user", self.user.is_some()),
            ("redirect", self.redirect != Reference::Follow),
            ("threads", self.threads.is_some()),
        ]
        .into_iter()
        .find_map(|(key, is_given)| is_given.then_some(key))
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
            levels: self.levels.clone(),
            groups: self.groups,
            members: self.members,
        })
    }

    /// What is special about its clients, in words that continue a sentence; empty if nothing is.
    #[must_use]
    pub(super) fn of_clients(&self) -> String {
        let user = self.user.as_ref();
        let user = user.map(|name| format!("user name {name}, password in {PASSWORD}"));
        let sessions = self.persistent.then(|| "sessions persist".to_owned());
        let references = (self.redirect == Reference::Ignore)
            .then(|| "a Server Reference is an error".to_owned());
        let tls = self.tls.then(|| "over TLS".to_owned());
        let websocket = self.websocket.then(|| "over WebSocket".to_owned());
        let threads = (self.threads() > 1).then(|| format!("{} threads", self.threads()));
        let topic = self.topic.as_ref().map(|it| format!("topics {it}"));
        let subscribed = (self.subscriber_qos).map(|qos| format!("subscriptions of QoS {qos}"));
        let retained = self.retain.then(|| "messages are retained".to_owned());
        let will = self.will.as_ref();
        let will = will.map(|it| format!("a will of {} bytes each", it.payload_bytes));
        let keep_alive =
            (self.keep_alive_s > 0).then(|| format!("keep alive {} s", self.keep_alive_s));
        let connects = (self.connects_per_s)
            .map(|rate| format!("{} connections begun in a second", rate.value()));
        let all = [
            tls, websocket, user, sessions, references, threads, topic, subscribed, retained, will,
            keep_alive, connects,
        ]
        .into_iter()
        .flatten();
        all.fold(String::new(), |words, one| format!("{words}; {one}"))
    }

    /// Spacing of the messages of an open loop.
    #[must_use]
    pub fn spacing(&self) -> Arrivals {
        match self.arrivals {
            Spacing::Constant => Arrivals::Constant,
            Spacing::Poisson => Arrivals::Poisson,
            Spacing::LogNormal => Arrivals::LogNormal {
                coefficient_of_variation: self.variation.map_or(VARIATION, Positive::value),
            },
        }
    }

    /// What its clients have over TCP.
    #[must_use]
    pub const fn layers(&self) -> Layers {
        Layers {
            tls: self.tls,
            websocket: self.websocket,
        }
    }

    /// User name and password of the clients.
    #[must_use]
    pub fn login(&self) -> Option<(String, String)> {
        let user = self.user.clone()?;
        Some((user, std::env::var(PASSWORD).unwrap_or_default()))
    }

    /// The rate or window of the load.
    #[must_use]
    pub fn load(&self) -> Load {
        match (self.rate_per_s, self.window) {
            (Some(rate), _) => Load::Open {
                rate_per_s: rate.value(),
                arrivals: self.spacing(),
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

fn all_differ(topics: &[String]) -> bool {
    let distinct: std::collections::HashSet<&String> = topics.iter().collect();
    distinct.len() == topics.len()
}

/// The load for a pattern that placement is measured with; an error names the key.
pub(crate) fn placement_load(workload: &Plan) -> Result<PlacementLoad, String> {
    match *workload {
        Plan::Pair { pairs } => Ok(PlacementLoad::Pairs { topics: pairs }),
        Plan::Social {
            topics,
            publishers: None,
            subscribers,
            topics_per_subscriber,
            alpha,
        } => Ok(PlacementLoad::Social {
            topics,
            subscribers,
            wanted: topics_per_subscriber,
            exponent: alpha,
        }),
        _ => Err(format!(
            "workload.pattern: measure.kind = placement knows pair, and social with a publisher for each topic, not {}",
            workload.describe()
        )),
    }
}
