//! Decodes bytes and dispatches the packets.

use thicket_mqtt::{
    Acknowledgement, AcknowledgementKind, Disconnect, PLAIN_ACKNOWLEDGEMENT_LEN, Packet, PacketId,
    ProtocolVersion, ReasonCode, decode, decode_publish, plain_acknowledgement,
};
use thicket_session::server::{Acknowledged, Outbound};

use super::{
    Worker,
    authentication::{handle_auth, handle_auth_bytes},
    connect::handle_first_bytes,
    context::Context,
    effort::leave_unfinished,
    listeners::maximum_packet_size,
    minority::check_handshake,
    publish::begins_range,
    refusal::Refusal,
    scarcity::bound_half_open,
    state::{connection::Phase, sessions::SessionKey},
};
use crate::{ConnectionId, Direction, Now};

impl Worker {
    pub(super) fn handle_received(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.cx.connections.get_mut(id) else {
            return;
        };
        if connection.is_unfinished {
            connection.partial.extend_from_slice(bytes);
            self.cx.set_reading(id, false);
            return;
        }
        self.cx.effort.begin_turn();
        let Some(connection) = self.cx.connections.get_mut(id) else {
            return;
        };
        if connection.partial.is_empty() {
            let used = self.handle_bytes(now, id, bytes);
            if used < bytes.len()
                && let Some(connection) = self.cx.connections.get_mut(id)
            {
                connection.partial.extend_from_slice(&bytes[used..]);
            }
        } else {
            let mut buffered = std::mem::take(&mut connection.partial);
            buffered.extend_from_slice(bytes);
            let used = self.handle_bytes(now, id, &buffered);
            if used < buffered.len()
                && let Some(connection) = self.cx.connections.get_mut(id)
            {
                buffered.drain(..used);
                connection.partial = buffered;
            }
        }
        pause_waiting(&mut self.cx, id);
        bound_half_open(&mut self.cx, id);
    }

    /// Handles the whole packets at the start of `bytes`. Returns how many bytes they were.
    fn handle_bytes(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) -> usize {
        let maximum = maximum_packet_size(&self.cx, id);
        let published_before = self.cx.traffic.external_in_messages;
        let mut used = 0;
        while used < bytes.len() {
            let Some(connection) = self.cx.connections.get_mut(id) else {
                return bytes.len();
            };
            let attached = match &connection.phase {
                Phase::Attached(attached) => attached,
                Phase::AwaitConnect => {
                    handle_first_bytes(&mut self.cx, now, id, &bytes[used..]);
                    match self
                        .cx
                        .connections
                        .get(id)
                        .map(|connection| &connection.phase)
                    {
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
                    handle_auth_bytes(&mut self.cx, now, id, bytes);
                    let connection = self.cx.connections.get(id);
                    let is_over = connection
                        .is_none_or(|connection| matches!(connection.phase, Phase::Closing));
                    return if is_over { bytes.len() } else { used };
                }
                Phase::Closing => return bytes.len(),
            };
            let (session, version) = (attached.session, attached.version);
            if let Some(waits_for) = self.cx.waits_for(&bytes[used..]) {
                leave_unfinished(&mut self.cx, id, waits_for);
                break;
            }
            match self.handle_next(now, id, session, (version, maximum), &bytes[used..]) {
                Ok(0) => break,
                Ok(len) => used += len,
                Err(refusal) => {
                    self.refuse(now, id, &refusal);
                    return bytes.len();
                }
            }
        }
        let published = self.cx.traffic.external_in_messages - published_before;
        if used > 0
            && let Some(connection) = self.cx.connections.get_mut(id)
        {
            connection.last_packet = now.instant;
            let listener = connection.listener;
            if let Some(attached) = connection.attached_mut() {
                attached.count_published(published);
            }
            self.cx.connections.at(listener).traffic.in_messages += published;
        }
        used
    }

    /// Handles the packet at the start of `bytes`. Returns its length, 0 if it is not whole. The most frequent packets are handled without being made
    /// a [`Packet`] first.
    #[inline(always)]
    fn handle_next(
        &mut self,
        now: Now,
        id: ConnectionId,
        session: SessionKey,
        (version, maximum): (ProtocolVersion, u32),
        bytes: &[u8],
    ) -> Result<usize, Refusal> {
        if !self.cx.is_traced() {
            if let Some((kind, packet_id)) = plain_acknowledgement(bytes) {
                let of = (session, version);
                handle_acknowledgement(&mut self.cx, now, id, of, kind, packet_id, false)?;
                return Ok(PLAIN_ACKNOWLEDGEMENT_LEN);
            }
            if let Some((publish, len)) = decode_publish(bytes, version, maximum)? {
                if begins_range(&mut self.cx, id, session, &publish) {
                    return Ok(0);
                }
                self.handle_publish(now, id, session, &publish)?;
                return Ok(len);
            }
        }
        let Some((packet, len)) = decode(bytes, version, maximum)? else {
            return Ok(0);
        };
        if let Packet::Publish(publish) = &packet
            && begins_range(&mut self.cx, id, session, publish)
        {
            return Ok(0);
        }
        self.handle_packet(now, id, session, version, packet)?;
        Ok(len)
    }

    fn handle_packet(
        &mut self,
        now: Now,
        id: ConnectionId,
        session: SessionKey,
        version: ProtocolVersion,
        packet: Packet<'_>,
    ) -> Result<(), Refusal> {
        if self.cx.is_traced() {
            self.cx.trace(Some(session), Direction::In, &packet);
        }
        let mut acknowledge = |kind, ack: &Acknowledgement<'_>| {
            let (of, is_error) = ((session, version), ack.reason_code.is_error());
            handle_acknowledgement(&mut self.cx, now, id, of, kind, ack.packet_id, is_error)
        };
        match packet {
            Packet::Publish(publish) => self.handle_publish(now, id, session, &publish),
            Packet::Puback(ack) => acknowledge(AcknowledgementKind::Puback, &ack),
            Packet::Pubrec(ack) => acknowledge(AcknowledgementKind::Pubrec, &ack),
            Packet::Pubrel(ack) => acknowledge(AcknowledgementKind::Pubrel, &ack),
            Packet::Pubcomp(ack) => acknowledge(AcknowledgementKind::Pubcomp, &ack),
            Packet::Subscribe(subscribe) => self.handle_subscribe(now, id, session, &subscribe),
            Packet::Unsubscribe(unsubscribe) => {
                self.handle_unsubscribe(now, id, session, &unsubscribe)
            }
            Packet::Pingreq => {
                self.cx.send(id, &Packet::Pingresp);
                Ok(())
            }
            Packet::Disconnect(disconnect) => self.handle_disconnect(now, id, session, &disconnect),
            Packet::Auth(auth) => handle_auth(&mut self.cx, id, session, &auth),
            Packet::Connect(_) => Err(Refusal::protocol("second CONNECT")),
            Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_) | Packet::Pingresp => {
                Err(Refusal::protocol("a packet that only a server sends"))
            }
        }
    }

    fn handle_disconnect(
        &mut self,
        now: Now,
        id: ConnectionId,
        key: SessionKey,
        disconnect: &Disconnect<'_>,
    ) -> Result<(), Refusal> {
        let maximum = self.cx.config.limits.session_expiry_maximum;
        let Some(session) = self.cx.sessions.get_mut(key) else {
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
}

/// While its CONNECT is examined a client is not read from: what it sends meanwhile stays in the kernel, and so does its end, which would
/// otherwise overtake what it sent before.
fn pause_waiting(cx: &mut Context, id: ConnectionId) {
    let Some(connection) = cx.connections.get(id) else {
        return;
    };
    let waits = matches!(
        connection.phase,
        Phase::AwaitVerdict | Phase::AwaitClaim { .. }
    );
    if waits {
        cx.set_reading(id, false);
    }
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP.
#[inline]
fn handle_acknowledgement(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    (session, version): (SessionKey, ProtocolVersion),
    kind: AcknowledgementKind,
    packet_id: PacketId,
    is_error: bool,
) -> Result<(), Refusal> {
    match kind {
        AcknowledgementKind::Puback => {
            let wrong = "PUBACK for a QoS 2 message";
            end_delivery(cx, now, session, packet_id, Outbound::handle_puback, wrong)
        }
        AcknowledgementKind::Pubrec => {
            check_handshake(cx, session)?;
            handle_pubrec(cx, now, id, (session, version), packet_id, is_error)
        }
        AcknowledgementKind::Pubrel => {
            check_handshake(cx, session)?;
            handle_pubrel(cx, id, (session, version), packet_id);
            Ok(())
        }
        AcknowledgementKind::Pubcomp => {
            let wrong = "PUBCOMP without PUBREC";
            end_delivery(cx, now, session, packet_id, Outbound::handle_pubcomp, wrong)
        }
    }
}

/// The last acknowledgement of a message. `wrong`: what it is if its packet identifier is in use otherwise.
#[inline(always)]
fn end_delivery(
    cx: &mut Context,
    now: Now,
    key: SessionKey,
    packet_id: PacketId,
    acknowledge: impl Fn(&mut Outbound, PacketId) -> Acknowledged,
    wrong: &'static str,
) -> Result<(), Refusal> {
    let Some(session) = cx.sessions.get_mut(key) else {
        return Ok(());
    };
    match acknowledge(&mut session.outbound, packet_id) {
        Acknowledged::Done => {
            cx.journal.done(session.stored, packet_id);
            if session.outbound.has_unwritten_finished() {
                cx.write_finished(key);
            }
            cx.pull(now, key);
        }
        Acknowledged::Unknown | Acknowledged::SendPubrel => {}
        Acknowledged::Wrong => return Err(Refusal::protocol(wrong)),
    }
    Ok(())
}

fn handle_pubrec(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    (key, version): (SessionKey, ProtocolVersion),
    packet_id: PacketId,
    is_error: bool,
) -> Result<(), Refusal> {
    let Some(session) = cx.sessions.get_mut(key) else {
        return Ok(());
    };
    match session.outbound.handle_pubrec(packet_id, is_error) {
        Acknowledged::Done => {
            cx.journal.done(session.stored, packet_id);
            cx.write_finished(key);
            cx.pull(now, key);
        }
        Acknowledged::SendPubrel => {
            let sequence = session.outbound.sequence_of(packet_id);
            cx.journal.received(session.stored, sequence, packet_id);
            cx.write_finished(key);
            cx.hold_output(id, key);
            cx.acknowledge_to(
                id,
                AcknowledgementKind::Pubrel,
                packet_id,
                ReasonCode::Success,
            );
        }
        // PUBREL answers only what was received [MQTT-4.3.3-4]; the client has given this one up.
        Acknowledged::Unknown if is_error => {}
        Acknowledged::Unknown => {
            // Before 5.0 there is no code for this: PUBREL lets the client finish.
            let code = match version {
                ProtocolVersion::V5 => ReasonCode::PacketIdentifierNotFound,
                ProtocolVersion::V31 | ProtocolVersion::V311 => ReasonCode::Success,
            };
            cx.acknowledge_to(id, AcknowledgementKind::Pubrel, packet_id, code);
        }
        Acknowledged::Wrong => return Err(Refusal::protocol("PUBREC for a QoS 1 message")),
    }
    Ok(())
}

fn handle_pubrel(
    cx: &mut Context,
    id: ConnectionId,
    (key, version): (SessionKey, ProtocolVersion),
    packet_id: PacketId,
) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let found = session.inbound.handle_pubrel(packet_id);
    if found {
        cx.journal.released(session.stored, packet_id);
    }
    let code = match version {
        ProtocolVersion::V5 if !found => ReasonCode::PacketIdentifierNotFound,
        ProtocolVersion::V5 | ProtocolVersion::V31 | ProtocolVersion::V311 => ReasonCode::Success,
    };
    cx.hold_output(id, key);
    cx.acknowledge_to(id, AcknowledgementKind::Pubcomp, packet_id, code);
}
