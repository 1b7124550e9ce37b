//! Progress of a drain.

use std::collections::BTreeSet;

use crate::ConnectionId;

/// How far the drain is.
#[derive(Debug, Default)]
pub(in crate::worker) struct Drain {
    /// The number of sessions that go in one step; `None`: the node is not drained.
    pub step: Option<usize>,
    /// Clients are sent to one node after the other.
    pub next: usize,
    /// Connections, with their serials, that are not read any more since an earlier step: all that was read before is handled.
    pub stopped: BTreeSet<(ConnectionId, u64)>,
}
