//! Output that waits for backups.

use super::{
    replica_set::{Replica, StoredAs},
    stream::{Level, Release, Streams},
};
use crate::{ConnectionId, worker::state::connection::Connection};

/// Holds back what is appended to the connection from now on until all backups that receive the session's stream have what was written so far.
/// Learners count too (rule 12), because one of them may be promoted before another has everything. They pass their barriers later, so `Level::Held`
/// waits for complete backups only.
#[inline]
pub(in crate::worker) fn hold(
    streams: &mut Streams,
    connection: &mut Connection,
    id: ConnectionId,
    stored: StoredAs,
    level: Level,
) {
    let is_waited_for = |backup: &Replica| level == Level::Applied || backup.is_complete();
    for backup in stored.backups.synced().filter(is_waited_for) {
        hold_at(streams, backup.stream, connection, id, level);
    }
}

/// See [`hold`]; for the node of a stream.
pub(in crate::worker) fn hold_at(
    streams: &mut Streams,
    index: u8,
    connection: &mut Connection,
    id: ConnectionId,
    level: Level,
) {
    let Some(stream) = streams.get_mut(index) else {
        return;
    };
    let position = stream.position();
    if !stream.has(position, level) && connection.out.hold(index, position, level) {
        stream.wait(level, Release::Output(id, connection.serial));
    }
}
