//! Placements of clients (Detti IV.A): any node accepts a request, one node at a time answers, all receive the answers.
//!
//! | step | node |
//! | --- | --- |
//! | accepts the request, adds the rates that it has | the one that was asked |
//! | places the client, so that the next request takes it into account; sends it to all | the *placer*: chosen by rendezvous hash over the nodes that are up |
//! | keeps the placement | every node: the next placer continues from what it has |
//! | answers | the one that was asked |
//!
//! A client asks over HTTP, or in the user properties of its CONNECT: then its claim waits for the answer.
//!
//! Clients that do not ask are learned by their identifiers (`learned`).
//!
//! The strategy is given all placements when a node is the placer for the first time, or other
//! nodes accept clients, and a node that has come is sent them: both in parts, one in each round
//! (`loading`). Requests wait meanwhile.
//!
//! A placement holds for ten minutes from when it was asked for last. When the placer is down, requests it has not answered go to the next one. Two
//! nodes with different views may both answer for a moment: then placements are less good, and nothing else.

mod learned;
mod loading;
mod names;
mod topics;

use std::{sync::Arc, time::Duration};

use thicket_overlay::{NodeId, rendezvous};
use thicket_placement::{Asked, Placement, Wanted, session_client_id};
use thicket_session::time::Instant;

use super::Placing;
pub(in crate::hub) use super::state::learned::Learned;
use crate::{
    HubOutput, NodeState, Now, PlacementError, PlacementReport, PlacementRequest, PlacementSession,
    WorkerId,
    hub::{
        context::Context,
        control::{Follows, Message, PlacementOrder, lengths_of},
        placing::state::{
            kept::{Known, PARTS, bytes_of, bytes_of_names},
            placements::{Asker, Deferred, MAXIMUM, Pending},
        },
    },
    messages::Claim,
    placing::bad_field,
    scope::{client_id_of, user_name_of},
};

/// How long a placement holds that nobody asks for again.
const LEASE: Duration = Duration::from_secs(600);
/// Requests under way at a time.
const PENDING: usize = 10_000;
/// How long a request waits for its answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Messages a second that all topics of a request count with, whatever its client says, unless more
/// was measured: a claim moves others.
const MOST_CLAIMED: f64 = 1000.0;
/// How many times what was measured a claim may be.
const ABOVE_MEASURED: f64 = 2.0;
/// The key of the rendezvous hash that chooses the placer.
const RENDEZVOUS_KEY: &str = "thicket-placements";

impl Placing {
    /// See [`crate::HubOperator::place`].
    pub(in crate::hub) fn place(
        &mut self,
        cx: &mut Context,
        now: Now,
        number: u64,
        request: PlacementRequest,
    ) {
        let order = self.order_of(cx, now, request);
        self.order_placement(cx, now, Asker::Caller(number), order);
    }

    /// A client asks in its CONNECT: its claim continues with the answer.
    pub(in crate::hub) fn place_client(
        &mut self,
        cx: &mut Context,
        now: Now,
        worker: WorkerId,
        claim: Claim,
        request: &PlacementRequest,
    ) {
        let order = self.order_of(cx, now, request.clone());
        self.order_placement(cx, now, Asker::Client(worker, claim), order);
    }

    /// See [`crate::HubOperator::unplace`].
    pub(in crate::hub) fn unplace(
        &mut self,
        cx: &mut Context,
        now: Now,
        number: u64,
        client_id: String,
    ) {
        self.order_placement(
            cx,
            now,
            Asker::Caller(number),
            PlacementOrder::Remove(client_id),
        );
    }

    fn order_placement(&mut self, cx: &mut Context, now: Now, asker: Asker, order: PlacementOrder) {
        let bytes = order.bytes();
        let waiting = self.placements.pending.values().map(|it| it.bytes);
        let is_full = !may_wait(cx, waiting, bytes);
        let refusal = if is_full {
            Some(PlacementError::Busy)
        } else if !cx.is_ready || cx.quorum.is_minority() {
            Some(PlacementError::Unsure)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.answer_placement(cx, asker, Err(refusal));
        }
        let pending = Pending {
            asker,
            order,
            bytes,
            deadline: now.instant + TIMEOUT,
        };
        self.placements.last_request += 1;
        let number = self.placements.last_request;
        self.placements.pending.insert(number, pending);
        self.ask_placer(cx, now, number);
    }

    /// The placement that a client has asked for and has.
    fn asked(&self, now: Now, name: &str) -> Option<&Known> {
        let known = self.placements.known.get(name);
        known.filter(|known| known.is_asked(now))
    }

    /// Whether there is one.
    pub(super) fn is_placed(&self, now: Now, name: &str) -> bool {
        self.asked(now, name).is_some()
    }

    /// See [`crate::HubView::placement`].
    pub(in crate::hub) fn placement(
        &self,
        cx: &Context,
        now: Now,
        client_id: &str,
    ) -> Option<PlacementReport> {
        let known = self.asked(now, client_id)?;
        Some(self.placement_report(cx, now, &known.placement, known.until))
    }

    /// See [`crate::HubView::placements`].
    pub(in crate::hub) fn placements(
        &self,
        cx: &Context,
        now: Now,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<PlacementReport> {
        let known = self.placements.known.after(after);
        known
            .filter(|(_, known)| known.is_asked(now))
            .take(limit)
            .map(|(_, known)| self.placement_report(cx, now, &known.placement, known.until))
            .collect()
    }

    pub(in crate::hub) fn forget_placement(&mut self, client_id: &str) -> Option<Placement> {
        if let Some(control) = &mut self.placements.control {
            control.strategy.remove(client_id);
        }
        let known = self.placements.known.remove(client_id)?;
        Some(known.placement)
    }

    /// The rates that this node has are added to the request: the placer need not have more than others do.
    fn order_of(&mut self, cx: &Context, now: Now, request: PlacementRequest) -> PlacementOrder {
        let share = self.share_of_claims(cx, now, &request);
        let PlacementRequest {
            client_id,
            publish,
            subscribe,
            max_sessions,
            rates,
            payer,
        } = request;
        let given = |name: &str| rates.get(name).map(|rate| rate * share);
        let publish = publish.into_iter().map(|name| {
            let rate = given(&name);
            (name, rate)
        });
        let subscribe = subscribe.into_iter().map(|filter| {
            let known = self.topics.published(cx.own(), now.instant, &filter);
            let most = known.iter().map(|(node, millis)| (*millis, node.0)).max();
            let measured = || most.map(|_| known.values().sum::<u64>() as f64 / 1000.0);
            Wanted {
                rate: given(&filter).or_else(measured),
                best: most.map(|(_, node)| node),
                filter,
            }
        });
        let asked = Asked {
            publish: publish.collect(),
            subscribe: subscribe.collect(),
            client_id,
            max_sessions: usize::from(max_sessions),
            home: Some(cx.own().0),
        };
        PlacementOrder::Place { asked, payer }
    }

    /// What the rates that a client claims are multiplied with, 1 at most: all of them together
    /// count as [`MOST_CLAIMED`], or as [`ABOVE_MEASURED`] times what is measured if that is more.
    fn share_of_claims(&mut self, cx: &Context, now: Now, request: &PlacementRequest) -> f64 {
        let may_publish = cx.config.redirection.claimed_messages_per_s;
        let most = may_publish.map_or(f64::INFINITY, f64::from);
        let claimed: f64 = request.rates.values().sum();
        if claimed <= MOST_CLAIMED.min(most) {
            return 1.0;
        }
        let of_topics = request.rates.keys().map(|name| {
            let by_node = self.topics.published(cx.own(), now.instant, name);
            by_node.values().sum::<u64>() as f64 / 1000.0
        });
        let measured: f64 = of_topics.sum();
        (MOST_CLAIMED.max(ABOVE_MEASURED * measured).min(most) / claimed).min(1.0)
    }

    fn placer(&self, cx: &Context) -> NodeId {
        rendezvous(RENDEZVOUS_KEY, &cx.overlay.reachable()).unwrap_or(cx.own())
    }

    /// While it is not known whether this node was declared down, the request waits ([`Self::ask_when_sure`]).
    fn ask_placer(&mut self, cx: &mut Context, now: Now, number: u64) {
        if cx.overlay.is_in_doubt() {
            self.placements.are_waiting = true;
            return;
        }
        let placer = self.placer(cx);
        let Some(pending) = self.placements.pending.get(&number) else {
            return;
        };
        if placer == cx.own() {
            let order = pending.order.clone();
            return self.carry_out_or_defer(cx, now, cx.own(), number, order);
        }
        let place = Message::Place {
            request: number,
            order: pending.order.clone(),
        };
        cx.send(placer, &place);
    }

    /// A request of another node.
    pub(in crate::hub) fn handle_place(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: NodeId,
        request: u64,
        mut order: PlacementOrder,
    ) {
        if let PlacementOrder::Place { asked, .. } = &mut order {
            asked.home = Some(from.0);
        }
        self.carry_out_or_defer(cx, now, from, request, order);
    }

    /// A request of this node or another one. It waits while the strategy is given the placements.
    pub(super) fn carry_out_or_defer(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: NodeId,
        request: u64,
        order: PlacementOrder,
    ) {
        let is_ready = match &order {
            PlacementOrder::Place { .. } => self.prepare_control(cx, now),
            PlacementOrder::Remove(_) => Ok(true),
        };
        let done = match is_ready {
            Ok(true) => {
                let before = self.placement(cx, now, order.client_id());
                let done = self.carry_out(cx, now, &order);
                if from == cx.own() {
                    return self.have_placed(cx, now, request, before, done);
                }
                done
            }
            Ok(false) => {
                let bytes = order.bytes();
                let waiting = self.placements.deferred.iter().map(|it| it.bytes);
                if may_wait(cx, waiting, bytes) {
                    self.placements.deferred.push_back(Deferred {
                        from,
                        request,
                        order,
                        bytes,
                    });
                    return;
                }
                Err(PlacementError::Busy)
            }
            Err(error) => Err(error),
        };
        if from == cx.own() {
            return self.have_placed(cx, now, request, None, done);
        }
        let problem = done.map_or_else(|error| error.to_string(), |()| String::new());
        let problem = &*problem;
        cx.send(from, &Message::PlaceDone { request, problem });
    }

    /// The placer has answered; the placement came before this.
    pub(in crate::hub) fn handle_place_done(
        &mut self,
        cx: &mut Context,
        now: Now,
        request: u64,
        problem: &str,
    ) {
        let placed = match problem {
            "" => Ok(()),
            problem => Err(PlacementError::from_text(problem)),
        };
        self.have_placed(cx, now, request, None, placed);
    }

    /// `before`: what the client had.
    fn have_placed(
        &mut self,
        cx: &mut Context,
        now: Now,
        number: u64,
        before: Option<PlacementReport>,
        done: Result<(), PlacementError>,
    ) {
        let Some(pending) = self.placements.pending.remove(&number) else {
            return;
        };
        let client_id = pending.order.client_id();
        let answer = done.and_then(|()| match &pending.order {
            PlacementOrder::Place { .. } => self
                .placement(cx, now, client_id)
                .ok_or(PlacementError::Unsure),
            PlacementOrder::Remove(_) => Ok(before.unwrap_or_else(|| PlacementReport {
                name: client_id.to_owned(),
                client_id: client_id_of(client_id).to_owned(),
                user_name: user_name_of(client_id).map(str::to_owned),
                sessions: Vec::new(),
                expires_in: Duration::ZERO,
            })),
        });
        self.answer_placement(cx, pending.asker, answer);
    }

    fn carry_out(
        &mut self,
        cx: &mut Context,
        now: Now,
        order: &PlacementOrder,
    ) -> Result<(), PlacementError> {
        match order {
            PlacementOrder::Place { asked, payer } => {
                self.place_here(cx, now, asked, payer.as_ref())
            }
            PlacementOrder::Remove(client_id) => {
                self.forget_placement(client_id)
                    .ok_or(PlacementError::Unknown)?;
                cx.broadcast(&Message::Unplaced { client_id }.encode());
                Ok(())
            }
        }
    }

    fn answer_placement(
        &mut self,
        cx: &mut Context,
        asker: Asker,
        answer: Result<PlacementReport, PlacementError>,
    ) {
        match asker {
            Asker::Caller(number) => {
                let answer = Box::new(answer);
                cx.outputs.push_back(HubOutput::Placed { number, answer });
            }
            Asker::Client(worker, mut claim) => {
                claim.placed = Some(Arc::new(answer));
                self.answered.push_back((worker, claim));
            }
        }
    }

    /// As the placer: decides, keeps it, sends it to all.
    fn place_here(
        &mut self,
        cx: &mut Context,
        now: Now,
        asked: &Asked,
        payer: Option<&Arc<str>>,
    ) -> Result<(), PlacementError> {
        let bytes = bytes_of_names(asked.client_id.len(), lengths_of(asked));
        self.check_capacity(cx, &asked.client_id, bytes, payer)?;
        let Some(control) = &mut self.placements.control else {
            return Err(PlacementError::Unsure);
        };
        let placed = control.strategy.place(asked);
        let changed = placed.map_err(|error| bad_field(error.parameter, &error.rule))?;
        for placement in changed {
            let follows = self.what_is_followed(&placement, asked);
            let payer = payer.filter(|_| placement.client_id == asked.client_id);
            self.send_all_placed(cx, &placement, follows, payer);
            if follows == Follows::Subscribers {
                self.have_client_follow(cx, now, &placement);
            }
            self.keep_placement(now, placement, follows, payer.cloned());
        }
        Ok(())
    }

    fn check_capacity(
        &self,
        cx: &Context,
        name: &str,
        bytes: usize,
        payer: Option<&Arc<str>>,
    ) -> Result<(), PlacementError> {
        let known = &self.placements.known;
        let limit = cx.config.redirection.placement_bytes;
        let is_one_more = known.get(name).is_none();
        if is_one_more && known.len() >= MAXIMUM || !known.has_room(name, bytes, None, limit) {
            return Err(PlacementError::Busy);
        }
        match known.has_room(name, bytes, payer.map(|payer| &**payer), limit) {
            true => Ok(()),
            false => Err(PlacementError::Share),
        }
    }

    /// A client that asks has a placement by that; others follow their subscribers, or would if they had asked.
    fn what_is_followed(&self, placement: &Placement, asked: &Asked) -> Follows {
        let known = self.placements.known.get(&placement.client_id);
        if placement.client_id == asked.client_id {
            Follows::Request {
                max_sessions: u8::try_from(asked.max_sessions).unwrap_or(u8::MAX),
            }
        } else if known.is_some_and(|known| known.follows.is_learned()) {
            Follows::Activity { refused: 0 }
        } else {
            Follows::Subscribers
        }
    }

    /// Placements of clients that are connected and may have several sessions, with how many: by the name of the first.
    pub(super) fn placed_with_several(&self, now: Now, name: &str) -> Option<(&Placement, u8)> {
        let known = self.asked(now, name)?;
        (known.max_sessions > 1).then_some((&known.placement, known.max_sessions))
    }

    /// As the rebalancer: this is where the client should be, whatever it had. It is asked for again when the client connects there.
    pub(super) fn place_again(
        &mut self,
        cx: &mut Context,
        now: Now,
        placement: &Placement,
        max_sessions: u8,
    ) {
        thicket_session::reach!("hub/placements: a client is placed again");
        let follows = Follows::Request { max_sessions };
        self.send_all_placed(cx, placement, follows, None);
        self.handle_placement(cx, now, placement.clone(), follows, None);
    }

    /// Clients with several sessions keep their placement as long as the first one is connected: the node where it is renews it.
    fn renew_placements(&mut self, cx: &mut Context, now: Now) {
        let is_here = |name: &Arc<str>| {
            let entry = cx.directory.entries.get(name);
            entry.is_some_and(|entry| entry.is_open && entry.is_connected)
        };
        let known = self.placements.known.iter();
        let due = known.filter(|(name, known)| {
            let is_old = known.until.since(now.instant) < LEASE / 2;
            is_old && known.is_asked(now) && known.max_sessions > 1 && is_here(name)
        });
        let due: Vec<(Placement, u8)> = due
            .map(|(_, known)| (known.placement.clone(), known.max_sessions))
            .collect();
        for (placement, max_sessions) in due {
            thicket_session::reach!("time LEASE");
            self.place_again(cx, now, &placement, max_sessions);
        }
    }

    /// The placer sends where a client is now, or a node what it has learned.
    pub(in crate::hub) fn handle_placement(
        &mut self,
        cx: &mut Context,
        now: Now,
        placement: Placement,
        follows: Follows,
        payer: Option<Arc<str>>,
    ) {
        let name = &*placement.client_id;
        let known = self.placements.known.get(name);
        let has_asked = known.is_some_and(|known| known.is_asked(now));
        // Whoever is charged, the placer has checked that.
        let has_room = self.check_capacity(cx, name, bytes_of(&placement), None);
        if has_room.is_err() || has_asked && follows.is_learned() {
            return;
        }
        if let Some(control) = &mut self.placements.control {
            control.restore(&placement, follows);
        }
        if follows == Follows::Subscribers {
            self.have_client_follow(cx, now, &placement);
        }
        self.keep_placement(now, placement, follows, payer);
    }

    /// An idle publisher follows its subscribers: if it is connected here, it is sent to them.
    fn have_client_follow(&mut self, cx: &mut Context, now: Now, placement: &Placement) {
        for session in &placement.sessions {
            let name = session_client_id(&placement.client_id, session.number);
            if session.node != cx.own().0 {
                self.send_to_topics(cx, now, &name, NodeId(session.node));
            }
        }
    }

    /// `payer`: none: who was before.
    fn keep_placement(
        &mut self,
        now: Now,
        placement: Placement,
        follows: Follows,
        payer: Option<Arc<str>>,
    ) {
        let before = self.placements.known.get(&placement.client_id);
        let since = before.and_then(|known| known.refused_since);
        let max_sessions = match follows {
            Follows::Request { max_sessions } if max_sessions > 0 => max_sessions,
            Follows::Request { .. } | Follows::Subscribers => {
                before.map_or(0, |known| known.max_sessions)
            }
            Follows::Activity { .. } => 0,
        };
        let payer = payer.or_else(|| before?.payer.clone());
        let is_refused = matches!(follows, Follows::Activity { refused } if refused > 0);
        let known = Known {
            placement,
            until: now.instant + LEASE,
            follows,
            payer,
            max_sessions,
            refused_since: is_refused.then(|| since.unwrap_or(now.instant)),
        };
        self.placements.known.insert(known);
        if let Some(control) = &mut self.placements.control {
            control.most_bytes = control.most_bytes.max(self.placements.known.bytes());
        }
    }

    /// Requests that the former placer may not have answered go to the present one.
    pub(in crate::hub) fn ask_placer_again(&mut self, cx: &mut Context, now: Now) {
        for number in self.placements.pending.keys().copied().collect::<Vec<_>>() {
            self.ask_placer(cx, now, number);
        }
    }

    /// Requests that waited go to the placer when it is certain which nodes are up. Once a round.
    pub(in crate::hub) fn ask_when_sure(&mut self, cx: &mut Context, now: Now) {
        if self.placements.are_waiting && !cx.overlay.is_in_doubt() {
            self.placements.are_waiting = false;
            self.ask_placer_again(cx, now);
        }
    }

    /// Gives up requests that nobody answers, and forgets placements whose time is over.
    pub(super) fn expire_placements(&mut self, cx: &mut Context, now: Now) {
        self.renew_placements(cx, now);
        let at = now.instant;
        let late = self.placements.pending.iter();
        let late: Vec<u64> = late
            .filter(|(_, pending)| pending.deadline <= at)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(pending) = self.placements.pending.remove(&number) {
                self.answer_placement(cx, pending.asker, Err(PlacementError::Unsure));
            }
        }
        let over = self.placements.known.examine();
        let over: Vec<Arc<str>> = over
            .filter(|(_, known)| known.until <= at)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in over {
            self.forget_placement(&name);
        }
        self.give_memory_back();
    }

    fn send_all_placed(
        &mut self,
        cx: &mut Context,
        placement: &Placement,
        follows: Follows,
        payer: Option<&Arc<str>>,
    ) {
        let message = Message::Placement {
            placement: placement.clone(),
            follows,
            payer: payer.cloned(),
        };
        cx.broadcast(&message.encode());
    }

    fn placement_report(
        &self,
        cx: &Context,
        now: Now,
        placement: &Placement,
        until: Instant,
    ) -> PlacementReport {
        let names = |all: &[(String, f64)]| all.iter().map(|(name, _)| name.clone()).collect();
        let session = |session: &thicket_placement::PlacedSession| {
            let node = NodeId(session.node);
            let state: Option<&NodeState> = if node == cx.own() {
                Some(self.loads.own())
            } else {
                self.loads.of(node)
            };
            let of = client_id_of(&placement.client_id);
            let client_id = session_client_id(of, session.number);
            PlacementSession {
                node: node.to_string(),
                addresses: state.map(|it| it.addresses.clone()).unwrap_or_default(),
                client_id,
                publish: names(&session.publish),
                subscribe: names(&session.subscribe),
            }
        };
        PlacementReport {
            name: placement.client_id.clone(),
            client_id: client_id_of(&placement.client_id).to_owned(),
            user_name: user_name_of(&placement.client_id).map(str::to_owned),
            sessions: placement.sessions.iter().map(session).collect(),
            expires_in: until.since(now.instant),
        }
    }
}

/// Whether one more request may wait, beside those that take so many bytes.
fn may_wait(cx: &Context, waiting: impl ExactSizeIterator<Item = usize>, bytes: usize) -> bool {
    let most = cx.config.redirection.placement_bytes / PARTS;
    waiting.len() < PENDING && waiting.sum::<usize>() + bytes <= most
}
