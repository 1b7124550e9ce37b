//! The cluster as a graph: nodes with what elections look at, and the links that both ends list, with their cost.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::identity::NodeId;

/// One hop costs a millisecond beside its RTT: what a node takes to pass a batch on, and more than RTTs flicker on a LAN.
pub(crate) const HOP_COST: u32 = 10;

/// What elections and paths know of a node: from its record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologyNode {
    /// Its identity.
    pub node: NodeId,
    /// For people.
    pub name: String,
    /// HOST:PORT; ties go to the lowest.
    pub address: String,
    /// C = alpha L + beta M (Overlays 4.2.1).
    pub capability: u64,
    /// Trees it is the root of (R of Overlays 4.2.2).
    pub roots: u64,
    /// Clients connected to it (C of Overlays 4.2.2).
    pub clients: u64,
    /// Messages per second it originates for other nodes.
    pub rate: u64,
    /// The nodes it says it has a link with, and the RTT in tenths of a millisecond; ascending, each once.
    pub links: Vec<(NodeId, u32)>,
}

/// Nodes ascending by identity, and their links. What a copy has in common with another one is there once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    nodes: Vec<Arc<TopologyNode>>,
    /// By node: index and cost of each neighbour, ascending.
    edges: Arc<Vec<Vec<(usize, u32)>>>,
    /// By node: its place in the order of addresses.
    ranks: Arc<Vec<usize>>,
}

impl Topology {
    /// A link exists if both ends list it (rule 1); it costs what the slower measurement says.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = TopologyNode>) -> Self {
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        nodes.sort_unstable_by_key(|node| node.node);
        nodes.dedup_by_key(|node| node.node);
        nodes.iter_mut().for_each(|node| node.links.sort_unstable());
        let find = |wanted: NodeId| nodes.binary_search_by_key(&wanted, |node| node.node).ok();
        let edges = nodes
            .iter()
            .map(|node: &TopologyNode| {
                let edge = |&(other, rtt): &(NodeId, u32)| {
                    let index = find(other).filter(|_| other != node.node)?;
                    let links = &nodes[index].links;
                    let at = links.binary_search_by_key(&node.node, |(to, _)| *to).ok()?;
                    let (_, back) = links[at];
                    Some((index, rtt.max(back).saturating_add(HOP_COST)))
                };
                node.links.iter().filter_map(edge).collect()
            })
            .collect();
        let edges = Arc::new(edges);
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.sort_by_cached_key(|index| address_order(&nodes[*index]));
        let mut ranks = vec![0; nodes.len()];
        for (rank, index) in order.into_iter().enumerate() {
            ranks[index] = rank;
        }
        Self {
            nodes: nodes.into_iter().map(Arc::new).collect(),
            edges,
            ranks: Arc::new(ranks),
        }
    }

    /// The same links with what `nodes` say otherwise of nodes that are there: capability, roots, clients and rate.
    #[must_use]
    pub(crate) fn with_numbers(&self, nodes: impl IntoIterator<Item = TopologyNode>) -> Self {
        let mut topology = self.clone();
        for node in nodes {
            if let Some(index) = self.index(node.node) {
                let before = &self.nodes[index];
                let (name, address) = (before.name.clone(), before.address.clone());
                let links = before.links.clone();
                topology.nodes[index] = Arc::new(TopologyNode {
                    name,
                    address,
                    links,
                    ..node
                });
            }
        }
        topology
    }

    /// The part that `of` reaches, itself included; empty if it is not there.
    #[must_use]
    pub fn component(&self, of: NodeId) -> Self {
        let mut is_reached = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = self.index(of).into_iter().collect();
        let mut count = open.len();
        open.iter().for_each(|index| is_reached[*index] = true);
        while let Some(index) = open.pop() {
            for (next, _) in &self.edges[index] {
                if !std::mem::replace(&mut is_reached[*next], true) {
                    count += 1;
                    open.push(*next);
                }
            }
            if count == self.nodes.len() {
                return self.clone();
            }
        }
        let reached = self.nodes.iter().zip(is_reached).filter(|(_, is)| *is);
        Self::new(reached.map(|(node, _)| TopologyNode::clone(node)))
    }

    /// Whether the nodes, their order of addresses and the links with their costs are those of `other`.
    pub(crate) fn has_same_links(&self, other: &Self) -> bool {
        let is_same =
            |(one, other): (&Arc<TopologyNode>, &Arc<TopologyNode>)| one.node == other.node;
        self.nodes.len() == other.nodes.len()
            && self.edges == other.edges
            && self.ranks == other.ranks
            && self.nodes.iter().zip(&other.nodes).all(is_same)
    }

    /// Ascending by identity.
    #[must_use]
    pub fn nodes(&self) -> &[Arc<TopologyNode>] {
        &self.nodes
    }

    /// The node, if it is there.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&TopologyNode> {
        self.nodes.get(self.index(node)?).map(Arc::as_ref)
    }

    /// Whether the node is there.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.index(node).is_some()
    }

    /// What the link between two nodes costs, in tenths of a millisecond, a millisecond for the hop included; `None` without a link.
    #[must_use]
    pub fn link(&self, a: NodeId, b: NodeId) -> Option<u32> {
        let (a, b) = (self.index(a)?, self.index(b)?);
        let at = self.edges[a]
            .binary_search_by_key(&b, |(index, _)| *index)
            .ok()?;
        Some(self.edges[a][at].1)
    }

    /// Every link once: the lower identity first, and its cost.
    pub fn links(&self) -> impl Iterator<Item = (NodeId, NodeId, u32)> + '_ {
        self.edges.iter().enumerate().flat_map(move |(a, edges)| {
            let later = edges.iter().filter(move |(b, _)| a < *b);
            later.map(move |(b, cost)| (self.nodes[a].node, self.nodes[*b].node, *cost))
        })
    }

    pub(crate) fn index(&self, node: NodeId) -> Option<usize> {
        self.nodes
            .binary_search_by_key(&node, |known| known.node)
            .ok()
    }

    pub(crate) fn edges(&self, index: usize) -> &[(usize, u32)] {
        self.edges.get(index).map_or(&[], Vec::as_slice)
    }

    /// Lower for a lower address. Ties go to the lowest (Overlays 4.2.1).
    pub(crate) fn rank(&self, index: usize) -> usize {
        self.ranks[index]
    }
}

/// Addresses by number where they are numbers, names after them; equal ones by identity.
fn address_order(node: &TopologyNode) -> (Option<SocketAddr>, String, NodeId) {
    let numeric: Option<SocketAddr> = node.address.parse().ok();
    let name = if numeric.is_some() {
        String::new()
    } else {
        format!("~{}", node.address)
    };
    // `None` sorts first, names shall be last: an address above all others stands for it.
    let last = SocketAddr::from(([u16::MAX; 8], u16::MAX));
    (Some(numeric.unwrap_or(last)), name, node.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64, address: &str, links: &[(u64, u32)]) -> TopologyNode {
        TopologyNode {
            node: NodeId(id),
            address: address.into(),
            links: links.iter().map(|(to, rtt)| (NodeId(*to), *rtt)).collect(),
            ..TopologyNode::default()
        }
    }

    #[test]
    fn a_link_exists_if_both_ends_list_it_and_costs_what_the_slower_end_says() {
        let topology = Topology::new([
            node(1, "a:1", &[(2, 10), (3, 5), (9, 1)]),
            node(2, "b:1", &[(1, 14)]),
            node(3, "c:1", &[]),
            node(4, "d:1", &[]),
        ]);
        assert_eq!(topology.link(NodeId(1), NodeId(2)), Some(24));
        assert_eq!(topology.link(NodeId(2), NodeId(1)), Some(24));
        assert_eq!(
            topology.link(NodeId(1), NodeId(3)),
            None,
            "3 does not list it"
        );
        let component = topology.component(NodeId(2));
        let nodes: Vec<_> = component.nodes().iter().map(|node| node.node.0).collect();
        assert_eq!(nodes, [1, 2]);
        assert_eq!(component.links().count(), 1);
    }

    #[test]
    fn addresses_are_ordered_by_number_and_names_come_last() {
        let addresses = [
            "10.0.0.10:1",
            "north:1",
            "10.0.0.9:1",
            "10.0.0.9:2",
            "alpha:1",
        ];
        let topology = Topology::new(
            addresses
                .iter()
                .enumerate()
                .map(|(id, address)| node(id as u64, address, &[])),
        );
        let ranks: Vec<_> = (0..addresses.len())
            .map(|index| topology.rank(index))
            .collect();
        assert_eq!(ranks, [2, 4, 0, 1, 3]);
    }
}
