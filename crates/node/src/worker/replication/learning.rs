//! Which nodes hold a session's backups, and how these receive all of it.

use thicket_overlay::{NodeId, NodeSlot, rendezvous_by_weight};
use thicket_session::{server::encode_subscription, topic::TopicFilter};

use super::{state::Primaries, storing::write_whole};
use crate::{
    Now,
    messages::ToHub,
    worker::{
        context::Context,
        state::{
            debts::Debt,
            journal::{write_accepted, write_counters, write_finished, write_held},
            replica::{
                replica_set::{MAXIMUM, Replica, Stage, StoredAs},
                stream::{Level, Progress, Release, Streams},
            },
            sessions::{Session, SessionKey},
        },
    },
};

/// Filters that are considered when a backup is chosen.
const FILTERS: usize = 16;
/// Bytes of one round's record, beyond which full syncs wait for the next round.
pub(super) const RECORD_BYTES: usize = 256 * 1024;

/// Sends a session's backups their replica set: when the primary is down, the first one that is up is promoted. Writes nothing where there is at most
/// one backup: it needs no order.
pub(super) fn write_replica_set(streams: &mut Streams, stored: StoredAs, backups: u8) {
    if backups < 2 && stored.backups.len() < 2 {
        return;
    }
    let nodes = stored.backups.iter();
    let nodes = nodes.filter_map(|backup| streams.node_of(backup.stream));
    let nodes: Vec<u64> = nodes.map(|node| node.0).collect();
    streams.each(stored.backups, |stream| {
        stream.writer.members(stored.number, &nodes);
    });
}

impl Primaries {
    /// Queues sessions without all their backups for a full sync, at the pace of the backups; of sessions that end with their connections the wills.
    pub(super) fn sync_under_replicated(&mut self, cx: &mut Context) {
        let wanted = cx.wanted_backups();
        if wanted == 0 {
            for (key, serial) in std::mem::take(&mut self.to_sync) {
                if cx.sessions.get_same(key, serial).is_some() {
                    report_merged(cx, key);
                }
            }
            return;
        }
        let lacks = |session: &Session| {
            let is_synced = session.stored.backups.synced().count() >= wanted;
            if session.is_persistent() {
                session.role.handed().is_none() && !is_synced
            } else {
                session.has_unreplicated_will()
            }
        };
        self.to_sync = cx
            .sessions
            .iter()
            .filter(|(_, session)| lacks(session))
            .map(|(key, session)| (key, session.serial))
            .collect();
        self.count_shares(cx);
    }

    /// A session that is new to this worker: its backups are synced at once if it is empty, else in its turn.
    pub(in super::super) fn backup_new(&mut self, cx: &mut Context, now: Now, key: SessionKey) {
        self.covers.note_uncovered(cx, key);
        if cx.wanted_backups() == 0 {
            return report_merged(cx, key);
        }
        let Some(session) = cx.sessions.get(key) else {
            return;
        };
        if session.subscriptions.is_empty() && session.outbound.is_empty() {
            self.sync_missing_backups(cx, now, key, &[]);
        } else {
            self.to_sync.push_back((key, session.serial));
        }
    }

    /// A session that holds nothing yet subscribes: its backups move to nodes that have subscribers for its topics already.
    pub(in super::super) fn choose_backup_again(
        &mut self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        filters: &[TopicFilter],
    ) {
        let Some(session) = cx.sessions.get(key) else {
            return;
        };
        let (stored, wanted) = (session.stored, cx.wanted_backups());
        if cx.cluster.up.len() <= wanted
            || stored.backups.complete().count() != wanted
            || !session.subscriptions.is_empty()
            || !session.outbound.is_empty()
        {
            return;
        }
        let mut best = Vec::new();
        while best.len() < wanted
            && let Some(node) = self.backup_of(cx, &session.client_id, filters, &best)
        {
            best.push(node);
        }
        let is_worse = |stream: u8| {
            let node = cx.journal.streams.node_of(stream);
            node.is_none_or(|node| !best.contains(&node))
        };
        let worse: Vec<u8> = (stored.backups.iter())
            .map(|backup| backup.stream)
            .filter(|stream| is_worse(*stream))
            .collect();
        for from in worse {
            self.move_backup(cx, now, key, from, filters);
        }
    }

    /// Moves a session's backup, which holds nothing yet, from the node of a stream to another node.
    fn move_backup(
        &mut self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        from: u8,
        filters: &[TopicFilter],
    ) {
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        let (stored, connection) = (session.stored, session.connection);
        session.stored.backups.remove(from);
        let Some(stream) = cx.journal.streams.get_mut(from) else {
            return;
        };
        let former = Release::Former {
            session: key,
            stream: stream.id,
            number: stored.number,
        };
        self.sync_missing_backups(cx, now, key, filters);
        // What waited for the old backup waits for the new one, which has it before the old one drops it: this node may die in between.
        let backups = cx.sessions.get(key).map(|it| it.stored.backups);
        let is_new = |backup: &Replica| !stored.backups.has(backup.stream);
        let new = backups.unwrap_or_default().iter().find(is_new);
        let new = new
            .and_then(|backup| Some((backup.stream, cx.journal.streams.get_mut(backup.stream)?)));
        let Some((to, stream)) = new else {
            self.release(cx, former, from, Progress::END);
            return;
        };
        stream.wait(Level::Applied, former);
        if let Some(id) = connection
            && let Some(connection) = cx.connections.get_mut(id)
            && connection.out.move_holds(from, to, stream.position())
        {
            stream.wait(Level::Applied, Release::Output(id, connection.serial));
        }
    }

    /// The node that is to hold a backup, beside others: of those below their share, the one that has subscribers for most of the filters. Among
    /// several, the choice is by rendezvous hash weighted by free capacity, so it is the same for a client identifier.
    pub(super) fn backup_of(
        &self,
        cx: &Context,
        client_id: &str,
        filters: &[TopicFilter],
        others: &[NodeId],
    ) -> Option<NodeId> {
        let wanted = |slot: NodeSlot| {
            let is_wanted = |filter: &&TopicFilter| cx.interests.is_wanted_by(slot, filter);
            filters.iter().take(FILTERS).filter(is_wanted).count()
        };
        let all = cx
            .cluster
            .up
            .iter()
            .map(|up| cx.cluster.capability_of(up.node))
            .sum();
        let has_capacity = |node: NodeId| {
            self.shares
                .has_capacity(node, cx.cluster.capability_of(node), all)
        };
        let candidates = || cx.cluster.up.iter().filter(|up| !others.contains(&up.node));
        let is_tight = !candidates().any(|up| has_capacity(up.node));
        let counted: Vec<(usize, NodeId)> = candidates()
            .filter(|up| is_tight || has_capacity(up.node))
            .map(|up| (wanted(up.slot), up.node))
            .collect();
        let most = counted.iter().map(|(count, _)| *count).max()?;
        let best: Vec<(NodeId, u64)> = counted
            .iter()
            .filter(|(count, _)| *count == most)
            .map(|(_, node)| (*node, cx.cluster.capability_of(*node)))
            .collect();
        rendezvous_by_weight(client_id, &best)
    }

    /// Counts how many sessions each node holds.
    fn count_shares(&mut self, cx: &Context) {
        let sessions = cx.sessions.iter();
        let streams = &cx.journal.streams;
        let nodes = sessions.flat_map(|(_, session)| {
            let backups = session.stored.backups;
            let nodes = backups
                .synced()
                .filter_map(|backup| streams.node_of(backup.stream));
            nodes.collect::<Vec<_>>()
        });
        self.shares.recount(nodes);
    }

    /// Sends a full sync to as many nodes as lack one, to adopted backups first. Not without quorum: another node may have been promoted, and
    /// messages for the session there do not arrive here, so that no backup would have all of it.
    pub(super) fn sync_missing_backups(
        &mut self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        filters: &[TopicFilter],
    ) {
        if cx.cluster.is_minority {
            // All are synced when this side has quorum again.
            return;
        }
        let wanted = cx.wanted_backups();
        let mut has_changed = false;
        let session = cx.sessions.get(key);
        if session.is_some_and(|session| session.role.handed().is_some()) {
            return report_merged(cx, key);
        }
        while let Some(session) = cx.sessions.get(key) {
            let backups = session.stored.backups;
            if backups.synced().count() >= wanted {
                break;
            }
            let index = backups.first_adopted().or_else(|| {
                let node = self.choose_backup(cx, key, filters)?;
                cx.stream_to(node)
            });
            let Some(index) = index else {
                break;
            };
            self.full_sync(cx, now, key, index);
            has_changed = true;
        }
        if has_changed {
            replicate_replica_set(cx, key);
        }
        report_merged(cx, key);
    }

    /// A branch was merged into a session. Its backups so far are kept until they have been sent all of it.
    pub(in super::super) fn store_merged(&mut self, cx: &mut Context, now: Now, key: SessionKey) {
        let own = cx.config.node;
        let stored = cx.sessions.get(key).map(|session| session.stored);
        let backups = stored.unwrap_or_default().backups;
        let members: Vec<NodeId> = backups
            .synced()
            .filter_map(|backup| cx.journal.streams.node_of(backup.stream))
            .collect();
        leave_backups(cx, key, own);
        if write_whole(cx, now, key) {
            self.adopt_backups(cx, key, &members);
            self.backup_new(cx, now, key);
        }
    }

    /// The node that is to hold another backup of a session that subscribes to `filters`; if these are empty, to those that it has.
    pub(in super::super) fn choose_backup(
        &mut self,
        cx: &Context,
        key: SessionKey,
        filters: &[TopicFilter],
    ) -> Option<NodeId> {
        if self.shares.is_stale() {
            self.count_shares(cx);
        }
        let node = self.next_backup(cx, key, filters)?;
        self.shares.note(node);
        Some(node)
    }

    fn next_backup(
        &self,
        cx: &Context,
        key: SessionKey,
        filters: &[TopicFilter],
    ) -> Option<NodeId> {
        let session = cx.sessions.get(key)?;
        let backups = session.stored.backups.iter();
        let others = backups.filter_map(|backup| cx.journal.streams.node_of(backup.stream));
        let others: Vec<NodeId> = others.collect();
        if !filters.is_empty() {
            return self.backup_of(cx, &session.client_id, filters, &others);
        }
        let held = session.subscriptions.keys().take(FILTERS);
        let held: Vec<TopicFilter> = held.map(|filter| filter.filter.clone()).collect();
        self.backup_of(cx, &session.client_id, &held, &others)
    }

    /// Sends a node the whole of a session.
    pub(in super::super) fn full_sync(
        &mut self,
        cx: &mut Context,
        now: Now,
        key: SessionKey,
        index: u8,
    ) {
        if let Some(node) = cx.journal.streams.node_of(index) {
            self.covers.backups_go_to(cx, node);
        }
        cx.journal.write_done();
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        if session.stored.number == 0 {
            session.stored.number = cx.journal.next_number();
        }
        let is_empty = session.subscriptions.is_empty() && session.outbound.is_empty();
        let is_known = session.stored.backups.has(index);
        let stage = if is_empty && !is_known {
            Stage::Complete
        } else {
            Stage::Learning
        };
        session.stored.backups.set(index, stage);
        let number = session.stored.number;
        let Some(stream) = cx.journal.streams.get_mut(index) else {
            return;
        };
        let part_bytes = cx.config.sync_part_bytes;
        stream
            .writer
            .value(now.times_of_day(), number, &session.value());
        for (filter, subscribed) in &session.subscriptions {
            stream
                .writer
                .subscribed(number, &encode_subscription(filter, subscribed));
            stream.divide_sync(part_bytes);
        }
        write_accepted(&mut stream.writer, session);
        write_counters(&mut stream.writer, session);
        write_finished(&mut stream.writer, session);
        for held in session.outbound.held_from(0) {
            write_held(&mut stream.writer, now, number, &held, 0);
            stream.divide_sync(part_bytes);
        }
        if stage == Stage::Learning {
            stream.writer.whole(number);
            stream.wait(Level::Held, Release::Learned(key, number));
        } else {
            stream.note_covered();
        }
    }
}

/// A merge is reported as soon as the backups have what was merged into the session.
fn report_merged(cx: &mut Context, key: SessionKey) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let Some(request) = session.merge_to_report.take() else {
        return;
    };
    let streams = &cx.journal.streams;
    let backups: Vec<u8> = (session.stored.backups.synced())
        .map(|backup| backup.stream)
        .filter(|index| streams.node_of(*index).is_some())
        .collect();
    if backups.is_empty() {
        return cx.send_to_hub(ToHub::Imported { request });
    }
    cx.wait_for_streams(&backups, (Debt::Merge(request), None));
}

/// See [`write_replica_set`].
pub(in super::super) fn replicate_replica_set(cx: &mut Context, key: SessionKey) {
    if let Some(session) = cx.sessions.get(key) {
        let (stored, backups) = (session.stored, cx.config.backups);
        write_replica_set(&mut cx.journal.streams, stored, backups);
    }
}

/// If a session has as many backups as it may have, the last one ends, for one at the node of another stream.
pub(in super::super) fn end_last_backup_if_full(cx: &mut Context, key: SessionKey, index: u8) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let backups = session.stored.backups;
    if backups.len() == MAXIMUM
        && !backups.has(index)
        && let Some(last) = backups.iter().last()
    {
        end_backup(cx, key, last.stream);
    }
}

/// Ends the backups beyond those that a session is to have.
pub(in super::super) fn end_surplus_backups(cx: &mut Context, key: SessionKey) {
    let wanted = cx.wanted_backups();
    while let Some(session) = cx.sessions.get(key)
        && session.stored.backups.synced().count() > wanted
    {
        if let Some(last) = session.stored.backups.synced().last() {
            end_backup(cx, key, last.stream);
        }
    }
}

/// Ends the backup at the node of a stream.
pub(in super::super) fn end_backup(cx: &mut Context, key: SessionKey, index: u8) {
    cx.journal.write_done();
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    session.stored.backups.remove(index);
    if let Some(stream) = cx.journal.streams.get_mut(index) {
        stream.writer.ended(session.stored.number);
    }
}

/// Ends adopted backups once as many backups as are wanted have all of the session.
pub(super) fn end_adopted_backups(cx: &mut Context, key: SessionKey) {
    let wanted = cx.wanted_backups();
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    if session.stored.backups.complete().count() < wanted {
        return;
    }
    while let Some(index) = session.stored.backups.first_adopted() {
        session.stored.backups.remove(index);
        if let Some(stream) = cx.journal.streams.get_mut(index) {
            stream.writer.ended(session.stored.number);
        }
    }
}

/// `to` is the primary, or was handed the session. The other backups stay until `to` has fully synced them. The backup at `to` stays as well,
/// because the session here may be evicted before `to` has taken over.
pub(in super::super) fn leave_backups(cx: &mut Context, key: SessionKey, to: NodeId) {
    cx.journal.write_done();
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let StoredAs { number, backups } = session.stored;
    for backup in backups.synced() {
        if let Some(stream) = cx.journal.streams.get_mut(backup.stream) {
            if stream.node != to {
                stream.writer.left(number);
            }
            session.stored.backups.remove(backup.stream);
        }
    }
}
