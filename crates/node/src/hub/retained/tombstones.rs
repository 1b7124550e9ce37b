//! Topics whose retained message was removed, and when: an older message that arrives later does not bring them back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use thicket_session::time::Instant;

use crate::{Remembered, hub::control::WriteTime};

/// Bytes that a removal takes besides its topic: an entry in each of the two maps, and the allocation of the topic.
const ENTRY_BYTES: usize =
    size_of::<(Arc<str>, Removal)>() + size_of::<(WriteTime, Arc<str>)>() + 80;

/// When a topic was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Removal {
    pub written: WriteTime,
    /// When it was noted here; `None`: before this node was started.
    pub at: Option<Instant>,
}

/// Removed topics, up to `maximum` and `maximum_bytes`: the removal that is longest ago is forgotten first.
#[derive(Debug)]
pub(super) struct Tombstones {
    maximum: usize,
    maximum_bytes: usize,
    bytes: usize,
    removed: BTreeMap<Arc<str>, Removal>,
    /// The same by time: clients remove topics as often as they like, so forgetting one must not visit all.
    by_time: BTreeSet<(WriteTime, Arc<str>)>,
}

impl Tombstones {
    pub const fn new(maximum: usize, maximum_bytes: usize) -> Self {
        Self {
            maximum,
            maximum_bytes,
            bytes: 0,
            removed: BTreeMap::new(),
            by_time: BTreeSet::new(),
        }
    }

    /// The topics that are remembered.
    pub fn remembered(&self) -> Remembered {
        Remembered::new(
            "topics without a retained message any more",
            self.removed.len(),
            self.maximum,
        )
        .with_bytes(self.bytes)
    }

    pub fn get(&self, topic: &str) -> Option<Removal> {
        self.removed.get(topic).copied()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, Removal)> {
        let removed = self.removed.iter();
        removed.map(|(topic, removal)| (&**topic, *removal))
    }

    /// The topic was removed then. Returns what is forgotten instead, if there was too much.
    pub fn insert(&mut self, topic: &str, removal: Removal) -> Vec<(Arc<str>, WriteTime)> {
        let written = removal.written;
        self.remove(topic);
        let topic: Arc<str> = topic.into();
        self.bytes += topic.len() + ENTRY_BYTES;
        self.removed.insert(Arc::clone(&topic), removal);
        self.by_time.insert((written, topic));
        let mut forgotten = Vec::new();
        while self.removed.len() > self.maximum || self.bytes > self.maximum_bytes {
            let Some((written, oldest)) = self.by_time.pop_first() else {
                break;
            };
            self.removed.remove(&oldest);
            self.bytes -= oldest.len() + ENTRY_BYTES;
            forgotten.push((oldest, written));
        }
        forgotten
    }

    /// The topic has a message again.
    pub fn remove(&mut self, topic: &str) {
        if let Some((topic, removal)) = self.removed.remove_entry(topic) {
            self.bytes -= topic.len() + ENTRY_BYTES;
            self.by_time.remove(&(removal.written, topic));
        }
    }
}

#[cfg(test)]
mod tests {
    use thicket_overlay::{NodeId, record::HybridTime};

    use super::*;

    const fn written(millis: u64) -> WriteTime {
        (HybridTime { millis, counter: 0 }, NodeId(1))
    }

    const fn at(millis: u64) -> Removal {
        let written = written(millis);
        Removal { written, at: None }
    }

    #[test]
    fn the_removal_that_is_longest_ago_is_forgotten_first() {
        let mut tombstones = Tombstones::new(2, usize::MAX);
        assert_eq!(tombstones.insert("late", at(30)), []);
        assert_eq!(tombstones.insert("early", at(10)), []);
        // Removed again: its first time counts no more.
        assert_eq!(tombstones.insert("early", at(40)), []);
        assert_eq!(
            tombstones.insert("new", at(50)),
            [("late".into(), written(30))]
        );
        tombstones.remove("early");
        assert_eq!(tombstones.insert("other", at(20)), []);
        assert_eq!(
            tombstones.insert("one too many, and the oldest", at(5)),
            [("one too many, and the oldest".into(), written(5))]
        );
        let left: Vec<_> = tombstones.iter().collect();
        assert_eq!(left, [("new", at(50)), ("other", at(20))]);
        assert_eq!(tombstones.get("early"), None);
    }

    #[test]
    fn long_topics_are_bounded_by_their_bytes() {
        let long = |first: char| format!("{first}{}", "x".repeat(999));
        let bytes = |tombstones: &Tombstones| tombstones.remembered().bytes;
        let mut tombstones = Tombstones::new(100, 3 * (1000 + ENTRY_BYTES));
        for (at_ms, topic) in ['a', 'b', 'c'].into_iter().enumerate() {
            assert_eq!(tombstones.insert(&long(topic), at(at_ms as u64)), []);
        }
        assert_eq!(bytes(&tombstones), Some(3 * (1000 + ENTRY_BYTES) as u64));
        let forgotten = tombstones.insert(&format!("d{}", "x".repeat(1000)), at(9));
        // The fourth is longer by a byte, so that two must go.
        let forgotten: Vec<_> = forgotten.iter().map(|(topic, _)| &topic[..1]).collect();
        assert_eq!(forgotten, ["a", "b"]);
        // One that is longer than all may be is forgotten with the others.
        tombstones.insert(&"y".repeat(10_000), at(10));
        assert_eq!(tombstones.iter().count(), 0);
        assert_eq!(bytes(&tombstones), Some(0));
    }
}
