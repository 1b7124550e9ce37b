//! Rates of topics, as announced by all nodes.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use thicket_overlay::NodeId;
use thicket_session::{
    time::Instant,
    topic::{level_count, matches},
};

use crate::{TokenBucket, WorkerId, messages::TopicRate};

/// Levels of filters with wildcards that are compared with topics in a second, for all who ask: a few hundredths of a core. Comparing one topic counts as
/// all levels of the filter.
pub(in crate::hub) const COMPARED_PER_S: u32 = 2_000_000;

/// Thousandths of a message a second, by topic.
pub(in crate::hub) type Rates = BTreeMap<Arc<str>, u64>;

/// The rates of topics.
#[derive(Debug, Default)]
pub(in crate::hub) struct Topics {
    /// By worker, as last reported.
    pub counted: BTreeMap<WorkerId, Vec<TopicRate>>,
    /// There was a report since they were last sent to the others.
    pub has_new_counts: bool,
    /// Of this node, as last sent to the others.
    pub announced: Rates,
    /// Of the others.
    pub others: BTreeMap<NodeId, Rates>,
    /// What may be compared now.
    pub comparisons: TokenBucket,
}

/// A topic that a filter matches: where it is published, and thousandths of a message a second.
pub(in crate::hub) type Match<'a> = (NodeId, &'a Arc<str>, u64);

impl Topics {
    /// What `filter` matches. `None`: it has wildcards, and [`COMPARED_PER_S`] is used up. The last filter before that may use more, which is paid back.
    pub fn matching(&mut self, own: NodeId, now: Instant, filter: &str) -> Option<Vec<Match<'_>>> {
        let by_node = by_node(own, &self.announced, &self.others);
        if !filter.contains(['+', '#']) {
            let found = by_node.filter_map(|(node, rates)| {
                let (topic, rate) = rates.get_key_value(filter)?;
                Some((node, topic, *rate))
            });
            return Some(found.collect());
        }
        if self.comparisons.left(now, COMPARED_PER_S) <= 0 {
            return None;
        }
        let levels = level_count(filter) as u64;
        let mut compared = 0;
        let mut found = Vec::new();
        for (node, rates) in by_node {
            for (topic, rate) in candidates(rates, filter) {
                compared += levels;
                if matches(filter, topic) {
                    found.push((node, topic, rate));
                }
            }
        }
        self.comparisons.spend(now, COMPARED_PER_S, compared);
        Some(found)
    }

    /// How much of what `filter` matches is published at each node, in thousandths of a message a second; empty: nothing, or [`Self::matching`] does not
    /// answer now.
    pub fn published(&mut self, own: NodeId, now: Instant, filter: &str) -> BTreeMap<NodeId, u64> {
        let mut by_node = BTreeMap::new();
        for (node, _, rate) in self.matching(own, now, filter).unwrap_or_default() {
            *by_node.entry(node).or_default() += rate;
        }
        by_node
    }
}

/// The rates of all nodes, from those of the `own` one and of the others.
pub(in crate::hub) fn by_node<'a>(
    own: NodeId,
    announced: &'a Rates,
    others: &'a BTreeMap<NodeId, Rates>,
) -> impl Iterator<Item = (NodeId, &'a Rates)> {
    let others = others.iter().map(|(node, rates)| (*node, rates));
    others.chain([(own, announced)])
}

/// Those of `rates` that a filter with wildcards can match: their first levels are those of the filter before its first wildcard.
pub(in crate::hub) fn candidates<'a>(
    rates: &'a Rates,
    filter: &str,
) -> impl Iterator<Item = (&'a Arc<str>, u64)> {
    let wildcard = filter.find(['+', '#']).unwrap_or(filter.len());
    // Without the separator: `a/#` matches `a`, too.
    let levels = filter[..wildcard].strip_suffix('/').unwrap_or("");
    let from = (Bound::Included(levels), Bound::Unbounded);
    let starting = rates.range::<str, _>(from);
    starting
        .take_while(move |(topic, _)| topic.starts_with(levels))
        .map(|(topic, rate)| (topic, *rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hub::placing::topics::{heaviest, steady},
        messages::HEAVIEST_TOPICS,
    };

    #[test]
    fn a_rate_is_sent_again_only_when_it_has_changed_by_half() {
        let cases = [
            ("first", 0, 1500, 1500),
            ("a little more", 1000, 1500, 1000),
            ("far more", 1000, 1501, 1501),
            ("a little less", 1500, 1000, 1500),
            ("far less", 1500, 999, 999),
            ("none", 1000, 0, 0),
            ("still none", 0, 0, 0),
        ];
        for (name, announced, rate, expected) in cases {
            assert_eq!(steady(announced, rate), expected, "{name}");
        }
    }

    fn rates(topics: &[(&str, u64)]) -> Rates {
        let topics = topics.iter();
        topics
            .map(|(topic, rate)| ((*topic).into(), *rate))
            .collect()
    }

    const HERE: NodeId = NodeId(1);
    const THERE: NodeId = NodeId(2);

    fn topics(here: Rates, there: Rates) -> Topics {
        Topics {
            announced: here,
            others: [(THERE, there)].into(),
            ..Topics::default()
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000_000 + ms)
    }

    #[test]
    fn what_a_filter_matches_is_found_with_few_comparisons() {
        let here = rates(&[("a", 1), ("a/1", 2), ("a/1/x", 3), ("ab/1", 4), ("b/1", 5)]);
        let there = rates(&[("a/1", 1), ("a/2", 9), ("c", 1)]);
        for (filter, expected, compared) in [
            ("a/1", [2, 1], 0),
            ("a/2", [0, 9], 0),
            ("nobody", [0, 0], 0),
            ("a/+", [2, 10], 6),
            ("a/#", [6, 10], 6),
            ("a/1/#", [5, 1], 3),
            ("+/1", [11, 1], 8),
            ("#", [15, 11], 8),
            ("c/+", [0, 0], 1),
            ("d/+/+", [0, 0], 0),
        ] {
            let mut topics = topics(here.clone(), there.clone());
            let before = topics.comparisons.left(at(0), COMPARED_PER_S);
            let mut found = topics.published(HERE, at(0), filter);
            let found = [HERE, THERE].map(|node| found.remove(&node).unwrap_or(0));
            assert_eq!(found, expected, "{filter}");
            let used = before - topics.comparisons.left(at(0), COMPARED_PER_S);
            let levels = level_count(filter) as i64;
            assert_eq!(used, 1000 * compared * levels, "{filter}");
        }
    }

    #[test]
    fn filters_with_wildcards_are_compared_so_often_in_a_second_however_many_there_are() {
        let many: Vec<String> = (0..1000).map(|number| format!("a/{number}")).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|topic| (&**topic, 1)).collect();
        let mut topics = topics(Rates::new(), rates(&many));
        let mut answered = |filter: &str, ms| {
            let filters = std::iter::repeat_n(filter, 3000);
            let answers = filters.filter(|it| topics.matching(HERE, at(ms), it).is_some());
            answers.count()
        };
        let per_s = COMPARED_PER_S as usize / 1000;
        assert_eq!(answered("+/1", 0), per_s, "two seconds, two levels");
        assert_eq!(answered("+/+", 0), 0, "for all filters together");
        assert_eq!(answered("a/1", 0), 3000, "it has no wildcard");
        assert_eq!(answered("+/1", 500), per_s / 4);
        assert_eq!(
            answered("a/+/x", 60_000),
            2 * per_s / 3 + 1,
            "the last is paid back"
        );
        assert_eq!(answered("#", 60_000), 0);
    }

    #[test]
    fn the_heaviest_are_kept_when_there_are_too_many() {
        let many = (0..HEAVIEST_TOPICS as u64 + 10).map(|it| (it.to_string().into(), it + 1));
        let kept = heaviest(many.collect());
        assert_eq!(kept.len(), HEAVIEST_TOPICS);
        assert!(!kept.contains_key("9") && kept.contains_key("10"));
    }
}
