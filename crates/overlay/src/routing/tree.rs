//! A tree over some nodes: the best path by RTT from each node to the root (Overlays 4.3).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Topology;
use crate::identity::NodeId;

/// A loop-free tree. Its edges are links between its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    root: NodeId,
    /// Ascending.
    branches: Vec<Branch>,
}

/// A node of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Branch {
    node: NodeId,
    /// Index of the next node towards the root; for the root its own.
    parent: usize,
    /// Path cost to the root (P of Overlays 4.1.1).
    cost: u32,
    /// Number of links to the root.
    depth: u32,
}

impl Tree {
    /// The tree of shortest paths to `root` over those of `members` that it reaches through other members. Of two paths with the same cost, the one
    /// with fewer links is used, then the one over the lower address. Members without a path to the root are not in the tree; if the root is not in
    /// the topology, the tree has no nodes.
    #[must_use]
    pub fn spanning(topology: &Topology, root: NodeId, members: &[NodeId]) -> Self {
        let mut is_member = vec![false; topology.nodes().len()];
        for index in members.iter().filter_map(|member| topology.index(*member)) {
            is_member[index] = true;
        }
        // Index in the topology: cost, links, parent.
        let mut best: Vec<Option<(u32, u32, usize)>> = vec![None; topology.nodes().len()];
        let mut open = BinaryHeap::new();
        if let Some(index) = topology.index(root) {
            best[index] = Some((0, 0, index));
            open.push(Reverse((0, 0, topology.rank(index), index)));
        }
        while let Some(Reverse((cost, depth, _, index))) = open.pop() {
            if best[index].is_none_or(|known| (known.0, known.1) != (cost, depth)) {
                continue;
            }
            for (next, link) in topology.edges(index) {
                let offer = (cost.saturating_add(link), depth + 1, index);
                let order =
                    |(cost, depth, parent): (u32, u32, usize)| (cost, depth, topology.rank(parent));
                if is_member[next] && best[next].is_none_or(|known| order(offer) < order(known)) {
                    best[next] = Some(offer);
                    open.push(Reverse((offer.0, offer.1, topology.rank(next), next)));
                }
            }
        }
        Self::of(topology, root, &best)
    }

    fn of(topology: &Topology, root: NodeId, best: &[Option<(u32, u32, usize)>]) -> Self {
        let mut places = vec![0; best.len()];
        let mut reached = 0;
        for (index, found) in best.iter().enumerate() {
            places[index] = reached;
            reached += usize::from(found.is_some());
        }
        let branches = best.iter().enumerate().filter_map(|(index, found)| {
            let (cost, depth, parent) = (*found)?;
            Some(Branch {
                node: topology.nodes()[index].node,
                parent: places[parent],
                cost,
                depth,
            })
        });
        Self {
            root,
            branches: branches.collect(),
        }
    }

    /// The node that all paths lead to.
    #[must_use]
    pub const fn root(&self) -> NodeId {
        self.root
    }

    /// Its nodes, ascending.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        self.branches.iter().map(|branch| branch.node).collect()
    }

    /// Whether it spans the node.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.index(node).is_some()
    }

    /// Every link of the tree once: the node nearer to the root, and the other.
    pub fn edges(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let below = self.branches.iter().filter(|branch| branch.depth > 0);
        below.map(|branch| (self.branches[branch.parent].node, branch.node))
    }

    /// The node's neighbours on the tree, ascending: its overlay routing table (ORT, t-ORT).
    #[must_use]
    pub fn neighbours(&self, node: NodeId) -> Vec<NodeId> {
        let mut found: Vec<_> = self
            .edges()
            .filter_map(|(above, below)| match (above == node, below == node) {
                (true, _) => Some(below),
                (_, true) => Some(above),
                (false, false) => None,
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// The neighbour of `from` through which `to` is reached; `None` if either is not in the tree, or they are the same.
    #[must_use]
    pub fn next_hop(&self, from: NodeId, to: NodeId) -> Option<NodeId> {
        let (from, to) = (self.index(from)?, self.index(to)?);
        if from == to {
            return None;
        }
        // Below `from`, the next hop is the child whose subtree contains `to`; otherwise it is the parent.
        let mut at = to;
        while self.branches[at].depth > self.branches[from].depth {
            let parent = self.branches[at].parent;
            if parent == from {
                return Some(self.branches[at].node);
            }
            at = parent;
        }
        let parent = self.branches[self.branches[from].parent];
        Some(parent.node)
    }

    /// The cost of the path from the node to the root (P of Overlays 4.1.1).
    #[must_use]
    pub fn path_cost(&self, node: NodeId) -> Option<u32> {
        Some(self.branches[self.index(node)?].cost)
    }

    /// The cost of the path between two of its nodes.
    #[must_use]
    pub fn distance(&self, a: NodeId, b: NodeId) -> Option<u32> {
        Some(self.distance_of(self.index(a)?, self.index(b)?))
    }

    fn distance_of(&self, a: usize, b: usize) -> u32 {
        let (mut left, mut right) = (a, b);
        while left != right {
            if self.branches[left].depth >= self.branches[right].depth {
                left = self.branches[left].parent;
            } else {
                right = self.branches[right].parent;
            }
        }
        let cost = |index: usize| self.branches[index].cost;
        (cost(a) - cost(left)).saturating_add(cost(b) - cost(left))
    }

    /// The sum of the distances from every node to every other, each weighted by its start.
    pub(crate) fn weighted_distances(&self, weight: impl Fn(NodeId) -> u64) -> u64 {
        let from = |a: usize| {
            let whole = (0..self.branches.len()).map(|b| u64::from(self.distance_of(a, b)));
            whole
                .sum::<u64>()
                .saturating_mul(weight(self.branches[a].node))
        };
        (0..self.branches.len())
            .map(from)
            .fold(0, u64::saturating_add)
    }

    fn index(&self, node: NodeId) -> Option<usize> {
        self.branches
            .binary_search_by_key(&node, |branch| branch.node)
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::{ListedLink, TopologyNode};

    fn topology(links: &[(u64, u64, u32)]) -> Topology {
        let ids: std::collections::BTreeSet<_> =
            links.iter().flat_map(|(a, b, _)| [*a, *b]).collect();
        Topology::new(ids.into_iter().map(|id| {
            let other = |(a, b, rtt): &(u64, u64, u32)| match (*a == id, *b == id) {
                (true, _) => Some(ListedLink::first(NodeId(*b), *rtt)),
                (_, true) => Some(ListedLink::first(NodeId(*a), *rtt)),
                (false, false) => None,
            };
            TopologyNode {
                node: NodeId(id),
                links: links.iter().filter_map(other).collect(),
                ..TopologyNode::default()
            }
        }))
    }

    fn ids(ids: &[u64]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn paths_are_shortest_and_lead_over_members_only() {
        // 1 - 4 is slow directly, fast over 2 and 3, fastest over 5.
        let topology = topology(&[
            (1, 2, 10),
            (2, 3, 10),
            (3, 4, 10),
            (1, 4, 70),
            (1, 5, 2),
            (5, 4, 2),
            (6, 7, 1),
        ]);
        let cases = [
            ("all", vec![1, 2, 3, 4, 5, 6, 7], vec![1, 2, 3, 4, 5], 5, 5),
            ("without 5", vec![1, 2, 3, 4], vec![1, 2, 3, 4], 2, 3),
            ("without 5 and 3", vec![1, 2, 4], vec![1, 2, 4], 4, 1),
            ("no way", vec![1, 6], vec![1], 0, 0),
        ];
        for (name, members, reached, hop_to_4, hop_back) in cases {
            let tree = Tree::spanning(&topology, NodeId(1), &ids(&members));
            assert_eq!(tree.nodes(), ids(&reached), "{name}");
            let hop = |from, to| {
                tree.next_hop(NodeId(from), NodeId(to))
                    .map_or(0, |node| node.0)
            };
            assert_eq!((hop(1, 4), hop(4, 1)), (hop_to_4, hop_back), "{name}");
        }
        let tree = Tree::spanning(&topology, NodeId(1), &ids(&[1, 2, 3, 4, 5]));
        assert_eq!(tree.neighbours(NodeId(1)), ids(&[2, 5]));
        assert_eq!(
            tree.path_cost(NodeId(4)),
            Some(24),
            "two links of 2 and a hop each"
        );
        assert_eq!(tree.distance(NodeId(4), NodeId(2)), Some(44));
        assert_eq!(tree.next_hop(NodeId(4), NodeId(4)), None);
        assert_eq!(tree.next_hop(NodeId(4), NodeId(6)), None);
    }
}
