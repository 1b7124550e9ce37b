//! The worker alone, without sockets: nanoseconds of one core for each message delivered.
//!
//! `cargo bench -p thicket-node --bench worker`; with a workload's name and a number of rounds as arguments it runs that one
//! quietly, for a profiler.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::{net::SocketAddr, time::Instant as Clock};

use thicket_mqtt::{
    Acknowledgement, Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, ReasonCode,
    Subscribe, decode,
};
use thicket_node::{
    ConnectionId, Hub, HubConfig, HubInput, HubOutput, Limits, ListenerConfig, ListenerId, Now,
    Peer, RetainedLimits, Takes, Worker, WorkerConfig, WorkerId, WorkerInput, WorkerOutput,
};
use thicket_overlay::{Incarnation, NodeId, OverlayConfig};
use thicket_session::time::{Instant, WallClock};

/// A worker and the hub of its node, alone, and what they wrote to each connection.
struct Node {
    worker: Worker,
    hub: Hub,
    now: Now,
}

impl Node {
    fn new() -> Self {
        let now = Now {
            instant: Instant::from_millis(1),
            wall: WallClock::from_unix_millis(1),
        };
        let listener = ListenerConfig {
            takes: Takes::Both,
            allow_anonymous: true,
            topic_prefix: String::new(),
            maximum_packet_size: u32::MAX,
            client_messages_per_s: 0,
            client_bytes_per_s: 0,
        };
        let config = WorkerConfig {
            node: NodeId(1),
            incarnation: Incarnation(1),
            workers: 1,
            listeners: vec![listener],
            limits: Limits::default(),
            tenants: Vec::new(),
            stores: false,
            small_log_bytes: u64::MAX,
            sync_part_bytes: 1024 * 1024,
            backups: 1,
            waits_for_backups: true,
        };
        let hub = HubConfig {
            workers: 1,
            overlay: OverlayConfig::new(NodeId(1), Incarnation(1), "bench", "127.0.0.1:1883"),
            partition: thicket_node::Partition::Serve,
            discovery_grace: std::time::Duration::ZERO,
            restart_grace: std::time::Duration::ZERO,
            retained: RetainedLimits::default(),
            tenants: Vec::new(),
            stores: false,
            backups: 1,
            hint_bytes: thicket_node::HINT_BYTES,
            on_full: thicket_node::OnFull::Drop,
            redirection: thicket_node::RedirectionConfig::default(),
        };
        let mut node = Self {
            worker: Worker::new(WorkerId(0), config, 1),
            hub: Hub::new(hub, now, 1),
            now,
        };
        node.settle();
        node
    }

    /// Performs outputs until there are none; nothing is written, so that callers see all bytes.
    fn settle(&mut self) {
        loop {
            self.worker.end_round(self.now);
            let mut busy = false;
            while let Some(output) = self.worker.egress().and_then(|mut it| it.poll_output()) {
                if let WorkerOutput::HubMessage(message) = output {
                    self.hub.handle_input(
                        self.now,
                        HubInput::Message {
                            from: WorkerId(0),
                            message,
                        },
                    );
                    busy = true;
                }
            }
            self.hub.end_round(self.now);
            while let Some(output) = self.hub.egress().and_then(|mut it| it.poll_output()) {
                if let HubOutput::WorkerMessage { message, .. } = output {
                    self.worker.handle_input(
                        self.now,
                        WorkerInput::Message {
                            from: Peer::Hub,
                            message,
                        },
                    );
                    busy = true;
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn receive(&mut self, connection: u32, bytes: &[u8]) {
        let connection = ConnectionId(connection);
        self.worker
            .handle_input(self.now, WorkerInput::Received { connection, bytes });
    }

    fn connect(&mut self, connection: u32, version: ProtocolVersion) {
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let accepted = WorkerInput::Accepted {
            connection: ConnectionId(connection),
            listener: ListenerId(0),
            peer,
        };
        self.worker.handle_input(self.now, accepted);
        let client_id = format!("client-{connection}");
        let connect = Connect {
            keep_alive: 0,
            ..Connect::new(version, &client_id)
        };
        self.receive(
            connection,
            &encoded(version, &Packet::Connect(Box::new(connect))),
        );
        self.settle();
        self.drain(connection);
    }

    fn subscribe(&mut self, connection: u32, version: ProtocolVersion, filter: &str, qos: Qos) {
        let id = PacketId::new(1).expect("not zero");
        let subscribe = Subscribe::new(id, filter, qos);
        self.receive(connection, &encoded(version, &Packet::Subscribe(subscribe)));
        self.settle();
        self.drain(connection);
    }

    /// Takes all that was written to a connection.
    fn drain(&mut self, connection: u32) -> Vec<u8> {
        let connection = ConnectionId(connection);
        let bytes = self.pending(connection).to_vec();
        self.worker.handle_written(connection, bytes.len());
        bytes
    }

    fn pending(&mut self, connection: ConnectionId) -> &[u8] {
        let egress = self.worker.egress();
        egress.map_or(&[], |it| it.pending_output(connection))
    }

    fn discard(&mut self, connection: u32) -> usize {
        let connection = ConnectionId(connection);
        let len = self.pending(connection).len();
        self.worker.handle_written(connection, len);
        len
    }
}

fn encoded(version: ProtocolVersion, packet: &Packet<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes).expect("a valid packet");
    bytes
}

/// `count` PUBLISHes back to back.
fn publishes(version: ProtocolVersion, topic: &str, qos: Qos, count: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in 1..=count {
        let packet_id = (qos > Qos::AtMostOnce)
            .then(|| PacketId::new(number))
            .flatten();
        let publish = Publish {
            qos,
            packet_id,
            ..Publish::new(topic, &[7; 64])
        };
        publish.encode(version, &mut bytes).expect("a valid packet");
    }
    bytes
}

/// Each publisher has a topic and a subscriber of its own, 50 messages a read.
fn pair(rounds: usize, version: ProtocolVersion, qos: Qos) -> usize {
    const PAIRS: u32 = 100;
    const BATCH: u16 = 50;
    let mut node = Node::new();
    let mut reads = Vec::new();
    for pair in 0..PAIRS {
        let topic = format!("bench/pair/topic-{pair:05}");
        node.connect(pair, version);
        node.connect(PAIRS + pair, version);
        node.subscribe(PAIRS + pair, version, &topic, qos);
        reads.push(publishes(version, &topic, qos, BATCH));
    }
    for _ in 0..rounds {
        for (pair, read) in reads.iter().enumerate() {
            node.receive(pair as u32, read);
        }
        node.settle();
        for pair in 0..PAIRS {
            if qos == Qos::AtMostOnce {
                assert!(node.discard(PAIRS + pair) > usize::from(BATCH) * 64);
                continue;
            }
            let delivered = node.drain(PAIRS + pair);
            node.receive(PAIRS + pair, &acknowledgements(version, &delivered));
            assert_eq!(node.discard(pair), usize::from(BATCH) * 4, "a PUBACK each");
        }
        node.settle();
    }
    rounds * PAIRS as usize * usize::from(BATCH)
}

/// A PUBACK for every PUBLISH in `bytes`.
fn acknowledgements(version: ProtocolVersion, mut bytes: &[u8]) -> Vec<u8> {
    let mut acks = Vec::new();
    while let Ok(Some((Packet::Publish(publish), len))) = decode(bytes, version, u32::MAX) {
        let packet_id = publish.packet_id.expect("QoS 1");
        let ack = Packet::Puback(Acknowledgement::new(packet_id, ReasonCode::Success));
        ack.encode(version, &mut acks).expect("a valid packet");
        bytes = &bytes[len..];
    }
    acks
}

/// One publisher, 500 subscribers, 50 messages a read.
fn fan_out(rounds: usize) -> usize {
    const SUBSCRIBERS: u32 = 500;
    let version = ProtocolVersion::V311;
    let mut node = Node::new();
    node.connect(0, version);
    for subscriber in 1..=SUBSCRIBERS {
        node.connect(subscriber, version);
        node.subscribe(subscriber, version, "bench/fan", Qos::AtMostOnce);
    }
    let read = publishes(version, "bench/fan", Qos::AtMostOnce, 50);
    for _ in 0..rounds {
        node.receive(0, &read);
        node.settle();
        for subscriber in 1..=SUBSCRIBERS {
            node.discard(subscriber);
        }
    }
    rounds * 50 * SUBSCRIBERS as usize
}

type Workload = (&'static str, fn(usize) -> usize);

const WORKLOADS: [Workload; 4] = [
    ("pair-qos0", |rounds| {
        pair(rounds, ProtocolVersion::V311, Qos::AtMostOnce)
    }),
    ("pair-qos0-v5", |rounds| {
        pair(rounds, ProtocolVersion::V5, Qos::AtMostOnce)
    }),
    ("pair-qos1-v5", |rounds| {
        pair(rounds, ProtocolVersion::V5, Qos::AtLeastOnce)
    }),
    ("fan-out-qos0", fan_out),
];

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    if let [name, rounds] = &arguments[..] {
        let rounds = rounds.parse().expect("a number of rounds");
        let workload = WORKLOADS
            .iter()
            .find(|(known, _)| known == name)
            .expect("a known workload");
        println!("{} messages", workload.1(rounds));
        return;
    }
    for (name, workload) in WORKLOADS {
        let best = (0..5)
            .map(|_| {
                let start = Clock::now();
                let messages = workload(40);
                start.elapsed().as_nanos() as f64 / messages as f64
            })
            .fold(f64::INFINITY, f64::min);
        println!("{name:16} {best:7.1} ns a message");
    }
}
