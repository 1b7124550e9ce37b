//! Replication of interests: ordered changes with versions, after a first snapshot (rule 2).
//!
//! The node that has the interests increments a version with every change and keeps the keys of the last changes. Another node reports which version
//! it has and is sent the changes since, or a snapshot if they are no longer kept. A key that changed several times is sent once, at its last change,
//! with its current value.

use std::collections::{BTreeMap, VecDeque};

use crate::interest::{InterestChange, InterestKey, InterestValue};
use crate::message::{InterestBatch, InterestBatchKind, put_change};
use crate::wire::WireError;

/// The interests of this node.
#[derive(Debug)]
pub(crate) struct OwnInterests {
    entries: BTreeMap<InterestKey, Entry>,
    version: u64,
    /// The key that changed at each of the last versions, the newest last.
    log: VecDeque<InterestKey>,
    maximum_log: usize,
}

#[derive(Debug)]
struct Entry {
    value: InterestValue,
    version: u64,
}

impl OwnInterests {
    pub(crate) fn new(maximum_log: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            version: 0,
            log: VecDeque::new(),
            maximum_log,
        }
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &InterestKey> {
        self.entries.keys()
    }

    /// Returns the version since which the value has been set.
    pub(crate) fn set(&mut self, key: InterestKey, value: InterestValue) -> u64 {
        if let Some(entry) = self.entries.get(&key)
            && entry.value == value
        {
            return entry.version;
        }
        self.record(key.clone());
        self.entries.insert(
            key,
            Entry {
                value,
                version: self.version,
            },
        );
        self.version
    }

    /// Returns a version without the key.
    pub(crate) fn clear(&mut self, key: &InterestKey) -> u64 {
        if let Some((key, _)) = self.entries.remove_entry(key) {
            self.record(key);
        }
        self.version
    }

    fn record(&mut self, key: InterestKey) {
        self.version += 1;
        self.log.push_back(key);
        if self.log.len() > self.maximum_log {
            self.log.pop_front();
        }
    }

    /// Whether the changes since `version` are all kept.
    pub(crate) fn has_changes_since(&self, version: u64) -> bool {
        version <= self.version && self.version - version <= self.log.len() as u64
    }

    /// Appends changes after version `from` to `entries` until it holds about `maximum` bytes; returns the version reached. Only where
    /// [`Self::has_changes_since`] holds.
    pub(crate) fn encode_changes(&self, from: u64, maximum: usize, entries: &mut Vec<u8>) -> u64 {
        let first_kept = self.version - self.log.len() as u64;
        let skip = usize::try_from(from.saturating_sub(first_kept)).unwrap_or(usize::MAX);
        let mut version = from.max(first_kept);
        for key in self.log.iter().skip(skip) {
            if entries.len() >= maximum {
                break;
            }
            version += 1;
            match self.entries.get(key) {
                Some(entry) if entry.version == version => {
                    put_change(entries, key, Some(entry.value))
                }
                Some(_) => {} // Changed again: sent then.
                None => put_change(entries, key, None),
            }
        }
        version
    }

    /// Passes the parts of a snapshot to `write`, each of about `maximum` bytes.
    pub(crate) fn encode_snapshot(&self, maximum: usize, mut write: impl FnMut(InterestBatch<'_>)) {
        let (mut part, mut entries) = (0, Vec::new());
        for (key, entry) in &self.entries {
            put_change(&mut entries, key, Some(entry.value));
            if entries.len() >= maximum {
                let kind = InterestBatchKind::SnapshotPart;
                write(InterestBatch {
                    kind,
                    from: part,
                    to: self.version,
                    entries: &entries,
                });
                part += 1;
                entries.clear();
            }
        }
        write(InterestBatch {
            kind: InterestBatchKind::SnapshotEnd,
            from: part,
            to: self.version,
            entries: &entries,
        });
    }
}

/// Why interests cannot be applied. The link ends; the next one continues from what was applied before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterestError {
    #[error("changes of interests from version {from} do not follow {received:?}")]
    Gap { from: u64, received: Option<u64> },
    #[error("part {part} of a snapshot of interests is not the next one")]
    PartMissing { part: u64 },
    #[error("more than {maximum} interests")]
    TooMany { maximum: usize },
    #[error(transparent)]
    Malformed(#[from] WireError),
}

/// The interests of another node.
#[derive(Debug, Default)]
pub(crate) struct RemoteInterests {
    entries: BTreeMap<InterestKey, InterestValue>,
    received: Option<u64>,
    applied: Option<u64>,
    staged: Option<Staged>,
    /// What the hub was given and has not confirmed: our ticket, and the version of the other node.
    handed: VecDeque<(u64, u64)>,
    /// Tickets never repeat. Versions of the other node may, as it may restart: a late confirmation of void interests must not count for current
    /// ones.
    last_ticket: u64,
    /// The persistent interests of the node when it went down, until it sends its interests again.
    aside: BTreeMap<InterestKey, InterestValue>,
}

#[derive(Debug)]
struct Staged {
    next_part: u64,
    entries: BTreeMap<InterestKey, InterestValue>,
}

impl RemoteInterests {
    /// The version held, `None` before the first snapshot.
    pub(crate) const fn received(&self) -> Option<u64> {
        self.received
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &InterestKey> {
        self.entries.keys()
    }

    /// The version that every worker has applied.
    pub(crate) const fn applied(&self) -> Option<u64> {
        self.applied
    }

    /// Whether the first snapshot is applied.
    pub(crate) const fn is_ready(&self) -> bool {
        self.applied.is_some()
    }

    /// Every worker has applied what was handed out up to `ticket`. False if that changes nothing.
    pub(crate) fn confirm(&mut self, ticket: u64) -> bool {
        let before = self.applied;
        while let Some((_, version)) = self.handed.pop_front_if(|(handed, _)| *handed <= ticket) {
            self.applied = Some(version);
        }
        self.applied != before
    }

    fn hand_out(&mut self, version: u64) -> u64 {
        self.last_ticket += 1;
        self.handed.push_back((self.last_ticket, version));
        self.last_ticket
    }

    /// The node is down: all interests are void. Returns the persistent ones, and keeps them aside.
    pub(crate) fn set_aside(&mut self) -> Vec<(InterestKey, InterestValue)> {
        let entries = std::mem::take(&mut self.entries);
        let persistent = entries.into_iter().filter(|(_, value)| value.persistent);
        let aside = if self.received.is_some() {
            persistent.collect()
        } else {
            // It was up too briefly to send its interests.
            std::mem::take(&mut self.aside)
        };
        *self = Self {
            aside,
            last_ticket: self.last_ticket,
            ..Self::default()
        };
        let aside = self.aside.iter();
        aside.map(|(key, value)| (key.clone(), *value)).collect()
    }

    /// A link ended: an incomplete snapshot is void.
    pub(crate) fn abandon_snapshot(&mut self) {
        self.staged = None;
    }

    /// Applies a batch; returns a ticket to confirm it with and the changes, `None` in the middle of a snapshot.
    pub(crate) fn apply(
        &mut self,
        batch: &InterestBatch<'_>,
        maximum: usize,
    ) -> Result<Option<(u64, Vec<InterestChange>)>, InterestError> {
        match batch.kind {
            InterestBatchKind::Changes => {
                let changes = self.apply_changes(batch, maximum)?;
                Ok(Some((self.hand_out(batch.to), changes)))
            }
            InterestBatchKind::SnapshotPart => self.stage(batch, maximum).map(|()| None),
            InterestBatchKind::SnapshotEnd => {
                self.stage(batch, maximum)?;
                let changes = self.take_over_snapshot(batch.to);
                Ok(Some((self.hand_out(batch.to), changes)))
            }
        }
    }

    fn apply_changes(
        &mut self,
        batch: &InterestBatch<'_>,
        maximum: usize,
    ) -> Result<Vec<InterestChange>, InterestError> {
        if self.received != Some(batch.from) || batch.to < batch.from {
            return Err(InterestError::Gap {
                from: batch.from,
                received: self.received,
            });
        }
        // All or nothing, so that `received` remains a version of the other node.
        let changes = batch.changes().collect::<Result<Vec<_>, _>>()?;
        if self.entries.len() + changes.len() > maximum {
            return Err(InterestError::TooMany { maximum });
        }
        self.received = Some(batch.to);
        let mut effective = Vec::with_capacity(changes.len());
        for change in changes {
            let before = match change.value {
                Some(value) => self.entries.insert(change.key.clone(), value),
                None => self.entries.remove(&change.key),
            };
            if before != change.value {
                effective.push(change);
            }
        }
        Ok(effective)
    }

    fn stage(&mut self, batch: &InterestBatch<'_>, maximum: usize) -> Result<(), InterestError> {
        if batch.from == 0 {
            self.staged = Some(Staged {
                next_part: 0,
                entries: BTreeMap::new(),
            });
        }
        let missing = InterestError::PartMissing { part: batch.from };
        let staged = self
            .staged
            .as_mut()
            .filter(|staged| staged.next_part == batch.from)
            .ok_or(missing)?;
        staged.next_part += 1;
        for change in batch.changes() {
            let change = change?;
            if let Some(value) = change.value {
                staged.entries.insert(change.key, value);
            }
            if staged.entries.len() > maximum {
                return Err(InterestError::TooMany { maximum });
            }
        }
        Ok(())
    }

    fn take_over_snapshot(&mut self, version: u64) -> Vec<InterestChange> {
        let entries = self
            .staged
            .take()
            .map(|staged| staged.entries)
            .unwrap_or_default();
        let before = std::mem::replace(&mut self.entries, entries);
        self.received = Some(version);
        self.aside.clear();
        let gone = before.keys().filter(|key| !self.entries.contains_key(*key));
        let mut changes: Vec<_> = gone
            .map(|key| InterestChange {
                key: key.clone(),
                value: None,
            })
            .collect();
        let new = self
            .entries
            .iter()
            .filter(|(key, value)| before.get(*key) != Some(*value));
        changes.extend(new.map(|(key, value)| InterestChange {
            key: key.clone(),
            value: Some(*value),
        }));
        changes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use thicket_mqtt::Qos;
    use thicket_session::topic::TopicFilter;

    use super::*;
    use crate::interest::Sharing;

    fn key(name: u8) -> InterestKey {
        InterestKey {
            filter: TopicFilter::new(&format!("f/{name}")).expect("a filter"),
            sharing: Sharing::Plain,
        }
    }

    fn value(weight: u8) -> InterestValue {
        InterestValue {
            qos: Qos::AtLeastOnce,
            persistent: weight.is_multiple_of(2),
            weight: weight.into(),
        }
    }

    fn synchronise(
        own: &OwnInterests,
        remote: &mut RemoteInterests,
        maximum: usize,
    ) -> Vec<InterestChange> {
        let mut changes = Vec::new();
        let mut apply = |batch: InterestBatch<'_>, remote: &mut RemoteInterests| {
            changes.extend(
                remote
                    .apply(&batch, 1000)
                    .expect("our own batch")
                    .map(|(_, changes)| changes)
                    .into_iter()
                    .flatten(),
            );
        };
        match remote.received() {
            Some(mut from) if own.has_changes_since(from) => {
                while from < own.version() {
                    let mut entries = Vec::new();
                    let to = own.encode_changes(from, maximum, &mut entries);
                    apply(
                        InterestBatch {
                            kind: InterestBatchKind::Changes,
                            from,
                            to,
                            entries: &entries,
                        },
                        remote,
                    );
                    from = to;
                }
            }
            Some(_) | None => own.encode_snapshot(maximum, |batch| apply(batch, remote)),
        }
        changes
    }

    proptest! {
        #[test]
        fn a_remote_table_and_what_its_changes_add_up_to_equal_the_owners(
            steps in proptest::collection::vec((0_u8..6, any::<Option<u8>>(), 0_u8..4, any::<bool>()), 0..60), maximum in 1_usize..60,
        ) {
            let (mut own, mut remote) = (OwnInterests::new(5), RemoteInterests::default());
            let mut followed: BTreeMap<InterestKey, InterestValue> = BTreeMap::new();
            for (name, new, synchronised, goes_out) in steps {
                match new {
                    Some(weight) => own.set(key(name), value(weight % 3)),
                    None => own.clear(&key(name)),
                };
                if goes_out && synchronised == 1 {
                    remote.set_aside();
                    followed.clear();
                }
                if synchronised != 0 {
                    continue;
                }
                for change in synchronise(&own, &mut remote, maximum) {
                    match change.value {
                        Some(value) => prop_assert_ne!(followed.insert(change.key, value), Some(value)),
                        None => prop_assert!(followed.remove(&change.key).is_some()),
                    }
                }
                prop_assert_eq!(remote.received(), Some(own.version()));
                let owners: BTreeMap<_, _> = own.entries.iter().map(|(key, entry)| (key.clone(), entry.value)).collect();
                prop_assert_eq!(&remote.entries, &owners);
                prop_assert_eq!(&followed, &owners);
            }
        }
    }

    #[test]
    fn what_does_not_follow_is_refused_and_changes_nothing() {
        let (mut own, mut remote) = (OwnInterests::new(5), RemoteInterests::default());
        own.set(key(1), value(1));
        synchronise(&own, &mut remote, 100);
        let batch = |kind, from, to| InterestBatch {
            kind,
            from,
            to,
            entries: &[],
        };
        let cases = [
            ("a gap", batch(InterestBatchKind::Changes, 2, 3), 9),
            ("back in time", batch(InterestBatchKind::Changes, 1, 0), 9),
            (
                "a later part first",
                batch(InterestBatchKind::SnapshotPart, 1, 3),
                9,
            ),
            (
                "an end without its parts",
                batch(InterestBatchKind::SnapshotEnd, 2, 3),
                9,
            ),
            ("too many", batch(InterestBatchKind::Changes, 1, 2), 0),
        ];
        for (name, batch, maximum) in cases {
            assert!(remote.apply(&batch, maximum).is_err(), "{name}");
            assert_eq!(
                (remote.received(), remote.entries.len()),
                (Some(1), 1),
                "{name}"
            );
        }
    }

    #[test]
    fn a_late_confirmation_of_what_is_void_confirms_nothing() {
        let (mut own, mut remote) = (OwnInterests::new(5), RemoteInterests::default());
        own.set(key(1), value(1));
        synchronise(&own, &mut remote, 100);
        let stale = remote.last_ticket;
        remote.set_aside();
        synchronise(&own, &mut remote, 100);
        assert!(!remote.confirm(stale));
        assert_eq!(remote.applied(), None);
        assert!(remote.confirm(remote.last_ticket) && !remote.confirm(remote.last_ticket));
        assert_eq!(remote.applied(), Some(1));
    }

    #[test]
    fn what_is_persistent_is_kept_aside_when_a_node_goes_out() {
        let (mut own, mut remote) = (OwnInterests::new(5), RemoteInterests::default());
        own.set(key(1), value(1));
        own.set(key(2), value(2));
        synchronise(&own, &mut remote, 100);
        let aside = [(key(2), value(2))];
        assert_eq!(remote.set_aside(), aside);
        assert_eq!(
            (remote.received(), remote.is_ready(), remote.entries.len()),
            (None, false, 0)
        );
        assert_eq!(remote.set_aside(), aside, "up too briefly to announce any");
        synchronise(&own, &mut remote, 100);
        assert!(remote.aside.is_empty());
    }
}
