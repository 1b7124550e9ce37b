//! Nothing leaves a worker before what it gathered is stored.

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
    room: u64::MAX,
    is_short: false,
    values_room: u64::MAX,
};

/// A node of one worker that stores, alone.
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
        let worker = WorkerConfig {
            node: NodeId(1),
            incarnation: Incarnation(1),
            workers: 1,
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
            workers: 1,
            overlay: OverlayConfig::new(NodeId(1), Incarnation(1), "alone", "127.0.0.1:1883"),
            partition: thicket_node::Partition::Serve,
            discovery_grace: std::time::Duration::ZERO,
            retained: RetainedLimits::default(),
            tenants: Vec::new(),
            stores: false,
            backups: 0,
            hint_bytes: thicket_node::HINT_BYTES,
            on_full: thicket_node::OnFull::Drop,
            redirection: thicket_node::RedirectionConfig::default(),
        };
        Self {
            worker: Worker::new(WorkerId(0), worker, 1),
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
        self.worker.handle_input(self.now, received);
    }

    /// Bytes stored. The record and the values of a round count.
    fn store(&mut self) -> usize {
        let Some(unstored) = self.worker.unstored(self.now) else {
            return 0;
        };
        let values = unstored.operations.iter().map(|it| it.key.len());
        let bytes = unstored.record.len() + values.sum::<usize>();
        self.worker.handle_stored(EMPTY_DISK);
        bytes
    }

    /// Rounds until worker and hub have nothing to say to each other.
    fn settle(&mut self) {
        loop {
            self.worker.end_round(self.now);
            self.store();
            let mut busy = false;
            while let Some(output) = self.worker.egress().expect("stored").poll_output() {
                if let WorkerOutput::HubMessage(message) = output {
                    let from = WorkerId(0);
                    self.hub
                        .handle_input(self.now, HubInput::Message { from, message });
                    busy = true;
                }
            }
            self.hub.end_round(self.now);
            while let Some(output) = self.hub.egress().expect("it stores nothing").poll_output() {
                if let HubOutput::WorkerMessage { message, .. } = output {
                    let from = Peer::Hub;
                    self.worker
                        .handle_input(self.now, WorkerInput::Message { from, message });
                    busy = true;
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn take_bytes(&mut self) -> Vec<u8> {
        let egress = self.worker.egress().expect("stored");
        let bytes = egress.pending_output(CLIENT).to_vec();
        self.worker.handle_written(CLIENT, bytes.len());
        bytes
    }
}

#[test]
fn an_acknowledgement_has_no_way_out_before_its_message_is_stored() {
    let mut node = Node::new();
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let accepted = WorkerInput::Accepted {
        connection: CLIENT,
        listener: ListenerId(0),
        peer,
    };
    node.worker.handle_input(node.now, accepted);
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
    node.worker.end_round(node.now);
    assert!(node.worker.egress().is_none(), "the message is not stored");
    assert!(node.store() > 40, "the message");
    node.settle();
    let bytes = node.take_bytes();
    assert!(
        bytes.windows(4).any(|it| it == [0x40, 2, 0, 1]),
        "PUBACK: {bytes:?}"
    );
}
