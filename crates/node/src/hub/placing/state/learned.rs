//! What is learned of clients that are placed.

use std::{collections::HashMap, sync::Arc};

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

/// Progress of the examination of this node's clients.
#[derive(Debug, Default)]
pub(in crate::hub) struct Learning {
    pub looked_at: Instant,
    pub is_looking: bool,
    /// Topics of filters with wildcards in this examination.
    pub wild: HashMap<Arc<str>, Topics>,
}

/// With messages a second.
pub(in crate::hub) type Topics = Vec<(String, f64)>;

/// What is to become of a client that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum Learned {
    /// Nothing was learned of it.
    Unknown,
    /// No node is better than this one.
    Here,
    /// Its topics are there.
    At(NodeId),
}
