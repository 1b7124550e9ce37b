//! Whether this node's side of the cluster has quorum (rule 19 between nodes).
//!
//! | state | event | next |
//! | --- | --- | --- |
//! | starting | clients may be accepted | serving or minority |
//! | serving | a node is down, more than half are left | unsure: what follows from it waits |
//! | serving, unsure | not more than half are left, or more members become known, or others still reach one that is down | minority; what waited follows |
//! | unsure | more than half sent something since, and have no link to those that are down either | serving; what waited follows |
//! | unsure | one that was down is back, and more than half have been up all the time and sent something since | serving; what waited follows, but for failover |
//! | unsure | those that have been up all the time are not more than half | minority; what waited follows |
//! | minority | more than half are up, with all nodes that they reach, and their interests are applied | serving |
//!
//! Two nodes without a path to each other, not even over nodes that reach both, would each count more than half: neither serves.
//!
//! In a minority backups are not promoted, and what was to be acknowledged when a node became unreachable is refused.
//!
//! Nodes that are cut off together become unreachable one after the other. Until the rest has sent something, no node may act as if only one node
//! were down: acknowledgements that waited for it alone would leave, and backups of its sessions would be promoted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thicket_overlay::{Incarnation, NodeId, NodeSlot, Output};
use thicket_session::time::Instant;

/// The state of the table above.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Starting,
    Serving,
    Unsure {
        since: Instant,
        /// Outputs of the overlay since then.
        waiting: VecDeque<Output>,
        /// Nodes that went down, whose consequences wait.
        gone: BTreeSet<NodeSlot>,
        /// Those of them that are back.
        back: BTreeSet<NodeSlot>,
    },
    Minority,
}

/// Whether this side has quorum, and what waits until it does.
#[derive(Debug, Default)]
pub(super) struct Quorum {
    pub state: State,
    /// Nodes that went down while this side had no quorum, whose sessions were not promoted here.
    pub away: BTreeMap<NodeId, Option<Incarnation>>,
    /// Nodes that went down and were back before anything followed from it: they still have their sessions.
    pub returned: BTreeSet<NodeId>,
}

/// Nodes that have come up and have not been sent the members.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    pub slots: BTreeSet<NodeSlot>,
    /// Since when members wait to be sent, to these or to others.
    pub since: Option<Instant>,
}

impl Newcomers {
    pub fn insert(&mut self, slot: NodeSlot) {
        self.slots.insert(slot);
    }
}

impl Quorum {
    pub const fn is_minority(&self) -> bool {
        matches!(self.state, State::Minority)
    }

    /// Whether the consequences of this node's going down wait. Nothing is sent to it meanwhile, even if it is back: that would be based on a state
    /// that no longer holds.
    pub fn is_gone(&self, slot: NodeSlot) -> bool {
        match &self.state {
            State::Unsure { gone, .. } => gone.contains(&slot),
            State::Starting | State::Serving | State::Minority => false,
        }
    }

    /// Whether nodes may be down without any consequence yet.
    pub const fn is_unsure(&self) -> bool {
        matches!(self.state, State::Unsure { .. })
    }

    /// Whether sessions of other nodes may still be promoted here.
    pub fn has_away(&self) -> bool {
        !self.away.is_empty()
    }
}
