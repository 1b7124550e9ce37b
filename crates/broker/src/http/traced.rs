//! Whether packets are traced: a trace ends by itself if its lines are not fetched.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A trace ends by itself if its lines are not fetched for this long.
const ABANDONED: Duration = Duration::from_secs(10);

/// The time of the last request for the lines of a trace, if one runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traced(Arc<Mutex<Option<Instant>>>);

impl Traced {
    pub(super) fn set(&self, asked: Option<Instant>) {
        *self.lock() = asked;
    }

    pub(super) fn is_running(&self) -> bool {
        self.lock().is_some()
    }

    /// Ends a trace whose lines are no longer fetched. Returns whether there was one.
    pub(super) fn end_if_abandoned(&self, now: Instant) -> bool {
        let mut asked = self.lock();
        let is_abandoned =
            asked.is_some_and(|asked| now.saturating_duration_since(asked) > ABANDONED);
        if is_abandoned {
            *asked = None;
        }
        is_abandoned
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
