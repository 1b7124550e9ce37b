//! What is received on links: packets, and the messages in them.

use thicket_mqtt::{DecodeError, Packet, ProtocolVersion, Publish, ReasonCode};
use thicket_session::time::Instant;

use super::Overlay;
use super::handshake::Refusal;
use crate::channel::Channel;
use crate::hello::KnownAs;
use crate::identity::{LinkId, NodeId, NodeSlot};
use crate::inbound::InboundError;
use crate::interests::InterestError;
use crate::interface::{Delivery, EventLevel, Output};
use crate::link::{LinkState, SentHello};
use crate::message::{AcknowledgeView, InterestBatch, Message};
use crate::record_change::RecordChange;
use crate::record_versions::{Purpose, RecordAge, RecordVersions};
use crate::relays::Relay;
use crate::view::{NodeRecord, RecordNews};
use crate::wire::WireError;

/// Why a link is closed although its node is alive. Nothing of the packet has taken effect, except earlier parts of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LinkError {
    #[error("malformed packet: {0}")]
    Packet(#[from] DecodeError),
    #[error("malformed message: {0}")]
    Message(#[from] WireError),
    #[error(transparent)]
    Interests(InterestError),
    #[error(transparent)]
    Inbound(#[from] InboundError),
    #[error("publish without one of the topics of a link")]
    Topic,
    #[error("{message} on a link that is {state}")]
    Unexpected {
        message: &'static str,
        state: &'static str,
    },
    #[error("number {number} is acknowledged and was never sent")]
    NeverSent { number: u64 },
    #[error("{origin} is not the node at the other end")]
    Relayed { origin: NodeId },
}

/// Upper bound of a reported round trip: one hour.
const MAXIMUM_RTT_US: u64 = 3_600_000_000;

/// Longest packet before the other end is identified.
const MAXIMUM_HANDSHAKE_BYTES: u32 = 64 * 1024;

pub(super) type Deliver<'d> = &'d mut dyn FnMut(Delivery<'_>);

impl Overlay {
    /// Handles all bytes that were read from a link in this round, and calls `deliver` for each message in them that is new here. An incomplete
    /// packet is kept. Bytes of a link that is gone are ignored.
    pub fn handle_received(
        &mut self,
        now: Instant,
        link: LinkId,
        bytes: &[u8],
        mut deliver: impl FnMut(Delivery<'_>),
    ) {
        self.take_bytes(now, link, bytes, &mut deliver);
    }

    /// The same for bytes that arrived over a tunnel.
    pub(super) fn take_bytes(
        &mut self,
        now: Instant,
        link: LinkId,
        bytes: &[u8],
        deliver: Deliver<'_>,
    ) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        state.last_received = now;
        let mut input = std::mem::take(&mut state.input);
        if input.is_empty() {
            let consumed = self.read_packets(now, link, bytes, deliver);
            input.extend_from_slice(bytes.get(consumed..).unwrap_or_default());
        } else {
            input.extend_from_slice(bytes);
            let consumed = self.read_packets(now, link, &input, deliver);
            input.drain(..consumed);
        }
        if let Some(state) = self.links.get_mut(&link) {
            state.input = input;
        }
    }

    /// Handles the complete packets in `bytes`; returns their length.
    fn read_packets(
        &mut self,
        now: Instant,
        id: LinkId,
        bytes: &[u8],
        deliver: Deliver<'_>,
    ) -> usize {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            // An end that is not identified can make us buffer only little.
            let is_known = self
                .links
                .get(&id)
                .is_some_and(|link| link.state.node().is_some());
            let maximum = if is_known {
                crate::MAXIMUM_PACKET_BYTES
            } else {
                MAXIMUM_HANDSHAKE_BYTES
            };
            let decoded = thicket_mqtt::decode(rest, ProtocolVersion::V5, maximum);
            let result = match decoded {
                Ok(None) => return at,
                Ok(Some((packet, len))) => {
                    at += len;
                    self.on_packet(now, id, &packet, len, deliver)
                }
                Err(error) => Err(LinkError::Packet(error)),
            };
            if let Err(error) = result {
                self.on_link_error(now, id, &error);
            }
            if !self.links.contains_key(&id) {
                return bytes.len();
            }
        }
        at
    }

    fn on_link_error(&mut self, now: Instant, id: LinkId, error: &LinkError) {
        let node = self.links.get(&id).and_then(|link| link.state.node());
        if let Some(peer) = node
            .and_then(|node| self.slots.get(&node).copied())
            .and_then(|slot| self.peer_mut(slot))
        {
            peer.counters.refused += 1;
        }
        self.refuse(now, id, &Refusal::protocol(error.to_string()));
    }

    fn on_packet(
        &mut self,
        now: Instant,
        id: LinkId,
        packet: &Packet<'_>,
        len: usize,
        deliver: Deliver<'_>,
    ) -> Result<(), LinkError> {
        let Some(link) = self.links.get_mut(&id) else {
            return Ok(());
        };
        match packet {
            Packet::Disconnect(disconnect) => {
                self.on_disconnect(now, id, disconnect);
                Ok(())
            }
            Packet::Publish(publish) if link.state.node().is_some() => {
                let channel = link.channel(publish).ok_or(LinkError::Topic)?;
                let slot = link
                    .state
                    .node()
                    .and_then(|node| self.slots.get(&node).copied());
                slot.map_or(Ok(()), |slot| {
                    self.on_publish(now, slot, id, channel, publish, len, deliver)
                })
            }
            packet => {
                self.on_handshake(now, id, packet);
                Ok(())
            }
        }
    }

    fn on_disconnect(
        &mut self,
        now: Instant,
        id: LinkId,
        disconnect: &thicket_mqtt::Disconnect<'_>,
    ) {
        match disconnect.reason_code {
            ReasonCode::Success | ReasonCode::SessionTakenOver | ReasonCode::ServerShuttingDown => {
                self.close_link(now, id)
            }
            code => self.on_refused(
                now,
                id,
                code,
                disconnect.reason_string,
                &disconnect.user_properties,
            ),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one packet, named")]
    fn on_publish(
        &mut self,
        now: Instant,
        slot: NodeSlot,
        id: LinkId,
        channel: Channel,
        publish: &Publish<'_>,
        len: usize,
        deliver: Deliver<'_>,
    ) -> Result<(), LinkError> {
        let Some(peer) = self.peer_mut(slot) else {
            return Ok(());
        };
        if channel == Channel::Data {
            peer.counters.data_in_bytes += len as u64;
            self.require_up(id, "a batch")?;
            return self.on_batch(slot, publish.payload, deliver);
        }
        if channel == Channel::Tree {
            peer.counters.data_in_bytes += len as u64;
            self.require_up(id, "a batch")?;
            return self.on_tree_batch(now, slot, id, publish.payload, deliver);
        }
        peer.counters.control_in_messages += 1;
        peer.counters.control_in_bytes += len as u64;
        if channel == Channel::Tunnel {
            self.require_up(id, "a frame")?;
            return self.on_frame(now, id, publish.payload, deliver);
        }
        let message = Message::decode(channel, publish.payload)?;
        self.on_message(now, slot, id, message)
    }

    fn require_up(&self, id: LinkId, message: &'static str) -> Result<(), LinkError> {
        match self.links.get(&id).map(|link| &link.state) {
            Some(LinkState::Up { .. }) | None => Ok(()),
            Some(state) => Err(LinkError::Unexpected {
                message,
                state: state.name(),
            }),
        }
    }

    fn on_message(
        &mut self,
        now: Instant,
        slot: NodeSlot,
        id: LinkId,
        message: Message<'_>,
    ) -> Result<(), LinkError> {
        let Some(link) = self.links.get(&id) else {
            return Ok(());
        };
        let unexpected = LinkError::Unexpected {
            message: message.name(),
            state: link.state.name(),
        };
        let decides = link
            .state
            .node()
            .is_some_and(|node| self.config.node < node);
        match (&link.state, message) {
            (
                LinkState::Candidate { .. },
                Message::Candidate {
                    has_link,
                    selects_seen,
                },
            ) if decides => {
                self.on_candidate_message(now, slot, id, has_link, selects_seen);
            }
            // Sent before our `Select` arrived.
            (LinkState::Selected { .. } | LinkState::Resumed { .. }, Message::Candidate { .. })
                if decides => {}
            (LinkState::Candidate { .. }, Message::Select) if !decides => {
                self.select(now, slot, id)
            }
            (LinkState::Selected { .. }, Message::Versions(known))
                if known.purpose == Purpose::All =>
            {
                self.resume(now, slot, id, &known);
            }
            (LinkState::Resumed { .. } | LinkState::Up { .. }, Message::Versions(wanted))
                if wanted.purpose == Purpose::Wanted =>
            {
                self.send_lacking(slot, id, &wanted);
            }
            (LinkState::Resumed { .. } | LinkState::Up { .. }, Message::Versions(news))
                if news.purpose == Purpose::News =>
            {
                self.note_offers(now, id, &news);
            }
            (LinkState::Resumed { .. }, Message::Resume(resume)) => {
                self.on_resume(slot, id, resume)
            }
            (LinkState::Up { .. }, Message::Advertisement { origin, topic }) => {
                self.on_advertisement(now, id, origin, topic);
            }
            (LinkState::Resumed { .. } | LinkState::Up { .. }, Message::Record(record)) => {
                self.on_record(now, id, record)
            }
            (LinkState::Resumed { .. } | LinkState::Up { .. }, Message::Change(change)) => {
                self.on_change(now, id, &change)?;
            }
            (
                LinkState::Selected { .. } | LinkState::Resumed { .. } | LinkState::Up { .. },
                Message::Hello { sequence, rtt_us },
            ) => {
                if let (Some(peer), Some(rtt_us)) = (self.peer_mut(slot), rtt_us) {
                    let rtt_us = rtt_us.min(MAXIMUM_RTT_US);
                    peer.rtt_us = Some(rtt_us);
                    self.counters.round_trips.add(rtt_us);
                }
                self.write_message(slot, id, &Message::HelloReply { sequence });
            }
            (
                LinkState::Selected { .. } | LinkState::Resumed { .. } | LinkState::Up { .. },
                Message::HelloReply { sequence },
            ) => {
                self.on_hello_reply(now, slot, id, sequence);
            }
            (
                LinkState::Selected { .. } | LinkState::Resumed { .. } | LinkState::Up { .. },
                Message::Leaving,
            ) => self.on_leaving(now, slot, id),
            (LinkState::Up { .. }, Message::Interests(batch)) => self.on_interests(slot, &batch)?,
            (LinkState::Up { .. }, Message::InterestsApplied { version }) => {
                self.on_interests_applied(slot, version)
            }
            (LinkState::Up { .. }, Message::Acknowledge(view)) => {
                self.on_acknowledge(now, slot, &view)?
            }
            (
                LinkState::Up { .. },
                Message::Control {
                    sequence,
                    kind,
                    payload,
                },
            ) => {
                self.on_control(slot, sequence, kind, payload);
            }
            (
                LinkState::Dialled
                | LinkState::Accepted
                | LinkState::Candidate { .. }
                | LinkState::Selected { .. }
                | LinkState::Resumed { .. }
                | LinkState::Up { .. },
                _,
            ) => return Err(unexpected),
        }
        Ok(())
    }

    /// A record, of this node or another, that a neighbour has sent.
    fn on_record(&mut self, now: Instant, id: LinkId, record: NodeRecord) {
        self.wanted.came(record.node, record.age(), id);
        if record.node == self.config.node {
            return self.on_own_record(now, &record);
        }
        let former = self.view.record(record.node).cloned();
        self.take_record(now, id, former, record);
    }

    /// A change of a record, of this node or another. The version it starts from is usually here, as records are compared first and a link keeps
    /// their order. It is missing if it was only announced, or was lost with another link: then the whole record is requested.
    fn on_change(
        &mut self,
        now: Instant,
        id: LinkId,
        change: &RecordChange,
    ) -> Result<(), LinkError> {
        if change.node == self.config.node {
            self.on_own_change(now, change);
            return Ok(());
        }
        let former = self.view.record(change.node);
        let known = former.map(NodeRecord::age);
        if known >= Some(change.age()) {
            self.note_repeated(id, change.node, change.age());
            return Ok(());
        }
        match former.and_then(|former| change.apply(former)) {
            Some(record) if record.is_sendable() => {
                let former = former.cloned();
                self.wanted.came(record.node, record.age(), id);
                self.take_record(now, id, former, record);
            }
            Some(record) => {
                return Err(LinkError::Message(WireError::Value {
                    field: "links after a change",
                    value: record.links.len() as u64,
                }));
            }
            None => self.wanted.offer(change.node, change.age(), id, None),
        }
        Ok(())
    }

    /// Stores a record in place of the former one if it is newer, and passes it on.
    fn take_record(
        &mut self,
        now: Instant,
        id: LinkId,
        former: Option<NodeRecord>,
        record: NodeRecord,
    ) {
        let (node, process, address) = (record.node, record.process, record.address.clone());
        match self.view.apply(record.clone()) {
            RecordNews::Old => return self.note_repeated(id, node, record.age()),
            RecordNews::Full => {
                let fields = vec![("node", node.to_string())];
                return self.event(
                    EventLevel::Warn,
                    "record of a node not kept: too many nodes",
                    fields,
                );
            }
            RecordNews::Newer => {}
        }
        self.note_changed_record(former.as_ref(), &record);
        if let Some(former) = &former {
            self.note_lost_links(former, &record);
            if former.address != address {
                self.dialler.forget(&former.address, node);
            }
        }
        self.dialler.note_address(now, &address, Some(node));
        // A lost link or a new process is flooded at once; other news is announced after it has been gathered.
        let is_urgent = former.as_ref().is_some_and(|former| {
            former.process != process || !record.links_lost_since(former).is_empty()
        });
        self.relays.note(now, node, id);
        if is_urgent {
            self.relays.take(node);
            self.flood(former.as_ref(), &record, &[id]);
        }
        let superseded = self
            .peer_of(node)
            .filter(|peer| peer.process != process)
            .and_then(|peer| peer.link);
        if let Some(link) = superseded {
            let fields = vec![("node", node.to_string()), ("address", address)];
            self.event(
                EventLevel::Warn,
                "a later process has the id of a linked node",
                fields,
            );
            self.close_link(now, link);
        }
    }

    /// A neighbour has sent an old version of a record, or the same one again.
    fn note_repeated(&mut self, id: LinkId, node: NodeId, age: RecordAge) {
        self.counters.repeated_records += 1;
        let is_the_same = self.view.record(node).is_some_and(|it| it.age() == age);
        if is_the_same {
            self.relays.note_repeated(node, id);
        }
    }

    /// Announces to every neighbour which versions of these records of other nodes are here. Leaves out neighbours that [`Self::flood`] leaves out
    /// too, and records without links: no path leads to such a node yet. The node that wrote a record is sent the record itself, to check that it is
    /// what it wrote.
    pub(super) fn announce_records(&mut self, changed: &[(NodeId, Relay)]) {
        for (slot, link) in self.linked_peers().collect::<Vec<_>>() {
            if !self.takes_records(link) {
                continue;
            }
            let Some(to) = self.peer(slot).map(|peer| peer.node) else {
                continue;
            };
            let has_it = |relay: &Relay| relay.brought_by.contains(&link);
            let record = |(node, relay): &(NodeId, Relay)| {
                let record = self.view.record(*node)?;
                let is_reached = record.lists(to) || record.links.is_empty() && *node != to;
                (!is_reached && !has_it(relay)).then_some(record)
            };
            let records: Vec<&NodeRecord> = changed.iter().filter_map(record).collect();
            let is_sent = |record: &&NodeRecord| record.node == to;
            let (sent, said): (Vec<_>, Vec<_>) = records.into_iter().partition(is_sent);
            let news = said.iter().map(|record| (record.node, record.age()));
            let news = Message::Versions(RecordVersions::news(news.collect()));
            let sent = sent.into_iter().cloned().map(Message::Record);
            let news = (!said.is_empty()).then_some(news);
            for message in sent.chain(news).collect::<Vec<_>>() {
                self.write_message(slot, link, &message);
            }
        }
    }

    /// Whether records and their changes may be sent over a link: the versions at its start must have been sent before.
    fn takes_records(&self, link: LinkId) -> bool {
        let link = self.links.get(&link);
        link.is_some_and(|link| link.state.is_selected())
    }

    /// What others hold as this node's record. If it differs from what this process wrote, every node would believe it: it is replaced by a higher
    /// version.
    fn on_own_record(&mut self, now: Instant, record: &NodeRecord) {
        let own = self.view.own();
        let is_this_process =
            record.process == self.process && record.incarnation == own.incarnation;
        if !is_this_process {
            let known = KnownAs {
                incarnation: record.incarnation,
                process: record.process,
            };
            return self.on_known_as(now, known);
        }
        if record.version >= own.version && record != own {
            self.on_altered(now, record.version);
        }
    }

    /// A change that others hold of this node's record.
    fn on_own_change(&mut self, now: Instant, change: &RecordChange) {
        let (own, age) = (self.view.own(), change.age());
        if (age.incarnation, age.process) != (own.incarnation, self.process) {
            let known = KnownAs {
                incarnation: age.incarnation,
                process: age.process,
            };
            return self.on_known_as(now, known);
        }
        if age.version >= own.version && !change.agrees_with(own) {
            self.on_altered(now, age.version);
        }
    }

    /// Other nodes hold a content that this node never wrote, as version `version` of its record.
    fn on_altered(&mut self, now: Instant, version: u64) {
        self.counters.altered_records += 1;
        let fields = vec![("version", version.to_string())];
        self.event(EventLevel::Warn, "own record came back altered", fields);
        match version.checked_add(1) {
            Some(version) => {
                self.view.change_own(|own| own.version = version);
                let own = self.view.own().clone();
                self.flood(None, &own, &[]);
            }
            None => self.set_incarnation(now, self.incarnation().next()),
        }
    }

    /// A node publishes to a topic: passed on along the tree of all nodes, once.
    fn on_advertisement(&mut self, now: Instant, id: LinkId, origin: NodeId, topic: &str) {
        if origin != self.config.node
            && self.trees.topology().contains(origin)
            && self.advertisements.note(now, origin, topic)
        {
            self.advertise(origin, topic, Some(id));
        }
    }

    /// Sends an advertisement to the neighbours on the tree of all nodes, except the one it came from.
    pub(super) fn advertise(&mut self, origin: NodeId, topic: &str, from: Option<LinkId>) {
        let neighbours = self.trees.single().tree.neighbours(self.config.node);
        let links: Vec<_> = neighbours
            .into_iter()
            .filter_map(|node| self.link_up(node))
            .collect();
        for (slot, link) in links {
            if Some(link) != from {
                self.write_message(slot, link, &Message::Advertisement { origin, topic });
            }
        }
    }

    /// Sends a record to every neighbour except those that sent it, and except those with which its node lists a link: it has sent it to them itself.
    /// If that link breaks, the node's next record no longer lists it, or lists a new one, over which all records are compared first. So a record
    /// costs one message for each node, not for each link.
    ///
    /// `before`: the version that the neighbours have, if any; then only the changes are sent.
    pub(super) fn flood(
        &mut self,
        before: Option<&NodeRecord>,
        record: &NodeRecord,
        brought_by: &[LinkId],
    ) {
        let is_own = record.node == self.config.node;
        let is_reached = |node: NodeId| !is_own && record.lists(node);
        let links: Vec<_> = (1..)
            .map(NodeSlot)
            .zip(self.peers.iter())
            .filter(|(_, peer)| !is_reached(peer.node))
            .filter_map(|(slot, peer)| Some((slot, peer.link?)))
            .filter(|(_, link)| !brought_by.contains(link))
            .filter(|(_, link)| self.takes_records(*link))
            .collect();
        let change = before.and_then(|before| RecordChange::between(before, record));
        let message = change.map_or_else(|| Message::Record(record.clone()), Message::Change);
        for (slot, link) in links {
            self.write_message(slot, link, &message);
        }
    }

    fn on_hello_reply(&mut self, now: Instant, slot: NodeSlot, id: LinkId, sequence: u64) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Some(SentHello { at, .. }) = link.hello.take_if(|hello| hello.sequence == sequence)
            && let Some(peer) = self.peer_mut(slot)
        {
            let sample_us = u64::try_from(now.since(at).as_micros()).unwrap_or(u64::MAX);
            peer.measure(sample_us);
            self.counters.round_trips.add(sample_us);
        }
    }

    fn on_interests(&mut self, slot: NodeSlot, batch: &InterestBatch<'_>) -> Result<(), LinkError> {
        let maximum = self.config.limits.interests_per_node;
        let Some(peer) = self.peer_mut(slot) else {
            return Ok(());
        };
        if let Some((version, changes)) = peer
            .interests
            .apply(batch, maximum)
            .map_err(LinkError::Interests)?
        {
            self.outputs.push_back(Output::InterestChanged {
                slot,
                version,
                changes,
            });
        }
        Ok(())
    }

    fn on_interests_applied(&mut self, slot: NodeSlot, version: u64) {
        let own = self.own_interests.version();
        if let Some(peer) = self.peer_mut(slot)
            && version <= own
        {
            peer.interests_acknowledged = peer.interests_acknowledged.max(Some(version));
        }
    }

    fn on_acknowledge(
        &mut self,
        now: Instant,
        slot: NodeSlot,
        view: &AcknowledgeView<'_>,
    ) -> Result<(), LinkError> {
        let own = self.config.node;
        let Some(index) = slot.index().checked_sub(1) else {
            return Ok(());
        };
        let (Some(peer), store) = (self.peers.get_mut(index), &mut self.store) else {
            return Ok(());
        };
        let is_first = !std::mem::replace(&mut peer.has_acknowledged, true);
        peer.outbound.raise_limit(view.credit_limit);
        peer.control.confirm(view.control_received);
        let mut relayed = None;
        let mut never_sent = None;
        view.for_each_range(|stream, range| {
            if stream.origin == own && *range.end() > store.last(stream.stream) {
                never_sent = Some(*range.end());
            } else if stream.origin == own {
                // Numbers continue after a change of incarnation, so the number alone identifies the message.
                let flow = &mut peer.flow;
                peer.outbound.acknowledge(stream.stream, &range, |numbers| {
                    let mut bytes = 0;
                    store.settle_all(stream.stream, numbers, |number, len| {
                        flow.settle(stream.stream, number, len);
                        bytes += u64::from(len);
                    });
                    bytes
                });
            } else {
                relayed = Some(stream.origin);
            }
        })?;
        match (relayed, never_sent) {
            (Some(origin), _) => Err(LinkError::Relayed { origin }),
            (None, Some(number)) => Err(LinkError::NeverSent { number }),
            (None, None) => {
                if is_first {
                    // What was sent over trees before may have arrived while that node still had this one as down: it was not accepted.
                    self.send_all_again(now, slot);
                }
                Ok(())
            }
        }
    }

    fn on_control(&mut self, slot: NodeSlot, sequence: u64, kind: u8, payload: &[u8]) {
        let Some(peer) = self.peer_mut(slot) else {
            return;
        };
        peer.owes_control = true;
        if sequence > peer.control_received {
            peer.control_received = sequence;
            self.outputs.push_back(Output::Control {
                from: slot,
                kind,
                payload: payload.to_vec(),
            });
        }
    }
}
