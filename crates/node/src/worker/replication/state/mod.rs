//! The replication state of a worker, as primary and as backup. The rules are in [replication](super).

mod held_wills;
mod leveling;
mod orphans;
mod pending_wills;
mod primaries;
mod shares;
mod sources;

pub(super) use self::{
    held_wills::{HeldWills, WILL_BYTES},
    orphans::{Announced, BackupVersion, Orphan},
    pending_wills::PendingWill,
    sources::{Source, Unacknowledged},
};
pub(in crate::worker) use self::{primaries::Primaries, sources::Sources};
