//! Threads that do slow work for strangers, and the queue in which it waits.
//!
//! Addresses take turns, however much each has in the queue, and each has a limit of its own. When the queue is full, an address with less in it
//! takes the last place of the one with most. So a flood from one address delays work of another one by at most a turn of each, and does not displace
//! it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use thicket_node::Source;

/// Limits of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) all: usize,
    pub(crate) of_one_source: usize,
}

/// The threads. They end when the last clone is dropped.
pub(crate) struct Pool<T>(Arc<Handle<T>>);

struct Handle<T>(Arc<Line<T>>);

/// The queued work.
struct Line<T> {
    places: Places,
    waiting: Mutex<Waiting<T>>,
    changed: Condvar,
}

struct Waiting<T> {
    of: HashMap<Source, VecDeque<T>>,
    /// Each source with queued work, once; the next in turn first.
    turns: VecDeque<Source>,
    count: usize,
    is_closed: bool,
}

impl<T> Clone for Pool<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> std::fmt::Debug for Pool<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool(..)")
    }
}

impl<T: Send + 'static> Pool<T> {
    /// Starts `count` threads named after `name`, which `serve` the work, each with a clone of its own.
    pub(crate) fn start(
        name: &str,
        count: usize,
        places: Places,
        serve: impl FnMut(T) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let line = Arc::new(Line::new(places));
        let pool = Self(Arc::new(Handle(Arc::clone(&line))));
        for number in 0..count {
            let (line, mut serve) = (Arc::clone(&line), serve.clone());
            std::thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || {
                    while let Some(work) = line.next() {
                        serve(work);
                    }
                })?;
        }
        Ok(pool)
    }

    /// Queues work. Returned work was displaced: this work itself, or that of a source with more in the queue.
    #[must_use]
    pub(crate) fn submit(&self, source: Source, work: T) -> Option<T> {
        self.0.0.push(source, work)
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<T> Line<T> {
    fn new(places: Places) -> Self {
        Self {
            places,
            waiting: Mutex::new(Waiting {
                of: HashMap::new(),
                turns: VecDeque::new(),
                count: 0,
                is_closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, source: Source, work: T) -> Option<T> {
        let mut waiting = self.lock();
        let own = waiting.of.get(&source).map_or(0, VecDeque::len);
        if own >= self.places.of_one_source {
            return Some(work);
        }
        let displaced = if waiting.count < self.places.all {
            None
        } else {
            match waiting.take_last_of_longest(own) {
                Some(displaced) => Some(displaced),
                None => return Some(work),
            }
        };
        waiting.add(source, work);
        drop(waiting);
        self.changed.notify_one();
        displaced
    }

    /// Waits for work; `None`: the pool has ended.
    fn next(&self) -> Option<T> {
        let mut waiting = self.lock();
        loop {
            if let Some(work) = waiting.take_next() {
                return Some(work);
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Waiting<T> {
    fn add(&mut self, source: Source, work: T) {
        let own = self.of.entry(source).or_default();
        if own.is_empty() {
            self.turns.push_back(source);
        }
        own.push_back(work);
        self.count += 1;
    }

    fn take_next(&mut self) -> Option<T> {
        let source = self.turns.pop_front()?;
        let own = self.of.get_mut(&source)?;
        let work = own.pop_front()?;
        self.count -= 1;
        if own.is_empty() {
            self.of.remove(&source);
        } else {
            self.turns.push_back(source);
        }
        Some(work)
    }

    /// Removes the last work of the source with most, if that has more than `own` and one.
    fn take_last_of_longest(&mut self, own: usize) -> Option<T> {
        let (source, _) = self.of.iter().max_by_key(|(_, waits)| waits.len())?;
        let source = *source;
        let waits = self.of.get_mut(&source)?;
        if waits.len() <= own + 1 {
            return None;
        }
        self.count -= 1;
        waits.pop_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn source(number: u8) -> Source {
        Source::from(IpAddr::from([192, 0, 2, number]))
    }

    const PLACES: Places = Places {
        all: 6,
        of_one_source: 4,
    };

    #[test]
    fn sources_take_turns_whoever_has_how_much_in_the_line() {
        let line = Line::new(PLACES);
        for work in ["a1", "a2", "a3"] {
            assert_eq!(line.push(source(1), work), None);
        }
        assert_eq!(line.push(source(2), "b1"), None);
        let order: Vec<_> = (0..4).filter_map(|_| line.next()).collect();
        assert_eq!(order, ["a1", "b1", "a2", "a3"]);
    }

    #[test]
    fn a_source_has_a_bound_of_its_own() {
        let line = Line::new(PLACES);
        for number in 0..4 {
            assert_eq!(line.push(source(1), number), None);
        }
        assert_eq!(line.push(source(1), 4), Some(4));
        assert_eq!(line.push(source(2), 5), None);
    }

    #[test]
    fn in_a_full_line_who_has_less_takes_the_last_place_of_who_has_most() {
        let line = Line::new(PLACES);
        for work in ["a1", "a2", "a3", "a4"] {
            assert_eq!(line.push(source(1), work), None);
        }
        assert_eq!(line.push(source(2), "b1"), None);
        assert_eq!(line.push(source(3), "c1"), None);
        assert_eq!(line.push(source(4), "d1"), Some("a4"));
        assert_eq!(line.push(source(2), "b2"), Some("a3"));
        // All have an equal share: a source that has as much as the others gets no more.
        assert_eq!(line.push(source(3), "c2"), Some("c2"));
        let order: Vec<_> = (0..6).filter_map(|_| line.next()).collect();
        assert_eq!(order, ["a1", "b1", "c1", "d1", "a2", "b2"]);
    }

    #[test]
    fn threads_serve_what_waits_and_end_with_the_pool() {
        let (sender, served) = std::sync::mpsc::channel();
        let serve = move |work: u8| sender.send(work).expect("listened to");
        let pool = Pool::start("test", 2, PLACES, serve).expect("threads");
        assert_eq!(pool.submit(source(1), 7), None);
        assert_eq!(served.recv(), Ok(7));
        drop(pool);
        // The channel ends when the last thread has dropped its sender.
        assert!(served.recv().is_err());
    }
}
