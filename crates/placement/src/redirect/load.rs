//! The load of a broker, and what of it counts.

use std::str::FromStr;

use crate::ParameterError;

/// The load of a broker. `None` is unknown, which is not zero.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// CPU of the process, a mean of 5 s (Dispatcher III); a share of what it may use, so 1 is all of it.
    pub cpu: Option<f64>,
    /// Messages a second, received and sent.
    pub messages_per_s: Option<f64>,
    /// Clients connected.
    pub connections: Option<f64>,
}

/// Whether a broker accepts clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// It does.
    Serving,
    /// It is about to leave.
    Draining,
    /// It refuses more.
    Full,
    /// It does not answer.
    Down,
}

/// What of a load counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// CPU (the paper's).
    Cpu,
    /// Messages a second.
    Messages,
    /// Clients connected.
    Connections,
    /// All three, each as a multiple of its mean over the brokers.
    ///
    /// Messages count most: they show what a client adds soonest and with least noise. CPU shows what that costs on this very
    /// machine. Connections decide where there is little of both.
    #[default]
    Combined,
}

/// The three figures of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Figure {
    Cpu,
    Messages,
    Connections,
}

impl Figure {
    pub(super) const ALL: [Self; 3] = [Self::Cpu, Self::Messages, Self::Connections];

    /// A mean below this is hardly any load: differences count less and less.
    pub(super) const fn floor(self) -> f64 {
        match self {
            Self::Cpu => 0.02,
            Self::Messages => 100.0,
            Self::Connections => 0.0,
        }
    }

    /// A figure that is no number of at least 0 is ignored.
    pub(super) fn of(self, load: &Load) -> Option<f64> {
        let value = match self {
            Self::Cpu => load.cpu,
            Self::Messages => load.messages_per_s,
            Self::Connections => load.connections,
        };
        value.filter(|value| value.is_finite() && *value >= 0.0)
    }
}

impl Policy {
    /// How much of each figure counts: CPU, messages, connections, in the order of `Figure::ALL`.
    pub(super) const fn weights(self) -> [f64; 3] {
        match self {
            Self::Cpu => [1.0, 0.0, 0.0],
            Self::Messages => [0.0, 1.0, 0.0],
            Self::Connections => [0.0, 0.0, 1.0],
            Self::Combined => [0.25, 0.7, 0.05],
        }
    }

    /// Its name, as `from_str` reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Messages => "messages",
            Self::Connections => "connections",
            Self::Combined => "combined",
        }
    }
}

impl FromStr for Policy {
    type Err = ParameterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Cpu, Self::Messages, Self::Connections, Self::Combined]
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| {
                let rule = "must be cpu, messages, connections or combined";
                ParameterError::new("policy", rule, text)
            })
    }
}
