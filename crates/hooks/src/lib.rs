//! Delivers events of a node to HTTP receivers and topics of Kafka: batches in order, retried with back-off, at least once.
//!
//! [`Hook::submit`] never blocks on a receiver: it puts an event into a bounded queue. A thread of the hook sends batches from it. Events that exceed
//! the queue, and those that the receiver refuses or does not accept in time, go to the dead-letter file, or are dropped if there is none; both are
//! counted.

mod agent;
mod dead_letters;
mod delivery;
mod destination;
mod event;
mod hook;
mod http;
#[cfg(feature = "kafka")]
mod kafka;
mod queue;
mod receiver;
mod shared;
mod signature;

use std::path::PathBuf;
use std::time::Duration;

pub use agent::{AgentError, agent};
pub use destination::{Destination, HttpDestination, KafkaDestination, KafkaLogin, KafkaMechanism};
pub use event::{Event, Value};
pub use hook::{Hook, Statistics};
pub use queue::Queue;
pub use signature::{SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};

/// Whether this program supports Kafka: it was built with the cargo feature `kafka`.
pub const HAS_KAFKA: bool = cfg!(feature = "kafka");

/// The destination of a hook, and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookConfig {
    /// Name of the hook, unique within a node.
    pub name: String,
    /// The destination of its events.
    pub destination: Destination,
    /// Most events in a request.
    pub batch: usize,
    /// Most events that wait.
    pub queue_events: usize,
    /// Their bytes.
    pub queue_bytes: usize,
    /// How long a request may take.
    pub timeout: Duration,
    /// How often a request is sent before its events are dead letters.
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
    pub fn new(name: impl Into<String>, destination: Destination) -> Self {
        Self {
            name: name.into(),
            destination,
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

/// The sender: the same for all events of a hook.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Name of the node.
    pub(crate) node: String,
    /// Name of the hook.
    pub(crate) hook: String,
    /// Identifies this run of the node: identifiers of events begin with it.
    pub(crate) run: String,
}

/// A hook cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The certificates to trust cannot be used.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// This program does not support Kafka: see [`HAS_KAFKA`].
    #[error("this program cannot write to Kafka: it was built without the cargo feature `kafka`")]
    NoKafka,
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
