//! Figures over repeats: medians with their range, means with a 95 % confidence interval, ratios of
//! pairs.

use serde::Serialize;

use crate::random::Random;

/// Resamples of a bootstrap.
const RESAMPLES: usize = 4_000;
/// Fewer pairs give no interval.
const FEWEST_PAIRS: usize = 3;

/// Middle and range of a few values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Median; the mean of the two middle values of an even number.
    pub median: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

/// Mean of repeats with the half-width of its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Arithmetic mean.
    pub mean: f64,
    /// The true mean lies within `mean` plus or minus this with 95 % confidence, if the repeats are independent and near
    /// normal. `None` for a single value.
    pub half_width_95: Option<f64>,
    /// How many values.
    pub repeats: usize,
}

/// Median, smallest and largest; `None` without values.
#[must_use]
pub fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (&min, &max) = (sorted.first()?, sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    };
    Some(Spread { median, min, max })
}

/// Mean and confidence interval by Student's t; `None` without values.
#[must_use]
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let repeats = values.len();
    if repeats == 0 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / repeats as f64;
    let half_width_95 = (repeats > 1).then(|| {
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (repeats - 1) as f64;
        student_t_975(repeats - 1) * (variance / repeats as f64).sqrt()
    });
    Some(Estimate {
        mean,
        half_width_95,
        repeats,
    })
}

/// The ratio of the means of pairs, with an interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedRatio {
    /// Mean of the second values over that of the first.
    pub ratio: f64,
    /// 95 % bootstrap interval over pairs; `None` with fewer than three.
    pub interval_95: Option<(f64, f64)>,
    /// How many pairs.
    pub pairs: usize,
}

/// What an interval says about a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second is less.
    Less,
    /// The second is more.
    More,
    /// They differ by less than the margin.
    Equivalent,
    /// Neither is shown.
    Open,
}

impl PairedRatio {
    /// Whether the two differ, or are equivalent: the interval is within the margin, such as 0.05
    /// (two one-sided tests at 2.5 % each). What differs by less than the margin is equivalent.
    #[must_use]
    pub fn verdict(&self, margin: f64) -> Verdict {
        match self.interval_95 {
            None => Verdict::Open,
            Some((low, high)) if low > 1.0 / (1.0 + margin) && high < 1.0 + margin => {
                Verdict::Equivalent
            }
            Some((_, high)) if high < 1.0 => Verdict::Less,
            Some((low, _)) if low > 1.0 => Verdict::More,
            Some(_) => Verdict::Open,
        }
    }
}

/// The ratio of pairs (first, second) that belong together, such as two systems in one repeat;
/// `None` unless the means are above 0.
///
/// Pairs are drawn again with replacement, so what both have in common, such as the delays of the
/// links of a repeat, does not widen the interval. Its ends are percentiles, moved outwards as
/// Student's t is beside the normal distribution: plain percentiles are too narrow for few pairs
/// (T. Hesterberg, *What Teachers Should Know About the Bootstrap*, 2015). With six pairs about
/// nine of ten intervals hold the true ratio.
#[must_use]
pub fn paired_ratio(pairs: &[(f64, f64)], seed: u64) -> Option<PairedRatio> {
    let sums = |all: &mut dyn Iterator<Item = (f64, f64)>| {
        all.fold((0.0, 0.0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    };
    let count = pairs.len();
    let (first, second) = sums(&mut pairs.iter().copied());
    if !(first > 0.0 && second > 0.0) {
        return None;
    }
    let interval_95 = (count >= FEWEST_PAIRS).then(|| {
        let mut random = Random::new(seed);
        let mut drawn = || {
            let (a, b) = sums(&mut (0..count).map(|_| pairs[random.below(count)]));
            if a > 0.0 { b / a } else { f64::INFINITY }
        };
        let mut ratios: Vec<f64> = (0..RESAMPLES).map(|_| drawn()).collect();
        ratios.sort_by(f64::total_cmp);
        let freedom = count as f64 - 1.0;
        let outwards = student_t_975(count - 1) * (count as f64 / freedom).sqrt();
        let at = (below_normal(-outwards) * RESAMPLES as f64) as usize;
        (ratios[at], ratios[RESAMPLES - 1 - at])
    });
    Some(PairedRatio {
        ratio: second / first,
        interval_95,
        pairs: count,
    })
}

/// The share of the standard normal distribution below a negative value, by its continued fraction
/// from -2 down and by Simpson's rule above.
fn below_normal(value: f64) -> f64 {
    let density = |x: f64| (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let x = -value;
    if x > 2.0 {
        let fraction = (1..40).rev().fold(x, |below, n| x + f64::from(n) / below);
        return density(x) / fraction;
    }
    let step = x / 200.0;
    let weight = |n: u32| match n {
        0 | 200 => 1.0,
        n if n % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let area: f64 = (0..=200)
        .map(|n| weight(n) * density(f64::from(n) * step))
        .sum();
    0.5 - area * step / 3.0
}

/// The 97.5 % quantile of Student's t with `freedom` degrees of freedom, at least 1.
///
/// The usual table up to 30; beyond it the expansion in 1/freedom around the normal quantile, which agrees with the tables to three decimal places
/// there.
fn student_t_975(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    const NORMAL: f64 = 1.959_964;
    match TABLE.get(freedom.saturating_sub(1)) {
        Some(&quantile) => quantile,
        None => NORMAL + (NORMAL.powi(3) + NORMAL) / (4.0 * freedom as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        for (values, median, min, max) in [
            (&[3.0, 1.0, 2.0][..], 2.0, 1.0, 3.0),
            (&[4.0, 1.0, 2.0, 3.0], 2.5, 1.0, 4.0),
            (&[5.0], 5.0, 5.0, 5.0),
        ] {
            assert_eq!(
                spread(values),
                Some(Spread { median, min, max }),
                "{values:?}"
            );
        }
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn the_normal_distribution_is_that_of_the_tables() {
        for (value, share) in [(-1.0, 0.158_655), (-1.96, 0.024_998), (-2.5, 0.006_210)] {
            assert!((below_normal(value) - share).abs() < 1e-5, "{value}");
        }
    }

    #[test]
    fn what_pairs_have_in_common_does_not_widen_the_interval_of_their_ratio() {
        // The second is 0.8 of the first, whose own values differ by a factor of five.
        let pairs: Vec<(f64, f64)> = [10.0, 20.0, 30.0, 40.0, 50.0]
            .iter()
            .zip([0.01, -0.01, 0.0, 0.01, -0.01])
            .map(|(first, noise)| (*first, first * (0.8 + noise)))
            .collect();
        let ratio = paired_ratio(&pairs, 1).unwrap();
        let (low, high) = ratio.interval_95.unwrap();
        assert!(
            (ratio.ratio - 0.8).abs() < 0.01 && low > 0.78 && high < 0.82,
            "{ratio:?}"
        );
        assert_eq!(ratio, paired_ratio(&pairs, 1).unwrap());
        assert_eq!(ratio.verdict(0.05), Verdict::Less);
        assert_eq!(ratio.verdict(0.5), Verdict::Equivalent);
        let few = paired_ratio(&pairs[..2], 1).unwrap();
        assert_eq!((few.interval_95, few.verdict(0.05)), (None, Verdict::Open));
        assert_eq!(paired_ratio(&[(0.0, 1.0)], 1), None);
    }

    #[test]
    fn nine_of_ten_bootstrap_intervals_of_six_pairs_at_least_hold_the_true_ratio() {
        let mut random = Random::new(5);
        let mut hold = 0;
        for experiment in 0..300 {
            let pairs: Vec<(f64, f64)> = (0..6)
                .map(|_| {
                    let common = 10.0 + random.unit() * 10.0;
                    (common + random.normal(), 1.5 * common + random.normal())
                })
                .collect();
            let (low, high) = paired_ratio(&pairs, experiment)
                .unwrap()
                .interval_95
                .unwrap();
            hold += u32::from(low <= 1.5 && 1.5 <= high);
        }
        assert!((270..=299).contains(&hold), "{hold}");
    }

    #[test]
    fn the_confidence_interval_is_that_of_a_worked_example() {
        // Mean 5, sample standard deviation 2, n = 4: 3.182 * 2 / 2.
        let deviation = 2.0 * (3.0_f64 / 4.0).sqrt();
        let values = [
            5.0 - deviation,
            5.0 - deviation,
            5.0 + deviation,
            5.0 + deviation,
        ];
        let Some(Estimate {
            mean,
            half_width_95: Some(half_width),
            repeats: 4,
        }) = estimate(&values)
        else {
            panic!()
        };
        assert!((mean - 5.0).abs() < 1e-9);
        assert!((half_width - 3.182).abs() < 1e-9, "{half_width}");
        assert_eq!(
            estimate(&[7.0]),
            Some(Estimate {
                mean: 7.0,
                half_width_95: None,
                repeats: 1
            })
        );
    }

    #[test]
    fn quantiles_beyond_the_table_agree_with_printed_ones() {
        for (freedom, printed) in [
            (1, 12.706),
            (30, 2.042),
            (40, 2.021),
            (60, 2.000),
            (120, 1.980),
        ] {
            assert!(
                (student_t_975(freedom) - printed).abs() < 0.002,
                "{freedom} degrees: {}",
                student_t_975(freedom)
            );
        }
    }

    #[test]
    fn about_95_of_100_intervals_hold_the_true_mean() {
        let mut random = crate::random::Random::new(5);
        let trials = 2000;
        let held = (0..trials)
            .filter(|_| {
                let values: Vec<f64> = (0..6).map(|_| random.log_normal(10.0, 0.05)).collect();
                estimate(&values)
                    .and_then(|e| e.half_width_95.map(|half| (e.mean - 10.0).abs() <= half))
                    .unwrap_or(false)
            })
            .count();
        assert!((1860..=1940).contains(&held), "{held} of {trials}");
    }
}
