//! Syncs a log, on this thread or another.

use std::path::{Path, PathBuf};

use super::{Log, segment};
use crate::error::{Result, StorageError, io_error};
use crate::files::{Files, StoredFile};

/// The work of one sync; may run on any thread while the log continues to append.
#[derive(Debug)]
pub struct SyncJob<F: Files> {
    files: F,
    directory: PathBuf,
    dirty: Vec<(PathBuf, F::File)>,
    up_to: u64,
    /// Segments to delete after the sync: the first, and the one after the last.
    removal: Option<(u64, u64)>,
}

/// The result of a sync, for [`Log::finish_sync`].
#[derive(Debug)]
#[must_use = "the log must hear of it"]
pub struct SyncDone {
    up_to: u64,
    first_segment: Option<u64>,
    result: Result<()>,
}

impl<F: Files> SyncJob<F> {
    /// Syncs, then deletes the segments that [`Log::remove_before`] named.
    pub fn run(self) -> SyncDone {
        let mut done = SyncDone {
            up_to: self.up_to,
            first_segment: None,
            result: Ok(()),
        };
        for (path, file) in &self.dirty {
            if let Err(error) = file.sync_data() {
                done.result = Err(io_error(path, "sync")(error));
                return done;
            }
        }
        for number in self.removal.map_or(0..0, |(first, end)| first..end) {
            if let Err(error) = remove(&self.files, &self.directory, number) {
                done.result = Err(error);
                return done;
            }
            done.first_segment = Some(number + 1);
        }
        done
    }
}

/// Deletes one segment and syncs the directory, so that no crash leaves an older one without a newer one.
pub(crate) fn remove<F: Files>(files: &F, directory: &Path, number: u64) -> Result<()> {
    let path = segment::path(directory, number);
    files.remove(&path).map_err(io_error(&path, "delete"))?;
    files
        .sync_directory(directory)
        .map_err(io_error(directory, "sync the directory"))
}

impl<F: Files> Log<F> {
    /// Waits until all that was appended is on disk.
    ///
    /// # Errors
    /// The system's error; then the log accepts no more. `Failed` if a sync has failed before. `Busy` while a [`SyncJob`] is pending.
    pub fn sync(&mut self) -> Result<()> {
        self.check_usable()?;
        if self.is_syncing {
            return Err(StorageError::Busy {
                path: self.directory.clone(),
            });
        }
        match self.begin_sync() {
            Some(job) => self.finish_sync(job.run()),
            None => Ok(()),
        }
    }

    /// A sync of all that was appended so far, for another thread; `None` if there is nothing to sync, or one is pending.
    ///
    /// Its result must be passed to [`finish_sync`](Self::finish_sync) before the next sync begins.
    #[must_use]
    pub fn begin_sync(&mut self) -> Option<SyncJob<F>> {
        let nothing = self.dirty.is_empty() && self.removal.is_none();
        if self.is_syncing || self.failed || nothing {
            return None;
        }
        self.is_syncing = true;
        let first = self.first_segment();
        Some(SyncJob {
            files: self.files.clone(),
            directory: self.directory.clone(),
            dirty: std::mem::take(&mut self.dirty),
            up_to: self.next_sequence,
            removal: self.removal.take().map(|segment| (first, segment)),
        })
    }

    /// Notes the result of a sync.
    ///
    /// # Errors
    /// The error of the sync; then the log accepts no more, because it is unknown which bytes are on disk.
    pub fn finish_sync(&mut self, done: SyncDone) -> Result<()> {
        self.is_syncing = false;
        if let Some(first) = done.first_segment {
            self.segments.retain(|info| info.number >= first);
        }
        match done.result {
            Ok(()) => {
                self.synced = self.synced.max(done.up_to);
                Ok(())
            }
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }

    /// Whether a [`SyncJob`] is pending, whose result must still be passed to [`finish_sync`](Self::finish_sync).
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.is_syncing
    }

    /// Whether something was appended that no finished sync covers.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.synced < self.next_sequence
    }
}
