//! Delivers events of a node to HTTP receivers: batches in order, signed, retried with back-off, at least once.
//!
//! [`Hook::submit`] never blocks on a receiver: it puts an event into a bounded queue. A thread of the hook takes batches from it and posts
//! them. What finds no place, and what the receiver refuses or does not take in time, goes to the dead-letter file, or is dropped if there
//! is none; both are counted.

mod agent;
mod dead_letters;
mod delivery;
mod event;
mod hook;
mod queue;
mod signature;

use std::path::PathBuf;
use std::time::Duration;

pub use agent::{AgentError, agent};
pub use event::{Event, Value};
pub use hook::{Hook, Statistics};
pub use queue::Queue;
pub use signature::{SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};

/// Where a hook delivers, and its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookConfig {
    /// Of this hook; no two of a node have the same.
    pub name: String,
    /// `http://` or `https://`.
    pub url: String,
    /// Key of the signature; `None`: requests are not signed.
    pub secret: Option<Vec<u8>>,
    /// PEM file of the authorities that an `https` receiver is checked against; `None`: those the system trusts.
    pub authorities: Option<PathBuf>,
    /// Events in a request at most.
    pub batch: usize,
    /// Events that wait at most.
    pub queue_events: usize,
    /// Their bytes.
    pub queue_bytes: usize,
    /// How long a request may take.
    pub timeout: Duration,
    /// How often a batch is sent before it is a dead letter.
    pub attempts: u32,
    /// The longest wait between two attempts.
    pub longest_wait: Duration,
    /// File for events that could not be delivered; `None`: they are dropped.
    pub dead_letters: Option<PathBuf>,
    /// Bytes of that file before it is rotated; one older file is kept.
    pub dead_letter_bytes: u64,
}

impl HookConfig {
    /// A hook with the defaults.
    #[must_use]
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            url: url.into(),
            secret: None,
            authorities: None,
            batch: 100,
            queue_events: 10_000,
            queue_bytes: 16 * 1024 * 1024,
            timeout: Duration::from_secs(5),
            attempts: 10,
            longest_wait: Duration::from_secs(30),
            dead_letters: None,
            dead_letter_bytes: 64 * 1024 * 1024,
        }
    }
}

/// A hook cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The certificates to trust cannot be used.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The dead-letter file cannot be written.
    #[error("cannot write dead letters to {}: {source}", path.display())]
    DeadLetters {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The system refused a thread or random bytes.
    #[error("cannot start a hook: {0}")]
    System(#[from] std::io::Error),
}
