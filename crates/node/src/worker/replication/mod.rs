//! Replication of persistent sessions (rules 6 to 13 between nodes).
//!
//! A session has a *replica set*: the *primary*, which serves its client, and up to three *backups* on other nodes (`replica_set`). The primary
//! sends each of them a *stream* of records: what became of each message of the session (`primary`, `stream`). The messages themselves a backup
//! receives from their publishers' nodes, because it subscribes to what the session subscribes to (`apply`, `backup`). When the primary is down,
//! one backup is promoted (`promote`): the session has the messages of which the primary had spoken, in its order, and behind them those of which
//! it had not.
//!
//! A new backup is a learner until it has received the whole session (`learning`). What waits for backups waits for each that is covered or
//! learns. Each backup knows the replica set, so that only one of them is promoted (`orphans`). `shares` keeps backups evenly spread.
//!
//! | the client | waits at the primary until the backups hold |
//! | --- | --- |
//! | CONNACK of a new session | the session |
//! | CONNACK of a session that ends with its connection | its will, if it has one |
//! | SUBACK, UNSUBACK | the subscriptions, and everybody sends their messages to the backup too |
//! | PUBLISH of QoS 2 | the message and its packet identifier |
//! | PUBREL | that PUBREC came |
//! | PUBREC | the publication's identity |
//! | PUBCOMP | that PUBREL came |
//! | PUBACK, PUBREC of a message for sessions of the primary | the message: the backup is one of its destinations |
//! | PUBACK, PUBREC of a message that only one member of a shared subscription gets | the message, which the stream carries whole |
//!
//! A position of a stream is *applied* when the backup has read everything up to it and lacks no message that the client may have; it is
//! *held* when besides all interests in it are applied everywhere and all barriers behind it are passed. What messages wait for is only
//! ever applied, so that a barrier, which waits for messages, comes to its end.
//!
//! A session is *covered* when all of that holds: from its beginning, or when the backup has been told the whole of it (`learning`), has
//! its interests applied everywhere, and all that was on its way to the primary before has come (a barrier, as for a session that moves).
//!
//! A message that was kept for a node by others may reach a backup there alone: the backup sends it to the primary (`reached`).
//!
//! Of a session that ends with its connection another node holds nothing but its will (`wills`). A will that goes out is held by another
//! node until all who want it have it (`going`).

mod apply;
mod backup;
mod learning;
mod orphans;
mod pending;
mod pending_wills;
mod primary;
mod promote;
mod reached;
mod replica_set;
mod shares;
mod stream;
mod wills;

pub(super) use self::{
    apply::placeholder,
    backup::{Backup, SourceKey, Sources, Unblocked},
    orphans::SUCCESSION,
    primary::{Learned, Primaries, hold},
    replica_set::{Replica, StoredAs},
    stream::{Level, Operation, Progress, Release, Streams},
    wills::WillBackup,
};
