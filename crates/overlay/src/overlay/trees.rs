//! Messages over trees: the origin picks and names a tree, every node on the path splits the remaining destinations by its own view of the tree
//! (rules 20, 21), and the origin resends what a change of the view may have lost.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use thicket_session::time::Instant;

use super::{Overlay, slot_of_index};
use crate::channel::Channel;
use crate::flow::Flow;
use crate::identity::{Incarnation, LinkId, NodeId, NodeSlot, StreamId};
use crate::interface::{EventLevel, Forward};
use crate::link::{Link, LinkState};
use crate::record::{Record, age_expiry};
use crate::routing::RoutingMode;
use crate::tree_name::{MemberSet, OpenBatch, TreeHeader, TreeName};
use crate::trees::NamedTree;

/// A record that this node sends.
struct OwnCopy<'a> {
    incarnation: Incarnation,
    stream: StreamId,
    /// 0: none.
    number: u64,
    record: &'a [u8],
}

/// A neighbour and the link to it.
pub(super) type Hop = (NodeSlot, LinkId);

impl Overlay {
    pub(super) fn routes_over_trees(&self) -> bool {
        self.config.routing.mode != RoutingMode::Mesh
    }

    /// Advertises the first publication to a topic, and then one from time to time (rule 22).
    pub(super) fn advertise_topic(&mut self, now: Instant, record: &[u8], tree: &Arc<TreeName>) {
        if let Ok((record, _)) = Record::decode(record)
            && self.advertisements.publish(now, record.topic, tree)
        {
            self.advertise(self.config.node, record.topic, None);
        }
    }

    /// The link to a node, if it is up.
    pub(super) fn link_up(&self, node: NodeId) -> Option<Hop> {
        let slot = *self.slots.get(&node)?;
        let id = self.peer(slot)?.link?;
        matches!(self.links.get(&id)?.state, LinkState::Up { .. }).then_some((slot, id))
    }

    /// Applies changes of the view, and resends what a lost link may have lost.
    pub(super) fn update_topology(&mut self, now: Instant) {
        if !std::mem::take(&mut self.numbers_changed) && !self.view_changed {
            return;
        }
        self.topology_generation += 1;
        let elections = self.trees.elections;
        let topology = self.view.topology().component(self.config.node);
        let lost_links = std::mem::take(&mut self.lost_links);
        let cut_off = self.trees.update(topology, &lost_links);
        if self.trees.elections != elections {
            let root = self.trees.single_name().root;
            self.event(
                EventLevel::Info,
                "root elected",
                vec![("node", root.to_string())],
            );
        }
        self.check_tunnels(now);
        self.relay_held(now);
        for node in cut_off {
            if let Some(slot) = self.slots.get(&node).copied() {
                self.send_all_again(now, slot);
            }
        }
    }

    /// Sends a numbered message, which is kept already, to those destinations whose window and link have capacity.
    pub(super) fn send_over_tree(&mut self, now: Instant, message: &Forward<'_>, tree: &NamedTree) {
        let (slots, nodes) = self.those_not_down(message.destinations);
        let wanted = message.interested.unwrap_or(message.destinations);
        let route = self.trees.intern(wanted);
        self.routes.insert((message.stream, message.number), route);
        let len = message.record.len() as u32;
        let mut ready = Vec::with_capacity(slots.len());
        for (slot, node) in slots.into_iter().zip(nodes) {
            let is_open = self
                .hop(tree, node)
                .is_some_and(|(_, link)| !self.is_congested(link));
            let Some(peer) = self.peer_mut(slot) else {
                continue;
            };
            let window = peer.outbound.window();
            if peer
                .flow
                .offer(now, message.stream, message.number, len, window, is_open)
            {
                ready.push(node);
            }
        }
        self.transmit(now, tree, message.stream, message.number, &ready);
    }

    /// Sends a message without a number once; it is dropped where the link is over its limit.
    pub(super) fn send_plain_over_tree(&mut self, message: &Forward<'_>, tree: &NamedTree) {
        let (_, nodes) = self.those_not_down(message.destinations);
        let copy = OwnCopy {
            incarnation: self.view.own().incarnation,
            stream: message.stream,
            number: 0,
            record: message.record,
        };
        for ((slot, link), destinations) in self.split(tree, &nodes) {
            if self.is_congested(link) {
                if let Some(peer) = self.peer_mut(slot) {
                    peer.counters.dropped += destinations.len() as u64;
                }
                continue;
            }
            self.append_own((slot, link), &tree.name, destinations, &copy);
        }
    }

    fn those_not_down(&self, destinations: &[NodeSlot]) -> (Vec<NodeSlot>, Vec<NodeId>) {
        let there = |slot: &NodeSlot| {
            self.peer(*slot)
                .filter(|peer| !peer.is_down())
                .map(|peer| (*slot, peer.node))
        };
        destinations.iter().filter_map(there).unzip()
    }

    /// Sends a kept message to `ready`, once over each branch.
    fn transmit(
        &mut self,
        now: Instant,
        tree: &NamedTree,
        stream: StreamId,
        number: u64,
        ready: &[NodeId],
    ) {
        let Some(sendable) = self.store.sendable(stream, number) else {
            return;
        };
        let (mut record, incarnation) = (sendable.bytes.to_vec(), sendable.incarnation);
        let waited = now.since(sendable.at).as_millis();
        if waited > 0 {
            // Expiry counts the time a message waits here (5.0, 3.3.2.3.3).
            age_expiry(&mut record, u64::try_from(waited).unwrap_or(u64::MAX));
        }
        let record = &record;
        let copy = OwnCopy {
            incarnation,
            stream,
            number,
            record,
        };
        for (hop, destinations) in self.split(tree, ready) {
            self.append_own(hop, &tree.name, destinations, &copy);
        }
    }

    /// Appends a record of this node to the open batch of a link, under the name of each tree that is used.
    fn append_own(
        &mut self,
        hop: Hop,
        name: &Arc<TreeName>,
        destinations: Vec<NodeId>,
        copy: &OwnCopy<'_>,
    ) {
        let low = self.store.low(copy.stream);
        for (name, remaining) in self.name_all(name, destinations) {
            let header = TreeHeader {
                name,
                origin: self.config.node,
                incarnation: copy.incarnation,
                stream: copy.stream,
                low,
                hops: 0,
                remaining,
            };
            let gaps = match copy.number {
                0 => Vec::new(),
                number => self.gaps(&header, number),
            };
            self.append(hop, header, copy.record, &gaps);
        }
    }

    /// The next hop towards `node` for a message of this node. Nothing is sent to a node that may not have this one as up yet: over a tree, messages
    /// could arrive before that.
    fn hop(&self, tree: &NamedTree, node: NodeId) -> Option<Hop> {
        let has_acknowledged = self
            .peer_of(node)
            .is_some_and(|peer| peer.has_acknowledged || peer.link.is_none());
        self.hop_by(tree, node).filter(|_| has_acknowledged)
    }

    /// The next hop by the tree; nodes outside it are reached over the tree of all nodes.
    pub(super) fn hop_by(&self, tree: &NamedTree, node: NodeId) -> Option<Hop> {
        let own = self.config.node;
        let next = if tree.tree.contains(node) {
            tree.tree.next_hop(own, node)
        } else {
            self.trees.single().tree.next_hop(own, node)
        };
        next.and_then(|next| self.link_up(next))
    }

    /// Assigns every destination to one branch; those without a path are left to a later resend.
    fn split(&self, tree: &NamedTree, destinations: &[NodeId]) -> BTreeMap<Hop, Vec<NodeId>> {
        let mut branches: BTreeMap<Hop, Vec<NodeId>> = BTreeMap::new();
        for node in destinations {
            if let Some(hop) = self.hop(tree, *node) {
                branches.entry(hop).or_default().push(*node);
            }
        }
        branches
    }

    /// The tree names to use, with the destinations of each. Destinations outside the tree use the tree of all nodes; those that are not in the view
    /// yet use a tree of this node and themselves.
    fn name_all(
        &self,
        name: &Arc<TreeName>,
        destinations: Vec<NodeId>,
    ) -> Vec<(Arc<TreeName>, MemberSet)> {
        let own = self.config.node;
        let (members, others): (Vec<_>, Vec<_>) = destinations
            .into_iter()
            .partition(|node| name.place(*node).is_some());
        let single = self.trees.single_name();
        let (known, others): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|node| single.place(*node).is_some());
        let mut all = Vec::with_capacity(1);
        for (name, nodes) in [(name, members), (single, known)] {
            if !nodes.is_empty() && name.place(own).is_some() {
                all.push((Arc::clone(name), MemberSet::of(name, nodes)));
            }
        }
        for node in others {
            let pair = Arc::new(TreeName {
                root: own,
                members: vec![own.min(node), own.max(node)],
            });
            let remaining = MemberSet::of(&pair, [node]);
            all.push((pair, remaining));
        }
        all
    }

    pub(super) fn is_congested(&self, link: LinkId) -> bool {
        let maximum = self.config.limits.out_buffer_bytes;
        self.links
            .get(&link)
            .is_none_or(|link| link.waiting() >= maximum)
    }

    /// For each of the remaining destinations, how far before this number the one lies that must be delivered first; 0: none. Acknowledged numbers
    /// need not be waited for.
    fn gaps(&self, header: &TreeHeader, number: u64) -> Vec<u64> {
        let gap = |node: NodeId| {
            let before = self
                .peer_of(node)?
                .outbound
                .pending_before(header.stream, number)?;
            let same =
                self.store.sendable(header.stream, before)?.incarnation == header.incarnation;
            same.then_some(number - before)
        };
        header
            .remaining
            .nodes(&header.name)
            .map(|node| gap(node).unwrap_or(0))
            .collect()
    }

    /// Appends a record to the open batch of a link.
    pub(super) fn append(&mut self, hop: Hop, header: TreeHeader, record: &[u8], gaps: &[u64]) {
        let maximum = self.config.limits.batch_bytes;
        let Some(link) = self.links.get_mut(&hop.1) else {
            return;
        };
        let joins = link.open_batch.as_ref().is_some_and(|open| {
            open.header.joins(&header) && open.records.len() + record.len() <= maximum
        });
        if !joins {
            self.seal_tree_batch(hop);
        }
        let Some(link) = self.links.get_mut(&hop.1) else {
            return;
        };
        let low = header.low;
        let open = link.open_batch.get_or_insert_with(|| OpenBatch {
            header,
            records: Vec::new(),
        });
        open.header.low = open.header.low.min(low);
        open.push(record, gaps);
        if let Some(peer) = self.peer_mut(hop.0) {
            peer.counters.data_out_messages += 1;
        }
    }

    /// Writes the open batch of a link to its out-buffer.
    pub(super) fn seal_tree_batch(&mut self, (slot, id): Hop) {
        let mut buffer = std::mem::take(&mut self.scratch);
        buffer.clear();
        let written = self.links.get_mut(&id).and_then(|link| {
            let open = link.open_batch.take()?;
            open.header.encode(&mut link.aliases_sent, &mut buffer);
            buffer.extend_from_slice(&open.records);
            Some(link.write_publish(Channel::Tree, &buffer) as u64)
        });
        self.scratch = buffer;
        if let (Some(peer), Some(written)) = (self.peer_mut(slot), written) {
            peer.counters.data_out_batches += 1;
            peer.counters.data_out_bytes += written;
        }
    }

    /// Sends what waited for a window or a link, as far as capacity allows, and resends what has not been acknowledged for long.
    pub(super) fn send_parked(&mut self, now: Instant) {
        if !self.routes_over_trees() {
            return;
        }
        let throttled: Vec<LinkId> = self.links.throttled().map(|(id, _)| id).collect();
        for id in throttled {
            if let Some(link) = self.links.get_mut(&id) {
                link.is_throttled = false;
            }
        }
        let mut released: BTreeMap<(StreamId, u64), Vec<NodeId>> = BTreeMap::new();
        let mut planned: BTreeMap<LinkId, usize> = BTreeMap::new();
        for index in self.peers.flowing() {
            let peer = &self.peers[index];
            if peer
                .flow
                .resend_at(self.config.timing.resend_after)
                .is_some_and(|at| now >= at)
            {
                thicket_session::reach!("time resend_after");
                let is_overdue = self.send_again(now, slot_of_index(index), Flow::is_overdue);
                if let Some(peer) = self.peers.get_mut(index) {
                    peer.flow.resent(now, is_overdue);
                }
            }
            while let Some((key, node)) = self.release_one(now, index, &mut planned) {
                released.entry(key).or_default().push(node);
            }
        }
        for ((stream, number), nodes) in released {
            let tree = self.tree_of(stream, number);
            self.transmit(now, &tree, stream, number, &nodes);
        }
    }

    /// The next parked message of a node for which window and link have capacity.
    fn release_one(
        &mut self,
        now: Instant,
        index: usize,
        planned: &mut BTreeMap<LinkId, usize>,
    ) -> Option<((StreamId, u64), NodeId)> {
        let (stream, number) = self.peers.get(index)?.flow.first_parked()?;
        let node = self.peers.get(index)?.node;
        let tree = self.tree_of(stream, number);
        let (_, link_id) = self.hop(&tree, node)?;
        let more = planned.entry(link_id).or_default();
        let link = self.links.get_mut(&link_id)?;
        if link.waiting() + *more >= self.config.limits.out_buffer_bytes {
            link.is_throttled = true;
            return None;
        }
        let peer = self.peers.get_mut(index)?;
        let key = peer.flow.release(now, peer.outbound.window())?;
        *more += self
            .store
            .sendable(key.0, key.1)
            .map_or(0, |sendable| sendable.bytes.len());
        Some((key, node))
    }

    /// The tree of a message that is kept.
    fn tree_of(&mut self, stream: StreamId, number: u64) -> Arc<NamedTree> {
        match self.routes.get(&(stream, number)).map(Arc::clone) {
            Some(route) => self.tree_for(&route),
            None => Arc::clone(self.trees.single()),
        }
    }

    pub(super) fn tree_for(&mut self, route: &[NodeSlot]) -> Arc<NamedTree> {
        let (_, nodes) = self.those_not_down(route);
        self.trees.pick(route, &nodes)
    }

    /// Forgets the trees of messages that are complete.
    pub(super) fn forget_routes(&mut self, stream: StreamId, ranges: &[RangeInclusive<u64>]) {
        for range in ranges {
            let (first, last) = ((stream, *range.start()), (stream, *range.end()));
            while let Some(key) = self.routes.range(first..=last).next().map(|(key, _)| *key) {
                self.routes.remove(&key);
            }
        }
    }

    /// Resends everything that was sent and is not acknowledged by a node: it discards and acknowledges what it has already.
    pub(super) fn send_all_again(&mut self, now: Instant, slot: NodeSlot) {
        if self.routes_over_trees() {
            self.send_again(now, slot, Flow::is_sent);
        }
    }

    /// Resends those unacknowledged messages, or parks them until there is a path to the node; whether there are any.
    fn send_again(
        &mut self,
        now: Instant,
        slot: NodeSlot,
        is_wanted: fn(&Flow, StreamId, u64) -> bool,
    ) -> bool {
        let Some(peer) = self.peer_mut(slot) else {
            return false;
        };
        let node = peer.node;
        let numbers: Vec<_> = peer
            .outbound
            .pending()
            .filter(|(stream, number)| is_wanted(&peer.flow, *stream, *number))
            .collect();
        let has_some = !numbers.is_empty();
        let mut resent = 0;
        for (stream, number) in numbers {
            let tree = self.tree_of(stream, number);
            if self.hop(&tree, node).is_some() {
                self.transmit(now, &tree, stream, number, &[node]);
                resent += 1;
            } else if let Some(len) = self.store.sendable(stream, number).map(|it| it.first_len)
                && let Some(peer) = self.peer_mut(slot)
            {
                peer.flow.park(stream, number, len as u32);
            }
        }
        if let Some(peer) = self.peer_mut(slot) {
            peer.counters.resends += resent;
        }
        has_some
    }
}

impl Link {
    /// Bytes that wait for the socket, or are about to.
    pub(super) fn waiting(&self) -> usize {
        self.pending().len()
            + self
                .open_batch
                .as_ref()
                .map_or(0, |open| open.records.len())
    }
}
