//! A node without its I/O: workers, and the hub that they share.
//!
//! A [`Worker`] has the connections and sessions of one thread. The [`Hub`] has what a node has once: the overlay, the directory
//! of client identifiers, the retained messages, the members of the cluster. This crate composes `session`, `overlay`, `access` and `placement`;
//! it alone decides what a packet from a client or from another node means.
//!
//! * `interface`: the contract with the shell, inputs and outputs of workers and of the hub;
//! * `worker`: a PUBLISH, subscriptions, sessions and their life, replication, the journal;
//! * `hub`: forwarding, claims of client identifiers, moves, members and quorum, loads, placement, rebalancing;
//! * `bans`: clients that may not connect, as retained messages of the nodes;
//! * `messages`: from worker to hub and back; `flow_control`: how much of that a thread has not processed yet; `marks`, `queue`: positions in streams, and queues that change nodes.
//!
//! Left to others: sockets, TLS, threads, files, discovery, configuration files and HTTP (the crate `broker`); links, trees and acknowledgements
//! between nodes (`overlay`); filters and the protocol of one session (`session`).
//!
//! Invariants:
//!
//! * Nothing here does I/O, reads a clock, starts a thread or draws a random number: times and seeds are inputs. The simulation runs this code.
//! * No client receives an acknowledgement before every place that must have the message has accepted it.
//! * What must be stored is stored before anything leaves: the only way out, [`Egress`], is there when nothing waits to be stored.
//! * One client identifier has one session in service, except while branches exist after a partition or a stall of a node.
//! * Every queue and table has a bound or is listed in `docs/design/limits.md`.
//! * Nothing a client or another node sends panics.

mod allowance;
mod bans;
mod config;
mod egress;
mod flow_control;
mod hub;
mod interface;
mod journal;
mod load;
mod marks;
mod messages;
mod observe;
mod placing;
mod queue;
mod random;
mod rebalance;
mod report;
mod scope;
mod source;
mod tenants;
mod transfer;
mod visits;
mod work;
mod worker;

pub use allowance::{Allowance, ListenerTraffic, TokenBucket};
pub use bans::{Ban, BanError, BanSubject, BannedClients, BannedUser};
pub use config::*;
pub use egress::Egress;
pub use hub::{Hub, HubOperator, HubView, RebalanceDone, RebalanceTask};
pub use interface::*;
pub use journal::{Keyspace, LogStatus, RecoverError, StoreOperation, Stored, Unstored};
pub use load::*;
pub use observe::*;
pub use placing::{
    PlacedSessionEntry, PlacementAsked, PlacementClient, PlacementEntry, ProblemEntry,
    checked_session_name,
};
pub use rebalance::*;
pub use report::*;
pub use scope::session_name;
pub(crate) use source::Payer;
pub use tenants::{TenantId, TenantRetained, TenantUsage};
pub use thicket_placement::Source;
pub use transfer::*;
pub use visits::{
    CLIENT_CONNECTED, CLIENT_DISCONNECTED, CONNECT_MALFORMED, CONNECT_MISSING, CONNECT_REFUSED,
    NO_QUORUM, NODE_DOWN, NODE_REMOVED, NODE_UP, PARTITIONED, QUORUM, READY, SESSIONS_FAILED_OVER,
};
pub use worker::{Worker, WorkerOperator, WorkerView};
