//! A broker as simple as the specification allows: persistent sessions, all three QoS, No Local, user properties in 5.0; every connection may break
//! anywhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use thicket_mqtt::{
    Acknowledgement, ApplicationProperties, Connack, Packet, PacketId, ProtocolVersion, Publish,
    Qos, ReasonCode, Suback, decode,
};
use thicket_session::topic::matches;

/// Most unacknowledged deliveries of a session.
const WINDOW: usize = 4;

/// A message that a broker stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) topic: String,
    pub(super) payload: Vec<u8>,
    pub(super) properties: Vec<u8>,
    pub(super) qos: Qos,
    pub(super) retain: bool,
}

#[derive(Debug, Clone)]
struct Filter {
    filter: String,
    qos: Qos,
    no_local: bool,
    retain_as_published: bool,
}

#[derive(Debug, Clone)]
struct Open {
    packet_id: PacketId,
    message: Kept,
    is_received: bool,
}

#[derive(Debug, Default)]
struct Session {
    filters: Vec<Filter>,
    held: BTreeSet<PacketId>,
    queue: VecDeque<Kept>,
    open: Vec<Open>,
    next_id: u16,
    window: usize,
}

/// One connection, from the broker's side.
#[derive(Debug, Default)]
pub(super) struct Line {
    client_id: Option<String>,
    version: Option<ProtocolVersion>,
    input: Vec<u8>,
    pub(super) output: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Broker {
    sessions: BTreeMap<String, Session>,
    pub(super) lines: BTreeMap<usize, Line>,
    /// Everything that was published here, in order.
    pub(super) published: Vec<Kept>,
    /// By topic.
    pub(super) retained: BTreeMap<String, Kept>,
}

impl Broker {
    /// Publishes as a client that is not a bridge.
    pub(super) fn publish(&mut self, topic: &str, payload: &str, qos: Qos) {
        self.route(
            Kept {
                topic: topic.into(),
                payload: payload.into(),
                properties: Vec::new(),
                qos,
                retain: false,
            },
            None,
        );
    }

    /// The same, retained.
    pub(super) fn retain(&mut self, topic: &str, payload: &str, qos: Qos) {
        self.route(
            Kept {
                topic: topic.into(),
                payload: payload.into(),
                properties: Vec::new(),
                qos,
                retain: true,
            },
            None,
        );
    }

    /// The payload that is retained on a topic.
    pub(super) fn retained(&self, topic: &str) -> Option<String> {
        let kept = self.retained.get(topic)?;
        Some(String::from_utf8_lossy(&kept.payload).into_owned())
    }

    /// Publishes this as a client that is not a bridge.
    pub(super) fn publish_kept(&mut self, message: Kept) {
        self.route(message, None);
    }

    /// How often this payload was published here.
    pub(super) fn count(&self, payload: &str) -> usize {
        let is_it = |kept: &&Kept| kept.payload == payload.as_bytes();
        self.published.iter().filter(is_it).count()
    }

    /// Loses all sessions, as a broker without a disk does when it restarts.
    pub(super) fn forget(&mut self) {
        self.sessions.clear();
    }

    pub(super) fn open(&mut self, line: usize) {
        self.lines.insert(line, Line::default());
    }

    pub(super) fn close(&mut self, line: usize) {
        self.lines.remove(&line);
    }

    /// Nothing waits to be sent, and nothing is open.
    pub(super) fn is_quiet(&self) -> bool {
        self.lines.values().all(|line| line.output.is_empty())
            && self
                .sessions
                .values()
                .all(|session| session.queue.is_empty() && session.open.is_empty())
    }

    fn route(&mut self, message: Kept, from: Option<&str>) {
        self.published.push(message.clone());
        if message.retain {
            self.retained.insert(message.topic.clone(), message.clone());
        }
        for (client_id, session) in &mut self.sessions {
            let takes = session.filters.iter().find(|it| {
                matches(&it.filter, &message.topic) && !(it.no_local && from == Some(client_id))
            });
            if let Some(filter) = takes {
                session.queue.push_back(Kept {
                    qos: message.qos.min(filter.qos),
                    retain: message.retain && filter.retain_as_published,
                    ..message.clone()
                });
            }
        }
        self.deliver();
    }

    /// Processes bytes of a line and answers.
    pub(super) fn handle_bytes(&mut self, line: usize, bytes: &[u8]) {
        let Some(entry) = self.lines.get_mut(&line) else {
            return;
        };
        entry.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut entry.input);
        let mut rest = &*input;
        loop {
            let Some(entry) = self.lines.get_mut(&line) else {
                return;
            };
            let version = entry.version.or_else(|| version_of(rest));
            let Some(version) = version else { break };
            entry.version = Some(version);
            let Some((packet, len)) = decode(rest, version, u32::MAX).unwrap() else {
                break;
            };
            self.handle_packet(line, packet);
            rest = &rest[len..];
        }
        if let Some(entry) = self.lines.get_mut(&line) {
            entry.input = rest.to_vec();
        }
        self.deliver();
    }

    fn send(&mut self, line: usize, packet: &Packet<'_>) {
        let line = self.lines.get_mut(&line).unwrap();
        packet
            .encode(line.version.unwrap(), &mut line.output)
            .unwrap();
    }

    fn session(&mut self, line: usize) -> &mut Session {
        let client_id = self.lines[&line].client_id.clone().unwrap();
        self.sessions.get_mut(&client_id).unwrap()
    }

    fn handle_packet(&mut self, line: usize, packet: Packet<'_>) {
        let plain = |packet_id| Acknowledgement::new(packet_id, ReasonCode::Success);
        match packet {
            Packet::Connect(connect) => {
                let maximum = connect.receive_maximum.unwrap_or(u16::MAX);
                self.on_connect(line, connect.client_id, maximum);
            }
            Packet::Subscribe(subscribe) => {
                let asked = subscribe.filters.iter().map(|filter| Filter {
                    filter: filter.filter.to_owned(),
                    qos: filter.options.qos,
                    no_local: filter.options.no_local,
                    retain_as_published: filter.options.retain_as_published,
                });
                let asked: Vec<Filter> = asked.collect();
                for filter in &asked {
                    self.replay(line, filter);
                }
                self.session(line).filters = asked;
                let codes = vec![ReasonCode::GrantedQos2; subscribe.filters.len()];
                self.send(
                    line,
                    &Packet::Suback(Suback::new(subscribe.packet_id, codes)),
                );
            }
            Packet::Publish(publish) => self.on_publish(line, &publish),
            Packet::Pubrel(pubrel) => {
                self.session(line).held.remove(&pubrel.packet_id);
                self.send(line, &Packet::Pubcomp(plain(pubrel.packet_id)));
            }
            Packet::Puback(puback) => self.session(line).open.retain(|open| {
                open.packet_id != puback.packet_id || open.message.qos != Qos::AtLeastOnce
            }),
            Packet::Pubrec(pubrec) => {
                let is_it = |open: &&mut Open| {
                    open.packet_id == pubrec.packet_id && open.message.qos == Qos::ExactlyOnce
                };
                if let Some(open) = self.session(line).open.iter_mut().find(is_it) {
                    open.is_received = true;
                }
                self.send(line, &Packet::Pubrel(plain(pubrec.packet_id)));
            }
            // A PUBREC that was sent twice has two: the second must not end the message that has the identifier by then.
            Packet::Pubcomp(pubcomp) => {
                let open = &mut self.session(line).open;
                open.retain(|open| open.packet_id != pubcomp.packet_id || !open.is_received);
            }
            Packet::Pingreq => self.send(line, &Packet::Pingresp),
            Packet::Disconnect(_) => {}
            packet => panic!("{packet:?}"),
        }
    }

    /// Queues the retained messages of a subscription: all of them, as the options here always ask for.
    fn replay(&mut self, line: usize, filter: &Filter) {
        let retained: Vec<Kept> = self.retained.values().cloned().collect();
        for message in retained {
            if matches(&filter.filter, &message.topic) {
                self.session(line).queue.push_back(Kept {
                    qos: message.qos.min(filter.qos),
                    ..message
                });
            }
        }
    }

    fn on_connect(&mut self, line: usize, client_id: &str, receive_maximum: u16) {
        let entry = self.lines.get_mut(&line).unwrap();
        entry.client_id = Some(client_id.to_owned());
        let session_present = self.sessions.contains_key(client_id);
        let session = self.sessions.entry(client_id.to_owned()).or_default();
        session.window = WINDOW.min(receive_maximum.into());
        let connack = Connack {
            session_present,
            ..Connack::default()
        };
        self.send(line, &Packet::Connack(Box::new(connack)));
        for open in self.session(line).open.clone() {
            self.send_open(line, &open, true);
        }
    }

    fn send_open(&mut self, line: usize, open: &Open, dup: bool) {
        if open.is_received {
            let pubrel = Acknowledgement::new(open.packet_id, ReasonCode::Success);
            return self.send(line, &Packet::Pubrel(pubrel));
        }
        self.send_message(line, &open.message, Some(open.packet_id), dup);
    }

    fn send_message(
        &mut self,
        line: usize,
        message: &Kept,
        packet_id: Option<PacketId>,
        dup: bool,
    ) {
        let has_properties = self.lines[&line].version == Some(ProtocolVersion::V5);
        let properties = if has_properties {
            &*message.properties
        } else {
            &[]
        };
        let publish = Publish {
            dup,
            qos: message.qos,
            packet_id,
            retain: message.retain,
            properties: ApplicationProperties::from_encoded(properties).unwrap(),
            ..Publish::new(&message.topic, &message.payload)
        };
        self.send(line, &Packet::Publish(publish));
    }

    fn on_publish(&mut self, line: usize, publish: &Publish<'_>) {
        let client_id = self.lines[&line].client_id.clone().unwrap();
        let mut properties = Vec::new();
        publish.properties.write_to(&mut properties);
        let message = Kept {
            topic: publish.topic.into(),
            payload: publish.payload.into(),
            properties,
            qos: publish.qos,
            retain: publish.retain,
        };
        let is_new = match (publish.qos, publish.packet_id) {
            (Qos::ExactlyOnce, Some(packet_id)) => self.session(line).held.insert(packet_id),
            (_, _) => true,
        };
        let answer = |packet_id| Acknowledgement::new(packet_id, ReasonCode::Success);
        match (publish.qos, publish.packet_id) {
            (Qos::AtLeastOnce, Some(packet_id)) => {
                self.send(line, &Packet::Puback(answer(packet_id)))
            }
            (Qos::ExactlyOnce, Some(packet_id)) => {
                self.send(line, &Packet::Pubrec(answer(packet_id)))
            }
            (_, _) => {}
        }
        if is_new {
            self.route(message, Some(&client_id));
        }
    }

    /// Sends queued messages to connected clients.
    fn deliver(&mut self) {
        let lines: Vec<usize> = self.lines.keys().copied().collect();
        for line in lines {
            if self.lines[&line].client_id.is_none() {
                continue;
            }
            while let Some((message, packet_id)) = self.session(line).next_delivery() {
                self.send_message(line, &message, packet_id, false);
            }
        }
        // Messages of QoS 0 are not queued for disconnected clients.
        let here: BTreeSet<_> = self
            .lines
            .values()
            .filter_map(|line| line.client_id.clone())
            .collect();
        for (client_id, session) in &mut self.sessions {
            if !here.contains(client_id) {
                session
                    .queue
                    .retain(|message| message.qos != Qos::AtMostOnce);
            }
        }
    }
}

impl Session {
    fn next_delivery(&mut self) -> Option<(Kept, Option<PacketId>)> {
        if self.queue.front()?.qos == Qos::AtMostOnce {
            return Some((self.queue.pop_front()?, None));
        }
        if self.open.len() >= self.window {
            return None;
        }
        let message = self.queue.pop_front()?;
        // Identifiers wrap around quickly, so that reuse is frequent.
        let packet_id = loop {
            self.next_id = self.next_id % 6 + 1;
            let packet_id = PacketId::new(self.next_id)?;
            if self.open.iter().all(|open| open.packet_id != packet_id) {
                break packet_id;
            }
        };
        self.open.push(Open {
            packet_id,
            message: message.clone(),
            is_received: false,
        });
        Some((message, Some(packet_id)))
    }
}

/// The version that a CONNECT names, once that much of it has arrived.
fn version_of(bytes: &[u8]) -> Option<ProtocolVersion> {
    thicket_mqtt::connect_version(bytes)
}
