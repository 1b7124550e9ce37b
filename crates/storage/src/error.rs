//! Errors of files, in words an operator can act on.

use std::io;
use std::path::{Path, PathBuf};

/// An error of the files of a node.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Refused by the system: an operation on a file failed. What was synced before is intact; restart when the cause is fixed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// The operation that failed, as a verb.
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Refused by the system: the disk is full. Nothing changed; try again when `poll_space` reports capacity.
    #[error("{}: no free space on the disk for {needed_bytes} bytes above the reserve", path.display())]
    OutOfSpace {
        /// The directory that would have grown.
        path: PathBuf,
        /// Number of bytes to write or allocate.
        needed_bytes: u64,
    },
    /// Malformed: synced bytes have changed. Nothing was changed.
    #[error(
        "{}: damaged at byte {offset}: {problem}; restore the data directory from a backup, or move this file and all later ones \
         of its directory away and accept the loss of what they hold", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it, in bytes from its start.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
    /// Malformed: a file between two others is missing. Nothing was changed.
    #[error(
        "{}: missing, although later files of its directory are there; restore the data directory from a backup, or move the later \
         files away and accept the loss of what they hold", path.display()
    )]
    Missing {
        /// The missing file.
        path: PathBuf,
    },
    /// Refused: the file was written by a version of Thicket with another format. Nothing was changed.
    #[error(
        "{}: written in format {found}, this version reads format {expected}; start the version that wrote it", path.display()
    )]
    ForeignFormat {
        /// The file.
        path: PathBuf,
        /// Format found.
        found: u64,
        /// Format this version reads and writes.
        expected: u64,
    },
    /// Refused: the file belongs to another node. Nothing was changed.
    #[error(
        "{}: belongs to node {found:016x}, this is node {expected:016x}; each node needs a data directory of its own", path.display()
    )]
    ForeignNode {
        /// The file.
        path: PathBuf,
        /// The node that wrote it.
        found: u64,
        /// This node.
        expected: u64,
    },
    /// Refused: another process uses the data directory.
    #[error("{}: in use by another node; stop it, or give this one a data directory of its own", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Refused by the system earlier: after a failed operation it is unknown what is on disk. Nothing more is accepted; restart.
    #[error("{}: an earlier write or sync failed, nothing is stored until the node is started again", path.display())]
    Failed {
        /// The directory.
        path: PathBuf,
    },
    /// Misuse: a sync was requested while another thread runs one. Nothing changed; finish that one first.
    #[error("{}: a sync is under way already", path.display())]
    Busy {
        /// The directory.
        path: PathBuf,
    },
    /// Misuse: a record or a key is longer than its format allows. Nothing changed.
    #[error("{what} of {bytes} bytes, at most {maximum} are possible")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        maximum: u64,
    },
    /// Misuse: keys of the store have at least one byte. Nothing changed.
    #[error("a key of the store is empty")]
    EmptyKey,
    /// Refused by the embedded store. What was committed before is intact; restart.
    #[error("{}: the store cannot {action}: {problem}", path.display())]
    Store {
        /// Directory of the store.
        path: PathBuf,
        /// The operation that failed, as a verb.
        action: &'static str,
        /// Why, in the engine's words.
        problem: String,
    },
}

/// Short for results of this crate.
pub type Result<T> = std::result::Result<T, StorageError>;

/// Turns an error of the system into one that names the file and the operation.
pub(crate) fn io_error(
    path: &Path,
    action: &'static str,
) -> impl FnOnce(io::Error) -> StorageError {
    let path = path.to_owned();
    move |source| StorageError::Io {
        path,
        action,
        source,
    }
}

/// Whether the disk, or the quota on it, is full.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
