//! Threads that do slow work for strangers, and the queue in which it waits.
//!
//! Whoever waits for the work has it, and the queue only refers to it: when that connection ends, its work is gone too. So nothing is done for clients
//! that have left, and what they sent takes no memory.
//!
//! Addresses take turns, however much each has in the queue, and each has a limit of its own. So a flood from one address delays work of another one by
//! at most a turn of each, and does not displace it: when the queue is full, an address with less in it takes a place of the one with most.
//!
//! Of one address the newest work is done first, and the oldest is displaced first. When more arrives than can be done, the clients whose work is oldest
//! are about to give up and try again: oldest first, all work would be done for clients that leave before they have the answer.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

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
    /// The oldest first. Those of connections that have ended are dead; they count until they are found.
    of: HashMap<Source, VecDeque<Weak<T>>>,
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

impl<T: Send + Sync + 'static> Pool<T> {
    /// Starts `count` threads named after `name`, which `serve` the work, each with a clone of its own.
    pub(crate) fn start(
        name: &str,
        count: usize,
        places: Places,
        serve: impl FnMut(Arc<T>) + Clone + Send + 'static,
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

    /// Queues work, which is done if the caller still has it when its turn comes. Returned work was displaced: the oldest of this source, or of the one
    /// with most in the queue, or this work itself.
    #[must_use]
    pub(crate) fn submit(&self, source: Source, work: &Arc<T>) -> Option<Arc<T>> {
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

    fn push(&self, source: Source, work: &Arc<T>) -> Option<Arc<T>> {
        let mut waiting = self.lock();
        let own = waiting.of.get(&source).map_or(0, VecDeque::len);
        let longest = if own >= self.places.of_one_source {
            Some(source)
        } else if waiting.count >= self.places.all {
            let longest = waiting.longest(own);
            if longest.is_none() && !waiting.drop_dead() {
                return Some(Arc::clone(work));
            }
            longest
        } else {
            None
        };
        waiting.add(source, Arc::downgrade(work));
        let displaced = longest.and_then(|longest| waiting.take_oldest(longest));
        drop(waiting);
        self.changed.notify_one();
        displaced?.upgrade()
    }

    /// Waits for work; `None`: the pool has ended.
    fn next(&self) -> Option<Arc<T>> {
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
    fn add(&mut self, source: Source, work: Weak<T>) {
        let own = self.of.entry(source).or_default();
        if own.is_empty() {
            self.turns.push_back(source);
        }
        own.push_back(work);
        self.count += 1;
    }

    /// The newest work of the source in turn that somebody still waits for. A source that has none loses its turn.
    fn take_next(&mut self) -> Option<Arc<T>> {
        while let Some(source) = self.turns.pop_front() {
            let Some(own) = self.of.get_mut(&source) else {
                continue;
            };
            let mut found = None;
            while found.is_none()
                && let Some(newest) = own.pop_back()
            {
                self.count -= 1;
                found = newest.upgrade();
            }
            if own.is_empty() {
                self.of.remove(&source);
            } else {
                self.turns.push_back(source);
            }
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The source with most, if that has more than `own` and one.
    fn longest(&self, own: usize) -> Option<Source> {
        let (source, waits) = self.of.iter().max_by_key(|(_, waits)| waits.len())?;
        (waits.len() > own + 1).then_some(*source)
    }

    /// Removes the work of connections that have ended. Returns whether there was any.
    fn drop_dead(&mut self) -> bool {
        let before = self.count;
        self.of.retain(|_, own| {
            own.retain(|work| work.strong_count() > 0);
            !own.is_empty()
        });
        self.turns.retain(|source| self.of.contains_key(source));
        self.count = self.of.values().map(VecDeque::len).sum();
        self.count < before
    }

    /// Removes the oldest work of a source that has more than one.
    fn take_oldest(&mut self, source: Source) -> Option<Weak<T>> {
        let oldest = self.of.get_mut(&source)?.pop_front();
        self.count -= usize::from(oldest.is_some());
        oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    fn source(number: u8) -> Source {
        Source::from(IpAddr::from([192, 0, 2, number]))
    }

    const PLACES: Places = Places {
        all: 6,
        of_one_source: 4,
    };

    /// A line, and the connections that wait for work in it.
    struct Waiters {
        line: Line<&'static str>,
        #[expect(
            clippy::redundant_allocation,
            reason = "work goes with the last of its owners, so it has owners here too"
        )]
        waiters: Vec<Arc<&'static str>>,
    }

    impl Waiters {
        fn new() -> Self {
            Self {
                line: Line::new(PLACES),
                waiters: Vec::new(),
            }
        }

        /// Returns what was displaced.
        fn push(&mut self, number: u8, work: &'static str) -> Option<&'static str> {
            let work = Arc::new(work);
            let displaced = self.line.push(source(number), &work);
            self.waiters.push(work);
            displaced.map(|it| *it)
        }

        fn leave(&mut self, work: &str) {
            self.waiters.retain(|it| **it != work);
        }

        fn order(&self) -> Vec<&'static str> {
            let next = || self.line.lock().take_next();
            std::iter::from_fn(next).map(|it| *it).collect()
        }
    }

    #[test]
    fn sources_take_turns_whoever_has_how_much_in_the_line_and_of_each_the_newest_is_first() {
        let mut here = Waiters::new();
        for work in ["a1", "a2", "a3"] {
            assert_eq!(here.push(1, work), None);
        }
        assert_eq!(here.push(2, "b1"), None);
        assert_eq!(here.order(), ["a3", "b1", "a2", "a1"]);
    }

    #[test]
    fn a_source_has_a_bound_of_its_own_and_displaces_its_oldest_work() {
        let mut here = Waiters::new();
        for work in ["a1", "a2", "a3", "a4"] {
            assert_eq!(here.push(1, work), None);
        }
        assert_eq!(here.push(1, "a5"), Some("a1"));
        assert_eq!(here.push(2, "b1"), None);
        assert_eq!(here.order(), ["a5", "b1", "a4", "a3", "a2"]);
    }

    #[test]
    fn in_a_full_line_who_has_less_takes_the_oldest_place_of_who_has_most() {
        let mut here = Waiters::new();
        for work in ["a1", "a2", "a3", "a4"] {
            assert_eq!(here.push(1, work), None);
        }
        assert_eq!(here.push(2, "b1"), None);
        assert_eq!(here.push(3, "c1"), None);
        assert_eq!(here.push(4, "d1"), Some("a1"));
        assert_eq!(here.push(2, "b2"), Some("a2"));
        // All have an equal share: a source that has as much as the others gets no more.
        assert_eq!(here.push(3, "c2"), Some("c2"));
        assert_eq!(here.order(), ["a4", "b2", "c1", "d1", "a3", "b1"]);
    }

    #[test]
    fn work_goes_with_the_connection_that_waits_for_it() {
        let mut here = Waiters::new();
        for (number, work) in [(1, "a1"), (1, "a2"), (1, "a3"), (2, "b1"), (3, "c1")] {
            assert_eq!(here.push(number, work), None);
        }
        for gone in ["a1", "a3", "b1"] {
            here.leave(gone);
        }
        assert_eq!(here.order(), ["a2", "c1"]);
        assert_eq!(here.line.lock().count, 0);
    }

    #[test]
    fn a_place_of_a_connection_that_has_left_is_free() {
        let mut here = Waiters::new();
        for work in ["a1", "a2", "a3", "a4"] {
            assert_eq!(here.push(1, work), None);
        }
        here.leave("a1");
        assert_eq!(here.push(1, "a5"), None);
        assert_eq!(here.order(), ["a5", "a4", "a3", "a2"]);
    }

    #[test]
    fn in_a_full_line_whose_clients_have_left_there_is_a_place_for_everybody() {
        let mut here = Waiters::new();
        let work = ["a1", "b1", "c1", "d1", "e1", "f1"];
        for (number, work) in (1..).zip(work) {
            assert_eq!(here.push(number, work), None);
        }
        assert_eq!(here.push(7, "g1"), Some("g1"));
        here.leave("c1");
        assert_eq!(here.push(8, "h1"), None);
        assert_eq!(here.order(), ["a1", "b1", "d1", "e1", "f1", "h1"]);
    }

    /// Clients that wait for `patience` and try again after at most `pause`; times in milliseconds. Returns when the last one was let in.
    fn play(clients: usize, hash: u64, patience: u64, pause: u64) -> u64 {
        #[derive(Clone, Copy)]
        enum Event {
            Arrives(usize),
            GivesUp(usize, u64),
            IsHashed(usize, u64),
        }
        let places = Places {
            all: 16_384,
            of_one_source: 8_192,
        };
        let line: Line<(usize, u64)> = Line::new(places);
        // By time and number.
        let mut events = BTreeMap::new();
        let mut number = 0;
        let mut at = |events: &mut BTreeMap<(u64, u64), Event>, time, event| {
            number += 1;
            events.insert((time, number), event);
        };
        let mut waits: Vec<Option<Arc<(usize, u64)>>> = vec![None; clients];
        let mut is_in = vec![false; clients];
        let (mut tries, mut left, mut free) = (0, clients, 2);
        for client in 0..clients {
            at(&mut events, 0, Event::Arrives(client));
        }
        while let Some(((now, _), event)) = events.pop_first() {
            assert!(
                now < 10 * 60 * 1000,
                "{left} of {clients} clients are not in"
            );
            match event {
                Event::Arrives(client) => {
                    tries += 1;
                    let work = Arc::new((client, tries));
                    let displaced = line.push(source(1), &work);
                    assert!(displaced.is_none(), "there are places for all");
                    waits[client] = Some(work);
                    at(&mut events, now + patience, Event::GivesUp(client, tries));
                }
                Event::GivesUp(client, try_number) => {
                    if !is_in[client] && waits[client].as_ref().is_some_and(|it| it.1 == try_number)
                    {
                        waits[client] = None;
                        // Differs from client to client and from try to try.
                        let later = (client as u64 * 7 + try_number * 13) % pause;
                        at(&mut events, now + 1 + later, Event::Arrives(client));
                    }
                }
                Event::IsHashed(client, try_number) => {
                    free += 1;
                    let is_there = waits[client].as_ref().is_some_and(|it| it.1 == try_number);
                    if is_there && !std::mem::replace(&mut is_in[client], true) {
                        left -= 1;
                    }
                }
            }
            if left == 0 {
                return now;
            }
            while free > 0 {
                let Some(work) = line.lock().take_next() else {
                    break;
                };
                free -= 1;
                at(&mut events, now + hash, Event::IsHashed(work.0, work.1));
            }
        }
        unreachable!("whoever is not in tries again");
    }

    #[test]
    fn ten_times_more_clients_than_can_be_let_in_before_they_give_up_are_all_let_in_without_waste()
    {
        for (hash, patience, pause) in [
            (25, 2_000, 1),
            (25, 2_000, 100),
            (25, 2_000, 2_000),
            (25, 2_000, 10_000),
            (100, 2_000, 500),
            (25, 500, 500),
            (25, 5_000, 1_000),
        ] {
            // Two threads hash.
            let clients = 10 * 2 * patience / hash;
            let least = clients * hash / 2;
            let took = play(
                usize::try_from(clients).expect("few"),
                hash,
                patience,
                pause,
            );
            assert!(
                took * 10 <= least * 13 + pause * 10,
                "{took} ms with hashes of {hash} ms, {patience} ms of patience, pauses of {pause} ms; at best {least} ms"
            );
        }
    }

    #[test]
    fn threads_serve_what_waits_and_end_with_the_pool() {
        let (sender, served) = std::sync::mpsc::channel();
        let serve = move |work: Arc<u8>| sender.send(*work).expect("listened to");
        let pool = Pool::start("test", 2, PLACES, serve).expect("threads");
        let work = Arc::new(7);
        assert!(pool.submit(source(1), &work).is_none());
        assert_eq!(served.recv(), Ok(7));
        drop(pool);
        // The channel ends when the last thread has dropped its sender.
        assert!(served.recv().is_err());
    }
}
