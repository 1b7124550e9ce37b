//! The append-only log of one worker.

mod reader;
mod replay;
mod segment;
mod spare;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use replay::{Record, Recovered, Replay, TornTail};
pub use spare::PrepareJob;
pub use sync::{SyncDone, SyncJob};

use crate::error::{Result, StorageError, io_error, is_out_of_space};
use crate::files::{Files, OsFiles, StoredFile};
use segment::{HEADER_LEN, Kind, MAXIMUM_BODY, RecordHeader};
use spare::{Segment, Spare};

/// The smallest segment, in bytes, allocated when the disk is nearly full.
pub const MINIMUM_SEGMENT_BYTES: u64 = 256 * 1024;

/// The configuration of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogConfig {
    /// The node that writes it; the log of another node is refused.
    pub node: u64,
    /// Random, different at each start, unknown to clients: makes records differ from old bytes and payloads.
    pub seed: u64,
    /// Size of a segment in bytes, 64 MiB by default; segments are smaller if the disk lacks the space.
    pub segment_bytes: u64,
    /// Bytes of the disk that stay free, 64 MiB by default. Only a new generation may use them, so that a full log can shrink.
    pub reserve_bytes: u64,
}

impl LogConfig {
    /// The defaults for a node.
    #[must_use]
    pub fn new(node: u64, seed: u64) -> Self {
        Self {
            node,
            seed,
            segment_bytes: 64 << 20,
            reserve_bytes: 64 << 20,
        }
    }
}

/// The place of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Number of the segment: rises during the life of the log.
    pub segment: u64,
    /// Number of the record, one more than that of the record before. It is on disk once [`Log::synced`] is above it.
    pub sequence: u64,
}

/// The append-only log of one worker: records in segments, each record one write.
///
/// A record is in the operating system when [`append`](Self::append) returns, and survives SIGKILL. It survives a loss of power once a sync that
/// began later has completed.
#[derive(Debug)]
pub struct Log<F: Files = OsFiles> {
    files: F,
    directory: PathBuf,
    config: LogConfig,
    /// Existing segments, oldest first; the last one is written to.
    segments: VecDeque<SegmentInfo>,
    current: Segment<F::File>,
    /// Offset of the next record.
    offset: u64,
    spare: Arc<Spare<F>>,
    next_sequence: u64,
    synced: u64,
    /// Files with records that no begun sync covers; at most one for each segment.
    dirty: Vec<(PathBuf, F::File)>,
    is_syncing: bool,
    /// Segments before this one are removed by the next sync.
    removal: Option<u64>,
    /// Segments before this one are no longer needed.
    needed_from: u64,
    failed: bool,
    buffer: Vec<u8>,
}

/// An existing segment.
#[derive(Debug, Clone, Copy)]
struct SegmentInfo {
    number: u64,
    bytes: u64,
}

impl<F: Files> Log<F> {
    /// Opens or creates the log in `directory`: its content is replayed first, then [`Replay::finish`] returns the log.
    ///
    /// # Errors
    /// [`StorageError`] with the file and what to do: a file belongs to another node or format, is damaged, or is missing.
    pub fn open(files: F, directory: &Path, config: LogConfig) -> Result<Replay<F>> {
        Replay::open(files, directory, config)
    }

    /// Writes one record, the concatenation of `parts`, with one write.
    ///
    /// Never fails with `OutOfSpace` while the record with its header ([`record_bytes`]) is within [`space`](Self::space).
    ///
    /// # Errors
    /// `OutOfSpace` and `TooLarge`: nothing changed, and later records may be appended. `Failed` and `Io`: the record may or may not be found at the next
    /// start, and the log accepts no more.
    pub fn append(&mut self, parts: &[&[u8]]) -> Result<Appended> {
        self.append_kind(Kind::Node, parts)
    }

    fn append_kind(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<Appended> {
        self.check_usable()?;
        let body_len: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if body_len > MAXIMUM_BODY {
            return Err(StorageError::TooLarge {
                what: "record",
                bytes: body_len,
                maximum: MAXIMUM_BODY,
            });
        }
        let len = segment::record_len(body_len);
        if self.offset + len > self.current.bytes {
            self.make_space(len)?;
        }
        let header = RecordHeader {
            body_len: body_len as u32,
            kind,
            sequence: self.next_sequence,
            synced: self.synced,
        };
        header.encode(self.current.salt, parts, &mut self.buffer);
        self.write_buffer()?;
        Ok(Appended {
            segment: self.current.number,
            sequence: header.sequence,
        })
    }

    fn write_buffer(&mut self) -> Result<()> {
        // The next record overwrites the rest of a failed write; its sequence number keeps that rest from being read.
        let written = self.current.file.write_all_at(&self.buffer, self.offset);
        let len = self.buffer.len() as u64;
        self.shrink_buffer();
        match written {
            Ok(()) => {}
            Err(error) if is_out_of_space(&error) => return Err(self.out_of_space(len)),
            Err(error) => {
                self.failed = true;
                return Err(io_error(&self.current.path, "write")(error));
            }
        }
        self.offset += len;
        self.next_sequence += 1;
        if self
            .dirty
            .last()
            .is_none_or(|(path, _)| *path != self.current.path)
        {
            let dirty = (self.current.path.clone(), self.current.file.clone());
            self.dirty.push(dirty);
        }
        Ok(())
    }

    /// The memory of one huge record must not be kept forever.
    fn shrink_buffer(&mut self) {
        const KEPT: usize = 1 << 20;
        if self.buffer.capacity() > KEPT {
            self.buffer = Vec::new();
        }
    }

    /// Ensures that a record of `len` bytes fits at `offset`: in the next segment, or in this one if it is still empty.
    fn make_space(&mut self, len: u64) -> Result<()> {
        if self.offset > HEADER_LEN {
            return self.enter_next_segment(len, self.config.reserve_bytes);
        }
        self.grow_current(len)
    }

    fn grow_current(&mut self, len: u64) -> Result<()> {
        let needed = HEADER_LEN + len;
        spare::grow(&self.files, &self.directory, &mut self.current, needed)?;
        let info = self.segments.back_mut().expect("a log has a segment");
        info.bytes = self.current.bytes;
        Ok(())
    }

    /// Continues in the next segment, which holds at least one record of `len` bytes.
    fn enter_next_segment(&mut self, len: u64, reserve_bytes: u64) -> Result<()> {
        let next = self.spare.take(len, reserve_bytes)?;
        self.segments.push_back(SegmentInfo {
            number: next.number,
            bytes: next.bytes,
        });
        self.current = next;
        self.offset = HEADER_LEN;
        Ok(())
    }

    /// How many bytes can certainly be appended, including headers of records ([`record_bytes`]), even if the disk fills up.
    #[must_use]
    pub fn space(&self) -> u64 {
        if self.failed {
            return 0;
        }
        // The rest of this segment may stay unused if the next record does not fit, so the two do not add up.
        (self.current.bytes - self.offset).max(self.spare.space())
    }

    /// Whether the last attempt to allocate the next segment found the disk full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.spare.is_full()
    }

    /// Whether the disk had less space than the next segment should have: there is less [`space`](Self::space) than usual, or soon will be.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.spare.is_short()
    }

    /// Whether the next segment must still be allocated: call [`poll_space`](Self::poll_space), or let another thread run
    /// [`begin_prepare`](Self::begin_prepare).
    #[must_use]
    pub fn wants_segment(&self) -> bool {
        self.spare.is_wanted()
    }

    /// Allocates the next segment if it does not exist yet, or is small because the disk was nearly full. Call it about once a second, and whenever [`wants_segment`](Self::wants_segment) returns
    /// true and a few milliseconds do not matter.
    ///
    /// # Errors
    /// The system's error. A full disk is not an error: [`is_full`](Self::is_full) reports it.
    pub fn poll_space(&mut self) -> Result<()> {
        self.begin_prepare().map_or(Ok(()), PrepareJob::run)
    }

    /// The work of [`poll_space`](Self::poll_space), for another thread; `None` if there is none.
    #[must_use]
    pub fn begin_prepare(&self) -> Option<PrepareJob<F>> {
        if self.failed {
            return None;
        }
        PrepareJob::new(&self.spare)
    }

    /// Allocates the next segment if it does not exist yet, as [`poll_space`](Self::poll_space) does, but waits for another thread that is doing it.
    ///
    /// # Errors
    /// As [`poll_space`](Self::poll_space).
    pub fn wait_for_segment(&mut self) -> Result<()> {
        if self.failed {
            return Ok(());
        }
        PrepareJob::of(&self.spare).run()
    }

    /// Starts a new segment, in which the node rewrites live data; returns its number for [`remove_before`](Self::remove_before).
    ///
    /// May use the reserve of the disk, so that a full log can shrink.
    ///
    /// # Errors
    /// As [`append`](Self::append); on `OutOfSpace` nothing changed.
    pub fn start_generation(&mut self) -> Result<u64> {
        self.check_usable()?;
        let len = segment::record_len(0);
        if self.offset > HEADER_LEN {
            self.enter_next_segment(len, 0)?;
        }
        let appended = self.append_kind(Kind::Generation, &[])?;
        Ok(appended.segment)
    }

    /// Requests that the segments before `segment` are deleted, as soon as all records appended so far are synced: the next [`sync`](Self::sync), or
    /// [`SyncJob`], does both.
    ///
    /// The segment with the newest record stays. A crash in between leaves some of the segments; the oldest are removed first, so that a replay
    /// always returns the end of the log without a gap.
    pub fn remove_before(&mut self, segment: u64) {
        let is_empty = self.offset == HEADER_LEN;
        let segment = segment.min(self.current.number - u64::from(is_empty));
        if self.first_segment() < segment {
            self.removal = Some(segment);
            self.needed_from = segment;
        }
    }

    /// Number of the oldest segment.
    #[must_use]
    pub fn first_segment(&self) -> u64 {
        self.segments
            .front()
            .map_or(self.current.number, |info| info.number)
    }

    /// Number of the segment that is written to.
    #[must_use]
    pub fn current_segment(&self) -> u64 {
        self.current.number
    }

    /// Bytes of the segments on disk, without the one allocated ahead.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.segments.iter().map(|info| info.bytes).sum()
    }

    /// Bytes of the segments on disk, without those that [`remove_before`](Self::remove_before) named: they are deleted by the next sync, but the
    /// needed size is known now.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        let needed = |info: &&SegmentInfo| info.number >= self.needed_from;
        self.segments
            .iter()
            .filter(needed)
            .map(|info| info.bytes)
            .sum()
    }

    /// Records with a lower number than this are on disk.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// The number of the next record.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    fn check_usable(&self) -> Result<()> {
        if self.failed {
            return Err(StorageError::Failed {
                path: self.directory.clone(),
            });
        }
        Ok(())
    }

    fn out_of_space(&self, needed_bytes: u64) -> StorageError {
        StorageError::OutOfSpace {
            path: self.directory.clone(),
            needed_bytes,
        }
    }
}

/// How many bytes of [`Log::space`] a record with a body of `body_len` bytes takes.
#[must_use]
pub fn record_bytes(body_len: u64) -> u64 {
    segment::record_len(body_len)
}

/// The next number of a small generator (SplitMix64).
pub(crate) fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
