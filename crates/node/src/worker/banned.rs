//! Clients that may not connect, and those that may not any more.

use thicket_mqtt::{Connect, Publish, Qos, ReasonCode};

use super::{
    Worker, WorkerOperator,
    context::Context,
    listeners::prefix,
    refusal::Refusal,
    state::sessions::{Cause, SessionKey},
};
use crate::{
    Ban, BanSubject, ConnectionId, EventLevel, Now,
    bans::Login,
    scope::{client_id_of, user_name_of},
};

impl Worker {
    /// The bans have changed: banned clients that are connected are disconnected.
    pub(super) fn disconnect_banned(&mut self, now: Now) {
        let banned = |(key, session): (SessionKey, &super::state::sessions::Session)| {
            let connection = self.cx.connections.get(session.connection?)?;
            let name = &session.client_id;
            let grant = session.grant.as_deref();
            // A client that connects with a password is identified by its user, also where sessions are not separated by user.
            let user_name = grant.and_then(|grant| grant.user_name.as_deref());
            let found = self.cx.cluster.bans.find(
                now.instant,
                client_id_of(name),
                Login::of(user_name.or_else(|| user_name_of(name))),
                prefix(&self.cx, session.connection?),
                connection.peer.ip(),
            );
            found.map(|subject| (key, subject))
        };
        let banned: Vec<_> = self.cx.sessions.iter().filter_map(banned).collect();
        for (key, subject) in banned {
            let session = self.cx.sessions.get(key);
            let Some((name, id)) =
                session.and_then(|it| Some((it.client_id.to_string(), it.connection?)))
            else {
                continue;
            };
            let reason = format!("{subject} is banned");
            let fields = vec![("client_id", name), ("reason", reason.clone())];
            self.cx
                .event(EventLevel::Info, "client disconnected by a ban", fields);
            self.cx
                .disconnect(id, ReasonCode::AdministrativeAction, &reason);
            self.detach(now, id, Cause::Closed);
        }
    }
}

/// Why the client of a connection may not connect, as far as its identity is known.
pub(super) fn refuses_banned(
    cx: &Context,
    now: Now,
    id: ConnectionId,
    connect: &Connect<'_>,
    login: Login<'_>,
) -> Option<Refusal> {
    let address = cx.connections.get(id)?.peer.ip();
    let prefix = prefix(cx, id);
    let found = (cx.cluster.bans).find(now.instant, connect.client_id, login, prefix, address)?;
    Some(Refusal::new(
        ReasonCode::Banned,
        format!("{found} is banned"),
    ))
}

fn record<'a>(topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish {
        qos: Qos::AtLeastOnce,
        retain: true,
        ..Publish::new(topic, payload)
    }
}

impl WorkerOperator<'_> {
    /// Bans a client at all nodes; `WorkerOutput::Published` reports the result under the same number.
    pub fn ban(&mut self, number: u64, ban: &Ban) {
        let now = self.now;
        let (topic, payload) = (ban.subject.topic(), ban.encode());
        let left = ban.until.map(|until| {
            let left_ms = until
                .as_unix_millis()
                .saturating_sub(now.wall.as_unix_millis());
            u32::try_from(left_ms.div_ceil(1000)).unwrap_or(u32::MAX)
        });
        let publish = Publish {
            message_expiry_interval: left,
            ..record(&topic, &payload)
        };
        self.worker.publish_as_node(now, number, &publish);
    }

    /// Lifts a ban at all nodes; `WorkerOutput::Published` reports the result under the same number.
    pub fn unban(&mut self, number: u64, subject: &BanSubject) {
        let now = self.now;
        self.worker
            .publish_as_node(now, number, &record(&subject.topic(), &[]));
    }
}
