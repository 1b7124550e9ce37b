//! A walk through the topics a filter matches, resumed whenever the caller has capacity for more.

use std::collections::btree_map;
use std::ops::Bound;

use super::order::{LevelOrder, TopicKey};
use super::{Retained, RetainedTree};
use crate::topic::TopicFilter;

/// All keys that start with this sort after every topic that starts with `$`, and before all other topics behind those.
const AFTER_DOLLAR: &str = "%";
/// Appended to a topic: sorts after the topic and all below it, and before or at everything else behind them.
const AFTER_SUBTREE: char = '\u{1}';

/// A place in the walk through the topics that a filter matches. It holds no borrow of the tree.
///
/// Guarantees, if the tree changes between the calls:
/// * topics come in the order of the tree, and no topic comes twice, not even one removed and inserted again;
/// * a topic that is in the tree from the first call to the last comes exactly once, with its value of that moment;
/// * a topic inserted behind the place of the cursor comes, one inserted before it does not: it was published after the
///   subscription was made and reached it as a message;
/// * a topic removed before the cursor comes to it does not come.
#[derive(Debug, Clone)]
pub struct RetainedCursor {
    /// `None`: all topics, those with `$` too.
    filter: Option<TopicFilter>,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Start,
    /// Next comes the first topic at or behind this text.
    At(String),
    /// Next comes the first topic behind this one.
    Behind(String),
    End,
}

/// Whether a cursor has more to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetainedProgress {
    /// There may be more: call again.
    More,
    /// Every topic has come.
    Finished,
}

/// What one topic of the tree means for the walk.
enum Verdict {
    Matches,
    /// Does not match, nor does any before this place.
    SkipTo(String),
    /// Neither it nor any behind it matches.
    Nothing,
}

impl RetainedCursor {
    /// A cursor before the first topic that `filter` matches.
    #[must_use]
    pub fn new(filter: &TopicFilter) -> Self {
        Self {
            filter: Some(filter.clone()),
            place: Place::Start,
        }
    }

    /// A cursor before the first of all topics, those that start with `$` included.
    #[must_use]
    pub const fn over_all_topics() -> Self {
        Self {
            filter: None,
            place: Place::Start,
        }
    }

    /// The same, before the first of them behind this topic, which need not be in a tree.
    #[must_use]
    pub fn behind(self, topic: &str) -> Self {
        Self {
            place: Place::Behind(topic.to_owned()),
            ..self
        }
    }

    /// Continues through `tree`: visits up to `limit` topics and calls `visit` with those that match.
    ///
    /// The limit counts topics visited, not only those that match, so that a call is short whatever the filter. A topic that does not match mostly
    /// stands for many, which are skipped together.
    pub fn resume<'a, V>(
        &mut self,
        tree: &'a RetainedTree<V>,
        limit: usize,
        mut visit: impl FnMut(&'a str, &'a V),
    ) -> RetainedProgress {
        let mut left = limit;
        while left > 0 && !matches!(self.place, Place::End) {
            left = self.walk(tree, left, &mut visit);
        }
        match self.place {
            Place::End => RetainedProgress::Finished,
            Place::Start | Place::At(_) | Place::Behind(_) => RetainedProgress::More,
        }
    }

    /// Walks from the place on until the limit, a jump or the end. Returns what is left of the limit.
    fn walk<'a, V>(
        &mut self,
        tree: &'a RetainedTree<V>,
        limit: usize,
        visit: &mut impl FnMut(&'a str, &'a V),
    ) -> usize {
        let mut last = None;
        for (looked_at, (topic, retained)) in self.range(tree).enumerate() {
            if looked_at == limit {
                self.place = last.map_or(Place::Start, |last: &str| Place::Behind(last.to_owned()));
                return 0;
            }
            let topic = topic.text();
            match self.verdict(topic) {
                Verdict::Matches => visit(topic, &retained.value),
                Verdict::SkipTo(place) => {
                    self.place = Place::At(place);
                    return limit - looked_at - 1;
                }
                Verdict::Nothing => break,
            }
            last = Some(topic);
        }
        self.place = Place::End;
        limit
    }

    fn range<'a, V>(
        &self,
        tree: &'a RetainedTree<V>,
    ) -> btree_map::Range<'a, TopicKey, Retained<V>> {
        let start: Bound<&dyn LevelOrder> = match &self.place {
            Place::Start => Bound::Unbounded,
            Place::At(text) => Bound::Included(text),
            Place::Behind(text) => Bound::Excluded(text),
            Place::End => return btree_map::Range::default(),
        };
        tree.topics
            .range::<dyn LevelOrder, _>((start, Bound::Unbounded))
    }

    fn verdict(&self, topic: &str) -> Verdict {
        self.filter
            .as_ref()
            .map_or(Verdict::Matches, |filter| verdict(filter.as_str(), topic))
    }
}

/// Compares `topic` with `filter` level by level; where they differ, returns from where on a match is possible again.
fn verdict(filter: &str, topic: &str) -> Verdict {
    // [MQTT-4.7.2-1]
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return Verdict::SkipTo(AFTER_DOLLAR.to_owned());
    }
    // End of the level that the deepest + so far stands for: from there the next sibling can follow.
    let mut deepest_wildcard_end = None;
    let mut start = 0;
    let mut filter_levels = filter.split('/').peekable();
    while let Some(filter_level) = filter_levels.next() {
        if filter_level == "#" {
            return Verdict::Matches;
        }
        if start > topic.len() {
            // The topic ended before the filter did: what can match is below it.
            let below = if filter_level == "+" {
                ""
            } else {
                filter_level
            };
            return Verdict::SkipTo(format!("{topic}/{below}"));
        }
        let end = topic[start..]
            .find('/')
            .map_or(topic.len(), |length| start + length);
        let level = &topic[start..end];
        if filter_level == "+" {
            deepest_wildcard_end = Some(end);
        } else if level < filter_level {
            return Verdict::SkipTo(format!("{}{filter_level}", &topic[..start]));
        } else if level > filter_level {
            return next_sibling(topic, deepest_wildcard_end);
        }
        if end < topic.len() && filter_levels.peek().is_none() {
            // The topic continues below the filter's last level, and so do all up to the next sibling.
            return Verdict::SkipTo(format!("{}{AFTER_SUBTREE}", &topic[..end]));
        }
        start = end + 1;
    }
    Verdict::Matches
}

fn next_sibling(topic: &str, end: Option<usize>) -> Verdict {
    end.map_or(Verdict::Nothing, |end| {
        Verdict::SkipTo(format!("{}{AFTER_SUBTREE}", &topic[..end]))
    })
}

/// The topics a filter matches, of a tree that does not change meanwhile.
pub(super) struct Matching<'a, V> {
    tree: &'a RetainedTree<V>,
    range: btree_map::Range<'a, TopicKey, Retained<V>>,
    cursor: RetainedCursor,
}

impl<'a, V> Matching<'a, V> {
    pub(super) fn new(tree: &'a RetainedTree<V>, mut cursor: RetainedCursor) -> Self {
        if let Some(exact) = cursor
            .filter
            .as_ref()
            .filter(|filter| !filter.has_wildcards())
        {
            cursor.place = Place::At(exact.as_str().to_owned());
        }
        Self {
            tree,
            range: cursor.range(tree),
            cursor,
        }
    }
}

impl<'a, V> Iterator for Matching<'a, V> {
    type Item = (&'a str, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (topic, retained) = self.range.next()?;
            match self.cursor.verdict(topic.text()) {
                Verdict::Matches => return Some((topic.text(), &retained.value)),
                Verdict::SkipTo(place) => {
                    self.cursor.place = Place::At(place);
                    self.range = self.cursor.range(self.tree);
                }
                Verdict::Nothing => {
                    self.range = btree_map::Range::default();
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::topic::matches;

    fn filter(text: &str) -> TopicFilter {
        TopicFilter::with_maximum_levels(text, 65_536).unwrap()
    }

    fn tree<'a>(topics: impl IntoIterator<Item = &'a str>) -> RetainedTree<()> {
        let mut tree = RetainedTree::new();
        for topic in topics {
            tree.insert(topic, (), 0);
        }
        tree
    }

    /// All that a cursor returns, `limit` topics visited a call, and the number of calls.
    fn walk_all(tree: &RetainedTree<()>, text: &str, limit: usize) -> (Vec<String>, usize) {
        let mut cursor = RetainedCursor::new(&filter(text));
        let (mut found, mut calls) = (Vec::new(), 1);
        while cursor.resume(tree, limit, |topic, ()| found.push(topic.to_owned()))
            == RetainedProgress::More
        {
            calls += 1;
        }
        (found, calls)
    }

    #[test]
    fn matching_topics_come_in_order() {
        let tree = tree([
            "a", "a/b", "a/b/c", "a/c", "a/c/b", "b", "b/b", "$SYS/a", "/", "/b", "a!",
        ]);
        let cases: &[(&str, &[&str])] = &[
            (
                "#",
                &[
                    "/", "/b", "a", "a/b", "a/b/c", "a/c", "a/c/b", "a!", "b", "b/b",
                ],
            ),
            ("+", &["a", "a!", "b"]),
            ("+/b", &["/b", "a/b", "b/b"]),
            ("a/#", &["a", "a/b", "a/b/c", "a/c", "a/c/b"]),
            ("a/+", &["a/b", "a/c"]),
            ("+/+/b", &["a/c/b"]),
            ("a/b", &["a/b"]),
            ("$SYS/#", &["$SYS/a"]),
            ("$SYS/+", &["$SYS/a"]),
            ("+/a", &[]),
            ("zz/+", &[]),
            ("+/", &["/"]),
        ];
        for (text, expected) in cases {
            let found: Vec<_> = tree
                .matching(&filter(text))
                .map(|(topic, ())| topic)
                .collect();
            assert_eq!(found, *expected, "{text}");
            for limit in [1, 2, 100] {
                assert_eq!(
                    walk_all(&tree, text, limit).0,
                    *expected,
                    "{text}, {limit} at a time"
                );
            }
        }
        let mut all = 0;
        let progress = RetainedCursor::over_all_topics().resume(&tree, 100, |_, ()| all += 1);
        assert_eq!((all, progress), (tree.len(), RetainedProgress::Finished));
    }

    #[test]
    fn a_cursor_goes_on_behind_any_topic() {
        let tree = tree(["$x", "a", "a/b", "a/d", "b"]);
        for (text, topic, expected) in [
            ("#", "a/b", &["a/d", "b"][..]),
            ("#", "a/c", &["a/d", "b"]),
            ("a/+", "a/b", &["a/d"]),
            ("a/b", "a", &["a/b"]),
            ("a/b", "a/b", &[]),
            ("#", "z", &[]),
        ] {
            let mut cursor = RetainedCursor::new(&filter(text)).behind(topic);
            let mut found = Vec::new();
            let progress = cursor.resume(&tree, 100, |topic, ()| found.push(topic));
            assert_eq!(found, expected, "{text} behind {topic}");
            assert_eq!(progress, RetainedProgress::Finished);
        }
    }

    #[test]
    fn a_call_looks_at_no_more_topics_than_its_limit() {
        let topics: Vec<String> = (0..1000).map(|number| format!("{number:04}/x")).collect();
        let tree = tree(topics.iter().map(String::as_str));
        let mut cursor = RetainedCursor::new(&filter("#"));
        let mut found = 0;
        assert_eq!(
            cursor.resume(&tree, 10, |_, ()| found += 1),
            RetainedProgress::More
        );
        assert_eq!(found, 10);
        assert_eq!(
            cursor.resume(&tree, 0, |_, ()| found += 1),
            RetainedProgress::More
        );
        assert_eq!(found, 10);
        // Nothing matches, but it takes many calls to find that, none of them long.
        let (found, calls) = walk_all(&tree, "+/y", 10);
        assert!(found.is_empty());
        assert!(calls >= 100, "{calls}");
    }

    #[test]
    fn branches_that_cannot_match_are_skipped_together() {
        let topics: Vec<String> = (0..10)
            .flat_map(|site| (0..1000).map(move |number| format!("{site}/b/{number}")))
            .collect();
        let tree = tree(topics.iter().map(String::as_str));
        for text in ["+/b", "+/a/#", "+/c/+", "5/c", "+/+"] {
            let (found, calls) = walk_all(&tree, text, 1);
            assert!(found.is_empty());
            assert!(calls <= 40, "{text}: {calls}");
        }
    }

    #[test]
    fn a_cursor_survives_changes_between_its_calls() {
        let mut tree = tree(["a/1", "a/3", "a/5", "a/7"]);
        let mut cursor = RetainedCursor::new(&filter("a/+"));
        let mut found = Vec::new();
        assert_eq!(
            cursor.resume(&tree, 2, |topic, ()| found.push(topic.to_owned())),
            RetainedProgress::More
        );
        tree.remove("a/3"); // came already, and is where the cursor stands
        tree.insert("a/3", (), 0);
        tree.insert("a/2", (), 0); // before the cursor
        tree.insert("a/4", (), 0); // behind it
        tree.remove("a/7"); // did not come yet
        assert_eq!(
            cursor.resume(&tree, 10, |topic, ()| found.push(topic.to_owned())),
            RetainedProgress::Finished
        );
        assert_eq!(found, ["a/1", "a/3", "a/4", "a/5"]);
        assert_eq!(
            cursor.resume(&tree, 10, |_, ()| unreachable!("it has finished")),
            RetainedProgress::Finished
        );
    }

    #[test]
    fn the_deepest_topics_are_walked() {
        let (deep, deeper) = ("/".repeat(32_767), "/".repeat(65_535));
        let tree = tree([deep.as_str(), deeper.as_str()]);
        assert_eq!(walk_all(&tree, "#", 1).0.len(), 2);
        assert_eq!(walk_all(&tree, &deeper, 1).0, [deeper.as_str()]);
        assert_eq!(
            walk_all(&tree, &vec!["+"; 32_768].join("/"), 1).0,
            [deep.as_str()]
        );
    }

    fn any_topic() -> impl Strategy<Value = String> {
        let level = prop::sample::select(vec!["a", "b", "", "$c", "a!", "é"]);
        prop::collection::vec(level, 1..5)
            .prop_map(|levels| levels.join("/"))
            .prop_filter("not empty", |topic| !topic.is_empty())
    }

    fn any_filter() -> impl Strategy<Value = String> {
        let level = prop::sample::select(vec!["a", "b", "", "$c", "a!", "+", "+", "+"]);
        (prop::collection::vec(level, 0..5), any::<bool>())
            .prop_map(|(mut levels, all_below)| {
                levels.extend(all_below.then_some("#"));
                levels.join("/")
            })
            .prop_filter("not empty", |filter| !filter.is_empty())
    }

    proptest! {
        #[test]
        fn the_walk_agrees_with_the_plain_rule(
            topics in prop::collection::btree_set(any_topic(), 0..60),
            text in any_filter(),
            limit in 1_usize..5,
        ) {
            let tree = tree(topics.iter().map(String::as_str));
            let expected: BTreeSet<&str> = topics.iter().map(String::as_str).filter(|topic| matches(&text, topic)).collect();
            let (found, _) = walk_all(&tree, &text, limit);
            prop_assert_eq!(found.len(), expected.len(), "no topic comes twice");
            prop_assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected.clone());
            let lazily: Vec<&str> = tree.matching(&filter(&text)).map(|(topic, ())| topic).collect();
            prop_assert_eq!(found, lazily);
        }

        #[test]
        fn what_stays_comes_once_whatever_changes_meanwhile(
            start in prop::collection::btree_set(any_topic(), 0..40),
            changes in prop::collection::vec((any_topic(), any::<bool>()), 0..40),
            text in any_filter(),
        ) {
            let mut tree = tree(start.iter().map(String::as_str));
            let mut unchanged = start.clone();
            let mut cursor = RetainedCursor::new(&filter(&text));
            let mut found = BTreeMap::<String, u32>::new();
            for (topic, is_removal) in &changes {
                cursor.resume(&tree, 1, |topic, ()| *found.entry(topic.to_owned()).or_default() += 1);
                if *is_removal {
                    tree.remove(topic);
                } else {
                    tree.insert(topic, (), 0);
                }
                unchanged.remove(topic);
            }
            cursor.resume(&tree, usize::MAX, |topic, ()| *found.entry(topic.to_owned()).or_default() += 1);
            prop_assert!(found.values().all(|times| *times == 1));
            for topic in unchanged.iter().filter(|topic| matches(&text, topic)) {
                prop_assert!(found.contains_key(topic), "{}", topic);
            }
        }
    }
}
