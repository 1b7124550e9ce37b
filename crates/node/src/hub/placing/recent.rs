//! Clients of which something is remembered for a while.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use thicket_session::time::Instant;

use crate::Remembered;

/// In this time a client that was redirected has connected where it was sent, or will not.
pub(super) const FOLLOWED: Duration = Duration::from_secs(30);
/// Clients in one memory at most; the oldest is evicted.
pub(super) const MAXIMUM: usize = 65_536;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Recent<T> {
    lifetime: Duration,
    known: HashMap<Arc<str>, (Instant, T)>,
    /// In the order they are forgotten; of a client that was noted again the former times are ignored.
    order: VecDeque<(Instant, Arc<str>)>,
}

impl<T: Copy> Recent<T> {
    pub fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            known: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    pub fn insert(&mut self, now: Instant, name: Arc<str>, value: T) {
        let until = now + self.lifetime;
        self.forget(now);
        self.known.insert(Arc::clone(&name), (until, value));
        self.order.push_back((until, name));
    }

    pub fn get(&self, now: Instant, name: &str) -> Option<T> {
        let (until, value) = self.known.get(name)?;
        (!is_over(*until, now)).then_some(*value)
    }

    /// The last value noted for a client that `is_it` accepts.
    pub fn find(&self, now: Instant, is_it: impl Fn(&str) -> bool) -> Option<T> {
        let known = self.known.iter();
        let found = known.filter(|(name, (until, _))| !is_over(*until, now) && is_it(name));
        let last = found.max_by_key(|(name, (until, _))| (until.as_millis(), Arc::clone(name)));
        last.map(|(_, (_, value))| *value)
    }

    pub fn remembered(&self, what: &'static str) -> Remembered {
        Remembered::new(what, self.known.len(), MAXIMUM)
    }

    fn forget(&mut self, now: Instant) {
        while let Some((until, name)) = self.order.front() {
            if !is_over(*until, now) && self.order.len() < MAXIMUM {
                return;
            }
            if self.known.get(name).is_some_and(|known| known.0 == *until) {
                self.known.remove(name);
            }
            self.order.pop_front();
        }
    }
}

/// Whether the time for which something is remembered is over.
const fn is_over(until: Instant, now: Instant) -> bool {
    until.as_millis() <= now.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_client_is_remembered_for_a_while_from_when_it_was_last_noted() {
        let mut recent = Recent::new(Duration::from_secs(30));
        recent.insert(at(0), "a".into(), 1);
        recent.insert(at(10_000), "a".into(), 2);
        recent.insert(at(20_000), "b".into(), 3);
        assert_eq!(recent.get(at(35_000), "a"), Some(2));
        assert_eq!(recent.get(at(40_000), "a"), None);
        recent.insert(at(45_000), "c".into(), 4);
        assert_eq!((recent.known.len(), recent.order.len()), (2, 2));
        for index in 0..2 * MAXIMUM {
            recent.insert(at(45_000), index.to_string().into(), 5);
        }
        assert!(recent.known.len() <= MAXIMUM, "{}", recent.known.len());
    }
}
