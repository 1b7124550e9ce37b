//! The pure half: which session a packet of the client belongs to, and what the client sees of the sessions.
//!
//! Inputs are complete packets, by [`Split::handle_client`] and [`Split::handle_node`]; outputs are packets, by [`Split::poll_output`], in order.
//! Before the shell hands in a packet with topics or filters that have no session yet, it asks the control plane for [`Split::unassigned`] and passes
//! the answer to [`Split::assign`]. Names that nobody assigned belong to session 1.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use thicket_client::placement::overlap;
use thicket_mqtt::{
    Acknowledgement, DecodeError, Disconnect, Packet, PacketId, ProtocolVersion, Publish, Qos,
    ReasonCode, Suback, Subscribe, Unsuback, Unsubscribe, decode,
};
use thicket_session::topic::{SubscriptionFilter, matches};

use crate::ids::DeliveryIds;

/// Most topics and filters with a session of their own; further ones go to session 1.
const ASSIGNED: usize = 10_000;
/// Most topics in a request to the control plane, as in the client libraries.
const ASKED: usize = 1_000;

/// The state of a client while its session exists, also without a connection.
#[derive(Debug, Default)]
pub struct Memory {
    topics: HashMap<String, usize>,
    filters: HashMap<String, usize>,
    /// Filters that no node has granted so far.
    ungranted: HashSet<String>,
    /// Filters with No Local: they, and the topics they match, belong to session 1, which alone recognises its own messages.
    no_local: BTreeSet<String>,
    ids: DeliveryIds,
    /// The client's publications of QoS 2, until PUBCOMP: their sessions.
    exchanges: HashMap<PacketId, usize>,
}

/// An order to the shell.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Write to the client.
    ToClient(Vec<u8>),
    /// Write to that session's node.
    ToNode(usize, Vec<u8>),
    /// Write remaining bytes, then close all connections.
    End,
}

/// Names that have no session yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Topics.
    pub publish: BTreeSet<String>,
    /// Filters.
    pub subscribe: BTreeSet<String>,
}

/// One connection of a client.
#[derive(Debug)]
pub struct Split {
    version: ProtocolVersion,
    maximum_packet_size: u32,
    memory: Memory,
    /// The session to which a topic alias of the client belongs.
    aliases: HashMap<u16, usize>,
    /// SUBSCRIBE and UNSUBSCRIBE that were split, until all parts are answered.
    parted: HashMap<PacketId, Parted>,
    /// The filters of each SUBSCRIBE that is not answered yet.
    subscribing: HashMap<PacketId, Vec<String>>,
    output: VecDeque<Output>,
}

#[derive(Debug)]
struct Parted {
    /// Session, and the positions of its filters in the client's packet.
    parts: Vec<(usize, Vec<usize>)>,
    codes: Vec<ReasonCode>,
}

impl Memory {
    /// The sessions that topics, filters or exchanges belong to.
    #[must_use]
    pub fn sessions(&self) -> BTreeSet<usize> {
        self.topics
            .values()
            .chain(self.filters.values())
            .chain(self.exchanges.values())
            .copied()
            .collect()
    }

    /// Assigns names that have no session to `session`.
    pub fn assign<'a>(
        &mut self,
        session: usize,
        publish: impl IntoIterator<Item = &'a String>,
        subscribe: impl IntoIterator<Item = &'a String>,
    ) {
        for topic in publish {
            if self.topics.len() < ASSIGNED {
                self.topics.entry(topic.clone()).or_insert(session);
            }
        }
        for filter in subscribe {
            if self.filters.len() < ASSIGNED {
                self.filters.entry(filter.clone()).or_insert(session);
            }
        }
    }

    /// The names that the client uses, up to the limit of a request to the control plane.
    #[must_use]
    pub fn names(&self) -> Names {
        Names {
            publish: self.topics.keys().take(ASKED).cloned().collect(),
            subscribe: self
                .filters
                .keys()
                .filter(|filter| is_placed(filter))
                .cloned()
                .collect(),
        }
    }
}

/// Shared subscriptions and the broker's own topics are the same on every node.
fn is_placed(filter: &str) -> bool {
    !filter.starts_with('$')
}

impl Split {
    /// A new connection; `memory` is that of the client's session, empty if it is new.
    #[must_use]
    pub fn new(version: ProtocolVersion, maximum_packet_size: u32, mut memory: Memory) -> Self {
        memory.ids.on_connected();
        Self {
            version,
            maximum_packet_size,
            memory,
            aliases: HashMap::new(),
            parted: HashMap::new(),
            subscribing: HashMap::new(),
            output: VecDeque::new(),
        }
    }

    /// The connection has ended.
    #[must_use]
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// See [`Memory`].
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The next order.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.output.pop_front()
    }

    /// Topics and filters of the packets in `bytes` that a control plane should place before the packets are handled.
    #[must_use]
    pub fn unassigned(&self, mut bytes: &[u8]) -> Names {
        let mut names = Names::default();
        while let Ok(Some((packet, len))) = decode(bytes, self.version, self.maximum_packet_size) {
            bytes = &bytes[len..];
            match packet {
                Packet::Publish(publish)
                    if !publish.topic.is_empty()
                        && is_placed(publish.topic)
                        && self.memory.topics.len() + names.publish.len() < ASKED
                        && !self.memory.topics.contains_key(publish.topic)
                        && !self.is_no_local(publish.topic) =>
                {
                    names.publish.insert(publish.topic.to_owned());
                }
                Packet::Subscribe(subscribe) => {
                    for one in subscribe.filters {
                        if is_placed(one.filter)
                            && self.memory.filters.len() + names.subscribe.len() < ASSIGNED
                            && !one.options.no_local
                            && SubscriptionFilter::parse(one.filter).is_ok()
                            && self.session_of_filter(one.filter).is_none()
                        {
                            names.subscribe.insert(one.filter.to_owned());
                        }
                    }
                }
                _ => {}
            }
        }
        names
    }

    /// Assigns names that have no session yet to `session`. A filter that overlaps another goes to that one's session.
    pub fn assign(&mut self, session: usize, names: &Names) {
        self.memory.assign(session, &names.publish, []);
        for filter in &names.subscribe {
            let session = self.session_of_filter(filter).unwrap_or(session);
            self.assign_filter(session, filter);
        }
    }

    fn assign_filter(&mut self, session: usize, filter: &String) {
        if !self.memory.filters.contains_key(filter) {
            self.memory.ungranted.insert(filter.clone());
        }
        self.memory.assign(session, [], [filter]);
    }

    /// Handles one complete packet of the client.
    ///
    /// # Errors
    /// Malformed bytes, or a packet that no client sends; the connection must end.
    pub fn handle_client(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let Some((packet, len)) = decode(bytes, self.version, self.maximum_packet_size)? else {
            return Ok(());
        };
        let raw = &bytes[..len];
        match packet {
            Packet::Publish(publish) => self.on_publication(&publish, raw),
            Packet::Puback(ack) | Packet::Pubcomp(ack) => {
                let bound = self.memory.ids.release(ack.packet_id);
                self.acknowledge_node(bound, raw);
            }
            Packet::Pubrec(ack) => self.on_pubrec_of_client(&ack, raw),
            Packet::Pubrel(ack) => {
                let session = self.memory.exchanges.get(&ack.packet_id).copied();
                self.send_node(session.unwrap_or(1), raw.to_vec());
            }
            Packet::Subscribe(subscribe) => self.on_subscribe(&subscribe, raw),
            Packet::Unsubscribe(unsubscribe) => self.on_unsubscribe(&unsubscribe, raw),
            Packet::Pingreq => self.send_client(&Packet::Pingresp),
            Packet::Disconnect(_) => {
                for session in self.sessions() {
                    self.send_node(session, raw.to_vec());
                }
                self.output.push_back(Output::End);
            }
            // A second CONNECT, AUTH without a method agreed on, and packets that only servers send.
            Packet::Connect(_)
            | Packet::Auth(_)
            | Packet::Connack(_)
            | Packet::Suback(_)
            | Packet::Unsuback(_)
            | Packet::Pingresp => self.end(ReasonCode::ProtocolError),
        }
        Ok(())
    }

    /// Handles one complete packet of a node. PINGRESP is for the shell, which pings.
    ///
    /// # Errors
    /// Malformed bytes; the connection must end.
    pub fn handle_node(&mut self, session: usize, bytes: &[u8]) -> Result<(), DecodeError> {
        let Some((packet, len)) = decode(bytes, self.version, self.maximum_packet_size)? else {
            return Ok(());
        };
        let raw = &bytes[..len];
        match packet {
            Packet::Publish(publish) => match publish.packet_id {
                None => self.output.push_back(Output::ToClient(raw.to_vec())),
                Some(id) => {
                    let place = packet_id_place(raw, &publish);
                    self.deliver(session, id, publish.qos, raw, place);
                }
            },
            Packet::Pubrel(ack) => {
                let place = body_start(raw);
                self.deliver(session, ack.packet_id, Qos::ExactlyOnce, raw, place);
            }
            Packet::Pubcomp(ack) => {
                self.memory.exchanges.remove(&ack.packet_id);
                self.output.push_back(Output::ToClient(raw.to_vec()));
            }
            Packet::Pubrec(ack) => {
                if ack.reason_code.is_error() {
                    self.memory.exchanges.remove(&ack.packet_id);
                }
                self.output.push_back(Output::ToClient(raw.to_vec()));
            }
            Packet::Puback(_) => self.output.push_back(Output::ToClient(raw.to_vec())),
            Packet::Suback(answer) => {
                let codes = &answer.reason_codes;
                self.on_part(session, answer.packet_id, codes, raw, Request::Subscribe);
            }
            Packet::Unsuback(answer) => {
                let codes = &answer.reason_codes;
                self.on_part(session, answer.packet_id, codes, raw, Request::Unsubscribe);
            }
            Packet::Pingresp => {}
            Packet::Disconnect(_) => {
                self.output.push_back(Output::ToClient(raw.to_vec()));
                self.output.push_back(Output::End);
            }
            Packet::Connect(_)
            | Packet::Connack(_)
            | Packet::Subscribe(_)
            | Packet::Unsubscribe(_)
            | Packet::Pingreq
            | Packet::Auth(_) => self.end(ReasonCode::UnspecifiedError),
        }
        Ok(())
    }

    /// Ends the connection with a reason, if the version has one (5.0).
    pub fn end(&mut self, reason_code: ReasonCode) {
        if self.version.has_properties() {
            self.send_client(&Packet::Disconnect(Disconnect::new(reason_code)));
        }
        self.output.push_back(Output::End);
    }

    /// The sessions in use, always including the first.
    #[must_use]
    pub fn sessions(&self) -> BTreeSet<usize> {
        let mut sessions = self.memory.sessions();
        sessions.insert(1);
        sessions
    }

    fn on_publication(&mut self, publish: &Publish<'_>, raw: &[u8]) {
        let session = match publish.topic_alias {
            Some(alias) if publish.topic.is_empty() => {
                self.aliases.get(&alias).copied().unwrap_or(1)
            }
            alias => {
                let session = self.session_of_topic(publish.topic);
                if let Some(alias) = alias {
                    self.aliases.insert(alias, session);
                }
                session
            }
        };
        if let (Some(id), Qos::ExactlyOnce) = (publish.packet_id, publish.qos) {
            self.memory.exchanges.insert(id, session);
        }
        self.send_node(session, raw.to_vec());
    }

    fn on_pubrec_of_client(&mut self, ack: &Acknowledgement<'_>, raw: &[u8]) {
        let bound = if ack.reason_code.is_error() {
            self.memory.ids.release(ack.packet_id)
        } else {
            self.memory.ids.bound_to(ack.packet_id)
        };
        if bound.is_none() {
            // No session sent this: the client must forget it [MQTT-4.3.3-4].
            let code = ReasonCode::PacketIdentifierNotFound;
            self.send_client(&Packet::Pubrel(Acknowledgement::new(ack.packet_id, code)));
        }
        self.acknowledge_node(bound, raw);
    }

    fn acknowledge_node(&mut self, bound: Option<(usize, PacketId)>, raw: &[u8]) {
        if let Some((session, id)) = bound {
            let bytes = with_packet_id(raw, body_start(raw), id);
            self.send_node(session, bytes);
        }
    }

    fn deliver(&mut self, session: usize, id: PacketId, qos: Qos, raw: &[u8], place: usize) {
        match self.memory.ids.bind(session, id, qos) {
            Some(id) => {
                let bytes = with_packet_id(raw, place, id);
                self.output.push_back(Output::ToClient(bytes));
            }
            None => self.end(ReasonCode::ReceiveMaximumExceeded),
        }
    }

    fn on_subscribe(&mut self, subscribe: &Subscribe<'_>, raw: &[u8]) {
        let mut parts = Vec::new();
        for (place, one) in subscribe.filters.iter().enumerate() {
            let session = if one.options.no_local {
                self.memory.no_local.insert(one.filter.to_owned());
                self.memory.filters.get(one.filter).copied().unwrap_or(1)
            } else {
                self.session_of_filter(one.filter).unwrap_or(1)
            };
            self.assign_filter(session, &one.filter.to_owned());
            add_to_part(&mut parts, session, place);
        }
        let filters = subscribe.filters.iter().map(|one| one.filter.to_owned());
        self.subscribing
            .insert(subscribe.packet_id, filters.collect());
        self.part(subscribe.packet_id, parts, raw, |places| {
            let mut part = subscribe.clone();
            part.filters = places
                .iter()
                .map(|place| subscribe.filters[*place])
                .collect();
            Packet::Subscribe(part)
        });
    }

    fn on_unsubscribe(&mut self, unsubscribe: &Unsubscribe<'_>, raw: &[u8]) {
        let mut parts = Vec::new();
        for (place, filter) in unsubscribe.filters.iter().enumerate() {
            self.memory.no_local.remove(*filter);
            self.memory.ungranted.remove(*filter);
            let session = self.memory.filters.remove(*filter).unwrap_or(1);
            add_to_part(&mut parts, session, place);
        }
        self.part(unsubscribe.packet_id, parts, raw, |places| {
            let mut part = unsubscribe.clone();
            part.filters = places
                .iter()
                .map(|place| unsubscribe.filters[*place])
                .collect();
            Packet::Unsubscribe(part)
        });
    }

    fn part<'p>(
        &mut self,
        id: PacketId,
        parts: Vec<(usize, Vec<usize>)>,
        raw: &[u8],
        packet: impl Fn(&[usize]) -> Packet<'p>,
    ) {
        if let [(session, _)] = parts[..] {
            return self.send_node(session, raw.to_vec());
        }
        for (session, places) in &parts {
            let bytes = self.encode(&packet(places));
            self.send_node(*session, bytes);
        }
        let count = parts.iter().map(|(_, places)| places.len()).sum();
        let codes = vec![ReasonCode::UnspecifiedError; count];
        self.parted.insert(id, Parted { parts, codes });
    }

    /// A complete or partial answer: the client receives one answer when all parts are answered.
    fn on_part(
        &mut self,
        session: usize,
        id: PacketId,
        codes: &[ReasonCode],
        raw: &[u8],
        request: Request,
    ) {
        let Some(parted) = self.parted.get_mut(&id) else {
            self.note_grants(id, codes, request);
            return self.output.push_back(Output::ToClient(raw.to_vec()));
        };
        let Some(at) = parted.parts.iter().position(|(one, _)| *one == session) else {
            return;
        };
        let (_, places) = parted.parts.swap_remove(at);
        for (place, code) in places.into_iter().zip(codes) {
            parted.codes[place] = *code;
        }
        if !parted.parts.is_empty() {
            return;
        }
        let codes = self.parted.remove(&id).map(|parted| parted.codes);
        let codes = codes.unwrap_or_default();
        self.note_grants(id, &codes, request);
        match request {
            Request::Subscribe => self.send_client(&Packet::Suback(Suback::new(id, codes))),
            // Before 5.0 UNSUBACK has no codes.
            Request::Unsubscribe if !self.version.has_properties() => {
                self.send_client(&Packet::Unsuback(Unsuback::new(id, Vec::new())));
            }
            Request::Unsubscribe => self.send_client(&Packet::Unsuback(Unsuback::new(id, codes))),
        }
    }

    /// Forgets refused filters: the client does not have them, so they draw no other filters to their session.
    fn note_grants(&mut self, id: PacketId, codes: &[ReasonCode], request: Request) {
        let filters = match request {
            Request::Subscribe => self.subscribing.remove(&id).unwrap_or_default(),
            Request::Unsubscribe => Vec::new(),
        };
        for (filter, code) in filters.iter().zip(codes) {
            // A subscription of earlier stays, whatever becomes of this request.
            if self.memory.ungranted.remove(filter) && code.is_error() {
                self.memory.filters.remove(filter);
                self.memory.no_local.remove(filter);
            }
        }
    }

    fn session_of_topic(&self, topic: &str) -> usize {
        if self.is_no_local(topic) {
            return 1;
        }
        self.memory.topics.get(topic).copied().unwrap_or(1)
    }

    fn is_no_local(&self, topic: &str) -> bool {
        let mut filters = self.memory.no_local.iter();
        filters.any(|filter| matches(filter, topic))
    }

    /// The session of the filter, or of one that it overlaps: two sessions would each deliver the same message.
    fn session_of_filter(&self, filter: &str) -> Option<usize> {
        let filters = &self.memory.filters;
        filters.get(filter).copied().or_else(|| {
            let overlapping = filters.iter().filter(|(other, _)| overlap(other, filter));
            // The lowest, so that the result does not depend on the order of a hash table.
            overlapping.map(|(_, session)| *session).min()
        })
    }

    fn encode(&self, packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let encoded = packet.encode(self.version, &mut bytes);
        debug_assert!(encoded.is_ok(), "{packet:?}: {encoded:?}");
        bytes
    }

    fn send_client(&mut self, packet: &Packet<'_>) {
        let bytes = self.encode(packet);
        self.output.push_back(Output::ToClient(bytes));
    }

    fn send_node(&mut self, session: usize, bytes: Vec<u8>) {
        self.output.push_back(Output::ToNode(session, bytes));
    }
}

#[derive(Clone, Copy)]
enum Request {
    Subscribe,
    Unsubscribe,
}

fn add_to_part(parts: &mut Vec<(usize, Vec<usize>)>, session: usize, place: usize) {
    match parts.iter_mut().find(|(one, _)| *one == session) {
        Some((_, places)) => places.push(place),
        None => parts.push((session, vec![place])),
    }
}

/// The length of the fixed header of a complete packet.
fn body_start(raw: &[u8]) -> usize {
    let more = raw[1..].iter().take_while(|byte| **byte >= 0x80).count();
    2 + more
}

/// The offset of the packet identifier in a PUBLISH of QoS 1 or 2.
fn packet_id_place(raw: &[u8], publish: &Publish<'_>) -> usize {
    body_start(raw) + 2 + publish.topic.len()
}

fn with_packet_id(raw: &[u8], place: usize, id: PacketId) -> Vec<u8> {
    let mut bytes = raw.to_vec();
    bytes[place..place + 2].copy_from_slice(&id.value().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests;
