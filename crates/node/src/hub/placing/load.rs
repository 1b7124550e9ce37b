//! The load of each node and where clients reach it: sent by each node to all others, when it has changed enough.
//!
//! It is sent over the control channel of each link, so it arrives in order and once, and costs an idle link nothing.

use std::{sync::Arc, time::Duration};

use thicket_overlay::{NodeId, NodeSlot};

use super::Placing;
use crate::{
    ListenerLikeness, NodeLoad, NodeState, Now,
    hub::{context::Context, placing::state::load::Loads},
    messages::{Elsewhere, NodeElsewhere},
};

/// Time after which the other nodes are sent message rates that have changed by less than what decides anything: people look at them.
const RATES_EVERY: Duration = Duration::from_secs(5);

impl Placing {
    /// See [`crate::HubOperator::set_load`].
    pub(in crate::hub) fn set_load(&mut self, cx: &mut Context, now: Now, load: NodeLoad) {
        let NodeLoad {
            is_draining,
            is_starting,
            ..
        } = self.loads.own.load;
        self.loads.own.load = NodeLoad {
            is_draining,
            is_starting,
            ..load
        };
        self.send_load_if_changed(cx, now);
        self.review_load(cx, now);
        self.send_topics_if_changed(cx);
        self.review_rebalance(cx, now);
        self.learn_clients(cx, now);
        self.expire_placements(cx, now);
    }

    /// This node serves clients from here on.
    pub(in crate::hub) fn begin_to_serve(&mut self, cx: &mut Context, now: Now) {
        self.loads.own.load.is_starting = false;
        self.send_load_if_changed(cx, now);
        self.update_balancer(cx, now);
    }

    /// Whether one of the nodes that are up serves clients, or is drained: it knows what the
    /// cluster is doing.
    pub(in crate::hub) fn has_server(&self) -> bool {
        let mut others = self.loads.others();
        others.any(|(_, state)| !state.load.is_starting)
    }

    /// See [`crate::HubOperator::drain`].
    pub(in crate::hub) fn drain(&mut self, cx: &mut Context, now: Now) {
        self.set_draining(cx, now, true);
    }

    /// See [`crate::HubOperator::end_drain`].
    pub(in crate::hub) fn end_drain(&mut self, cx: &mut Context, now: Now) {
        self.set_draining(cx, now, false);
    }

    fn set_draining(&mut self, cx: &mut Context, now: Now, is_draining: bool) {
        self.loads.own.load.is_draining = is_draining;
        self.send_load_if_changed(cx, now);
        self.update_balancer(cx, now);
    }

    /// See [`crate::HubView::is_draining`].
    pub(in crate::hub) const fn is_draining(&self) -> bool {
        self.loads.own.load.is_draining
    }

    fn send_load_if_changed(&mut self, cx: &mut Context, now: Now) {
        let Loads {
            own: NodeState { load, .. },
            announced,
            announced_at,
            ..
        } = &mut self.loads;
        let is_old = announced_at.is_none_or(|at| now.instant >= at + RATES_EVERY);
        if is_old && announced_at.is_some() {
            thicket_session::reach!("time RATES_EVERY");
        }
        let is_due = load.differs(announced) || (is_old && load.shows_other_messages(announced));
        if !is_due {
            return;
        }
        *announced = *load;
        *announced_at = Some(now.instant);
        cx.broadcast(&self.loads.announcement().encode());
    }

    /// Sends one node the load of this one.
    pub(super) fn send_load(&mut self, cx: &mut Context, slot: NodeSlot, node: NodeId) {
        cx.send_encoded(node, slot, self.loads.announcement().encode());
    }

    pub(in crate::hub) fn handle_state(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: NodeId,
        state: NodeState,
    ) {
        let before = self.loads.others.insert(from, state);
        let place = |state: &NodeState| (state.serves(), state.addresses.clone());
        if before.as_ref().map(place) != self.loads.of(from).map(place) {
            self.send_addresses(cx);
        }
        self.update_balancer(cx, now);
    }

    pub(super) fn loads_lose_node(&mut self, cx: &mut Context, now: Now, node: NodeId) {
        if self.loads.others.remove(&node).is_some() {
            self.send_addresses(cx);
            self.update_balancer(cx, now);
        }
    }

    /// Sends the workers where a client of each of their listeners reaches each other node.
    fn send_addresses(&mut self, cx: &mut Context) {
        let own = (cx.own(), self.loads.own());
        let others = self.loads.others.iter().map(|(node, state)| (*node, state));
        let mut nodes: Vec<(NodeId, &NodeState)> = others.chain([own]).collect();
        nodes.sort_by_key(|(node, _)| *node);
        let nodes = nodes.into_iter().map(|(node, state)| {
            let of_listener = |likeness: &Option<ListenerLikeness>| {
                let likeness = likeness.as_ref()?;
                let mut addresses = state.addresses.iter();
                let found = addresses.find(|address| address.likeness == *likeness)?;
                Some(Arc::clone(&found.address))
            };
            let listeners = cx.config.redirection.listeners.iter();
            NodeElsewhere {
                node,
                // This one is returned only for clients that are to connect to it again.
                serves: node != own.0 && state.serves(),
                addresses: listeners.map(of_listener).collect(),
            }
        });
        let elsewhere = Arc::new(Elsewhere::new(nodes.collect()));
        cx.change_cluster(|it| it.elsewhere = elsewhere);
    }
}
