//! The configuration of the overlay. Checked values; defaults are the ones a user gets.

use std::time::Duration;

use crate::identity::{Incarnation, NodeId};
use crate::routing::{RootPolicy, RootWeights, RoutingMode};

/// Configuration of an [`Overlay`](crate::Overlay).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayConfig {
    /// This node.
    pub node: NodeId,
    /// The incarnation of this start.
    pub incarnation: Incarnation,
    /// For display.
    pub name: String,
    /// Nodes of another cluster are refused.
    pub cluster_name: String,
    /// HOST:PORT where other nodes reach this one.
    pub address: String,
    /// The shell authenticates the other end of every link and encrypts the link: nothing received on a link without a [key](crate::KeyId) is used.
    /// False: everyone who can open a link is trusted.
    pub links_are_proved: bool,
    /// How messages are routed.
    pub routing: RoutingConfig,
    /// Intervals and timeouts.
    pub timing: Timing,
    /// Limits.
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
            routing: RoutingConfig::default(),
            timing: Timing::default(),
            limits: OverlayLimits::default(),
        }
    }
}

/// How messages of this node are routed, and which node is elected root of its trees. All nodes of a cluster should have the same values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutingConfig {
    /// Directly, or over trees.
    pub mode: RoutingMode,
    /// How a root is chosen.
    pub root_policy: RootPolicy,
    /// The weights of that choice.
    pub weights: RootWeights,
    /// Trees for topics that this node names at most; beyond it, further sets of nodes use the single tree (rule 21).
    pub maximum_trees: usize,
    /// Topics whose advertisements are stored at most, own ones and others'.
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

/// Intervals and timeouts between nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// Between two hellos on a link. One end asks and the other answers, so that an idle link stays below 1 kB/s.
    pub hello_interval: Duration,
    /// A node that is silent, or without a link, for this long is down.
    pub down_after: Duration,
    /// From a new socket to a link that both ends use.
    pub handshake_timeout: Duration,
    /// First wait before redialling; doubles up to `redial_maximum`; each wait varies by a quarter.
    pub redial_minimum: Duration,
    /// Longest wait before redialling.
    pub redial_maximum: Duration,
    /// How long a node that others reach, but we do not, delays what waits for every reachable node.
    pub link_grace: Duration,
    /// Shortest time between two of our records when only numbers (clients, RTT, capability, ...) changed.
    pub record_interval: Duration,
    /// A node that others reach and we do not gets a tunnel after this.
    pub tunnel_after: Duration,
    /// What was sent over a tree and is not acknowledged after this is resent; doubles up to 16 times as long.
    pub resend_after: Duration,
    /// An advertisement is forgotten after this; it is repeated after half of it if the topic is still published to.
    pub advertisement_life: Duration,
}

impl Timing {
    /// A node that did not run for this long may have been marked down by the others: in the worst case they last received something one hello
    /// before.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.down_after.saturating_sub(self.hello_interval)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            hello_interval: Duration::from_millis(300),
            down_after: Duration::from_secs(1),
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

/// Largest packet on a link, and so, less a kibibyte, the largest record and control message. Part of the wire format: a node with a lower maximum
/// would close a link over a message that another one accepted.
pub const MAXIMUM_PACKET_BYTES: u32 = 16 * 1024 * 1024;

/// Limits of everything that another node can make grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayLimits {
    /// A data batch is sealed when it reaches this length.
    pub batch_bytes: usize,
    /// Data is appended to a link's out-buffer only below this; control always is.
    pub out_buffer_bytes: usize,
    /// Control waiting for one link; beyond it the link is closed, as the other node does not read.
    pub control_bytes: usize,
    /// Data that another node may send before our workers have admitted it; granted as credit. The last quarter is for QoS 1 and 2.
    pub credit_bytes: u64,
    /// Bytes of unacknowledged messages in all, at which `forward` refuses.
    pub resend_bytes: u64,
    /// The same, in messages.
    pub resend_messages: usize,
    /// Ranges of admitted numbers stored for one stream of another node; beyond it the link is closed.
    pub window_ranges: usize,
    /// Interests of one other node; beyond it the link is closed.
    pub interests_per_node: usize,
    /// Changes of our interests kept, so that a node that was away briefly needs no snapshot.
    pub interest_changes: usize,
    /// Nodes known, reachable or not.
    pub nodes: usize,
    /// Addresses known.
    pub addresses: usize,
    /// Of these, addresses known only from an announcement, which anyone may have sent.
    pub announced_addresses: usize,
    /// Addresses dialled at a time, until a node has been identified there.
    pub dials: usize,
    /// Of these, addresses known only from an announcement.
    pub announced_dials: usize,
}

impl Default for OverlayLimits {
    fn default() -> Self {
        Self {
            batch_bytes: 64 * 1024,
            out_buffer_bytes: 256 * 1024,
            control_bytes: 64 * 1024 * 1024,
            credit_bytes: 8 * 1024 * 1024,
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
