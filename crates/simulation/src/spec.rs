//! How a node is configured.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use thicket_access::Policy;
use thicket_node::{
    HINT_BYTES, Limits, ListenerConfig, Partition, RedirectionConfig, RetainedLimits, Takes,
    TenantLimits,
};
use thicket_overlay::{
    OverlayLimits,
    routing::{RootPolicy, RoutingMode},
};

/// How a node is configured.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// How many workers it has.
    pub workers: u8,
    /// Nodes of a cluster with another name are refused.
    pub cluster_name: String,
    /// Its name; `None`: its identity.
    pub name: Option<String>,
    /// Limits for its clients.
    pub limits: Limits,
    /// The listeners for clients.
    pub listeners: Vec<ListenerConfig>,
    /// Tenants with bounds of their own.
    pub tenants: Vec<TenantLimits>,
    /// Its wall clock is this much ahead, ms.
    pub wall_ahead: u64,
    /// Who may connect, and what clients may do; `None`: see `users::ask`.
    pub policy: Option<Arc<Policy>>,
    /// What clients have for a password from now on, by client identifier, in place of that in their CONNECT: a token that was renewed.
    pub passwords: BTreeMap<String, Vec<u8>>,
    /// The rights of a client end this many seconds after its CONNECT, as those of a token that expires; `None`: by the policy.
    pub rights_end_after_s: Option<u64>,
    /// How messages are routed.
    pub routing: RoutingMode,
    /// How a root is chosen.
    pub root_policy: RootPolicy,
    /// The behaviour in a partition.
    pub partition: Partition,
    /// It opens tunnels to nodes with which it has no link.
    pub tunnels: bool,
    /// It has a data directory.
    pub stores: bool,
    /// Logs smaller than this are not rewritten.
    pub small_log_bytes: u64,
    /// Larger sessions are sent to their backups in parts.
    pub sync_part_bytes: usize,
    /// Backups of each persistent session on other nodes.
    pub backups: u8,
    /// See [`thicket_node::HubConfig::restart_grace`].
    pub restart_grace: Duration,
    /// Bytes kept for the sessions of one node that is down.
    pub hint_bytes: u64,
    /// How long each round of a thread takes, ms: minimum and maximum.
    pub round_millis: (u64, u64),
    /// Its clocks run this much faster than time, millionths.
    pub drift_ppm: i64,
    /// Limits of what other nodes can make grow.
    pub overlay_limits: OverlayLimits,
    /// Bounds of what it retains.
    pub retained: RetainedLimits,
    /// Where clients are redirected.
    pub redirection: RedirectionConfig,
}

impl NodeSpec {
    /// The defaults, with this many workers.
    pub fn new(workers: u8) -> Self {
        Self {
            workers,
            cluster_name: "simulated".into(),
            name: None,
            limits: Limits::default(),
            listeners: vec![ListenerConfig {
                takes: Takes::Both,
                allow_anonymous: true,
                topic_prefix: String::new(),
                maximum_packet_size: u32::MAX,
                client_messages_per_s: 0,
                client_bytes_per_s: 0,
            }],
            tenants: Vec::new(),
            wall_ahead: 0,
            policy: None,
            passwords: BTreeMap::new(),
            rights_end_after_s: None,
            routing: RoutingMode::Mesh,
            root_policy: RootPolicy::default(),
            partition: Partition::Serve,
            tunnels: true,
            stores: false,
            small_log_bytes: 16 * 1024,
            sync_part_bytes: 64 * 1024,
            backups: 1,
            restart_grace: Duration::ZERO,
            hint_bytes: HINT_BYTES,
            round_millis: (0, 0),
            drift_ppm: 0,
            overlay_limits: OverlayLimits::default(),
            retained: RetainedLimits {
                bytes: 1 << 30,
                ..RetainedLimits::default()
            },
            redirection: RedirectionConfig::default(),
        }
    }
}
