//! Limits how often something that strangers can cause may happen in a span of time.

use std::time::{Duration, Instant};

/// Counts in consecutive spans.
#[derive(Debug)]
pub(crate) struct Allowance {
    most: u32,
    span: Duration,
    since: Instant,
    taken: u32,
}

impl Allowance {
    pub(crate) fn new(most: u32, span: Duration) -> Self {
        Self {
            most,
            span,
            since: Instant::now(),
            taken: 0,
        }
    }

    /// The limit for lines of the log about one kind of stranger.
    pub(crate) fn of_lines() -> Self {
        Self::new(20, Duration::from_secs(10))
    }

    /// Returns `Some` if one more is allowed now: on the first of a span the number that was refused in the span before, else 0.
    pub(crate) fn take(&mut self) -> Option<u32> {
        self.take_at(Instant::now())
    }

    fn take_at(&mut self, now: Instant) -> Option<u32> {
        let mut left_out = 0;
        if now.saturating_duration_since(self.since) >= self.span {
            left_out = self.taken.saturating_sub(self.most);
            (self.since, self.taken) = (now, 0);
        }
        self.taken = self.taken.saturating_add(1);
        (self.taken <= self.most).then_some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_allowed_in_a_span_and_again_in_the_next() {
        let span = Duration::from_secs(10);
        let mut allowance = Allowance::new(20, span);
        let start = allowance.since;
        let mut taken = |at: Instant| -> Vec<u32> {
            let each = (0..1000).filter_map(|_| allowance.take_at(at));
            each.collect()
        };
        assert_eq!(taken(start), [0; 20]);
        assert!(taken(start + span / 2).is_empty());
        let next = taken(start + span * 2);
        assert_eq!((next.len(), next[0], next[1]), (20, 1980, 0));
    }
}
