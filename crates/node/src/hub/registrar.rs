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
    owner: Option<NodeId>,
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
        let loser = match known.owner {
            Some(owner) if owner != from && (known.epoch, owner) > (epoch, from) => {
                Some((from, known.epoch))
            }
            Some(owner) if owner != from => Some((owner, epoch)),
            Some(_) | None => None,
        };
        if loser.is_none_or(|(node, _)| node != from) {
            known.owner = Some(from);
            known.epoch = known.epoch.max(epoch);
        }
        if let Some((node, epoch)) = loser {
            self.evict(now, node, client_id, epoch);
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
        self.register(now, from, client_id, epoch);
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        if known.claimed_by == Some(from) {
            known.claimed_by = None;
            self.grant_next(now, client_id);
        }
    }

    fn release(&mut self, from: NodeId, client_id: &str, epoch: u64) {
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        if known.owner == Some(from) && known.epoch <= epoch {
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
            if known.owner == Some(node) {
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
            source: self.owner.filter(|owner| *owner != to),
        }
    }
}
