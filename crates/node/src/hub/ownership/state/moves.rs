//! Sessions on their way between nodes.

use std::{collections::BTreeMap, sync::Arc};

use thicket_overlay::NodeId;

use crate::{WorkerId, messages::Merge};

/// A session that another node was asked for.
#[derive(Debug)]
pub(in crate::hub) struct Arriving {
    pub client_id: Arc<str>,
    pub source: NodeId,
    /// `None`: it is handed over.
    pub branch: Option<Arrival>,
}

/// A branch that is merged into the session here.
#[derive(Debug)]
pub(in crate::hub) struct Arrival {
    pub home: WorkerId,
    pub merge: Merge,
    pub stage: Stage,
    /// Of the answer that is under way.
    pub parts: Vec<u8>,
}

impl Arrival {
    pub const fn new(home: WorkerId, merge: Merge) -> Self {
        Self {
            home,
            merge,
            stage: Stage::Fetching,
            parts: Vec::new(),
        }
    }
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum Kind {
    Handover,
    Branch,
}

/// The stage of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum Stage {
    Fetching,
    Importing,
    FetchingQueue,
    /// All of the branch is here. It ends when what it had is stored here, and at the backups.
    Storing,
}

/// A session on its way to another node.
#[derive(Debug)]
pub(in crate::hub) struct Leaving {
    pub client_id: Arc<str>,
    pub to: NodeId,
    /// The other node's number of the move.
    pub request: u64,
    pub home: WorkerId,
    /// The other node was sent all of it: it ends here when that one has it for sure.
    pub is_handed: bool,
}

/// Sessions on their way.
#[derive(Debug, Default)]
pub(in crate::hub) struct Moves {
    pub next_request: u64,
    pub arriving: BTreeMap<u64, Arriving>,
    pub leaving: BTreeMap<u64, Leaving>,
}
