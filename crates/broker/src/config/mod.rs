//! What a node is told at the start: settings as people write them, and the checked configuration they become.
//!
//! [`Settings`] is one struct for three sources: every key of the TOML file is also a flag (`--cluster-name`) and an environment
//! variable (`THICKET_CLUSTER_NAME`). A flag wins over the environment, the environment over the file, the file over the default.
//! [`Config`] holds the real types; it exists only if every value and every combination made sense.

mod check;
mod error;
mod file;
mod routing;
mod settings;
mod users;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use thicket_node::Limits;

pub use error::{ConfigError, TooOpen};
use thicket_overlay::RoutingConfig;

pub use settings::{DiscoverChoice, LogFormat, LogLevel, Settings};
pub use users::{Users, UsersError, hash_password};

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
    /// Where the HTTP API listens, always a loopback address; `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// HOST:PORT of nodes that may be there, as written: names are resolved at every attempt.
    pub seeds: Vec<String>,
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
    /// Who may connect.
    pub access: Access,
    /// Shared secret of the cluster; `None`: links are not authenticated.
    pub secret: Option<Vec<u8>>,
    /// Bounds of what clients can make grow.
    pub limits: Limits,
    /// Bounds of what is retained.
    pub retained: RetainedLimits,
}

/// A listener as configured: a name may stand for several addresses (`localhost` for 127.0.0.1 and `[::1]`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// As written.
    pub text: String,
    /// IPv4 first; at least one.
    pub addresses: Vec<SocketAddr>,
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

/// Who may connect.
#[derive(Debug, Clone)]
pub enum Access {
    /// Everybody; user names and passwords are not looked at.
    Anonymous,
    /// The users of the file only.
    Users(Users),
    /// The users of the file, and everybody who gives no user name.
    UsersAndAnonymous(Users),
}

impl Access {
    /// Whether a client without a user name is let in.
    #[must_use]
    pub const fn allows_anonymous(&self) -> bool {
        match self {
            Self::Anonymous | Self::UsersAndAnonymous(_) => true,
            Self::Users(_) => false,
        }
    }
}

/// Bounds of what a node retains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetainedLimits {
    /// Retained messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Default for RetainedLimits {
    fn default() -> Self {
        Self {
            messages: 1_000_000,
            bytes: 256 * 1024 * 1024,
        }
    }
}
