//! Barriers of workers that other nodes have not answered yet.

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::{NodeId, NodeSlot, StreamId};

use crate::WorkerId;

/// A node that asked to be informed when it has admitted what was on its way to it.
#[derive(Debug)]
pub(in crate::hub) struct Asked {
    pub by: NodeId,
    pub slot: NodeSlot,
    pub request: u64,
    /// The last number of each stream that was on its way.
    pub numbers: Vec<(StreamId, u64)>,
    /// The last serial of what was kept for it while it was down.
    pub hints: u64,
}

/// Barriers of both sides.
#[derive(Debug, Default)]
pub(in crate::hub) struct Barriers {
    pub asked: Vec<Asked>,
    pub last_request: u64,
    /// Those of workers here.
    pub open: BTreeMap<u64, Open>,
}

/// A barrier of a worker.
#[derive(Debug)]
pub(in crate::hub) struct Open {
    pub home: WorkerId,
    /// Its own number.
    pub barrier: u64,
    /// The nodes that have not answered yet.
    pub nodes: BTreeSet<NodeId>,
}
