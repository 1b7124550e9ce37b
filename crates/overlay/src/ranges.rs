//! Sets of mostly consecutive numbers: admitted ones, and those to acknowledge.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

/// Numbers as ascending ranges that do not touch each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    ranges: VecDeque<(u64, u64)>,
}

impl RangeSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number of ranges, not of numbers.
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = RangeInclusive<u64>> + '_ {
        self.ranges.iter().map(|&(first, last)| first..=last)
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|&(_, last)| last < number);
        self.ranges
            .get(at)
            .is_some_and(|&(first, _)| first <= number)
    }

    pub(crate) fn insert(&mut self, number: u64) {
        // Nearly always the number is the last.
        match self.ranges.back_mut() {
            Some((_, last)) if number == last.saturating_add(1) => *last = number,
            Some((_, last)) if number <= *last => self.insert_inside(number),
            Some(_) | None => self.ranges.push_back((number, number)),
        }
    }

    fn insert_inside(&mut self, number: u64) {
        let at = self.ranges.partition_point(|&(_, last)| last < number);
        let Some(&(first, _)) = self.ranges.get(at) else {
            return;
        };
        if first <= number {
            return;
        }
        let joins_next = number + 1 == first;
        let joins_previous = at > 0
            && self
                .ranges
                .get(at - 1)
                .is_some_and(|&(_, last)| last + 1 == number);
        match (joins_previous, joins_next) {
            (true, true) => {
                if let Some((_, last)) = self.ranges.remove(at) {
                    self.ranges[at - 1].1 = last;
                }
            }
            (true, false) => self.ranges[at - 1].1 = number,
            (false, true) => self.ranges[at].0 = number,
            (false, false) => self.ranges.insert(at, (number, number)),
        }
    }

    /// Forgets the numbers below `low`.
    pub(crate) fn remove_below(&mut self, low: u64) {
        while let Some((first, last)) = self.ranges.front_mut() {
            if *last >= low {
                *first = low.max(*first);
                return;
            }
            self.ranges.pop_front();
        }
    }

    /// Forgets the lowest ranges until at most `maximum` are left.
    pub(crate) fn shorten(&mut self, maximum: usize) {
        let excess = self.ranges.len().saturating_sub(maximum);
        self.ranges.drain(..excess);
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_range_set_agrees_with_a_plain_set(steps in proptest::collection::vec((0_u64..40, 0_u8..8), 0..60)) {
            let (mut ranges, mut plain) = (RangeSet::default(), BTreeSet::new());
            for (number, kind) in steps {
                if kind == 0 {
                    ranges.remove_below(number);
                    plain.retain(|&other| other >= number);
                } else {
                    ranges.insert(number);
                    plain.insert(number);
                }
                let listed: Vec<u64> = ranges.iter().flatten().collect();
                prop_assert_eq!(&listed, &plain.iter().copied().collect::<Vec<_>>());
                prop_assert!((0..40).all(|number| ranges.contains(number) == plain.contains(&number)));
                let touching = ranges.ranges.iter().zip(ranges.ranges.iter().skip(1)).any(|(a, b)| a.1 + 1 >= b.0);
                prop_assert!(!touching, "{:?}", ranges);
            }
        }
    }
}
