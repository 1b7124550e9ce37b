//! Questions about rebalancing that wait for an answer.

use std::collections::BTreeMap;

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use crate::{RebalanceError, RebalanceReport, RebalanceWish};

/// What was asked of this node, and of this node as the rebalancer.
#[derive(Debug, Default)]
pub(in crate::hub) struct Asks {
    pub last: u64,
    /// By number; `None`: not answered yet.
    pub own: BTreeMap<u64, Own>,
    /// Who gets the plan that is being made: a node with the number it gave.
    pub waiting: Vec<(NodeId, u64)>,
}

#[derive(Debug)]
pub(in crate::hub) struct Own {
    pub until: Instant,
    pub wish: RebalanceWish,
    pub answer: Option<Answer>,
}

pub(in crate::hub) type Answer = Result<RebalanceReport, RebalanceError>;
