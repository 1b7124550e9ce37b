//! Replication of persistent sessions (rules 6 to 13 between nodes).
//!
//! A session has a *replica set*: the *primary*, which serves its client, and up to three *backups* on other nodes (`state::replica`). The primary
//! sends each of them a *stream* of records: what became of each message of the session (`primary`). A backup receives the messages themselves from
//! their publishers' nodes, because it subscribes to what the session subscribes to (`apply`). When the primary is down, one backup is promoted
//! (`promote`): its queue has the messages that the primary had named, in the primary's order, followed by those that it had not named yet.
//!
//! A new backup is a learner until it has received the whole session (full sync, `learning`). Output that waits for backups waits for each complete
//! backup and each learner. A SUBACK waits for complete backups only. Each backup has the list of the replica set, so that only one of them is
//! promoted (`orphans`). `shares` keeps backups evenly spread, and `leveling` moves them when their sessions turn out to have uneven loads.
//!
//! | the client | waits at the primary until the backups have applied |
//! | --- | --- |
//! | CONNACK of a new session | the session |
//! | CONNACK of a session that ends with its connection | its will, if it has one |
//! | SUBACK, UNSUBACK | the subscriptions; a SUBACK also waits until every node sends their messages to the backup (*held*) |
//! | PUBLISH of QoS 2 | the message and its packet identifier |
//! | PUBREL | that PUBREC was received |
//! | PUBREC | the publication's identity |
//! | PUBCOMP | that PUBREL was received |
//! | PUBACK, PUBREC of a message for sessions of the primary | the message: the backup is one of its destinations |
//! | PUBACK, PUBREC of a message that only one member of a shared subscription gets | the message, which the stream carries whole |
//! | PUBACK, PUBREC of a message for a session that no backup has completely | the message, which the stream carries whole to learners |
//!
//! A position of a stream is *applied* when the backup has read everything up to it and lacks no message that the client may have. It is *held* when,
//! besides, all interests in it are applied everywhere and all barriers behind it are passed. Messages wait for *applied* only: a barrier waits for
//! messages, so it would never be passed otherwise.
//!
//! A backup is *complete* when it has received a full sync (`learning`), its interests are applied everywhere, and all that was on its way to the
//! primary before has arrived (a barrier). The backup of a session that was empty when it began is complete from the start.
//!
//! A message may reach only a backup, if its sender had not yet applied the session's move, or had kept it (hinted handoff): the backup sends it
//! to the primary (`misrouted`).
//!
//! Of a session that ends with its connection another node holds only the will (`wills`). A will being published is held by another node until every
//! node with a matching subscription has it (`pending_wills`).

mod acknowledgements;
mod apply;
mod learning;
mod leveling;
mod misrouted;
mod orphans;
mod overdue;
mod pending_wills;
mod primary;
mod promote;
mod state;
mod storing;
mod wills;

pub(super) use self::{
    acknowledgements::wait_for_backups,
    learning::{
        end_backup, end_last_backup_if_full, end_surplus_backups, leave_backups,
        replicate_replica_set,
    },
    misrouted::deliver_misrouted,
    orphans::report_taken_over,
    primary::hold_input,
    state::{Primaries, Sources},
};
