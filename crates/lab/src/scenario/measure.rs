//! The measurement of each system in each cell.

use serde::{Deserialize, Serialize};
use thicket_bench::arrivals::{ArrivalOrder, PublisherType, in_order};

use crate::network::{Network, known};
use crate::units::{NonNegative, Percent, Positive};

/// By how many messages a second consumption may differ from publication (Comparison 5.2).
pub const TOLERANCE_PER_S: f64 = 100.0;
/// By what share of it, in percent, if that is more.
pub const TOLERANCE_PERCENT: f64 = 2.0;
/// Publishers that arrive by default (Dispatcher Table II).
const ARRIVING: usize = 10;
/// Their messages a second, and those of the heavy one.
const RATES_PER_S: [f64; 2] = [2_000.0, 10_000.0];
/// The most publishers that may arrive.
const MOST_ARRIVING: usize = 100_000;
/// Default rate of the load of a crash, in messages a second.
pub const CRASH_PER_S: f64 = 100.0;

/// The measurement of a scenario. Without one it is [`Measure::Load`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", try_from = "Keys")]
pub enum Measure {
    /// The load of `[workload]`, once.
    #[default]
    Load,
    /// The highest sustainable rate (Comparison M1, Detti Fig. 2 and 22); the workload's own rate is not used.
    Throughput {
        /// Sustainable means a mean delay below this; without it: consumption follows publication and nothing is lost.
        below_mean_ms: Option<Positive>,
        /// By how many messages a second consumption may differ from publication (default 100, Comparison 5.2).
        tolerance_per_s: Option<NonNegative>,
        /// By what share of it, if that is more (default 2): at high rates more than 100 messages are under way at both ends of a step.
        tolerance_percent: Option<Percent>,
        /// First rate that is tried, in messages a second of all publishers.
        from_per_s: Positive,
        /// The search ends when its bounds are this close, as a share of the lower one.
        precision: Positive,
        /// Seconds at each rate.
        step_s: Positive,
    },
    /// Idle connections: how fast they are established and what each costs (Comparison M3).
    Connections {
        /// Number of connections.
        count: usize,
        /// Rest before memory is read.
        hold_s: NonNegative,
    },
    /// The most connections that each have their share of a load, at which consumption follows
    /// publication (Comparison M3). Clients connect anew for each number that is tried; half of
    /// them publish, each to one of the others.
    MostConnections {
        /// First number that is tried.
        count: usize,
        /// Messages a second of each publisher.
        each_per_s: Positive,
        /// The search ends when its bounds are this close, as a share of the lower one.
        precision: Positive,
        /// Seconds with each number.
        step_s: Positive,
    },
    /// Clients of the client library find their nodes by the system's `attach` (Detti V). They are at random sites and first connect to the node of
    /// their site; the load is the workload's, of `social` or `pair`, for its `seconds`.
    Placement,
    /// A broker dies under load, with clients that have persistent sessions and reconnect (Comparison M5 and Fig. 5): a publisher and a subscriber at
    /// the first broker, a subscriber at the one that dies. Of the workload it uses `rate_per_s` (default 100), `payload_bytes` and `qos`: 2, else it
    /// is 1.
    Crash {
        /// Site of the broker that dies.
        site: String,
        /// How it dies.
        how: Death,
        /// Load before the death.
        before_s: Positive,
        /// Load after the death.
        after_s: Positive,
    },
    /// Publishers arrive one after the other, one of them heavier than the others (Dispatcher IV), or of several types. They are at the first site; how
    /// they find their broker is the system's `attach`.
    Arrivals {
        /// Publishers, the heavy one included (default 10, as in Dispatcher Table II).
        publishers: Option<usize>,
        /// Messages a second of each (default 2000).
        rate_per_s: Option<Positive>,
        /// Messages a second of the heavy publisher (default 10,000).
        heavy_rate_per_s: Option<Positive>,
        /// Its place in the order of arrival, from 1.
        heavy_at: Option<usize>,
        /// Types of publishers, instead of the four keys above.
        types: Vec<Publishers>,
        /// The order in which they arrive.
        order: Order,
        /// Subscribers, each of all that is published; they find their broker as publishers do, before the first of these.
        subscribers: usize,
        /// Time between two arrivals.
        every_s: Positive,
        /// Time after the last arrival; its first two seconds are not used for rates.
        hold_s: Positive,
    },
}

/// The keys of `[measure]`: read one by one, so that an error shows the line of its key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    kind: Kind,
    below_mean_ms: Option<Positive>,
    tolerance_per_s: Option<NonNegative>,
    tolerance_percent: Option<Percent>,
    from_per_s: Option<Positive>,
    precision: Option<Positive>,
    step_s: Option<Positive>,
    count: Option<usize>,
    each_per_s: Option<Positive>,
    hold_s: Option<NonNegative>,
    site: Option<String>,
    how: Option<Death>,
    before_s: Option<Positive>,
    after_s: Option<Positive>,
    publishers: Option<usize>,
    rate_per_s: Option<Positive>,
    heavy_rate_per_s: Option<Positive>,
    heavy_at: Option<usize>,
    types: Option<Vec<Publishers>>,
    order: Option<Order>,
    subscribers: Option<usize>,
    every_s: Option<Positive>,
}

/// The kinds of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Load,
    Throughput,
    Connections,
    MostConnections,
    Placement,
    Crash,
    Arrivals,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Throughput => "throughput",
            Self::Connections => "connections",
            Self::MostConnections => "most-connections",
            Self::Placement => "placement",
            Self::Crash => "crash",
            Self::Arrivals => "arrivals",
        }
    }

    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Load | Self::Placement => &[],
            Self::Throughput => &[
                "below_mean_ms",
                "tolerance_per_s",
                "tolerance_percent",
                "from_per_s",
                "precision",
                "step_s",
            ],
            Self::Connections => &["count", "hold_s"],
            Self::MostConnections => &["count", "each_per_s", "precision", "step_s"],
            Self::Crash => &["site", "how", "before_s", "after_s"],
            Self::Arrivals => &[
                "types",
                "order",
                "publishers",
                "rate_per_s",
                "heavy_rate_per_s",
                "heavy_at",
                "subscribers",
                "every_s",
                "hold_s",
            ],
        }
    }
}

impl Keys {
    /// An error if it has a key that its kind does not use.
    fn check(&self) -> Result<(), String> {
        let given = [
            ("below_mean_ms", self.below_mean_ms.is_some()),
            ("tolerance_per_s", self.tolerance_per_s.is_some()),
            ("tolerance_percent", self.tolerance_percent.is_some()),
            ("from_per_s", self.from_per_s.is_some()),
            ("precision", self.precision.is_some()),
            ("step_s", self.step_s.is_some()),
            ("count", self.count.is_some()),
            ("each_per_s", self.each_per_s.is_some()),
            ("hold_s", self.hold_s.is_some()),
            ("site", self.site.is_some()),
            ("how", self.how.is_some()),
            ("before_s", self.before_s.is_some()),
            ("after_s", self.after_s.is_some()),
            ("publishers", self.publishers.is_some()),
            ("rate_per_s", self.rate_per_s.is_some()),
            ("heavy_rate_per_s", self.heavy_rate_per_s.is_some()),
            ("heavy_at", self.heavy_at.is_some()),
            ("types", self.types.is_some()),
            ("order", self.order.is_some()),
            ("subscribers", self.subscribers.is_some()),
            ("every_s", self.every_s.is_some()),
        ];
        let used = self.kind.keys();
        let unused = |(key, is_given): &(&str, bool)| *is_given && !used.contains(key);
        match given.into_iter().find(unused) {
            None => Ok(()),
            Some((key, _)) => {
                let has = if used.is_empty() {
                    "no other keys".to_owned()
                } else {
                    used.join(", ")
                };
                let kind = self.kind.name();
                Err(format!(
                    "measure.{key}: kind = \"{kind}\" does not use it, it has {has}"
                ))
            }
        }
    }
}

impl TryFrom<Keys> for Measure {
    type Error = String;

    fn try_from(keys: Keys) -> Result<Self, String> {
        keys.check()?;
        Ok(match keys.kind {
            Kind::Load => Self::Load,
            Kind::Placement => Self::Placement,
            Kind::Throughput => Self::Throughput {
                below_mean_ms: keys.below_mean_ms,
                tolerance_per_s: keys.tolerance_per_s,
                tolerance_percent: keys.tolerance_percent,
                from_per_s: keys.from_per_s.unwrap_or(positive(1000.0)),
                precision: keys.precision.unwrap_or(positive(0.1)),
                step_s: keys.step_s.unwrap_or(positive(2.0)),
            },
            Kind::Connections => Self::Connections {
                count: (keys.count).ok_or("measure.count: it is missing, how many connections")?,
                hold_s: keys.hold_s.unwrap_or_default(),
            },
            Kind::MostConnections => Self::MostConnections {
                count: keys.count.unwrap_or(1000),
                each_per_s: keys.each_per_s.unwrap_or(positive(1.0)),
                precision: keys.precision.unwrap_or(positive(0.1)),
                step_s: keys.step_s.unwrap_or(positive(2.0)),
            },
            Kind::Crash => Self::Crash {
                site: (keys.site).ok_or("measure.site: it is missing, whose broker dies")?,
                how: keys.how.unwrap_or_default(),
                before_s: keys.before_s.unwrap_or(positive(3.0)),
                after_s: keys.after_s.unwrap_or(positive(5.0)),
            },
            Kind::Arrivals => Self::Arrivals {
                publishers: keys.publishers,
                rate_per_s: keys.rate_per_s,
                heavy_rate_per_s: keys.heavy_rate_per_s,
                heavy_at: keys.heavy_at,
                types: keys.types.unwrap_or_default(),
                order: keys.order.unwrap_or_default(),
                subscribers: keys.subscribers.unwrap_or_default(),
                every_s: keys.every_s.unwrap_or(positive(5.0)),
                hold_s: match keys.hold_s.map(NonNegative::value) {
                    Some(seconds) => Positive::try_from(seconds)
                        .map_err(|reason| format!("measure.hold_s: {reason}"))?,
                    None => positive(7.0),
                },
            },
        })
    }
}

/// Publishers of one type.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Publishers {
    /// How many.
    pub count: usize,
    /// Messages a second of each.
    pub rate_per_s: Positive,
    /// Their payload (default: the workload's).
    #[serde(default)]
    pub payload_bytes: Option<usize>,
}

/// The order in which publishers of several types arrive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As the types are given.
    #[default]
    Given,
    /// Drawn by the seed.
    Random,
}

/// How a broker leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Death {
    /// SIGKILL.
    #[default]
    Kill,
    /// Its links go silent, then the process dies.
    PowerOff,
    /// It hands over its clients and sessions, then the process dies.
    Drain,
}

fn positive(value: f64) -> Positive {
    Positive::try_from(value).expect("a constant above 0")
}

impl Measure {
    pub(super) fn check(&self, names: &[String], network: &Network) -> Result<(), String> {
        match self {
            Self::Crash { site, .. } => {
                known(site, names, "measure.site")?;
                if network.later.contains(site) {
                    return Err(format!("measure.site: {site} has no broker at first"));
                }
                Ok(())
            }
            Self::MostConnections { count, .. } if *count < 2 || *count > 1_000_000 => {
                Err(format!("measure.count: {count} is not from 2 to 1,000,000"))
            }
            Self::Connections { count, .. } if *count == 0 || *count > 1_000_000 => {
                Err(format!("measure.count: {count} is not from 1 to 1,000,000"))
            }
            Self::Throughput {
                below_mean_ms: Some(_),
                tolerance_per_s,
                tolerance_percent,
                ..
            } if tolerance_per_s.is_some() || tolerance_percent.is_some() => {
                let key = if tolerance_per_s.is_some() {
                    "per_s"
                } else {
                    "percent"
                };
                Err(format!(
                    "measure.tolerance_{key}: with below_mean_ms the delay decides, not how consumption follows publication"
                ))
            }
            Self::Arrivals { hold_s, .. } if hold_s.value() < 4.0 => Err(format!(
                "measure.hold_s: {} is below 4, of which 2 are left out",
                hold_s.value()
            )),
            Self::Arrivals { subscribers, .. } if *subscribers > MOST_ARRIVING => Err(format!(
                "measure.subscribers: {subscribers} is more than {MOST_ARRIVING}"
            )),
            Self::Arrivals { .. } => self.arriving(0, 1).map(drop),
            Self::Load
            | Self::Placement
            | Self::Throughput { .. }
            | Self::Connections { .. }
            | Self::MostConnections { .. } => Ok(()),
        }
    }

    /// Each publisher that arrives, in that order; none if that is not measured. An error names the key.
    pub fn arriving(&self, payload_len: usize, seed: u64) -> Result<Vec<PublisherType>, String> {
        let Self::Arrivals {
            publishers,
            rate_per_s,
            heavy_rate_per_s,
            heavy_at,
            types,
            order,
            ..
        } = self
        else {
            return Ok(Vec::new());
        };
        let of = |count: usize, rate_per_s: f64, own: Option<usize>| PublisherType {
            count,
            rate_per_s,
            payload_len: own.unwrap_or(payload_len),
        };
        if !types.is_empty() {
            let given = [
                ("publishers", publishers.is_some()),
                ("rate_per_s", rate_per_s.is_some()),
                ("heavy_rate_per_s", heavy_rate_per_s.is_some()),
                ("heavy_at", heavy_at.is_some()),
            ];
            if let Some((key, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
                return Err(format!("measure.{key}: measure.types say who arrives"));
            }
            let all = (types.iter()).try_fold(0_usize, |sum, it| sum.checked_add(it.count));
            if all.is_none_or(|all| all == 0 || all > MOST_ARRIVING) {
                return Err(format!(
                    "measure.types: publishers are not from 1 to {MOST_ARRIVING} together"
                ));
            }
            let one = |it: &Publishers| of(it.count, it.rate_per_s.value(), it.payload_bytes);
            let types: Vec<PublisherType> = types.iter().map(one).collect();
            let order = match order {
                Order::Given => ArrivalOrder::Given,
                Order::Random => ArrivalOrder::Random,
            };
            return Ok(in_order(&types, order, seed));
        }
        if *order != Order::Given {
            return Err("measure.order: only types come in a drawn order".to_owned());
        }
        let Some(heavy_at) = *heavy_at else {
            return Err(
                "measure.heavy_at: it is missing, the place of the heavy publisher; or give types"
                    .to_owned(),
            );
        };
        let publishers = publishers.unwrap_or(ARRIVING);
        if heavy_at == 0 || heavy_at > publishers {
            return Err(format!(
                "measure.heavy_at: {heavy_at} is not from 1 to {publishers}, the number of publishers"
            ));
        }
        if publishers > MOST_ARRIVING {
            return Err(format!(
                "measure.publishers: {publishers} is more than {MOST_ARRIVING}"
            ));
        }
        let [usual, heavy] = RATES_PER_S;
        let usual = rate_per_s.map_or(usual, Positive::value);
        let heavy = heavy_rate_per_s.map_or(heavy, Positive::value);
        let mut all = vec![of(1, usual, None); publishers];
        all[heavy_at - 1] = of(1, heavy, None);
        Ok(all)
    }

    /// Whether the workload's own rate and length are used.
    #[must_use]
    pub const fn has_own_load(&self) -> bool {
        !matches!(self, Self::Load | Self::Placement)
    }

    /// Whether it works only with messages that have number and time.
    #[must_use]
    pub const fn needs_stamps(&self) -> bool {
        match self {
            Self::Crash { .. } | Self::Placement => true,
            Self::Throughput { below_mean_ms, .. } => below_mean_ms.is_some(),
            Self::Load
            | Self::Connections { .. }
            | Self::MostConnections { .. }
            | Self::Arrivals { .. } => false,
        }
    }

    /// The measurement in words; `None` for the plain load.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        match self {
            Self::Load => None,
            Self::Placement => Some(
                "messages from node to node and delay, with clients that find their nodes as each system says"
                    .to_owned(),
            ),
            Self::Throughput {
                below_mean_ms,
                tolerance_per_s,
                tolerance_percent,
                from_per_s,
                precision,
                step_s,
            } => {
                let follows = || {
                    format!(
                        "consumption follows publication within {} messages/s or {} %, and nothing is lost",
                        tolerance_per_s.map_or(TOLERANCE_PER_S, NonNegative::value),
                        tolerance_percent.map_or(TOLERANCE_PERCENT, Percent::value)
                    )
                };
                let criterion = below_mean_ms.map_or_else(follows, |ms| {
                    format!("the mean delay is below {} ms", ms.value())
                });
                Some(format!(
                    "highest rate at which {criterion}; from {} messages/s, {} s a step, to {} %",
                    from_per_s.value(),
                    step_s.value(),
                    100.0 * precision.value()
                ))
            }
            Self::Connections { count, hold_s } => Some(format!(
                "{count} idle connections, held {} s",
                hold_s.value()
            )),
            Self::MostConnections {
                count,
                each_per_s,
                precision,
                step_s,
            } => Some(format!(
                "most connections, half of them publishing {} messages/s each, at which consumption follows publication; from {count} connections, {} s with \
                 each number, to {} %",
                each_per_s.value(),
                step_s.value(),
                100.0 * precision.value()
            )),
            Self::Crash {
                site,
                how,
                before_s,
                after_s,
            } => Some(format!(
                "{} after {} s of load, {} s more after it, with clients that reconnect",
                match how {
                    Death::Kill => format!("kill the broker of {site}"),
                    Death::PowerOff => format!("power off {site}"),
                    Death::Drain => format!("drain the broker of {site} and end it"),
                },
                before_s.value(),
                after_s.value()
            )),
            Self::Arrivals {
                heavy_at,
                types,
                order,
                every_s,
                hold_s,
                subscribers,
                ..
            } => {
                let each = |it: &Publishers| format!("{} of {}", it.count, it.rate_per_s.value());
                let all = self.arriving(0, 1).unwrap_or_default();
                let rate = |at: usize| all.get(at).map_or(0.0, |it| it.rate_per_s);
                let who = match heavy_at {
                    None => {
                        let drawn = match order {
                            Order::Given => "",
                            Order::Random => " in a drawn order",
                        };
                        let types: Vec<String> = types.iter().map(each).collect();
                        format!("publishers arrive{drawn}, {} messages/s", types.join(", "))
                    }
                    Some(heavy) => format!(
                        "{} publishers of {} messages/s arrive, number {heavy} with {}",
                        all.len(),
                        rate(usize::from(*heavy == 1)),
                        rate(heavy.saturating_sub(1))
                    ),
                };
                let audience = match subscribers {
                    0 => String::new(),
                    count => format!("; {count} subscribers of everything are there before"),
                };
                Some(format!(
                    "{who}, {} s apart; {} s more after it{audience}",
                    every_s.value(),
                    hold_s.value()
                ))
            }
        }
    }
}
