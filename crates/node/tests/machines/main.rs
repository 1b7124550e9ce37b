//! The workers and the hub of a node that stores, alone: what their shell may rely on.

use std::net::SocketAddr;

use thicket_mqtt::{Connect, Packet, PacketId, ProtocolVersion, Publish, Qos, Subscribe};
use thicket_node::{
    ConnectionId, Hub, HubConfig, HubInput, HubOutput, Limits, ListenerConfig, ListenerId,
    LogStatus, Now, Peer, RetainedLimits, Takes, Worker, WorkerConfig, WorkerId, WorkerInput,
    WorkerOutput,
};
use thicket_overlay::{Incarnation, NodeId, OverlayConfig};
use thicket_session::time::{Instant, WallClock};

const CLIENT: ConnectionId = ConnectionId(0);
const VERSION: ProtocolVersion = ProtocolVersion::V5;
const EMPTY_DISK: LogStatus = LogStatus {
    segment: 0,
    bytes: 0,
    space: u64::MAX,
    is_short: false,
    values_space: u64::MAX,
};

/// The machines of a node that stores, and messages between them.
struct Node {
    workers: Vec<Worker>,
    hub: Hub,
    now: Now,
}

impl Node {
    fn new(workers: u8) -> Self {
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
            workers,
            listeners: vec![listener],
            limits: Limits::default(),
            tenants: Vec::new(),
            stores: true,
            small_log_bytes: u64::MAX,
            sync_part_bytes: 1024 * 1024,
            backups: 0,
            waits_for_backups: true,
        };
        let hub = HubConfig {
            workers,
            overlay: OverlayConfig::new(NodeId(1), Incarnation(1), "alone", "127.0.0.1:1883"),
            partition: thicket_node::Partition::Serve,
            discovery_grace: std::time::Duration::ZERO,
            restart_grace: std::time::Duration::ZERO,
            retained: RetainedLimits::default(),
            tenants: Vec::new(),
            stores: true,
            backups: 0,
            hint_bytes: thicket_node::HINT_BYTES,
            on_full: thicket_node::OnFull::Drop,
            redirection: thicket_node::RedirectionConfig::default(),
        };
        Self {
            workers: (0..workers)
                .map(|id| Worker::new(WorkerId(id), config.clone(), 1))
                .collect(),
            hub: Hub::new(hub, now, 1),
            now,
        }
    }

    fn receive(&mut self, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(VERSION, &mut bytes).expect("a valid packet");
        let received = WorkerInput::Received {
            connection: CLIENT,
            bytes: &bytes,
        };
        self.workers[0].handle_input(self.now, received);
    }

    /// Bytes that a worker stores. The record and the values of a round count.
    fn store(&mut self, worker: usize) -> usize {
        let worker = &mut self.workers[worker];
        let Some(unstored) = worker.unstored(self.now) else {
            return 0;
        };
        let values = unstored.operations.iter().map(|it| it.key.len());
        let bytes = unstored.record.len() + values.sum::<usize>();
        worker.handle_stored(EMPTY_DISK);
        bytes
    }

    /// Rounds until workers and hub have nothing to say to each other. Returns the addresses that are dialled.
    fn settle(&mut self) -> Vec<String> {
        let mut dialled = Vec::new();
        let mut is_busy = true;
        while std::mem::take(&mut is_busy) {
            for index in 0..self.workers.len() {
                self.workers[index].end_round(self.now);
                self.store(index);
                let mut egress = self.workers[index].egress().expect("stored");
                while let Some(output) = egress.poll_output() {
                    if let WorkerOutput::HubMessage(message) = output {
                        let from = WorkerId(index as u8);
                        self.hub
                            .handle_input(self.now, HubInput::Message { from, message });
                        is_busy = true;
                    }
                }
            }
            self.hub.end_round(self.now);
            if self.hub.unstored().is_some() {
                self.hub.handle_stored(EMPTY_DISK);
            }
            while let Some(output) = self.hub.egress().expect("stored").poll_output() {
                match output {
                    HubOutput::WorkerMessage { to, message } => {
                        let from = Peer::Hub;
                        self.workers[usize::from(to.0)]
                            .handle_input(self.now, WorkerInput::Message { from, message });
                        is_busy = true;
                    }
                    HubOutput::Dial { address } => dialled.push(address),
                    _ => {}
                }
            }
        }
        dialled
    }

    fn take_bytes(&mut self) -> Vec<u8> {
        let egress = self.workers[0].egress().expect("stored");
        let bytes = egress.pending_output(CLIENT).to_vec();
        self.workers[0].handle_written(CLIENT, bytes.len());
        bytes
    }
}

#[test]
fn an_acknowledgement_has_no_way_out_before_its_message_is_stored() {
    let mut node = Node::new(1);
    node.workers[0].finish_recovery(node.now);
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let accepted = WorkerInput::Accepted {
        connection: CLIENT,
        listener: ListenerId(0),
        peer,
    };
    node.workers[0].handle_input(node.now, accepted);
    node.receive(&Packet::Connect(Box::new(Connect {
        session_expiry_interval: Some(u32::MAX),
        ..Connect::new(VERSION, "client")
    })));
    node.settle();
    let id = PacketId::new(1).expect("not zero");
    node.receive(&Packet::Subscribe(Subscribe::new(
        id,
        "a",
        Qos::AtLeastOnce,
    )));
    node.settle();
    assert!(!node.take_bytes().is_empty(), "CONNACK and SUBACK");

    node.receive(&Packet::Publish(Publish {
        qos: Qos::AtLeastOnce,
        packet_id: Some(id),
        ..Publish::new("a", b"for its own session, which is persistent")
    }));
    node.workers[0].end_round(node.now);
    assert!(
        node.workers[0].egress().is_none(),
        "the message is not stored"
    );
    assert!(node.store(0) > 40, "the message");
    node.settle();
    let bytes = node.take_bytes();
    assert!(
        bytes.windows(4).any(|it| it == [0x40, 2, 0, 1]),
        "PUBACK: {bytes:?}"
    );
}

/// Other nodes that were told too early what a node has would give its clients new sessions.
#[test]
fn a_node_dials_the_others_when_all_its_workers_have_recovered() {
    let mut node = Node::new(2);
    let address = "127.0.0.1:1884".to_owned();
    let discovered = HubInput::Discovered {
        address: address.clone(),
    };
    node.hub.handle_input(node.now, discovered);
    assert!(node.settle().is_empty(), "nothing is recovered");
    node.workers[1].finish_recovery(node.now);
    assert!(node.settle().is_empty(), "one worker has not recovered");
    node.workers[0].finish_recovery(node.now);
    assert_eq!(node.settle(), [address]);
}
