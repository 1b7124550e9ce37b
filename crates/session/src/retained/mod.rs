//! Retained messages: one value a topic, and the topics a filter matches, a few at a time.

mod cursor;
mod order;

use std::borrow::Borrow;
use std::collections::BTreeMap;

pub use cursor::{RetainedCursor, RetainedProgress};
pub(crate) use order::compare_levels as compare_topics;
use order::{LevelOrder, TopicKey};

use crate::topic::TopicFilter;

/// A value for each topic, sorted level by level.
///
/// A topic costs its bytes and one entry, however many levels it has. A filter is matched by jumps through the sorted topics: at most one jump for
/// each topic or branch of topics that agrees with the filter so far.
#[derive(Debug, Default)]
pub struct RetainedTree<V> {
    topics: BTreeMap<TopicKey, Retained<V>>,
    bytes: usize,
}

#[derive(Debug)]
struct Retained<V> {
    value: V,
    bytes: usize,
}

impl<V> RetainedTree<V> {
    /// An empty tree.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            topics: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Keeps `value`, which occupies `value_bytes` of memory, for `topic`. Returns what it replaces.
    pub fn insert(&mut self, topic: &str, value: V, value_bytes: usize) -> Option<V> {
        self.bytes += value_bytes;
        if let Some(found) = self.topics.get_mut(as_key(&topic)) {
            self.bytes -= found.bytes;
            let replaced = std::mem::replace(
                found,
                Retained {
                    value,
                    bytes: value_bytes,
                },
            );
            return Some(replaced.value);
        }
        self.bytes += topic.len();
        self.topics.insert(
            TopicKey::new(topic),
            Retained {
                value,
                bytes: value_bytes,
            },
        );
        None
    }

    /// Removes the value of `topic`.
    pub fn remove(&mut self, topic: &str) -> Option<V> {
        let removed = self.topics.remove(as_key(&topic))?;
        self.bytes -= topic.len() + removed.bytes;
        Some(removed.value)
    }

    /// The value of `topic`.
    #[must_use]
    pub fn get(&self, topic: &str) -> Option<&V> {
        self.topics.get(as_key(&topic)).map(|found| &found.value)
    }

    /// The value of `topic`, to change it. Its bytes stay as given to `insert`.
    #[must_use]
    pub fn get_mut(&mut self, topic: &str) -> Option<&mut V> {
        self.topics
            .get_mut(as_key(&topic))
            .map(|found| &mut found.value)
    }

    /// The topics that `filter` matches with their values, in the order of the tree, found one at a time.
    ///
    /// To get a few at a time while the tree changes, keep a [`RetainedCursor`].
    pub fn matching(&self, filter: &TopicFilter) -> impl Iterator<Item = (&str, &V)> {
        cursor::Matching::new(self, RetainedCursor::new(filter))
    }

    /// All topics with their values, level by level: a parent before its children, children by the bytes of their level.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.topics
            .iter()
            .map(|(topic, retained)| (topic.text(), &retained.value))
    }

    /// Number of topics.
    #[must_use]
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether nothing is retained.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Bytes of all topics and of all values, as given to `insert`.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// `topic` as a key that the map can be searched for without copying it.
fn as_key<'a>(topic: &'a &'a str) -> &'a (dyn LevelOrder + 'a) {
    topic
}

impl<'a> Borrow<dyn LevelOrder + 'a> for TopicKey {
    fn borrow(&self) -> &(dyn LevelOrder + 'a) {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_replaced_and_taken_out() {
        let mut tree = RetainedTree::new();
        assert_eq!(tree.insert("a/b", 1, 100), None);
        assert_eq!((tree.len(), tree.bytes()), (1, 103));
        assert_eq!(tree.insert("a/b", 2, 50), Some(1));
        assert_eq!((tree.len(), tree.bytes()), (1, 53));
        assert_eq!(tree.insert("a", 3, 0), None);
        assert_eq!(tree.get("a/b"), Some(&2));
        *tree.get_mut("a/b").unwrap() = 4;
        assert_eq!(tree.iter().collect::<Vec<_>>(), [("a", &3), ("a/b", &4)]);
        assert_eq!(tree.remove("a/b"), Some(4));
        assert_eq!(tree.remove("a/b"), None);
        assert_eq!(tree.get("a/b"), None);
        assert_eq!((tree.len(), tree.bytes()), (1, 1));
    }

    #[test]
    fn topics_are_sorted_level_by_level() {
        let mut tree = RetainedTree::new();
        for topic in [
            "a b", "a", "a/b/c", "b", "a/b", "a!", "/", "a/", "a/b c", "$x",
        ] {
            tree.insert(topic, (), 0);
        }
        let topics: Vec<_> = tree.iter().map(|(topic, ())| topic).collect();
        assert_eq!(
            topics,
            [
                "/", "$x", "a", "a/", "a/b", "a/b/c", "a/b c", "a b", "a!", "b"
            ]
        );
    }
}
