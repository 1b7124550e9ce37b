//! Searches for the maximum sustainable throughput (MST).

use std::time::Duration;

use serde::Serialize;

use crate::BenchError;
use crate::generator::{Arrivals, Fleet, Load, Progress, Span, Until, Watch};
use crate::outcome::Outcome;

/// The criterion for a sustainable rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Criterion {
    /// Consumption keeps up with publication: the expected and actual deliveries differ by no more than the larger of the two bounds, and nothing is
    /// lost (Comparison 5.2: 100 messages a second).
    Stable {
        /// Deliveries a second.
        tolerance_per_s: f64,
        /// Share of the expected deliveries, 0 to 1: at high rates the messages under way at both ends of a short interval alone are more than 100 a
        /// second.
        tolerance_share: f64,
    },
    /// The mean latency stays below a bound, and nothing is lost (Detti Fig. 2 and 22).
    MeanLatency {
        /// Milliseconds.
        below_ms: f64,
    },
}

impl Criterion {
    /// Whether a run at `rate_per_s` satisfied it.
    #[must_use]
    pub fn is_met(&self, rate_per_s: f64, outcome: &Outcome) -> bool {
        let c = &outcome.counts;
        let due = rate_per_s
            * if c.published > 0 {
                c.expected as f64 / c.published as f64
            } else {
                1.0
            };
        let follows = |per_s: f64, share: f64| {
            (due - outcome.delivered_per_s).abs() <= per_s.max(share * due)
        };
        c.lost == 0
            && match *self {
                Self::Stable {
                    tolerance_per_s,
                    tolerance_share,
                } => follows(tolerance_per_s, tolerance_share),
                Self::MeanLatency { below_ms } => outcome
                    .latency
                    .is_some_and(|latency| latency.mean_us < below_ms * 1000.0),
            }
    }
}

/// The settings of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SearchSettings {
    /// The criterion for a sustainable rate.
    pub criterion: Criterion,
    /// First rate, in publications a second; doubled while sustainable, halved while not.
    pub from_per_s: f64,
    /// The search ends when the bounds are this close, as a share of the lower one.
    pub precision: f64,
    /// Spacing of the messages.
    pub arrivals: Arrivals,
    /// Load before each measured interval.
    pub warm_up: Duration,
    /// Measured interval of a rate.
    pub step: Duration,
}

/// One rate that was tried.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Step {
    /// Publications a second.
    pub rate_per_s: f64,
    /// Whether it was sustainable.
    pub sustainable: bool,
    /// The result.
    pub outcome: Outcome,
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Search {
    /// The highest rate that was sustainable, in publications a second; 0 if none was.
    pub mst_per_s: f64,
    /// All rates tried, in order.
    pub steps: Vec<Step>,
}

/// The lowest rate tried, in publications a second.
const LOWEST: f64 = 1.0;
/// Most rates tried: doubling from 1 to a billion, then bisection to a thousandth.
const MAX_STEPS: usize = 48;

/// Searches for the MST with connected clients.
pub fn search(
    fleet: &mut Fleet,
    settings: &SearchSettings,
    watch: &Watch,
    progress: &mut dyn FnMut(&Step),
) -> Result<Search, BenchError> {
    let mut steps = Vec::new();
    let mst_per_s = bisect(settings.from_per_s, settings.precision, |rate_per_s| {
        let outcome = run_at(fleet, rate_per_s, settings, watch)?;
        let step = Step {
            rate_per_s,
            sustainable: settings.criterion.is_met(rate_per_s, &outcome),
            outcome,
        };
        progress(&step);
        let sustainable = step.sustainable;
        steps.push(step);
        Ok::<bool, BenchError>(sustainable)
    })?;
    Ok(Search { mst_per_s, steps })
}

/// Runs one rate (M2).
pub fn run_at(
    fleet: &mut Fleet,
    rate_per_s: f64,
    settings: &SearchSettings,
    watch: &Watch,
) -> Result<Outcome, BenchError> {
    let span = Span {
        warm_up: settings.warm_up,
        until: Until::Elapsed(settings.step),
        drain: Duration::from_secs(3),
    };
    let load = Load::Open {
        rate_per_s,
        arrivals: settings.arrivals,
    };
    fleet.run(load, span, watch, &mut |_: &Progress| {})
}

/// The highest value for which `holds` is true, assuming that it is true below some value and false above.
///
/// Doubles from `from` while true, halves while false, then bisects until the bounds differ by less than `precision` of
/// the lower one.
pub fn bisect<E>(
    from: f64,
    precision: f64,
    mut holds: impl FnMut(f64) -> Result<bool, E>,
) -> Result<f64, E> {
    let (mut low, mut high) = (0.0, f64::INFINITY);
    let mut next = from.max(LOWEST);
    for _ in 0..MAX_STEPS {
        if holds(next)? {
            low = next;
        } else {
            high = next;
        }
        next = if high.is_infinite() {
            low * 2.0
        } else if low == 0.0 {
            high / 2.0
        } else {
            (low + high) / 2.0
        };
        if next < LOWEST || high - low <= precision * low {
            break;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(limit: f64, from: f64, precision: f64) -> (f64, usize) {
        let mut tried = 0;
        let found = bisect(from, precision, |rate| {
            tried += 1;
            Ok::<bool, ()>(rate <= limit)
        });
        (found.unwrap(), tried)
    }

    #[test]
    fn the_limit_is_found_from_above_and_from_below() {
        for (limit, from) in [
            (28_000.0, 1000.0),
            (28_000.0, 1_000_000.0),
            (5.0, 1000.0),
            (1000.0, 1000.0),
        ] {
            let (rate, tried) = found(limit, from, 0.02);
            assert!(
                rate <= limit && rate >= limit * 0.97,
                "{limit} from {from}: {rate}"
            );
            assert!(tried <= 20, "{limit} from {from}: {tried} rates");
        }
    }

    #[test]
    fn a_broker_that_sustains_nothing_has_an_mst_of_zero() {
        assert_eq!(found(0.0, 1000.0, 0.05).0, 0.0);
    }

    #[test]
    fn a_search_without_an_upper_bound_ends() {
        assert!(found(f64::INFINITY, 1000.0, 0.05).1 <= MAX_STEPS);
    }
}
