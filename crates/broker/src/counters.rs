//! Counters of the shell; workers and hub count the traffic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::readiness::LastRefusal;

/// Since the start of the node.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections accepted.
    pub(crate) accepted: Counter,
    /// Times a listener paused for lack of descriptors or memory.
    pub(crate) accept_exhausted: Counter,
    /// Connections without a valid PROXY header where one is required.
    pub(crate) prefaces_refused: Counter,
    /// Announcements that could not be decoded: truncated, or from other software.
    pub(crate) announcements_malformed: Counter,
    /// Announcements of other clusters or versions, or not signed with the cluster's secret.
    pub(crate) announcements_strange: Counter,
    /// Signed announcements that are repetitions.
    pub(crate) announcements_repeated: Counter,
    /// Authentications requested.
    pub(crate) authentications: Counter,
    /// Authentications refused.
    pub(crate) authentications_refused: Counter,
    /// Clients whose password was hashed, or the signature of whose token was checked.
    pub(crate) authentications_slow: Counter,
    /// Passwords that were correct and are remembered.
    pub(crate) verified: Level,
    /// Requests to the hook.
    pub(crate) hook_requests: Counter,
    /// Clients for whom the hook sent no valid answer in time.
    pub(crate) hook_failures: Counter,
    /// Answers of the hook that are cached.
    pub(crate) hook_answers: Level,
    /// Fetches of the keys of tokens from their provider.
    pub(crate) jwt_key_fetches: Counter,
    /// Those of them that failed.
    pub(crate) jwt_key_fetch_failures: Counter,
    /// When the last fetch succeeded.
    pub(crate) jwt_keys_fetched: Moment,
    /// Clients that were accepted.
    pub(crate) connects: Counter,
    /// Clients that were banned because they connected too often.
    pub(crate) flapping_bans: Counter,
    /// Clients that disconnected, by reason.
    pub(crate) disconnects: Reasons,
    /// Clients that were refused, by reason code.
    pub(crate) connects_refused: Reasons,
    /// TLS and WebSocket handshakes that failed, by reason.
    pub(crate) handshakes_failed: Reasons,
    /// How long rounds of threads took.
    pub(crate) rounds: Histogram,
    /// The same, counted for each message delivered to a client: the length of the round in which it was written.
    pub(crate) deliveries: Histogram,
    /// Why a link was last refused.
    pub(crate) last_refusal: LastRefusal,
    /// The exporter of telemetry, once it exists.
    pub(crate) exporter: OnceLock<thicket_telemetry::Monitor>,
}

/// A number that only rises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub(crate) struct Level(AtomicUsize);

impl Level {
    pub(crate) fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The time of the last occurrence.
#[derive(Debug, Default)]
pub(crate) struct Moment(Mutex<Option<Instant>>);

impl Moment {
    pub(crate) fn set_now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// The time since then; `None`: it never occurred.
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
