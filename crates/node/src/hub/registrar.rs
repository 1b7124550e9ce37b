//! The registrar: serialises the claims of the client identifiers that fall to this node, in the whole cluster.
//!
//! | event | free | owned | claimed (a node is fetching or opening it) |
//! | --- | --- | --- | --- |
//! | claim | granted, claimed | granted with the owner as source, claimed | waits in line |
//! | owned, by the claimant | owned | owned | owned; the next in line is granted |
//! | register | owned | the higher epoch stays, the other is evicted | likewise |
//! | release, of this epoch | free | free | stays claimed |
//!
//! Nothing is granted before every reachable node has registered what it has under the present view: "nobody has it" must be true.

use std::collections::{BTreeMap, VecDeque};

use thicket_overlay::NodeId;

use super::{Hub, Message};
use crate::Now;

/// What the registrar knows of a client identifier.
#[derive(Debug, Default)]
struct Registered {
    /// Who has the session, and by which claim.
    owner: Option<(u64, NodeId)>,
    /// Of the last claim granted.
    epoch: u64,
    claimed_by: Option<NodeId>,
    line: VecDeque<(NodeId, u64)>,
}

/// The client identifiers that fall to this node.
#[derive(Debug, Default)]
pub(super) struct Registrar {
    known: BTreeMap<String, Registered>,
    /// The view under which each node has registered.
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
            Message::Register { ref sessions } => {
                for (client_id, epoch) in sessions {
                    self.register(now, from, client_id, *epoch);
                }
            }
            Message::RegisterEnd { view } => {
                self.registrar.registered.insert(from, view);
            }
            Message::Release { client_id, epoch } => self.release(from, client_id, epoch),
            Message::Owned { client_id, epoch } => self.owned(now, from, client_id, epoch),
            _ => debug_assert!(false, "not for the registrar"),
        }
    }

    fn register_claim(&mut self, now: Now, from: NodeId, request: u64, view: u64, client_id: &str) {
        let own = self.own();
        let is_whole = view == self.directory.view
            && self
                .up
                .values()
                .chain([&own])
                .all(|node| self.registrar.registered.get(node) == Some(&view));
        if !is_whole {
            self.answer_claim(now, from, &Message::ClaimDeferred { request });
            return;
        }
        let known = self
            .registrar
            .known
            .entry(client_id.to_owned())
            .or_default();
        if known.claimed_by.is_some_and(|claimant| claimant != from) {
            known.line.push_back((from, request));
            return;
        }
        let answer = known.grant(from, request);
        self.answer_claim(now, from, &answer);
    }

    fn answer_claim(&mut self, now: Now, to: NodeId, answer: &Message<'_>) {
        if to == self.own() {
            self.handle_claim_answer(now, answer);
        } else {
            self.send(to, answer);
        }
    }

    fn register(&mut self, now: Now, from: NodeId, client_id: &str, epoch: u64) {
        let known = self
            .registrar
            .known
            .entry(client_id.to_owned())
            .or_default();
        known.epoch = known.epoch.max(epoch);
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
        let is_claimant = self
            .registrar
            .known
            .get_mut(client_id)
            .filter(|known| known.claimed_by == Some(from) && known.epoch == epoch);
        let Some(known) = is_claimant else {
            // Granted under another view: like any session that turns up.
            self.register(now, from, client_id, epoch);
            return;
        };
        // The former owner has handed the session over.
        known.owner = Some((epoch, from));
        known.claimed_by = None;
        self.grant_next(now, client_id);
    }

    fn release(&mut self, from: NodeId, client_id: &str, epoch: u64) {
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        if known
            .owner
            .is_some_and(|(owned_by, owner)| owner == from && owned_by <= epoch)
        {
            known.owner = None;
            if known.claimed_by.is_none() && known.line.is_empty() {
                self.registrar.known.remove(client_id);
            }
        }
    }

    fn grant_next(&mut self, now: Now, client_id: &str) {
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        if let Some((to, request)) = known.line.pop_front() {
            let answer = known.grant(to, request);
            self.answer_claim(now, to, &answer);
        }
    }

    /// The view changed: claimants ask again, so nothing is claimed any more.
    pub(super) fn registrar_restarts(&mut self) {
        for known in self.registrar.known.values_mut() {
            known.claimed_by = None;
            known.line.clear();
        }
    }

    /// A node is out: what it had is nobody's.
    pub(super) fn registrar_forgets(&mut self, node: NodeId) {
        self.registrar.registered.remove(&node);
        self.registrar.known.retain(|_, known| {
            if known.owner.is_some_and(|(_, owner)| owner == node) {
                known.owner = None;
            }
            known.owner.is_some()
        });
    }
}

impl Registered {
    fn grant(&mut self, to: NodeId, request: u64) -> Message<'static> {
        self.claimed_by = Some(to);
        self.epoch += 1;
        Message::ClaimGranted {
            request,
            epoch: self.epoch,
            source: self
                .owner
                .map(|(_, owner)| owner)
                .filter(|owner| *owner != to),
        }
    }
}
