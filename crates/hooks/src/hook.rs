//! A running hook.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::dead_letters::DeadLetters;
use crate::delivery::Delivery;
use crate::http::Http;
use crate::queue::Queue;
use crate::receiver::Receiver;
use crate::shared::{Counts, Shared};
use crate::{Destination, Event, HookConfig, HookError, Origin};

/// A running hook. Dropping it makes one more attempt for queued events; the rest become dead letters.
#[derive(Debug)]
pub struct Hook {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Counts since the hook's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// Events that the receiver has accepted.
    pub delivered: u64,
    /// Events written to the dead-letter file.
    pub dead_letters: u64,
    /// Events that are lost: there is no dead-letter file, or it could not be written.
    pub dropped: u64,
    /// Requests that the receiver has accepted.
    pub requests_accepted: u64,
    /// Requests that it refused, or did not answer in time.
    pub requests_failed: u64,
    /// Queued events.
    pub queue_events: u64,
    /// Their bytes.
    pub queue_bytes: u64,
}

/// Events written to the dead-letter file at a time.
const WRITTEN: usize = 1000;

impl Hook {
    /// Starts a hook of the node `node`. `run` identifies this run of the node: identifiers of events begin with it.
    ///
    /// # Errors
    /// Certificates or the dead-letter file are not valid, this program does not support Kafka, or the system has no thread left.
    pub fn start(config: HookConfig, node: &str, run: &str) -> Result<Self, HookError> {
        let origin = Origin {
            node: node.to_owned(),
            hook: config.name.clone(),
            run: run.to_owned(),
        };
        let receiver = receiver(&config.destination, origin)?;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(io::Error::other)?;
        let open = |path: &std::path::PathBuf| {
            DeadLetters::open(path, config.dead_letter_bytes)
                .map(Mutex::new)
                .map_err(|source| HookError::DeadLetters {
                    path: path.clone(),
                    source,
                })
        };
        let shared = Arc::new(Shared {
            dead_letters: config.dead_letters.as_ref().map(open).transpose()?,
            queue: Queue::with_bytes(config.queue_events, config.queue_bytes, Event::len),
            // Even with a short queue, a burst must reach the dead-letter file.
            overflow: Queue::with_bytes(
                config.queue_events.max(WRITTEN),
                config.queue_bytes,
                Event::len,
            ),
            config,
            run: run.to_owned(),
            counts: Counts::default(),
        });
        let this = Self {
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
        };
        let overflow = Arc::clone(&shared);
        this.spawn("hook-overflow", move || {
            while let Some(events) = overflow.overflow.take(WRITTEN, Duration::ZERO) {
                overflow.bury("the queue is full", &events);
            }
        })?;
        let delivery = Delivery::new(shared, receiver, u64::from_ne_bytes(seed));
        this.spawn("hook-delivery", move || delivery.run())?;
        Ok(this)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(run)?;
        self.threads().push(thread);
        Ok(())
    }

    /// Queues an event. Waits neither for the receiver nor for a disk.
    pub fn submit(&self, event: Event) {
        let shared = &self.shared;
        let Some(event) = shared.queue.push(event) else {
            return;
        };
        if shared.dead_letters.is_none() || shared.overflow.push(event).is_some() {
            shared.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The hook's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.config.name
    }

    /// The counts so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let shared = &self.shared;
        let (events, bytes) = shared.queue.size();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Statistics {
            delivered: count(&shared.counts.delivered),
            dead_letters: count(&shared.counts.dead_letters),
            dropped: count(&shared.counts.dropped),
            requests_accepted: count(&shared.counts.requests_accepted),
            requests_failed: count(&shared.counts.requests_failed),
            queue_events: events as u64,
            queue_bytes: bytes as u64,
        }
    }
}

impl Hook {
    /// Accepts no more events and waits for the threads; see [`Hook`]. A second call does nothing.
    pub fn close(&self) {
        self.shared.queue.close(self.shared.config.timeout);
        self.shared.overflow.close(self.shared.config.timeout);
        for thread in std::mem::take(&mut *self.threads()) {
            // A panic was logged already.
            let _ = thread.join();
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.close();
    }
}

fn receiver(destination: &Destination, origin: Origin) -> Result<Box<dyn Receiver>, HookError> {
    match destination {
        Destination::Http(http) => Ok(Box::new(Http::new(http.clone(), origin)?)),
        #[cfg(feature = "kafka")]
        Destination::Kafka(kafka) => {
            let kafka = crate::kafka::Kafka::new(kafka.clone(), origin)?;
            Ok(Box::new(kafka))
        }
        #[cfg(not(feature = "kafka"))]
        Destination::Kafka(_) => Err(HookError::NoKafka),
    }
}
