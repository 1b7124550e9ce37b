//! Tunnels: links with nodes that others reach and this one does not, carried by other nodes.

use std::collections::BTreeSet;

use thicket_session::time::Instant;

use super::Overlay;
use super::messages::{Deliver, LinkError};
use crate::channel::Channel;
use crate::identity::{LinkId, NodeId, NodeSlot};
use crate::interface::{EventLevel, FarEnd};
use crate::link::Link;
use crate::tunnel::{FRAME_BYTES, Frame, FrameKind, MAXIMUM_HOPS, Tunnel};

/// Link numbers from here on are tunnels: no shell opens so many sockets.
const FIRST_TUNNEL: u32 = 1 << 31;

impl Overlay {
    /// Whether a link runs over other nodes.
    pub(super) const fn is_tunnel(link: LinkId) -> bool {
        link.0 >= FIRST_TUNNEL
    }

    /// Opens tunnels to nodes of our component that have had no link for a while. The node with the lower id opens it.
    pub(super) fn open_tunnels(&mut self, now: Instant) {
        let own = self.config.node;
        let generations = (self.links.generation(), self.topology_generation);
        let is_due = |(node, due): (&NodeId, &Instant)| own < *node && now >= *due;
        if self.tunnels_reviewed == Some(generations) && !self.unlinked.iter().any(is_due) {
            return;
        }
        self.tunnels_reviewed = Some(generations);
        let linked: BTreeSet<NodeId> = self
            .links
            .values()
            .filter_map(|link| link.state.node())
            .collect();
        let nodes = self.trees.topology().nodes().iter().map(|node| node.node);
        let unlinked: Vec<_> = nodes
            .filter(|node| *node != own && !linked.contains(node))
            .collect();
        self.unlinked
            .retain(|node, _| unlinked.binary_search(node).is_ok());
        let after = self.config.timing.tunnel_after;
        for node in unlinked {
            let due = *self.unlinked.entry(node).or_insert(now + after);
            let is_under_way = self.tunnels.values().any(|tunnel| tunnel.node == node);
            if own < node && now >= due && !is_under_way && !self.leaving {
                thicket_session::reach!("time tunnel_after");
                self.unlinked.insert(node, now + after * 4);
                self.open_tunnel(now, node);
            }
        }
    }

    /// When the next tunnel may be due.
    pub(super) fn next_tunnel_due(&self) -> Option<Instant> {
        let opens = |node: &&NodeId| self.config.node < **node && !self.leaving;
        let due = self
            .unlinked
            .iter()
            .filter(|(node, _)| opens(node))
            .map(|(_, due)| *due);
        due.filter(|due| *due > self.last_round).min()
    }

    fn open_tunnel(&mut self, now: Instant, node: NodeId) {
        let id = self.free_tunnel();
        let tunnel = Tunnel {
            node,
            id: self.random.next(),
            sent: 0,
            received: 0,
            hop: self.trees.hop_towards(node),
        };
        self.event(
            EventLevel::Info,
            "node is reached over others",
            vec![("node", node.to_string())],
        );
        self.tunnels.insert(id, tunnel);
        self.counters.tunnels += 1;
        self.start_handshake(now, id, None);
    }

    fn free_tunnel(&mut self) -> LinkId {
        let id = LinkId(FIRST_TUNNEL | self.next_tunnel);
        self.next_tunnel = (self.next_tunnel + 1) % FIRST_TUNNEL;
        id
    }

    /// Closes tunnels whose path has changed, as frames may be lost; they are opened again, and no message is lost.
    pub(super) fn check_tunnels(&mut self, now: Instant) {
        let moved: Vec<_> = self
            .tunnels
            .iter()
            .filter(|(_, tunnel)| self.trees.hop_towards(tunnel.node) != tunnel.hop)
            .map(|(id, tunnel)| (*id, tunnel.node))
            .collect();
        for (id, node) in moved {
            self.close_link(now, id);
            if self.trees.topology().contains(node) {
                let again = now + self.config.timing.tunnel_after / 4;
                self.unlinked.insert(node, again);
            }
        }
    }

    /// Moves waiting bytes of tunnels to the links that carry them, up to their limits.
    pub(super) fn pump_tunnels(&mut self) {
        let ids: Vec<_> = self.tunnels.keys().copied().collect();
        for id in ids {
            let Some((slot, hop)) = self
                .tunnels
                .get(&id)
                .and_then(|tunnel| self.way_to(tunnel.node))
            else {
                continue;
            };
            while self.has_capacity_on(hop) {
                let Some(link) = self
                    .links
                    .get(&id)
                    .filter(|link| !link.pending().is_empty())
                else {
                    break;
                };
                let bytes: Vec<u8> = link.pending().iter().copied().take(FRAME_BYTES).collect();
                self.send_frame(id, (slot, hop), FrameKind::Bytes, &bytes);
                if let Some(link) = self.links.get_mut(&id) {
                    link.consume(bytes.len());
                }
            }
        }
    }

    /// Whether a tunnel holds bytes that the link carrying it has capacity for now.
    pub(super) fn can_pump(&self) -> bool {
        self.tunnels.iter().any(|(id, tunnel)| {
            let waits = self
                .links
                .get(id)
                .is_some_and(|link| !link.pending().is_empty());
            waits
                && self
                    .way_to(tunnel.node)
                    .is_some_and(|(_, hop)| self.has_capacity_on(hop))
        })
    }

    /// The direct link that carries tunnels to a node.
    fn way_to(&self, node: NodeId) -> Option<(NodeSlot, LinkId)> {
        let (slot, link) = self.link_up(self.trees.hop_towards(node)?)?;
        (!Self::is_tunnel(link)).then_some((slot, link))
    }

    fn has_capacity_on(&self, link: LinkId) -> bool {
        let maximum = self.config.limits.out_buffer_bytes;
        self.links
            .get(&link)
            .is_some_and(|link| link.pending().len() < maximum)
    }

    fn send_frame(&mut self, id: LinkId, way: (NodeSlot, LinkId), kind: FrameKind, bytes: &[u8]) {
        let own = self.config.node;
        let Some(tunnel) = self.tunnels.get_mut(&id) else {
            return;
        };
        let is_first = tunnel.sent == 0 && kind == FrameKind::Bytes && tunnel.received == 0;
        let frame = Frame {
            from: own,
            to: tunnel.node,
            tunnel: tunnel.id,
            hops: 0,
            kind: if is_first { FrameKind::Open } else { kind },
            sequence: tunnel.sent,
            bytes,
        };
        tunnel.sent += 1;
        let mut encoded = Vec::with_capacity(bytes.len() + 48);
        frame.encode(&mut encoded);
        self.write_frame(way, &encoded);
    }

    fn write_frame(&mut self, (slot, id): (NodeSlot, LinkId), encoded: &[u8]) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let written = link.write_publish(Channel::Tunnel, encoded) as u64;
        if let Some(peer) = self.peer_mut(slot) {
            peer.counters.control_out_messages += 1;
            peer.counters.control_out_bytes += written;
        }
    }

    /// A tunnel closed by this node: sends its remaining bytes, then notifies the other end.
    pub(super) fn end_tunnel(&mut self, id: LinkId, link: &Link) {
        let Some(node) = self.tunnels.get(&id).map(|tunnel| tunnel.node) else {
            return;
        };
        if let Some(way) = self.way_to(node) {
            if !link.pending().is_empty() {
                self.send_frame(id, way, FrameKind::Bytes, link.pending());
            }
            self.send_frame(id, way, FrameKind::Close, &[]);
        }
        self.tunnels.remove(&id);
    }

    /// A frame received over the link `id`: for this node, or to be passed on.
    pub(super) fn on_frame(
        &mut self,
        now: Instant,
        id: LinkId,
        payload: &[u8],
        deliver: Deliver<'_>,
    ) -> Result<(), LinkError> {
        if Self::is_tunnel(id) {
            return Err(LinkError::Unexpected {
                message: "a frame",
                state: "a tunnel",
            });
        }
        let frame = Frame::decode(payload)?;
        if frame.from == self.config.node {
            // Travelled in a circle while views differed.
            self.counters.relay_misses += 1;
        } else if frame.to == self.config.node {
            self.on_own_frame(now, &frame, deliver);
        } else {
            self.pass_on(&frame);
        }
        Ok(())
    }

    fn pass_on(&mut self, frame: &Frame<'_>) {
        // A tunnel must not fill a link so far that it is closed: the tunnel's ends detect the gap and open it again.
        let maximum = self.config.limits.out_buffer_bytes + self.config.limits.control_bytes / 2;
        let way = self.way_to(frame.to).filter(|(_, hop)| {
            let has_capacity = self
                .links
                .get(hop)
                .is_some_and(|link| link.pending().len() < maximum);
            has_capacity && frame.hops < MAXIMUM_HOPS
        });
        let Some(way) = way else {
            self.counters.relay_misses += 1;
            return;
        };
        self.counters.relayed_bytes += frame.bytes.len() as u64;
        let mut encoded = Vec::with_capacity(frame.bytes.len() + 48);
        let next = Frame {
            hops: frame.hops + 1,
            ..*frame
        };
        next.encode(&mut encoded);
        self.write_frame(way, &encoded);
    }

    fn on_own_frame(&mut self, now: Instant, frame: &Frame<'_>, deliver: Deliver<'_>) {
        let is_it = |tunnel: &Tunnel| tunnel.node == frame.from && tunnel.id == frame.tunnel;
        let known = self
            .tunnels
            .iter()
            .find(|(_, tunnel)| is_it(tunnel))
            .map(|(id, _)| *id);
        match (known, frame.kind) {
            (None, FrameKind::Open) if frame.sequence == 0 => self.accept_tunnel(now, frame),
            // Its first frame was lost, or it has ended here: the other end detects that by the silence, or has been notified already.
            (None, FrameKind::Open | FrameKind::Bytes | FrameKind::Close) => {}
            (Some(id), FrameKind::Close) => {
                self.tunnels.remove(&id);
                self.on_closed(now, id);
            }
            (Some(id), FrameKind::Open | FrameKind::Bytes) => {
                let Some(tunnel) = self.tunnels.get_mut(&id) else {
                    return;
                };
                if frame.sequence == tunnel.received {
                    tunnel.received += 1;
                    self.take_bytes(now, id, frame.bytes, deliver);
                } else {
                    self.close_link(now, id);
                    let again = now + self.config.timing.tunnel_after / 4;
                    self.unlinked.insert(frame.from, again);
                }
            }
        }
    }

    fn accept_tunnel(&mut self, now: Instant, frame: &Frame<'_>) {
        let pending = |link: &&Link| !link.state.is_selected();
        let is_flood = self.links.values().filter(pending).count() > self.config.limits.nodes * 4;
        if is_flood {
            self.counters.relay_misses += 1;
            return;
        }
        let id = self.free_tunnel();
        let tunnel = Tunnel {
            node: frame.from,
            id: frame.tunnel,
            sent: 0,
            received: 1,
            hop: self.trees.hop_towards(frame.from),
        };
        self.tunnels.insert(id, tunnel);
        self.on_accepted(now, id, FarEnd::default(), frame.bytes);
    }
}
