//! Filters with wildcards, level by level in one arena.
//!
//! A node is a prefix of filters. Its `+` and `#` children are fields of it; the others are found in one table of edges for the
//! whole trie. A match walks the nodes whose path matches a prefix of the topic, each once, without recursion.

use std::sync::Arc;

use hashbrown::HashTable;

use super::levels::{LevelId, LevelTable};
use crate::seeded_hash::SeededHash;

/// Index of a node in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeId(u32);

const ROOT: NodeId = NodeId(0);
/// No node: saves the tag of an `Option` twice in every node.
const NONE: NodeId = NodeId(u32::MAX);

/// Levels whose numbers a match keeps on the stack. Deeper tries cost one allocation a match.
const INLINE_LEVELS: usize = 16;
/// Vacant nodes below which compaction is not worth it.
const MINIMUM_VACANT: usize = 1024;

/// How a node is reached from its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Root,
    Level(LevelId),
    SingleLevelWildcard,
    MultiLevelWildcard,
    /// Not part of the trie.
    Vacant,
}

#[derive(Debug)]
struct Node<V> {
    parent: NodeId,
    step: Step,
    single_level: NodeId,
    multi_level: NodeId,
    /// Children of all kinds.
    children: u32,
    /// The filter that ends here.
    entry: Option<Entry<V>>,
}

#[derive(Debug)]
struct Entry<V> {
    filter: Arc<str>,
    value: V,
}

impl<V> Node<V> {
    const fn new(parent: NodeId, step: Step) -> Self {
        Self {
            parent,
            step,
            single_level: NONE,
            multi_level: NONE,
            children: 0,
            entry: None,
        }
    }
}

/// Filters with wildcards and their values.
#[derive(Debug)]
pub(super) struct WildcardTrie<V> {
    nodes: Vec<Node<V>>,
    /// Children reached by a level's text; hashed by parent and level, both of which are in the node.
    edges: HashTable<NodeId>,
    vacant: Vec<NodeId>,
    levels: LevelTable,
    len: usize,
    /// Levels of the deepest filter, `#` not counted; deeper levels of a topic are never visited. Never too low.
    depth: usize,
}

impl<V> WildcardTrie<V> {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![Node::new(NONE, Step::Root)],
            edges: HashTable::new(),
            vacant: Vec::new(),
            levels: LevelTable::default(),
            len: 0,
            depth: 0,
        }
    }

    /// Number of filters.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, hash: &SeededHash, filter: &str) -> Option<&V> {
        self.node(self.find(hash, filter)?)
            .entry
            .as_ref()
            .map(|entry| &entry.value)
    }

    pub(super) fn get_mut(&mut self, hash: &SeededHash, filter: &str) -> Option<&mut V> {
        let id = self.find(hash, filter)?;
        self.node_mut(id)
            .entry
            .as_mut()
            .map(|entry| &mut entry.value)
    }

    /// The value of `filter`, made by `make` if there is none.
    pub(super) fn entry(
        &mut self,
        hash: &SeededHash,
        filter: &Arc<str>,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let mut id = ROOT;
        let mut depth = 0;
        for text in filter.split('/') {
            id = self.child_or_insert(hash, id, text);
            depth += usize::from(text != "#");
        }
        self.depth = self.depth.max(depth);
        // The count is a field beside the arena, so the borrow of the node does not reach it.
        let len = &mut self.len;
        let entry = self.nodes[id.0 as usize].entry.get_or_insert_with(|| {
            *len += 1;
            Entry {
                filter: Arc::clone(filter),
                value: make(),
            }
        });
        &mut entry.value
    }

    /// Removes `filter`, with all nodes that served it alone.
    pub(super) fn remove(&mut self, hash: &SeededHash, filter: &str) -> Option<V> {
        let id = self.find(hash, filter)?;
        let entry = self.node_mut(id).entry.take()?;
        self.len -= 1;
        if self.len == 0 {
            *self = Self::new();
        } else {
            self.prune(hash, id);
            self.compact_if_sparse(hash);
        }
        Some(entry.value)
    }

    /// All filters in the order of the arena.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        let entries = self.nodes.iter().filter_map(|node| node.entry.as_ref());
        entries.map(|entry| (&*entry.filter, &entry.value))
    }

    /// Calls `visit` with the value of each filter that matches `topic`.
    pub(super) fn for_each_match<'a>(
        &'a self,
        hash: &SeededHash,
        topic: &str,
        mut visit: impl FnMut(&'a V),
    ) -> u64 {
        if self.len == 0 {
            return 0;
        }
        let mut inline = [None; INLINE_LEVELS];
        let mut spilled = Vec::new();
        let mut levels = topic.split('/');
        let ids: &[Option<LevelId>] = if self.depth <= INLINE_LEVELS {
            let mut count = 0;
            for (slot, text) in inline.iter_mut().zip(levels.by_ref().take(self.depth)) {
                *slot = self.levels.find(hash, text);
                count += 1;
            }
            &inline[..count]
        } else {
            spilled.extend(
                levels
                    .by_ref()
                    .take(self.depth)
                    .map(|text| self.levels.find(hash, text)),
            );
            &spilled
        };
        let is_whole = levels.next().is_none();
        self.walk(hash, ids, is_whole, topic.starts_with('$'), &mut visit)
    }

    /// Visits the values of the filters that match the levels `ids`, of which there are more unless `is_whole`. Returns how many nodes it visited.
    fn walk<'a>(
        &'a self,
        hash: &SeededHash,
        ids: &[Option<LevelId>],
        is_whole: bool,
        starts_with_dollar: bool,
        visit: &mut impl FnMut(&'a V),
    ) -> u64 {
        // A node pushes two children at most and was taken off itself: the stack grows by one a level.
        let mut inline = [(NONE, 0_u32); INLINE_LEVELS + 2];
        let mut spilled = Vec::new();
        let stack: &mut [(NodeId, u32)] = if ids.len() <= INLINE_LEVELS {
            &mut inline
        } else {
            spilled.resize(ids.len() + 2, (NONE, 0));
            &mut spilled
        };
        stack[0] = (ROOT, 0);
        let mut height = 1;
        let mut steps = 0;
        while height > 0 {
            height -= 1;
            steps += 1;
            let (id, depth) = stack[height];
            let node = self.node(id);
            // Filters that start with a wildcard do not match $ topics [MQTT-4.7.2-1].
            let skip_wildcards = starts_with_dollar && id == ROOT;
            if node.multi_level != NONE && !skip_wildcards {
                visit_entry(self.node(node.multi_level), visit);
            }
            let Some(level) = ids.get(depth as usize) else {
                if is_whole {
                    visit_entry(node, visit);
                }
                continue;
            };
            if node.single_level != NONE && !skip_wildcards {
                stack[height] = (node.single_level, depth + 1);
                height += 1;
            }
            if let Some(child) = level.and_then(|level| self.edge(hash, id, level)) {
                stack[height] = (child, depth + 1);
                height += 1;
            }
        }
        steps
    }

    fn node(&self, id: NodeId) -> &Node<V> {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<V> {
        &mut self.nodes[id.0 as usize]
    }

    fn find(&self, hash: &SeededHash, filter: &str) -> Option<NodeId> {
        let mut id = ROOT;
        for text in filter.split('/') {
            id = self.child(hash, id, text)?;
        }
        Some(id)
    }

    fn child(&self, hash: &SeededHash, parent: NodeId, text: &str) -> Option<NodeId> {
        let child = match text {
            "+" => self.node(parent).single_level,
            "#" => self.node(parent).multi_level,
            text => self.edge(hash, parent, self.levels.find(hash, text)?)?,
        };
        (child != NONE).then_some(child)
    }

    fn edge(&self, hash: &SeededHash, parent: NodeId, level: LevelId) -> Option<NodeId> {
        let is_edge = |child: &NodeId| {
            let child = self.node(*child);
            child.parent == parent && child.step == Step::Level(level)
        };
        self.edges
            .find(edge_hash(hash, parent, level), is_edge)
            .copied()
    }

    fn child_or_insert(&mut self, hash: &SeededHash, parent: NodeId, text: &str) -> NodeId {
        if let Some(child) = self.child(hash, parent, text) {
            return child;
        }
        let step = match text {
            "+" => Step::SingleLevelWildcard,
            "#" => Step::MultiLevelWildcard,
            text => Step::Level(self.levels.acquire(hash, text)),
        };
        let id = self.allocate(Node::new(parent, step));
        self.node_mut(parent).children += 1;
        match step {
            Step::SingleLevelWildcard => self.node_mut(parent).single_level = id,
            Step::MultiLevelWildcard => self.node_mut(parent).multi_level = id,
            Step::Level(level) => {
                let nodes = &self.nodes;
                let rehash = |child: &NodeId| node_hash(hash, &nodes[child.0 as usize]);
                self.edges
                    .insert_unique(edge_hash(hash, parent, level), id, rehash);
            }
            Step::Root | Step::Vacant => {}
        }
        id
    }

    fn allocate(&mut self, node: Node<V>) -> NodeId {
        if let Some(id) = self.vacant.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        let next =
            u32::try_from(self.nodes.len()).expect("nodes are fewer than bytes of memory allow");
        assert!(next != NONE.0, "the last number means no node");
        self.nodes.push(node);
        NodeId(next)
    }

    /// Removes `id` and its ancestors as long as no filter needs them.
    fn prune(&mut self, hash: &SeededHash, mut id: NodeId) {
        while id != ROOT && self.node(id).entry.is_none() && self.node(id).children == 0 {
            let (parent, step) = (self.node(id).parent, self.node(id).step);
            match step {
                Step::SingleLevelWildcard => self.node_mut(parent).single_level = NONE,
                Step::MultiLevelWildcard => self.node_mut(parent).multi_level = NONE,
                Step::Level(level) => {
                    if let Ok(edge) = self
                        .edges
                        .find_entry(edge_hash(hash, parent, level), |child| *child == id)
                    {
                        edge.remove();
                    }
                    self.levels.release(hash, level);
                }
                Step::Root | Step::Vacant => {}
            }
            self.node_mut(parent).children -= 1;
            *self.node_mut(id) = Node::new(NONE, Step::Vacant);
            self.vacant.push(id);
            id = parent;
        }
    }

    /// Moves the nodes together once three quarters of the arena are vacant, so that memory returns.
    ///
    /// The work is paid for by the removals before it: each made at most a few of the vacant nodes.
    fn compact_if_sparse(&mut self, hash: &SeededHash) {
        if self.vacant.len() < MINIMUM_VACANT || self.vacant.len() < self.nodes.len() / 4 * 3 {
            return;
        }
        let mut next = 0;
        let moved: Vec<NodeId> = self
            .nodes
            .iter()
            .map(|node| {
                if node.step == Step::Vacant {
                    return NONE;
                }
                next += 1;
                NodeId(next - 1)
            })
            .collect();
        let new_id = |id: NodeId| {
            if id == NONE {
                NONE
            } else {
                moved[id.0 as usize]
            }
        };
        self.vacant = Vec::new();
        self.nodes.retain(|node| node.step != Step::Vacant);
        self.nodes.shrink_to_fit();
        self.edges = HashTable::with_capacity(self.edges.len());
        for node in &mut self.nodes {
            node.parent = new_id(node.parent);
            node.single_level = new_id(node.single_level);
            node.multi_level = new_id(node.multi_level);
        }
        let nodes = &self.nodes;
        for (id, node) in (0..).map(NodeId).zip(nodes) {
            if matches!(node.step, Step::Level(_)) {
                let rehash = |child: &NodeId| node_hash(hash, &nodes[child.0 as usize]);
                self.edges.insert_unique(node_hash(hash, node), id, rehash);
            }
        }
    }

    /// Nodes the arena holds memory for, the root included.
    #[cfg(test)]
    pub(super) fn arena_len(&self) -> usize {
        self.nodes.len()
    }

    #[cfg(test)]
    pub(super) fn level_texts(&self) -> usize {
        self.levels.len()
    }
}

fn visit_entry<'a, V>(node: &'a Node<V>, visit: &mut impl FnMut(&'a V)) {
    if let Some(entry) = &node.entry {
        visit(&entry.value);
    }
}

fn edge_hash(hash: &SeededHash, parent: NodeId, level: LevelId) -> u64 {
    hash.number(u64::from(parent.0) << 32 | u64::from(level.0))
}

fn node_hash<V>(hash: &SeededHash, node: &Node<V>) -> u64 {
    match node.step {
        Step::Level(level) => edge_hash(hash, node.parent, level),
        // Only nodes reached by a text are in the table of edges.
        Step::Root | Step::SingleLevelWildcard | Step::MultiLevelWildcard | Step::Vacant => 0,
    }
}
