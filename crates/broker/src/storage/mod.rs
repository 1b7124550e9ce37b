//! The data directory of a node: opened at the start, distributed to the threads.
//!
//! Each worker has its own log; all share one store. A thread writes what its worker and hub gathered in a round before anything of the round leaves
//! (`WorkerStorage::store`), and has it synced once a second on the syncer's thread.

mod syncer;
mod worker;

use std::sync::Arc;

use serde::Deserialize;
use thicket_overlay::NodeId;
use thicket_storage::{
    DataDirectory, Keyspace, Log, LogConfig, OsFiles, StorageError, Store, StoreConfig,
};

use self::syncer::Syncer;
pub use self::worker::RecoveryError;
pub(crate) use self::worker::WorkerStorage;
use crate::disk::Disk;

/// When what is stored is safe from a loss of power. What was acknowledged survives the end of the process in any case but `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SyncMode {
    /// Before it is acknowledged.
    Commit,
    /// Within a second after it was acknowledged.
    #[default]
    Interval,
    /// Nothing is stored; the data directory holds the node's identity only.
    None,
}

/// Size of a segment. Two are allocated for each worker, so that a full disk is detected before anything is accepted.
const SEGMENT_BYTES: u64 = 16 * 1024 * 1024;
/// On a small disk, the part that is kept free, and that a segment takes: one in this many bytes.
const PART_OF_DISK: u64 = 32;

/// The data of a node.
#[derive(Debug)]
pub(crate) struct Storage {
    directory: Arc<DataDirectory>,
    store: Arc<Store>,
    syncer: Syncer,
    disk: Arc<Disk>,
    sync: SyncMode,
    log_config: LogConfig,
}

impl Storage {
    /// Opens the data of an earlier start, or creates the files. `seed`: from the system.
    ///
    /// # Errors
    /// [`StorageError`] with the file and what to do.
    pub(crate) fn open(
        directory: Arc<DataDirectory>,
        node: NodeId,
        sync: SyncMode,
        seed: u64,
        disk: Arc<Disk>,
    ) -> Result<Self, StorageError> {
        let disk_bytes = disk_bytes(&directory);
        let part = (disk_bytes / PART_OF_DISK).max(256 * 1024);
        let mut log_config = LogConfig::new(node.0, seed);
        log_config.reserve_bytes = log_config.reserve_bytes.min(part);
        log_config.segment_bytes = SEGMENT_BYTES.min(part);
        let mut store_config = StoreConfig::new(node.0);
        store_config.reserve_bytes = store_config.reserve_bytes.min(part);
        let store = Arc::new(Store::open(&directory.store_path(), store_config)?);
        let syncer = Syncer::start(Arc::clone(&disk)).map_err(|source| StorageError::Io {
            path: directory.path().to_owned(),
            action: "start the thread that syncs",
            source,
        })?;
        Ok(Self {
            directory,
            store,
            syncer,
            disk,
            sync,
            log_config,
        })
    }

    /// The storage of worker `index` of `workers`: its log, and those assigned to it of workers that no longer exist.
    ///
    /// # Errors
    /// [`StorageError`] with the file and what to do.
    pub(crate) fn worker(&self, index: u8, workers: u8) -> Result<WorkerStorage, StorageError> {
        let open = |log: u32| Log::open(OsFiles, &self.directory.log_path(log), self.log_config);
        let mut others = Vec::new();
        for log in self.directory.logs()? {
            if log >= u32::from(workers) && log % u32::from(workers) == u32::from(index) {
                others.push((log, open(log)?));
            }
        }
        Ok(WorkerStorage::new(
            self,
            (index, workers),
            open(u32::from(index))?,
            others,
        ))
    }
}

/// Size of the disk of the directory; an unknown size counts as ample.
fn disk_bytes(directory: &DataDirectory) -> u64 {
    rustix::fs::statvfs(directory.path()).map_or(u64::MAX, |facts| {
        facts.f_blocks.saturating_mul(facts.f_frsize)
    })
}

/// The store's name for a kind of values.
const fn keyspace(keyspace: thicket_node::Keyspace) -> Keyspace {
    match keyspace {
        thicket_node::Keyspace::Sessions => Keyspace::Sessions,
        thicket_node::Keyspace::Subscriptions => Keyspace::Subscriptions,
        thicket_node::Keyspace::Members => Keyspace::Cluster,
        thicket_node::Keyspace::Retained => Keyspace::Retained,
    }
}
