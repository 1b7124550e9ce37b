//! Lengths of the phases of a run.

use serde::{Deserialize, Serialize};

use crate::units::NonNegative;

/// Lengths of the phases of a run, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Phases {
    /// Brokers without clients: their control traffic.
    pub control_s: NonNegative,
    /// Rest before the control phase, and after the last SUBACK as part of the phase of subscriptions.
    pub settle_s: NonNegative,
    /// Longest wait for messages in transit at the end.
    pub drain_s: NonNegative,
}

impl Default for Phases {
    fn default() -> Self {
        let seconds = |value| NonNegative::try_from(value).expect("not negative");
        Self {
            control_s: seconds(1.0),
            settle_s: seconds(1.0),
            drain_s: seconds(5.0),
        }
    }
}
