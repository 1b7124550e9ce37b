//! The registrar: serialises the claims, in the whole cluster, of the client identifiers that this node is responsible for.
//!
//! | event | free | owned | claimed (a node is fetching or opening it) |
//! | --- | --- | --- | --- |
//! | claim | granted, claimed | granted with the primary as source, claimed | waits in line |
//! | owned, by the claimant | owned | owned | owned; the next in line is granted |
//! | release that ends a claim, by the claimant | free | free or owned by another | likewise; the next in line is granted |
//! | register | owned | the higher rank stays, the other is evicted | likewise |
//! | register as claim | claimed | claimed | stays claimed |
//! | release, by the primary | free | free, or owned by one that was evicted | stays claimed |
//! | release, by the primary: the session has ended | free | free; who has an earlier branch is evicted | stays claimed |
//! | register what has ended (`ended`) | free | evicted | stays claimed |
//!
//! Two nodes have a session after a partition. A node that is evicted answers: its session has ended (`Release`), or what it has is nowhere else
//! (`Contested`); then the primary merges it (`Merge`), which is a claim of its own. Others wait for both (rules 11 and 15).
//!
//! Nothing is granted before every reachable node has registered its sessions in the current registration round and under the present view: the
//! answer "no session" must be true. A registration round begins, with an empty table, whenever the view here changes.

use thicket_overlay::NodeId;
use thicket_session::server::Epoch;

use super::{
    Ownership,
    state::registrar::{Eviction, Rank, Registered, Rival},
};
use crate::{
    Now,
    hub::{
        context::Context,
        control::{Grant, Message, Registrable, Registration, Released},
    },
};

impl Ownership {
    /// A message for the registrar, from another node or this one.
    pub(in crate::hub) fn handle_registrar_message(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: NodeId,
        message: &Message<'_>,
    ) {
        match *message {
            Message::Claim {
                request,
                view,
                client_id,
            } => self.register_claim(cx, now, from, request, view, client_id),
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
                    self.register(cx, now, from, *registration);
                }
            }
            Message::RegisterEnd { round, view } => {
                if round == self.registrar.round {
                    self.registrar.registered.insert(from, view);
                    self.grant_waiting(cx, now);
                }
            }
            Message::Release { client_id, release } => {
                self.release(cx, now, from, client_id, release);
                if release == Released::Unclaimed {
                    self.unclaim(cx, now, from, client_id);
                }
            }
            Message::Contested { client_id } => self.contested(cx, now, from, client_id),
            Message::Owned { client_id, epoch } => self.owned(cx, now, from, client_id, epoch),
            _ => debug_assert!(false, "not for the registrar"),
        }
    }

    /// Whether every reachable node has registered under our view, and none may have declared us down.
    fn is_whole(&self, cx: &Context) -> bool {
        let (own, view) = (cx.own(), cx.directory.view);
        let mut nodes = cx.up.values().chain([&own]);
        !cx.overlay.is_in_doubt()
            && nodes.all(|node| self.registrar.registered.get(node) == Some(&view))
    }

    fn register_claim(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: NodeId,
        request: u64,
        view: u64,
        client_id: &str,
    ) {
        if view != cx.directory.view || !self.is_whole(cx) {
            return self.answer_claim(cx, now, (from, request), client_id, None);
        }
        let known = self
            .registrar
            .known
            .entry(client_id.to_owned())
            .or_default();
        known.epoch = known.epoch.max(self.registrar.ended.epoch(client_id));
        // A node asks again when it no longer waits for its answer, or gave up what it was granted.
        known.line.retain(|(node, _)| *node != from);
        if known.claimed_by == Some(from) {
            known.claimed_by = None;
            known.claim_ends();
        }
        if known.claimed_by.is_some() || !known.rivals.is_empty() {
            known.line.push_back((from, request));
            return self.grant_next(cx, now, client_id);
        }
        let grant = known.grant(cx.clock.read(now), from);
        self.answer_claim(cx, now, (from, request), client_id, Some(grant));
    }

    fn answer_claim(
        &mut self,
        cx: &mut Context,
        now: Now,
        (to, request): (NodeId, u64),
        client_id: &str,
        grant: Option<Grant>,
    ) {
        if to == cx.own() {
            return self.handle_claim_answered(cx, now, request, grant, client_id);
        }
        let answer = Message::ClaimAnswered {
            request,
            grant,
            client_id,
        };
        cx.send(to, &answer);
    }

    fn register(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: NodeId,
        registration: Registration<'_>,
    ) {
        let Registration {
            client_id,
            epoch,
            state,
        } = registration;
        if state == Registrable::Ended {
            return self.end_branches(cx, now, client_id, epoch);
        }
        let known = self
            .registrar
            .known
            .entry(client_id.to_owned())
            .or_default();
        known.epoch = known.epoch.max(epoch);
        known.rivals.remove(&from);
        if state == Registrable::Claimed {
            known.claimed_by.get_or_insert(from);
            return;
        }
        let rank = Rank::new(from, registration);
        if self.registrar.ended.includes(client_id, epoch) {
            known.primary.take_if(|primary| primary.node == from);
            known.rivals.insert(from, Rival::new(rank));
            if self.is_whole(cx) {
                self.evict_rivals(cx, now, client_id);
            }
            return;
        }
        let Some(primary) = known.primary.filter(|primary| primary.node != from) else {
            known.primary = Some(rank);
            return;
        };
        known.primary = Some(primary.max(rank));
        let goes = primary.min(rank);
        known.rivals.insert(goes.node, Rival::new(goes));
        if self.is_whole(cx) {
            self.evict_rivals(cx, now, client_id);
        }
    }

    /// All have registered: nodes that have a session too are informed that the primary's stays.
    fn evict_rivals(&mut self, cx: &mut Context, now: Now, client_id: &str) {
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        let is_noted = |rival: &&mut Rival| rival.stage == Eviction::Noted;
        let mut goes = Vec::new();
        for rival in known.rivals.values_mut().filter(is_noted) {
            rival.stage = Eviction::Sent;
            goes.push(rival.rank);
        }
        let stays = known.primary.map_or(Epoch::NONE, |primary| primary.epoch());
        for goes in goes {
            let node = goes.node;
            // The one that is evicted may have the higher epoch, as a backup of the one that stays.
            let epoch = stays.max(goes.epoch());
            let has_ended = self.registrar.ended.includes(client_id, goes.epoch());
            if node == cx.own() {
                self.handle_evict(cx, now, node, client_id, (epoch, has_ended));
            } else {
                let evict = Message::Evict {
                    client_id,
                    epoch,
                    has_ended,
                };
                cx.send(node, &evict);
            }
        }
    }

    fn contested(&mut self, cx: &mut Context, now: Now, from: NodeId, client_id: &str) {
        let known = self.registrar.known.get_mut(client_id);
        if let Some(rival) = known.and_then(|known| known.rivals.get_mut(&from)) {
            rival.stage = Eviction::Contested;
            self.grant_next(cx, now, client_id);
        }
    }

    fn owned(&mut self, cx: &mut Context, now: Now, from: NodeId, client_id: &str, epoch: Epoch) {
        // Whether the node registers in this round before or after it has the session.
        let known = self.registrar.known.entry(client_id.to_owned());
        let known = known.or_default();
        let ends_claim = known.claimed_by == Some(from);
        if ends_claim {
            known.claim_ends();
        }
        let keeps_client = known.primary.is_some_and(|primary| {
            primary.node == from && primary.precedence.keeps_client_until(epoch)
        });
        known.claimed_by.take_if(|claimant| *claimant == from);
        // If we granted it, its epoch is above all others and the former primary has handed the session over, unless that was unreachable for the
        // claimant. If it was granted under another view, it is like any session that is registered: another one may rank above it.
        let registration = Registration {
            client_id,
            epoch,
            // No client has connected to a promoted backup. One that merges a branch stays.
            state: Registrable::here(keeps_client || epoch.is_claim()),
        };
        self.register(cx, now, from, registration);
        if ends_claim {
            self.grant_next(cx, now, client_id);
        }
    }

    fn unclaim(&mut self, cx: &mut Context, now: Now, from: NodeId, client_id: &str) {
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        if known.claimed_by == Some(from) {
            known.claimed_by = None;
            known.claim_ends();
            self.grant_next(cx, now, client_id);
            self.registrar.drop_unused(client_id);
        }
    }

    fn release(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: NodeId,
        client_id: &str,
        release: Released,
    ) {
        let may_be_elsewhere = cx.members.len() > cx.up.len() + 1 || !self.is_whole(cx);
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        let was_evicted = known.rivals.remove(&from).is_some();
        let primary = known.primary.filter(|primary| primary.node == from);
        if let Some(primary) = primary.filter(|_| release == Released::Ended) {
            known.primary = None;
            if may_be_elsewhere || !known.rivals.is_empty() {
                self.end_branches(cx, now, client_id, primary.epoch());
            }
        } else if primary.is_some() {
            // The node that was to be evicted has the only one left.
            known.primary = known.best_rival_above(Epoch::NONE);
        } else if !was_evicted {
            return;
        }
        self.grant_next(cx, now, client_id);
        self.registrar.drop_unused(client_id);
    }

    /// The session has ended, and so have branches of it up to an epoch.
    fn end_branches(&mut self, cx: &mut Context, now: Now, client_id: &str, epoch: Epoch) {
        thicket_session::reach!("hub/ownership/registrar: what has ended is remembered");
        self.registrar.ended.note(client_id, epoch);
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        known.epoch = known.epoch.max(epoch);
        if let Some(primary) = known.primary.take_if(|primary| primary.epoch() <= epoch) {
            known.rivals.insert(primary.node, Rival::new(primary));
        }
        for rival in known.rivals.values_mut() {
            if rival.rank.epoch() <= epoch {
                rival.stage = Eviction::Noted;
            }
        }
        if known.primary.is_none() {
            known.primary = known.best_rival_above(epoch);
        }
        if self.is_whole(cx) {
            self.evict_rivals(cx, now, client_id);
        }
    }

    /// Contested branches are merged, then the next of the line has its turn.
    fn grant_next(&mut self, cx: &mut Context, now: Now, client_id: &str) {
        let is_claimed = |known: &Registered| known.claimed_by.is_some();
        if !self.is_whole(cx) || self.registrar.known.get(client_id).is_none_or(is_claimed) {
            return;
        }
        self.evict_rivals(cx, now, client_id);
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        if is_claimed(known) {
            // One that was evicted here has answered, and the next had its turn.
            return;
        }
        if !known.rivals.is_empty() {
            let has_answered = |rival: &Rival| rival.stage == Eviction::Contested;
            if known.rivals.values().all(has_answered) {
                self.merge_next(cx, now, client_id);
            }
            return;
        }
        if let Some((to, request)) = known.line.pop_front() {
            let grant = known.grant(cx.clock.read(now), to);
            self.answer_claim(cx, now, (to, request), client_id, Some(grant));
        }
    }

    /// The primary merges the branch of another node.
    fn merge_next(&mut self, cx: &mut Context, now: Now, client_id: &str) {
        let Some(known) = self.registrar.known.get_mut(client_id) else {
            return;
        };
        let Some((&source, rival)) = known.rivals.first_key_value() else {
            return;
        };
        let source_epoch = rival.rank.epoch();
        let Some(primary) = known.primary.map(|primary| primary.node) else {
            known.primary = known.rivals.remove(&source).map(|rival| rival.rank);
            self.grant_next(cx, now, client_id);
            return;
        };
        let epoch = known.claim_merge(primary);
        if let Some(rival) = known.rivals.get_mut(&source) {
            rival.stage = Eviction::Merging;
        }
        if primary == cx.own() {
            self.handle_merge(cx, now, client_id, epoch, source, source_epoch);
        } else {
            let merge = Message::Merge {
                epoch,
                source,
                source_epoch,
                client_id,
            };
            cx.send(primary, &merge);
        }
    }

    /// A claimant may have registered again without its claim: those behind it need not wait for it.
    pub(in crate::hub) fn grant_waiting(&mut self, cx: &mut Context, now: Now) {
        if !self.is_whole(cx) {
            return;
        }
        self.registrar.ended.is_known_to_all = cx.members.len() <= cx.up.len() + 1;
        let is_waiting = |known: &Registered| {
            let waits = !known.line.is_empty() || !known.rivals.is_empty();
            known.claimed_by.is_none() && waits
        };
        let waiting: Vec<String> = self
            .registrar
            .known
            .iter()
            .filter(|(_, known)| is_waiting(known))
            .map(|(client_id, _)| client_id.clone())
            .collect();
        for client_id in waiting {
            self.grant_next(cx, now, &client_id);
        }
    }

    /// The view changed: every node is asked what it has. Claimants ask again by themselves.
    pub(super) fn registrar_restarts(&mut self, cx: &mut Context, now: Now) {
        self.registrar.known.clear();
        self.registrar.ended.begin_round();
        self.registrar.registered.clear();
        self.registrar.round += 1;
        let round = self.registrar.round;
        let unix_ms = cx.clock.read(now);
        for node in cx.up.values().copied().collect::<Vec<_>>() {
            cx.send(node, &Message::RegisterAsked { round, unix_ms });
        }
        self.handle_register_asked(cx, now, cx.own(), round, unix_ms);
    }
}
