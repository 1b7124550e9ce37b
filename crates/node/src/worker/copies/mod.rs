//! Copies of sessions on other nodes (rules 6 to 13 between nodes).
//!
//! The *owner* of a persistent session writes what the session goes through a second time, into a *stream* of records for each node that
//! holds a copy of it, a *backup* (`owner`). A backup keeps the session as a *shadow* (`backup`): it subscribes to what the session
//! subscribes to, so it gets its messages from wherever they are published, and the stream tells it only what became of each. When the
//! owner is out, its shadows become sessions as they stand: with the messages the owner had spoken of, in its order, and behind them
//! those it had not come to yet.
//!
//! A session has up to three backups, its *members* (`held_at`, `learning`), as many as there are nodes if these are fewer. What waits for
//! one waits for each that has all of the session, or reads it. Each is told who the others are, so that only one of them goes on (`orphans`).
//!
//! | the client | waits at the owner until the backups hold |
//! | --- | --- |
//! | CONNACK of a new session | the session |
//! | CONNACK of a session that ends with its connection | its will, if it has one |
//! | SUBACK, UNSUBACK | the subscriptions, and everybody sends their messages to the backup too |
//! | PUBLISH of QoS 2 | the message and its packet identifier |
//! | PUBREL | that PUBREC came |
//! | PUBREC | the publication's identity |
//! | PUBCOMP | that PUBREL came |
//! | PUBACK, PUBREC of a message for sessions of the owner | the message: the backup is one of its destinations |
//! | PUBACK, PUBREC of a message that only one member of a shared subscription gets | the message, which the stream carries whole |
//!
//! A position of a stream is *applied* when the backup has read everything up to it and lacks no message that the client may have; it is
//! *held* when besides all interests in it are applied everywhere and all barriers behind it are passed. What messages wait for is only
//! ever applied, so that a barrier, which waits for messages, comes to its end.
//!
//! A session is *covered* when all of that holds: from its beginning, or when the backup has been told the whole of it (`learning`), has
//! its interests applied everywhere, and all that was on its way to the owner before has come (a barrier, as for a session that moves).
//!
//! Of a session that ends with its connection another node holds nothing but its will (`wills`). A will that goes out is held by another
//! node until all who want it have it (`going`).

mod backup;
mod going;
mod held_at;
mod learning;
mod orphans;
mod owner;
mod pending;
mod promote;
mod shadow;
mod stream;
mod wills;

pub(super) use self::{
    backup::placeholder,
    held_at::StoredAs,
    orphans::SUCCESSION,
    owner::{Owned, hold},
    shadow::{Shadow, Sources, Unblocked},
    stream::{Level, Operation, Progress, Release, Streams},
    wills::WillCopy,
};
