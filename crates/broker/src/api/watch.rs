//! What the page of a node shows: the events of `GET /v1/watch`, about one a second.

use serde::{Deserialize, Serialize};

use super::overlay::{OverlayLinkEntry, TreeEntry};
use super::{MembershipEntry, NodeEntry, TopicEntry, TrafficCounts};
use utoipa::ToSchema;

/// The cluster as one node sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Watch)]
pub struct WatchEntry {
    /// Of the node that answers.
    pub name: String,
    /// Of its program.
    pub version: String,
    /// As `/v1/health/ready`.
    pub ready: bool,
    /// Why it is not.
    #[schema(required)]
    pub not_ready: Option<String>,
    /// It is drained.
    pub draining: bool,
    /// As `/v1/membership`.
    pub membership: MembershipEntry,
    /// What nodes have set otherwise though it must be the same on all of them, in words.
    pub disagreements: Vec<String>,
    /// As `/v1/nodes`.
    pub nodes: Vec<NodeEntry>,
    /// `mesh`, `topic`, `tree` or `flood`.
    pub routing: String,
    /// Of the view: those both ends list.
    pub links: Vec<OverlayLinkEntry>,
    /// The tree of all nodes.
    pub tree: TreeEntry,
    /// Of this node's links.
    pub link_traffic: Vec<LinkRateEntry>,
    /// The heaviest.
    pub topics: Vec<TopicEntry>,
    /// Of this node, a few seconds old at most.
    pub traffic: TrafficCounts,
    /// Under the data directory, if there is one.
    #[schema(required)]
    pub disk: Option<DiskEntry>,
    /// That the node shows and believes.
    pub certificates: Vec<CertificateEntry>,
    /// How long this node took to deliver messages, since its start.
    #[serde(default)]
    #[schema(required)]
    pub deliveries: DeliveriesEntry,
    /// Listeners of this node for WebSocket.
    #[serde(default)]
    #[schema(required)]
    pub websockets: Vec<WebSocketEntry>,
}

/// How long messages took from when a thread took them in to when they were written to their clients.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = Deliveries)]
pub struct DeliveriesEntry {
    /// The buckets, by what they reach to, ascending.
    pub buckets: Vec<BucketEntry>,
    /// Deliveries that took longer.
    pub beyond: u64,
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Bucket)]
pub struct BucketEntry {
    /// Seconds that deliveries in it took at most.
    pub within_s: f64,
    /// Deliveries in it, without those in the buckets before.
    pub count: u64,
}

/// A listener for WebSocket, as a browser reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WebSocket)]
pub struct WebSocketEntry {
    /// With TLS: `wss`, otherwise `ws`.
    pub secure: bool,
    /// Name or address; none: it listens on all addresses, so that of the API serves.
    #[schema(required)]
    pub host: Option<String>,
    /// Port.
    pub port: u16,
    /// Path, such as `/mqtt`.
    pub path: String,
    /// Put before every topic of its clients; empty: none.
    pub topic_prefix: String,
}

/// What the links with a node carry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = LinkRate)]
pub struct LinkRateEntry {
    /// Its name.
    pub node: String,
    /// In both directions.
    pub bytes_per_s: u64,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Disk)]
pub struct DiskEntry {
    /// Messages that would have to be stored are refused.
    pub full: bool,
    /// Left for the node.
    pub free_bytes: u64,
    /// Of the file system.
    pub size_bytes: u64,
    /// Of the logs, still needed.
    pub log_bytes: u64,
}

/// A file of certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Certificate)]
pub struct CertificateEntry {
    /// Its path.
    pub file: String,
    /// Days left; less than 0: expired.
    pub days: i64,
}

/// Who asks: `GET /v1/whoami`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = WhoAmI)]
pub struct WhoAmIEntry {
    /// `viewer` or `admin`; none: the HTTP API has no users, and pages change nothing.
    #[schema(required)]
    pub role: Option<String>,
}
