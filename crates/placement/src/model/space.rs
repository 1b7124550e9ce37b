//! How many choices a load balancer has (Detti Eq. 12), exactly.

use std::fmt;

/// A natural number of any size, with just the operations Eq. 12 needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Natural {
    /// Base 10^9, lowest first, no zeros at the top: decimal output needs no division.
    limbs: Vec<u32>,
}

const BASE: u64 = 1_000_000_000;

impl Natural {
    /// The number `value`.
    #[must_use]
    pub fn new(value: u32) -> Self {
        let mut number = Self { limbs: Vec::new() };
        number.carry_from(u64::from(value), |_| 0, 0);
        number
    }

    fn add(&mut self, other: &Self) {
        let length = self.limbs.len().max(other.limbs.len());
        self.limbs.resize(length, 0);
        self.carry_from(
            0,
            |index| u64::from(other.limbs.get(index).copied().unwrap_or(0)),
            1,
        );
    }

    fn multiply(&mut self, factor: u32) {
        self.carry_from(0, |_| 0, u64::from(factor));
    }

    /// Every limb becomes itself times `factor` plus `addend` plus the carry from below.
    fn carry_from(&mut self, mut carry: u64, addend: impl Fn(usize) -> u64, factor: u64) {
        for (index, limb) in self.limbs.iter_mut().enumerate() {
            carry += u64::from(*limb) * factor + addend(index);
            *limb = (carry % BASE) as u32;
            carry /= BASE;
        }
        while carry > 0 {
            self.limbs.push((carry % BASE) as u32);
            carry /= BASE;
        }
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    /// The nearest floating-point number, for axes and means; infinite beyond its range.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        self.limbs
            .iter()
            .rev()
            .fold(0.0, |sum, limb| sum * BASE as f64 + f64::from(*limb))
    }
}

impl fmt::Display for Natural {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((top, rest)) = self.limbs.split_last() else {
            return formatter.write_str("0");
        };
        write!(formatter, "{top}")?;
        rest.iter()
            .rev()
            .try_for_each(|limb| write!(formatter, "{limb:09}"))
    }
}

/// Ways to give `topic_count` topics to sessions at no more than `max_sessions` of `broker_count` brokers (Detti Eq. 12).
///
/// The sum over i of C(M, i) S(len(Tc), i) i!, with S the Stirling numbers of the second kind.
#[must_use]
pub fn decision_space(broker_count: u32, topic_count: u32, max_sessions: u32) -> Natural {
    let sessions = max_sessions.min(topic_count).min(broker_count);
    let mut sum = Natural::new(0);
    for (used, mut ways) in (1..=sessions).zip(stirling_row(topic_count, sessions)) {
        // C(M, i) i! = M (M - 1) .. (M - i + 1).
        for factor in (broker_count - used + 1)..=broker_count {
            ways.multiply(factor);
        }
        sum.add(&ways);
    }
    sum
}

/// S(n, 1) to S(n, `last`), by S(n, i) = i S(n - 1, i) + S(n - 1, i - 1).
fn stirling_row(set_size: u32, last: u32) -> Vec<Natural> {
    let mut row = vec![Natural::new(0); last as usize];
    if let Some(first) = row.first_mut().filter(|_| set_size > 0) {
        *first = Natural::new(1);
    }
    for _ in 1..set_size {
        for index in (0..row.len()).rev() {
            let (below, from_here) = row.split_at_mut(index);
            from_here[0].multiply(index as u32 + 1);
            if let Some(previous) = below.last() {
                from_here[0].add(previous);
            }
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All maps from topics to brokers that use no more than `sessions` brokers, counted one by one.
    fn count_by_trial(brokers: u32, topics: u32, sessions: u32) -> u64 {
        (0..u64::from(brokers).pow(topics))
            .filter(|assignment| {
                let mut used = 0_u64;
                let mut rest = *assignment;
                for _ in 0..topics {
                    used |= 1 << (rest % u64::from(brokers));
                    rest /= u64::from(brokers);
                }
                used.count_ones() <= sessions
            })
            .count() as u64
    }

    #[test]
    fn eq_12_counts_the_assignments_of_topics_to_brokers() {
        for brokers in 1..=5 {
            for topics in 1..=5 {
                for sessions in 1..=6 {
                    assert_eq!(
                        decision_space(brokers, topics, sessions).to_string(),
                        count_by_trial(brokers, topics, sessions).to_string(),
                        "{brokers} brokers, {topics} topics, {sessions} sessions"
                    );
                }
            }
        }
    }

    #[test]
    fn one_session_leaves_as_many_choices_as_brokers() {
        assert_eq!(decision_space(8, 10, 1), Natural::new(8));
    }

    #[test]
    fn with_sessions_enough_every_topic_is_free() {
        // 8^10 and 20^40: M choices for each topic.
        assert_eq!(decision_space(8, 10, 10).to_string(), "1073741824");
        let expected = format!("{}{}", 1_u64 << 40, "0".repeat(40));
        assert_eq!(decision_space(20, 40, 20).to_string().len(), expected.len());
        let mut power = Natural::new(1);
        (0..40).for_each(|_| power.multiply(20));
        assert_eq!(power.to_string(), expected);
        assert_eq!(decision_space(20, 40, 40), {
            // All but the maps onto more than 20 brokers, of which there are none.
            power
        });
    }

    #[test]
    fn without_topics_there_is_nothing_to_choose() {
        assert_eq!(decision_space(8, 0, 4).to_string(), "0");
    }
}
