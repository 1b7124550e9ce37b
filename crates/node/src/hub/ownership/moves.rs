//! Sessions that other nodes ask for: because their clients connected there, or because both nodes had them.
//!
//! The node that claims asks. A session is handed over by the stream of its backups (the worker's `switchover`). If both nodes had it, the other
//! branch is read (the worker's `branches`): fetch, import, fetch queue, queue; it ends when all of it is stored here. So is the branch that another
//! worker of this node has (`own_branches`): then this node is both sides.

use std::sync::Arc;

use thicket_overlay::NodeId;
use thicket_session::server::Epoch;

use super::{
    Ownership,
    state::{
        moves::{Arrival, Arriving, Kind, Leaving, Stage},
        relocations::Postponed,
    },
};
use crate::{
    Now, WorkerId,
    hub::{
        context::Context,
        control::{FetchAnswer, Message, PART_BYTES, Part, Released},
    },
    messages::{Fetched, Merge, Purpose, ToWorker},
    queue,
};

impl Ownership {
    /// Asks for a session that the first CONNECT of a line waits for.
    pub(super) fn begin_move(
        &mut self,
        cx: &mut Context,
        client_id: &Arc<str>,
        source: NodeId,
        purpose: Purpose,
    ) {
        self.fetch(cx, client_id, source, purpose, None);
    }

    /// Asks another node for its branch of a session that is here.
    pub(super) fn begin_merge(
        &mut self,
        cx: &mut Context,
        client_id: &Arc<str>,
        home: WorkerId,
        merge: Merge,
    ) {
        let arrival = Arrival::new(home, merge);
        self.fetch(cx, client_id, merge.node, Purpose::Merge, Some(arrival));
    }

    fn fetch(
        &mut self,
        cx: &mut Context,
        client_id: &Arc<str>,
        source: NodeId,
        purpose: Purpose,
        branch: Option<Arrival>,
    ) {
        let request = self.expect_from(client_id, source, branch);
        let fetch = Message::Fetch {
            request,
            client_id,
            purpose,
        };
        cx.send(source, &fetch);
    }

    /// Has the worker `home` merge the branch that the worker `other` has.
    pub(super) fn merge_between_workers(
        &mut self,
        cx: &mut Context,
        client_id: &Arc<str>,
        (home, other): (WorkerId, WorkerId),
        merge: Merge,
    ) {
        let arrival = Arrival::new(home, merge);
        let own = cx.own();
        let request = self.expect_from(client_id, own, Some(arrival));
        self.fetch_from_worker(cx, (own, request), client_id, other, Purpose::Merge);
    }

    /// Ends a merge of two workers of this node.
    pub(super) fn end_merge_between_workers(&mut self, own: NodeId, client_id: &str) {
        let is_its = |node: NodeId, of: &str| node == own && of == client_id;
        let arriving = &mut self.moves.arriving;
        arriving.retain(|_, it| !is_its(it.source, &it.client_id));
        let leaving = &mut self.moves.leaving;
        leaving.retain(|_, it| !is_its(it.to, &it.client_id));
    }

    /// The number of a new request for a session.
    fn expect_from(
        &mut self,
        client_id: &Arc<str>,
        source: NodeId,
        branch: Option<Arrival>,
    ) -> u64 {
        let request = self.next_request();
        let arriving = Arriving {
            client_id: Arc::clone(client_id),
            source,
            branch,
        };
        self.moves.arriving.insert(request, arriving);
        request
    }

    /// What another node, or another worker of this one, has of a session that was fetched.
    pub(in crate::hub) fn handle_fetched(
        &mut self,
        cx: &mut Context,
        now: Now,
        request: u64,
        answer: FetchAnswer<'_>,
    ) {
        match answer {
            FetchAnswer::Part(part) => self.take_part(cx, request, part),
            FetchAnswer::Gone => self.finish_move(cx, now, request),
            FetchAnswer::Elsewhere => self.give_up_fetch(cx, now, request),
        }
    }

    /// A third node is to have it.
    fn give_up_fetch(&mut self, cx: &mut Context, now: Now, request: u64) {
        let Some(Arriving {
            client_id,
            source,
            branch,
        }) = self.moves.arriving.remove(&request)
        else {
            return;
        };
        if source == cx.own() {
            return self.settle_relocation(cx, now, &client_id);
        }
        match branch {
            Some(_) => self.end_claim(cx, now, &client_id, None),
            None => self.retry_claim(now, &client_id),
        }
    }

    fn take_part(&mut self, cx: &mut Context, request: u64, part: Part<'_>) {
        let Some(Arriving {
            client_id,
            branch: Some(arrival),
            ..
        }) = self.moves.arriving.get_mut(&request)
        else {
            return;
        };
        arrival.parts.extend_from_slice(part.bytes);
        if !part.is_last {
            return;
        }
        let (home, merge) = (arrival.home, arrival.merge);
        let bytes = std::mem::take(&mut arrival.parts);
        match arrival.stage {
            Stage::Fetching => {
                arrival.stage = Stage::Importing;
                let import = ToWorker::Import {
                    request,
                    snapshot: bytes,
                    merge,
                };
                cx.send_to_worker_after_records(home, import);
            }
            Stage::Importing | Stage::Storing => {
                debug_assert!(false, "a queue is sent once, when it is asked for");
            }
            Stage::FetchingQueue => {
                arrival.stage = Stage::Storing;
                let queue = ToWorker::ImportQueue {
                    request,
                    client_id: Arc::clone(client_id),
                    queue: Some(bytes),
                };
                cx.send_to_worker_after_records(home, queue);
            }
        }
    }

    /// All nodes send the messages of the branch here too; later, its queue has been merged.
    pub(in crate::hub) fn handle_imported(&mut self, cx: &mut Context, now: Now, request: u64) {
        let Some(Arriving {
            source,
            branch: Some(arrival),
            ..
        }) = self.moves.arriving.get_mut(&request)
        else {
            return;
        };
        if arrival.stage == Stage::Storing {
            return self.finish_move(cx, now, request);
        }
        arrival.stage = Stage::FetchingQueue;
        let source = *source;
        if source == cx.own() {
            self.handle_fetch_queue(cx, now, source, request);
        } else {
            cx.send(source, &Message::FetchQueue { request });
        }
    }

    fn finish_move(&mut self, cx: &mut Context, now: Now, request: u64) {
        let Some(arriving) = self.moves.arriving.remove(&request) else {
            return;
        };
        if arriving.source == cx.own() {
            self.settle_relocation(cx, now, &arriving.client_id);
        } else {
            self.grant(cx, now, &arriving.client_id);
        }
    }

    /// Another node asks for a session of ours.
    pub(in crate::hub) fn handle_fetch(
        &mut self,
        cx: &mut Context,
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
        if self.relocations.postpone(client_id, fetch) {
            return;
        }
        let Some((client_id, entry)) = cx.directory.entries.get_key_value(client_id) else {
            let answer = FetchAnswer::Gone;
            return cx.send(to, &Message::Fetched { request, answer });
        };
        let (client_id, home) = (Arc::clone(client_id), entry.home);
        self.fetch_from_worker(cx, (to, request), &client_id, home, purpose);
    }

    /// Asks the worker that has it for a session that `to` asked for by the number `request`.
    fn fetch_from_worker(
        &mut self,
        cx: &mut Context,
        (to, request): (NodeId, u64),
        client_id: &Arc<str>,
        home: WorkerId,
        purpose: Purpose,
    ) {
        let local = self.next_request();
        let leaving = Leaving {
            client_id: Arc::clone(client_id),
            to,
            request,
            home,
            is_handed: false,
        };
        self.moves.leaving.insert(local, leaving);
        let fetch = ToWorker::Fetch {
            request: local,
            client_id: Arc::clone(client_id),
            to,
            purpose,
        };
        cx.send_to_worker_after_records(home, fetch);
    }

    /// The worker's answer about a session that another node asked for.
    pub(in crate::hub) fn handle_worker_fetched(
        &mut self,
        cx: &mut Context,
        now: Now,
        local: u64,
        answer: &Fetched,
    ) {
        let Some(leaving) = self.moves.leaving.get_mut(&local) else {
            return;
        };
        let (to, request) = (leaving.to, leaving.request);
        match answer {
            Fetched::Handed => leaving.is_handed = true,
            Fetched::Branch(snapshot) => self.send_parts(cx, now, to, request, snapshot),
            Fetched::Queue(queue) => {
                leaving.is_handed = true;
                if !cx.directory.entries.contains_key(&leaving.client_id) {
                    self.moves.leaving.remove(&local);
                }
                self.send_parts(cx, now, to, request, queue);
            }
            Fetched::Gone => {
                self.moves.leaving.remove(&local);
                self.answer_fetch(cx, now, to, request, FetchAnswer::Gone);
            }
            Fetched::Elsewhere => {
                self.moves.leaving.remove(&local);
                self.answer_fetch(cx, now, to, request, FetchAnswer::Elsewhere);
            }
        }
    }

    fn answer_fetch(
        &mut self,
        cx: &mut Context,
        now: Now,
        to: NodeId,
        request: u64,
        answer: FetchAnswer<'_>,
    ) {
        if to == cx.own() {
            self.handle_fetched(cx, now, request, answer);
        } else {
            cx.send(to, &Message::Fetched { request, answer });
        }
    }

    /// A number that no other move has.
    const fn next_request(&mut self) -> u64 {
        self.moves.next_request += 1;
        self.moves.next_request
    }

    /// Whether another node fetches the session.
    pub(super) fn is_leaving(&self, client_id: &str) -> bool {
        let mut leaving = self.moves.leaving.values();
        leaving.any(|leaving| &*leaving.client_id == client_id)
    }

    /// The move of a session that was handed over to another node.
    fn handed(&self, client_id: &str) -> Option<u64> {
        let is_its = |it: &Leaving| it.is_handed && &*it.client_id == client_id;
        let mut leaving = self.moves.leaving.iter();
        leaving.find(|(_, it)| is_its(it)).map(|(local, _)| *local)
    }

    pub(in crate::hub) fn handle_fetch_queue(
        &mut self,
        cx: &mut Context,
        now: Now,
        to: NodeId,
        request: u64,
    ) {
        let its = |it: &(&u64, &Leaving)| it.1.to == to && it.1.request == request;
        let Some((&local, leaving)) = self.moves.leaving.iter().find(its) else {
            // It is no longer known here: an empty queue lets the other node continue.
            return self.send_parts(cx, now, to, request, &queue::empty());
        };
        let fetch = ToWorker::Fetch {
            request: local,
            client_id: Arc::clone(&leaving.client_id),
            to,
            purpose: Purpose::Queue,
        };
        cx.send_to_worker_after_records(leaving.home, fetch);
    }

    /// A session has ended here: if it was to leave, it has left.
    pub(super) fn moves_lose_session(&mut self, client_id: &str) {
        let moves = &mut self.moves.leaving;
        moves.retain(|_, leaving| !leaving.is_handed || &*leaving.client_id != client_id);
    }

    /// Another node does not want a session any more, or did not take it over.
    pub(in crate::hub) fn handle_cancel_switchover(
        &mut self,
        cx: &mut Context,
        to: NodeId,
        client_id: &str,
    ) {
        self.relocations.withdraw(to, |other| other == client_id);
        let is_its = |leaving: &Leaving| leaving.to == to && &*leaving.client_id == client_id;
        let leaving = self.moves.leaving.iter();
        let its: Vec<u64> = (leaving.filter(|(_, leaving)| is_its(leaving)))
            .map(|(local, _)| *local)
            .collect();
        if its.is_empty()
            && let Some((client_id, entry)) = cx.directory.entries.get_key_value(client_id)
        {
            // This node is drained, and handed it over by itself.
            let (client_id, home) = (Arc::clone(client_id), entry.home);
            return cx.send_to_worker(home, ToWorker::CancelSwitchover { client_id, to });
        }
        for local in its {
            self.take_back(cx, local);
        }
    }

    /// Takes back what was handed over, and informs the node that was to have it, which may still wait for it.
    fn revoke(&mut self, cx: &mut Context, local: u64) {
        let Some(&Leaving { to, request, .. }) = self.moves.leaving.get(&local) else {
            return;
        };
        self.take_back(cx, local);
        let answer = FetchAnswer::Elsewhere;
        cx.send(to, &Message::Fetched { request, answer });
    }

    fn take_back(&mut self, cx: &mut Context, local: u64) {
        if let Some(Leaving {
            client_id,
            to,
            home,
            ..
        }) = self.moves.leaving.remove(&local)
        {
            cx.send_to_worker(home, ToWorker::CancelSwitchover { client_id, to });
        }
    }

    fn send_parts(&mut self, cx: &mut Context, now: Now, to: NodeId, request: u64, bytes: &[u8]) {
        let last = bytes.len().saturating_sub(1) / PART_BYTES;
        for (index, chunk) in bytes.chunks(PART_BYTES).enumerate() {
            let part = Part {
                bytes: chunk,
                is_last: index == last,
            };
            self.answer_fetch(cx, now, to, request, FetchAnswer::Part(part));
        }
    }

    /// Another node is the primary, and its session stays: both had it, in a partition, or this one was drained. Or the session has ended there.
    pub(in crate::hub) fn handle_evict(
        &mut self,
        cx: &mut Context,
        now: Now,
        registrar: NodeId,
        client_id: &str,
        (epoch, has_ended): (Epoch, bool),
    ) {
        let evict = Postponed::Evict {
            registrar,
            epoch,
            has_ended,
        };
        if self.relocations.postpone(client_id, evict) {
            return;
        }
        let Some((client_id, entry)) = cx.directory.entries.get_key_value(client_id) else {
            self.report_release(cx, now, client_id, Released::Gone);
            return;
        };
        // The client may be about to come back already: then this is about what was here before, and the registrar is informed how that ends.
        if self.granted_epoch(client_id) > epoch {
            return;
        }
        let (client_id, home) = (Arc::clone(client_id), entry.home);
        if entry.epoch > epoch {
            if entry.is_open {
                // It was claimed after it was registered.
                let (client_id, epoch) = (&*client_id, entry.epoch);
                self.send_to_registrar(cx, now, client_id, &Message::Owned { client_id, epoch });
            }
            return;
        }
        // The node that took it over was granted a claim above that, or a merge.
        let is_as_before = epoch.is_same_but_for_promotions(entry.epoch);
        if is_as_before && let Some(local) = self.handed(&client_id) {
            // A backup was promoted, at the target or elsewhere, instead of the session that was handed over: the move failed.
            self.revoke(cx, local);
        }
        let evict = ToWorker::Evict {
            client_id,
            may_contest: !has_ended,
        };
        cx.send_to_worker(home, evict);
    }

    /// A backup was promoted beside its primary. A session of that client identifier that is on its way here would meet it: it stays where it was,
    /// and the two are merged before its client is served.
    pub(super) fn give_way(&mut self, cx: &mut Context, from: WorkerId, client_id: &Arc<str>) {
        if !self.is_home(cx, from, client_id) {
            return;
        }
        if let Some(request) = self.handed_here(client_id) {
            self.give_up_move(cx, request);
            self.claim_later(client_id, None);
        }
    }

    /// The request for a session that is handed over to this node.
    fn handed_here(&self, client_id: &str) -> Option<u64> {
        let is_its = |it: &Arriving| it.branch.is_none() && &*it.client_id == client_id;
        let mut arriving = self.moves.arriving.iter();
        let its = arriving.find(|(_, arriving)| is_its(arriving));
        its.map(|(request, _)| *request)
    }

    /// A backup was promoted: the client that waits for it continues, or the registrar is informed, unless another worker has a session that ranks
    /// above it.
    pub(super) fn handle_taken_over(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: WorkerId,
        client_id: &Arc<str>,
        epoch: Epoch,
    ) {
        if let Some(request) = self.handed_here(client_id) {
            return self.finish_move(cx, now, request);
        }
        if self.is_home(cx, from, client_id) {
            // What the registrar is about to answer does not take it into account.
            self.ask_again(client_id);
            self.send_to_registrar(cx, now, client_id, &Message::Owned { client_id, epoch });
        }
        self.advance_claim(cx, now, client_id);
    }

    /// What another node handed over met a session here, which stays: the other node keeps its branch until the two are merged. Or a branch was to be
    /// merged into a session that has ended.
    pub(in crate::hub) fn handle_handover_refused(
        &mut self,
        cx: &mut Context,
        now: Now,
        client_id: &Arc<str>,
        from: NodeId,
    ) {
        let is_its = |it: &Arriving| it.source == from && it.client_id == *client_id;
        let mut arriving = self.moves.arriving.iter();
        let request = arriving
            .find(|(_, it)| is_its(it))
            .map(|(request, _)| *request);
        if from == cx.own() {
            // The worker that was to merge the other one's branch has reported the end of its session before.
            return;
        }
        match request.and_then(|request| self.give_up_move(cx, request)) {
            Some((_, Kind::Handover)) => {
                // What is claimed here is not registered as what is here: the registrar is informed that there is another one.
                if let Some(entry) = cx.directory.entries.get(client_id).filter(|it| it.is_open) {
                    let epoch = entry.epoch;
                    self.send_to_registrar(
                        cx,
                        now,
                        client_id,
                        &Message::Owned { client_id, epoch },
                    );
                }
                self.retry_claim(now, client_id);
            }
            Some((_, Kind::Branch)) => self.end_claim(cx, now, client_id, None),
            None => cx.send(from, &Message::CancelSwitchover { client_id }),
        }
    }

    fn is_home(&self, cx: &Context, worker: WorkerId, client_id: &str) -> bool {
        let entry = cx.directory.entries.get(client_id);
        entry.is_some_and(|entry| entry.home == worker)
    }

    /// The other node had declared us down for a while: what it sent us stays there.
    pub(super) fn moves_lose_control(&mut self, cx: &mut Context, now: Now, node: NodeId) {
        self.take_back_all(cx, node);
        for request in self.arriving_from(node) {
            // It may have been asked after that, if the consequences waited here until it was decided whether this side has quorum.
            match self.give_up_move(cx, request) {
                Some((client_id, Kind::Branch)) => self.end_claim(cx, now, &client_id, None),
                Some((client_id, Kind::Handover)) => self.claim_again(cx, now, &client_id),
                None => {}
            }
        }
    }

    /// Gives up a move: the other node keeps the session, if that message reaches it.
    fn give_up_move(&mut self, cx: &mut Context, request: u64) -> Option<(Arc<str>, Kind)> {
        let Arriving {
            client_id,
            source,
            branch,
        } = self.moves.arriving.remove(&request)?;
        let take_back = Message::CancelSwitchover {
            client_id: &client_id,
        };
        cx.send(source, &take_back);
        let Some(arrival) = branch else {
            return Some((client_id, Kind::Handover));
        };
        if arrival.stage != Stage::Fetching {
            let none = ToWorker::ImportQueue {
                request,
                client_id: Arc::clone(&client_id),
                queue: None,
            };
            cx.send_to_worker_after_records(arrival.home, none);
        }
        Some((client_id, Kind::Branch))
    }

    /// A node is down: its sessions are unreachable with it.
    pub(super) fn moves_lose_node(&mut self, cx: &mut Context, now: Now, node: NodeId) {
        self.take_back_all(cx, node);
        for request in self.arriving_from(node) {
            match self.give_up_move(cx, request) {
                Some((client_id, Kind::Branch)) => self.end_claim(cx, now, &client_id, None),
                // Its backup, if it has one, has all of the session, and registers it: the claim begins again when the view has changed. If there is
                // none, the session is lost with its queue, and the client is informed.
                Some((client_id, Kind::Handover)) => self.claim_later(&client_id, None),
                None => {}
            }
        }
    }

    fn take_back_all(&mut self, cx: &mut Context, to: NodeId) {
        self.relocations.withdraw(to, |_| true);
        let leaving: Vec<u64> = self
            .moves
            .leaving
            .iter()
            .filter(|(_, leaving)| leaving.to == to)
            .map(|(local, _)| *local)
            .collect();
        for local in leaving {
            self.take_back(cx, local);
        }
    }

    /// The requests that a node has not answered completely.
    fn arriving_from(&self, node: NodeId) -> Vec<u64> {
        let is_storing = |branch: &Arrival| branch.stage == Stage::Storing;
        self.moves
            .arriving
            .iter()
            .filter(|(_, it)| it.source == node && !it.branch.as_ref().is_some_and(is_storing))
            .map(|(request, _)| *request)
            .collect()
    }
}
