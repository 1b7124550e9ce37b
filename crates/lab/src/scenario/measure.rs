//! The measurement of each system in each cell.

use serde::{Deserialize, Serialize};

use super::network::{Network, known};
use super::units::{NonNegative, Positive};

/// Default rate of the load of a crash, in messages a second.
pub const CRASH_PER_S: f64 = 100.0;

/// The measurement of a scenario. Without one it is [`Measure::Load`].
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Measure {
    /// The load of `[workload]`, once.
    #[default]
    Load,
    /// The highest sustainable rate (Comparison M1, Detti Fig. 2 and 22); the workload's own rate is not used.
    Throughput {
        /// Sustainable means a mean delay below this; without it: consumption follows publication and nothing is lost.
        #[serde(default)]
        below_mean_ms: Option<Positive>,
        /// First rate that is tried, in messages a second of all publishers.
        #[serde(default = "first_rate")]
        from_per_s: Positive,
        /// The search ends when its bounds are this close, as a share of the lower one.
        #[serde(default = "precision")]
        precision: Positive,
        /// Seconds at each rate.
        #[serde(default = "step")]
        step_s: Positive,
    },
    /// Idle connections: how fast they are established and what each costs (Comparison M3).
    Connections {
        /// Number of connections.
        count: usize,
        /// Rest before memory is read.
        #[serde(default)]
        hold_s: NonNegative,
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
        #[serde(default)]
        how: Death,
        /// Load before the death.
        #[serde(default = "before")]
        before_s: Positive,
        /// Load after the death.
        #[serde(default = "after")]
        after_s: Positive,
    },
    /// Publishers arrive one after the other, one of them heavier than the others (Dispatcher IV). They are at the first site; how they find their
    /// broker is the system's `attach`.
    Arrivals {
        /// Publishers, the heavy one included (Dispatcher Table II: 10).
        #[serde(default = "ten")]
        publishers: usize,
        /// Messages a second of each.
        #[serde(default = "usual_rate")]
        rate_per_s: Positive,
        /// Messages a second of the heavy publisher.
        #[serde(default = "heavy_rate")]
        heavy_rate_per_s: Positive,
        /// Its place in the order of arrival, from 1.
        heavy_at: usize,
        /// Time between two arrivals.
        #[serde(default = "five")]
        every_s: Positive,
        /// Time after the last arrival; its first two seconds are not used for rates.
        #[serde(default = "seven")]
        hold_s: Positive,
    },
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

fn first_rate() -> Positive {
    positive(1000.0)
}

fn precision() -> Positive {
    positive(0.1)
}

fn step() -> Positive {
    positive(2.0)
}

fn before() -> Positive {
    positive(3.0)
}

fn after() -> Positive {
    positive(5.0)
}

const fn ten() -> usize {
    10
}

fn usual_rate() -> Positive {
    positive(2_000.0)
}

fn heavy_rate() -> Positive {
    positive(10_000.0)
}

fn five() -> Positive {
    positive(5.0)
}

fn seven() -> Positive {
    positive(7.0)
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
            Self::Connections { count, .. } if *count == 0 || *count > 1_000_000 => {
                Err(format!("measure.count: {count} is not from 1 to 1,000,000"))
            }
            Self::Arrivals {
                publishers,
                heavy_at,
                ..
            } if *heavy_at == 0 || heavy_at > publishers => Err(format!(
                "measure.heavy_at: {heavy_at} is not from 1 to {publishers}, the number of publishers"
            )),
            Self::Arrivals { hold_s, .. } if hold_s.value() < 4.0 => Err(format!(
                "measure.hold_s: {} is below 4, of which 2 are left out",
                hold_s.value()
            )),
            Self::Load
            | Self::Placement
            | Self::Throughput { .. }
            | Self::Connections { .. }
            | Self::Arrivals { .. } => Ok(()),
        }
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
            Self::Load | Self::Connections { .. } | Self::Arrivals { .. } => false,
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
                from_per_s,
                precision,
                step_s,
            } => {
                let criterion = below_mean_ms.map_or(
                    "consumption follows publication and nothing is lost".to_owned(),
                    |ms| format!("the mean delay is below {} ms", ms.value()),
                );
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
                publishers,
                rate_per_s,
                heavy_rate_per_s,
                heavy_at,
                every_s,
                hold_s,
            } => Some(format!(
                "{publishers} publishers of {} messages/s arrive {} s apart, number {heavy_at} with {}; {} s more after it",
                rate_per_s.value(),
                every_s.value(),
                heavy_rate_per_s.value(),
                hold_s.value()
            )),
        }
    }
}
