//! What the cluster side of a node is told at the start. Checked values; defaults are the ones a user gets.

use std::time::Duration;

use crate::identity::{Incarnation, NodeId};
use crate::routing::{RootPolicy, RootWeights, RoutingMode};
use crate::wire_version::WireVersion;

/// Configuration of an [`Overlay`](crate::Overlay).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayConfig {
    /// This node.
    pub node: NodeId,
    /// Of this start.
    pub incarnation: Incarnation,
    /// For people.
    pub name: String,
    /// Nodes of another cluster are refused.
    pub cluster_name: String,
    /// HOST:PORT where other nodes reach this one.
    pub address: String,
    /// The shell proves who is at the other end of every link, and encrypts it: nothing that a link without a [key](crate::KeyId)
    /// says is believed. False: everybody who can open a link is believed.
    pub links_are_proved: bool,
    /// The newest wire version to speak; the oldest is what the program still knows. Lower than the newest there is only to see how
    /// a cluster of two releases does.
    pub wire: WireVersion,
    /// Which way messages go.
    pub routing: RoutingConfig,
    /// How long things take.
    pub timing: Timing,
    /// Bounds.
    pub limits: OverlayLimits,
}

impl OverlayConfig {
    /// A configuration with the defaults, without proof of links; the node's name is its identity.
    #[must_use]
    pub fn new(node: NodeId, incarnation: Incarnation, cluster_name: &str, address: &str) -> Self {
        Self {
            node,
            incarnation,
            name: node.to_string(),
            cluster_name: cluster_name.to_owned(),
            address: address.to_owned(),
            links_are_proved: false,
            wire: WireVersion::NEWEST,
            routing: RoutingConfig::default(),
            timing: Timing::default(),
            limits: OverlayLimits::default(),
        }
    }
}

/// Which way messages of this node go, and who is elected root of its trees. All nodes of a cluster should have the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutingConfig {
    /// Straight, or over trees.
    pub mode: RoutingMode,
    /// What makes a node a good root.
    pub root_policy: RootPolicy,
    /// What counts how much in it.
    pub weights: RootWeights,
    /// Trees of topics this node names at most; topics with one more set of nodes go over the single tree (rule 21).
    pub maximum_trees: usize,
    /// Topics of which an advertisement is remembered at most, own ones and others'.
    pub maximum_advertisements: usize,
}

impl Default for RoutingConfig {
    fn default() -> Self {
        Self {
            mode: RoutingMode::Mesh,
            root_policy: RootPolicy::Capacity,
            weights: RootWeights::default(),
            maximum_trees: 1024,
            maximum_advertisements: 65_536,
        }
    }
}

/// How long things take between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Between two hellos on a link. One end asks and the other answers, so that an idle link stays below 1 kB/s.
    pub hello_interval: Duration,
    /// A node silent for so long, or without a link for so long, is out.
    pub out_after: Duration,
    /// From a new socket to a link both ends use.
    pub handshake_timeout: Duration,
    /// First wait before dialling again; doubles up to `redial_maximum`; each wait varies by a quarter.
    pub redial_minimum: Duration,
    /// Longest wait before dialling again.
    pub redial_maximum: Duration,
    /// How long a node that others reach, but we do not, holds up what waits for every reachable node.
    pub link_grace: Duration,
    /// Shortest time between two of our records when only numbers (clients, RTT, capability, ...) changed.
    pub record_interval: Duration,
    /// A node that others reach and we do not is reached over them after this.
    pub tunnel_after: Duration,
    /// What went over a tree and is not acknowledged after this is sent again; doubles up to 16 times as long.
    pub resend_after: Duration,
    /// An advertisement is forgotten after this; it is repeated after half of it if the topic is still published to.
    pub advertisement_life: Duration,
}

impl Timing {
    /// A node that was not run for so long may have been given up by the others: it was heard one hello before, at worst.
    pub(crate) fn lease(&self) -> Duration {
        self.out_after.saturating_sub(self.hello_interval)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            hello_interval: Duration::from_millis(300),
            out_after: Duration::from_secs(1),
            handshake_timeout: Duration::from_secs(5),
            redial_minimum: Duration::from_millis(100),
            redial_maximum: Duration::from_secs(5),
            link_grace: Duration::from_secs(5),
            record_interval: Duration::from_secs(1),
            tunnel_after: Duration::from_millis(500),
            resend_after: Duration::from_secs(2),
            advertisement_life: Duration::from_secs(3600),
        }
    }
}

/// Largest packet on a link, and so, less a kibibyte, the largest record and control message. Part of the wire: a node that took
/// less would end a link over a message that another one accepted.
pub const MAXIMUM_PACKET_BYTES: u32 = 16 * 1024 * 1024;

/// Bounds of everything another node can make grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayLimits {
    /// A data batch is sealed when it is this long.
    pub batch_bytes: usize,
    /// Data is added to a link's out-buffer only below this; control always is.
    pub out_buffer_bytes: usize,
    /// Control waiting for one link; beyond it the link is given up: the other node reads nothing.
    pub control_bytes: usize,
    /// Data another node may send us before our workers admitted it; granted as credit. The last quarter is for QoS 1 and 2.
    pub credit_bytes: u64,
    /// Bytes of unacknowledged messages for one node above which `has_room` says no.
    pub resend_bytes_per_node: u64,
    /// Messages of the same.
    pub resend_messages_per_node: usize,
    /// Bytes of unacknowledged messages in all, beyond which `forward` refuses.
    pub resend_bytes: u64,
    /// Messages of the same.
    pub resend_messages: usize,
    /// Ranges of admitted numbers remembered for one stream of another node; beyond it the link is given up.
    pub window_ranges: usize,
    /// Interests of one other node; beyond it the link is given up.
    pub interests_per_node: usize,
    /// Changes of our interests kept, so that a node that was away shortly needs no snapshot.
    pub interest_changes: usize,
    /// Nodes known, reachable or not.
    pub nodes: usize,
    /// Addresses known.
    pub addresses: usize,
    /// Of them, those known by an announcement alone, which anybody may have sent.
    pub announced_addresses: usize,
    /// Addresses dialled at a time, until somebody has proved to be there.
    pub dials: usize,
    /// Of them, addresses known by an announcement alone.
    pub announced_dials: usize,
}

impl Default for OverlayLimits {
    fn default() -> Self {
        Self {
            batch_bytes: 64 * 1024,
            out_buffer_bytes: 256 * 1024,
            control_bytes: 64 * 1024 * 1024,
            credit_bytes: 8 * 1024 * 1024,
            resend_bytes_per_node: 16 * 1024 * 1024,
            resend_messages_per_node: 100_000,
            resend_bytes: 256 * 1024 * 1024,
            resend_messages: 1_000_000,
            window_ranges: 1_000_000,
            interests_per_node: 4_000_000,
            interest_changes: 65_536,
            nodes: 1024,
            addresses: 4096,
            announced_addresses: 256,
            dials: 64,
            announced_dials: 16,
        }
    }
}
