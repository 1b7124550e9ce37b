//! How connections and sessions end.

use std::rc::Rc;

use thicket_mqtt::{Disconnect, Packet, ProtocolVersion, Qos, ReasonCode};
use thicket_session::server::Held;

use super::{
    Worker,
    context::Context,
    refusal::Refusal,
    replication::leave_backups,
    state::{
        connection::Phase,
        role::{Handed, Reason},
        sessions::{Cause, Session, SessionKey},
        timers::Timer,
    },
};
use crate::{
    ConnectionId, EventLevel, Now, SESSION_ENDED, WorkerOutput,
    messages::{Fetched, SessionState, ToHub, peer_text},
    visits::{CLIENT_DISCONNECTED, DisconnectCause, reason_of},
};

impl Worker {
    /// A peer broke a rule: it is sent the reason (5.0), and the connection ends as if the network had failed.
    pub(super) fn refuse(&mut self, now: Now, id: ConnectionId, refusal: &Refusal) {
        let client_id = self
            .cx
            .session_at(id)
            .map(|session| session.client_id.to_string());
        let peer = self
            .cx
            .connections
            .get(id)
            .map(|connection| peer_text(connection.peer))
            .unwrap_or_default();
        self.cx.event(
            EventLevel::Warn,
            "connection ended: the client broke a rule",
            vec![
                ("client_id", client_id.unwrap_or_default()),
                ("peer", peer),
                ("reason_code", refusal.reason_code.words()),
                ("reason", refusal.reason.clone()),
            ],
        );
        self.cx.disconnect(id, refusal.reason_code, &refusal.reason);
        self.detach(now, id, Cause::Closed);
    }

    /// The client ended the connection with DISCONNECT.
    pub(super) fn end_connection(&mut self, now: Now, id: ConnectionId) {
        if let Some(connection) = self.cx.connections.get_mut(id) {
            connection.disconnect_cause = Some(DisconnectCause::Client);
        }
        self.detach(now, id, Cause::Closed);
    }

    /// The shell reports that the connection is gone.
    pub(super) fn handle_closed(&mut self, now: Now, id: ConnectionId) {
        self.detach(now, id, Cause::Closed);
        self.cx.connections.count_half_open(id, 0);
        self.cx.connections.take(id);
    }

    /// Detaches a connection from its session and closes it.
    pub(super) fn detach(&mut self, now: Now, id: ConnectionId, cause: Cause) {
        let session = self.cx.connections.session_of(id);
        self.cx.close(id);
        let Some(key) = session else { return };
        self.cx.traffic.connections -= 1;
        note_disconnected(&mut self.cx, id, key);
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return;
        };
        if session.connection != Some(id) {
            return;
        }
        session.handle_disconnected(now.instant);
        let ends = !session.is_persistent() && cause != Cause::Moved;
        let (serial, client_id) = (session.serial, Rc::clone(&session.client_id));
        if ends {
            return self.end_in_turn(now, key);
        }
        self.cx.set_members_connected(key, false);
        let Some(session) = self.cx.sessions.get(key) else {
            return;
        };
        if !session.is_persistent() {
            return;
        }
        if cause == Cause::Moved {
            return;
        }
        if let Some(waits_for) = session.waits_for() {
            self.cx.timers.set(
                now.instant + waits_for,
                Timer::SessionExpiry {
                    session: key,
                    serial,
                },
            );
        }
        self.cx.report_session(&client_id, SessionState::Waiting);
        self.schedule_will(now, key);
        self.primaries.store_session(&mut self.cx, now, key);
    }

    /// Ends a session: its will is published, its subscriptions end, what shared subscriptions had given to it goes to other members, and all else
    /// that it held is dropped.
    pub(super) fn end_session(&mut self, now: Now, key: SessionKey) {
        self.publish_will(now, key);
        self.cx.note_session(key, SESSION_ENDED, Vec::new());
        let session = self.cx.sessions.get(key);
        let has_expired = session.is_some_and(|session| session.has_expired(now.instant));
        let state = if has_expired {
            SessionState::Gone
        } else {
            SessionState::Ended
        };
        if let Some(session) = self.remove_session(key, state) {
            let held = session.outbound.held_from(0);
            let plain = held.filter(|held| match held {
                Held::Queued { delivery, .. } => delivery.group.is_none(),
                Held::InFlight { delivery, .. } => {
                    delivery.group.is_none() && delivery.qos == Qos::AtLeastOnce
                }
                Held::Received { .. } => false,
            });
            self.cx.traffic.dropped_messages += plain.count() as u64;
            self.groups
                .pass_shared_on(&mut self.cx, now, &session.outbound);
        }
    }

    /// Removes a session and its subscriptions; `state`: why. Its will is not published, what it held goes nowhere.
    pub(super) fn remove_session(
        &mut self,
        key: SessionKey,
        state: SessionState,
    ) -> Option<Session> {
        let Self { cx, primaries, .. } = self;
        let mut session = cx.sessions.remove(key)?;
        let mut changes = Vec::new();
        for filter in session.subscriptions.keys() {
            changes.extend(cx.interests.unsubscribe(key, filter));
        }
        cx.effort.spend_on_changes(session.subscriptions.len());
        cx.announce(changes);
        cx.journal.forget(&session);
        primaries.end_will_backup(cx, &session.client_id, session.will_backup.take());
        cx.report_session(&session.client_id, state);
        if let Some(request) = session.role.unanswered() {
            // Another node waits for a session that has ended.
            let answer = Fetched::Gone;
            cx.send_to_hub_after_records(ToHub::Fetched { request, answer });
        }
        if let Some(request) = session.merge_to_report {
            cx.send_to_hub(ToHub::Imported { request });
        }
        Some(session)
    }

    /// Another node is the primary of the session, and stays it.
    pub(super) fn handle_evict(&mut self, now: Now, client_id: &str, may_contest: bool) {
        let Some(key) = self.cx.sessions.find(client_id) else {
            // It has ended meanwhile, as the hub was informed.
            return;
        };
        let Some(session) = self.cx.sessions.get_mut(key) else {
            return;
        };
        if let Some(handed) = session.role.handed() {
            return self.end_handed(now, key, handed);
        }
        let connection = session.connection;
        if may_contest {
            // Until the other node fetches it, it is served as before.
            self.cx.report_session(client_id, SessionState::Contested);
            return;
        }
        if let Some(connection) = connection {
            let reason = "another node has the session";
            self.cx
                .disconnect(connection, ReasonCode::SessionTakenOver, reason);
            self.detach(now, connection, Cause::Moved);
        }
        self.remove_session(key, SessionState::Gone);
    }

    /// Another node has taken over a session that was handed over: a client that is still connected is sent there.
    fn end_handed(&mut self, now: Now, key: SessionKey, handed: Handed) {
        let connection = self.cx.sessions.get(key).and_then(|it| it.connection);
        if let Some(connection) = connection {
            let to: Vec<_> = handed.switchover.map(|it| it.to).into_iter().collect();
            let reference = self.cx.server_reference(connection, &to);
            self.cx
                .disconnect_to(connection, reference.as_deref(), "the node is drained");
            self.detach(now, connection, Cause::Moved);
        }
        if let Some(switchover) = handed.switchover
            && !matches!(switchover.reason, Reason::Branch(_))
        {
            leave_backups(&mut self.cx, key, switchover.to);
        }
        if let Some(session) = self.remove_session(key, SessionState::Gone) {
            // What only this member of a group received since is not among what the other node has.
            self.groups
                .pass_shared_on_from(&mut self.cx, now, &session.outbound, handed.from);
        }
        self.groups.reassign_unassigned(&mut self.cx, now);
    }

    pub(super) fn handle_keep_alive(&mut self, now: Now, id: ConnectionId, serial: u64) {
        let Some(connection) = self.cx.connections.get_same(id, serial) else {
            return;
        };
        let Some(allowed) = connection
            .attached()
            .and_then(|attached| attached.silence_allowed)
        else {
            return;
        };
        if connection.out.holds_connack() || connection.is_unfinished {
            // The client has nothing to send before that, or has sent what waits here.
            connection.last_packet = now.instant;
        }
        let due = connection.last_packet + allowed;
        if due > now.instant {
            connection.out.release();
            self.cx.timers.set(
                due,
                Timer::KeepAlive {
                    connection: id,
                    serial,
                },
            );
        } else {
            self.refuse(
                now,
                id,
                &Refusal::new(
                    ReasonCode::KeepAliveTimeout,
                    "nothing heard for 1.5 times the keep alive",
                ),
            );
        }
    }

    pub(super) fn handle_expiry(&mut self, now: Now, key: SessionKey, serial: u64) {
        let Some(session) = self.cx.sessions.get_same(key, serial) else {
            return;
        };
        let Some(due) = session.expires_at() else {
            return;
        };
        if session.role.is_frozen() {
            // It is moving to another node, which continues the count from there.
        } else if due <= now.instant {
            self.cx.traffic.expired_sessions += 1;
            self.end_in_turn(now, key);
        } else {
            self.cx.timers.set(
                due,
                Timer::SessionExpiry {
                    session: key,
                    serial,
                },
            );
        }
    }

    /// Disconnects all clients because the shell stops. Wills are published as for any connection that ends without DISCONNECT from the client.
    pub fn shut_down(&mut self, now: Now) {
        self.cx.is_stopping = true;
        for id in (0..self.cx.connections.slots()).map(ConnectionId) {
            self.cx
                .disconnect(id, ReasonCode::ServerShuttingDown, "the node stops");
            self.detach(now, id, Cause::Closed);
        }
        self.end_all_over(now);
        self.end_round(now);
    }
}

fn note_disconnected(cx: &mut Context, id: ConnectionId, key: SessionKey) {
    let (Some(connection), Some(session)) = (cx.connections.get(id), cx.sessions.get(key)) else {
        return;
    };
    let fields = vec![
        ("client_id", session.client_id.to_string()),
        ("user_name", cx.user_of(key).unwrap_or_default()),
        ("peer", peer_text(connection.peer)),
        ("reason", reason_of(connection.disconnect_cause)),
    ];
    cx.event(EventLevel::Info, CLIENT_DISCONNECTED, fields);
}

pub(super) fn handle_connect_timeout(cx: &mut Context, id: ConnectionId, serial: u64) {
    let Some(connection) = cx.connections.get_same(id, serial) else {
        return;
    };
    if matches!(connection.phase, Phase::AwaitConnect | Phase::AwaitAuth(_)) {
        thicket_session::reach!("time connect_timeout");
        let peer = peer_text(connection.peer);
        cx.event(EventLevel::Info, "no CONNECT in time", vec![("peer", peer)]);
        cx.close(id);
    }
}

impl Context {
    /// Sends DISCONNECT to a 5.0 client and closes. The session keeps the connection until `detach`.
    pub(super) fn disconnect(&mut self, id: ConnectionId, reason_code: ReasonCode, reason: &str) {
        let disconnect = Disconnect {
            reason_string: self.config.limits.reason_strings.then_some(reason),
            ..Disconnect::new(reason_code)
        };
        self.send_disconnect(id, disconnect);
    }

    /// Sends a DISCONNECT to a 5.0 client.
    pub(super) fn send_disconnect(&mut self, id: ConnectionId, disconnect: Disconnect<'_>) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.disconnect_cause = Some(DisconnectCause::Node(disconnect.reason_code));
        }
        let version = self
            .connections
            .attached(id)
            .map(|attached| attached.version);
        if version == Some(ProtocolVersion::V5) {
            let connection = self.connections.get_mut(id);
            if !connection.is_some_and(|connection| connection.out.drop_held()) {
                return;
            }
            self.send(id, &Packet::Disconnect(disconnect));
        }
    }

    /// Orders the shell to close a connection; nothing more is read from it.
    pub(super) fn close(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        if matches!(connection.phase, Phase::Closing) {
            return;
        }
        connection.phase = Phase::Closing;
        connection.partial = Vec::new();
        // What waits for backups does not leave with the last bytes if they are lost in the same moment.
        connection.out.drop_held();
        self.connections.count_half_open(id, 0);
        self.outputs.push_back(WorkerOutput::Close(id));
    }
}
