//! The trees this node uses: those that it named as an origin, and those of relayed batches. All are computed from the view and kept until it
//! changes. The roots of balanced trees must not change with every record, so they are kept separately.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::config::RoutingConfig;
use crate::held_roots::HeldRoots;
use crate::identity::{NodeId, NodeSlot};
use crate::routing::{RootPolicy, RoutingMode, Topology, Tree, elect};
use crate::tree_name::TreeName;

/// Sets of destinations stored for each tree that may be named: a list costs little, a tree more.
const LISTS_PER_TREE: usize = 64;

/// Replaced trees that are kept.
const FORMER_TREES: usize = 64;

/// A tree with its name.
#[derive(Debug)]
pub(crate) struct NamedTree {
    pub(crate) name: Arc<TreeName>,
    pub(crate) tree: Tree,
}

/// All trees known here.
#[derive(Debug)]
pub(crate) struct Trees {
    own: NodeId,
    config: RoutingConfig,
    /// This node's component.
    topology: Topology,
    /// The nodes of this node's component, and the root of their tree.
    single_name: Arc<TreeName>,
    /// The tree of all nodes, computed at first use: while many nodes start, the view changes far more often than the tree is used.
    single: OnceCell<Arc<NamedTree>>,
    /// The best path from here to each node, computed at first use.
    paths: OnceCell<Tree>,
    /// Trees that this node named, by members.
    named: BTreeMap<Vec<NodeId>, Arc<NamedTree>>,
    /// Trees by the list of destinations that the workers give.
    by_destinations: BTreeMap<Arc<[NodeSlot]>, Arc<NamedTree>>,
    /// Lists in use, each once.
    lists: BTreeSet<Arc<[NodeSlot]>>,
    /// Trees in use before the last changes: messages may still be in transit over them.
    former: VecDeque<Arc<NamedTree>>,
    /// Trees that other nodes named.
    relayed: BTreeMap<Arc<TreeName>, Arc<NamedTree>>,
    /// Roots of balanced trees that this node elected: if they were elected again with every tree, each would move the others.
    balanced: HeldRoots,
    /// Roots of all trees that this or another node named.
    held_roots: HeldRoots,
    /// Elections of a different root for the single tree.
    pub(crate) elections: u64,
    /// Sets of nodes that got no tree of their own because of the limit.
    pub(crate) refused: u64,
}

impl Trees {
    pub(crate) fn new(own: NodeId, config: RoutingConfig, topology: Topology) -> Self {
        Self {
            single_name: Arc::new(name_of_all(own, &config, &topology)),
            single: OnceCell::new(),
            paths: OnceCell::new(),
            own,
            config,
            topology,
            named: BTreeMap::new(),
            by_destinations: BTreeMap::new(),
            lists: BTreeSet::new(),
            former: VecDeque::new(),
            relayed: BTreeMap::new(),
            balanced: HeldRoots::default(),
            held_roots: HeldRoots::default(),
            elections: 0,
            refused: 0,
        }
    }

    pub(crate) const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The name of the tree of all nodes.
    pub(crate) const fn single_name(&self) -> &Arc<TreeName> {
        &self.single_name
    }

    /// The tree of all nodes.
    pub(crate) fn single(&self) -> &Arc<NamedTree> {
        self.single.get_or_init(|| {
            let name = Arc::clone(&self.single_name);
            let tree = Tree::spanning(&self.topology, name.root, &name.members);
            Arc::new(NamedTree { name, tree })
        })
    }

    /// The next hop on the best path to a node.
    pub(crate) fn hop_towards(&self, node: NodeId) -> Option<NodeId> {
        let members = &self.single_name.members;
        let paths = || Tree::spanning(&self.topology, self.own, members);
        self.paths.get_or_init(paths).next_hop(self.own, node)
    }

    /// The trees that this node named, without the single tree.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Arc<NamedTree>> {
        self.named.values()
    }

    /// Number of topic trees known here, without the single tree.
    pub(crate) fn len(&self) -> usize {
        self.held_roots.len()
    }

    /// Number of topic trees of which this node is the root (R of Overlays 4.2.2).
    pub(crate) fn roots_held(&self) -> u64 {
        self.held_roots.of(self.own)
    }

    /// Applies a change of the view: trees are computed again when needed. Returns the destinations that a tree in use reached over a link that is
    /// gone, or that is one of those `lost` in the meantime.
    pub(crate) fn update(
        &mut self,
        topology: Topology,
        lost: &BTreeSet<(NodeId, NodeId)>,
    ) -> BTreeSet<NodeId> {
        if topology == self.topology && lost.is_empty() {
            return BTreeSet::new();
        }
        let cut_off = self.cut_off(&topology, lost);
        let has_moved = !topology.has_same_links(&self.topology);
        let elects = |policy: RootPolicy| policy.looks_at_change(&self.topology, &topology);
        let policy = self.config.root_policy;
        let (elects_root, elects_roots) = (elects(policy.of_single_tree()), elects(policy));
        self.topology = topology;
        if has_moved || elects_root {
            let name = name_of_all(self.own, &self.config, &self.topology);
            self.former.extend(self.single.take());
            self.elections += u64::from(name.root != self.single_name.root);
            self.single_name = Arc::new(name);
        }
        // Balanced trees keep their roots, so a change of the values they are elected by moves none of them.
        if has_moved || (elects_roots && policy != RootPolicy::Balance) {
            self.former
                .extend(std::mem::take(&mut self.named).into_values());
            self.by_destinations.clear();
        }
        let too_many = self.former.len().saturating_sub(FORMER_TREES);
        self.former.drain(..too_many);
        if has_moved {
            self.paths.take();
            self.relayed.clear();
            let topology = &self.topology;
            self.balanced.retain(|node| topology.contains(node));
            self.held_roots.retain(|node| topology.contains(node));
        }
        cut_off
    }

    /// The destinations that a tree in use reached over a link that is not in the new view, or is one of those `lost`.
    fn cut_off(&self, topology: &Topology, lost: &BTreeSet<(NodeId, NodeId)>) -> BTreeSet<NodeId> {
        let is_lost = |from: NodeId, to: NodeId| {
            topology.link(from, to).is_none() || lost.contains(&(from.min(to), from.max(to)))
        };
        let mut cut_off = BTreeSet::new();
        if self.named.is_empty() && self.single.get().is_none() && self.former.is_empty() {
            // No tree is in use.
            return cut_off;
        }
        let is_there = |(a, b): &(NodeId, NodeId)| self.topology.link(*a, *b).is_some();
        if self.topology.links_not_in(topology).next().is_none() && !lost.iter().any(is_there) {
            return cut_off;
        }
        for named in self.named.values().chain(self.single.get()) {
            let others = named.name.members.iter().copied();
            let is_cut = |node: &NodeId| {
                !cut_off.contains(node)
                    && *node != self.own
                    && path_crosses(&named.tree, self.own, *node, is_lost)
            };
            let found: Vec<NodeId> = others.filter(is_cut).collect();
            cut_off.extend(found);
        }
        // What was sent over a tree that has been replaced since may be lost with a link of the replaced tree.
        let is_newly_lost =
            |from: NodeId, to: NodeId| self.topology.link(from, to).is_some() && is_lost(from, to);
        for named in &self.former {
            let others = named.name.members.iter().copied();
            let is_cut = |node: &NodeId| {
                !cut_off.contains(node)
                    && *node != self.own
                    && path_crosses(&named.tree, self.own, *node, is_newly_lost)
            };
            let found: Vec<NodeId> = others.filter(is_cut).collect();
            cut_off.extend(found);
        }
        cut_off
    }

    /// The tree for these destinations (rule 21); `nodes` are the nodes of the slots.
    pub(crate) fn pick(&mut self, slots: &[NodeSlot], nodes: &[NodeId]) -> Arc<NamedTree> {
        if self.config.mode != RoutingMode::Topic {
            return Arc::clone(self.single());
        }
        if let Some(tree) = self.by_destinations.get(slots) {
            return Arc::clone(tree);
        }
        let mut members: Vec<NodeId> = nodes.iter().copied().chain([self.own]).collect();
        members.sort_unstable();
        members.dedup();
        let tree = self.over(members);
        if self.by_destinations.len() >= self.config.maximum_trees.saturating_mul(LISTS_PER_TREE) {
            self.by_destinations.clear();
        }
        let list = self.intern(slots);
        self.by_destinations.insert(list, Arc::clone(&tree));
        tree
    }

    /// One shared copy of each list of destinations, for all messages that have it.
    pub(crate) fn intern(&mut self, slots: &[NodeSlot]) -> Arc<[NodeSlot]> {
        if let Some(list) = self.lists.get(slots) {
            return Arc::clone(list);
        }
        if self.lists.len() >= self.config.maximum_trees.saturating_mul(LISTS_PER_TREE) {
            self.lists.clear();
        }
        let list: Arc<[NodeSlot]> = slots.into();
        self.lists.insert(Arc::clone(&list));
        list
    }

    /// The tree over exactly these nodes, which include this one; equal sets share one. The single tree if there is no path between the nodes without
    /// others, or if there are too many trees.
    fn over(&mut self, members: Vec<NodeId>) -> Arc<NamedTree> {
        if let Some(tree) = self.named.get(&members) {
            return Arc::clone(tree);
        }
        if members.len() >= self.topology.nodes().len() {
            return Arc::clone(self.single());
        }
        if self.named.len() >= self.config.maximum_trees {
            self.refused += 1;
            return Arc::clone(self.single());
        }
        let Some(named) = self.compute(&members) else {
            return Arc::clone(self.single());
        };
        let named = Arc::new(named);
        self.note_root(&named.name);
        self.named.insert(members, Arc::clone(&named));
        named
    }

    /// The tree that this node would use among `members`, without keeping it; `None` if there is no path between them without others.
    pub(crate) fn compute(&mut self, members: &[NodeId]) -> Option<NamedTree> {
        let policy = self.config.root_policy;
        let kept = self
            .balanced
            .root(members)
            .filter(|_| policy == RootPolicy::Balance);
        let root = kept.or_else(|| self.elect(members))?;
        let tree = Tree::spanning(&self.topology, root, members);
        if !members.iter().all(|member| tree.contains(*member)) {
            return None;
        }
        if policy == RootPolicy::Balance {
            self.balanced
                .note(members, root, self.config.maximum_trees.max(1));
        }
        let members = members.to_vec();
        let name = Arc::new(TreeName { root, members });
        Some(NamedTree { name, tree })
    }

    /// The tree that a node would use among `members`, as far as it can be determined without having picked it.
    pub(crate) fn preview(&self, members: &[NodeId]) -> Option<Tree> {
        if let Some(named) = self.named.get(members) {
            return Some(named.tree.clone());
        }
        let root = self.elect(members)?;
        let tree = Tree::spanning(&self.topology, root, members);
        members
            .iter()
            .all(|member| tree.contains(*member))
            .then_some(tree)
    }

    fn elect(&self, members: &[NodeId]) -> Option<NodeId> {
        let policy = self.config.root_policy;
        let given = |node| self.balanced.of(node);
        elect(&self.topology, members, policy, self.config.weights, given)
    }

    fn note_root(&mut self, name: &TreeName) {
        if name.members.len() < self.topology.nodes().len() {
            let maximum = self.most_relayed();
            self.held_roots.note(&name.members, name.root, maximum);
        }
    }

    /// Maximum number of trees of other nodes, and of roots, that are stored.
    const fn most_relayed(&self) -> usize {
        self.config
            .maximum_trees
            .saturating_mul(4)
            .saturating_add(1)
    }

    /// The tree that another node named, computed from this node's view.
    pub(crate) fn of_name(&mut self, name: &Arc<TreeName>) -> Arc<NamedTree> {
        if self.single_name == *name {
            return Arc::clone(self.single());
        }
        if let Some(named) = self.relayed.get(name) {
            return Arc::clone(named);
        }
        if self.relayed.len() >= self.most_relayed() {
            self.relayed.clear();
        }
        let tree = Tree::spanning(&self.topology, name.root, &name.members);
        let name = Arc::clone(name);
        let named = Arc::new(NamedTree { name, tree });
        // Trees with invented nodes are not kept.
        let topology = &self.topology;
        if named
            .name
            .members
            .iter()
            .all(|node| topology.contains(*node))
        {
            self.note_root(&named.name);
            self.relayed
                .insert(Arc::clone(&named.name), Arc::clone(&named));
        }
        named
    }

    /// An estimate of the memory for names and lists, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let tree = |named: &NamedTree| named.name.members.len() * 40 + 64;
        let named: usize = self.named.values().map(|named| tree(named)).sum();
        let relayed: usize = self.relayed.values().map(|named| tree(named)).sum();
        let lists: usize = self.lists.iter().map(|list| list.len() * 2 + 64).sum();
        named + relayed + lists + self.balanced.bytes() + self.held_roots.bytes()
    }
}

/// The nodes of the topology, and the root of their tree.
fn name_of_all(own: NodeId, config: &RoutingConfig, topology: &Topology) -> TreeName {
    let members: Vec<NodeId> = topology.nodes().iter().map(|node| node.node).collect();
    let policy = config.root_policy.of_single_tree();
    let root = elect(topology, &members, policy, config.weights, |_| 0).unwrap_or(own);
    TreeName { root, members }
}

/// Whether the path between two nodes of a tree crosses a link for which `is_lost` holds.
fn path_crosses(
    tree: &Tree,
    from: NodeId,
    to: NodeId,
    is_lost: impl Fn(NodeId, NodeId) -> bool,
) -> bool {
    let mut at = from;
    while let Some(next) = tree.next_hop(at, to) {
        if is_lost(at, next) {
            return true;
        }
        at = next;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::{ListedLink, TopologyNode};

    /// Nodes 1 to `count`, all linked; the capability of each is its number.
    fn mesh(count: u64, without: &[(u64, u64)]) -> Topology {
        Topology::new((1..=count).map(|id| {
            let is_missing =
                |other: &u64| without.contains(&(id, *other)) || without.contains(&(*other, id));
            let linked = (1..=count).filter(|other| *other != id && !is_missing(other));
            TopologyNode {
                node: NodeId(id),
                address: format!("10.0.0.{id}:1883"),
                capability: id,
                links: linked
                    .map(|other| ListedLink::first(NodeId(other), 10))
                    .collect(),
                ..TopologyNode::default()
            }
        }))
    }

    /// The same topology with another capability of one node.
    fn same_but(topology: &Topology, id: u64, capability: u64) -> Topology {
        Topology::new(topology.nodes().iter().map(|node| {
            let mut node = TopologyNode::clone(node);
            if node.node == NodeId(id) {
                node.capability = capability;
            }
            node
        }))
    }

    fn trees(
        mode: RoutingMode,
        root_policy: RootPolicy,
        maximum_trees: usize,
        topology: Topology,
    ) -> Trees {
        let config = RoutingConfig {
            mode,
            root_policy,
            maximum_trees,
            ..RoutingConfig::default()
        };
        Trees::new(NodeId(1), config, topology)
    }

    fn pick(trees: &mut Trees, destinations: &[u64]) -> (u64, Vec<u64>) {
        let slots: Vec<_> = destinations.iter().map(|id| NodeSlot(*id as u16)).collect();
        let nodes: Vec<_> = destinations.iter().copied().map(NodeId).collect();
        let name = Arc::clone(&trees.pick(&slots, &nodes).name);
        (
            name.root.0,
            name.members.iter().map(|node| node.0).collect(),
        )
    }

    #[test]
    fn the_origin_picks_the_tree_of_the_topics_nodes_or_the_single_one() {
        let all = vec![1, 2, 3, 4, 5];
        let cases = [
            (
                "a topic",
                RoutingMode::Topic,
                9,
                vec![],
                vec![2, 4],
                (4, vec![1, 2, 4]),
            ),
            (
                "every node",
                RoutingMode::Topic,
                9,
                vec![],
                vec![2, 3, 4, 5],
                (5, all.clone()),
            ),
            (
                "no room for a tree",
                RoutingMode::Topic,
                0,
                vec![],
                vec![2, 4],
                (5, all.clone()),
            ),
            (
                "not without others",
                RoutingMode::Topic,
                9,
                vec![(1, 2)],
                vec![2],
                (5, all.clone()),
            ),
            (
                "one tree",
                RoutingMode::Tree,
                9,
                vec![],
                vec![2, 4],
                (5, all),
            ),
        ];
        for (name, mode, maximum, missing, destinations, expected) in cases {
            let mut trees = trees(mode, RootPolicy::Capacity, maximum, mesh(5, &missing));
            assert_eq!(pick(&mut trees, &destinations), expected, "{name}");
        }
    }

    #[test]
    fn topics_with_equal_sets_of_nodes_share_a_tree() {
        let mut trees = trees(RoutingMode::Topic, RootPolicy::Capacity, 9, mesh(5, &[]));
        for destinations in [&[2, 3][..], &[3, 2], &[2, 3], &[4]] {
            pick(&mut trees, destinations);
        }
        assert_eq!((trees.len(), trees.roots_held(), trees.refused), (2, 0, 0));
    }

    #[test]
    fn balanced_trees_have_different_roots_and_keep_them() {
        let mut trees = trees(RoutingMode::Topic, RootPolicy::Balance, 99, mesh(6, &[]));
        let sets: Vec<Vec<u64>> = vec![vec![2, 3], vec![2, 4], vec![3, 4], vec![2, 5], vec![4, 5]];
        let roots: Vec<_> = sets.iter().map(|set| pick(&mut trees, set).0).collect();
        assert_eq!(
            roots,
            [1, 2, 3, 5, 4],
            "whoever has the fewest, the lowest address first"
        );
        let mut changed = mesh(6, &[]);
        changed = Topology::new(changed.nodes().iter().map(|node| {
            let mut node = TopologyNode::clone(node);
            node.roots = 10 - node.node.0;
            node
        }));
        trees.update(changed, &BTreeSet::new());
        let again: Vec<_> = sets.iter().map(|set| pick(&mut trees, set).0).collect();
        assert_eq!(again, roots, "a new count of roots moves no tree");
        trees.update(mesh(4, &[]), &BTreeSet::new());
        assert_eq!(
            pick(&mut trees, &sets[0]).0,
            1,
            "nor does a node that is out and has no part in it"
        );
    }

    #[test]
    fn destinations_behind_a_lost_link_are_named() {
        // A tree that is not used carries nothing.
        let update = |trees: &mut Trees, topology, lost: &BTreeSet<_>| {
            trees.single();
            trees.update(topology, lost)
        };
        // The root is 5: the single tree is a star.
        let mut trees = trees(RoutingMode::Tree, RootPolicy::Capacity, 9, mesh(5, &[]));
        assert_eq!(
            update(&mut trees, mesh(5, &[]), &BTreeSet::new()),
            BTreeSet::new(),
            "nothing changed"
        );
        assert_eq!(
            update(&mut trees, mesh(5, &[(1, 2)]), &BTreeSet::new()),
            BTreeSet::new(),
            "no part of the tree"
        );
        assert_eq!(
            update(&mut trees, mesh(5, &[(1, 2), (5, 3)]), &BTreeSet::new()),
            BTreeSet::from([NodeId(3)])
        );
        let flapped = BTreeSet::from([(NodeId(4), NodeId(5))]);
        let same = mesh(5, &[(1, 2), (5, 3)]);
        assert_eq!(
            update(&mut trees, same, &flapped),
            BTreeSet::from([NodeId(4)]),
            "it came back meanwhile"
        );
        assert_eq!(trees.elections, 0);
        // First another root is elected, and only then is the link with the former one lost: what was sent over it before may be lost.
        let mut stronger = same_but(&mesh(5, &[]), 2, 99);
        let mut moved = self::trees(RoutingMode::Tree, RootPolicy::Capacity, 9, mesh(5, &[]));
        assert_eq!(
            update(&mut moved, stronger, &BTreeSet::new()),
            BTreeSet::new()
        );
        stronger = same_but(&mesh(5, &[(1, 5)]), 2, 99);
        let behind: Vec<NodeId> = [2, 3, 4, 5].map(NodeId).to_vec();
        assert_eq!(
            update(&mut moved, stronger, &BTreeSet::new()),
            behind.into_iter().collect(),
            "what went to 2, 3 and 4 over 5 before"
        );
        // 3 was a child of 1 at the end, and of 5 before.
        let rest: Vec<NodeId> = [2, 3, 4, 5].map(NodeId).to_vec();
        assert_eq!(
            update(&mut trees, mesh(4, &[]), &BTreeSet::new()),
            rest.into_iter().collect(),
            "the root is gone"
        );
        assert_eq!(trees.elections, 1);
        let mut unused = self::trees(RoutingMode::Tree, RootPolicy::Capacity, 9, mesh(5, &[]));
        assert_eq!(
            unused.update(mesh(5, &[(5, 3)]), &BTreeSet::new()),
            BTreeSet::new()
        );
    }
}
