//! Options that the measurements have in common.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use thicket_bench::Layering;
use thicket_bench::arrivals::{Attach, PublisherType, parse_types};
use thicket_bench::generator::{Arrivals, Load, Node, Scenario, Span, Until, Watch};
use thicket_bench::workload::{self, Attachment, Workload};
use thicket_mqtt::{ProtocolVersion, Qos};
use thicket_transport::tls::ClientTls;

/// Traffic patterns by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// N publishers with a topic and a subscriber each.
    Pair,
    /// Every subscriber wants every topic.
    FanOut,
    /// Many publishers, every subscriber takes all by one `+`.
    FanIn,
    /// Subscribers follow topics drawn by Zipf's law.
    Social,
    /// A tree of places, subscribers at drawn levels of it.
    Iot,
    /// Groups that share the messages between their members.
    Shared,
}

/// Spreads of clients by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Spread {
    /// In turn: first the publishers, then the subscribers.
    RoundRobin,
    /// Each anywhere.
    Random,
    /// All at the first node.
    #[value(name = "locality-100")]
    Locality100,
    /// 50 % as BORDER reads it: publishers at the first node, subscribers anywhere.
    #[value(name = "locality-50-border")]
    Locality50Border,
    /// 50 % as the overlays' paper reads it: everybody anywhere.
    #[value(name = "locality-50-overlays")]
    Locality50Overlays,
    /// Publishers at the first node, subscribers at the second.
    #[value(name = "locality-0")]
    Locality0,
    /// Types of publishers: at a dispatcher, and where it sends them; the next one if it does not answer.
    Dispatch,
    /// Types of publishers: at the first node, which may send them on.
    Redirect,
}

/// How many publishers, or of which types.
#[derive(Debug, Clone, PartialEq)]
pub enum Publishers {
    /// So many that are alike; the load is that of `--window` or `--rate`.
    Count(usize),
    /// Each type with a rate and a payload of its own.
    Types(Vec<PublisherType>),
}

impl Publishers {
    fn parse(text: &str) -> Result<Self, String> {
        if text.contains('@') {
            return parse_types(text)
                .map(Self::Types)
                .map_err(|error| error.to_string());
        }
        text.parse()
            .map(Self::Count)
            .map_err(|_| "expected a number or COUNT@RATE:BYTES,...".to_owned())
    }
}

/// Protocol versions by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Version {
    /// MQTT 3.1.1.
    #[value(name = "3.1.1")]
    V311,
    /// MQTT 5.0.
    #[value(name = "5")]
    V5,
}

/// Spacings of an open loop by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arrival {
    /// Even.
    Constant,
    /// Poisson processes.
    Poisson,
    /// Log-normal gaps, with `--cv`.
    Lognormal,
}

/// Publishers of several types, and how they connect.
#[derive(Debug)]
pub struct TypesOfPublishers {
    pub nodes: Vec<Node>,
    pub types: Vec<PublisherType>,
    pub subscribers: usize,
    pub attach: Attach,
    pub prefix: String,
    pub seed: u64,
}

/// Who connects where and sends what.
#[derive(Debug, Args)]
pub struct ScenarioOptions {
    /// Brokers of one cluster
    #[arg(
        value_name = "HOST:PORT",
        value_delimiter = ',',
        default_value = "127.0.0.1:1883"
    )]
    nodes: Vec<String>,
    /// Traffic pattern
    #[arg(long, value_enum, default_value_t = Pattern::Pair)]
    workload: Pattern,
    /// Publishers, with a topic each: pairs of `pair`. [default: 100; 1 in fan-out] Or, of `run`, types of publishers that
    /// arrive one after the other: COUNT@RATE:BYTES,..., such as 9@2000:600,1@10000:600
    #[arg(long, value_name = "N|TYPES", value_parser = Publishers::parse)]
    publishers: Option<Publishers>,
    /// Subscribers of fan-out, fan-in, social and iot. [default: 100; 1 in fan-in] With types of publishers, of everything that these publish. [default: 0]
    #[arg(long, value_name = "N")]
    subscribers: Option<usize>,
    /// Topics of `social`, with a publisher each. [default: 1000]
    #[arg(long, value_name = "N")]
    topics: Option<usize>,
    /// Distinct topics of each subscriber in `social`. [default: 10]
    #[arg(long, value_name = "N")]
    topics_per_subscriber: Option<usize>,
    /// Zipf's alpha: popularity of topics in `social`, of levels in `iot`. [default: 1.13; 1.5 in iot]
    #[arg(long)]
    alpha: Option<f64>,
    /// Levels of the tree of `iot`, the root `#` included. [default: 4]
    #[arg(long)]
    depth: Option<usize>,
    /// Children of a node in the tree of `iot`. [default: 10]
    #[arg(long)]
    fan_out: Option<usize>,
    /// Probability of each level of `iot`, root first, instead of --alpha
    #[arg(long, value_name = "P,P,...", value_delimiter = ',')]
    levels: Vec<f64>,
    /// Groups of `shared`. [default: 1]
    #[arg(long)]
    groups: Option<usize>,
    /// Members of each group of `shared`. [default: 10]
    #[arg(long)]
    members: Option<usize>,
    /// Which client connects to which node
    #[arg(long, value_enum, default_value_t = Spread::RoundRobin)]
    attach: Spread,
    /// Payload in bytes. Below 16 there is no latency, below 4 messages are only counted
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    size: usize,
    /// Quality of service of publications and subscriptions
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=2))]
    qos: u8,
    /// Protocol version
    #[arg(long, value_enum, default_value_t = Version::V311)]
    mqtt: Version,
    /// First level of all topics and beginning of all client identifiers. [default: b and the process's number]
    #[arg(long)]
    prefix: Option<String>,
    /// Seed of all random choices: topics, nodes, spacing
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Pause between subscribing and publishing, in seconds. [default: 0; 1 with several nodes]
    #[arg(long, value_name = "SECONDS")]
    settle: Option<f64>,
    /// Subscribers have sessions that outlive their connections
    #[arg(long)]
    persistent: bool,
    /// User name; the password is read from THICKET_BENCH_PASSWORD
    #[arg(long)]
    user: Option<String>,
    /// Use TLS
    #[arg(long, help_heading = "TLS and WebSocket")]
    tls: bool,
    /// Use TLS, and trust these certificate authorities (PEM file) [default: those that the system trusts]
    #[arg(long, value_name = "FILE", help_heading = "TLS and WebSocket")]
    cafile: Option<PathBuf>,
    /// Use TLS, and accept any certificate
    #[arg(long, conflicts_with = "cafile", help_heading = "TLS and WebSocket")]
    insecure: bool,
    /// Use MQTT over WebSocket, at this path [default: /mqtt]
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..=1,
        default_missing_value = "/mqtt",
        help_heading = "TLS and WebSocket"
    )]
    websocket: Option<String>,
}

impl ScenarioOptions {
    /// The scenario these options describe.
    pub fn scenario(&self) -> anyhow::Result<Scenario> {
        anyhow::ensure!(
            !matches!(self.publishers, Some(Publishers::Types(_))),
            "--publishers: only `thicket bench run` takes types of publishers"
        );
        let nodes: Result<Vec<Node>, _> =
            self.nodes.iter().map(|node| Node::resolve(node)).collect();
        let mut scenario = Scenario::new(nodes?, self.workload());
        scenario.attachment = match self.attach {
            Spread::RoundRobin => Attachment::RoundRobin,
            Spread::Random => Attachment::Random,
            Spread::Locality100 => Attachment::Locality100,
            Spread::Locality50Border => Attachment::Locality50Border,
            Spread::Locality50Overlays => Attachment::Locality50Overlays,
            Spread::Locality0 => Attachment::Locality0,
            Spread::Dispatch | Spread::Redirect => {
                anyhow::bail!(
                    "--attach dispatch and redirect go with types of publishers, such as --publishers 9@2000:600"
                )
            }
        };
        anyhow::ensure!(
            self.attach != Spread::Locality0 || scenario.nodes.len() > 1,
            "locality-0 puts publishers and subscribers on two nodes, but there is one"
        );
        scenario.version = match self.mqtt {
            Version::V311 => ProtocolVersion::V311,
            Version::V5 => ProtocolVersion::V5,
        };
        scenario.qos = Qos::from_bits(self.qos).unwrap_or_default();
        scenario.payload_len = self.size;
        if let Some(prefix) = &self.prefix {
            scenario.prefix.clone_from(prefix);
        }
        scenario.seed = self.seed;
        let settle = self
            .settle
            .unwrap_or(if scenario.nodes.len() > 1 { 1.0 } else { 0.0 });
        scenario.settle = seconds("--settle", settle)?;
        scenario.persistent = self.persistent;
        scenario.login = self.user.clone().map(|user| {
            (
                user,
                std::env::var("THICKET_BENCH_PASSWORD").unwrap_or_default(),
            )
        });
        let is_tls = self.tls || self.insecure || self.cafile.is_some();
        scenario.layering = self.layering(is_tls)?;
        Ok(scenario)
    }

    /// The types of publishers, if there are any, and how they connect.
    ///
    /// # Errors
    /// An option was given that goes with other workloads only.
    pub fn types(&self) -> anyhow::Result<Option<TypesOfPublishers>> {
        let Some(Publishers::Types(types)) = &self.publishers else {
            return Ok(None);
        };
        anyhow::ensure!(self.qos == 0, "--publishers with types: QoS is 0 (--qos)");
        let attach = match self.attach {
            Spread::RoundRobin => Attach::RoundRobin,
            Spread::Dispatch => Attach::Dispatch,
            Spread::Redirect => Attach::Redirect,
            _ => anyhow::bail!(
                "--attach: types of publishers take round-robin, dispatch or redirect"
            ),
        };
        let nodes: Result<Vec<Node>, _> =
            self.nodes.iter().map(|node| Node::resolve(node)).collect();
        let prefix = self.prefix.clone();
        Ok(Some(TypesOfPublishers {
            nodes: nodes?,
            types: types.clone(),
            subscribers: self.subscribers.unwrap_or(0),
            attach,
            prefix: prefix.unwrap_or_else(|| format!("b{}", std::process::id())),
            seed: self.seed,
        }))
    }

    /// The same scenario over plain connections, and over TLS to other listeners of the same brokers.
    pub fn plain_and_tls(&self, tls_nodes: &[String]) -> anyhow::Result<(Scenario, Scenario)> {
        let mut plain = self.scenario()?;
        plain.layering = self.layering(false)?;
        let mut tls = plain.clone();
        let nodes: Result<Vec<Node>, _> =
            tls_nodes.iter().map(|node| Node::resolve(node)).collect();
        tls.nodes = nodes?;
        tls.layering = self.layering(true)?;
        anyhow::ensure!(
            plain.nodes.len() == tls.nodes.len(),
            "--tls-nodes names {} listeners, but there are {} brokers",
            tls.nodes.len(),
            plain.nodes.len()
        );
        Ok((plain, tls))
    }

    fn layering(&self, is_tls: bool) -> anyhow::Result<Layering> {
        let tls = ClientTls {
            authorities: self.cafile.clone(),
            identity: None,
            insecure: self.insecure,
        };
        Ok(Layering {
            tls: is_tls.then(|| tls.load()).transpose()?,
            websocket: self.websocket.clone(),
        })
    }

    fn workload(&self) -> Workload {
        let publishers = match &self.publishers {
            Some(Publishers::Count(count)) => Some(*count),
            Some(Publishers::Types(_)) | None => None,
        };
        let pattern = match self.workload {
            Pattern::Pair => workload::Pattern::Pair,
            Pattern::FanOut => workload::Pattern::FanOut,
            Pattern::FanIn => workload::Pattern::FanIn,
            Pattern::Social => workload::Pattern::Social,
            Pattern::Iot => workload::Pattern::Iot,
            Pattern::Shared => workload::Pattern::Shared,
        };
        pattern.with(&workload::Figures {
            publishers,
            subscribers: self.subscribers,
            topics: self.topics,
            topics_per_subscriber: self.topics_per_subscriber,
            alpha: self.alpha,
            depth: self.depth,
            fan_out: self.fan_out,
            levels: (!self.levels.is_empty()).then(|| self.levels.clone()),
            groups: self.groups,
            members: self.members,
        })
    }
}

/// How much is sent when.
#[derive(Debug, Args)]
pub struct LoadOptions {
    /// Closed loop: messages in transit per publisher. This is the default load
    #[arg(
        long,
        value_name = "MESSAGES",
        default_value_t = 50,
        conflicts_with = "rate"
    )]
    window: u32,
    /// Open loop: messages per second, of all publishers together
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
    /// Open loop: spacing of the messages
    #[arg(long, value_enum, default_value_t = Arrival::Constant)]
    arrival: Arrival,
    /// Coefficient of variation of `--arrival lognormal`
    #[arg(long, value_name = "CV", default_value_t = 0.5)]
    cv: f64,
}

impl LoadOptions {
    /// The load these options describe.
    pub fn load(&self) -> Load {
        match self.rate {
            None => Load::Closed {
                window: self.window,
            },
            Some(rate_per_s) => Load::Open {
                rate_per_s,
                arrivals: arrivals(self.arrival, self.cv),
            },
        }
    }
}

/// The spacing of a name.
pub fn arrivals(arrival: Arrival, cv: f64) -> Arrivals {
    match arrival {
        Arrival::Constant => Arrivals::Constant,
        Arrival::Poisson => Arrivals::Poisson,
        Arrival::Lognormal => Arrivals::LogNormal {
            coefficient_of_variation: cv,
        },
    }
}

/// How long to run and what to watch.
#[derive(Debug, Args)]
pub struct SpanOptions {
    /// Length of the measured interval, in seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Publish this many messages instead, warm-up included
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    messages: Option<u64>,
    /// Load before the measured interval, in seconds. [default: 1; 0 with --messages]
    #[arg(long, value_name = "SECONDS")]
    warm_up: Option<f64>,
    /// How long to wait at the end after the last message, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    drain: f64,
    /// Processes of the broker, whose CPU time and memory are measured
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pid: Vec<u32>,
}

impl SpanOptions {
    /// The span these options describe.
    pub fn span(&self) -> anyhow::Result<Span> {
        let warm_up = self
            .warm_up
            .unwrap_or(if self.messages.is_some() { 0.0 } else { 1.0 });
        Ok(Span {
            warm_up: seconds("--warm-up", warm_up)?,
            until: match self.messages {
                Some(count) => Until::Published(count),
                None => Until::Elapsed(seconds("--seconds", self.seconds)?),
            },
            drain: seconds("--drain", self.drain)?,
        })
    }

    /// The length of the measured interval.
    pub fn measured(&self) -> anyhow::Result<Duration> {
        seconds("--seconds", self.seconds)
    }

    /// The processes to watch.
    pub fn watch(&self) -> Watch {
        Watch {
            pids: self.pid.clone(),
        }
    }
}

/// A length of time as `5s`, `500ms`, or seconds.
pub fn length_of_time(text: &str) -> Result<Duration, String> {
    let (number, unit_s) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 1.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit_s);
    let length = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    length.ok_or_else(|| "expected a length of time such as 5s or 500ms".to_owned())
}

/// A duration from an option in seconds.
pub fn seconds(option: &str, value: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| anyhow::anyhow!("{option} {value} is no length of time"))
}
