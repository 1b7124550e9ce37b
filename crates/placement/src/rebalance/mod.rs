//! Which connected clients should be at another node: load moves to where there is capacity, and clients to where their topics are.
//!
//! [`plan_moves`] is a pure function of a [`Situation`]: the nodes, the clients with their rates and topics, and what is measured of topics. It
//! orders whole sessions: a client is at one node, with all its topics. Three passes, each of which may move a client only once:
//!
//! 1. *Drain*: clients at a node that drains go to the best other one.
//! 2. *Level*: if a node has more than gamma times its share of the load, or less than [`COLD`] times, clients go from those with more than
//!    their share to those with less, those first that cost least internal traffic.
//! 3. *Gather*: clients go where their topics are within their site, again and again until that gains hardly anything, as in our own placement
//!    strategy; never onto a node that would have more than gamma times its share. All of that is left out if it gains less than [`WORTH_SHARE`] of
//!    the internal traffic.
//!
//! Internal traffic counts by its distance wherever it is weighed: a message between two sites counts as several.
//!
//! Constant load settles: a plan that was carried out leaves nothing to do, since each pass begins at a wider bound than the one it ends at.
//! Publishers without subscribers at their node follow these in the third pass: it costs nothing to be at the wrong node, until there are
//! subscribers.

mod board;
mod passes;
mod placements;
mod replan;
mod sizing;
#[cfg(test)]
mod tests;

use crate::distance::Distances;
use crate::error::{ParameterError, check_rate};
use crate::ids::TopicId;
use crate::model::jain;
use board::Board;

pub use placements::{Placeable, PlacementPlan, PlannedSession, plan_placements};
pub use replan::{Attached, replan};
pub use sizing::{Sizing, SizingReading};

/// What a connection counts in the load of a node beside its messages, in messages a second: so idle clients are spread too.
pub const CONNECTION_LOAD: f64 = 0.1;
/// A node with less than this part of its share of the load gets some.
pub const COLD: f64 = 0.8;
/// Clients are gathered only if that saves this part of the internal traffic.
pub const WORTH_SHARE: f64 = 0.1;
/// A move must save this many internal messages a second: it costs some twenty, and pays within a minute.
pub const WORTH_RATE: f64 = 0.3;

/// A node as the rebalancer sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RebalanceNode {
    /// Its identity, the caller's.
    pub key: u64,
    /// Its capacity, compared with the others: its share of the load is proportional to this. Above 0.
    pub capacity: f64,
    /// It accepts clients: neither full, nor of another side, nor draining.
    pub takes_clients: bool,
    /// Its clients must leave.
    pub is_draining: bool,
    /// Messages a second of clients that are not in the situation.
    pub unnamed_load: f64,
}

/// A connected client.
#[derive(Debug, Clone, PartialEq)]
pub struct RebalanceClient {
    /// Where it is: index of a node of the situation.
    pub node: usize,
    /// Messages a second, from it and to it.
    pub rate: f64,
    /// What it publishes to, each topic once, with messages a second.
    pub publishes: Vec<(TopicId, f64)>,
    /// What it receives, each topic once.
    pub subscribes: Vec<TopicId>,
    /// It understands a move, follows as far as is known, and was not moved lately.
    pub may_move: bool,
}

impl RebalanceClient {
    fn load(&self) -> f64 {
        self.rate + CONNECTION_LOAD
    }
}

/// What a plan is made from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Situation {
    /// In any order.
    pub nodes: Vec<RebalanceNode>,
    /// In any order.
    pub clients: Vec<RebalanceClient>,
    /// Topics, numbered from 0.
    pub topic_count: usize,
    /// Messages a second that are published to a topic at a node (its index), as measured there; each pair once. What the listed clients publish is
    /// part of it, and need not be included.
    pub measured: Vec<(TopicId, usize, f64)>,
    /// The costs of messages between two nodes. A client is near the node where it is.
    pub distances: Distances,
}

/// Limits of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RebalanceLimits {
    /// How far above its share the load of a node may be (gamma), at least 1.
    pub gamma: f64,
    /// Moves of one plan.
    pub moves: usize,
}

impl Default for RebalanceLimits {
    fn default() -> Self {
        Self {
            gamma: 1.1,
            moves: 10_000,
        }
    }
}

/// Why a client should move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoveReason {
    /// Its node drains.
    Drain,
    /// The load of its node is higher than another one's.
    Load,
    /// Its topics are at another node.
    Topics,
}

impl MoveReason {
    /// All, by their number on links.
    pub const ALL: [Self; 3] = [Self::Drain, Self::Load, Self::Topics];

    /// The name users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Load => "load",
            Self::Topics => "topics",
        }
    }
}

/// One client that should be elsewhere.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Move {
    /// Index of the client in the situation.
    pub client: usize,
    /// Index of the node it is at.
    pub from: usize,
    /// Index of the node it should be at.
    pub to: usize,
    /// Why.
    pub reason: MoveReason,
    /// Internal messages a second that it saves, behind the moves before it, each counted by its distance; negative if it costs some.
    pub saves: f64,
}

/// The cluster at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Balance {
    /// Internal traffic, messages a second, if each node is sent a message once.
    pub internal: f64,
    /// Jain's index of the loads over their shares, of the nodes that accept clients.
    pub jain: f64,
    /// The highest of these, as a multiple of the mean.
    pub peak: f64,
}

/// What should move, and what that gains.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In the order in which they should be carried out.
    pub moves: Vec<Move>,
    /// Before any of them.
    pub before: Balance,
    /// After all of them.
    pub after: Balance,
}

/// Plans moves for a situation. The same situation gives the same plan.
///
/// # Errors
/// A number is not one, or an index names no node or topic.
pub fn plan_moves(situation: &Situation, limits: RebalanceLimits) -> Result<Plan, ParameterError> {
    check(situation, limits)?;
    let start = Board::new(situation, limits.gamma);
    let before = start.balance();
    let wanted = passes::wanted(situation, &start);
    let (moves, after) = passes::in_order(situation, start, &wanted, limits.moves);
    Ok(Plan {
        moves,
        before,
        after,
    })
}

fn check(situation: &Situation, limits: RebalanceLimits) -> Result<(), ParameterError> {
    let wrong = |name, why: &str, value: usize| Err(ParameterError::new(name, why, value));
    if !(limits.gamma.is_finite() && limits.gamma >= 1.0) {
        return Err(ParameterError::new(
            "gamma",
            "must be at least 1",
            limits.gamma,
        ));
    }
    for node in &situation.nodes {
        check_rate("unnamed_load", node.unnamed_load)?;
        if !(node.capacity.is_finite() && node.capacity > 0.0) {
            return Err(ParameterError::new(
                "capacity",
                "must be above 0",
                node.capacity,
            ));
        }
    }
    let is_topic = |topic: TopicId| topic.index() < situation.topic_count;
    for client in &situation.clients {
        check_rate("rate", client.rate)?;
        if client.node >= situation.nodes.len() {
            return wrong("node", "must be the index of a node", client.node);
        }
        for (topic, rate) in &client.publishes {
            check_rate("rate", *rate)?;
            if !is_topic(*topic) {
                return wrong("topic", "must be below the number of topics", topic.index());
            }
        }
        if let Some(topic) = client.subscribes.iter().find(|topic| !is_topic(**topic)) {
            return wrong("topic", "must be below the number of topics", topic.index());
        }
    }
    for (topic, node, rate) in &situation.measured {
        check_rate("rate", *rate)?;
        if !is_topic(*topic) || *node >= situation.nodes.len() {
            return wrong("measured", "must name a topic and a node", *node);
        }
    }
    Ok(())
}

/// Jain's index and the peak of `loads`.
fn fairness(loads: &[f64]) -> (f64, f64) {
    let total: f64 = loads.iter().sum();
    if total <= 0.0 {
        return (1.0, 1.0);
    }
    let highest = loads.iter().copied().fold(0.0, f64::max);
    (jain(loads), highest * loads.len() as f64 / total)
}
