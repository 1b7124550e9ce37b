//! What the shell itself counts; the machines count the traffic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::histogram::Histogram;

/// Since the start of the node.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections accepted.
    pub(crate) accepted: Counter,
    /// Times a listener had to rest for want of descriptors or memory.
    pub(crate) accept_exhausted: Counter,
    /// Connections that did not start with a good PROXY header, where one was wanted.
    pub(crate) prefaces_refused: Counter,
    /// Announcements that were not ours to read: torn, or of something else.
    pub(crate) announcements_malformed: Counter,
    /// Announcements of other clusters or versions, or not signed with the cluster's secret.
    pub(crate) announcements_strange: Counter,
    /// Signed announcements that were heard before.
    pub(crate) announcements_repeated: Counter,
    /// Users asked for.
    pub(crate) authentications: Counter,
    /// Users refused.
    pub(crate) authentications_refused: Counter,
    /// Questions to the hook.
    pub(crate) hook_requests: Counter,
    /// Clients about whom the hook said nothing in time, or nothing that was understood.
    pub(crate) hook_failures: Counter,
    /// Fetches of the keys of tokens from their provider.
    pub(crate) jwt_key_fetches: Counter,
    /// Those that brought none.
    pub(crate) jwt_key_fetch_failures: Counter,
    /// When they were last brought.
    pub(crate) jwt_keys_fetched: Moment,
    /// Clients that were let in.
    pub(crate) connects: Counter,
    /// Clients that were banned because they connected too often.
    pub(crate) flapping_bans: Counter,
    /// Clients that were served and are no more, by reason.
    pub(crate) disconnects: Reasons,
    /// Clients that were not let in, by reason code.
    pub(crate) connects_refused: Reasons,
    /// TLS and WebSocket handshakes that came to nothing, by reason.
    pub(crate) handshakes_failed: Reasons,
    /// How long threads worked between two looks for what is new.
    pub(crate) rounds: Histogram,
    /// The same of each message delivered to a client: the length of the round in which it was written.
    pub(crate) deliveries: Histogram,
    /// What the exporter of telemetry has done, once there is one.
    pub(crate) exporter: OnceLock<thicket_telemetry::Monitor>,
}

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// When something last happened.
#[derive(Debug, Default)]
pub(crate) struct Moment(Mutex<Option<Instant>>);

impl Moment {
    pub(crate) fn set_now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How long ago; `None`: never.
    pub(crate) fn age(&self) -> Option<Duration> {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|last| last.elapsed())
    }
}

/// Numbers that only rise, by reason. Reasons are ours, so there are few.
#[derive(Debug, Default)]
pub(crate) struct Reasons(Mutex<BTreeMap<String, u64>>);

impl Reasons {
    pub(crate) fn add_one(&self, reason: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(reason) {
            Some(count) => *count += 1,
            None => drop(counts.insert(reason.to_owned(), 1)),
        }
    }

    /// Ascending by reason.
    pub(crate) fn values(&self) -> Vec<(String, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let values = counts.iter();
        values
            .map(|(reason, count)| (reason.clone(), *count))
            .collect()
    }
}
