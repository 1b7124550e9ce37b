//! Sessions that move between nodes because their clients did.
//!
//! The node that claims drives: fetch, import, drain, queue. What each step does to the session is told in the worker's `moves`.

use std::{collections::BTreeMap, sync::Arc};

use thicket_overlay::{NodeId, NodeSlot};
use thicket_session::server::Epoch;

use super::{
    Hub, Message,
    control::{PART_BYTES, Part},
    hints::HintMessage,
    relocations::Postponed,
};
use crate::{
    EventLevel, Now, WorkerId,
    mail::{Content, Merge, Purpose},
    queue,
};

/// A session on its way here.
#[derive(Debug)]
struct Arriving {
    client_id: Arc<str>,
    source: NodeId,
    home: WorkerId,
    stage: Stage,
    /// It becomes one with the session here.
    merge: Option<Merge>,
}

/// How far it has come.
#[derive(Debug)]
enum Stage {
    Fetching { snapshot: Vec<u8> },
    Importing,
    Draining { queue: Vec<u8> },
}

/// A session on its way to another node.
#[derive(Debug)]
struct Leaving {
    client_id: Arc<str>,
    to: NodeId,
    /// The other node's number of the move.
    request: u64,
    home: WorkerId,
    /// The queue has gone: the session ends when the other node has it for sure.
    is_drained: bool,
}

/// Sessions on their way.
#[derive(Debug, Default)]
pub(super) struct Moves {
    next_request: u64,
    arriving: BTreeMap<u64, Arriving>,
    leaving: BTreeMap<u64, Leaving>,
}

impl Hub {
    /// A message of another hub.
    pub(super) fn handle_control(&mut self, now: Now, from: NodeSlot, kind: u8, payload: &[u8]) {
        let Some(node) = self.overlay.node_of(from) else {
            return;
        };
        if let Some(message) = HintMessage::decode(kind, payload) {
            return self.handle_hint_message(now, node, message);
        }
        let Some(message) = Message::decode(kind, payload) else {
            let fields = vec![("node", node.to_string()), ("kind", kind.to_string())];
            self.event(
                EventLevel::Warn,
                "unreadable message of another hub",
                fields,
            );
            return;
        };
        match message {
            Message::Claim { .. }
            | Message::Register { .. }
            | Message::RegisterEnd { .. }
            | Message::Release { .. }
            | Message::Contested { .. }
            | Message::Unclaimed { .. }
            | Message::Owned { .. } => self.handle_registrar_message(now, node, &message),
            Message::RegisterAsked { round } => self.handle_register_asked(now, node, round),
            Message::ClaimGranted { .. } | Message::ClaimDeferred { .. } => {
                self.handle_claim_answer(now, &message)
            }
            Message::Evict { client_id, epoch } => self.handle_evict(now, node, client_id, epoch),
            Message::Merge {
                epoch,
                source,
                source_epoch,
                client_id,
            } => self.handle_merge(now, client_id, epoch, source, source_epoch),
            Message::Fetch {
                request,
                client_id,
                purpose,
            } => self.handle_fetch(node, request, client_id, purpose),
            Message::Fetched { request, part } => self.handle_fetched(now, request, part),
            Message::Drain { request } => self.handle_drain(node, request),
            Message::Barrier { request } => self.handle_barrier(node, from, request),
            Message::BarrierDone { request } => self.handle_barrier_done(node, request),
            Message::Drained { request, part } => self.handle_drained_part(now, request, part),
            Message::Thaw { request } => self.handle_thaw(node, request),
            Message::RetainedDigest { digest, is_answer } => {
                self.handle_retained_digest(node, digest, is_answer);
            }
            Message::Retained { messages } => self.handle_retained(now, &messages),
            Message::Refused(numbers) => self.handle_refused(node, numbers),
            Message::RefusalNoted(numbers) => self.handle_refusal_noted(node, &numbers),
            Message::Topics { is_first, topics } => self.handle_topics(node, is_first, &topics),
            Message::Place { request, asked } => self.handle_place(now, node, request, asked),
            Message::Unplace { request, client_id } => {
                self.handle_unplace(now, node, request, client_id);
            }
            Message::PlaceDone { request, problem } => {
                self.handle_place_done(now, request, problem);
            }
            Message::Placement { placement, follows } => {
                self.handle_placement(now, placement, follows);
            }
            Message::Unplaced { client_id } => {
                self.forget_placement(client_id);
            }
            Message::State(state) => self.handle_state(now, node, state),
            Message::Redirected { to, client_id } => self.handle_redirected(now, to, client_id),
            Message::Moved {
                to,
                reason,
                client_id,
            } => self.handle_moved(now, node, to, (client_id, reason)),
            Message::HabitsAsked { round, cursor } => self.handle_habits_asked(node, round, cursor),
            Message::Habits {
                round,
                next,
                clients,
            } => self.handle_habits(now, node, round, next, clients),
            Message::MovesOrdered {
                to,
                reason,
                clients,
            } => self.handle_moves_ordered(now, to, reason, &clients),
            Message::RebalanceAsked { request, wish } => {
                self.handle_rebalance_asked(now, node, request, wish);
            }
            Message::RebalanceTold { request, report } => {
                self.handle_rebalance_told(request, &report);
            }
            Message::RebalanceRefused { request, error } => self.take_answer(request, Err(error)),
            Message::Copy { copy, part } => self.handle_copy(node, copy, part),
            Message::CopiesHeld { copy, held } => self.handle_copies_held(node, copy, held),
            Message::CopiesWanted {
                worker,
                stream,
                wanted,
            } => self.handle_copies_wanted(node, worker, stream, wanted),
            Message::Members(members) => self.handle_members(&members),
            Message::Settings(settings) => self.handle_settings(node, &settings),
        }
    }

    /// Fetches a session that the first CONNECT of a line waits for.
    pub(super) fn begin_move(
        &mut self,
        client_id: &Arc<str>,
        source: NodeId,
        home: WorkerId,
        purpose: Purpose,
    ) {
        self.fetch(client_id, source, home, purpose, None);
    }

    /// Fetches what another node has of a session that is here.
    pub(super) fn begin_merge(&mut self, client_id: &Arc<str>, home: WorkerId, merge: Merge) {
        self.fetch(client_id, merge.node, home, Purpose::Merge, Some(merge));
    }

    fn fetch(
        &mut self,
        client_id: &Arc<str>,
        source: NodeId,
        home: WorkerId,
        purpose: Purpose,
        merge: Option<Merge>,
    ) {
        self.moves.next_request += 1;
        let request = self.moves.next_request;
        let stage = Stage::Fetching {
            snapshot: Vec::new(),
        };
        let arriving = Arriving {
            client_id: Arc::clone(client_id),
            source,
            home,
            stage,
            merge,
        };
        self.moves.arriving.insert(request, arriving);
        self.send(
            source,
            &Message::Fetch {
                request,
                client_id,
                purpose,
            },
        );
    }

    fn handle_fetched(&mut self, now: Now, request: u64, part: Part<'_>) {
        let Some(arriving) = self.moves.arriving.get_mut(&request) else {
            return;
        };
        let Stage::Fetching { snapshot } = &mut arriving.stage else {
            return;
        };
        if !part.exists {
            self.finish_move(now, request);
            return;
        }
        snapshot.extend_from_slice(part.bytes);
        if part.is_last {
            let (home, snapshot) = (arriving.home, std::mem::take(snapshot));
            arriving.stage = Stage::Importing;
            let merge = arriving.merge;
            let import = Content::Import {
                request,
                snapshot,
                merge,
            };
            if merge.is_none() {
                let client_id = Arc::clone(&arriving.client_id);
                self.drop_let_go(&client_id, home);
            }
            self.mail_after_records(home, import);
        }
    }

    /// A session that left another worker than the one it comes back to, and was not told yet to end.
    fn drop_let_go(&mut self, client_id: &Arc<str>, home: WorkerId) {
        let entry = self.directory.entries.get(client_id);
        if let Some(former) = entry.map(|entry| entry.home).filter(|it| *it != home) {
            self.directory.entries.remove(client_id);
            self.moves_lose_session(client_id);
            let evict = Content::Evict {
                client_id: Arc::clone(client_id),
                may_contest: false,
            };
            self.mail(former, evict);
        }
    }

    /// The session is made, and everybody sends its messages here too.
    pub(super) fn handle_imported(&mut self, _now: Now, request: u64) {
        let Some(arriving) = self.moves.arriving.get_mut(&request) else {
            return;
        };
        let source = arriving.source;
        arriving.stage = Stage::Draining { queue: Vec::new() };
        self.send(source, &Message::Drain { request });
    }

    fn handle_drained_part(&mut self, now: Now, request: u64, part: Part<'_>) {
        let Some(arriving) = self.moves.arriving.get_mut(&request) else {
            return;
        };
        let Stage::Draining { queue } = &mut arriving.stage else {
            return;
        };
        queue.extend_from_slice(part.bytes);
        if part.is_last {
            let queue = std::mem::take(queue);
            self.give_queue(request, queue);
            self.finish_move(now, request);
        }
    }

    fn give_queue(&mut self, request: u64, queue: Vec<u8>) {
        let Some(arriving) = self.moves.arriving.get(&request) else {
            return;
        };
        let (home, client_id) = (arriving.home, Arc::clone(&arriving.client_id));
        let content = Content::ImportQueue {
            epoch: self.granted_epoch(&client_id),
            client_id,
            queue,
        };
        self.mail_after_records(home, content);
    }

    fn finish_move(&mut self, now: Now, request: u64) {
        if let Some(arriving) = self.moves.arriving.remove(&request) {
            self.grant(now, &arriving.client_id);
        }
    }

    /// Another node asks for a session of ours.
    pub(super) fn handle_fetch(
        &mut self,
        to: NodeId,
        request: u64,
        client_id: &str,
        purpose: Purpose,
    ) {
        let fetch = Postponed::Fetch {
            to,
            request,
            purpose,
        };
        if self.relocations.postpone(client_id, fetch).is_ok() {
            return;
        }
        let Some((client_id, entry)) = self.directory.entries.get_key_value(client_id) else {
            self.send(
                to,
                &Message::Fetched {
                    request,
                    part: Part {
                        bytes: &[],
                        is_last: true,
                        exists: false,
                    },
                },
            );
            return;
        };
        let (client_id, home) = (Arc::clone(client_id), entry.home);
        self.moves.next_request += 1;
        let local = self.moves.next_request;
        self.moves.leaving.insert(
            local,
            Leaving {
                client_id: Arc::clone(&client_id),
                to,
                request,
                home,
                is_drained: false,
            },
        );
        self.mail_after_records(
            home,
            Content::Freeze {
                request: local,
                client_id,
                purpose,
            },
        );
    }

    pub(super) fn handle_frozen(&mut self, _now: Now, local: u64, snapshot: Option<Vec<u8>>) {
        let Some(leaving) = self.moves.leaving.get(&local) else {
            return;
        };
        let (to, request) = (leaving.to, leaving.request);
        match snapshot {
            Some(snapshot) => {
                self.send_parts(to, &snapshot, |part| Message::Fetched { request, part })
            }
            None => {
                self.moves.leaving.remove(&local);
                self.send(
                    to,
                    &Message::Fetched {
                        request,
                        part: Part {
                            bytes: &[],
                            is_last: true,
                            exists: false,
                        },
                    },
                );
            }
        }
    }

    /// A number that no other move or barrier has.
    pub(super) const fn next_request(&mut self) -> u64 {
        self.moves.next_request += 1;
        self.moves.next_request
    }

    /// Whether another node fetches the session.
    pub(super) fn is_leaving(&self, client_id: &str) -> bool {
        let mut leaving = self.moves.leaving.values();
        leaving.any(|leaving| &*leaving.client_id == client_id)
    }

    /// The move of a session whose queue has gone.
    fn drained(&self, client_id: &str) -> Option<u64> {
        let is_its = |it: &Leaving| it.is_drained && &*it.client_id == client_id;
        let mut leaving = self.moves.leaving.iter();
        leaving.find(|(_, it)| is_its(it)).map(|(local, _)| *local)
    }

    fn leaving(&self, to: NodeId, request: u64) -> Option<u64> {
        let of = |leaving: &Leaving| leaving.to == to && leaving.request == request;
        self.moves
            .leaving
            .iter()
            .find(|(_, leaving)| of(leaving))
            .map(|(local, _)| *local)
    }

    fn handle_drain(&mut self, to: NodeId, request: u64) {
        let Some(local) = self.leaving(to, request) else {
            // Nothing is known of it any more: an empty queue lets the other node go on.
            self.send_parts(to, &queue::empty(), |part| Message::Drained {
                request,
                part,
            });
            return;
        };
        self.begin_barrier(local);
    }

    /// All that other nodes sent here for the session has come: the same of the other workers, then the home may let it go.
    pub(super) fn barrier_passed(&mut self, local: u64) {
        if self.copy_barrier_passed(local) {
            return;
        }
        let Some(leaving) = self.moves.leaving.get(&local) else {
            return;
        };
        let (client_id, home) = (Arc::clone(&leaving.client_id), leaving.home);
        let request = local;
        for worker in (0..self.config.workers).map(WorkerId) {
            if worker != home {
                self.mail(worker, Content::Synchronise { request, home });
            }
        }
        self.mail_after_records(home, Content::Drain { request, client_id });
    }

    pub(super) fn handle_drained(&mut self, _now: Now, local: u64, queue: Vec<u8>) {
        let Some(leaving) = self.moves.leaving.get_mut(&local) else {
            return;
        };
        leaving.is_drained = true;
        let (to, request) = (leaving.to, leaving.request);
        if !self.directory.entries.contains_key(&leaving.client_id) {
            self.moves.leaving.remove(&local);
        }
        self.send_parts(to, &queue, |part| Message::Drained { request, part });
    }

    /// A session has ended here: one that was to leave has left.
    pub(super) fn moves_lose_session(&mut self, client_id: &str) {
        let moves = &mut self.moves.leaving;
        moves.retain(|_, leaving| !leaving.is_drained || &*leaving.client_id != client_id);
    }

    fn handle_thaw(&mut self, to: NodeId, request: u64) {
        self.relocations.withdraw(to, |other| other == request);
        if let Some(local) = self.leaving(to, request) {
            self.thaw(local);
        }
    }

    fn thaw(&mut self, local: u64) {
        if let Some(Leaving {
            client_id, home, ..
        }) = self.moves.leaving.remove(&local)
        {
            self.forget_barrier(local);
            self.mail(home, Content::Thaw { client_id });
        }
    }

    fn send_parts(&mut self, to: NodeId, bytes: &[u8], message: impl Fn(Part<'_>) -> Message<'_>) {
        let last = bytes.len().saturating_sub(1) / PART_BYTES;
        for (index, chunk) in bytes.chunks(PART_BYTES).enumerate() {
            let part = Part {
                bytes: chunk,
                is_last: index == last,
                exists: true,
            };
            self.send(to, &message(part));
        }
    }

    /// Another node has the client identifier, and its session stays: both had it, in a partition, or this one was drained.
    pub(super) fn handle_evict(
        &mut self,
        now: Now,
        registrar: NodeId,
        client_id: &str,
        epoch: Epoch,
    ) {
        let evict = Postponed::Evict { registrar, epoch };
        if self.relocations.postpone(client_id, evict).is_ok() {
            return;
        }
        let Some((client_id, entry)) = self.directory.entries.get_key_value(client_id) else {
            self.tell_registrar(now, client_id, &Message::Release { client_id });
            return;
        };
        // The client may be about to come back already: then this is about what was here before, and the registrar hears how that ends.
        if self.granted_epoch(client_id) > epoch {
            return;
        }
        let (client_id, home) = (Arc::clone(client_id), entry.home);
        if entry.epoch > epoch {
            if entry.is_open {
                // It was claimed after it was registered.
                let (client_id, epoch) = (&*client_id, entry.epoch);
                self.tell_registrar(now, client_id, &Message::Owned { client_id, epoch });
            }
            return;
        }
        // Whoever took it over was granted a claim above that.
        let is_same_claim = epoch.claim() == entry.epoch.claim();
        if is_same_claim && let Some(local) = self.drained(&client_id) {
            // A copy went on where the session was to go, and not what was handed over: the move came to nothing, as its node is about to say.
            self.thaw(local);
        }
        let may_contest = self.may_merge(registrar);
        let evict = Content::Evict {
            client_id,
            may_contest,
        };
        self.mail(home, evict);
    }

    /// A copy became the session beside its owner. A session of that client identifier that is on its way here would meet it: it stays
    /// where it was, and the two become one before its client is served.
    pub(super) fn give_way(&mut self, from: WorkerId, client_id: &Arc<str>) {
        let is_here = self.is_home(from, client_id);
        let mut arriving = self.moves.arriving.iter();
        let is_its = |it: &Arriving| it.merge.is_none() && it.client_id == *client_id;
        let its = arriving.find(|(_, arriving)| is_its(arriving));
        match its.filter(|(_, arriving)| is_here || arriving.home == from) {
            Some((&request, arriving)) => {
                self.send(arriving.source, &Message::Thaw { request });
                self.give_up_move(request);
                self.claim_later(client_id, None);
            }
            None if is_here => self.ask_anew(client_id),
            None => {}
        }
    }

    /// A copy became the session: the registrar hears of it, unless another worker has one that is above it.
    pub(super) fn handle_taken_over(
        &mut self,
        now: Now,
        from: WorkerId,
        client_id: &Arc<str>,
        epoch: Epoch,
    ) {
        if self.is_home(from, client_id) {
            self.tell_registrar(now, client_id, &Message::Owned { client_id, epoch });
        }
        self.advance_claim(now, client_id);
    }

    fn is_home(&self, worker: WorkerId, client_id: &str) -> bool {
        let entry = self.directory.entries.get(client_id);
        entry.is_some_and(|entry| entry.home == worker)
    }

    /// The other node gave us up for a while: what it sent us goes on there.
    pub(super) fn moves_lose_control(&mut self, now: Now, node: NodeId) {
        self.thaw_all(node);
        for request in self.arriving_from(node) {
            // It may have been asked after that, if what follows from it waited here until this side knew how it stands.
            self.send(node, &Message::Thaw { request });
            if let Some(client_id) = self.give_up_merge(request) {
                self.end_claim(now, &client_id, None);
            } else if let Some(client_id) = self.give_up_move(request) {
                self.claim_again(now, &client_id);
            }
        }
    }

    /// The session here stays as it is, for now.
    fn give_up_merge(&mut self, request: u64) -> Option<Arc<str>> {
        let arriving = self.moves.arriving.get(&request)?;
        arriving.merge?;
        self.give_up_move(request)
    }

    /// What has come of a session goes again. Its client identifier, which is to be claimed anew.
    fn give_up_move(&mut self, request: u64) -> Option<Arc<str>> {
        let Arriving {
            client_id,
            home,
            stage,
            ..
        } = self.moves.arriving.remove(&request)?;
        if !matches!(stage, Stage::Fetching { .. }) {
            let client_id = Arc::clone(&client_id);
            self.mail_after_records(home, Content::Forget { client_id });
        }
        Some(client_id)
    }

    /// A node is out: what it had is out of reach with it.
    pub(super) fn moves_lose_node(&mut self, now: Now, node: NodeId) {
        self.thaw_all(node);
        for request in self.arriving_from(node) {
            if let Some(client_id) = self.give_up_merge(request) {
                self.end_claim(now, &client_id, None);
                continue;
            }
            // Its backup, if it let its sessions have one, has all of the session, and registers it: the claim begins again when the
            // view has changed. If there is none, the session is gone with its queue, and the client hears that.
            if let Some(client_id) = self.give_up_move(request) {
                self.claim_later(&client_id, None);
            }
        }
    }

    fn thaw_all(&mut self, to: NodeId) {
        self.relocations.withdraw(to, |_| true);
        let leaving: Vec<u64> = self
            .moves
            .leaving
            .iter()
            .filter(|(_, leaving)| leaving.to == to)
            .map(|(local, _)| *local)
            .collect();
        for local in leaving {
            self.thaw(local);
        }
    }

    fn arriving_from(&self, node: NodeId) -> Vec<u64> {
        self.moves
            .arriving
            .iter()
            .filter(|(_, arriving)| arriving.source == node)
            .map(|(request, _)| *request)
            .collect()
    }
}
