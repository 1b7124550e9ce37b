//! Better nodes by topic, for clients that follow them: a SUBACK names the node where most of what its filter matches is published, a PUBACK the node
//! where all subscribers of its topic are. A client states in its CONNECT that it follows; other clients cost nothing.
//!
//! The hub is asked, as it has placements and rates. A subscriber is sent the node at once. A publisher is sent it when two answers, [`REST`] apart,
//! are the same: a subscriber that moves towards it at the same time has then arrived.

use thicket_mqtt::{PacketId, Publish, Qos};
use thicket_overlay::NodeId;
use thicket_session::topic::SubscriptionFilter;

use super::{
    context::Context,
    state::{interests::Route, places::Places},
};
use crate::{
    ConnectionId, Now,
    messages::{PlaceAsked, PlaceQuestion, ToHub},
};

/// Asks for a better node for a subscription. True: the answer comes before that to the next change of interests.
pub(super) fn ask_place_of_filter(
    cx: &mut Context,
    id: ConnectionId,
    packet_id: PacketId,
    filter: &SubscriptionFilter,
) -> bool {
    if cx.places(id).is_none() || filter.is_shared() {
        return false;
    }
    let filter = filter.filter.as_str().into();
    ask_place(cx, id, PlaceQuestion::Filter { filter, packet_id })
}

/// A client publishes: a better node for its topic is asked for now and then, if it follows and the topic has no recipient here.
#[inline]
pub(super) fn consider_place(
    cx: &mut Context,
    now: Now,
    id: ConnectionId,
    publish: &Publish<'_>,
    route: &Route,
) {
    let is_wanted_here =
        !(route.recipients.is_empty() && route.groups.is_empty() && route.workers.is_empty());
    if publish.qos != Qos::AtLeastOnce || is_wanted_here {
        return;
    }
    if let ([node], Some(packet_id)) = (&route.nodes_all[..], publish.packet_id)
        && let node = *node
        && let Some(places) = cx.places(id)
        && places.publish(now.instant, publish.topic, packet_id)
    {
        let topic = publish.topic.into();
        ask_place(cx, id, PlaceQuestion::Topic { topic, node });
    }
}

fn ask_place(cx: &mut Context, id: ConnectionId, question: PlaceQuestion) -> bool {
    let Some(serial) = cx.connections.get(id).map(|it| it.serial) else {
        return false;
    };
    let session = cx.session_at(id);
    let Some(client_id) = session.map(|session| (*session.client_id).into()) else {
        return false;
    };
    let asked = PlaceAsked {
        connection: id,
        serial,
        client_id,
        question,
    };
    cx.send_to_hub(ToHub::PlaceAsked(asked));
    true
}

/// The hub's answer.
pub(super) fn handle_place_answer(cx: &mut Context, asked: &PlaceAsked, node: Option<NodeId>) {
    let id = asked.connection;
    let is_same = cx.connections.is_same(id, asked.serial);
    if !is_same {
        return;
    }
    match (&asked.question, node) {
        (PlaceQuestion::Filter { packet_id, .. }, Some(node)) => {
            let reference = cx.server_reference(id, &[node]);
            cx.gates.name_place(id, asked.serial, *packet_id, reference);
        }
        (PlaceQuestion::Filter { .. }, None) => {}
        (PlaceQuestion::Topic { topic, .. }, node) => {
            if let Some(places) = cx.places(id) {
                places.answer(topic, node);
            }
        }
    }
}

impl Context {
    /// The node that a PUBACK is to name; named once.
    pub(super) fn take_owed_place(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
    ) -> Option<NodeId> {
        self.places(id)?.take_owed(packet_id)
    }

    fn places(&mut self, id: ConnectionId) -> Option<&mut Places> {
        let attached = self.connections.get_mut(id)?.attached_mut()?;
        attached.places.as_deref_mut()
    }
}
