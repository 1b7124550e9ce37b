//! What a worker tells about itself.

use super::Worker;
use crate::{
    SessionReport, SubscriptionReport, Traffic,
    scope::{client_id_of, user_name_of},
};

impl Worker {
    /// All sessions, in no order that means anything.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionReport> {
        self.sessions
            .iter()
            .map(|(_, session)| SessionReport {
                client_id: client_id_of(&session.client_id).to_owned(),
                user_name: user_name_of(&session.client_id).map(str::to_owned),
                connected: session.connection.is_some(),
                protocol_version: session.protocol_version,
                peer: session
                    .connection
                    .and_then(|id| self.connection(id))
                    .map(|connection| crate::mail::peer_text(connection.peer)),
                clean_start: !session.is_persistent(),
                session_expiry_interval: session.is_persistent().then_some(session.expiry_interval),
                subscriptions: session.subscriptions.len(),
                queued_messages: session.outbound.queued(),
                queued_bytes: session.outbound.queued_bytes(),
                inflight: session.outbound.inflight(),
                dropped_messages: session.dropped_messages,
                copies: session.stored.copies.covered().count() as u8,
                worker: self.id.0,
            })
            .collect()
    }

    /// All subscriptions, by session, filters ascending.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<SubscriptionReport> {
        let of_session = |session: &super::sessions::Session| {
            let client_id = client_id_of(&session.client_id).to_owned();
            session
                .subscriptions
                .iter()
                .map(move |(filter, subscription)| SubscriptionReport {
                    client_id: client_id.clone(),
                    filter: filter.to_string(),
                    qos: subscription.options.qos as u8,
                    no_local: subscription.options.no_local,
                    retain_as_published: subscription.options.retain_as_published,
                    subscription_identifier: subscription.identifier,
                })
                .collect::<Vec<_>>()
        };
        self.sessions
            .iter()
            .flat_map(|(_, session)| of_session(session))
            .collect()
    }

    /// Counters of this worker; what is between nodes the hub counts.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic {
            sessions: self.sessions.len() as u64,
            subscriptions: self.subscription_count(),
            copies: self.sessions.shadows() as u64,
            sessions_without_copies: self.sessions_without_copies(),
            unacknowledged_messages: self.pending.len() as u64,
            ..self.traffic
        }
    }

    /// Those of them that are counted anyway: what there is now is left out, but for connections.
    #[must_use]
    pub const fn carried(&self) -> Traffic {
        self.traffic
    }

    /// Connections in service, as [`traffic`](Self::traffic) says.
    #[must_use]
    pub const fn client_count(&self) -> u64 {
        self.traffic.connections
    }

    /// Subscriptions of the sessions here, as [`traffic`](Self::traffic) says.
    #[must_use]
    pub const fn subscription_count(&self) -> u64 {
        (self.interests.len() - self.sources.subscriptions()) as u64
    }
}
