//! Messages that a session has finished while another replica may exist that still holds them.
//!
//! A message is unknown, held or finished, in this order. Whoever brings two replicas together keeps the higher state of
//! each, so nothing that was accepted and not finished is lost, and nothing finished comes again. While every replica
//! follows the primary's stream, nothing is recorded.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use super::{MessageId, MessageStream};

/// Of which stream, and the shared subscription the messages were given to.
type Key = (MessageStream, Option<Arc<str>>);

/// A set of messages, as ranges of numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FinishedMessages {
    /// Ranges by their first number; none touches another one, none of the maps is empty.
    streams: BTreeMap<Key, BTreeMap<u64, u64>>,
    ranges: usize,
}

/// Consecutive messages of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedRange {
    /// The first.
    pub first: MessageId,
    /// At least 1.
    pub count: u64,
    /// The shared subscription they were given to.
    pub group: Option<Arc<str>>,
}

impl FinishedRange {
    /// One message.
    #[must_use]
    pub const fn of(first: MessageId, group: Option<Arc<str>>) -> Self {
        Self {
            first,
            count: 1,
            group,
        }
    }
}

impl FinishedMessages {
    /// Adds messages. What has no number, or claims numbers beyond the last one, is left out.
    pub fn insert(&mut self, range: FinishedRange) {
        let FinishedRange {
            first,
            count,
            group,
        } = range;
        let number = first.number;
        let Some(last) = number.checked_add(count.wrapping_sub(1)) else {
            return;
        };
        if number == 0 || count == 0 {
            return;
        }
        let ranges = self.streams.entry((first.stream_id(), group)).or_default();
        let (mut from, mut to) = (number, last);
        if let Some((&before, &end)) = ranges.range(..=number).next_back()
            && end >= number - 1
        {
            (from, to) = (before, to.max(end));
        }
        let touched = ranges.range(from..=to.saturating_add(1));
        let touched: Vec<(u64, u64)> = touched.map(|(first, last)| (*first, *last)).collect();
        for (first, last) in touched {
            ranges.remove(&first);
            self.ranges -= 1;
            to = to.max(last);
        }
        ranges.insert(from, to);
        self.ranges += 1;
    }

    /// Whether a message is among them.
    #[must_use]
    pub fn contains(&self, id: MessageId, group: Option<&Arc<str>>) -> bool {
        let key = (id.stream_id(), group.cloned());
        let ranges = self.streams.get(&key);
        let before = ranges.and_then(|ranges| ranges.range(..=id.number).next_back());
        before.is_some_and(|(_, last)| id.number <= *last)
    }

    /// Adds all of another set.
    pub fn extend(&mut self, other: &Self) {
        other.iter().for_each(|range| self.insert(range));
    }

    /// Every range, ascending.
    pub fn iter(&self) -> impl Iterator<Item = FinishedRange> {
        let range =
            |stream: MessageStream, group: &Option<Arc<str>>, numbers: RangeInclusive<u64>| {
                let (first, last) = (*numbers.start(), *numbers.end());
                FinishedRange {
                    first: stream.number(first),
                    count: last - first + 1,
                    group: group.clone(),
                }
            };
        self.streams
            .iter()
            .flat_map(move |((stream, group), ranges)| {
                let numbers = ranges.iter().map(|(first, last)| *first..=*last);
                numbers.map(move |numbers| range(*stream, group, numbers))
            })
    }

    /// How many ranges there are: what it takes in memory and on disk grows with them.
    #[must_use]
    pub const fn ranges(&self) -> usize {
        self.ranges
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.ranges == 0
    }

    /// Gives up the oldest ranges of the stream with most until `most` are left. Their messages may come once more.
    /// Returns how many ranges were given up.
    pub fn give_up_beyond(&mut self, most: usize) -> usize {
        let before = self.ranges;
        while self.ranges > most {
            let longest = self
                .streams
                .iter_mut()
                .max_by_key(|(_, ranges)| ranges.len());
            let Some((key, ranges)) = longest else { break };
            let surplus = (self.ranges - most).min(ranges.len());
            for _ in 0..surplus.div_ceil(2) {
                ranges.pop_first();
                self.ranges -= 1;
            }
            if ranges.is_empty() {
                let key = key.clone();
                self.streams.remove(&key);
            }
        }
        before - self.ranges
    }
}

impl FromIterator<FinishedRange> for FinishedMessages {
    fn from_iter<T: IntoIterator<Item = FinishedRange>>(ranges: T) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.insert(range));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// A few streams and groups with low numbers, so that ranges meet.
    fn range() -> impl Strategy<Value = (u8, Option<&'static str>, u64, u64)> {
        (
            0..2_u8,
            prop_oneof![Just(None), Just(Some("$share/g/a"))],
            1..40_u64,
            1..6_u64,
        )
    }

    fn build(ranges: &[(u8, Option<&'static str>, u64, u64)]) -> FinishedMessages {
        let range =
            |&(stream, group, number, count): &(u8, Option<&str>, u64, u64)| FinishedRange {
                first: id(stream, number),
                count,
                group: group.map(Into::into),
            };
        ranges.iter().map(range).collect()
    }

    const fn id(stream: u8, number: u64) -> MessageId {
        MessageId {
            node: 1,
            incarnation: 2,
            stream,
            number,
        }
    }

    fn naive(
        ranges: &[(u8, Option<&'static str>, u64, u64)],
    ) -> BTreeSet<(u8, Option<&'static str>, u64)> {
        let each = |&(stream, group, number, count): &(u8, Option<&'static str>, u64, u64)| {
            (number..number + count).map(move |number| (stream, group, number))
        };
        ranges.iter().flat_map(each).collect()
    }

    proptest! {
        #[test]
        fn it_has_what_was_added_and_nothing_else(ranges in prop::collection::vec(range(), 0..30)) {
            let (set, naive) = (build(&ranges), naive(&ranges));
            for stream in 0..2 {
                for group in [None, Some("$share/g/a")] {
                    for number in 0..50 {
                        let is_in = set.contains(id(stream, number), group.map(Arc::from).as_ref());
                        prop_assert_eq!(is_in, naive.contains(&(stream, group, number)));
                    }
                }
            }
            prop_assert_eq!(set.iter().count(), set.ranges());
            let again: FinishedMessages = set.iter().collect();
            prop_assert_eq!(&again, &set);
        }

        #[test]
        fn the_order_in_which_sets_are_joined_and_how_often_does_not_matter(
            a in prop::collection::vec(range(), 0..12),
            b in prop::collection::vec(range(), 0..12),
            c in prop::collection::vec(range(), 0..12),
        ) {
            let [a, b, c] = [a, b, c].map(|ranges| build(&ranges));
            let join = |one: &FinishedMessages, other: &FinishedMessages| {
                let mut joined = one.clone();
                joined.extend(other);
                joined
            };
            prop_assert_eq!(join(&a, &b), join(&b, &a));
            prop_assert_eq!(join(&a, &join(&b, &c)), join(&join(&a, &b), &c));
            prop_assert_eq!(join(&a, &a), a);
        }

        #[test]
        fn beyond_the_bound_only_what_was_there_is_left(
            ranges in prop::collection::vec(range(), 0..30),
            most in 0..10_usize,
        ) {
            let whole = build(&ranges);
            let mut bounded = whole.clone();
            let given_up = bounded.give_up_beyond(most);
            prop_assert_eq!(given_up, whole.ranges().saturating_sub(most));
            prop_assert_eq!(bounded.iter().count(), bounded.ranges());
            for range in bounded.iter() {
                prop_assert!(whole.contains(range.first, range.group.as_ref()));
            }
        }
    }

    #[test]
    fn what_has_no_number_or_ends_beyond_the_last_one_is_left_out() {
        let mut set = FinishedMessages::default();
        for (number, count) in [(0, 1), (0, 3), (7, 0), (u64::MAX, 2)] {
            set.insert(FinishedRange {
                first: id(0, number),
                count,
                group: None,
            });
        }
        assert!(set.is_empty());
        set.insert(FinishedRange::of(id(0, u64::MAX), None));
        set.insert(FinishedRange::of(id(0, u64::MAX - 1), None));
        assert_eq!(set.ranges(), 1);
    }
}
