//! Better nodes by topic, for clients that follow them.

use thicket_overlay::NodeId;

use crate::{
    Now, WorkerId,
    hub::{context::Context, placing::Placing},
    messages::{BetterNodeRequest, BetterNodeSubject, ToWorker},
};

/// A node is better for a filter if this many times as much of what it matches is published there: what was sent stays while it is within a factor
/// of 1.5, at either node.
const BETTER: u64 = 3;

impl Placing {
    /// A worker asks for a client.
    pub(in crate::hub) fn answer_better_node(
        &mut self,
        cx: &mut Context,
        now: Now,
        worker: WorkerId,
        asked: BetterNodeRequest,
    ) {
        let node = self.better_node(cx, now, &asked);
        cx.send_to_worker(worker, ToWorker::BetterNode(asked, node));
    }

    /// The client's placement decides; else where the topic is published, or subscribed to, if that is not far from here.
    fn better_node(&mut self, cx: &Context, now: Now, asked: &BetterNodeRequest) -> Option<NodeId> {
        let placed = self.topic_placed_at(now, &asked.client_id, &asked.question);
        let better = placed.or_else(|| match &asked.question {
            BetterNodeSubject::Filter { filter, .. } => self.most_published_at(cx, now, filter),
            BetterNodeSubject::Topic { node, .. } => cx.overlay.node_of(*node),
        });
        let is_near = |node: &NodeId| self.sites.message_cost(cx, cx.own(), *node) <= 1.0;
        let better = placed.or_else(|| better.filter(is_near))?;
        let serves = self.loads.of(better).is_some_and(|state| state.serves());
        (better != cx.own() && serves).then_some(better)
    }

    /// The node where far more of what a filter matches is published than here.
    fn most_published_at(&mut self, cx: &Context, now: Now, filter: &str) -> Option<NodeId> {
        let mut by_node = self.topics.published(cx.own(), now.instant, filter);
        let here = by_node.remove(&cx.own()).unwrap_or(0);
        let best = by_node.into_iter().map(|(node, rate)| (rate, node)).max();
        let (rate, node) = best?;
        (rate >= here * BETTER).then_some(node)
    }
}
