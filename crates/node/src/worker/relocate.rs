//! Publishers that move to the worker where their messages go.
//!
//! A message that crosses from one worker to another costs a wake-up of a second thread. Where the only recipients of what a client publishes are on
//! one other worker, its connection is handed to that worker, while it is open and without the client noticing. The connection must have little
//! state: its session ends with it, has no subscriptions and no will, and at the moment of the move at most PUBRELs are under way.
//!
//! | step | here | there | the hub |
//! | --- | --- | --- | --- |
//! | offer | enough messages in a row had recipients on that worker only | asks the hub for it, if that leaves the two balanced | |
//! | grant | the client is not read any more | | nobody claims or fetches the session from here on |
//! | hand over | a whole round without a PUBLISH of the client, all it sent is acknowledged everywhere; what it sends meanwhile stays in the kernel | the session is made again, the client is read | is informed that the session is there |

use std::{sync::Arc, time::Duration};

use thicket_mqtt::{Publish, Qos};
use thicket_session::time::Instant;

use super::{
    context::Context,
    state::{
        connection::Phase, interests::Route, reauthentication::Reauthentication,
        relocated::Relocated, sessions::Session, timers::Timer,
    },
};
use crate::{
    ConnectionId, Handover, Now, Peer, WorkerId, WorkerOutput,
    messages::{Relocation, ToHub, ToWorker},
};

/// A connection that has not come to rest by then stays.
const TIMEOUT: Duration = Duration::from_millis(200);
/// What was sent elsewhere without acknowledgement has arrived by then, or never will.
const ARRIVED: Duration = Duration::from_secs(10);
/// Messages are counted over this time to measure how busy a worker is.
const LOAD_WINDOW: Duration = Duration::from_millis(250);
/// Messages a second, in and out, that a worker may have however idle the other one is.
const LIGHT: u64 = 40_000;

/// A connection that another worker has agreed to take.
#[derive(Debug, Clone)]
struct Leaving {
    connection: ConnectionId,
    serial: u64,
    client_id: Arc<str>,
    to: WorkerId,
    deadline: Instant,
}

/// How busy this worker is, and what is about to leave it.
#[derive(Debug, Default)]
pub(super) struct Relocations {
    leaving: Vec<Leaving>,
    /// A connection was sent all its output since the last round that looked at those that leave.
    has_emptied: bool,
    /// Messages a second in the last whole window, and since its end those of connections that arrived, or will.
    load: u64,
    taken: u64,
    given: u64,
    window_began: Instant,
    messages_then: u64,
    /// How often rights were read again: connections under way meanwhile may have old ones.
    pub reloads: u64,
}

/// Returns the only worker that has recipients of a message, if there is just one.
const fn only_worker(route: &Route) -> Option<WorkerId> {
    match route.workers.as_slice() {
        [(worker, _)] if route.recipients.is_empty() && route.groups.is_empty() => Some(*worker),
        _ => None,
    }
}

impl Relocations {
    /// A client published to `route`.
    #[inline]
    pub(super) fn follow(
        &mut self,
        cx: &mut Context,
        now: Now,
        id: ConnectionId,
        route: &Route,
        publish: &Publish<'_>,
    ) {
        if cx.config.workers > 1 && cx.config.limits.relocate_after > 0 {
            self.follow_route(cx, now, id, route, publish);
        }
    }

    fn follow_route(
        &mut self,
        cx: &mut Context,
        now: Now,
        id: ConnectionId,
        route: &Route,
        publish: &Publish<'_>,
    ) {
        let enough = cx.config.limits.relocate_after;
        let Some(attached) = cx.connections.attached_mut(id) else {
            return;
        };
        let following = &mut attached.following;
        following.is_active = true;
        let worker = only_worker(route);
        following.count(now.instant, worker);
        let follows = worker.is_some() && worker == following.towards && route.nodes_all.is_empty();
        let stays = route.is_local() || follows;
        if publish.qos == Qos::AtMostOnce && (publish.retain || !stays) {
            following.last_unacknowledged = Some(now.instant);
        }
        if following.count >= enough && following.not_before <= now.instant {
            self.offer(cx, now, id);
        }
    }

    fn offer(&mut self, cx: &mut Context, now: Now, id: ConnectionId) {
        let can_leave = can_leave(cx, now.instant, id);
        let own_load = self.load(cx, now.instant);
        let session = cx.session_at(id);
        let Some(client_id) = session.map(|session| (*session.client_id).into()) else {
            return;
        };
        let Some(connection) = cx.connections.get_mut(id) else {
            return;
        };
        let serial = connection.serial;
        let Some(attached) = connection.attached_mut() else {
            return;
        };
        let following = &mut attached.following;
        let took = now
            .instant
            .since(following.since)
            .max(Duration::from_millis(1));
        let rate = u64::from(following.count) * 1000 / took.as_millis() as u64;
        let to = following.towards;
        following.put_off(now.instant);
        if let Some(to) = to
            && can_leave
        {
            let relocation = Relocation {
                connection: id,
                serial,
                client_id,
                rate,
            };
            let load = own_load;
            cx.send_to_worker(to, ToWorker::Offer { relocation, load });
        }
    }

    /// Messages a second, in and out, with those that are on their way to and from other workers.
    fn load(&mut self, cx: &Context, now: Instant) -> u64 {
        let messages = cx.traffic.external_in_messages + cx.traffic.external_out_messages;
        let passed = now.since(self.window_began);
        if passed >= LOAD_WINDOW {
            thicket_session::reach!("time LOAD_WINDOW");
            let new = messages - self.messages_then;
            self.load = new * 1000 / passed.as_millis() as u64;
            self.messages_then = messages;
            self.window_began = now;
            (self.taken, self.given) = (0, 0);
        }
        (self.load + self.taken).saturating_sub(self.given)
    }

    /// Another worker offers a connection whose messages come here.
    pub(super) fn handle_offer(
        &mut self,
        cx: &mut Context,
        now: Now,
        from: Peer,
        relocation: Relocation,
        their_load: u64,
    ) {
        let rate = relocation.rate;
        let bound = LIGHT.max(their_load + their_load / 4);
        if cx.is_draining() || self.load(cx, now.instant) + rate > bound {
            return;
        }
        self.taken += rate;
        if let Peer::Worker(from) = from {
            cx.send_to_hub(ToHub::Relocate { from, relocation });
        }
    }

    /// Another worker wants the connection, and the hub has granted it: nobody asks for the session until the hub knows where it is.
    pub(super) fn handle_relocate(
        &mut self,
        cx: &mut Context,
        now: Now,
        to: WorkerId,
        relocation: Relocation,
    ) {
        let Relocation {
            connection,
            serial,
            client_id,
            rate,
        } = relocation;
        if !cx.connections.is_same(connection, serial) || !can_leave(cx, now.instant, connection) {
            return end_relocation(cx, &client_id);
        }
        self.given += rate;
        let deadline = now.instant + TIMEOUT;
        self.leaving.push(Leaving {
            connection,
            serial,
            client_id,
            to,
            deadline,
        });
        cx.set_reading(connection, false);
        cx.timers.set(deadline, Timer::Round);
        cx.timers.set(now.instant, Timer::Round);
    }

    /// A connection was sent all its output: one that leaves may have come to rest.
    pub(super) const fn note_emptied(&mut self) {
        self.has_emptied = !self.leaving.is_empty();
    }

    /// Whether a connection that leaves may have come to rest since the last round.
    pub(super) const fn may_hand_over(&self) -> bool {
        self.has_emptied
    }

    /// Hands over what has come to rest, and gives up what does not. At the end of a round, behind all that it sends.
    pub(super) fn hand_over_leaving(&mut self, cx: &mut Context, now: Now) {
        self.has_emptied = false;
        for leaving in std::mem::take(&mut self.leaving) {
            if is_at_rest(cx, now.instant, &leaving) {
                self.hand_over(cx, &leaving);
            } else if leaving.deadline <= now.instant || !is_still_here(cx, &leaving) {
                thicket_session::reach!("time worker/relocate TIMEOUT");
                stay(cx, &leaving);
                end_relocation(cx, &leaving.client_id);
            } else {
                self.leaving.push(leaving);
            }
        }
    }

    fn hand_over(&self, cx: &mut Context, leaving: &Leaving) {
        let id = leaving.connection;
        let Some(connection) = cx.connections.take(id) else {
            return;
        };
        let (listener, peer, last_packet) =
            (connection.listener, connection.peer, connection.last_packet);
        let Phase::Attached(attached) = connection.phase else {
            debug_assert!(false, "only connections in service leave");
            return;
        };
        let Some(session) = cx.sessions.remove(attached.session) else {
            return;
        };
        cx.traffic.connections -= 1;
        cx.traffic.relocated_connections += 1;
        let aliases_in = attached.aliases_in.iter();
        let relocated = Relocated {
            client_id: (*session.client_id).into(),
            uid: session.uid,
            epoch: session.epoch,
            clean_epoch: session.clean_epoch,
            dropped_messages: session.dropped_messages,
            inbound: session.inbound,
            grant: session.grant,
            version: attached.version,
            is_bridge: attached.is_bridge,
            silence_allowed: attached.silence_allowed,
            last_packet,
            window: attached.window,
            maximum_packet_size: attached.maximum_packet_size,
            problem_information: attached.problem_information,
            aliases_in: aliases_in
                .map(|topic| topic.as_deref().map(Arc::from))
                .collect(),
            aliases_out: attached.aliases_out,
            prefix: (*attached.prefix).into(),
            reauthentication: attached.reauthentication,
            better_nodes: attached.better_nodes,
            wait: attached.following.wait,
            reloads: self.reloads,
        };
        let state = Handover {
            listener,
            peer,
            buffered: connection.partial,
            claim: None,
            relocated: Some(Box::new(relocated)),
        };
        cx.outputs.push_back(WorkerOutput::Handover {
            connection: id,
            to: Peer::Worker(leaving.to),
            state: Box::new(state),
        });
    }
}

/// Whether a connection may move: its session has no subscriptions, no will and no other state. Messages in flight are checked in `is_at_rest`.
fn can_leave(cx: &Context, now: Instant, id: ConnectionId) -> bool {
    let Some(connection) = cx.connections.get(id) else {
        return false;
    };
    let Some(attached) = connection.attached() else {
        return false;
    };
    let is_idle = attached
        .reauthentication
        .as_deref()
        .is_none_or(Reauthentication::is_idle);
    let unacknowledged = attached.following.last_unacknowledged;
    let has_arrived = unacknowledged.is_none_or(|at| at + ARRIVED <= now);
    let session = cx.sessions.get(attached.session);
    if has_arrived && unacknowledged.is_some() {
        thicket_session::reach!("time ARRIVED");
    }
    is_idle && has_arrived && !cx.is_draining() && session.is_some_and(Session::may_leave)
}

fn stay(cx: &mut Context, leaving: &Leaving) {
    if is_still_here(cx, leaving) {
        cx.set_reading(leaving.connection, true);
    }
}

pub(super) fn end_relocation(cx: &mut Context, client_id: &Arc<str>) {
    let client_id = Arc::clone(client_id);
    cx.send_to_hub(ToHub::GrantDone { client_id });
}

fn is_still_here(cx: &Context, leaving: &Leaving) -> bool {
    let connection = cx.connections.get(leaving.connection);
    connection.is_some_and(|it| it.serial == leaving.serial && it.attached().is_some())
}

/// Whether all that the client sent is finished, and nothing arrived in this round.
fn is_at_rest(cx: &mut Context, now: Instant, leaving: &Leaving) -> bool {
    let (id, serial) = (leaving.connection, leaving.serial);
    let session = cx.session_at(id);
    let is_bare = session.is_some_and(Session::is_bare) && !cx.gates.wait_for(id, serial);
    if !is_bare || !is_still_here(cx, leaving) || !can_leave(cx, now, id) {
        return false;
    }
    let Some(connection) = cx.connections.get_mut(id) else {
        return false;
    };
    let is_written = connection.out.len() == 0 && !connection.is_unfinished;
    let Some(attached) = connection.attached_mut() else {
        return false;
    };
    let was_active = std::mem::take(&mut attached.following.is_active);
    if was_active {
        // Others have what it sent before anything can arrive from there.
        cx.timers.set(now, Timer::Round);
    }
    !was_active && is_written
}

impl Session {
    /// Whether all messages of the client are finished, except QoS 2 identifiers that it has not released: these move with it.
    fn is_bare(&self) -> bool {
        self.inbound.is_settled()
            && self.outbound.is_empty()
            && self.acknowledgements.is_empty()
            && self.orphaned_publications.is_empty()
            && self.replays.is_empty()
    }

    /// Whether it is a connection and little else.
    fn may_leave(&self) -> bool {
        !self.is_persistent()
            && self.subscriptions.is_empty()
            && self.will.is_none()
            && self.role.is_primary()
            && !self.stored.is_some()
            && self.divergence.is_none()
            && self.merging.is_none()
    }
}
