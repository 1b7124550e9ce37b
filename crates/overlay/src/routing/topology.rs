//! The cluster as a graph: nodes with the values that elections use, and the links that both ends list, with their cost.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::identity::NodeId;

/// One hop costs a millisecond in addition to its RTT: the time a node takes to pass a batch on, and more than RTTs vary on a LAN.
pub(crate) const HOP_COST: u32 = 10;

/// A link as the record of one of its ends lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ListedLink {
    /// The node at the other end.
    pub node: NodeId,
    /// Quantised RTT in tenths of a millisecond.
    pub rtt: u32,
    /// How often a link with that node came up: what was sent on the previous one may be lost.
    pub epoch: u32,
}

impl ListedLink {
    /// The first link with a node.
    #[must_use]
    pub const fn first(node: NodeId, rtt: u32) -> Self {
        let epoch = 1;
        Self { node, rtt, epoch }
    }
}

/// The values of a node that elections and paths use, from its record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopologyNode {
    /// Its identity.
    pub node: NodeId,
    /// For display.
    pub name: String,
    /// HOST:PORT; ties go to the lowest.
    pub address: String,
    /// C = alpha L + beta M (Overlays 4.2.1).
    pub capability: u64,
    /// Number of trees that it is the root of (R of Overlays 4.2.2).
    pub roots: u64,
    /// Clients connected to it (C of Overlays 4.2.2).
    pub clients: u64,
    /// Messages per second it originates for other nodes.
    pub rate: u64,
    /// The links that it lists: ascending by node, one for each.
    pub links: Arc<[ListedLink]>,
}

/// Nodes ascending by identity, and their links. Clones share what is equal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    nodes: Vec<Arc<TopologyNode>>,
    /// By node: index and cost of each neighbour, ascending.
    edges: Vec<Arc<Vec<(u32, u32)>>>,
    /// By node: its rank in the order of addresses.
    ranks: Arc<Vec<usize>>,
}

impl Topology {
    /// A link exists if both ends list it (rule 1); its cost is the slower of the two measurements.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = TopologyNode>) -> Self {
        let mut nodes: Vec<_> = nodes.into_iter().collect();
        nodes.sort_unstable_by_key(|node| node.node);
        nodes.dedup_by_key(|node| node.node);
        for node in &mut nodes {
            if !node.links.is_sorted() {
                Arc::make_mut(&mut node.links).sort_unstable();
            }
        }
        let nodes: Vec<_> = nodes.into_iter().map(Arc::new).collect();
        let mut topology = Self {
            edges: vec![Arc::default(); nodes.len()],
            ranks: Arc::default(),
            nodes,
        };
        for index in 0..topology.nodes.len() {
            let links = topology.nodes[index].links.iter();
            let edge = |link: &ListedLink| {
                let to = topology.index(link.node)?;
                Some((to as u32, topology.find_cost(index, to)?))
            };
            topology.edges[index] = Arc::new(links.filter_map(edge).collect());
        }
        topology.rank_addresses();
        topology
    }

    /// Replaces the values of a node; its links must be ascending. The cost is proportional to the changes, except for a new node.
    pub(crate) fn set(&mut self, node: TopologyNode) {
        let at = self.nodes.partition_point(|known| known.node < node.node);
        let is_there = self.nodes.get(at).is_some_and(|it| it.node == node.node);
        if !is_there {
            self.make_place(at, node.node);
        }
        let before = std::mem::replace(&mut self.nodes[at], Arc::new(node));
        if !is_there || before.address != self.nodes[at].address {
            self.rank_addresses();
        }
        let after = Arc::clone(&self.nodes[at]);
        for other in changed_links(&before.links, &after.links) {
            self.set_edges(at, other);
        }
    }

    /// Removes a node.
    pub(crate) fn remove(&mut self, node: NodeId) {
        let Some(at) = self.index(node) else {
            return;
        };
        self.nodes.remove(at);
        self.edges.remove(at);
        for row in &mut self.edges {
            let row = Arc::make_mut(row);
            row.retain(|(index, _)| *index != at as u32);
            row.iter_mut()
                .for_each(|(index, _)| *index -= u32::from(*index > at as u32));
        }
        self.rank_addresses();
    }

    /// Inserts a node without links.
    fn make_place(&mut self, at: usize, node: NodeId) {
        let empty = TopologyNode {
            node,
            ..TopologyNode::default()
        };
        self.nodes.insert(at, Arc::new(empty));
        for row in &mut self.edges {
            // Rows ascend.
            let later = row.partition_point(|(index, _)| *index < at as u32);
            if later < row.len() {
                let later = &mut Arc::make_mut(row)[later..];
                later.iter_mut().for_each(|(index, _)| *index += 1);
            }
        }
        self.edges.insert(at, Arc::default());
    }

    /// Updates the link between two nodes to what both list now.
    fn set_edges(&mut self, a: usize, other: NodeId) {
        let Some(b) = self.index(other).filter(|b| *b != a) else {
            return;
        };
        let cost = self.find_cost(a, b);
        for (from, to) in [(a, b as u32), (b, a as u32)] {
            let at = self.edges[from].binary_search_by_key(&to, |(index, _)| *index);
            match (at, cost) {
                (Err(_), None) => {}
                (Ok(at), None) => {
                    Arc::make_mut(&mut self.edges[from]).remove(at);
                }
                (Ok(at), Some(cost)) => Arc::make_mut(&mut self.edges[from])[at].1 = cost,
                (Err(at), Some(cost)) => {
                    Arc::make_mut(&mut self.edges[from]).insert(at, (to, cost));
                }
            }
        }
    }

    /// The cost of the link between two nodes; `None` unless both list it.
    fn find_cost(&self, a: usize, b: usize) -> Option<u32> {
        let rtt = |from: usize, to: usize| {
            let links = &self.nodes[from].links;
            let to = self.nodes[to].node;
            let at = links.binary_search_by_key(&to, |link| link.node).ok()?;
            Some(links[at].rtt)
        };
        if a == b {
            return None;
        }
        Some(rtt(a, b)?.max(rtt(b, a)?).saturating_add(HOP_COST))
    }

    fn rank_addresses(&mut self) {
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_cached_key(|index| address_order(&self.nodes[*index]));
        let mut ranks = vec![0; order.len()];
        for (rank, index) in order.into_iter().enumerate() {
            ranks[index] = rank;
        }
        self.ranks = Arc::new(ranks);
    }

    /// The part that is reachable from `of`, itself included; empty if it is not there.
    #[must_use]
    pub fn component(&self, of: NodeId) -> Self {
        let mut is_reached = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = self.index(of).into_iter().collect();
        let mut count = open.len();
        open.iter().for_each(|index| is_reached[*index] = true);
        while let Some(index) = open.pop() {
            for (next, _) in self.edges[index].iter() {
                let next = *next as usize;
                if !std::mem::replace(&mut is_reached[next], true) {
                    count += 1;
                    open.push(next);
                }
            }
            if count == self.nodes.len() {
                return self.clone();
            }
        }
        self.part(&is_reached)
    }

    /// The nodes for which `is_in` holds; they must have no neighbours outside the part.
    fn part(&self, is_in: &[bool]) -> Self {
        let mut places = Vec::with_capacity(is_in.len());
        let mut count = 0;
        for is_in in is_in {
            places.push(count);
            count += u32::from(*is_in);
        }
        let kept = (0..is_in.len()).filter(|index| is_in[*index]);
        let row = |index: usize| {
            let edges = self.edges[index].iter();
            Arc::new(
                edges
                    .map(|(to, cost)| (places[*to as usize], *cost))
                    .collect(),
            )
        };
        let mut ranks: Vec<usize> = kept.clone().map(|index| self.ranks[index]).collect();
        let mut order = ranks.clone();
        order.sort_unstable();
        for rank in &mut ranks {
            *rank = order.partition_point(|lower| *lower < *rank);
        }
        Self {
            nodes: kept
                .clone()
                .map(|index| Arc::clone(&self.nodes[index]))
                .collect(),
            edges: kept.map(row).collect(),
            ranks: Arc::new(ranks),
        }
    }

    /// The links that `after` lacks, each once: the lower identity first.
    pub(crate) fn links_not_in<'a>(
        &'a self,
        after: &'a Self,
    ) -> impl Iterator<Item = (NodeId, NodeId)> + 'a {
        let same_nodes = self.nodes.len() == after.nodes.len();
        // Rows that both share are the same.
        let may_differ = move |index: usize| {
            !same_nodes || !Arc::ptr_eq(&self.edges[index], &after.edges[index])
        };
        let rows = (0..self.nodes.len()).filter(move |index| may_differ(*index));
        let links = rows.flat_map(move |a| {
            let later = self.edges(a).filter(move |(b, _)| a < *b);
            later.map(move |(b, _)| (self.nodes[a].node, self.nodes[b].node))
        });
        links.filter(move |(a, b)| after.link(*a, *b).is_none())
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

    /// The cost of the link between two nodes, in tenths of a millisecond, including a millisecond for the hop; `None` without a link.
    #[must_use]
    pub fn link(&self, a: NodeId, b: NodeId) -> Option<u32> {
        let (a, b) = (self.index(a)?, self.index(b)?);
        let at = self.edges[a]
            .binary_search_by_key(&(b as u32), |(index, _)| *index)
            .ok()?;
        Some(self.edges[a][at].1)
    }

    /// Every link once: the lower identity first, and its cost.
    pub fn links(&self) -> impl Iterator<Item = (NodeId, NodeId, u32)> + '_ {
        (0..self.nodes.len()).flat_map(move |a| {
            let later = self.edges(a).filter(move |(b, _)| a < *b);
            later.map(move |(b, cost)| (self.nodes[a].node, self.nodes[b].node, cost))
        })
    }

    pub(crate) fn index(&self, node: NodeId) -> Option<usize> {
        self.nodes
            .binary_search_by_key(&node, |known| known.node)
            .ok()
    }

    /// Index and cost of each neighbour of a node, ascending.
    pub(crate) fn edges(&self, index: usize) -> impl Iterator<Item = (usize, u32)> + '_ {
        let row = self.edges.get(index).into_iter().flat_map(|row| row.iter());
        row.map(|(to, cost)| (*to as usize, *cost))
    }

    /// Lower for a lower address. Ties go to the lowest (Overlays 4.2.1).
    pub(crate) fn rank(&self, index: usize) -> usize {
        self.ranks[index]
    }
}

/// The nodes that are in only one of two lists, or in both with another link or RTT. Both lists are ascending.
fn changed_links(before: &[ListedLink], after: &[ListedLink]) -> Vec<NodeId> {
    let (mut old, mut new) = (before.iter().peekable(), after.iter().peekable());
    let mut changed = Vec::new();
    loop {
        let next = match (old.peek(), new.peek()) {
            (None, None) => return changed,
            (Some(old), Some(new)) if old == new => None,
            (Some(old), Some(new)) => Some(old.node.min(new.node)),
            (Some(only), None) | (None, Some(only)) => Some(only.node),
        };
        changed.extend(next);
        let is_next = |it: &&ListedLink| next.is_none_or(|next| it.node == next);
        old.next_if(is_next);
        new.next_if(is_next);
    }
}

/// Numeric addresses in their order, then names; equal ones by identity.
fn address_order(node: &TopologyNode) -> (Option<SocketAddr>, String, NodeId) {
    let numeric: Option<SocketAddr> = node.address.parse().ok();
    let name = if numeric.is_some() {
        String::new()
    } else {
        format!("~{}", node.address)
    };
    // `None` sorts first, but names must be last: an address above all others stands for it.
    let last = SocketAddr::from(([u16::MAX; 8], u16::MAX));
    (Some(numeric.unwrap_or(last)), name, node.node)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn node(id: u64, address: &str, links: &[(u64, u32)]) -> TopologyNode {
        TopologyNode {
            node: NodeId(id),
            address: address.into(),
            links: links
                .iter()
                .map(|(to, rtt)| ListedLink::first(NodeId(*to), *rtt))
                .collect(),
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

    proptest! {
        #[test]
        fn one_that_is_changed_node_by_node_is_the_one_made_at_once(
            steps in proptest::collection::vec((0_u64..8, 0_u64..5, any::<u8>(), 0_u32..3), 1..60)
        ) {
            let mut topology = Topology::default();
            let mut known: BTreeMap<u64, TopologyNode> = BTreeMap::new();
            for (id, address, links, rtt) in steps {
                let before = topology.clone();
                if rtt == 2 && links % 4 == 0 {
                    topology.remove(NodeId(id));
                    known.remove(&id);
                } else {
                    let linked = (0..8).filter(|other| links >> other & 1 == 1);
                    let links: Vec<_> = linked.map(|other| (other, rtt + other as u32 % 2)).collect();
                    let said = node(id, &format!("10.0.0.{address}:1"), &links);
                    known.insert(id, said.clone());
                    topology.set(said);
                }
                let at_once = Topology::new(known.values().cloned());
                prop_assert_eq!(&topology, &at_once);
                let lost: Vec<_> = before.links_not_in(&topology).collect();
                let gone = |(a, b, _): &(NodeId, NodeId, u32)| at_once.link(*a, *b).is_none();
                let expected: Vec<_> = before.links().filter(gone).map(|(a, b, _)| (a, b)).collect();
                prop_assert_eq!(lost, expected);
                for id in known.keys() {
                    let component = topology.component(NodeId(*id));
                    let nodes = component.nodes().iter().map(|node| TopologyNode::clone(node));
                    prop_assert_eq!(&component, &Topology::new(nodes.collect::<Vec<_>>()));
                }
            }
        }
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
