//! The effect of each packet from the server.

use thicket_mqtt::{
    Acknowledgement, Connack, Packet, PacketId, PacketKind, ProtocolVersion, Publish, Qos,
    ReasonCode, decode,
};

use super::aliases::{InboundAliases, OutboundAliases};
use super::config::{CleanStart, ServerLimits};
use super::inbound::Reception;
use super::keep_alive::KeepAlive;
use super::outbound::{Answer, Reaction, Resumption};
use super::{Client, Connection, DisconnectReason, Event, PeerError, State, append};
use crate::Instant;

/// DUP in the first byte of a PUBLISH.
const DUP: u8 = 0b1000;

impl Client {
    #[inline]
    pub(super) fn on_packet(
        &mut self,
        now: Instant,
        packet: Packet<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), PeerError> {
        match &self.state {
            State::Connected(_) => match packet {
                Packet::Publish(publish) => self.on_publish(now, publish, on_event),
                packet => self.on_other_packet(now, &packet, on_event),
            },
            State::Connecting {
                clean_start,
                last_sent,
                ..
            } => {
                let begun = (*clean_start, *last_sent);
                self.on_packet_before_connack(now, begun, &packet, on_event)
            }
            // The caller of this reads only from open connections.
            State::Disconnected | State::Closing => Ok(()),
        }
    }

    fn on_packet_before_connack(
        &mut self,
        now: Instant,
        (clean_start, last_sent): (CleanStart, Instant),
        packet: &Packet<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), PeerError> {
        match packet {
            Packet::Connack(connack) if connack.reason_code.is_error() => {
                self.close();
                on_event(Event::Disconnected(DisconnectReason::Refused(connack)));
                Ok(())
            }
            Packet::Connack(connack) => self.on_connack(last_sent, clean_start, connack, on_event),
            Packet::Auth(auth) if self.config.authentication.is_some() => {
                let deadline = now + self.config.connect_timeout;
                self.state = State::Connecting {
                    clean_start,
                    last_sent,
                    deadline,
                };
                on_event(Event::Authentication(auth));
                Ok(())
            }
            packet => Err(self.unexpected(packet.kind())),
        }
    }

    fn on_connack(
        &mut self,
        last_sent: Instant,
        clean_start: CleanStart,
        connack: &Connack<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), PeerError> {
        if connack.session_present && clean_start == CleanStart::Yes {
            return Err(PeerError::SessionPresentAfterCleanStart);
        }
        // A 3.1 server cannot report it. To send again what it may not have costs less than to lose what it has.
        let is_unsaid = self.config.version == ProtocolVersion::V31;
        let session_present =
            connack.session_present || (is_unsaid && clean_start == CleanStart::No);
        if let Some(assigned) = connack.assigned_client_identifier {
            assigned.clone_into(&mut self.config.client_id);
        }
        let limits = ServerLimits::from_connack(connack);
        let keep_alive = connack.server_keep_alive.unwrap_or(self.config.keep_alive);
        let aliases = self
            .config
            .outbound_topic_aliases
            .min(limits.topic_alias_maximum);
        self.state = State::Connected(Box::new(Connection {
            keep_alive: KeepAlive::new(last_sent, keep_alive, self.config.ping_timeout),
            inbound_aliases: InboundAliases::new(self.config.topic_alias_maximum),
            outbound_aliases: OutboundAliases::new(aliases),
            limits: limits.clone(),
        }));
        // A server may have a session that this client, perhaps restarted, does not remember: it is treated as one in which nothing of ours is open.
        // By [MQTT-3.2.2-4] it would have to be refused, which would lose what waits there.
        let resumption = if session_present {
            self.outbound.resume(|bytes| may_send_again(&limits, bytes))
        } else {
            self.inbound.forget();
            self.outbound.forget()
        };
        on_event(Event::Connected {
            session_present,
            connack,
        });
        self.report(&resumption, on_event);
        for packet_id in resumption.pubrels {
            self.send_acknowledgement(PacketKind::Pubrel, packet_id, ReasonCode::Success);
        }
        self.send_unsent();
        Ok(())
    }

    /// Informs the caller of the results of messages of earlier connections.
    fn report(&self, resumption: &Resumption, on_event: &mut impl FnMut(Event<'_>)) {
        for packet_id in &resumption.settled {
            on_event(Event::Acknowledged {
                packet_id: *packet_id,
                reason_code: ReasonCode::Success,
            });
        }
        for (packet_id, bytes) in &resumption.discarded {
            let publish = match decode(bytes, self.config.version, u32::MAX) {
                Ok(Some((Packet::Publish(publish), _))) => Some(publish),
                // Only the identifier was kept.
                Ok(_) | Err(_) => None,
            };
            on_event(Event::Discarded {
                packet_id: *packet_id,
                publish,
            });
        }
    }

    #[inline]
    fn on_publish(
        &mut self,
        now: Instant,
        publish: Publish<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), PeerError> {
        let State::Connected(connection) = &mut self.state else {
            return Ok(());
        };
        let reception = match publish.packet_id {
            None => None,
            Some(packet_id) => Some((packet_id, self.inbound.on_publish(publish.qos, packet_id)?)),
        };
        // An alias is learnt from a message that is not delivered, too.
        let topic = match publish.topic_alias {
            None => publish.topic,
            Some(alias) => connection.inbound_aliases.resolve(publish.topic, alias)?,
        };
        match reception {
            None | Some((_, Reception::Deliver | Reception::DeliverAndAcknowledge)) => {
                on_event(Event::Message(Publish {
                    topic,
                    topic_alias: None,
                    ..publish
                }));
            }
            Some((_, Reception::AcknowledgeAgain | Reception::Ignore)) => {}
        }
        if let Some((packet_id, Reception::DeliverAndAcknowledge | Reception::AcknowledgeAgain)) =
            reception
        {
            connection.keep_alive.on_sent(now);
            let kind = if publish.qos == Qos::ExactlyOnce {
                PacketKind::Pubrec
            } else {
                PacketKind::Puback
            };
            self.send_acknowledgement(kind, packet_id, ReasonCode::Success);
        }
        Ok(())
    }

    /// Anything but a PUBLISH while connected.
    fn on_other_packet(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), PeerError> {
        match packet {
            Packet::Puback(puback) => {
                self.on_acknowledgement(now, puback, Answer::Puback, on_event)
            }
            Packet::Pubrec(pubrec) if pubrec.reason_code.is_error() => {
                self.on_acknowledgement(now, pubrec, Answer::PubrecRefused, on_event)
            }
            Packet::Pubrec(pubrec) => {
                self.on_acknowledgement(now, pubrec, Answer::PubrecAccepted, on_event)
            }
            Packet::Pubcomp(pubcomp) => {
                self.on_acknowledgement(now, pubcomp, Answer::Pubcomp, on_event)
            }
            Packet::Pubrel(pubrel) => {
                let reason_code = self.inbound.on_pubrel(pubrel.packet_id)?;
                self.note_sent(now);
                self.send_acknowledgement(PacketKind::Pubcomp, pubrel.packet_id, reason_code);
                Ok(())
            }
            Packet::Suback(suback) => {
                let (packet_id, reason_codes) = (suback.packet_id, &*suback.reason_codes);
                self.outbound
                    .handle(packet_id, Answer::Suback(reason_codes.len()))?;
                self.note_properties(packet_id, &suback.user_properties);
                on_event(Event::Subscribed {
                    packet_id,
                    reason_codes,
                });
                Ok(())
            }
            Packet::Unsuback(unsuback) => {
                let (packet_id, reason_codes) = (unsuback.packet_id, &*unsuback.reason_codes);
                let codes = self
                    .config
                    .version
                    .has_properties()
                    .then_some(reason_codes.len());
                self.outbound.handle(packet_id, Answer::Unsuback(codes))?;
                on_event(Event::Unsubscribed {
                    packet_id,
                    reason_codes,
                });
                Ok(())
            }
            Packet::Pingresp => {
                if let State::Connected(connection) = &mut self.state {
                    connection.keep_alive.on_pong();
                }
                on_event(Event::Pong);
                Ok(())
            }
            Packet::Disconnect(disconnect) if self.config.version.has_properties() => {
                self.close();
                on_event(Event::Disconnected(DisconnectReason::ByServer(disconnect)));
                Ok(())
            }
            Packet::Auth(auth) if self.config.authentication.is_some() => {
                on_event(Event::Authentication(auth));
                Ok(())
            }
            Packet::Publish(_)
            | Packet::Connack(_)
            | Packet::Connect(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::Pingreq
            | Packet::Disconnect(_)
            | Packet::Auth(_) => Err(self.unexpected(packet.kind())),
        }
    }

    /// PUBACK, PUBREC or PUBCOMP.
    fn on_acknowledgement(
        &mut self,
        now: Instant,
        acknowledgement: &Acknowledgement<'_>,
        answer: Answer,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), PeerError> {
        let Acknowledgement {
            packet_id,
            reason_code,
            ..
        } = *acknowledgement;
        let reaction = self.outbound.handle(packet_id, answer)?;
        self.note_properties(packet_id, &acknowledgement.user_properties);
        match reaction {
            Reaction::Ignore => {}
            Reaction::Settled => on_event(Event::Acknowledged {
                packet_id,
                reason_code,
            }),
            Reaction::Release => {
                self.note_sent(now);
                self.send_acknowledgement(PacketKind::Pubrel, packet_id, ReasonCode::Success);
            }
            Reaction::ReleaseUnknown => {
                self.note_sent(now);
                self.send_acknowledgement(
                    PacketKind::Pubrel,
                    packet_id,
                    ReasonCode::PacketIdentifierNotFound,
                );
            }
        }
        self.send_unsent();
        Ok(())
    }

    /// Sends messages of an earlier connection again, within the Receive Maximum and the capacity of the output.
    pub(super) fn send_unsent(&mut self) {
        if !self.outbound.has_unsent() {
            return;
        }
        let State::Connected(connection) = &self.state else {
            return;
        };
        let maximum = connection
            .limits
            .receive_maximum
            .min(self.config.maximum_inflight);
        while self.output.len() < self.config.maximum_output_bytes {
            let Some(packet) = self.outbound.next_unsent(maximum.into()) else {
                return;
            };
            let out = self.output.appender();
            let start = out.len();
            out.extend_from_slice(packet);
            // [MQTT-3.3.1-1]
            out[start] |= DUP;
        }
    }

    pub(super) fn send_acknowledgement(
        &mut self,
        kind: PacketKind,
        packet_id: PacketId,
        reason_code: ReasonCode,
    ) {
        append_acknowledgement(
            &mut self.output,
            self.config.version,
            kind,
            Acknowledgement::new(packet_id, reason_code),
        );
    }

    fn note_sent(&mut self, now: Instant) {
        if let State::Connected(connection) = &mut self.state {
            connection.keep_alive.on_sent(now);
        }
    }

    const fn unexpected(&self, kind: PacketKind) -> PeerError {
        PeerError::UnexpectedPacket {
            kind,
            state: self.state(),
        }
    }
}

/// Appends PUBACK, PUBREC, PUBREL or PUBCOMP.
pub(super) fn append_acknowledgement(
    output: &mut super::OutputBuffer,
    version: ProtocolVersion,
    kind: PacketKind,
    acknowledgement: Acknowledgement<'_>,
) {
    let packet = match kind {
        PacketKind::Puback => Packet::Puback(acknowledgement),
        PacketKind::Pubrec => Packet::Pubrec(acknowledgement),
        PacketKind::Pubrel => Packet::Pubrel(acknowledgement),
        _ => Packet::Pubcomp(acknowledgement),
    };
    append(output, version, &packet);
}

/// Whether the server accepts the kept PUBLISH `packet` on this connection: its limits may be other ones than before.
fn may_send_again(limits: &ServerLimits, packet: &[u8]) -> bool {
    let Some(first) = packet.first() else {
        return false;
    };
    let qos = Qos::from_bits(first >> 1 & 0b11).unwrap_or_default();
    limits
        .check_publish(qos, first & 1 != 0, packet.len())
        .is_ok()
}
