//! Connections as pairs of byte pipes: bytes arrive late, in pieces, or not at all.

use std::collections::VecDeque;

use crate::random::Random;

/// A connection, unique in the world; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub usize);

/// One end of a connection: 0 dialled, 1 accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndId {
    /// The connection.
    pub socket: SocketId,
    /// Which end.
    pub end: usize,
}

impl EndId {
    /// The opposite end.
    pub const fn other(self) -> Self {
        Self {
            socket: self.socket,
            end: 1 - self.end,
        }
    }
}

/// The bytes in transit towards one end.
#[derive(Debug, Default)]
pub struct Pipe {
    /// When each piece arrives, ascending.
    pieces: VecDeque<(u64, Vec<u8>)>,
    bytes: usize,
    /// When the end detects that there is no more.
    end_at: Option<u64>,
    /// The receiving end has closed: nothing is read.
    pub is_deaf: bool,
    /// What is written is lost, and no end is ever detected.
    pub is_broken: bool,
    /// It did not accept all that was written: the sender waits for space.
    pub has_refused: bool,
    /// Bytes that it buffers before the sender has to wait.
    pub capacity: usize,
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// Bytes that have arrived.
    Bytes(Vec<u8>),
    /// No more will arrive.
    End,
    /// Nothing has arrived yet.
    Nothing,
}

impl Pipe {
    /// A pipe that buffers `capacity` bytes before its sender waits.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// How much of a write of `len` bytes is accepted now.
    pub fn takes(&self, len: usize) -> usize {
        if self.is_deaf || self.is_broken || self.end_at.is_some() {
            len
        } else {
            len.min(self.capacity.saturating_sub(self.bytes))
        }
    }

    /// Sends bytes; returns when they arrive.
    pub fn write(&mut self, bytes: &[u8], arrives_at: u64) -> u64 {
        let at = self
            .pieces
            .back()
            .map_or(arrives_at, |(last, _)| arrives_at.max(*last));
        if !self.is_deaf && !self.is_broken && self.end_at.is_none() {
            self.bytes += bytes.len();
            self.pieces.push_back((at, bytes.to_vec()));
        }
        at
    }

    /// The sender closes in order: what is in transit still arrives. Returns when the end is detected.
    pub fn finish(&mut self, at: u64) -> u64 {
        let at = self.pieces.back().map_or(at, |(last, _)| at.max(*last));
        *self.end_at.get_or_insert(at)
    }

    /// The connection breaks: of what is in transit only a part arrives. Returns when the end is detected.
    pub fn cut(&mut self, random: &mut Random, at: u64) -> u64 {
        let mut kept = random.below(self.bytes as u64 + 1) as usize;
        let mut left = VecDeque::new();
        for (arrives, mut bytes) in std::mem::take(&mut self.pieces) {
            bytes.truncate(kept);
            kept -= bytes.len();
            if !bytes.is_empty() {
                left.push_back((arrives.min(at), bytes));
            }
        }
        self.bytes = left.iter().map(|(_, bytes)| bytes.len()).sum();
        self.pieces = left;
        let at = self.end_at.map_or(at, |earlier| earlier.min(at));
        self.end_at = Some(at);
        at
    }

    /// What is in transit or sent later never arrives, and no end is detected.
    pub fn fall_silent(&mut self) {
        self.is_broken = true;
        self.pieces.clear();
        self.bytes = 0;
        self.end_at = None;
    }

    /// The receiving end reads no more.
    pub fn deafen(&mut self) {
        self.is_deaf = true;
        self.pieces.clear();
        self.bytes = 0;
    }

    /// Holds everything in transit back until at least `at`, in order.
    pub fn hold(&mut self, at: u64) {
        for (arrives, _) in &mut self.pieces {
            *arrives = (*arrives).max(at);
        }
        if let Some(end) = &mut self.end_at {
            *end = (*end).max(at);
        }
    }

    /// What was held until `held` arrives at `at`.
    pub fn release(&mut self, held: u64, at: u64) {
        for (arrives, _) in &mut self.pieces {
            if *arrives >= held {
                *arrives = at;
            }
        }
        if let Some(end) = &mut self.end_at
            && *end >= held
        {
            *end = at;
        }
    }

    /// Whether there is something to read at `now`.
    pub fn is_readable(&self, now: u64) -> bool {
        self.next_at().is_some_and(|at| at <= now)
    }

    /// When there is something to read.
    pub fn next_at(&self) -> Option<u64> {
        match self.pieces.front() {
            _ if self.is_deaf => None,
            Some((at, _)) => Some(*at),
            None => self.end_at,
        }
    }

    /// Takes the bytes that have arrived, up to `limit`.
    pub fn read(&mut self, now: u64, limit: usize) -> Read {
        let mut read = Vec::new();
        while read.len() < limit
            && let Some((at, bytes)) = self.pieces.front_mut()
            && *at <= now
        {
            let count = bytes.len().min(limit - read.len());
            read.extend(bytes.drain(..count));
            if bytes.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.bytes -= read.len();
        if !read.is_empty() {
            Read::Bytes(read)
        } else if self.pieces.is_empty() && self.end_at.is_some_and(|at| at <= now) {
            Read::End
        } else {
            Read::Nothing
        }
    }
}
