//! How many clients may watch the cluster at a time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Limits how many clients watch at a time: fewer than may connect, so that probes and monitoring always can.
#[derive(Debug, Clone)]
pub(crate) struct Watchers(Arc<Semaphore>);

impl Watchers {
    /// `connections`: limit of the API.
    pub(crate) fn new(connections: u32) -> Self {
        let most = usize::try_from(connections / 4).unwrap_or(1).max(1);
        Self(Arc::new(Semaphore::new(most)))
    }
    /// A place, taken until it is dropped; `None`: as many watch as may.
    pub(super) fn seat(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}
