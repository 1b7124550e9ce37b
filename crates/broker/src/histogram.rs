//! Histograms of durations for metrics: threads add to one, and any thread may read it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bounds of the buckets; a duration above the last is only in the count.
pub(crate) type Bounds = [f64; 8];

/// For operations of a disk or network, in seconds.
pub(crate) const SLOW: Bounds = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 10.0];
/// For operations inside a node, in seconds.
const FAST: Bounds = [0.000_01, 0.000_03, 0.000_1, 0.000_3, 0.001, 0.01, 0.1, 1.0];

/// Counts durations in buckets.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: Bounds,
    /// The same in nanoseconds: threads compare whole numbers.
    bounds_ns: [u64; 8],
    within: [AtomicU64; 8],
    beyond: AtomicU64,
    nanos: AtomicU64,
}

/// The values of a histogram at one moment; buckets are not cumulative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Distribution {
    pub(crate) bounds: Bounds,
    pub(crate) within: [u64; 8],
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

/// For operations inside a node.
impl Default for Histogram {
    fn default() -> Self {
        Self::new(FAST)
    }
}

impl Histogram {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            bounds_ns: bounds.map(|seconds| (seconds * 1e9).round() as u64),
            within: Default::default(),
            beyond: AtomicU64::new(0),
            nanos: AtomicU64::new(0),
        }
    }

    /// Adds a duration `times` times.
    pub(crate) fn add(&self, took: Duration, times: u64) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = self.bounds_ns.iter().position(|bound| nanos <= *bound);
        let count = bucket.map_or(&self.beyond, |bucket| &self.within[bucket]);
        count.fetch_add(times, Ordering::Relaxed);
        let nanos = nanos.saturating_mul(times);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Distribution {
        let within = std::array::from_fn(|index| self.within[index].load(Ordering::Relaxed));
        Distribution {
            bounds: self.bounds,
            within,
            count: within.iter().sum::<u64>() + self.beyond.load(Ordering::Relaxed),
            seconds: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_took_long_counts_in_the_bucket_of_its_length() {
        let histogram = Histogram::new(SLOW);
        for (millis, times) in [(1, 1), (2, 3), (60_000, 2)] {
            histogram.add(Duration::from_millis(millis), times);
        }
        let found = histogram.read();
        assert_eq!(found.within, [1, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!((found.count, found.seconds), (6, 120.007));
    }
}
