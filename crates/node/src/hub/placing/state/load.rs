//! Loads of nodes, as announced.

use std::{collections::BTreeMap, sync::Arc};

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use crate::{ClientAddress, NodeLoad, NodeState, hub::control::Message};

/// The loads of all nodes.
#[derive(Debug, Default)]
pub(in crate::hub) struct Loads {
    pub own: NodeState,
    /// As last sent to the other nodes.
    pub announced: NodeLoad,
    pub announced_at: Option<Instant>,
    /// Of the nodes that are up and have sent it.
    pub others: BTreeMap<NodeId, NodeState>,
}

impl Loads {
    pub fn new(addresses: Vec<ClientAddress>, http_address: Option<Arc<str>>) -> Self {
        let load = NodeLoad {
            is_starting: true,
            ..NodeLoad::default()
        };
        Self {
            own: NodeState {
                load,
                addresses,
                http_address,
            },
            announced: load,
            ..Self::default()
        }
    }

    pub const fn own(&self) -> &NodeState {
        &self.own
    }

    /// `None`: not received, or the node is not up.
    pub fn of(&self, node: NodeId) -> Option<&NodeState> {
        self.others.get(&node)
    }

    /// What this node announces to the others.
    pub fn announcement(&self) -> Message<'static> {
        Message::State(NodeState {
            load: self.announced,
            ..self.own.clone()
        })
    }

    pub fn others(&self) -> impl Iterator<Item = (NodeId, &NodeState)> {
        self.others.iter().map(|(node, state)| (*node, state))
    }
}
