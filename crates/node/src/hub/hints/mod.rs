//! Hinted handoff: messages of QoS 1 and 2 for sessions of which no backup is here (rule 5 between nodes).
//!
//! The interests of a node's persistent sessions are kept when the node goes down (`absent`). While these sessions are not promoted elsewhere, the
//! node that accepts a message for them from its publisher is *responsible* for it: it keeps the message (`queue`), has one more node keep it, and
//! acknowledges it only then. When the node is back, and has announced its interests, it is sent all that was kept (`arrive`). If the responsible
//! node goes down first, the one that also keeps the messages is responsible from then on.
//!
//! | sender | message | meaning |
//! | --- | --- | --- |
//! | every node | `Covered` | who has backups of my sessions, if all have their backups |
//! | a backup | `TookOver` | a node is down and its sessions have failed over to this one |
//! | the node responsible for a message | `Keep`, answered by `Kept`; `Done` | keep it too; no more |
//! | likewise, to the node that is back | `Hinted`, answered by `HintsAccepted` | these are for you |
//!
//! A session may have moved meanwhile. If a backup of it is left at the node, the message reaches the backup, which passes it on to the primary
//! (`replication`). If it has moved to another node that was down as well, that node gets the message too:
//!
//! - A node that is back gets, of what is kept for others, what was accepted while it was down and what it subscribes to now.
//! - When one is back, those that are still down are *expected* for as long as a link may take. What is published until then is kept for them, whatever
//!   its topic, and so is what the first one has taken.
//!
//! A message keeps its identity (origin, stream and number there), so a node that has it already drops it. What is kept is kept in memory: `state`,
//! and for a node that is back `arrivals`.

mod absent;
mod arrivals;
mod arrive;
mod keep;
mod queue;
mod state;
mod wire;

use std::{collections::BTreeSet, ops::RangeInclusive, rc::Rc, time::Duration};

use thicket_mqtt::Qos;
use thicket_overlay::{
    Abandoned, InterestChange, InterestKey, InterestValue, NodeId, NodeSlot, StreamId,
    record::Record, rendezvous,
};

#[cfg(test)]
pub(super) use self::wire::KINDS as HINT_KINDS;
use self::{
    absent::{Absent, Entries, Matching},
    queue::{Hint, HintQueue, Holder},
    wire::{Backups, Carried},
};
pub(super) use self::{state::Hints, wire::HintMessage};
use super::{Hub, HubView, control::RetainedRecord, outgoing::Forwarded};
use crate::hub::hints::state::Waiting;
use crate::{
    EventLevel, HintsReport, Now, OnFull, WorkerId,
    messages::{ForwardEntry, NumberRuns, Origin},
};

/// Bytes of one message to another hub.
const BATCH_BYTES: usize = 128 * 1024;
/// Bytes under way to a node that is back.
const WINDOW_BYTES: usize = 512 * 1024;
/// How often expired messages are removed.
const SWEEP: Duration = Duration::from_secs(1);

impl HubView<'_> {
    /// What is kept for nodes that are down.
    #[must_use]
    pub fn hints(&self) -> HintsReport {
        self.hub.hints.report(None)
    }
}

impl Hub {
    pub(super) fn send_hint_message(&mut self, to: NodeId, message: &HintMessage<'_>) -> bool {
        let Some(slot) = self.cx.overlay.slot_of(to) else {
            return false;
        };
        if self.cx.quorum.is_gone(slot) {
            return false;
        }
        let (kind, payload) = message.encode();
        self.cx.overlay.send_control(slot, kind, &payload).is_ok()
    }

    pub(super) fn handle_hint_message(&mut self, now: Now, from: NodeId, message: HintMessage<'_>) {
        match message {
            HintMessage::Covered(sets) => {
                self.hints.covered.insert(from, sets);
                self.hints.forget_early(from);
            }
            HintMessage::TookOver { node } => self.handle_took_over(now, node, from),
            HintMessage::Keep { target, hints } => self.handle_keep(now, from, target, &hints),
            HintMessage::Kept {
                target,
                upto,
                is_full,
            } => self.handle_kept(from, target, upto, is_full),
            HintMessage::Done { target, upto } => {
                if let Some(queue) = self.hints.queues.get_mut(&target) {
                    queue.forget_kept(from, upto);
                }
            }
            HintMessage::Hinted { hints } => self.handle_hinted(now, from, &hints),
            HintMessage::HintsAccepted { upto } => self.handle_hints_accepted(now, from, upto),
        }
    }

    // Which nodes are down, and which have their sessions.

    /// A worker reports which nodes have backups of its sessions.
    pub(super) fn handle_covered(&mut self, from: WorkerId, sets: Option<Vec<Backups>>) {
        let before = self.all_covered();
        self.hints.workers[usize::from(from.0)] = sets;
        let covered = self.all_covered();
        if covered != before {
            for node in self.cx.up.values().copied().collect::<Vec<_>>() {
                self.send_hint_message(node, &HintMessage::Covered(covered.clone()));
            }
        }
    }

    fn all_covered(&self) -> Option<Vec<Backups>> {
        let mut all = BTreeSet::new();
        for sets in &self.hints.workers {
            all.extend(sets.as_ref()?.iter().cloned());
        }
        Some(all.into_iter().collect())
    }

    /// Sends a node that may lack them our backups, and the nodes whose sessions were promoted here.
    fn send_covered(&mut self, node: NodeId) {
        self.send_hint_message(node, &HintMessage::Covered(self.all_covered()));
        for gone in self.hints.took_over.clone() {
            self.send_hint_message(node, &HintMessage::TookOver { node: gone });
        }
    }

    /// The backups here of a node's sessions were promoted.
    pub(super) fn have_taken_over(&mut self, now: Now, node: NodeId) {
        if self.cx.is_up(node) {
            return;
        }
        self.hints.took_over.insert(node);
        self.handle_took_over(now, node, self.cx.own());
        for other in self.cx.up.values().copied().collect::<Vec<_>>() {
            self.send_hint_message(other, &HintMessage::TookOver { node });
        }
    }

    /// Sessions of a node that is down have failed over to another one. That one now gets what it did not receive while it was down itself.
    fn handle_took_over(&mut self, now: Now, node: NodeId, by: NodeId) {
        let Some(absent) = self.hints.absent.get_mut(&node) else {
            if self.cx.is_up(node) {
                self.hints.early.insert((node, by));
            }
            return;
        };
        absent.take_over(by);
        self.keep_missed(now, by, |target, _| target == node);
        self.open_hints(by);
        self.review_absent();
    }

    /// A node is down: the interests of its persistent sessions stay, and what it had not admitted is kept for it.
    pub(super) fn hints_lose_node(
        &mut self,
        now: Now,
        (slot, node): (NodeSlot, NodeId),
        persistent: &[(InterestKey, InterestValue)],
        abandoned: Vec<Abandoned>,
    ) {
        let hints = &mut self.hints;
        hints.returning.remove(&slot);
        hints.arrivals.lose_node(node);
        let mark = hints.last_serial;
        hints.outages.insert(node, (mark, u64::MAX));
        let covered = hints.covered.remove(&node).flatten();
        let entries = entries_of(persistent.iter().map(|(key, value)| (key, *value)));
        if !entries.is_empty() {
            let mut absent = Absent::new(slot, entries, covered);
            let early = self.hints.early.iter().filter(|(gone, _)| *gone == node);
            early.for_each(|(_, by)| absent.take_over(*by));
            self.hints.absent.insert(node, absent);
        }
        let hints = &mut self.hints;
        hints.forget_early(node);
        for (target, queue) in &mut hints.queues {
            queue.inherit(node, &mut hints.last_serial);
            queue.lose_holder(node);
            if *target == node {
                queue.close();
            }
        }
        let changes = self.void_interests_of(slot);
        let active = self.review_absent_with(changes);
        self.settle_interests();
        self.keep_abandoned(now, slot, abandoned, &active);
    }

    /// A node is up again, or for the first time.
    pub(super) fn hints_gain_node(&mut self, now: Now, slot: NodeSlot, node: NodeId) {
        let hints = &mut self.hints;
        hints.covered.remove(&node);
        hints.forget_early(node);
        hints.took_over.remove(&node);
        let absent = hints.absent.remove(&node);
        let kept = absent.and_then(Absent::into_kept_topics);
        hints.returning.insert(slot, kept);
        hints.queues.values_mut().for_each(HintQueue::seek_holders);
        if hints.outages.contains_key(&node) {
            self.expect_others(now);
        }
        self.send_covered(node);
    }

    /// A node is back. If this node was the partitioned one, the others that are still down will be back soon. Sessions may have moved to them, and
    /// messages for a session are kept only under its former node. So all messages are kept for these nodes for as long as linking may take.
    fn expect_others(&mut self, now: Now) {
        let is_down = |(node, (_, upto)): (&NodeId, &(u64, u64))| {
            (*upto == u64::MAX && self.cx.members.has(*node)).then_some(*node)
        };
        let down: Vec<NodeId> = self.hints.outages.iter().filter_map(is_down).collect();
        self.hints.expected_until = Some(now.instant + self.cx.config.overlay.timing.link_grace);
        for node in down {
            if let Some(slot) = self.cx.overlay.slot_of(node)
                && !self.cx.up.contains_key(&slot)
            {
                let new = || Absent::without_sessions(slot);
                let absent = self.hints.absent.entry(node).or_insert_with(new);
                absent.is_expected = true;
                let changes = self.interests.send_again(slot, &absent.kept());
                self.send_places(&changes);
            }
        }
    }

    /// Nodes that are not back in time are not expected any more: of what was kept for them, only what their own sessions subscribe to stays.
    fn review_expected(&mut self, now: Now) {
        if self
            .hints
            .expected_until
            .is_none_or(|until| now.instant < until)
        {
            return;
        }
        self.hints.expected_until = None;
        let Hints { absent, queues, .. } = &mut self.hints;
        let expected = absent.iter_mut().filter(|(_, it)| it.is_expected);
        let mut changes = Vec::new();
        for (node, absent) in expected {
            absent.is_expected = false;
            changes.extend(self.interests.send_again(absent.slot, &absent.kept()));
            if let Some(queue) = queues.get_mut(node) {
                queue.forget_speculative();
            }
        }
        self.review_absent_with(changes);
    }

    /// What a node was sent may be lost.
    pub(super) fn hints_lose_control(&mut self, node: NodeId) {
        for queue in self.hints.queues.values_mut() {
            queue.lose_holder(node);
        }
        self.hints.arrivals.lose_node(node);
        self.send_covered(node);
        if let Some(queue) = self.hints.queues.get_mut(&node)
            && queue.is_open()
        {
            queue.close();
            queue.open();
        }
    }

    /// A node announces its interests. True: for the first time since it is up; its sessions are there, and receive what was kept.
    pub(super) fn hints_note_node(
        &mut self,
        now: Now,
        slot: NodeSlot,
        announced: &[InterestChange],
    ) -> bool {
        let Some(kept) = self.hints.returning.remove(&slot) else {
            return false;
        };
        if let Some(node) = self.cx.up.get(&slot).copied() {
            let mark = self.hints.last_serial;
            if let Some((_, upto)) = self.hints.outages.get_mut(&node) {
                *upto = mark;
            }
            self.follow_moves_to(now, (slot, node), kept.as_ref(), announced);
            self.open_hints(node);
        }
        true
    }

    /// A node is back. Sessions of other nodes that were down too may have moved to it: of what is kept for those, it gets what it subscribes to now.
    /// `kept`: the topics of which it gets everything anyway.
    fn follow_moves_to(
        &mut self,
        now: Now,
        (slot, node): (NodeSlot, NodeId),
        kept: Option<&Matching>,
        announced: &[InterestChange],
    ) {
        if self.hints.queues.keys().all(|target| *target == node) {
            return;
        }
        let interests = announced.iter();
        let interests = interests.filter_map(|change| Some((&change.key, change.value?)));
        let entries = entries_of(interests.filter(|(_, value)| value.persistent));
        let subscribed = Matching::new(slot, &entries);
        self.keep_missed(now, node, |_, hint| {
            let is_missed =
                |topic| subscribed.has(topic) && !kept.is_some_and(|kept| kept.has(topic));
            hint.topic().is_some_and(is_missed)
        });
    }

    /// A node has what was kept for it. Its sessions may have moved to a node that is expected: then that gets it too.
    fn follow_moves_from(&mut self, now: Now, taken: &[Hint]) {
        let expected = self.hints.absent.iter().filter(|(_, it)| it.is_expected);
        let mut moved = Vec::new();
        for (node, absent) in expected {
            let since = self.hints.outages.get(node).map_or(0, |(from, _)| *from);
            let is_kept =
                |hint: &Hint| absent.is_active && hint.topic().is_some_and(|it| absent.wants(it));
            let missed = taken.iter().filter(|it| it.serial > since && !is_kept(it));
            moved.extend(missed.map(|hint| (*node, hint.clone())));
        }
        for (node, hint) in moved {
            self.add_hint(now, node, hint.not_awaited(Holder::Speculative));
        }
    }

    /// Keeps for a node what was kept for others while it was down, if `is_wanted` says so of the other node and the message.
    fn keep_missed(&mut self, now: Now, node: NodeId, is_wanted: impl Fn(NodeId, &Hint) -> bool) {
        let Some((from, upto)) = self.hints.outages.get(&node).copied() else {
            return;
        };
        let others = self.hints.queues.iter().filter(|(of, _)| **of != node);
        let missed = others.flat_map(|(of, queue)| queue.iter().map(|hint| (*of, hint)));
        let missed = missed
            .filter(|(of, hint)| from < hint.serial && hint.serial <= upto && is_wanted(*of, hint));
        let mut missed: Vec<Hint> = missed.map(|(_, hint)| hint.clone()).collect();
        // The same message may be kept for several nodes.
        missed.sort_by_key(|hint| (hint.name(), hint.serial));
        missed.dedup_by_key(|hint| hint.name());
        missed.sort_by_key(|hint| hint.serial);
        for hint in missed {
            self.add_hint(now, node, hint.not_awaited(Holder::Unassigned));
        }
    }

    fn open_hints(&mut self, node: NodeId) {
        let slot = self.cx.overlay.slot_of(node);
        let is_there = slot.is_some_and(|slot| {
            self.cx.up.contains_key(&slot) && !self.hints.returning.contains_key(&slot)
        });
        if let Some(queue) = self.hints.queues.get_mut(&node).filter(|_| is_there) {
            queue.open();
        }
    }

    fn review_absent(&mut self) {
        self.review_absent_with(Vec::new());
    }

    /// Checks which nodes that are down are kept for, and informs the workers. Returns those that were not before.
    fn review_absent_with(
        &mut self,
        mut changes: crate::hub::state::interests::PlaceChanges,
    ) -> Vec<NodeId> {
        let mut begun = Vec::new();
        let mut over = Vec::new();
        for (node, absent) in &mut self.hints.absent {
            let is_active = !absent.is_taken_over();
            if is_active != absent.is_active {
                absent.is_active = is_active;
                changes.extend(self.interests.send_again(absent.slot, &absent.kept()));
                begun.extend(is_active.then_some(*node));
            }
            over.extend((!is_active && !absent.is_expected).then_some(*node));
        }
        for node in over {
            self.hints.absent.remove(&node);
            self.drop_hints_for(node);
        }
        self.send_places(&changes);
        begun
    }
}

/// Of the interests of a node's persistent sessions those at QoS 1 and 2. Shared subscriptions have other members, or had.
fn entries_of<'a>(persistent: impl Iterator<Item = (&'a InterestKey, InterestValue)>) -> Entries {
    let kept = persistent.filter(|(_, value)| value.qos > Qos::AtMostOnce);
    kept.filter_map(|(key, value)| super::interests::entry_of(key, value))
        .filter(|(filter, _)| !filter.is_shared())
        .collect()
}
