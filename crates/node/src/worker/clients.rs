//! Finds clients among the sessions of a worker: by identity, or those with most of something.

use std::cmp::Reverse;

use super::{
    WorkerOperator,
    context::Context,
    report::session_report,
    state::sessions::{Session, SessionKey},
};
use crate::{
    ClientOrder, ClientQuery, ClientReport, Now,
    scope::{client_id_of, user_name_of},
};

fn is_wanted(cx: &Context, session: &Session, query: &ClientQuery) -> bool {
    let name = &*session.client_id;
    let (client_id, user_name) = (client_id_of(name), user_name_of(name));
    let is = |wanted: &Option<String>, found: Option<&str>| {
        wanted.is_none() || wanted.as_deref() == found
    };
    let peer = || {
        let connection = session.connection.and_then(|id| cx.connections.get(id));
        connection.map(|connection| connection.peer)
    };
    is(&query.client_id, Some(client_id))
        && is(&query.user_name, user_name)
        && query.after.as_deref().is_none_or(|after| name > after)
        && (query.connected).is_none_or(|wanted| wanted == session.connection.is_some())
        && (query.address).is_none_or(|wanted| peer().is_some_and(|peer| peer.ip() == wanted))
        && query.search.as_ref().is_none_or(|part| {
            client_id.contains(part)
                || user_name.is_some_and(|name| name.contains(part))
                || peer().is_some_and(|peer| crate::messages::peer_text(peer).contains(part))
        })
}

/// The sort key: the more of what the query orders by, the lower.
fn rank(
    cx: &mut Context,
    now: Now,
    key: SessionKey,
    query: &ClientQuery,
) -> (Reverse<u64>, SessionKey) {
    let most = match query.order {
        ClientOrder::Name => 0,
        ClientOrder::Rate => client_rate(cx, now, key),
        ClientOrder::Waiting => {
            let queued = |session: &Session| session.outbound.queued_bytes();
            cx.sessions.get(key).map_or(0, queued) + unsent_bytes(cx, key)
        }
        ClientOrder::Oldest => oldest_queued_ms(cx, now, key).map_or(0, |ms| ms + 1),
    };
    (Reverse(most), key)
}

fn client_report(cx: &mut Context, now: Now, key: SessionKey) -> Option<ClientReport> {
    let millis_per_s = client_rate(cx, now, key);
    let session = cx.sessions.get(key)?;
    Some(ClientReport {
        name: session.client_id.to_string(),
        session: session_report(cx, session),
        unsent_bytes: unsent_bytes(cx, key),
        oldest_queued_ms: oldest_queued_ms(cx, now, key),
        millis_per_s,
    })
}

fn oldest_queued_ms(cx: &Context, now: Now, key: SessionKey) -> Option<u64> {
    let since = cx.sessions.get(key)?.outbound.waiting_since()?;
    Some(now.instant.since(since).as_millis() as u64)
}

fn unsent_bytes(cx: &Context, key: SessionKey) -> u64 {
    let id = cx.sessions.get(key).and_then(|it| it.connection);
    id.map_or(0, |id| {
        cx.connections
            .get(id)
            .map_or(&[][..], |it| it.out.pending())
            .len() as u64
    })
}

fn client_rate(cx: &mut Context, now: Now, key: SessionKey) -> u64 {
    let id = cx.sessions.get(key).and_then(|it| it.connection);
    let attached = id.and_then(|id| cx.connections.attached_mut(id));
    attached.map_or(0, |attached| attached.rate(now.instant))
}

impl WorkerOperator<'_> {
    /// Clients that the query matches, up to its limit, in its order.
    pub fn clients(&mut self, query: &ClientQuery) -> Vec<ClientReport> {
        let now = self.now;
        let cx = &mut self.worker.cx;
        let wanted = cx.sessions.iter();
        let wanted = wanted.filter(|(_, session)| is_wanted(cx, session, query));
        let mut keys: Vec<SessionKey> = wanted.map(|(key, _)| key).collect();
        if query.order == ClientOrder::Name {
            // Names are long, and most sessions of many are not on the page.
            let name = |key: &SessionKey| cx.sessions.get(*key).map(|it| &it.client_id);
            let by_name = |a: &SessionKey, b: &SessionKey| name(a).cmp(&name(b));
            if query.limit < keys.len() {
                keys.select_nth_unstable_by(query.limit, by_name);
                keys.truncate(query.limit);
            }
            keys.sort_unstable_by(by_name);
        } else {
            let mut ranked: Vec<_> = keys.iter().map(|key| rank(cx, now, *key, query)).collect();
            ranked.sort_unstable();
            ranked.truncate(query.limit);
            keys = ranked.into_iter().map(|(_, key)| key).collect();
        }
        let reports = keys.into_iter();
        reports
            .filter_map(|key| client_report(cx, now, key))
            .collect()
    }
}
