//! Before the queue of a session leaves, all that was sent to this node when not everybody sent it to the new one as well must
//! have come: it is in no other place.
//!
//! The new node has heard that everybody applied its interest. What was forwarded before that may still be on its way here: from
//! other nodes, which are asked to say when we have admitted it, and from other workers, who speak to the home themselves.

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::{NodeId, NodeSlot, StreamId};

use super::Ownership;
use crate::hub::{context::Context, control::Message, hints::Hints};

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
pub(in crate::hub) struct Barriers {
    asked: Vec<Asked>,
    /// Moves of ours, with the nodes that have not answered yet.
    open: BTreeMap<u64, BTreeSet<NodeId>>,
}

impl Ownership {
    /// Asks all reachable nodes; `barrier_passed` follows.
    pub(super) fn begin_barrier(&mut self, cx: &mut Context, local: u64) {
        let nodes: BTreeSet<NodeId> = cx.up.values().copied().collect();
        self.barriers.open.insert(local, nodes.clone());
        for node in nodes {
            cx.send(node, &Message::Barrier { request: local });
        }
        self.check_barrier(cx, local);
    }

    pub(super) fn forget_barrier(&mut self, local: u64) {
        self.barriers.open.remove(&local);
    }

    fn check_barrier(&mut self, cx: &mut Context, local: u64) {
        if self
            .barriers
            .open
            .get(&local)
            .is_some_and(BTreeSet::is_empty)
        {
            self.barriers.open.remove(&local);
            self.barrier_passed(cx, local);
        }
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

    /// Answers whose condition is met; once a round.
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
        local: u64,
    ) {
        if let Some(nodes) = self.barriers.open.get_mut(&local) {
            nodes.remove(&from);
            self.check_barrier(cx, local);
        }
    }

    /// A node is down: nothing of it is waited for.
    pub(super) fn barriers_lose_node(&mut self, cx: &mut Context, node: NodeId) {
        self.barriers.asked.retain(|asked| asked.by != node);
        for local in self.barriers.open.keys().copied().collect::<Vec<_>>() {
            self.handle_barrier_done(cx, node, local);
        }
    }

    /// What a node was to answer is lost: it is asked again.
    pub(super) fn barriers_lose_control(&mut self, cx: &mut Context, node: NodeId) {
        let waits_for = |(_, nodes): &(&u64, &BTreeSet<NodeId>)| nodes.contains(&node);
        let open: Vec<u64> = self
            .barriers
            .open
            .iter()
            .filter(waits_for)
            .map(|(local, _)| *local)
            .collect();
        for request in open {
            cx.send(node, &Message::Barrier { request });
        }
    }
}
