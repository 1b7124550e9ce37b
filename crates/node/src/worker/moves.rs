//! Sessions on their way to another node, and from one (rule 11 between nodes).
//!
//! | step | the node it leaves | the node it comes to |
//! | --- | --- | --- |
//! | freeze | client disconnected; messages are queued, nobody may connect | |
//! | import | | session made, without connection; its messages are queued behind a queue still to come |
//! | settled | | everybody sends its messages here too |
//! | drain | the queue goes | |
//! | queue | | what came twice is dropped, what came to a copy here alone is taken in; the session is stored and copied, the client's CONNECT answered |
//! | evict | the session ends without a will | |

use std::{rc::Rc, sync::Arc};

use thicket_session::server::{
    Delivery, Epoch, Held, Inbound, Redelivery, SessionSnapshot, StoredWill, WillSnapshot,
};
use thicket_session::time::Instant;

use super::{
    SessionKey, Worker, close::Cause, interests::Member, merge::Apart, sessions::Session,
    timers::Timer,
};
use crate::{
    EventLevel, Now, Peer,
    mail::{Content, Merge, Purpose, SessionState},
    marks::{Came, Marks},
    queue,
};

/// A session that leaves when all other workers have said that nothing of theirs is on its way to it.
#[derive(Debug, Default)]
pub(super) struct Draining {
    /// None yet, or the move came to nothing.
    client_id: Option<Arc<str>>,
    /// It is no session that leaves: sessions are covered when it is passed.
    copy_barrier: Option<u64>,
    is_ordered: bool,
    synchronised: u8,
}

impl Worker {
    /// Another node asks for the session.
    pub(super) fn handle_freeze(
        &mut self,
        now: Now,
        request: u64,
        client_id: &str,
        purpose: Purpose,
    ) {
        self.publish_recovered_wills(now, Some(client_id));
        let Some(key) = self.sessions.find(client_id) else {
            self.answer_ended(request, client_id);
            return;
        };
        if purpose != Purpose::Merge {
            self.publish_overdue_will(now, key);
        }
        if let Some(connection) = self
            .sessions
            .get(key)
            .and_then(|session| session.connection)
        {
            self.disconnect(
                connection,
                thicket_mqtt::ReasonCode::SessionTakenOver,
                "the client connected to another node",
            );
            self.detach(now, connection, Cause::TakenOver);
        }
        if purpose == Purpose::Discard && self.sessions.get(key).is_some() {
            self.end_session(now, key);
        }
        match self.sessions.find(client_id) {
            Some(key) => {
                let session = self.sessions.get_mut(key);
                let earlier = session.and_then(|session| {
                    session.is_frozen = true;
                    session.is_leaving = true;
                    session.is_contested = purpose == Purpose::Merge;
                    session.freeze_request.replace(request)
                });
                if let Some(request) = earlier {
                    // Two nodes ask under two views: only one of them can have it.
                    let snapshot = None;
                    self.mail(Peer::Hub, Content::Frozen { request, snapshot });
                }
                self.answer_freeze(now, key);
            }
            None => self.answer_ended(request, client_id),
        }
    }

    /// Hands a session that freezes out, unless something that its client published at QoS 2 is still on its way: the other node
    /// would say PUBREC for it, and what the client publishes there might overtake it. The same goes for its will.
    pub(super) fn answer_freeze(&mut self, now: Now, key: SessionKey) {
        let has_going_will = self.has_going_will(key);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if has_going_will || !session.orphaned.is_empty() {
            return;
        }
        let Some(request) = session.freeze_request.take() else {
            return;
        };
        let snapshot = Some(session.snapshot(now.instant).encode(now.instant));
        // What this session published before must be on its way before anybody hears that it has gone.
        self.mail_after_records(Peer::Hub, Content::Frozen { request, snapshot });
    }

    /// The other node receives its messages now: when nothing is on its way here, the queue follows.
    pub(super) fn handle_drain(&mut self, now: Now, request: u64, client_id: Arc<str>) {
        let draining = self.drains.entry(request).or_default();
        draining.client_id = Some(client_id);
        draining.is_ordered = true;
        self.drain_if_synchronised(now, request);
    }

    /// Another worker has nothing on its way to us that it sent before a session was to leave.
    pub(super) fn handle_synchronised(&mut self, now: Now, request: u64) {
        self.drains.entry(request).or_default().synchronised += 1;
        self.drain_if_synchronised(now, request);
    }

    fn drain_if_synchronised(&mut self, now: Now, request: u64) {
        let others = self.config.workers.saturating_sub(1);
        let is_done = |draining: &Draining| draining.is_ordered && draining.synchronised >= others;
        if self.drains.get(&request).is_some_and(is_done)
            && let Some(draining) = self.drains.remove(&request)
        {
            if let Some(barrier) = draining.copy_barrier {
                self.copy_barrier_passed(barrier);
            } else if let Some(client_id) = draining.client_id {
                self.let_go(now, request, &client_id);
            }
        }
    }

    /// All that other nodes had sent here when a barrier began has come.
    pub(super) fn handle_copy_barrier(&mut self, now: Now, request: u64, barrier: u64) {
        let draining = self.drains.entry(request).or_default();
        draining.copy_barrier = Some(barrier);
        draining.is_ordered = true;
        self.drain_if_synchronised(now, request);
    }

    /// The queue goes; the session ends here when the other node has stored it, which its claim says (`handle_evict`). Until then
    /// it is here, with all that comes: both nodes get that, so no loss of power finds it nowhere.
    fn let_go(&mut self, now: Now, request: u64, client_id: &str) {
        let key = self.sessions.find(client_id).filter(|key| {
            self.sessions
                .get(*key)
                .is_some_and(|session| session.is_frozen)
        });
        let came = self.marks.iter();
        let came = came.map(|(stream, mark)| (*stream, mark.came()));
        let own = Came::up_to(self.pending.next_number() - 1);
        let mut marks: Marks = came.chain([(self.own_stream(), own)]).collect();
        let queue = match key.and_then(|key| self.sessions.get_mut(key)) {
            Some(session) => {
                marks = marks.union(&session.marks);
                session.will = None;
                session.let_go_at = Some(session.outbound.next_sequence());
                let front = session.outbound.front_sequence();
                let skipped = session.first_own_sequence().saturating_sub(front);
                queue::encode(
                    &marks,
                    session.taken.iter(),
                    session.outbound.queue().skip(skipped as usize),
                    now.instant,
                )
            }
            None => queue::empty(),
        };
        if let Some((session, key)) = key.and_then(|key| self.sessions.get(key)).zip(key) {
            if !session.is_contested {
                // One of two that become one is what it was before if this node is started again: the other one may not have it.
                self.journal.let_go(session.stored);
            }
            self.leave_groups(key);
        }
        self.mail(Peer::Hub, Content::Drained { request, queue });
    }

    /// What comes for a group is no more for a session whose queue has gone: that would stay behind.
    fn leave_groups(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let shared = session.subscriptions.keys().filter(|it| it.is_shared());
        let changes = shared.filter_map(|filter| self.interests.unsubscribe(key, filter));
        let changes = changes.collect();
        self.announce(changes);
    }

    /// A session whose queue had gone goes on here all the same.
    pub(super) fn take_back(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.let_go_at.take().is_none() {
            return;
        }
        session.is_frozen = false;
        session.is_leaving = false;
        let mut changes = Vec::new();
        for (filter, subscription) in session
            .subscriptions
            .iter()
            .filter(|(it, _)| it.is_shared())
        {
            let member = Member::away(*subscription);
            changes.extend(self.interests.subscribe(key, filter, member));
        }
        self.announce(changes);
        self.store_anew(now, key);
    }

    /// The move came to nothing.
    pub(super) fn handle_thaw(&mut self, now: Now, client_id: &str) {
        for draining in self.drains.values_mut() {
            draining
                .client_id
                .take_if(|leaving| &**leaving == client_id);
        }
        let Some(key) = self.sessions.find(client_id) else {
            return;
        };
        self.take_back(now, key);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.is_frozen = session.handed_at.is_some();
        session.is_leaving = false;
        session.is_contested = false;
        session.freeze_request = None;
        session.awaits_queue = false;
        self.restart_timers(now, key);
        self.tell_session(client_id, SessionState::Waiting);
        self.pull(now, key);
    }

    /// A session from another node.
    pub(super) fn handle_import(
        &mut self,
        now: Now,
        request: u64,
        bytes: &[u8],
        merge: Option<Merge>,
    ) {
        let snapshot = match SessionSnapshot::decode(bytes, now.instant) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                self.event(
                    EventLevel::Error,
                    "a session from another node is unreadable",
                    vec![("error", error.to_string())],
                );
                self.mail(Peer::Hub, Content::Imported { request });
                return;
            }
        };
        let here = self.sessions.find(&snapshot.client_id);
        if let (Some(merge), Some(key)) = (merge, here) {
            self.begin_merge(now, request, key, snapshot, merge);
            return;
        }
        if let Some(beside) = here.and_then(|key| self.sessions.get(key))
            && beside.goes_on_beside()
        {
            // The hub asked for this before it heard of the copy: it hears of it again, and lets the two become one.
            let taken_over = Content::TakenOver {
                client_id: (*beside.client_id).into(),
                epoch: beside.epoch,
                is_beside: true,
            };
            return self.mail(Peer::Hub, taken_over);
        }
        if let Some(old) = here {
            if let Some(connection) = self
                .sessions
                .get(old)
                .and_then(|session| session.connection)
            {
                self.detach(now, connection, Cause::Moved);
            }
            self.remove_session(old);
        }
        self.open_imported(now, &snapshot, Epoch::NONE);
        self.wait_for_import(request);
    }

    /// Makes the session of a snapshot, without connection, and tells everybody what it wants.
    pub(super) fn open_imported(
        &mut self,
        now: Now,
        snapshot: &SessionSnapshot,
        epoch: Epoch,
    ) -> SessionKey {
        let serial = self.serial();
        let key = self.sessions.insert(Session::restore(
            serial,
            snapshot,
            now.instant,
            &self.config.limits,
        ));
        if let Some(session) = self.sessions.get_mut(key) {
            session.epoch = session.epoch.max(epoch);
        }
        self.note_begun(now, key);
        let mut changes = Vec::new();
        for (filter, subscription) in &snapshot.subscriptions {
            let member = Member::away(*subscription);
            changes.extend(self.interests.subscribe(key, filter, member));
        }
        self.announce(changes);
        self.restart_timers(now, key);
        self.store_anew(now, key);
        self.tell_session(&snapshot.client_id, SessionState::Waiting);
        key
    }

    /// The import came to nothing: the session goes on where it was.
    pub(super) fn handle_forget(&mut self, now: Now, client_id: &str) {
        let key = self.sessions.find(client_id);
        if let Some(session) = key.and_then(|key| self.sessions.get_mut(key)) {
            session.merging = None;
        }
        let unused = key.filter(|key| {
            self.sessions
                .get(*key)
                .is_some_and(|session| session.awaits_queue)
        });
        if let Some(session) = unused.and_then(|key| self.remove_session(key)) {
            self.pass_shared_on(now, &session.outbound);
        }
    }

    /// The rest of an imported session's queue, older than what came here meanwhile.
    pub(super) fn handle_import_queue(
        &mut self,
        now: Now,
        client_id: &str,
        epoch: Epoch,
        bytes: &[u8],
    ) {
        let Some(key) = self.sessions.find(client_id) else {
            return;
        };
        if self.finish_merge(now, key, bytes) {
            return;
        }
        let moved = queue::decode(bytes, now.instant);
        // Nobody loses sight of a node while all are there.
        let is_apart = self.owned.is_apart(now.instant);
        let mut missed = match &moved {
            Some(moved) if is_apart => self.missed_by(key, &moved.marks),
            Some(_) | None => Vec::new(),
        };
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.awaits_queue = false;
        session.epoch = session.epoch.max(epoch);
        match moved {
            Some(queue::Moved {
                marks,
                taken,
                queue: earlier,
            }) => {
                for (uid, taken) in taken {
                    session.taken.insert_before(uid, taken);
                }
                // Both queues hold each stream in order, the earlier one from further back: it goes first. What both hold, or what
                // the client had already, is dropped here, now or when it comes.
                let ids = earlier.iter().map(|delivery| delivery.message.id());
                session.imported.extend(ids.filter(|id| id.is_sent()));
                if is_apart {
                    session.note_taken_in(&earlier);
                }
                missed.retain(|it| !session.imported.contains(&it.message.id()));
                session.marks = marks;
                let mut early = std::mem::take(&mut session.early);
                early.retain(|(publication, _)| session.taken.is_before(*publication));
                let here = session.outbound.take_queue();
                let is_here = |id| here.iter().any(|it| it.message.id() == id);
                missed.retain(|it| !is_here(it.message.id()));
                let here = here
                    .into_iter()
                    .filter(|delivery| {
                        let id = delivery.message.id();
                        let is_early = early.iter().any(|(_, early)| *early == id);
                        delivery.group.is_some()
                            || !(is_early || session.is_imported(&id, delivery.qos))
                    })
                    .collect();
                session.outbound.prepend(here);
                session.outbound.prepend(missed);
                session.outbound.prepend(earlier);
                session.outbound.resequence_queue();
            }
            None => self.event(
                EventLevel::Error,
                "a queue from another node is unreadable",
                Vec::new(),
            ),
        }
        self.store_anew(now, key);
        self.pull(now, key);
    }

    /// What came to a copy here and did not come where `marks` are from: whoever sent it had lost sight of that node, and the copy alone
    /// has it.
    fn missed_by(&self, key: SessionKey, marks: &Marks) -> Vec<Delivery> {
        let Some(session) = self.sessions.get(key) else {
            return Vec::new();
        };
        let uid = session.uid;
        let copies = self.sessions.iter_shadows();
        let copies = copies.filter(|shadow| shadow.stored.uid == uid);
        let pending = copies.flat_map(|shadow| shadow.pending());
        let is_missed = |delivery: &&Delivery| {
            let id = delivery.message.id();
            id.is_sent() && !marks.contain(id)
        };
        pending.filter(is_missed).cloned().collect()
    }

    /// Expiry and will of a session without connection.
    pub(super) fn restart_timers(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let serial = session.serial;
        if let (Some(since), Some(waits_for)) = (session.disconnected_at, session.waits_for()) {
            self.timers.set(
                (since + waits_for).max(now.instant),
                Timer::SessionExpiry {
                    session: key,
                    serial,
                },
            );
        }
        if let Some(due) = session.will_due {
            self.timers.set(
                due.max(now.instant),
                Timer::WillDelay {
                    session: key,
                    serial,
                },
            );
        }
    }
}

impl Session {
    /// All of the session but its queue.
    pub(super) fn snapshot(&self, now: Instant) -> SessionSnapshot {
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
                .map(|(filter, subscription)| (filter.clone(), *subscription))
                .collect(),
            inbound: self.inbound.moving(!self.is_contested).collect(),
            inbound_generation: self.inbound.generation(),
            next_packet_id: self.outbound.next_packet_id(),
            in_flight: self.in_flight_from(self.first_own_sequence()),
            will,
            branch: self.branch(),
        }
    }

    fn in_flight_from(&self, sequence: u64) -> Vec<Redelivery> {
        let held = self.outbound.held_from(sequence);
        let in_flight = held.filter_map(|held| match held {
            Held::Queued { .. } => None,
            Held::InFlight {
                packet_id,
                delivery,
                ..
            } => Some(Redelivery::Publish(packet_id, delivery.clone())),
            Held::Received { packet_id, .. } => Some(Redelivery::Pubrel(packet_id)),
        });
        in_flight.collect()
    }

    /// The session of a snapshot, without connection, its queue still to come.
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
        let away_for = snapshot.away_for.unwrap_or_default().as_millis() as u64;
        session.disconnected_at = Some(Instant::from_millis(
            now.as_millis().saturating_sub(away_for),
        ));
        session.subscriptions = snapshot.subscriptions.iter().cloned().collect();
        session.inbound = Inbound::restore(
            snapshot.inbound.iter().copied(),
            snapshot.inbound_generation,
        );
        session.outbound.restore(snapshot.in_flight.iter().cloned());
        session.outbound.set_next_packet_id(snapshot.next_packet_id);
        let branch = snapshot.branch.as_ref();
        if branch.is_some_and(|branch| branch.from.is_some()) {
            // Whoever has the session too gives other names to what its client publishes there.
            session.inbound.branch_names();
        }
        session.apart = branch.map(|branch| Box::new(Apart::of(branch)));
        session.awaits_queue = true;
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
            session.will = Some(StoredWill {
                topic: will.topic.as_str().into(),
                payload: will.payload.as_slice().into(),
                properties: will.properties.as_slice().into(),
                qos: will.qos,
                retain: will.retain,
                delay_interval: u32::try_from(will.due_in.as_secs())
                    .unwrap_or(u32::MAX)
                    .max(1),
                message_expiry_interval: will.message_expiry_interval,
            });
        }
        session
    }
}
