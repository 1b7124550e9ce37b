//! The replica set of a session: where its backups are, the streams that they receive, and what they hold (see [`replication`](super::super::replication)).

pub mod backup;
pub(in crate::worker) mod hold;
pub(in crate::worker) mod pending;
pub(in crate::worker) mod replica_set;
pub(in crate::worker) mod stream;
pub(in crate::worker) mod will;
