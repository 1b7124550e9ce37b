//! What a session holds, by sequence. Mostly it is added at the end and removed at the front; what is removed from the middle leaves a place that is
//! given back with others, so that each removal costs the same.

use std::collections::VecDeque;

/// This many removed entries are kept a place for, besides one for each that is held.
const GONE: usize = 32;

/// Entries by sequence, ascending.
#[derive(Debug)]
pub(super) struct Sequenced<T> {
    /// `None`: it was removed, and those before it were not. The first one is never `None`.
    slots: VecDeque<(u64, Option<T>)>,
    gone: usize,
}

impl<T> Default for Sequenced<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Sequenced<T> {
    pub const fn new() -> Self {
        Self {
            slots: VecDeque::new(),
            gone: 0,
        }
    }

    fn place(&self, sequence: u64) -> Result<usize, usize> {
        let first = self.slots.front().map_or(sequence, |(first, _)| *first);
        // Without gaps the sequence gives the place.
        let guess = usize::try_from(sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
        match self.slots.get(guess) {
            Some((found, _)) if *found == sequence => Ok(guess),
            _ => self
                .slots
                .binary_search_by_key(&sequence, |(found, _)| *found),
        }
    }

    #[inline(always)]
    pub fn insert(&mut self, sequence: u64, entry: T) {
        let is_last = self.slots.back().is_none_or(|(last, _)| *last < sequence);
        if is_last {
            self.slots.push_back((sequence, Some(entry)));
            return;
        }
        self.insert_between(sequence, entry);
    }

    #[cold]
    fn insert_between(&mut self, sequence: u64, entry: T) {
        match self.place(sequence) {
            Ok(index) => {
                let before = self.slots[index].1.replace(entry);
                self.gone -= usize::from(before.is_none());
            }
            Err(index) => self.slots.insert(index, (sequence, Some(entry))),
        }
    }

    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut T> {
        let index = self.place(sequence).ok()?;
        self.slots[index].1.as_mut()
    }

    pub fn remove(&mut self, sequence: u64) -> Option<T> {
        let index = self.place(sequence).ok()?;
        let removed = self.slots[index].1.take()?;
        self.gone += 1;
        self.drop_gone_front();
        // One that stays for long must not make all behind it stay.
        if self.gone > self.len() + GONE {
            self.slots.retain(|(_, entry)| entry.is_some());
            self.slots.shrink_to(2 * self.slots.len() + GONE);
            self.gone = 0;
        }
        Some(removed)
    }

    fn drop_gone_front(&mut self) {
        while let Some((_, None)) = self.slots.front() {
            self.slots.pop_front();
            self.gone -= 1;
        }
    }

    pub fn front(&self) -> Option<(u64, &T)> {
        let (sequence, entry) = self.slots.front()?;
        Some((*sequence, entry.as_ref()?))
    }

    pub fn pop_front(&mut self) -> Option<(u64, T)> {
        let (sequence, entry) = self.slots.pop_front()?;
        self.drop_gone_front();
        Some((sequence, entry?))
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.gone
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.from(0)
    }

    /// Those with this sequence or a later one.
    pub fn from(&self, sequence: u64) -> impl Iterator<Item = (u64, &T)> {
        let (Ok(place) | Err(place)) = self.place(sequence);
        let slots = self.slots.range(place..);
        slots.filter_map(|(sequence, entry)| Some((*sequence, entry.as_ref()?)))
    }

    pub fn into_iter(self) -> impl Iterator<Item = (u64, T)> {
        let held = |(sequence, entry): (u64, Option<T>)| Some((sequence, entry?));
        self.slots.into_iter().filter_map(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_wherever_they_were_put_and_places_of_those_gone_are_given_back() {
        let mut entries = Sequenced::default();
        let numbers = || (10..20).chain([40, 30, 5]).chain(50..250);
        for sequence in numbers() {
            entries.insert(sequence, sequence);
        }
        assert_eq!(entries.len(), 213);
        for sequence in [0, 9, 20, 35, 41, u64::MAX] {
            assert!(entries.get_mut(sequence).is_none(), "{sequence}");
            assert!(entries.remove(sequence).is_none(), "{sequence}");
        }
        // The first one stays while all others are removed, in another order than they arrived.
        for sequence in numbers().filter(|number| *number != 5) {
            assert!(entries.get_mut(sequence).is_some(), "{sequence}");
            assert_eq!(entries.remove(sequence), Some(sequence));
            assert_eq!(entries.remove(sequence), None, "{sequence} again");
            assert!(entries.slots.len() <= 2 * entries.len() + GONE + 1);
        }
        entries.insert(12, 2);
        entries.insert(12, 3);
        let left: Vec<(u64, u64)> = entries.into_iter().collect();
        assert_eq!(left, [(5, 5), (12, 3)]);
    }

    #[test]
    fn entries_behind_a_sequence_are_those_that_are_left() {
        let mut entries = Sequenced::default();
        for sequence in 3..9 {
            entries.insert(sequence, ());
        }
        for sequence in [3, 5, 6] {
            entries.remove(sequence);
        }
        let from = |sequence| -> Vec<u64> { entries.from(sequence).map(|it| it.0).collect() };
        assert_eq!(from(0), [4, 7, 8]);
        assert_eq!(from(5), [7, 8]);
        assert_eq!(from(8), [8]);
        assert!(from(9).is_empty());
        assert_eq!(entries.front(), Some((4, &())));
        let popped: Vec<u64> = std::iter::from_fn(|| Some(entries.pop_front()?.0)).collect();
        assert_eq!(popped, [4, 7, 8]);
        assert!(entries.is_empty());
    }
}
