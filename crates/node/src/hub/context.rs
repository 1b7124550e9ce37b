//! What every part of the hub works with: who this node is, who else is up, which sessions are here, and what leaves.
//!
//! Each part of the hub has state that only it writes, and is given the context with each call. It sends [messages to
//! workers](Context::send_to_worker), [messages to other nodes](Context::send), and [log events](Context::event).

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use thicket_mqtt::ReasonCode;
use thicket_overlay::{NodeId, NodeSlot, Overlay};

use super::{
    clock::SharedClock, control::Message, directory::Directory, members::Members,
    outgoing::Outgoing, quorum::Quorum,
};
use crate::{
    Event, EventLevel, HubConfig, HubOutput, WorkerId,
    messages::{Claim, ClaimRefusal, Cluster, ToWorker, WorkerMessage},
};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Context {
    pub config: HubConfig,
    pub overlay: Overlay,
    /// Slots of the nodes that are up.
    pub up: BTreeMap<NodeSlot, NodeId>,
    /// The nodes that belong to the cluster.
    pub members: Members,
    pub quorum: Quorum,
    pub clock: SharedClock,
    /// As the workers see it.
    pub cluster: Cluster,
    /// Clients are served (rule 3 between nodes).
    pub is_ready: bool,
    /// The sessions of this node.
    pub directory: Directory,
    /// Records for the workers, gathered in this round.
    pub outgoing: Outgoing,
    pub outputs: VecDeque<HubOutput>,
}

impl Context {
    /// This node.
    pub const fn own(&self) -> NodeId {
        self.config.overlay.node
    }

    /// Whether another node is up.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.up.values().any(|up| *up == node)
    }

    pub fn workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.config.workers).map(WorkerId)
    }

    pub fn send_to_worker(&mut self, to: WorkerId, content: ToWorker) {
        self.outputs.push_back(HubOutput::WorkerMessage {
            to,
            message: WorkerMessage(content),
        });
    }

    /// Sends a message that its receiver must handle after the records gathered so far.
    pub fn send_to_worker_after_records(&mut self, to: WorkerId, content: ToWorker) {
        self.outgoing.seal(&mut self.outputs);
        self.send_to_worker(to, content);
    }

    pub fn send_to_workers(&mut self, content: impl Fn() -> ToWorker) {
        for worker in self.workers() {
            self.send_to_worker(worker, content());
        }
    }

    /// As [`Self::send_to_worker_after_records`].
    pub fn send_to_workers_after_records(&mut self, content: impl Fn() -> ToWorker) {
        self.outgoing.seal(&mut self.outputs);
        self.send_to_workers(content);
    }

    /// Sends the workers a change of the cluster.
    pub fn change_cluster(&mut self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        let cluster = Arc::new(self.cluster.clone());
        self.send_to_workers(|| ToWorker::Cluster(Arc::clone(&cluster)));
    }

    /// To another node, if it is linked: one that is not is sent everything again when it is back.
    pub fn send(&mut self, to: NodeId, message: &Message<'_>) {
        let Some(slot) = self.overlay.slot_of(to) else {
            return;
        };
        self.send_encoded(to, slot, message.encode());
    }

    /// To every node that is up: the kind and payload of a message.
    pub fn broadcast(&mut self, encoded: &(u8, Vec<u8>)) {
        let up: Vec<_> = self.up.iter().map(|(slot, node)| (*slot, *node)).collect();
        for (slot, node) in up {
            self.send_encoded(node, slot, encoded.clone());
        }
    }

    pub fn send_encoded(&mut self, to: NodeId, slot: NodeSlot, (kind, payload): (u8, Vec<u8>)) {
        if self.quorum.is_gone(slot) {
            return;
        }
        // A node that is down or accepts no more is sent everything again when it is back: `Hub::view_changed`.
        if let Err(error) = self.overlay.send_control(slot, kind, &payload) {
            self.event(
                EventLevel::Warn,
                "control not sent",
                vec![("node", to.to_string()), ("error", error.to_string())],
            );
        }
    }

    /// Informs a worker that a CONNECT is refused. `instead`: nodes that its client may go to.
    pub fn refuse_claim(
        &mut self,
        worker: WorkerId,
        claim: &Claim,
        reason_code: ReasonCode,
        instead: Arc<[NodeId]>,
    ) {
        let refused = ToWorker::ClaimAnswered {
            connection: claim.connection,
            serial: claim.serial,
            client_id: Arc::clone(&claim.client_id),
            answer: Err(ClaimRefusal {
                reason_code,
                instead,
            }),
        };
        self.send_to_worker(worker, refused);
    }

    pub fn event(
        &mut self,
        level: EventLevel,
        message: &'static str,
        fields: Vec<(&'static str, String)>,
    ) {
        self.outputs.push_back(HubOutput::Event(Event {
            level,
            message,
            fields,
        }));
    }
}
