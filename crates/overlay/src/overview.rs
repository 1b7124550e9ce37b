//! Trees and paths as shown to an operator.

use crate::identity::NodeId;

/// The phase that a node is in (Overlays 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlayState {
    /// Looks for other nodes; none is linked yet.
    Discovery,
    /// Other nodes are linked, but not all of their interests are known: trees may still change (the paper's OTC).
    Creation,
    /// Every reachable node is linked, and its interests are applied.
    Runtime,
}

impl OverlayState {
    /// The name for display.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discovery => "discovery",
            Self::Creation => "creation",
            Self::Runtime => "runtime",
        }
    }
}

/// A node of this one's component, from its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewNode {
    /// Its identity.
    pub node: NodeId,
    /// For display.
    pub name: String,
    /// HOST:PORT.
    pub address: String,
    /// C = alpha L + beta M (Overlays 4.2.1).
    pub capability: u64,
    /// Number of topic trees that it is the root of (R of Overlays 4.2.2).
    pub roots: u64,
    /// Clients connected to it.
    pub clients: u64,
    /// Messages per second that it originates for other nodes.
    pub rate: u64,
    /// How it routes; `None`: a mode of a later version.
    pub routing: Option<&'static str>,
    /// The next hop towards it if it has no link with this one.
    pub via: Option<NodeId>,
}

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewTree {
    /// The root.
    pub root: NodeId,
    /// Its nodes, ascending.
    pub nodes: Vec<NodeId>,
    /// Each link; the node nearer to the root first.
    pub edges: Vec<(NodeId, NodeId)>,
    /// Topics whose last publication from this node used it.
    pub topics: usize,
}

/// The view of a node and its trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// This node.
    pub own: NodeId,
    /// Its phase.
    pub state: OverlayState,
    /// How it routes.
    pub routing: &'static str,
    /// How the root is elected.
    pub root_policy: &'static str,
    /// This node's component, ascending by identity.
    pub nodes: Vec<OverviewNode>,
    /// Links that both ends list, the lower identity first, with the published RTT in tenths of a millisecond.
    pub links: Vec<(NodeId, NodeId, u32)>,
    /// The tree of all nodes.
    pub single: OverviewTree,
    /// Topic trees that this node names as an origin.
    pub trees: Vec<OverviewTree>,
    /// Topic trees known here: own ones and those of relayed batches.
    pub tree_count: usize,
    /// An estimate of their memory here, in bytes.
    pub tree_bytes: usize,
    /// Number of topics that other nodes have advertised.
    pub advertised: usize,
}

/// Where a publication goes from one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRoute {
    /// Where the message is published.
    pub from: NodeId,
    /// The tree's root; `None`: sent directly.
    pub root: Option<NodeId>,
    /// For each interested node the path to it, both ends included.
    pub paths: Vec<Vec<NodeId>>,
    /// Why this path is used, in words.
    pub why: &'static str,
}

/// Where a publication to a topic goes from each node, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The topic name.
    pub topic: String,
    /// How this node routes.
    pub routing: &'static str,
    /// Nodes with a matching interest, this one included if it has one, ascending.
    pub interested: Vec<NodeId>,
    /// Their matching filters: node and filter, shared subscriptions as `$share/group/filter`.
    pub filters: Vec<(NodeId, String)>,
    /// From every node of the component.
    pub routes: Vec<ExplainedRoute>,
    /// The publication routing table of this node: neighbours that a publication to the topic is sent to (Overlays 5.1).
    pub prt: Vec<NodeId>,
    /// The subscription routing table of this node: for each node that advertised the topic, the neighbour towards it.
    pub srt: Vec<(NodeId, NodeId)>,
}
