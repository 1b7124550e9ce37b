//! The thread that waits for the disk instead of the workers: it syncs, and allocates segments ahead.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use thicket_storage::{OsFiles, PrepareJob, Result, Store, SyncDone, SyncJob};

use crate::disk::Disk;

/// Work for the syncer.
enum Job {
    Sync(SyncJob<OsFiles>, Sender<SyncDone>),
    Prepare(PrepareJob<OsFiles>),
    Store(Arc<Store>, Sender<Result<()>>),
}

/// A handle to the thread, which ends with the last handle.
#[derive(Debug, Clone)]
pub(super) struct Syncer(Sender<Job>);

impl Syncer {
    pub(super) fn start(disk: Arc<Disk>) -> io::Result<Self> {
        let (sender, jobs) = channel::<Job>();
        std::thread::Builder::new()
            .name("syncer".into())
            .spawn(move || {
                for job in jobs {
                    job.run(&disk);
                }
            })?;
        Ok(Self(sender))
    }

    /// Syncs a log; the result goes to `done`.
    pub(super) fn sync(&self, job: SyncJob<OsFiles>, done: Sender<SyncDone>) {
        self.order(Job::Sync(job, done));
    }

    /// Allocates the next segment of a log, which uses it once it exists.
    pub(super) fn prepare(&self, job: PrepareJob<OsFiles>) {
        self.order(Job::Prepare(job));
    }

    /// Syncs the store; the result goes to `done`.
    pub(super) fn sync_store(&self, store: Arc<Store>, done: Sender<Result<()>>) {
        self.order(Job::Store(store, done));
    }

    fn order(&self, job: Job) {
        // The thread lives as long as there is a handle.
        let _ = self.0.send(job);
    }
}

impl Job {
    fn run(self, disk: &Disk) {
        // The receiver is gone if the node has stopped meanwhile: it has synced everything itself.
        match self {
            Self::Sync(job, done) => {
                let _ = done.send(disk.time(|| job.run()));
            }
            Self::Prepare(job) => {
                if let Err(error) = job.run() {
                    tracing::error!(%error, "cannot allocate the next segment of a log");
                }
            }
            Self::Store(store, done) => {
                let _ = done.send(disk.time(|| store.sync()));
            }
        }
    }
}
