//! Creates segments, including the one allocated ahead.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::segment::{self, HEADER_LEN, SegmentHeader};
use super::{LogConfig, MINIMUM_SEGMENT_BYTES, mix};
use crate::error::{Result, StorageError, io_error, is_out_of_space};
use crate::files::{Files, StoredFile};

/// A segment for appending.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub(crate) number: u64,
    pub(crate) salt: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: F,
    /// Allocated length of the file.
    pub(crate) bytes: u64,
}

/// The segment after the current one, created by whichever thread comes first.
#[derive(Debug)]
pub(crate) struct Spare<F: Files> {
    files: F,
    directory: PathBuf,
    config: LogConfig,
    next: Mutex<Next<F::File>>,
}

#[derive(Debug)]
struct Next<S> {
    /// Number of this segment.
    number: u64,
    state: State<S>,
}

#[derive(Debug)]
enum State<S> {
    /// It must be created.
    Wanted,
    /// The disk was full.
    Full,
    Ready(Segment<S>),
}

impl<F: Files> Spare<F> {
    /// Nothing is created yet; the first will be `number`.
    pub(crate) fn new(files: F, directory: PathBuf, config: LogConfig, number: u64) -> Self {
        let state = State::Wanted;
        Self {
            files,
            directory,
            config,
            next: Mutex::new(Next { number, state }),
        }
    }

    fn next(&self) -> MutexGuard<'_, Next<F::File>> {
        self.next
            .lock()
            .expect("no thread panics while it makes a segment")
    }

    /// The result of `look`; `None` while another thread creates the segment.
    fn look<T>(&self, look: impl FnOnce(&State<F::File>) -> T) -> Option<T> {
        let next = self.next.try_lock().ok()?;
        Some(look(&next.state))
    }

    /// Bytes for records in the segment allocated ahead; 0 while another thread creates it.
    pub(crate) fn space(&self) -> u64 {
        let space = self.look(|state| match state {
            State::Ready(segment) => segment.bytes - HEADER_LEN,
            State::Wanted | State::Full => 0,
        });
        space.unwrap_or(0)
    }

    /// Whether the disk was full.
    pub(crate) fn is_full(&self) -> bool {
        self.look(|state| matches!(state, State::Full)) == Some(true)
    }

    /// Whether the disk had less space than a segment of the configured size needs.
    pub(crate) fn is_short(&self) -> bool {
        let is_short = |state: &State<F::File>| match state {
            State::Ready(segment) => segment.bytes < self.config.segment_bytes,
            State::Full => true,
            State::Wanted => false,
        };
        self.look(is_short) == Some(true)
    }

    /// Whether it must still be created; false while another thread creates it, and while the disk is known to be full.
    pub(crate) fn is_wanted(&self) -> bool {
        self.look(|state| matches!(state, State::Wanted)) == Some(true)
    }

    /// The next segment, which fits a record of `len` bytes; created now if it was not allocated ahead.
    pub(crate) fn take(&self, len: u64, reserve: u64) -> Result<Segment<F::File>> {
        let needed = HEADER_LEN + len;
        let mut next = self.next();
        if !matches!(next.state, State::Ready(_)) {
            self.make(&mut next, needed, reserve)?;
        }
        let State::Ready(segment) = &mut next.state else {
            return Err(self.out_of_space(needed));
        };
        grow(&self.files, &self.directory, segment, needed)?;
        next.number += 1;
        match std::mem::replace(&mut next.state, State::Wanted) {
            State::Ready(segment) => Ok(segment),
            State::Wanted | State::Full => Err(self.out_of_space(needed)),
        }
    }

    /// Creates the next segment: as large as configured, or half, or half of that and so on, as the disk permits.
    fn make(&self, next: &mut Next<F::File>, needed: u64, reserve: u64) -> Result<()> {
        let smallest = MINIMUM_SEGMENT_BYTES
            .min(self.config.segment_bytes)
            .max(needed);
        let mut bytes = self.config.segment_bytes.max(needed);
        next.state = State::Full;
        loop {
            let place = Place {
                files: &self.files,
                directory: &self.directory,
                config: &self.config,
            };
            if let Some(segment) = place.create(next.number, bytes, reserve)? {
                next.state = State::Ready(segment);
                return Ok(());
            }
            if bytes == smallest {
                return Ok(());
            }
            bytes = (bytes / 2).max(smallest);
        }
    }

    fn out_of_space(&self, needed_bytes: u64) -> StorageError {
        StorageError::OutOfSpace {
            path: self.directory.clone(),
            needed_bytes,
        }
    }
}

/// Allocates the next segment of a log; may run on any thread.
#[derive(Debug)]
pub struct PrepareJob<F: Files> {
    spare: Arc<Spare<F>>,
}

impl<F: Files> PrepareJob<F> {
    pub(crate) fn new(spare: &Arc<Spare<F>>) -> Option<Self> {
        let is_missing = spare.look(|state| !matches!(state, State::Ready(_)));
        (is_missing == Some(true) || spare.is_short()).then(|| Self::of(spare))
    }

    pub(crate) fn of(spare: &Arc<Spare<F>>) -> Self {
        Self {
            spare: Arc::clone(spare),
        }
    }

    /// Allocates it, unless that has been done meanwhile. One that is small because the disk had no more space grows as the disk permits.
    ///
    /// # Errors
    /// The system's error. A full disk is not an error: [`Log::is_full`](super::Log::is_full) reports it.
    pub fn run(self) -> Result<()> {
        let mut next = self.spare.next();
        let Spare {
            files,
            directory,
            config,
            ..
        } = &*self.spare;
        let reserve = config.reserve_bytes;
        let State::Ready(segment) = &mut next.state else {
            return self.spare.make(&mut next, HEADER_LEN, reserve);
        };
        let missing = config.segment_bytes.saturating_sub(segment.bytes);
        let free = files
            .free_bytes(directory)
            .map_err(io_error(directory, "read the free space"))?;
        if missing > 0 && free >= missing.saturating_add(reserve) {
            match grow(files, directory, segment, config.segment_bytes) {
                Ok(()) | Err(StorageError::OutOfSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The directory for segments.
struct Place<'a, F> {
    files: &'a F,
    directory: &'a Path,
    config: &'a LogConfig,
}

impl<F: Files> Place<'_, F> {
    /// Creates segment `number` under its name, header synced; `None` if that would leave less than `reserve` bytes on the disk.
    fn create(&self, number: u64, bytes: u64, reserve: u64) -> Result<Option<Segment<F::File>>> {
        let free = self
            .files
            .free_bytes(self.directory)
            .map_err(io_error(self.directory, "read the free space"))?;
        if free < bytes.saturating_add(reserve) {
            return Ok(None);
        }
        let unfinished = segment::unfinished_path(self.directory, number);
        let path = segment::path(self.directory, number);
        let mut state = self.config.seed ^ number.rotate_left(32);
        let header = SegmentHeader {
            number,
            node: self.config.node,
            salt: mix(&mut state),
        };
        let made = write_header(self.files, &unfinished, &header, bytes).and_then(|file| {
            self.files.rename(&unfinished, &path)?;
            self.files.sync_directory(self.directory)?;
            Ok(file)
        });
        match made {
            Ok(file) => Ok(Some(Segment {
                number,
                salt: header.salt,
                path,
                file,
                bytes,
            })),
            Err(error) => {
                // The unfinished file takes space; if removing it fails too, the next start removes it.
                let _ = self.files.remove(&unfinished);
                if is_out_of_space(&error) {
                    return Ok(None);
                }
                Err(io_error(&path, "make the segment")(error))
            }
        }
    }
}

fn write_header<F: Files>(
    files: &F,
    path: &Path,
    header: &SegmentHeader,
    bytes: u64,
) -> io::Result<F::File> {
    let file = files.create(path)?;
    file.allocate(bytes)?;
    file.write_all_at(&header.encode(), 0)?;
    file.sync_data()?;
    Ok(file)
}

/// Extends a segment to at least `needed` bytes, for a record that is larger than a segment.
pub(crate) fn grow<F: Files>(
    files: &F,
    directory: &Path,
    segment: &mut Segment<F::File>,
    needed: u64,
) -> Result<()> {
    if segment.bytes >= needed {
        return Ok(());
    }
    let out_of_space = || StorageError::OutOfSpace {
        path: directory.to_owned(),
        needed_bytes: needed,
    };
    let free = files
        .free_bytes(directory)
        .map_err(io_error(directory, "read the free space"))?;
    if free < needed - segment.bytes {
        return Err(out_of_space());
    }
    match segment.file.allocate(needed) {
        Ok(()) => {}
        Err(error) if is_out_of_space(&error) => return Err(out_of_space()),
        Err(error) => return Err(io_error(&segment.path, "allocate")(error)),
    }
    segment.bytes = needed;
    Ok(())
}
