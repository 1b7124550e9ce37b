//! The view of the cluster, interests, forwarding and its acknowledgements.

/// A node's identity: random, stable, not tied to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

/// Higher at every start of a node, never repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(pub u64);

/// What the cluster side of a node is told at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayConfig {
    /// This node.
    pub node: NodeId,
    /// Of this start.
    pub incarnation: Incarnation,
    /// For people.
    pub name: String,
    /// Nodes of another cluster are refused.
    pub cluster_name: String,
    /// HOST:PORT where other nodes reach this one.
    pub address: String,
    /// Shared secret of the cluster; `None`: links are not authenticated.
    pub secret: Option<Vec<u8>>,
}
