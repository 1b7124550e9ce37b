//! Where clients are and should be: the load of each node and what is published where, clients that are sent to another node, placed, or moved.
//!
//! | part | has |
//! | --- | --- |
//! | `load` | the load of each node, and where clients reach it |
//! | `sites` | the site of each node, and what messages between nodes cost |
//! | `topics` | how often clients publish to which topics, by node |
//! | `redirection` | clients that were sent to another node, when they connected or later |
//! | `placements` | clients that asked where their sessions should be, and what is learned of those that did not |
//! | `rebalance` | the moves that the rebalancer plans and orders |
//!
//! The types of the parts are in `state`.
//!
//! It decides where a client should be. The session then moves as after any CONNECT at another node, which is not handled here.

mod load;
mod placements;
mod rebalance;
mod recent;
mod redirection;
mod sites;
mod state;
mod topics;

pub use self::rebalance::{RebalanceDone, RebalanceTask};

use std::collections::VecDeque;

use thicket_overlay::{NodeId, NodeSlot};
use thicket_placement::SitePrices;

use self::{
    sites::Sites,
    state::{
        load::Loads, placements::Placements, rebalance::Rebalance, redirection::Redirection,
        topics::Topics,
    },
};
use super::context::Context;
use crate::{HubConfig, NodeState, Now, Remembered, WorkerId, messages::Claim};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Placing {
    loads: Loads,
    sites: Sites,
    topics: Topics,
    redirection: Redirection,
    placements: Placements,
    rebalance: Rebalance,
    /// CONNECTs that asked for a placement and have an answer, placed or not.
    answered: VecDeque<(WorkerId, Claim)>,
}

impl Placing {
    pub(in crate::hub) fn new(config: &HubConfig, seed: u64) -> Self {
        Self {
            loads: Loads::new(
                config.redirection.addresses.clone(),
                config.redirection.http_address.clone(),
            ),
            sites: Sites::new(config),
            topics: Topics::default(),
            redirection: Redirection::new(config, seed),
            placements: Placements::default(),
            rebalance: Rebalance::new(config),
            answered: VecDeque::new(),
        }
    }

    /// Another node is up, or may have lost what it was sent: it is sent everything.
    pub(in crate::hub) fn send_all_to(&mut self, cx: &mut Context, slot: NodeSlot, node: NodeId) {
        self.send_load(cx, slot, node);
        self.send_all_topics(cx, slot, node);
        self.send_placements(cx, node);
    }

    pub(in crate::hub) fn lose_node(&mut self, cx: &mut Context, now: Now, node: NodeId) {
        self.sites.forget(node);
        self.loads_lose_node(cx, now, node);
        self.topics_lose_node(node);
        self.stop_sending_placements(node);
        self.ask_placer_again(cx, now);
        self.rebalance_loses_node(cx, now, node);
    }

    /// The state of this node, or of one that is up and has sent it.
    pub(in crate::hub) fn state_of(&self, cx: &Context, node: NodeId) -> Option<&NodeState> {
        if node == cx.own() {
            Some(self.loads.own())
        } else {
            self.loads.of(node)
        }
    }

    /// The site of a node; `None`: it has none, or it is not known.
    pub(in crate::hub) fn site_of(&self, node: NodeId) -> Option<&str> {
        self.sites.of(node)
    }

    /// See [`crate::HubView::site_prices`].
    pub(in crate::hub) const fn site_prices(&self) -> &SitePrices {
        self.sites.prices()
    }

    /// Another node has announced its site, or that it has none.
    pub(in crate::hub) fn learn_site(&mut self, node: NodeId, site: Option<&str>) {
        self.sites.learn(node, site);
    }

    /// Whether a client that connects to another node follows its placement, or was redirected by this node.
    pub(in crate::hub) fn is_redirected_or_placed(&self, now: Now, name: &str) -> bool {
        self.is_placed(now, name) || self.has_redirected(now, name)
    }

    /// The next CONNECT that asked for a placement and is to be served.
    pub(in crate::hub) fn next_answered(&mut self) -> Option<(WorkerId, Claim)> {
        self.answered.pop_front()
    }

    /// The caches about former clients.
    pub(in crate::hub) fn remembered(&self) -> Vec<Remembered> {
        let mut all = vec![self.placements.remembered(), self.rebalance.remembered()];
        all.extend(self.redirection.remembered());
        all
    }
}
