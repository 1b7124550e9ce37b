//! Replication records that have not arrived completely, and promotions under way.

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::NodeId;

use crate::WorkerId;

/// The hub's state of backups.
#[derive(Debug, Default)]
pub(in crate::hub) struct Replication {
    /// Parts of a record that has not arrived completely, by primary.
    pub parts: BTreeMap<(NodeId, u8), Vec<u8>>,
    /// Nodes that are down, with the workers that have not reported their promotions as complete.
    pub promoting: BTreeMap<NodeId, BTreeSet<WorkerId>>,
}
