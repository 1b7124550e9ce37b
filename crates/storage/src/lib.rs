//! The files of one node.
mod error;
mod files;
mod log;
mod memory;

pub use error::{Result, StorageError};
pub use files::{Files, OsFile, OsFiles, StoredFile};
pub use log::{
    Appended, Log, LogConfig, MINIMUM_SEGMENT_BYTES, PrepareJob, Record, Recovered, Replay,
    SyncDone, SyncJob, TornTail, record_bytes,
};
pub use memory::{MemoryFile, MemoryFiles};
