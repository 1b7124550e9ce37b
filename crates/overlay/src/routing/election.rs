//! The election of a tree's root among its nodes (Overlays 4.2).

use std::cmp::Reverse;
use std::str::FromStr;

use super::{Topology, TopologyNode, Tree};
use crate::identity::NodeId;

/// How a root is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RootPolicy {
    /// The highest capability C = alpha L + beta M (Overlays Eq. 1).
    #[default]
    Capacity,
    /// The lowest RB = gamma R + delta C: roots held and clients (Overlays 4.2.2). Only for topic trees; the single tree uses capacity.
    Balance,
    /// The least sum of the delays over the tree, each weighted by the rate that its node originates.
    Delay,
}

impl RootPolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Capacity, Self::Balance, Self::Delay];

    /// The name in the configuration and for display.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Balance => "balance",
            Self::Delay => "delay",
        }
    }

    /// Whether two topologies with the same nodes and links may have different roots under this policy.
    pub(crate) fn looks_at_change(self, before: &Topology, after: &Topology) -> bool {
        let key = |node: &TopologyNode| match self {
            Self::Capacity => (node.capability, 0),
            Self::Balance => (node.roots, node.clients),
            Self::Delay => (node.rate, 0),
        };
        let keys = before.nodes().iter().map(|node| key(node));
        keys.ne(after.nodes().iter().map(|node| key(node)))
    }

    /// The policy for the one tree of all nodes.
    #[must_use]
    pub const fn of_single_tree(self) -> Self {
        match self {
            Self::Capacity | Self::Balance => Self::Capacity,
            Self::Delay => Self::Delay,
        }
    }
}

/// Not the name of a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is none of capacity, balance, delay")]
pub struct UnknownPolicy {
    given: String,
}

impl FromStr for RootPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let named = Self::ALL.into_iter().find(|policy| policy.name() == text);
        named.ok_or_else(|| UnknownPolicy { given: text.into() })
    }
}

/// The weights, with the letters of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootWeights {
    /// Of the available CPU, in percent (alpha).
    pub alpha: u32,
    /// Of the available memory, in percent (beta).
    pub beta: u32,
    /// Of the roots held (gamma).
    pub gamma: u32,
    /// Of the clients (delta).
    pub delta: u32,
}

impl Default for RootWeights {
    fn default() -> Self {
        Self {
            alpha: 1,
            beta: 1,
            gamma: 10,
            delta: 1,
        }
    }
}

/// The root of the tree over `members`, `None` if none of them is in the topology. Ties go to the lowest address (Overlays 4.2.1). `held`: for each
/// node the trees that the caller has assigned to it; its record may not count them yet.
#[must_use]
pub fn elect(
    topology: &Topology,
    members: &[NodeId],
    policy: RootPolicy,
    weights: RootWeights,
    held: impl Fn(NodeId) -> u64,
) -> Option<NodeId> {
    let candidates = members.iter().filter_map(|member| topology.index(*member));
    let by_rank = |index: &usize| topology.rank(*index);
    let node = |index: usize| &topology.nodes()[index];
    let best = match policy {
        RootPolicy::Capacity => {
            candidates.min_by_key(|index| (Reverse(node(*index).capability), by_rank(index)))
        }
        RootPolicy::Balance => candidates.min_by_key(|index| {
            let roots = node(*index).roots.max(held(node(*index).node));
            let balance = u64::from(weights.gamma)
                .saturating_mul(roots)
                .saturating_add(u64::from(weights.delta).saturating_mul(node(*index).clients));
            (balance, by_rank(index))
        }),
        RootPolicy::Delay => candidates
            .min_by_key(|index| (weighted_delay(topology, members, *index), by_rank(index))),
    };
    best.map(|index| node(index).node)
}

/// The sum over all pairs of nodes of the path cost in the tree with root `root`, each weighted by the rate that the node at its start originates. A
/// root that does not reach all members is worse than any that does.
fn weighted_delay(topology: &Topology, members: &[NodeId], root: usize) -> (usize, u64) {
    let tree = Tree::spanning(topology, topology.nodes()[root].node, members);
    let missed = members.len().saturating_sub(tree.nodes().len());
    let weight = |node: NodeId| {
        topology
            .node(node)
            .map_or(0, |node| node.rate)
            .saturating_add(1)
    };
    (missed, tree.weighted_distances(weight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::{ListedLink, TopologyNode};

    /// A chain 1 - 2 - 3 - 4 of links with these RTTs; capabilities, roots, clients and rates by node.
    fn chain(rtts: [u32; 3], of: impl Fn(u64) -> [u64; 4]) -> Topology {
        let link =
            |from: u64, to: u64| ListedLink::first(NodeId(to), rtts[from.min(to) as usize - 1]);
        Topology::new((1..=4).map(|id| {
            let [capability, roots, clients, rate] = of(id);
            let mut links = Vec::new();
            if id > 1 {
                links.push(link(id, id - 1));
            }
            if id < 4 {
                links.push(link(id, id + 1));
            }
            TopologyNode {
                node: NodeId(id),
                // The lowest address is not that of the lowest identity.
                address: format!("10.0.0.{}:1883", 10 - id),
                capability,
                roots,
                clients,
                rate,
                links: links.into(),
                ..TopologyNode::default()
            }
        }))
    }

    #[test]
    fn each_policy_elects_what_it_is_for_and_ties_go_to_the_lowest_address() {
        let all: Vec<_> = (1..=4).map(NodeId).collect();
        let some = vec![NodeId(1), NodeId(2)];
        let alike = chain([10, 10, 10], |_| [5, 0, 0, 0]);
        let strong = chain([10, 10, 10], |id| [if id == 3 { 9 } else { 5 }, 0, 0, 0]);
        let busy = chain([10, 10, 10], |id| [0, if id == 4 { 2 } else { 1 }, id, 0]);
        let far = chain([90, 10, 10], |_| [0; 4]);
        let loud = chain([10, 10, 10], |id| [0, 0, 0, if id == 1 { 100 } else { 0 }]);
        let cases = [
            ("alike", &alike, &all, RootPolicy::Capacity, 4),
            ("alike, two members", &alike, &some, RootPolicy::Capacity, 2),
            ("a strong one", &strong, &all, RootPolicy::Capacity, 3),
            (
                "a strong one outside",
                &strong,
                &some,
                RootPolicy::Capacity,
                2,
            ),
            // 10 R + C: 11, 12, 13, 24.
            ("the least busy", &busy, &all, RootPolicy::Balance, 1),
            (
                "least busy, all alike",
                &alike,
                &all,
                RootPolicy::Balance,
                4,
            ),
            // In a chain, every root gives the same tree.
            ("a chain by delay", &far, &all, RootPolicy::Delay, 4),
            ("a loud one", &loud, &some, RootPolicy::Delay, 2),
        ];
        for (name, topology, members, policy, root) in cases {
            let elected = elect(topology, members, policy, RootWeights::default(), |_| 0);
            assert_eq!(elected, Some(NodeId(root)), "{name}");
        }
        let held = |node: NodeId| u64::from(node == NodeId(1)) * 2;
        let elected = elect(
            &busy,
            &all,
            RootPolicy::Balance,
            RootWeights::default(),
            held,
        );
        assert_eq!(
            elected,
            Some(NodeId(2)),
            "trees given away since the record count"
        );
        let nobody = [NodeId(77)];
        assert_eq!(
            elect(
                &alike,
                &nobody,
                RootPolicy::Delay,
                RootWeights::default(),
                held
            ),
            None
        );
    }

    #[test]
    fn names_are_read_as_written() {
        for policy in RootPolicy::ALL {
            assert_eq!(policy.name().parse(), Ok(policy));
        }
        assert!("best".parse::<RootPolicy>().is_err());
    }
}
