//! What other nodes had kept for this one, on its way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use thicket_overlay::NodeId;
use thicket_session::time::Instant;

use crate::{Remembered, messages::Origin};

/// Messages remembered, so that none is accepted twice, from whichever node.
pub(in crate::hub) const REMEMBERED: usize = 100_000;

/// A copy that was on its way over a tree when its destination was down, and that a third node held, arrives within this time.
pub(in crate::hub) const HELD_COPIES: Duration = Duration::from_secs(30);

/// The identity of a message: its origin and its number there.
pub(in crate::hub) type Name = (Origin, u64);

/// What a node sent before this one was ready to serve.
#[derive(Debug)]
pub(in crate::hub) struct Early {
    pub from: NodeId,
    pub at: Instant,
    /// Serials, origins and records.
    pub hints: Vec<(u64, Origin, Vec<u8>)>,
}

/// Messages that one node sent together.
#[derive(Debug)]
pub(in crate::hub) struct Batch {
    pub from: NodeId,
    pub upto: u64,
    /// Those that workers have not accepted yet.
    pub open: BTreeSet<Name>,
}

/// What was kept for this node and has arrived.
#[derive(Debug, Default)]
pub(in crate::hub) struct HintArrivals {
    /// By sender: no more than senders have under way (`WINDOW_BYTES`) and a batch.
    pub early: Vec<Early>,
    pub batches: VecDeque<Batch>,
    /// With the number of workers that have not accepted them.
    pub under_way: BTreeMap<Name, u32>,
    /// Kept messages that also arrived from their origin, and are not admitted yet.
    pub doubled: BTreeSet<Name>,
    pub taken: BTreeSet<Name>,
    /// Of `taken`: the first one is forgotten first.
    pub order: VecDeque<Name>,
    /// When the last one arrived.
    pub last_at: Option<Instant>,
}

impl HintArrivals {
    /// Whether a message arrives for the first time.
    pub fn note(&mut self, name: Name) -> bool {
        if !self.taken.insert(name) {
            return false;
        }
        self.order.push_back(name);
        if self.order.len() > REMEMBERED
            && let Some(first) = self.order.pop_front()
        {
            self.taken.remove(&first);
        }
        true
    }

    /// Whether messages that others kept arrived a moment ago, so that a copy of one may arrive from its origin.
    pub fn may_come_again(&mut self, now: Instant) -> bool {
        if self.last_at.is_some_and(|at| at + HELD_COPIES <= now) {
            thicket_session::reach!("time HELD_COPIES");
            self.last_at = None;
        }
        self.last_at.is_some()
    }

    /// The identities that are remembered.
    pub fn remembered(&self) -> Remembered {
        let what = "messages that other nodes had kept";
        Remembered::new(what, self.order.len(), REMEMBERED)
    }

    /// Whether a message arrived from a node that had kept it.
    pub fn has(&self, origin: Origin, number: u64) -> bool {
        self.taken.contains(&(origin, number))
    }

    /// A message is accepted.
    pub fn close(&mut self, name: Name) {
        for batch in &mut self.batches {
            batch.open.remove(&name);
        }
    }

    /// The node is down: it sends again what was not acknowledged.
    pub fn lose_node(&mut self, node: NodeId) {
        self.early.retain(|early| early.from != node);
        self.batches.retain(|batch| batch.from != node);
    }
}
