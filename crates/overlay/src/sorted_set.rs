//! A small set in a vector. It is filled and emptied in every round, and keeps its memory.

use std::ops::Deref;

/// Ascending, each once. Insertion and removal move what is behind: for sets of a few entries, as
/// the links that one round concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SortedSet<T>(Vec<T>);

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Deref for SortedSet<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T: Ord + Copy> SortedSet<T> {
    /// What is marked again and again is often the last one that was marked.
    #[inline]
    pub(crate) fn insert(&mut self, item: T) {
        if self.0.last().is_none_or(|last| *last < item) {
            self.0.push(item);
        } else if let Err(place) = self.0.binary_search(&item) {
            self.0.insert(place, item);
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, item: &T) {
        if let Ok(place) = self.0.binary_search(item) {
            self.0.remove(place);
        }
    }

    #[inline]
    pub(crate) fn contains(&self, item: &T) -> bool {
        self.0.binary_search(item).is_ok()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl<T: Ord + Copy> Extend<T> for SortedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.insert(item);
        }
    }
}

impl<T: Ord + Copy> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut set = Self::default();
        set.extend(items);
        set
    }
}

impl<T> IntoIterator for SortedSet<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in proptest::collection::vec((any::<bool>(), 0_u8..20), 0..100)) {
            let (mut set, mut expected) = (SortedSet::default(), BTreeSet::new());
            for (is_insertion, item) in steps {
                if is_insertion {
                    set.insert(item);
                    expected.insert(item);
                } else {
                    set.remove(&item);
                    expected.remove(&item);
                }
                prop_assert!(set.iter().eq(&expected));
                prop_assert_eq!(set.contains(&item), expected.contains(&item));
            }
        }
    }
}
