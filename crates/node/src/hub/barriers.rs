//! Before the queue of a session leaves, all that was sent to this node when not everybody sent it to the new one as well must
//! have come: it is in no other place.
//!
//! The new node has heard that everybody applied its interest. What was forwarded before that may still be on its way here: from
//! other nodes, which are asked to say when we have admitted it, and from other workers, who speak to the home themselves.

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::{NodeId, NodeSlot, StreamId};

use super::{Hub, Message};

/// A node that wants to know when it has admitted what was on its way to it.
#[derive(Debug)]
struct Asked {
    by: NodeId,
    slot: NodeSlot,
    request: u64,
    /// The last number of each stream that was on its way.
    numbers: Vec<(StreamId, u64)>,
    /// The last serial of what was kept for it while it was down.
    hints: u64,
}

/// Barriers of both sides.
#[derive(Debug, Default)]
pub(super) struct Barriers {
    asked: Vec<Asked>,
    /// Moves of ours, with the nodes that have not answered yet.
    open: BTreeMap<u64, BTreeSet<NodeId>>,
}

impl Hub {
    /// Asks all reachable nodes; `barrier_passed` follows.
    pub(super) fn begin_barrier(&mut self, local: u64) {
        let nodes: BTreeSet<NodeId> = self.cx.up.values().copied().collect();
        self.barriers.open.insert(local, nodes.clone());
        for node in nodes {
            self.cx.send(node, &Message::Barrier { request: local });
        }
        self.check_barrier(local);
    }

    pub(super) fn forget_barrier(&mut self, local: u64) {
        self.barriers.open.remove(&local);
    }

    fn check_barrier(&mut self, local: u64) {
        if self
            .barriers
            .open
            .get(&local)
            .is_some_and(BTreeSet::is_empty)
        {
            self.barriers.open.remove(&local);
            self.barrier_passed(local);
        }
    }

    pub(super) fn handle_barrier(&mut self, by: NodeId, slot: NodeSlot, request: u64) {
        let numbers = self.cx.overlay.unadmitted(slot);
        let hints = self.hints.mark(by);
        self.barriers.asked.push(Asked {
            by,
            slot,
            request,
            numbers,
            hints,
        });
        self.answer_barriers();
    }

    /// Answers whose condition is met; once a round.
    pub(super) fn answer_barriers(&mut self) {
        let (overlay, hints) = (&self.cx.overlay, &self.hints);
        let met: Vec<Asked> = self
            .barriers
            .asked
            .extract_if(.., |asked| {
                overlay.has_admitted(asked.slot, &asked.numbers)
                    && hints.has_delivered(asked.by, asked.hints)
            })
            .collect();
        for Asked { by, request, .. } in met {
            self.cx.send(by, &Message::BarrierDone { request });
        }
    }

    pub(super) fn handle_barrier_done(&mut self, from: NodeId, local: u64) {
        if let Some(nodes) = self.barriers.open.get_mut(&local) {
            nodes.remove(&from);
            self.check_barrier(local);
        }
    }

    /// A node is down: nothing of it is waited for.
    pub(super) fn barriers_lose_node(&mut self, node: NodeId) {
        self.barriers.asked.retain(|asked| asked.by != node);
        for local in self.barriers.open.keys().copied().collect::<Vec<_>>() {
            self.handle_barrier_done(node, local);
        }
    }

    /// What a node was to answer is lost: it is asked again.
    pub(super) fn barriers_lose_control(&mut self, node: NodeId) {
        let waits_for = |(_, nodes): &(&u64, &BTreeSet<NodeId>)| nodes.contains(&node);
        let open: Vec<u64> = self
            .barriers
            .open
            .iter()
            .filter(waits_for)
            .map(|(local, _)| *local)
            .collect();
        for request in open {
            self.cx.send(node, &Message::Barrier { request });
        }
    }
}
