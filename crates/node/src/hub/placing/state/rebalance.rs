//! Rebalancing under way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use thicket_overlay::NodeId;
use thicket_placement::{MoveReason, Placement, Sizing};
use thicket_session::time::Instant;

use super::{ask::Asks, gather::Gathering, orders::LastMove};
use crate::{
    HubConfig, RebalanceCounts, RebalancePlan, Remembered,
    hub::placing::{rebalance::trend::Trend, recent::Recent},
};

/// How long a move is remembered, unless the rest is longer.
pub(in crate::hub) const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// A node's state of rebalancing.
#[derive(Debug)]
pub(in crate::hub) struct Rebalance {
    pub phase: Phase,
    pub trend: Trend,
    /// As of the last plan.
    pub planned_at: Option<Trend>,
    /// The last plan moved clients: what they did to the loads is to be checked, until a plan moves nobody.
    pub has_moved: bool,
    pub plan: Option<RebalancePlan>,
    pub last_round: u64,
    /// Nothing is gathered before.
    pub not_before: Instant,
    pub sizing: Sizing,
    pub asks: Asks,
    /// Clients that were sent anywhere, by any node.
    pub moved: Recent<LastMove>,
    pub counts: RebalanceCounts,
}

/// What the rebalancer does.
#[derive(Debug)]
pub(in crate::hub) enum Phase {
    Idle,
    Gathering(Box<Gathering>),
    Planning(Planning),
    Moving(VecDeque<Ordered>),
}

impl Phase {
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Gathering(_) => "gathering",
            Self::Planning(_) => "planning",
            Self::Moving(_) => "moving",
        }
    }
}

/// A plan that is being made, on another thread.
#[derive(Debug)]
pub(in crate::hub) struct Planning {
    pub round: u64,
    pub trigger: &'static str,
    pub carries_out: bool,
    /// Nodes that have gone down since.
    pub lost: BTreeSet<NodeId>,
}

/// A move that is to be ordered.
#[derive(Debug, Clone)]
pub(in crate::hub) struct Ordered {
    pub client_id: Arc<str>,
    pub from: NodeId,
    pub to: NodeId,
    pub reason: MoveReason,
    /// It may have several sessions: these, and up to this many.
    pub placement: Option<Box<(Placement, u8)>>,
}

impl Rebalance {
    pub fn new(config: &HubConfig) -> Self {
        let rest = config.redirection.rebalance.rest;
        Self {
            phase: Phase::Idle,
            trend: Trend::default(),
            planned_at: None,
            has_moved: false,
            plan: None,
            last_round: 0,
            not_before: Instant::default(),
            sizing: Sizing::default(),
            asks: Asks::default(),
            moved: Recent::new(rest.max(KNOWN_FOR)),
            counts: RebalanceCounts::default(),
        }
    }

    /// The clients that are remembered.
    pub fn remembered(&self) -> Remembered {
        self.moved.remembered("clients moved lately")
    }
}

/// Orders of one second by where the clients are, where they go and why.
pub(in crate::hub) type Orders = BTreeMap<(NodeId, NodeId, usize), Vec<Arc<str>>>;
