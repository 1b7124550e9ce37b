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
