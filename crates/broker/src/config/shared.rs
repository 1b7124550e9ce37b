//! Settings that must be the same on all nodes of a cluster. Nodes compare them, and warn where they differ.

use thicket_node::{OnFull, Partition, SessionScope, SharedSetting, TenantLimits};
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
            ("inflight_maximum", limits.inflight_maximum.to_string()),
            ("queue_messages", limits.queue_messages.to_string()),
            ("queue_bytes", limits.queue_bytes.to_string()),
            ("subscriptions", limits.subscriptions.to_string()),
            ("retained_messages", retained.messages.to_string()),
            ("retained_bytes", retained.bytes.to_string()),
            ("user_retained_messages", retained.user_messages.to_string()),
            ("user_retained_bytes", retained.user_bytes.to_string()),
            ("tenant", short(tenants_in_words(&self.tenants))),
        ]
        .map(|(key, value)| SharedSetting {
            key: key.to_owned(),
            value,
        })
        .into()
    }
}

/// The same for the same tables, in whichever order they stand.
fn tenants_in_words(tenants: &[TenantLimits]) -> String {
    let in_words = |tenant: &TenantLimits| {
        let TenantLimits {
            topic_prefix,
            sessions,
            queue_bytes,
            retained_messages,
            retained_bytes,
        } = tenant;
        format!(
            "{topic_prefix} sessions {sessions}, queue_bytes {queue_bytes}, retained_messages {retained_messages}, retained_bytes {retained_bytes}"
        )
    };
    let mut tables: Vec<String> = tenants.iter().map(in_words).collect();
    tables.sort();
    match tables.is_empty() {
        true => "none".to_owned(),
        false => tables.join("; "),
    }
}

fn short(value: String) -> String {
    if value.len() <= LONGEST {
        return value;
    }
    format!("{} bytes, hash {:016x}", value.len(), fnv1a(value.bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::checked;

    fn shared(text: &str) -> Vec<(String, String)> {
        let settings = checked(text).expect("good").shared_settings();
        let pairs = settings.into_iter().map(|it| (it.key, it.value));
        pairs.collect()
    }

    #[test]
    fn nodes_compare_what_a_session_meets_when_it_moves_and_what_is_counted_over_all_nodes() {
        let same = shared("");
        for (key, text) in [
            ("topic_levels", "topic_levels = 7"),
            ("inflight_maximum", "inflight_maximum = 7"),
            ("queue_messages", "queue_messages = 7"),
            ("queue_bytes", "queue_bytes = '7 MiB'"),
            ("subscriptions", "subscriptions = 7"),
            ("retained_messages", "retained_messages = 7"),
            ("user_retained_messages", "user_retained_messages = 7"),
            ("user_retained_bytes", "user_retained_bytes = '7 MiB'"),
        ] {
            let other = shared(text);
            let differ = same.iter().zip(&other).filter(|(a, b)| a != b);
            let differ: Vec<&str> = differ.map(|(a, _)| a.0.as_str()).collect();
            assert_eq!(differ, [key], "{text}");
        }
    }

    #[test]
    fn tenants_are_compared_whatever_their_order() {
        let tenant = |settings: &str| {
            let text: String = ["a/", "b/"]
                .map(|prefix| {
                    format!("[[listener]]\naddress = '127.0.0.1:0'\ntopic_prefix = '{prefix}'\n")
                })
                .concat();
            let settings = shared(&format!("{text}{settings}"));
            let found = settings.into_iter().find(|(key, _)| key == "tenant");
            found.expect("it is compared").1
        };
        let (a, b) = (
            "[[tenant]]\ntopic_prefix = 'a/'\n",
            "[[tenant]]\ntopic_prefix = 'b/'\n",
        );
        assert_eq!(tenant(""), "none");
        assert_eq!(tenant(&format!("{a}{b}")), tenant(&format!("{b}{a}")));
        assert_ne!(tenant(a), tenant(b));
        assert_ne!(tenant(a), tenant(&format!("{a}sessions = 7\n")));
        let many: String = (0..60)
            .map(|number| format!("[[listener]]\naddress = '127.0.0.1:0'\ntopic_prefix = 'x{number}/'\n[[tenant]]\ntopic_prefix = 'x{number}/'\n"))
            .collect();
        assert!(tenant(&many).len() < 512, "others ignore longer ones");
    }
}
