//! Nonces and jitter, all from one seed.

use std::time::Duration;

use crate::rendezvous::mix;

/// SplitMix64: good enough for jitter and for nonces that prove nothing.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub(crate) const fn next(&mut self) -> u64 {
        let value = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        value
    }

    /// `duration`, a quarter shorter to a quarter longer.
    pub(crate) fn jitter(&mut self, duration: Duration) -> Duration {
        let thousandths = 750 + self.next() % 501;
        duration.mul_f64(thousandths as f64 / 1000.0)
    }
}
