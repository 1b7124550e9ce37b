//! What the threads of a hook share: its queues, its dead letters and its counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::dead_letters::DeadLetters;
use crate::queue::Queue;
use crate::{Event, HookConfig};

/// The part that the threads of a hook share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: HookConfig,
    pub(crate) run: String,
    pub(crate) queue: Queue<Event>,
    /// Events that exceed the queue, on their way to the dead-letter file: no worker waits for a disk.
    pub(crate) overflow: Queue<Event>,
    pub(crate) dead_letters: Option<Mutex<DeadLetters>>,
    pub(crate) counts: Counts,
}

/// Outcomes of events and of requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) delivered: AtomicU64,
    pub(crate) dead_letters: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) requests_accepted: AtomicU64,
    pub(crate) requests_failed: AtomicU64,
}

impl Shared {
    /// Records events that are not delivered, and the reason.
    pub(crate) fn bury(&self, reason: &str, events: &[Event]) {
        let count = if let Some(dead_letters) = &self.dead_letters {
            let mut dead_letters = dead_letters.lock().unwrap_or_else(PoisonError::into_inner);
            match dead_letters.write(&self.config.name, &self.run, reason, events) {
                Ok(()) => &self.counts.dead_letters,
                Err(error) => {
                    let hook = &self.config.name;
                    tracing::debug!(hook, %error, "dead letters could not be written");
                    &self.counts.dropped
                }
            }
        } else {
            &self.counts.dropped
        };
        count.fetch_add(events.len() as u64, Ordering::Relaxed);
    }
}
