//! The client identifiers that have their sessions on this node, and on which worker.

use std::{collections::BTreeMap, sync::Arc};

use hashbrown::HashMap;
use thicket_overlay::{Incarnation, NodeId};
use thicket_session::server::Epoch;

use crate::WorkerId;

/// The place of a session of this node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub home: WorkerId,
    /// Raised by every claim in the cluster: of two nodes that both have the session the one with the higher epoch is its primary.
    pub epoch: Epoch,
    /// The home has reported that there is a session; before, a connection is on its way there.
    pub is_open: bool,
    /// Its client is connected.
    pub is_connected: bool,
}

/// The sessions of this node, and the nodes that are asked about client identifiers.
#[derive(Debug)]
pub(super) struct Directory {
    pub entries: HashMap<Arc<str>, Entry, foldhash::quality::FixedState>,
    /// This node and those that are up, ascending.
    pub reachable: Vec<NodeId>,
    /// Of the nodes that are, or were, up.
    pub incarnations: BTreeMap<NodeId, Incarnation>,
    /// Identifies that set, each node with its incarnation: nodes with equal sets agree on every registrar, and on which nodes were down meanwhile.
    pub view: u64,
    /// The rounds in which the registrars asked last.
    pub asked: BTreeMap<NodeId, u64>,
}

impl Directory {
    /// `seed` keeps clients from choosing identifiers that collide.
    pub fn new(seed: u64) -> Self {
        Self {
            entries: HashMap::with_hasher(foldhash::quality::FixedState::with_seed(seed)),
            reachable: Vec::new(),
            incarnations: BTreeMap::new(),
            view: 0,
            asked: BTreeMap::new(),
        }
    }
}
