//! Routing of messages: pure functions of the view. Every node with the same records computes the same trees.

mod election;
mod mode;
mod topology;
mod tree;

pub use election::{RootPolicy, RootWeights, elect};
pub use mode::RoutingMode;
pub(crate) use topology::HOP_COST;
pub use topology::{ListedLink, Topology, TopologyNode};
pub use tree::Tree;
