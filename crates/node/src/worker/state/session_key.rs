//! What names a session within its worker.

/// A session of a worker: small and dense, used again after the session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::worker) struct SessionKey(pub u32);
