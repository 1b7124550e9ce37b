//! What a topic matched last time.

use hashbrown::HashTable;

use super::is_same_name;
use crate::seeded_hash::SeededHash;

/// Bytes of one entry besides its topic and its result, roughly.
const ENTRY_OVERHEAD: usize = 64;

/// Results of matching, by topic, each valid for one generation of the tree it came from.
///
/// Bounded in entries and in bytes. When it is full, the entries of other generations are removed; if that is not half of them, all are: topics still
/// in use are back after one match each. A hit allocates nothing.
#[derive(Debug)]
pub struct MatchCache<R> {
    hash: SeededHash,
    entries: HashTable<CachedMatch<R>>,
    maximum_entries: usize,
    maximum_bytes: usize,
    bytes: usize,
    /// Where the entry found last lies, or lay: messages of one topic often come in a row.
    last: usize,
}

#[derive(Debug)]
struct CachedMatch<R> {
    topic: Box<str>,
    generation: u64,
    result: R,
    bytes: usize,
}

impl<R> MatchCache<R> {
    /// An empty cache for at most `maximum_entries` topics and about `maximum_bytes` of memory. `seed` as for
    /// [`super::SubscriptionTree::new`].
    #[must_use]
    pub fn new(seed: u64, maximum_entries: usize, maximum_bytes: usize) -> Self {
        Self {
            hash: SeededHash::new(seed),
            entries: HashTable::new(),
            maximum_entries,
            maximum_bytes,
            bytes: 0,
            last: 0,
        }
    }

    /// The result for `topic`, if it was found at `generation`.
    #[inline]
    #[must_use]
    pub fn get(&mut self, topic: &str, generation: u64) -> Option<&R> {
        let last = self.entries.get_bucket(self.last);
        let is_last = |last: &CachedMatch<R>| is_same_name(last.topic.as_bytes(), topic.as_bytes());
        if !last.is_some_and(is_last) {
            self.last = self
                .entries
                .find_bucket_index(self.hash.text(topic), |entry| *entry.topic == *topic)?;
        }
        let found = self.entries.get_bucket(self.last)?;
        (found.generation == generation).then_some(&found.result)
    }

    /// Keeps `result`, which occupies `result_bytes` of memory, for `topic` at `generation`.
    ///
    /// A result that would fill the cache alone is not kept. Returns the one that was there before, of whatever generation.
    pub fn insert(
        &mut self,
        topic: &str,
        generation: u64,
        result: R,
        result_bytes: usize,
    ) -> Option<R> {
        let bytes = topic.len() + result_bytes + ENTRY_OVERHEAD;
        let hash = self.hash.text(topic);
        let mut before = None;
        if let Ok(entry) = self
            .entries
            .find_entry(hash, |entry| *entry.topic == *topic)
        {
            self.bytes -= entry.get().bytes;
            before = Some(entry.remove().0.result);
        }
        if bytes > self.maximum_bytes || self.maximum_entries == 0 {
            return before;
        }
        if self.is_full_with(bytes) {
            self.make_room(generation, bytes);
        }
        let entry = CachedMatch {
            topic: topic.into(),
            generation,
            result,
            bytes,
        };
        self.bytes += bytes;
        self.entries
            .insert_unique(hash, entry, |entry| self.hash.text(&entry.topic));
        before
    }

    /// Topics with their results, of whatever generation, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &R)> {
        let entries = self.entries.iter();
        entries.map(|entry| (&*entry.topic, &entry.result))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// Number of topics that it holds at most.
    #[must_use]
    pub const fn maximum_entries(&self) -> usize {
        self.maximum_entries
    }

    /// Number of topics.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory used, as far as it was given: topics, results, and a fixed sum for each entry.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn is_full_with(&self, bytes: usize) -> bool {
        self.entries.len() >= self.maximum_entries || self.bytes + bytes > self.maximum_bytes
    }

    fn make_room(&mut self, generation: u64, bytes: usize) {
        let before = self.entries.len();
        let kept_bytes = &mut self.bytes;
        self.entries.retain(|entry| {
            let is_current = entry.generation == generation;
            if !is_current {
                *kept_bytes -= entry.bytes;
            }
            is_current
        });
        // Half of it must go, or the next insertions would sweep again and again.
        if self.entries.len() > before / 2 || self.is_full_with(bytes) {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_holds_for_its_generation_only() {
        let mut cache = MatchCache::new(1, 10, 10_000);
        cache.insert("a/b", 3, "three", 0);
        assert_eq!(cache.get("a/b", 3), Some(&"three"));
        assert_eq!(cache.get("a/b", 4), None);
        assert_eq!(cache.get("a/c", 3), None);
        cache.insert("a/b", 4, "four", 0);
        assert_eq!(cache.get("a/b", 4), Some(&"four"));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn entries_and_bytes_stay_within_their_bounds() {
        let cases: &[(&str, usize, usize, usize)] = &[
            ("by entries", 10, usize::MAX, 8),
            ("by bytes", usize::MAX, 1000, 8),
            ("nothing", 0, 1000, 8),
            ("too large a result", 10, 1000, 2000),
        ];
        for (name, maximum_entries, maximum_bytes, result_bytes) in cases {
            let mut cache = MatchCache::new(1, *maximum_entries, *maximum_bytes);
            for number in 0..100 {
                let topic = format!("topic/{number}");
                cache.insert(&topic, number / 30, number, *result_bytes);
                assert!(cache.len() <= *maximum_entries, "{name}");
                assert!(cache.bytes() <= *maximum_bytes, "{name}");
                let is_kept = *maximum_entries > 0 && *result_bytes < 1000;
                assert_eq!(
                    cache.get(&topic, number / 30).is_some(),
                    is_kept,
                    "{name} {number}"
                );
            }
            cache.clear();
            assert_eq!((cache.len(), cache.bytes()), (0, 0), "{name}");
        }
    }

    #[test]
    fn entries_of_older_generations_go_first() {
        let mut cache = MatchCache::new(1, 10, usize::MAX);
        for number in 0..6 {
            cache.insert(&format!("old/{number}"), 1, number, 0);
        }
        for number in 0..4 {
            cache.insert(&format!("new/{number}"), 2, number, 0);
        }
        cache.insert("new/4", 2, 4, 0);
        assert_eq!(cache.len(), 5);
        assert_eq!(cache.get("new/0", 2), Some(&0));
        assert_eq!(cache.get("old/0", 1), None);
    }
}
