//! What leaves for the workers at the end of the round: records, and what became of their numbers.

use std::collections::{BTreeMap, VecDeque};

use thicket_overlay::{Incarnation, NodeSlot, StreamId};

use crate::{
    HubOutput, WorkerId,
    flow_control::FlowControl,
    messages::{NumberRuns, Origin, RefusedBy, ToWorker, WorkerMessage, push_number},
};

/// What leaves for the workers at the end of the round.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// By worker: batches of one origin each, in order.
    records: Vec<Vec<(Origin, Vec<u8>)>>,
    /// By worker: its own numbers that all other nodes have admitted, and those that it is to refuse.
    acknowledged: Vec<NumberRuns>,
    refused: Vec<BTreeMap<RefusedBy, NumberRuns>>,
    /// Those of the refused ones that go to no other node, so that nobody else acknowledges them.
    refused_here: Vec<NumberRuns>,
    /// The acknowledged ones wait until it is decided whether this side has quorum.
    holds_acknowledgements: bool,
    /// Records that workers have not taken yet.
    pub flow_control: FlowControl,
    /// By the node that sent them: bytes of messages without numbers whose credit it gets back when the workers have taken enough.
    owed: BTreeMap<(NodeSlot, Incarnation), u64>,
}

impl Outgoing {
    pub fn new(workers: u8) -> Self {
        let workers = usize::from(workers);
        Self {
            records: vec![Vec::new(); workers],
            acknowledged: vec![Vec::new(); workers],
            refused: vec![BTreeMap::new(); workers],
            refused_here: vec![Vec::new(); workers],
            holds_acknowledgements: false,
            flow_control: FlowControl::new(workers),
            owed: BTreeMap::new(),
        }
    }

    /// All other nodes have admitted a number of a worker.
    pub fn acknowledge(&mut self, worker: WorkerId, number: u64) {
        if let Some(runs) = self.acknowledged.get_mut(usize::from(worker.0)) {
            push_number(runs, number);
        }
    }

    /// All other nodes have admitted these numbers of a worker, which has this stream.
    pub fn acknowledge_all(
        &mut self,
        stream: StreamId,
        numbers: impl IntoIterator<Item = (u64, u64)>,
    ) {
        if let Some(runs) = self.acknowledged.get_mut(usize::from(stream.0)) {
            runs.extend(numbers);
        }
    }

    /// A number of a worker is over the limit, and goes nowhere.
    pub fn refuse_here(&mut self, worker: WorkerId, number: u64) {
        let index = usize::from(worker.0);
        let refused = self.refused[index].entry(RefusedBy::Place).or_default();
        push_number(refused, number);
        push_number(&mut self.refused_here[index], number);
    }

    /// Makes a worker refuse numbers of its own when they are acknowledged; it has this stream.
    pub fn refuse(
        &mut self,
        stream: StreamId,
        by: RefusedBy,
        numbers: impl IntoIterator<Item = (u64, u64)>,
    ) {
        if let Some(refused) = self.refused.get_mut(usize::from(stream.0)) {
            refused.entry(by).or_default().extend(numbers);
        }
    }

    /// A node gets its credit for these bytes back when the workers have taken enough.
    pub fn owe(&mut self, slot: NodeSlot, incarnation: Incarnation, bytes: u64) {
        *self.owed.entry((slot, incarnation)).or_default() += bytes;
    }

    /// What is owed to other nodes; nothing is from then on.
    pub fn take_owed(&mut self) -> BTreeMap<(NodeSlot, Incarnation), u64> {
        std::mem::take(&mut self.owed)
    }

    pub const fn hold_acknowledgements(&mut self, holds: bool) {
        self.holds_acknowledgements = holds;
    }

    /// Turns everything into messages.
    pub fn seal(&mut self, outputs: &mut VecDeque<HubOutput>) {
        for index in 0..self.records.len() {
            let to = WorkerId(index as u8);
            for (_, bytes) in &self.records[index] {
                self.flow_control.hand(index, bytes.len() as u64);
            }
            let mut send = |content| {
                outputs.push_back(HubOutput::WorkerMessage {
                    to,
                    message: WorkerMessage(content),
                })
            };
            for (origin, bytes) in self.records[index].drain(..) {
                send(ToWorker::Records { origin, bytes });
            }
            // Refused first: an acknowledgement may be the last one that a number waits for.
            for (by, numbers) in std::mem::take(&mut self.refused[index]) {
                send(ToWorker::Refused { by, numbers });
            }
            if !self.refused_here[index].is_empty() {
                let numbers = std::mem::take(&mut self.refused_here[index]);
                send(ToWorker::Acknowledged(numbers));
            }
            if !self.acknowledged[index].is_empty() && !self.holds_acknowledgements {
                send(ToWorker::Acknowledged(std::mem::take(
                    &mut self.acknowledged[index],
                )));
            }
        }
    }

    /// Adds a batch to those of a worker.
    pub fn add_records(&mut self, worker: WorkerId, origin: Origin, records: Vec<u8>) {
        let batches = &mut self.records[usize::from(worker.0)];
        match batches.last_mut() {
            Some((last, bytes)) if *last == origin => bytes.extend_from_slice(&records),
            Some(_) | None => batches.push((origin, records)),
        }
    }

    pub fn add_record(&mut self, worker: WorkerId, origin: Origin, record: &[u8]) {
        let batches = &mut self.records[usize::from(worker.0)];
        match batches.last_mut() {
            Some((last, bytes)) if *last == origin => bytes.extend_from_slice(record),
            Some(_) | None => batches.push((origin, record.to_vec())),
        }
    }
}

/// What became of a record that was handed to the overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// It has no destination that is up.
    Nobody,
    /// It is on its way, and acknowledged later if it has a number.
    Sent,
    /// It is over the limit: the worker is informed.
    Refused,
}
