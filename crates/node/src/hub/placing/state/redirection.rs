//! Clients that are sent to other nodes.

use std::time::Duration;

use thicket_placement::LoadBalancer;

use super::moving::Moving;
use crate::{
    HubConfig, Remembered,
    hub::placing::{
        recent::{FOLLOWED, Recent},
        redirection::decisions::{Budget, Decisions},
    },
};

/// Nodes report connections and messages of the last second.
pub(in crate::hub) const SHOWN_AFTER_MS: u64 = 2_000;

/// A client that came back instead is left alone for this time.
pub(in crate::hub) const LEFT_ALONE: Duration = Duration::from_secs(3600);

/// A node's state of redirection.
#[derive(Debug)]
pub(in crate::hub) struct Redirection {
    pub balancer: LoadBalancer,
    pub budget: Budget,
    /// Clients that were redirected lately; and whether by this node.
    pub recent: Recent<bool>,
    /// Clients that do not follow.
    pub staying: Recent<()>,
    pub decisions: Decisions,
    pub moving: Moving,
}

impl Redirection {
    pub fn new(config: &HubConfig, seed: u64) -> Self {
        Self {
            balancer: LoadBalancer::new(config.redirection.policy.unwrap_or_default(), seed)
                .with_readings_of(SHOWN_AFTER_MS),
            budget: Budget::new(config.redirection.per_s),
            recent: Recent::new(FOLLOWED),
            staying: Recent::new(LEFT_ALONE),
            decisions: Decisions::default(),
            moving: Moving::Idle,
        }
    }

    /// The clients that are remembered.
    pub fn remembered(&self) -> [Remembered; 3] {
        [
            self.recent.remembered("clients sent elsewhere lately"),
            self.staying.remembered("clients that do not follow"),
            self.decisions.remembered(),
        ]
    }
}
