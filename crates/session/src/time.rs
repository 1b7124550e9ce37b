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
/// It may jump, and differs from node to node: use it for what people read and what is stored here, [`Instant`] for deadlines, [`Timeline`] for other
/// nodes.
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

/// Two clocks, read at the same moment: the monotonic clock of this process, and the one by which times are written for others.
///
/// What a process stores has times of day: the next process has another monotonic clock, but mostly the same time of day. What another node is sent has
/// times of the monotonic clock of its sender, and with them what that clock says at the moment of sending. So the reader takes from it only how long
/// ago or how far ahead something is: the times of day of two nodes may be years apart, and each may jump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeline {
    here: Instant,
    there: u64,
}

impl Timeline {
    /// Of times on the monotonic clock of this process.
    pub const OWN: Self = Self::new(Instant::from_millis(0), 0);

    /// At the instant `here` the other clock says `there`, in milliseconds.
    #[must_use]
    pub const fn new(here: Instant, there: u64) -> Self {
        Self { here, there }
    }

    /// The same instant of this process, for another clock.
    #[must_use]
    pub const fn with(self, there: u64) -> Self {
        Self { there, ..self }
    }

    /// What the other clock says at an instant; its first or last time if that is out of its range.
    #[must_use]
    pub const fn millis_of(self, at: Instant) -> u64 {
        shifted(at.0, self.here.0, self.there)
    }

    /// The instant at which the other clock says `millis`; the first or last one if that is out of range.
    #[must_use]
    pub const fn instant_of(self, millis: u64) -> Instant {
        Instant(shifted(millis, self.there, self.here.0))
    }
}

/// As far from `to` as `at` is from `from`.
const fn shifted(at: u64, from: u64, to: u64) -> u64 {
    to.saturating_add(at.saturating_sub(from))
        .saturating_sub(from.saturating_sub(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_on_another_clock_is_as_far_away_as_on_ours() {
        let times = Timeline::new(Instant::from_millis(50), 1_000);
        for (name, at, millis) in [
            ("now", 50, 1_000),
            ("ahead", 75, 1_025),
            ("long ago", 0, 950),
        ] {
            let at = Instant::from_millis(at);
            assert_eq!(times.millis_of(at), millis, "{name}");
            assert_eq!(times.instant_of(millis), at, "{name}");
        }
        assert_eq!(times.instant_of(0), Instant::from_millis(0), "out of range");
        let early = times.with(10);
        assert_eq!(early.instant_of(u64::MAX), Instant::from_millis(u64::MAX));
        assert_eq!(early.millis_of(Instant::from_millis(0)), 0, "out of range");
        let own = Instant::from_millis(7);
        assert_eq!(Timeline::OWN.instant_of(7), own);
        assert_eq!(Timeline::OWN.millis_of(own), 7);
    }

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
