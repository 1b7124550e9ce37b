//! Streams of records to the nodes that hold backups.

use std::{cell::Cell, collections::VecDeque, rc::Rc};

use thicket_overlay::NodeId;
use thicket_session::{server::JournalWriter, topic::SubscriptionFilter};

use super::{
    super::{Debt, SessionKey},
    pending_wills::WILLS,
    replica_set::ReplicaSet,
};
use crate::ConnectionId;

/// Bytes that another node has not acknowledged; beyond it is too slow, and its backups are given up.
const UNACKNOWLEDGED_BYTES: usize = 16 * 1024 * 1024;
/// Sessions are told anew only while fewer bytes are under way: those that wait for an answer come first.
const LEARNING_BYTES: usize = 1024 * 1024;

/// How much of a position another node must have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Level {
    /// Read, with all messages that the client may have.
    Applied,
    /// And its interests are applied everywhere.
    Held,
}

/// How far another node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in super::super) struct Progress {
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

/// What waits until another node holds what it was told.
#[derive(Debug, Clone)]
pub(in super::super) enum Release {
    /// Output of a connection, with its serial.
    Output(ConnectionId, u64),
    /// An acknowledgement. The count says how many streams it waits for, if more than one.
    Debt(Debt, Option<Rc<Cell<u8>>>),
    /// Who waits until no other node would publish a will of this client.
    WillForgotten(Option<Rc<str>>),
    /// The backup that the session with this number had by another stream is not needed any more.
    Former {
        session: SessionKey,
        stream: u64,
        number: u64,
    },
    /// The whole of a session, with its number, was told.
    Learned(SessionKey, u64),
    /// Nothing; but if the other node is out of sight before, a SUBSCRIBE or UNSUBSCRIBE of a session may be unknown there.
    Operation(Box<Operation>),
}

/// What a client asked for.
#[derive(Debug, Clone)]
pub(in super::super) struct Operation {
    pub session: SessionKey,
    pub serial: u64,
    pub filter: SubscriptionFilter,
}

/// Records for one node.
#[derive(Debug)]
pub(in super::super) struct Stream {
    pub node: NodeId,
    /// Tells this stream from earlier ones to the same node.
    pub id: u64,
    /// The record of this round.
    pub writer: JournalWriter,
    /// Of the last record that left, from 1.
    sent: u64,
    progress: Progress,
    /// Position and bytes of each record that is not applied.
    under_way: VecDeque<(u64, usize)>,
    under_way_bytes: usize,
    for_applied: VecDeque<(u64, Release)>,
    for_held: VecDeque<(u64, Release)>,
    /// Sessions that the other node was told whole, with their numbers, until the next barrier takes them up.
    pub learned: Vec<(SessionKey, u64)>,
    pub has_barrier: bool,
    /// Positions at which sessions became covered that are not applied, with their numbers: clients may have been told what came before
    /// without waiting for it.
    covering: VecDeque<(u64, u64)>,
}

impl Stream {
    /// The position at which all that was written so far is held.
    pub fn position(&self) -> u64 {
        self.sent + u64::from(!self.writer.is_empty())
    }

    /// Whether the other node has done `position`.
    pub const fn has(&self, position: u64, level: Level) -> bool {
        self.progress.has(position, level)
    }

    /// Has `release` wait for all that was written so far.
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

    /// Sessions that are covered as soon as the other node is so far.
    pub fn covering(&self) -> u64 {
        self.covering.iter().map(|(_, count)| count).sum()
    }

    /// Bytes of the records that the other node has not acknowledged, and of the one of this round.
    pub fn unacknowledged_bytes(&self) -> usize {
        self.under_way_bytes + self.writer.len()
    }

    /// Whether the other node keeps up, so that sessions may be told anew.
    pub fn has_room(&self) -> bool {
        self.unacknowledged_bytes() < LEARNING_BYTES
    }

    /// Whether the other node has fallen too far behind.
    pub const fn is_overrun(&self) -> bool {
        self.under_way_bytes > UNACKNOWLEDGED_BYTES
    }

    /// The record of this round with its position, if there is one.
    pub fn seal(&mut self) -> Option<(u64, Vec<u8>)> {
        if self.writer.is_empty() {
            return None;
        }
        self.sent += 1;
        let record = self.writer.record().to_vec();
        self.writer.clear();
        self.under_way.push_back((self.sent, record.len()));
        self.under_way_bytes += record.len();
        Some((self.sent, record))
    }

    /// The other node is this far: what waited for it.
    pub fn handle_progress(&mut self, progress: Progress) -> Vec<Release> {
        self.progress = Progress {
            applied: self.progress.applied.max(progress.applied.min(self.sent)),
            held: self.progress.held.max(progress.held.min(self.sent)),
        };
        let Progress { applied, held } = self.progress;
        while let Some((_, bytes)) = self.under_way.pop_front_if(|(at, _)| *at <= applied) {
            self.under_way_bytes -= bytes;
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
pub(in super::super) struct Streams {
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
            writer: JournalWriter::default(),
            sent: 0,
            progress: Progress::default(),
            under_way: VecDeque::new(),
            under_way_bytes: 0,
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

    /// Calls `write` for each stream that a session's backups are told by.
    #[inline]
    pub fn each(&mut self, backups: ReplicaSet, mut write: impl FnMut(&mut Stream)) {
        for backup in backups.told() {
            if let Some(stream) = self.get_mut(backup.stream) {
                write(stream);
            }
        }
    }

    /// The node that a stream is for.
    pub fn node_of(&self, index: u8) -> Option<NodeId> {
        Some(self.list.get(usize::from(index))?.as_ref()?.node)
    }

    /// Ends a stream: all that waited for it waits no more.
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

    /// Sessions that are covered as soon as other nodes have read what was written.
    pub fn covering(&self) -> u64 {
        self.list.iter().flatten().map(Stream::covering).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }
}
