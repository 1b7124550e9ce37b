//! How often clients publish to which topics, by node: each node sends all others its topics with most messages, and again only what has changed by
//! half. Placement is based on it.

use std::sync::Arc;

use thicket_overlay::{NodeId, NodeSlot};

use super::Placing;
use crate::{
    TopicReport, WorkerId,
    hub::{
        context::Context,
        control::{Message, SentTopics},
        placing::state::topics::{Rates, by_node},
    },
    messages::{HEAVIEST_TOPICS, TopicRate},
};

impl Placing {
    /// A worker has counted.
    pub(in crate::hub) fn handle_topic_rates(&mut self, from: WorkerId, rates: Vec<TopicRate>) {
        self.topics.counted.insert(from, rates);
        self.topics.has_new_counts = true;
    }

    /// Sends the other nodes what has changed since it was sent to them.
    pub(super) fn send_topics_if_changed(&mut self, cx: &mut Context) {
        if !std::mem::take(&mut self.topics.has_new_counts) {
            return;
        }
        let mut counted = Rates::new();
        for rate in self.topics.counted.values().flatten() {
            *counted.entry(Arc::clone(&rate.topic)).or_default() += rate.millis_per_s;
        }
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
        by_node(cx.own(), &self.topics.announced, &self.topics.others)
    }

    pub(super) fn topics_lose_node(&mut self, node: NodeId) {
        self.topics.others.remove(&node);
    }

    /// See [`crate::HubView::topics`].
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
    use crate::hub::placing::state::topics::{COMPARED_PER_S, Topics};
    use thicket_session::{time::Instant, topic::level_count};

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
