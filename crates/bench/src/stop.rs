//! Ending a measurement before its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::BenchError;

/// Longest time without looking whether it is set.
const LOOK: Duration = Duration::from_millis(20);

/// Whether a measurement is to end now: any holder of the flag sets it, once.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl From<Arc<AtomicBool>> for Stop {
    fn from(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }
}

impl Stop {
    /// Whether it is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if it is set.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        if self.is_set() {
            return Err(BenchError::Stopped);
        }
        Ok(())
    }

    /// Waits; an error as soon as it is set.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), BenchError> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}
