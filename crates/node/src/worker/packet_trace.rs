//! Packets from and to clients that an operator watches.

use thicket_mqtt::{Packet, PacketId, Publish, Qos};

use super::{context::Context, state::sessions::SessionKey};
use crate::Direction;

impl Context {
    pub(super) const fn is_traced(&self) -> bool {
        self.packet_trace.is_some()
    }

    /// A packet from or to the client of a session. Called only while there is a trace.
    #[cold]
    pub(super) fn trace(
        &mut self,
        key: Option<SessionKey>,
        direction: Direction,
        packet: &Packet<'_>,
    ) {
        let Some(session) = key.and_then(|key| self.sessions.get(key)) else {
            return;
        };
        if let Some(trace) = &mut self.packet_trace {
            trace.note(&session.client_id, direction, packet);
        }
    }

    /// A message to the client of a session.
    #[cold]
    pub(super) fn trace_publish(
        &mut self,
        key: SessionKey,
        publish: &Publish<'_>,
        qos: Qos,
        packet_id: Option<PacketId>,
    ) {
        let publish = Publish {
            qos,
            packet_id,
            ..*publish
        };
        self.trace(Some(key), Direction::Out, &Packet::Publish(publish));
    }
}
