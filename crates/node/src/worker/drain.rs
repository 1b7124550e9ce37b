//! A node that is to stop without anybody losing anything: its sessions go on at their backups, then its clients are told to go.
//!
//! | step | here | the backup |
//! | --- | --- | --- |
//! | hand over | the session is covered: its client is not read any more, its messages are queued | reads `handed` behind all that was before: the copy is the session |
//! | take over | | tells the registrar, with a higher epoch |
//! | evict | the registrar says who has it now: the client is disconnected with 0x9C, the session ends without a word | |

use thicket_mqtt::{ProtocolVersion, ReasonCode};

use super::{SessionKey, Worker, close::Cause};
use crate::{ConnectionId, Drained, Now, WorkerOutput};

impl Worker {
    /// Lets nobody in any more and hands over what can be handed over now; what is left. To be called again until nothing is.
    pub fn drain(&mut self, now: Now) -> Drained {
        self.is_draining = true;
        let sessions: Vec<SessionKey> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in sessions {
            self.drain_session(now, key);
        }
        self.settle_met(now);
        Drained {
            connections: self.traffic.connections + self.wills_ending(),
            sessions: self
                .sessions
                .iter()
                .filter(|(_, session)| session.is_persistent())
                .count() as u64,
        }
    }

    fn drain_session(&mut self, now: Now, key: SessionKey) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let connection = session.connection;
        if !session.is_persistent() {
            // It ends because of us, not of its client.
            session.will = None;
            if let Some(id) = connection {
                self.send_away(now, id);
            }
            return;
        }
        if session.is_frozen || session.awaits_queue || !session.stored.is_covered() {
            return;
        }
        session.is_frozen = true;
        session.handed_at = Some(session.outbound.next_sequence());
        let stored = session.stored;
        self.journal.write_done();
        if let Some(stream) = self.journal.streams.of(stored) {
            stream.writer.handed(stored.number);
        }
        if let Some(id) = connection {
            self.outputs.push_back(WorkerOutput::SetReading(id, false));
        }
    }

    /// Ends a connection: its client finds its session on another node.
    pub(super) fn send_away(&mut self, now: Now, id: ConnectionId) {
        self.disconnect(id, ReasonCode::UseAnotherServer, "the node is drained");
        self.detach(now, id, Cause::Closed);
    }

    /// The code for a CONNECT that comes while the node is drained.
    pub(super) fn refuses_clients(&self, version: ProtocolVersion) -> Option<ReasonCode> {
        self.is_draining.then_some(match version {
            ProtocolVersion::V5 => ReasonCode::UseAnotherServer,
            ProtocolVersion::V31 | ProtocolVersion::V311 => ReasonCode::ServerUnavailable,
        })
    }
}
