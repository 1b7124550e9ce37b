//! The bridges of a node: each connects to its own node like any client, over the first listener for plain TCP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use thicket_bridge::{Monitor, Running, TcpDial, start};

use crate::config::{BridgePlan, reached};
use crate::identity::random_id;

/// Bridges that run. Dropping them stops them.
#[derive(Debug, Default)]
pub(crate) struct Bridges(Vec<Running>);

impl Bridges {
    /// Starts all bridges of the node `node` (hexadecimal) with this name, which listens on `address`.
    pub(crate) fn start(
        plans: &[BridgePlan],
        node: &str,
        node_name: &str,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let local = Arc::new(TcpDial::new(reached(address).to_string()));
        let run = |plan: &BridgePlan| {
            let remote = Arc::new(TcpDial::new(&*plan.address));
            let config = plan.config(node, node_name);
            start(
                &*plan.name,
                config,
                Arc::clone(&local) as _,
                remote,
                random_id()?,
            )
        };
        plans.iter().map(run).collect::<io::Result<_>>().map(Self)
    }

    pub(crate) fn monitors(&self) -> Arc<[Monitor]> {
        self.0.iter().map(Running::monitor).collect()
    }
}
