//! How the disk under the data directory does: shared by the threads that write and by whoever asks.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What `ready` and the log say of a full disk.
pub(crate) const NOT_STORED: &str =
    "the disk is full: messages that would have to be stored are refused until there is room";

/// Upper bounds of the buckets of the histogram of sync times, seconds.
pub(crate) const BUCKETS: [f64; 8] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0];

/// What is known of the disk.
#[derive(Debug)]
pub(crate) struct Disk {
    directory: PathBuf,
    workers: Box<[OfWorker]>,
    syncs: [AtomicU64; BUCKETS.len()],
    slow_syncs: AtomicU64,
    sync_nanos: AtomicU64,
}

/// What one thread stores.
#[derive(Debug, Default)]
struct OfWorker {
    log_bytes: AtomicU64,
    checkpoints: AtomicU64,
    is_full: AtomicBool,
}

/// Sync times as a histogram, each bucket alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Syncs {
    pub(crate) buckets: [u64; BUCKETS.len()],
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

impl Disk {
    pub(crate) fn new(directory: &Path, workers: u8) -> Self {
        Self {
            directory: directory.to_owned(),
            workers: (0..workers).map(|_| OfWorker::default()).collect(),
            syncs: Default::default(),
            slow_syncs: AtomicU64::new(0),
            sync_nanos: AtomicU64::new(0),
        }
    }

    /// How the log of a worker stands.
    pub(crate) fn note_log(&self, worker: u8, bytes: u64, is_full: bool) {
        if let Some(of) = self.workers.get(usize::from(worker)) {
            of.log_bytes.store(bytes, Ordering::Relaxed);
            of.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// A worker has written anew what lives of its log, and removes what was before.
    pub(crate) fn note_checkpoint(&self, worker: u8) {
        if let Some(of) = self.workers.get(usize::from(worker)) {
            of.checkpoints.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs a sync and counts how long it took.
    pub(crate) fn time<T>(&self, sync: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = sync();
        self.note_sync(began.elapsed());
        result
    }

    fn note_sync(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound);
        let count = bucket.map_or(&self.slow_syncs, |bucket| &self.syncs[bucket]);
        count.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sync_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Whether a thread finds no room for what it would have to store.
    pub(crate) fn is_full(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.any(|worker| worker.is_full.load(Ordering::Relaxed))
    }

    /// Of all workers: bytes of their logs, and how often they were written anew.
    pub(crate) fn logs(&self) -> (u64, u64) {
        let sum = |count: fn(&OfWorker) -> &AtomicU64| {
            let counts = self.workers.iter().map(count);
            counts.map(|count| count.load(Ordering::Relaxed)).sum()
        };
        (sum(|it| &it.log_bytes), sum(|it| &it.checkpoints))
    }

    pub(crate) fn syncs(&self) -> Syncs {
        let buckets = std::array::from_fn(|index| self.syncs[index].load(Ordering::Relaxed));
        let nanos = Duration::from_nanos(self.sync_nanos.load(Ordering::Relaxed));
        Syncs {
            buckets,
            count: buckets.iter().sum::<u64>() + self.slow_syncs.load(Ordering::Relaxed),
            seconds: nanos.as_secs_f64(),
        }
    }

    /// Bytes free and in all on the file system; `None`: the system does not say.
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

    #[test]
    fn a_sync_counts_in_the_bucket_of_its_length() {
        let disk = Disk::new(Path::new("/"), 1);
        for millis in [1, 2, 60_000] {
            disk.note_sync(Duration::from_millis(millis));
        }
        let syncs = disk.syncs();
        assert_eq!(syncs.buckets, [1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!((syncs.count, syncs.seconds), (3, 60.003));
    }
}
