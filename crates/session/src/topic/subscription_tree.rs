//! Many filters, and which of them match a topic.

use std::sync::Arc;

use hashbrown::HashTable;

use super::TopicFilter;
use super::wildcard_trie::WildcardTrie;
use crate::seeded_hash::SeededHash;

/// A value for each topic filter, and the values of all filters that match a topic.
///
/// Filters without wildcards are in a hash table, the others in a trie. A match costs one lookup, and for the trie at most one
/// visit to each node whose path matches a prefix of the topic, of which there are at most two for each filter, and a comparison of two
/// numbers for each level of these filters: filters full of `+` or of many levels make it no worse. Nothing recurses, and only a trie
/// deeper than 16 levels makes a match allocate.
#[derive(Debug)]
pub struct SubscriptionTree<V> {
    hash: SeededHash,
    exact: HashTable<Exact<V>>,
    wildcard: WildcardTrie<V>,
    generation: u64,
}

#[derive(Debug)]
struct Exact<V> {
    filter: Arc<str>,
    value: V,
}

impl<V> SubscriptionTree<V> {
    /// An empty tree. `seed` keeps clients, who choose the keys, from aiming at one bucket: take it from a source they
    /// cannot know.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            hash: SeededHash::new(seed),
            exact: HashTable::new(),
            wildcard: WildcardTrie::new(),
            generation: 0,
        }
    }

    /// The value of `filter`.
    #[must_use]
    pub fn get(&self, filter: &TopicFilter) -> Option<&V> {
        if filter.has_wildcards() {
            return self.wildcard.get(&self.hash, filter.as_str());
        }
        self.find_exact(filter.as_str())
    }

    /// The value of `filter`, to change it. The generation stays: see [`SubscriptionTree::touch`].
    #[must_use]
    pub fn get_mut(&mut self, filter: &TopicFilter) -> Option<&mut V> {
        let text = filter.as_str();
        if filter.has_wildcards() {
            return self.wildcard.get_mut(&self.hash, text);
        }
        let found = self
            .exact
            .find_mut(self.hash.text(text), |exact| *exact.filter == *text);
        found.map(|exact| &mut exact.value)
    }

    /// The value of `filter`, a default one if it is new. The generation rises only in that case.
    pub fn entry(&mut self, filter: &TopicFilter) -> &mut V
    where
        V: Default,
    {
        let (hash, text) = (&self.hash, filter.as_shared());
        let generation = &mut self.generation;
        let mut make = || {
            *generation += 1;
            V::default()
        };
        if filter.has_wildcards() {
            return self.wildcard.entry(hash, text, make);
        }
        let entry = self.exact.entry(
            hash.text(text),
            |exact| *exact.filter == **text,
            |exact| hash.text(&exact.filter),
        );
        let entry = entry.or_insert_with(|| Exact {
            filter: Arc::clone(text),
            value: make(),
        });
        &mut entry.into_mut().value
    }

    /// Removes `filter` and what served it alone; the generation rises if it was there.
    pub fn remove(&mut self, filter: &TopicFilter) -> Option<V> {
        let removed = if filter.has_wildcards() {
            self.wildcard.remove(&self.hash, filter.as_str())
        } else {
            self.remove_exact(filter.as_str())
        };
        self.generation += u64::from(removed.is_some());
        removed
    }

    /// Calls `visit` with the value of each filter that matches `topic`, in no order that means anything; the same tree
    /// built in the same way with the same seed gives the same order.
    #[inline]
    ///
    /// Returns the number of steps: the cost of the match, which may be as many as there are filters.
    pub fn for_each_match<'a>(&'a self, topic: &str, mut visit: impl FnMut(&'a V)) -> u64 {
        if let Some(value) = self.find_exact(topic) {
            visit(value);
        }
        self.wildcard.for_each_match(&self.hash, topic, visit)
    }

    /// All filters with their values, in no order that means anything (see [`SubscriptionTree::for_each_match`]).
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        let exact = self
            .exact
            .iter()
            .map(|exact| (&*exact.filter, &exact.value));
        exact.chain(self.wildcard.iter())
    }

    /// Number of filters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.exact.len() + self.wildcard.len()
    }

    /// Whether there is no filter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A number that rises whenever a filter is added or removed and at each [`SubscriptionTree::touch`]: what was matched at one
    /// generation holds until the next.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Raises the generation: call it after a change inside a value that matters to caches of matches.
    pub const fn touch(&mut self) {
        self.generation += 1;
    }

    fn find_exact(&self, text: &str) -> Option<&V> {
        let found = self
            .exact
            .find(self.hash.text(text), |exact| *exact.filter == *text);
        found.map(|exact| &exact.value)
    }

    fn remove_exact(&mut self, text: &str) -> Option<V> {
        let entry = self
            .exact
            .find_entry(self.hash.text(text), |exact| *exact.filter == *text)
            .ok()?;
        let (removed, _) = entry.remove();
        if self.exact.capacity() > 64 && self.exact.len() < self.exact.capacity() / 8 {
            let hash = &self.hash;
            self.exact
                .shrink_to(self.exact.len() * 2, |exact| hash.text(&exact.filter));
        }
        Some(removed.value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::topic::matches;

    fn filter(text: &str) -> TopicFilter {
        TopicFilter::with_maximum_levels(text, 65_536).unwrap()
    }

    fn tree(filters: &[&str]) -> SubscriptionTree<String> {
        let mut tree = SubscriptionTree::new(7);
        for text in filters {
            *tree.entry(&filter(text)) = (*text).to_owned();
        }
        tree
    }

    fn matching(tree: &SubscriptionTree<String>, topic: &str) -> Vec<String> {
        let mut found = Vec::new();
        tree.for_each_match(topic, |value| found.push(value.clone()));
        found.sort();
        found
    }

    #[test]
    fn every_matching_filter_is_visited_once() {
        let tree = tree(&[
            "a/b", "a/+", "a/#", "+/b", "#", "+/+", "a/b/#", "a/b/+", "$SYS/#", "$SYS/+", "+/#",
            "a",
        ]);
        let cases: &[(&str, &[&str])] = &[
            (
                "a/b",
                &["#", "+/#", "+/+", "+/b", "a/#", "a/+", "a/b", "a/b/#"],
            ),
            ("a", &["#", "+/#", "a", "a/#"]),
            ("a/b/c", &["#", "+/#", "a/#", "a/b/#", "a/b/+"]),
            ("$SYS/x", &["$SYS/#", "$SYS/+"]),
            ("$SYS", &["$SYS/#"]),
            ("/", &["#", "+/#", "+/+"]),
            ("x", &["#", "+/#"]),
        ];
        for (topic, expected) in cases {
            assert_eq!(matching(&tree, topic), *expected, "{topic}");
        }
    }

    #[test]
    fn values_are_found_changed_and_taken_out() {
        let mut tree = tree(&["a/b", "a/+"]);
        for text in ["a/b", "a/+"] {
            let filter = filter(text);
            assert_eq!(tree.get(&filter).map(String::as_str), Some(text));
            tree.get_mut(&filter).unwrap().push('!');
            assert_eq!(tree.entry(&filter).as_str(), format!("{text}!"));
            assert_eq!(tree.remove(&filter), Some(format!("{text}!")));
            assert_eq!(tree.get(&filter), None);
            assert_eq!(tree.remove(&filter), None);
        }
        assert!(tree.is_empty());
        // A prefix of a filter is no filter.
        *tree.entry(&filter("a/+/c")) = "a/+/c".to_owned();
        assert_eq!(tree.get(&filter("a/+")), None);
        assert_eq!(tree.remove(&filter("a/+")), None);
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn the_generation_rises_with_each_change_of_structure() {
        let mut tree = SubscriptionTree::<u32>::new(1);
        type Change = fn(&mut SubscriptionTree<u32>);
        let cases: &[(&str, Change, u64)] = &[
            ("new exact filter", |tree| *tree.entry(&filter("a")) += 1, 1),
            ("the same again", |tree| *tree.entry(&filter("a")) += 1, 0),
            (
                "new wildcard filter",
                |tree| *tree.entry(&filter("+")) += 1,
                1,
            ),
            ("the same again", |tree| *tree.entry(&filter("+")) += 1, 0),
            (
                "value changed",
                |tree| *tree.get_mut(&filter("a")).unwrap() += 1,
                0,
            ),
            ("touched", SubscriptionTree::touch, 1),
            (
                "removed",
                |tree| assert!(tree.remove(&filter("+")).is_some()),
                1,
            ),
            (
                "removed again",
                |tree| assert!(tree.remove(&filter("+")).is_none()),
                0,
            ),
        ];
        for (name, change, rise) in cases {
            let before = tree.generation();
            change(&mut tree);
            assert_eq!(tree.generation() - before, *rise, "{name}");
        }
    }

    #[test]
    fn slots_of_removed_filters_are_used_again_and_memory_returns() {
        let mut tree = SubscriptionTree::<u32>::new(1);
        let filters: Vec<_> = (0..5000)
            .map(|number| filter(&format!("site/{number}/+/x")))
            .collect();
        filters.iter().for_each(|filter| *tree.entry(filter) += 1);
        let full = tree.wildcard.arena_len();
        for _ in 0..3 {
            tree.remove(&filters[0]);
            tree.entry(&filters[0]);
        }
        assert_eq!(tree.wildcard.arena_len(), full);
        for filter in &filters[1..] {
            tree.remove(filter);
        }
        assert!(
            tree.wildcard.arena_len() < full / 3,
            "{} of {full}",
            tree.wildcard.arena_len()
        );
        assert_eq!(tree.wildcard.level_texts(), 3);
        tree.remove(&filters[0]);
        assert_eq!(tree.wildcard.arena_len(), 1);
    }

    #[test]
    fn what_is_left_after_a_compaction_still_matches() {
        let shapes = ["site/N/+/x", "site/N/#", "+/N/y/#", "N/+", "+/+/N"];
        let numbered = |number: usize| shapes.map(|shape| shape.replace('N', &number.to_string()));
        let texts: Vec<String> = (0..1000).flat_map(numbered).collect();
        let mut tree = tree(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let full = tree.wildcard.arena_len();
        let (gone, left): (Vec<_>, Vec<_>) = texts
            .iter()
            .enumerate()
            .partition(|(index, _)| index % 20 != 0);
        let (gone, left) = (
            gone.into_iter().map(|(_, text)| text),
            left.into_iter().map(|(_, text)| text.as_str()),
        );
        gone.for_each(|text| assert!(tree.remove(&filter(text)).is_some()));
        let left: Vec<&str> = left
            .chain(["site/5/y/x", "+/6/y/#", "new/#", "+/new"])
            .collect();
        for text in &left {
            tree.entry(&filter(text)).clone_from(&(*text).to_owned());
        }
        assert!(tree.wildcard.arena_len() < full / 2, "it was compacted");
        for topic in [
            "site/4/y/x",
            "site/5/y/x",
            "a/6/y",
            "8/8/8",
            "a/12/y/z",
            "new/new",
            "16/16",
            "a/b/96",
        ] {
            let mut expected: Vec<&str> = left
                .iter()
                .copied()
                .filter(|filter| matches(filter, topic))
                .collect();
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(matching(&tree, topic), expected, "{topic}");
        }
    }

    #[test]
    fn the_deepest_topics_and_filters_are_matched() {
        let deep = "/".repeat(65_535);
        let pluses = vec!["+"; 32_768].join("/");
        let tree = tree(&[
            &deep,
            &pluses,
            "#",
            "/#",
            &format!("{}#", "+/".repeat(32_767)),
        ]);
        assert_eq!(matching(&tree, &deep).len(), 4);
        assert_eq!(matching(&tree, &"/".repeat(32_767)).len(), 4);
        assert_eq!(matching(&tree, "a").len(), 1);
    }

    /// All filters of `depth` levels made of `+` and `a`: every one of them matches `a/a/...`.
    #[test]
    fn a_match_visits_no_node_twice_however_many_wildcards() {
        let depth = 12;
        let mut tree = SubscriptionTree::<u32>::new(3);
        for bits in 0..1_u32 << depth {
            let levels: Vec<_> = (0..depth)
                .map(|bit| if bits >> bit & 1 == 1 { "+" } else { "a" })
                .collect();
            *tree.entry(&filter(&levels.join("/"))) += 1;
        }
        let mut visits = 0;
        tree.for_each_match(&vec!["a"; depth].join("/"), |_| visits += 1);
        assert_eq!(visits, 1 << depth);
        // A topic that differs at the end walks the same nodes and finds what ends in +.
        visits = 0;
        tree.for_each_match(&format!("{}b", "a/".repeat(depth - 1)), |_| visits += 1);
        assert_eq!(visits, 1 << (depth - 1));
    }

    /// Each pair of filters parts at its last level only, and a topic comes close to every one of them.
    #[test]
    fn filters_of_many_levels_cost_two_nodes_each_and_a_match_few_steps() {
        const FILTERS: u32 = 9_900;
        let mut tree = SubscriptionTree::<u32>::new(3);
        for number in 0..FILTERS {
            let bit = |bit: u32| {
                if (number / 2) >> bit & 1 == 1 {
                    "+"
                } else {
                    "a"
                }
            };
            let front: Vec<_> = (0..13).map(bit).collect();
            let last = if number % 2 == 0 { "b" } else { "c" };
            let text = format!("{}{}/{last}", front.join("/"), "/+".repeat(114));
            *tree.entry(&filter(&text)) += 1;
        }
        assert!(tree.wildcard.arena_len() <= 2 * FILTERS as usize + 1);
        let steps = tree.for_each_match(&vec!["a"; 128].join("/"), |_| panic!("no match"));
        assert!(steps < 10 * u64::from(FILTERS), "{steps}");
        let mut found = 0;
        tree.for_each_match(&format!("{}b", "a/".repeat(127)), |_| found += 1);
        assert_eq!(found, FILTERS / 2);
    }

    #[test]
    fn the_same_steps_with_the_same_seed_give_the_same_order() {
        let texts: Vec<String> = (0..500)
            .map(|number| format!("a/{number}"))
            .chain((0..500).map(|number| format!("{number}/+")))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (one, two) = (tree(&texts), tree(&texts));
        assert!(one.iter().eq(two.iter()));
        assert_eq!(one.iter().count(), one.len());
    }

    fn level() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec!["a", "b", "", "$c", "é"])
    }

    fn any_topic() -> impl Strategy<Value = String> {
        prop::collection::vec(level(), 1..6)
            .prop_map(|levels| levels.join("/"))
            .prop_filter("not empty", |topic| !topic.is_empty())
    }

    fn any_filter() -> impl Strategy<Value = String> {
        let level = prop_oneof![3 => level(), 2 => Just("+")];
        (prop::collection::vec(level, 0..6), any::<bool>())
            .prop_map(|(mut levels, all_below)| {
                levels.extend(all_below.then_some("#"));
                levels.join("/")
            })
            .prop_filter("not empty", |filter| !filter.is_empty())
    }

    proptest! {
        #[test]
        fn the_tree_agrees_with_the_plain_rule(
            steps in prop::collection::vec((any_filter(), prop::bool::weighted(0.3)), 1..80),
            topics in prop::collection::vec(any_topic(), 1..20),
        ) {
            let mut tree = SubscriptionTree::<String>::new(11);
            let mut naive = BTreeMap::new();
            for (text, is_removal) in &steps {
                if *is_removal {
                    prop_assert_eq!(tree.remove(&filter(text)), naive.remove(text));
                } else {
                    tree.entry(&filter(text)).clone_from(text);
                    naive.insert(text.clone(), text.clone());
                }
            }
            prop_assert_eq!(tree.len(), naive.len());
            let all: BTreeMap<String, String> = tree.iter().map(|(text, value)| (text.to_owned(), value.clone())).collect();
            prop_assert_eq!(&all, &naive);
            for topic in &topics {
                let expected: Vec<String> = naive.keys().filter(|filter| matches(filter, topic)).cloned().collect();
                prop_assert_eq!(matching(&tree, topic), expected, "{}", topic);
            }
        }
    }
}
