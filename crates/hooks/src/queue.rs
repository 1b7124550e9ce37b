//! A queue of what is sent over HTTP, with limits on items and bytes, that can be closed.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A FIFO queue between threads that never wait and one that does. An item that exceeds the limits is returned.
///
/// ```
/// use std::time::Duration;
/// use thicket_hooks::Queue;
///
/// let queue = Queue::new(2);
/// assert_eq!([1, 2, 3].map(|it| queue.push(it)), [None, None, Some(3)]);
/// assert_eq!(queue.take(9, Duration::ZERO), Some(vec![1, 2]));
/// queue.close(Duration::from_secs(1));
/// assert_eq!(queue.take(9, Duration::ZERO), None);
/// ```
#[derive(Debug)]
pub struct Queue<T> {
    maximum: usize,
    maximum_bytes: usize,
    bytes_of: fn(&T) -> usize,
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Waiting<T> {
    items: VecDeque<T>,
    bytes: usize,
    /// Closed: no more items are accepted, and the rest must be sent by then.
    closed: Option<Instant>,
}

impl<T> Queue<T> {
    /// A queue of `maximum` items, of whatever size.
    #[must_use]
    pub fn new(maximum: usize) -> Self {
        Self::with_bytes(maximum, usize::MAX, |_| 0)
    }

    /// A queue of `maximum` items, and of `maximum_bytes` together. `bytes_of`: the size of an item, the same at every call.
    #[must_use]
    pub fn with_bytes(maximum: usize, maximum_bytes: usize, bytes_of: fn(&T) -> usize) -> Self {
        Self {
            maximum,
            maximum_bytes,
            bytes_of,
            waiting: Mutex::new(Waiting {
                items: VecDeque::new(),
                bytes: 0,
                closed: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Adds an item; returns it if the queue is full or closed.
    pub fn push(&self, item: T) -> Option<T> {
        let bytes = (self.bytes_of)(&item);
        let mut waiting = self.lock();
        let is_full = waiting.items.len() >= self.maximum
            || waiting.bytes.saturating_add(bytes) > self.maximum_bytes;
        if is_full || waiting.closed.is_some() {
            return Some(item);
        }
        waiting.bytes += bytes;
        waiting.items.push_back(item);
        if waiting.items.len() == 1 {
            self.changed.notify_all();
        }
        None
    }

    /// Waits for items, then for `linger` or until there are `count`, and removes up to `count`; `None`: the queue is closed and empty.
    pub fn take(&self, count: usize, linger: Duration) -> Option<Vec<T>> {
        let mut waiting = self.lock();
        while waiting.items.is_empty() {
            if waiting.closed.is_some() {
                return None;
            }
            let woken = self.changed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let end = Instant::now() + linger;
        while waiting.items.len() < count && waiting.closed.is_none() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.changed.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let count = count.min(waiting.items.len());
        let taken: Vec<_> = waiting.items.drain(..count).collect();
        waiting.bytes -= taken.iter().map(self.bytes_of).sum::<usize>();
        Some(taken)
    }

    /// Waits for `time`, or until the queue is closed.
    pub fn pause(&self, time: Duration) {
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

    /// Accepts no more items. Queued ones must be sent within `time`.
    pub fn close(&self, time: Duration) {
        let mut waiting = self.lock();
        waiting.closed.get_or_insert(Instant::now() + time);
        self.changed.notify_all();
    }

    /// When queued items must have been sent, once the queue is closed.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.lock().closed
    }

    /// Number and bytes of queued items.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.items.len(), waiting.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Event;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn items_leave_in_order_and_are_given_back_above_either_bound() {
        let queue = Queue::with_bytes(3, 10, |item: &&str| item.len());
        assert_eq!(
            ["a", "b", "c", "d"].map(|it| queue.push(it)),
            [None, None, None, Some("d")]
        );
        assert_eq!(queue.take(2, Duration::ZERO), Some(vec!["a", "b"]));
        assert_eq!(queue.size(), (1, 1));
        assert_eq!(
            queue.push("more than there is room for"),
            Some("more than there is room for")
        );
        assert_eq!(queue.push("nine more"), None);
        assert_eq!(queue.push("."), Some("."), "of bytes");
        assert_eq!(queue.take(9, Duration::ZERO), Some(vec!["c", "nine more"]));
        assert_eq!(queue.size(), (0, 0));
    }

    #[test]
    fn events_count_with_their_bytes() {
        let event = |number| Event {
            number,
            time_ms: 0,
            name: "test",
            fields: Vec::new(),
        };
        let queue = Queue::with_bytes(10, event(1).len(), Event::len);
        assert_eq!(queue.push(event(1)), None);
        assert_eq!(queue.size(), (1, event(1).len()));
        assert_eq!(queue.push(event(2)), Some(event(2)));
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_gives_what_it_has() {
        let queue = Queue::new(3);
        assert_eq!(queue.push(1), None);
        queue.close(Duration::ZERO);
        assert!(queue.deadline().is_some());
        assert_eq!(queue.push(2), Some(2));
        assert_eq!(queue.take(5, LONG), Some(vec![1]));
        assert_eq!(queue.take(5, LONG), None);
        queue.pause(LONG);
    }

    #[test]
    fn a_receiver_is_woken_by_the_first_item_and_waits_for_more_as_long_as_it_said() {
        let queue = Arc::new(Queue::new(9));
        let receiver = {
            let queue = Arc::clone(&queue);
            std::thread::spawn(move || {
                let first = queue.take(1, LONG);
                (first, queue.take(9, LONG))
            })
        };
        assert_eq!(queue.push(1), None);
        while queue.size() != (0, 0) {
            std::thread::yield_now();
        }
        assert_eq!([2, 3].map(|it| queue.push(it)), [None, None]);
        queue.close(LONG);
        let received = receiver.join().expect("no panic");
        assert_eq!(received, (Some(vec![1]), Some(vec![2, 3])));
    }
}
