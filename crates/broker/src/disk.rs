//! The state of the disk under the data directory, shared by the threads that write and those that report.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crate::histogram::{Distribution, Histogram, SLOW};

/// The message about a full disk, for `ready` and the log.
pub(crate) const NOT_STORED: &str =
    "the disk is full: messages that would have to be stored are refused until space is free";

/// The known state of the disk.
#[derive(Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
    workers: Box<[OfWorker]>,
    syncs: Histogram,
}

/// The counts of one worker's storage.
#[derive(Debug, Default)]
struct OfWorker {
    log_bytes: AtomicU64,
    checkpoints: AtomicU64,
    is_full: AtomicBool,
}

impl Disk {
    pub(crate) fn new(directory: &Path, workers: u8) -> Self {
        Self {
            directory: directory.to_owned(),
            workers: (0..workers).map(|_| OfWorker::default()).collect(),
            syncs: Histogram::new(SLOW),
        }
    }

    /// Notes the size of a worker's log, and whether the disk is full.
    pub(crate) fn note_log(&self, worker: u8, bytes: u64, is_full: bool) {
        if let Some(of) = self.workers.get(usize::from(worker)) {
            of.log_bytes.store(bytes, Ordering::Relaxed);
            of.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// Counts a checkpoint of a worker.
    pub(crate) fn note_checkpoint(&self, worker: u8) {
        if let Some(of) = self.workers.get(usize::from(worker)) {
            of.checkpoints.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs a sync and measures its duration.
    pub(crate) fn time<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = sync();
        self.syncs.add(began.elapsed(), 1);
        result
    }

    /// Whether a worker cannot store because the disk is full.
    pub(crate) fn is_full(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.any(|worker| worker.is_full.load(Ordering::Relaxed))
    }

    /// Of all workers: bytes of their logs, and number of checkpoints.
    pub(crate) fn logs(&self) -> (u64, u64) {
        let sum = |count: fn(&OfWorker) -> &AtomicU64| {
            let counts = self.workers.iter().map(count);
            counts.map(|count| count.load(Ordering::Relaxed)).sum()
        };
        (sum(|it| &it.log_bytes), sum(|it| &it.checkpoints))
    }

    pub(crate) fn syncs(&self) -> Distribution {
        self.syncs.read()
    }

    /// Bytes free and in total on the file system; `None`: the system does not report them.
    pub(crate) fn space(&self) -> Option<(u64, u64)> {
        let facts = rustix::fs::statvfs(&self.directory).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
        Some((bytes(facts.f_bavail), bytes(facts.f_blocks)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_as_long_as_one_worker_finds_no_room() {
        let disk = Disk::new(Path::new("/"), 2);
        disk.note_log(0, 10, false);
        disk.note_log(1, 20, true);
        assert_eq!((disk.is_full(), disk.logs()), (true, (30, 0)));
        disk.note_log(1, 25, false);
        disk.note_checkpoint(1);
        assert_eq!((disk.is_full(), disk.logs()), (false, (35, 1)));
    }
}
