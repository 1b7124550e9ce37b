//! The bridges of a node. Each connects to its own node as a client does, over the first listener for plain TCP.

use std::net::SocketAddr;
use std::sync::Arc;

use thicket_bridge::{Monitor, Running, TcpDial, start};

use crate::config::{BridgePlan, reached};
use crate::identity::random_id;
use crate::node::StartError;

/// Running bridges. Dropping them stops them.
#[derive(Debug, Default)]
pub(crate) struct Bridges(Vec<Running>);

impl Bridges {
    /// Starts all bridges of the node `node` (hexadecimal) with this name, which listens on `address`.
    pub(crate) fn start(
        plans: &[BridgePlan],
        node: &str,
        node_name: &str,
        address: SocketAddr,
    ) -> Result<Self, StartError> {
        let local = Arc::new(TcpDial::new(reached(address).to_string()));
        let run = |plan: &BridgePlan| {
            let remote = Arc::new(TcpDial::new(&*plan.address));
            let config = plan.config(node, node_name);
            let seed = random_id()?;
            Ok(start(
                &*plan.name,
                config,
                Arc::clone(&local) as _,
                remote,
                seed,
            )?)
        };
        plans
            .iter()
            .map(run)
            .collect::<Result<_, StartError>>()
            .map(Self)
    }

    pub(crate) fn monitors(&self) -> Arc<[Monitor]> {
        self.0.iter().map(Running::monitor).collect()
    }
}
