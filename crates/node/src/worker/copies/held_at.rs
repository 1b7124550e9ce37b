//! Where the copies of a session are.

/// Copies that a session has at most.
const MAXIMUM: usize = crate::MAXIMUM_BACKUPS as usize;

/// Under which number, and where, what a session goes through is written down.
#[derive(Debug, Clone, std::marker::Copy, PartialEq, Eq, Default)]
pub(in super::super) struct StoredAs {
    /// In this worker's journal and streams; 0: nowhere.
    pub number: u64,
    /// On other nodes.
    pub copies: Copies,
}

impl StoredAs {
    /// Whether it is written down at all.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.number > 0
    }

    /// Whether another node has all of the session.
    #[inline]
    pub fn is_covered(self) -> bool {
        // Covered ones come first.
        self.copies.0[0].is_some_and(Copy::is_covered)
    }
}

/// A copy of a session.
#[derive(Debug, Clone, std::marker::Copy, PartialEq, Eq)]
pub(in super::super) struct Copy {
    /// The stream that it is told by.
    pub stream: u8,
    pub stage: Stage,
}

/// How far a copy has come.
#[derive(Debug, Clone, std::marker::Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Stage {
    /// The other node has all of it, and gets its messages itself.
    Covered,
    /// It was told all of it.
    Learning,
    /// It has what an earlier owner told it, and hears nothing until it is told all of it.
    Adopted,
}

impl Copy {
    /// Whether the other node has all of the session.
    #[inline]
    pub fn is_covered(self) -> bool {
        self.stage == Stage::Covered
    }
}

/// The copies of a session in the order in which they would go on with it; those that have all of it first. No gaps.
#[derive(Debug, Clone, std::marker::Copy, PartialEq, Eq, Default)]
pub(in super::super) struct Copies([Option<Copy>; MAXIMUM]);

impl Copies {
    /// All of them.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Copy> {
        self.0.into_iter().map_while(|copy| copy)
    }

    /// Those that hear what the session goes through.
    #[inline]
    pub fn told(self) -> impl Iterator<Item = Copy> {
        let is_told = |copy: &Copy| copy.stage != Stage::Adopted;
        self.iter().take_while(is_told)
    }

    /// Those that have all of it.
    #[inline]
    pub fn covered(self) -> impl Iterator<Item = Copy> {
        self.iter().take_while(|copy| copy.is_covered())
    }

    /// The streams of those that have all of it, ascending.
    pub fn covered_by(self) -> [Option<u8>; MAXIMUM] {
        let mut streams = self.0.map(|copy| {
            copy.filter(|copy| copy.is_covered())
                .map(|copy| copy.stream)
        });
        streams.sort_unstable();
        streams
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0[0].is_none()
    }

    /// Whether the node of a stream has one.
    pub fn has(self, stream: u8) -> bool {
        self.iter().any(|copy| copy.stream == stream)
    }

    /// One that has what an earlier owner told it.
    pub fn first_adopted(self) -> Option<u8> {
        let mut all = self.iter();
        all.find(|copy| copy.stage == Stage::Adopted)
            .map(|copy| copy.stream)
    }

    /// A copy is at this stage now, the last one of that stage. False: there are too many.
    pub fn set(&mut self, stream: u8, stage: Stage) -> bool {
        self.remove(stream);
        let copy = Some(Copy { stream, stage });
        let free = self.0.iter_mut().find(|it| it.is_none());
        let has_room = free.map(|free| *free = copy).is_some();
        self.0
            .sort_by_key(|copy| (copy.is_none(), copy.map(|copy| copy.stage)));
        has_room
    }

    /// A copy is no more. False: there was none.
    pub fn remove(&mut self, stream: u8) -> bool {
        let is_it = |copy: &Option<Copy>| copy.is_some_and(|copy| copy.stream == stream);
        let Some(at) = self.0.iter().position(is_it) else {
            return false;
        };
        self.0[at..].rotate_left(1);
        self.0[MAXIMUM - 1] = None;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Stage::*, *};

    fn of(set: &[(u8, Stage)]) -> Copies {
        let mut copies = Copies::default();
        for (stream, stage) in set {
            assert!(copies.set(*stream, *stage), "{set:?}");
        }
        copies
    }

    fn streams(copies: impl Iterator<Item = Copy>) -> Vec<u8> {
        copies.map(|copy| copy.stream).collect()
    }

    #[test]
    fn who_has_more_of_a_session_goes_on_with_it_first_and_who_has_as_much_in_the_order_they_came()
    {
        for (name, set, all, told, covered) in [
            ("none", &[][..], &[][..], &[][..], &[][..]),
            ("one", &[(4, Covered)], &[4], &[4], &[4]),
            ("one that learns", &[(4, Learning)], &[4], &[4], &[]),
            (
                "the second is covered first",
                &[(1, Learning), (2, Learning), (2, Covered)],
                &[2, 1],
                &[2, 1],
                &[2],
            ),
            (
                "all are covered in turn",
                &[(1, Learning), (2, Learning), (2, Covered), (1, Covered)],
                &[2, 1],
                &[2, 1],
                &[2, 1],
            ),
            (
                "one of an earlier owner",
                &[(3, Adopted), (1, Learning), (2, Covered)],
                &[2, 1, 3],
                &[2, 1],
                &[2],
            ),
        ] {
            let copies = of(set);
            assert_eq!(streams(copies.iter()), all, "{name}");
            assert_eq!(streams(copies.told()), told, "{name}");
            assert_eq!(streams(copies.covered()), covered, "{name}");
            let stored = StoredAs { number: 1, copies };
            assert_eq!(stored.is_covered(), !covered.is_empty(), "{name}");
            assert_eq!(
                (copies.len(), copies.is_empty()),
                (all.len(), all.is_empty())
            );
        }
    }

    #[test]
    fn one_that_is_lost_leaves_no_gap_and_there_is_a_bound() {
        let mut copies = of(&[(1, Covered), (2, Covered), (3, Learning)]);
        assert!(!copies.set(4, Covered), "{copies:?}");
        assert!(copies.remove(2) && !copies.remove(2), "{copies:?}");
        assert_eq!(streams(copies.iter()), [1, 3]);
        assert!(copies.has(3) && !copies.has(2), "{copies:?}");
        assert!(copies.set(4, Covered), "{copies:?}");
        assert_eq!(streams(copies.iter()), [1, 4, 3]);
        assert_eq!(size_of::<StoredAs>(), 16, "as with a single copy");
    }
}
