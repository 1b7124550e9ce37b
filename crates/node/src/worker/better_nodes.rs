//! Better nodes by topic, for clients that follow them: a SUBACK names the node where most of what its filter matches is published, a PUBACK the node
//! where all subscribers of its topic are. A client states in its CONNECT that it follows; other clients cost nothing.
//!
//! The hub is asked, as it has placements and rates. A subscriber is sent the node at once. A publisher is sent it when two answers, `REST` apart,
//! are the same: a subscriber that moves towards it at the same time has then arrived.

use thicket_mqtt::{PacketId, Publish, Qos};
use thicket_overlay::NodeId;
use thicket_session::topic::SubscriptionFilter;

use super::{
    context::Context,
    state::{interests::Route, places::BetterNodes},
};
use crate::{
    ConnectionId, Now,
    messages::{BetterNodeRequest, BetterNodeSubject, ToHub},
};

/// Asks for a better node for a subscription. True: the answer comes before that to the next change of interests.
pub(super) fn ask_better_node_for_filter(
    cx: &mut Context,
    id: ConnectionId,
    packet_id: PacketId,
    filter: &SubscriptionFilter,
) -> bool {
    if cx.better_nodes(id).is_none() || filter.is_shared() {
        return false;
    }
    let filter = filter.filter.as_str().into();
    ask_better_node(cx, id, BetterNodeSubject::Filter { filter, packet_id })
}

/// A client publishes: a better node for its topic is asked for now and then, if it follows and the topic has no recipient here.
#[inline]
pub(super) fn consider_better_node(
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
        && let Some(better_nodes) = cx.better_nodes(id)
        && better_nodes.publish(now.instant, publish.topic, packet_id)
    {
        let topic = publish.topic.into();
        ask_better_node(cx, id, BetterNodeSubject::Topic { topic, node });
    }
}

fn ask_better_node(cx: &mut Context, id: ConnectionId, question: BetterNodeSubject) -> bool {
    let Some(serial) = cx.connections.get(id).map(|it| it.serial) else {
        return false;
    };
    let session = cx.session_at(id);
    let Some(client_id) = session.map(|session| (*session.client_id).into()) else {
        return false;
    };
    let asked = BetterNodeRequest {
        connection: id,
        serial,
        client_id,
        question,
    };
    cx.send_to_hub(ToHub::BetterNodeRequest(asked));
    true
}

/// The hub's answer.
pub(super) fn handle_better_node(
    cx: &mut Context,
    asked: &BetterNodeRequest,
    node: Option<NodeId>,
) {
    let id = asked.connection;
    let is_same = cx.connections.is_same(id, asked.serial);
    if !is_same {
        return;
    }
    match (&asked.question, node) {
        (BetterNodeSubject::Filter { packet_id, .. }, Some(node)) => {
            let reference = cx.server_reference(id, &[node]);
            cx.gates
                .name_better_node(id, asked.serial, *packet_id, reference);
        }
        (BetterNodeSubject::Filter { .. }, None) => {}
        (BetterNodeSubject::Topic { topic, .. }, node) => {
            if let Some(better_nodes) = cx.better_nodes(id) {
                better_nodes.answer(topic, node);
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
        self.better_nodes(id)?.take_owed(packet_id)
    }

    fn better_nodes(&mut self, id: ConnectionId) -> Option<&mut BetterNodes> {
        let attached = self.connections.get_mut(id)?.attached_mut()?;
        attached.better_nodes.as_deref_mut()
    }
}
