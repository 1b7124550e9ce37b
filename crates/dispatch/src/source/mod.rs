//! Sources of a broker's load.

mod http;
mod process;
pub(crate) mod rate;
pub(crate) mod sys;

use std::fmt;
use std::time::Duration;

use rate::{Mean, Rate};

/// Time between two readings of a source.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// An older figure is unknown.
pub(crate) const STALE: Duration = Duration::from_secs(5);

/// A source of figures of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The `$SYS` topics of Mosquitto and of Thicket nodes: messages and connections.
    Sys,
    /// A process on this host: its CPU.
    Process {
        /// Its identifier.
        pid: u32,
    },
    /// The HTTP API of a Thicket node: messages, connections, CPU, and whether it is draining.
    Node {
        /// HOST:PORT.
        http: String,
    },
    /// A metric of a Prometheus endpoint; the sum of all its samples.
    Metric {
        /// URL of the page.
        url: String,
        /// Name of the metric. Of a counter its growth a second is the figure, of a gauge its value.
        name: String,
        /// The figure that it gives.
        figure: Figure,
    },
}

/// A figure of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Share of what the process may use.
    Cpu,
    /// Messages a second, in both directions.
    Messages,
    /// Current connections.
    Connections,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sys => write!(f, "sys"),
            Self::Process { pid } => write!(f, "pid={pid}"),
            Self::Node { http } => write!(f, "nodes={http}"),
            Self::Metric { url, name, figure } => {
                let key = match figure {
                    Figure::Cpu => "metrics",
                    Figure::Messages => "messages",
                    Figure::Connections => "connections",
                };
                write!(f, "{key}={url}#{name}")
            }
        }
    }
}

/// One reading of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sample {
    /// A counter; the figure is its growth a second, divided by `per`.
    Counter { value: f64, per: f64 },
    /// The figure.
    Gauge(f64),
    /// The figure, already a mean of 5 s.
    Mean(f64),
}

/// One reading of a source.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Means of 5 s.
    pub figures: Vec<(Figure, f64)>,
    /// The broker is a draining node.
    pub is_draining: bool,
}

/// Reads a source repeatedly.
#[derive(Debug)]
pub(crate) struct Reader {
    source: Source,
    agent: ureq::Agent,
    means: [Kept; 3],
}

#[derive(Debug, Default)]
struct Kept {
    rate: Rate,
    mean: Mean,
}

impl Reader {
    /// A reader of any source but [`Source::Sys`], which has a connection of its own.
    pub fn new(source: Source) -> Self {
        // Nearby sources must not be requested through a proxy from the environment.
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(2 * EVERY))
            .proxy(None)
            .build();
        Self {
            source,
            agent: config.into(),
            means: Default::default(),
        }
    }

    /// The current figures. The first reading of a counter gives none.
    ///
    /// # Errors
    /// The reason, in words: the source does not answer, or its answer is not valid.
    pub fn read(&mut self, now_s: f64) -> Result<Reading, String> {
        let (samples, is_draining) = match &self.source {
            Source::Sys => (Vec::new(), false),
            Source::Process { pid } => (vec![(Figure::Cpu, process::cpu(*pid)?)], false),
            Source::Node { http } => http::node(&self.agent, http)?,
            Source::Metric { url, name, figure } => {
                let sample = http::metric(&self.agent, url, name)?;
                (vec![(*figure, sample)], false)
            }
        };
        let mut figures = Vec::new();
        for (figure, sample) in samples {
            let kept = &mut self.means[figure as usize];
            let value = match sample {
                Sample::Counter { value, per } => {
                    kept.rate.push(now_s, value);
                    kept.rate.a_second().map(|rate| rate / per)
                }
                Sample::Gauge(value) if figure == Figure::Cpu => {
                    kept.mean.push(now_s, value);
                    kept.mean.value()
                }
                Sample::Gauge(value) | Sample::Mean(value) => Some(value),
            };
            figures.extend(value.map(|value| (figure, value)));
        }
        Ok(Reading {
            figures,
            is_draining,
        })
    }
}
