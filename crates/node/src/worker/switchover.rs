//! A planned change of a session's primary: another node becomes it, and nothing is lost on the way (rule 11 between nodes).
//!
//! | step | the primary | the node that is to be it |
//! | --- | --- | --- |
//! | ask | | a client has come to it, and the registrar names the node that has the session |
//! | freeze | the client is disconnected; messages are queued, nobody may connect | |
//! | learn | sends a full sync by the stream for its backups (`replication`) | keeps it as a backup, and receives its messages itself |
//! | hand over | the other node is a complete backup: sends it the handover, and the positions of the streams | has received all messages that the stream named: is the primary, and sends another node the whole session |
//! | take over | | that node has applied it: answers the client's CONNECT |
//! | evict | the session ends without a will | |
//!
//! A drained node begins with the fourth step (hand over), at a complete backup. Failover is the same without the old primary
//! (`replication::promote`).
//! `state::role` has what each role does then.

use std::sync::Arc;

use thicket_overlay::NodeId;
use thicket_session::server::Inbound;

use super::{
    Worker,
    context::Context,
    drain::read_on,
    expiry::restart_timers,
    redirect::suppress_will,
    replication::{
        Primaries, end_backup, end_last_backup_if_full, end_surplus_backups, replicate_replica_set,
    },
    state::{
        barriers::Behind,
        debts::Debt,
        interests::Member,
        replica::replica_set::{Replica, StoredAs},
        role::{Event, Reason, Role, Switchover},
        sessions::{Cause, SessionKey},
    },
};
use crate::{
    Now, SESSION_MOVED,
    messages::{Fetched, Purpose, SessionState, ToHub},
    queue::History,
};

impl Worker {
    /// Another node asks for the session.
    pub(super) fn handle_fetch(
        &mut self,
        now: Now,
        request: u64,
        client_id: &Arc<str>,
        (to, purpose): (NodeId, Purpose),
    ) {
        let reason = match purpose {
            Purpose::Move | Purpose::Follow | Purpose::Discard => Reason::Claim(request),
            Purpose::Merge => Reason::Branch(Some(request)),
            Purpose::Queue => {
                // It follows when nothing is on its way here any more.
                let client_id = Arc::clone(client_id);
                return self.cx.begin_barrier(Behind::Queue { request, client_id });
            }
        };
        self.publish_recovered_wills(now, Some(client_id));
        self.end_if_over(now, client_id);
        let Some(key) = self.cx.sessions.find(client_id) else {
            self.primaries
                .answer_ended(&mut self.cx, request, client_id);
            return;
        };
        if purpose != Purpose::Merge {
            self.publish_overdue_will(now, key);
        }
        let session = self.cx.sessions.get(key);
        if let Some(connection) = session.and_then(|session| session.connection) {
            let reason = "the client connected to another node";
            self.cx.disconnect(
                connection,
                thicket_mqtt::ReasonCode::SessionTakenOver,
                reason,
            );
            if purpose == Purpose::Follow {
                suppress_will(&mut self.cx, key);
            }
            self.detach(now, connection, Cause::TakenOver);
        }
        if purpose == Purpose::Discard && self.cx.sessions.get(key).is_some() {
            self.end_session(now, key);
        }
        let Some(key) = self.cx.sessions.find(client_id) else {
            self.primaries
                .answer_ended(&mut self.cx, request, client_id);
            return;
        };
        self.primaries
            .begin_switchover(&mut self.cx, now, key, Switchover { to, reason });
    }

    /// Sends full syncs to learners, at their pace. Once a round.
    pub(super) fn sync_learners(&mut self, now: Now) {
        for (key, serial) in std::mem::take(&mut self.primaries.learners) {
            let session = self.cx.sessions.get_same(key, serial);
            let role = session.map(|session| &session.role);
            let Some(Role::Switching(switchover)) = role else {
                continue;
            };
            let switchover = *switchover;
            if !self.sync_learner(now, key, switchover) {
                self.primaries.learners.push((key, serial));
            }
        }
    }

    /// False: the other node is too far behind.
    fn sync_learner(&mut self, now: Now, key: SessionKey, switchover: Switchover) -> bool {
        let is_up = self.cx.is_up(switchover.to);
        let Some(index) = is_up.then(|| self.cx.stream_to(switchover.to)).flatten() else {
            // It is down, as the hub will soon find, or there are too many nodes.
            self.take_back(now, key);
            return true;
        };
        let backups = self
            .cx
            .sessions
            .get(key)
            .map(|session| session.stored.backups);
        let backups = backups.unwrap_or_default();
        if backups.synced().any(|backup| backup.stream == index) {
            self.primaries
                .hand_over_if_covered(&mut self.cx, now, key, index);
            return true;
        }
        if self
            .cx
            .journal
            .streams
            .get(index)
            .is_none_or(|it| !it.has_capacity())
        {
            return false;
        }
        end_last_backup_if_full(&mut self.cx, key, index);
        self.primaries.full_sync(&mut self.cx, now, key, index);
        replicate_replica_set(&mut self.cx, key);
        self.primaries
            .hand_over_if_covered(&mut self.cx, now, key, index);
        true
    }

    /// A node has lost what it was sent, but is up: sessions that were to go there are sent again.
    pub(super) fn switch_again(&mut self, now: Now, node: NodeId) {
        let mut stay = Vec::new();
        for (key, session) in self.cx.sessions.iter_mut() {
            let Some(switchover) = session.role.switchover().filter(|it| it.to == node) else {
                continue;
            };
            if session.role.change(Event::Lost).is_some() {
                self.primaries.learners.push((key, session.serial));
            } else if switchover.reason == Reason::Drain {
                stay.push(key);
            }
        }
        for key in stay {
            self.take_back(now, key);
        }
    }

    /// A session that was to go to another node stays here, unless a third node has asked for it since.
    pub(super) fn handle_cancel_switchover(&mut self, now: Now, client_id: &str, to: NodeId) {
        let Some(key) = self.cx.sessions.find(client_id) else {
            return;
        };
        let session = self.cx.sessions.get(key);
        let switchover = session.and_then(|session| session.role.switchover());
        // Where it was handed before this node was started is not known.
        if switchover.is_none_or(|switchover| switchover.to == to) {
            self.cx.barriers.forget_queue(client_id);
            self.take_back(now, key);
        }
    }

    /// This node stays the primary of a session.
    pub(super) fn take_back(&mut self, now: Now, key: SessionKey) {
        let Self {
            cx,
            primaries,
            groups,
            ..
        } = self;
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        let Some(role) = session.role.change(Event::TakenBack) else {
            return;
        };
        if session.stored.backups.complete().next().is_some() {
            session.end_interruption();
        }
        if let Role::Switching(Switchover { reason, .. }) = role {
            refuse_switchover(cx, reason);
        }
        if role.handed().is_some() {
            if role.is_branch() {
                join_groups(cx, key);
            }
            // On disk it belongs to another node.
            primaries.store_whole(cx, now, key);
            groups.reassign_unassigned(cx, now);
        } else {
            end_surplus_backups(cx, key);
        }
        restart_timers(cx, now, key);
        read_on(cx, key);
        let session = cx.sessions.get(key);
        if let Some(session) = session.filter(|session| session.connection.is_none()) {
            let client_id = std::rc::Rc::clone(&session.client_id);
            cx.report_session(&client_id, SessionState::Waiting);
        }
        cx.pull(now, key);
    }

    /// Sessions that were handed over become primary here when they have all that their former primary sent. Once a round.
    pub(super) fn promote_handed(&mut self, now: Now) {
        let handed = self.sources.take_handed();
        let mut changes = Vec::new();
        let mut taken_over = Vec::new();
        for (key, serial) in handed {
            let session = self.cx.sessions.get_same(key, serial);
            let Some(backup) = session.and_then(|session| session.backup()) else {
                continue;
            };
            if backup.lacks_messages() {
                self.sources.note_handed(key, serial);
            } else if self.promote_handed_session(now, key, &mut changes) {
                taken_over.push(key);
            }
        }
        self.cx.announce(changes);
        for key in taken_over {
            self.report_taken_over_when_replicated(key);
        }
    }
}

impl Worker {
    /// Reports to the hub that this node is the primary, once another node has applied the whole session: the former primary then ends its own,
    /// and without that node this one would have the only replica.
    fn report_taken_over_when_replicated(&mut self, key: SessionKey) {
        let Some(session) = self.cx.sessions.get(key) else {
            return;
        };
        if !self.cx.config.waits_for_backups {
            return self.report_taken_over_when_known(key);
        }
        let serial = session.serial;
        let owed = (Debt::TakenOver(key, serial), None);
        self.cx.debts.wait_until_replicated((key, serial), owed);
    }
}

/// Shared subscriptions give messages to the session again.
fn join_groups(cx: &mut Context, key: SessionKey) {
    let Some(session) = cx.sessions.get(key) else {
        return;
    };
    let subscriptions = session.subscriptions.iter();
    let shared = subscriptions.filter(|(filter, _)| filter.is_shared());
    let changes = shared.filter_map(|(filter, subscribed)| {
        cx.interests
            .subscribe(key, filter, Member::away(subscribed.subscription))
    });
    let changes = changes.collect();
    cx.announce(changes);
}

impl Primaries {
    fn begin_switchover(
        &mut self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        switchover: Switchover,
    ) {
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        let Some(earlier) = session.role.change(Event::Asked(switchover)) else {
            // Two nodes ask under two views: one of them has it first.
            return refuse_switchover(cx, switchover.reason);
        };
        if let Some(Switchover { reason, .. }) = earlier.switchover() {
            refuse_switchover(cx, reason);
        }
        if earlier.handed().is_some()
            && !earlier.is_branch()
            && let Some(index) = cx.journal.streams.find(switchover.to)
        {
            // It asks again, so it did not take over what it was handed: it gets a new full sync.
            end_backup(cx, key, index);
        }
        self.continue_switchover(cx, now, key);
    }

    /// Sends a session to the other node, unless something that its client published at QoS 2 is still on its way: the other node would send PUBREC
    /// for it, and what the client publishes there might overtake it. The same holds for its will.
    pub(super) fn continue_switchover(&mut self, cx: &mut Context, now: Now, key: SessionKey) {
        let has_pending_will = self.has_pending_will(cx, key);
        let own = cx.worker_of_node();
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        let Role::Switching(switchover) = &mut session.role else {
            return;
        };
        if has_pending_will || !session.orphaned_publications.is_empty() {
            return;
        }
        match &mut switchover.reason {
            Reason::Branch(request) => {
                if let Some(request) = request.take() {
                    let snapshot = session.snapshot(own, now.instant).encode(now.instant);
                    let answer = Fetched::Branch(snapshot);
                    // What this session published before must be on its way before any node is informed that it has gone.
                    cx.send_to_hub_after_records(ToHub::Fetched { request, answer });
                }
            }
            Reason::Claim(_) | Reason::Drain => {
                let learner = (key, session.serial);
                if !self.learners.contains(&learner) {
                    self.learners.push(learner);
                }
            }
        }
    }

    /// A backup has all of a session: if it is to be the primary, the session is handed over to it.
    pub(super) fn hand_over_if_covered(
        &self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        index: u8,
    ) {
        let node = cx.journal.streams.node_of(index);
        if self.has_pending_will(cx, key) {
            return;
        }
        let Some(session) = cx.sessions.get(key) else {
            return;
        };
        let mut complete = session.stored.backups.complete();
        let is_complete = complete.any(|backup| backup.stream == index);
        if let Role::Switching(switchover) = &session.role
            && !session.role.is_branch()
            && is_complete
            && session.orphaned_publications.is_empty()
            && Some(switchover.to) == node
        {
            let switchover = *switchover;
            hand_session_over(cx, now, key, index, switchover);
        }
    }

    /// What had arrived of a session's messages where it was before.
    pub(super) fn set_history(
        &self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        history: History,
    ) {
        let is_partitioned = self.is_partitioned(now.instant);
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        session.marks = history.marks;
        if let Some((ids, generation)) = history.inbound {
            session.inbound = Inbound::restore(ids, generation);
        }
        if let Some(branch) = history.branch {
            let since_connect = branch.since_connect;
            session.connected_at = since_connect.map(|time| now.instant.before(time));
            session.set_branch(&branch);
        }
        if is_partitioned {
            session.note_moved_here();
        }
    }
}

fn refuse_switchover(cx: &mut Context, reason: Reason) {
    if let Some(request) = reason.request() {
        let answer = Fetched::Elsewhere;
        cx.send_to_hub(ToHub::Fetched { request, answer });
    }
}

/// The node of a stream is the primary from here on. Other backups stay until it is the primary for sure.
pub(super) fn hand_session_over(
    cx: &mut Context,
    now: Now,
    key: SessionKey,
    index: u8,
    switchover: Switchover,
) {
    cx.journal.write_done();
    let session = cx.sessions.get(key);
    let marks = session.map(|session| cx.marks_of_session(session));
    let place = cx.worker_of_node();
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    debug_assert!(
        session.orphaned_publications.is_empty(),
        "what its client published at QoS 2 is accepted everywhere before it comes to another node"
    );
    let history = History {
        marks: marks.unwrap_or_default(),
        accepted: session
            .accepted
            .iter()
            .map(|(uid, it)| (uid, *it))
            .collect(),
        // The client of a node that is drained is still connected, and answered there.
        inbound: (switchover.reason != Reason::Drain).then(|| {
            let ids = session.inbound.moving(true).collect();
            (ids, session.inbound.generation())
        }),
        branch: Some(session.branch(place, now.instant)),
    };
    let StoredAs { number, backups } = session.stored;
    // It is the first to be promoted from now on, even if this node goes down before it has read that.
    let (next, others): (Vec<Replica>, Vec<Replica>) =
        backups.iter().partition(|backup| backup.stream == index);
    let members: Vec<u64> = next
        .iter()
        .chain(&others)
        .filter_map(|backup| cx.journal.streams.node_of(backup.stream))
        .map(|node| node.0)
        .collect();
    if members.len() > 1 {
        cx.journal.streams.each(backups, |stream| {
            stream.writer.members(number, &members);
        });
    }
    if let Some(stream) = cx.journal.streams.get_mut(index) {
        let history = history.encode();
        stream.writer.history(number, &history);
        stream.writer.handed(number);
    }
    let from = session.outbound.next_sequence();
    let earlier = session.role.change(Event::HandedOver(switchover, from));
    debug_assert!(
        earlier.is_some(),
        "{:?} cannot be handed over",
        session.role
    );
    cx.journal.note_queue_sent(session.stored);
    let to = cx.journal.streams.node_of(index);
    let fields = to.map(|node| ("node", node.to_string()));
    cx.note_session(key, SESSION_MOVED, Vec::from_iter(fields));
    if let Reason::Claim(request) = switchover.reason {
        let answer = Fetched::Handed;
        cx.send_to_hub(ToHub::Fetched { request, answer });
    }
}
