//! Backups move so that no node takes over much more than its share of the load when this one dies.
//!
//! A backup is chosen when its session begins, before it is known how many messages the session has. So loads are looked at from time to time:
//!
//! | step | replica set, in the order of promotion |
//! | --- | --- |
//! | a node would take over more than its share | former |
//! | another one is sent a full sync | former, learner |
//! | it has all of the session | new, former |
//! | the former one has applied that it comes second | new |
//!
//! The former backup has all of the session until it ends. If the primary dies while the two disagree about their order, both are promoted or
//! both wait ([`orphans`](super::orphans)), and one merges the other.

use std::{collections::BTreeMap, time::Duration};

use thicket_overlay::NodeId;
use thicket_placement::{LEAST_LOAD, SESSION_LOAD, better_backup};

use super::{
    learning::{RECORD_BYTES, end_backup, replicate_replica_set},
    state::Primaries,
};
use crate::{
    Now,
    worker::{
        context::Context,
        state::{
            replica::{
                replica_set::Stage,
                stream::{Level, Progress, Release},
            },
            role::Role,
            sessions::{Session, SessionKey},
        },
    },
};

/// Time between two attempts.
const LEVELLED: Duration = Duration::from_secs(30);
/// Backups that move at a time.
const MOVED: usize = 16;

/// A session whose backup may move: its load, and the node that would be promoted.
struct Movable {
    load: u64,
    key: SessionKey,
    serial: u64,
    node: NodeId,
}

impl Primaries {
    /// Moves backups from nodes that would take over more than their share.
    pub(in super::super) fn level_backups(&mut self, cx: &mut Context, now: Now) {
        let is_due = now.instant.since(self.leveling.levelled_at) >= LEVELLED;
        // Where there are several backups, the death of one node leaves a choice.
        if !is_due || cx.wanted_backups() != 1 {
            return;
        }
        thicket_session::reach!("time LEVELLED");
        self.leveling.levelled_at = now.instant;
        let is_steady = self.to_sync.is_empty() && !self.is_partitioned(now.instant);
        if cx.cluster.is_minority || !is_steady {
            return;
        }
        self.review_former(cx);
        let (mut movable, mut held) = loads(cx, now);
        if held.values().sum::<u64>() < LEAST_LOAD {
            return;
        }
        // Those with most load first, so that few move.
        movable.sort_by_key(|it| (std::cmp::Reverse(it.load), it.key));
        let mut moved = 0;
        for from in movable {
            if moved == MOVED {
                return;
            }
            let Some(to) = self.better_backup(cx, &held, &from) else {
                continue;
            };
            let Some(index) = cx.stream_to(to) else {
                continue;
            };
            let stream = cx.journal.streams.get_mut(index);
            if stream.is_none_or(|it| !it.has_capacity() || it.writer.len() > RECORD_BYTES) {
                continue;
            }
            *held.entry(from.node).or_default() -= from.load;
            *held.entry(to).or_default() += from.load;
            self.leveling
                .former
                .insert(from.key, (from.serial, from.node));
            self.full_sync(cx, now, from.key, index);
            replicate_replica_set(cx, from.key);
            self.end_former(cx, from.key);
            moved += 1;
        }
    }

    /// The node with the lowest load that it would take over, compared with its capacity, if the backup's node would take over more than its share,
    /// and the other one would not.
    fn better_backup(
        &self,
        cx: &Context,
        held: &BTreeMap<NodeId, u64>,
        from: &Movable,
    ) -> Option<NodeId> {
        let nodes = cx
            .cluster
            .up
            .iter()
            .map(|up| (up.node, cx.cluster.capability_of(up.node)));
        let nodes: Vec<(NodeId, u64)> = nodes.collect();
        let backups = cx.sessions.get(from.key)?.stored.backups;
        let is_free = |node: NodeId| {
            let index = cx.journal.streams.find(node);
            index.is_none_or(|index| !backups.has(index))
        };
        better_backup(&nodes, held, from.node, from.load, is_free)
    }

    /// Those that have not ended: a switchover may have been under way, or the session is gone.
    fn review_former(&mut self, cx: &mut Context) {
        let is_pending = |key: SessionKey, serial: u64| {
            let session = cx.sessions.get(key).filter(|it| it.serial == serial);
            session.is_some_and(|session| session.stored.backups.len() > 1)
        };
        let former = &mut self.leveling.former;
        former.retain(|key, (serial, _)| is_pending(*key, *serial));
        for key in former.keys().copied().collect::<Vec<_>>() {
            self.end_former(cx, key);
        }
    }

    /// If the new backup of a session has all of it, the former one is to end.
    pub(super) fn end_former(&mut self, cx: &mut Context, key: SessionKey) {
        let Some((serial, node)) = self.leveling.former.get(&key).copied() else {
            return;
        };
        let Some(index) = cx.journal.streams.find(node) else {
            return;
        };
        let Some(session) = cx.sessions.get_same(key, serial) else {
            return;
        };
        let complete = session.stored.backups.complete();
        let is_ready = complete.count() > 1 && session.stored.backups.has(index);
        if !is_ready || !matches!(session.role, Role::Primary) {
            return;
        }
        // The last one of its stage: it is promoted after the others from now on.
        session.stored.backups.set(index, Stage::Complete);
        let number = session.stored.number;
        replicate_replica_set(cx, key);
        if let Some(stream) = cx.journal.streams.get_mut(index) {
            stream.wait(Level::Applied, Release::Replaced(key, number));
        }
    }

    /// The former backup has applied that it comes last.
    pub(super) fn end_replaced(
        &mut self,
        cx: &mut Context,
        key: SessionKey,
        number: u64,
        index: u8,
        progress: Progress,
    ) {
        self.leveling.former.remove(&key);
        let session = cx.sessions.get(key).filter(|it| it.stored.number == number);
        let Some(session) = session.filter(|_| progress != Progress::END) else {
            return;
        };
        let backups = session.stored.backups;
        let is_last = backups
            .complete()
            .last()
            .is_some_and(|it| it.stream == index);
        let is_surplus = backups.complete().count() > 1;
        if is_last && is_surplus && matches!(session.role, Role::Primary) {
            thicket_session::reach!("worker/replication: a backup has moved to level loads");
            end_backup(cx, key, index);
            replicate_replica_set(cx, key);
        }
    }
}

/// Sessions whose backups may move, and what each node would take over.
fn loads(cx: &mut Context, now: Now) -> (Vec<Movable>, BTreeMap<NodeId, u64>) {
    let mut found = Vec::new();
    let mut held = BTreeMap::new();
    let is_steady = |session: &Session| {
        let backups = session.stored.backups;
        session.is_persistent()
            && matches!(session.role, Role::Primary)
            && session.merging.is_none()
            && backups.complete().count() == 1
            && backups.len() == 1
    };
    let Context {
        sessions,
        connections,
        journal,
        ..
    } = cx;
    for (key, session) in sessions.iter().filter(|(_, session)| is_steady(session)) {
        let first = session.stored.backups.iter().next();
        let Some(node) = first.and_then(|first| journal.streams.node_of(first.stream)) else {
            continue;
        };
        let attached = session
            .connection
            .and_then(|id| connections.attached_mut(id));
        let rate = attached.map_or(0, |attached| attached.rate(now.instant));
        let load = SESSION_LOAD + rate;
        *held.entry(node).or_default() += load;
        found.push(Movable {
            load,
            key,
            serial: session.serial,
            node,
        });
    }
    (found, held)
}
