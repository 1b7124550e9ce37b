//! Random numbers from one seed, the same on every machine and with every release.
//!
//! A run must be repeatable years later, so the generator (xoshiro256++, seeded by SplitMix64) and the distributions are
//! written out here: published algorithms of a few lines each, where a crate is free to change its stream.

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let mut next = || {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut word = mix;
            word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            word ^ (word >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c2, d2) = (c ^ a, d ^ b);
        self.state = [a ^ d2, b ^ c2, c2 ^ (b << 17), d2.rotate_left(45)];
        result
    }

    /// Uniform in 0 (included) to 1 (excluded).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0 to `bound` (excluded); 0 for a bound of 0. The bias of at most `bound` / 2^64 does not matter here.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// Exponential with this mean: the gaps of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }

    /// Log-normal with this mean and coefficient of variation (standard deviation over mean).
    pub fn log_normal(&mut self, mean: f64, coefficient_of_variation: f64) -> f64 {
        let variance = (1.0 + coefficient_of_variation * coefficient_of_variation).ln();
        let location = mean.ln() - variance / 2.0;
        (location + variance.sqrt() * self.normal()).exp()
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Zipf's law over ranks 1 to n: the probability of rank j is c / j^alpha (Detti III-A).
#[derive(Debug, Clone)]
pub struct Zipf {
    /// Probability of a rank up to each one; the last is 1.
    cumulative: Vec<f64>,
}

impl Zipf {
    /// The law over `ranks` ranks; `alpha` 0 is uniform.
    #[must_use]
    pub fn new(ranks: usize, alpha: f64) -> Self {
        let mut sum = 0.0;
        let mut cumulative: Vec<f64> = (1..=ranks)
            .map(|rank| {
                sum += (rank as f64).powf(-alpha);
                sum
            })
            .collect();
        for probability in &mut cumulative {
            *probability /= sum;
        }
        Self { cumulative }
    }

    /// A rank, counted from 0.
    pub fn sample(&self, random: &mut Random) -> usize {
        let point = random.unit();
        self.cumulative
            .partition_point(|&up_to| up_to <= point)
            .min(self.cumulative.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_and_deviation(draws: usize, mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..draws).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / draws as f64;
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / draws as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn the_same_seed_gives_the_same_stream_and_another_seed_another() {
        let take = |seed| {
            let mut random = Random::new(seed);
            [random.bits(), random.bits(), random.bits()]
        };
        assert_eq!(take(1), take(1));
        assert_ne!(take(1), take(2));
    }

    #[test]
    fn distributions_have_the_mean_and_the_spread_they_are_named_by() {
        let mut random = Random::new(7);
        let (mean, deviation) = mean_and_deviation(200_000, || random.exponential(4.0));
        assert!(
            (mean - 4.0).abs() < 0.05 && (deviation - 4.0).abs() < 0.1,
            "{mean} {deviation}"
        );
        let (mean, deviation) = mean_and_deviation(200_000, || random.log_normal(10.0, 0.5));
        assert!(
            (mean - 10.0).abs() < 0.1 && (deviation - 5.0).abs() < 0.1,
            "{mean} {deviation}"
        );
        let (mean, _) = mean_and_deviation(200_000, || random.unit());
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }

    #[test]
    fn zipf_draws_follow_the_law() {
        let (ranks, alpha, draws) = (50, 1.13, 400_000);
        let zipf = Zipf::new(ranks, alpha);
        let mut random = Random::new(3);
        let mut counts = vec![0.0; ranks];
        for _ in 0..draws {
            counts[zipf.sample(&mut random)] += 1.0;
        }
        let normalisation: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-alpha)).sum();
        for rank in [1, 2, 5, 20, 50] {
            let expected = (rank as f64).powf(-alpha) / normalisation * f64::from(draws);
            let seen: f64 = counts[rank - 1];
            assert!(
                (seen - expected).abs() < 5.0 * expected.sqrt(),
                "rank {rank}: {seen}, expected {expected}"
            );
        }
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut random = Random::new(9);
        let mut seen = [false; 7];
        for _ in 0..1000 {
            seen[random.below(7)] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(random.below(0), 0);
    }
}
