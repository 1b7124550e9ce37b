//! A PUBLISH from a client: checked, sent on its way, acknowledged when its conditions are met.

use std::rc::Rc;

use thicket_mqtt::{AcknowledgementKind, PacketId, ProtocolVersion, Publish, Qos, ReasonCode};
use thicket_overlay::record::PublicationId;
use thicket_session::server::InboundPublish;

use super::{
    Worker,
    acknowledge::acknowledge,
    activity::note_published,
    better_nodes::consider_better_node,
    budget::check_rate,
    capacity::{Audience, exceeds_limits},
    context::Context,
    forward::forward,
    refusal::Refusal,
    replication::{hold_input, wait_for_backups},
    rights::refuse_publish,
    state::{
        activity::is_sampled,
        debts::{Debt, Owed, Publisher},
        interests::{Route, is_reserved},
        outgoing::Outgoing,
        publication::{Outcome, Source},
        sessions::{OwedAcknowledgement, SessionKey},
    },
};
use crate::{ConnectionId, Now};

/// A PUBLISH of QoS 1 or 2 that has arrived.
#[derive(Debug, Clone, Copy)]
struct Arrival<'a> {
    connection: ConnectionId,
    session: SessionKey,
    publish: &'a Publish<'a>,
    route: &'a Route,
    /// Why the publisher may not.
    refusal: Option<ReasonCode>,
}

/// Whether a PUBLISH waits because it begins a range of generations. It would be sent to others at once: if this node died then, a backup without the
/// range would give it another generation when its client sends it again, and whoever has it already would take it for another publication.
#[inline]
pub(super) fn begins_range(
    cx: &mut Context,
    id: ConnectionId,
    key: SessionKey,
    publish: &Publish<'_>,
) -> bool {
    match publish.packet_id {
        Some(packet_id) if publish.qos == Qos::ExactlyOnce => {
            begin_range(cx, id, key, packet_id, publish.dup)
        }
        Some(_) | None => false,
    }
}

#[inline(never)]
fn begin_range(
    cx: &mut Context,
    id: ConnectionId,
    key: SessionKey,
    packet_id: PacketId,
    dup: bool,
) -> bool {
    let session = cx.sessions.get_mut(key);
    let Some(session) = session.filter(|session| session.is_persistent()) else {
        return false;
    };
    if !session.inbound.begin_range(packet_id, dup) {
        return false;
    }
    cx.journal.range(session);
    cx.config.waits_for_backups && hold_input(cx, id, key)
}

impl Worker {
    pub(super) fn handle_publish(
        &mut self,
        now: Now,
        id: ConnectionId,
        key: SessionKey,
        publish: &Publish<'_>,
    ) -> Result<(), Refusal> {
        if !publish.subscription_identifiers.is_empty() {
            // [MQTT-3.3.4-6]
            return Err(Refusal::protocol(
                "PUBLISH from a client with a subscription identifier",
            ));
        }
        let over = check_rate(&mut self.cx, now, id, publish)?;
        self.cx.traffic.external_in_messages += 1;
        self.cx.traffic.external_in_bytes += publish.payload.len() as u64;
        if is_sampled(self.cx.traffic.external_in_messages) {
            note_published(&mut self.cx, id, publish);
        }
        let topic = full_topic(&mut self.cx, id, publish)?;
        let named;
        let publish = match &topic {
            None => publish,
            Some(topic) => {
                named = Publish {
                    topic,
                    topic_alias: None,
                    ..*publish
                };
                &named
            }
        };
        self.handle_named(now, id, key, publish, over)
    }

    /// A PUBLISH with its topic in it. `over`: it is over a limit.
    fn handle_named(
        &mut self,
        now: Now,
        id: ConnectionId,
        key: SessionKey,
        publish: &Publish<'_>,
        over: Option<ReasonCode>,
    ) -> Result<(), Refusal> {
        let route = self.cx.route(publish.topic);
        route.published.set(route.published.get() + 1);
        self.relocations
            .follow(&mut self.cx, now, id, &route, publish);
        consider_better_node(&mut self.cx, now, id, publish, &route);
        self.cx.traffic.refused_messages += u64::from(route.refusal.is_some());
        let refusal = route
            .refusal
            .or_else(|| refuse_publish(&mut self.cx, key, publish.topic))
            .or_else(|| {
                let is_refused = self.cx.cluster.is_minority && publish.qos > Qos::AtMostOnce;
                is_refused.then_some(ReasonCode::QuotaExceeded)
            })
            .or(over);
        let arrival = Arrival {
            connection: id,
            session: key,
            publish,
            route: &route,
            refusal,
        };
        match (publish.qos, publish.packet_id) {
            (Qos::AtMostOnce, _) | (_, None) => {
                if refusal.is_none() {
                    let source = Source {
                        session: Some(key),
                        ..Source::default()
                    };
                    self.publish(now, publish, &route, source);
                }
                Ok(())
            }
            (Qos::AtLeastOnce, Some(packet_id)) => {
                self.publish_and_answer(now, &arrival, packet_id, Source::default())
            }
            (Qos::ExactlyOnce, Some(packet_id)) => self.handle_qos2(now, &arrival, packet_id),
        }
    }

    fn handle_qos2(
        &mut self,
        now: Now,
        arrival: &Arrival<'_>,
        packet_id: PacketId,
    ) -> Result<(), Refusal> {
        let Some(session) = self.cx.sessions.get_mut(arrival.session) else {
            return Ok(());
        };
        let dup = arrival.publish.dup;
        let (generation, is_repeated) = match session.inbound.handle_publish(packet_id, dup) {
            InboundPublish::Deliver {
                generation,
                is_repeated,
            } => (generation, is_repeated),
            InboundPublish::Wait => return Ok(()),
            InboundPublish::AnswerAgain => {
                let id = arrival.connection;
                self.cx.hold_output(id, arrival.session);
                self.cx.acknowledge_to(
                    id,
                    AcknowledgementKind::Pubrec,
                    packet_id,
                    ReasonCode::Success,
                );
                return Ok(());
            }
        };
        let publication = session.is_persistent().then_some(PublicationId {
            session: session.uid,
            packet_id: packet_id.value(),
            generation,
        });
        // Other nodes receive the publication under this identity only after it is stored.
        self.cx
            .journal
            .inbound(session.stored, &session.inbound, packet_id);
        let source = Source {
            publication: publication.as_ref(),
            is_repeated,
            ..Source::default()
        };
        self.publish_and_answer(now, arrival, packet_id, source)
    }

    fn publish_and_answer(
        &mut self,
        now: Now,
        arrival: &Arrival<'_>,
        packet_id: PacketId,
        source: Source<'_>,
    ) -> Result<(), Refusal> {
        if let Some(reason_code) = arrival.refusal {
            answer(&mut self.cx, arrival, packet_id, reason_code);
            return Ok(());
        }
        check_receive_maximum(&self.cx, arrival.session)?;
        let audience = Audience::Everybody {
            publisher: Some(arrival.session),
        };
        if exceeds_limits(&mut self.cx, now, arrival.publish, arrival.route, audience) {
            answer(&mut self.cx, arrival, packet_id, ReasonCode::QuotaExceeded);
            return Ok(());
        }
        let (key, publish) = (arrival.session, arrival.publish);
        let Some(session) = self.cx.sessions.get(key) else {
            return Ok(());
        };
        let owed = Owed {
            session: key,
            session_serial: session.serial,
            sequence: session.next_acknowledgement(),
            packet_id,
        };
        let source = Source {
            session: Some(key),
            debt: Some(Debt::Publisher(Publisher::Client(owed))),
            ..source
        };
        let outcome = self.publish(now, publish, arrival.route, source);
        match outcome {
            Outcome::NoRecipients if !publish.retain => {
                answer(
                    &mut self.cx,
                    arrival,
                    packet_id,
                    ReasonCode::NoMatchingSubscribers,
                );
            }
            Outcome::NoRecipients | Outcome::Met => {
                answer(&mut self.cx, arrival, packet_id, ReasonCode::Success)
            }
            Outcome::Open(open) => {
                if let Some(session) = self.cx.sessions.get_mut(key) {
                    session.owe(OwedAcknowledgement {
                        packet_id,
                        qos: publish.qos,
                        reason_code: ReasonCode::Success,
                        open,
                    });
                }
            }
        }
        Ok(())
    }

    /// Sends a message to all recipients, here and elsewhere.
    pub(super) fn publish(
        &mut self,
        now: Now,
        publish: &Publish<'_>,
        route: &Route,
        source: Source<'_>,
    ) -> Outcome {
        if route.is_observed.get() {
            return self.publish_observed(now, publish, route, source);
        }
        let expires_at = publish
            .message_expiry_interval
            .map(|seconds| now.instant + std::time::Duration::from_secs(u64::from(seconds)));
        let mut outgoing = Outgoing::new(publish, expires_at);
        if route.withheld > 0 {
            self.cx.traffic.withheld_messages += u64::from(route.withheld);
        }
        outgoing.set_publication(source.publication);
        outgoing.is_seen = self.cx.arrivals.note(&outgoing) && source.is_repeated;
        let recipients = &*route.recipients;
        if route.is_local() && !publish.retain {
            self.cx
                .deliver(now, recipients, &mut outgoing, source.session);
            self.cx.journal.note(&outgoing);
            // A node that has just been sent a session of these does not receive its messages yet.
            return match wait_for_backups(&mut self.cx, &outgoing, source.debt) {
                0 if route.recipients.is_empty() => Outcome::NoRecipients,
                0 => Outcome::Met,
                open => Outcome::Open(open),
            };
        }
        let mut open = 0;
        outgoing.id = forward(&mut self.cx, route, publish, source, &mut open);
        self.cx
            .deliver(now, recipients, &mut outgoing, source.session);
        if !route.groups.is_empty() {
            open += self.publish_to_groups(now, route, &mut outgoing, source);
        }
        open += wait_for_backups(&mut self.cx, &outgoing, source.debt);
        self.cx.journal.note(&outgoing);
        match open {
            0 if route.is_empty() => Outcome::NoRecipients,
            0 => Outcome::Met,
            open => Outcome::Open(open),
        }
    }
}

/// The topic with its alias resolved and the listener's prefix before it; `None`: as it is in the packet.
#[inline]
fn full_topic(
    cx: &mut Context,
    id: ConnectionId,
    publish: &Publish<'_>,
) -> Result<Option<Rc<str>>, Refusal> {
    let maximum = cx.config.limits.topic_alias_maximum;
    let Some(attached) = cx.connections.attached_mut(id) else {
        return Ok(None);
    };
    let Some(alias) = publish.topic_alias else {
        let prefix = &attached.prefix;
        return Ok((!prefix.is_empty()).then(|| format!("{prefix}{}", publish.topic).into()));
    };
    if alias > maximum {
        // [MQTT-3.3.2-9]
        let reason = format!("topic alias {alias} is above the maximum {maximum}");
        return Err(Refusal::new(ReasonCode::TopicAliasInvalid, reason));
    }
    let index = usize::from(alias) - 1;
    if publish.topic.is_empty() {
        let known = attached.aliases_in.get(index).cloned().flatten();
        return match known {
            Some(topic) => Ok(Some(topic)),
            None => Err(Refusal::protocol(format!(
                "topic alias {alias} has no topic yet"
            ))),
        };
    }
    let topic: Rc<str> = format!("{}{}", attached.prefix, publish.topic).into();
    if attached.aliases_in.len() <= index {
        attached.aliases_in.resize(index + 1, None);
    }
    attached.aliases_in[index] = Some(Rc::clone(&topic));
    Ok(Some(topic))
}

/// More unacknowledged messages than we allowed: 5.0 clients were sent the limit [MQTT-3.3.4-7].
#[inline]
fn check_receive_maximum(cx: &Context, key: SessionKey) -> Result<(), Refusal> {
    let Some(session) = cx.sessions.get(key) else {
        return Ok(());
    };
    let maximum = usize::from(cx.config.limits.receive_maximum);
    let is_v5 = session.protocol_version == ProtocolVersion::V5 as u8;
    if is_v5 && session.unacknowledged_exceeds(maximum) {
        let reason = format!("more than {maximum} messages without acknowledgement");
        return Err(Refusal::new(ReasonCode::ReceiveMaximumExceeded, reason));
    }
    Ok(())
}

/// PUBACK or PUBREC now, or when those before it have been sent.
fn answer(cx: &mut Context, arrival: &Arrival<'_>, packet_id: PacketId, reason_code: ReasonCode) {
    let Some(session) = cx.sessions.get_mut(arrival.session) else {
        return;
    };
    let owed = OwedAcknowledgement {
        packet_id,
        qos: arrival.publish.qos,
        reason_code,
        open: 0,
    };
    if session.acknowledgements.is_empty() {
        acknowledge(cx, arrival.connection, arrival.session, owed);
    } else {
        session.owe(owed);
    }
}

/// Whether a will topic may be published to (its levels are counted when it is).
pub(super) fn may_publish(len: usize, topic: &str) -> bool {
    len <= thicket_session::topic::MAXIMUM_TOPIC_BYTES && !is_reserved(topic)
}
