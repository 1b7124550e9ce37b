//! From bytes to packets to whoever handles them.

use thicket_mqtt::{Acknowledgement, Disconnect, Packet, ProtocolVersion, ReasonCode, decode};
use thicket_session::server::Acknowledged;

use super::{Phase, Refusal, SessionKey, Worker};
use crate::{ConnectionId, Direction, Now, WorkerOutput};

impl Worker {
    pub(super) fn handle_received(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
        if connection.partial.is_empty() {
            let used = self.handle_bytes(now, id, bytes);
            if used < bytes.len()
                && let Some(connection) = self.connection_mut(id)
            {
                connection.partial.extend_from_slice(&bytes[used..]);
            }
        } else {
            let mut buffered = std::mem::take(&mut connection.partial);
            buffered.extend_from_slice(bytes);
            let used = self.handle_bytes(now, id, &buffered);
            if used < buffered.len()
                && let Some(connection) = self.connection_mut(id)
            {
                buffered.drain(..used);
                connection.partial = buffered;
            }
        }
        self.pause_waiting(id);
        self.bound_half_open(id);
    }

    /// While its CONNECT is looked into a client is not read from: what it says meanwhile stays with the kernel, and so does its
    /// end, which else would overtake what it said before.
    fn pause_waiting(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let waits = matches!(
            connection.phase,
            Phase::AwaitVerdict | Phase::AwaitClaim { .. }
        );
        if waits {
            self.outputs.push_back(WorkerOutput::SetReading(id, false));
        }
    }

    /// Handles the whole packets at the start of `bytes`; how many bytes they were.
    pub(super) fn handle_bytes(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) -> usize {
        let maximum = self.maximum_packet_size(id);
        let mut used = 0;
        while used < bytes.len() {
            let Some(connection) = self.connection_mut(id) else {
                return bytes.len();
            };
            let attached = match &connection.phase {
                Phase::Attached(attached) => attached,
                Phase::AwaitConnect => {
                    self.handle_first_bytes(now, id, &bytes[used..]);
                    match self.connection(id).map(|connection| &connection.phase) {
                        // The CONNECT stays buffered until the session is attached.
                        Some(
                            Phase::AwaitConnect
                            | Phase::AwaitVerdict
                            | Phase::AwaitAuth(_)
                            | Phase::AwaitClaim { .. },
                        ) => return used,
                        Some(Phase::Attached(_) | Phase::Closing) | None => return bytes.len(),
                    }
                }
                Phase::AwaitVerdict | Phase::AwaitClaim { .. } => return used,
                Phase::AwaitAuth(_) => {
                    self.handle_auth_bytes(now, id, bytes);
                    let connection = self.connection(id);
                    let is_over = connection
                        .is_none_or(|connection| matches!(connection.phase, Phase::Closing));
                    return if is_over { bytes.len() } else { used };
                }
                Phase::Closing => return bytes.len(),
            };
            let (session, version) = (attached.session, attached.version);
            match decode(&bytes[used..], version, maximum) {
                Ok(Some((packet, len))) => {
                    connection.last_packet = now.instant;
                    used += len;
                    if let Err(refusal) = self.handle_packet(now, id, session, version, packet) {
                        self.refuse(now, id, &refusal);
                        return bytes.len();
                    }
                }
                Ok(None) => return used,
                Err(error) => {
                    self.refuse(
                        now,
                        id,
                        &Refusal::new(error.reason_code(), error.to_string()),
                    );
                    return bytes.len();
                }
            }
        }
        used
    }

    #[inline(always)]
    fn handle_packet(
        &mut self,
        now: Now,
        id: ConnectionId,
        session: SessionKey,
        version: ProtocolVersion,
        packet: Packet<'_>,
    ) -> Result<(), Refusal> {
        if self.is_traced() {
            self.trace(Some(session), Direction::In, &packet);
        }
        match packet {
            Packet::Publish(publish) => self.handle_publish(now, id, session, &publish),
            Packet::Puback(ack) => self.handle_puback(now, session, &ack),
            Packet::Pubrec(ack) => {
                self.check_handshake(session)?;
                self.handle_pubrec(now, id, session, version, &ack)
            }
            Packet::Pubrel(ack) => {
                self.check_handshake(session)?;
                self.handle_pubrel(id, session, version, &ack)
            }
            Packet::Pubcomp(ack) => self.handle_pubcomp(now, session, &ack),
            Packet::Subscribe(subscribe) => self.handle_subscribe(now, id, session, &subscribe),
            Packet::Unsubscribe(unsubscribe) => {
                self.handle_unsubscribe(now, id, session, &unsubscribe)
            }
            Packet::Pingreq => {
                self.send(id, &Packet::Pingresp);
                Ok(())
            }
            Packet::Disconnect(disconnect) => self.handle_disconnect(now, id, session, &disconnect),
            Packet::Auth(auth) => self.handle_auth(id, session, &auth),
            Packet::Connect(_) => Err(Refusal::protocol("second CONNECT")),
            Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_) | Packet::Pingresp => {
                Err(Refusal::protocol("a packet that only a server sends"))
            }
        }
    }

    fn handle_puback(
        &mut self,
        now: Now,
        key: SessionKey,
        ack: &Acknowledgement<'_>,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(key) else {
            return Ok(());
        };
        match session.outbound.handle_puback(ack.packet_id) {
            Acknowledged::Done => {
                self.journal.done(session.stored, ack.packet_id);
                self.pull(now, key);
            }
            Acknowledged::Unknown | Acknowledged::SendPubrel => {}
            Acknowledged::Wrong => return Err(Refusal::protocol("PUBACK for a QoS 2 message")),
        }
        Ok(())
    }

    fn handle_pubrec(
        &mut self,
        now: Now,
        id: ConnectionId,
        key: SessionKey,
        version: ProtocolVersion,
        ack: &Acknowledgement<'_>,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(key) else {
            return Ok(());
        };
        match session
            .outbound
            .handle_pubrec(ack.packet_id, ack.reason_code.is_error())
        {
            Acknowledged::Done => {
                self.journal.done(session.stored, ack.packet_id);
                self.pull(now, key);
            }
            Acknowledged::SendPubrel => {
                let sequence = session.outbound.sequence_of(ack.packet_id);
                self.journal
                    .received(session.stored, sequence, ack.packet_id);
                self.hold_output(id, key);
                self.send(
                    id,
                    &Packet::Pubrel(Acknowledgement::new(ack.packet_id, ReasonCode::Success)),
                );
            }
            Acknowledged::Unknown => {
                // Before 5.0 there is no code for this: PUBREL lets the client finish.
                let code = match version {
                    ProtocolVersion::V5 => ReasonCode::PacketIdentifierNotFound,
                    ProtocolVersion::V31 | ProtocolVersion::V311 => ReasonCode::Success,
                };
                self.send(
                    id,
                    &Packet::Pubrel(Acknowledgement::new(ack.packet_id, code)),
                );
            }
            Acknowledged::Wrong => return Err(Refusal::protocol("PUBREC for a QoS 1 message")),
        }
        Ok(())
    }

    fn handle_pubrel(
        &mut self,
        id: ConnectionId,
        key: SessionKey,
        version: ProtocolVersion,
        ack: &Acknowledgement<'_>,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(key) else {
            return Ok(());
        };
        let found = session.inbound.handle_pubrel(ack.packet_id);
        if found {
            self.journal.released(session.stored, ack.packet_id);
        }
        let code = match version {
            ProtocolVersion::V5 if !found => ReasonCode::PacketIdentifierNotFound,
            ProtocolVersion::V5 | ProtocolVersion::V31 | ProtocolVersion::V311 => {
                ReasonCode::Success
            }
        };
        self.hold_output(id, key);
        self.send(
            id,
            &Packet::Pubcomp(Acknowledgement::new(ack.packet_id, code)),
        );
        Ok(())
    }

    fn handle_pubcomp(
        &mut self,
        now: Now,
        key: SessionKey,
        ack: &Acknowledgement<'_>,
    ) -> Result<(), Refusal> {
        let Some(session) = self.sessions.get_mut(key) else {
            return Ok(());
        };
        match session.outbound.handle_pubcomp(ack.packet_id) {
            Acknowledged::Done => {
                self.journal.done(session.stored, ack.packet_id);
                self.pull(now, key);
            }
            Acknowledged::Unknown | Acknowledged::SendPubrel => {}
            Acknowledged::Wrong => return Err(Refusal::protocol("PUBCOMP without PUBREC")),
        }
        Ok(())
    }

    fn handle_disconnect(
        &mut self,
        now: Now,
        id: ConnectionId,
        key: SessionKey,
        disconnect: &Disconnect<'_>,
    ) -> Result<(), Refusal> {
        let maximum = self.config.limits.session_expiry_maximum;
        let Some(session) = self.sessions.get_mut(key) else {
            return Ok(());
        };
        if let Some(interval) = disconnect.session_expiry_interval {
            if session.expiry_interval == 0 && interval > 0 {
                return Err(Refusal::protocol(
                    "session expiry raised from 0 in DISCONNECT",
                ));
            }
            session.expiry_interval = interval.min(maximum);
        }
        if disconnect.reason_code == ReasonCode::Success {
            // [MQTT-3.14.4-3]
            session.will = None;
        }
        self.end_connection(now, id);
        Ok(())
    }

    /// Appends a packet to a connection in service.
    pub(super) fn send(&mut self, id: ConnectionId, packet: &Packet<'_>) {
        if self.is_traced() {
            self.trace(self.session_of(id), Direction::Out, packet);
        }
        let Some(connection) = self.connection_mut(id) else {
            return;
        };
        let Some(attached) = connection.attached() else {
            return;
        };
        let (version, maximum, problem_information) = (
            attached.version,
            attached.maximum_packet_size,
            attached.problem_information,
        );
        let trimmed;
        let packet = if problem_information {
            packet
        } else {
            trimmed = without_problem_information(packet.clone());
            &trimmed
        };
        // What does not fit even without its reason string is not sent: the client asked for that (MQTT 3.1.2.11.4).
        if packet
            .encode_within(version, maximum, &mut connection.out.bytes)
            .is_ok()
        {
            self.mark_dirty(id);
        }
    }
}

/// Reason strings and user properties go only where the client wants them [MQTT-3.1.2-29].
fn without_problem_information(mut packet: Packet<'_>) -> Packet<'_> {
    match &mut packet {
        Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
            ack.reason_string = None;
            ack.user_properties.clear();
        }
        Packet::Suback(suback) => {
            suback.reason_string = None;
            suback.user_properties.clear();
        }
        Packet::Unsuback(unsuback) => {
            unsuback.reason_string = None;
            unsuback.user_properties.clear();
        }
        Packet::Auth(auth) => {
            auth.reason_string = None;
            auth.user_properties.clear();
        }
        // DISCONNECT and CONNACK may have them always.
        Packet::Connect(_)
        | Packet::Connack(_)
        | Packet::Publish(_)
        | Packet::Subscribe(_)
        | Packet::Unsubscribe(_)
        | Packet::Pingreq
        | Packet::Pingresp
        | Packet::Disconnect(_) => {}
    }
    packet
}
