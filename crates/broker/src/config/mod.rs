//! The configuration of a node: settings as people write them, and the checked configuration made from them.
//!
//! [`Settings`] is one struct for three sources: every key of the TOML file is also a flag (`--cluster-name`) and an environment variable
//! (`THICKET_CLUSTER_NAME`). A flag takes precedence over the environment, the environment over the file, the file over the default. [`Config`] holds
//! the real types; it exists only if every value and every combination is valid.

mod access;
mod addresses;
mod bridge;
mod check;
mod choices;
mod error;
mod faults;
mod file;
mod file_warnings;
mod flapping;
mod hook;
mod listener;
mod precedence;
mod ratio;
mod routing;
mod secret;
mod settings;
mod shared;
mod sites;
mod tables;
mod telemetry;
mod tenant;
mod text;
mod units;
mod users;
mod values;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use thicket_node::{Limits, RetainedLimits, Takes, TenantLimits};
use thicket_transport::tls::{LinkTls, ServerTls};

use crate::storage::SyncMode;
pub use access::{Access, Hook, KeyProvider, KeySource};
pub(crate) use access::{Loaded, checked_provider_url};

pub(crate) use bridge::reached;
pub use bridge::{BridgeAddress, BridgePlan};
pub use choices::{
    Acknowledgement, AlgorithmChoice, BridgeDirection, BridgeVersion, ClientCertificateChoice,
    DiscoverChoice, HookKind, LogFormat, LogLevel, OnFailure, OnFullChoice, PartitionChoice,
    RebalanceChoice, RedirectChoice, SandboxChoice, SessionScopeChoice, TransportChoice,
};
pub use error::{ConfigError, ConfigErrors, TooOpen};
pub use file_warnings::FileWarning;
pub use flapping::FlappingLimit;
pub use hook::HookPlan;
use thicket_overlay::RoutingConfig;

#[cfg(test)]
use file::checked;
pub use ratio::SampleRatio;
pub use secret::ClusterSecret;
pub use settings::Settings;
pub use tables::{
    BridgeRuleSettings, BridgeSettings, HookSettings, ListenerSettings, TenantSettings,
};
pub use telemetry::TelemetryPlan;
pub(crate) use telemetry::read_headers;
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
    /// For people; `None`: made from the host's name and the first listener's port once that is known.
    pub name: Option<String>,
    /// Nodes of another cluster are refused.
    pub cluster_name: String,
    /// At least one.
    pub listeners: Vec<Listen>,
    /// Files about which something is wrong, although the node can start.
    pub file_warnings: Vec<FileWarning>,
    /// HOST:PORT where other nodes reach this one; `None`: made from the first listener's address.
    pub advertise: Option<String>,
    /// Where the HTTP API listens, on a loopback address unless it has users; `None`: off.
    pub http: Option<SocketAddr>,
    /// Where probes ask whether the node is alive and ready; `None`: only at the HTTP API.
    pub probe: Option<SocketAddr>,
    /// Where remote clients ask for placements; `None`: at the HTTP API or over MQTT.
    pub placement: Option<PlacementListen>,
    /// Host names that the HTTP API answers to if it has users, beside this host's own.
    pub http_hosts: Vec<String>,
    /// Connections to the HTTP API at a time.
    pub http_connections: u32,
    /// HOST:PORT of nodes that may be up, as written: names are resolved at every attempt.
    pub seeds: Vec<String>,
    /// Nodes that must have been up at the same time before this one is ready, itself included.
    pub expect_nodes: u32,
    /// Announcements by UDP multicast.
    pub multicast: Option<Multicast>,
    /// Names each of whose addresses is a node.
    pub dns: Option<Dns>,
    /// How long the node looks for others before it accepts clients.
    pub discovery_grace: Duration,
    /// How long it then waits for the members that it knows, if no node that it reaches serves.
    pub restart_grace: Duration,
    /// How publications are routed to other nodes.
    pub routing: RoutingConfig,
    /// At least 1.
    pub workers: u8,
    /// The data directory, for what must survive a restart.
    pub data: Option<PathBuf>,
    /// When stored data is synced.
    pub sync: SyncMode,
    /// Number of backups of each persistent session, each on another node.
    pub backups: u8,
    /// Bytes of hinted handoff for the sessions of one node that is down.
    pub hint_bytes: u64,
    /// The conditions for acknowledgements to clients.
    pub ack: Acknowledgement,
    /// The policy while the cluster is partitioned.
    pub partition: thicket_node::Partition,
    /// The policy by which clients are redirected; `None`: they are not.
    pub redirect: Option<thicket_placement::Policy>,
    /// Placed clients are redirected by their topics.
    pub redirect_by_topics: bool,
    /// How many CONNECTs of a client before 5.0 are refused at a node where its topics are not.
    pub redirect_refusals: u8,
    /// Most clients redirected a second.
    pub redirect_per_s: u32,
    /// Number of nodes in a Server Reference.
    pub redirect_references: u8,
    /// When connected clients are moved.
    pub rebalance: thicket_node::RebalanceConfig,
    /// The site of this node.
    pub site: Option<String>,
    /// Prices of traffic between sites.
    pub site_prices: thicket_placement::SitePrices,
    /// Who may connect.
    pub access: Access,
    /// Shared secret of the cluster, by which its nodes authenticate links and announcements.
    pub secret: Option<ClusterSecret>,
    /// Certificates that links authenticate by instead; with neither, links are plain TCP.
    pub link_tls: Option<LinkTls>,
    /// Whether the process gives up rights that a node does not need.
    pub sandbox: SandboxChoice,
    /// Limits on what clients can make grow.
    pub limits: Limits,
    /// Client connections at a time; 0: as many as the limit of open files permits.
    pub connections: u32,
    /// How often a client may connect; `None`: no limit.
    pub flapping: Option<FlappingLimit>,
    /// Memory of the process above which no new clients are accepted; `None`: a share of the machine's memory, 0: no limit.
    pub memory_bytes: Option<u64>,
    /// Interval of the `$SYS` topics; zero: off.
    pub system_interval: Duration,
    /// Limits on retained messages.
    pub retained: RetainedLimits,
    /// Tenants with bounds of their own.
    pub tenants: Vec<TenantLimits>,
    /// Bridges to brokers of another kind.
    pub bridges: Vec<BridgePlan>,
    /// Receivers of events.
    pub hooks: Vec<HookPlan>,
    /// Where metrics and traces are sent over OTLP; `None`: off.
    pub telemetry: Option<TelemetryPlan>,
}

/// A listener as configured: a name may resolve to several addresses (`localhost` to 127.0.0.1 and `[::1]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address as written.
    pub text: String,
    /// IPv4 first; at least one, unless it is a Unix socket.
    pub addresses: Vec<SocketAddr>,
    /// The path, if it is a Unix socket.
    pub socket_path: Option<PathBuf>,
    /// The configuration of this listener says who may connect.
    pub is_guarded: bool,
    /// Whether it accepts clients, links or both.
    pub takes: Takes,
    /// TLS, if it is configured.
    pub tls: Option<ServerTls>,
    /// WebSocket, if it is configured.
    pub websocket: Option<WebSocket>,
    /// Connections start with a PROXY header.
    pub proxy_protocol: bool,
    /// Added to every topic and filter of its clients, and removed from what they receive.
    pub topic_prefix: String,
    /// Clients without a user name are accepted.
    pub allow_anonymous: bool,
    /// Its own users; `None`: those of the node.
    pub users: Option<Users>,
    /// The name in a client's verified certificate is its user name, and needs no password.
    pub certificate_users: bool,
    /// Connections at a time; `None`: only the node's limit.
    pub connections: Option<u32>,
    /// New connections a second; 0: no limit.
    pub connections_per_s: u32,
    /// Messages that all its clients together may publish in a second; 0: any number.
    pub messages_per_s: u32,
    /// The same for bytes of topics and payloads.
    pub bytes_per_s: u32,
    /// Messages that one of its clients may publish in a second; 0: any number.
    pub client_messages_per_s: u32,
    /// The same for bytes of topics and payloads.
    pub client_bytes_per_s: u32,
    /// Largest packet accepted, bytes.
    pub maximum_packet_size: u32,
    /// HOST:PORT where clients reach it; `None`: made from the node's host and the port.
    pub advertise: Option<String>,
    /// The transport under MQTT.
    pub transport: TransportChoice,
}

/// The listener of the placement API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementListen {
    /// Where it listens.
    pub address: SocketAddr,
    /// The text of the MQTT listener whose credentials, rights, topic prefix and TLS apply there.
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
