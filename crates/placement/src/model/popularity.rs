//! Who follows what: the social network and the IoT scenario (Detti section III-A, III-B and V-B).

use crate::error::{ParameterError, at_least, count};

/// How subscribers choose their topics.
#[derive(Debug, Clone, PartialEq)]
pub enum Scenario {
    /// Every subscriber follows the same number of distinct topics, drawn by Zipf popularity (Detti III-A).
    Social {
        /// Number of topics (Ntop).
        topic_count: usize,
        /// Distinct topics a subscriber follows (Nsxs), at most `topic_count`.
        subscriptions: usize,
        /// Shape of the Zipf popularity (alpha); 0 makes all topics equally popular.
        alpha: f64,
    },
    /// Every subscriber follows all topics below one node of a tree of names (Detti III-B).
    Iot {
        /// Number of topics (Ntop).
        topic_count: usize,
        /// The tree and how a level of it is chosen.
        tree: Tree,
    },
}

/// The tree of possible subscriptions of the IoT scenario (Detti Fig. 6).
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    fanout: usize,
    levels: Vec<f64>,
}

impl Tree {
    /// A tree whose levels are chosen with the probabilities `levels` (Pl), the root `#` first; their number is the depth (d).
    ///
    /// # Errors
    /// The depth is below 2, the fan-out is 0, or the probabilities are negative or do not sum to 1.
    pub fn new(fanout: usize, levels: Vec<f64>) -> Result<Self, ParameterError> {
        at_least("fanout", fanout, 1)?;
        at_least("depth", levels.len(), 2)?;
        if let Some(level) = levels
            .iter()
            .find(|level| !(level.is_finite() && **level >= 0.0))
        {
            return Err(ParameterError::new(
                "levels",
                "must be probabilities, each at least 0",
                level,
            ));
        }
        let sum: f64 = levels.iter().sum();
        if (sum - 1.0).abs() > 1e-9 {
            return Err(ParameterError::new("levels", "must sum to 1", sum));
        }
        Ok(Self { fanout, levels })
    }

    /// A tree of `depth` levels chosen by reverse Zipf: the deeper, the likelier, and never the root (Detti Eq. 15).
    ///
    /// # Errors
    /// As [`Tree::new`], or `alpha` is negative or not finite.
    pub fn with_zipf_levels(
        fanout: usize,
        depth: usize,
        alpha: f64,
    ) -> Result<Self, ParameterError> {
        check_alpha(alpha)?;
        at_least("depth", depth, 2)?;
        let mut levels = zipf(depth - 1, alpha);
        levels.push(0.0);
        levels.reverse();
        Self::new(fanout, levels)
    }

    /// Children of a node (f).
    #[must_use]
    pub fn fanout(&self) -> usize {
        self.fanout
    }

    /// Probability of each level, the root first (Pl).
    #[must_use]
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// Nodes of `level`, 0 for the root; `u64::MAX` when there are more than that.
    #[must_use]
    pub fn width(&self, level: usize) -> u64 {
        (self.fanout as u64).saturating_pow(level as u32)
    }

    /// Probability that a subscriber receives a given topic (Ps_j, Detti Eq. 3): the same for all topics.
    #[must_use]
    pub fn subscription_probability(&self) -> f64 {
        let mut width = 1.0;
        let mut sum = 0.0;
        for level in &self.levels {
            sum += level / width;
            width *= self.fanout as f64;
        }
        sum
    }
}

impl Scenario {
    /// The social network scenario.
    ///
    /// # Errors
    /// A count is 0, `subscriptions` is above `topic_count`, or `alpha` is negative, not finite, or so large that the
    /// popularity of the last topic is no longer a number above 0.
    pub fn social(
        topic_count: usize,
        subscriptions: usize,
        alpha: f64,
    ) -> Result<Self, ParameterError> {
        count("topics", topic_count)?;
        count("subscriptions", subscriptions)?;
        check_alpha(alpha)?;
        if subscriptions > topic_count {
            return Err(ParameterError::new(
                "subscriptions",
                format!("must be at most the number of topics, {topic_count}"),
                subscriptions,
            ));
        }
        if zipf(topic_count, alpha)
            .last()
            .is_none_or(|last| *last < 1e-290)
        {
            return Err(ParameterError::new(
                "alpha",
                format!("must leave the last of {topic_count} topics a popularity above 1e-290"),
                alpha,
            ));
        }
        Ok(Self::Social {
            topic_count,
            subscriptions,
            alpha,
        })
    }

    /// The IoT scenario. The topics are spread evenly over the leaves of the tree, see [`Scenario::topics_below`].
    ///
    /// # Errors
    /// `topic_count` is 0.
    pub fn iot(topic_count: usize, tree: Tree) -> Result<Self, ParameterError> {
        count("topics", topic_count)?;
        Ok(Self::Iot { topic_count, tree })
    }

    /// Number of topics (Ntop).
    #[must_use]
    pub fn topic_count(&self) -> usize {
        match self {
            Self::Social { topic_count, .. } | Self::Iot { topic_count, .. } => *topic_count,
        }
    }

    /// Probability that a subscriber follows a topic, one entry a topic (Ps_j).
    ///
    /// Social: exact Zipf for one subscription; otherwise the inclusion probability 1 - exp(-p_j tau) with p_j the Zipf
    /// popularity and tau the root of Eq. 1. (Eq. 2 prints lambda_j for p_j; the rate of messages has no part in it.)
    #[must_use]
    pub fn subscription_probabilities(&self) -> Vec<f64> {
        match self {
            Self::Social {
                topic_count,
                subscriptions,
                alpha,
            } => inclusion_probabilities(zipf(*topic_count, *alpha), *subscriptions),
            Self::Iot { topic_count, tree } => {
                vec![tree.subscription_probability(); *topic_count]
            }
        }
    }

    /// Topics below `node` of `level` in the IoT tree, as a range of topic numbers; all topics for the social scenario.
    ///
    /// Topic j sits at leaf floor(j leaves / Ntop). With as many topics as leaves that is one each; the paper's Fig. 19-21
    /// have 5000 topics for 27000 leaves, and every node of a level then covers nearly the same number of topics.
    #[must_use]
    pub fn topics_below(&self, level: usize, node: u64) -> std::ops::Range<usize> {
        match self {
            Self::Social { topic_count, .. } => 0..*topic_count,
            Self::Iot { topic_count, tree } => {
                let width = u128::from(tree.width(level));
                let first_of = |node: u128| (node * *topic_count as u128).div_ceil(width) as usize;
                first_of(u128::from(node))..first_of(u128::from(node) + 1)
            }
        }
    }
}

fn check_alpha(alpha: f64) -> Result<(), ParameterError> {
    if !(alpha.is_finite() && alpha >= 0.0) {
        return Err(ParameterError::new(
            "alpha",
            "must be a number of at least 0",
            alpha,
        ));
    }
    Ok(())
}

/// Zipf popularity of `count` ranks: c / j^alpha, summing to 1, the most popular first.
#[must_use]
pub fn zipf(count: usize, alpha: f64) -> Vec<f64> {
    let mut weights: Vec<f64> = (1..=count)
        .map(|rank| libm::pow(rank as f64, -alpha))
        .collect();
    // Smallest first, so that the many small terms are not lost beside the first.
    let sum: f64 = weights.iter().rev().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    weights
}

fn inclusion_probabilities(popularity: Vec<f64>, draws: usize) -> Vec<f64> {
    if draws == 1 {
        return popularity;
    }
    if draws == popularity.len() {
        return vec![1.0; draws];
    }
    let time = draw_time(&popularity, draws);
    popularity
        .iter()
        .map(|probability| -libm::expm1(-probability * time))
        .collect()
}

/// The root tau of Eq. 1: when, on average, `draws` different topics have been drawn. `draws` is below the number of topics.
fn draw_time(popularity: &[f64], draws: usize) -> f64 {
    let drawn_by = |time: f64| -> f64 {
        popularity
            .iter()
            .rev()
            .map(|probability| -libm::expm1(-probability * time))
            .sum()
    };
    let mut low = 0.0;
    let mut high = draws as f64;
    // The sum tends to the number of topics, so a time beyond the root exists below 750 / 1e-290.
    while drawn_by(high) < draws as f64 {
        low = high;
        high *= 2.0;
    }
    // Halving until no number lies between: at most 2100 steps, in practice about 55.
    loop {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            return middle;
        }
        if drawn_by(middle) < draws as f64 {
            low = middle;
        } else {
            high = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn inclusion_probabilities_sum_to_the_subscriptions_and_fall_with_rank() {
        for (topics, subscriptions, alpha) in [
            (2, 1, 0.5),
            (10, 9, 1.13),
            (1000, 10, 1.13),
            (1000, 40, 0.0),
        ] {
            let scenario = Scenario::social(topics, subscriptions, alpha).unwrap();
            let probabilities = scenario.subscription_probabilities();
            let sum: f64 = probabilities.iter().sum();
            assert!((sum - subscriptions as f64).abs() < 1e-9, "{topics} {sum}");
            assert!(probabilities.windows(2).all(|pair| pair[0] >= pair[1]));
        }
    }

    #[test]
    fn one_subscription_is_the_zipf_itself() {
        // 1, 1/2, 1/3 over their sum 11/6.
        let probabilities = Scenario::social(3, 1, 1.0)
            .unwrap()
            .subscription_probabilities();
        for (found, expected) in probabilities
            .iter()
            .zip([6.0 / 11.0, 3.0 / 11.0, 2.0 / 11.0])
        {
            assert!((found - expected).abs() < 1e-15);
        }
    }

    #[test]
    fn following_every_topic_is_certain() {
        let scenario = Scenario::social(4, 4, 2.0).unwrap();
        assert_eq!(scenario.subscription_probabilities(), vec![1.0; 4]);
    }

    #[test]
    fn eq_1_agrees_with_drawing_until_enough_are_different() {
        let scenario = Scenario::social(500, 10, 1.13).unwrap();
        let predicted = scenario.subscription_probabilities();
        let popularity = zipf(500, 1.13);
        let mut random = Random::new(11, 0);
        let mut counts = vec![0_u32; 500];
        let rounds = 20_000;
        for _ in 0..rounds {
            let mut drawn = Vec::new();
            while drawn.len() < 10 {
                let mut left = random.unit();
                let topic = popularity
                    .iter()
                    .position(|weight| {
                        left -= weight;
                        left < 0.0
                    })
                    .unwrap_or(499);
                if !drawn.contains(&topic) {
                    drawn.push(topic);
                    counts[topic] += 1;
                }
            }
        }
        for (topic, count) in counts.iter().enumerate() {
            let measured = f64::from(*count) / f64::from(rounds);
            // Che's approximation is good to about a hundredth for these sizes.
            assert!(
                (measured - predicted[topic]).abs() < 0.02,
                "topic {topic}: drawn {measured}, predicted {}",
                predicted[topic]
            );
        }
    }

    #[test]
    fn eq_3_by_hand_for_three_levels_of_three() {
        // 0.2 / 1 + 0.3 / 3 + 0.5 / 9.
        let tree = Tree::new(3, vec![0.2, 0.3, 0.5]).unwrap();
        assert!((tree.subscription_probability() - (0.2 + 0.1 + 0.5 / 9.0)).abs() < 1e-15);
    }

    #[test]
    fn eq_15_agrees_with_the_printed_vectors_to_two_hundredths() {
        let cases = [
            (1.5, [0.0, 0.122, 0.222, 0.656]),
            (0.5, [0.0, 0.258, 0.293, 0.449]),
        ];
        for (alpha, printed) in cases {
            let tree = Tree::with_zipf_levels(30, 4, alpha).unwrap();
            for (found, expected) in tree.levels().iter().zip(printed) {
                assert!(
                    (found - expected).abs() < 0.02,
                    "alpha {alpha}: {found} {expected}"
                );
            }
        }
        // Exactly, for alpha 1: 1/3, 1/2, 1 over 11/6.
        let tree = Tree::with_zipf_levels(10, 4, 1.0).unwrap();
        let expected = [0.0, 2.0 / 11.0, 3.0 / 11.0, 6.0 / 11.0];
        for (found, expected) in tree.levels().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-15);
        }
    }

    #[test]
    fn nodes_of_a_level_share_the_topics_without_gap_or_overlap() {
        for (topics, fanout) in [(1000, 10), (5000, 30), (7, 3), (100, 2)] {
            let tree = Tree::new(fanout, vec![0.0, 0.2, 0.3, 0.5]).unwrap();
            let scenario = Scenario::iot(topics, tree.clone()).unwrap();
            for level in 0..4 {
                let mut next = 0;
                for node in 0..tree.width(level) {
                    let range = scenario.topics_below(level, node);
                    assert_eq!(range.start, next);
                    next = range.end;
                }
                assert_eq!(next, topics);
            }
        }
    }

    #[test]
    fn bad_parameters_are_named_with_their_rule() {
        let cases = [
            (
                Scenario::social(10, 2, -0.1).unwrap_err(),
                "alpha: must be a number of at least 0, not -0.1",
            ),
            (
                Scenario::social(10, 11, 1.0).unwrap_err(),
                "subscriptions: must be at most the number of topics, 10, not 11",
            ),
            (
                Scenario::social(0, 1, 1.0).unwrap_err(),
                "topics: must be at least 1, not 0",
            ),
            (
                Tree::new(3, vec![0.5, 0.4]).unwrap_err(),
                "levels: must sum to 1, not 0.9",
            ),
            (
                Tree::new(3, vec![1.5, -0.5]).unwrap_err(),
                "levels: must be probabilities, each at least 0, not -0.5",
            ),
            (
                Tree::new(0, vec![0.0, 1.0]).unwrap_err(),
                "fanout: must be at least 1, not 0",
            ),
            (
                Tree::with_zipf_levels(3, 1, 1.0).unwrap_err(),
                "depth: must be at least 2, not 1",
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(error.to_string(), expected);
        }
        assert_eq!(
            Scenario::social(5000, 10, 300.0).unwrap_err().parameter,
            "alpha"
        );
    }
}
