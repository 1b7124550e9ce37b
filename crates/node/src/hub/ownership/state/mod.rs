//! What [`Ownership`](super::Ownership) has of each of its parts. Nothing here sends anything.

pub(in crate::hub) mod barriers;
pub(in crate::hub) mod claims;
pub(in crate::hub) mod moves;
pub(in crate::hub) mod own_branches;
pub(in crate::hub) mod registrar;
pub(in crate::hub) mod relocations;
pub(in crate::hub) mod replication;
