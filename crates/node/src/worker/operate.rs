//! What operators ask of a worker: disconnect a client, publish `$SYS`, watch packets, save memory, report where memory is.

use thicket_mqtt::ReasonCode;
use thicket_session::server::Waiting;

use super::{
    Worker, WorkerOperator, WorkerView,
    context::Context,
    state::{
        packet_trace::PacketTrace,
        sessions::{Cause, SessionKey},
    },
};
use crate::{
    EventLevel, MemoryReport, Now, Remembered, SessionEnd, TraceLine, TraceSubject, Whose,
    scope::{client_id_of, prefix_of, user_name_of},
};

impl Worker {
    fn kick_session(&mut self, now: Now, key: SessionKey) -> bool {
        let session = self.cx.sessions.get(key);
        let Some((session, id)) = session.and_then(|it| Some((it, it.connection?))) else {
            return false;
        };
        let fields = vec![("client_id", session.client_id.to_string())];
        self.cx.event(
            EventLevel::Info,
            "client disconnected by an operator",
            fields,
        );
        self.cx.disconnect(
            id,
            ReasonCode::AdministrativeAction,
            "an operator ended the connection",
        );
        self.detach(now, id, Cause::Closed);
        true
    }
}

/// The sessions here of a client identifier.
fn sessions_of(cx: &Context, client_id: &str, whose: Whose<'_>) -> Vec<SessionKey> {
    let is_meant = |name: &str| {
        let is_of = |wanted: Option<&str>, part: &str| wanted.is_none_or(|it| it == part);
        client_id_of(name) == client_id
            && is_of(whose.user_name, user_name_of(name).unwrap_or_default())
            && is_of(whose.topic_prefix, prefix_of(name))
    };
    let all = cx.sessions.iter();
    all.filter(|(_, session)| is_meant(&session.client_id))
        .map(|(key, _)| key)
        .collect()
}

/// Whether another node is involved in what becomes of a session now.
fn is_under_way(cx: &Context, key: SessionKey) -> bool {
    cx.sessions
        .get(key)
        .is_some_and(|session| !session.role.is_primary() || session.merging.is_some())
}

impl WorkerView<'_> {
    /// The caches of this worker.
    #[must_use]
    pub fn remembered(&self) -> Vec<Remembered> {
        vec![
            self.worker.cx.interests.cached(),
            self.worker.cx.arrivals.seen.remembered(),
            self.worker.cx.arrivals.last_retained.remembered(),
            self.worker.primaries.remembered(),
        ]
    }

    /// Where the memory of this worker is. Walks all sessions and connections.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        let (held_wills, held_will_bytes) = self.worker.sources.held_wills();
        let mut report = MemoryReport {
            held_wills,
            held_will_bytes,
            half_open_bytes: self.worker.cx.connections.half_open_bytes(),
            subscriptions: self.worker.cx.interests.len() as u64,
            queue_dropped_messages: self.worker.cx.traffic.queue_dropped_messages,
            queue_refused_messages: self.worker.cx.traffic.queue_refused_messages,
            backups: self.worker.cx.sessions.backups() as u64,
            backup_stream_bytes: self.worker.cx.journal.streams.unacknowledged_bytes() as u64,
            handed_bytes: self.worker.cx.batches.flow_control.bytes(),
            ..MemoryReport::default()
        };
        for (_, session) in self.worker.cx.sessions.iter() {
            report.sessions += 1;
            report.queued_messages += session.outbound.queued() as u64;
            report.queued_bytes += session.outbound.queued_bytes();
            report.inflight_messages += session.outbound.inflight() as u64;
            report.inflight_bytes += session.outbound.in_flight_bytes();
            if let Some(will) = &session.will {
                report.wills += 1;
                report.will_bytes += will.bytes();
            }
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
        debug_assert_eq!(
            self.worker.cx.sessions.waiting(),
            waiting,
            "the tally is their sum"
        );
        for backup in self.worker.cx.sessions.iter_backups() {
            report.backup_messages += backup.messages() as u64;
            report.backup_bytes += backup.bytes();
        }
        for (_, connection) in self.worker.cx.connections.iter() {
            report.connections += 1;
            report.out_buffer_bytes += connection.out.bytes.capacity() as u64;
            report.in_buffer_bytes += connection.partial.capacity() as u64;
        }
        report
    }
}

impl WorkerOperator<'_> {
    /// Ends the connections of a client: 0x98 for a 5.0 client. Its session continues as if the network had failed. `false`: none is connected here.
    pub fn kick(&mut self, client_id: &str, whose: Whose<'_>) -> bool {
        let now = self.now;
        let mut is_one = false;
        for key in sessions_of(&self.worker.cx, client_id, whose) {
            is_one |= self.worker.kick_session(now, key);
        }
        is_one
    }

    /// Publishes what the node reports about itself under `$SYS/` to the subscribers of this worker, and keeps it for later ones. It is not sent to
    /// other nodes.
    pub fn publish_system(&mut self, topic: &str, payload: &[u8]) {
        let now = self.now;
        self.worker
            .system
            .publish(&mut self.worker.cx, now, topic, payload);
    }

    /// While memory is short, QoS 0 messages are dropped for clients that have not received most of what came before.
    pub fn set_short_of_memory(&mut self, is_short: bool) {
        self.worker.cx.short_since = is_short.then_some(self.worker.cx.sessions.len());
    }

    /// Ends the sessions of a client for good, and their connections (0x98). Their wills are published, what waited for them is dropped.
    pub fn end_sessions(&mut self, client_id: &str, whose: Whose<'_>) -> SessionEnd {
        let now = self.now;
        let meant = sessions_of(&self.worker.cx, client_id, whose);
        if meant.is_empty() {
            return SessionEnd::Unknown;
        }
        if self.worker.cx.cluster.is_minority
            || meant.iter().any(|key| is_under_way(&self.worker.cx, *key))
        {
            return SessionEnd::Busy;
        }
        for key in meant {
            let session = self.worker.cx.sessions.get(key);
            let Some((serial, name)) = session.map(|it| (it.serial, it.client_id.to_string()))
            else {
                continue;
            };
            self.worker.kick_session(now, key);
            // One that does not outlive its connection has ended with it.
            if self.worker.cx.sessions.get_same(key, serial).is_some() {
                self.worker.end_session(now, key);
            }
            let fields = vec![("client_id", name)];
            self.worker
                .cx
                .event(EventLevel::Info, "session ended by an operator", fields);
        }
        SessionEnd::Ended
    }

    /// Begins to watch packets; what was watched before is not any more.
    pub fn start_trace(&mut self, subject: TraceSubject) {
        self.worker.cx.packet_trace = Some(PacketTrace::new(subject));
    }

    /// The lines since the last call, and how many were dropped over the limit.
    pub fn take_trace(&mut self) -> (Vec<TraceLine>, u64) {
        let trace = self.worker.cx.packet_trace.as_mut();
        trace.map(PacketTrace::take).unwrap_or_default()
    }

    /// Ends the watch.
    pub fn stop_trace(&mut self) {
        self.worker.cx.packet_trace = None;
    }
}
