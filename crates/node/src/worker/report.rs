//! Reports about a worker.

use thicket_session::topic::SubscriptionFilter;

use super::{WorkerView, context::Context, state::sessions::Session};
use crate::{
    SessionReport, SubscriberQuery, SubscriptionReport, Traffic,
    scope::{client_id_of, user_name_of},
};

fn of_session(
    session: &Session,
    is_wanted: impl Fn(&SubscriptionFilter) -> bool,
) -> impl Iterator<Item = SubscriptionReport> {
    let client_id = client_id_of(&session.client_id).to_owned();
    let all = session.subscriptions.iter();
    let wanted = all.filter(move |(filter, _)| is_wanted(filter));
    wanted.map(move |(filter, subscribed)| SubscriptionReport {
        client_id: client_id.clone(),
        filter: filter.to_string(),
        qos: subscribed.subscription.options.qos as u8,
        no_local: subscribed.subscription.options.no_local,
        retain_as_published: subscribed.subscription.options.retain_as_published,
        subscription_identifier: subscribed.subscription.identifier,
    })
}

pub(super) fn session_report(cx: &Context, session: &Session) -> SessionReport {
    SessionReport {
        client_id: client_id_of(&session.client_id).to_owned(),
        user_name: user_name_of(&session.client_id).map(str::to_owned),
        connected: session.connection.is_some(),
        protocol_version: Some(session.protocol_version).filter(|version| *version > 0),
        peer: session
            .connection
            .and_then(|id| cx.connections.get(id))
            .map(|connection| crate::messages::peer_text(connection.peer)),
        clean_start: !session.is_persistent(),
        session_expiry_interval: session.is_persistent().then_some(session.expiry_interval),
        subscriptions: session.subscriptions.len(),
        queued_messages: session.outbound.queued(),
        queued_bytes: session.outbound.queued_bytes(),
        inflight: session.outbound.inflight(),
        dropped_messages: session.dropped_messages,
        backups: session.stored.backups.complete().count() as u8,
        worker: cx.id.0,
    }
}

impl WorkerView<'_> {
    /// All sessions, in no order that means anything.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.worker
            .cx
            .sessions
            .iter()
            .map(|(_, session)| session_report(&self.worker.cx, session))
            .collect()
    }

    /// All subscriptions, by session, filters ascending.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<SubscriptionReport> {
        self.worker
            .cx
            .sessions
            .iter()
            .flat_map(|(_, session)| of_session(session, |_| true))
            .collect()
    }

    /// Subscriptions with the names of their sessions, by name.
    #[must_use]
    pub fn subscribers(&self, query: &SubscriberQuery) -> Vec<(String, SubscriptionReport)> {
        let topic = query.topic.as_deref();
        let is_wanted = |filter: &SubscriptionFilter| {
            let matches = |topic| filter.filter.matches(topic);
            let is_it = |wanted: &String| *wanted == filter.to_string();
            topic.is_none_or(matches) && query.filter.as_ref().is_none_or(is_it)
        };
        let wanted = query.client_id.as_deref();
        let mut found: Vec<&Session> = (self.worker.cx.sessions.iter())
            .map(|(_, session)| session)
            .filter(|it| wanted.is_none_or(|id| client_id_of(&it.client_id) == id))
            .filter(|it| (query.after.as_deref()).is_none_or(|after| &*it.client_id > after))
            .filter(|it| it.subscriptions.keys().any(is_wanted))
            .collect();
        found.sort_unstable_by_key(|session| &session.client_id);
        let mut all = Vec::new();
        for session in found {
            if all.len() >= query.limit {
                break;
            }
            let named = |it| (session.client_id.to_string(), it);
            all.extend(of_session(session, is_wanted).map(named));
        }
        all
    }

    /// Messages to clients since the start.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.worker.cx.traffic.external_out_messages
    }

    /// Counters of this worker; what is between nodes the hub counts.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let waiting = self.worker.cx.sessions.waiting();
        Traffic {
            sessions: self.worker.cx.sessions.len() as u64,
            subscriptions: self.subscription_count(),
            shared_subscriptions: self.worker.cx.interests.shared_len() as u64,
            queued_messages: waiting.messages,
            queued_bytes: waiting.bytes,
            backups: self.worker.cx.sessions.backups() as u64,
            under_replicated_sessions: self
                .worker
                .primaries
                .under_replicated_sessions(&self.worker.cx)
                + self.worker.sources.orphans(),
            unacknowledged_messages: self.worker.cx.debts.pending.len() as u64,
            ..self.worker.cx.traffic
        }
    }

    /// The counters of `traffic` that need no walk: of what exists now only connections are included.
    #[must_use]
    pub fn carried(&self) -> Traffic {
        self.worker.cx.traffic
    }

    /// Connections in service, as in [`traffic`](Self::traffic).
    #[must_use]
    pub fn client_count(&self) -> u64 {
        self.worker.cx.traffic.connections
    }

    /// Subscriptions of the sessions here, as in [`traffic`](Self::traffic).
    #[must_use]
    pub fn subscription_count(&self) -> u64 {
        (self.worker.cx.interests.len() - self.worker.sources.subscriptions()) as u64
    }
}
