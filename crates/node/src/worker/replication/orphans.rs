//! Of several backups of a session whose primary is down, one is promoted: that on the first node of the replica set that is up.
//!
//! | event | the first backup | the others |
//! | --- | --- | --- |
//! | the primary is down | is promoted, and *adopts* the others' backups | wait for that, *orphaned* |
//! | `adopted` | | stay as they are until the full sync |
//! | full sync from it | | give messages that only they received to the new backup, and end |
//! | it is down too | | the first one of those left is promoted |
//! | nobody has adopted them in time | | are promoted: where two are, the registrar has one merge the other |
//!
//! While an orphan waits, its node does not register what it has, so no registrar answers that the session does not exist. The other node may notice
//! before this one that the primary is down, and its stream may reach another worker than the one with the orphan: so adoptions are remembered, and
//! sent to all workers.

use std::collections::BTreeSet;

use thicket_overlay::NodeId;

use super::{
    learning::end_adopted_backups,
    state::{Announced, BackupVersion, Orphan, Primaries, Sources},
};
use crate::{
    Now, Remembered,
    marks::Marks,
    messages::{Adopted, InterestChange, SessionState, ToHub, ToWorker, UpNode},
    worker::{
        Worker,
        context::Context,
        state::{
            replica::{
                backup::{ADOPTION_TIMEOUT, Backup, SourceKey},
                pending::Pending,
                replica_set::Stage,
            },
            role::Role,
            sessions::SessionKey,
            timers::Timer,
        },
    },
};

/// Sessions whose backups are to be adopted on nodes that are not reachable yet; further ones are not remembered.
const TO_ADOPT: usize = 100_000;
impl Worker {
    /// The primary of a backup is down. Returns how many sessions fail over to this node.
    pub(super) fn lose_primary(
        &mut self,
        now: Now,
        key: SessionKey,
        changes: &mut Vec<InterestChange>,
    ) -> usize {
        let identity = identity_of(&self.cx, key);
        let adopted =
            identity.and_then(|(uid, version)| self.sources.orphans.adopted(uid, version));
        if adopted.is_none() && is_next(&self.cx, key) {
            return usize::from(self.fail_over(now, key, changes));
        }
        self.sources.add_orphan(&mut self.cx, now, key, changes);
        0
    }

    /// A stream is void, and with it the adoptions of these sessions.
    pub(super) fn end_adopted(
        &mut self,
        now: Now,
        by: SourceKey,
        sessions: Vec<u128>,
        changes: &mut Vec<InterestChange>,
    ) {
        for uid in &sessions {
            let orphans = &mut self.sources.orphans;
            let orphan = orphans.take_adopted_by(*uid, by);
            if (orphans.announced.get(uid)).is_some_and(|announced| announced.by == by) {
                orphans.announced.remove(uid);
            }
            let Some(Orphan { key, .. }) = orphan else {
                continue;
            };
            let session = self.cx.sessions.get(key);
            let backup = session.and_then(|session| session.backup());
            if backup.is_some_and(|backup| !backup.pending.is_empty()) {
                self.promote_as_branch(now, key, changes);
            } else {
                changes.extend(self.sources.drop_backup(&mut self.cx, key));
            }
        }
        if sessions.is_empty() {
            return;
        }
        self.cx.send_to_workers(|| ToWorker::Adoptions {
            by,
            adopted: Vec::new(),
            replaced: sessions.clone(),
        });
    }

    /// A node is down: orphans that it had adopted, or was to adopt, are for the next one. Returns how many fail over to this node.
    pub(super) fn lose_successor(
        &mut self,
        now: Now,
        node: NodeId,
        changes: &mut Vec<InterestChange>,
    ) -> usize {
        let orphans = &mut self.sources.orphans;
        orphans.lose_node(now.instant, node);
        orphans.promoting.insert(node);
        if orphans.is_waiting() {
            self.cx
                .timers
                .set(now.instant + ADOPTION_TIMEOUT, Timer::Successors);
        }
        self.promote_due_orphans(now, changes)
    }

    /// Promotes orphans whose turn it is, or whose time is over. Returns how many.
    fn promote_due_orphans(&mut self, now: Now, changes: &mut Vec<InterestChange>) -> usize {
        let orphans = &self.sources.orphans;
        let is_due = |(uid, orphan): &(&u128, &Orphan)| {
            let is_over = orphan.since + ADOPTION_TIMEOUT <= now.instant;
            orphans.adopted(**uid, orphan.version).is_none()
                && (is_over || is_next(&self.cx, orphan.key))
        };
        let due: Vec<(u128, SessionKey)> = (orphans.waiting.iter())
            .filter(is_due)
            .map(|(uid, orphan)| (*uid, orphan.key))
            .collect();
        let mut count = 0;
        for (uid, key) in due {
            if let Some(orphan) = self.sources.orphans.waiting.remove(&uid)
                && orphan.since + ADOPTION_TIMEOUT <= now.instant
            {
                thicket_session::reach!("time ADOPTION_TIMEOUT");
            }
            if self.fail_over(now, key, changes) {
                count += 1;
                // Its primary may be up, and have handed it to a node that is partitioned from this one: nothing else registers it.
                report_taken_over(&mut self.cx, key, SessionState::TakenOver);
            }
        }
        count
    }

    /// Orphans may have waited long enough.
    pub(in super::super) fn promote_overdue_orphans(&mut self, now: Now) {
        let mut changes = Vec::new();
        let count = self.promote_due_orphans(now, &mut changes);
        self.cx.announce(changes);
        self.report_failover(now, count, Vec::new());
        self.sources.report_promoted(&mut self.cx);
    }
}

impl Sources {
    /// Sessions that nobody serves until one of their backups is promoted, here or at another node.
    pub(in super::super) fn orphans(&self) -> u64 {
        self.orphans.unadopted()
    }

    /// Another node is to promote its backup: the one here waits as an orphan.
    pub(super) fn add_orphan(
        &mut self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        changes: &mut Vec<InterestChange>,
    ) {
        let Some((uid, version)) = identity_of(cx, key) else {
            return;
        };
        if let Some(serial) = superseded(cx, key, version) {
            self.superseded.push((key, serial));
            return;
        }
        let orphans = &self.orphans;
        let adopted = orphans.adopted(uid, version);
        let by = adopted.map(|adopted| (adopted.by, adopted.session.number));
        let is_over = adopted.is_some_and(|adopted| adopted.over_since.is_some());
        let is_newer = |other: &Orphan| other.version.epoch > version.epoch;
        if is_over || orphans.waiting.get(&uid).is_some_and(is_newer) {
            changes.extend(self.drop_backup(cx, key));
            return;
        }
        let orphan = Orphan {
            key,
            version,
            since: now.instant,
        };
        if let Some(older) = self.orphans.waiting.insert(uid, orphan) {
            // The session was moving from one primary to another, and both are down.
            changes.extend(self.drop_backup(cx, older.key));
        }
        match by {
            Some((by, number)) => self.replace_orphan(cx, now, by, number, uid, changes),
            None => cx
                .timers
                .set(now.instant + ADOPTION_TIMEOUT, Timer::Successors),
        }
    }

    /// Messages that only an orphan received go to the backup that its new primary has fully synced, if it is here.
    pub(super) fn replace_orphan(
        &mut self,
        cx: &mut Context,
        now: Now,
        by: SourceKey,
        number: u64,
        uid: u128,
        changes: &mut Vec<InterestChange>,
    ) {
        let Some(new) = self.find(by, number) else {
            return;
        };
        let Some(orphan) = self.orphans.take_adopted_by(uid, by) else {
            return;
        };
        let streams = cx.marks_of_streams();
        let session = cx.sessions.get_mut(orphan.key);
        let former = session.and_then(|session| {
            let reached = session.marks_with(&streams, &cx.arrivals.marks);
            let backup = session.backup_mut()?;
            let pending: Vec<Pending> = std::mem::take(&mut backup.pending).into_iter().collect();
            Some((finished_of(backup, &pending, reached), pending))
        });
        let (finished, pending) = former.unzip();
        let session = cx.sessions.get_mut(new);
        if let Some(session) = session
            && let Role::Backup(backup) = &mut session.role
        {
            // Its new primary may die before it has said what reached the session there.
            session.marks = finished.unwrap_or_default();
            // Before this node considered the primary down, messages arrived at both.
            let mut held: Vec<_> = backup.held.messages().collect();
            held.sort_unstable();
            for Pending {
                delivery, is_seen, ..
            } in pending.into_iter().flatten()
            {
                let id = delivery.message.id();
                if held.binary_search(&id).is_ok() || backup.pending.has(id) {
                    continue;
                }
                let unblocked = &mut cx.arrivals.unblocked;
                let accepted = &mut session.accepted;
                backup.take(now.instant, accepted, delivery, is_seen, unblocked);
            }
        }
        changes.extend(self.drop_backup(cx, orphan.key));
    }

    /// Another node's worker adopted a session, under a number of its stream.
    pub(super) fn adopt(
        &mut self,
        cx: &mut Context,
        now: Now,
        by: SourceKey,
        session: Adopted,
        changes: &mut Vec<InterestChange>,
    ) {
        let Adopted { uid, number, epoch } = session;
        let announced = &mut self.orphans.announced;
        let known = announced.get(&uid);
        if known.is_some_and(|known| known.session.epoch > epoch) {
            return;
        }
        let adopted = Announced {
            by,
            session,
            over_since: None,
        };
        announced.insert(uid, adopted);
        self.replace_orphan(cx, now, by, number, uid, changes);
    }

    /// The backup of an earlier primary is out of date.
    pub(super) fn end_orphan(
        &mut self,
        cx: &mut Context,
        now: Now,
        by: SourceKey,
        uid: u128,
        changes: &mut Vec<InterestChange>,
    ) {
        if let Some(orphan) = self.orphans.take_adopted_by(uid, by) {
            changes.extend(self.drop_backup(cx, orphan.key));
        }
        let announced = self.orphans.announced.get_mut(&uid);
        if let Some(announced) = announced.filter(|announced| announced.by == by) {
            announced.over_since = Some(now.instant);
        }
    }

    /// Another worker read that sessions are adopted, or that adopted ones were fully synced or have ended.
    pub(in super::super) fn handle_adoptions(
        &mut self,
        cx: &mut Context,
        now: Now,
        by: SourceKey,
        adopted: &[Adopted],
        replaced: &[u128],
    ) {
        let mut changes = Vec::new();
        // A node that is down has lost them again (`lose_successor`).
        let adopted = if cx.is_up(by.0) { adopted } else { &[] };
        for session in adopted {
            self.adopt(cx, now, by, *session, &mut changes);
        }
        for uid in replaced {
            self.end_orphan(cx, now, by, *uid, &mut changes);
        }
        cx.announce(changes);
        self.report_promoted(cx);
    }

    /// Reports to the hub the nodes that are down and whose sessions are here, or elsewhere for sure.
    pub(super) fn report_promoted(&mut self, cx: &mut Context) {
        if self.orphans.is_waiting() {
            return;
        }
        for node in std::mem::take(&mut self.orphans.promoting) {
            cx.send_to_hub_after_records(ToHub::Promoted { node });
        }
    }
}

impl Primaries {
    /// A session has failed over to this node: the backups of the other members of its replica set belong to this primary. A backup on a node
    /// that is not reachable yet is adopted once it is: no other node would mark it as out of date.
    pub(super) fn adopt_backups(&mut self, cx: &mut Context, key: SessionKey, members: &[NodeId]) {
        for node in members {
            if !cx.is_up(*node) {
                self.adopt_when_reachable(cx, *node, key);
                continue;
            }
            let Some(index) = cx.stream_to(*node) else {
                continue;
            };
            let Some(session) = cx.sessions.get_mut(key) else {
                return;
            };
            if session.stored.number == 0 {
                session.stored.number = cx.journal.next_number();
            }
            let (number, uid, epoch) = (session.stored.number, session.uid, session.epoch);
            let has_capacity = session.stored.backups.set(index, Stage::Adopted);
            if let Some(stream) = cx.journal.streams.get_mut(index) {
                stream.writer.adopted(number, uid, epoch);
                if !has_capacity {
                    // Other nodes already receive a full sync.
                    stream.writer.ended(number);
                }
            }
        }
    }

    /// Above [`TO_ADOPT`] sessions the outdated backup may be promoted; the registrar then has the branches merged.
    fn adopt_when_reachable(&mut self, cx: &Context, node: NodeId, key: SessionKey) {
        let Some(session) = cx.sessions.get(key).filter(|_| node != cx.config.node) else {
            return;
        };
        let known = self.to_adopt.values();
        if known.map(BTreeSet::len).sum::<usize>() < TO_ADOPT {
            let sessions = self.to_adopt.entry(node).or_default();
            sessions.insert((key, session.serial));
        }
    }

    /// The sessions whose backups are to be adopted.
    pub fn remembered(&self) -> Remembered {
        let sessions = self.to_adopt.values().map(BTreeSet::len).sum();
        Remembered::new("backups to be adopted", sessions, TO_ADOPT)
    }

    /// Nodes are up: backups there of sessions that have failed over to this one belong to this primary.
    pub(super) fn adopt_backups_of_reachable_nodes(&mut self, cx: &mut Context) {
        let is_up = |node: &NodeId| cx.is_up(*node);
        let seen: Vec<_> = (self.to_adopt)
            .extract_if(.., |node, _| is_up(node))
            .collect();
        for (node, sessions) in seen {
            for (key, serial) in sessions {
                let session = cx.sessions.get_same(key, serial);
                if session.is_some_and(|session| session.role.handed().is_none()) {
                    thicket_session::reach!("worker/replication/orphans: adopted when reachable");
                    self.adopt_backups(cx, key, &[node]);
                    end_adopted_backups(cx, key);
                }
            }
        }
    }
}

/// Strikes nodes that are down from the order of promotion, even if they come back: their backups are lost.
pub(super) fn strike_successors(cx: &mut Context) {
    let (own, up) = (cx.config.node, &cx.cluster.up);
    for backup in cx.sessions.backups_mut() {
        let is_left = |node: &NodeId| *node == own || up.iter().any(|up| up.node == *node);
        backup.replica_set.retain(is_left);
    }
}

/// Whether no other node is to promote its backup of the session before this one.
fn is_next(cx: &Context, key: SessionKey) -> bool {
    let session = cx.sessions.get(key);
    let Some(backup) = session.and_then(|session| session.backup()) else {
        return false;
    };
    let own = cx.config.node;
    let mut alive = backup.replica_set.iter();
    let first = alive.find(|node| **node == own || cx.is_up(**node));
    first.is_none_or(|first| *first == own)
}

/// The identity of a backup's session, and the version that the backup has.
pub(super) fn identity_of(cx: &Context, key: SessionKey) -> Option<(u128, BackupVersion)> {
    let session = cx.sessions.get(key)?;
    let backup = session.backup()?;
    let version = BackupVersion {
        by: backup.source,
        number: backup.number,
        epoch: backup.stored.epoch,
    };
    Some((session.uid, version))
}

/// Marks the other backups of the replica set as out of date; no other backups follow.
pub(super) fn void_backups(cx: &mut Context, uid: u128, backup: BackupVersion, members: &[NodeId]) {
    for node in members {
        let is_up = |up: &UpNode| up.node == *node;
        if !cx.cluster.up.iter().any(is_up) {
            continue;
        }
        let number = cx.journal.next_number();
        let index = cx.stream_to(*node);
        if let Some(stream) = index.and_then(|index| cx.journal.streams.get_mut(index)) {
            stream.writer.adopted(number, uid, backup.epoch.promoted());
            stream.writer.ended(number);
        }
    }
}

/// Reports to the hub that a backup was promoted, behind what was sent before: `TakenOver` or `Branch`.
pub(in super::super) fn report_taken_over(cx: &mut Context, key: SessionKey, state: SessionState) {
    let Some(session) = cx.sessions.get(key) else {
        return;
    };
    let report = ToHub::Session {
        client_id: (*session.client_id).into(),
        state,
        epoch: session.epoch,
    };
    cx.send_to_hub_after_records(report);
}

/// The serial of a backup of which there is a newer one that was promoted here.
fn superseded(cx: &Context, key: SessionKey, version: BackupVersion) -> Option<u64> {
    let backup = cx.sessions.get(key)?;
    let here = cx.sessions.get(cx.sessions.find(&backup.client_id)?)?;
    let is_newer = here.role.is_primary() && here.uid == backup.uid && here.epoch > version.epoch;
    is_newer.then_some(backup.serial)
}

/// Of what reached a backup, that which it does not hold: it is finished, and may come again from a
/// node that had kept it for another one.
fn finished_of(backup: &Backup, pending: &[Pending], mut reached: Marks) -> Marks {
    let pending = pending.iter().map(|it| it.delivery.message.id());
    for id in backup.held.messages().chain(pending) {
        reached.remove(id);
    }
    reached
}
