//! Both directions at once over connections that break anywhere, against a server as simple as the specification allows.

use std::collections::{BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// A delivery that is open; the payload is gone after PUBREC.
#[derive(Clone)]
struct Open {
    packet_id: PacketId,
    qos: Qos,
    payload: Option<String>,
}

/// The server's end of one session.
#[derive(Default)]
struct NaiveServer {
    /// Bytes that arrived and are no whole packet yet.
    input: Vec<u8>,
    output: Vec<u8>,
    is_connected: bool,
    received: Vec<String>,
    held: BTreeSet<PacketId>,
    /// Messages to deliver: QoS and payload.
    queue: VecDeque<(Qos, String)>,
    /// What was delivered and is open, in order.
    open: Vec<Open>,
    version: Option<ProtocolVersion>,
}

impl NaiveServer {
    fn send(&mut self, packet: &Packet<'_>) {
        packet
            .encode(self.version.unwrap(), &mut self.output)
            .unwrap();
    }

    fn deliver(&mut self, packet_id: PacketId, qos: Qos, payload: &str, dup: bool) {
        let packet_id = Some(packet_id);
        self.send(&Packet::Publish(Publish {
            dup,
            qos,
            packet_id,
            ..Publish::new("down", payload.as_bytes())
        }));
    }

    /// Handles bytes and answers.
    fn handle_bytes(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        let input = std::mem::take(&mut self.input);
        let mut rest = &*input;
        while let Some((packet, len)) = decode(rest, self.version.unwrap(), u32::MAX).unwrap() {
            self.handle_packet(packet);
            rest = &rest[len..];
        }
        self.input = rest.to_vec();
    }

    fn handle_packet(&mut self, packet: Packet<'_>) {
        let plain = |packet_id| Acknowledgement::new(packet_id, ReasonCode::Success);
        match packet {
            Packet::Connect(_) => {
                self.is_connected = true;
                self.send(&Packet::Connack(Box::new(Connack {
                    session_present: true,
                    ..Connack::default()
                })));
                for Open {
                    packet_id,
                    qos,
                    payload,
                } in self.open.clone()
                {
                    match payload {
                        Some(payload) => self.deliver(packet_id, qos, &payload, true),
                        None => self.send(&Packet::Pubrel(plain(packet_id))),
                    }
                }
            }
            Packet::Publish(publish) => {
                let packet_id = publish.packet_id.unwrap();
                let is_new = publish.qos == Qos::AtLeastOnce || self.held.insert(packet_id);
                if is_new {
                    self.received
                        .push(String::from_utf8(publish.payload.to_vec()).unwrap());
                }
                match publish.qos {
                    Qos::AtLeastOnce => self.send(&Packet::Puback(plain(packet_id))),
                    _ => self.send(&Packet::Pubrec(plain(packet_id))),
                }
            }
            Packet::Pubrel(pubrel) => {
                self.held.remove(&pubrel.packet_id);
                self.send(&Packet::Pubcomp(plain(pubrel.packet_id)));
            }
            Packet::Puback(packet) | Packet::Pubcomp(packet) => {
                self.open.retain(|open| open.packet_id != packet.packet_id);
            }
            Packet::Pubrec(pubrec) => {
                for open in self
                    .open
                    .iter_mut()
                    .filter(|open| open.packet_id == pubrec.packet_id)
                {
                    open.payload = None;
                }
                self.send(&Packet::Pubrel(plain(pubrec.packet_id)));
            }
            packet => panic!("{packet:?}"),
        }
    }

    fn deliver_queued(&mut self) {
        while self.is_connected && self.open.len() < 3 {
            let Some((qos, payload)) = self.queue.pop_front() else {
                return;
            };
            let is_free =
                |packet_id: &PacketId| self.open.iter().all(|open| open.packet_id != *packet_id);
            let packet_id = (1..).map(id).find(is_free).unwrap();
            self.deliver(packet_id, qos, &payload, false);
            self.open.push(Open {
                packet_id,
                qos,
                payload: Some(payload),
            });
        }
    }

    fn on_closed(&mut self) {
        self.is_connected = false;
        self.input.clear();
        self.output.clear();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Publish(u8),
    Deliver(u8),
    /// This many bytes arrive at the server.
    Up(usize),
    /// This many bytes arrive at the client.
    Down(usize),
    Break,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1_u8..3).prop_map(Step::Publish),
        3 => (1_u8..3).prop_map(Step::Deliver),
        6 => (1_usize..40).prop_map(Step::Up),
        6 => (1_usize..40).prop_map(Step::Down),
        1 => Just(Step::Break),
    ]
}

struct World {
    client: Client,
    server: NaiveServer,
    now: Instant,
    delivered: Vec<String>,
    acknowledged: Vec<u16>,
    published: Vec<(Qos, String)>,
    requested: Vec<(Qos, String)>,
}

impl World {
    fn new(version: ProtocolVersion) -> Self {
        let config = ClientConfig {
            maximum_inflight: 4,
            maximum_output_bytes: 60,
            ..ClientConfig::new(version, "c")
        };
        let mut world = Self {
            client: Client::new(config),
            server: NaiveServer {
                version: Some(version),
                ..NaiveServer::default()
            },
            now: Instant::default(),
            delivered: Vec::new(),
            acknowledged: Vec::new(),
            published: Vec::new(),
            requested: Vec::new(),
        };
        world.client.connect(world.now, CleanStart::No).unwrap();
        world
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Publish(number) => {
                let payload = self.published.len().to_string();
                if self
                    .client
                    .publish(self.now, &message("up", &payload, *number))
                    .is_ok()
                {
                    self.published.push((qos(*number), payload));
                }
            }
            Step::Deliver(number) => {
                let payload = self.requested.len().to_string();
                self.requested.push((qos(*number), payload.clone()));
                self.server.queue.push_back((qos(*number), payload));
            }
            Step::Up(count) => {
                let count = (*count).min(self.client.output().len());
                let bytes = self.client.output()[..count].to_vec();
                self.client.consume(count);
                self.server.handle_bytes(&bytes);
            }
            Step::Down(count) => {
                let count = (*count).min(self.server.output.len());
                let bytes: Vec<u8> = self.server.output.drain(..count).collect();
                let (delivered, acknowledged) = (&mut self.delivered, &mut self.acknowledged);
                self.client
                    .handle_bytes(self.now, &bytes, |event| match event {
                        Event::Connected {
                            session_present: true,
                            ..
                        } => {}
                        Event::Message(publish) => {
                            delivered.push(String::from_utf8(publish.payload.to_vec()).unwrap())
                        }
                        Event::Acknowledged {
                            packet_id,
                            reason_code: ReasonCode::Success,
                        } => {
                            acknowledged.push(packet_id.value());
                        }
                        event => panic!("{event:?}"),
                    });
            }
            Step::Break => {
                self.client.handle_closed();
                self.server.on_closed();
                self.client.connect(self.now, CleanStart::No).unwrap();
            }
        }
        self.server.deliver_queued();
        assert!(self.client.inflight() <= 4);
    }

    fn is_quiet(&self) -> bool {
        self.client.output().is_empty() && self.server.output.is_empty()
    }
}

/// QoS 1 at least once, QoS 2 exactly once; first deliveries in order within a QoS.
fn check(name: &str, sent: &[(Qos, String)], arrived: &[String]) {
    for (qos, payload) in sent {
        let times = arrived.iter().filter(|other| *other == payload).count();
        match qos {
            Qos::ExactlyOnce => assert_eq!(times, 1, "{name} {payload}, QoS 2"),
            _ => assert!(times >= 1, "{name} {payload}, QoS 1"),
        }
    }
    for wanted in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
        let mut seen = BTreeSet::new();
        let of_qos = |payload: &&String| {
            sent.iter()
                .any(|(qos, other)| *qos == wanted && other == *payload)
        };
        let first: Vec<&String> = arrived
            .iter()
            .filter(of_qos)
            .filter(|payload| seen.insert(*payload))
            .collect();
        let expected: Vec<&String> = sent
            .iter()
            .filter(|(qos, _)| *qos == wanted)
            .map(|(_, payload)| payload)
            .collect();
        assert_eq!(first, expected, "{name}: first deliveries in order");
    }
}

proptest! {
    #[test]
    fn nothing_is_lost_or_doubled_over_connections_that_break(
        steps in prop::collection::vec(step(), 1..150),
        is_v5 in any::<bool>(),
    ) {
        let mut world = World::new(if is_v5 { V5 } else { V311 });
        for step in &steps {
            world.take(step);
        }
        // Without faults all that is open ends.
        for _ in 0..2000 {
            world.take(&Step::Up(1000));
            world.take(&Step::Down(1000));
            if world.is_quiet() && world.server.queue.is_empty() && world.server.open.is_empty() {
                break;
            }
        }
        prop_assert!(world.is_quiet());
        prop_assert_eq!((world.client.inflight(), world.server.open.len(), world.server.queue.len()), (0, 0, 0));
        prop_assert_eq!(world.acknowledged.len(), world.published.len(), "each is acknowledged once");
        check("up", &world.published, &world.server.received);
        check("down", &world.requested, &world.delivered);
    }
}
