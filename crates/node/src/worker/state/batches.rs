//! Records on their way to the hub and to other workers, gathered in this round.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use thicket_overlay::{NodeSlot, record::Record};

use crate::{
    Peer, WorkerId, WorkerOutput,
    flow_control::{FlowControl, forward_bytes},
    messages::{
        ForwardEntry, HubMessage, NumberRuns, Origin, ToHub, ToWorker, WorkerMessage, push_number,
    },
};

/// Bytes that a batch begins with at most: as many as the last one had.
const MAXIMUM_RESERVE: usize = 256 * 1024;

/// Records for one other thread, back to back.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<u8>,
    /// Bytes of the batch before it: what this one is likely to need.
    expected: usize,
}

impl Batch {
    /// Where the next record goes.
    fn end(&mut self) -> &mut Vec<u8> {
        if self.records.capacity() == 0 {
            self.records.reserve(self.expected);
        }
        &mut self.records
    }

    /// Takes all of them; another batch begins.
    fn take(&mut self) -> Vec<u8> {
        self.expected = self.records.len().min(MAXIMUM_RESERVE);
        std::mem::take(&mut self.records)
    }
}

/// A record on its way into the batches of all its places: encoded into the first one, copied from there into the others.
#[derive(Debug)]
pub(in crate::worker) struct Leaving<'a> {
    record: Record<'a>,
    /// The batch that has it, and where in it.
    encoded: Option<(usize, Range<usize>)>,
}

impl<'a> Leaving<'a> {
    pub const fn new(record: Record<'a>) -> Self {
        Self {
            record,
            encoded: None,
        }
    }
}

/// What leaves at the end of the round.
#[derive(Debug)]
pub(in crate::worker) struct Batches {
    /// One a worker, then the hub's.
    batches: Vec<Batch>,
    /// What the hub must do with its records.
    entries: Vec<ForwardEntry>,
    /// Numbers of others that were admitted here in this round.
    admitted: Vec<(Peer, Origin, NumberRuns)>,
    /// What the others have not processed yet, by their place in `batches`.
    pub flow_control: FlowControl,
    /// The node that a record was added for alone last.
    alone: Arc<[NodeSlot]>,
}

impl Batches {
    pub fn new(workers: u8) -> Self {
        Self {
            batches: (0..=workers).map(|_| Batch::default()).collect(),
            entries: Vec::new(),
            admitted: Vec::new(),
            flow_control: FlowControl::new(usize::from(workers) + 1),
            alone: Arc::new([]),
        }
    }

    /// The place of another thread.
    #[inline]
    pub fn index_of(&self, peer: Peer) -> usize {
        match peer {
            Peer::Worker(worker) => usize::from(worker.0),
            Peer::Hub => self.hub(),
        }
    }

    /// Another thread reports that it has processed records.
    pub fn note_processed(&mut self, by: Peer, bytes: u64) {
        self.flow_control.note_processed(self.index_of(by), bytes);
    }

    const fn hub(&self) -> usize {
        self.batches.len() - 1
    }

    /// Turns everything into messages.
    pub fn seal(&mut self, origin: Origin, outputs: &mut VecDeque<WorkerOutput>) {
        let hub = self.hub();
        for (index, batch) in self.batches.iter_mut().enumerate() {
            if batch.records.is_empty() {
                continue;
            }
            let bytes = batch.take();
            let output = if index == hub {
                let entries = std::mem::take(&mut self.entries);
                let records = bytes;
                self.flow_control
                    .hand(index, forward_bytes(&records, &entries));
                WorkerOutput::HubMessage(HubMessage(ToHub::Forward { records, entries }))
            } else {
                self.flow_control.hand(index, bytes.len() as u64);
                let to = WorkerId(index as u8);
                let message = WorkerMessage(ToWorker::Records { origin, bytes });
                WorkerOutput::WorkerMessage { to, message }
            };
            outputs.push_back(output);
        }
        for (to, origin, numbers) in self.admitted.drain(..) {
            let output = match to {
                Peer::Worker(to) => {
                    let message = WorkerMessage(ToWorker::Acknowledged(numbers));
                    WorkerOutput::WorkerMessage { to, message }
                }
                Peer::Hub => {
                    WorkerOutput::HubMessage(HubMessage(ToHub::Admitted { origin, numbers }))
                }
            };
            outputs.push_back(output);
        }
    }

    /// Adds a record to the batch of a worker.
    #[inline]
    pub fn add_for_worker(&mut self, worker: WorkerId, leaving: &mut Leaving<'_>) {
        let index = usize::from(worker.0);
        if index < self.hub() {
            self.append(index, leaving);
        }
    }

    /// Adds a record to the batch of the hub, for these nodes.
    #[inline]
    pub fn add_for_nodes(&mut self, destinations: &Arc<[NodeSlot]>, leaving: &mut Leaving<'_>) {
        let len = self.append(self.hub(), leaving);
        let len = u32::try_from(len).expect("a record is little more than a packet");
        let Record { number, qos, .. } = leaving.record;
        if let Some(last) = self.entries.last_mut()
            && last.absorb(len, number, qos, destinations)
        {
            return;
        }
        self.entries.push(ForwardEntry {
            len,
            records: 1,
            destinations: Arc::clone(destinations),
            number,
            qos,
            retain: false,
        });
    }

    /// The same for one node.
    pub fn add_for_node(&mut self, slot: NodeSlot, leaving: &mut Leaving<'_>) {
        if *self.alone != [slot] {
            self.alone = Arc::new([slot]);
        }
        let destinations = Arc::clone(&self.alone);
        self.add_for_nodes(&destinations, leaving);
    }

    /// Adds a record to the batch of the hub, to be retained on every node.
    pub fn add_retained(&mut self, destinations: &Arc<[NodeSlot]>, leaving: &mut Leaving<'_>) {
        let len = self.append(self.hub(), leaving);
        self.entries.push(ForwardEntry {
            len: u32::try_from(len).expect("a record is little more than a packet"),
            records: 1,
            destinations: Arc::clone(destinations),
            number: leaving.record.number,
            qos: leaving.record.qos,
            retain: true,
        });
    }

    /// Appends a record to a batch. Returns its length.
    fn append(&mut self, index: usize, leaving: &mut Leaving<'_>) -> usize {
        let Some((first, range)) = &leaving.encoded else {
            let out = self.batches[index].end();
            let start = out.len();
            leaving.record.encode(out);
            let range = start..out.len();
            let len = range.len();
            leaving.encoded = Some((index, range));
            return len;
        };
        debug_assert_ne!(*first, index, "a place has a record once");
        let source = std::mem::take(&mut self.batches[*first].records);
        self.batches[index]
            .end()
            .extend_from_slice(&source[range.clone()]);
        self.batches[*first].records = source;
        range.len()
    }

    #[inline]
    pub fn admit(&mut self, to: Peer, origin: Origin, number: u64) {
        match self.admitted.last_mut() {
            Some((last_to, last_origin, numbers)) if *last_to == to && *last_origin == origin => {
                push_number(numbers, number)
            }
            Some(_) | None => self.admitted.push((to, origin, vec![(number, number)])),
        }
    }
}
