//! Figures over repeats: medians with their range, means with a 95 % confidence interval.

use serde::Serialize;

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
