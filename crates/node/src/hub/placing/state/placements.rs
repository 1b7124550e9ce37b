//! Sessions of clients that are placed, and placements under way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use thicket_overlay::NodeId;
use thicket_placement::ControlPlane;
use thicket_session::time::Instant;

use super::{kept::Kept, learned::Learning};
use crate::{Remembered, WorkerId, hub::control::PlacementOrder, messages::Claim};

/// Placements that are kept at most; their bytes are bounded as well
/// ([`crate::RedirectionConfig::placement_bytes`]).
pub(in crate::hub) const MAXIMUM: usize = 1_000_000;

/// A node's state of placements.
#[derive(Debug, Default)]
pub(in crate::hub) struct Placements {
    pub known: Kept,
    /// The strategy, with all of that for the nodes that accept clients; `None`: it was not needed
    /// since they changed.
    pub control: Option<Control>,
    /// When it was given the costs of messages between nodes.
    pub costs_at: Option<Instant>,
    pub learning: Learning,
    /// Requests of this node that the placer has not answered, by number.
    pub pending: BTreeMap<u64, Pending>,
    /// Requests that wait until the strategy has all placements: of this node, and of others if it
    /// is the placer.
    pub deferred: VecDeque<Deferred>,
    /// Nodes that are sent all placements.
    pub sending: Vec<Sending>,
    pub last_request: u64,
    /// Some of them wait until it is certain which nodes are up.
    pub are_waiting: bool,
}

impl Placements {
    /// Whether the strategy is being given the placements.
    pub fn is_loading(&self) -> bool {
        let control = self.control.as_ref();
        control.is_some_and(|control| control.loading != Loading::Done)
    }

    /// Placements that hold, or that apply when their client connects again.
    pub fn remembered(&self) -> Remembered {
        Remembered::new("placements of clients", self.known.len(), MAXIMUM)
            .with_bytes(self.known.bytes())
    }
}

/// The strategy, and what of the placements it has.
#[derive(Debug)]
pub(in crate::hub) struct Control {
    /// The nodes that accept clients.
    pub nodes: BTreeSet<u64>,
    pub strategy: ControlPlane,
    pub loading: Loading,
    /// Most bytes of placements since it began: what it has taken for them it does not give back.
    pub most_bytes: usize,
}

/// Placements go to the strategy in the order of their names, a part of them in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::hub) enum Loading {
    /// It has those until this one; none: it has none.
    After(Option<Arc<str>>),
    /// It has all.
    Done,
}

/// A request under way.
#[derive(Debug)]
pub(in crate::hub) struct Pending {
    pub asker: Asker,
    pub order: PlacementOrder,
    pub bytes: usize,
    pub deadline: Instant,
}

/// A request that waits at the placer.
#[derive(Debug)]
pub(in crate::hub) struct Deferred {
    pub from: NodeId,
    /// By its number there.
    pub request: u64,
    pub order: PlacementOrder,
    pub bytes: usize,
}

/// A node that is sent all placements.
#[derive(Debug)]
pub(in crate::hub) struct Sending {
    pub to: NodeId,
    /// It has those until this one; none: it has none.
    pub after: Option<Arc<str>>,
}

/// Who gets the answer.
#[derive(Debug)]
pub(in crate::hub) enum Asker {
    /// A caller, by its own number.
    Caller(u64),
    /// A client that connects at a worker.
    Client(WorkerId, Claim),
}
