//! What each client does, for the rebalancer and for placements that are learned: how many messages it has, what it publishes to and what it
//! subscribes to.

use thicket_mqtt::{ProtocolVersion, Publish};
use thicket_overlay::NodeId;

use super::{
    context::Context,
    redirect::{could_go_elsewhere, is_movable},
    state::activity::LONGEST,
};
use crate::{
    ConnectionId, Now,
    messages::{ClientActivity, ToHub},
};

/// Filters that are named of a client.
const FILTERS: usize = 256;
/// Clients that are named at a time, and bytes of their names.
const PAGE: (usize, usize) = (256, 128 * 1024);

/// A sampled publication arrived.
#[cold]
pub(super) fn note_published(cx: &mut Context, id: ConnectionId, publish: &Publish<'_>) {
    if let Some(attached) = cx.connections.attached_mut(id) {
        attached.note_published(publish);
    }
}

/// A client's subscriptions changed.
pub(super) fn restart_rates(cx: &mut Context, now: Now, id: ConnectionId) {
    if let Some(attached) = cx.connections.attached_mut(id) {
        let messages = attached.count.messages;
        attached.count.activity.restart(now.instant, messages);
    }
}

/// The hub asks what clients do, those from a connection on. The answer names as many as one message holds.
pub(super) fn handle_activity_requested(
    cx: &mut Context,
    now: Now,
    asker: NodeId,
    round: u64,
    from: u32,
) {
    let (mut clients, mut bytes) = (Vec::new(), 0);
    let mut next = from;
    while next < cx.connections.slots() && clients.len() < PAGE.0 && bytes < PAGE.1 {
        if let Some(client) = activity_of(cx, now, ConnectionId(next)) {
            bytes += client.bytes();
            clients.push(client);
        }
        next += 1;
    }
    let next = (next < cx.connections.slots()).then_some(next);
    cx.send_to_hub(ToHub::Activity {
        asker,
        round,
        next,
        clients,
    });
}

fn activity_of(cx: &mut Context, now: Now, id: ConnectionId) -> Option<ClientActivity> {
    let connection = cx.connections.get_mut(id)?;
    let listener = connection.listener;
    let attached = connection.attached_mut()?;
    let messages = attached.count.messages;
    let activity = &mut attached.count.activity;
    let (rate, published) = activity.rates(now.instant, messages);
    let publishes = activity.topics(published);
    let (key, version) = (attached.session, attached.version);
    let session = cx.sessions.get(key)?;
    let plain = session.subscriptions.keys().filter(|it| !it.is_shared());
    let plain = plain.map(|it| it.filter.to_string());
    let filters = plain.filter(|it| it.len() <= LONGEST).take(FILTERS);
    Some(ClientActivity {
        client_id: (*session.client_id).into(),
        can_move: version == ProtocolVersion::V5
            && is_movable(cx, key)
            && could_go_elsewhere(cx, listener),
        millis_per_s: rate,
        publishes,
        filters: filters.map(Into::into).collect(),
    })
}
