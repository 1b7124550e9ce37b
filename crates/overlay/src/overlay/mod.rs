//! The state machine that holds the parts together. It contains no protocol rules: they are in the parts.

mod close;
mod forwarding;
mod handshake;
mod messages;
mod overview;
mod relay;
mod rounds;
mod selection;
mod trees;
mod tunnels;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use thicket_session::time::Instant;

use crate::advertisements::Advertisements;
use crate::config::OverlayConfig;
use crate::dialler::Dialler;
use crate::hello::Hello;
use crate::identity::{Incarnation, LinkId, NodeId, NodeSlot, Origin, StreamId};
use crate::inbound::Known;
use crate::interest::{InterestKey, InterestValue};
use crate::interests::OwnInterests;
use crate::interface::{ControlError, Event, EventLevel, Input, Output};
use crate::link::{Link, LinkState};
use crate::links::Links;
use crate::measure::RateMeter;
use crate::peer::{Peer, PeerState};
use crate::peers::Peers;
use crate::random::Random;
use crate::relays::Relays;
use crate::report::{LinkCounters, NodeStatus, OverlayCounters};
use crate::store::Store;
use crate::trees::Trees;
use crate::tunnel::Tunnel;
use crate::view::{NodeRecord, View};
use crate::wanted_records::WantedRecords;
use crate::wire_version::{WireRange, WireVersion};

/// Bytes reserved for what surrounds a record or a control payload in its packet.
const PACKET_OVERHEAD: usize = 1024;

/// The cluster side of one node. See the crate's documentation.
#[derive(Debug)]
pub struct Overlay {
    config: OverlayConfig,
    /// Random for each start of the program.
    process: u64,
    random: Random,
    view: View,
    own_interests: OwnInterests,
    settled: u64,
    peers: Peers,
    slots: BTreeMap<NodeId, NodeSlot>,
    links: Links,
    /// The links that run over other nodes.
    tunnels: BTreeMap<LinkId, Tunnel>,
    next_tunnel: u32,
    /// Nodes of our component without a link, and when they get a tunnel.
    unlinked: BTreeMap<NodeId, Instant>,
    trees: Trees,
    /// For each message kept, the nodes interested in its topic: they name its tree, so that a resend stays in order with messages of the same tree.
    routes: BTreeMap<(StreamId, u64), Arc<[NodeSlot]>>,
    started: Instant,
    /// Links that ended since the trees were last computed, the lower node first.
    lost_links: BTreeSet<(NodeId, NodeId)>,
    advertisements: Advertisements,
    /// Batches of other nodes that wait for a path.
    held: Vec<relay::Held>,
    /// Links that we closed and whose last bytes the shell has not written yet.
    closing: BTreeMap<LinkId, Link>,
    /// The links of `closing` that were there at the end of the last round: they are closed by now.
    closed: BTreeSet<LinkId>,
    dialler: Dialler,
    store: Store,
    /// For nodes that went down: what they had not admitted, until it is asked for.
    outputs: VecDeque<Output>,
    counters: OverlayCounters,
    clients: u64,
    subscriptions: u64,
    /// CPU and memory that are free, in percent.
    available: (u8, u8),
    rate: RateMeter,
    /// Capability, roots and rate to publish, as of the last round.
    last_measures: (u64, u64, u64),
    /// When our record was last sent.
    record_sent: Instant,
    /// Links that differ from our record, by the place of the peer; as of the last round.
    moved_links: BTreeMap<usize, rounds::Moved>,
    /// The version of our interests as of the last round.
    interests_served: u64,
    round: rounds::RoundMemory,
    /// When the next address is due, with the generations of links and dialler that it was computed from.
    dial: ((u64, u64), Option<Instant>),
    /// Rises whenever the topology may have changed.
    topology_generation: u64,
    /// The generations of links and topology when nodes without a link were last looked for.
    tunnels_reviewed: Option<(u64, u64)>,
    /// Since when links are up that our record does not list.
    links_gained: Option<Instant>,
    /// Nodes that others reach and we do not, and until when we wait for them.
    linkless: BTreeMap<NodeId, Instant>,
    /// The component or the state of a peer may have changed.
    view_changed: bool,
    /// Changed records of other nodes that are to be announced.
    relays: Relays,
    /// Records of which others have a later version.
    wanted: WantedRecords,
    /// Numbers in the records have changed since the trees were last computed.
    numbers_changed: bool,
    last_round: Instant,
    /// See [`Overlay::last_pause`].
    last_pause: Option<(Instant, Instant)>,
    /// Processes with our identity whose incarnation we went above.
    jumped_over: Vec<u64>,
    /// Until when to wait because other nodes still have a former process of this node as up. Until they notice, this node cannot tell which nodes
    /// are there.
    former_is_up_until: Option<Instant>,
    leaving: bool,
    scratch: Vec<u8>,
}

impl Overlay {
    /// A node that has no peers yet. `seed`: from the operating system; nonces and jitter are derived from it.
    #[must_use]
    pub fn new(config: OverlayConfig, now: Instant, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let process = random.next();
        let own = NodeRecord {
            node: config.node,
            incarnation: config.incarnation,
            version: 1,
            process,
            name: config.name.clone(),
            address: config.address.clone(),
            clients: 0,
            subscriptions: 0,
            interest_version: 0,
            capability: 0,
            roots: 0,
            rate: 0,
            routing: config.routing.mode.code(),
            links: Arc::default(),
        };
        let view = View::new(own, config.limits.nodes);
        let trees = Trees::new(config.node, config.routing.clone(), view.topology().clone());
        Self {
            process,
            random,
            view,
            own_interests: OwnInterests::new(config.limits.interest_changes),
            settled: 0,
            peers: Peers::default(),
            slots: BTreeMap::new(),
            links: Links::default(),
            tunnels: BTreeMap::new(),
            next_tunnel: 0,
            unlinked: BTreeMap::new(),
            trees,
            routes: BTreeMap::new(),
            started: now,
            lost_links: BTreeSet::new(),
            advertisements: Advertisements::new(
                config.routing.maximum_advertisements,
                config.timing.advertisement_life,
                now,
            ),
            held: Vec::new(),
            closing: BTreeMap::new(),
            closed: BTreeSet::new(),
            dialler: Dialler::new(
                &config.address,
                config.timing.clone(),
                config.limits.clone(),
            ),
            store: Store::default(),
            outputs: VecDeque::new(),
            counters: OverlayCounters::default(),
            clients: 0,
            subscriptions: 0,
            available: (0, 0),
            rate: RateMeter::new(now),
            last_measures: (0, 0, 0),
            record_sent: now,
            moved_links: BTreeMap::new(),
            interests_served: 0,
            round: rounds::RoundMemory::default(),
            dial: ((0, 0), None),
            topology_generation: 0,
            tunnels_reviewed: None,
            links_gained: None,
            linkless: BTreeMap::new(),
            view_changed: false,
            relays: Relays::default(),
            wanted: WantedRecords::new(config.limits.nodes),
            numbers_changed: false,
            last_round: now,
            last_pause: None,
            jumped_over: Vec::new(),
            former_is_up_until: None,
            leaving: false,
            scratch: Vec::new(),
            config,
        }
    }

    /// Handles an input.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        match input {
            Input::Discovered { address } => self.dialler.note_address(now, address, None),
            Input::Announced { address } => self.dialler.announce(now, address),
            Input::Dialled { address, link } => self.on_dialled(now, address, link),
            Input::DialFailed { address, error } => self.on_dial_failed(now, address, error),
            Input::LinkProved { link, key } => self.on_proved(link, key),
            Input::LinkAccepted { link, end, bytes } => self.on_accepted(now, link, end, bytes),
            Input::Closed { link } => self.on_closed(now, link),
            // Deadlines are compared with the clock at the end of every round.
            Input::Timeout => {}
        }
    }

    /// The next order, `None` if there are no more.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Bytes to write to the socket, oldest first. Empty for a link that is gone.
    #[must_use]
    pub fn pending_output(&self, link: LinkId) -> &[u8] {
        self.links
            .get(&link)
            .or_else(|| self.closing.get(&link))
            .map_or(&[], Link::pending)
    }

    /// The socket accepted `count` of them. Returns whether another round is needed: waiting data, of this node or of tunnels, may now fit into the
    /// out-buffer.
    pub fn handle_written(&mut self, _now: Instant, link: LinkId, count: usize) -> bool {
        if let Some(link) = self.links.get_mut(&link) {
            link.consume(count);
            return link.is_throttled || !self.tunnels.is_empty();
        }
        if let Some(link) = self.closing.get_mut(&link) {
            link.consume(count);
        }
        false
    }

    /// Sets an interest of this node. Returns the version of our interests that contains it: wait for `InterestSettled` of it or a later one, unless
    /// [`Self::settled_version`] has reached it already. An unchanged interest makes no new version.
    pub fn set_interest(&mut self, key: InterestKey, value: InterestValue) -> u64 {
        self.own_interests.set(key, value)
    }

    /// Removes an interest; returns a version without it.
    pub fn clear_interest(&mut self, key: &InterestKey) -> u64 {
        self.own_interests.clear(key)
    }

    /// The version that every reachable node has applied, as of the end of the last round. A node that has come up again has applied none until it
    /// acknowledges one.
    #[must_use]
    pub const fn settled_version(&self) -> u64 {
        self.settled
    }

    /// Every worker of this node has applied the interests of `slot` up to the `version` that `InterestChanged` gave. Versions from before the node
    /// went down confirm nothing.
    pub fn interests_applied(&mut self, slot: NodeSlot, version: u64) {
        if let Some(peer) = self.peer_mut(slot)
            && peer.interests.confirm(version)
        {
            peer.owes_applied = true;
        }
    }

    /// Whether the snapshot of every reachable node has been applied here (rule 3). True while this node is alone: the hub decides how long to wait
    /// for discovery. As of the end of the last round.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let peers_ready = self
            .peers
            .iter()
            .all(|peer| peer.is_down() || peer.interests.is_ready());
        peers_ready && !self.waits_for_a_link() && !self.waits_for_its_former()
    }

    /// Whether other nodes still have a former process of this node as up, and therefore refuse its links.
    fn waits_for_its_former(&self) -> bool {
        let is_awaited = |until: Instant| until > self.last_round;
        self.former_is_up_until.is_some_and(is_awaited) && self.linked_peers().next().is_none()
    }

    /// The recipients' workers have accepted these numbered messages: they are acknowledged and their credit returns. Numbers that were not
    /// delivered, or belong to a former incarnation, are ignored.
    pub fn admitted(&mut self, origin: Origin, numbers: RangeInclusive<u64>) {
        if let Some(peer) = self.peer_mut(origin.slot) {
            peer.inbound
                .admit(origin.incarnation, origin.stream, &numbers);
        }
    }

    /// Whether a numbered message has arrived from its origin. It may arrive a second time from a node that kept it, after origin and destination had
    /// marked each other down.
    #[must_use]
    pub fn knows(&self, origin: Origin, number: u64) -> Known {
        self.peer(origin.slot).map_or(Known::No, |peer| {
            peer.inbound
                .knows(origin.incarnation, origin.stream, number)
        })
    }

    /// The recipients' workers have accepted messages of `slot` without numbers, of `bytes` ([`Delivery::bytes`](crate::Delivery)) in all: credit
    /// returns.
    pub fn released(&mut self, slot: NodeSlot, incarnation: Incarnation, bytes: u64) {
        if let Some(peer) = self.peer_mut(slot)
            && incarnation >= peer.first_incarnation
        {
            peer.inbound.release(bytes);
        }
    }

    /// Sends `payload` to the hub of another node: in order and once while the node is up, over consecutive links if needed, never behind data.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn send_control(
        &mut self,
        slot: NodeSlot,
        kind: u8,
        payload: &[u8],
    ) -> Result<(), ControlError> {
        let maximum = crate::MAXIMUM_PACKET_BYTES as usize - PACKET_OVERHEAD;
        let limit = self.config.limits.control_bytes;
        if payload.len() > maximum {
            return Err(ControlError::TooLarge {
                bytes: payload.len(),
                maximum,
            });
        }
        let peer = self
            .peer_mut(slot)
            .filter(|peer| !peer.is_down())
            .ok_or(ControlError::NotUp { slot })?;
        if peer.control.bytes() + payload.len() > limit {
            return Err(ControlError::Full {
                bytes: peer.control.bytes(),
            });
        }
        peer.control.push(kind, payload);
        Ok(())
    }

    /// Whether a node is down, or was never linked: nothing passed to [`forward`](Self::forward) is sent there.
    #[must_use]
    pub fn is_down(&self, slot: NodeSlot) -> bool {
        self.peer(slot).is_none_or(Peer::is_down)
    }

    /// The numbers that other nodes show of this one; sent in its record.
    pub const fn set_summary(&mut self, clients: u64, subscriptions: u64) {
        self.clients = clients;
        self.subscriptions = subscriptions;
    }

    /// CPU and memory of this node that are free, in percent (L and M of Overlays 4.2.1); smoothed by the caller. Sent in its record, in steps.
    pub fn set_resources(&mut self, available_cpu: u8, available_memory: u8) {
        self.available = (available_cpu.min(100), available_memory.min(100));
    }

    /// This node's incarnation; higher than configured if other nodes had a record with a higher one.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.view.own().incarnation
    }

    /// This node and those that are up, ascending: the nodes to hand to [`rendezvous`](crate::rendezvous()).
    #[must_use]
    pub fn reachable(&self) -> Vec<NodeId> {
        let up = self
            .peers
            .iter()
            .filter(|peer| !peer.is_down())
            .map(|peer| peer.node);
        let mut nodes: Vec<_> = up.chain([self.config.node]).collect();
        nodes.sort_unstable();
        nodes
    }

    /// The slot of a node that was linked at least once; `NodeSlot::LOCAL` for this one.
    #[must_use]
    pub fn slot_of(&self, node: NodeId) -> Option<NodeSlot> {
        if node == self.config.node {
            Some(NodeSlot::LOCAL)
        } else {
            self.slots.get(&node).copied()
        }
    }

    /// The node of a slot.
    #[must_use]
    pub fn node_of(&self, slot: NodeSlot) -> Option<NodeId> {
        if slot == NodeSlot::LOCAL {
            Some(self.config.node)
        } else {
            self.peer(slot).map(|peer| peer.node)
        }
    }

    /// The capability of another node, as in its record (C of Overlays 4.2.1, in steps); 0: none, or unknown.
    #[must_use]
    pub fn capability_of(&self, node: NodeId) -> u64 {
        self.view.record(node).map_or(0, |record| record.capability)
    }

    /// The wire version used with another node: fields and messages that it lacks are not sent. Stays the same from `NodeUp` until that node
    /// restarts; for a slot that was never linked it is the oldest one.
    #[must_use]
    pub fn wire_version(&self, slot: NodeSlot) -> WireVersion {
        if slot == NodeSlot::LOCAL {
            return WireVersion::NEWEST;
        }
        self.peer(slot)
            .and_then(|peer| WireRange::OWN.common(peer.wire))
            .unwrap_or(WireVersion::OLDEST)
    }

    /// Whether the links that both ends have published connect this node with each node that is up, directly or over others; then the nodes that
    /// those reach are known here too. As of the end of the last round.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        let component = self.trees.topology();
        let mut up = self.peers.iter().filter(|peer| !peer.is_down());
        up.all(|peer| component.contains(peer.node))
    }

    /// Whether the record of a node lists a link with another one, as far as is known here.
    #[must_use]
    pub fn lists(&self, node: NodeId, other: NodeId) -> bool {
        let record = self.view.record(node);
        record.is_some_and(|record| record.lists(other))
    }

    /// Whether there is a node that others reach and this one does not, neither directly nor over a tunnel, although the time for that has passed.
    #[must_use]
    pub fn misses_nodes(&self) -> bool {
        self.linkless
            .values()
            .any(|until| *until <= self.last_round)
    }

    /// The round trip between two nodes as in their records, to a tenth of a millisecond; below one millisecond it is 0. `None`: neither lists a link
    /// with the other.
    #[must_use]
    pub fn round_trip(&self, a: NodeId, b: NodeId) -> Option<Duration> {
        let said = |by: NodeId, of: NodeId| Some(self.view.record(by)?.link(of)?.rtt);
        let tenths = said(a, b).or_else(|| said(b, a))?;
        Some(Duration::from_micros(u64::from(tenths) * 100))
    }

    /// When something was last received over the link with a node; `None`: there is no link with it.
    #[must_use]
    pub fn last_received(&self, slot: NodeSlot) -> Option<Instant> {
        let link = self.links.get(&self.peer(slot)?.link?)?;
        link.state.is_selected().then_some(link.last_received)
    }

    /// Every node that was linked at least once, this one first, then by slot.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let own = NodeStatus {
            slot: NodeSlot::LOCAL,
            node: self.config.node,
            incarnation: self.incarnation(),
            name: self.config.name.clone(),
            address: self.config.address.clone(),
            is_up: true,
            rtt_us: None,
            key: None,
            clients: self.clients,
            subscriptions: self.subscriptions,
            unacknowledged_bytes: 0,
            counters: LinkCounters::default(),
        };
        let others = self.peers.iter().enumerate().map(|(index, peer)| {
            let record = self.view.record(peer.node);
            NodeStatus {
                slot: slot_of_index(index),
                node: peer.node,
                incarnation: peer.incarnation,
                name: peer.name.clone(),
                address: record
                    .map(|record| record.address.clone())
                    .unwrap_or_default(),
                is_up: !peer.is_down(),
                rtt_us: peer.rtt_us.filter(|_| peer.state == PeerState::Up),
                key: peer.link.and_then(|link| self.links.get(&link)?.end.key),
                clients: record.map_or(0, |record| record.clients),
                subscriptions: record.map_or(0, |record| record.subscriptions),
                unacknowledged_bytes: peer.outbound.bytes(),
                counters: peer.counters,
            }
        });
        std::iter::once(own).chain(others).collect()
    }

    /// Nodes that are up and were linked at least once, without this one, with their names.
    pub fn others_up(&self) -> impl Iterator<Item = (NodeId, &str)> {
        let up = self.peers.iter().filter(|peer| !peer.is_down());
        up.map(|peer| (peer.node, &*peer.name))
    }

    /// HOST:PORT for links of another node, as it announces it; empty where it is not known.
    #[must_use]
    pub fn address_of(&self, node: NodeId) -> &str {
        let record = self.view.record(node);
        record.map_or("", |record| &record.address)
    }

    /// Counters that concern no single node.
    #[must_use]
    pub const fn counters(&self) -> OverlayCounters {
        let mut counters = self.counters;
        counters.refused_addresses = self.dialler.refused();
        counters.elections = self.trees.elections;
        counters.refused_trees = self.trees.refused;
        counters.unacknowledged_bytes = self.store.bytes();
        counters.unacknowledged_messages = self.store.messages() as u64;
        counters
    }

    fn peer(&self, slot: NodeSlot) -> Option<&Peer> {
        self.peers.get(slot.index().checked_sub(1)?)
    }

    fn peer_mut(&mut self, slot: NodeSlot) -> Option<&mut Peer> {
        self.peers.get_mut(slot.index().checked_sub(1)?)
    }

    fn peer_of(&self, node: NodeId) -> Option<&Peer> {
        self.peer(*self.slots.get(&node)?)
    }

    /// The nodes with which a link of our own, not a tunnel, is selected or a candidate, ascending.
    fn linked_nodes(&self) -> Vec<NodeId> {
        let own = self.links.iter().filter(|(id, _)| !Self::is_tunnel(**id));
        let mut nodes: Vec<NodeId> = own.filter_map(|(_, link)| link.state.node()).collect();
        nodes.sort_unstable();
        nodes
    }

    /// What this node sends about itself on a new link.
    fn own_hello(&mut self) -> Hello {
        Hello {
            wire: WireRange::OWN,
            cluster: self.config.cluster_name.clone(),
            node: self.config.node,
            incarnation: self.incarnation(),
            process: self.process,
            name: self.config.name.clone(),
            address: self.config.address.clone(),
            nonce: [self.random.next(), self.random.next()],
        }
    }

    fn event(
        &mut self,
        level: EventLevel,
        message: &'static str,
        fields: Vec<(&'static str, String)>,
    ) {
        self.outputs.push_back(Output::Event(Event {
            level,
            message,
            fields,
        }));
    }

    fn add_link(&mut self, now: Instant, id: LinkId, state: LinkState, dialled: Option<String>) {
        // The shell reuses a number only after it has finished with the previous link.
        self.closing.remove(&id);
        self.closed.remove(&id);
        let deadline = now + self.config.timing.handshake_timeout;
        self.links
            .insert(id, Link::new(state, dialled, now, deadline));
    }
}

fn slot_of_index(index: usize) -> NodeSlot {
    // The check in `selection` keeps the table below 65,535.
    NodeSlot(u16::try_from(index + 1).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests;
