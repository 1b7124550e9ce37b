//! The thread that delivers batches, one request at a time, in order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::receiver::{Batch, Failure, Receiver, Sent};
use crate::shared::Shared;

/// The first wait after a failure; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Delivers queued events.
pub(crate) struct Delivery {
    shared: Arc<Shared>,
    receiver: Box<dyn Receiver>,
    random: u64,
    /// There were failures since the last success: only the first is logged.
    is_failing: bool,
}

impl Delivery {
    pub(crate) fn new(shared: Arc<Shared>, receiver: Box<dyn Receiver>, seed: u64) -> Self {
        Self {
            shared,
            receiver,
            random: seed | 1,
            is_failing: false,
        }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        let mut sequence = 0;
        let count = self.shared.config.batch;
        // Fetches what is queued, without waiting for more.
        while let Some(events) = self.shared.queue.take(count, Duration::ZERO) {
            sequence += 1;
            self.deliver(Batch { sequence, events });
        }
    }

    /// Returns when every event of the batch is delivered or a dead letter.
    fn deliver(&mut self, mut batch: Batch) {
        let (mut failures, mut wait, mut last) = (0, FIRST_WAIT, None);
        while !batch.events.is_empty() {
            let Some(timeout) = self.time_left() else {
                let reason = last.as_deref().unwrap_or("the node stopped");
                self.shared.bury(reason, &batch.events);
                return;
            };
            let Sent { count, outcome } = self.receiver.send(&mut batch, timeout);
            self.note(&outcome);
            if let Err(Failure::Temporary(reason)) = &outcome {
                failures += 1;
                if failures < self.shared.config.attempts {
                    last = Some(reason.clone());
                    let pause = self.jittered(wait);
                    self.shared.queue.pause(pause);
                    wait = (wait * 2).min(self.shared.config.longest_wait);
                    continue;
                }
            }
            // The events of this request are settled; the remaining ones get attempts of their own.
            let settled: Vec<_> = batch.events.drain(..count).collect();
            match outcome {
                Ok(()) => {
                    let delivered = &self.shared.counts.delivered;
                    delivered.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(Failure::Temporary(reason) | Failure::Refused(reason)) => {
                    self.shared.bury(&reason, &settled);
                }
            }
            (failures, wait, last) = (0, FIRST_WAIT, None);
        }
    }

    /// How long a request may take; `None`: the hook is stopping and its time is over.
    fn time_left(&self) -> Option<Duration> {
        let timeout = self.shared.config.timeout;
        let Some(deadline) = self.shared.queue.deadline() else {
            return Some(timeout);
        };
        let left = deadline.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(timeout))
    }

    /// A random time between half of the wait and all of it, so that nodes do not retry at the same time.
    fn jittered(&mut self, wait: Duration) -> Duration {
        // xorshift64 suffices: the value need not be secret.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random % 1024) as u32;
        wait / 2 + wait / 2 * part / 1024
    }

    /// Counts a request, and logs one line for a series of failures; the counters have the rest.
    fn note(&mut self, outcome: &Result<(), Failure>) {
        let hook = &self.shared.config.name;
        let counts = &self.shared.counts;
        match outcome {
            Ok(()) => {
                counts.requests_accepted.fetch_add(1, Ordering::Relaxed);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!(hook, "the receiver of the hook accepts events again");
                }
            }
            Err(Failure::Temporary(error) | Failure::Refused(error)) => {
                counts.requests_failed.fetch_add(1, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        hook,
                        error,
                        "the receiver of the hook does not accept events"
                    );
                }
            }
        }
    }
}
