//! Retained messages on their way from the hub to a new subscription, a page at a time.

use std::collections::{BTreeMap, BTreeSet};

use thicket_mqtt::Publish;
use thicket_overlay::record::{Record, Records};
use thicket_session::{
    retained::RetainedCursor,
    server::{MatchedIdentifiers, Subscription},
    topic::SubscriptionFilter,
};

use super::{
    context::Context,
    state::{
        interests::Recipient,
        outgoing::Outgoing,
        records::{message_id, publish_of},
        retained::LastMessage,
        sessions::{Replay, Session, SessionKey},
    },
};
use crate::{
    Now,
    messages::{Origin, RetainedQuery, ToHub},
};

/// Messages in a session's queue above which no further page is requested.
const QUEUED_MESSAGES: usize = 1000;

/// Which session requested which pages.
#[derive(Debug, Default)]
pub(super) struct Queries {
    next: u64,
    open: BTreeMap<u64, SessionKey>,
}

impl Queries {
    /// Puts the retained messages of a subscription that was just acknowledged in line.
    pub(super) fn start_replay(
        &mut self,
        cx: &mut Context,
        key: SessionKey,
        filter: &SubscriptionFilter,
        subscription: Subscription,
        retained: u64,
    ) {
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        self.next += 1;
        let query = self.next;
        self.open.insert(query, key);
        session.replays.push_back(Replay {
            query,
            filter: filter.filter.clone(),
            subscription,
            upto: retained,
            next: Some(RetainedCursor::new(&filter.filter)),
        });
        advance_replay(cx, key);
    }

    /// A page arrived.
    pub(super) fn handle_retained_page(
        &mut self,
        cx: &mut Context,
        now: Now,
        query: u64,
        records: &[u8],
        rest: Option<RetainedCursor>,
    ) {
        let Some(&key) = self.open.get(&query) else {
            return;
        };
        let Some(session) = cx.sessions.get(key) else {
            return;
        };
        let Some(replay) = session.replays.iter().find(|replay| replay.query == query) else {
            return;
        };
        let subscription = replay.subscription;
        let identifiers = subscription
            .identifier
            .map_or(MatchedIdentifiers::None, |id| MatchedIdentifiers::One([id]));
        for record in Records::new(records) {
            let Ok((record, _)) = record else { break };
            let session = cx.sessions.get(key);
            if session.is_some_and(|it| it.overtaken.has(record.topic)) {
                continue;
            }
            let (publish, expires_at) = publish_of(&record, now);
            let publish = Publish {
                retain: true,
                ..publish
            };
            let mut outgoing = Outgoing::new(&publish, expires_at);
            cx.deliver_replayed(now, key, &mut outgoing, subscription, &identifiers);
        }
        self.end_page(cx, key, query, rest);
    }

    fn end_page(
        &mut self,
        cx: &mut Context,
        key: SessionKey,
        query: u64,
        rest: Option<RetainedCursor>,
    ) {
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        if rest.is_some() {
            let replay = session.replays.iter_mut().find(|it| it.query == query);
            if let Some(replay) = replay {
                replay.next = rest;
            }
        } else {
            let is_it = |replay: &mut Replay| replay.query == query;
            if session.replays.pop_front_if(is_it).is_none() {
                session.replays.retain(|replay| replay.query != query);
            }
            self.open.remove(&query);
            if session.replays.is_empty() && session.gated_subacks == 0 {
                session.overtaken.end();
            }
        }
        advance_replay(cx, key);
    }

    pub(super) fn cancel_replays(&mut self, cx: &mut Context, key: SessionKey) {
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        for replay in std::mem::take(&mut session.replays) {
            self.open.remove(&replay.query);
        }
    }

    pub(super) fn cancel_replays_of(
        &mut self,
        cx: &mut Context,
        key: SessionKey,
        filters: &BTreeSet<SubscriptionFilter>,
    ) {
        // A shared one has none, and a filter beside it that is not shared keeps its own.
        let plain = filters.iter().filter(|filter| !filter.is_shared());
        let plain: BTreeSet<_> = plain.map(|filter| &filter.filter).collect();
        let Some(session) = cx.sessions.get_mut(key) else {
            return;
        };
        session.replays.retain(|replay| {
            let ends = plain.contains(&replay.filter);
            if ends {
                self.open.remove(&replay.query);
            }
            !ends
        });
        advance_replay(cx, key);
    }
}

impl Context {
    /// Whether all sessions here got this write of its topic last.
    pub(super) fn has_last(&self, now: Now, origin: Origin, record: &Record<'_>) -> bool {
        let (publish, _) = publish_of(record, now);
        let id = message_id(origin, record.number);
        let message = LastMessage::of(&publish, id, record.publication);
        let last = &self.arrivals.last_retained;
        !last.is_older_than_last(record.topic, message)
    }

    pub(super) fn deliver_replayed(
        &mut self,
        now: Now,
        key: SessionKey,
        outgoing: &mut Outgoing<'_>,
        subscription: Subscription,
        identifiers: &MatchedIdentifiers,
    ) {
        let session = self.sessions.get(key);
        if session.is_some_and(|session| !session.may_receive(outgoing.publish.topic)) {
            self.traffic.withheld_messages += 1;
            return;
        }
        self.begin_alone();
        // RETAIN is set on what is sent because of a SUBSCRIBE (5.0, 3.3.1.3).
        self.deliver_form(
            now,
            key,
            outgoing,
            subscription.options.qos,
            true,
            identifiers,
        );
    }
}

/// A session subscribes, and is to get retained messages.
pub(super) fn begin_overtaking(cx: &mut Context, key: SessionKey) {
    if let Some(session) = cx.sessions.get_mut(key) {
        let is_first = session.gated_subacks == 0 && session.replays.is_empty();
        session.overtaken.begin(is_first);
    }
}

/// Notes that a message to be retained goes to these recipients.
pub(super) fn note_overtaking(cx: &mut Context, recipients: &[Recipient], topic: &str) {
    for recipient in recipients {
        if let Some(session) = cx.sessions.get_mut(recipient.session) {
            session.overtaken.note(topic);
        }
    }
}

/// Requests the next page of the first replay in line, if the client has capacity for it.
pub(super) fn advance_replay(cx: &mut Context, key: SessionKey) {
    let has_replays = |session: &Session| !session.replays.is_empty();
    if !cx.sessions.get(key).is_some_and(has_replays) || !has_capacity_for_replay(cx, key) {
        return;
    }
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let Some(replay) = session.replays.front_mut() else {
        return;
    };
    // `None`: a page is on its way.
    let Some(cursor) = replay.next.take() else {
        return;
    };
    let query = RetainedQuery {
        query: replay.query,
        cursor,
        upto: replay.upto,
    };
    cx.send_to_hub(ToHub::RetainedQuery(query));
}

/// Other retained messages are on their way to the session from now on.
pub(super) fn end_overtaking(cx: &mut Context, key: SessionKey) {
    if let Some(session) = cx.sessions.get_mut(key) {
        session.overtaken.end();
    }
}

fn has_capacity_for_replay(cx: &Context, key: SessionKey) -> bool {
    let limit = cx.config.limits.out_buffer_bytes as usize / 4;
    let Some(session) = cx.sessions.get(key) else {
        return false;
    };
    let Some(connection) = session.connection.and_then(|id| cx.connections.get(id)) else {
        return false;
    };
    connection.out.len() <= limit && session.outbound.queued() <= QUEUED_MESSAGES
}
