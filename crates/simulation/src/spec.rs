//! How a node is configured.

use std::sync::Arc;

use thicket_access::Policy;
use thicket_node::{HINT_BYTES, Limits, ListenerConfig, Partition, RedirectionConfig, Takes};
use thicket_overlay::{
    OverlayLimits, WireVersion,
    routing::{RootPolicy, RoutingMode},
};

/// How a node is configured.
#[derive(Debug, Clone)]
pub struct NodeSpec {
    /// How many workers it has.
    pub workers: u8,
    /// Nodes of another name are strangers.
    pub cluster_name: String,
    /// What its clients may use.
    pub limits: Limits,
    /// Where clients come from.
    pub listeners: Vec<ListenerConfig>,
    /// Its wall clock is this much ahead, ms.
    pub wall_ahead: u64,
    /// Who may connect and do what; `None`: see `users::ask`.
    pub policy: Option<Arc<Policy>>,
    /// How messages find their way.
    pub routing: RoutingMode,
    /// What makes a node the root of a tree.
    pub root_policy: RootPolicy,
    /// When the nodes do not all see each other.
    pub partition: Partition,
    /// The newest wire version it speaks.
    pub wire: WireVersion,
    /// It has links over other nodes with those it has none with.
    pub tunnels: bool,
    /// It has a data directory.
    pub stores: bool,
    /// A log smaller than this is left as it is.
    pub small_log_bytes: u64,
    /// Backups of each persistent session on other nodes.
    pub backups: u8,
    /// Bytes kept for the sessions of one node that is down.
    pub hint_bytes: u64,
    /// How long each round of a thread takes, ms: least and most.
    pub round_millis: (u64, u64),
    /// Its clocks go so much faster than time, millionths.
    pub drift_ppm: i64,
    /// What other nodes may make grow.
    pub overlay_limits: OverlayLimits,
    /// Where clients go.
    pub redirection: RedirectionConfig,
}

impl NodeSpec {
    /// The defaults, with this many workers.
    pub fn new(workers: u8) -> Self {
        Self {
            workers,
            cluster_name: "simulated".into(),
            limits: Limits::default(),
            listeners: vec![ListenerConfig {
                takes: Takes::Both,
                allow_anonymous: true,
                topic_prefix: String::new(),
                maximum_packet_size: u32::MAX,
            }],
            wall_ahead: 0,
            policy: None,
            routing: RoutingMode::Mesh,
            root_policy: RootPolicy::default(),
            partition: Partition::Serve,
            wire: WireVersion::NEWEST,
            tunnels: true,
            stores: false,
            small_log_bytes: 16 * 1024,
            backups: 1,
            hint_bytes: HINT_BYTES,
            round_millis: (0, 0),
            drift_ppm: 0,
            overlay_limits: OverlayLimits::default(),
            redirection: RedirectionConfig::default(),
        }
    }
}
