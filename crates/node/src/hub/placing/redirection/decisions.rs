//! Memories of decisions, each with its limit.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use super::is_over;
use crate::{Now, RedirectionDecision, RedirectionReason, RedirectionReport, Remembered};

/// Clients in one memory at most; the oldest is evicted.
const MAXIMUM: usize = 65_536;

/// Clients of which something is remembered for a while.
#[derive(Debug)]
pub(in crate::hub) struct Recent<T> {
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

/// Redirections a second: tokens that come evenly, those of two seconds at most.
#[derive(Debug)]
pub(super) struct Budget {
    per_s: u64,
    /// In thousandths.
    tokens: u64,
    filled_at: Instant,
}

impl Budget {
    pub fn new(per_s: u32) -> Self {
        Self {
            per_s: u64::from(per_s),
            tokens: u64::from(per_s) * 2000,
            filled_at: Instant::default(),
        }
    }

    pub fn has_left(&mut self, now: Instant) -> bool {
        self.left(now) > 0
    }

    /// How many may be sent away now.
    pub fn left(&mut self, now: Instant) -> u64 {
        let passed = now.since(self.filled_at).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let more = passed.saturating_mul(self.per_s);
        self.tokens = self.tokens.saturating_add(more).min(self.per_s * 2000);
        self.filled_at = now;
        self.tokens / 1000
    }

    pub const fn take(&mut self) {
        self.tokens = self.tokens.saturating_sub(1000);
    }
}

/// The last decision about each client, and how many there were of each kind.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    last: HashMap<Arc<str>, RedirectionDecision>,
    order: VecDeque<Arc<str>>,
    counts: BTreeMap<RedirectionReason, u64>,
}

impl Decisions {
    pub fn remembered(&self) -> Remembered {
        Remembered::new(
            "decisions to send clients elsewhere",
            self.last.len(),
            MAXIMUM,
        )
    }

    pub fn note(
        &mut self,
        now: Now,
        client_id: &str,
        reason: RedirectionReason,
        to: Option<NodeId>,
    ) {
        *self.counts.entry(reason).or_default() += 1;
        let decision = RedirectionDecision {
            at_ms: now.wall.as_unix_millis(),
            reason,
            to: to.map(|node| node.to_string()),
        };
        if let Some(known) = self.last.get_mut(client_id) {
            *known = decision;
            return;
        }
        if self.order.len() >= MAXIMUM
            && let Some(oldest) = self.order.pop_front()
        {
            self.last.remove(&oldest);
        }
        let name: Arc<str> = client_id.into();
        self.order.push_back(Arc::clone(&name));
        self.last.insert(name, decision);
    }

    pub fn last(&self, is_it: impl Fn(&str) -> bool) -> Option<RedirectionDecision> {
        let found = self.last.iter().filter(|(name, _)| is_it(name));
        found
            .map(|(_, decision)| decision)
            .max_by_key(|decision| decision.at_ms)
            .cloned()
    }

    pub fn report(&self) -> RedirectionReport {
        let of = |reason: RedirectionReason| self.counts.get(&reason).copied().unwrap_or(0);
        RedirectionReport {
            decisions: RedirectionReason::ALL
                .into_iter()
                .map(|reason| (reason, of(reason)))
                .collect(),
        }
    }
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

    #[test]
    fn a_budget_fills_up_evenly_and_no_further_than_two_seconds() {
        let mut budget = Budget::new(10);
        assert_eq!(budget.left(at(3_600_000)), 20);
        for _ in 0..20 {
            budget.take();
        }
        assert!(!budget.has_left(at(3_600_000)));
        assert_eq!(budget.left(at(3_600_150)), 1);
        assert_eq!(budget.left(at(3_601_000)), 10);
    }
}
