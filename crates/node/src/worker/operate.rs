//! What operators ask of a worker: disconnect a client, publish `$SYS`, watch packets, save memory, report where memory is.

use std::collections::{BTreeMap, VecDeque};

use thicket_mqtt::{Packet, PacketId, Publish, Qos, ReasonCode};
use thicket_session::{
    server::{MatchedIdentifiers, Subscription, Waiting},
    topic::{SubscriptionFilter, TopicFilter},
};

use super::{Phase, SessionKey, Worker, close::Cause, deliver::Outgoing};
use crate::{
    ConnectionId, Direction, EventLevel, MemoryReport, Now, Remembered, SessionEnd, TraceLine,
    TraceSubject,
    scope::{client_id_of, user_name_of},
};

/// The topics on which the broker reports about itself.
const SYSTEM: &str = "$SYS/";
/// Lines of a trace that wait to be fetched; more are counted only.
const TRACE_LINES: usize = 4096;

/// While memory is short, bytes that may wait in an out-buffer before QoS 0 is dropped.
const SHORT_OUT_BUFFER: usize = 16 * 1024;

/// State of what this file does.
#[derive(Debug, Default)]
pub(super) struct Operating {
    /// The last value of each `$SYS` topic of this node.
    system: BTreeMap<Box<str>, Box<[u8]>>,
    /// New subscriptions to them, and the serial of their session.
    pub(super) replays: Vec<(SessionKey, u64, TopicFilter, Subscription)>,
    trace: Option<Trace>,
    /// Memory is short: the number of sessions when that began.
    short_since: Option<usize>,
    /// Bytes that connections without a session hold.
    half_open_bytes: u64,
}

#[derive(Debug)]
struct Trace {
    subject: TraceSubject,
    lines: VecDeque<TraceLine>,
    lost: u64,
}

impl Worker {
    /// The sessions here of a client identifier: of one user, or of all.
    fn sessions_of(&self, client_id: &str, user_name: Option<&str>) -> Vec<SessionKey> {
        let is_meant = |name: &str| {
            client_id_of(name) == client_id
                && (user_name.is_none() || user_name_of(name) == user_name)
        };
        let all = self.sessions.iter();
        all.filter(|(_, session)| is_meant(&session.client_id))
            .map(|(key, _)| key)
            .collect()
    }

    /// Ends the connections of a client: 0x98 for a 5.0 client. Its session continues as if the network had failed. Without `user_name` clients of
    /// all users with this identifier are meant. `false`: none is connected here.
    pub fn kick(&mut self, now: Now, client_id: &str, user_name: Option<&str>) -> bool {
        let mut is_one = false;
        for key in self.sessions_of(client_id, user_name) {
            is_one |= self.kick_session(now, key);
        }
        is_one
    }

    fn kick_session(&mut self, now: Now, key: SessionKey) -> bool {
        let session = self.sessions.get(key);
        let Some((session, id)) = session.and_then(|it| Some((it, it.connection?))) else {
            return false;
        };
        let fields = vec![("client_id", session.client_id.to_string())];
        self.event(
            EventLevel::Info,
            "client disconnected by an operator",
            fields,
        );
        self.disconnect(
            id,
            ReasonCode::AdministrativeAction,
            "an operator ended the connection",
        );
        self.detach(now, id, Cause::Closed);
        true
    }

    /// Publishes what the node reports about itself under `$SYS/` to the subscribers of this worker, and keeps it for later ones. It is not sent to
    /// other nodes.
    pub fn publish_system(&mut self, now: Now, topic: &str, payload: &[u8]) {
        debug_assert!(topic.starts_with(SYSTEM));
        let publish = Publish::new(topic, payload);
        let route = self.route(topic);
        self.deliver(
            now,
            &route.recipients,
            &mut Outgoing::new(&publish, None),
            None,
        );
        self.operating.system.insert(topic.into(), payload.into());
    }

    /// While memory is short, QoS 0 messages are dropped for clients that have not received most of what came before.
    pub fn set_short_of_memory(&mut self, is_short: bool) {
        self.operating.short_since = is_short.then_some(self.sessions.len());
    }

    /// Whether a new session would take more memory than there is: when it is short, until a twentieth of the sessions there were has
    /// ended. What those held is used again, though the allocator may not have given it back.
    pub(super) fn has_no_memory(&self) -> bool {
        let before = self.operating.short_since;
        before.is_some_and(|before| self.sessions.len() >= before - before / 20)
    }

    /// Ends the sessions of a client for good, and their connections (0x98). Their wills are published, what waited for them is dropped. Without
    /// `user_name` those of all users are meant.
    pub fn end_sessions(
        &mut self,
        now: Now,
        client_id: &str,
        user_name: Option<&str>,
    ) -> SessionEnd {
        let meant = self.sessions_of(client_id, user_name);
        if meant.is_empty() {
            return SessionEnd::Unknown;
        }
        if self.is_minority || meant.iter().any(|key| self.is_under_way(*key)) {
            return SessionEnd::Busy;
        }
        for key in meant {
            let session = self.sessions.get(key);
            let Some((serial, name)) = session.map(|it| (it.serial, it.client_id.to_string()))
            else {
                continue;
            };
            self.kick_session(now, key);
            // One that does not outlive its connection has ended with it.
            if self.sessions.get_same(key, serial).is_some() {
                self.end_session(now, key);
            }
            let fields = vec![("client_id", name)];
            self.event(EventLevel::Info, "session ended by an operator", fields);
        }
        SessionEnd::Ended
    }

    /// Whether another node is involved in what becomes of a session now.
    fn is_under_way(&self, key: SessionKey) -> bool {
        self.sessions
            .get(key)
            .is_some_and(|session| !session.role.is_primary() || session.merging.is_some())
    }

    /// Bytes an out-buffer may hold when a message arrives: above it QoS 0 is dropped, the rest queued.
    pub(super) fn out_buffer_limit(&self, qos: Qos) -> usize {
        let limit = self.config.limits.out_buffer_bytes as usize;
        if self.operating.short_since.is_some() && qos == Qos::AtMostOnce {
            limit.min(SHORT_OUT_BUFFER)
        } else {
            limit
        }
    }

    /// A subscription was acknowledged that may match `$SYS`: it gets the last values when this input is done. `true`: it does match.
    pub(super) fn start_system_replay(
        &mut self,
        key: SessionKey,
        serial: u64,
        filter: &SubscriptionFilter,
        subscription: Subscription,
    ) -> bool {
        let is_system = filter.filter.as_str().starts_with(SYSTEM);
        if is_system {
            self.operating
                .replays
                .push((key, serial, filter.filter.clone(), subscription));
        }
        is_system
    }

    pub(super) fn replay_system(&mut self, now: Now) {
        for (key, serial, filter, subscription) in std::mem::take(&mut self.operating.replays) {
            if self.sessions.get_same(key, serial).is_none() {
                continue;
            }
            let matching = self
                .operating
                .system
                .iter()
                .filter(|(topic, _)| filter.matches(topic));
            let matching: Vec<_> = matching
                .map(|(topic, payload)| (topic.clone(), payload.clone()))
                .collect();
            let identifiers = subscription
                .identifier
                .map_or(MatchedIdentifiers::None, |id| MatchedIdentifiers::One([id]));
            for (topic, payload) in matching {
                let publish = Publish {
                    retain: true,
                    ..Publish::new(&topic, &payload)
                };
                self.deliver_replayed(
                    now,
                    key,
                    &mut Outgoing::new(&publish, None),
                    subscription,
                    &identifiers,
                );
            }
        }
    }

    /// A connection without a session holds what it sent; too much of that in all, and it ends.
    pub(super) fn bound_half_open(&mut self, id: ConnectionId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let held = match connection.phase {
            Phase::AwaitConnect
            | Phase::AwaitVerdict
            | Phase::AwaitAuth(_)
            | Phase::AwaitClaim { .. } => connection.partial.len(),
            Phase::Attached(_) | Phase::Closing => 0,
        };
        self.count_half_open(id, held);
        if held == 0 || self.operating.half_open_bytes <= self.config.limits.half_open_bytes {
            return;
        }
        self.traffic.half_open_refused += 1;
        self.event(
            EventLevel::Warn,
            "connection ended: those that have not sent a whole CONNECT hold too much",
            vec![("bytes", held.to_string())],
        );
        self.close(id);
    }

    /// What a connection without a session holds from now on. Call it with 0 before the connection goes elsewhere.
    pub(super) fn count_half_open(&mut self, id: ConnectionId, held: usize) {
        let Some(connection) = self
            .connections
            .get_mut(id.0 as usize)
            .and_then(Option::as_deref_mut)
        else {
            return;
        };
        let before = std::mem::replace(&mut connection.half_open, held);
        self.operating.half_open_bytes =
            self.operating.half_open_bytes + held as u64 - before as u64;
    }

    /// Begins to watch packets; what was watched before is not any more.
    pub fn start_trace(&mut self, subject: TraceSubject) {
        self.operating.trace = Some(Trace {
            subject,
            lines: VecDeque::new(),
            lost: 0,
        });
    }

    /// The lines since the last call, and how many were dropped over the limit.
    pub fn take_trace(&mut self) -> (Vec<TraceLine>, u64) {
        let Some(trace) = &mut self.operating.trace else {
            return (Vec::new(), 0);
        };
        (
            std::mem::take(&mut trace.lines).into(),
            std::mem::take(&mut trace.lost),
        )
    }

    /// Ends the watch.
    pub fn stop_trace(&mut self) {
        self.operating.trace = None;
    }

    pub(super) const fn is_traced(&self) -> bool {
        self.operating.trace.is_some()
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
        let Some(trace) = &mut self.operating.trace else {
            return;
        };
        let is_wanted = match &trace.subject {
            TraceSubject::Client(client_id) => **client_id == *session.client_id,
            TraceSubject::Topic(filter) => {
                matches!(packet, Packet::Publish(publish) if filter.matches(publish.topic))
            }
        };
        if !is_wanted {
            return;
        }
        if trace.lines.len() >= TRACE_LINES {
            trace.lost += 1;
            return;
        }
        trace.lines.push_back(TraceLine {
            client_id: client_id_of(&session.client_id).to_owned(),
            direction,
            packet: in_words(packet),
        });
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

    /// The caches of this worker.
    #[must_use]
    pub fn remembered(&self) -> Vec<Remembered> {
        vec![
            self.interests.cached(),
            self.seen.remembered(),
            self.last_retained.remembered(),
        ]
    }

    /// Where the memory of this worker is. Walks all sessions and connections.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let (held_wills, held_will_bytes) = self.held_wills();
        let mut report = MemoryReport {
            held_wills,
            held_will_bytes,
            half_open_bytes: self.operating.half_open_bytes,
            subscriptions: self.interests.len() as u64,
            queue_dropped_messages: self.traffic.queue_dropped_messages,
            queue_refused_messages: self.traffic.queue_refused_messages,
            backups: self.sessions.backups() as u64,
            backup_stream_bytes: self.journal.streams.unacknowledged_bytes() as u64,
            ..MemoryReport::default()
        };
        for (_, session) in self.sessions.iter() {
            report.sessions += 1;
            report.queued_messages += session.outbound.queued() as u64;
            report.queued_bytes += session.outbound.queued_bytes();
            report.inflight_messages += session.outbound.inflight() as u64;
            report.inflight_bytes += session.outbound.in_flight_bytes();
            report.filter_bytes += session
                .subscriptions
                .keys()
                .map(|filter| filter.filter.as_str().len() as u64)
                .sum::<u64>();
        }
        let waiting = Waiting {
            messages: report.queued_messages,
            bytes: report.queued_bytes,
        };
        debug_assert_eq!(self.sessions.waiting(), waiting, "the tally is their sum");
        for backup in self.sessions.iter_backups() {
            report.backup_messages += backup.messages() as u64;
            report.backup_bytes += backup.bytes();
        }
        for connection in self.connections.iter().flatten() {
            report.connections += 1;
            report.out_buffer_bytes += connection.out.bytes.capacity() as u64;
            report.in_buffer_bytes += connection.partial.capacity() as u64;
        }
        report
    }
}

/// A packet without its payload.
fn in_words(packet: &Packet<'_>) -> String {
    match packet {
        Packet::Publish(publish) => {
            let id = publish.packet_id.map_or(0, |id| id.value());
            let (retain, dup) = (u8::from(publish.retain), u8::from(publish.dup));
            format!(
                "PUBLISH topic={:?} qos={} retain={retain} dup={dup} packet_id={id} payload_bytes={}",
                publish.topic,
                publish.qos as u8,
                publish.payload.len()
            )
        }
        Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
            format!(
                "{} packet_id={} reason_code=0x{:02X}",
                name(packet),
                ack.packet_id.value(),
                ack.reason_code as u8
            )
        }
        Packet::Subscribe(subscribe) => {
            let filters: Vec<_> = subscribe.filters.iter().map(|asked| asked.filter).collect();
            format!(
                "SUBSCRIBE packet_id={} filters={filters:?}",
                subscribe.packet_id.value()
            )
        }
        Packet::Unsubscribe(unsubscribe) => {
            format!(
                "UNSUBSCRIBE packet_id={} filters={:?}",
                unsubscribe.packet_id.value(),
                unsubscribe.filters
            )
        }
        Packet::Suback(suback) => format!(
            "SUBACK packet_id={} reason_codes={:?}",
            suback.packet_id.value(),
            suback.reason_codes
        ),
        Packet::Unsuback(unsuback) => format!("UNSUBACK packet_id={}", unsuback.packet_id.value()),
        Packet::Disconnect(disconnect) => format!(
            "DISCONNECT reason_code=0x{:02X}",
            disconnect.reason_code as u8
        ),
        Packet::Connect(_)
        | Packet::Connack(_)
        | Packet::Pingreq
        | Packet::Pingresp
        | Packet::Auth(_) => name(packet),
    }
}

fn name(packet: &Packet<'_>) -> String {
    format!("{:?}", packet.kind()).to_uppercase()
}
