//! Which of several sources of a setting wins: flags, environment and file.

use super::settings::Settings;

/// Writes `Settings::or`, so that no field is forgotten: a struct pattern without `..` names them all.
macro_rules! or_each {
    ($($field:ident)*) => {
        impl Settings {
            /// These settings; those that are absent are taken from `other`.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                let Self { $($field),* } = self;
                Self { $($field: $field.or(other.$field)),* }
            }
        }
    };
}

or_each! {
    name cluster_name listen listener tenant bridge hook tls_certificate tls_key tls_client_ca tls_client_certificate websocket_path advertise http probe placement_listen placement_listener seed expect_nodes discover
    multicast_group multicast_ttl multicast_interface multicast_interval_ms dns_name dns_interval_s discovery_grace_ms restart_grace_s
    acl certificate_users jwt_key jwt_algorithm jwt_jwks jwt_oidc_issuer jwt_ca jwt_refresh_s jwt_issuer jwt_audience jwt_user_claim jwt_allow_no_expiry
    auth_hook auth_hook_ca auth_hook_timeout_ms auth_hook_cache_s auth_hook_on_failure http_users http_tokens http_hosts http_connections
    routing root_policy root_alpha root_beta root_gamma root_delta maximum_trees
    workers data sync backups hint_bytes ack partition redirect redirect_policy redirect_refusals redirect_per_s redirect_references rebalance rebalance_rest_s site site_price allow_anonymous users cluster_secret_file link_tls_certificate link_tls_key link_tls_ca insecure_links sandbox log_level log_format
    maximum_packet_size receive_maximum topic_alias_maximum inflight_maximum queue_messages queue_bytes on_full out_buffer_bytes
    subscriptions client_id_bytes session_scope sessions user_sessions address_sessions user_subscription_bytes user_queue_bytes client_messages_per_s client_bytes_per_s topic_levels session_expiry_maximum_s keep_alive_maximum_s connect_timeout_s relocate_after reason_strings connections connections_per_s flapping_connects flapping_window_s flapping_ban_s half_open_bytes memory_bytes
    sys_interval_s otlp_endpoint otlp_ca otlp_headers_file otlp_interval otlp_traces otlp_sample otlp_queue_spans otlp_logs otlp_queue_log_records retained_messages retained_bytes user_retained_messages user_retained_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_first_wins_and_the_rest_is_filled_in() {
        let flags = Settings {
            name: Some("flag".into()),
            ..Settings::default()
        };
        let file = Settings {
            name: Some("file".into()),
            workers: Some(3),
            ..Settings::default()
        };
        let both = flags.or(file);
        assert_eq!(both.name.as_deref(), Some("flag"));
        assert_eq!(both.workers, Some(3));
    }
}
