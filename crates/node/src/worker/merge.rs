//! Two nodes served a session, in a partition: their branches are merged (rule 15 between nodes).
//!
//! The branch that stays, the *merging branch*, asks for the *merged branch* (`branches`), and takes over what is new in it:
//!
//! | of the merged branch | is merged | except |
//! | --- | --- | --- |
//! | subscriptions, ended ones too | what its client asked for since the partition began | filters asked for here since then, if its client was here last |
//! | messages | those that did not arrive here | those held here too when the partition began: what either branch has finished since is finished |
//! | in flight | under its packet identifier, see `Outbound::branch` | |
//! | QoS 2 of its client | identifiers in use, generations | |
//!
//! The merged branch ends when the merging branch has stored all of it and the claim of the merge ends. If the two nodes are partitioned before that,
//! both branches continue.
//!
//! A session that was begun with Clean Start after the other one was last claimed merges nothing. Whether a message arrived here is decided by its
//! number: since a node is up (again), its streams arrive here completely.

use std::collections::{BTreeMap, BTreeSet};

use thicket_mqtt::PacketId;
use thicket_session::{
    server::{
        Branch, Delivery, FinishedMessages, MessageId, Redelivery, SessionSnapshot, Subscribed,
    },
    time::Instant,
    topic::SubscriptionFilter,
};

use super::{
    Worker,
    context::Context,
    expiry::watch_queue,
    replication::Primaries,
    retained::resume_replays,
    state::{
        divergence::{Divergence, Name, WorkerOfNode, name},
        interests::Member,
        merging::Merging,
        replica::stream::{Level, Operation, Release},
        sessions::{Session, SessionKey},
    },
};
use crate::{
    EventLevel, Now,
    marks::Marks,
    messages::{InterestChange, Merge},
    queue,
};

impl Worker {
    /// What another node has of a session that is here. Its queue follows when every node sends here what its filters match.
    pub(super) fn begin_merge(
        &mut self,
        now: Now,
        request: u64,
        key: SessionKey,
        snapshot: SessionSnapshot,
        merge: Merge,
    ) {
        self.take_subscriptions(now, key, snapshot, merge);
        self.wait_for_import(request);
    }

    /// A branch that this worker has as a backup, with its queue.
    pub(super) fn merge_own_branch(
        &mut self,
        now: Now,
        key: SessionKey,
        snapshot: SessionSnapshot,
        merge: Merge,
        moved: queue::Moved,
    ) {
        self.take_subscriptions(now, key, snapshot, merge);
        self.primaries
            .finish_merge(&mut self.cx, now, key, moved, None);
    }

    fn take_subscriptions(
        &mut self,
        now: Now,
        key: SessionKey,
        snapshot: SessionSnapshot,
        merge: Merge,
    ) {
        let begun = self.cx.received_so_far(now);
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return;
        };
        let is_same = session.uid == snapshot.uid;
        let is_void = !is_same && session.clean_epoch > merge.source_epoch;
        let branch = snapshot.branch.unwrap_or_default();
        // By clocks that never jump: the wall clocks of two nodes may be far from each other. A connection may have ended long before its node
        // noticed, so the time when it began counts.
        let age = |at: Option<Instant>| at.map(|at| now.instant.since(at));
        let is_theirs_later = match (branch.since_connect, age(session.connected_at)) {
            (Some(theirs), Some(ours)) => theirs < ours,
            (Some(_), None) | (None, Some(_)) | (None, None) => {
                let ours = age(session.disconnected_at).unwrap_or_default();
                snapshot.away_for.unwrap_or_default() < ours
            }
        };
        let steady = if is_same && !branch.is_partial {
            session.steady_filters(&snapshot.subscriptions, &branch)
        } else {
            Vec::new()
        };
        let mut merging = Merging {
            epoch: merge.epoch,
            in_flight: snapshot.in_flight,
            branch,
            is_same,
            is_void,
            begun,
            steady,
            fresh: Vec::new(),
            ended: Vec::new(),
        };
        if !is_void {
            if is_same {
                let is_whole = !merging.branch.is_interrupted;
                let generation = snapshot.inbound_generation;
                session
                    .inbound
                    .merge(&snapshot.inbound, generation, is_whole, !is_theirs_later);
            }
            let theirs = &snapshot.subscriptions;
            let changes =
                merge_subscriptions(&mut self.cx, key, theirs, is_theirs_later, &mut merging);
            self.cx.announce(changes);
        }
        if let Some(session) = self.cx.sessions.get_mut(key) {
            session.merging = Some(Box::new(merging));
        }
        self.primaries.store_session(&mut self.cx, now, key);
    }
}

impl Primaries {
    /// The client of a session subscribed or unsubscribed: noted as long as another node may not receive it.
    pub(super) fn note_operation(
        &self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        filter: &SubscriptionFilter,
    ) {
        let is_partitioned = self.is_partitioned(now.instant);
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        if !session.is_persistent() {
            return;
        }
        if is_partitioned {
            session.divergence_mut().touch(filter.clone());
            cx.journal.touched(session.stored, filter);
        } else {
            let serial = session.serial;
            cx.journal.streams.each(session.stored.backups, |stream| {
                let operation = Operation {
                    session: key,
                    serial,
                    filter: filter.clone(),
                };
                stream.wait(Level::Applied, Release::Operation(Box::new(operation)));
            });
        }
    }

    /// The other one's queue has arrived. `request`: by which the hub is answered when all of the session is stored.
    pub(super) fn finish_merge(
        &mut self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        moved: queue::Moved,
        request: Option<u64>,
    ) {
        let (place, own) = (cx.worker_of_node(), cx.own_stream());
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        let Some(merging) = session.merging.take() else {
            return;
        };
        let queue::Moved {
            accepted,
            queue,
            marks: theirs,
        } = moved;
        session.epoch = session.epoch.max(merging.epoch);
        let is_partitioned = self.is_partitioned(now.instant);
        let after = is_partitioned.then(|| {
            let divergence = session.divergence.as_deref().cloned().unwrap_or_default();
            let has_had_all = session.is_split_off(&merging.branch);
            let in_flight = merging.in_flight.iter().filter_map(unacknowledged);
            let names = queue.iter().chain(in_flight).filter_map(name);
            Box::new(divergence.after(&merging.branch, has_had_all, names))
        });
        let merged = if merging.is_void {
            thicket_session::reach!("worker/merge: a branch that a clean start has ended");
            0
        } else {
            for (uid, accepted) in accepted {
                session.accepted.insert_before(uid, accepted);
            }
            let sent = queue
                .iter()
                .chain(merging.in_flight.iter().filter_map(unacknowledged));
            let marks = &cx.arrivals.marks;
            let has_received = |id: &MessageId| session.has_received(*id, own, marks);
            let received: BTreeSet<MessageId> =
                sent.filter_map(plain).filter(has_received).collect();
            let begun = |id: &&MessageId| merging.begun.is_before(**id, marks.get(&id.stream_id()));
            let received = Received {
                since: received.iter().filter(begun).copied().collect(),
                all: received,
                there: theirs,
            };
            session.outbound.note_time(now.instant);
            let is_shown = session.shows_all_that_reached(&merging);
            let merged = session.merge_messages(place, *merging, queue, &received);
            if is_shown {
                // What its client has finished there may still be on its way here, or to a backup.
                session.marks = session.marks.union(&received.there);
            }
            merged
        };
        session.divergence = after;
        // A merge before this one may still wait for its turn: the hub is owed one answer for each.
        session.merge_to_report = request.or(session.merge_to_report);
        cx.traffic.merged_sessions += 1;
        cx.traffic.merged_messages += merged;
        let fields = vec![
            ("client_id", session.client_id.to_string()),
            ("messages", merged.to_string()),
        ];
        watch_queue(&mut cx.timers, now, key, session);
        self.store_merged(cx, now, key);
        cx.event(
            EventLevel::Info,
            "two branches of a session were merged",
            fields,
        );
        cx.pull(now, key);
        resume_replays(cx, key);
    }
}

/// `is_theirs_later`: its client was connected to the other one last.
fn merge_subscriptions(
    cx: &mut Context,
    key: SessionKey,
    theirs: &[(SubscriptionFilter, Subscribed)],
    is_theirs_later: bool,
    merging: &mut Merging,
) -> Vec<InterestChange> {
    let mut changes = Vec::new();
    let Some(session) = cx.sessions.get_mut(key) else {
        return changes;
    };
    let touched: BTreeSet<_> = merging.branch.touched.iter().cloned().collect();
    // If both nodes received a request, the one where the client was last takes precedence.
    let is_ours = |filter: &SubscriptionFilter| {
        let divergence = session.divergence.as_deref();
        let is_outdone = is_theirs_later && touched.contains(filter);
        divergence.is_some_and(|divergence| divergence.touched.contains(filter)) && !is_outdone
    };
    let is_theirs = |filter: &SubscriptionFilter| touched.contains(filter) && !is_ours(filter);
    let has_ended = |filter: &&SubscriptionFilter| {
        is_theirs(filter) && !theirs.iter().any(|(theirs, _)| theirs == *filter)
    };
    let ended: Vec<SubscriptionFilter> = if merging.is_same {
        let ours = session.subscriptions.keys();
        ours.filter(has_ended).cloned().collect()
    } else {
        Vec::new()
    };
    let is_taken = |(filter, theirs): &&(SubscriptionFilter, Subscribed)| {
        match session.subscriptions.get(filter) {
            Some(ours) => ours != theirs && is_theirs(filter),
            // What nobody asked for since is missing here because this backup was incomplete.
            None => !is_ours(filter),
        }
    };
    let taken: Vec<_> = theirs.iter().filter(is_taken).cloned().collect();
    // Retained messages that either branch has sent are sent: in flight or held, they are merged too.
    let is_common =
        |filter: &SubscriptionFilter| merging.is_same && !is_theirs(filter) && !is_ours(filter);
    let common: Vec<_> = theirs.iter().filter(|it| is_common(&it.0)).collect();
    for (filter, theirs) in common {
        if let Some(ours) = session.subscriptions.get_mut(filter)
            && ours.replay.is_some()
        {
            ours.keep_further(theirs);
            cx.journal.subscription(session.stored, filter, Some(ours));
        }
    }
    session.replays.void_page();
    let is_connected = session.connection.is_some();
    for filter in &ended {
        session.subscriptions.remove(filter);
        cx.journal.subscription(session.stored, filter, None);
        changes.extend(cx.interests.unsubscribe(key, filter));
    }
    merging.ended = ended;
    for (filter, subscribed) in taken {
        let subscription = subscribed.subscription;
        let stored = session.stored;
        cx.journal.subscription(stored, &filter, Some(&subscribed));
        if session
            .subscriptions
            .insert(filter.clone(), subscribed)
            .is_none()
        {
            merging.fresh.push(filter.clone());
        }
        let member = Member {
            connected: is_connected,
            ..Member::away(subscription)
        };
        changes.extend(cx.interests.subscribe(key, &filter, member));
    }
    changes
}

/// The identity of a message that no group chose the session for: it arrives at each node under its number.
fn plain(delivery: &Delivery) -> Option<MessageId> {
    let (id, group) = name(delivery)?;
    group.is_none().then_some(id)
}

/// The queue of another node's branch and what arrived here meanwhile, as one queue: theirs first, but behind those of ours that the same stream sent
/// before them. Until the snapshot was taken, nodes linked to both sent to both.
fn in_order(theirs: Vec<Delivery>, ours: Vec<Delivery>) -> Vec<Delivery> {
    let stream = |id: MessageId| MessageId { number: 0, ..id };
    let mut places: BTreeMap<MessageId, Vec<(u64, usize)>> = BTreeMap::new();
    for (index, delivery) in ours.iter().enumerate() {
        let id = delivery.message.id();
        let of_stream = places.entry(stream(id)).or_default();
        of_stream.push((id.number, index + 1));
    }
    for of_stream in places.values_mut() {
        of_stream.sort_unstable();
    }
    let place = |delivery: &Delivery| {
        let id = delivery.message.id();
        let of_stream = places.get(&stream(id))?;
        let before = of_stream.partition_point(|(number, _)| *number < id.number);
        of_stream[..before].last().map(|(_, place)| *place)
    };
    let mut queue = Vec::with_capacity(theirs.len() + ours.len());
    let mut ours = ours.into_iter();
    let mut behind = 0;
    for delivery in theirs {
        let place = place(&delivery).unwrap_or(0);
        queue.extend(ours.by_ref().take(place.saturating_sub(behind)));
        behind = behind.max(place);
        queue.push(delivery);
    }
    queue.extend(ours);
    queue
}

fn is_finished(finished: &FinishedMessages, delivery: &Delivery) -> bool {
    finished.contains(delivery.message.id(), delivery.group.as_ref())
}

fn is_among(delivery: &Delivery, names: &BTreeSet<Name>) -> bool {
    name(delivery).is_some_and(|name| names.contains(&name))
}

/// A message in flight without PUBREC.
const fn unacknowledged(redelivery: &Redelivery) -> Option<&Delivery> {
    match redelivery {
        Redelivery::Publish(_, delivery) => Some(delivery),
        Redelivery::Pubrel(_) => None,
    }
}

impl Session {
    /// Merges messages of another node's session. Returns how many were new.
    fn merge_messages(
        &mut self,
        own: WorkerOfNode,
        merging: Merging,
        theirs: Vec<Delivery>,
        received: &Received,
    ) -> u64 {
        let is_ours_split = merging.is_same && self.is_split_off(&merging.branch);
        let is_theirs_split = merging.is_same && self.is_other_split_off(own, &merging.branch);
        let Merging {
            in_flight,
            branch,
            is_same,
            steady,
            fresh,
            ended,
            ..
        } = merging;
        let divergence = self.divergence.take().unwrap_or_default();
        let known = Known {
            ids: divergence.known_with(&branch, is_ours_split, is_theirs_split),
            filters: self.filters_before(&divergence, &fresh, &ended),
        };
        // PUBREL is sent once in a connection [MQTT-4.4.0-1]: of a promoted backup that no client has connected to, its former primary has sent it.
        let is_released = is_theirs_split && branch.is_unserved && !self.is_interrupted;
        let mut there = Sent::default();
        for redelivery in &in_flight {
            there.note(redelivery);
        }
        there.names.extend(theirs.iter().filter_map(name));
        self.end_what_is(|delivery| is_finished(&branch.finished, delivery), &there);
        self.outbound.add_finished(&branch.finished);
        if !branch.is_interrupted && !self.is_interrupted {
            let ours = divergence.pending.iter().filter(|_| is_ours_split);
            let ours = ours.filter(|id| received.there.contain(**id));
            let theirs = branch.pending.iter().filter(|_| is_theirs_split);
            let unnamed = ours.chain(theirs).copied().collect();
            let came_there = |delivery: &Delivery| {
                let topic = delivery.message.topic();
                let was_wanted = steady.iter().any(|it| it.filter.matches(topic));
                was_wanted && plain(delivery).is_some_and(|id| received.there.contain(id))
            };
            self.end_what_is_done(&there, &known, &unnamed, came_there);
        }
        let mut here = Sent::default();
        for redelivery in self.outbound.in_flight() {
            here.note(&redelivery);
        }
        let filters = self.subscriptions.keys();
        let now_wanted: Vec<_> = filters.filter(|it| !it.is_shared()).cloned().collect();
        let is_wanted = |topic: &str| now_wanted.iter().any(|it| it.filter.matches(topic));
        let mut queue = self.outbound.take_queue();
        let queued: BTreeSet<Name> = queue.iter().filter_map(name).collect();
        let waits = |delivery: &Delivery| is_among(delivery, &queued);
        let came_by_itself = |delivery: &Delivery| {
            let topic = delivery.message.topic();
            plain(delivery).is_some_and(|id| {
                let was_split_off = is_ours_split && divergence.pending.binary_search(&id).is_ok();
                let came_before = !divergence.is_partial && known.was_wanted(topic);
                was_split_off
                    || (came_before && received.all.contains(&id))
                    || (received.since.contains(&id) && is_wanted(topic))
            })
        };
        // What came otherwise than in the stream of its origin, as from a backup.
        let imported = self.imported.clone();
        let is_new = |delivery: &Delivery| {
            let is_here = is_among(delivery, &here.names)
                || is_among(delivery, &divergence.merged)
                || plain(delivery).is_some_and(|id| imported.contains(&id));
            let is_over = self.outbound.has_finished(delivery);
            !(known.contains(delivery) || came_by_itself(delivery) || is_here || is_over)
        };
        // What waits here and was sent there continues as it was sent.
        let is_resumed = |delivery: &Delivery| is_new(delivery) || waits(delivery);
        let in_flight: Vec<Redelivery> = in_flight
            .into_iter()
            .filter(|redelivery| match redelivery {
                Redelivery::Publish(_, delivery) => is_resumed(delivery),
                Redelivery::Pubrel(id) => !(is_released || here.packet_ids.contains(id)),
            })
            .collect();
        let new: Vec<Delivery> = theirs
            .into_iter()
            .filter(|it| is_new(it) && !waits(it))
            .collect();
        let merged = (in_flight.len() + new.len()) as u64;
        for redelivery in &in_flight {
            if let Redelivery::Publish(_, delivery) = redelivery {
                let sent = name(delivery);
                queue.retain(|queued| name(queued).is_none_or(|name| sent != Some(name)));
            }
        }
        let taken_in = new
            .iter()
            .chain(in_flight.iter().filter_map(unacknowledged));
        let ids = taken_in.filter_map(plain).filter(MessageId::is_sent);
        self.imported.extend(ids);
        let left = self.outbound.adopt(in_flight);
        let (older, newer): (Vec<_>, Vec<_>) = queue.into_iter().partition(|it| known.contains(it));
        for part in [older, left, in_order(new, newer)] {
            for delivery in part {
                self.outbound.enqueue_accepted(delivery);
            }
        }
        if is_same {
            self.ancestors.extend(&branch);
        }
        merged
    }

    /// Filters that another branch has held since it began: messages that they match and that arrived there came to it. Those of shared subscriptions
    /// are left out, as their messages come to one member only.
    fn steady_filters(
        &self,
        theirs: &[(SubscriptionFilter, Subscribed)],
        branch: &Branch,
    ) -> Vec<SubscriptionFilter> {
        let divergence = self.divergence.as_deref();
        // What it had been asked for before, it held when this one began.
        let held_then = |filter: &SubscriptionFilter| {
            self.subscriptions.contains_key(filter)
                && divergence.is_some_and(|it| it.is_copy_of(branch) && it.has_kept(filter))
        };
        let is_steady = |filter: &&SubscriptionFilter| {
            !filter.is_shared() && (!branch.touched.contains(filter) || held_then(filter))
        };
        let theirs = theirs.iter().map(|(filter, _)| filter);
        theirs.filter(is_steady).cloned().collect()
    }

    /// Whether all that arrived at the node of the other branch, and that is for this session, had come to that branch: it has held all filters.
    fn shows_all_that_reached(&self, merging: &Merging) -> bool {
        let mut plain = self.subscriptions.keys().filter(|it| !it.is_shared());
        merging.is_same && plain.all(|filter| merging.steady.contains(filter))
    }

    /// The filters under which messages arrived until now. Messages under a filter that its client has unsubscribed from meanwhile arrived as long as
    /// it was subscribed, here or there.
    fn filters_before(
        &self,
        divergence: &Divergence,
        fresh: &[SubscriptionFilter],
        ended: &[SubscriptionFilter],
    ) -> Vec<SubscriptionFilter> {
        let given_up = divergence.touched.iter();
        let given_up = given_up.filter(|filter| !self.subscriptions.contains_key(filter));
        let held = self.subscriptions.keys().chain(given_up).chain(ended);
        held.filter(|filter| !fresh.contains(filter))
            .cloned()
            .collect()
    }

    /// Of what both held once, what the other one no longer holds is finished. `unnamed`: messages that the primary had not named when one of the two
    /// was split off as a backup, and that have come to the other one as well. `came_there`: whether a message came to the other one.
    fn end_what_is_done(
        &mut self,
        there: &Sent,
        known: &Known,
        unnamed: &BTreeSet<MessageId>,
        came_there: impl Fn(&Delivery) -> bool,
    ) {
        let is_unnamed =
            |delivery: &Delivery| plain(delivery).is_some_and(|id| unnamed.contains(&id));
        let is_done = |delivery: &Delivery| {
            let came_to_both =
                known.contains(delivery) || is_unnamed(delivery) || came_there(delivery);
            came_to_both && !is_among(delivery, &there.names)
        };
        self.end_what_is(is_done, there);
    }

    /// Ends messages that the other one has finished.
    fn end_what_is(&mut self, is_done: impl Fn(&Delivery) -> bool, there: &Sent) {
        let in_flight: Vec<Redelivery> = self.outbound.in_flight().collect();
        let is_connected = self.connection.is_some();
        for redelivery in in_flight {
            // What its client has here counts in its window, and keeps its identifier, until it is acknowledged here [MQTT-3.3.4-9].
            if let Redelivery::Publish(id, delivery) = &redelivery
                && is_done(delivery)
                && !(is_connected && self.outbound.is_sent(*id))
            {
                if there.received.contains(id) {
                    self.outbound.handle_pubrec(*id, false);
                } else {
                    self.drop_started(Some(*id));
                }
            }
        }
        self.outbound.retain_queue(|delivery| !is_done(delivery));
    }
}

/// Which messages each branch received itself, not by the merge. `all`, `since`: messages of the other branch that arrived here.
struct Received {
    all: BTreeSet<MessageId>,
    /// Since the other one's filters were merged.
    since: BTreeSet<MessageId>,
    /// What came to the other branch: it has that, or has finished it.
    there: Marks,
}

/// Messages that both held once: one that either of them lacks now is finished.
struct Known {
    ids: BTreeSet<MessageId>,
    /// See `Session::filters_before`.
    filters: Vec<SubscriptionFilter>,
}

impl Known {
    /// It is not recorded for which filter a message was held: if there are several, a group may have chosen the session since.
    fn contains(&self, delivery: &Delivery) -> bool {
        let id = delivery.message.id();
        let is_known = id.number > 0 && self.ids.contains(&id);
        is_known && (delivery.group.is_none() || self.wanted(delivery.message.topic()).count() == 1)
    }

    fn was_wanted(&self, topic: &str) -> bool {
        self.wanted(topic).any(|filter| !filter.is_shared())
    }

    fn wanted(&self, topic: &str) -> impl Iterator<Item = &SubscriptionFilter> {
        self.filters.iter().filter(|it| it.filter.matches(topic))
    }
}

/// What a session holds, and what it has in flight.
#[derive(Debug, Default)]
struct Sent {
    names: BTreeSet<Name>,
    packet_ids: BTreeSet<PacketId>,
    /// PUBREC was received for these.
    received: BTreeSet<PacketId>,
}

impl Sent {
    fn note(&mut self, redelivery: &Redelivery) {
        match redelivery {
            Redelivery::Publish(packet_id, delivery) => {
                self.packet_ids.insert(*packet_id);
                self.names.extend(name(delivery));
            }
            Redelivery::Pubrel(packet_id) => {
                self.packet_ids.insert(*packet_id);
                self.received.insert(*packet_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use thicket_mqtt::{Publish, Qos};
    use thicket_session::server::{Epoch, MatchedIdentifiers, Message};

    use super::*;
    use crate::worker::state::arrivals::Begun;

    fn queue(numbers: &[(u8, u64)]) -> Vec<Delivery> {
        let delivery = |&(stream, number): &(u8, u64)| {
            let id = MessageId {
                node: 1,
                incarnation: 1,
                stream,
                number,
            };
            Delivery {
                message: std::rc::Rc::new(Message::new(id, &Publish::new("a", b""), None)),
                qos: Qos::AtLeastOnce,
                retain: false,
                identifiers: MatchedIdentifiers::None,
                group: None,
            }
        };
        numbers.iter().map(delivery).collect()
    }

    #[test]
    fn a_branch_shows_all_that_reached_a_session_if_it_has_held_all_of_its_filters() {
        let filter = |text: &str| SubscriptionFilter::parse(text).expect("valid");
        let mut session = Session::new(1, "client".into(), 7, 60, &crate::Limits::default());
        let merging = |is_same, steady: &[&str]| Merging {
            epoch: Epoch::NONE,
            in_flight: Vec::new(),
            branch: Branch::default(),
            is_same,
            is_void: false,
            begun: Begun {
                at: Instant::default(),
                last: BTreeMap::new(),
            },
            steady: steady.iter().map(|text| filter(text)).collect(),
            fresh: Vec::new(),
            ended: Vec::new(),
        };
        for text in ["a", "b/#", "$share/group/c"] {
            let subscribed = Subscribed::default();
            session.subscriptions.insert(filter(text), subscribed);
        }
        // A member of a group receives some of what matches, wherever it is.
        assert!(session.shows_all_that_reached(&merging(true, &["b/#", "a", "d"])));
        assert!(!session.shows_all_that_reached(&merging(true, &["a"])));
        assert!(!session.shows_all_that_reached(&merging(true, &[])));
        assert!(!session.shows_all_that_reached(&merging(false, &["a", "b/#"])));
    }

    #[test]
    fn two_queues_become_one_in_which_each_stream_stays_in_order() {
        // Theirs, ours, and both.
        type Case<'a> = [&'a [(u8, u64)]; 3];
        let cases: [Case<'_>; 5] = [
            [&[(1, 5)], &[], &[(1, 5)]],
            [&[(1, 5), (1, 6)], &[(2, 3)], &[(1, 5), (1, 6), (2, 3)]],
            [&[(1, 5)], &[(1, 4), (1, 6)], &[(1, 4), (1, 5), (1, 6)]],
            [
                &[(3, 9), (1, 5), (3, 10)],
                &[(2, 7), (1, 4), (2, 8)],
                &[(3, 9), (2, 7), (1, 4), (1, 5), (3, 10), (2, 8)],
            ],
            // The order of theirs is kept too.
            [
                &[(1, 5), (2, 2)],
                &[(2, 1), (1, 4)],
                &[(2, 1), (1, 4), (1, 5), (2, 2)],
            ],
        ];
        for [theirs, ours, both] in cases {
            let queue: Vec<_> = in_order(queue(theirs), queue(ours))
                .iter()
                .map(|it| (it.message.id().stream, it.message.id().number))
                .collect();
            assert_eq!(queue, both);
        }
    }
}
