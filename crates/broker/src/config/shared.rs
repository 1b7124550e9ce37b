//! Settings that must be the same on all nodes of a cluster. Nodes compare them, and warn where they differ.

use thicket_node::{OnFull, Partition, SessionScope, SharedSetting};
use thicket_overlay::fnv1a;

use super::Config;

/// A longer value is sent as its length and a hash: other nodes ignore it otherwise.
const LONGEST: usize = 400;

impl Config {
    /// Keys and values, as people write them.
    pub(crate) fn shared_settings(&self) -> Vec<SharedSetting> {
        let Self {
            limits, retained, ..
        } = self;
        let partition = match self.partition {
            Partition::Serve => "serve",
            Partition::Majority => "majority",
        };
        let session_scope = match limits.session_scope {
            SessionScope::User => "user",
            SessionScope::Client => "client",
        };
        let on_full = match limits.on_full {
            OnFull::Drop => "drop",
            OnFull::Refuse => "refuse",
        };
        let redirect = match (self.redirect, self.redirect_by_topics) {
            (None, _) => "off".to_owned(),
            (Some(policy), false) => format!("load, by {}", policy.name()),
            (Some(policy), true) => format!("topics, by {}", policy.name()),
        };
        [
            ("routing", self.routing.mode.name().to_owned()),
            ("root_policy", self.routing.root_policy.name().to_owned()),
            ("partition", partition.to_owned()),
            ("redirect", redirect),
            ("rebalance", self.rebalance.mode.name().to_owned()),
            ("site_price", short(self.site_prices.to_string())),
            ("session_scope", session_scope.to_owned()),
            ("on_full", on_full.to_owned()),
            (
                "maximum_packet_size",
                limits.maximum_packet_size.to_string(),
            ),
            ("topic_levels", limits.topic_levels.to_string()),
            ("client_id_bytes", limits.client_id_bytes.to_string()),
            (
                "session_expiry_maximum_s",
                limits.session_expiry_maximum.to_string(),
            ),
            ("retained_messages", retained.messages.to_string()),
            ("retained_bytes", retained.bytes.to_string()),
        ]
        .map(|(key, value)| SharedSetting {
            key: key.to_owned(),
            value,
        })
        .into()
    }
}

fn short(value: String) -> String {
    if value.len() <= LONGEST {
        return value;
    }
    format!("{} bytes, hash {:016x}", value.len(), fnv1a(value.bytes()))
}
