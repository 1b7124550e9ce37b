//! Streams of records to the nodes that hold backups.

use std::{cell::Cell, collections::VecDeque, rc::Rc};

use thicket_overlay::NodeId;
use thicket_session::{
    server::{JournalFormat, JournalWriter, set_sent_at},
    time::Instant,
    topic::SubscriptionFilter,
};

use super::replica_set::ReplicaSet;
use crate::{
    ConnectionId,
    worker::state::{debts::SharedDebt, session_key::SessionKey},
};

/// Stands for a stream where output waits for the client's will. No stream has this index.
pub(in crate::worker) const WILLS: u8 = u8::MAX;
/// Bytes that another node may leave unacknowledged; beyond, it is too slow, and its backups are given up.
const UNACKNOWLEDGED_BYTES: usize = 16 * 1024 * 1024;
/// The same of what waits behind a full sync that is sent in parts.
const BEHIND_SYNC_BYTES: usize = 64 * 1024 * 1024;
/// Full syncs begin, and their parts are sent, only while fewer bytes are under way: packets that wait for an acknowledgement take precedence.
const LEARNING_BYTES: usize = 1024 * 1024;

/// What another node must have done with a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Level {
    /// Read, with all messages that the client may have.
    Applied,
    /// And its interests are applied everywhere.
    Held,
}

/// The positions that another node has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::worker) struct Progress {
    pub applied: u64,
    pub held: u64,
}

impl Progress {
    /// Nothing is waited for any more.
    pub const END: Self = Self {
        applied: u64::MAX,
        held: u64::MAX,
    };

    pub const fn has(self, position: u64, level: Level) -> bool {
        match level {
            Level::Applied => position <= self.applied,
            Level::Held => position <= self.held,
        }
    }
}

/// What waits until another node has applied or holds what it was sent.
#[derive(Debug, Clone)]
pub(in crate::worker) enum Release {
    /// Output of a connection, with its serial.
    Output(ConnectionId, u64),
    /// What a connection, with its serial, has sent. The count is the number of streams it waits for.
    Input(ConnectionId, u64, Rc<Cell<u8>>),
    /// An acknowledgement.
    Debt(SharedDebt),
    /// What waits until no other node would publish a will of this client.
    WillForgotten(Option<Rc<str>>),
    /// The session with this number no longer needs the backup that it had on another stream.
    Former {
        session: SessionKey,
        stream: u64,
        number: u64,
    },
    /// The backup of the session with this number comes last: another one has taken its place.
    Replaced(SessionKey, u64),
    /// The full sync of a session, with the session's number.
    Learned(SessionKey, u64),
    /// Nothing waits; but if the stream ends before, the other node may lack this SUBSCRIBE or UNSUBSCRIBE of a session.
    Operation(Box<Operation>),
}

/// What a client asked for.
#[derive(Debug, Clone)]
pub(in crate::worker) struct Operation {
    pub session: SessionKey,
    pub serial: u64,
    pub filter: SubscriptionFilter,
}

/// What a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What was written in a round.
    Round,
    /// A part of a full sync that is too large for one record.
    SyncPart,
}

/// A record on its way.
#[derive(Debug)]
struct Record {
    position: u64,
    kind: Kind,
    content: Vec<u8>,
}

/// Bytes of records.
#[derive(Debug, Clone, Copy, Default)]
struct Bytes {
    rounds: usize,
    sync_parts: usize,
}

impl Bytes {
    const fn of(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Round => &mut self.rounds,
            Kind::SyncPart => &mut self.sync_parts,
        }
    }

    const fn all(self) -> usize {
        self.rounds + self.sync_parts
    }
}

/// Records for one node.
#[derive(Debug)]
pub(in crate::worker) struct Stream {
    pub node: NodeId,
    /// Distinguishes this stream from earlier ones to the same node.
    pub id: u64,
    /// The record of this round.
    pub writer: JournalWriter,
    /// Number of the last record that is finished, from 1.
    finished: u64,
    progress: Progress,
    /// Records that are not sent yet: parts of a full sync, and what was written since.
    waiting: VecDeque<Record>,
    /// Records that are sent and not applied, without their content.
    under_way: VecDeque<(u64, usize, Kind)>,
    waiting_bytes: Bytes,
    under_way_bytes: Bytes,
    for_applied: VecDeque<(u64, Release)>,
    for_held: VecDeque<(u64, Release)>,
    /// Sessions whose full sync the other node holds, with their numbers, until the next barrier takes them up.
    pub learned: Vec<(SessionKey, u64)>,
    pub has_barrier: bool,
    /// Positions that are not applied and at which sessions became covered, with the number of these: clients may have been sent what came before
    /// without waiting for it.
    covering: VecDeque<(u64, u64)>,
}

impl Stream {
    /// The position at which all that was written so far is held.
    pub fn position(&self) -> u64 {
        self.finished + u64::from(!self.writer.is_empty())
    }

    /// Whether the other node has reached `position`.
    pub const fn has(&self, position: u64, level: Level) -> bool {
        self.progress.has(position, level)
    }

    /// Makes `release` wait for all that was written so far.
    pub fn wait(&mut self, level: Level, release: Release) {
        let position = self.position();
        match level {
            Level::Applied => self.for_applied.push_back((position, release)),
            Level::Held => self.for_held.push_back((position, release)),
        }
    }

    /// A session is covered from what was written so far.
    pub fn note_covered(&mut self) {
        let position = self.position();
        match self.covering.back_mut() {
            Some((at, count)) if *at == position => *count += 1,
            Some(_) | None => self.covering.push_back((position, 1)),
        }
    }

    /// Number of sessions that are covered as soon as the other node has applied more.
    pub fn covering(&self) -> u64 {
        self.covering.iter().map(|(_, count)| count).sum()
    }

    /// Bytes of the records that the other node has not acknowledged, and of the one of this round.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.under_way_bytes.all() + self.waiting_bytes.all() + self.writer.len()
    }

    /// Whether the other node keeps up, so that full syncs may be sent.
    pub fn has_capacity(&self) -> bool {
        self.unacknowledged_bytes() < LEARNING_BYTES
    }

    /// Whether the other node has fallen too far behind.
    pub const fn is_overrun(&self) -> bool {
        self.under_way_bytes.rounds > UNACKNOWLEDGED_BYTES
            || self.waiting_bytes.rounds > BEHIND_SYNC_BYTES
    }

    /// The round is over: what was written in it is a record.
    pub fn end_round(&mut self) {
        self.finish(Kind::Round);
    }

    /// A full sync is under way: if its present part is large enough, another one begins.
    pub fn divide_sync(&mut self, part_bytes: usize) {
        if self.writer.len() >= part_bytes {
            self.finish(Kind::SyncPart);
        }
    }

    fn finish(&mut self, kind: Kind) {
        if self.writer.is_empty() {
            return;
        }
        self.finished += 1;
        let content = self.writer.record().to_vec();
        self.writer.clear();
        *self.waiting_bytes.of(kind) += content.len();
        self.waiting.push_back(Record {
            position: self.finished,
            kind,
            content,
        });
    }

    /// The next record to be sent, with its position. Parts of a full sync go at the pace of the other node.
    pub fn next_to_send(&mut self, now: Instant) -> Option<(u64, Vec<u8>)> {
        let under_way = self.under_way_bytes.all();
        let may_go = |record: &mut Record| record.kind == Kind::Round || under_way < LEARNING_BYTES;
        let mut record = self.waiting.pop_front_if(may_go)?;
        set_sent_at(&mut record.content, now);
        let bytes = record.content.len();
        *self.waiting_bytes.of(record.kind) -= bytes;
        *self.under_way_bytes.of(record.kind) += bytes;
        self.under_way
            .push_back((record.position, bytes, record.kind));
        Some((record.position, record.content))
    }

    /// The other node has reached these positions. Returns what waited for them.
    pub fn handle_progress(&mut self, progress: Progress) -> Vec<Release> {
        self.progress = Progress {
            applied: self
                .progress
                .applied
                .max(progress.applied.min(self.finished)),
            held: self.progress.held.max(progress.held.min(self.finished)),
        };
        let Progress { applied, held } = self.progress;
        while let Some((_, bytes, kind)) = self.under_way.pop_front_if(|(at, _, _)| *at <= applied)
        {
            *self.under_way_bytes.of(kind) -= bytes;
        }
        while self
            .covering
            .pop_front_if(|(at, _)| *at <= applied)
            .is_some()
        {}
        let mut released = Vec::new();
        while let Some((_, release)) = self.for_applied.pop_front_if(|(at, _)| *at <= applied) {
            released.push(release);
        }
        while let Some((_, release)) = self.for_held.pop_front_if(|(at, _)| *at <= held) {
            released.push(release);
        }
        released
    }
}

/// All streams of a worker.
#[derive(Debug, Default)]
pub(in crate::worker) struct Streams {
    list: Vec<Option<Stream>>,
}

impl Streams {
    /// The stream to a node, begun with `id` if there is none; `None`: there are too many.
    pub fn find_or_begin(&mut self, node: NodeId, id: impl FnOnce() -> u64) -> Option<u8> {
        if let Some(index) = self.find(node) {
            return Some(index);
        }
        let free = self.list.iter().position(Option::is_none);
        let index = free.unwrap_or(self.list.len());
        let found = u8::try_from(index).ok().filter(|index| *index < WILLS)?;
        let stream = Stream {
            node,
            id: id(),
            writer: JournalWriter::new(JournalFormat::Sent),
            finished: 0,
            progress: Progress::default(),
            waiting: VecDeque::new(),
            under_way: VecDeque::new(),
            waiting_bytes: Bytes::default(),
            under_way_bytes: Bytes::default(),
            for_applied: VecDeque::new(),
            for_held: VecDeque::new(),
            learned: Vec::new(),
            has_barrier: false,
            covering: VecDeque::new(),
        };
        if free.is_none() {
            self.list.push(None);
        }
        self.list[index] = Some(stream);
        Some(found)
    }

    pub fn find(&self, node: NodeId) -> Option<u8> {
        let of =
            |stream: &Option<Stream>| stream.as_ref().is_some_and(|stream| stream.node == node);
        self.list.iter().position(of).map(|index| index as u8)
    }

    pub fn get(&self, index: u8) -> Option<&Stream> {
        self.list.get(usize::from(index))?.as_ref()
    }

    pub fn get_mut(&mut self, index: u8) -> Option<&mut Stream> {
        self.list.get_mut(usize::from(index))?.as_mut()
    }

    /// Calls `write` for each stream that a session's backups receive.
    #[inline]
    pub fn each(&mut self, backups: ReplicaSet, mut write: impl FnMut(&mut Stream)) {
        for backup in backups.synced() {
            if let Some(stream) = self.get_mut(backup.stream) {
                write(stream);
            }
        }
    }

    /// The node that a stream is for.
    pub fn node_of(&self, index: u8) -> Option<NodeId> {
        Some(self.list.get(usize::from(index))?.as_ref()?.node)
    }

    /// Ends a stream. Returns all that waited for it.
    pub fn end(&mut self, index: u8) -> Vec<Release> {
        let ended = self.list.get_mut(usize::from(index)).and_then(Option::take);
        let waiting = ended.map(|stream| stream.for_applied.into_iter().chain(stream.for_held));
        let waiting = waiting.into_iter().flatten();
        waiting.map(|(_, release)| release).collect()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u8, &mut Stream)> {
        let streams = self.list.iter_mut().enumerate();
        streams.filter_map(|(index, stream)| Some((index as u8, stream.as_mut()?)))
    }

    /// Bytes that other nodes have not acknowledged.
    pub fn unacknowledged_bytes(&self) -> usize {
        let streams = self.list.iter().flatten();
        streams.map(Stream::unacknowledged_bytes).sum()
    }

    /// Number of sessions that are covered as soon as other nodes have applied what was written.
    pub fn covering(&self) -> u64 {
        self.list.iter().flatten().map(Stream::covering).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }
}
