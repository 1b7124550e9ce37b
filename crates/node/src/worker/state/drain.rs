//! Progress of a drain.

/// How far the drain is.
#[derive(Debug, Default)]
pub(in crate::worker) struct Drain {
    /// The number of sessions that go in one step; `None`: the node is not drained.
    pub step: Option<usize>,
    /// Clients are sent to one node after the other.
    pub next: usize,
}
