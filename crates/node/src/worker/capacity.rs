//! Whether a message is within the limits: of the worker's log, and of the queues of the sessions that it is for (rule 18). Limits while memory is
//! short.

use thicket_mqtt::{Publish, Qos};
use thicket_overlay::record::{Record, SharedChoices};
use thicket_session::server::{Message, MessageId};

use super::{
    context::Context,
    expiry::queue_has_capacity,
    state::{
        interests::{GroupRoute, Recipient, Route},
        sessions::SessionKey,
    },
};
use crate::{
    Now, OnFull, Peer,
    messages::{Origin, RefusedBy, ToHub, ToWorker},
};

/// While memory is short, bytes that may wait in an out-buffer before QoS 0 is dropped.
const SHORT_OUT_BUFFER: usize = 16 * 1024;

/// Which sessions here a message is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Audience<'a> {
    /// For all subscribers, and one member of each group here or elsewhere: it is published here, by a client if there is a session.
    Everybody { publisher: Option<SessionKey> },
    /// For subscribers: another place published it.
    Subscribers,
    /// For a member here of each of these groups: another place chose this one.
    Members(SharedChoices<'a>),
}

impl Audience<'_> {
    fn recipients<'r>(&self, route: &'r Route) -> &'r [Recipient] {
        match self {
            Self::Everybody { .. } | Self::Subscribers => &route.recipients,
            Self::Members(_) => &[],
        }
    }

    fn groups<'r>(&self, route: &'r Route) -> impl Iterator<Item = &'r GroupRoute> {
        let (all, chosen) = match self {
            Self::Everybody { .. } => (&*route.groups, None),
            Self::Subscribers => (&[][..], None),
            Self::Members(chosen) => (&[][..], Some(chosen)),
        };
        let chosen = chosen.into_iter().flat_map(|chosen| chosen.iter());
        let chosen = chosen.filter_map(|(name, filter)| route.group(name, filter));
        all.iter().chain(chosen)
    }

    /// Whether one of the members here must get it.
    fn is_bound_to(&self, group: &GroupRoute) -> bool {
        let is_alone = !group.local.is_empty() && group.peers.is_empty();
        // If another place chose this one, there may be others.
        is_alone && !matches!(self, Self::Members(_))
    }
}

/// Whether a message of QoS 1 or 2 is to be refused because it is over the limit of a session here.
#[inline]
pub(super) fn exceeds_limits(
    cx: &mut Context,
    now: Now,
    publish: &Publish<'_>,
    route: &Route,
    audience: Audience<'_>,
) -> bool {
    (cx.journal.is_on() && finds_journal_full(cx, publish, route, audience))
        || (refuses_when_full(cx) && finds_queue_full(cx, now, publish, route, audience))
}

/// Whether a message that is over the limit of a queue is refused to its publisher.
pub(super) fn refuses_when_full(cx: &Context) -> bool {
    cx.config.limits.on_full == OnFull::Refuse
}

fn finds_journal_full(
    cx: &Context,
    publish: &Publish<'_>,
    route: &Route,
    audience: Audience<'_>,
) -> bool {
    let recipients = route.recipients.len() + route.groups.len();
    if !cx.journal.is_full_for(content_len(publish), recipients) {
        return false;
    }
    let in_groups = audience.groups(route).flat_map(|group| &*group.local);
    let sessions = (audience
        .recipients(route)
        .iter()
        .map(|recipient| recipient.session))
    .chain(in_groups.map(|member| member.recipient.session));
    sessions
        .filter_map(|key| cx.sessions.get(key))
        .any(|session| session.stored.is_some())
}

fn finds_queue_full(
    cx: &mut Context,
    now: Now,
    publish: &Publish<'_>,
    route: &Route,
    audience: Audience<'_>,
) -> bool {
    let cost = Message::cost_of(content_len(publish));
    let publisher = match audience {
        Audience::Everybody { publisher } => {
            cx.effort.spend(route.groups.len() as u64);
            publisher
        }
        Audience::Subscribers | Audience::Members(_) => None,
    };
    let mut is_full = |recipient: &Recipient| {
        recipient.qos > Qos::AtMostOnce
            && !(recipient.no_local && publisher == Some(recipient.session))
            && !has_capacity(cx, now, recipient.session, cost)
    };
    let is_full = audience.recipients(route).iter().any(&mut is_full)
        || audience.groups(route).any(|group| {
            let mut members = group.local.iter().map(|member| &member.recipient);
            audience.is_bound_to(group) && members.all(&mut is_full)
        });
    cx.traffic.queue_refused_messages += u64::from(is_full);
    is_full
}

/// Whether a session can accept a message of this cost, at once or into its queue.
fn has_capacity(cx: &mut Context, now: Now, key: SessionKey, cost: u64) -> bool {
    let Some(session) = cx.sessions.get_mut(key) else {
        return true;
    };
    if queue_has_capacity(&mut cx.journal, &mut cx.traffic, now, session, cost) {
        return true;
    }
    let connection = session.connection.and_then(|id| cx.connections.get(id));
    let window = connection.and_then(|connection| {
        let fits = connection.out.len() <= cx.config.limits.out_buffer_bytes as usize;
        connection.attached().filter(|_| fits)
    });
    window.is_some_and(|attached| session.outbound.can_begin(attached.window))
}

/// The member of a shared subscription that gets a message: member `index`, or if it is over its limit, the next member that is not. Members that are
/// connected, or not, like member `index` come first. `None`: all are over the limit.
pub(super) fn member_with_capacity(
    cx: &mut Context,
    now: Now,
    group: &GroupRoute,
    index: usize,
    publish: &Publish<'_>,
) -> Option<usize> {
    let cost = Message::cost_of(content_len(publish));
    let count = group.local.len();
    let is_connected = group.local[index].connected;
    let in_turn = || (index..index + count).map(|at| at % count);
    let is_like = |at: &usize| group.local[*at].connected == is_connected;
    let mut has_capacity =
        |at: &usize| has_capacity(cx, now, group.local[*at].recipient.session, cost);
    let first = in_turn().filter(is_like).find(&mut has_capacity);
    first.or_else(|| in_turn().find(has_capacity))
}

/// Refuses a message over the limit to the place that sent it here.
pub(super) fn refuse_record(
    cx: &mut Context,
    from: Peer,
    origin: Origin,
    by: RefusedBy,
    number: u64,
) {
    let numbers = vec![(number, number)];
    match from {
        Peer::Worker(to) => {
            cx.send_to_worker(to, ToWorker::Refused { by, numbers });
            cx.batches.admit(from, origin, number);
        }
        Peer::Hub => cx.send_to_hub_after_records(ToHub::Refused {
            origin,
            by,
            numbers,
        }),
    }
}

/// Refuses a message that is over the limit of sessions here, to the place that accepted it from its publisher.
pub(super) fn refuse_over_limit(
    cx: &mut Context,
    now: Now,
    from: Peer,
    origin: Origin,
    record: &Record<'_>,
) -> bool {
    let publish = Publish {
        qos: record.qos,
        properties: record.properties,
        ..Publish::new(record.topic, record.payload)
    };
    let may_be_full = refuses_when_full(cx) || cx.journal.is_nearly_full_for(content_len(&publish));
    if !may_be_full {
        return false;
    }
    let route = cx.route(record.topic);
    let audience = if record.shared.is_empty() {
        Audience::Subscribers
    } else {
        Audience::Members(record.shared)
    };
    if !exceeds_limits(cx, now, &publish, &route, audience) {
        return false;
    }
    cx.traffic.dropped_messages += 1;
    // Nodes with backups of these sessions have the message too, and must not wait for what becomes of it.
    let id = MessageId {
        node: origin.node.0,
        incarnation: origin.incarnation.0,
        stream: origin.stream.0 as u8,
        number: record.number,
    };
    for recipient in audience.recipients(&route) {
        if let Some(session) = cx.sessions.get(recipient.session) {
            cx.journal.passed(session.stored, id);
        }
    }
    refuse_record(cx, from, origin, RefusedBy::Place, record.number);
    true
}

/// Bytes of a message's topic, properties and payload.
fn content_len(publish: &Publish<'_>) -> usize {
    publish.topic.len() + publish.payload.len() + publish.properties.encoded_len()
}

/// Whether what groups would give to a session here is for its next primary.
pub(super) fn is_handed_over(cx: &Context, key: SessionKey) -> bool {
    let session = cx.sessions.get(key);
    session.is_some_and(|session| session.role.has_successor())
}

/// The choice fell on this worker: one of its members, the connected ones first, those that are handed over last.
pub(super) fn choose_here(cx: &Context, group: &GroupRoute) -> Option<usize> {
    let turn = group.next_turn() as usize;
    let (connected, all) = (group.connected as usize, group.local.len());
    let in_turn = |count: usize| (0..count).map(move |at| (turn + at) % count);
    let stays = |at: &usize| !is_handed_over(cx, group.local[*at].recipient.session);
    in_turn(connected)
        .chain(in_turn(all))
        .find(stays)
        .or_else(|| in_turn(all).next())
}

/// Whether a new session would take more memory than there is: when it is short, until a twentieth of the sessions there were has
/// ended. What those held is used again, though the allocator may not have given it back.
pub(super) fn has_no_memory(cx: &Context) -> bool {
    let before = cx.short_since;
    before.is_some_and(|before| cx.sessions.len() >= before - before / 20)
}

/// Bytes an out-buffer may hold when a message arrives: above it QoS 0 is dropped, the rest queued.
pub(super) fn out_buffer_limit(cx: &Context, qos: Qos) -> usize {
    let limit = cx.config.limits.out_buffer_bytes as usize;
    if cx.short_since.is_some() && qos == Qos::AtMostOnce {
        limit.min(SHORT_OUT_BUFFER)
    } else {
        limit
    }
}
