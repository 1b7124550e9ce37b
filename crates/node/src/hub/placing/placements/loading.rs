//! What is done with all placements, a part of them in each round, as a round with all would hold
//! everybody else up: the strategy is given them, and a node that has come is sent them.

use std::{collections::BTreeSet, time::Duration};

use thicket_overlay::{NodeId, rendezvous};
use thicket_placement::{ControlPlane, Placement};
use thicket_session::time::Instant;

use super::{Placing, RENDEZVOUS_KEY};
use crate::{
    Now, PlacementError,
    hub::{
        context::Context,
        control::{Follows, Message},
        placing::state::placements::{Control, Deferred, Loading, Sending},
    },
};

/// For how long costs of messages between nodes are used: round trips change.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// How far above the mean the load of a node may be.
const GAMMA: f64 = 1.1;
/// The strategy is dropped, and given what there is when it is needed again, when the placements
/// take less than this part of what they took.
const WORTH_DROPPING: usize = 4;

impl Control {
    fn new(nodes: BTreeSet<u64>) -> Result<Self, PlacementError> {
        let strategy = ControlPlane::new(&nodes, GAMMA);
        Ok(Self {
            nodes,
            strategy: strategy.map_err(|_| PlacementError::NoNodes)?,
            loading: Loading::After(None),
            most_bytes: 0,
        })
    }

    /// What another node sent may be anything: what is impossible is left out.
    pub(super) fn restore(&mut self, placement: &Placement, follows: Follows) {
        let _ = match follows.is_learned() {
            true => self.strategy.restore_seen(placement),
            false => self.strategy.restore(placement),
        };
    }
}

impl Placing {
    /// Whether the strategy has all placements for the nodes that accept clients. If not, it is
    /// given a part of them now, and one in each round.
    ///
    /// # Errors
    /// No node accepts clients.
    pub(super) fn prepare_control(
        &mut self,
        cx: &Context,
        now: Now,
    ) -> Result<bool, PlacementError> {
        let others = self.loads.others();
        let own = [(cx.own(), self.loads.own())];
        let serving = others.chain(own).filter(|(_, state)| state.serves());
        let nodes: BTreeSet<u64> = serving.map(|(node, _)| node.0).collect();
        let control = self.placements.control.as_ref();
        let is_same = control.is_some_and(|control| control.nodes == nodes);
        if !is_same {
            self.placements.control = Some(Control::new(nodes)?);
            self.placements.costs_at = None;
            self.load_more();
        }
        self.renew_costs(cx, now);
        let control = self.placements.control.as_ref();
        Ok(control.is_some_and(|control| control.loading == Loading::Done))
    }

    fn renew_costs(&mut self, cx: &Context, now: Now) {
        let is_measured = |at: Instant| now.instant < at + MEASURED_FOR;
        if self.placements.costs_at.is_some_and(is_measured) {
            return;
        }
        if self.placements.costs_at.is_some() {
            thicket_session::reach!("time MEASURED_FOR");
        }
        self.placements.costs_at = Some(now.instant);
        if let Some(control) = &mut self.placements.control {
            let sites = &self.sites;
            let cost = |from, to| sites.message_cost(cx, NodeId(from), NodeId(to));
            // No cost is below 1.
            let _ = control.strategy.set_costs(cost);
        }
    }

    /// The strategy is given the next part of the placements.
    fn load_more(&mut self) {
        let Some(control) = &mut self.placements.control else {
            return;
        };
        let Loading::After(after) = &control.loading else {
            return;
        };
        let (part, last) = self.placements.known.part(after.as_deref());
        for known in part {
            control.restore(&known.placement, known.follows);
        }
        control.most_bytes = control.most_bytes.max(self.placements.known.bytes());
        control.loading = match last {
            Some(_) => Loading::After(last),
            None => Loading::Done,
        };
    }

    /// Memory of placements whose time is over.
    pub(super) fn give_memory_back(&mut self) {
        let bytes = self.placements.known.bytes();
        let control = self.placements.control.as_ref();
        if control.is_some_and(|it| bytes < it.most_bytes / WORTH_DROPPING) {
            thicket_session::reach!("hub/placements: the strategy gives its memory back");
            self.placements.control = None;
        }
    }

    /// A node that has come is sent all placements.
    pub(in crate::hub::placing) fn send_placements(&mut self, cx: &Context, node: NodeId) {
        // Only one sends, or each new node would receive all from all.
        if self.placer_before(cx, node) == cx.own() {
            self.placements.sending.retain(|sending| sending.to != node);
            let sending = Sending {
                to: node,
                after: None,
            };
            self.placements.sending.push(sending);
        }
    }

    /// The placer before a node came.
    fn placer_before(&self, cx: &Context, node: NodeId) -> NodeId {
        let reachable = cx.overlay.reachable().into_iter();
        let nodes: Vec<NodeId> = reachable.filter(|other| *other != node).collect();
        rendezvous(RENDEZVOUS_KEY, &nodes).unwrap_or(cx.own())
    }

    fn send_more(&mut self, cx: &mut Context, now: Now) {
        for mut sending in std::mem::take(&mut self.placements.sending) {
            let known = &self.placements.known;
            let (part, last) = known.part(sending.after.as_deref());
            for known in part.into_iter().filter(|known| known.until > now.instant) {
                // It is sent for information, not to be followed now.
                let follows = match known.follows {
                    Follows::Activity { .. } => known.follows,
                    Follows::Subscribers | Follows::Request { .. } => Follows::Request {
                        max_sessions: known.max_sessions,
                    },
                };
                let message = Message::Placement {
                    placement: known.placement.clone(),
                    follows,
                    payer: known.payer.clone(),
                };
                cx.send(sending.to, &message);
            }
            if last.is_some() {
                sending.after = last;
                self.placements.sending.push(sending);
            }
        }
    }

    /// Once a round: the next part of what is under way, and requests that waited for it.
    pub(in crate::hub) fn continue_placements(&mut self, cx: &mut Context, now: Now) {
        if !self.placements.sending.is_empty() {
            self.send_more(cx, now);
        }
        if self.placements.is_loading() {
            self.load_more();
        }
        if !self.placements.is_loading() {
            for deferred in std::mem::take(&mut self.placements.deferred) {
                let Deferred {
                    from,
                    request,
                    order,
                    ..
                } = deferred;
                self.carry_out_or_defer(cx, now, from, request, order);
            }
        }
    }

    /// Whether the next round has to do with it.
    pub(in crate::hub) fn has_placements_to_continue(&self) -> bool {
        let placements = &self.placements;
        !placements.sending.is_empty() || placements.is_loading() || !placements.deferred.is_empty()
    }

    /// A node that is down is sent nothing.
    pub(in crate::hub::placing) fn stop_sending_placements(&mut self, node: NodeId) {
        self.placements.sending.retain(|sending| sending.to != node);
        self.placements
            .deferred
            .retain(|deferred| deferred.from != node);
    }
}
