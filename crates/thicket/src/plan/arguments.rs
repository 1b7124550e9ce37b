//! Arguments that several subcommands share.

use thicket_placement::{
    Application, Arrival, ArrivalOrder, Limits, MatchingOptions, ParameterError, Rates, Setting,
    StrategyKind,
};

/// Sessions of a client, if no others are given: those of the client libraries.
const SESSIONS: usize = 4;
/// The most seeds.
const MAX_SEEDS: u64 = 100_000;

/// Which scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ScenarioName {
    /// Every subscriber follows the same number of topics, drawn by Zipf popularity.
    Social,
    /// Every subscriber follows all topics below a node of a tree of names.
    Iot,
}

/// What a placement has to keep to.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct FairOptions {
    /// Number of sessions that a client may have (Nses) [default: as recorded, else 4]
    #[arg(long, value_name = "N")]
    max_sessions: Option<usize>,
    /// Fairness factor (gamma): a broker with more than this many times the mean load counts in `above_gamma`.
    #[arg(
        long,
        value_name = "G",
        default_value_t = 1.1,
        allow_negative_numbers = true
    )]
    pub(super) gamma: f64,
}

impl FairOptions {
    pub(super) fn limits(self) -> Result<Limits, ParameterError> {
        Limits::new(self.max_sessions(), self.gamma)
    }

    /// Of every client.
    pub(super) fn max_sessions(self) -> usize {
        self.max_sessions.unwrap_or(SESSIONS)
    }

    /// A number that was given is that of every client, whatever is recorded of it.
    pub(super) fn apply<'a>(self, arrivals: impl Iterator<Item = &'a mut Arrival>) {
        if self.max_sessions.is_some() {
            for arrival in arrivals {
                arrival.max_sessions = None;
            }
        }
    }
}

/// The population: topics, subscribers, and who follows what. Defaults are those of the paper's Fig. 13.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Population")]
pub(super) struct Population {
    /// Scenario.
    #[arg(long, value_enum, default_value = "social")]
    scenario: ScenarioName,
    /// Number of topics, each with one publisher (Ntop).
    #[arg(long, value_name = "N", default_value_t = 5000)]
    topics: usize,
    /// Number of subscribers (Nsub).
    #[arg(long, value_name = "N", default_value_t = 5000)]
    subscribers: usize,
    /// Number of topics of a subscriber in the social scenario (Nsxs).
    #[arg(long, value_name = "N", default_value_t = 10)]
    subscriptions: usize,
    /// Zipf shape (alpha): of the topics in the social scenario; of the levels, by Eq. 15, in the IoT scenario.
    #[arg(
        long,
        value_name = "A",
        default_value_t = 1.13,
        allow_negative_numbers = true
    )]
    alpha: f64,
    /// Levels of the IoT tree, the root included (d) [default: as many as --levels, else 4].
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Children of a node of the IoT tree (f) [default: the least with a leaf for each topic].
    #[arg(long, value_name = "N")]
    fanout: Option<usize>,
    /// Probability of each level of the IoT tree, the root first (Pl) [default: by --alpha].
    #[arg(
        long,
        value_name = "P,P..",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    levels: Option<Vec<f64>>,
    /// Messages per second on each topic (lambda).
    #[arg(
        long,
        value_name = "R",
        default_value_t = 1.0,
        allow_negative_numbers = true
    )]
    rate: f64,
}

impl Population {
    /// The setting, with the brokers, sessions and fairness of Fig. 13.
    pub(super) fn setting(&self) -> Setting {
        let application = match self.scenario {
            ScenarioName::Social => Application::Social {
                subscriptions: self.subscriptions,
            },
            ScenarioName::Iot => Application::Iot {
                depth: self
                    .depth
                    .unwrap_or_else(|| self.levels.as_ref().map_or(4, Vec::len)),
                fanout: self.fanout,
                levels: self.levels.clone(),
            },
        };
        Setting {
            application,
            topics: self.topics,
            subscribers: self.subscribers,
            alpha: self.alpha,
            rates: Rates::Equal(self.rate),
            ..Setting::figure_13()
        }
    }
}

/// The choices Algorithm 1 leaves open.
#[derive(Debug, Clone, clap::Args)]
#[command(
    next_help_heading = "Choices Algorithm 1 leaves open (best-match, multi-session, optimum)"
)]
pub(super) struct OpenChoices {
    /// Follow the paper to the letter; the choices below take precedence.
    #[arg(long)]
    literal: bool,
    /// Which loads of a candidate must be within gamma: the dimension of the client, or both [own, both].
    #[arg(long, value_name = "CHOICE")]
    tested_load: Option<String>,
    /// When the load is measured: before or after the client is added [before, after].
    #[arg(long, value_name = "CHOICE")]
    load_moment: Option<String>,
    /// Whether every broker of a cluster without load is a candidate [candidate, tested].
    #[arg(long, value_name = "CHOICE")]
    idle_cluster: Option<String>,
    /// Which broker is chosen among equal ones [least-loaded, lowest-index].
    #[arg(long, value_name = "CHOICE")]
    ties: Option<String>,
    /// What makes a topic active at a broker: a publisher or a subscriber, or a subscriber only [either, subscriber].
    #[arg(long, value_name = "CHOICE")]
    active_by: Option<String>,
    /// Cost of a subscription while its topic has no publisher: the same as with one, or none [anticipated, ignored].
    #[arg(long, value_name = "CHOICE")]
    missing_publisher: Option<String>,
    /// Brokers that the indicator of Eq. 10 counts: those with a subscriber, or all where the topic is active [subscriber, active].
    #[arg(long, value_name = "CHOICE")]
    publisher_indicator: Option<String>,
    /// Topics that a round assigns when none is free: the cheapest one, or all that cost the least [one, all].
    #[arg(long, value_name = "CHOICE")]
    subset: Option<String>,
}

impl OpenChoices {
    /// # Errors
    /// A choice is none of the two.
    pub(super) fn options(&self) -> Result<MatchingOptions, ParameterError> {
        let mut options = if self.literal {
            MatchingOptions::literal()
        } else {
            MatchingOptions::default()
        };
        let chosen = [
            ("tested-load", &self.tested_load),
            ("load-moment", &self.load_moment),
            ("idle-cluster", &self.idle_cluster),
            ("ties", &self.ties),
            ("active-by", &self.active_by),
            ("missing-publisher", &self.missing_publisher),
            ("publisher-indicator", &self.publisher_indicator),
            ("subset", &self.subset),
        ];
        for (name, value) in chosen {
            if let Some(value) = value {
                options.set(name, value)?;
            }
        }
        Ok(options)
    }
}

/// Parses a strategy name for clap.
/// Refuses a number of seeds whose results fit in no memory.
pub(super) fn check_seeds(seeds: u64) -> anyhow::Result<()> {
    anyhow::ensure!(
        (1..=MAX_SEEDS).contains(&seeds),
        "seeds: must be 1 to {MAX_SEEDS}, not {seeds}"
    );
    Ok(())
}

pub(super) fn parse_strategy(name: &str) -> Result<StrategyKind, String> {
    name.parse().map_err(|error: ParameterError| error.rule)
}

/// Parses an order of arrival for clap.
pub(super) fn parse_order(name: &str) -> Result<ArrivalOrder, String> {
    ArrivalOrder::ALL
        .into_iter()
        .find(|order| order.name() == name)
        .ok_or_else(|| "must be publishers-first, subscribers-first or random".to_owned())
}
