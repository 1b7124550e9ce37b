//! Barriers: a worker is informed when all that was on its way to it has arrived.
//!
//! What waits for that, and why, is the worker's (`worker/barriers`). Other nodes are asked to report when this one has admitted what they had sent
//! it; other workers send that on to the worker, behind their own messages.

use std::collections::BTreeSet;

use thicket_overlay::{NodeId, NodeSlot};

use super::{
    Ownership,
    state::barriers::{Asked, Open},
};
use crate::{
    WorkerId,
    hub::{context::Context, control::Message, hints::Hints},
    messages::ToWorker,
};

impl Ownership {
    /// A worker needs to be informed when all that is on its way to it has arrived: all reachable nodes are asked.
    pub(in crate::hub) fn begin_barrier(&mut self, cx: &mut Context, home: WorkerId, barrier: u64) {
        self.barriers.last_request += 1;
        let request = self.barriers.last_request;
        let nodes: BTreeSet<NodeId> = cx.up.values().copied().collect();
        for node in &nodes {
            cx.send(*node, &Message::Barrier { request });
        }
        let open = Open {
            home,
            barrier,
            nodes,
        };
        self.barriers.open.insert(request, open);
        self.check_barrier(cx, request);
    }

    /// Passes the barrier if other nodes have nothing more on its way: the other workers send that on, behind what they had.
    fn check_barrier(&mut self, cx: &mut Context, request: u64) {
        let mut passed = self
            .barriers
            .open
            .extract_if(request..=request, |_, open| open.nodes.is_empty());
        let Some((_, Open { home, barrier, .. })) = passed.next() else {
            return;
        };
        cx.send_to_workers_after_records(|| ToWorker::BarrierPassed { home, barrier });
    }

    /// `hints`: the last serial of what was kept for that node.
    pub(in crate::hub) fn handle_barrier(
        &mut self,
        cx: &Context,
        by: NodeId,
        slot: NodeSlot,
        request: u64,
        hints: u64,
    ) {
        let numbers = cx.overlay.unadmitted(slot);
        self.barriers.asked.push(Asked {
            by,
            slot,
            request,
            numbers,
            hints,
        });
    }

    /// Sends the answers whose condition is met; once a round.
    pub(in crate::hub) fn answer_barriers(&mut self, cx: &mut Context, hints: &Hints) {
        let overlay = &cx.overlay;
        let met: Vec<Asked> = self
            .barriers
            .asked
            .extract_if(.., |asked| {
                overlay.has_admitted(asked.slot, &asked.numbers)
                    && hints.has_delivered(asked.by, asked.hints)
            })
            .collect();
        for Asked { by, request, .. } in met {
            cx.send(by, &Message::BarrierDone { request });
        }
    }

    pub(in crate::hub) fn handle_barrier_done(
        &mut self,
        cx: &mut Context,
        from: NodeId,
        request: u64,
    ) {
        if let Some(open) = self.barriers.open.get_mut(&request) {
            open.nodes.remove(&from);
            self.check_barrier(cx, request);
        }
    }

    /// A node is down: no barrier waits for it.
    pub(super) fn barriers_lose_node(&mut self, cx: &mut Context, node: NodeId) {
        self.barriers.asked.retain(|asked| asked.by != node);
        for request in self.barriers.open.keys().copied().collect::<Vec<_>>() {
            self.handle_barrier_done(cx, node, request);
        }
    }

    /// What a node was to answer is lost: it is asked again.
    pub(super) fn barriers_lose_control(&mut self, cx: &mut Context, node: NodeId) {
        let waits_for = |(_, open): &(&u64, &Open)| open.nodes.contains(&node);
        let open: Vec<u64> = self
            .barriers
            .open
            .iter()
            .filter(waits_for)
            .map(|(request, _)| *request)
            .collect();
        for request in open {
            cx.send(node, &Message::Barrier { request });
        }
    }
}
