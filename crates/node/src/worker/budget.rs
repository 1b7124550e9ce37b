//! How much the client of a connection may publish in a second.

use thicket_mqtt::{Publish, ReasonCode};
use thicket_session::time::Instant;

use super::{Refusal, context::Context};
use crate::{ConnectionId, Now};

/// What a client may save up, in milliseconds of its rate.
const SAVED_MS: i64 = 2000;

/// What the client of a connection may publish before it has to wait.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Budget {
    messages: Balance,
    bytes: Balance,
}

/// Thousandths of what may be used, less what was used: a message is allowed while it is above zero, however large the message.
#[derive(Debug, Clone, Copy, Default)]
struct Balance {
    /// `None`: nothing was used yet.
    at: Option<(Instant, i64)>,
}

impl Balance {
    /// Uses `amount`, if the rate allows it; 0: any.
    fn is_used(&mut self, now: Instant, per_s: u32, amount: u64) -> bool {
        if per_s == 0 {
            return true;
        }
        let rate = i64::from(per_s);
        let most = rate * SAVED_MS;
        let left = self.at.map_or(most, |(at, left)| {
            let ms = now.since(at).as_millis().min(u128::from(u32::MAX)) as i64;
            left.saturating_add(rate.saturating_mul(ms)).min(most)
        });
        let is_allowed = left > 0;
        let used = i64::try_from(amount).unwrap_or(i64::MAX);
        let used = if is_allowed {
            used.saturating_mul(1000)
        } else {
            0
        };
        self.at = Some((now, left.saturating_sub(used)));
        is_allowed
    }
}

/// A client that publishes more than it may is disconnected.
#[inline]
pub(super) fn check_rate(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    publish: &Publish<'_>,
) -> Result<(), Refusal> {
    let limits = &cx.config.limits;
    if limits.client_messages_per_s == 0 && limits.client_bytes_per_s == 0 {
        return Ok(());
    }
    use_budget(cx, now, id, publish)
}

#[inline(never)]
fn use_budget(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    publish: &Publish<'_>,
) -> Result<(), Refusal> {
    let limits = &cx.config.limits;
    let (messages, bytes) = (limits.client_messages_per_s, limits.client_bytes_per_s);
    let Some(connection) = cx.connections.get_mut(id) else {
        return Ok(());
    };
    let (budget, len) = (
        &mut connection.budget,
        publish.topic.len() + publish.payload.len(),
    );
    let too_much = if !budget.messages.is_used(now.instant, messages, 1) {
        format!("more than {messages} messages a second")
    } else if !budget.bytes.is_used(now.instant, bytes, len as u64) {
        format!("more than {bytes} bytes a second")
    } else {
        return Ok(());
    };
    Err(Refusal::new(ReasonCode::MessageRateTooHigh, too_much))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000_000 + ms)
    }

    #[test]
    fn a_steady_rate_is_allowed_and_a_burst_of_two_seconds() {
        let mut balance = Balance::default();
        assert!((0..20).all(|_| balance.is_used(at(0), 10, 1)));
        assert!(!balance.is_used(at(0), 10, 1));
        assert!(balance.is_used(at(100), 10, 1));
        assert!(!balance.is_used(at(100), 10, 1));
        // No more than two seconds are saved up.
        let burst = (0..100).filter(|_| balance.is_used(at(60_000), 10, 1));
        assert_eq!(burst.count(), 20);
        let mut steady = Balance::default();
        assert!((0..1000).all(|number| steady.is_used(at(number * 100), 10, 1)));
    }

    #[test]
    fn what_is_larger_than_the_rate_is_paid_back() {
        let mut balance = Balance::default();
        assert!(balance.is_used(at(0), 100, 1000));
        assert!(!balance.is_used(at(7_900), 100, 1));
        assert!(balance.is_used(at(8_100), 100, 1));
        assert!(balance.is_used(at(8_100), 100, u64::MAX));
        assert!(!balance.is_used(at(60_000), 100, 1));
        assert!(balance.is_used(at(60_000), 0, u64::MAX), "no bound");
    }
}
