//! What a node keeps on disk, as seen by its shell: opaque bytes with a place each.
//!
//! A worker has a log of records, one a round, and both worker and hub have values under keys. All of a round is stored
//! before anything of it leaves the node: acknowledgements and messages alike. So there is nothing to take back.

/// A kind of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Keyspace {
    /// One value a session; the first byte of the key is the log its messages are in.
    Sessions,
    /// One value a subscription; the key begins with that of its session.
    Subscriptions,
    /// One value a node that ever joined the cluster; the hub's.
    Members,
    /// One value a retained topic, or a topic whose retained message was removed; the hub's.
    Retained,
}

/// A change of one value. Those of a round are stored together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOperation {
    /// Which kind.
    pub keyspace: Keyspace,
    /// Which one.
    pub key: Vec<u8>,
    /// `None`: removed.
    pub value: Option<Vec<u8>>,
}

/// What is to be stored before the outputs of a round are performed.
#[derive(Debug)]
pub struct Unstored<'a> {
    /// A record for the log; empty: none.
    pub record: &'a [u8],
    /// Changes of values, in order; to be stored after the record: entries of an unknown session are ignored, but a session stored without its
    /// entries would have lost its messages.
    pub operations: &'a [StoreOperation],
}

/// State of a log, reported after each record and whenever it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStatus {
    /// The segment the next record goes to.
    pub segment: u64,
    /// Bytes of all segments, without those that are about to be removed.
    pub bytes: u64,
    /// Bytes of records that can be stored for sure; what would need more is refused.
    pub space: u64,
    /// The disk has less space than the log's next segment should have.
    pub is_short: bool,
    /// Bytes of values that can be stored for sure; new sessions and subscriptions that would need more are refused.
    pub values_space: u64,
}

/// A value or a record that was stored before the node stopped.
#[derive(Debug, Clone, Copy)]
pub enum Stored<'a> {
    /// A value under its key.
    Value {
        /// Which kind.
        keyspace: Keyspace,
        /// Which one.
        key: &'a [u8],
        /// What.
        value: &'a [u8],
    },
    /// A record of log `log`, in the order they were stored.
    Record {
        /// The worker's number; the worker may no longer exist.
        log: u8,
        /// The record.
        record: &'a [u8],
    },
}

/// What was stored cannot be read: the node must not start. Nothing is lost by that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// A value is not ours, or of another version.
    #[error("stored {keyspace:?} value under key {key} is unreadable: {problem}")]
    Value {
        /// Which kind.
        keyspace: Keyspace,
        /// The key in hexadecimal digits.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A record is not ours, or of another version.
    #[error("a record of log {log} is unreadable: {problem}")]
    Record {
        /// Which log.
        log: u8,
        /// What is wrong.
        problem: String,
    },
}

/// A key as shown in the messages of errors.
pub(crate) fn hexadecimal(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}
