//! Laws of a link's delay. Pure: a law turns random numbers into delays, the same for every back end.
//!
//! The link process draws from the law itself. The kernel and the simulation draw from its [`quantiles`](Delay::quantiles), each equally likely.

use serde::{Deserialize, Serialize};
use thicket_bench::random::Random;

/// Number of quantiles that stand for a law: that of the tables which `tc` brings with it.
const QUANTILES: usize = 4096;

/// The delay of a packet on a link, one way, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "law")]
pub enum Delay {
    /// The same for all.
    Constant {
        /// The delay.
        ms: f64,
    },
    /// Anything between two bounds.
    Uniform {
        /// The least.
        min_ms: f64,
        /// The most.
        max_ms: f64,
    },
    /// Normal; a draw below 0 is 0.
    Normal {
        /// Mean before draws below 0 are 0.
        mean_ms: f64,
        /// Standard deviation.
        sd_ms: f64,
    },
    /// Its logarithm is normal: a long tail.
    LogNormal {
        /// Mean of the delay, not of its logarithm.
        mean_ms: f64,
        /// Standard deviation of the delay.
        sd_ms: f64,
    },
    /// P(delay > x) = (min / x)^shape: a heavy tail.
    Pareto {
        /// The least.
        min_ms: f64,
        /// The tail index, above 1: without a mean a link has no round trip.
        shape: f64,
    },
}

impl Delay {
    /// Whether all packets have the same delay.
    #[must_use]
    pub const fn is_constant(&self) -> bool {
        matches!(self, Self::Constant { .. })
    }

    /// A delay drawn by the law. It uses at most two numbers of `random`, a constant none.
    pub fn draw_ms(&self, random: &mut Random) -> f64 {
        match *self {
            Self::Constant { ms } => ms,
            Self::Uniform { .. } | Self::Pareto { .. } => self.quantile_ms(random.unit()),
            Self::Normal { mean_ms, sd_ms } => (mean_ms + sd_ms * random.normal()).max(0.0),
            Self::LogNormal { mean_ms, sd_ms } => random.log_normal(mean_ms, sd_ms / mean_ms),
        }
    }

    /// The delay that this share of all packets does not exceed; `share` is above 0 and below 1.
    #[must_use]
    pub fn quantile_ms(&self, share: f64) -> f64 {
        match *self {
            Self::Constant { ms } => ms,
            Self::Uniform { min_ms, max_ms } => min_ms + share * (max_ms - min_ms),
            Self::Normal { mean_ms, sd_ms } => (mean_ms + sd_ms * normal_quantile(share)).max(0.0),
            Self::LogNormal { mean_ms, sd_ms } => {
                let variance = (1.0 + (sd_ms / mean_ms).powi(2)).ln();
                let location = mean_ms.ln() - variance / 2.0;
                (location + variance.sqrt() * normal_quantile(share)).exp()
            }
            Self::Pareto { min_ms, shape } => min_ms * (1.0 - share).powf(-1.0 / shape),
        }
    }

    /// The mean delay.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        match *self {
            Self::Constant { ms } => ms,
            Self::Uniform { min_ms, max_ms } => f64::midpoint(min_ms, max_ms),
            // What is cut off at 0 raises it.
            Self::Normal { .. } => {
                let all = self.quantiles();
                all.iter().sum::<f64>() / all.len() as f64
            }
            Self::LogNormal { mean_ms, .. } => mean_ms,
            Self::Pareto { min_ms, shape } => min_ms * shape / (shape - 1.0),
        }
    }

    /// Equally likely delays that stand for the law, ascending: the middle of each of 4096 equal shares, one for a constant.
    #[must_use]
    pub fn quantiles(&self) -> Vec<f64> {
        let count = if self.is_constant() { 1 } else { QUANTILES };
        let middle = |number: usize| (number as f64 + 0.5) / count as f64;
        (0..count)
            .map(|number| self.quantile_ms(middle(number)))
            .collect()
    }

    /// The law in words; `None` for a constant.
    #[must_use]
    pub fn describe(&self) -> Option<String> {
        Some(match self {
            Self::Constant { .. } => return None,
            Self::Uniform { min_ms, max_ms } => format!("uniform from {min_ms} to {max_ms} ms"),
            Self::Normal { mean_ms, sd_ms } => format!("normal({mean_ms}, {sd_ms}) ms"),
            Self::LogNormal { mean_ms, sd_ms } => {
                format!("log-normal, mean {mean_ms} and standard deviation {sd_ms} ms")
            }
            Self::Pareto { min_ms, shape } => format!("Pareto from {min_ms} ms, shape {shape}"),
        })
    }

    /// The round trip over a link with this delay, for a table: the mean, and the law if there is one.
    #[must_use]
    pub fn round_trip(&self) -> String {
        let mean_ms = 2.0 * self.mean_ms();
        match self.describe() {
            None => format!("{mean_ms:.2}"),
            Some(law) => format!("{mean_ms:.2} ({law})"),
        }
    }
}

/// The standard normal quantile, by Acklam's rational approximation: its relative error is below 1.2e-9.
fn normal_quantile(share: f64) -> f64 {
    const CENTRE_OVER: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const CENTRE_UNDER: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const TAIL_OVER: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const TAIL_UNDER: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    const TAIL: f64 = 0.024_25;
    let polynomial = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    let tail = |share: f64| {
        let x = (-2.0 * share.ln()).sqrt();
        polynomial(&TAIL_OVER, x) / polynomial(&TAIL_UNDER, x)
    };
    if share < TAIL {
        tail(share)
    } else if share > 1.0 - TAIL {
        -tail(1.0 - share)
    } else {
        let x = share - 0.5;
        x * polynomial(&CENTRE_OVER, x * x) / polynomial(&CENTRE_UNDER, x * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 400_000;

    /// Each law with its mean, and its quantiles at 5, 50, 95 and 99 %, from textbooks: those of the log-normal are exp(1.7918 + 1.0108 z), as
    /// ln(1 + 4/3 * 4/3) = 1.0217 is the variance of its logarithm.
    fn laws() -> [(Delay, f64, [f64; 4]); 5] {
        let (mean_ms, min_ms) = (10.0, 5.0);
        [
            (Delay::Constant { ms: 7.5 }, 7.5, [7.5; 4]),
            (
                Delay::Uniform {
                    min_ms,
                    max_ms: 15.0,
                },
                10.0,
                [5.5, 10.0, 14.5, 14.9],
            ),
            (
                Delay::Normal {
                    mean_ms,
                    sd_ms: 2.5,
                },
                10.0,
                [5.888, 10.0, 14.112, 15.816],
            ),
            (
                Delay::LogNormal {
                    mean_ms,
                    sd_ms: 40.0 / 3.0,
                },
                10.0,
                [1.1379, 6.0, 31.637, 63.001],
            ),
            (
                Delay::Pareto { min_ms, shape: 2.5 },
                25.0 / 3.0,
                [5.1036, 6.5975, 16.5723, 31.5479],
            ),
        ]
    }

    #[test]
    fn laws_have_their_textbook_means_and_quantiles() {
        for (law, mean_ms, quantiles) in laws() {
            assert!((law.mean_ms() - mean_ms).abs() < 1e-3, "{law:?}");
            for (share, expected) in [0.05, 0.5, 0.95, 0.99].into_iter().zip(quantiles) {
                let found = law.quantile_ms(share);
                assert!(
                    (found - expected).abs() < 2e-3 * expected,
                    "{law:?} at {share}: {found}, expected {expected}"
                );
            }
        }
    }

    #[test]
    fn draws_have_the_mean_and_the_quantiles_of_their_law() {
        for (law, mean_ms, quantiles) in laws() {
            let mut random = Random::new(5);
            let mut drawn: Vec<f64> = (0..DRAWS).map(|_| law.draw_ms(&mut random)).collect();
            drawn.sort_by(f64::total_cmp);
            let mean = drawn.iter().sum::<f64>() / DRAWS as f64;
            assert!((mean - mean_ms).abs() < 0.01 * mean_ms, "{law:?}: {mean}");
            for (share, expected) in [0.05, 0.5, 0.95, 0.99].into_iter().zip(quantiles) {
                let found = drawn[(share * DRAWS as f64) as usize];
                assert!(
                    (found - expected).abs() < 0.02 * expected,
                    "{law:?} at {share}: {found}, expected {expected}"
                );
            }
        }
    }

    #[test]
    fn the_quantiles_that_stand_for_a_law_have_its_mean_and_rise() {
        for (law, mean_ms, _) in laws() {
            let all = law.quantiles();
            assert!(all.windows(2).all(|two| two[0] <= two[1]), "{law:?}");
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            // The tail beyond the last one is missing.
            assert!((mean - mean_ms).abs() < 0.01 * mean_ms, "{law:?}: {mean}");
        }
    }

    #[test]
    fn a_normal_delay_is_never_below_0() {
        let law = Delay::Normal {
            mean_ms: 1.0,
            sd_ms: 1.0,
        };
        let mut random = Random::new(1);
        assert!((0..10_000).all(|_| law.draw_ms(&mut random) >= 0.0));
        // E max(0, X) = mean * Phi(1) + sd * phi(1) = 0.8413 + 0.2420.
        assert!((law.mean_ms() - 1.0833).abs() < 1e-3, "{}", law.mean_ms());
    }

    #[test]
    fn normal_quantiles_are_those_of_printed_tables() {
        for (share, expected) in [
            (0.5, 0.0),
            (0.975, 1.959_964),
            (0.99, 2.326_348),
            (0.001, -3.090_232),
            (0.999_9, 3.719_016),
        ] {
            assert!((normal_quantile(share) - expected).abs() < 1e-6, "{share}");
        }
    }
}
