//! Sessions of clients that are placed, and placements under way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use thicket_placement::{ControlPlane, Placement};
use thicket_session::time::Instant;

use super::learned::Learning;
use crate::{
    Now, Remembered, WorkerId,
    hub::control::{Follows, PlacementOrder},
    messages::Claim,
};

/// Placements that are kept at most.
pub(in crate::hub) const MAXIMUM: usize = 1_000_000;

/// A node's state of placements.
#[derive(Debug, Default)]
pub(in crate::hub) struct Placements {
    pub known: BTreeMap<Arc<str>, Known>,
    /// All of that for the nodes that accept clients; `None`: it was not needed since they changed.
    pub control: Option<(BTreeSet<u64>, ControlPlane)>,
    /// When it was given the costs of messages between nodes.
    pub costs_at: Option<Instant>,
    pub learning: Learning,
    /// Requests of this node that the placer has not answered, by number.
    pub pending: BTreeMap<u64, Pending>,
    pub last_request: u64,
    /// Some of them wait until it is certain which nodes are up.
    pub are_waiting: bool,
}

impl Placements {
    /// Placements that hold, or that apply when their client connects again.
    pub fn remembered(&self) -> Remembered {
        Remembered::new("placements of clients", self.known.len(), MAXIMUM)
    }
}

/// A placement.
#[derive(Debug)]
pub(in crate::hub) struct Known {
    pub placement: Placement,
    pub until: Instant,
    pub follows: Follows,
    /// Sessions that its client asked for; 0: unknown.
    pub max_sessions: u8,
    /// When its client was refused first since it was served last.
    pub refused_since: Option<Instant>,
}

impl Known {
    /// Its client asked for it, and it holds.
    pub fn is_asked(&self, now: Now) -> bool {
        self.until > now.instant && !self.follows.is_learned()
    }
}

/// A request under way.
#[derive(Debug)]
pub(in crate::hub) struct Pending {
    pub asker: Asker,
    pub order: PlacementOrder,
    pub deadline: Instant,
}

/// Who gets the answer.
#[derive(Debug)]
pub(in crate::hub) enum Asker {
    /// A caller, by its own number.
    Caller(u64),
    /// A client that connects at a worker.
    Client(WorkerId, Claim),
}
