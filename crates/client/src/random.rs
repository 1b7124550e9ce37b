//! Random numbers from the operating system.

use std::time::Duration;

/// Pauses stop doubling after this many failures.
const DOUBLINGS: u32 = 16;

pub(crate) fn number() -> u64 {
    // Without randomness the client still works, in a fixed order.
    getrandom::u64().unwrap_or_default()
}

/// A pause, uniformly random between zero and the limit after `failures` in a row.
pub(crate) fn pause(first: Duration, longest: Duration, failures: u32) -> Duration {
    let limit = first
        .saturating_mul(1 << failures.min(DOUBLINGS))
        .min(longest);
    limit.mul_f64((number() >> 11) as f64 / (1_u64 << 53) as f64)
}

pub(crate) fn shuffle<T>(items: &mut [T]) {
    for index in (1..items.len()).rev() {
        let other = number() % (index as u64 + 1);
        items.swap(index, other as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(10));
        for (failures, limit_ms) in [
            (0, 100),
            (1, 200),
            (5, 3200),
            (9, 10_000),
            (u32::MAX, 10_000),
        ] {
            for _ in 0..100 {
                let pause = pause(first, longest, failures);
                assert!(
                    pause <= Duration::from_millis(limit_ms),
                    "{failures}: {pause:?}"
                );
            }
        }
    }
}
