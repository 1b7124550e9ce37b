//! Filters with wildcards, in one arena: a radix tree whose characters are levels.
//!
//! A node is where filters part or end. The levels between it and its parent are its label, so there are at most twice as many nodes as filters, however many
//! levels these have. A child whose label begins with `+` is a field of its parent; the others are found in one table of edges for the whole tree. `#` is no
//! level: a filter that ends in it belongs to the node of the levels before. A match visits the nodes whose path matches a prefix of the topic, each once,
//! without recursion, and compares the labels of their children level by level: a client pays for each level of its filters, and a match costs no more than
//! a comparison of two numbers for each of them.

use std::sync::Arc;

use hashbrown::HashTable;

use super::levels::{LevelId, LevelTable};
use crate::seeded_hash::SeededHash;

/// Index of a node in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NodeId(u32);

const ROOT: NodeId = NodeId(0);
/// No node: saves the tag of an `Option` in every node.
const NONE: NodeId = NodeId(u32::MAX);
/// The parent of what is not part of the tree.
const VACANT: NodeId = NodeId(u32::MAX - 1);

/// A level of a label, or of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step(u32);

impl Step {
    /// `+`.
    const ANY: Self = Self(u32::MAX);
    /// A level of a topic that no filter has.
    const UNKNOWN: Self = Self(u32::MAX - 1);

    const fn of(level: LevelId) -> Self {
        Self(level.0)
    }

    /// Whether it is a level of a filter, not `+`, which the table of levels has.
    fn level(self) -> Option<LevelId> {
        (self != Self::ANY && self != Self::UNKNOWN).then_some(LevelId(self.0))
    }
}

/// Levels whose numbers a match keeps on the stack. Topics and filters with more cost an allocation a match.
const INLINE_LEVELS: usize = 16;
/// Levels of labels that are compared in the time that a visit of a node takes.
const COMPARED_IN_A_STEP: u64 = 16;
/// Vacant nodes below which compaction is not worth it.
const MINIMUM_VACANT: usize = 1024;

#[derive(Debug)]
struct Node<V> {
    parent: NodeId,
    /// The first level of its label.
    first: Step,
    /// The others.
    rest: Box<[Step]>,
    /// The child whose label begins with `+`.
    single_level: NodeId,
    children: u32,
    /// The numbers of all children, combined with exclusive or: of an only child, its number.
    children_mixed: u32,
    /// The filter that ends here.
    entry: Option<Box<Entry<V>>>,
    /// The filter that ends here with `#` behind.
    multi_level: Option<Box<Entry<V>>>,
}

#[derive(Debug)]
struct Entry<V> {
    filter: Arc<str>,
    value: V,
}

impl<V> Node<V> {
    fn new(parent: NodeId, first: Step, rest: Box<[Step]>) -> Self {
        Self {
            parent,
            first,
            rest,
            single_level: NONE,
            children: 0,
            children_mixed: 0,
            entry: None,
            multi_level: None,
        }
    }

    const fn is_bare(&self) -> bool {
        self.entry.is_none() && self.multi_level.is_none()
    }
}

/// A filter as it is found in the tree.
#[derive(Debug, Clone, Copy)]
struct Path<'a> {
    /// The levels before `#`; `None`: there are none.
    levels: Option<&'a str>,
    has_multi_level: bool,
}

impl<'a> Path<'a> {
    fn of(filter: &'a str) -> Self {
        let before = filter.strip_suffix("/#");
        let has_multi_level = before.is_some() || filter == "#";
        Self {
            levels: before.or((!has_multi_level).then_some(filter)),
            has_multi_level,
        }
    }

    fn levels(self) -> impl Iterator<Item = &'a str> {
        self.levels.into_iter().flat_map(|levels| levels.split('/'))
    }

    const fn entry<V>(self, node: &Node<V>) -> &Option<Box<Entry<V>>> {
        if self.has_multi_level {
            &node.multi_level
        } else {
            &node.entry
        }
    }

    const fn entry_mut<V>(self, node: &mut Node<V>) -> &mut Option<Box<Entry<V>>> {
        if self.has_multi_level {
            &mut node.multi_level
        } else {
            &mut node.entry
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
            nodes: vec![Node::new(NONE, Step::ANY, Box::default())],
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
        let path = Path::of(filter);
        let entry = path.entry(self.node(self.find(hash, path)?));
        entry.as_ref().map(|entry| &entry.value)
    }

    pub(super) fn get_mut(&mut self, hash: &SeededHash, filter: &str) -> Option<&mut V> {
        let path = Path::of(filter);
        let id = self.find(hash, path)?;
        let entry = path.entry_mut(self.node_mut(id));
        entry.as_mut().map(|entry| &mut entry.value)
    }

    /// The value of `filter`, made by `make` if there is none.
    pub(super) fn entry(
        &mut self,
        hash: &SeededHash,
        filter: &Arc<str>,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let path = Path::of(filter);
        let id = match self.find(hash, path) {
            Some(id) => id,
            None => self.insert(hash, path),
        };
        // The count is a field beside the arena, so the borrow of the node does not reach it.
        let len = &mut self.len;
        let entry = path.entry_mut(&mut self.nodes[id.0 as usize]);
        let entry = entry.get_or_insert_with(|| {
            *len += 1;
            Box::new(Entry {
                filter: Arc::clone(filter),
                value: make(),
            })
        });
        &mut entry.value
    }

    /// Removes `filter`, with the node that served it alone.
    pub(super) fn remove(&mut self, hash: &SeededHash, filter: &str) -> Option<V> {
        let path = Path::of(filter);
        let id = self.find(hash, path)?;
        let entry = path.entry_mut(self.node_mut(id)).take()?;
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
        let entries =
            (self.nodes.iter()).flat_map(|node| node.entry.iter().chain(&node.multi_level));
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
        let step = |text: &str| self.levels.find(hash, text).map_or(Step::UNKNOWN, Step::of);
        let mut inline = [Step::UNKNOWN; INLINE_LEVELS];
        let mut spilled = Vec::new();
        let mut levels = topic.split('/');
        let steps: &[Step] = if self.depth <= INLINE_LEVELS {
            let mut count = 0;
            for (slot, text) in inline.iter_mut().zip(levels.by_ref().take(self.depth)) {
                *slot = step(text);
                count += 1;
            }
            &inline[..count]
        } else {
            spilled.extend(levels.by_ref().take(self.depth).map(step));
            &spilled
        };
        let is_whole = levels.next().is_none();
        self.walk(hash, steps, is_whole, topic.starts_with('$'), &mut visit)
    }

    /// Visits the values of the filters that match the levels `steps`, of which there are more unless `is_whole`. Returns the cost, in visits of nodes.
    fn walk<'a>(
        &'a self,
        hash: &SeededHash,
        steps: &[Step],
        is_whole: bool,
        starts_with_dollar: bool,
        visit: &mut impl FnMut(&'a V),
    ) -> u64 {
        // A node pushes two children at most and was taken off itself: the stack grows by one a level.
        let mut inline = [(NONE, 0_u32); INLINE_LEVELS + 2];
        let mut spilled = Vec::new();
        let stack: &mut [(NodeId, u32)] = if steps.len() <= INLINE_LEVELS {
            &mut inline
        } else {
            spilled.resize(steps.len() + 2, (NONE, 0));
            &mut spilled
        };
        stack[0] = (ROOT, 0);
        let mut height = 1;
        let (mut visited, mut compared) = (0, 0);
        while height > 0 {
            height -= 1;
            visited += 1;
            let (id, depth) = stack[height];
            let node = self.node(id);
            // Filters that start with a wildcard do not match $ topics [MQTT-4.7.2-1].
            let skip_wildcards = starts_with_dollar && id == ROOT;
            if !skip_wildcards {
                visit_entry(&node.multi_level, visit);
            }
            let Some((step, after)) = steps.get(depth as usize..).and_then(<[_]>::split_first)
            else {
                if is_whole {
                    visit_entry(&node.entry, visit);
                }
                continue;
            };
            let mut push = |child| {
                let rest = &*self.node(child).rest;
                if !rest.is_empty() {
                    compared += rest.len() as u64;
                    if !begins_with(after, rest) {
                        return;
                    }
                }
                stack[height] = (child, depth + 1 + rest.len() as u32);
                height += 1;
            };
            if node.single_level != NONE && !skip_wildcards {
                push(node.single_level);
            }
            if *step != Step::UNKNOWN
                && let Some(child) = self.edge(hash, id, *step)
            {
                push(child);
            }
        }
        visited + compared / COMPARED_IN_A_STEP
    }

    fn node(&self, id: NodeId) -> &Node<V> {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node<V> {
        &mut self.nodes[id.0 as usize]
    }

    /// The level of a filter, if one has it.
    fn step(&self, hash: &SeededHash, text: &str) -> Option<Step> {
        match text {
            "+" => Some(Step::ANY),
            text => self.levels.find(hash, text).map(Step::of),
        }
    }

    fn find(&self, hash: &SeededHash, path: Path<'_>) -> Option<NodeId> {
        let mut id = ROOT;
        let mut levels = path.levels();
        while let Some(text) = levels.next() {
            id = self.child(hash, id, self.step(hash, text)?)?;
            for step in &self.node(id).rest {
                if self.step(hash, levels.next()?)? != *step {
                    return None;
                }
            }
        }
        Some(id)
    }

    fn child(&self, hash: &SeededHash, parent: NodeId, first: Step) -> Option<NodeId> {
        if first == Step::ANY {
            let child = self.node(parent).single_level;
            return (child != NONE).then_some(child);
        }
        self.edge(hash, parent, first)
    }

    fn edge(&self, hash: &SeededHash, parent: NodeId, first: Step) -> Option<NodeId> {
        let is_edge = |child: &NodeId| {
            let child = self.node(*child);
            child.parent == parent && child.first == first
        };
        self.edges
            .find(edge_hash(hash, parent, first), is_edge)
            .copied()
    }

    /// The node of a path that has none.
    fn insert(&mut self, hash: &SeededHash, path: Path<'_>) -> NodeId {
        let levels = &mut self.levels;
        let steps = path.levels().map(|text| match text {
            "+" => Step::ANY,
            text => Step::of(levels.acquire(hash, text)),
        });
        let steps: Vec<Step> = steps.collect();
        self.depth = self.depth.max(steps.len());
        let (mut id, mut left) = (ROOT, &*steps);
        while let Some((first, after)) = left.split_first() {
            let Some(child) = self.child(hash, id, *first) else {
                let leaf = self.allocate(Node::new(id, *first, after.into()));
                self.attach(hash, leaf);
                return leaf;
            };
            let label = &self.node(child).rest;
            let shared = label
                .iter()
                .zip(after)
                .take_while(|(one, other)| one == other);
            let shared = shared.count();
            let is_whole = shared == label.len();
            // The label of the child has these levels, with a reference of its own.
            let (front, behind) = left.split_at(1 + shared);
            self.release(hash, front);
            id = if is_whole {
                child
            } else {
                self.split(hash, child, shared)
            };
            left = behind;
        }
        id
    }

    /// A new node between `child` and its parent, with the first level of the label and `shared` more.
    fn split(&mut self, hash: &SeededHash, child: NodeId, shared: usize) -> NodeId {
        self.detach(hash, child);
        let node = self.node_mut(child);
        let (parent, first) = (node.parent, node.first);
        let mut front = std::mem::take(&mut node.rest).into_vec();
        let mut behind = front.split_off(shared);
        let next = behind.remove(0);
        let middle = self.allocate(Node::new(parent, first, front.into()));
        self.attach(hash, middle);
        self.relabel(child, middle, next, behind.into());
        self.attach(hash, child);
        middle
    }

    fn relabel(&mut self, id: NodeId, parent: NodeId, first: Step, rest: Box<[Step]>) {
        let node = self.node_mut(id);
        (node.parent, node.first, node.rest) = (parent, first, rest);
    }

    fn release(&mut self, hash: &SeededHash, steps: &[Step]) {
        for level in steps.iter().filter_map(|step| step.level()) {
            self.levels.release(hash, level);
        }
    }

    /// Makes a node a child of the parent that it names.
    fn attach(&mut self, hash: &SeededHash, id: NodeId) {
        let (parent, first) = (self.node(id).parent, self.node(id).first);
        let node = self.node_mut(parent);
        node.children += 1;
        node.children_mixed ^= id.0;
        if first == Step::ANY {
            node.single_level = id;
        } else {
            let nodes = &self.nodes;
            let rehash = |child: &NodeId| node_hash(hash, &nodes[child.0 as usize]);
            self.edges
                .insert_unique(edge_hash(hash, parent, first), id, rehash);
        }
    }

    /// The opposite.
    fn detach(&mut self, hash: &SeededHash, id: NodeId) {
        let (parent, first) = (self.node(id).parent, self.node(id).first);
        let node = self.node_mut(parent);
        node.children -= 1;
        node.children_mixed ^= id.0;
        if first == Step::ANY {
            node.single_level = NONE;
        } else if let Ok(edge) =
            (self.edges).find_entry(edge_hash(hash, parent, first), |child| *child == id)
        {
            edge.remove();
        }
    }

    fn allocate(&mut self, node: Node<V>) -> NodeId {
        if let Some(id) = self.vacant.pop() {
            *self.node_mut(id) = node;
            return id;
        }
        let next =
            u32::try_from(self.nodes.len()).expect("nodes are fewer than bytes of memory allow");
        assert!(next < VACANT.0, "the last numbers have a meaning");
        self.nodes.push(node);
        NodeId(next)
    }

    fn vacate(&mut self, id: NodeId) {
        *self.node_mut(id) = Node::new(VACANT, Step::ANY, Box::default());
        self.vacant.push(id);
    }

    /// Removes a node that no filter needs any more: one without children, and one with an only child, to which its label goes.
    fn prune(&mut self, hash: &SeededHash, id: NodeId) {
        let node = self.node(id);
        if id == ROOT || !node.is_bare() || node.children > 1 {
            return;
        }
        if node.children == 1 {
            return self.merge(hash, id);
        }
        let parent = node.parent;
        self.detach(hash, id);
        let node = self.node_mut(id);
        let (first, rest) = (node.first, std::mem::take(&mut node.rest));
        self.release(hash, &[first]);
        self.release(hash, &rest);
        self.vacate(id);
        let node = self.node(parent);
        if parent != ROOT && node.is_bare() && node.children == 1 {
            self.merge(hash, parent);
        }
    }

    /// Puts the label of a node before that of its only child, and the child in its place.
    fn merge(&mut self, hash: &SeededHash, id: NodeId) {
        let child = NodeId(self.node(id).children_mixed);
        self.detach(hash, child);
        self.detach(hash, id);
        let node = self.node_mut(id);
        let (parent, first) = (node.parent, node.first);
        let mut label = std::mem::take(&mut node.rest).into_vec();
        label.push(self.node(child).first);
        label.extend_from_slice(&self.node(child).rest);
        self.relabel(child, parent, first, label.into());
        self.attach(hash, child);
        self.vacate(id);
    }

    /// Moves the nodes together once three quarters of the arena are vacant, so that memory returns.
    ///
    /// The work is paid for by the removals before it: each made at most two of the vacant nodes.
    fn compact_if_sparse(&mut self, hash: &SeededHash) {
        if self.vacant.len() < MINIMUM_VACANT || self.vacant.len() < self.nodes.len() / 4 * 3 {
            return;
        }
        let mut next = 0;
        let moved: Vec<NodeId> = self
            .nodes
            .iter()
            .map(|node| {
                if node.parent == VACANT {
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
        self.nodes.retain(|node| node.parent != VACANT);
        self.nodes.shrink_to_fit();
        self.edges = HashTable::with_capacity(self.edges.len());
        for node in &mut self.nodes {
            node.parent = new_id(node.parent);
            node.single_level = new_id(node.single_level);
            node.children_mixed = 0;
        }
        for id in 1..self.nodes.len() {
            let parent = self.nodes[id].parent;
            self.node_mut(parent).children_mixed ^= id as u32;
        }
        let nodes = &self.nodes;
        for (id, node) in (0..).map(NodeId).zip(nodes).skip(1) {
            if node.first != Step::ANY {
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

/// Whether the levels of a topic begin with those of a label.
fn begins_with(steps: &[Step], label: &[Step]) -> bool {
    let front = steps.get(..label.len());
    front.is_some_and(|front| {
        let mut pairs = front.iter().zip(label);
        pairs.all(|(step, level)| *level == Step::ANY || level == step)
    })
}

fn visit_entry<'a, V>(entry: &'a Option<Box<Entry<V>>>, visit: &mut impl FnMut(&'a V)) {
    if let Some(entry) = entry {
        visit(&entry.value);
    }
}

fn edge_hash(hash: &SeededHash, parent: NodeId, first: Step) -> u64 {
    hash.number(u64::from(parent.0) << 32 | u64::from(first.0))
}

/// Only nodes reached by a text are in the table of edges.
fn node_hash<V>(hash: &SeededHash, node: &Node<V>) -> u64 {
    edge_hash(hash, node.parent, node.first)
}
