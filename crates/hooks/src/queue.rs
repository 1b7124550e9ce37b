//! Events that wait, with a bound on their number and on their bytes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Event;

/// First in, first out; an event that finds no place is given back.
#[derive(Debug)]
pub(crate) struct Queue {
    maximum_events: usize,
    maximum_bytes: usize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    bytes: usize,
    /// Nothing more comes, and what is left must be settled by then.
    closed: Option<Instant>,
}

impl Queue {
    pub(crate) fn new(maximum_events: usize, maximum_bytes: usize) -> Self {
        Self {
            maximum_events,
            maximum_bytes,
            waiting: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Adds an event; gives it back if there is no place for it.
    pub(crate) fn push(&self, event: Event) -> Option<Event> {
        let len = event.len();
        let mut waiting = self.lock();
        let is_full =
            waiting.events.len() >= self.maximum_events || waiting.bytes + len > self.maximum_bytes;
        if is_full || waiting.closed.is_some() {
            return Some(event);
        }
        waiting.bytes += len;
        waiting.events.push_back(event);
        if waiting.events.len() == 1 {
            self.changed.notify_all();
        }
        None
    }

    /// Waits for events and takes up to `count` of them; `None`: the queue is closed and empty.
    pub(crate) fn take(&self, count: usize) -> Option<Vec<Event>> {
        let mut waiting = self.lock();
        while waiting.events.is_empty() {
            if waiting.closed.is_some() {
                return None;
            }
            let woken = self.changed.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let count = count.min(waiting.events.len());
        let batch: Vec<_> = waiting.events.drain(..count).collect();
        waiting.bytes -= batch.iter().map(Event::len).sum::<usize>();
        Some(batch)
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

    /// Takes nothing more. What waits must be settled within `time`.
    pub(crate) fn close(&self, time: Duration) {
        let mut waiting = self.lock();
        waiting.closed.get_or_insert(Instant::now() + time);
        self.changed.notify_all();
    }

    /// Until when what waits must be settled, once the queue is closed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.lock().closed
    }

    /// Events and bytes that wait.
    pub(crate) fn size(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.events.len(), waiting.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        Event {
            number,
            time_ms: 0,
            name: "test",
            fields: Vec::new(),
        }
    }

    #[test]
    fn events_leave_in_order_and_find_no_place_above_either_bound() {
        let queue = Queue::new(3, 1 << 20);
        for number in 1..=3 {
            assert_eq!(queue.push(event(number)), None);
        }
        assert_eq!(queue.push(event(4)), Some(event(4)));
        assert_eq!(queue.take(2), Some(vec![event(1), event(2)]));
        assert_eq!(queue.size(), (1, event(3).len()));
        let narrow = Queue::new(10, event(1).len());
        assert_eq!(narrow.push(event(1)), None);
        assert_eq!(narrow.push(event(2)), Some(event(2)));
    }

    #[test]
    fn a_closed_queue_takes_nothing_and_gives_what_it_has() {
        let queue = Queue::new(3, 1 << 20);
        queue.push(event(1));
        queue.close(Duration::ZERO);
        assert_eq!(queue.push(event(2)), Some(event(2)));
        assert_eq!(queue.take(5), Some(vec![event(1)]));
        assert_eq!(queue.take(5), None);
    }
}
