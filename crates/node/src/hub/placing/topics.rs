//! How often clients publish to which topics, by node: each node sends all others its topics with most messages, and again only what has changed by
//! half. Placement is based on it.

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use thicket_overlay::{NodeId, NodeSlot};
use thicket_session::{time::Instant, topic::TopicFilter};

use super::Placing;
use crate::{
    Now, TopicReport, WorkerId,
    hub::{
        context::Context,
        control::{Message, SentTopics},
    },
    messages::{HEAVIEST_TOPICS, ToWorker, TopicRate},
};

/// Time between two counts.
const COUNTED: Duration = Duration::from_secs(5);

/// Thousandths of a message a second, by topic.
pub(in crate::hub) type Rates = BTreeMap<Arc<str>, u64>;

/// The rates of topics.
#[derive(Debug, Default)]
pub(in crate::hub) struct Topics {
    asked_at: Instant,
    /// What the workers have answered since they were asked, and how many have not answered.
    counting: Rates,
    waiting: usize,
    /// Of this node, as last sent to the others.
    announced: Rates,
    /// Of the others.
    others: BTreeMap<NodeId, Rates>,
}

impl Placing {
    /// Makes the workers count, now and then.
    pub(super) fn count_topics(&mut self, cx: &mut Context, now: Now) {
        if now.instant.since(self.topics.asked_at) < COUNTED {
            return;
        }
        thicket_session::reach!("time hub/placing/topics COUNTED");
        self.topics.asked_at = now.instant;
        self.topics.counting.clear();
        self.topics.waiting = usize::from(cx.config.workers);
        cx.send_to_workers(|| ToWorker::TopicRatesAsked);
    }

    /// A worker has counted.
    pub(in crate::hub) fn handle_topic_rates(
        &mut self,
        cx: &mut Context,
        _from: WorkerId,
        rates: Vec<TopicRate>,
    ) {
        let topics = &mut self.topics;
        for TopicRate {
            topic,
            millis_per_s,
        } in rates
        {
            *topics.counting.entry(topic).or_default() += millis_per_s;
        }
        topics.waiting = topics.waiting.saturating_sub(1);
        if topics.waiting == 0 {
            let counted = std::mem::take(&mut topics.counting);
            self.send_topics(cx, counted);
        }
    }

    fn send_topics(&mut self, cx: &mut Context, counted: Rates) {
        let now = heaviest(counted);
        let announced = &mut self.topics.announced;
        let mut changes: Vec<(Arc<str>, u64)> = Vec::new();
        for (topic, rate) in &now {
            let before = announced.get(topic).copied().unwrap_or(0);
            let rate = steady(before, *rate);
            if rate != before {
                changes.push((Arc::clone(topic), rate));
            }
        }
        let gone = announced.keys().filter(|topic| !now.contains_key(*topic));
        changes.extend(gone.map(|topic| (Arc::clone(topic), 0)));
        if changes.is_empty() {
            return;
        }
        apply(
            announced,
            changes.iter().map(|(topic, rate)| (&**topic, *rate)),
        );
        let encoded = encode(false, changes.iter().map(|(topic, rate)| (&**topic, *rate)));
        cx.broadcast(&encoded);
    }

    /// Sends one node all rates.
    pub(super) fn send_all_topics(&mut self, cx: &mut Context, slot: NodeSlot, node: NodeId) {
        let announced = self.topics.announced.iter();
        let encoded = encode(true, announced.map(|(topic, rate)| (&**topic, *rate)));
        cx.send_encoded(node, slot, encoded);
    }

    /// Rates from another node.
    pub(in crate::hub) fn handle_topics(
        &mut self,
        from: NodeId,
        is_first: bool,
        topics: &SentTopics<'_>,
    ) {
        let known = self.topics.others.entry(from).or_default();
        if is_first {
            known.clear();
        }
        apply(known, topics.iter().copied());
        // Each node sends a limited number: one that sends more is not trusted.
        if known.len() > HEAVIEST_TOPICS {
            let kept = heaviest(std::mem::take(known));
            *known = kept;
        }
    }

    /// The rates of each node as last sent, this one included.
    pub(super) fn rates_by_node(&self, cx: &Context) -> impl Iterator<Item = (NodeId, &Rates)> {
        let own = (cx.own(), &self.topics.announced);
        let others = self.topics.others.iter();
        others.map(|(node, rates)| (*node, rates)).chain([own])
    }

    pub(super) fn topics_lose_node(&mut self, node: NodeId) {
        self.topics.others.remove(&node);
    }

    /// See [`crate::Hub::topics`].
    pub(in crate::hub) fn topics(&self, cx: &Context) -> Vec<TopicReport> {
        let mut topics: Vec<TopicReport> = self
            .rates_by_node(cx)
            .flat_map(|(node, rates)| {
                rates.iter().map(move |(topic, rate)| TopicReport {
                    topic: topic.to_string(),
                    node: node.to_string(),
                    messages_per_s: *rate as f64 / 1000.0,
                })
            })
            .collect();
        topics.sort_by(|a, b| {
            let by_rate = b.messages_per_s.total_cmp(&a.messages_per_s);
            by_rate.then_with(|| (&a.topic, &a.node).cmp(&(&b.topic, &b.node)))
        });
        topics
    }
}

/// Those of `rates` that a filter with wildcards can match: their first levels are those of the filter before its first wildcard.
pub(super) fn candidates<'a>(
    rates: &'a Rates,
    filter: &'a str,
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

/// The node where most of what `filter` matches is published, and thousandths of a message a second at all nodes; `None`: nothing is known. A filter with
/// wildcards takes as many of the `comparisons` that are left as it has candidates, and nothing is known of it when they are used up.
pub(super) fn published<'a>(
    by_node: impl Iterator<Item = (NodeId, &'a Rates)>,
    filter: &str,
    comparisons: &mut usize,
) -> Option<(NodeId, u64)> {
    let parsed = TopicFilter::new(filter).ok()?;
    let is_wild = filter.contains(['+', '#']);
    let (mut all, mut best) = (0, None);
    for (node, rates) in by_node {
        let mut here = 0;
        if is_wild {
            for (topic, rate) in candidates(rates, filter) {
                *comparisons = comparisons.checked_sub(1)?;
                here += if parsed.matches(topic) { rate } else { 0 };
            }
        } else {
            here = rates.get(filter).copied().unwrap_or(0);
        }
        all += here;
        best = best.max(Some((here, node)).filter(|_| here > 0));
    }
    let (_, node) = best?;
    Some((node, all))
}

fn encode<'a>(is_first: bool, topics: impl Iterator<Item = (&'a str, u64)>) -> (u8, Vec<u8>) {
    let topics = topics.collect();
    Message::Topics { is_first, topics }.encode()
}

fn apply<'a>(known: &mut Rates, topics: impl Iterator<Item = (&'a str, u64)>) {
    for (topic, rate) in topics {
        if rate == 0 {
            known.remove(topic);
        } else {
            known.insert(topic.into(), rate);
        }
    }
}

/// The topics with most messages, as many as are sent at most.
fn heaviest(mut rates: Rates) -> Rates {
    if rates.len() > HEAVIEST_TOPICS {
        let mut all: Vec<u64> = rates.values().copied().collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let least = all[HEAVIEST_TOPICS];
        rates.retain(|_, rate| *rate > least);
    }
    rates
}

/// The rate to send: the last one sent stays while the rate is within a factor of 1.5 of it.
const fn steady(announced: u64, rate: u64) -> u64 {
    if rate * 3 >= announced * 2 && rate * 2 <= announced * 3 {
        announced
    } else {
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn the_node_with_most_of_what_a_filter_matches_is_found_with_few_comparisons() {
        let here = rates(&[("a", 1), ("a/1", 2), ("a/1/x", 3), ("ab/1", 4), ("b/1", 5)]);
        let there = rates(&[("a/1", 1), ("a/2", 9), ("c", 1)]);
        let both = || [(NodeId(1), &here), (NodeId(2), &there)].into_iter();
        for (filter, expected, compared) in [
            ("a/1", Some((NodeId(1), 3)), 0),
            ("a/2", Some((NodeId(2), 9)), 0),
            ("nobody", None, 0),
            ("a/+", Some((NodeId(2), 12)), 6),
            ("a/#", Some((NodeId(2), 16)), 6),
            ("a/1/#", Some((NodeId(1), 6)), 3),
            ("+/1", Some((NodeId(1), 12)), 8),
            ("#", Some((NodeId(1), 26)), 8),
            ("c/+", None, 1),
            ("d/+/+", None, 0),
        ] {
            let mut left = 100;
            assert_eq!(published(both(), filter, &mut left), expected, "{filter}");
            assert_eq!(100 - left, compared, "{filter}");
        }
    }

    #[test]
    fn nothing_is_known_of_a_filter_when_all_comparisons_are_used_up() {
        let here = rates(&[("a/1", 2), ("a/2", 3), ("b/1", 4)]);
        let mut left = 4;
        let mut known =
            |filter| published([(NodeId(1), &here)].into_iter(), filter, &mut left).is_some();
        assert_eq!(
            ["a/+", "+/1", "#", "a/1"].map(&mut known),
            [true, false, false, true]
        );
    }

    #[test]
    fn the_heaviest_are_kept_when_there_are_too_many() {
        let many = (0..HEAVIEST_TOPICS as u64 + 10).map(|it| (it.to_string().into(), it + 1));
        let kept = heaviest(many.collect());
        assert_eq!(kept.len(), HEAVIEST_TOPICS);
        assert!(!kept.contains_key("9") && kept.contains_key("10"));
    }
}
