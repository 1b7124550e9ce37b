//! Where the backups of a session are.

/// Backups that a session has at most.
pub(in crate::worker) const MAXIMUM: usize = crate::MAXIMUM_BACKUPS as usize;

/// Under which number, and where, a session's changes are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::worker) struct StoredAs {
    /// In this worker's journal and streams; 0: nowhere.
    pub number: u64,
    /// On other nodes.
    pub backups: ReplicaSet,
}

impl StoredAs {
    /// Whether they are recorded at all.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.number > 0
    }

    /// Whether another node has all of the session.
    #[inline]
    pub fn has_complete_backup(self) -> bool {
        // Complete ones come first.
        self.backups.0[0].is_some_and(Replica::is_complete)
    }
}

/// A backup of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) struct Replica {
    /// The stream that it receives.
    pub stream: u8,
    pub stage: Stage,
}

/// The stage of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::worker) enum Stage {
    /// The other node has all of the session, and receives its messages itself.
    Complete,
    /// A learner: it was sent all of the session.
    Learning,
    /// It has what an earlier primary sent it, and receives nothing until its full sync.
    Adopted,
}

impl Replica {
    /// Whether the other node has all of the session.
    #[inline]
    pub fn is_complete(self) -> bool {
        self.stage == Stage::Complete
    }
}

/// The backups of a session in the order in which they would be promoted; those that have all of it first. No gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::worker) struct ReplicaSet([Option<Replica>; MAXIMUM]);

impl ReplicaSet {
    /// All of them.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Replica> {
        self.0.into_iter().map_while(|backup| backup)
    }

    /// Those that receive the session's stream.
    #[inline]
    pub fn synced(self) -> impl Iterator<Item = Replica> {
        let is_synced = |backup: &Replica| backup.stage != Stage::Adopted;
        self.iter().take_while(is_synced)
    }

    /// Those that have all of it.
    #[inline]
    pub fn complete(self) -> impl Iterator<Item = Replica> {
        self.iter().take_while(|backup| backup.is_complete())
    }

    /// The streams of those that have all of it, ascending.
    pub fn complete_streams(self) -> [Option<u8>; MAXIMUM] {
        let mut streams = self.0.map(|backup| {
            backup
                .filter(|backup| backup.is_complete())
                .map(|backup| backup.stream)
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
        self.iter().any(|backup| backup.stream == stream)
    }

    /// One that has what an earlier primary sent it.
    pub fn first_adopted(self) -> Option<u8> {
        let mut all = self.iter();
        all.find(|backup| backup.stage == Stage::Adopted)
            .map(|backup| backup.stream)
    }

    /// Sets the stage of a backup, as the last one of that stage. False: there are too many.
    pub fn set(&mut self, stream: u8, stage: Stage) -> bool {
        self.remove(stream);
        let backup = Some(Replica { stream, stage });
        let free = self.0.iter_mut().find(|it| it.is_none());
        let has_capacity = free.map(|free| *free = backup).is_some();
        self.0
            .sort_by_key(|backup| (backup.is_none(), backup.map(|backup| backup.stage)));
        has_capacity
    }

    /// Removes a backup. False: there was none.
    pub fn remove(&mut self, stream: u8) -> bool {
        let is_it = |backup: &Option<Replica>| backup.is_some_and(|backup| backup.stream == stream);
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

    fn of(set: &[(u8, Stage)]) -> ReplicaSet {
        let mut backups = ReplicaSet::default();
        for (stream, stage) in set {
            assert!(backups.set(*stream, *stage), "{set:?}");
        }
        backups
    }

    fn streams(backups: impl Iterator<Item = Replica>) -> Vec<u8> {
        backups.map(|backup| backup.stream).collect()
    }

    #[test]
    fn backups_that_have_more_of_a_session_are_promoted_first_and_equal_ones_in_the_order_they_came()
     {
        for (name, set, all, synced, complete) in [
            ("none", &[][..], &[][..], &[][..], &[][..]),
            ("one", &[(4, Complete)], &[4], &[4], &[4]),
            ("one that learns", &[(4, Learning)], &[4], &[4], &[]),
            (
                "the second is complete first",
                &[(1, Learning), (2, Learning), (2, Complete)],
                &[2, 1],
                &[2, 1],
                &[2],
            ),
            (
                "all are complete in turn",
                &[(1, Learning), (2, Learning), (2, Complete), (1, Complete)],
                &[2, 1],
                &[2, 1],
                &[2, 1],
            ),
            (
                "one of an earlier primary",
                &[(3, Adopted), (1, Learning), (2, Complete)],
                &[2, 1, 3],
                &[2, 1],
                &[2],
            ),
        ] {
            let backups = of(set);
            assert_eq!(streams(backups.iter()), all, "{name}");
            assert_eq!(streams(backups.synced()), synced, "{name}");
            assert_eq!(streams(backups.complete()), complete, "{name}");
            let stored = StoredAs { number: 1, backups };
            assert_eq!(stored.has_complete_backup(), !complete.is_empty(), "{name}");
            assert_eq!(
                (backups.len(), backups.is_empty()),
                (all.len(), all.is_empty())
            );
        }
    }

    #[test]
    fn one_that_is_lost_leaves_no_gap_and_there_is_a_bound() {
        let mut backups = of(&[(1, Complete), (2, Complete), (3, Learning)]);
        assert!(!backups.set(4, Complete), "{backups:?}");
        assert!(backups.remove(2) && !backups.remove(2), "{backups:?}");
        assert_eq!(streams(backups.iter()), [1, 3]);
        assert!(backups.has(3) && !backups.has(2), "{backups:?}");
        assert!(backups.set(4, Complete), "{backups:?}");
        assert_eq!(streams(backups.iter()), [1, 4, 3]);
        assert_eq!(size_of::<StoredAs>(), 16, "as with a single backup");
    }
}
