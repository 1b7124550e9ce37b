//! Better nodes by topic, for clients that follow them.

use thicket_overlay::NodeId;
use thicket_session::topic::TopicFilter;

use crate::{
    Now, WorkerId,
    hub::{
        context::Context,
        placing::{Placing, topics::candidates},
    },
    messages::{PlaceAsked, PlaceQuestion, ToWorker},
};

/// A node is better for a filter if this many times as much of what it matches is published there: what was sent stays while it is within a factor
/// of 1.5, at either node.
const BETTER: u64 = 3;

impl Placing {
    /// A worker asks for a client.
    pub(in crate::hub) fn answer_place(
        &mut self,
        cx: &mut Context,
        now: Now,
        worker: WorkerId,
        asked: PlaceAsked,
    ) {
        let node = self.better_node(cx, now, &asked);
        cx.send_to_worker(worker, ToWorker::PlaceAnswer(asked, node));
    }

    /// The client's placement decides; else where the topic is published, or subscribed to, if that is not far from here.
    fn better_node(&self, cx: &Context, now: Now, asked: &PlaceAsked) -> Option<NodeId> {
        let placed = self.topic_placed_at(now, &asked.client_id, &asked.question);
        let better = placed.or_else(|| match &asked.question {
            PlaceQuestion::Filter { filter, .. } => self.most_published_at(cx, filter),
            PlaceQuestion::Topic { node, .. } => cx.overlay.node_of(*node),
        });
        let is_near = |node: &NodeId| self.sites.message_cost(cx, cx.own(), *node) <= 1.0;
        let better = placed.or_else(|| better.filter(is_near))?;
        let serves = self.loads.of(better).is_some_and(|state| state.serves());
        (better != cx.own() && serves).then_some(better)
    }

    /// The node where far more of what a filter matches is published than here.
    fn most_published_at(&self, cx: &Context, filter: &str) -> Option<NodeId> {
        let parsed = TopicFilter::new(filter).ok()?;
        let is_wild = filter.contains(['+', '#']);
        let (mut here, mut best) = (0, None);
        for (node, rates) in self.rates_by_node(cx) {
            let rate: u64 = if is_wild {
                let matching = candidates(rates, filter).filter(|it| parsed.matches(it.0));
                matching.map(|(_, rate)| rate).sum()
            } else {
                rates.get(filter).copied().unwrap_or(0)
            };
            if node == cx.own() {
                here = rate;
            } else {
                best = best.max(Some((rate, node)));
            }
        }
        let (rate, node) = best?;
        (rate > 0 && rate >= here * BETTER).then_some(node)
    }
}
