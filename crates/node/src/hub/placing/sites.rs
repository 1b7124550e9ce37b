//! The sites of nodes, and what a message from one node to another costs.
//!
//! Each node announces its site beside its shared settings. Prices are the same on all nodes.

use std::{collections::BTreeMap, sync::Arc};

use thicket_overlay::NodeId;
use thicket_placement::{SitePrices, check_site};

use crate::{HubConfig, hub::context::Context};

/// Nodes with a shorter round trip are at one site if their sites are not configured, milliseconds.
const SITE_MS: u128 = 5;

/// See the module's documentation.
#[derive(Debug)]
pub(in crate::hub) struct Sites {
    prices: SitePrices,
    /// Of nodes that are up and have one, this one included.
    sites: BTreeMap<NodeId, Arc<str>>,
}

impl Sites {
    pub fn new(config: &HubConfig) -> Self {
        let site = config.redirection.site.iter().cloned();
        Self {
            prices: config.redirection.site_prices.clone(),
            sites: site.map(|site| (config.overlay.node, site)).collect(),
        }
    }

    pub const fn prices(&self) -> &SitePrices {
        &self.prices
    }

    /// `None`: it has none, or it is not known.
    pub fn of(&self, node: NodeId) -> Option<&str> {
        self.sites.get(&node).map(|site| &**site)
    }

    /// Another node has announced its settings. What is no name of a site is ignored.
    pub fn learn(&mut self, node: NodeId, site: Option<&str>) {
        match site.filter(|site| check_site(site).is_ok()) {
            Some(site) => self.sites.insert(node, site.into()),
            None => self.sites.remove(&node),
        };
    }

    pub fn forget(&mut self, node: NodeId) {
        self.sites.remove(&node);
    }

    /// Price of a GB from one node to another.
    pub fn price(&self, from: NodeId, to: NodeId) -> f64 {
        if from == to {
            return 0.0;
        }
        self.prices.price(self.of(from), self.of(to))
    }

    /// What a message between two nodes costs, in messages between nodes of one site: by its price if it has one; 1 between nodes of one site;
    /// otherwise one more for each [`SITE_MS`] of round trip.
    pub fn message_cost(&self, cx: &Context, from: NodeId, to: NodeId) -> f64 {
        let (here, there) = (self.of(from), self.of(to));
        if from == to || here.is_some() && here == there {
            return 1.0;
        }
        let by_price = self.prices.cost(here, there, SitePrices::SITE_COST);
        by_price.unwrap_or_else(|| {
            let round_trip = cx.overlay.round_trip(from, to).unwrap_or_default();
            1.0 + (round_trip.as_millis() / SITE_MS) as f64
        })
    }
}
