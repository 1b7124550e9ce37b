//! A message for many shared subscriptions: their members get it in portions, each as large as the round allows, and what its publisher sends next waits
//! for the last one. So no message makes a round long, however many shared subscriptions it matches.
//!
//! Between two portions interests may change. What is left of the message then goes to the members that there are, as if it had been published at that
//! time: shared subscriptions are ordered by their keys, so a portion begins behind the last one of the portion before. The acknowledgement of the
//! publisher counts a divided message once; [`Debts`](super::state::debts::Debts) count what its portions wait for.

use thicket_mqtt::Publish;

use super::{
    Worker,
    context::Context,
    groups::{Groups, Search},
    replication::wait_for_backups,
    state::{
        debts::Debt,
        divided::Divided,
        interests::{GroupRoute, Route},
        outgoing::{Outgoing, publish_again},
        publication::Source,
        sessions::SessionKey,
    },
};
use crate::{ConnectionId, Now};

impl Worker {
    /// One member of each shared subscription gets a message: as many as this round allows get it now. Returns how many conditions that is for an
    /// acknowledgement.
    pub(super) fn publish_to_groups(
        &mut self,
        now: Now,
        route: &Route,
        outgoing: &mut Outgoing<'_>,
        source: Source<'_>,
    ) -> u16 {
        let Self { cx, groups, .. } = self;
        let publisher = connection_of(cx, source.session);
        let overtakes = publisher.is_none() && cx.effort.divided.have_unowned();
        let routes = if overtakes { &[][..] } else { &*route.groups };
        let mut open = 0;
        let done = give(groups, cx, now, routes, outgoing, source.debt, &mut open);
        if done == route.groups.len() {
            return open;
        }
        let last = done.checked_sub(1).and_then(|last| route.groups.get(last));
        let divided = Divided {
            message: outgoing.message(),
            publication: outgoing.publication().copied(),
            done: last.map(|group| group.key.clone()),
            publisher,
            debt: source.debt.map(|debt| cx.debts.divide(debt)),
        };
        open += u16::from(divided.debt.is_some());
        if let Some((id, serial)) = publisher
            && let Some(connection) = cx.connections.get_same(id, serial)
        {
            connection.is_unfinished = true;
            cx.set_reading(id, false);
        }
        if let Some(mut divided) = cx.effort.divided.add(divided) {
            while !give_portion(groups, cx, now, &mut divided) {}
        }
        open
    }

    /// Gives portions of divided messages, until they have had their turn.
    pub(super) fn resume_divided(&mut self, now: Now) {
        let Self { cx, groups, .. } = self;
        cx.effort.begin_turn();
        let mut next = cx.effort.divided.next_unowned();
        while !cx.effort.is_over()
            && !cx.batches.flow_control.is_full()
            && let Some(mut divided) = next.take().or_else(|| cx.effort.divided.next())
        {
            if !give_portion(groups, cx, now, &mut divided) {
                cx.effort.divided.put_back(divided);
            }
        }
        if let Some(divided) = next {
            cx.effort.divided.put_back(divided);
        }
    }
}

/// The connection of a publisher, with its serial.
fn connection_of(cx: &Context, session: Option<SessionKey>) -> Option<(ConnectionId, u64)> {
    let id = cx.sessions.get(session?)?.connection?;
    Some((id, cx.connections.get(id)?.serial))
}

/// Gives a message to a member of each of these shared subscriptions, or of as many as may be now. Returns their number.
fn give(
    groups: &mut Groups,
    cx: &mut Context,
    now: Now,
    routes: &[GroupRoute],
    outgoing: &mut Outgoing<'_>,
    debt: Option<Debt>,
    open: &mut u16,
) -> usize {
    let ends = cx.effort.portion_ends();
    for (index, group) in routes.iter().enumerate() {
        groups.publish_to_group(cx, now, group, outgoing, Search::new(debt), open);
        if cx.effort.has_reached(ends) || cx.batches.flow_control.is_full() {
            return index + 1;
        }
    }
    routes.len()
}

/// Gives the next portion of a message. Returns whether it was the last one.
fn give_portion(groups: &mut Groups, cx: &mut Context, now: Now, divided: &mut Divided) -> bool {
    let message = &divided.message;
    if message.is_expired(now.instant) {
        cx.traffic.expired_messages += 1;
        finish(cx, divided);
        return true;
    }
    let publish = Publish {
        retain: message.retain(),
        ..publish_again(message, now.instant)
    };
    let mut outgoing = Outgoing::new(&publish, message.expires_at());
    outgoing.id = message.id();
    outgoing.set_publication(divided.publication.as_ref());
    let route = cx.route(publish.topic);
    let routes = route.groups_after(divided.done.as_deref());
    let mut open = 0;
    let debt = divided.debt;
    let done = give(groups, cx, now, routes, &mut outgoing, debt, &mut open);
    open += wait_for_backups(cx, &outgoing, debt);
    cx.debts.wait_for_portion(debt, open);
    if done == routes.len() {
        finish(cx, divided);
        return true;
    }
    let last = done.checked_sub(1).and_then(|last| routes.get(last));
    if let Some(group) = last {
        divided.done = Some(group.key.clone());
    }
    false
}

/// All portions were given: what the publisher has sent since may follow.
fn finish(cx: &mut Context, divided: &Divided) {
    cx.debts.met.extend(divided.debt);
    if let Some((id, serial)) = divided.publisher
        && cx.connections.is_same(id, serial)
    {
        cx.effort.resume(id);
    }
}
