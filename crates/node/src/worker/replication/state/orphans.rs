//! Backups without primaries, and who has adopted which session.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use thicket_overlay::NodeId;
use thicket_session::{server::Epoch, time::Instant};

use crate::{
    messages::Adopted,
    worker::state::{replica::backup::SourceKey, session_key::SessionKey},
};

/// A replacement is remembered for this time, for the worker whose backup is not yet an orphan.
const REMEMBERED: Duration = Duration::from_secs(30);

/// A backup without primary.
#[derive(Debug)]
pub(in super::super) struct Orphan {
    pub key: SessionKey,
    pub version: BackupVersion,
    pub since: Instant,
}

/// Which version of a session a backup has: the primary's worker, the number in its stream, and the epoch.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct BackupVersion {
    pub by: SourceKey,
    pub number: u64,
    pub epoch: Epoch,
}

/// A session has failed over to another node's worker. There may be several backups of it here that are older, of primaries that died one after the
/// other: each is an orphan as soon as this node considers its primary down.
#[derive(Debug)]
pub(in super::super) struct Announced {
    pub by: SourceKey,
    pub session: Adopted,
    /// Since when the backup of the earlier primary is out of date.
    pub over_since: Option<Instant>,
}

impl Announced {
    /// Whether a backup is older: of a lower epoch, or what the same primary sent before it merged a branch. A merge that is repeated has the epoch
    /// of the one before, but another number.
    fn outdates(&self, backup: BackupVersion) -> bool {
        let Adopted { epoch, number, .. } = self.session;
        epoch > backup.epoch
            || (epoch == backup.epoch && self.by == backup.by && number > backup.number)
    }
}

/// All of them, by the identities of the sessions.
#[derive(Debug, Default)]
pub(in super::super) struct Orphans {
    pub waiting: BTreeMap<u128, Orphan>,
    pub announced: BTreeMap<u128, Announced>,
    /// Nodes that are down, some of whose sessions may still fail over to this one.
    pub promoting: BTreeSet<NodeId>,
}

impl Orphans {
    /// Whether an orphan has not been adopted yet.
    pub fn is_waiting(&self) -> bool {
        self.unadopted() > 0
    }

    /// How many orphans have not been adopted yet.
    pub fn unadopted(&self) -> u64 {
        let waiting = self.waiting.iter();
        let unadopted =
            waiting.filter(|(uid, orphan)| self.adopted(**uid, orphan.version).is_none());
        unadopted.count() as u64
    }

    /// Who adopted a session, if that is newer than the backup here.
    pub fn adopted(&self, uid: u128, backup: BackupVersion) -> Option<&Announced> {
        let announced = self.announced.get(&uid);
        announced.filter(|announced| announced.outdates(backup))
    }

    /// Removes the orphan whose session this worker of another node adopted.
    pub fn take_adopted_by(&mut self, uid: u128, by: SourceKey) -> Option<Orphan> {
        let version = self.waiting.get(&uid)?.version;
        self.adopted(uid, version).filter(|it| it.by == by)?;
        self.waiting.remove(&uid)
    }

    /// A node is down, and promotes none of its backups.
    pub fn lose_node(&mut self, now: Instant, node: NodeId) {
        for (uid, announced) in self.announced.extract_if(.., |_, it| it.by.0 == node) {
            if let Some(orphan) = self.waiting.get_mut(&uid)
                && announced.outdates(orphan.version)
            {
                orphan.since = now;
            }
        }
        self.forget_replaced(now);
    }

    /// Forgets what was replaced long enough ago.
    pub fn forget_replaced(&mut self, now: Instant) {
        let is_kept = |since: Instant| since + REMEMBERED > now;
        let before = self.announced.len();
        self.announced
            .retain(|_, announced| announced.over_since.is_none_or(is_kept));
        if self.announced.len() < before {
            thicket_session::reach!("time REMEMBERED");
        }
    }
}
