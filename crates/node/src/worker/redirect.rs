//! Clients that are sent to another node: what a worker sends them, and what becomes of their sessions (the hub decides).
//!
//! A session that outlives its connection waits here until its client has claimed it from elsewhere, with everything it has; its will waits for
//! [`WILL_WAITS_S`], so that it is published only if the client connects nowhere.

use thicket_mqtt::{Connect, Disconnect, ProtocolVersion, ReasonCode};
use thicket_overlay::NodeId;

use super::{
    Worker,
    context::Context,
    replication::Primaries,
    state::sessions::{Cause, SessionKey},
};
use crate::{
    ConnectionId, EventLevel, ListenerId, Now,
    messages::{Movable, Redirectable, ToHub},
};

/// A user property of a CONNECT: the client was sent away by a node, so it is served.
const CAME_REDIRECTED: &str = "thicket-redirected";
/// The will of a client that was sent away waits at least this long, seconds.
const WILL_WAITS_S: u32 = 30;
/// Clients listed at once at most, of all rates.
const NAMED: usize = 512;

impl Worker {
    /// The client of a session is to go to one of these nodes.
    pub(super) fn handle_send_client(&mut self, now: Now, client_id: &str, to: &[NodeId]) {
        let Some(key) = self.cx.sessions.find(client_id) else {
            return;
        };
        let session = self.cx.sessions.get(key);
        let Some(id) = session.and_then(|session| session.connection) else {
            return;
        };
        let attached = self.cx.connections.attached(id);
        let understands = attached.is_some_and(|it| it.version == ProtocolVersion::V5);
        let reference = self.cx.server_reference(id, to);
        if let (Some(reference), true) = (reference, understands && is_movable(&self.cx, key)) {
            let client_id = client_id.to_owned();
            let fields = vec![("client_id", client_id), ("to", reference.clone())];
            self.cx
                .event(EventLevel::Debug, "client sent to another node", fields);
            self.cx
                .disconnect_to(id, Some(&reference), "another node is better");
            suppress_will(&mut self.cx, key);
            self.detach(now, id, Cause::Closed);
        }
    }
}

impl Primaries {
    /// A node for the client of a session that ends here because the node is drained: where a backup of the session would be.
    pub(super) fn reference_for_drained(
        &mut self,
        cx: &mut Context,
        id: ConnectionId,
    ) -> Option<String> {
        let listener = cx.connections.get(id)?.listener;
        let key = cx.connections.session_of(id);
        let to = key.and_then(|key| self.choose_backup(cx, key, &[]));
        let address = to.and_then(|to| cx.cluster.elsewhere.serving_at(to, listener));
        let address = address.map(ToString::to_string);
        address.or_else(|| any_reference(cx, id))
    }
}

/// What the hub needs about a client to send it elsewhere.
pub(super) fn redirectable(
    cx: &Context,
    id: ConnectionId,
    connect: &Connect<'_>,
) -> Option<Redirectable> {
    let connection = cx.connections.get(id)?;
    let mut properties = connect.user_properties.iter();
    let is_anonymous = connect.client_id.is_empty();
    (connect.version == ProtocolVersion::V5).then(|| Redirectable {
        listener: connection.listener,
        came_redirected: properties.any(|(name, _)| *name == CAME_REDIRECTED),
        // No client identifier looks like this one: what the specification does not allow in a string.
        anonymous: is_anonymous.then(|| format!("\0{}", connection.peer.ip()).into()),
    })
}

/// The listener of a client that cannot be sent a Server Reference.
pub(super) fn refusable(
    cx: &Context,
    id: ConnectionId,
    connect: &Connect<'_>,
) -> Option<ListenerId> {
    let listener = cx.connections.get(id)?.listener;
    (connect.version != ProtocolVersion::V5).then_some(listener)
}

/// Whether clients of the listener could go anywhere.
pub(super) fn could_go_elsewhere(cx: &Context, listener: ListenerId) -> bool {
    cx.cluster.elsewhere.serving(listener).next().is_some()
}

/// Any node for a client that this one cannot keep: one after the other.
fn any_reference(cx: &mut Context, id: ConnectionId) -> Option<String> {
    let listener = cx.connections.get(id)?.listener;
    let count = cx.cluster.elsewhere.serving(listener).count();
    let at = cx.drain.next.checked_rem(count)?;
    cx.drain.next = at + 1;
    let address = cx.cluster.elsewhere.serving(listener).nth(at)?;
    Some(address.to_string())
}

/// Delays or drops the will of a client that was redirected or follows its placement: leaving this node must not publish the will.
pub(super) fn suppress_will(cx: &mut Context, key: SessionKey) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    if !session.is_persistent() {
        session.will = None;
    } else if let Some(will) = &mut session.will {
        will.delay_interval = will.delay_interval.max(WILL_WAITS_S);
    }
}

/// Whether the session may move to another node: not while it is moving already.
pub(super) fn is_movable(cx: &Context, key: SessionKey) -> bool {
    let session = cx.sessions.get(key);
    session.is_some_and(|it| !it.role.is_frozen())
}

/// Clients that may be sent to another node, with their rates since the last call: of all of them a sample by rate.
pub(super) fn handle_movable_asked(cx: &mut Context, now: Now) {
    let mut movable = Vec::new();
    for id in (0..cx.connections.slots()).map(ConnectionId) {
        let Some(connection) = cx.connections.get_mut(id) else {
            continue;
        };
        let listener = connection.listener;
        let Some(attached) = connection.attached_mut() else {
            continue;
        };
        let rate = attached.count.take_rate(now.instant);
        let (version, key) = (attached.version, attached.session);
        if let (Some(messages_per_s), ProtocolVersion::V5) = (rate, version)
            && is_movable(cx, key)
            && let Some(session) = cx.sessions.get(key)
        {
            movable.push(Movable {
                client_id: (*session.client_id).into(),
                listener,
                messages_per_s,
            });
        }
    }
    movable.sort_by_key(|client| client.messages_per_s);
    let step = movable.len().div_ceil(NAMED).max(1);
    let sample = movable.into_iter().rev().step_by(step).collect();
    cx.send_to_hub(ToHub::Movable(sample));
}

impl Context {
    /// A Server Reference for a client of this connection; `None`: none of the nodes has a listener like its own.
    pub(super) fn server_reference(&self, id: ConnectionId, nodes: &[NodeId]) -> Option<String> {
        let listener = self.connections.get(id)?.listener;
        self.cluster.elsewhere.reference(nodes, listener)
    }

    /// Ends a connection: its client is to go to another server.
    pub(super) fn disconnect_to(
        &mut self,
        id: ConnectionId,
        reference: Option<&str>,
        reason: &str,
    ) {
        let disconnect = Disconnect {
            server_reference: reference,
            reason_string: self.config.limits.reason_strings.then_some(reason),
            ..Disconnect::new(ReasonCode::UseAnotherServer)
        };
        self.send_disconnect(id, disconnect);
    }
}
