//! Points in time, passed in by the shell: a pure crate reads no clock.

use std::ops::Add;
use std::time::Duration;

/// A point on a clock that never goes back, in milliseconds since an arbitrary start.
///
/// Only instants of one clock can be compared. The shell chooses the start, usually its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Instant(u64);

impl Instant {
    /// The instant `millis` milliseconds after the start of the clock.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the start of the clock.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Time that passed since `earlier`; zero if `earlier` is in fact later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// The instant `duration` earlier; the start of the clock if that is before it.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(millis))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// The instant `duration` later, or the last one of the clock if that is out of its range.
    ///
    /// A part of a millisecond counts as a whole one: a deadline is never early.
    fn add(self, duration: Duration) -> Self {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self(
            self.0
                .saturating_add(u64::try_from(millis).unwrap_or(u64::MAX)),
        )
    }
}

/// A time of day, in milliseconds since 1970-01-01 UTC.
///
/// It may jump: use it for what people or other nodes read, [`Instant`] for deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct WallClock(u64);

impl WallClock {
    /// The time `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_unix_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_unix_millis(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adding_and_subtracting_saturate() {
        let cases: &[(&str, Instant, Duration, u64)] = &[
            (
                "plain",
                Instant::from_millis(5),
                Duration::from_millis(7),
                12,
            ),
            (
                "part of a millisecond",
                Instant::from_millis(5),
                Duration::from_nanos(1),
                6,
            ),
            (
                "past the end",
                Instant::from_millis(u64::MAX - 1),
                Duration::from_secs(1),
                u64::MAX,
            ),
            (
                "the longest duration",
                Instant::from_millis(0),
                Duration::MAX,
                u64::MAX,
            ),
        ];
        for (name, start, duration, millis) in cases {
            assert_eq!((*start + *duration).as_millis(), *millis, "{name}");
        }
        let (early, late) = (Instant::from_millis(10), Instant::from_millis(25));
        assert_eq!(late.since(early), Duration::from_millis(15));
        assert_eq!(early.since(late), Duration::ZERO);
    }
}
