//! A node is to stop without loss: its sessions are handed over to their backups, then its clients are disconnected.
//!
//! | step | here | the backup |
//! | --- | --- | --- |
//! | read no more | the client waits, and all that was read is handled; what it has published at QoS 2 is answered | |
//! | hand over | in a later step, when the session has a complete backup: its messages are queued | reads `handed` behind all that was before, and is the primary |
//! | take over | | reports to the registrar, with a higher epoch |
//! | evict | the registrar names the new primary: the client is disconnected with 0x9C, the session ends without a will | |

use thicket_mqtt::{ProtocolVersion, Qos, ReasonCode};

use super::{
    Worker, WorkerOperator,
    context::Context,
    redirect::could_go_elsewhere,
    state::{
        drain::Drain,
        role::{Reason, Switchover},
        sessions::{Cause, Session, SessionKey},
    },
    switchover::hand_session_over,
};
use crate::{ConnectionId, Drained, Now};

/// What a step does with a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It is handed over, or its client is sent away.
    Goes,
    /// Its client is not read any more: what is read in this round may still arrive.
    Stops,
    /// It stays as it is.
    Waits,
}

/// The minimum number of sessions in a step, and the divisor of all sessions that gives its size. Small steps keep the clients from connecting
/// elsewhere all at once.
const STEP: (usize, usize) = (64, 32);

impl Worker {
    /// A node is down: sessions that were handed over to it and that it has not taken over stay here. A drain hands them over again.
    pub(super) fn take_back_drained(&mut self, now: Now) {
        let sessions = self.cx.sessions.iter();
        let lost: Vec<SessionKey> = sessions
            .filter(|(_, session)| has_lost_target(&self.cx, session))
            .map(|(key, _)| key)
            .collect();
        for key in lost {
            self.take_back(now, key);
        }
    }

    fn next_step(&self, key: SessionKey) -> Step {
        let Some(session) = self.cx.sessions.get(key) else {
            return Step::Waits;
        };
        if !session.is_persistent() {
            return Step::Goes;
        }
        let may_go = session.role.is_primary()
            && session.merging.is_none()
            && session.merge_to_report.is_none()
            && session.stored.has_complete_backup();
        if !may_go {
            return Step::Waits;
        }
        let connection = session.connection.and_then(|id| {
            let connection = self.cx.connections.get(id)?;
            Some((id, connection))
        });
        // The next primary would take what is not answered yet for new when it is sent again.
        let owes_answer = !session.orphaned_publications.is_empty()
            || (session.acknowledgements.iter()).any(|owed| owed.qos == Qos::ExactlyOnce);
        match connection {
            Some((id, connection)) if !self.cx.drain.stopped.contains(&(id, connection.serial)) => {
                Step::Stops
            }
            Some((_, connection)) if connection.is_unfinished => Step::Waits,
            Some(_) | None if owes_answer => Step::Waits,
            Some(_) | None => Step::Goes,
        }
    }

    /// Whether it goes now.
    fn drain_session(&mut self, now: Now, key: SessionKey) -> bool {
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return false;
        };
        let connection = session.connection;
        if !session.is_persistent() {
            // It ends because of this node, not of its client.
            session.will = None;
            if let Some(id) = connection {
                self.send_away(now, id);
            }
            return connection.is_some();
        }
        let Some(first) = session.stored.backups.complete().next() else {
            return false;
        };
        let Some(to) = self.cx.journal.streams.node_of(first.stream) else {
            return false;
        };
        let reason = Reason::Drain;
        hand_session_over(
            &mut self.cx,
            now,
            key,
            first.stream,
            Switchover { to, reason },
        );
        true
    }

    /// Ends a connection: its client finds its session on another node.
    pub(super) fn send_away(&mut self, now: Now, id: ConnectionId) {
        let reference = self.primaries.reference_for_drained(&mut self.cx, id);
        self.cx
            .disconnect_to(id, reference.as_deref(), "the node is drained");
        self.detach(now, id, Cause::Closed);
    }
}

fn stop_reading(cx: &mut Context, key: SessionKey) {
    let connection = cx.sessions.get(key).and_then(|session| session.connection);
    if let Some(id) = connection
        && let Some(connection) = cx.connections.get(id)
    {
        cx.drain.stopped.insert((id, connection.serial));
        cx.set_reading(id, false);
    }
}

/// The client of a session that stays here is read again.
pub(super) fn read_on(cx: &mut Context, key: SessionKey) {
    let session = cx.sessions.get(key).filter(|it| it.role.is_primary());
    if let Some(id) = session.and_then(|session| session.connection)
        && let Some(connection) = cx.connections.get(id)
    {
        cx.drain.stopped.remove(&(id, connection.serial));
        if !connection.is_unfinished {
            cx.set_reading(id, true);
        }
    }
}

/// Whether a drain was handing the session over to a backup whose node is down now.
fn has_lost_target(cx: &Context, session: &Session) -> bool {
    let switchover = session.role.switchover();
    switchover.is_some_and(|it| it.reason == Reason::Drain && !cx.is_up(it.to))
}

/// The code for a CONNECT that arrives while the node is drained; `None`: it is not drained, or the hub decides where the client may go.
pub(super) fn refuses_clients(
    cx: &Context,
    id: ConnectionId,
    version: ProtocolVersion,
) -> Option<ReasonCode> {
    if !cx.is_draining() {
        return None;
    }
    match version {
        ProtocolVersion::V5 => {
            let listener = cx.connections.get(id)?.listener;
            let may_go = could_go_elsewhere(cx, listener);
            (!may_go).then_some(ReasonCode::UseAnotherServer)
        }
        ProtocolVersion::V31 | ProtocolVersion::V311 => Some(ReasonCode::ServerUnavailable),
    }
}

impl WorkerOperator<'_> {
    /// Accepts no more clients and hands over some of what can be handed over now. Returns what is left. To be called again until nothing is.
    pub fn drain(&mut self) -> Drained {
        let now = self.now;
        let (least, part) = STEP;
        let all = self.worker.cx.sessions.len() / part;
        let step = *self.worker.cx.drain.step.get_or_insert(all.max(least));
        // Without another node there is nothing to wait for.
        let is_alone = self.worker.cx.cluster.up.is_empty();
        let mut to_go = if is_alone { usize::MAX } else { step };
        let mut to_stop = step;
        let sessions: Vec<SessionKey> =
            self.worker.cx.sessions.iter().map(|(key, _)| key).collect();
        for key in sessions {
            if to_go == 0 && to_stop == 0 {
                break;
            }
            match self.worker.next_step(key) {
                Step::Goes if to_go > 0 => {
                    to_go -= usize::from(self.worker.drain_session(now, key))
                }
                Step::Stops if to_stop > 0 => {
                    stop_reading(&mut self.worker.cx, key);
                    to_stop -= 1;
                }
                Step::Goes | Step::Stops | Step::Waits => {}
            }
        }
        self.worker.settle_met(now);
        Drained {
            connections: self.worker.cx.traffic.connections + self.worker.primaries.wills_ending(),
            sessions: self
                .worker
                .cx
                .sessions
                .iter()
                .filter(|(_, session)| session.is_persistent())
                .count() as u64,
        }
    }

    /// Accepts clients again. Sessions that were handed over are at other nodes, and come back with their clients.
    pub fn end_drain(&mut self) {
        self.worker.cx.drain = Drain::default();
        let sessions = self.worker.cx.sessions.iter();
        let keys: Vec<SessionKey> = sessions.map(|(key, _)| key).collect();
        keys.into_iter()
            .for_each(|key| read_on(&mut self.worker.cx, key));
    }
}
