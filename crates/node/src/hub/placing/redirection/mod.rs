//! Which clients this node sends to another one (MQTT 5.0, 4.11; Dispatcher III and IV): when they connect, when the node is drained, and while they
//! are connected if its load is too high (`moves`).
//!
//! Each node decides for the clients that connect to it, from the loads that all nodes report ([`thicket_placement::LoadBalancer`]). A decision is
//! sent to all others at once: so it counts there before the next loads show it, and the node that gets the client serves it. A client is redirected
//! before its claim is made, so nothing has happened to its session yet, wherever that is.
//!
//! | a client that | is |
//! | --- | --- |
//! | uses 3.1 or 3.1.1 | served |
//! | the same, and its topics are elsewhere, with `redirect = "topics"` and `redirect_refusals` | refused, up to limits of count and time |
//! | was redirected in the last 30 s, by any node, or states so itself | served |
//! | came back instead of following, in the last hour | served |
//! | is placed here, with `redirect = "topics"`, or has its topics here | served |
//! | is placed elsewhere, or has its topics there | sent there |
//! | connects to a node with hardly any load | served |
//! | connects to a node that has a higher load than another one, by the margin | sent to one of two drawn at random, that with the lower load |
//! | connects to a node that is drained | sent to any that serves; if there is none, refused |

pub(super) mod decisions;
mod moves;

use std::sync::Arc;

use thicket_mqtt::ReasonCode;
use thicket_overlay::NodeId;
use thicket_placement::{Candidate, Load, State};

use super::{Placing, placements::Learned};
use crate::{
    ClientExplanation, ListenerId, NodeLoad, Now, RankedNode, RedirectionReason, RedirectionReport,
    WorkerId,
    hub::{context::Context, control::Message},
    messages::{Claim, ToWorker},
    scope::client_id_of,
};

/// A client is sent elsewhere only if the load of that node is lower by this part of the mean.
const MARGIN: f64 = 0.2;
/// A node with a load below this keeps its clients: CPU in thousandths, messages a second, clients.
const LIGHT: (u16, u64, f64) = (100, 100, 16.0);

impl Placing {
    /// Whether this node has sent the client elsewhere when it connected, not long ago.
    pub(super) fn has_redirected(&self, now: Now, name: &str) -> bool {
        self.redirection.recent.get(now.instant, name) == Some(true)
    }

    /// A client that asks for its session is sent elsewhere instead, or refused. False: it is served here.
    pub(in crate::hub) fn redirects(
        &mut self,
        cx: &mut Context,
        now: Now,
        worker: WorkerId,
        claim: &Claim,
    ) -> bool {
        let is_draining = self.loads.own().load.is_draining;
        if cx.config.redirection.policy.is_none() && !is_draining {
            return false;
        }
        match self.choose_node(cx, now, claim) {
            Ok((to, reason)) => {
                if reason == RedirectionReason::Topics {
                    self.learn_refused(cx, now, &claim.client_id, to);
                }
                self.note_redirected(cx, now, &claim.client_id, claim.remembered_as(), to, reason);
                let reason_code = if reason == RedirectionReason::Topics {
                    ReasonCode::ServerMoved
                } else {
                    ReasonCode::UseAnotherServer
                };
                let instead = self.references(cx, now, to);
                cx.refuse_claim(worker, claim, reason_code, instead);
                true
            }
            Err(RedirectionReason::Refused) => {
                cx.refuse_claim(worker, claim, ReasonCode::ServerUnavailable, Arc::default());
                true
            }
            Err(reason) => {
                self.redirection
                    .decisions
                    .note(now, &claim.client_id, reason, None);
                if is_draining && reason != RedirectionReason::Version {
                    let reason_code = ReasonCode::UseAnotherServer;
                    cx.refuse_claim(worker, claim, reason_code, Arc::default());
                } else {
                    let own = cx.own().0;
                    self.redirection.balancer.sent(now.instant.as_millis(), own);
                    self.learn_served(cx, now, &claim.client_id);
                }
                // A client before 5.0 was refused by the worker already, or this is an import.
                is_draining && reason != RedirectionReason::Version
            }
        }
    }

    /// The topics of a client are at another node now: if it is connected here and is moved by topics, it is sent there.
    pub(super) fn send_to_topics(&mut self, cx: &mut Context, now: Now, name: &str, to: NodeId) {
        if cx.config.redirection.by_topics {
            self.send_client(cx, now, name, to, RedirectionReason::Topics);
        }
    }

    /// Whether a client has shown that it does not follow.
    pub(super) fn stays(&self, now: Now, name: &str) -> bool {
        self.redirection.staying.get(now.instant, name).is_some()
    }

    /// The client has shown that.
    pub(super) fn leave_alone(&mut self, now: Now, name: &str) {
        let staying = &mut self.redirection.staying;
        staying.insert(now.instant, name.into(), ());
    }

    /// A client that is connected here is to go to another node: the one way to have it moved, for whatever reason. If `to` is this node, the client
    /// is to connect again, and ask where its sessions should be. False: it is not here, or does not go.
    pub(super) fn send_client(
        &mut self,
        cx: &mut Context,
        now: Now,
        name: &str,
        to: NodeId,
        reason: RedirectionReason,
    ) -> bool {
        let entry = cx.directory.entries.get_key_value(name);
        let Some((name, entry)) = entry.filter(|(_, entry)| entry.is_open && entry.is_connected)
        else {
            return false;
        };
        let (name, home) = (Arc::clone(name), entry.home);
        let at = now.instant;
        let is_back = to == cx.own();
        let redirection = &mut self.redirection;
        let may_go = redirection.staying.get(at, &name).is_none()
            && redirection.budget.has_left(at)
            && (is_back || self.loads.of(to).is_some_and(|state| state.serves()));
        if may_go {
            self.note_redirected(cx, now, &name, &name, to, reason);
            let client_id = name;
            let to = Arc::new([to]);
            cx.send_to_worker(home, ToWorker::SendClient { client_id, to });
        }
        may_go
    }

    fn choose_node(
        &mut self,
        cx: &mut Context,
        now: Now,
        claim: &Claim,
    ) -> Result<(NodeId, RedirectionReason), RedirectionReason> {
        let Some(asks) = &claim.redirectable else {
            return Err(self.refuses(cx, now, claim));
        };
        if !self.loads.own().load.is_draining {
            self.is_to_be_served(now, claim)?;
        }
        if !cx.is_ready || cx.overlay.is_in_doubt() || cx.quorum.is_minority() {
            return Err(RedirectionReason::Unsure);
        }
        let elsewhere = Arc::clone(&cx.cluster.elsewhere);
        let suits = |listener: ListenerId| {
            let elsewhere = &elsewhere;
            move |key: u64| elsewhere.address(NodeId(key), listener).is_some()
        };
        if elsewhere.serving(asks.listener).next().is_none() {
            return Err(RedirectionReason::NoAddress);
        }
        let is_draining = self.loads.own().load.is_draining;
        match self.node_of_topics(cx, now, &claim.client_id) {
            Some(node) if node == cx.own() => return Err(RedirectionReason::Placed),
            Some(node) if suits(asks.listener)(node.0) => {
                return Ok((node, RedirectionReason::Topics));
            }
            Some(_) | None => {}
        }
        let (now_ms, own) = (now.instant.as_millis(), cx.own().0);
        let load = &self.loads.own().load;
        let balancer = &mut self.redirection.balancer;
        let is_light = load.cpu_permille.is_none_or(|cpu| cpu < LIGHT.0)
            && load.external.messages() < LIGHT.1
            && balancer.clients(now_ms, own) < LIGHT.2;
        if is_light && !is_draining {
            return Err(RedirectionReason::Balanced);
        }
        let chosen = balancer.choose_instead_of(now_ms, own, MARGIN, suits(asks.listener));
        let reason = if is_draining {
            RedirectionReason::Drained
        } else {
            RedirectionReason::Load
        };
        let chosen = chosen.map(|key| (NodeId(key), reason));
        chosen.ok_or(RedirectionReason::Balanced)
    }

    /// A client before 5.0 is refused where its topics are not, if it may connect to another node the next time.
    fn refuses(&mut self, cx: &mut Context, now: Now, claim: &Claim) -> RedirectionReason {
        let Some(listener) = claim.refusable.filter(|_| self.refuses_clients(cx)) else {
            return RedirectionReason::Version;
        };
        let name = &*claim.client_id;
        let Learned::At(node) = self.learned_node(cx, now, name) else {
            return RedirectionReason::Version;
        };
        let can_come = cx.cluster.elsewhere.address(node, listener).is_some();
        if !can_come || self.stays(now, name) {
            return RedirectionReason::Version;
        }
        match self.may_be_refused(cx, now, name) {
            Some(true) if self.redirection.budget.has_left(now.instant) => {
                self.redirection.budget.take();
                self.learn_refused(cx, now, name, node);
                let decisions = &mut self.redirection.decisions;
                decisions.note(now, name, RedirectionReason::Refused, Some(node));
                RedirectionReason::Refused
            }
            Some(true) => RedirectionReason::Budget,
            Some(false) => RedirectionReason::RefusedEnough,
            None => RedirectionReason::Version,
        }
    }

    fn refuses_clients(&self, cx: &Context) -> bool {
        let redirection = &cx.config.redirection;
        let knows = cx.is_ready && !cx.overlay.is_in_doubt() && !cx.quorum.is_minority();
        let is_draining = self.loads.own().load.is_draining;
        redirection.by_topics && redirection.refusals > 0 && knows && !is_draining
    }

    /// Where a client's topics are, if it is moved by topics: at a node that accepts clients.
    fn node_of_topics(&mut self, cx: &Context, now: Now, name: &str) -> Option<NodeId> {
        if !cx.config.redirection.by_topics {
            return None;
        }
        let node = match self.placed_at(now, name) {
            Some(placed) => placed,
            None => match self.learned_node(cx, now, name) {
                Learned::Unknown => return None,
                Learned::Here => cx.own(),
                Learned::At(node) => node,
            },
        };
        let own = (node == cx.own()).then(|| self.loads.own());
        let state = own.or_else(|| self.loads.of(node));
        state.is_some_and(|state| state.serves()).then_some(node)
    }

    /// Why a client is served whatever the loads are.
    fn is_to_be_served(&mut self, now: Now, claim: &Claim) -> Result<(), RedirectionReason> {
        let at = now.instant;
        let redirection = &mut self.redirection;
        let name = claim.remembered_as();
        if redirection.staying.get(at, name).is_some() {
            return Err(RedirectionReason::DoesNotFollow);
        }
        match redirection.recent.get(at, name) {
            Some(true) => {
                redirection.staying.insert(at, name.into(), ());
                Err(RedirectionReason::DoesNotFollow)
            }
            Some(false) => Err(RedirectionReason::CameRedirected),
            None if claim.came_redirected() => Err(RedirectionReason::CameRedirected),
            None if !redirection.budget.has_left(at) => Err(RedirectionReason::Budget),
            None => Ok(()),
        }
    }

    /// A client is sent to a node: all nodes are informed.
    fn note_redirected(
        &mut self,
        cx: &mut Context,
        now: Now,
        client_id: &str,
        remembered_as: &str,
        to: NodeId,
        reason: RedirectionReason,
    ) {
        let is_back = to == cx.own();
        let redirection = &mut self.redirection;
        redirection.budget.take();
        redirection
            .recent
            .insert(now.instant, remembered_as.into(), !is_back);
        redirection.decisions.note(now, client_id, reason, Some(to));
        self.note_move(now, remembered_as, cx.own(), to, reason);
        let client_id = remembered_as;
        let moved = Message::Moved {
            to,
            reason,
            client_id,
        };
        cx.broadcast(&moved.encode());
    }

    /// Another node has sent a client to a node, maybe to this one.
    pub(in crate::hub) fn handle_moved(
        &mut self,
        now: Now,
        from: NodeId,
        to: NodeId,
        (client_id, reason): (&str, RedirectionReason),
    ) {
        self.note_move(now, client_id, from, to, reason);
        let redirection = &mut self.redirection;
        redirection
            .recent
            .insert(now.instant, client_id.into(), false);
        redirection.balancer.sent(now.instant.as_millis(), to.0);
    }

    /// The chosen node, and behind it others that serve, those with a lower load first.
    fn references(&self, cx: &Context, now: Now, to: NodeId) -> Arc<[NodeId]> {
        let wanted = usize::from(cx.config.redirection.references.max(1));
        let own = cx.own();
        let ranked = self.redirection.balancer.ranked(now.instant.as_millis());
        let others = ranked.into_iter().map(|(key, _)| NodeId(key));
        let others = others.filter(|node| *node != to && *node != own);
        std::iter::once(to).chain(others).take(wanted).collect()
    }

    /// Updates the load balancer from the nodes that are up and report their load, and this one.
    pub(super) fn update_balancer(&mut self, cx: &Context, now: Now) {
        let own = (cx.own(), &self.loads.own().load);
        let others = self.loads.others();
        let others = others.map(|(node, state)| (node, &state.load));
        let candidates = others.chain([own]).map(|(node, load)| Candidate {
            key: node.0,
            state: state_of(load),
            load: load_of(load),
        });
        let candidates = candidates.collect();
        self.redirection
            .balancer
            .update(now.instant.as_millis(), candidates);
    }

    /// See [`crate::HubView::redirections`].
    pub(in crate::hub) fn redirections(&self) -> RedirectionReport {
        self.redirection.decisions.report()
    }

    /// See [`crate::HubView::explain_client`].
    pub(in crate::hub) fn explain_client(
        &self,
        cx: &Context,
        now: Now,
        client_id: &str,
    ) -> ClientExplanation {
        let entries = cx.directory.entries.iter();
        let is_it = |name: &str| client_id_of(name) == client_id;
        let ranked = self.redirection.balancer.ranked(now.instant.as_millis());
        ClientExplanation {
            client_id: client_id.to_owned(),
            is_here: entries
                .clone()
                .any(|(name, entry)| is_it(name) && entry.is_open),
            placed_as: self.placed_client(now, client_id),
            learned: self.learned_report(now, client_id),
            policy: cx.config.redirection.policy.map(|policy| policy.name()),
            decision: self.redirection.decisions.last(is_it),
            moved: self.last_move(now, client_id),
            nodes: ranked
                .into_iter()
                .map(|(key, score)| self.ranked_node(cx, NodeId(key), score))
                .collect(),
        }
    }
}

impl Placing {
    fn ranked_node(&self, cx: &Context, node: NodeId, score: f64) -> RankedNode {
        let own = cx.own();
        RankedNode {
            id: node.to_string(),
            score,
            site: self.sites.of(node).map(str::to_owned),
            round_trip: cx.overlay.round_trip(own, node),
            price_per_gb: self.sites.price(own, node),
            message_cost: if node == own {
                0.0
            } else {
                self.sites.message_cost(cx, own, node)
            },
        }
    }
}

const fn state_of(load: &NodeLoad) -> State {
    if load.is_draining {
        State::Draining
    } else if load.is_full {
        State::Full
    } else {
        State::Serving
    }
}

fn load_of(load: &NodeLoad) -> Load {
    Load {
        cpu: load.cpu_permille.map(|cpu| f64::from(cpu) / 1000.0),
        messages_per_s: Some(load.external.messages() as f64),
        connections: Some(load.connections as f64),
    }
}
