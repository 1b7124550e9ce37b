//! What an operator sees of trees and paths.

use crate::identity::NodeId;

/// How far a node is (Overlays 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverlayState {
    /// Looks for others; none is linked yet.
    Discovery,
    /// Others are there, and not all of what they want is known: trees may still change (the paper's OTC).
    Creation,
    /// Every reachable node is linked and known.
    Runtime,
}

impl OverlayState {
    /// As shown.
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
    /// For people.
    pub name: String,
    /// HOST:PORT.
    pub address: String,
    /// C = alpha L + beta M (Overlays 4.2.1).
    pub capability: u64,
    /// Trees of topics it is the root of (R of Overlays 4.2.2).
    pub roots: u64,
    /// Clients connected to it.
    pub clients: u64,
    /// Messages per second it originates for other nodes.
    pub rate: u64,
    /// How it routes; `None`: a mode of a later version.
    pub routing: Option<&'static str>,
    /// The next node towards it if it has no link with this one.
    pub via: Option<NodeId>,
}

/// A tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverviewTree {
    /// Where its paths lead.
    pub root: NodeId,
    /// Its nodes, ascending.
    pub nodes: Vec<NodeId>,
    /// Each link: the node nearer to the root first.
    pub edges: Vec<(NodeId, NodeId)>,
    /// Topics whose last publication from this node went over it.
    pub topics: usize,
}

/// The view of a node and its trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// This node.
    pub own: NodeId,
    /// How far it is.
    pub state: OverlayState,
    /// How it routes.
    pub routing: &'static str,
    /// Who is elected.
    pub root_policy: &'static str,
    /// This node's component, ascending by identity.
    pub nodes: Vec<OverviewNode>,
    /// Links that both ends list, the lower identity first, with the published RTT in tenths of a millisecond.
    pub links: Vec<(NodeId, NodeId, u32)>,
    /// The tree of all nodes.
    pub single: OverviewTree,
    /// Trees of topics this node names as an origin.
    pub trees: Vec<OverviewTree>,
    /// Trees of topics known here: own ones and those relayed on.
    pub tree_count: usize,
    /// What they take here, about, in bytes.
    pub tree_bytes: usize,
    /// Topics with an advertisement, and the node next on the way to each publisher's node (SRT).
    pub advertised: usize,
}

/// Where a publication goes from one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRoute {
    /// Where it is published.
    pub from: NodeId,
    /// The tree's root; `None`: straight.
    pub root: Option<NodeId>,
    /// For each interested node the way to it, both ends included.
    pub paths: Vec<Vec<NodeId>>,
    /// Why this way, in words.
    pub why: &'static str,
}

/// Where a publication on a topic goes from each node, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The topic name.
    pub topic: String,
    /// How this node routes.
    pub routing: &'static str,
    /// Nodes with a matching interest, this one included if it has one, ascending.
    pub interested: Vec<NodeId>,
    /// The filters that make them so: node and filter, shared subscriptions as `$share/group/filter`.
    pub filters: Vec<(NodeId, String)>,
    /// From every node of the component.
    pub routes: Vec<ExplainedRoute>,
    /// The publication routing table of this node: neighbours a publication on the topic is sent to (Overlays 5.1).
    pub prt: Vec<NodeId>,
    /// The subscription routing table of this node: for each node that advertised the topic the neighbour towards it.
    pub srt: Vec<(NodeId, NodeId)>,
}
