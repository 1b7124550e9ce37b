//! How far a node has come with its start.

use std::collections::BTreeSet;

use thicket_session::time::Instant;

use crate::WorkerId;

/// How far this node has come with its start.
#[derive(Debug, Default)]
pub(in crate::hub) struct Start {
    /// Workers that have not reported yet what they have recovered.
    pub recovering: BTreeSet<WorkerId>,
    /// Addresses that are dialled when all have.
    pub dials: Vec<String>,
    /// When discovery has had its time; `None`: it has not begun.
    pub discovered_at: Option<Instant>,
    /// It waits for the other members since then.
    pub is_waiting: bool,
}
