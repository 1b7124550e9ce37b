//! Exact counts of lost, duplicate and reordered messages, for one stream of numbered messages.

/// Gaps kept for one stream; beyond it the oldest counts as lost for good.
const MAX_GAPS: usize = 65_536;

/// The result of one arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The expected number.
    InOrder,
    /// A later number: this many before it are missing for now.
    Ahead {
        /// Numbers between the expected one and this one.
        skipped: u32,
    },
    /// A missing number that arrived after a later one.
    Reordered,
    /// A number that had arrived before.
    Duplicate,
}

/// The receiving end of one stream: numbers rise by 1 from the sender's first and may wrap.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    next: u32,
    /// Missing numbers below `next`. Absent until the first gap: most streams never have one.
    gaps: Option<Box<Gaps>>,
}

#[derive(Debug, Clone, Default)]
struct Gaps {
    /// First number and length, in the order they were skipped: ascending, disjoint.
    ranges: Vec<(u32, u32)>,
    /// Numbers in gaps that count as lost.
    lost_for_good: u64,
}

impl Sequence {
    /// Notes a number.
    #[inline]
    pub fn observe(&mut self, number: u32) -> Arrival {
        if number == self.next {
            self.next = self.next.wrapping_add(1);
            return Arrival::InOrder;
        }
        self.observe_out_of_order(number)
    }

    #[cold]
    fn observe_out_of_order(&mut self, number: u32) -> Arrival {
        let skipped = number.wrapping_sub(self.next);
        // Half of the number space is ahead, half behind.
        if skipped < u32::MAX / 2 {
            self.gaps.get_or_insert_default().add(self.next, skipped);
            self.next = number.wrapping_add(1);
            return Arrival::Ahead { skipped };
        }
        if self.gaps.as_mut().is_some_and(|gaps| gaps.fill(number)) {
            Arrival::Reordered
        } else {
            Arrival::Duplicate
        }
    }

    /// Numbers missing when the sender's next number is `sent_up_to`.
    #[must_use]
    pub fn missing(&self, sent_up_to: u32) -> u64 {
        let tail = sent_up_to.wrapping_sub(self.next);
        let gaps = self.gaps.as_ref().map_or(0, |gaps| {
            gaps.lost_for_good
                + gaps
                    .ranges
                    .iter()
                    .map(|&(_, len)| u64::from(len))
                    .sum::<u64>()
        });
        gaps + u64::from(tail)
    }

    /// Whether this number is one of those.
    #[must_use]
    pub fn is_missing(&self, number: u32, sent_up_to: u32) -> bool {
        let is_within = |first: u32, len: u32| number.wrapping_sub(first) < len;
        let in_gap = |gaps: &Gaps| {
            let mut ranges = gaps.ranges.iter();
            ranges.any(|&(first, len)| is_within(first, len))
        };
        is_within(self.next, sent_up_to.wrapping_sub(self.next))
            || self.gaps.as_deref().is_some_and(in_gap)
    }

    /// Starts a new count: what is missing below `sent_up_to` is no longer expected.
    pub fn restart_at(&mut self, sent_up_to: u32) {
        self.next = sent_up_to;
        self.gaps = None;
    }
}

impl Gaps {
    fn add(&mut self, first: u32, len: u32) {
        if self.ranges.len() == MAX_GAPS {
            let (_, len) = self.ranges.remove(0);
            self.lost_for_good += u64::from(len);
        }
        self.ranges.push((first, len));
    }

    /// Removes `number` from the gaps; false if it was not missing.
    fn fill(&mut self, number: u32) -> bool {
        // A late number is usually in a recent gap.
        let Some(index) = self
            .ranges
            .iter()
            .rposition(|&(first, len)| number.wrapping_sub(first) < len)
        else {
            return false;
        };
        let (first, len) = self.ranges[index];
        let before = number.wrapping_sub(first);
        let after = len - before - 1;
        match (before, after) {
            (0, 0) => {
                self.ranges.remove(index);
            }
            (0, _) => self.ranges[index] = (first.wrapping_add(1), after),
            (_, 0) => self.ranges[index].1 = before,
            (_, _) => {
                self.ranges[index].1 = before;
                self.ranges
                    .insert(index + 1, (number.wrapping_add(1), after));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lost, duplicate and reordered messages in a list of arrivals when `sent` were sent, counted without `Sequence`.
    fn naive(arrivals: &[u32], sent: u32) -> (u64, u64, u64) {
        let (mut seen, mut highest) = (std::collections::BTreeSet::new(), None);
        let (mut duplicated, mut reordered) = (0, 0);
        for &number in arrivals {
            if !seen.insert(number) {
                duplicated += 1;
            } else if highest.is_some_and(|highest| number < highest) {
                reordered += 1;
            }
            highest = highest.max(Some(number));
        }
        (u64::from(sent) - seen.len() as u64, duplicated, reordered)
    }

    fn counted(arrivals: &[u32], sent: u32) -> (u64, u64, u64) {
        let mut sequence = Sequence::default();
        let (mut duplicated, mut reordered) = (0, 0);
        for &number in arrivals {
            match sequence.observe(number) {
                Arrival::Duplicate => duplicated += 1,
                Arrival::Reordered => reordered += 1,
                Arrival::InOrder | Arrival::Ahead { .. } => {}
            }
        }
        (sequence.missing(sent), duplicated, reordered)
    }

    #[test]
    fn a_number_is_missing_in_a_gap_and_at_the_end() {
        let mut sequence = Sequence::default();
        for number in [0, 3, 4] {
            sequence.observe(number);
        }
        let missing: Vec<u32> = (0..9).filter(|it| sequence.is_missing(*it, 7)).collect();
        assert_eq!(missing, [1, 2, 5, 6]);
        assert_eq!(sequence.missing(7), 4);
    }

    #[test]
    fn lost_duplicated_and_reordered_are_exact() {
        for (name, arrivals, sent, expected) in [
            ("all in order", &[0, 1, 2, 3][..], 4, (0, 0, 0)),
            ("nothing came", &[], 3, (3, 0, 0)),
            ("one lost in the middle", &[0, 2, 3], 4, (1, 0, 0)),
            ("the end is missing", &[0, 1], 5, (3, 0, 0)),
            ("the beginning is missing", &[3, 4], 5, (3, 0, 0)),
            ("one twice", &[0, 1, 1, 2], 3, (0, 1, 0)),
            ("two swapped", &[0, 2, 1, 3], 4, (0, 0, 1)),
            (
                "late into the middle of a gap, then again",
                &[0, 6, 3, 3, 7],
                8,
                (4, 1, 1),
            ),
            ("late at both ends of a gap", &[0, 5, 1, 4], 6, (2, 0, 2)),
        ] {
            assert_eq!(counted(arrivals, sent), expected, "{name}");
            assert_eq!(naive(arrivals, sent), expected, "{name}, counted naively");
        }
    }

    #[test]
    fn counts_agree_with_a_naive_count_on_random_disorder() {
        let mut random = crate::random::Random::new(11);
        for case in 0..200 {
            let sent = 1 + random.below(60) as u32;
            let mut arrivals: Vec<u32> = (0..sent).filter(|_| random.below(10) > 0).collect();
            for _ in 0..random.below(6) {
                if !arrivals.is_empty() {
                    let (from, to) = (random.below(arrivals.len()), random.below(arrivals.len()));
                    let number = arrivals[from];
                    arrivals.insert(to, number);
                }
            }
            assert_eq!(
                counted(&arrivals, sent),
                naive(&arrivals, sent),
                "case {case}: {arrivals:?} of {sent}"
            );
        }
    }

    #[test]
    fn numbers_may_wrap_and_a_restart_forgets_what_is_missing() {
        let mut sequence = Sequence::default();
        sequence.restart_at(u32::MAX);
        assert_eq!(sequence.observe(u32::MAX), Arrival::InOrder);
        assert_eq!(sequence.observe(2), Arrival::Ahead { skipped: 2 });
        assert_eq!(sequence.observe(1), Arrival::Reordered);
        assert_eq!(sequence.missing(3), 1);
        sequence.restart_at(3);
        assert_eq!(sequence.missing(3), 0);
        assert_eq!(sequence.observe(0), Arrival::Duplicate);
    }

    #[test]
    fn gaps_beyond_the_bound_are_lost_for_good() {
        let mut sequence = Sequence::default();
        for number in 0..=MAX_GAPS as u32 {
            sequence.observe(2 * number + 1);
        }
        assert_eq!(sequence.observe(0), Arrival::Duplicate);
        assert_eq!(
            sequence.missing(2 * MAX_GAPS as u32 + 2),
            MAX_GAPS as u64 + 1
        );
    }
}
