//! Finds clients among the sessions of a worker: by identity, or those with most of something.

use std::cmp::Reverse;

use super::{SessionKey, Worker, sessions::Session};
use crate::{
    ClientOrder, ClientQuery, ClientReport, Now,
    scope::{client_id_of, user_name_of},
};

impl Worker {
    /// Clients that the query matches, up to its limit, in its order.
    pub fn clients(&mut self, now: Now, query: &ClientQuery) -> Vec<ClientReport> {
        let wanted = self.cx.sessions.iter();
        let wanted = wanted.filter(|(_, session)| self.is_wanted(session, query));
        let mut keys: Vec<SessionKey> = wanted.map(|(key, _)| key).collect();
        if query.order == ClientOrder::Name {
            // Names are long, and most sessions of many are not on the page.
            let name = |key: &SessionKey| self.cx.sessions.get(*key).map(|it| &it.client_id);
            let by_name = |a: &SessionKey, b: &SessionKey| name(a).cmp(&name(b));
            if query.limit < keys.len() {
                keys.select_nth_unstable_by(query.limit, by_name);
                keys.truncate(query.limit);
            }
            keys.sort_unstable_by(by_name);
        } else {
            let mut ranked: Vec<_> = keys.iter().map(|key| self.rank(now, *key, query)).collect();
            ranked.sort_unstable();
            ranked.truncate(query.limit);
            keys = ranked.into_iter().map(|(_, key)| key).collect();
        }
        let reports = keys.into_iter();
        reports
            .filter_map(|key| self.client_report(now, key))
            .collect()
    }

    fn is_wanted(&self, session: &Session, query: &ClientQuery) -> bool {
        let name = &*session.client_id;
        let (client_id, user_name) = (client_id_of(name), user_name_of(name));
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == found
        };
        let peer = || {
            let connection = session
                .connection
                .and_then(|id| self.cx.connections.get(id));
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
        &mut self,
        now: Now,
        key: SessionKey,
        query: &ClientQuery,
    ) -> (Reverse<u64>, SessionKey) {
        let most = match query.order {
            ClientOrder::Name => 0,
            ClientOrder::Rate => self.client_rate(now, key),
            ClientOrder::Waiting => {
                let queued = |session: &Session| session.outbound.queued_bytes();
                self.cx.sessions.get(key).map_or(0, queued) + self.unsent_bytes(key)
            }
            ClientOrder::Oldest => self.oldest_queued_ms(now, key).map_or(0, |ms| ms + 1),
        };
        (Reverse(most), key)
    }

    fn client_report(&mut self, now: Now, key: SessionKey) -> Option<ClientReport> {
        let millis_per_s = self.client_rate(now, key);
        let session = self.cx.sessions.get(key)?;
        Some(ClientReport {
            name: session.client_id.to_string(),
            session: self.session_report(session),
            unsent_bytes: self.unsent_bytes(key),
            oldest_queued_ms: self.oldest_queued_ms(now, key),
            millis_per_s,
        })
    }

    fn oldest_queued_ms(&self, now: Now, key: SessionKey) -> Option<u64> {
        let since = self.cx.sessions.get(key)?.outbound.waiting_since()?;
        Some(now.instant.since(since).as_millis() as u64)
    }

    fn unsent_bytes(&self, key: SessionKey) -> u64 {
        let id = self.cx.sessions.get(key).and_then(|it| it.connection);
        id.map_or(0, |id| self.pending_output(id).len() as u64)
    }

    fn client_rate(&mut self, now: Now, key: SessionKey) -> u64 {
        let id = self.cx.sessions.get(key).and_then(|it| it.connection);
        let connection = id.and_then(|id| self.cx.connections.get_mut(id));
        let attached = connection.and_then(|connection| connection.attached_mut());
        attached.map_or(0, |attached| attached.rate(now.instant))
    }
}
