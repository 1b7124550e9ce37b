//! From the first bytes of a connection to a session in service.
//!
//! CONNECT is checked, users are asked (shell), the client identifier is claimed (hub), the connection goes to the worker that has the session, and
//! is attached there. The CONNECT stays at the head of the connection's buffer on that way and is decoded again at its end, so that nothing of it is
//! kept twice.

use std::{rc::Rc, sync::Arc};

use thicket_mqtt::{
    Connack, Connect, DecodeError, Packet, ProtocolVersion, ReasonCode, connect_version, decode,
};

use super::{
    Worker,
    authentication::ask_users,
    banned::refuses_banned,
    context::Context,
    drain::refuses_clients,
    listeners::{listener, maximum_packet_size, prefix},
    minority::refuses_newcomers,
    placing::placement_asked,
    publish::may_publish,
    redirect::{redirectable, refusable},
    refusal::Refusal,
    state::connection::Phase,
};
use crate::{
    ConnectionId, EventLevel, Handover, Now, Peer, Takes, WorkerOutput,
    bans::Login,
    messages::{Claim, ClaimGrant, ClaimRefusal, GrantedClaim, Terms, ToHub, peer_text},
    scope,
    visits::{CONNECT_MALFORMED, CONNECT_MISSING, CONNECT_REFUSED},
};

/// Client identifiers of links between nodes start with this; no client may use it.
const LINK_PREFIX: &str = "$thicket/";

/// Bytes of a connection that has not sent a whole CONNECT yet.
pub(super) fn handle_first_bytes(cx: &mut Context, now: Now, id: ConnectionId, bytes: &[u8]) {
    let maximum = maximum_packet_size(cx, id);
    match decode(bytes, ProtocolVersion::V5, maximum) {
        Ok(Some((Packet::Connect(connect), _))) => handle_connect(cx, now, id, &connect, bytes),
        Ok(Some((packet, _))) => {
            // No answer is owed to a peer that does not send CONNECT first [MQTT-3.1.0-1].
            let kind = format!("{:?}", packet.kind());
            let code = ReasonCode::ProtocolError.words();
            note_unread(cx, id, CONNECT_MISSING, vec![("reason_code", code)], &kind);
            cx.close(id);
        }
        Ok(None) => {}
        Err(error) => {
            if let Some(version) = connack_version(bytes, &error) {
                send_connack(
                    cx,
                    id,
                    version,
                    u32::MAX,
                    &Connack::new(error.reason_code()),
                );
            }
            let mut facts = vec![("reason_code", error.reason_code().words())];
            let mut problem = error.to_string();
            if let Some((protocol, words)) = foreign_protocol(bytes) {
                facts.push(("protocol", protocol.to_owned()));
                words.clone_into(&mut problem);
            }
            note_unread(cx, id, CONNECT_MALFORMED, facts, &problem);
            cx.close(id);
        }
    }
}

fn handle_connect(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    connect: &Connect<'_>,
    bytes: &[u8],
) {
    let takes = listener(cx, id).map_or(Takes::Both, |listener| listener.takes);
    if connect.client_id.starts_with(LINK_PREFIX) && connect.version == ProtocolVersion::V5 {
        if takes == Takes::Clients {
            note_refused(
                cx,
                id,
                "link refused",
                "a link without TLS arrived at a listener for clients",
            );
            cx.close(id);
        } else {
            hand_link_over(cx, id, bytes);
        }
        return;
    }
    if takes == Takes::Links {
        let refusal = Refusal::new(ReasonCode::NotAuthorized, "only nodes come in here");
        refuse_connect(cx, id, connect, &refusal);
        return;
    }
    if let Err(refusal) = check_connect(cx, id, connect) {
        refuse_connect(cx, id, connect, &refusal);
        return;
    }
    if let Some(reason_code) = refuses_clients(cx, id, connect.version) {
        let refusal = Refusal::new(reason_code, "the node is drained");
        refuse_connect(cx, id, connect, &refusal);
        return;
    }
    // Before a password is hashed.
    if let Some(refusal) = refuses_banned(cx, now, id, connect, Login::Unproved) {
        refuse_connect(cx, id, connect, &refusal);
        return;
    }
    if let Some(refusal) = refuses_newcomers(cx) {
        refuse_connect(cx, id, connect, &refusal);
        return;
    }
    let Some(connection) = cx.connections.get_mut(id) else {
        return;
    };
    connection.last_packet = now.instant;
    connection.phase = Phase::AwaitVerdict;
    ask_users(cx, now, id, connect);
}

impl Worker {
    /// The hub reports which worker has the session.
    pub(super) fn handle_granted(
        &mut self,
        now: Now,
        (id, serial): (ConnectionId, u64),
        client_id: &str,
        grant: ClaimGrant,
    ) {
        let ClaimGrant {
            home,
            terms,
            placed,
        } = grant;
        let connection = self.cx.connections.get_same(id, serial);
        let is_asking = match connection.map(|it| &mut it.phase) {
            Some(Phase::AwaitClaim {
                terms: held,
                placed: answer,
                ..
            }) => {
                *held = terms;
                answer.clone_from(&placed);
                true
            }
            _ => false,
        };
        if !is_asking {
            // The client has gone.
            let client_id = client_id.into();
            self.cx.send_to_hub(ToHub::GrantDone { client_id });
            return;
        }
        if home == self.cx.id {
            self.attach(now, id);
            return;
        }
        self.cx.connections.count_half_open(id, 0);
        let Some(connection) = self.cx.connections.take(id) else {
            return;
        };
        let assigned = match &connection.phase {
            Phase::AwaitClaim { assigned, .. } => assigned.as_deref().map(Arc::from),
            Phase::AwaitConnect
            | Phase::AwaitVerdict
            | Phase::AwaitAuth(_)
            | Phase::Attached(_)
            | Phase::Closing => None,
        };
        let state = Handover {
            listener: connection.listener,
            peer: connection.peer,
            buffered: connection.partial,
            claim: Some(GrantedClaim {
                terms,
                assigned,
                admission: connection.admission,
                placed,
            }),
            relocated: None,
        };
        self.cx.outputs.push_back(WorkerOutput::Handover {
            connection: id,
            to: Peer::Worker(home),
            state: Box::new(state),
        });
    }
}

/// What a CONNECT may not ask for, although it is well formed.
fn check_connect(cx: &Context, id: ConnectionId, connect: &Connect<'_>) -> Result<(), Refusal> {
    let invalid = |reason: &str| Err(Refusal::new(ReasonCode::ClientIdentifierNotValid, reason));
    if connect.client_id.starts_with(LINK_PREFIX) {
        return invalid("client identifiers that start with $thicket/ are those of nodes");
    }
    let longest = usize::from(cx.config.limits.client_id_bytes);
    if connect.client_id.len() > longest {
        return invalid("the client identifier is longer than the node takes");
    }
    if connect.client_id.is_empty() {
        match connect.version {
            ProtocolVersion::V31 => {
                return invalid("an empty client identifier needs MQTT 3.1.1 or 5.0");
            }
            ProtocolVersion::V311 if !connect.clean_start => {
                // [MQTT-3.1.3-8 v3.1.1]
                return invalid("an empty client identifier needs a clean session");
            }
            ProtocolVersion::V311 | ProtocolVersion::V5 => {}
        }
    }
    if let Some(will) = &connect.will {
        let prefix = prefix(cx, id);
        if !may_publish(prefix.len() + will.topic.len(), will.topic) {
            return Err(Refusal::new(
                ReasonCode::NotAuthorized,
                "will topic is reserved",
            ));
        }
    }
    Ok(())
}

fn hand_link_over(cx: &mut Context, id: ConnectionId, bytes: &[u8]) {
    cx.connections.count_half_open(id, 0);
    let Some(connection) = cx.connections.take(id) else {
        return;
    };
    let state = Handover {
        listener: connection.listener,
        peer: connection.peer,
        buffered: bytes.to_vec(),
        claim: None,
        relocated: None,
    };
    cx.outputs.push_back(WorkerOutput::Handover {
        connection: id,
        to: Peer::Hub,
        state: Box::new(state),
    });
}

pub(super) fn claim(cx: &mut Context, id: ConnectionId, connect: &Connect<'_>) {
    let (client_id, clean_start) = (connect.client_id, connect.clean_start);
    let assigned: Option<Rc<str>> = client_id
        .is_empty()
        .then(|| format!("thicket-{:032x}", cx.random.next_u128()).into());
    let Some(name) = session_name(cx, id, assigned.as_deref().unwrap_or(client_id)) else {
        let reason = "client identifier and user name are too long together";
        let refusal = Refusal::new(ReasonCode::ClientIdentifierNotValid, reason);
        refuse_connect(cx, id, connect, &refusal);
        return;
    };
    let own_id = assigned.as_deref().unwrap_or(client_id);
    let redirectable = redirectable(cx, id, connect);
    let refusable = refusable(cx, id, connect);
    let (asks, placed) = match placement_asked(cx, id, own_id, connect) {
        Some(Ok(request)) => (Some(Arc::new(request)), None),
        Some(Err(error)) => (None, Some(Arc::new(Err(error)))),
        None => (None, None),
    };
    let client_id: Arc<str> = name.into();
    let Some(connection) = cx.connections.get_mut(id) else {
        return;
    };
    let serial = connection.serial;
    connection.phase = Phase::AwaitClaim {
        assigned,
        terms: Terms::default(),
        placed: None,
    };
    cx.send_to_hub(ToHub::Claim(Claim {
        connection: id,
        serial,
        client_id,
        clean_start,
        redirectable,
        refusable,
        asks,
        placed,
    }));
}

/// The name of the session of the client of a connection.
pub(super) fn session_name(cx: &Context, id: ConnectionId, client_id: &str) -> Option<String> {
    let grant = cx.connections.get(id)?.admission.grant.as_ref();
    let user_name = grant.and_then(|grant| grant.user_name.as_deref());
    let scope = cx.config.limits.session_scope;
    scope::session_name(scope, prefix(cx, id), user_name, client_id)
}

/// The hub reports that nobody may have this client identifier now, or that its client is to go elsewhere.
pub(super) fn handle_claim_refused(
    cx: &mut Context,
    (id, serial): (ConnectionId, u64),
    refusal: &ClaimRefusal,
) {
    let Some(connection) = cx.connections.get_same(id, serial) else {
        return;
    };
    let reason_code = refusal.reason_code;
    let buffered = std::mem::take(&mut connection.partial);
    if let Ok(Some((Packet::Connect(connect), _))) =
        decode(&buffered, ProtocolVersion::V5, u32::MAX)
    {
        let maximum = connect.maximum_packet_size;
        match cx.server_reference(id, &refusal.instead) {
            Some(reference) => redirect_connect(cx, id, maximum, reason_code, &reference),
            None => {
                let refusal = Refusal::new(reason_code, "the session cannot be served now");
                refuse_connect(cx, id, &connect, &refusal);
            }
        }
    }
}

/// Sends a client of 5.0 the nodes that it should connect to instead.
fn redirect_connect(
    cx: &mut Context,
    id: ConnectionId,
    maximum: Option<u32>,
    reason_code: ReasonCode,
    reference: &str,
) {
    let connack = Connack {
        server_reference: Some(reference),
        ..Connack::new(reason_code)
    };
    let maximum = maximum.unwrap_or(u32::MAX);
    send_connack(cx, id, ProtocolVersion::V5, maximum, &connack);
    let peer = cx.connections.get(id).map(|it| peer_text(it.peer));
    let fields = vec![
        ("peer", peer.unwrap_or_default()),
        ("to", reference.to_owned()),
    ];
    cx.event(EventLevel::Debug, "client redirected", fields);
    cx.close(id);
}

pub(super) fn refuse_connect(
    cx: &mut Context,
    id: ConnectionId,
    connect: &Connect<'_>,
    refusal: &Refusal,
) {
    let connack = Connack {
        reason_string: (cx.config.limits.reason_strings).then_some(&*refusal.reason),
        ..Connack::new(refusal.reason_code)
    };
    let maximum = connect.maximum_packet_size.unwrap_or(u32::MAX);
    send_connack(cx, id, connect.version, maximum, &connack);
    let peer = cx.connections.get(id).map(|it| peer_text(it.peer));
    let mut fields = vec![
        ("client_id", connect.client_id.to_owned()),
        (
            "user_name",
            connect.login.user_name.unwrap_or_default().to_owned(),
        ),
        ("peer", peer.unwrap_or_default()),
        ("reason_code", refusal.reason_code.words()),
        ("reason", refusal.reason.clone()),
    ];
    let topic_prefix = prefix(cx, id);
    if !topic_prefix.is_empty() {
        fields.insert(2, ("topic_prefix", topic_prefix.to_owned()));
    }
    cx.event(EventLevel::Warn, CONNECT_REFUSED, fields);
    cx.close(id);
}

/// False: larger than what the client accepts, so not sent [MQTT-3.1.2-24].
pub(super) fn send_connack(
    cx: &mut Context,
    id: ConnectionId,
    version: ProtocolVersion,
    maximum: u32,
    connack: &Connack<'_>,
) -> bool {
    let Some(connection) = cx.connections.get_mut(id) else {
        return false;
    };
    let packet = Packet::Connack(Box::new(connack.clone()));
    let out = &mut connection.out.bytes;
    let fits = packet.encode_within(version, maximum, out).is_ok();
    if fits {
        cx.connections.mark_dirty(id);
    }
    fits
}

pub(super) fn note_refused(
    cx: &mut Context,
    id: ConnectionId,
    message: &'static str,
    reason: &str,
) {
    note_unread(cx, id, message, Vec::new(), reason);
}

/// The same with more facts.
fn note_unread(
    cx: &mut Context,
    id: ConnectionId,
    message: &'static str,
    facts: Vec<(&'static str, String)>,
    reason: &str,
) {
    let peer = cx
        .connections
        .get(id)
        .map(|connection| peer_text(connection.peer))
        .unwrap_or_default();
    let mut fields = vec![("peer", peer)];
    fields.extend(facts);
    fields.push(("reason", reason.to_owned()));
    cx.event(EventLevel::Warn, message, fields);
}

/// The protocol of a peer that connected to the wrong port, and what to do.
fn foreign_protocol(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    match bytes {
        // A record of a TLS handshake (RFC 8446 5.1).
        [0x16, 0x03, ..] => Some((
            "tls",
            "the client speaks TLS, and this listener does not: use a tls:// listener; if it is another node, give all nodes the same cluster secret, or none",
        )),
        [b'G', b'E', b'T', b' ', ..] | [b'P', b'O', b'S', b'T', ..] => Some((
            "http",
            "the client speaks HTTP, and this listener does not: use a ws:// listener, or the port of the HTTP API",
        )),
        _ => None,
    }
}

/// The version of the CONNACK that answers bytes that are no CONNECT of ours; `None`: none, the connection is just closed.
fn connack_version(bytes: &[u8], error: &DecodeError) -> Option<ProtocolVersion> {
    let is_connect = bytes.first().is_some_and(|first| first >> 4 == 1);
    // Before 5.0 there is no code for a malformed packet.
    let malformed = || connect_version(bytes).filter(|version| version.has_properties());
    is_connect
        .then(|| error.connack_version().or_else(malformed))
        .flatten()
}
