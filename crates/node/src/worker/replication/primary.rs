//! The primary's side: what it replicates to the nodes that hold backups, and what waits for them.

use std::{cell::Cell, collections::BTreeSet, rc::Rc, sync::Arc};

use thicket_overlay::NodeId;
use thicket_session::server::MessageStream;

use super::{
    acknowledgements::wait_for_synced,
    learning::{RECORD_BYTES, end_adopted_backups, replicate_replica_set, write_replica_set},
    orphans::strike_successors,
    state::Primaries,
};
use crate::{
    ConnectionId, Now,
    marks::Mark,
    messages::{Absence, BackupReport, ToHub, UpNode},
    queue::History,
    worker::{
        Worker,
        context::Context,
        state::{
            barriers::{Behind, Learned},
            journal::write_missing,
            replica::{
                replica_set::{Stage, StoredAs},
                stream::{Level, Operation, Progress, Release},
            },
            sessions::{Session, SessionKey},
        },
    },
};

impl Primaries {
    /// The other nodes that are up have changed, or those that belong to the cluster. `before`: those that were up.
    pub(in super::super) fn handle_nodes(&mut self, cx: &mut Context, now: Now, before: &[UpNode]) {
        let cluster = Arc::clone(&cx.cluster);
        let is_up = |node: NodeId| cluster.up.iter().any(|up| up.node == node);
        let gone: Vec<NodeId> = cx
            .journal
            .streams
            .iter_mut()
            .map(|(_, stream)| stream.node)
            .filter(|node| !is_up(*node))
            .collect();
        let has_lost = before.iter().any(|up| !is_up(up.node));
        let was_up = |node: NodeId| before.iter().any(|up| up.node == node);
        for (stream, mark) in &mut cx.arrivals.marks {
            let node = NodeId(stream.node);
            if is_up(node) && !was_up(node) {
                mark.restart(now.instant);
            }
        }
        if has_lost && !self.is_partitioned(now.instant) {
            // The branches of an earlier partition have been merged since.
            for (_, session) in cx.sessions.iter_mut() {
                session.divergence = None;
                cx.journal.forget_finished(session);
            }
        }
        self.see(cx, now.instant, cluster.members.iter().copied().collect());
        if self.is_partitioned(now.instant) {
            let sessions = cx.sessions.iter_mut().map(|(_, session)| session);
            for session in sessions.filter(|session| session.is_persistent()) {
                session.outbound.record_finished();
            }
        }
        for node in gone {
            self.void.insert(node);
            self.lose_backups(cx, node);
        }
        if has_lost {
            strike_successors(cx);
        }
        let back: Vec<_> = self.void.iter().copied().filter(|it| is_up(*it)).collect();
        for node in back {
            self.void.remove(&node);
            restart_stream(cx, node);
        }
        self.adopt_backups_of_reachable_nodes(cx);
        self.sync_under_replicated(cx);
        self.covers.look_for_uncovered();
    }

    /// A node had declared this one down, unnoticed here: what it sent meanwhile counts as not received, as if it had been down here too. Otherwise
    /// messages that only its branches of sessions hold would be taken for received here, and be lost.
    ///
    /// Connections that ended while this node stood still count as ended before that: their clients may have been elsewhere since, and that takes
    /// precedence over what they had done here.
    pub(in super::super) fn note_absence(
        &mut self,
        cx: &mut Context,
        now: Now,
        node: NodeId,
        absence: Absence,
    ) {
        if let Some((from, until)) = absence.paused {
            for (_, session) in cx.sessions.iter_mut() {
                if session.disconnected_at.is_some_and(|at| at >= until) {
                    session.disconnected_at = Some(from);
                }
            }
        }
        let of_node = |(stream, _): &(&MessageStream, &mut Mark)| stream.node == node.0;
        thicket_session::reach!("worker/replication: a node had given this one up");
        for (_, mark) in cx.arrivals.marks.iter_mut().filter(of_node) {
            mark.restart(now.instant);
        }
        self.note_partition(now.instant);
    }

    /// Sends full syncs of sessions whose turn it is, and the records of this round. Returns the nodes that are too far behind.
    fn seal(&mut self, cx: &mut Context, now: Now) -> Vec<NodeId> {
        if self.to_sync.is_empty()
            && cx.journal.streams.is_empty()
            && cx.debts.until_replicated.is_empty()
        {
            return Vec::new();
        }
        cx.journal.write_done();
        while let Some((key, serial)) = self.to_sync.front().copied() {
            let is_blocked =
                cx.journal.streams.iter_mut().any(|(_, stream)| {
                    !stream.has_capacity() || stream.writer.len() > RECORD_BYTES
                });
            if is_blocked {
                break;
            }
            self.to_sync.pop_front();
            match cx.sessions.get_same(key, serial) {
                Some(session) if !session.is_persistent() => self.backup_will(cx, now, key),
                Some(_) => self.sync_missing_backups(cx, now, key, &[]),
                None => {}
            }
        }
        let is_syncing = !(self.to_sync.is_empty() && self.learners.is_empty());
        wait_for_synced(cx, is_syncing);
        let mut messages = Vec::new();
        let mut overrun = Vec::new();
        for (_, stream) in cx.journal.streams.iter_mut() {
            stream.end_round();
            while let Some((position, record)) = stream.next_to_send(now.instant) {
                messages.push(ToHub::Replicate {
                    to: stream.node,
                    stream: stream.id,
                    position,
                    record,
                });
            }
            if stream.is_overrun() {
                overrun.push(stream.node);
            }
        }
        for content in messages {
            cx.send_to_hub(content);
        }
        overrun
    }

    /// The backups at a node report on a stream; reports on a stream that has ended are ignored.
    pub(in super::super) fn handle_backup_report(
        &mut self,
        cx: &mut Context,
        now: Now,
        node: NodeId,
        id: u64,
        report: BackupReport,
    ) {
        let Some(index) = cx.journal.streams.find(node) else {
            return;
        };
        if cx.journal.streams.get(index).is_none_or(|it| it.id != id) {
            return;
        }
        match report {
            BackupReport::Held { applied, held } => {
                self.handle_progress(cx, index, Progress { applied, held });
            }
            BackupReport::Missing(missing) => send_missing(cx, now, index, &missing),
            BackupReport::Misrouted(misrouted) => self.misrouted.push((index, misrouted)),
        }
    }

    fn lose_backups(&mut self, cx: &mut Context, node: NodeId) {
        let Some(index) = cx.journal.streams.find(node) else {
            return;
        };
        cx.journal.write_done();
        for release in cx.journal.streams.end(index) {
            self.release(cx, release, index, Progress::END);
        }
        self.covers.have_uncovered(cx);
        for (_, session) in cx.sessions.iter_mut() {
            session.will_backup.take_if(|backup| backup.stream == index);
            if !session.stored.backups.remove(index) {
                continue;
            }
            write_replica_set(&mut cx.journal.streams, session.stored, cx.config.backups);
        }
    }

    /// A stream is applied, and held, up to these positions.
    fn handle_progress(&mut self, cx: &mut Context, index: u8, progress: Progress) {
        let Some(stream) = cx.journal.streams.get_mut(index) else {
            return;
        };
        for release in stream.handle_progress(progress) {
            self.release(cx, release, index, progress);
        }
        cover_when_all_has_come(cx, index);
    }

    pub(super) fn release(
        &mut self,
        cx: &mut Context,
        release: Release,
        index: u8,
        progress: Progress,
    ) {
        match release {
            Release::Output(id, serial) => {
                let connection = cx.connections.get_mut(id);
                if let Some(connection) = connection.filter(|it| it.serial == serial) {
                    connection.out.release_held(index, progress);
                    cx.connections.mark_dirty(id);
                }
            }
            Release::Input(id, serial, count) => {
                count.set(count.get() - 1);
                if count.get() == 0 && cx.connections.is_same(id, serial) {
                    cx.effort.resume(id);
                }
            }
            Release::Debt(debt) => cx.debts.meet(debt),
            Release::Operation(operation) => {
                let Operation {
                    session,
                    serial,
                    filter,
                } = *operation;
                let session = cx.sessions.get_same(session, serial);
                if let Some(session) = session.filter(|_| progress == Progress::END) {
                    session.divergence_mut().touch(filter.clone());
                    cx.journal.touched(session.stored, &filter);
                }
            }
            Release::Replaced(key, number) => {
                self.end_replaced(cx, key, number, index, progress);
            }
            Release::WillForgotten(client_id) => self.pending_wills.note_forgotten(client_id),
            Release::Former {
                session,
                stream: id,
                number,
            } => {
                cx.journal.write_done();
                let stored = cx.sessions.get(session).map(|session| session.stored);
                let stored = stored.filter(|stored| stored.number == number);
                let backups = stored.map(|stored| stored.backups).unwrap_or_default();
                let mut streams = cx.journal.streams.iter_mut();
                if let Some((index, stream)) = streams.find(|(_, stream)| stream.id == id)
                    && !backups.has(index)
                {
                    stream.writer.ended(number);
                }
            }
            Release::Learned(key, number) => {
                let stored = cx.sessions.get(key).map(|session| session.stored);
                let is_same =
                    |stored: &StoredAs| stored.number == number && stored.backups.has(index);
                if stored.is_some_and(|stored| is_same(&stored))
                    && let Some(stream) = cx.journal.streams.get_mut(index)
                {
                    stream.learned.push((key, number));
                }
            }
        }
    }

    /// All that was on its way here when a barrier began has arrived.
    pub(in super::super) fn cover_learned(&mut self, cx: &mut Context, now: Now, learned: Learned) {
        let Learned { stream, sessions } = learned;
        // A node that considers this one down sends to the backups only, so they need the list of what reached each session here.
        let is_partitioned = self.is_partitioned(now.instant);
        let streams = is_partitioned.then(|| cx.marks_of_streams());
        let found = cx
            .journal
            .streams
            .iter_mut()
            .find(|(_, it)| it.id == stream);
        let Some((index, stream)) = found else { return };
        stream.has_barrier = false;
        let mut covered = Vec::new();
        for (key, number) in sessions {
            if let Some(session) = cx.sessions.get_mut(key)
                && session.stored.number == number
                && session.stored.backups.has(index)
            {
                session.stored.backups.set(index, Stage::Complete);
                session.end_interruption();
                if let Some(streams) = &streams {
                    let reached = session.marks_with(streams, &cx.arrivals.marks);
                    let history = History::of_marks(reached);
                    let history = history.encode();
                    stream.writer.history(number, &history);
                }
                stream.writer.covered(number);
                stream.note_covered();
                covered.push(key);
            }
        }
        for key in covered {
            end_adopted_backups(cx, key);
            replicate_replica_set(cx, key);
            self.end_former(cx, key);
            self.hand_over_if_covered(cx, now, key, index);
        }
        self.covers.have_covered();
        cover_when_all_has_come(cx, index);
    }

    /// Number of under-replicated sessions, measured by the nodes that are up (rule 6 between nodes). A clean session counts while no other node
    /// holds its will. So does each will of a lost node's client that is being published here and that no other node holds.
    pub(in super::super) fn under_replicated_sessions(&self, cx: &Context) -> u64 {
        let wanted = cx.wanted_backups();
        if wanted == 0 {
            return 0;
        }
        let lacks = |session: &Session| {
            if session.is_persistent() {
                // A session that was handed over stays here until the other node reports that it has it.
                session.role.is_frozen() || session.stored.backups.complete().count() < wanted
            } else {
                session.lacks_will_backup(&cx.journal.streams)
            }
        };
        let all = cx.sessions.iter();
        let lacking = all.filter(|(_, session)| lacks(session)).count() as u64;
        lacking + cx.journal.streams.covering() + self.wills_without_holder(cx)
    }
}

/// Lets a connection wait, with what it has sent, until all backups of its session have what was written so far. `false`: there are none.
pub(in super::super) fn hold_input(cx: &mut Context, id: ConnectionId, key: SessionKey) -> bool {
    let stored = cx.sessions.get(key).map(|session| session.stored);
    let backups = stored.map(|stored| stored.backups).unwrap_or_default();
    let count = backups.synced().count() as u8;
    let Some(connection) = cx.connections.get_mut(id).filter(|_| count > 0) else {
        return false;
    };
    connection.is_unfinished = true;
    let serial = connection.serial;
    let count = Rc::new(Cell::new(count));
    cx.journal.write_done();
    for backup in backups.synced() {
        match cx.journal.streams.get_mut(backup.stream) {
            Some(stream) => stream.wait(
                Level::Applied,
                Release::Input(id, serial, Rc::clone(&count)),
            ),
            None => count.set(count.get() - 1),
        }
    }
    cx.set_reading(id, false);
    if count.get() == 0 {
        cx.effort.resume(id);
    }
    true
}

impl Worker {
    /// What was sent to a node may be lost: if the node is still up, it gets a new stream with full syncs.
    pub(in super::super) fn handle_backups_lost(&mut self, now: Now, node: NodeId) {
        let had_stream = self.cx.journal.streams.find(node).is_some();
        self.primaries.lose_backups(&mut self.cx, node);
        if had_stream && self.cx.is_up(node) {
            restart_stream(&mut self.cx, node);
            self.switch_again(now, node);
        }
        self.primaries.sync_under_replicated(&mut self.cx);
    }

    /// Sends what backups and learners are to have of this round. Once a round, when all of it is stored.
    pub(in super::super) fn seal_backups(&mut self, now: Now) {
        self.sync_learners(now);
        for node in self.primaries.seal(&mut self.cx, now) {
            thicket_session::reach!("worker/replication: a backup is too far behind");
            self.handle_backups_lost(now, node);
        }
    }
}

/// Begins the new stream even if there is nothing to replicate: what the backup holds from the old one is void.
fn restart_stream(cx: &mut Context, node: NodeId) {
    let begun = cx.stream_to(node);
    if let Some(stream) = begun.and_then(|index| cx.journal.streams.get_mut(index)) {
        stream.writer.ended(0);
    }
}

/// A session is covered only when all messages have arrived here that were sent before every node also sent to the backup.
fn cover_when_all_has_come(cx: &mut Context, index: u8) {
    let Some(stream) = cx.journal.streams.get_mut(index) else {
        return;
    };
    if stream.has_barrier || stream.learned.is_empty() {
        return;
    }
    stream.has_barrier = true;
    let learned = Learned {
        stream: stream.id,
        sessions: std::mem::take(&mut stream.learned),
    };
    cx.begin_barrier(Behind::Learned(learned));
}

/// A backup lacks messages that the stream named: it is sent each of them whole, with its publication identity, or that it is finished. Other
/// publications that the session accepted are not sent: if this node goes down now, the backup drops the messages that it still lacks, and must
/// accept them as new when they are sent again.
fn send_missing(cx: &mut Context, now: Now, index: u8, missing: &[(u64, u64)]) {
    let numbers: BTreeSet<u64> = missing.iter().map(|(number, _)| *number).collect();
    cx.journal.write_done();
    let Some(stream) = cx.journal.streams.get_mut(index) else {
        return;
    };
    for (_, session) in cx.sessions.iter() {
        let number = session.stored.number;
        let is_here = session.stored.backups.has(index);
        if !is_here || !numbers.contains(&number) {
            continue;
        }
        let sequences = missing.iter().filter(|(of, _)| *of == number);
        for (_, sequence) in sequences {
            let mut from = session.outbound.held_from(*sequence);
            match from.next().filter(|held| held.sequence() == *sequence) {
                Some(held) => write_missing(&mut stream.writer, now, number, &held),
                None => stream.writer.dropped(number, *sequence),
            }
        }
    }
}
