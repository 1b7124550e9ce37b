//! The storage of one thread: its worker's log, and the store for worker and hub.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use thicket_node::{Hub, LogStatus, Now, RecoverError, StoreOperation, Stored, Unstored, Worker};
use thicket_session::time::Instant;
use thicket_storage::{
    DataDirectory, Durability, Log, Replay, StorageError, Store, StoreOp, SyncDone, record_bytes,
};

use super::{Storage, SyncMode, Syncer, keyspace};
use crate::disk::{self, Disk};

/// Time between two syncs in `interval` mode.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time between two checks of free disk space while something is stored: other processes fill the disk too.
const LOOK: Duration = Duration::from_millis(10);
/// When a log has less capacity than this, its next segment is waited for: a round gathers at most half of it and one read more.
const LOW_SPACE: u64 = 8 * 1024 * 1024;

/// Why a thread cannot start from the stored data.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The files cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The content is not valid.
    #[error("{0}; start the version that wrote it, or restore the data directory from a backup")]
    Content(#[from] RecoverError),
}

/// The storage of one thread.
#[derive(Debug)]
pub(crate) struct WorkerStorage {
    directory: Arc<DataDirectory>,
    store: Arc<Store>,
    syncer: Syncer,
    disk: Arc<Disk>,
    sync: SyncMode,
    /// Index of the worker, and number of workers.
    index: u8,
    workers: u8,
    /// Capacity of the log below which its next segment is waited for.
    low_space: u64,
    log: OpenLog,
    /// Logs of workers that no longer exist.
    others: Vec<(u32, Replay)>,
    synced: Answers<SyncDone>,
    store_synced: Answers<Result<(), StorageError>>,
    is_store_dirty: bool,
    /// Changes of values that exceeded the capacity, in order.
    deferred: Vec<StoreOperation>,
    /// Capacity of the store at the last check.
    store_space: u64,
    look_at: Instant,
    tick_at: Instant,
    was_full: bool,
}

/// Sender and receiver of the syncer's answers.
type Answers<T> = (Sender<T>, Receiver<T>);

/// A log is read first, then written.
#[derive(Debug)]
enum OpenLog {
    Read(Box<Replay>),
    Written(Box<Log>),
    /// Between reading and writing, or after reading failed.
    Nothing,
}

impl WorkerStorage {
    pub(super) fn new(
        storage: &Storage,
        (index, workers): (u8, u8),
        log: Replay,
        others: Vec<(u32, Replay)>,
    ) -> Self {
        Self {
            directory: Arc::clone(&storage.directory),
            store: Arc::clone(&storage.store),
            syncer: storage.syncer.clone(),
            disk: Arc::clone(&storage.disk),
            sync: storage.sync,
            index,
            workers,
            low_space: LOW_SPACE.min(storage.log_config.segment_bytes / 2),
            log: OpenLog::Read(Box::new(log)),
            others,
            synced: channel(),
            store_synced: channel(),
            is_store_dirty: false,
            deferred: Vec::new(),
            store_space: u64::MAX,
            look_at: Instant::default(),
            tick_at: Instant::default(),
            was_full: false,
        }
    }

    /// Hands all stored data to a new worker and hub.
    ///
    /// # Errors
    /// [`RecoveryError`]: the node must not start.
    pub(crate) fn recover(
        &mut self,
        now: Now,
        worker: &mut Worker,
        hub: Option<&mut Hub>,
    ) -> Result<(), RecoveryError> {
        for keyspace in [
            thicket_node::Keyspace::Sessions,
            thicket_node::Keyspace::Subscriptions,
        ] {
            self.recover_values(now, keyspace, worker)?;
        }
        if let Some(hub) = hub {
            self.recover_hub(now, hub)?;
        }
        for (log, replay) in &mut self.others {
            read(now, *log, replay, worker)?;
        }
        let OpenLog::Read(mut replay) = std::mem::replace(&mut self.log, OpenLog::Nothing) else {
            return Ok(());
        };
        read(now, u32::from(self.index), &mut replay, worker)?;
        let (log, recovered) = replay.finish()?;
        if let Some(torn) = recovered.torn {
            tracing::warn!(worker = self.index, "{torn}");
        }
        self.log = OpenLog::Written(Box::new(log));
        worker.finish_recovery(now);
        self.update_space();
        if let Some(unstored) = worker.unstored(now) {
            self.store(&unstored)?;
        }
        worker.handle_stored(self.status());
        self.remove_others()?;
        Ok(())
    }

    fn recover_values(
        &self,
        now: Now,
        kind: thicket_node::Keyspace,
        worker: &mut Worker,
    ) -> Result<(), RecoveryError> {
        // The first byte of a key is the log; each worker reads its own keys, all in parallel.
        for log in (self.index..=u8::MAX).step_by(usize::from(self.workers)) {
            for entry in self.store.iterate_prefix(keyspace(kind), &[log]) {
                let entry = entry?;
                let stored = Stored::Value {
                    keyspace: kind,
                    key: entry.key(),
                    value: entry.value(),
                };
                worker.recover(now, stored)?;
            }
        }
        Ok(())
    }

    fn recover_hub(&self, now: Now, hub: &mut Hub) -> Result<(), RecoveryError> {
        for kind in [
            thicket_node::Keyspace::Members,
            thicket_node::Keyspace::Retained,
        ] {
            for entry in self.store.iterate(keyspace(kind)) {
                let entry = entry?;
                let stored = Stored::Value {
                    keyspace: kind,
                    key: entry.key(),
                    value: entry.value(),
                };
                hub.recover(now, stored)?;
            }
        }
        Ok(())
    }

    /// Removes the logs of workers that no longer exist: their data was stored again.
    fn remove_others(&mut self) -> Result<(), StorageError> {
        if self.others.is_empty() {
            return Ok(());
        }
        if let OpenLog::Written(log) = &mut self.log {
            log.sync()?;
        }
        self.store.sync()?;
        for (log, _) in self.others.drain(..) {
            self.directory.remove_log(log)?;
        }
        Ok(())
    }

    /// Stores what worker and hub gathered. When this returns, it survives the end of the process, and in `commit` mode a loss of power.
    ///
    /// # Errors
    /// [`StorageError`]: it is unknown what is stored, so nothing of the round may leave: the node must end.
    pub(crate) fn store(&mut self, unstored: &Unstored<'_>) -> Result<LogStatus, StorageError> {
        // The record before the values: entries of an unknown session are ignored at recovery, but a session without its messages would have lost
        // them.
        if let OpenLog::Written(log) = &mut self.log
            && !unstored.record.is_empty()
        {
            log.append(&[unstored.record])?;
            if self.sync == SyncMode::Commit {
                self.disk.time(|| log.sync())?;
            }
            if log.wants_segment()
                && let Some(job) = log.begin_prepare()
            {
                self.syncer.prepare(job);
            }
        }
        self.store_values(unstored.operations)?;
        self.wait_for_space()?;
        Ok(self.status())
    }

    /// Stores changes of values, after those deferred for lack of capacity.
    ///
    /// New data was refused earlier if there was no capacity (`LogStatus::values_space`); the changes that still arrive are about clients that connect
    /// and disconnect. They wait in memory: if the process ends before there is capacity, they are lost.
    fn store_values(&mut self, operations: &[StoreOperation]) -> Result<(), StorageError> {
        if operations.is_empty() && self.deferred.is_empty() {
            return Ok(());
        }
        let durability = match self.sync {
            SyncMode::Commit => Durability::Synced,
            SyncMode::Interval | SyncMode::None => Durability::Written,
        };
        let all = self.deferred.iter().chain(operations);
        let changes: Vec<StoreOp<'_>> = all.map(operation).filter(is_possible).collect();
        match self.store.commit(&changes, durability) {
            Ok(()) => {
                self.deferred.clear();
                self.is_store_dirty |= self.sync != SyncMode::Commit;
                Ok(())
            }
            Err(StorageError::OutOfSpace { .. }) => {
                self.defer(operations);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps only the last change of each key.
    fn defer(&mut self, operations: &[StoreOperation]) {
        self.update_space();
        let changed: HashSet<_> = operations.iter().map(|it| (it.keyspace, &it.key)).collect();
        self.deferred
            .retain(|it| !changed.contains(&(it.keyspace, &it.key)));
        self.deferred.extend_from_slice(operations);
    }

    /// Waits for the next segment if this one is nearly full, as happens while the disk is slower than the clients.
    fn wait_for_space(&mut self) -> Result<(), StorageError> {
        if let OpenLog::Written(log) = &mut self.log
            && log.space() < self.low_space
            && !log.is_full()
        {
            log.wait_for_segment()?;
        }
        Ok(())
    }

    /// Segments before this one are no longer needed.
    pub(crate) fn remove_before(&mut self, segment: u64) {
        if let OpenLog::Written(log) = &mut self.log {
            log.remove_before(segment);
            self.disk.note_checkpoint(self.index);
        }
    }

    /// The state of the log, and its capacity.
    pub(crate) fn status(&self) -> LogStatus {
        let OpenLog::Written(log) = &self.log else {
            return stored_status(self.store_space);
        };
        LogStatus {
            segment: log.current_segment(),
            bytes: log.needed_bytes(),
            // Only allocated space counts: it stays available even if other processes fill the disk.
            space: log.space().saturating_sub(record_bytes(0)),
            is_short: log.is_short(),
            values_space: self.store_space,
        }
    }

    /// The capacity for values.
    pub(crate) const fn store_status(&self) -> LogStatus {
        stored_status(self.store_space)
    }

    /// When `tick` is due.
    pub(crate) const fn next_tick(&self) -> Instant {
        self.tick_at
    }

    /// Bytes of records that a round may gather before they are stored.
    pub(crate) fn round_bytes(&self) -> u64 {
        self.status().space / 2
    }

    /// Syncs about once a second and checks free disk space more often; `Some`: the new state of the log.
    ///
    /// # Errors
    /// [`StorageError`]: a sync failed, so it is unknown what is on the disk: the node must end.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<Option<LogStatus>, StorageError> {
        if now < self.look_at {
            return Ok(None);
        }
        self.look_at = now + LOOK;
        self.update_space();
        if now >= self.tick_at {
            self.tick_at = now + INTERVAL;
            self.sync_what_is_due()?;
        }
        Ok(Some(self.status()))
    }

    fn sync_what_is_due(&mut self) -> Result<(), StorageError> {
        if !self.deferred.is_empty() {
            self.store_values(&[])?;
        }
        while let Ok(done) = self.store_synced.1.try_recv() {
            done?;
        }
        if std::mem::take(&mut self.is_store_dirty) {
            let answer = self.store_synced.0.clone();
            self.syncer.sync_store(Arc::clone(&self.store), answer);
        }
        if let OpenLog::Written(log) = &mut self.log {
            while let Ok(done) = self.synced.1.try_recv() {
                log.finish_sync(done)?;
            }
            if let Some(job) = log.begin_sync() {
                self.syncer.sync(job, self.synced.0.clone());
            }
            if let Some(job) = log.begin_prepare() {
                self.syncer.prepare(job);
            }
        }
        Ok(())
    }

    fn update_space(&mut self) {
        self.store_space = self.store.space();
        // A log with little space refuses large messages before it refuses all.
        let is_short =
            |log: &Log| log.is_full() || (log.is_short() && log.space() < self.low_space);
        let is_full =
            self.store_space == 0 || matches!(&self.log, OpenLog::Written(log) if is_short(log));
        if is_full && !self.was_full {
            tracing::error!(
                directory = %self.directory.path().display(),
                "{}",
                disk::NOT_STORED
            );
        } else if self.was_full && !is_full {
            tracing::info!("the disk has free space again");
        }
        self.was_full = is_full;
        let bytes = match &self.log {
            OpenLog::Written(log) => log.needed_bytes(),
            OpenLog::Read(_) | OpenLog::Nothing => 0,
        };
        self.disk.note_log(self.index, bytes, is_full);
    }

    /// Waits until everything is on disk; the last step of a thread.
    pub(crate) fn close(&mut self) {
        if let Err(error) = self.store_values(&[]) {
            tracing::error!(%error, "the last changes of sessions were not stored");
        }
        if !self.deferred.is_empty() {
            tracing::error!(
                changes = self.deferred.len(),
                "the disk is full: the last changes of sessions were not stored"
            );
        }
        let result = match &mut self.log {
            OpenLog::Written(log) => {
                // A pending sync answers, or the thread that runs it has ended.
                while log.is_syncing() {
                    match self.synced.1.recv_timeout(INTERVAL * 10) {
                        Ok(done) => {
                            if let Err(error) = log.finish_sync(done) {
                                tracing::error!(%error, "the last sync failed");
                                return;
                            }
                        }
                        Err(_) => break,
                    }
                }
                log.sync()
            }
            OpenLog::Read(_) | OpenLog::Nothing => Ok(()),
        };
        if let Err(error) = result.and_then(|()| self.store.sync()) {
            tracing::error!(%error, "the last sync failed");
        }
    }
}

/// The status for a worker or hub without a log.
const fn stored_status(space: u64) -> LogStatus {
    LogStatus {
        segment: 0,
        bytes: 0,
        space,
        is_short: false,
        values_space: space,
    }
}

/// Whether the store can hold a change. What clients choose is checked before it is accepted, so a change that it cannot hold is a fault of the node: that
/// one change is lost and named, and the others are stored.
fn is_possible(change: &StoreOp<'_>) -> bool {
    let checked = change.check();
    if let Err(error) = &checked {
        tracing::error!(%error, "a change of a session or a retained message is not stored");
    }
    checked.is_ok()
}

fn operation(operation: &StoreOperation) -> StoreOp<'_> {
    let (keyspace, key) = (keyspace(operation.keyspace), operation.key.as_slice());
    match &operation.value {
        Some(value) => StoreOp::Put {
            keyspace,
            key,
            value,
        },
        None => StoreOp::Remove { keyspace, key },
    }
}

fn read(now: Now, log: u32, replay: &mut Replay, worker: &mut Worker) -> Result<(), RecoveryError> {
    let log = u8::try_from(log).unwrap_or(u8::MAX);
    while let Some(record) = replay.next_record()? {
        let stored = Stored::Record {
            log,
            record: record.body,
        };
        worker.recover(now, stored)?;
    }
    Ok(())
}
