//! Delivery to the sessions of this worker: encoded once for each kind of recipient, appended to out-buffers, queued where that is not possible.

use std::sync::Arc;

use thicket_mqtt::{AcknowledgementKind, PacketId, ProtocolVersion, Publish, Qos, ReasonCode};
use thicket_session::{
    server::{Delivery, MatchedIdentifiers, MessageId, Started, seconds_left},
    time::Instant,
};

use super::{
    capacity::out_buffer_limit,
    context::{Context, wanted_backups},
    expiry::{queue_has_capacity, watch_queue},
    retained::advance_replay,
    state::{
        connection::{Attached, Connection, Phase},
        drops::DropReason,
        interests::Recipient,
        journal::Journal,
        outgoing::{Form, Outgoing, Scratch, Variant},
        replica::{hold::hold, stream::Level},
        role::Role,
        sessions::{Session, SessionKey},
    },
    trace::trace_sent,
};
use crate::{ConnectionId, Now};

/// Ranges of finished messages that the sessions of a worker keep together, and each of them at least. A range takes some
/// 50 bytes.
const FINISHED_RANGES: usize = 1_000_000;
const FINISHED_RANGES_OF_ONE: usize = 64;

/// A persistent session accepts the current message. `wanted`: how many backups it is to have.
fn note_accepted(
    journal: &mut Journal,
    (key, session): (SessionKey, &Session),
    now: Now,
    outgoing: &mut Outgoing<'_>,
    form: Form<'_>,
    wanted: usize,
) {
    if wanted > 0 && session.stored.backups.synced().next().is_none() {
        let unreplicated = outgoing.unreplicated.get_or_insert_default();
        unreplicated.sessions.push((key, session.serial));
    }
    if session.stored.is_some() {
        journal.append(session, now, outgoing, form);
    }
}

impl Context {
    /// Delivers to all `recipients`. `from`: the publisher's session, which No Local leaves out [MQTT-3.8.3-3].
    #[inline]
    pub(super) fn deliver(
        &mut self,
        now: Now,
        recipients: &[Recipient],
        outgoing: &mut Outgoing<'_>,
        from: Option<SessionKey>,
    ) {
        self.effort.spend(recipients.len() as u64);
        self.scratch.begin(recipients.len());
        if outgoing.publish.retain && !recipients.is_empty() {
            return self.deliver_retained(now, recipients, outgoing, from);
        }
        for recipient in recipients {
            if recipient.no_local && from == Some(recipient.session) {
                pass(self, recipient.session, outgoing);
                continue;
            }
            self.deliver_to(now, recipient, outgoing);
        }
    }

    /// Delivers a message to be retained: who gets it does not get an older one of its topic afterwards.
    fn deliver_retained(
        &mut self,
        now: Now,
        recipients: &[Recipient],
        outgoing: &mut Outgoing<'_>,
        from: Option<SessionKey>,
    ) {
        self.arrivals
            .last_retained
            .note(outgoing.publish, outgoing.id, outgoing.publication());
        for recipient in recipients {
            let key = recipient.session;
            let is_own = recipient.no_local && from == Some(key);
            let is_lost = if is_own {
                pass(self, key, outgoing);
                false
            } else {
                let dropped = |cx: &Self| cx.sessions.get(key).map(|it| it.dropped_messages);
                let before = dropped(self);
                self.deliver_to(now, recipient, outgoing);
                let is_kept = outgoing.publish.qos.min(recipient.qos) > Qos::AtMostOnce;
                let session = self.sessions.get(key);
                let is_away = session.is_some_and(|it| it.connection.is_none());
                dropped(self) != before || (is_away && !is_kept)
            };
            if !is_lost && let Some(session) = self.sessions.get_mut(key) {
                session.overtaken.note(outgoing.publish.topic);
            }
        }
    }

    /// Delivers to one recipient of a shared subscription.
    pub(super) fn deliver_alone(
        &mut self,
        now: Now,
        recipient: &Recipient,
        group: &Arc<str>,
        outgoing: &mut Outgoing<'_>,
    ) {
        self.scratch.begin(1);
        outgoing.group = Some(Arc::clone(group));
        self.deliver_to(now, recipient, outgoing);
        outgoing.group = None;
    }

    /// Delivers to one recipient, see `begin_alone`.
    pub(super) fn deliver_to(
        &mut self,
        now: Now,
        recipient: &Recipient,
        outgoing: &mut Outgoing<'_>,
    ) {
        let retain = outgoing.publish.retain && recipient.retain_as_published;
        self.deliver_form(
            now,
            recipient.session,
            outgoing,
            recipient.qos,
            retain,
            &recipient.identifiers,
        );
    }

    /// Delivers to one session: now if it can be, from its queue later if it must be.
    pub(super) fn deliver_form(
        &mut self,
        now: Now,
        key: SessionKey,
        outgoing: &mut Outgoing<'_>,
        granted: Qos,
        retain: bool,
        identifiers: &MatchedIdentifiers,
    ) {
        let qos = outgoing.publish.qos.min(granted);
        let limit = out_buffer_limit(self, qos);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let mut is_sent = false;
        let mut form = Form {
            qos,
            retain,
            dup: false,
            packet_id: None,
            identifiers,
        };
        if outgoing.id.number == 0 && qos > Qos::AtMostOnce && session.is_persistent() {
            // Other nodes may have the session too one day, and must recognise it.
            self.unsent += 1;
            let (node, incarnation) = (self.config.node.0, self.config.incarnation.0);
            outgoing.id = MessageId::unsent(node, incarnation, self.id.0, self.unsent);
            outgoing.message = None;
        }
        if outgoing.group.is_none() && session.is_imported(&outgoing.id, qos) {
            self.journal.passed(session.stored, outgoing.id);
            return;
        }
        let is_seen = outgoing.is_seen && outgoing.group.is_none();
        // What a backup accepted is decided by its primary, but for QoS 0, which the primary does not replicate.
        let decides = session.backup().is_none() || qos == Qos::AtMostOnce;
        if let Some(publication) = outgoing.named()
            && decides
            && !session.is_new(publication, qos, is_seen)
        {
            self.journal.passed(session.stored, outgoing.id);
            return;
        }
        let keep = |outgoing: &mut Outgoing<'_>| Delivery {
            message: outgoing.message(),
            qos,
            retain,
            identifiers: identifiers.clone(),
            group: outgoing.group.clone(),
        };
        if let Role::Backup(backup) = &mut session.role {
            if qos > Qos::AtMostOnce {
                let delivery = keep(outgoing);
                if backup.is_full_for(&delivery.message, &self.config.limits) {
                    // The primary drops it too, and counts it; or it names it, and is asked for it.
                    return;
                }
                let unblocked = &mut self.arrivals.unblocked;
                let accepted = &mut session.accepted;
                backup.take(now.instant, accepted, delivery, is_seen, unblocked);
            }
            return;
        }
        // The client of a session that is handed over may still be connected: what it got now would have a packet identifier that the next primary gives to
        // another message.
        let is_frozen = session.role.is_frozen();
        let waits = qos > Qos::AtMostOnce
            && (is_frozen || (self.cluster.is_minority && session.is_persistent()));
        let connection = session.connection.filter(|_| !waits).and_then(|id| {
            let (connection, dirty) = self.connections.get_with_dirty(id)?;
            Some((id, connection, dirty))
        });
        let taken = match connection {
            Some((id, connection, dirty)) if connection.out.len() <= limit => {
                let has_place = qos == Qos::AtMostOnce || {
                    let Some(attached) = connection.attached() else {
                        return;
                    };
                    if !fits(attached, outgoing.publish, form) {
                        // As if it had been delivered [MQTT-3.1.2-25].
                        self.traffic.dropped_messages += 1;
                        let reason = DropReason::TooLarge;
                        let topic = outgoing.publish.topic;
                        self.drops.note(reason, &session.client_id, topic);
                        self.journal.passed(session.stored, outgoing.id);
                        return;
                    }
                    let window = attached.window;
                    form.packet_id =
                        session
                            .outbound
                            .begin(qos, window, outgoing.group.is_some(), || keep(outgoing));
                    form.packet_id.is_some()
                };
                if has_place && qos > Qos::AtMostOnce && session.is_persistent() {
                    let wanted = wanted_backups(&self.config, &self.cluster);
                    note_accepted(
                        &mut self.journal,
                        (key, session),
                        now,
                        outgoing,
                        form,
                        wanted,
                    );
                    if qos == Qos::ExactlyOnce && self.config.waits_for_backups {
                        let streams = &mut self.journal.streams;
                        hold(streams, connection, id, session.stored, Level::Applied);
                    }
                }
                if has_place {
                    let sent = append(
                        connection,
                        &mut self.scratch,
                        now.instant,
                        outgoing.publish,
                        outgoing.expires_at,
                        form,
                    );
                    self.traffic
                        .count_sent(sent, outgoing.publish.payload.len());
                    is_sent = sent;
                    if sent {
                        connection.mark_dirty(id, dirty);
                    }
                }
                has_place
            }
            Some(_) => false,
            // Nobody keeps QoS 0 messages for a client that is away.
            None => qos == Qos::AtMostOnce,
        };
        if taken {
            if is_sent && self.is_traced() {
                self.trace_publish(key, outgoing.publish, form.qos, form.packet_id);
            }
            return;
        }
        session.outbound.note_time(now.instant);
        let is_queued = qos > Qos::AtMostOnce && {
            let delivery = keep(outgoing);
            let (journal, traffic) = (&mut self.journal, &mut self.traffic);
            let cost = delivery.message.cost();
            let has_capacity = queue_has_capacity(journal, traffic, now, session, cost);
            if has_capacity {
                session.outbound.enqueue_accepted(delivery);
            }
            has_capacity
        };
        if !is_queued {
            session.dropped_messages += 1;
            self.traffic.dropped_messages += 1;
            self.traffic.queue_dropped_messages += u64::from(qos > Qos::AtMostOnce);
            if qos > Qos::AtMostOnce {
                let (reason, topic) = (DropReason::QueueFull, outgoing.publish.topic);
                self.drops.note(reason, &session.client_id, topic);
                self.journal.passed(session.stored, outgoing.id);
            }
            return;
        }
        if outgoing.expires_at.is_some() {
            watch_queue(&mut self.timers, now, key, session);
        }
        if session.is_persistent() {
            let wanted = wanted_backups(&self.config, &self.cluster);
            note_accepted(
                &mut self.journal,
                (key, session),
                now,
                outgoing,
                form,
                wanted,
            );
        }
    }

    /// What follows goes to a single session.
    pub(super) fn begin_alone(&mut self) {
        self.scratch.begin(1);
    }

    /// Sessions whose connections have written their output get more.
    pub(super) fn pull_relieved(&mut self, now: Now) {
        for session in std::mem::take(&mut self.connections.relieved) {
            self.pull(now, session);
            advance_replay(self, session);
        }
    }

    /// Sends what the session's queue and window allow.
    pub(super) fn pull(&mut self, now: Now, key: SessionKey) {
        let limit = self.config.limits.out_buffer_bytes as usize;
        loop {
            let Some(session) = self.sessions.get_mut(key) else {
                return;
            };
            if session.outbound.is_drained() || session.role.is_frozen() {
                if !session.replays.is_empty() {
                    advance_replay(self, key);
                }
                return;
            }
            if self.cluster.is_minority && session.is_persistent() {
                // The session may be promoted elsewhere, and use the same packet identifiers there.
                return;
            }
            let Some(id) = session.connection else { return };
            let Some(connection) = self.connections.get(id) else {
                return;
            };
            let Some(attached) = connection
                .attached()
                .filter(|_| connection.out.len() <= limit)
            else {
                return;
            };
            let (stored, sequence) = (session.stored, session.outbound.front_sequence());
            let Some(started) = session.outbound.pull(now.instant, attached.window) else {
                return;
            };
            match started {
                Started::Pubrel(packet_id) => {
                    self.hold_output(id, key);
                    self.acknowledge_to(
                        id,
                        AcknowledgementKind::Pubrel,
                        packet_id,
                        ReasonCode::Success,
                    );
                }
                Started::Expired(_) => {
                    self.journal.dropped(stored, sequence);
                    self.write_finished(key);
                    self.traffic.expired_messages += 1;
                }
                Started::Publish {
                    packet_id,
                    dup,
                    delivery,
                } if !session.may_still_receive(delivery.message.topic()) => {
                    self.traffic.withheld_messages += 1;
                    session.drop_started(packet_id);
                    match (dup, packet_id) {
                        (true, Some(packet_id)) => self.journal.done(stored, packet_id),
                        (true, None) | (false, _) => self.journal.dropped(stored, sequence),
                    }
                    self.write_finished(key);
                }
                Started::Publish {
                    packet_id,
                    dup,
                    delivery,
                } => {
                    if let (false, Some(packet_id)) = (dup, packet_id) {
                        self.journal.assign(stored, sequence, packet_id);
                    }
                    self.send_delivery(now, key, id, packet_id, dup, &delivery);
                }
            }
        }
    }

    fn send_delivery(
        &mut self,
        now: Now,
        key: SessionKey,
        id: ConnectionId,
        packet_id: Option<PacketId>,
        dup: bool,
        delivery: &Delivery,
    ) {
        let message = &delivery.message;
        let publish = message.publish();
        let form = Form {
            qos: delivery.qos,
            retain: delivery.retain,
            dup,
            packet_id,
            identifiers: &delivery.identifiers,
        };
        if delivery.qos == Qos::ExactlyOnce {
            self.hold_output(id, key);
        }
        self.scratch.begin(1);
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        let expires_at = message.expires_at();
        let sent = append(
            connection,
            &mut self.scratch,
            now.instant,
            &publish,
            expires_at,
            form,
        );
        self.traffic.count_sent(sent, publish.payload.len());
        self.connections.mark_dirty(id);
        if sent && self.is_traced() {
            self.trace_publish(key, &publish, delivery.qos, packet_id);
        }
        if sent && self.observed.traces.is_some() {
            trace_sent(self, key, &publish);
        }
        if let (false, Some(session)) = (sent, self.sessions.get_mut(key)) {
            session.drop_started(packet_id);
            if let Some(packet_id) = packet_id {
                self.journal.done(session.stored, packet_id);
            }
            self.write_finished(key);
        }
    }
}

impl Context {
    /// Records what a session has finished while another replica may hold it. Beyond the bound the oldest are given up:
    /// these may come once more.
    pub(super) fn write_finished(&mut self, key: SessionKey) {
        let most = FINISHED_RANGES / self.sessions.len().max(1);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if !session.outbound.has_unwritten_finished() {
            return;
        }
        self.journal.finished(session);
        let given_up = session
            .outbound
            .bound_finished(most.max(FINISHED_RANGES_OF_ONE));
        self.traffic.forgotten_finishes += given_up as u64;
    }
}

/// The session does not accept a message that its backup receives.
fn pass(cx: &mut Context, key: SessionKey, outgoing: &Outgoing<'_>) {
    if let Some(session) = cx.sessions.get(key) {
        cx.journal.passed(session.stored, outgoing.id);
    }
}

/// The packet for one recipient, without topic alias.
fn packet<'a>(
    attached: &Attached,
    publish: &Publish<'a>,
    form: Form<'a>,
    expiry: Option<u32>,
) -> Publish<'a> {
    let topic = match &*attached.prefix {
        "" => publish.topic,
        prefix => publish.topic.strip_prefix(prefix).unwrap_or(publish.topic),
    };
    Publish {
        dup: form.dup,
        qos: form.qos,
        retain: form.retain,
        topic,
        packet_id: form.packet_id,
        topic_alias: None,
        message_expiry_interval: expiry,
        subscription_identifiers: form.identifiers.as_slice().into(),
        properties: publish.properties,
        payload: publish.payload,
    }
}

/// Whether the client accepts a packet of this size [MQTT-3.1.2-24].
fn fits(attached: &Attached, publish: &Publish<'_>, form: Form<'_>) -> bool {
    if attached.maximum_packet_size == u32::MAX {
        return true;
    }
    let form = Form {
        packet_id: PacketId::new(1),
        ..form
    };
    let packet = packet(attached, publish, form, publish.message_expiry_interval);
    packet.encoded_len(attached.version) <= attached.maximum_packet_size as usize
}

/// Appends the packet to the connection's out-buffer; false if the client does not accept packets of its size.
fn append(
    connection: &mut Connection,
    scratch: &mut Scratch,
    now: Instant,
    publish: &Publish<'_>,
    expires_at: Option<Instant>,
    form: Form<'_>,
) -> bool {
    let Phase::Attached(attached) = &mut connection.phase else {
        return true;
    };
    attached.count.messages += 1;
    let out = &mut connection.out;
    let is_plain = scratch.is_shared
        && form.identifiers.as_slice().is_empty()
        && attached.prefix.is_empty()
        && attached.maximum_packet_size == u32::MAX
        && !attached.aliases_out.is_enabled();
    let is_v5 = attached.version == ProtocolVersion::V5;
    let variant = usize::from(is_v5) * 6 + form.qos as usize * 2 + usize::from(form.retain);
    if is_plain && let Some(known) = scratch.variants[variant] {
        let start = out.bytes.len();
        out.bytes
            .extend_from_slice(&scratch.bytes[known.start..known.end]);
        if let Some(packet_id) = form.packet_id {
            out.patch_packet_id(start + known.packet_id_at, packet_id);
        }
        return true;
    }
    let mut packet = packet(
        attached,
        publish,
        form,
        expires_at.map(|at| seconds_left(at, now)),
    );
    let mut learned = None;
    // A client that keeps a QoS 2 message until PUBREL may look up its alias only then, and find none or another topic: MQTT.js up to 5.16 does.
    if attached.aliases_out.is_enabled()
        && form.qos != Qos::ExactlyOnce
        && let Some((alias, is_known)) = attached.aliases_out.find(packet.topic)
    {
        packet.topic_alias = Some(alias);
        if is_known {
            packet.topic = "";
        } else {
            learned = Some(packet.topic);
        }
    }
    let maximum = attached.maximum_packet_size;
    if maximum != u32::MAX && packet.encoded_len(attached.version) > maximum as usize {
        return false;
    }
    let start = out.bytes.len();
    let Ok(packet_id_at) = packet.encode(attached.version, &mut out.bytes) else {
        return false;
    };
    if let Some(topic) = learned {
        attached.aliases_out.learn(topic);
    }
    if is_plain {
        let scratch_start = scratch.bytes.len();
        scratch.bytes.extend_from_slice(&out.bytes[start..]);
        let packet_id_at = packet_id_at.map_or(0, |at| at - start);
        scratch.variants[variant] = Some(Variant {
            start: scratch_start,
            end: scratch.bytes.len(),
            packet_id_at,
        });
    }
    true
}
