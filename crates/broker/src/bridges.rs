//! The bridges of a node. Each connects to its own node as a client does, over the first listener for plain TCP.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thicket_bridge::{Connection, Dial, Monitor, Running, start};
use thicket_transport::client::{Target, Writer, connect};
use thicket_transport::tls::ClientTls;

use crate::config::{BridgeAddress, BridgePlan, reached};
use crate::identity::random_id;
use crate::start_error::StartError;

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
        let own = BridgeAddress::tcp(reached(address).to_string());
        let local = Arc::new(LayeredDial(own));
        let run = |plan: &BridgePlan| {
            let remote = LayeredDial(plan.address.clone());
            let config = plan.config(node, node_name);
            let seed = random_id()?;
            Ok(start(
                &*plan.name,
                config,
                Arc::clone(&local) as _,
                Arc::new(remote),
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

/// A broker that accepts no bytes for this long is down.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// To a broker behind TLS or WebSocket, or neither. Files of certificates are read at each attempt, so that new ones count from then on.
#[derive(Debug)]
struct LayeredDial(BridgeAddress);

impl Dial for LayeredDial {
    fn dial(&self) -> io::Result<Connection> {
        let BridgeAddress {
            place,
            tls,
            websocket,
            ..
        } = &self.0;
        let tls = tls.as_ref().map(ClientTls::load).transpose();
        let target = Target {
            place: place.clone(),
            tls: tls.map_err(io::Error::other)?,
            websocket: websocket.clone(),
        };
        let (reader, writer) = connect(&target).map_err(io::Error::other)?;
        writer.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let writer = Arc::new(writer);
        Ok(Connection {
            reader: Box::new(reader),
            writer: Box::new(Writing(Arc::clone(&writer))),
            close: Box::new(move || writer.end()),
        })
    }

    fn place(&self) -> String {
        self.0.text.clone()
    }
}

struct Writing(Arc<Writer>);

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
