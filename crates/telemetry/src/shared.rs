//! What the threads of an exporter share: the queues, the counts, and how the receiver is reached.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use thicket_hooks::Queue;

use crate::ExporterConfig;
use crate::headers::Headers;
use crate::record::LogRecord;
use crate::span::Span;

/// Outcomes of spans or log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Items {
    /// Accepted by the receiver.
    pub exported: u64,
    /// Lost: the queue was full, or the receiver refused them or failed too often.
    pub dropped: u64,
    /// Queued ones.
    pub queued: u64,
}

/// Outcomes of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    /// Accepted by the receiver.
    pub accepted: u64,
    /// Refused, or not answered in time.
    pub failed: u64,
    /// Data points, spans or log records that the receiver rejected in requests that it accepted.
    pub rejected: u64,
}

/// Counts of requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

impl Counts {
    pub(crate) fn read(&self) -> Requests {
        Requests {
            accepted: self.accepted.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }
}

/// The part that the threads of an exporter share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: ExporterConfig,
    pub(crate) agent: ureq::Agent,
    pub(crate) metrics: Counts,
    pub(crate) traces: Counts,
    pub(crate) logs: Counts,
    pub(crate) headers: Mutex<Headers>,
    pub(crate) spans: Stream<Span>,
    /// Without a thread if log records are not sent.
    pub(crate) log_records: Stream<LogRecord>,
}

/// Items that are sent in batches.
#[derive(Debug)]
pub(crate) struct Stream<T> {
    pub(crate) queue: Queue<T>,
    pub(crate) exported: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl<T> Stream<T> {
    pub(crate) fn new(maximum: usize) -> Self {
        Self {
            queue: Queue::new(maximum),
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub(crate) fn submit(&self, item: T) {
        if self.queue.push(item).is_some() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Items {
        Items {
            exported: self.exported.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            queued: self.queue.size().0 as u64,
        }
    }
}

impl Shared {
    pub(crate) fn headers(&self) -> Headers {
        let headers = self.headers.lock();
        headers.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
