//! The configuration of a worker and of a hub. Checked values; defaults are the ones a user gets.

use std::{sync::Arc, time::Duration};

use thicket_overlay::{Incarnation, NodeId};
use thicket_placement::{Policy, SitePrices};

use crate::{ClientAddress, ListenerLikeness, RebalanceConfig};

/// Nodes that may hold backups of one session, beside its primary.
pub const MAXIMUM_BACKUPS: u8 = 3;

/// Configuration of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerConfig {
    /// The node.
    pub node: NodeId,
    /// Of this start of the node.
    pub incarnation: Incarnation,
    /// Workers of this node, at least 1.
    pub workers: u8,
    /// One entry a listener, by `ListenerId`.
    pub listeners: Vec<ListenerConfig>,
    /// Bounds.
    pub limits: Limits,
    /// Tenants with bounds of their own; a [`TenantId`](crate::TenantId) counts them.
    pub tenants: Vec<TenantLimits>,
    /// Persistent sessions are stored: the shell asks for `unstored` each round.
    pub stores: bool,
    /// Nodes that hold a backup of each persistent session, beside its primary: at most [`MAXIMUM_BACKUPS`].
    pub backups: u8,
    /// Acknowledgements to clients wait for the backups; otherwise only for this node.
    pub waits_for_backups: bool,
    /// A session that is larger is sent to its backups in parts of about this size, bytes.
    pub sync_part_bytes: usize,
    /// A log smaller than this is left as it is; a larger one is written again when less than half of it is needed.
    pub small_log_bytes: u64,
}

/// Who may connect at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Takes {
    /// Clients and other nodes.
    #[default]
    Both,
    /// Clients: links to this node need TLS, and use another listener.
    Clients,
    /// Other nodes, which have shown a certificate.
    Links,
}

/// What clients of a listener may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerConfig {
    /// Who may connect.
    pub takes: Takes,
    /// Clients without a user name are accepted without authentication.
    pub allow_anonymous: bool,
    /// Put before every topic and filter of its clients and removed again; empty: none.
    pub topic_prefix: String,
    /// Largest packet accepted, bytes; the smaller of this and that of [`Limits`] holds.
    pub maximum_packet_size: u32,
    /// Messages that a client may publish in a second; 0: any number.
    pub client_messages_per_s: u32,
    /// Bytes of topics and payloads that it may publish in a second; 0: any number.
    pub client_bytes_per_s: u32,
}

/// Who owns a session, beside its client identifier. All nodes of a cluster must have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionScope {
    /// Its user: another user with the same client identifier has a session of its own.
    #[default]
    User,
    /// The client identifier alone: any client that connects with it has the session.
    Client,
}

/// What becomes of a message when the queue of a recipient's session is full (rule 18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFull {
    /// That session does not get it, the newest one; all others do, and the publisher is not informed.
    #[default]
    Drop,
    /// No recipient gets it, and its publisher is refused.
    Refuse,
}

/// Bytes kept for the sessions of one node that is down, by default.
pub const HINT_BYTES: u64 = 64 * 1024 * 1024;

/// What a side of a partitioned cluster does (rule 19). All nodes of a cluster should have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Partition {
    /// Every side serves; their branches are merged later, as far as possible.
    #[default]
    Serve,
    /// A side that does not have more than half of all nodes that ever joined, and were not removed, accepts no messages of QoS 1 and 2, no
    /// subscriptions and no new clients.
    Majority,
}

/// Bounds of everything a client can make grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest packet accepted, bytes.
    pub maximum_packet_size: u32,
    /// Unacknowledged QoS 1/2 messages a client may have towards us.
    pub receive_maximum: u16,
    /// Topic aliases a client may set.
    pub topic_alias_maximum: u16,
    /// Messages in flight to a client that states no Receive Maximum.
    pub inflight_maximum: u16,
    /// Messages queued for one session.
    pub queue_messages: u32,
    /// Bytes queued for one session.
    pub queue_bytes: u64,
    /// What becomes of a message that is over the limit of one of these queues.
    pub on_full: OnFull,
    /// Bytes waiting in the out-buffer of one connection before QoS 0 is dropped and the queue is no longer pulled.
    pub out_buffer_bytes: u32,
    /// Subscriptions of one session.
    pub subscriptions: u32,
    /// Longest client identifier, bytes.
    pub client_id_bytes: u16,
    /// Who owns a session.
    pub session_scope: SessionScope,
    /// Sessions of a worker, beyond which no client gets a new one that outlives its connection; 0: no bound.
    pub sessions: u32,
    /// The same for those of one user.
    pub user_sessions: u32,
    /// The same for those of clients that connected last from one address.
    pub address_sessions: u32,
    /// Bytes of subscriptions of one user, and of one address, in a worker; 0: no bound.
    pub user_subscription_bytes: u64,
    /// Bytes queued for the sessions of one user, or for those of the clients without a user from one address, in a worker; 0: no bound.
    pub user_queue_bytes: u64,
    /// Levels of a topic or filter.
    pub topic_levels: u16,
    /// Longest session expiry granted; `u32::MAX` seconds means never.
    pub session_expiry_maximum: u32,
    /// Longest keep alive granted to clients of 5.0, seconds; 0: any, off included. Older clients have the one they ask for: they receive no other.
    pub keep_alive_maximum: u16,
    /// Bytes that all connections of a worker without a session may hold.
    pub half_open_bytes: u64,
    /// Time a client has from the accept to a whole CONNECT.
    pub connect_timeout: Duration,
    /// After this many messages a client whose messages have recipients on one other worker only moves there; 0: it stays.
    pub relocate_after: u32,
    /// CONNACK and DISCONNECT explain the reason code in words. The log does in any case.
    pub reason_strings: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            maximum_packet_size: 1024 * 1024,
            receive_maximum: 1024,
            topic_alias_maximum: 64,
            inflight_maximum: 1024,
            queue_messages: 100_000,
            queue_bytes: 64 * 1024 * 1024,
            on_full: OnFull::Drop,
            out_buffer_bytes: 4 * 1024 * 1024,
            subscriptions: 10_000,
            client_id_bytes: 1024,
            session_scope: SessionScope::User,
            sessions: 1_000_000,
            user_sessions: 100_000,
            address_sessions: 20_000,
            user_subscription_bytes: 128 * 1024 * 1024,
            user_queue_bytes: 512 * 1024 * 1024,
            topic_levels: 128,
            session_expiry_maximum: u32::MAX,
            keep_alive_maximum: 0,
            half_open_bytes: 64 * 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            relocate_after: 64,
            reason_strings: false,
        }
    }
}

/// Bounds of what a node retains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetainedLimits {
    /// Retained messages, of the whole cluster.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that one user, or clients without one from one address, published at this node; 0: no bound.
    pub user_messages: u64,
    /// Their bytes; 0: no bound.
    pub user_bytes: u64,
}

impl Default for RetainedLimits {
    fn default() -> Self {
        Self {
            messages: 1_000_000,
            bytes: 256 * 1024 * 1024,
            user_messages: 500_000,
            user_bytes: 128 * 1024 * 1024,
        }
    }
}

/// A tenant: the clients of all listeners with a topic prefix, and the topics that begin with it. A bound of 0 is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantLimits {
    /// Of its listeners; no two tenants have the same.
    pub topic_prefix: String,
    /// Sessions of a node, beyond which none of its clients gets a new one that outlives its connection.
    pub sessions: u32,
    /// Bytes queued for its sessions at a node.
    pub queue_bytes: u64,
    /// Its retained messages, of the whole cluster.
    pub retained_messages: u64,
    /// Their bytes.
    pub retained_bytes: u64,
}

/// Configuration of a hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// Workers of this node, at least 1.
    pub workers: u8,
    /// The cluster side.
    pub overlay: thicket_overlay::OverlayConfig,
    /// What the sides of a partition do.
    pub partition: Partition,
    /// How long a node that has just started waits for discovery before it serves clients.
    pub discovery_grace: Duration,
    /// How long after that it waits for the other members, if none of the nodes that it reaches
    /// serves.
    pub restart_grace: Duration,
    /// Of retained messages.
    pub retained: RetainedLimits,
    /// See [`WorkerConfig::tenants`].
    pub tenants: Vec<TenantLimits>,
    /// See [`WorkerConfig::backups`].
    pub backups: u8,
    /// Bytes kept for the sessions of one node that is down; for all such nodes together four times as many.
    pub hint_bytes: u64,
    /// What becomes of a message that is over that limit.
    pub on_full: OnFull,
    /// Retained messages are stored: the shell asks for `unstored` each round.
    pub stores: bool,
    /// Where clients go.
    pub redirection: RedirectionConfig,
}

/// When clients are sent to other nodes, and what this node announces of itself.
#[derive(Debug, Clone, PartialEq)]
pub struct RedirectionConfig {
    /// What of a load counts; `None`: clients are served where they connect, unless the node is drained.
    pub policy: Option<Policy>,
    /// A client that is placed goes where its placement is; loads count for the others.
    pub by_topics: bool,
    /// With `by_topics`: up to this many CONNECTs of a client that cannot be redirected are refused, one after the other, where its topics are not.
    pub refusals: u8,
    /// Clients redirected a second at most.
    pub per_s: u32,
    /// Bytes that the placements of clients take at most, those of one user or address a quarter
    /// of it, and requests that wait for their answers another quarter.
    pub placement_bytes: usize,
    /// Messages a second that a client's claims count with at most, as it may not publish more.
    pub claimed_messages_per_s: Option<u32>,
    /// When connected clients are moved.
    pub rebalance: RebalanceConfig,
    /// Nodes in a Server Reference, at least 1: the chosen one first.
    pub references: u8,
    /// By `ListenerId`: what a listener of another node must be like for its clients; `None`: they are never sent away.
    pub listeners: Vec<Option<ListenerLikeness>>,
    /// Where clients reach this node.
    pub addresses: Vec<ClientAddress>,
    /// HOST:PORT of its HTTP API.
    pub http_address: Option<Arc<str>>,
    /// The site of this node.
    pub site: Option<Arc<str>>,
    /// Prices of traffic between sites. All nodes of a cluster should have the same.
    pub site_prices: SitePrices,
}

impl Default for RedirectionConfig {
    fn default() -> Self {
        Self {
            policy: None,
            by_topics: false,
            refusals: 0,
            per_s: 500,
            placement_bytes: 64 << 20,
            claimed_messages_per_s: None,
            rebalance: RebalanceConfig::default(),
            references: 1,
            listeners: Vec::new(),
            addresses: Vec::new(),
            http_address: None,
            site: None,
            site_prices: SitePrices::default(),
        }
    }
}
