//! Topics whose retained message was removed, and when: an older message that arrives later does not bring them back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::control::WriteTime;
use crate::Remembered;

/// Removed topics, up to `maximum`: the removal that is longest ago is forgotten first.
#[derive(Debug)]
pub(super) struct Tombstones {
    maximum: usize,
    removed: BTreeMap<Arc<str>, WriteTime>,
    /// The same by time: clients remove topics as often as they like, so forgetting one must not visit all.
    by_time: BTreeSet<(WriteTime, Arc<str>)>,
}

impl Tombstones {
    pub const fn new(maximum: usize) -> Self {
        Self {
            maximum,
            removed: BTreeMap::new(),
            by_time: BTreeSet::new(),
        }
    }

    /// The topics that are remembered.
    pub fn remembered(&self) -> Remembered {
        let text: usize = self.removed.keys().map(|topic| topic.len()).sum();
        let bytes = text + self.removed.len() * 2 * size_of::<(WriteTime, Arc<str>)>();
        Remembered::new(
            "topics without a retained message any more",
            self.removed.len(),
            self.maximum,
        )
        .with_bytes(bytes)
    }

    pub fn get(&self, topic: &str) -> Option<WriteTime> {
        self.removed.get(topic).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, WriteTime)> {
        self.removed.iter().map(|(topic, at)| (&**topic, *at))
    }

    /// The topic was removed then. Returns what is forgotten instead, if there were too many.
    pub fn insert(&mut self, topic: &str, written: WriteTime) -> Option<(Arc<str>, WriteTime)> {
        self.remove(topic);
        let topic: Arc<str> = topic.into();
        self.removed.insert(Arc::clone(&topic), written);
        self.by_time.insert((written, topic));
        if self.removed.len() <= self.maximum {
            return None;
        }
        let (written, oldest) = self.by_time.pop_first()?;
        self.removed.remove(&oldest);
        Some((oldest, written))
    }

    /// The topic has a message again.
    pub fn remove(&mut self, topic: &str) {
        if let Some((topic, written)) = self.removed.remove_entry(topic) {
            self.by_time.remove(&(written, topic));
        }
    }
}

#[cfg(test)]
mod tests {
    use thicket_overlay::{NodeId, record::HybridTime};

    use super::*;

    const fn at(millis: u64) -> WriteTime {
        (HybridTime { millis, counter: 0 }, NodeId(1))
    }

    #[test]
    fn the_removal_that_is_longest_ago_is_forgotten_first() {
        let mut tombstones = Tombstones::new(2);
        assert_eq!(tombstones.insert("late", at(30)), None);
        assert_eq!(tombstones.insert("early", at(10)), None);
        // Removed again: its first time counts no more.
        assert_eq!(tombstones.insert("early", at(40)), None);
        assert_eq!(
            tombstones.insert("new", at(50)),
            Some(("late".into(), at(30)))
        );
        tombstones.remove("early");
        assert_eq!(tombstones.insert("other", at(20)), None);
        assert_eq!(
            tombstones.insert("one too many, and the oldest", at(5)),
            Some(("one too many, and the oldest".into(), at(5)))
        );
        let left: Vec<_> = tombstones.iter().collect();
        assert_eq!(left, [("new", at(50)), ("other", at(20))]);
        assert_eq!(tombstones.get("early"), None);
    }
}
