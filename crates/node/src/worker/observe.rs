//! Sends the shell what it observes: see [`Observed`].

use thicket_mqtt::{ApplicationProperty, Publish};

use super::{WorkerOperator, context::Context, state::sessions::SessionKey};
use crate::{
    EventLevel, Observed, ObservedMessage, WorkerOutput,
    messages::peer_text,
    scope::{client_id_of, user_name_of},
};

/// A message on a topic that the shell observes.
#[cold]
pub(super) fn note_message(cx: &mut Context, publish: &Publish<'_>, session: Option<SessionKey>) {
    let client = session.and_then(|key| cx.client_of(key));
    let (client_id, user_name, peer) = match client {
        Some((client_id, user_name, peer)) => (Some(client_id), user_name, peer),
        None => (None, None, None),
    };
    let mut message = ObservedMessage {
        client_id,
        user_name,
        peer,
        topic: publish.topic.to_owned(),
        payload: publish.payload.to_vec(),
        qos: publish.qos as u8,
        retain: publish.retain,
        message_expiry_interval: publish.message_expiry_interval,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
    };
    for property in publish.properties.iter() {
        match property {
            ApplicationProperty::PayloadFormatIndicator(_) => {}
            ApplicationProperty::ContentType(it) => message.content_type = Some(it.to_owned()),
            ApplicationProperty::ResponseTopic(it) => {
                message.response_topic = Some(it.to_owned());
            }
            ApplicationProperty::CorrelationData(it) => {
                message.correlation_data = Some(it.to_vec());
            }
            ApplicationProperty::UserProperty(name, value) => {
                let pair = (name.to_owned(), value.to_owned());
                message.user_properties.push(pair);
            }
        }
    }
    let message = Box::new(message);
    cx.outputs.push_back(WorkerOutput::Observed(message));
}

impl Context {
    pub(super) fn note_subscription(
        &mut self,
        key: SessionKey,
        message: &'static str,
        fields: impl FnOnce() -> Vec<(&'static str, String)>,
    ) {
        if self.observed.subscriptions {
            self.note_of_session(key, message, fields());
        }
    }

    pub(super) fn note_session(
        &mut self,
        key: SessionKey,
        message: &'static str,
        fields: Vec<(&'static str, String)>,
    ) {
        if self.observed.sessions {
            self.note_of_session(key, message, fields);
        }
    }

    fn note_of_session(
        &mut self,
        key: SessionKey,
        message: &'static str,
        mut fields: Vec<(&'static str, String)>,
    ) {
        let Some((client_id, user_name, peer)) = self.client_of(key) else {
            return;
        };
        fields.push(("client_id", client_id));
        fields.extend(user_name.map(|name| ("user_name", name)));
        fields.extend(peer.map(|peer| ("peer", peer)));
        self.event(EventLevel::Debug, message, fields);
    }

    /// Client identifier, user name and address of the client of a session, as far as they are known.
    fn client_of(&self, key: SessionKey) -> Option<(String, Option<String>, Option<String>)> {
        let session = self.sessions.get(key)?;
        let connection = session.connection.and_then(|id| self.connections.get(id));
        Some((
            client_id_of(&session.client_id).to_owned(),
            self.user_of(key),
            connection.map(|it| peer_text(it.peer)),
        ))
    }

    /// The user of a session: who connected, or the user in its name.
    pub(super) fn user_of(&self, key: SessionKey) -> Option<String> {
        let session = self.sessions.get(key)?;
        let grant = session.grant.as_deref();
        let user_name = grant.and_then(|grant| grant.user_name.as_deref());
        let user_name = user_name.or_else(|| user_name_of(&session.client_id));
        user_name.map(str::to_owned)
    }
}

impl WorkerOperator<'_> {
    /// From now on the shell observes this.
    pub fn observe(&mut self, observed: Observed) {
        let Observed {
            subscriptions,
            sessions,
            filters,
            traces,
        } = observed;
        self.worker.cx.interests.observe(filters, traces.is_some());
        self.worker.cx.observed = Observed {
            subscriptions,
            sessions,
            filters: Vec::new(),
            traces,
        };
    }
}
