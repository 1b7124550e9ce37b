//! Requests to the rebalancer and its answers: JSON over HTTP, and between nodes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether clients are moved to where there is capacity and where their topics are. The same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RebalanceMode {
    /// No.
    #[default]
    Off,
    /// Moves are reported; no client is moved unless an operator orders it.
    Suggest,
    /// Yes.
    On,
}

impl RebalanceMode {
    /// The name users give.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Suggest => "suggest",
            Self::On => "on",
        }
    }
}

/// When connected clients are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RebalanceConfig {
    /// Whether.
    pub mode: RebalanceMode,
    /// In this time a client is moved at most once.
    pub rest: Duration,
    /// Time between two examinations of what clients do, if something has changed; after moves twice that.
    pub interval: Duration,
    /// A load or rate that differs by less, in messages a second, has not changed.
    pub noise: u32,
}

impl Default for RebalanceConfig {
    fn default() -> Self {
        Self {
            mode: RebalanceMode::Off,
            rest: Duration::from_secs(60),
            interval: Duration::from_secs(5),
            noise: 20,
        }
    }
}

/// What is asked of the rebalancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RebalanceWish {
    /// What it planned last.
    Show,
    /// A new plan that is not carried out.
    DryRun,
    /// A new plan, and to carry it out.
    Move,
}

impl RebalanceWish {
    /// All, by their number on links.
    pub(crate) const ALL: [Self; 3] = [Self::Show, Self::DryRun, Self::Move];
}

/// What the rebalancer has planned and done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RebalanceReport {
    /// The identity of the node that is the rebalancer now.
    pub rebalancer: String,
    /// `off`, `suggest` or `on`.
    pub mode: String,
    /// What it does: `idle`, `gathering`, `planning` or `moving`.
    pub state: String,
    /// The last plan; none: it has made none since it is the rebalancer.
    #[schema(required)]
    pub plan: Option<RebalancePlan>,
    /// Nodes that the load needs, with hysteresis; none: a node does not know its CPU.
    #[schema(required)]
    pub desired_nodes: Option<usize>,
    /// With fewer nodes desired than there are: the identity of the node that is cheapest to empty, by `thicket ctl drain`.
    #[schema(required)]
    pub cheapest_to_empty: Option<String>,
}

/// A plan, and what it gains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RebalancePlan {
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// Why it was made: `started`, `nodes`, `load`, `traffic` or `asked`.
    pub trigger: String,
    /// Clients that were looked at.
    pub clients: usize,
    /// How many of them could be moved.
    pub movable: usize,
    /// Before.
    pub before: BalanceEntry,
    /// If all moves are carried out and followed.
    pub after: BalanceEntry,
    /// Whether they are carried out.
    pub carried_out: bool,
    /// How many moves there are.
    pub move_count: usize,
    /// Of these, how many were ordered so far.
    pub ordered: usize,
    /// The first ones, a thousand at most, in their order.
    pub moves: Vec<MoveEntry>,
}

/// How even the nodes are, and what crosses between them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Balance)]
pub struct BalanceEntry {
    /// Messages a second between nodes.
    pub internal_messages_per_s: f64,
    /// Jain's index of the loads of the nodes over their shares.
    pub jain: f64,
    /// The highest load, as a multiple of the mean.
    pub peak: f64,
}

/// One move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Move)]
pub struct MoveEntry {
    /// Whose.
    pub client_id: String,
    /// The identity of the node it is at.
    pub from: String,
    /// The identity of the node it should be at.
    pub to: String,
    /// `load`, `topics` or `drain`.
    pub reason: String,
    /// Internal messages a second that it saves behind the moves before it; negative: it costs some.
    pub saves_messages_per_s: f64,
}

/// Why the rebalancer does not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RebalanceError {
    /// Refused: by the setting.
    #[error("rebalance is off: expected rebalance = \"suggest\" or \"on\"")]
    Off,
    /// Refused: the node does not have the state of the others, or the rebalancer cannot be asked; ask again.
    #[error("the rebalancer cannot be asked now: ask again later")]
    Unsure,
    /// Refused: clients are being moved already; ask again when that is done.
    #[error("clients are being moved already: ask again when that is done")]
    Moving,
}

impl RebalanceError {
    /// All, by their number on links.
    pub(crate) const ALL: [Self; 3] = [Self::Off, Self::Unsure, Self::Moving];
}

/// When a client was last sent from one node to another, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientMove {
    /// Unix time in milliseconds.
    pub at_ms: u64,
    /// The identity of the node that sent it.
    pub from: String,
    /// The identity of the node it was sent to.
    pub to: String,
    /// As of decisions: `rebalanced`, `load`, `topics`, `moved`, `drained`.
    pub reason: String,
    /// What it did: `followed`, `ignored` or, if neither is known, `sent`.
    pub outcome: String,
}

/// Results of moves at one node, since its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RebalanceCounts {
    /// Clients of this node that were sent away, by reason: `drain`, `load`, `topics`.
    pub moves: [u64; 3],
    /// Clients that connected here after they had been sent here.
    pub followed: u64,
    /// Clients that came back here after they had been sent away.
    pub ignored: u64,
    /// Clients that were to go and had gone already, or may not go.
    pub refused: u64,
    /// Plans that this node made as the rebalancer.
    pub plans: u64,
    /// It is the rebalancer.
    pub is_rebalancer: bool,
    /// Nodes that the load needs, if this is the rebalancer and has the data.
    pub desired_nodes: Option<usize>,
}
