//! Who a client is: the users (shell) are asked, perhaps in several steps, at CONNECT and again when the client wants it (5.0, 4.12).
//!
//! | phase | AUTH 0x18 | AUTH 0x19 | verdict `Continue` | `Allowed` | a refusal |
//! | --- | --- | --- | --- | --- | --- |
//! | `AwaitVerdict` | stays in the buffer | stays in the buffer | AUTH 0x18, `AwaitAuth` | claim | CONNACK |
//! | `AwaitAuth` | asked, `AwaitVerdict` | CONNACK 0x82 | nobody was asked | nobody was asked | nobody was asked |
//! | in service, `Idle` | DISCONNECT 0x82 | asked, `Asked` | nobody was asked | nobody was asked | nobody was asked |
//! | in service, `Asked` | DISCONNECT 0x82 | DISCONNECT 0x82 | AUTH 0x18, `AwaitAnswer` | AUTH 0x00, `Idle` | DISCONNECT |
//! | in service, `AwaitAnswer` | asked, `Asked` | DISCONNECT 0x82 | nobody was asked | nobody was asked | nobody was asked |
//!
//! Another method than that of CONNECT ends the connection with 0x8C before CONNACK and with 0x82 after it, as does AUTH without one
//! in CONNECT.

use thicket_access::scram::ServerExchange;
use thicket_mqtt::{Auth, Connect, Packet, ProtocolVersion, ReasonCode, decode};

use super::{
    Worker, WorkerView,
    banned::refuses_banned,
    connect::{claim, note_refused, refuse_connect},
    context::Context,
    listeners::prefix,
    refusal::Refusal,
    rights::{set_grant, watch_grant},
    state::{
        connection::{Attached, Phase},
        interests::is_bridge_state,
        reauthentication::{Reauthentication, ReauthenticationPhase},
        sessions::SessionKey,
    },
};
use crate::{
    Admission, ConnectionId, Enhanced, Now, Verdict, WorkerOutput,
    bans::Login,
    scope::{client_id_of, session_name},
};

impl Worker {
    /// The users' answer.
    pub(super) fn handle_verdict(&mut self, now: Now, id: ConnectionId, verdict: Verdict) {
        let Some(connection) = self.cx.connections.get_mut(id) else {
            return;
        };
        match &connection.phase {
            Phase::AwaitVerdict => {}
            Phase::Attached(_) => return self.handle_reauthentication_verdict(now, id, verdict),
            Phase::AwaitConnect
            | Phase::AwaitAuth(_)
            | Phase::AwaitClaim { .. }
            | Phase::Closing => return,
        }
        connection.last_packet = now.instant;
        let answered = connection.answered;
        let mut buffered = std::mem::take(&mut connection.partial);
        let mut connect_len = 0;
        if let Ok(Some((Packet::Connect(connect), len))) =
            decode(&buffered, ProtocolVersion::V5, u32::MAX)
        {
            connect_len = len;
            judge(&mut self.cx, now, id, &connect, verdict);
        }
        let Some(connection) = self.cx.connections.get_mut(id) else {
            return;
        };
        if matches!(connection.phase, Phase::AwaitClaim { .. }) {
            buffered.drain(connect_len..connect_len + answered);
        }
        connection.partial = buffered;
        if matches!(connection.phase, Phase::AwaitAuth(_)) {
            // The client may have answered before it was asked.
            self.handle_received(now, id, &[]);
        }
    }

    fn handle_reauthentication_verdict(&mut self, now: Now, id: ConnectionId, verdict: Verdict) {
        let asked = self
            .cx
            .connections
            .attached_mut(id)
            .and_then(Attached::asked_again);
        let Some((method, phase)) = asked else { return };
        let (reason_code, data) = match verdict {
            Verdict::Continue { data, exchange } => {
                *phase = ReauthenticationPhase::AwaitAnswer(exchange);
                (ReasonCode::ContinueAuthentication, Some(data))
            }
            Verdict::Allowed(admission) => {
                *phase = ReauthenticationPhase::Idle;
                let data = admission.authentication_data.clone();
                if let Err(refusal) = admit_again(&mut self.cx, now, id, admission) {
                    return self.refuse(now, id, &refusal);
                }
                (ReasonCode::Success, data)
            }
            Verdict::BadAuthenticationMethod
            | Verdict::BadUserNameOrPassword
            | Verdict::NotAuthorized
            | Verdict::Unavailable => return self.refuse(now, id, &refusal_of(&verdict)),
        };
        self.cx
            .send(id, &auth(reason_code, Some(&method), data.as_deref()));
    }
}

/// Asks the users (shell) about a CONNECT, unless none have to be asked.
pub(super) fn ask_users(cx: &mut Context, now: Now, id: ConnectionId, connect: &Connect<'_>) {
    let Some(connection) = cx.connections.get(id) else {
        return;
    };
    let listener = usize::from(connection.listener.0);
    let anonymous = cx
        .config
        .listeners
        .get(listener)
        .is_none_or(|listener| listener.allow_anonymous);
    let method = connect.authentication_method;
    if anonymous && connect.login.user_name.is_none() && method.is_none() {
        judge(cx, now, id, connect, Verdict::Allowed(Admission::default()));
        return;
    }
    let enhanced = method.map(|method| Enhanced {
        method: method.to_owned(),
        data: connect.authentication_data.unwrap_or_default().to_vec(),
        exchange: None,
    });
    ask(cx, id, connect, enhanced);
}

fn judge(cx: &mut Context, now: Now, id: ConnectionId, connect: &Connect<'_>, verdict: Verdict) {
    let refusal = match verdict {
        Verdict::Allowed(admission) => return admit(cx, now, id, connect, admission),
        Verdict::Continue { data, exchange } => {
            return challenge(cx, id, connect, &data, exchange);
        }
        Verdict::BadAuthenticationMethod
        | Verdict::BadUserNameOrPassword
        | Verdict::NotAuthorized
        | Verdict::Unavailable => refusal_of(&verdict),
    };
    refuse_connect(cx, id, connect, &refusal);
}

fn admit(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    connect: &Connect<'_>,
    admission: Admission,
) {
    let grant = admission.grant.as_ref();
    let user_name = grant.and_then(|grant| grant.user_name.as_deref());
    if let Some(refusal) = refuses_banned(cx, now, id, connect, Login::of(user_name)) {
        refuse_connect(cx, id, connect, &refusal);
        return;
    }
    let rights = admission
        .grant
        .as_ref()
        .and_then(|grant| grant.rights.as_ref());
    if let (Some(will), Some(rights)) = (&connect.will, rights) {
        let topic = format!("{}{}", prefix(cx, id), will.topic);
        // Every bridge of a Mosquitto has such a will: without the right it bridges all the same, and the will is dropped when it is due.
        if !is_bridge_state(will.topic) && !rights.may_publish(&topic) {
            let refusal = Refusal::new(
                ReasonCode::NotAuthorized,
                "the user may not publish to the will topic",
            );
            refuse_connect(cx, id, connect, &refusal);
            return;
        }
    }
    if let Some(connection) = cx.connections.get_mut(id) {
        connection.admission = admission;
    }
    claim(cx, id, connect);
}

fn ask(cx: &mut Context, id: ConnectionId, connect: &Connect<'_>, enhanced: Option<Enhanced>) {
    let Some(connection) = cx.connections.get(id) else {
        return;
    };
    cx.outputs.push_back(WorkerOutput::Authenticate {
        connection: id,
        listener: connection.listener,
        peer: connection.peer,
        client_id: connect.client_id.to_owned(),
        user_name: connect.login.user_name.map(str::to_owned),
        password: connect.login.password.map(<[u8]>::to_vec),
        enhanced: enhanced.map(Box::new),
    });
}

fn challenge(
    cx: &mut Context,
    id: ConnectionId,
    connect: &Connect<'_>,
    data: &[u8],
    exchange: Box<ServerExchange>,
) {
    let packet = auth(
        ReasonCode::ContinueAuthentication,
        connect.authentication_method,
        Some(data),
    );
    let maximum = connect.maximum_packet_size.unwrap_or(u32::MAX);
    let Some(connection) = cx.connections.get_mut(id) else {
        return;
    };
    let out = &mut connection.out.bytes;
    if packet.encode_within(connect.version, maximum, out).is_ok() {
        connection.phase = Phase::AwaitAuth(exchange);
        cx.connections.mark_dirty(id);
        // Nothing was read while the users were asked.
        cx.set_reading(id, true);
    } else {
        note_refused(
            cx,
            id,
            "AUTH is larger than the client takes",
            connect.client_id,
        );
        cx.close(id);
    }
}

/// `bytes`: all since the CONNECT of a client that is to answer. They stay in the buffer.
pub(super) fn handle_auth_bytes(cx: &mut Context, now: Now, id: ConnectionId, bytes: &[u8]) {
    let Ok(Some((Packet::Connect(connect), len))) = decode(bytes, ProtocolVersion::V5, u32::MAX)
    else {
        return;
    };
    let Some(connection) = cx.connections.get_mut(id) else {
        return;
    };
    let next = &bytes[len + connection.answered..];
    let maximum = cx.config.limits.maximum_packet_size;
    let refusal = match decode(next, connect.version, maximum) {
        Ok(None) => return,
        Ok(Some((Packet::Auth(auth), len))) => {
            match check_answer(&auth, connect.authentication_method) {
                Ok(()) => return ask_on(cx, now, id, &connect, &auth, len),
                Err(refusal) => refusal,
            }
        }
        Ok(Some((Packet::Disconnect(_), _))) => return cx.close(id),
        // [MQTT-3.1.2-30]
        Ok(Some(_)) => Refusal::protocol("another packet than AUTH before CONNACK"),
        Err(error) => Refusal::new(error.reason_code(), error.to_string()),
    };
    refuse_connect(cx, id, &connect, &refusal);
}

/// Passes the answer of `len` bytes on.
fn ask_on(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    connect: &Connect<'_>,
    auth: &Auth<'_>,
    len: usize,
) {
    let Some(connection) = cx.connections.get_mut(id) else {
        return;
    };
    connection.last_packet = now.instant;
    connection.answered += len;
    let Phase::AwaitAuth(exchange) = std::mem::replace(&mut connection.phase, Phase::AwaitVerdict)
    else {
        return;
    };
    ask(cx, id, connect, Some(step(auth, Some(exchange))));
}

/// AUTH from a client in service.
pub(super) fn handle_auth(
    cx: &mut Context,
    id: ConnectionId,
    key: SessionKey,
    auth: &Auth<'_>,
) -> Result<(), Refusal> {
    let Some(connection) = cx.connections.get_mut(id) else {
        return Ok(());
    };
    let (listener, peer) = (connection.listener, connection.peer);
    let reauthentication = connection
        .attached_mut()
        .and_then(|attached| attached.reauthentication.as_mut())
        .ok_or_else(|| Refusal::protocol("AUTH without an authentication method in CONNECT"))?;
    if auth.authentication_method != Some(&*reauthentication.method) {
        // [MQTT-4.12.1-1]; DISCONNECT has no 0x8C (5.0, 3.14.2.1).
        return Err(Refusal::protocol(
            "another authentication method than in CONNECT",
        ));
    }
    let phase = std::mem::replace(&mut reauthentication.phase, ReauthenticationPhase::Asked);
    let exchange = match (phase, auth.reason_code) {
        (ReauthenticationPhase::Idle, ReasonCode::ReAuthenticate) => None,
        (ReauthenticationPhase::AwaitAnswer(exchange), ReasonCode::ContinueAuthentication) => {
            Some(exchange)
        }
        (
            ReauthenticationPhase::Idle
            | ReauthenticationPhase::Asked
            | ReauthenticationPhase::AwaitAnswer(_),
            _,
        ) => return Err(Refusal::protocol("AUTH out of turn")),
    };
    let Some(session) = cx.sessions.get(key) else {
        return Ok(());
    };
    cx.outputs.push_back(WorkerOutput::Authenticate {
        connection: id,
        listener,
        peer,
        client_id: client_id_of(&session.client_id).to_owned(),
        user_name: None,
        password: None,
        enhanced: Some(Box::new(step(auth, exchange))),
    });
    Ok(())
}

/// The client has proved itself again. It may not become somebody else: its session was the first one's.
fn admit_again(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    admission: Admission,
) -> Result<(), Refusal> {
    let Some(key) = cx.connections.session_of(id) else {
        return Ok(());
    };
    let name = |grant: &Option<std::sync::Arc<thicket_access::Grant>>| {
        grant.as_ref().and_then(|grant| grant.user_name.clone())
    };
    let present = cx.sessions.get(key).and_then(|it| name(&it.grant));
    if present != name(&admission.grant) {
        return Err(Refusal::new(
            ReasonCode::NotAuthorized,
            "re-authentication as another user",
        ));
    }
    set_grant(cx, key, admission.grant);
    let serial = cx
        .connections
        .get(id)
        .map_or(0, |connection| connection.serial);
    watch_grant(cx, now, id, serial);
    Ok(())
}

impl Attached {
    /// Method and phase, if the users are being asked.
    fn asked_again(&mut self) -> Option<(Box<str>, &mut ReauthenticationPhase)> {
        let Reauthentication { method, phase } = self.reauthentication.as_deref_mut()?;
        matches!(phase, ReauthenticationPhase::Asked).then(|| (method.clone(), phase))
    }
}

fn auth<'a>(
    reason_code: ReasonCode,
    authentication_method: Option<&'a str>,
    authentication_data: Option<&'a [u8]>,
) -> Packet<'a> {
    Packet::Auth(Auth {
        reason_code,
        authentication_method,
        authentication_data,
        reason_string: None,
        user_properties: Vec::new(),
    })
}

fn step(auth: &Auth<'_>, exchange: Option<Box<ServerExchange>>) -> Enhanced {
    Enhanced {
        method: auth.authentication_method.unwrap_or_default().to_owned(),
        data: auth.authentication_data.unwrap_or_default().to_vec(),
        exchange,
    }
}

/// [MQTT-4.12.0-5] and [MQTT-4.12.0-3].
fn check_answer(auth: &Auth<'_>, method: Option<&str>) -> Result<(), Refusal> {
    if auth.authentication_method != method {
        return Err(another_method());
    }
    if auth.reason_code != ReasonCode::ContinueAuthentication {
        return Err(Refusal::protocol(
            "AUTH before CONNACK that does not continue",
        ));
    }
    Ok(())
}

fn another_method() -> Refusal {
    Refusal::new(
        ReasonCode::BadAuthenticationMethod,
        "another authentication method than in CONNECT",
    )
}

/// The answer to a client that is refused.
fn refusal_of(verdict: &Verdict) -> Refusal {
    let (reason_code, reason) = match verdict {
        Verdict::BadAuthenticationMethod => (
            ReasonCode::BadAuthenticationMethod,
            "this authentication method is not known here",
        ),
        Verdict::BadUserNameOrPassword => (
            ReasonCode::BadUserNameOrPassword,
            "bad user name or password",
        ),
        Verdict::Unavailable => (ReasonCode::ServerUnavailable, "users cannot be asked now"),
        Verdict::NotAuthorized | Verdict::Allowed(_) | Verdict::Continue { .. } => {
            (ReasonCode::NotAuthorized, "not authorized")
        }
    };
    Refusal::new(reason_code, reason)
}

impl WorkerView<'_> {
    /// The name that the session of a client has if it is that of this user, at a connection that is there.
    #[must_use]
    pub fn name_of_session(
        &self,
        id: ConnectionId,
        user_name: Option<&str>,
        client_id: &str,
    ) -> Option<String> {
        let scope = self.worker.cx.config.limits.session_scope;
        session_name(scope, prefix(&self.worker.cx, id), user_name, client_id)
    }

    /// Whether a client that waits for a verdict has sent more than its CONNECT: that is handled after the verdict, even if the client has left by then.
    #[must_use]
    pub fn has_sent_more_than_connect(&self, id: ConnectionId) -> bool {
        let connection = self.worker.cx.connections.get(id);
        let buffered = connection.map_or(&[][..], |connection| &connection.partial);
        let first = decode(buffered, ProtocolVersion::V5, u32::MAX);
        matches!(first, Ok(Some((_, len))) if buffered.len() > len)
    }
}
