//! The owner's side: which node holds a session's copy, what it is told, and what waits for it.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
};

use thicket_overlay::{NodeId, NodeSlot, rendezvous};
use thicket_session::{server::encode_subscription, time::Instant, topic::TopicFilter};

use super::{Copy, Level, Operation, Progress, Release, StoredAs, Streams, wills::Going};
use crate::{
    ConnectionId, Now, Peer,
    mail::Content,
    queue::SETTLED,
    worker::{
        Debt, SessionKey, Worker,
        connection::Connection,
        deliver::Outgoing,
        journal::{write_held, write_messages},
        sessions::Session,
    },
};

/// Filters that are looked at when a backup is chosen.
const FILTERS: usize = 16;
/// Bytes of one round's record, beyond which sessions are told anew in the next one.
const RECORD_BYTES: usize = 256 * 1024;

/// What a worker knows as owner.
#[derive(Debug, Default)]
pub(in super::super) struct Owned {
    /// The other nodes that are up.
    pub nodes: Vec<(NodeId, NodeSlot)>,
    /// Sessions to be told whole to a backup, with their serials.
    to_tell: VecDeque<(SessionKey, u64)>,
    behind_barriers: BTreeMap<u64, Behind>,
    next_barrier: u64,
    pub(super) going: Going,
    /// All nodes that were ever up.
    ever: BTreeSet<NodeId>,
    /// One of them has been out.
    was_apart: bool,
    /// Since when all of them are up; `None`: they are not.
    whole_since: Option<Instant>,
}

impl Owned {
    /// Whether nodes are out of sight, or were a moment ago, so that another one may have sessions that are here.
    pub fn is_apart(&self, now: Instant) -> bool {
        let is_settled = |since: Instant| since + SETTLED <= now;
        self.was_apart && !self.whole_since.is_some_and(is_settled)
    }

    /// A node that is out will not come back.
    pub fn forget(&mut self, now: Instant, node: NodeId) {
        self.ever.remove(&node);
        self.see(now);
    }

    /// Other nodes are up than before.
    fn see(&mut self, now: Instant) {
        self.ever.extend(self.nodes.iter().map(|(node, _)| *node));
        let is_whole = self.nodes.len() == self.ever.len();
        self.was_apart |= !is_whole;
        self.whole_since = self.whole_since.or(Some(now)).filter(|_| is_whole);
    }

    /// A number for a barrier, of this worker as owner or as backup.
    pub const fn next_barrier(&mut self) -> u64 {
        self.next_barrier += 1;
        self.next_barrier
    }
}

/// What is covered when a barrier has been passed.
#[derive(Debug)]
struct Behind {
    /// The stream by which the sessions were told.
    stream: u64,
    /// With their numbers.
    sessions: Vec<(SessionKey, u64)>,
}

/// Has what is appended to the connection from now on wait until the session's backup has what was written so far.
pub(in super::super) fn hold(
    streams: &mut Streams,
    connection: &mut Connection,
    id: ConnectionId,
    stored: StoredAs,
    level: Level,
) {
    if let Some(copy) = stored.copy.filter(|copy| copy.is_covered) {
        hold_at(streams, copy.stream, connection, id, level);
    }
}

/// See [`hold`]; for the node of a stream.
pub(super) fn hold_at(
    streams: &mut Streams,
    index: u8,
    connection: &mut Connection,
    id: ConnectionId,
    level: Level,
) {
    let Some(stream) = streams.get_mut(index) else {
        return;
    };
    let position = stream.position();
    if !stream.has(position, level) && connection.out.hold(position, level) {
        stream.wait(level, Release::Output(id, connection.serial));
    }
}

impl Worker {
    /// See [`hold`].
    pub(in super::super) fn hold_output(&mut self, id: ConnectionId, key: SessionKey) {
        self.hold_output_until(id, key, Level::Applied);
    }

    /// See [`hold`].
    pub(in super::super) fn hold_output_until(
        &mut self,
        id: ConnectionId,
        key: SessionKey,
        level: Level,
    ) {
        if !self.config.waits_for_copies || self.journal.streams.is_empty() {
            return;
        }
        let Some(stored) = self.sessions.get(key).map(|session| session.stored) else {
            return;
        };
        self.journal.write_done();
        if let Some(connection) = self
            .connections
            .get_mut(id.0 as usize)
            .and_then(Option::as_deref_mut)
        {
            hold(&mut self.journal.streams, connection, id, stored, level);
        }
    }

    /// What is owed for a message waits for the copies of those sessions that alone got it; how many they are.
    pub(in super::super) fn wait_for_copies(
        &mut self,
        outgoing: &Outgoing<'_>,
        debt: Option<Debt>,
    ) -> u16 {
        let Some(debt) = debt.filter(|_| outgoing.waits_for > 0 && self.config.waits_for_copies)
        else {
            return 0;
        };
        let count = outgoing.waits_for.count_ones() as u8;
        // A publisher's acknowledgement counts what it waits for itself, and so does a will.
        let shared = match debt {
            Debt::Sender { .. } if count > 1 => Some(Rc::new(Cell::new(count))),
            Debt::Sender { .. } | Debt::Publisher(_) | Debt::Will(_) => None,
        };
        for index in 0..u64::BITS as u8 {
            if outgoing.waits_for & (1 << index) != 0
                && let Some(stream) = self.journal.streams.get_mut(index)
            {
                stream.wait(Level::Applied, Release::Debt(debt, shared.clone()));
            }
        }
        u16::from(count)
    }

    /// The other nodes that are up have changed.
    pub(in super::super) fn handle_nodes(&mut self, now: Now, nodes: Vec<(NodeId, NodeSlot)>) {
        let is_up = |node: NodeId| nodes.iter().any(|(up, _)| *up == node);
        let gone: Vec<NodeId> = self
            .journal
            .streams
            .iter_mut()
            .map(|(_, stream)| stream.node)
            .filter(|node| !is_up(*node))
            .collect();
        let has_lost = (self.owned.nodes.iter()).any(|(node, _)| !is_up(*node));
        let was_up = |node: NodeId| self.owned.nodes.iter().any(|(up, _)| *up == node);
        for (stream, mark) in &mut self.marks {
            let node = NodeId(stream.0);
            if is_up(node) && !was_up(node) {
                mark.restart(now.instant);
            }
        }
        if has_lost && !self.owned.is_apart(now.instant) {
            // What two nodes had after an earlier parting has become one since.
            for (_, session) in self.sessions.iter_mut() {
                session.apart = None;
            }
        }
        self.owned.nodes = nodes;
        self.owned.see(now.instant);
        for node in gone {
            self.lose_copies(node);
        }
        self.tell_uncopied();
        self.choose_instead_of_gone(now);
    }

    /// What a node was told may be lost: if it is still up it is told everything anew.
    pub(in super::super) fn handle_copies_lost(&mut self, node: NodeId) {
        let had_stream = self.journal.streams.find(node).is_some();
        self.lose_copies(node);
        if had_stream && self.owned.nodes.iter().any(|(up, _)| *up == node) {
            // The backup hears of the new stream even if there is nothing to tell: what it holds by the old one is void.
            let begun = self.stream_to(node);
            if let Some(stream) = begun.and_then(|index| self.journal.streams.get_mut(index)) {
                stream.writer.ended(0);
            }
        }
        self.tell_uncopied();
    }

    /// The stream to a node, begun if there is none; `None`: there are too many.
    pub(super) fn stream_to(&mut self, node: NodeId) -> Option<u8> {
        let random = &mut self.random;
        let streams = &mut self.journal.streams;
        streams.find_or_begin(node, || random.next_u64())
    }

    fn lose_copies(&mut self, node: NodeId) {
        let Some(index) = self.journal.streams.find(node) else {
            return;
        };
        self.journal.write_done();
        for release in self.journal.streams.end(index) {
            self.release(release, Progress::END);
        }
        for (_, session) in self.sessions.iter_mut() {
            session.will_copy.take_if(|copy| copy.stream == index);
            let lost = session.stored.copy.take_if(|copy| copy.stream == index);
            if lost.is_some() && session.handed_at.take().is_some() {
                // It is handed over again when it has another copy.
                session.is_frozen = session.is_leaving;
            }
        }
    }

    /// Sessions without a copy are told to a backup, as fast as it takes them; of those that end with their connections the wills.
    fn tell_uncopied(&mut self) {
        if self.owned.nodes.is_empty() || self.config.backups == 0 {
            self.owned.to_tell.clear();
            return;
        }
        let uncopied = |session: &Session| {
            if session.is_persistent() {
                session.stored.copy.is_none() && !session.awaits_queue
            } else {
                session.will_copy.is_none() && session.has_passing_will()
            }
        };
        self.owned.to_tell = self
            .sessions
            .iter()
            .filter(|(_, session)| uncopied(session))
            .map(|(key, session)| (key, session.serial))
            .collect();
    }

    /// A session that is new to this worker: a backup is told at once if there is nothing to tell, else in its turn.
    pub(in super::super) fn copy_new(&mut self, now: Now, key: SessionKey) {
        if self.owned.nodes.is_empty() || self.config.backups == 0 {
            return;
        }
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        if session.subscriptions.is_empty() && session.outbound.is_empty() {
            self.tell_whole(now, key, &[]);
        } else {
            self.owned.to_tell.push_back((key, session.serial));
        }
    }

    /// A session that holds nothing yet subscribes: its copy goes where the topics are wanted already.
    pub(in super::super) fn choose_backup_again(
        &mut self,
        now: Now,
        key: SessionKey,
        filters: &[TopicFilter],
    ) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let stored = session.stored;
        if self.owned.nodes.len() < 2
            || !stored.is_covered()
            || !session.subscriptions.is_empty()
            || !session.outbound.is_empty()
        {
            return;
        }
        let best = self.backup_of(&session.client_id, filters);
        let Some(stream) = self.journal.streams.of(stored) else {
            return;
        };
        if best.is_none_or(|best| best == stream.node) {
            return;
        }
        let former = Release::Former {
            session: key,
            stream: stream.id,
            number: stored.number,
        };
        let connection = session.connection;
        if let Some(session) = self.sessions.get_mut(key) {
            session.stored.copy = None;
        }
        self.tell_whole(now, key, filters);
        // What waited for the one waits for the other, which has it before the one drops it: this node may die in between.
        let copy = self
            .sessions
            .get(key)
            .and_then(|session| session.stored.copy);
        let stream = copy.and_then(|copy| self.journal.streams.get_mut(copy.stream));
        let Some(stream) = stream else {
            self.release(former, Progress::END);
            return;
        };
        stream.wait(Level::Applied, former);
        if let Some(id) = connection
            && let Some(connection) = self
                .connections
                .get_mut(id.0 as usize)
                .and_then(Option::as_deref_mut)
            && connection.out.move_holds(stream.position())
        {
            stream.wait(Level::Applied, Release::Output(id, connection.serial));
        }
    }

    /// The node that is to hold the copy: where most of the filters are wanted already; of several the one that the client
    /// identifier falls to.
    pub(super) fn backup_of(&self, client_id: &str, filters: &[TopicFilter]) -> Option<NodeId> {
        let wanted = |slot: NodeSlot| {
            let is_wanted = |filter: &&TopicFilter| self.interests.is_wanted_by(slot, filter);
            filters.iter().take(FILTERS).filter(is_wanted).count()
        };
        let counted: Vec<(usize, NodeId)> = self
            .owned
            .nodes
            .iter()
            .map(|(node, slot)| (wanted(*slot), *node))
            .collect();
        let most = counted.iter().map(|(count, _)| *count).max()?;
        let best: Vec<NodeId> = counted
            .iter()
            .filter(|(count, _)| *count == most)
            .map(|(_, node)| *node)
            .collect();
        rendezvous(client_id, &best)
    }

    /// Tells a backup the whole of a session.
    fn tell_whole(&mut self, now: Now, key: SessionKey, filters: &[TopicFilter]) {
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let held: Vec<TopicFilter> = session
            .subscriptions
            .keys()
            .take(FILTERS)
            .map(|filter| filter.filter.clone())
            .collect();
        let filters = if filters.is_empty() { &held } else { filters };
        let Some(node) = self.backup_of(&session.client_id, filters) else {
            return;
        };
        let Some(index) = self.stream_to(node) else {
            return;
        };
        self.journal.write_done();
        let number = self.journal.next_number();
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.stored.number == 0 {
            session.stored.number = number;
        }
        let is_empty = session.subscriptions.is_empty() && session.outbound.is_empty();
        session.stored.copy = Some(Copy {
            stream: index,
            is_covered: is_empty,
        });
        let number = session.stored.number;
        let Some(stream) = self.journal.streams.get_mut(index) else {
            return;
        };
        stream.writer.value(number, &session.value(now).encode());
        for (filter, subscription) in &session.subscriptions {
            stream
                .writer
                .subscribed(number, &encode_subscription(filter, subscription));
        }
        for (uid, taken) in session.taken.iter() {
            stream.writer.taken(number, uid, taken.highest, &taken.bits);
        }
        write_messages(&mut stream.writer, now, session);
        if !is_empty {
            stream.writer.whole(number);
            stream.wait(Level::Held, Release::Learned(key, number));
        }
    }

    /// Sessions whose turn it is are told, and the records of this round leave. Once a round, when all of it is stored.
    pub(in super::super) fn seal_copies(&mut self, now: Now) {
        if self.owned.to_tell.is_empty() && self.journal.streams.is_empty() {
            return;
        }
        self.journal.write_done();
        while let Some((key, serial)) = self.owned.to_tell.front().copied() {
            let is_blocked = self
                .journal
                .streams
                .iter_mut()
                .any(|(_, stream)| !stream.has_room() || stream.writer.len() > RECORD_BYTES);
            if is_blocked {
                break;
            }
            self.owned.to_tell.pop_front();
            match self.sessions.get_same(key, serial) {
                Some(session) if !session.is_persistent() => self.copy_will(now, key),
                Some(session) if session.stored.copy.is_none() => self.tell_whole(now, key, &[]),
                Some(_) | None => {}
            }
        }
        let mut mail = Vec::new();
        let mut overrun = Vec::new();
        for (_, stream) in self.journal.streams.iter_mut() {
            if let Some((position, record)) = stream.seal() {
                mail.push(Content::Copy {
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
        for content in mail {
            self.mail(Peer::Hub, content);
        }
        for node in overrun {
            self.handle_copies_lost(node);
        }
    }

    /// A backup says how far it is.
    pub(in super::super) fn handle_copies_held(
        &mut self,
        node: NodeId,
        id: u64,
        progress: Progress,
    ) {
        let Some(index) = self.journal.streams.find(node) else {
            return;
        };
        let Some(stream) = self.journal.streams.get_mut(index) else {
            return;
        };
        if stream.id != id {
            return;
        }
        for release in stream.handle_progress(progress) {
            self.release(release, progress);
        }
        self.begin_barrier(index);
    }

    fn release(&mut self, release: Release, progress: Progress) {
        match release {
            Release::Output(id, serial) => {
                let connection = self.connection_mut(id);
                if let Some(connection) = connection.filter(|it| it.serial == serial) {
                    connection.out.release_held(progress);
                    self.mark_dirty(id);
                }
            }
            Release::Debt(debt, None) => self.met.push(debt),
            Release::Debt(debt, Some(count)) => {
                count.set(count.get() - 1);
                if count.get() == 0 {
                    self.met.push(debt);
                }
            }
            Release::Operation(operation) => {
                let Operation {
                    session,
                    serial,
                    filter,
                } = *operation;
                let session = self.sessions.get_same(session, serial);
                if let Some(session) = session.filter(|_| progress == Progress::END) {
                    session.apart_mut().touch(filter);
                }
            }
            Release::Frozen(request) => self.tell_ended(request),
            Release::WillForgotten => self.will_is_forgotten(),
            Release::Former {
                session,
                stream: id,
                number,
            } => {
                self.journal.write_done();
                let stored = self.sessions.get(session).map(|session| session.stored);
                let stored = stored.filter(|stored| stored.number == number);
                let mut streams = self.journal.streams.iter_mut();
                if let Some((index, stream)) = streams.find(|(_, stream)| stream.id == id)
                    && stored
                        .and_then(|stored| stored.copy)
                        .is_none_or(|copy| copy.stream != index)
                {
                    stream.writer.ended(number);
                }
            }
            Release::Learned(key, number) => {
                let stored = self.sessions.get(key).map(|session| session.stored);
                let Some(stored) = stored.filter(|stored| stored.number == number) else {
                    return;
                };
                if let Some(stream) = self.journal.streams.of(stored) {
                    stream.learned.push((key, number));
                }
            }
        }
    }

    /// What was sent here before everybody sent to the backup too must have come before the sessions are covered.
    fn begin_barrier(&mut self, index: u8) {
        let Some(stream) = self.journal.streams.get_mut(index) else {
            return;
        };
        if stream.has_barrier || stream.learned.is_empty() {
            return;
        }
        stream.has_barrier = true;
        let behind = Behind {
            stream: stream.id,
            sessions: std::mem::take(&mut stream.learned),
        };
        let barrier = self.owned.next_barrier();
        self.owned.behind_barriers.insert(barrier, behind);
        self.mail_after_records(Peer::Hub, Content::CopyBarrier { barrier });
    }

    /// All that was on its way here when the barrier began has come.
    pub(in super::super) fn copy_barrier_passed(&mut self, barrier: u64) {
        let Some(Behind { stream, sessions }) = self.owned.behind_barriers.remove(&barrier) else {
            self.backup_barrier_passed(barrier);
            return;
        };
        let found = self
            .journal
            .streams
            .iter_mut()
            .find(|(_, it)| it.id == stream);
        let Some((index, stream)) = found else { return };
        stream.has_barrier = false;
        for (key, number) in sessions {
            if let Some(session) = self.sessions.get_mut(key)
                && session.stored.number == number
                && let Some(copy) = &mut session.stored.copy
                && copy.stream == index
            {
                copy.is_covered = true;
                session.interrupted_at = 0;
                stream.writer.covered(number);
            }
        }
        self.begin_barrier(index);
    }

    /// A backup lacks messages that the stream named: it gets them whole, or hears that they are done with.
    pub(in super::super) fn handle_copies_wanted(
        &mut self,
        now: Now,
        node: NodeId,
        id: u64,
        wanted: &[(u64, u64)],
    ) {
        let Some(index) = self.journal.streams.find(node) else {
            return;
        };
        let numbers: BTreeSet<u64> = wanted.iter().map(|(number, _)| *number).collect();
        self.journal.write_done();
        let Some(stream) = self.journal.streams.get_mut(index) else {
            return;
        };
        if stream.id != id {
            return;
        }
        for (_, session) in self.sessions.iter() {
            let number = session.stored.number;
            let is_here = session.stored.copy.is_some_and(|copy| copy.stream == index);
            if !is_here || !numbers.contains(&number) {
                continue;
            }
            for (uid, taken) in session.taken.iter() {
                // Among them are those of the messages that follow.
                stream.writer.taken(number, uid, taken.highest, &taken.bits);
            }
            let sequences = wanted.iter().filter(|(of, _)| *of == number);
            for (_, sequence) in sequences {
                let mut from = session.outbound.held_from(*sequence);
                match from.next().filter(|held| held.sequence() == *sequence) {
                    Some(held) => write_held(&mut stream.writer, now, number, &held, 0),
                    None => stream.writer.dropped(number, *sequence),
                }
            }
        }
    }

    /// Sessions that no other node has all of, though there are nodes: of those that end with their connections the will.
    pub(in super::super) fn sessions_without_copies(&self) -> u64 {
        if self.owned.nodes.is_empty() || self.config.backups == 0 {
            return 0;
        }
        // One that is on its way here has its queue nowhere else.
        let lacks = |session: &Session| {
            if session.is_persistent() {
                session.awaits_queue || !session.stored.is_covered()
            } else {
                session.lacks_will_copy(&self.journal.streams)
            }
        };
        let all = self.sessions.iter();
        all.filter(|(_, session)| lacks(session)).count() as u64
    }
}
