//! A node of one worker and a hub in memory: what it stores, what a start makes of that when it is
//! damaged, and what it imports.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use thicket_broker::api::transfer::Line;
use thicket_mqtt::{
    Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, Subscribe, Will, decode,
};
use thicket_node::{
    ConnectionId, Hub, HubConfig, HubInput, HubOutput, Keyspace, Limits, ListenerConfig,
    ListenerId, LogStatus, Now, Peer, RecoverError, RetainedLimits, Stored, Takes, Unstored,
    Worker, WorkerConfig, WorkerId, WorkerInput, WorkerOutput,
};
use thicket_overlay::{Incarnation, NodeId, OverlayConfig};
use thicket_session::server::encode_queue;
use thicket_session::time::{Instant, WallClock};

const VERSION: ProtocolVersion = ProtocolVersion::V5;
const ONLY: WorkerId = WorkerId(0);
/// When lines are read: times in them are time left.
const AT: Instant = Instant::from_millis(0);
const EMPTY_DISK: LogStatus = LogStatus {
    segment: 0,
    bytes: 0,
    space: u64::MAX,
    is_short: false,
    values_space: u64::MAX,
};

/// What a node has stored: the records of its log and the values of its store.
#[derive(Debug, Clone, Default)]
struct Disk {
    log: Vec<Vec<u8>>,
    values: BTreeMap<(Keyspace, Vec<u8>), Vec<u8>>,
}

impl Disk {
    fn store(&mut self, unstored: &Unstored<'_>) {
        if !unstored.record.is_empty() {
            self.log.push(unstored.record.to_vec());
        }
        for operation in unstored.operations {
            let key = (operation.keyspace, operation.key.to_vec());
            match &operation.value {
                Some(value) => self.values.insert(key, value.clone()),
                None => self.values.remove(&key),
            };
        }
    }

    /// Changes a byte, cuts off an end, removes or repeats a part of a record or of a value; of a
    /// key, only a byte.
    fn damage(&mut self, [item, how, at, byte]: [u8; 4]) {
        let count = self.log.len() + self.values.len();
        let item = usize::from(item) % count.max(1);
        let Some(record) = self.log.get_mut(item) else {
            let index = item - self.log.len();
            let Some(((keyspace, key), value)) = self.values.iter().nth(index) else {
                return;
            };
            let (keyspace, mut key, mut value) = (*keyspace, key.clone(), value.clone());
            self.values.remove(&(keyspace, key.clone()));
            if how % 8 == 7 {
                let at = usize::from(at) % key.len().max(1);
                key.get_mut(at).into_iter().for_each(|it| *it = byte);
            } else {
                change(&mut value, how, at, byte);
            }
            self.values.insert((keyspace, key), value);
            return;
        };
        change(record, how, at, byte);
    }
}

fn change(bytes: &mut Vec<u8>, how: u8, at: u8, byte: u8) {
    let at = usize::from(at).min(bytes.len());
    match how % 8 {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, byte),
        2 => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len()))),
        3 => {
            let part = bytes[at..(at + usize::from(byte)).min(bytes.len())].to_vec();
            bytes.splice(at..at, part);
        }
        _ => bytes.get_mut(at).into_iter().for_each(|it| *it = byte),
    }
}

struct Node {
    worker: Worker,
    hub: Hub,
    now: Now,
    disk: Disk,
}

impl Node {
    fn new(incarnation: u64, disk: Disk) -> Self {
        let now = Now {
            instant: Instant::from_millis(1000),
            wall: WallClock::from_unix_millis(1_700_000_000_000),
        };
        let listener = ListenerConfig {
            takes: Takes::Both,
            allow_anonymous: true,
            topic_prefix: String::new(),
            maximum_packet_size: 1 << 20,
            client_messages_per_s: 0,
            client_bytes_per_s: 0,
        };
        let config = WorkerConfig {
            node: NodeId(1),
            incarnation: Incarnation(incarnation),
            workers: 1,
            listeners: vec![listener],
            limits: Limits::default(),
            tenants: Vec::new(),
            stores: true,
            small_log_bytes: u64::MAX,
            sync_part_bytes: 1 << 20,
            backups: 1,
            waits_for_backups: true,
        };
        let hub = HubConfig {
            workers: 1,
            overlay: OverlayConfig::new(NodeId(1), Incarnation(incarnation), "fuzz", "n:1"),
            partition: thicket_node::Partition::Serve,
            discovery_grace: std::time::Duration::ZERO,
            retained: RetainedLimits::default(),
            tenants: Vec::new(),
            stores: true,
            backups: 1,
            hint_bytes: thicket_node::HINT_BYTES,
            on_full: thicket_node::OnFull::Drop,
            redirection: thicket_node::RedirectionConfig::default(),
        };
        Self {
            worker: Worker::new(ONLY, config, 1),
            hub: Hub::new(hub, now, 1),
            now,
            disk,
        }
    }

    /// Reads what is stored and begins to serve.
    fn start(incarnation: u64, disk: Disk) -> Result<Self, RecoverError> {
        let mut node = Self::new(incarnation, disk);
        let disk = node.disk.clone();
        for ((keyspace, key), value) in &disk.values {
            let (keyspace, now) = (*keyspace, node.now);
            let stored = Stored::Value {
                keyspace,
                key,
                value,
            };
            match keyspace {
                Keyspace::Retained | Keyspace::Members => node.hub.recover(now, stored)?,
                Keyspace::Sessions | Keyspace::Subscriptions => node.worker.recover(now, stored)?,
            }
        }
        for record in &disk.log {
            node.worker
                .recover(node.now, Stored::Record { log: 0, record })?;
        }
        node.worker.finish_recovery(node.now);
        node.settle();
        Ok(node)
    }

    /// Rounds until worker and hub have nothing to say to each other. What is to be written to
    /// clients stays with the worker.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < 500, "worker and hub have always something to say");
            let mut is_busy = false;
            self.worker.end_round(self.now);
            if let Some(unstored) = self.worker.unstored(self.now) {
                self.disk.store(&unstored);
                self.worker.handle_stored(EMPTY_DISK);
            }
            while let Some(output) = self.worker.egress().expect("stored").poll_output() {
                if let WorkerOutput::HubMessage(message) = output {
                    let from = ONLY;
                    self.hub
                        .handle_input(self.now, HubInput::Message { from, message });
                    is_busy = true;
                }
            }
            self.hub.end_round(self.now);
            if let Some(unstored) = self.hub.unstored() {
                self.disk.store(&unstored);
                self.hub.handle_stored(EMPTY_DISK);
            }
            while let Some(output) = self.hub.egress().expect("stored").poll_output() {
                if let HubOutput::WorkerMessage { message, .. } = output {
                    let from = Peer::Hub;
                    self.worker
                        .handle_input(self.now, WorkerInput::Message { from, message });
                    is_busy = true;
                }
            }
            if !is_busy {
                return;
            }
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now.instant = Instant::from_millis(self.now.instant.as_millis() + millis);
        self.worker.handle_input(self.now, WorkerInput::Timeout);
        self.hub.handle_input(self.now, HubInput::Timeout);
        self.settle();
    }

    fn accept(&mut self, connection: u32) -> ConnectionId {
        let connection = ConnectionId(connection);
        let input = WorkerInput::Accepted {
            connection,
            listener: ListenerId(0),
            peer: SocketAddr::from(([127, 0, 0, 1], 1)),
        };
        self.worker.handle_input(self.now, input);
        connection
    }

    fn receive(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(VERSION, &mut bytes).expect("a valid packet");
        let bytes = &bytes[..];
        self.worker
            .handle_input(self.now, WorkerInput::Received { connection, bytes });
        self.settle();
    }

    fn connect(&mut self, connection: u32, client_id: &str) -> ConnectionId {
        let connection = self.accept(connection);
        let connect = Connect {
            clean_start: false,
            session_expiry_interval: Some(u32::MAX),
            ..Connect::new(VERSION, client_id)
        };
        self.receive(connection, Packet::Connect(Box::new(connect)));
        connection
    }

    fn publish(&mut self, from: ConnectionId, topic: &str, qos: Qos, retain: bool) {
        let id = PacketId::new(1 + qos as u16);
        let publish = Publish {
            qos,
            retain,
            packet_id: id.filter(|_| qos != Qos::AtMostOnce),
            message_expiry_interval: Some(3600),
            ..Publish::new(topic, b"payload")
        };
        self.receive(from, Packet::Publish(publish));
    }

    /// What waits to be written to a client.
    fn take_output(&mut self, connection: ConnectionId) -> Vec<u8> {
        let Some(egress) = self.worker.egress() else {
            return Vec::new();
        };
        let bytes = egress.pending_output(connection).to_vec();
        self.worker.handle_written(connection, bytes.len());
        bytes
    }

    fn leave(&mut self, connection: ConnectionId) {
        let closed = WorkerInput::Closed { connection };
        self.worker.handle_input(self.now, closed);
        self.settle();
    }
}

const SUBSCRIBER: &str = "subscriber";
const PUBLISHER: &str = "publisher";

/// What a node stores whose clients do everything that is stored.
fn written() -> Disk {
    let mut node = Node::start(1, Disk::default()).expect("nothing is stored");
    let subscriber = node.accept(0);
    let connect = Connect {
        session_expiry_interval: Some(u32::MAX),
        will: Some(Will {
            delay_interval: 60,
            ..Will::new("will/topic", b"gone")
        }),
        ..Connect::new(VERSION, SUBSCRIBER)
    };
    node.receive(subscriber, Packet::Connect(Box::new(connect)));
    for (id, filter) in [(1, "a/+/c"), (2, "$share/group/a/#"), (3, "will/topic")] {
        let id = PacketId::new(id).expect("not zero");
        let subscribe = Subscribe::new(id, filter, Qos::ExactlyOnce);
        node.receive(subscriber, Packet::Subscribe(subscribe));
    }
    let publisher = node.connect(1, PUBLISHER);
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
        node.publish(publisher, "a/b/c", qos, true);
    }
    node.take_output(subscriber);
    node.leave(subscriber);
    for topic in ["a/d/c", "a/retained/c"] {
        node.publish(publisher, topic, Qos::AtLeastOnce, true);
    }
    node.leave(publisher);
    node.wait(61_000);
    node.disk
}

/// Starts a node from what another start has stored, after damage of four bytes a step, and lets
/// its clients come back.
///
/// # Panics
/// If the node does anything but refuse to start, or serve.
pub fn recover_node(script: &[u8]) {
    thread_local! {
        static WRITTEN: Disk = written();
    }
    let mut disk = WRITTEN.with(Disk::clone);
    assert!(!disk.log.is_empty() && disk.values.len() > 3, "{disk:?}");
    for step in script.as_chunks().0 {
        disk.damage(*step);
    }
    let Ok(mut node) = Node::start(2, disk) else {
        return;
    };
    for (connection, client_id) in [(0, SUBSCRIBER), (1, PUBLISHER)] {
        let connection = node.connect(connection, client_id);
        node.publish(connection, "a/b/c", Qos::ExactlyOnce, false);
        // A damaged topic may be none that a client accepts: checksums of the log and of the store
        // are there to find it.
        node.take_output(connection);
    }
    node.wait(120_000);
}

/// Imports lines into a node, as `POST /v1/import` does, and lets the clients of the sessions come.
///
/// # Panics
/// If the node does anything but refuse lines, or serve.
pub fn import_lines(bytes: &[u8]) {
    let mut lines = bytes
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Line>(line).ok())
        .peekable();
    let mut node = Node::start(1, Disk::default()).expect("nothing is stored");
    let mut names = Vec::new();
    let mut number = 0;
    while let Some(line) = lines.next() {
        match line {
            Line::Session(session) => {
                let in_flight: Vec<_> = std::iter::from_fn(|| {
                    lines.next_if(|line| match line {
                        Line::Pubrel(_) => true,
                        Line::Message(line) => line.packet_id.is_some(),
                        _ => false,
                    })
                })
                .collect();
                names.push(session.client_id.clone());
                let Ok(snapshot) = session.join(&in_flight, AT) else {
                    continue;
                };
                number += 1;
                let snapshot = snapshot.encode(AT);
                node.worker
                    .operate(node.now)
                    .begin_import(number, &snapshot, true);
                node.settle();
                let _ = node.worker.operate(node.now).take_import(number);
            }
            Line::Message(line) => {
                let Ok(delivery) = line.delivery(AT) else {
                    continue;
                };
                let queue = encode_queue([&delivery], AT);
                let _ = node
                    .worker
                    .operate(node.now)
                    .import_messages(&line.client_id, &queue);
                node.settle();
            }
            Line::Retained(body) => {
                let (Ok(topic), Ok(payload)) = (body.checked_topic(), body.payload()) else {
                    continue;
                };
                let publish = Publish::new(topic, &payload);
                node.worker.operate(node.now).import_retained(&publish);
                node.settle();
            }
            Line::Header(_) | Line::Pubrel(_) | Line::End(_) => {}
        }
    }
    for (connection, name) in (0..8).zip(&names) {
        // A client with an identifier that no packet can hold cannot come.
        if name.len() < 1000 && !name.contains('\0') && !name.starts_with('$') {
            let connection = node.connect(connection, name);
            let bytes = node.take_output(connection);
            let mut rest = &bytes[..];
            while let Some((_, len)) = decode(rest, VERSION, u32::MAX).expect("packets") {
                rest = &rest[len..];
            }
            assert!(rest.is_empty(), "half a packet");
        }
    }
    // What was imported is stored as well, and starts.
    let disk = std::mem::take(&mut node.disk);
    Node::start(2, disk).expect("stored by a node");
}
