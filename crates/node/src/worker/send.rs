//! Packets to clients in service, if they fit and the client accepts them.

use thicket_mqtt::{
    Acknowledgement, AcknowledgementKind, PLAIN_ACKNOWLEDGEMENT_LEN, Packet, PacketId, ReasonCode,
    encode_plain_acknowledgement,
};

use super::{context::Context, state::places::PLACE};
use crate::{ConnectionId, Direction};

impl Context {
    /// Appends a PUBACK, PUBREC, PUBREL or PUBCOMP to a connection in service.
    pub(super) fn acknowledge_to(
        &mut self,
        id: ConnectionId,
        kind: AcknowledgementKind,
        packet_id: PacketId,
        reason_code: ReasonCode,
    ) {
        if reason_code == ReasonCode::Success && !self.is_traced() {
            let Some(connection) = self.connections.get_mut(id) else {
                return;
            };
            let Some(attached) = connection.attached() else {
                return;
            };
            if attached.better_nodes.is_some() && kind == AcknowledgementKind::Puback {
                return self.acknowledge_with_place(id, packet_id, reason_code);
            }
            if attached.maximum_packet_size as usize >= PLAIN_ACKNOWLEDGEMENT_LEN {
                let bytes = encode_plain_acknowledgement(kind, packet_id);
                connection.out.bytes.extend_from_slice(&bytes);
                self.connections.mark_dirty(id);
            }
            return;
        }
        let ack = Acknowledgement::new(packet_id, reason_code);
        let packet = match kind {
            AcknowledgementKind::Puback => {
                return self.acknowledge_with_place(id, packet_id, reason_code);
            }
            AcknowledgementKind::Pubrec => Packet::Pubrec(ack),
            AcknowledgementKind::Pubrel => Packet::Pubrel(ack),
            AcknowledgementKind::Pubcomp => Packet::Pubcomp(ack),
        };
        self.send(id, &packet);
    }

    /// A PUBACK, which names a better node for the topic if that is owed.
    fn acknowledge_with_place(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        reason_code: ReasonCode,
    ) {
        let reference = self
            .take_owed_place(id, packet_id)
            .filter(|_| !reason_code.is_error())
            .and_then(|node| self.server_reference(id, &[node]));
        let place = reference.as_deref().map(|reference| (PLACE, reference));
        let ack = Acknowledgement {
            user_properties: place.into_iter().collect(),
            ..Acknowledgement::new(packet_id, reason_code)
        };
        self.send(id, &Packet::Puback(ack));
    }

    /// Appends a packet to a connection in service.
    pub(super) fn send(&mut self, id: ConnectionId, packet: &Packet<'_>) {
        if self.is_traced() {
            self.trace(self.connections.session_of(id), Direction::Out, packet);
        }
        let Some(connection) = self.connections.get_mut(id) else {
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
            self.connections.mark_dirty(id);
        }
    }
}

/// Reason strings and user properties are sent only where the client wants them [MQTT-3.1.2-29].
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
