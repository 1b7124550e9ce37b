//! A connection that goes from one worker to another.

use std::{sync::Arc, time::Duration};

use thicket_access::Grant;
use thicket_mqtt::ProtocolVersion;
use thicket_session::{
    server::{Epoch, Inbound},
    time::Instant,
};

use super::{connection::AliasesOut, places::BetterNodes, reauthentication::Reauthentication};

/// What travels with a connection in service. Its session has no more than this.
#[derive(Debug)]
pub(crate) struct Relocated {
    pub(in crate::worker) client_id: Arc<str>,
    pub(in crate::worker) uid: u128,
    pub(in crate::worker) epoch: Epoch,
    pub(in crate::worker) clean_epoch: Epoch,
    pub(in crate::worker) dropped_messages: u64,
    /// Identifiers that the client has not released yet.
    pub(in crate::worker) inbound: Inbound,
    pub(in crate::worker) grant: Option<Arc<Grant>>,
    pub(in crate::worker) version: ProtocolVersion,
    pub(in crate::worker) is_bridge: bool,
    pub(in crate::worker) silence_allowed: Option<Duration>,
    pub(in crate::worker) last_packet: Instant,
    pub(in crate::worker) window: u16,
    pub(in crate::worker) maximum_packet_size: u32,
    pub(in crate::worker) problem_information: bool,
    pub(in crate::worker) aliases_in: Vec<Option<Arc<str>>>,
    pub(in crate::worker) aliases_out: AliasesOut,
    pub(in crate::worker) prefix: Arc<str>,
    pub(in crate::worker) reauthentication: Option<Box<Reauthentication>>,
    pub(in crate::worker) better_nodes: Option<Box<BetterNodes>>,
    pub(in crate::worker) wait: Duration,
    pub(in crate::worker) reloads: u64,
}
