//! A node's measurements, made coarse before it publishes them: it rounds a value and keeps it until the measured one has clearly left it. So trees,
//! which are a function of the records, do not change with every small variation (rule 1).

use std::time::Duration;

use thicket_session::time::Instant;

/// Tenths of a millisecond in a millisecond: the unit of published RTTs.
const TENTHS_US: u64 = 100;

/// RTT as published, in tenths of a millisecond: 0 below one millisecond, above it rounded to steps of an eighth to a sixteenth.
pub(crate) fn quantise_rtt(rtt_us: u64) -> u32 {
    let tenths = u32::try_from(rtt_us / TENTHS_US).unwrap_or(u32::MAX / 2);
    if tenths < 10 {
        return 0;
    }
    let step = rtt_step(tenths);
    (tenths + step / 2) / step * step
}

fn rtt_step(tenths: u32) -> u32 {
    ((1_u32 << (31 - tenths.max(1).leading_zeros())) / 8).max(1)
}

/// Whether `rtt_us` has clearly left the published value: by more than a step and half a millisecond.
pub(crate) fn rtt_moved(published: u32, rtt_us: u64) -> bool {
    let published_us = u64::from(published) * TENTHS_US;
    let slack = u64::from(rtt_step(published.max(8)).max(1)) * TENTHS_US * 5 / 4 + 500;
    let floor = if published == 0 { 1_000 } else { 0 };
    rtt_us + slack < published_us || rtt_us > published_us + slack + floor
}

/// Capability of a node, C = alpha L + beta M (Overlays 4.2.1), with L and M the available CPU and memory in percent.
pub(crate) const fn capability(
    available_cpu: u8,
    available_memory: u8,
    alpha: u32,
    beta: u32,
) -> u64 {
    alpha as u64 * available_cpu as u64 + beta as u64 * available_memory as u64
}

/// The capability to publish, in steps of a tenth of the maximum. The published value stays while the measured one is within one and a half steps of
/// it.
pub(crate) const fn publish_capability(
    published: u64,
    measured: u64,
    alpha: u32,
    beta: u32,
) -> u64 {
    let full = (alpha as u64 + beta as u64) * 100;
    let step = if full < 10 { 1 } else { full / 10 };
    if published.abs_diff(measured) * 2 <= step * 3 {
        published
    } else {
        (measured + step / 2) / step * step
    }
}

/// A count to publish (roots, clients, messages per second): 0 to 4 exactly, above in powers of two. The published value stays while the measured one
/// is within a factor of three of it.
pub(crate) const fn publish_count(published: u64, measured: u64) -> u64 {
    if measured <= 4 {
        return if published <= 4 || measured * 3 < published {
            measured
        } else {
            published
        };
    }
    if published > 4 && measured * 3 >= published && measured <= published * 3 {
        published
    } else {
        1 << (63 - measured.leading_zeros())
    }
}

/// Messages per second, smoothed over some seconds.
#[derive(Debug)]
pub(crate) struct RateMeter {
    since: Instant,
    count: u64,
    /// Thousandths of a message per second.
    smoothed: u64,
}

impl RateMeter {
    const INTERVAL: Duration = Duration::from_secs(1);

    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            since: now,
            count: 0,
            smoothed: 0,
        }
    }

    pub(crate) const fn count(&mut self, messages: u64) {
        self.count += messages;
    }

    /// The rate in messages per second, as of the last whole interval.
    pub(crate) fn rate(&mut self, now: Instant) -> u64 {
        let elapsed = now.since(self.since);
        if elapsed >= Self::INTERVAL {
            thicket_session::reach!("time INTERVAL");
            let millis = u64::try_from(elapsed.as_millis())
                .unwrap_or(u64::MAX)
                .max(1);
            let sample = self.count.saturating_mul(1_000_000) / millis;
            // A long pause counts as that many intervals.
            let weight = (millis / 1000).min(8);
            self.smoothed = (self.smoothed * (8 - weight) + sample * weight) / 8;
            self.since = now;
            self.count = 0;
        }
        (self.smoothed + 500) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_rtt_is_within_an_eighth_of_the_measured_one_and_does_not_move_at_once() {
        for tenths in 10..50_000_u64 {
            let published = u64::from(quantise_rtt(tenths * 100));
            assert!(
                published.abs_diff(tenths) * 8 <= tenths + 8,
                "{tenths} -> {published}"
            );
            assert!(
                !rtt_moved(quantise_rtt(tenths * 100), tenths * 100),
                "{tenths} must not move at once"
            );
        }
        let cases = [
            ("a LAN that flickers", 0, 1_400, false),
            ("no LAN any more", 0, 3_000, true),
            ("a step up", 200, 21_500, false),
            ("far up", 200, 26_000, true),
            ("far down", 200, 12_000, true),
        ];
        for (name, published, rtt_us, moved) in cases {
            assert_eq!(rtt_moved(published, rtt_us), moved, "{name}");
        }
    }

    #[test]
    fn a_capability_moves_in_steps_and_not_for_a_flicker() {
        let cases = [
            ("first", 0, 180, 180),
            ("a flicker", 180, 155, 180),
            ("a load", 180, 140, 140),
            ("full", 140, 200, 200),
        ];
        for (name, published, measured, expected) in cases {
            assert_eq!(
                publish_capability(published, measured, 1, 1),
                expected,
                "{name}"
            );
        }
        assert_eq!(capability(50, 25, 2, 4), 200, "alpha L + beta M");
    }

    #[test]
    fn counts_are_exact_when_small_and_powers_of_two_beyond() {
        let cases = [
            ("none", 0, 0, 0),
            ("few", 2, 3, 3),
            ("many", 4, 100, 64),
            ("more of them", 64, 190, 64),
            ("far more", 64, 200, 128),
            ("fewer", 64, 22, 64),
            ("far fewer", 64, 20, 16),
            ("nearly none", 64, 4, 4),
        ];
        for (name, published, measured, expected) in cases {
            assert_eq!(publish_count(published, measured), expected, "{name}");
        }
    }

    #[test]
    fn a_rate_rises_and_falls_within_some_seconds() {
        let mut meter = RateMeter::new(Instant::from_millis(0));
        let mut now = 0;
        for _ in 0..30 {
            (0..100).for_each(|_| meter.count(1));
            now += 1000;
            meter.rate(Instant::from_millis(now));
        }
        let rate = meter.rate(Instant::from_millis(now));
        assert!((90..=100).contains(&rate), "{rate}");
        assert_eq!(
            meter.rate(Instant::from_millis(now + 9_000)),
            0,
            "silent since"
        );
    }
}
