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
pub(super) fn heaviest(mut rates: Rates) -> Rates {
    if rates.len() > HEAVIEST_TOPICS {
        let mut all: Vec<u64> = rates.values().copied().collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let least = all[HEAVIEST_TOPICS];
        rates.retain(|_, rate| *rate > least);
    }
    rates
}

/// The rate to send: the last one sent stays while the rate is within a factor of 1.5 of it.
pub(super) const fn steady(announced: u64, rate: u64) -> u64 {
    if rate * 3 >= announced * 2 && rate * 2 <= announced * 3 {
        announced
    } else {
        rate
    }
}
