//! The hub: the cluster side of a node, on its first thread.
//!
//! It owns the [`Overlay`] and connects it to the workers: their aggregated interests are announced as the node's, the interests of other nodes go to
//! every worker, and records cross it in both directions. It keeps what a node has once: the directory of client identifiers and the retained
//! messages.
//!
//! Files use only what is below them:
//!
//! | layer | files |
//! | --- | --- |
//! | the hub | this one, and those that are methods of [`Hub`]: what is carried where, and who belongs to the cluster |
//! | parts | [`ownership`], [`placing`], and those with a type of their own in [`state`], [`hints`] and [`retained`] |
//! | [`context`] | passed to every part, and they all send with it |
//! | what it has | [`directory`], [`members`], [`outgoing`], [`quorum`] |
//! | messages between hubs | [`control`], [`wire`] |
//!
//! | part | decides |
//! | --- | --- |
//! | [`ownership`] | which node and which worker has a session |
//! | [`placing`] | where clients should be: redirection, placement, rebalancing |
//! | [`hints`] | which messages are kept for nodes that are down |
//! | [`retained`] | which retained message of a topic is the last one |

mod admissions;
mod agreement;
mod api;
mod backlog;
mod bans;
mod clock;
mod clocks;
mod context;
mod control;
mod directory;
mod dispatch;
mod forward;
mod hints;
mod interests;
mod members;
mod outgoing;
mod ownership;
mod placing;
mod quorum;
mod refusals;
mod retained;
mod serving;
mod start;
mod state;
mod wire;

pub use self::placing::{RebalanceDone, RebalanceTask};

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use thicket_overlay::{
    Abandoned, FarEnd, Input, InterestKey, InterestValue, LinkId, NodeId, NodeSlot, Output, Overlay,
};
use thicket_session::time::Instant;

use self::{
    admissions::Admissions,
    clock::SharedClock,
    context::Context,
    control::Message,
    directory::Directory,
    hints::Hints,
    members::Members,
    outgoing::Outgoing,
    ownership::Ownership,
    placing::Placing,
    quorum::{Newcomers, Quorum},
    retained::RetainedMessages,
    state::{
        agreement::Agreement,
        arrivals::Arrivals,
        backlog::{Backlog, ForwardBatch},
        clocks::Clocks,
        interests::Interests,
        refusals::Refusals,
        start::Start,
    },
};
use crate::{
    ConnectionId, EventLevel, HubConfig, HubInput, HubOutput, NODE_DOWN, NODE_UP, Now, WorkerId,
    messages::{Absence, Claim, Cluster, RefusedBy, ToHub, ToWorker},
};

/// The cluster side of a node. See the module's documentation and [`HubInput`], [`HubOutput`].
#[derive(Debug)]
pub struct Hub {
    cx: Context,
    interests: Interests,
    /// Bytes of links that wait for the next round.
    unread: VecDeque<(LinkId, Vec<u8>)>,
    /// Messages of workers that wait for the next round.
    backlog: Backlog,
    admissions: Admissions,
    /// Kept for its memory.
    arrivals: Arrivals,
    ownership: Ownership,
    refusals: Refusals,
    hints: Hints,
    retained: RetainedMessages,
    agreement: Agreement,
    clocks: Clocks,
    placing: Placing,
    start: Start,
    /// See [`Overlay::is_in_doubt`]; as of the end of the last round.
    was_in_doubt: bool,
    /// A worker stood still, and waits for an answer.
    stood_still: bool,
    /// Since when nodes are up that are not part of the view yet: registrars and members do not know them.
    joined_since: Option<Instant>,
    newcomers: Newcomers,
    /// As of the end of a round after which nothing has happened.
    at_rest: Option<Rest>,
    /// When `Timeout` is wanted, as of the end of the last round.
    deadline: Option<Instant>,
}

/// After rounds without anything new, rounds are short for this time: a thread that serves clients has thousands of them a second.
const REST: Duration = Duration::from_millis(5);

/// Nodes that come up one after the other within this time make one new view, and are sent the members once: both cost messages from and to every
/// node.
const JOINING: Duration = Duration::from_millis(200);

/// Within this time after it stood still a node learns from the others whether they had declared it down.
const RESUMED: Duration = Duration::from_secs(5);

/// When the next round is due although nothing happens.
#[derive(Debug, Clone, Copy)]
struct Rest {
    /// When the next round is a whole one.
    until: Instant,
    /// See `poll_timeout`.
    deadline: Option<Instant>,
}

/// What is known of the cluster: for operators, metrics and the shell. Reading it changes nothing.
#[derive(Debug, Clone, Copy)]
pub struct HubView<'a> {
    hub: &'a Hub,
}

/// What operators order, and what the shell measures.
#[derive(Debug)]
pub struct HubOperator<'a> {
    hub: &'a mut Hub,
    now: Now,
}

impl Hub {
    /// See [`HubView`].
    #[must_use]
    pub const fn view(&self) -> HubView<'_> {
        HubView { hub: self }
    }

    /// See [`HubOperator`].
    #[must_use]
    pub const fn operate(&mut self, now: Now) -> HubOperator<'_> {
        self.at_rest = None;
        HubOperator { hub: self, now }
    }

    /// A hub without other nodes yet. `seed` comes from the operating system.
    #[must_use]
    pub fn new(config: HubConfig, now: Now, seed: u64) -> Self {
        let workers = config.workers;
        let mut hub = Self {
            interests: Interests::new(workers, seed),
            unread: VecDeque::new(),
            backlog: Backlog::default(),
            admissions: Admissions::default(),
            arrivals: Arrivals::new(workers),
            ownership: Ownership::default(),
            refusals: Refusals::default(),
            hints: Hints::new(workers),
            agreement: Agreement::default(),
            clocks: Clocks::default(),
            placing: Placing::new(&config, seed),
            retained: RetainedMessages::new(config.retained, config.tenants.clone(), config.stores),
            start: Start::default(),
            was_in_doubt: false,
            stood_still: false,
            joined_since: None,
            newcomers: Newcomers::default(),
            at_rest: None,
            deadline: None,
            cx: Context {
                overlay: Overlay::new(config.overlay.clone(), now.instant, seed),
                up: BTreeMap::new(),
                members: Members::default(),
                quorum: Quorum::default(),
                clock: SharedClock::default(),
                cluster: Cluster {
                    lease: (config.partition == crate::Partition::Majority)
                        .then(|| config.overlay.timing.lease()),
                    ..Cluster::new(config.overlay.incarnation)
                },
                is_ready: false,
                directory: Directory::new(seed),
                outgoing: Outgoing::new(workers),
                outputs: VecDeque::new(),
                config,
            },
        };
        let own = &hub.cx.config.overlay;
        hub.cx.members.join(own.node, &own.name, &own.address);
        hub.start_flooding();
        hub.view_changed(now);
        if hub.cx.config.stores {
            hub.begin_recovery(hub.cx.workers());
        }
        hub.review_recovery(now);
        hub
    }

    /// The only way in.
    pub fn handle_input(&mut self, now: Now, input: HubInput<'_>) {
        self.at_rest = None;
        let at = now.instant;
        self.cx.overlay.note_time(at);
        self.drain_overlay(now);
        match input {
            HubInput::Planned(done) => self.placing.handle_planned(&mut self.cx, now, *done),
            HubInput::LinkAdopted { link, state, key } => {
                let end = FarEnd {
                    address: Some(state.peer),
                    key,
                };
                self.cx.overlay.handle_input(
                    at,
                    Input::LinkAccepted {
                        link: LinkId(link.0),
                        end,
                        bytes: &state.buffered,
                    },
                );
            }
            HubInput::LinkProved { link, key } => {
                let link = LinkId(link.0);
                self.cx
                    .overlay
                    .handle_input(at, Input::LinkProved { link, key });
            }
            HubInput::Dialled { address, link } => {
                self.cx.overlay.handle_input(
                    at,
                    Input::Dialled {
                        address: &address,
                        link: LinkId(link.0),
                    },
                );
            }
            HubInput::DialFailed { address, error } => {
                self.cx.overlay.handle_input(
                    at,
                    Input::DialFailed {
                        address: &address,
                        error: &error,
                    },
                );
            }
            HubInput::Received { link, bytes } => self.handle_received(now, LinkId(link.0), bytes),
            HubInput::Closed { link } => {
                let link = LinkId(link.0);
                self.drop_unread(link);
                self.cx.overlay.handle_input(at, Input::Closed { link });
            }
            HubInput::Discovered { address } => {
                self.cx
                    .overlay
                    .handle_input(at, Input::Discovered { address: &address });
            }
            HubInput::Announced { address } => {
                self.cx
                    .overlay
                    .handle_input(at, Input::Announced { address: &address });
            }
            HubInput::Message { from, message } => self.take_message(now, from, message.0),
            HubInput::Timeout => {
                self.read_unread(now);
                self.resume_backlog(now);
                self.answer_retained_queries(now);
                self.cx.overlay.handle_input(at, Input::Timeout);
            }
        }
        self.drain_overlay(now);
        self.serve_placed(now);
        self.note_members();
    }

    /// A client connects: it may be placed or sent elsewhere first.
    ///
    /// A client whose identifier is assigned has another one at the next node. So it is placed where it will be served: after the decision whether it
    /// is sent elsewhere, which does not depend on its placement.
    fn handle_claim(&mut self, now: Now, worker: WorkerId, mut claim: Claim) {
        let asks = claim.asks.take();
        if let Some(request) = asks.as_ref().filter(|_| !claim.is_assigned()) {
            return self
                .placing
                .place_client(&mut self.cx, now, worker, claim, request);
        }
        self.placing.note_arrival(&self.cx, now, &claim);
        if self.placing.redirects(&mut self.cx, now, worker, &claim) {
            return;
        }
        match asks {
            Some(request) => self
                .placing
                .place_client(&mut self.cx, now, worker, claim, &request),
            None => self.ownership.queue_claim(&mut self.cx, now, worker, claim),
        }
    }

    /// A worker has promoted the backups of a node's sessions.
    fn handle_promoted(&mut self, now: Now, from: WorkerId, node: NodeId) {
        if !self.ownership.promotes(node) {
            return;
        }
        if self.ownership.promoted(from, node) {
            self.have_taken_over(now, node);
        }
        self.ownership.register_promoted(&mut self.cx, now);
    }

    /// Informs other nodes that what they sent before they asked is here.
    fn answer_barriers(&mut self) {
        self.ownership.answer_barriers(&mut self.cx, &self.hints);
    }

    /// CONNECTs that waited for a placement continue.
    fn serve_placed(&mut self, now: Now) {
        while let Some((worker, claim)) = self.placing.next_answered() {
            if claim.is_assigned() {
                self.ownership.queue_claim(&mut self.cx, now, worker, claim);
            } else {
                self.handle_claim(now, worker, claim);
            }
        }
    }

    /// Turns what was gathered in this round into messages and bytes. Once a round, after all inputs.
    pub fn end_round(&mut self, now: Now) {
        if self.at_rest.is_some_and(|rest| now.instant < rest.until) {
            return;
        }
        self.interests.begin_round();
        self.backlog.begin_round();
        self.review_joined(now);
        self.review_members(now);
        self.review_clocks(now);
        self.expire_retained(now);
        self.send_changed_bans(now);
        self.check_ready(now);
        self.ownership.expire(&mut self.cx, now);
        self.send_last_writes(now);
        self.advance_hints(now);
        self.answer_barriers();
        self.cx.outgoing.seal(&mut self.cx.outputs);
        self.cx.overlay.end_round(now.instant);
        self.drain_overlay(now);
        self.review_quorum(now);
        self.review_doubt(now);
        self.answer_those_that_stood_still();
        self.placing.ask_when_sure(&mut self.cx, now);
        self.placing.continue_placements(&mut self.cx, now);
        self.serve_placed(now);
        self.cx.outgoing.seal(&mut self.cx.outputs);
        let deadline = self.next_deadline();
        self.deadline = deadline;
        let rest = now.instant + REST;
        self.at_rest = Some(Rest {
            until: deadline.map_or(rest, |at| at.min(rest)),
            deadline,
        });
    }

    /// See [`crate::Egress`].
    pub(crate) fn poll_output(&mut self) -> Option<HubOutput> {
        self.cx.outputs.pop_front()
    }

    /// Whether `Timeout` is wanted, as of the end of the last round: the end of the next one sees
    /// what inputs have made due since.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|at| at <= now)
    }

    /// When `Timeout` is wanted.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.at_rest {
            Some(rest) => rest.deadline,
            None => self.next_deadline(),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let ready = self.next_start();
        let has_left = !self.unread.is_empty()
            || !self.backlog.is_empty()
            || self.has_retained_queries()
            || self.placing.has_placements_to_continue();
        let unread = has_left.then(Instant::default);
        [
            unread,
            self.next_last_write(),
            self.next_retained_expiry(),
            self.cx.overlay.poll_timeout(),
            ready,
            self.next_view(),
            self.next_members(),
            self.clocks.next,
            self.ownership.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// See [`crate::Egress`].
    pub(crate) fn pending_output(&self, link: LinkId) -> &[u8] {
        self.cx.overlay.pending_output(link)
    }

    /// The socket accepted the first `count` bytes of `pending_output`.
    pub fn handle_written(&mut self, now: Now, link: ConnectionId, count: usize) {
        let link = LinkId(link.0);
        if self.cx.overlay.handle_written(now.instant, link, count) {
            self.at_rest = None;
        }
    }

    /// Whether `end_round` has something to do after writes to links, or after what was stored.
    #[must_use]
    pub const fn wants_round(&self) -> bool {
        self.at_rest.is_none()
    }

    /// Announces the shutdown to the other nodes.
    pub fn shut_down(&mut self, now: Now) {
        self.at_rest = None;
        while !self.backlog.is_empty() {
            self.backlog.begin_round();
            self.resume_backlog(now);
        }
        self.leave_members(now);
        self.cx.overlay.shut_down(now.instant);
        self.drain_overlay(now);
    }

    fn handle_message(&mut self, now: Now, from: WorkerId, content: ToHub) {
        match content {
            ToHub::StoodStill => self.stood_still = true,
            ToHub::Forward { records, entries } => {
                self.handle_forward(now, from, ForwardBatch::new(records, entries));
            }
            ToHub::Processed { bytes } => self.note_processed(from, bytes),
            ToHub::Admitted { origin, numbers } => self.handle_admitted(origin, &numbers),
            ToHub::Refused {
                origin,
                by,
                numbers,
            } => self.handle_worker_refused(origin, by, numbers),
            ToHub::Interest { sequence, changes } => {
                self.handle_interest(from, sequence, changes);
                // The first ones of a worker are all that it has recovered.
                self.note_recovered(now, from);
            }
            ToHub::PeersApplied { sequence } => self.handle_peers_applied(from, sequence),
            ToHub::Claim(claim) => self.handle_claim(now, from, claim),
            ToHub::GrantDone { client_id } => {
                self.ownership
                    .handle_grant_done(&mut self.cx, now, from, &client_id)
            }
            ToHub::Session {
                client_id,
                state,
                epoch,
            } => self
                .ownership
                .handle_session(&mut self.cx, now, from, &client_id, state, epoch),
            ToHub::Fetched { request, answer } => {
                self.ownership
                    .handle_worker_fetched(&mut self.cx, now, request, &answer)
            }
            ToHub::Imported { request } => {
                self.ownership.handle_imported(&mut self.cx, now, request)
            }
            ToHub::RetainedQuery(query) => self.handle_retained_query(now, from, query),
            ToHub::Replicate {
                to,
                stream,
                position,
                record,
            } => self
                .ownership
                .send_backups(&mut self.cx, from, to, stream, position, &record),
            ToHub::BackupReport { to, stream, report } => {
                self.cx.send(to, &Message::BackupReport { stream, report });
            }
            ToHub::Barrier { barrier } => self.ownership.begin_barrier(&mut self.cx, from, barrier),
            ToHub::Covered(sets) => self.handle_covered(from, sets),
            ToHub::Promoted { node } => self.handle_promoted(now, from, node),
            ToHub::TopicRates(rates) => self.placing.handle_topic_rates(from, rates),
            ToHub::BetterNodeRequest(asked) => {
                self.placing
                    .answer_better_node(&mut self.cx, now, from, asked)
            }
            ToHub::Movable(movable) => {
                self.placing
                    .handle_movable(&mut self.cx, now, from, movable)
            }
            ToHub::Activity {
                asker,
                round,
                next,
                clients,
            } => self.placing.handle_worker_activity(
                &mut self.cx,
                now,
                from,
                (asker, round),
                next,
                clients,
            ),
            ToHub::Relocate {
                from: home,
                relocation,
            } => {
                self.ownership
                    .handle_relocate(&mut self.cx, now, (home, from), relocation);
            }
            ToHub::HandoverRefused { client_id, from } => {
                self.ownership
                    .handle_handover_refused(&mut self.cx, now, &client_id, from);
            }
        }
    }

    /// Performs what the overlay orders.
    fn drain_overlay(&mut self, now: Now) {
        while let Some(output) = self.cx.overlay.poll_output() {
            if let Some(output) = self.defers(now, output) {
                self.perform(now, output);
            }
        }
    }

    fn perform(&mut self, now: Now, output: Output) {
        match output {
            Output::Dial { address } => self.dial(address),
            Output::Flush(link) => self
                .cx
                .outputs
                .push_back(HubOutput::Flush(ConnectionId(link.0))),
            Output::Close(link) => {
                self.drop_unread(link);
                self.cx
                    .outputs
                    .push_back(HubOutput::Close(ConnectionId(link.0)));
            }
            Output::NodeUp {
                slot,
                node,
                incarnation,
                name,
            } => {
                self.cx.directory.incarnations.insert(node, incarnation);
                self.handle_node_up(now, slot, node, &name);
            }
            Output::NodeDown {
                slot,
                persistent,
                abandoned,
            } => self.handle_node_down(now, slot, &persistent, abandoned),
            Output::InterestChanged {
                slot,
                version,
                changes,
            } => self.handle_interest_changed(now, slot, version, changes),
            Output::InterestSettled { .. } => self.settle_interests(),
            Output::Control {
                from,
                kind,
                payload,
            } => self.handle_control(now, from, kind, &payload),
            Output::ControlLost { slot } => self.handle_control_lost(now, slot),
            Output::Acknowledged { stream, ranges } => self.handle_acknowledged(stream, &ranges),
            Output::Unreadable { origin, number } => {
                if let Some(origin) = self.message_origin(origin) {
                    let numbers = vec![(number, number)];
                    self.handle_worker_refused(origin, RefusedBy::Place, numbers);
                }
            }
            Output::IdentityInUse { address } => {
                let node = self.cx.own();
                let problem = format!(
                    "node id {node} is in use by the node at {address}: two processes cannot have one data directory, or backups of it"
                );
                self.cx.outputs.push_back(HubOutput::End { problem });
            }
            Output::IncarnationChanged { incarnation } => {
                self.cx.config.overlay.incarnation = incarnation;
                self.cx.change_cluster(|it| it.incarnation = incarnation);
                self.view_changed(now);
            }
            Output::Event(event) => {
                let level = match event.level {
                    thicket_overlay::EventLevel::Error => EventLevel::Error,
                    thicket_overlay::EventLevel::Warn => EventLevel::Warn,
                    thicket_overlay::EventLevel::Info => EventLevel::Info,
                    thicket_overlay::EventLevel::Debug => EventLevel::Debug,
                };
                self.cx.event(level, event.message, event.fields);
            }
        }
    }

    fn handle_node_up(&mut self, now: Now, slot: NodeSlot, node: NodeId, name: &str) {
        self.cx.up.insert(slot, node);
        let address = self.cx.overlay.address_of(node);
        self.cx.members.join(node, name, address);
        self.newcomers.insert(slot);
        self.send_settings(slot, node);
        self.send_clock(now, node);
        self.placing.send_all_to(&mut self.cx, slot, node);
        self.regain_sessions_of(node);
        self.cx.event(
            // The overlay has a line about it.
            EventLevel::Debug,
            NODE_UP,
            vec![("node", node.to_string()), ("name", name.to_owned())],
        );
        self.ownership.send_nodes(&mut self.cx);
        self.hints_gain_node(now, slot, node);
        self.joined_since.get_or_insert(now.instant);
        self.offer_retained(slot);
        self.refusals_begin_again(node);
    }

    /// Registrars begin again when no more nodes are about to come up. Until then none grants anything: a node that is up has not registered
    /// (rule 11).
    fn review_joined(&mut self, now: Now) {
        let Some(due) = self.next_view().filter(|due| now.instant >= *due) else {
            return;
        };
        if self.joined_since.is_some_and(|since| since < due) {
            thicket_session::reach!("time JOINING");
        }
        self.view_changed(now);
    }

    /// When nodes that are up become part of the view.
    fn next_view(&self) -> Option<Instant> {
        let since = self.joined_since?;
        let more_come = self.cx.overlay.has_links_coming();
        Some(if more_come { since + JOINING } else { since })
    }

    fn handle_node_down(
        &mut self,
        now: Now,
        slot: NodeSlot,
        persistent: &[(InterestKey, InterestValue)],
        abandoned: Vec<Abandoned>,
    ) {
        let Some(node) = self.cx.up.remove(&slot) else {
            return;
        };
        self.cx.event(
            // The overlay has a line about it, with the reason.
            EventLevel::Debug,
            NODE_DOWN,
            vec![("node", node.to_string())],
        );
        self.ownership.send_nodes(&mut self.cx);
        self.hints_lose_node(now, (slot, node), persistent, abandoned);
        self.lose_sessions_of(now, node);
        self.ownership.lose_node(&mut self.cx, now, node);
        self.agreement.forget(node);
        self.clocks.forget(node);
        self.placing.lose_node(&mut self.cx, now, node);
        self.pass_on_writes_of(now, node);
        self.view_changed(now);
    }

    /// Messages to or from the other node may be lost: everything that waits for its answer begins again.
    fn handle_control_lost(&mut self, now: Now, slot: NodeSlot) {
        let Some(node) = self.cx.up.get(&slot).copied() else {
            return;
        };
        thicket_session::reach!("hub: a link was replaced");
        self.ownership.lose_control(&mut self.cx, now, node);
        self.refusals_begin_again(node);
        let is_recent = |(_, until): &(Instant, Instant)| now.instant.since(*until) < RESUMED;
        let paused = self.cx.overlay.last_pause().filter(is_recent);
        if paused.is_none() && self.cx.overlay.last_pause().is_some() {
            thicket_session::reach!("time RESUMED");
        }
        let absence = Some(Absence { paused });
        self.cx
            .send_to_workers(|| ToWorker::BackupsLost { node, absence });
        self.hints_lose_control(node);
        self.send_settings(slot, node);
        self.placing.send_all_to(&mut self.cx, slot, node);
        self.placing.ask_placer_again(&mut self.cx, now);
        self.view_changed(now);
        self.offer_retained(slot);
    }

    /// What waited until it is decided whether other nodes had declared this one down continues.
    fn review_doubt(&mut self, now: Now) {
        let is_in_doubt = self.cx.overlay.is_in_doubt();
        if std::mem::replace(&mut self.was_in_doubt, is_in_doubt) && !is_in_doubt {
            self.ownership.advance_claims(&mut self.cx, now);
            self.ownership.grant_waiting(&mut self.cx, now);
        }
    }

    /// Workers that stood still go on when it is certain whether this node was declared down.
    fn answer_those_that_stood_still(&mut self) {
        if self.stood_still && !self.cx.overlay.is_in_doubt() {
            self.stood_still = false;
            self.cx.change_cluster(|_| ());
        }
    }

    fn view_changed(&mut self, now: Now) {
        self.joined_since = None;
        self.ownership.view_changed(&mut self.cx, now);
    }
}

impl HubView<'_> {
    /// Whether clients are served (rule 3 between nodes). Until then their CONNECTs wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.hub.cx.is_ready
    }
}

impl HubOperator<'_> {
    /// CPU and memory of this node that are free, in percent. To be called now and then: the values of other nodes go to the workers with it.
    pub fn set_resources(&mut self, available_cpu: u8, available_memory: u8) {
        self.hub
            .cx
            .overlay
            .set_resources(available_cpu, available_memory);
        self.hub.ownership.send_capabilities(&mut self.hub.cx);
    }

    /// Sends the other nodes what they display about this one.
    pub fn set_summary(&mut self, clients: u64, subscriptions: u64) {
        self.hub.cx.overlay.set_summary(clients, subscriptions);
    }
}
