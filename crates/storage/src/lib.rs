//! The files of one node, and what survives a crash.
//!
//! Three parts, which treat contents as bytes:
//!
//! - [`Log`]: the append-only log of one worker, for messages in queues: one record a round, each with one write.
//! - [`Store`]: small keyed values in atomic batches, for sessions, retained messages and what the node knows about itself.
//! - [`DataDirectory`]: one directory for all of it, used by one process.
//!
//! Left to others: the meaning of the bytes, when to sync, when to start a new generation, threads. `sync = "commit"` is a [`Log::sync`] before the
//! acknowledgement, `"interval"` a [`SyncJob`] each second on a thread of its own; `"none"` does not use this crate.
//!
//! Invariants: what was synced survives a loss of power, what was written survives SIGKILL; records are read back whole and in
//! order, and no others; a start truncates an unsynced tail, refuses to start on corrupt synced data, and changes no file that it
//! refuses; a record that fits into [`Log::space`] never meets a full disk.
//!
//! ```
//! use std::path::Path;
//! use thicket_storage::{Log, LogConfig, MemoryFiles};
//!
//! # fn main() -> thicket_storage::Result<()> {
//! // `OsFiles` is the real one; this disk can lose its power.
//! let disk = MemoryFiles::new(1 << 30);
//! let config = LogConfig::new(7, 0x5eed);
//! let (mut log, _) = Log::open(disk.clone(), Path::new("data/log-0"), config)?.finish()?;
//! log.append(&[b"two parts, ", b"one record"])?;
//! log.sync()?;
//! drop(log);
//! disk.lose_power(1);
//!
//! let mut replay = Log::open(disk, Path::new("data/log-0"), config)?;
//! let record = replay.next_record()?.expect("it was synced");
//! assert_eq!(record.body, b"two parts, one record");
//! let (_log, recovered) = replay.finish()?;
//! assert_eq!(recovered.records, 1);
//! # Ok(())
//! # }
//! ```

mod archives;
mod directory;
mod error;
mod files;
mod log;
mod memory;
mod store;

pub use directory::DataDirectory;
pub use error::{Result, StorageError};
pub use files::{Files, OsFile, OsFiles, StoredFile};
pub use log::{
    Appended, Log, LogConfig, MINIMUM_SEGMENT_BYTES, PrepareJob, Record, Recovered, Replay,
    SyncDone, SyncJob, TornTail, record_bytes,
};
pub use memory::{MemoryFile, MemoryFiles};
pub use store::{Durability, Entry, Keyspace, Store, StoreConfig, StoreOp};
