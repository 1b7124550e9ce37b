//! Reads a log when the node starts: returns every record in order, truncates a torn tail, and refuses damage.
//!
//! A record that cannot be read is the end of the log if nothing shows that it was ever synced: the crash tore it, and what follows it was never
//! synced either. Each record contains how many records were synced when it was written. If a later record, in this segment or another, counts the
//! unreadable one as synced, the disk has lost data it had confirmed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::reader::{Behind, Reader};
use super::segment::{self, HEADER_LEN, Kind, RecordHeader, SegmentHeader, UNFINISHED_SUFFIX};
use super::spare::{Segment, Spare};
use super::{Log, LogConfig, SegmentInfo, sync};
use crate::error::{Result, StorageError, io_error};
use crate::files::{Files, OsFiles, StoredFile};

/// A record that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Number of its segment.
    pub segment: u64,
    /// Number of the record.
    pub sequence: u64,
    /// What was appended.
    pub body: &'a [u8],
}

/// The torn tail that was truncated at the start: written, but never synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The file.
    pub path: PathBuf,
    /// Offset of the torn bytes.
    pub offset: u64,
    /// How many bytes were truncated, including those in later files.
    pub bytes: u64,
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, offset, bytes) = (self.path.display(), self.offset, self.bytes);
        write!(
            f,
            "{path}: {bytes} bytes from byte {offset} on were written by a crash only in part and never synced; they were cut off"
        )
    }
}

/// The content of a log when it was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Records read.
    pub records: u64,
    /// Bytes in their bodies.
    pub bytes: u64,
    /// The truncated tail, if any.
    pub torn: Option<TornTail>,
}

/// A log that is being read; becomes a [`Log`] when all is read.
#[derive(Debug)]
pub struct Replay<F: Files = OsFiles> {
    files: F,
    directory: PathBuf,
    config: LogConfig,
    headers: Vec<SegmentHeader>,
    /// Index in `headers` of the segment being read.
    index: usize,
    /// `None` if the log is empty.
    reader: Option<Reader<F::File>>,
    /// Number of the next record; `None` until the first one is read.
    next_sequence: Option<u64>,
    /// For each segment read, the number after its last record.
    ends: Vec<u64>,
    synced: u64,
    is_at_end: bool,
    recovered: Recovered,
}

impl<F: Files> Replay<F> {
    /// Checks names and headers of all segments.
    pub(crate) fn open(files: F, directory: &Path, config: LogConfig) -> Result<Self> {
        files
            .create_directory(directory)
            .map_err(io_error(directory, "make the directory"))?;
        let headers = read_headers(&files, directory, &config)?;
        let first = headers.first().map(|header| header.number);
        let mut replay = Self {
            files,
            directory: directory.to_owned(),
            config,
            headers,
            index: 0,
            reader: None,
            // A log whose first segments were deleted begins with a synced record, which has its number.
            next_sequence: first.is_none_or(|first| first == 1).then_some(0),
            ends: Vec::new(),
            synced: 0,
            is_at_end: first.is_none(),
            recovered: Recovered::default(),
        };
        if first.is_some() {
            replay.reader = Some(replay.reader_of(0)?);
        }
        Ok(replay)
    }

    fn reader_of(&self, index: usize) -> Result<Reader<F::File>> {
        let header = self.headers[index];
        let path = segment::path(&self.directory, header.number);
        let file = self.files.open(&path).map_err(io_error(&path, "open"))?;
        Reader::new(file, path, header)
    }

    /// The next record, or `None` at the end of the log.
    ///
    /// # Errors
    /// `Damaged`: synced bytes are unreadable; nothing was changed. `Io`: reading failed.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        loop {
            match self.peek()? {
                None => return Ok(None),
                Some(header) if header.kind == Kind::Node => {
                    let reader = self.reader.as_mut().expect("a record was found");
                    return Ok(Some(Record {
                        segment: reader.header.number,
                        sequence: header.sequence,
                        body: reader.take(header),
                    }));
                }
                Some(header) => {
                    let reader = self.reader.as_mut().expect("a record was found");
                    reader.take(header);
                }
            }
        }
    }

    /// Finds the next record, in this segment or the next, and counts it.
    fn peek(&mut self) -> Result<Option<RecordHeader>> {
        while !self.is_at_end {
            let expected = self.next_sequence;
            let reader = self.reader.as_mut().expect("not at the end");
            let found = reader.peek()?;
            if let Some(header) =
                found.filter(|header| expected.is_none_or(|it| it == header.sequence))
            {
                self.next_sequence = Some(header.sequence + 1);
                self.synced = self.synced.max(header.synced);
                if header.kind == Kind::Node {
                    self.recovered.records += 1;
                    self.recovered.bytes += u64::from(header.body_len);
                }
                return Ok(Some(header));
            }
            self.leave_segment()?;
        }
        Ok(None)
    }

    /// This segment has no further readable record: continues with the next one, ends, or detects damage.
    fn leave_segment(&mut self) -> Result<()> {
        let Some(expected) = self.next_sequence else {
            return Err(self.damaged("the first record of the log is not readable"));
        };
        if self.index + 1 < self.headers.len() {
            let mut next = self.reader_of(self.index + 1)?;
            if next
                .peek()?
                .is_some_and(|header| header.sequence == expected)
            {
                self.ends.push(expected);
                self.index += 1;
                self.reader = Some(next);
                return Ok(());
            }
        }
        self.end(expected)
    }

    /// Distinguishes a torn tail from damage.
    fn end(&mut self, expected: u64) -> Result<()> {
        let reader = self.reader.as_mut().expect("not at the end");
        let offset = reader.offset;
        let Behind {
            used_until,
            mut synced,
        } = reader.look_behind()?;
        reader.offset = offset;
        let mut bytes = used_until - offset;
        for index in self.index + 1..self.headers.len() {
            let behind = self.reader_of(index)?.look_behind()?;
            synced = synced.max(behind.synced);
            bytes += behind.used_until - HEADER_LEN;
        }
        if synced.max(self.synced) > expected {
            return Err(self.damaged("a record that was safely on disk is not readable"));
        }
        if bytes > 0 {
            let path = segment::path(&self.directory, self.headers[self.index].number);
            self.recovered.torn = Some(TornTail {
                path,
                offset,
                bytes,
            });
        }
        self.ends.push(expected);
        self.is_at_end = true;
        Ok(())
    }

    fn damaged(&self, problem: &str) -> StorageError {
        StorageError::Damaged {
            path: segment::path(&self.directory, self.headers[self.index].number),
            offset: self.reader.as_ref().map_or(0, |reader| reader.offset),
            problem: problem.to_owned(),
        }
    }

    /// Reads the rest, truncates a torn tail, waits until all that was read is on disk, and returns the log for appending.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record), and the system's error. `OutOfSpace`: the disk is too full for the first segment of a new log.
    pub fn finish(mut self) -> Result<(Log<F>, Recovered)> {
        while self.next_record()?.is_some() {}
        let recovered = self.recovered.clone();
        let next_sequence = self.next_sequence.unwrap_or(0);
        let next_number = self
            .headers
            .get(self.index)
            .map_or(1, |header| header.number + 1);
        let spare = Spare::new(
            self.files.clone(),
            self.directory.clone(),
            self.config,
            next_number,
        );
        let (current, offset) = match self.reader.take() {
            Some(reader) => (
                self.continue_segment(&reader, recovered.torn.is_some())?,
                reader.offset,
            ),
            None => (spare.take(0, self.config.reserve_bytes)?, HEADER_LEN),
        };
        let mut log = Log {
            segments: self.segment_infos(&current)?,
            files: self.files,
            directory: self.directory,
            config: self.config,
            current,
            offset,
            spare: Arc::new(spare),
            next_sequence,
            synced: next_sequence,
            dirty: Vec::new(),
            is_syncing: false,
            removal: None,
            needed_from: 0,
            failed: false,
            buffer: Vec::new(),
        };
        log.poll_space()?;
        Ok((log, recovered))
    }

    /// Prepares the last segment that was read for appending.
    fn continue_segment(
        &self,
        reader: &Reader<F::File>,
        is_torn: bool,
    ) -> Result<Segment<F::File>> {
        // Backwards from the last one, so that a crash in between leaves no gap.
        for header in self.headers[self.index + 1..].iter().rev() {
            sync::remove(&self.files, &self.directory, header.number)?;
        }
        let (file, path) = (&reader.file, &reader.path);
        let mut bytes = file.byte_len().map_err(io_error(path, "read the length"))?;
        if is_torn {
            // Truncated and synced before anything is appended: otherwise a rest of it could be read after a later record.
            file.truncate(reader.offset)
                .map_err(io_error(path, "cut"))?;
            bytes = reader.offset;
        }
        self.sync_from(self.synced)?;
        // A record may end without padding at the end of the file if the file was truncated by hand.
        bytes = bytes.max(reader.offset);
        Ok(Segment {
            number: reader.header.number,
            salt: reader.header.salt,
            path: path.clone(),
            file: file.clone(),
            bytes,
        })
    }

    /// Syncs the segments that contain records from number `synced` on: after a SIGKILL they may be only in the system's memory.
    fn sync_from(&self, synced: u64) -> Result<()> {
        for (index, &end) in self.ends.iter().enumerate() {
            if end > synced || index == self.index {
                let reader = self.reader_of(index)?;
                reader
                    .file
                    .sync_data()
                    .map_err(io_error(&reader.path, "sync"))?;
            }
        }
        Ok(())
    }

    fn segment_infos(
        &self,
        current: &Segment<F::File>,
    ) -> Result<std::collections::VecDeque<SegmentInfo>> {
        let mut infos = std::collections::VecDeque::new();
        for header in self.headers.iter().take(self.index) {
            let path = segment::path(&self.directory, header.number);
            let len = self.files.open(&path).and_then(|file| file.byte_len());
            let bytes = len.map_err(io_error(&path, "read the length"))?;
            infos.push_back(SegmentInfo {
                number: header.number,
                bytes,
            });
        }
        infos.push_back(SegmentInfo {
            number: current.number,
            bytes: current.bytes,
        });
        Ok(infos)
    }
}

/// Headers of all segments, in order and without a gap; unfinished segments left by a crash are removed.
fn read_headers<F: Files>(
    files: &F,
    directory: &Path,
    config: &LogConfig,
) -> Result<Vec<SegmentHeader>> {
    let names = files.list(directory).map_err(io_error(directory, "list"))?;
    for name in names
        .iter()
        .filter(|name| name.ends_with(UNFINISHED_SUFFIX))
    {
        let path = directory.join(name);
        files.remove(&path).map_err(io_error(&path, "delete"))?;
    }
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| segment::number_of(name))
        .collect();
    numbers.sort_unstable();
    let mut headers = Vec::new();
    for (index, &number) in numbers.iter().enumerate() {
        let expected = numbers[0] + index as u64;
        if number != expected {
            return Err(StorageError::Missing {
                path: segment::path(directory, expected),
            });
        }
        headers.push(read_header(files, directory, number, config.node)?);
    }
    Ok(headers)
}

fn read_header<F: Files>(
    files: &F,
    directory: &Path,
    number: u64,
    node: u64,
) -> Result<SegmentHeader> {
    let path = segment::path(directory, number);
    let mut bytes = [0; HEADER_LEN as usize];
    let file = files.open(&path).map_err(io_error(&path, "open"))?;
    let read = file
        .read_at(&mut bytes, 0)
        .map_err(io_error(&path, "read"))?;
    SegmentHeader::decode(&bytes[..read], &path, number, node)
}
