//! Links that end, and nodes that go down.

use thicket_mqtt::{Disconnect, Packet, ReasonCode};
use thicket_session::time::Instant;

use super::Overlay;
use crate::flow::Flow;
use crate::identity::{LinkId, NodeSlot};
use crate::interface::{Abandoned, EventLevel, Output};
use crate::link::{Link, LinkState};
use crate::message::Message;
use crate::peer::PeerState;

impl Overlay {
    /// The shell reports that a link is closed.
    pub(super) fn on_closed(&mut self, now: Instant, id: LinkId) {
        self.closing.remove(&id);
        if let Some(link) = self.links.remove(&id) {
            self.after_link(now, id, &link);
        }
    }

    /// Closes a link; what is in its out-buffer may still be sent.
    pub(super) fn close_link(&mut self, now: Instant, id: LinkId) {
        self.end_link(now, id);
    }

    /// Nothing was received for too long: the node is down, unless another link has replaced this one.
    pub(super) fn close_silent_link(&mut self, now: Instant, id: LinkId) {
        let node = self.links.get(&id).and_then(|link| link.state.node());
        let fields = node
            .map(|node| ("node", node.to_string()))
            .into_iter()
            .collect();
        self.event(EventLevel::Warn, "link is silent", fields);
        self.end_link(now, id);
    }

    fn end_link(&mut self, now: Instant, id: LinkId) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        if Self::is_tunnel(id) {
            self.end_tunnel(id, &link);
            return self.after_link(now, id, &link);
        }
        self.outputs.push_back(Output::Close(id));
        self.after_link(now, id, &link);
        self.closing.insert(id, link);
    }

    fn after_link(&mut self, now: Instant, id: LinkId, link: &Link) {
        if let Some(address) = &link.dialled {
            self.dialler.failed(now, address, &mut self.random);
        }
        let Some(node) = link.state.node() else {
            return;
        };
        if link.state.is_selected() {
            self.wanted.forget_link(id);
        }
        let Some(slot) = self.slots.get(&node).copied() else {
            return;
        };
        let Some(peer) = self.peer_mut(slot).filter(|peer| peer.link == Some(id)) else {
            return;
        };
        peer.link = None;
        peer.interests.abandon_snapshot();
        let was_up = peer.state == PeerState::Up;
        if was_up {
            // The other node may have closed the link because it received nothing from us: what counts is when we last received something from it.
            let since = link.last_received;
            peer.state = PeerState::Lost {
                since,
                is_unreachable: false,
            };
        }
        self.view_changed = true;
        // The node no longer sends us its record itself.
        self.wanted.review(node);
        let down_after = self.config.timing.down_after;
        if was_up && now.since(link.selected_at) >= down_after {
            self.dialler.succeeded(node);
            self.dialler.hurry(now, node);
        } else if was_up {
            // A link that ends as soon as it is up, again and again, is not redialled without a pause. The node is alive, though, and is dialled a
            // few times before it counts as down.
            self.dialler.hurry(now + down_after / 4, node);
        }
    }

    /// A dial to an address of the node failed while it had no link: the node is down, unless others reach it.
    pub(super) fn on_unreachable(&mut self, slot: NodeSlot) {
        if let Some(peer) = self.peer_mut(slot)
            && peer.link.is_none()
            && let PeerState::Lost { is_unreachable, .. } = &mut peer.state
        {
            *is_unreachable = true;
        }
    }

    /// The other node shuts down.
    pub(super) fn on_leaving(&mut self, now: Instant, slot: NodeSlot, id: LinkId) {
        self.close_link(now, id);
        self.mark_down(slot, EventLevel::Info, "left");
    }

    /// Marks the node as down: nothing waits for it any longer. `level`: that of the event.
    pub(super) fn mark_down(&mut self, slot: NodeSlot, level: EventLevel, reason: &'static str) {
        let Some(index) = slot.index().checked_sub(1) else {
            return;
        };
        let (Some(peer), store) = (self.peers.get_mut(index), &mut self.store) else {
            return;
        };
        if peer.is_down() {
            return;
        }
        peer.state = PeerState::Down;
        peer.given_up += 1;
        let persistent = peer.interests.set_aside();
        peer.owes_applied = false;
        peer.interests_sent = None;
        peer.interests_acknowledged = None;
        peer.control.abandon();
        peer.rtt_us = None;
        peer.flow = Flow::default();
        peer.inbound.begin_again();
        let mut abandoned = Vec::new();
        peer.outbound.abandon(|stream, number| {
            if let Some(sendable) = store.sendable(stream, number) {
                abandoned.push(Abandoned::new(stream, number, sendable));
            }
            store.settle(stream, number);
        });
        let fields = vec![
            ("node", peer.node.to_string()),
            ("name", peer.name.clone()),
            ("reason", reason.to_owned()),
        ];
        self.view_changed = true;
        self.outputs.push_back(Output::NodeDown {
            slot,
            persistent,
            abandoned,
        });
        self.event(level, "node is down", fields);
    }

    /// Sends every node a message that this one shuts down, so that they mark it down at once; then poll outputs as usual.
    pub fn shut_down(&mut self, now: Instant) {
        self.leaving = true;
        let links: Vec<_> = self
            .links
            .iter()
            .map(|(id, link)| (*id, link.state.clone()))
            .collect();
        for (id, state) in links {
            if let LinkState::Up { node } = state
                && let Some(slot) = self.slots.get(&node).copied()
            {
                self.write_message(slot, id, &Message::Leaving);
            }
            self.write_packet(
                id,
                &Packet::Disconnect(Disconnect::new(ReasonCode::ServerShuttingDown)),
            );
            self.close_link(now, id);
        }
    }
}
