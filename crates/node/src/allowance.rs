//! What may be published in a second: by one client, and by all clients of a listener.

use thicket_session::time::Instant;

/// How many tokens the bucket holds, in milliseconds of the rate.
const BURST_MS: i64 = 2000;

/// A token bucket: any amount may be spent while tokens are left. An amount that exceeds them leaves a negative balance, which must be refilled
/// first.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenBucket {
    /// In thousandths; `None`: nothing was used yet.
    at: Option<(Instant, i64)>,
}

impl TokenBucket {
    /// How much is left, in thousandths.
    #[must_use]
    pub fn left(&self, now: Instant, per_s: u32) -> i64 {
        let rate = i64::from(per_s);
        let most = rate * BURST_MS;
        self.at.map_or(most, |(at, left)| {
            let ms = now.since(at).as_millis().min(u128::from(u32::MAX)) as i64;
            left.saturating_add(rate.saturating_mul(ms)).min(most)
        })
    }

    /// Uses some, whether there is some left or not.
    pub fn spend(&mut self, now: Instant, per_s: u32, amount: u64) {
        let used = i64::try_from(amount)
            .unwrap_or(i64::MAX)
            .saturating_mul(1000);
        self.at = Some((now, self.left(now, per_s).saturating_sub(used)));
    }

    /// Uses `amount`, if the rate allows it; 0: any.
    pub(crate) fn try_spend(&mut self, now: Instant, per_s: u32, amount: u64) -> bool {
        let is_allowed = per_s == 0 || self.left(now, per_s) > 0;
        if per_s > 0 {
            self.spend(now, per_s, if is_allowed { amount } else { 0 });
        }
        is_allowed
    }
}

/// What all clients of a listener may publish at one worker, until the shell says how much is left: only the shell knows what they publish at the
/// other workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Messages; nothing is accepted unless it is above 0. It becomes negative where more is used.
    pub messages: i64,
    /// The same for bytes of topics and payloads.
    pub bytes: i64,
}

impl Default for Allowance {
    /// No bound.
    fn default() -> Self {
        Self {
            messages: i64::MAX,
            bytes: i64::MAX,
        }
    }
}

impl Allowance {
    /// Uses what a message takes, if any is left.
    pub(crate) const fn try_spend(&mut self, bytes: usize) -> bool {
        if self.messages <= 0 || self.bytes <= 0 {
            return false;
        }
        self.messages -= 1;
        self.bytes = self.bytes.saturating_sub(bytes as i64);
        true
    }
}

/// Messages of the clients of a listener, since the start of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenerTraffic {
    /// Published by them.
    pub in_messages: u64,
    /// Delivered to them.
    pub out_messages: u64,
    /// Refused or dropped, as they had no allowance.
    pub refused_messages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000_000 + ms)
    }

    #[test]
    fn a_steady_rate_is_allowed_and_a_burst_of_two_seconds() {
        let mut bucket = TokenBucket::default();
        assert!((0..20).all(|_| bucket.try_spend(at(0), 10, 1)));
        assert!(!bucket.try_spend(at(0), 10, 1));
        assert!(bucket.try_spend(at(100), 10, 1));
        assert!(!bucket.try_spend(at(100), 10, 1));
        // No more than two seconds are saved up.
        let burst = (0..100).filter(|_| bucket.try_spend(at(60_000), 10, 1));
        assert_eq!(burst.count(), 20);
        let mut steady = TokenBucket::default();
        assert!((0..1000).all(|number| steady.try_spend(at(number * 100), 10, 1)));
    }

    #[test]
    fn what_is_larger_than_the_rate_is_paid_back() {
        let mut bucket = TokenBucket::default();
        assert!(bucket.try_spend(at(0), 100, 1000));
        assert!(!bucket.try_spend(at(7_900), 100, 1));
        assert!(bucket.try_spend(at(8_100), 100, 1));
        assert!(bucket.try_spend(at(8_100), 100, u64::MAX));
        assert!(!bucket.try_spend(at(60_000), 100, 1));
        assert!(bucket.try_spend(at(60_000), 0, u64::MAX), "no bound");
    }

    #[test]
    fn an_allowance_ends_with_the_messages_or_with_the_bytes() {
        let allowance = |messages, bytes| Allowance { messages, bytes };
        let mut few = allowance(2, 100);
        assert!(few.try_spend(1) && few.try_spend(1) && !few.try_spend(1));
        let mut short = allowance(10, 100);
        assert!(short.try_spend(99) && short.try_spend(500) && !short.try_spend(0));
        assert_eq!(short, allowance(8, -499));
        let mut any = Allowance::default();
        assert!((0..1000).all(|_| any.try_spend(usize::MAX >> 16)));
    }
}
