//! One node of the simulation: an overlay, and a model of its hub and workers that remembers everything.

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::{
    Incarnation, InterestKey, InterestValue, LinkId, NodeId, NodeSlot, Origin, Overlay, StreamId,
};

/// Names a message in the whole simulation: node, life, stream, number.
pub type MessageName = (usize, usize, u16, u64);

/// What a node does later by itself.
pub enum Later {
    Admit(Origin, u64, MessageName),
    Release(NodeSlot, Incarnation, u64),
    Applied(NodeSlot, u64, u32, usize),
    Dial(String),
    Writable(LinkId),
}

/// A message on its way, as its origin sees it.
#[derive(Default)]
pub struct Sent {
    /// Node and life of each destination still waited for: not declared out since.
    pub destinations: BTreeMap<NodeSlot, (usize, usize)>,
    pub is_acknowledged: bool,
}

/// One start of a node.
pub struct Life {
    pub overlay: Overlay,
    pub first_incarnation: u64,
    pub links: BTreeMap<LinkId, (usize, usize)>,
    /// Their numbers are free when the round has ended.
    pub removed: BTreeSet<LinkId>,
    pub later: Vec<(u64, Later)>,
    pub up: BTreeMap<NodeSlot, usize>,
    pub own: BTreeMap<InterestKey, InterestValue>,
    pub tables: BTreeMap<NodeSlot, BTreeMap<InterestKey, InterestValue>>,
    /// The mark its workers knew of each life of another node, at any time.
    pub ever_applied: BTreeMap<(usize, usize), u32>,
    /// Versions of its own interests and their marks.
    pub marks: BTreeMap<u64, u32>,
    pub numbers: BTreeMap<StreamId, u64>,
    pub sent: BTreeMap<(u16, u64), Sent>,
    pub delivered: BTreeSet<MessageName>,
    /// The last number delivered of each stream, to see the order.
    pub last_delivered: BTreeMap<(usize, usize, u16), u64>,
    pub out_of_order: usize,
    pub admitted: BTreeSet<MessageName>,
    pub plain_sent: u64,
    pub plain_delivered: u64,
    /// Control sent to and received from each slot since it came up.
    pub control_sent: BTreeMap<NodeSlot, u64>,
    pub control_received: BTreeMap<NodeSlot, Vec<u64>>,
    pub control_lost: BTreeSet<NodeSlot>,
    /// Slots that were declared out at least once.
    pub went_out: BTreeSet<NodeSlot>,
    pub jumps: usize,
    pub events: Vec<String>,
    /// Rounds at the same instant, to see a machine that spins.
    pub rounds_now: (u64, usize),
}

impl Life {
    pub fn new(overlay: Overlay, first_incarnation: u64) -> Self {
        Self {
            overlay,
            first_incarnation,
            links: BTreeMap::new(),
            removed: BTreeSet::new(),
            later: Vec::new(),
            up: BTreeMap::new(),
            own: BTreeMap::new(),
            tables: BTreeMap::new(),
            ever_applied: BTreeMap::new(),
            marks: BTreeMap::new(),
            numbers: BTreeMap::new(),
            sent: BTreeMap::new(),
            delivered: BTreeSet::new(),
            last_delivered: BTreeMap::new(),
            out_of_order: 0,
            admitted: BTreeSet::new(),
            plain_sent: 0,
            plain_delivered: 0,
            control_sent: BTreeMap::new(),
            control_received: BTreeMap::new(),
            control_lost: BTreeSet::new(),
            went_out: BTreeSet::new(),
            jumps: 0,
            events: Vec::new(),
            rounds_now: (0, 0),
        }
    }

    pub fn free_link(&self) -> LinkId {
        (0..)
            .map(LinkId)
            .find(|id| !self.links.contains_key(id) && !self.removed.contains(id))
            .expect("few links")
    }

    pub fn never_out(&self, slot: &NodeSlot) -> bool {
        !self.went_out.contains(slot)
    }

    /// Takes what is due.
    pub fn take_later(&mut self, now: u64) -> Vec<Later> {
        let (due, later) = std::mem::take(&mut self.later)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.later = later;
        due.into_iter().map(|(_, what)| what).collect()
    }

    pub fn next_wake(&self) -> Option<u64> {
        let timeout = self.overlay.poll_timeout().map(|at| at.as_millis());
        self.later.iter().map(|(at, _)| *at).chain(timeout).min()
    }
}

/// A node over all its starts.
pub struct Node {
    pub id: NodeId,
    pub address: String,
    pub incarnation: u64,
    /// The last one is the present one.
    pub lives: Vec<Life>,
    pub is_alive: bool,
}

impl Node {
    pub fn life(&mut self) -> &mut Life {
        self.lives.last_mut().expect("every node was started")
    }
}
