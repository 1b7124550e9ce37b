//! Memories of decisions, each with its limit.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use super::super::recent::MAXIMUM;
use crate::{Now, RedirectionDecision, RedirectionReason, RedirectionReport, Remembered};

/// A token bucket for redirections: filled at a constant rate, with a burst of two seconds.
#[derive(Debug)]
pub(in crate::hub::placing) struct Budget {
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
pub(in crate::hub::placing) struct Decisions {
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
