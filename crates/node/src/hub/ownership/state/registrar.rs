//! What a registrar knows of its client identifiers.

use std::collections::{BTreeMap, VecDeque};

use thicket_overlay::NodeId;
use thicket_session::server::{Epoch, Precedence};

use crate::hub::{
    control::{Grant, Registrable, Registration},
    ownership::ended::Ended,
};

/// Of two nodes that have a session the one with the higher rank keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hub) struct Rank {
    pub precedence: Precedence,
    pub node: NodeId,
}

impl Rank {
    pub const fn new(node: NodeId, registration: Registration<'_>) -> Self {
        let is_connected = matches!(registration.state, Registrable::Connected);
        Self {
            precedence: registration.epoch.precedence(is_connected),
            node,
        }
    }

    pub const fn epoch(&self) -> Epoch {
        self.precedence.epoch()
    }
}

/// A node that has the session too.
#[derive(Debug, Clone, Copy)]
pub(in crate::hub) struct Rival {
    pub rank: Rank,
    pub stage: Eviction,
}

impl Rival {
    pub const fn new(rank: Rank) -> Self {
        Self {
            rank,
            stage: Eviction::Noted,
        }
    }
}

/// The stage of a rival's eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hub) enum Eviction {
    /// Not all have registered: the one that stays may be down, and its backup promoted.
    Noted,
    /// It was sent the eviction.
    Sent,
    /// It has answered that what it has is nowhere else.
    Contested,
    /// The primary merges that.
    Merging,
}

/// The registrar's state of a client identifier.
#[derive(Debug, Default)]
pub(in crate::hub) struct Registered {
    /// The node that has the session.
    pub primary: Option<Rank>,
    /// Of the last claim granted.
    pub epoch: Epoch,
    pub claimed_by: Option<NodeId>,
    /// Nodes that have it too and have not ended it.
    pub rivals: BTreeMap<NodeId, Rival>,
    /// The nodes that claim next, with the number of the claim; each node once.
    pub line: VecDeque<(NodeId, u64)>,
}

/// The client identifiers that this node is the registrar of.
#[derive(Debug, Default)]
pub(in crate::hub) struct Registrar {
    pub known: BTreeMap<String, Registered>,
    /// Answers to an earlier round are void.
    pub round: u64,
    /// The view under which each node has registered, in this round.
    pub registered: BTreeMap<NodeId, u64>,
    pub ended: Ended,
}

impl Registrar {
    /// What a node has registered is void: it registers again.
    pub fn forget(&mut self, node: NodeId) {
        self.registered.remove(&node);
        self.known.retain(|_, known| {
            if known.is_owned_by(node) {
                known.primary = None;
            }
            if known.claimed_by == Some(node) {
                known.claimed_by = None;
                known.claim_ends();
            }
            known.line.retain(|(waiting, _)| *waiting != node);
            known.rivals.remove(&node);
            !known.is_unused()
        });
    }

    pub fn drop_unused(&mut self, client_id: &str) {
        if self.known.get(client_id).is_some_and(Registered::is_unused) {
            self.known.remove(client_id);
        }
    }
}

impl Registered {
    pub fn is_owned_by(&self, node: NodeId) -> bool {
        self.primary.is_some_and(|primary| primary.node == node)
    }

    /// Takes the rival with the highest rank, if its epoch is above that.
    pub fn best_rival_above(&mut self, epoch: Epoch) -> Option<Rank> {
        let ranks = self.rivals.values().map(|it| it.rank);
        let best = ranks.filter(|rank| rank.epoch() > epoch).max()?;
        self.rivals.remove(&best.node);
        Some(best)
    }

    /// Rivals that did not answer may answer now: the branch of one was merged, and it has ended its session; or that failed.
    pub fn claim_ends(&mut self) {
        for rival in self.rivals.values_mut() {
            if rival.stage != Eviction::Contested {
                rival.stage = Eviction::Noted;
            }
        }
    }

    pub fn is_unused(&self) -> bool {
        let is_wanted = self.claimed_by.is_some() || !self.line.is_empty();
        self.primary.is_none() && self.rivals.is_empty() && !is_wanted
    }

    /// The epoch of a claim by a node. A backup that is promoted after the death of a node that had just handed its session over has less.
    pub fn claim(&mut self, unix_ms: u64, by: NodeId) -> Epoch {
        self.claimed_by = Some(by);
        self.epoch = self.epoch.next_claim(unix_ms);
        self.epoch
    }

    /// The epoch under which a node merges a branch: above those of all that have the session, and none of a later client. A node that this one does
    /// not see may have the client, and keeps it when they link.
    pub fn claim_merge(&mut self, by: NodeId) -> Epoch {
        self.claimed_by = Some(by);
        let rivals = self.rivals.values().map(|rival| rival.rank.epoch());
        let highest = rivals.chain(self.primary.map(|it| it.epoch())).max();
        let epoch = highest.unwrap_or_default().next_merge();
        self.epoch = self.epoch.max(epoch);
        epoch
    }

    pub fn grant(&mut self, unix_ms: u64, to: NodeId) -> Grant {
        let primary = self.primary.map(|primary| primary.node);
        Grant {
            epoch: self.claim(unix_ms, to),
            source: primary.filter(|primary| *primary != to),
        }
    }
}
