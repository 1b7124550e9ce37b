//! What takes long about a plan, for a thread of its own: a second and more with many clients. Other nodes would declare a node down whose hub did
//! nothing else for so long.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use thicket_overlay::NodeId;
use thicket_placement::{Distances, Plan, RebalanceLimits, plan_moves};

use super::{
    Ordered,
    inventory::{Inventory, KnownNode},
    several::Several,
};

/// How far above its share the load of a node may be.
const GAMMA: f64 = 1.1;

/// All that a plan is made from. The shell runs it, and hands the result to the hub.
#[derive(Debug)]
pub struct RebalanceTask {
    pub(super) round: u64,
    pub(super) inventory: Inventory,
    pub(super) nodes: Vec<KnownNode>,
    /// Thousandths of a message a second, by node and topic.
    pub(super) rates: Vec<(NodeId, BTreeMap<Arc<str>, u64>)>,
    /// By client of the inventory: what the rebalancer adds to the report of the client's node.
    pub(super) may_move: Vec<bool>,
    pub(super) several: Several,
    pub(super) distances: Distances,
}

/// A plan, for the hub whose task it was.
#[derive(Debug)]
pub struct RebalanceDone {
    pub(super) round: u64,
    /// `None`: what was gathered makes no sense, which is a fault of ours.
    pub(super) planned: Option<(Plan, VecDeque<Ordered>)>,
    /// Clients that were looked at, and those of them that may move.
    pub(super) counts: (usize, usize),
}

impl RebalanceTask {
    /// Makes the plan.
    #[must_use]
    pub fn run(self) -> RebalanceDone {
        let Self {
            inventory, nodes, ..
        } = &self;
        let rates = self.rates.iter().map(|(node, rates)| (*node, rates));
        let (mut situation, topics) = inventory.situation(nodes, rates, &self.may_move);
        situation.distances = self.distances.clone();
        let limits = RebalanceLimits {
            gamma: GAMMA,
            ..RebalanceLimits::default()
        };
        let several = &self.several;
        let placed = several.plan(&situation, &topics, nodes, inventory, limits);
        let planned = placed.and_then(|placed| match placed {
            Some(placed) => Ok(placed),
            None => plan_moves(&situation, limits).map(|plan| (plan, Vec::new())),
        });
        debug_assert!(planned.is_ok(), "a situation of ours is sound: {planned:?}");
        let planned = planned.ok().map(|(plan, placements)| {
            let mut placements = placements.into_iter();
            let ordered = plan.moves.iter().map(|step| {
                let (from, client_id) = inventory.client(step.client);
                Ordered {
                    client_id: Arc::clone(client_id),
                    from: *from,
                    to: nodes[step.to].node,
                    reason: step.reason,
                    placement: placements.next().map(Box::new),
                }
            });
            let ordered = ordered.collect();
            (plan, ordered)
        });
        let clients = situation.clients.iter();
        let movable = clients.filter(|client| client.may_move).count() + several.len();
        RebalanceDone {
            round: self.round,
            planned,
            counts: (inventory.len(), movable),
        }
    }
}
