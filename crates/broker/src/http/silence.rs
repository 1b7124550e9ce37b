//! The time limit for answers of the threads of the node, and the error where one exceeds it.

use std::time::Duration;

/// A thread that takes longer than this has a problem.
pub(super) const TIMEOUT: Duration = Duration::from_secs(5);

/// A thread of the node did not answer. Nothing was changed; ask again later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("thread {thread} of the node did not answer within {} seconds", TIMEOUT.as_secs())]
pub(crate) struct Silence {
    pub(super) thread: usize,
}
