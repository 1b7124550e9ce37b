//! The registrar: serialises the claims of the client identifiers that fall to this node, in the whole cluster.
//!
//! | event | free | owned | claimed (a node is fetching or opening it) |
//! | --- | --- | --- | --- |
//! | claim | granted, claimed | granted with the owner as source, claimed | waits in line |
//! | owned, by the claimant | owned | owned | owned; the next in line is granted |
//! | unclaimed, by the claimant | free | free or owned by another | likewise; the next in line is granted |
//! | register | owned | the higher epoch stays, the other is evicted | likewise |
//! | register as claim | claimed | claimed | stays claimed |
//! | release, by the owner | free | free | stays claimed |
//!
//! Nothing is granted before every reachable node has registered what it has, in this round and under the present view:
//! "nobody has it" must be true. A round begins whenever the view here changes, with an empty table.

use std::collections::{BTreeMap, VecDeque};

use thicket_overlay::NodeId;

use super::{Hub, Message, control::Registration};
use crate::Now;

/// What the registrar knows of a client identifier.
#[derive(Debug, Default)]
struct Registered {
    /// Who has the session, and by which claim.
    owner: Option<(u64, NodeId)>,
    /// Of the last claim granted.
    epoch: u64,
    claimed_by: Option<NodeId>,
    /// Who claims next, with the number of the claim; each node once.
    line: VecDeque<(NodeId, u64)>,
}

/// The client identifiers that fall to this node.
#[derive(Debug, Default)]
pub(super) struct Registrar {
    known: BTreeMap<String, Registered>,
    /// What is answered to an earlier round is void.
    round: u64,
    /// The view under which each node has registered, in this round.
    registered: BTreeMap<NodeId, u64>,
}

impl Hub {
    /// A message for the registrar, from another node or this one.
    pub(super) fn handle_registrar_message(
        &mut self,
        now: Now,
        from: NodeId,
        message: &Message<'_>,
    ) {
        match *message {
            Message::Claim {
                request,
                view,
                client_id,
            } => self.register_claim(now, from, request, view, client_id),
            Message::Register {
                round,
                is_first,
                ref sessions,
            } => {
                if round != self.registrar.round {
                    return;
                }
                if is_first {
                    self.registrar.forget(from);
                }
                for registration in sessions {
                    self.register(now, from, *registration);
                }
            }
            Message::RegisterEnd { round, view } => {
                if round == self.registrar.round {
                    self.registrar.registered.insert(from, view);
                    self.grant_waiting(now);
                }
            }
            Message::Release { client_id } => self.release(from, client_id),
            Message::Unclaimed { client_id } => self.unclaimed(now, from, client_id),
            Message::Owned { client_id, epoch } => self.owned(now, from, client_id, epoch),
            _ => debug_assert!(false, "not for the registrar"),
        }
    }

    /// Whether every reachable node has registered under the view we have.
    fn is_whole(&self) -> bool {
        let (own, view) = (self.own(), self.directory.view);
        self.up
            .values()
            .chain([&own])
            .all(|node| self.registrar.registered.get(node) == Some(&view))
    }

    fn register_claim(&mut self, now: Now, from: NodeId, request: u64, view: u64, client_id: &str) {
        if view != self.directory.view || !self.is_whole() {
            let deferred = Message::ClaimDeferred { request, client_id };
            self.answer_claim(now, from, &deferred);
            return;
        }
        let known = self
            .registrar
            .known
            .entry(client_id.to_owned())
            .or_default();
        // A node asks again when it no longer waits for the answer it was to get.
        known.line.retain(|(node, _)| *node != from);
        if known.claimed_by.is_some_and(|claimant| claimant != from) {
            known.line.push_back((from, request));
            return;
        }
        let answer = known.grant(from, request, client_id);
        self.answer_claim(now, from, &answer);
    }

    fn answer_claim(&mut self, now: Now, to: NodeId, answer: &Message<'_>) {
        if to == self.own() {
            self.handle_claim_answer(now, answer);
        } else {
            self.send(to, answer);
        }
    }

    fn register(&mut self, now: Now, from: NodeId, registration: Registration<'_>) {
        let Registration {
            client_id,
            epoch,
            is_claim,
        } = registration;
        let known = self
            .registrar
            .known
            .entry(client_id.to_owned())
            .or_default();
        known.epoch = known.epoch.max(epoch);
        if is_claim {
            known.claimed_by.get_or_insert(from);
            return;
        }
        match known.owner {
            Some((owner_epoch, owner)) if owner != from && (owner_epoch, owner) > (epoch, from) => {
                self.evict(now, from, client_id, owner_epoch);
            }
            Some((_, owner)) if owner != from => {
                known.owner = Some((epoch, from));
                self.evict(now, owner, client_id, epoch);
            }
            Some(_) | None => known.owner = Some((epoch, from)),
        }
    }

    fn evict(&mut self, _now: Now, node: NodeId, client_id: &str, epoch: u64) {
        if node == self.own() {
            self.handle_evict(client_id, epoch);
        } else {
            self.send(node, &Message::Evict { client_id, epoch });
        }
    }

    fn owned(&mut self, now: Now, from: NodeId, client_id: &str, epoch: u64) {
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            // A round has begun: the claimant registers what it has.
            return;
        };
        let ends_claim = known.claimed_by == Some(from);
        known.claimed_by.take_if(|claimant| *claimant == from);
        // Granted by us, its epoch is above all others and the former owner has handed the session over, unless it was out of the
        // claimant's reach. Granted under another view it is like any session that turns up: another one may be above it.
        let is_claim = false;
        let registration = Registration {
            client_id,
            epoch,
            is_claim,
        };
        self.register(now, from, registration);
        if ends_claim {
            self.grant_next(now, client_id);
        }
    }

    fn unclaimed(&mut self, now: Now, from: NodeId, client_id: &str) {
        self.release(from, client_id);
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        if known.claimed_by == Some(from) {
            known.claimed_by = None;
            self.grant_next(now, client_id);
            self.registrar.drop_unused(client_id);
        }
    }

    fn release(&mut self, from: NodeId, client_id: &str) {
        if let Some(known) = self.registrar.known.get_mut(client_id)
            && known.is_owned_by(from)
        {
            known.owner = None;
            self.registrar.drop_unused(client_id);
        }
    }

    fn grant_next(&mut self, now: Now, client_id: &str) {
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        if known.claimed_by.is_none()
            && let Some((to, request)) = known.line.pop_front()
        {
            let answer = known.grant(to, request, client_id);
            self.answer_claim(now, to, &answer);
        }
    }

    /// A claimant may have registered anew without its claim: those behind it need not wait for it.
    fn grant_waiting(&mut self, now: Now) {
        if !self.is_whole() {
            return;
        }
        let is_waiting = |known: &Registered| known.claimed_by.is_none() && !known.line.is_empty();
        let waiting: Vec<String> = self
            .registrar
            .known
            .iter()
            .filter(|(_, known)| is_waiting(known))
            .map(|(client_id, _)| client_id.clone())
            .collect();
        for client_id in waiting {
            self.grant_next(now, &client_id);
        }
    }

    /// The view changed: every node is asked what it has. Claimants ask again by themselves.
    pub(super) fn registrar_restarts(&mut self, now: Now) {
        self.registrar.known.clear();
        self.registrar.registered.clear();
        self.registrar.round += 1;
        let round = self.registrar.round;
        for node in self.up.values().copied().collect::<Vec<_>>() {
            self.send(node, &Message::RegisterAsked { round });
        }
        self.handle_register_asked(now, self.own(), round);
    }
}

impl Registrar {
    /// What a node has registered is void: it registers anew.
    fn forget(&mut self, node: NodeId) {
        self.registered.remove(&node);
        self.known.retain(|_, known| {
            if known.is_owned_by(node) {
                known.owner = None;
            }
            if known.claimed_by == Some(node) {
                known.claimed_by = None;
            }
            known.line.retain(|(waiting, _)| *waiting != node);
            !known.is_unused()
        });
    }

    fn drop_unused(&mut self, client_id: &str) {
        if self.known.get(client_id).is_some_and(Registered::is_unused) {
            self.known.remove(client_id);
        }
    }
}

impl Registered {
    fn is_owned_by(&self, node: NodeId) -> bool {
        self.owner.is_some_and(|(_, owner)| owner == node)
    }

    fn is_unused(&self) -> bool {
        self.owner.is_none() && self.claimed_by.is_none() && self.line.is_empty()
    }

    fn grant<'a>(&mut self, to: NodeId, request: u64, client_id: &'a str) -> Message<'a> {
        self.claimed_by = Some(to);
        // Claims are even: a copy that goes on after the death of a node that had just handed its session over has less.
        self.epoch = (self.epoch / 2 + 1) * 2;
        Message::ClaimGranted {
            request,
            epoch: self.epoch,
            source: self
                .owner
                .map(|(_, owner)| owner)
                .filter(|owner| *owner != to),
            client_id,
        }
    }
}
