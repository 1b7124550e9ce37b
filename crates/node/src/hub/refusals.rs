//! Messages of another node that are over the limit here (rule 18): the node that accepted them from their publishers is informed first. When it has
//! noted the refusal, the messages are acknowledged like all others, so that no node sends them again.

use thicket_overlay::{NodeId, StreamId};

use super::{
    Hub,
    control::{Message, RefusedNumbers},
};
use crate::{
    WorkerId,
    messages::{NumberRuns, Origin, RefusedBy},
};

impl Hub {
    /// Messages of another node are over the limit of a worker.
    pub(super) fn handle_worker_refused(
        &mut self,
        origin: Origin,
        by: RefusedBy,
        runs: NumberRuns,
    ) {
        // Nodes that kept some of them for this node are answered as if they had been accepted.
        let others = self.settle_hints(origin, &runs);
        let runs = others.unwrap_or(runs);
        for (from, to) in &runs {
            self.settle_doubles(origin, *from..=*to);
        }
        if runs.is_empty() {
            return;
        }
        self.send_refused(origin, by, runs.clone());
        let unannounced = self.refusals.unannounced.entry(origin).or_default();
        unannounced.extend(runs.into_iter().map(|run| (by, run)));
    }

    fn send_refused(&mut self, origin: Origin, by: RefusedBy, runs: NumberRuns) {
        let numbers = RefusedNumbers {
            incarnation: origin.incarnation,
            stream: origin.stream,
            runs,
        };
        let message = match by {
            RefusedBy::Members => Message::MembersRefused(numbers),
            RefusedBy::Place => Message::Refused(numbers),
        };
        self.cx.send(origin.node, &message);
    }

    /// Makes a worker refuse a message of its own when it would acknowledge it.
    pub(super) fn refuse_ahead(&mut self, to: WorkerId, number: u64) {
        if number > 0 {
            let stream = StreamId(u16::from(to.0));
            let by = RefusedBy::Place;
            self.cx.outgoing.refuse(stream, by, [(number, number)]);
        }
    }

    /// What a node was sent may be lost: it is sent again.
    pub(super) fn refusals_begin_again(&mut self, node: NodeId) {
        let unannounced = self.refusals.unannounced.iter();
        let of_node = unannounced.filter(|(origin, _)| origin.node == node);
        let again: Vec<_> = of_node
            .map(|(origin, refused)| (*origin, refused.clone()))
            .collect();
        for (origin, refused) in again {
            for by in [RefusedBy::Members, RefusedBy::Place] {
                let runs = refused.iter().filter(|(of, _)| *of == by);
                let runs: NumberRuns = runs.map(|(_, run)| *run).collect();
                if !runs.is_empty() {
                    self.send_refused(origin, by, runs);
                }
            }
        }
    }

    /// Messages of ours are over the limit of another node: their worker is informed before their acknowledgement arrives.
    pub(super) fn handle_refused(&mut self, from: NodeId, by: RefusedBy, numbers: RefusedNumbers) {
        if numbers.incarnation == self.cx.config.overlay.incarnation {
            let runs = numbers.runs.iter().copied();
            self.cx.outgoing.refuse(numbers.stream, by, runs);
        }
        self.cx.send(from, &Message::RefusalNoted(numbers));
    }

    /// The node that accepted them has noted the refusal.
    pub(super) fn handle_refusal_noted(&mut self, from: NodeId, numbers: &RefusedNumbers) {
        let origin = Origin {
            node: from,
            incarnation: numbers.incarnation,
            stream: numbers.stream,
        };
        let Some(unannounced) = self.refusals.unannounced.get_mut(&origin) else {
            return;
        };
        let mut announced = NumberRuns::new();
        unannounced.retain(|(_, run)| {
            let is_noted = numbers.runs.contains(run);
            announced.extend(is_noted.then_some(*run));
            !is_noted
        });
        if unannounced.is_empty() {
            self.refusals.unannounced.remove(&origin);
        }
        self.handle_admitted(origin, &announced);
    }
}
