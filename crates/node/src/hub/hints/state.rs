//! What is kept for nodes that are down, and what waits for that.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use thicket_overlay::{Abandoned, NodeId, NodeSlot, StreamId};
use thicket_session::time::Instant;

use super::{
    absent::{Absent, Matching},
    arrivals::HintArrivals,
    queue::HintQueue,
    wire::Backups,
};
use crate::{HintsReport, messages::NumberRuns};

/// The limit for all nodes together, as a multiple of the limit for one node.
pub(in crate::hub) const TOTAL_LIMIT: u64 = 4;

/// What a publisher waits for.
#[derive(Debug, Default)]
pub(in crate::hub) struct Waiting {
    /// Nodes that are up have not all admitted the message.
    pub(super) is_under_way: bool,
    /// For how many nodes that are down it is not held twice yet.
    pub(super) unheld: u32,
    /// It was over the limit.
    pub(super) is_refused: bool,
}

/// Messages for nodes of which it is not decided yet whether they are down. The limit is that of one node that is down.
#[derive(Debug, Default)]
pub(in crate::hub) struct Undecided {
    pub(super) messages: Vec<(NodeSlot, Abandoned)>,
    pub(super) bytes: u64,
}

impl Undecided {
    pub fn push(&mut self, slot: NodeSlot, message: Abandoned) {
        self.bytes += message.record.len() as u64;
        self.messages.push((slot, message));
    }

    /// It is decided whether a node is down: takes the messages for it.
    pub fn take(&mut self, slot: NodeSlot) -> Vec<Abandoned> {
        let is_it = |(of, _): &mut (NodeSlot, Abandoned)| *of == slot;
        let taken = self.messages.extract_if(.., is_it);
        let taken: Vec<Abandoned> = taken.map(|(_, message)| message).collect();
        let bytes = taken.iter().map(|message| message.record.len() as u64);
        self.bytes -= bytes.sum::<u64>();
        taken
    }
}

/// All that is kept for nodes that are down, and the state of these.
#[derive(Debug)]
pub(in crate::hub) struct Hints {
    /// What nodes that are up have reported of their backups.
    pub(super) covered: BTreeMap<NodeId, Option<Vec<Backups>>>,
    pub(super) absent: BTreeMap<NodeId, Absent>,
    /// Nodes that others took over before this one noticed that they are down.
    pub(super) early: BTreeSet<(NodeId, NodeId)>,
    /// Nodes that are back and have not announced their interests yet; what was kept for their own sessions, if anything was.
    pub(super) returning: BTreeMap<NodeSlot, Option<Matching>>,
    pub(super) queues: BTreeMap<NodeId, HintQueue>,
    /// By stream and number.
    pub(super) waiting: BTreeMap<(u16, u64), Waiting>,
    pub(super) undecided: Undecided,
    pub(super) last_serial: u64,
    /// Serials between which each node was down last.
    pub(super) outages: BTreeMap<NodeId, (u64, u64)>,
    /// Until when those that are still down are expected, since one of them is back.
    pub(super) expected_until: Option<Instant>,
    pub(super) dropped: u64,
    pub(super) sweep_at: Instant,
    /// By worker: which nodes have backups of its sessions.
    pub(super) workers: Vec<Option<Vec<Backups>>>,
    /// Nodes that are down and whose sessions have failed over to this one.
    pub(super) took_over: BTreeSet<NodeId>,
    pub arrivals: HintArrivals,
}

impl Hints {
    pub fn new(workers: u8) -> Self {
        Self {
            covered: BTreeMap::new(),
            absent: BTreeMap::new(),
            early: BTreeSet::new(),
            returning: BTreeMap::new(),
            queues: BTreeMap::new(),
            waiting: BTreeMap::new(),
            undecided: Undecided::default(),
            last_serial: 0,
            outages: BTreeMap::new(),
            expected_until: None,
            dropped: 0,
            sweep_at: Instant::default(),
            workers: vec![Some(Vec::new()); usize::from(workers)],
            took_over: BTreeSet::new(),
            arrivals: HintArrivals::default(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.queues.values().map(HintQueue::bytes).sum()
    }

    /// Whether a record of `len` bytes for a node is within the limit `maximum` of a node, and within that of all nodes.
    pub fn has_capacity(&self, target: NodeId, len: u64, maximum: u64) -> bool {
        let queue = self.queues.get(&target);
        let bytes = queue.map_or(0, HintQueue::bytes);
        bytes + len <= maximum && self.bytes() + len <= maximum.saturating_mul(TOTAL_LIMIT)
    }

    /// What is kept for one node, or for all.
    pub fn report(&self, node: Option<NodeId>) -> HintsReport {
        let is_it = |(of, _): &(&NodeId, &HintQueue)| node.is_none_or(|node| node == **of);
        let queues = || self.queues.iter().filter(is_it).map(|(_, queue)| queue);
        HintsReport {
            messages: queues().map(|queue| queue.len() as u64).sum(),
            bytes: queues().map(HintQueue::bytes).sum(),
            dropped_messages: self.dropped,
        }
    }

    /// Nodes that are down and have sessions that subscribe to the topic, and those that are expected and may have some.
    pub fn recipients(&self, topic: &str) -> (Vec<NodeId>, Vec<NodeId>) {
        let (mut wanting, mut expected) = (Vec::new(), Vec::new());
        for (node, absent) in &self.absent {
            if absent.is_active && absent.wants(topic) {
                wanting.push(*node);
            } else if absent.is_expected {
                expected.push(*node);
            }
        }
        (wanting, expected)
    }

    /// A node is up and has reported itself: no other node has its sessions.
    pub fn forget_early(&mut self, node: NodeId) {
        self.early.retain(|(gone, _)| *gone != node);
    }

    /// Whether no node is down whose sessions messages may have to be kept for.
    pub fn is_idle(&self) -> bool {
        self.absent.is_empty()
    }

    /// The last serial of what waits for a node.
    pub fn mark(&self, node: NodeId) -> u64 {
        self.queues.get(&node).map_or(0, HintQueue::last)
    }

    /// Whether a node has everything up to a serial.
    pub fn has_delivered(&self, node: NodeId, mark: u64) -> bool {
        let queue = self.queues.get(&node);
        mark == 0 || queue.is_none_or(|queue| queue.has_delivered(mark))
    }

    /// Of these numbers of a stream, those whose acknowledgement may leave now. The others are not under way any more.
    pub fn release_acknowledged(
        &mut self,
        stream: StreamId,
        range: &RangeInclusive<u64>,
        runs: &mut NumberRuns,
    ) {
        let (mut next, end) = (*range.start(), *range.end());
        let waiting = self.waiting.range_mut((stream.0, next)..=(stream.0, end));
        for ((_, number), waiting) in waiting {
            waiting.is_under_way = false;
            if next < *number {
                runs.push((next, number - 1));
            }
            next = number + 1;
        }
        if next <= end {
            runs.push((next, end));
        }
    }
}
