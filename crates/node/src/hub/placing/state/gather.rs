//! The answers of nodes about their clients.

use std::collections::BTreeSet;

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use crate::hub::placing::rebalance::inventory::Inventory;

/// What the rebalancer waits for.
#[derive(Debug)]
pub(in crate::hub) struct Gathering {
    pub round: u64,
    pub deadline: Instant,
    pub waiting: BTreeSet<NodeId>,
    pub inventory: Inventory,
    pub trigger: &'static str,
    pub carries_out: bool,
}
