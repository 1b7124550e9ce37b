//! The root of each topic tree: those that this node named, and those that other nodes named.
//!
//! Trees are forgotten whenever the view changes and are computed again when needed; their roots are kept. Otherwise the number of roots that a node
//! publishes would fall to zero with every change of the view, and that would itself be a change.

use std::collections::BTreeMap;

use crate::identity::NodeId;

/// Roots by the nodes of their trees, and the number of roots that each node has.
#[derive(Debug, Default)]
pub(crate) struct HeldRoots {
    by_members: BTreeMap<Vec<NodeId>, NodeId>,
    counts: BTreeMap<NodeId, u64>,
}

impl HeldRoots {
    /// Trees known.
    pub(crate) fn len(&self) -> usize {
        self.by_members.len()
    }

    /// Number of trees that `node` is the root of (R of Overlays 4.2.2).
    pub(crate) fn of(&self, node: NodeId) -> u64 {
        self.counts.get(&node).copied().unwrap_or(0)
    }

    /// The root of the tree over exactly these nodes.
    pub(crate) fn root(&self, members: &[NodeId]) -> Option<NodeId> {
        self.by_members.get(members).copied()
    }

    /// Records the current root of the tree over `members`. Beyond `maximum` trees all are forgotten: those in use are named again.
    pub(crate) fn note(&mut self, members: &[NodeId], root: NodeId, maximum: usize) {
        if let Some(known) = self.by_members.get_mut(members) {
            let former = std::mem::replace(known, root);
            if former != root {
                self.uncount(former);
                *self.counts.entry(root).or_default() += 1;
            }
            return;
        }
        if self.by_members.len() >= maximum {
            *self = Self::default();
        }
        self.by_members.insert(members.to_vec(), root);
        *self.counts.entry(root).or_default() += 1;
    }

    /// Forgets the trees with a node for which `is_there` does not hold.
    pub(crate) fn retain(&mut self, is_there: impl Fn(NodeId) -> bool) {
        let gone = self.by_members.extract_if(.., |members, root| {
            !is_there(*root) || !members.iter().all(|member| is_there(*member))
        });
        for root in gone.map(|(_, root)| root).collect::<Vec<_>>() {
            self.uncount(root);
        }
    }

    fn uncount(&mut self, root: NodeId) {
        if let Some(count) = self.counts.get_mut(&root) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&root);
            }
        }
    }

    /// An estimate of the memory that this takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let members = self.by_members.keys().map(|members| members.len() * 8 + 48);
        members.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> Vec<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn roots_are_counted_as_they_change_and_go() {
        let mut held = HeldRoots::default();
        let counts = |held: &HeldRoots| [1, 2, 3].map(|id| held.of(NodeId(id)));
        for (members, root) in [
            (&[1, 2][..], 1),
            (&[1, 3], 1),
            (&[2, 3], 3),
            (&[1, 3], 3),
            (&[1, 2], 1),
        ] {
            held.note(&ids(members), NodeId(root), 9);
        }
        assert_eq!((held.len(), counts(&held)), (3, [1, 0, 2]));
        held.retain(|node| node != NodeId(2));
        assert_eq!((held.len(), counts(&held)), (1, [0, 0, 1]));
        assert_eq!(held.root(&ids(&[1, 3])), Some(NodeId(3)));
        held.note(&ids(&[1, 2]), NodeId(2), 1);
        assert_eq!((held.len(), counts(&held)), (1, [0, 1, 0]), "full");
    }
}
