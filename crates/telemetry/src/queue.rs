//! Spans that wait to be sent, with a bound on their number, and the order to stop.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::span::Span;

/// First in, first out; a span that comes when the queue is full is not kept.
#[derive(Debug)]
pub(crate) struct Queue {
    maximum: usize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: VecDeque<Span>,
    /// Nothing more comes, and what is left must be sent by then.
    closed: Option<Instant>,
}

impl Queue {
    pub(crate) fn new(maximum: usize) -> Self {
        Self {
            maximum,
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Whether there was capacity for it.
    pub(crate) fn push(&self, span: Span) -> bool {
        let mut waiting = self.lock();
        if waiting.spans.len() >= self.maximum || waiting.closed.is_some() {
            return false;
        }
        waiting.spans.push_back(span);
        if waiting.spans.len() == 1 {
            self.changed.notify_all();
        }
        true
    }

    /// Waits for spans, then for `linger` or until there are `count`, and takes up to `count`; `None`: the queue is closed and empty.
    pub(crate) fn take(&self, count: usize, linger: Duration) -> Option<Vec<Span>> {
        let mut waiting = self.lock();
        while waiting.spans.is_empty() {
            if waiting.closed.is_some() {
                return None;
            }
            let woken = self.changed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let end = Instant::now() + linger;
        while waiting.spans.len() < count && waiting.closed.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = count.min(waiting.spans.len());
        Some(waiting.spans.drain(..count).collect())
    }

    /// Waits so long, or until the queue is closed.
    pub(crate) fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        let mut waiting = self.lock();
        while waiting.closed.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes nothing more. What waits must be sent within `time`.
    pub(crate) fn close(&self, time: Duration) {
        let mut waiting = self.lock();
        waiting.closed.get_or_insert(Instant::now() + time);
        self.changed.notify_all();
    }

    /// Until when what waits must be sent, once the queue is closed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().closed
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().spans.len()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::Role;

    fn span(number: u8) -> Span {
        Span {
            trace_id: [1; 16],
            span_id: [number; 8],
            parent: None,
            name: "test",
            role: Role::Server,
            start_unix_nanos: 0,
            end_unix_nanos: 0,
            attributes: Vec::new(),
        }
    }

    #[test]
    fn spans_leave_in_order_and_are_not_kept_above_the_bound() {
        let queue = Queue::new(2);
        assert_eq!(
            [1, 2, 3].map(|it| queue.push(span(it))),
            [true, true, false]
        );
        assert_eq!(queue.take(1, Duration::ZERO), Some(vec![span(1)]));
        assert!(queue.push(span(4)));
        assert_eq!(queue.take(9, Duration::ZERO), Some(vec![span(2), span(4)]));
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_gives_what_it_has() {
        let queue = Queue::new(2);
        queue.push(span(1));
        queue.close(Duration::ZERO);
        assert!(!queue.push(span(2)));
        let long = Duration::from_secs(3600);
        assert_eq!(queue.take(5, long), Some(vec![span(1)]));
        assert_eq!(queue.take(5, long), None);
        queue.pause(long);
    }
}
