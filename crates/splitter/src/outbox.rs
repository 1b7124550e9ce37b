//! Bytes that wait to be written to one connection.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

/// Above this, nothing more is read from the source; one read of 16 KiB, and a packet, may come in addition.
const FULL: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Outbox {
    bytes: Mutex<Vec<u8>>,
    /// Bytes queued here and being written to the socket.
    waiting: AtomicUsize,
    ends: AtomicBool,
    work: Notify,
    /// Of the connection of the client, for all its outboxes.
    capacity: Arc<Notify>,
}

impl Outbox {
    pub(crate) fn new(capacity: &Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(Vec::new()),
            waiting: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            work: Notify::new(),
            capacity: Arc::clone(capacity),
        })
    }

    pub(crate) fn push(&self, bytes: &[u8]) {
        self.waiting.fetch_add(bytes.len(), Ordering::AcqRel);
        self.lock().extend_from_slice(bytes);
        self.work.notify_one();
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > FULL
    }

    /// Writes queued bytes, then shuts the connection down.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.work.notify_one();
    }

    /// Writes until [`Outbox::end`], or until the connection breaks.
    pub(crate) async fn write_to(self: Arc<Self>, mut socket: OwnedWriteHalf) {
        loop {
            let ends = self.ends.load(Ordering::Acquire);
            let bytes = std::mem::take(&mut *self.lock());
            if bytes.is_empty() {
                if ends {
                    // It may be closed already.
                    let _ = socket.shutdown().await;
                    return;
                }
                self.work.notified().await;
                continue;
            }
            // The reader of the connection detects the same.
            if socket.write_all(&bytes).await.is_err() {
                return;
            }
            self.waiting.fetch_sub(bytes.len(), Ordering::AcqRel);
            self.capacity.notify_one();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
