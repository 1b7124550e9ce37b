//! Whether there is room for a message: in the worker's log, and in the queues of the sessions that are to have it (rule 18).

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::record::Record;
use thicket_session::server::{Message, MessageId};

use super::{
    SessionKey, Worker,
    interests::{GroupRoute, Route, Taker},
};
use crate::{
    OnFull, Peer,
    mail::{Content, Origin},
};

impl Worker {
    /// Whether a message of QoS 1 or 2 is to be refused, as a session here cannot keep it. `from`: the publisher's session.
    #[inline]
    pub(super) fn finds_no_room(
        &mut self,
        publish: &Publish<'_>,
        route: &Route,
        from: Option<SessionKey>,
    ) -> bool {
        (self.journal.is_on() && self.finds_journal_full(publish, route))
            || (self.refuses_when_full() && self.finds_queue_full(publish, route, from))
    }

    fn refuses_when_full(&self) -> bool {
        self.config.limits.on_full == OnFull::Refuse
    }

    fn finds_journal_full(&self, publish: &Publish<'_>, route: &Route) -> bool {
        let takers = route.takers.len() + route.groups.len();
        if !self.journal.is_full_for(content_len(publish), takers) {
            return false;
        }
        let in_groups = route.groups.iter().flat_map(|group| &group.local);
        let sessions = (route.takers.iter().map(|taker| taker.session))
            .chain(in_groups.map(|member| member.taker.session));
        sessions
            .filter_map(|key| self.sessions.get(key))
            .any(|session| session.stored.is_some())
    }

    fn finds_queue_full(
        &mut self,
        publish: &Publish<'_>,
        route: &Route,
        from: Option<SessionKey>,
    ) -> bool {
        let cost = Message::cost_of(content_len(publish));
        let is_full = |taker: &Taker| {
            taker.qos > Qos::AtMostOnce
                && !(taker.no_local && from == Some(taker.session))
                && !self.has_room(taker.session, cost)
        };
        let is_full = route.takers.iter().any(is_full)
            || route.groups.iter().any(|group| {
                let is_all = group.peers.is_empty() && !group.local.is_empty();
                is_all && group.local.iter().all(|member| is_full(&member.taker))
            });
        self.traffic.queue_refused_messages += u64::from(is_full);
        is_full
    }

    /// Whether a session can take a message of this cost, at once or into its queue.
    fn has_room(&self, key: SessionKey, cost: u64) -> bool {
        let Some(session) = self.sessions.get(key) else {
            return true;
        };
        if session.outbound.has_room(cost) {
            return true;
        }
        let connection = session.connection.and_then(|id| self.connection(id));
        let window = connection.and_then(|connection| {
            let fits = connection.out.len() <= self.config.limits.out_buffer_bytes as usize;
            connection.attached().filter(|_| fits)
        });
        window.is_some_and(|attached| session.outbound.can_begin(attached.window))
    }

    /// The member of a shared subscription that takes a message whose turn is `index`'s: the next one with room, if it has none.
    pub(super) fn member_with_room(
        &self,
        group: &GroupRoute,
        index: usize,
        publish: &Publish<'_>,
    ) -> usize {
        let cost = Message::cost_of(content_len(publish));
        let count = group.local.len();
        let is_connected = group.local[index].connected;
        (index..index + count)
            .map(|at| at % count)
            .filter(|&at| group.local[at].connected == is_connected)
            .find(|&at| self.has_room(group.local[at].taker.session, cost))
            .unwrap_or(index)
    }

    /// A message that sessions here cannot keep: whoever took it from its publisher is told.
    pub(super) fn refuse_without_room(
        &mut self,
        from: Peer,
        origin: Origin,
        record: &Record<'_>,
    ) -> bool {
        let publish = Publish {
            qos: record.qos,
            properties: record.properties,
            ..Publish::new(record.topic, record.payload)
        };
        let may_be_full =
            self.refuses_when_full() || self.journal.is_nearly_full_for(content_len(&publish));
        if !may_be_full {
            return false;
        }
        let route = self.route(record.topic);
        if !self.finds_no_room(&publish, &route, None) {
            return false;
        }
        self.traffic.dropped_messages += 1;
        // Nodes with copies of these sessions have the message too, and must not wait for what becomes of it.
        let id = MessageId {
            node: origin.node.0,
            incarnation: origin.incarnation.0,
            stream: origin.stream.0 as u8,
            number: record.number,
        };
        for taker in &route.takers {
            if let Some(session) = self.sessions.get(taker.session) {
                self.journal.passed(session.stored, id);
            }
        }
        let numbers = vec![(record.number, record.number)];
        let content = match from {
            Peer::Worker(_) => Content::Refused(numbers),
            Peer::Hub => Content::NotAdmitted { origin, numbers },
        };
        self.mail_after_records(from, content);
        true
    }
}

/// Bytes of a message's topic, properties and payload.
fn content_len(publish: &Publish<'_>) -> usize {
    publish.topic.len() + publish.payload.len() + publish.properties.encoded_len()
}
