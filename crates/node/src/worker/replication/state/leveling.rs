//! Backups that move.

use std::collections::BTreeMap;

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use crate::worker::state::session_key::SessionKey;

/// Backups that are to take the places of others.
#[derive(Debug, Default)]
pub(in super::super) struct Leveling {
    pub levelled_at: Instant,
    /// By session: its serial, and the node whose backup is to end.
    pub former: BTreeMap<SessionKey, (u64, NodeId)>,
}
