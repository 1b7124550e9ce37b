//! What tells the load of a broker.

mod http;
mod process;
pub(crate) mod rate;
pub(crate) mod sys;

use std::fmt;
use std::time::Duration;

use rate::{Mean, Rate};

/// Between two readings of a source.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// A figure that is older is unknown.
pub(crate) const STALE: Duration = Duration::from_secs(5);

/// Where figures of a broker come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The `$SYS` topics of Mosquitto and of our nodes: messages and connections.
    Sys,
    /// A process of this host: its CPU.
    Process {
        /// Its identifier.
        pid: u32,
    },
    /// The HTTP API of a node of ours: messages, connections, CPU, and whether it is drained.
    Node {
        /// HOST:PORT.
        http: String,
    },
    /// A metric of a Prometheus endpoint; all its samples are added up.
    Metric {
        /// Of the page.
        url: String,
        /// Name of the metric. A counter is taken by its growth a second, a gauge as it is.
        name: String,
        /// What it stands for.
        figure: Figure,
    },
}

/// What a source tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Share of what the process may use.
    Cpu,
    /// A second, both ways.
    Messages,
    /// Now.
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

/// One figure as it was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Sample {
    /// It only grows; divided by `per` its growth a second is the figure.
    Counter { value: f64, per: f64 },
    /// It is the figure.
    Gauge(f64),
    /// It is the figure, and a mean of 5 s already.
    Mean(f64),
}

/// What a source told at once.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// As means of 5 s.
    pub figures: Vec<(Figure, f64)>,
    /// The broker is a node that is about to leave.
    pub is_draining: bool,
}

/// Reads a source again and again.
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
    /// A reader of anything but [`Source::Sys`], which its own connection reads.
    pub fn new(source: Source) -> Self {
        // What is near must not be looked for at a proxy from the environment.
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

    /// What it tells now. The first reading of a counter says nothing yet.
    ///
    /// # Errors
    /// In words: the source does not answer, or not what it should.
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
