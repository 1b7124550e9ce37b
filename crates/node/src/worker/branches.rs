//! Sends this node's branch of a session to the node that merges it (see `merge`); snapshots of sessions.
//!
//! | step | the node that is asked | the node that asks |
//! | --- | --- | --- |
//! | fetch | the client is disconnected; messages are queued, nobody may connect; all but the queue is sent | |
//! | import | | subscriptions are merged |
//! | settled | | every node sends their messages here too |
//! | fetch queue | the queue is sent | |
//! | queue | | messages that did not arrive here are merged |
//! | store | | all of it is stored, and at the backups |
//! | evict | the session ends without a will | |

use std::rc::Rc;

use thicket_session::{
    server::{Epoch, Inbound, Redelivery, SessionSnapshot, StoredWill, WillSnapshot},
    time::Instant,
};

use super::{
    Worker,
    context::Context,
    expiry::restart_timers,
    replication::Primaries,
    state::{
        divergence::WorkerOfNode,
        interests::Member,
        role::Event,
        sessions::{Session, SessionKey},
    },
};
use crate::{
    EventLevel, Now,
    messages::{Fetched, Merge, SessionState, ToHub},
    queue,
};

/// Sends the queue of a branch. The session ends here when the other node has stored it, which its claim states (`handle_evict`). Until then it stays
/// here with all that arrives: both nodes receive new messages, so after a loss of power at least one of them has each. On disk it stays as it was:
/// if this node is started again, the other one may not have it.
pub(super) fn send_branch_queue(cx: &mut Context, now: Now, request: u64, client_id: &str) {
    let key = cx.sessions.find(client_id);
    let session = key.and_then(|key| cx.sessions.get(key));
    let marks = session.map(|session| cx.marks_of_session(session));
    let session = key.and_then(|key| Some((key, cx.sessions.get_mut(key)?)));
    let session = session.filter(|(_, session)| session.role.is_branch());
    let queue = match session {
        Some((key, session)) => {
            session.will = None;
            let waiting = session.outbound.queue_from(0);
            let queue = queue::encode(
                &marks.unwrap_or_default(),
                session.accepted.iter(),
                waiting.map(|(_, delivery)| delivery),
                now.instant,
            );
            if let Some(switchover) = session.role.switchover() {
                let from = session.outbound.next_sequence();
                session.role.change(Event::HandedOver(switchover, from));
            }
            leave_groups(cx, key);
            queue
        }
        None => queue::empty(),
    };
    let answer = Fetched::Queue(queue);
    cx.send_to_hub(ToHub::Fetched { request, answer });
}

impl Worker {
    /// The snapshot of a branch that another node has of a session here.
    pub(super) fn handle_import(&mut self, now: Now, request: u64, bytes: &[u8], merge: Merge) {
        let snapshot = match SessionSnapshot::decode(bytes, now.instant) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.cx.event(
                    EventLevel::Error,
                    "a session from another node is unreadable",
                    vec![("error", error.to_string())],
                );
                self.cx.send_to_hub(ToHub::Imported { request });
                return;
            }
        };
        self.end_if_over(now, &snapshot.client_id);
        let key = self.cx.sessions.find(&snapshot.client_id);
        let stays = |key: &SessionKey| {
            let role = self.cx.sessions.get(*key).map(|session| &session.role);
            role.is_some_and(|role| !role.has_successor())
        };
        match key.filter(stays) {
            Some(key) => self.begin_merge(now, request, key, snapshot, merge),
            None => {
                // It has ended meanwhile: the other branch is the session. Or it was handed over: its next primary is to merge the branch.
                let client_id = snapshot.client_id.as_str().into();
                let from = merge.node;
                self.cx
                    .send_to_hub(ToHub::HandoverRefused { client_id, from });
            }
        }
    }
}

impl Primaries {
    /// Makes the session of a snapshot, without connection, and announces its interests to all nodes.
    pub(super) fn open_imported(
        &mut self,
        cx: &mut Context,
        now: Now,
        snapshot: &SessionSnapshot,
        epoch: Epoch,
    ) -> SessionKey {
        let serial = cx.serial();
        let key = cx.sessions.insert(Session::restore(
            serial,
            snapshot,
            now.instant,
            &cx.config.limits,
        ));
        if let Some(session) = cx.sessions.get_mut(key) {
            session.epoch = session.epoch.max(epoch);
        }
        cx.note_begun(now, key);
        let mut changes = Vec::new();
        for (filter, subscribed) in &snapshot.subscriptions {
            let member = Member::away(subscribed.subscription);
            changes.extend(cx.interests.subscribe(key, filter, member));
        }
        cx.announce(changes);
        restart_timers(cx, now, key);
        self.store_whole(cx, now, key);
        cx.report_session(&snapshot.client_id, SessionState::Waiting);
        key
    }

    /// The queue of a branch arrived.
    pub(super) fn handle_import_queue(
        &mut self,
        cx: &mut Context,
        now: Now,
        request: u64,
        client_id: &str,
        bytes: Option<&[u8]>,
    ) {
        let key = cx.sessions.find(client_id);
        let key = key.filter(|key| cx.sessions.get(*key).is_some_and(|it| it.merging.is_some()));
        let Some(bytes) = bytes else {
            if let Some(session) = key.and_then(|key| cx.sessions.get_mut(key)) {
                session.merging = None;
            }
            return;
        };
        let moved = queue::decode(bytes, now.instant);
        match (key, moved) {
            (Some(key), Some(moved)) => self.finish_merge(cx, now, key, moved, Some(request)),
            (Some(key), None) => {
                if let Some(session) = cx.sessions.get_mut(key) {
                    session.merging = None;
                }
                let message = "a queue from another node is unreadable";
                cx.event(EventLevel::Error, message, Vec::new());
                cx.send_to_hub(ToHub::Imported { request });
            }
            // It has ended meanwhile.
            (None, _) => cx.send_to_hub(ToHub::Imported { request }),
        }
    }
}

/// A session whose queue has been sent no longer accepts messages for a group: they would stay behind.
fn leave_groups(cx: &mut Context, key: SessionKey) {
    let Some(session) = cx.sessions.get(key) else {
        return;
    };
    let shared = session.subscriptions.keys().filter(|it| it.is_shared());
    let changes = shared.filter_map(|filter| cx.interests.unsubscribe(key, filter));
    let changes = changes.collect();
    cx.announce(changes);
}

impl Session {
    /// All of the session but its queue.
    pub(super) fn snapshot(&self, own: WorkerOfNode, now: Instant) -> SessionSnapshot {
        let will = self
            .will
            .as_ref()
            .zip(self.will_due)
            .map(|(will, due)| WillSnapshot {
                due_in: due.since(now),
                topic: will.topic.to_string(),
                payload: will.payload.to_vec(),
                properties: will.properties.to_vec(),
                qos: will.qos,
                retain: will.retain,
                message_expiry_interval: will.message_expiry_interval,
            });
        SessionSnapshot {
            client_id: self.client_id.to_string(),
            uid: self.uid,
            expiry_interval: self.expiry_interval,
            away_for: self.disconnected_at.map(|since| now.since(since)),
            subscriptions: self
                .subscriptions
                .iter()
                .map(|(filter, subscribed)| (filter.clone(), subscribed.clone()))
                .collect(),
            inbound: self.inbound.moving(!self.role.is_branch()).collect(),
            inbound_generation: self.inbound.generation(),
            next_packet_id: self.outbound.next_packet_id(),
            in_flight: self.outbound.in_flight().collect(),
            will,
            branch: Some(self.branch(own, now)),
        }
    }

    /// The session of a snapshot, without connection and queue.
    fn restore(
        serial: u64,
        snapshot: &SessionSnapshot,
        now: Instant,
        limits: &crate::Limits,
    ) -> Self {
        let client_id: Rc<str> = snapshot.client_id.as_str().into();
        let mut session = Self::new(
            serial,
            client_id,
            snapshot.uid,
            snapshot.expiry_interval,
            limits,
        );
        // The instant it lost its client may lie before this clock began.
        session.disconnected_at = Some(now.before(snapshot.away_for.unwrap_or_default()));
        session.subscriptions = snapshot.subscriptions.iter().cloned().collect();
        session.inbound = Inbound::restore(
            snapshot.inbound.iter().copied(),
            snapshot.inbound_generation,
        );
        session.outbound.restore(snapshot.in_flight.iter().cloned());
        session.outbound.set_next_packet_id(snapshot.next_packet_id);
        if let Some(branch) = &snapshot.branch {
            session.set_branch(branch);
        }
        let in_flight = snapshot
            .in_flight
            .iter()
            .filter_map(|redelivery| match redelivery {
                Redelivery::Publish(_, delivery) if delivery.group.is_none() => {
                    Some(delivery.message.id())
                }
                Redelivery::Publish(..) | Redelivery::Pubrel(_) => None,
            });
        session.imported = in_flight.filter(|id| id.is_sent()).collect();
        if let Some(will) = &snapshot.will {
            session.will_due = Some(now + will.due_in);
            let will = StoredWill {
                topic: will.topic.as_str().into(),
                payload: will.payload.as_slice().into(),
                properties: will.properties.as_slice().into(),
                qos: will.qos,
                retain: will.retain,
                delay_interval: u32::try_from(will.due_in.as_secs())
                    .unwrap_or(u32::MAX)
                    .max(1),
                message_expiry_interval: will.message_expiry_interval,
            };
            session.will = Some(will.into());
        }
        session
    }
}
