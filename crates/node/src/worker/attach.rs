//! A connection whose CONNECT was granted goes into service: its session is found or begun, and CONNACK leaves.

use std::{rc::Rc, time::Duration};

use thicket_mqtt::{Connack, Connect, Packet, ProtocolVersion, ReasonCode, decode};
use thicket_session::{server::StoredWill, time::Instant};

use super::{
    Worker,
    banned::refuses_banned,
    connect::{note_refused, refuse_connect, send_connack, session_name},
    context::Context,
    expiry::granted_expiry,
    listeners::{maximum_packet_size, prefix},
    quota::Quotas,
    redirect::suppress_will,
    refusal::Refusal,
    retained::resume_replays,
    rights::{refuses_ended, set_grant, watch_grant},
    state::{
        connection::{AliasesOut, Attached, Phase},
        counts::MessageCount,
        following::{FIRST_WAIT, Following},
        places::BetterNodes,
        reauthentication::Reauthentication,
        sessions::{Cause, NEVER, Session, SessionKey},
        timers::Timer,
    },
};
use crate::{
    ConnectionId, EventLevel, Now, PlacementError, PlacementReport, SESSION_CREATED,
    bans::Login,
    messages::{SessionState, Terms, ToHub, peer_text},
    placing::placement_text,
    visits::CLIENT_CONNECTED,
};

/// The user property of a CONNACK that names where the sessions of a client should be.
const PLACEMENT: &str = "thicket-placement";
/// Strings have two bytes for their length.
const LONGEST: usize = u16::MAX as usize;

impl Worker {
    /// The session is here: the connection goes into service.
    pub(super) fn attach(&mut self, now: Now, id: ConnectionId) {
        let Some(connection) = self.cx.connections.get_mut(id) else {
            return;
        };
        let buffered = std::mem::take(&mut connection.partial);
        let (assigned, terms, placed) = match &mut connection.phase {
            Phase::AwaitClaim {
                assigned,
                terms,
                placed,
            } => (assigned.take(), *terms, placed.take()),
            Phase::AwaitConnect
            | Phase::AwaitVerdict
            | Phase::AwaitAuth(_)
            | Phase::Attached(_)
            | Phase::Closing => (None, Terms::default(), None),
        };
        let Ok(Some((Packet::Connect(connect), len))) =
            decode(&buffered, ProtocolVersion::V5, u32::MAX)
        else {
            debug_assert!(
                false,
                "a claim is granted to a connection that sent a CONNECT"
            );
            return;
        };
        let client_id = assigned.as_deref().unwrap_or(connect.client_id);
        let client_id: Rc<str> = session_name(&self.cx, id, client_id)
            .expect("it was claimed by its name")
            .into();
        let admission = self
            .cx
            .connections
            .get_mut(id)
            .map(|it| std::mem::take(&mut it.admission));
        let admission = admission.unwrap_or_default();
        let grant = admission.grant.as_deref();
        let user_name = grant.and_then(|grant| grant.user_name.clone());
        let user = user_name.as_deref();
        let refusal = refuses_ended(now, grant).or_else(|| {
            (self.quotas).refuses_session(&mut self.cx, now, id, &client_id, user, &connect)
        });
        if let Some(refusal) = refusal {
            refuse_connect(&mut self.cx, id, &connect, &refusal);
            let client_id = (*client_id).into();
            self.cx.send_to_hub(ToHub::GrantDone { client_id });
            return;
        }
        let asks_again = placed.as_deref().is_some_and(Result::is_ok) && !connect.clean_start;
        if let Some(old) = self.cx.sessions.find(&client_id)
            && asks_again
            && self
                .cx
                .sessions
                .get(old)
                .is_some_and(|it| it.connection.is_some())
        {
            suppress_will(&mut self.cx, old);
        }
        let (key, session_present) = self.open_session(now, &client_id, &connect);
        set_grant(&mut self.cx, key, admission.grant);
        self.quotas
            .charge(&mut self.cx, id, key, user_name.as_deref());
        put_in_service(&mut self.cx, now, id, key, &connect);
        let is_partitioned = self.primaries.is_partitioned(now.instant);
        let is_sole = terms.is_sole && self.primaries.is_whole(&self.cx);
        if let Some(session) = self.cx.sessions.get_mut(key) {
            session.epoch = session.epoch.max(terms.epoch);
            session.inbound.handle_connected(is_partitioned);
            if !is_partitioned {
                session.divergence = None;
                self.cx.journal.forget_finished(session);
            } else if is_sole {
                session.forget_branches();
                self.cx.journal.forget_finished(session);
            }
            if is_partitioned && session.is_persistent() {
                session.outbound.record_finished();
            }
            if session.divergence.is_some() || session.is_interrupted {
                session.divergence_mut().is_served = true;
            }
            if connect.clean_start && !session_present {
                session.clean_epoch = session.epoch;
            }
        }
        self.primaries.store_session(&mut self.cx, now, key);
        self.cx.hold_output(id, key);
        self.primaries.backup_will(&mut self.cx, now, key);
        self.primaries.hold_for_will(&mut self.cx, id, key);
        let answer = Answer {
            session_present,
            assigned: assigned.as_deref(),
            authentication_data: admission.authentication_data.as_deref(),
            placed: placed.as_deref(),
        };
        let is_acknowledged = acknowledge_connect(&mut self.cx, id, key, &connect, answer);
        self.cx.set_reading(id, true);
        self.cx.report_session(&client_id, SessionState::Connected);
        self.cx.send_to_hub(ToHub::GrantDone {
            client_id: (*client_id).into(),
        });
        self.cx.set_members_connected(key, true);
        if !is_acknowledged {
            note_refused(
                &mut self.cx,
                id,
                "CONNACK is larger than the client takes",
                &client_id,
            );
            self.detach(now, id, Cause::Closed);
            return;
        }
        note_connected(
            &mut self.cx,
            id,
            &client_id,
            user_name.as_deref(),
            &connect,
            session_present,
        );
        if !session_present {
            self.cx.note_session(key, SESSION_CREATED, Vec::new());
        }
        self.cx.pull(now, key);
        resume_replays(&mut self.cx, key);
        // What the client sent without waiting for the CONNACK.
        self.handle_received(now, id, &buffered[len..]);
    }

    /// The session the client gets: its old one, or a new one. Whether there was an old one.
    fn open_session(
        &mut self,
        now: Now,
        client_id: &Rc<str>,
        connect: &Connect<'_>,
    ) -> (SessionKey, bool) {
        let expiry = granted_expiry(&self.cx, connect);
        self.publish_recovered_wills(now, Some(client_id));
        self.end_if_over(now, client_id);
        if let Some(old) = self.cx.sessions.find(client_id) {
            self.take_over(now, old, connect.clean_start);
        }
        if let Some(key) = self.cx.sessions.find(client_id) {
            self.take_back(now, key);
            self.publish_overdue_will(now, key);
            let session = self
                .cx
                .sessions
                .get_mut(key)
                .expect("found by its client identifier");
            session.disconnected_at = None;
            session.will_due = None;
            session.set_expiry(expiry);
            session.outbound.handle_resume();
            return (key, true);
        }
        let (serial, uid) = (self.cx.serial(), self.cx.random.next_u128());
        let session = Session::new(
            serial,
            Rc::clone(client_id),
            uid,
            expiry,
            &self.cx.config.limits,
        );
        (self.cx.sessions.insert(session), false)
    }

    /// Ends what the client identifier had before [MQTT-3.1.4-3].
    fn take_over(&mut self, now: Now, old: SessionKey, clean_start: bool) {
        let connection = self
            .cx
            .sessions
            .get(old)
            .and_then(|session| session.connection);
        if let Some(connection) = connection {
            self.cx.disconnect(
                connection,
                ReasonCode::SessionTakenOver,
                "another connection has this client identifier",
            );
            self.detach(now, connection, Cause::TakenOver);
        }
        if clean_start && self.cx.sessions.get(old).is_some() {
            // The will of the old session is published when the session ends, delayed or not [MQTT-3.1.2-8].
            self.end_session(now, old);
        }
    }
}

impl Quotas {
    /// Why the client may not have the session it asks for.
    fn refuses_session(
        &mut self,
        cx: &mut Context,
        now: Now,
        id: ConnectionId,
        client_id: &Rc<str>,
        user_name: Option<&str>,
        connect: &Connect<'_>,
    ) -> Option<Refusal> {
        let refusal =
            if let Some(refusal) = refuses_banned(cx, now, id, connect, Login::of(user_name)) {
                Some(refusal)
            } else if exceeds_limits_of(cx, client_id, connect) {
                let reason = "no room to keep the session";
                Some(Refusal::new(ReasonCode::QuotaExceeded, reason))
            } else if let Some(refusal) = self.refuses_will(cx, id, client_id, user_name, connect) {
                Some(refusal)
            } else if cx.sessions.find(client_id).is_none() {
                self.refuses_new_session(cx, id, user_name, connect)
            } else {
                None
            };
        cx.traffic.sessions_refused += u64::from(refusal.is_some());
        refusal
    }
}

fn note_connected(
    cx: &mut Context,
    id: ConnectionId,
    client_id: &str,
    user_name: Option<&str>,
    connect: &Connect<'_>,
    session_present: bool,
) {
    let peer = cx.connections.get(id).map(|it| peer_text(it.peer));
    let fields = vec![
        ("client_id", client_id.to_owned()),
        ("user_name", user_name.unwrap_or_default().to_owned()),
        ("peer", peer.unwrap_or_default()),
        ("version", format!("{:?}", connect.version)),
        ("session_present", session_present.to_string()),
    ];
    cx.event(EventLevel::Info, CLIENT_CONNECTED, fields);
}

/// Whether the client asks for a session that would have to be stored, is not stored yet, and would be over the limit.
fn exceeds_limits_of(cx: &Context, client_id: &Rc<str>, connect: &Connect<'_>) -> bool {
    let is_stored = |key| cx.sessions.get(key).is_some_and(|it| it.stored.is_some());
    granted_expiry(cx, connect) > 0
        && cx.journal.is_full_for_sessions()
        && !cx.sessions.find(client_id).is_some_and(is_stored)
}

/// The keep alive that holds, in seconds. Only clients of 5.0 receive another one than they asked for [MQTT-3.1.2-21].
fn keep_alive(cx: &Context, connect: &Connect<'_>) -> u16 {
    let maximum = cx.config.limits.keep_alive_maximum;
    match (connect.version, maximum, connect.keep_alive) {
        (ProtocolVersion::V31 | ProtocolVersion::V311, _, asked) | (_, 0, asked) => asked,
        (ProtocolVersion::V5, maximum, 0) => maximum,
        (ProtocolVersion::V5, maximum, asked) => asked.min(maximum),
    }
}

fn put_in_service(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    key: SessionKey,
    connect: &Connect<'_>,
) {
    let prefix: Rc<str> = prefix(cx, id).into();
    let keep_alive = keep_alive(cx, connect);
    let silence_allowed =
        (keep_alive > 0).then(|| Duration::from_millis(u64::from(keep_alive) * 1500));
    let session = cx.sessions.get_mut(key).expect("just opened");
    session.connection = Some(id);
    session.connected_at = Some(now.instant);
    session.protocol_version = connect.version as u8;
    session.will = connect
        .will
        .as_ref()
        .map(|will| session.charge.will(StoredWill::new(will, &prefix)));
    let inflight_maximum = cx.config.limits.inflight_maximum;
    let attached = Attached {
        session: key,
        version: connect.version,
        is_bridge: connect.bridge,
        silence_allowed,
        window: connect
            .receive_maximum
            .unwrap_or(u16::MAX)
            .min(inflight_maximum),
        maximum_packet_size: connect.maximum_packet_size.unwrap_or(u32::MAX),
        problem_information: connect.request_problem_information,
        aliases_in: Vec::new(),
        aliases_out: AliasesOut::new(
            connect
                .topic_alias_maximum
                .min(cx.config.limits.topic_alias_maximum),
        ),
        prefix,
        reauthentication: connect.authentication_method.map(Reauthentication::new),
        following: Following::new(now.instant, FIRST_WAIT),
        count: MessageCount::new(now.instant),
        better_nodes: BetterNodes::of(connect),
    };
    serve(cx, now, id, attached, now.instant);
}

/// A connection is in service from now on. `last_packet`: when the client sent its last packet.
pub(super) fn serve(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    attached: Attached,
    last_packet: Instant,
) {
    let silence_allowed = attached.silence_allowed;
    let Some(connection) = cx.connections.get_mut(id) else {
        return;
    };
    connection.phase = Phase::Attached(Box::new(attached));
    connection.last_packet = last_packet;
    let serial = connection.serial;
    if let Some(allowed) = silence_allowed {
        cx.timers.set(
            last_packet + allowed,
            Timer::KeepAlive {
                connection: id,
                serial,
            },
        );
    }
    cx.traffic.connections += 1;
    watch_grant(cx, now, id, serial);
}

fn acknowledge_connect(
    cx: &mut Context,
    id: ConnectionId,
    key: SessionKey,
    connect: &Connect<'_>,
    answer: Answer<'_>,
) -> bool {
    let limits = &cx.config.limits;
    let expiry = cx
        .sessions
        .get(key)
        .map_or(0, |session| session.expiry_interval);
    let keep_alive = keep_alive(cx, connect);
    let differs = |asked: u32, given: u32| (asked != given).then_some(given);
    let placement = answer
        .placed
        .and_then(|placed| placement_text(placed, prefix(cx, id)));
    let placement = placement.as_deref().filter(|text| text.len() <= LONGEST);
    let mut connack = Connack {
        session_present: answer.session_present,
        session_expiry_interval: differs(connect.session_expiry_interval.unwrap_or(0), expiry),
        receive_maximum: Some(limits.receive_maximum),
        maximum_packet_size: Some(maximum_packet_size(cx, id)),
        assigned_client_identifier: answer.assigned,
        topic_alias_maximum: (limits.topic_alias_maximum > 0).then_some(limits.topic_alias_maximum),
        server_keep_alive: (keep_alive != connect.keep_alive).then_some(keep_alive),
        // [MQTT-4.12.0-5]
        authentication_method: connect.authentication_method,
        authentication_data: answer.authentication_data,
        user_properties: placement
            .map(|text| (PLACEMENT, text))
            .into_iter()
            .collect(),
        ..Connack::new(ReasonCode::Success)
    };
    let maximum = connect.maximum_packet_size.unwrap_or(u32::MAX);
    if send_connack(cx, id, connect.version, maximum, &connack) {
        return true;
    }
    // A user property must not make it larger than the client accepts [MQTT-3.2.2-20].
    let had_placement = !std::mem::take(&mut connack.user_properties).is_empty();
    had_placement && send_connack(cx, id, connect.version, maximum, &connack)
}

/// What a CONNACK contains about a session that was opened.
#[derive(Debug, Clone, Copy)]
struct Answer<'a> {
    session_present: bool,
    assigned: Option<&'a str>,
    authentication_data: Option<&'a [u8]>,
    placed: Option<&'a Result<PlacementReport, PlacementError>>,
}

impl Session {
    /// Changes when the session ends after its connection.
    pub(super) const fn set_expiry(&mut self, seconds: u32) {
        self.expiry_interval = seconds;
        self.outbound.set_keeps(seconds > 0);
    }

    /// Whether its client has been away from this node for so long that the session ends.
    pub(super) fn has_expired(&self, now: Instant) -> bool {
        self.is_persistent() && self.expires_at().is_some_and(|at| at <= now)
    }

    /// When the session ends if its client stays away; `None`: it is connected, or the session waits for ever.
    pub(super) fn expires_at(&self) -> Option<Instant> {
        Some(self.disconnected_at? + self.waits_for()?)
    }

    /// How long the session waits for its client; `None`: for ever.
    pub(super) const fn waits_for(&self) -> Option<Duration> {
        match self.expiry_interval {
            NEVER => None,
            seconds => Some(Duration::from_secs(seconds as u64)),
        }
    }
}
