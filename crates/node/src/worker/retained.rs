//! Retained messages on their way from the hub to a new subscription, a page at a time.
//!
//! What a subscription is still to get is part of the session ([`Replay`]), like the subscription: stored, replicated, moved and merged with it, and
//! ended by UNSUBSCRIBE. Whichever node has the session continues behind the last topic that was sent [MQTT-3.3.1-9].
//!
//! | event | the replay |
//! | --- | --- |
//! | SUBSCRIBE that asks for retained messages | begins anew |
//! | every node has applied the subscription | is put in line, if its client is still connected |
//! | its turn comes, and the client has capacity | a page is requested |
//! | the page arrives | as many messages are sent as the client has capacity for; none is queued |
//! | the connection ends | leaves the line; the page that is on its way is void |
//! | the client connects again, wherever | is put in line |
//! | the last page was sent, or UNSUBSCRIBE | ends |

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::record::{HybridTime, Record, Records};
use thicket_session::{
    retained::RetainedCursor,
    server::{MatchedIdentifiers, Replay, Subscribed, Subscription},
    topic::SubscriptionFilter,
};

use super::{
    capacity::out_buffer_limit,
    context::Context,
    state::{
        outgoing::Outgoing,
        records::{message_id, publish_of},
        retained::{LastMessage, ReplayTurn},
        sessions::{Session, SessionKey},
    },
};
use crate::{
    Now,
    messages::{Origin, PAGE_MESSAGES, RetainedQuery, ToHub},
};

/// A session subscribes, and is to get retained messages: what reaches it meanwhile is noted.
pub(super) fn begin_overtaking(cx: &mut Context, key: SessionKey) {
    end_overtaking(cx, key);
    if let Some(session) = cx.sessions.get_mut(key) {
        session.overtaken.begin();
    }
}

/// What reaches a session is noted as long as there are retained messages for its connection.
pub(super) fn end_overtaking(cx: &mut Context, key: SessionKey) {
    if let Some(session) = cx.sessions.get_mut(key)
        && session.gated_subacks == 0
        && session.replays.is_empty()
    {
        session.overtaken.end();
    }
}

/// The retained messages of a subscription are to be sent from the first one on: none that is on its way counts.
pub(super) fn restart_replay(session: &mut Session, filter: &SubscriptionFilter) {
    let first = session.replays.turns.front();
    if first.is_some_and(|first| first.filter == *filter) {
        session.replays.turns.pop_front();
        session.replays.void_page();
    }
}

/// Every node has applied a subscription, so that what is written after `since` reaches it as a message: the others are in line.
pub(super) fn begin_replay(
    cx: &mut Context,
    key: SessionKey,
    filter: &SubscriptionFilter,
    since: HybridTime,
) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let subscribed = session.subscriptions.get_mut(filter);
    let Some(replay) = subscribed.and_then(|it| it.replay.as_deref_mut()) else {
        return;
    };
    // Stored with the first page: a node that does not know the time sends what was written later too, except what the session holds.
    *replay = Replay {
        behind: None,
        since: Some((since.millis, since.counter)),
    };
    if session.connection.is_some() {
        session.replays.turns.push_back(ReplayTurn {
            filter: filter.clone(),
            is_resumed: false,
        });
        advance_replay(cx, key);
    }
}

/// A client is connected to a session that there was before, or that was merged: what its subscriptions are still to get is in line.
pub(super) fn resume_replays(cx: &mut Context, key: SessionKey) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    if session.connection.is_none() {
        return;
    }
    let waits_for_nodes = session.gated_subacks > 0;
    let is_due = |subscribed: &Subscribed| {
        let replay = subscribed.replay.as_deref();
        replay.is_some_and(|replay| replay.since.is_some() || !waits_for_nodes)
    };
    let subscriptions = session.subscriptions.iter();
    let due = subscriptions.filter(|(_, subscribed)| is_due(subscribed));
    let turn = |(filter, _): (&SubscriptionFilter, _)| ReplayTurn {
        filter: filter.clone(),
        is_resumed: true,
    };
    session.replays.turns = due.map(turn).collect();
    session.replays.void_page();
    if session.replays.is_empty() {
        return;
    }
    session.overtaken.begin();
    // The hub here may not have kept what came with the session. And what a page brought is stored before how far the page has come.
    for held in session.outbound.held_from(0) {
        if let Some(delivery) = held.delivery().filter(|it| it.message.retain()) {
            session.overtaken.note(delivery.message.topic());
        }
    }
    advance_replay(cx, key);
}

/// Subscriptions have ended. What the session got because of them does not count for those that follow.
pub(super) fn end_replays(cx: &mut Context, key: SessionKey) {
    if let Some(session) = cx.sessions.get_mut(key) {
        session.overtaken.clear();
        session.replays.void_page();
    }
    advance_replay(cx, key);
}

/// Requests the next page of the first subscription in line, if the client has capacity for it.
#[inline]
pub(super) fn advance_replay(cx: &mut Context, key: SessionKey) {
    let has_some = |session: &Session| !session.replays.is_empty();
    if cx.sessions.get(key).is_some_and(has_some) {
        request_page(cx, key);
    }
}

#[inline(never)]
fn request_page(cx: &mut Context, key: SessionKey) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    if session.replays.page.is_some() {
        return;
    }
    let (qos, since, is_resumed) = loop {
        let Some(ReplayTurn { filter, is_resumed }) = session.replays.turns.front() else {
            return end_overtaking(cx, key);
        };
        let subscribed = session.subscriptions.get(filter);
        if let Some(Subscribed {
            subscription,
            replay: Some(replay),
        }) = subscribed
        {
            if session.replays.next.is_none() {
                let cursor = RetainedCursor::new(&filter.filter);
                session.replays.next = Some(match &replay.behind {
                    Some(topic) => cursor.behind(topic),
                    None => cursor,
                });
            }
            break (subscription.options.qos, replay.since, *is_resumed);
        }
        session.replays.turns.pop_front();
        session.replays.next = None;
    };
    let Some(messages) = page_capacity(cx, key, qos) else {
        return;
    };
    let page = cx.serial();
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let Some(cursor) = session.replays.next.take() else {
        return;
    };
    session.replays.page = Some(page);
    session.overtaken.begin_page();
    let query = RetainedQuery {
        session: key.0,
        page,
        cursor,
        since: since.map(|(millis, counter)| HybridTime { millis, counter }),
        qos,
        is_resumed,
        messages,
    };
    // What was published at this worker before is kept before the hub looks.
    cx.send_to_hub_after_records(ToHub::RetainedQuery(query));
}

/// How many messages a page may have; `None`: the client must receive or acknowledge others first.
fn page_capacity(cx: &mut Context, key: SessionKey, qos: Qos) -> Option<usize> {
    let session = cx.sessions.get(key)?;
    let connection = cx.connections.get(session.connection?)?;
    let window = connection.attached()?.window;
    if connection.out.len() > cx.config.limits.out_buffer_bytes as usize / 4 {
        return None;
    }
    if !may_send(cx, session, window, qos) {
        let is_full = session.outbound.free(window) == 0;
        cx.sessions.get_mut(key)?.replays.was_full |= is_full;
        return None;
    }
    if qos == Qos::AtMostOnce {
        return Some(PAGE_MESSAGES);
    }
    let free = session.outbound.free(window);
    let is_half = free * 2 >= usize::from(window);
    let session = cx.sessions.get_mut(key)?;
    session.replays.was_full &= !is_half;
    (!session.replays.was_full).then_some(free.min(PAGE_MESSAGES))
}

/// Whether the session and its window have place for a message.
fn may_send(cx: &Context, session: &Session, window: u16, qos: Qos) -> bool {
    let waits = cx.cluster.is_minority && session.is_persistent();
    // Its next primary continues from what it was handed.
    !session.role.is_frozen()
        && (qos == Qos::AtMostOnce || (!waits && session.outbound.can_begin(window)))
}

/// Whether a retained message would be sent at once. They do not wait in the queue: it has a bound, and QoS 0 passes it, so that an older message would
/// come behind a newer one.
fn is_sent_at_once(cx: &Context, key: SessionKey, qos: Qos) -> bool {
    let Some(session) = cx.sessions.get(key) else {
        return false;
    };
    let connection = session.connection.and_then(|id| cx.connections.get(id));
    let Some((connection, attached)) = connection.and_then(|it| Some((it, it.attached()?))) else {
        return false;
    };
    connection.out.len() <= out_buffer_limit(cx, qos) && may_send(cx, session, attached.window, qos)
}

/// A page arrived.
pub(super) fn handle_retained_page(
    cx: &mut Context,
    now: Now,
    (session, page): (u32, u64),
    records: &[u8],
    rest: Option<RetainedCursor>,
) {
    let key = SessionKey(session);
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    if session.replays.page != Some(page) {
        return;
    }
    session.replays.page = None;
    let first = session.replays.turns.front();
    let filter = first.map(|first| first.filter.clone());
    let Some((filter, subscription)) = filter.and_then(|filter| {
        let subscription = session.subscriptions.get(&filter)?.subscription;
        Some((filter, subscription))
    }) else {
        return advance_replay(cx, key);
    };
    if session.overtaken.is_partial() {
        return advance_replay(cx, key);
    }
    let identifiers = subscription
        .identifier
        .map_or(MatchedIdentifiers::None, |id| MatchedIdentifiers::One([id]));
    let (mut last, mut is_whole) = (None, true);
    for record in Records::new(records) {
        let Ok((record, _)) = record else { break };
        let session = cx.sessions.get(key);
        if !session.is_some_and(|it| it.overtaken.has(record.topic)) {
            let qos = record.qos.min(subscription.options.qos);
            if !is_sent_at_once(cx, key, qos) {
                is_whole = false;
                break;
            }
            let (publish, expires_at) = publish_of(&record, now);
            let publish = Publish {
                retain: true,
                ..publish
            };
            let mut outgoing = Outgoing::new(&publish, expires_at);
            cx.deliver_replayed(now, key, &mut outgoing, subscription, &identifiers);
        }
        last = Some(record.topic);
    }
    note_progress(cx, key, &filter, last, rest.filter(|_| is_whole), is_whole);
    advance_replay(cx, key);
}

/// A page was handled up to this topic; `is_whole`: all of it. `next`: where the next one begins, if that is known.
fn note_progress(
    cx: &mut Context,
    key: SessionKey,
    filter: &SubscriptionFilter,
    last: Option<&str>,
    next: Option<RetainedCursor>,
    is_whole: bool,
) {
    let Some(session) = cx.sessions.get_mut(key) else {
        return;
    };
    let is_done = is_whole && next.is_none();
    session.replays.next = next;
    let Some(subscribed) = session.subscriptions.get_mut(filter) else {
        return;
    };
    if is_done {
        subscribed.replay = None;
        session.replays.turns.pop_front();
    } else if let (Some(replay), Some(topic)) = (&mut subscribed.replay, last) {
        replay.behind = Some(topic.into());
    }
    if is_done || last.is_some() {
        let stored = session.stored;
        cx.journal.subscription(stored, filter, Some(subscribed));
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
