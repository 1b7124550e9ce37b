//! What a node is told at the start: settings as people write them, and the checked configuration they become.
//!
//! [`Settings`] is one struct for three sources: every key of the TOML file is also a flag (`--cluster-name`) and an environment
//! variable (`THICKET_CLUSTER_NAME`). A flag wins over the environment, the environment over the file, the file over the default.
//! [`Config`] holds the real types; it exists only if every value and every combination made sense.

mod access;
mod bridge;
mod check;
mod error;
mod file;
mod flapping;
mod hook;
mod listener;
mod routing;
mod secret;
mod settings;
mod shared;
mod telemetry;
mod units;
mod users;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use thicket_node::{Limits, RetainedLimits, Takes};
use thicket_transport::tls::{LinkTls, ServerTls};

use crate::storage::SyncMode;
pub use access::{Access, AlgorithmChoice, Hook, KeyProvider, KeySource, OnFailure};
pub(crate) use access::{Loaded, checked_provider_url};

pub(crate) use bridge::reached;
pub use bridge::{BridgeDirection, BridgePlan, BridgeRuleSettings, BridgeSettings, BridgeVersion};
pub use error::{ConfigError, ConfigErrors, TooOpen};
pub use flapping::FlappingLimit;
pub use hook::{HookKind, HookPlan, HookSettings};
pub use listener::{ClientCertificateChoice, ListenerSettings, TransportChoice};
use thicket_overlay::RoutingConfig;

#[cfg(test)]
use file::checked;
pub use secret::ClusterSecret;
pub use settings::{
    Acknowledgement, DiscoverChoice, LogFormat, LogLevel, OnFullChoice, PartitionChoice,
    RebalanceChoice, RedirectChoice, SessionScopeChoice, Settings,
};
pub(crate) use telemetry::read_headers;
pub use telemetry::{SampleRatio, TelemetryPlan};
pub use units::parse_seconds;
pub use users::{Users, UsersError, hash_for_scram, hash_password, make_token};

impl Config {
    /// Whether sessions and retained messages survive the end of the process.
    #[must_use]
    pub fn stores(&self) -> bool {
        self.data.is_some() && self.sync != SyncMode::None
    }
}

/// A node's configuration, checked. Made by [`Settings::check`].
#[derive(Debug, Clone)]
pub struct Config {
    /// For people; `None`: made of the host's name and the first listener's port once that is known.
    pub name: Option<String>,
    /// Nodes of another cluster are refused.
    pub cluster_name: String,
    /// At least one.
    pub listeners: Vec<Listen>,
    /// HOST:PORT where other nodes reach this one; `None`: made of the first listener's address.
    pub advertise: Option<String>,
    /// Where the HTTP API listens, a loopback address unless it has users; `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// Where probes ask whether the node lives and is ready; `None`: only at the HTTP API.
    pub probe: Option<SocketAddr>,
    /// Where clients elsewhere ask for placements; `None`: at the HTTP API or over MQTT.
    pub placement: Option<PlacementListen>,
    /// Names under which it answers where it has users, beside this host's own.
    pub http_hosts: Vec<String>,
    /// Connections to it at a time.
    pub http_connections: u32,
    /// HOST:PORT of nodes that may be there, as written: names are resolved at every attempt.
    pub seeds: Vec<String>,
    /// Nodes that must have been seen at once before this one is ready, itself included.
    pub expect_nodes: u32,
    /// Announcements by UDP multicast.
    pub multicast: Option<Multicast>,
    /// Names whose addresses are all nodes.
    pub dns: Option<Dns>,
    /// How long the node looks for others before it lets clients in.
    pub discovery_grace: Duration,
    /// Which way publications go to other nodes.
    pub routing: RoutingConfig,
    /// At least 1.
    pub workers: u8,
    /// Where the node keeps what must survive a restart.
    pub data: Option<PathBuf>,
    /// When what is kept there is safe.
    pub sync: SyncMode,
    /// Other nodes that hold a backup of each persistent session.
    pub backups: u8,
    /// Bytes of messages kept for the sessions of one node that is out.
    pub hint_bytes: u64,
    /// What answers to clients wait for.
    pub ack: Acknowledgement,
    /// When the nodes do not all see each other.
    pub partition: thicket_node::Partition,
    /// By what clients are sent to other nodes; `None`: they are not.
    pub redirect: Option<thicket_placement::Policy>,
    /// Placed clients go where that says.
    pub redirect_by_topics: bool,
    /// CONNECTs of a client before 5.0 that are refused where its topics are not.
    pub redirect_refusals: u8,
    /// Clients sent away a second at most.
    pub redirect_per_s: u32,
    /// Nodes that a Server Reference names.
    pub redirect_references: u8,
    /// When connected clients are moved.
    pub rebalance: thicket_node::RebalanceConfig,
    /// Who may connect.
    pub access: Access,
    /// Shared secret of the cluster: its nodes prove by it who they are, to each other and in announcements.
    pub secret: Option<ClusterSecret>,
    /// Certificates of links, which they prove themselves by instead; with neither, links are plain.
    pub link_tls: Option<LinkTls>,
    /// Bounds of what clients can make grow.
    pub limits: Limits,
    /// Connections of clients at a time; 0: what the limit of open files leaves.
    pub connections: u32,
    /// How often a client may connect; `None`: as often as it likes.
    pub flapping: Option<FlappingLimit>,
    /// Memory of the process from which on nobody new is let in; `None`: a part of what there is, 0: no bound.
    pub memory_bytes: Option<u64>,
    /// Time between two rounds of `$SYS` topics; zero: none.
    pub system_interval: Duration,
    /// Bounds of what is retained.
    pub retained: RetainedLimits,
    /// Bridges to brokers of another kind.
    pub bridges: Vec<BridgePlan>,
    /// Receivers of events.
    pub hooks: Vec<HookPlan>,
    /// Where metrics and traces go over OTLP; `None`: nowhere.
    pub telemetry: Option<TelemetryPlan>,
}

/// A listener as configured: a name may stand for several addresses (`localhost` for 127.0.0.1 and `[::1]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address as written.
    pub text: String,
    /// IPv4 first; at least one, unless it is a Unix socket.
    pub addresses: Vec<SocketAddr>,
    /// Where its socket lies, if it is a Unix socket.
    pub socket_path: Option<PathBuf>,
    /// Somebody said for this listener who may connect.
    pub is_guarded: bool,
    /// Who may come in.
    pub takes: Takes,
    /// TLS, if it is spoken.
    pub tls: Option<ServerTls>,
    /// WebSocket, if it is spoken.
    pub websocket: Option<WebSocket>,
    /// Connections start with a PROXY header.
    pub proxy_protocol: bool,
    /// Put before every topic and filter of its clients and taken off again.
    pub topic_prefix: String,
    /// Clients without a user name are let in.
    pub allow_anonymous: bool,
    /// Users of its own; `None`: those of the node.
    pub users: Option<Users>,
    /// Connections at a time; `None`: no bound but the node's.
    pub connections: Option<u32>,
    /// New connections a second; 0: no bound.
    pub connections_per_s: u32,
    /// Largest packet accepted, bytes.
    pub maximum_packet_size: u32,
    /// HOST:PORT where clients reach it; `None`: made of the node's and the port.
    pub advertise: Option<String>,
    /// What bytes travel on.
    pub transport: TransportChoice,
}

/// The listener of the placement API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementListen {
    /// Where it listens.
    pub address: SocketAddr,
    /// The text of the MQTT listener whose credentials, rights, topic prefix and TLS hold there.
    pub listener: String,
}

/// WebSocket at a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocket {
    /// Such as `/mqtt`.
    pub path: String,
    /// Longest frame accepted, bytes.
    pub frame_bytes: u64,
}

/// Discovery by UDP multicast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Multicast {
    /// Group and port.
    pub group: SocketAddrV4,
    /// Routers a datagram may cross, plus one; 0 stays on this host.
    pub ttl: u8,
    /// Address of the interface to use; unspecified: the system's choice.
    pub interface: Ipv4Addr,
    /// Time between two announcements.
    pub interval: Duration,
}

/// Discovery by DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dns {
    /// HOST:PORT; every address of HOST is a node. At least one.
    pub names: Vec<String>,
    /// Time between two look-ups.
    pub interval: Duration,
}
