//! The thread that posts batches, one at a time, in order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use crate::hook::Shared;
use crate::{Event, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};

/// Of the body of a request.
const VERSION: u32 = 1;
/// The first wait after a failure; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Posts what waits in the queue.
pub(crate) struct Delivery {
    shared: Arc<Shared>,
    agent: ureq::Agent,
    random: u64,
    sequence: u64,
    /// Failures since the last success: a line is written at the first.
    is_failing: bool,
}

/// How an attempt ended.
enum Failure {
    /// Another attempt may succeed.
    Temporary(String),
    /// The receiver will not have this batch.
    Refused(String),
}

impl Delivery {
    pub(crate) fn new(shared: Arc<Shared>, agent: ureq::Agent, seed: u64) -> Self {
        Self {
            shared,
            agent,
            random: seed | 1,
            sequence: 0,
            is_failing: false,
        }
    }

    /// Until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        while let Some(events) = self.next_batch() {
            self.sequence += 1;
            match self.deliver(&events) {
                Ok(()) => {
                    let count = events.len() as u64;
                    self.shared
                        .counts
                        .delivered
                        .fetch_add(count, Ordering::Relaxed);
                }
                Err(reason) => self.shared.bury(&reason, &events),
            }
        }
    }

    /// What waits, without waiting for more; `None`: the queue is closed and empty.
    fn next_batch(&self) -> Option<Vec<Event>> {
        let batch = self.shared.config.batch;
        self.shared.queue.take(batch, Duration::ZERO)
    }

    /// Attempts until one succeeds or there are no more; then why.
    fn deliver(&mut self, events: &[Event]) -> Result<(), String> {
        let body = self.body(events);
        let mut wait = FIRST_WAIT;
        let mut last = String::from("the node stopped");
        for attempt in 1..=self.shared.config.attempts {
            let Some(timeout) = self.time_left() else {
                return Err(last);
            };
            let counts = &self.shared.counts;
            match self.post(&body, timeout) {
                Ok(()) => {
                    counts.requests_accepted.fetch_add(1, Ordering::Relaxed);
                    self.note_success();
                    return Ok(());
                }
                Err(failure) => {
                    counts.requests_failed.fetch_add(1, Ordering::Relaxed);
                    match failure {
                        Failure::Refused(reason) => {
                            self.note_failure(&reason);
                            return Err(reason);
                        }
                        Failure::Temporary(reason) => last = reason,
                    }
                    self.note_failure(&last);
                }
            }
            if attempt < self.shared.config.attempts {
                let pause = self.jittered(wait);
                self.shared.queue.pause(pause);
                wait = (wait * 2).min(self.shared.config.longest_wait);
            }
        }
        Err(last)
    }

    /// How long a request may take; `None`: the node stops and the time for that is over.
    fn time_left(&self) -> Option<Duration> {
        let timeout = self.shared.config.timeout;
        let Some(deadline) = self.shared.queue.deadline() else {
            return Some(timeout);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(timeout))
    }

    fn body(&self, events: &[Event]) -> String {
        let events: Vec<_> = events
            .iter()
            .map(|event| event.to_json(&self.shared.run))
            .collect();
        json!({
            "version": VERSION,
            "node": self.shared.node,
            "hook": self.shared.config.name,
            "run": self.shared.run,
            "sequence": self.sequence,
            "events": events,
        })
        .to_string()
    }

    fn post(&self, body: &str, timeout: Duration) -> Result<(), Failure> {
        let config = &self.shared.config;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let timestamp = since.unwrap_or_default().as_secs().to_string();
        let mut request = self
            .agent
            .post(&config.url)
            .config()
            .timeout_global(Some(timeout))
            .build()
            .header("content-type", "application/json")
            .header(TIMESTAMP_HEADER, &timestamp);
        if let Some(secret) = &config.secret {
            request = request.header(SIGNATURE_HEADER, sign(secret, &timestamp, body.as_bytes()));
        }
        let answer = request
            .send(body)
            .map_err(|error| Failure::Temporary(error.to_string()))?;
        let status = answer.status().as_u16();
        match status {
            200..300 => Ok(()),
            // Asked to wait, or too early: the same may be taken later.
            408 | 425 | 429 | 500.. => Err(Failure::Temporary(format!("status {status}"))),
            _ => Err(Failure::Refused(format!("status {status}"))),
        }
    }

    /// Between half of a wait and all of it, so that nodes do not come back at the same time.
    fn jittered(&mut self, wait: Duration) -> Duration {
        // xorshift64: enough for what need not be secret.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random % 1024) as u32;
        wait / 2 + wait / 2 * part / 1024
    }

    fn note_success(&mut self) {
        if std::mem::take(&mut self.is_failing) {
            let hook = &self.shared.config.name;
            tracing::info!(hook, "the receiver of the hook accepts events again");
        }
    }

    /// One line for a row of failures; the counters have the rest.
    fn note_failure(&mut self, error: &str) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let hook = &self.shared.config.name;
            tracing::warn!(
                hook,
                error,
                "the receiver of the hook does not accept events"
            );
        }
    }
}
