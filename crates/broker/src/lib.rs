//! The shell of a node: sockets, threads, mailboxes, discovery, configuration and the HTTP API around the workers and the hub of
//! [`thicket_node`].
//!
//! It reads bytes, hands them to a worker, drains the outputs and writes.
//!
//! Left to others: the meaning of bytes (`thicket-node`), TLS files and WebSocket frames (`transport`), files (`storage`), the command line.
//!
//! Invariants:
//!
//! * No lock is taken for a message: threads exchange batches, with one lock for each round and receiver.
//! * A connection is written once a round, however many messages the round brings for it.
//! * What must be stored is stored before anything of the same round is written to a socket.
//! * An idle connection owns no buffer; all reads of a thread share one.
//! * What may block (name resolution, password hashes, HTTP) runs on threads of its own.
//!
//! ```no_run
//! use thicket_broker::{Node, Settings};
//!
//! let settings = Settings { listen: Some(vec!["127.0.0.1:0".into()]), ..Settings::default() };
//! let node = Node::start(settings.check()?)?;
//! println!("{} listens on {}", node.name(), node.addresses()[0]);
//! node.stop();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allowance;
pub mod api;
mod aside;
mod authenticator;
mod bridges;
mod certificates;
mod clock;
mod config;
mod counters;
mod dials;
mod discovery;
mod disk;
mod entrance;
mod event;
mod flapping;
mod gate;
mod histogram;
mod hooks;
mod housekeeper;
mod http;
mod identity;
mod layers;
mod links;
mod listener;
mod load;
mod log;
mod mailbox;
mod memory;
mod node;
mod places;
mod pool;
mod readiness;
mod reload;
mod resolver;
mod sandbox;
#[cfg(test)]
mod scratch;
mod sockets;
mod start_error;
mod storage;
mod stream;
mod telemetry;
mod thread;
mod tokens;
mod traces;
mod transport;
mod watched;

pub use certificates::{CertificateDays, SOON_DAYS, certificate_days};
pub use config::{
    Access, AlgorithmChoice, BridgeDirection, BridgePlan, BridgeRuleSettings, BridgeSettings,
    BridgeVersion, ClientCertificateChoice, Config, ConfigError, ConfigErrors, DiscoverChoice, Dns,
    FileWarning, FlappingLimit, Hook, KeyProvider, KeySource, Listen, ListenerSettings, LogFormat,
    LogLevel, Multicast, OnFailure, OnFullChoice, PartitionChoice, RebalanceChoice, RedirectChoice,
    SampleRatio, SandboxChoice, SessionScopeChoice, Settings, TelemetryPlan, TenantSettings,
    TooOpen, TransportChoice, Users, UsersError, WebSocket, hash_for_scram, hash_password,
    make_token, parse_seconds,
};
pub use discovery::{Announcement, AnnouncementError, Freshness, Heard};
pub use identity::IdentityError;
pub use log::start as start_log;
pub use node::Node;
pub use reload::Reload;
pub use start_error::StartError;
pub use storage::{RecoveryError, SyncMode};
pub use tokens::{SOON_DAYS_OF_TOKENS, TokenDays, token_days};
pub use watched::Failure;
