//! A proxy for unchanged clients: one ordinary MQTT session towards the client, up to `max_sessions` sessions towards the nodes of a cluster, each
//! where its topics are (Detti IV.A).
//!
//! A splitter holds no messages. It forwards each packet to the session of its topic or filter, and acknowledgements back, so a client receives an
//! acknowledgement when the node has sent it. Its state for a client is in [`split::Memory`].
//!
//! Left to others: where topics should be (any node decides), storing messages and acknowledging them (the nodes).
//!
//! # Invariants
//! - A topic or filter belongs to one session for as long as the client's session exists, so messages of one topic keep their order.
//! - When a connection to a node ends, whatever the cause, the client's connection ends as well. The client reconnects, as it would to
//!   a broker, and all its sessions resume, with every exchange in flight.
//! - The will and the limits in the CONNACK are those of the first session.
//! - Every buffer is bounded: when a peer does not read, nothing more is read for it.
//!
//! [`split`] is the pure half, [`Splitter`] has the sockets.

mod client;
mod ids;
mod memory;
mod newcomers;
mod node;
mod outbox;
pub mod split;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thicket_client::control::Control;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use self::memory::Memories;
use self::newcomers::Newcomers;
use self::node::Silent;

/// Most sessions for one client, as in a request for a placement.
pub const MOST_SESSIONS: usize = 16;

/// Time between two looks for a client that yields its place.
const MAKE_WAY_AGAIN: Duration = Duration::from_millis(20);

/// The configuration of a splitter.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients connect, `HOST:PORT`.
    pub listen: String,
    /// Nodes of the cluster, `HOST:PORT` each.
    pub cluster: Vec<String>,
    /// URLs of the nodes' HTTP APIs, for placements.
    pub apis: Vec<String>,
    /// Sessions for one client, 1 to 16.
    pub max_sessions: usize,
    /// Bytes of the largest packet, in both directions.
    pub maximum_packet_size: u32,
    /// Clients at a time; others wait until one disconnects.
    pub max_connections: usize,
    /// Timeout for a node to accept a connection and to answer a CONNECT.
    pub connect_timeout: Duration,
}

/// Why a splitter does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Misuse: an invalid value.
    #[error("{key}: {problem}")]
    Config {
        /// The setting's name.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where it should listen.
        address: String,
        /// The reason.
        source: std::io::Error,
    },
}

/// The part that all connections share.
#[derive(Debug)]
struct Shared {
    config: Config,
    memories: Memories,
    silent: Silent,
    newcomers: Arc<Newcomers>,
}

/// A listening splitter.
#[derive(Debug)]
pub struct Splitter {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Splitter {
    /// Checks `config` and opens the listener.
    ///
    /// # Errors
    /// [`Error`]
    pub async fn bind(config: Config) -> Result<Self, Error> {
        config.check()?;
        let listener = TcpListener::bind(&config.listen)
            .await
            .map_err(|source| Error::Listen {
                address: config.listen.clone(),
                source,
            })?;
        if let Ok(listen) = listener.local_addr() {
            config.check_is_elsewhere(listen).await?;
        }
        let shared = Shared {
            config,
            memories: Memories::default(),
            silent: Silent::default(),
            newcomers: Arc::default(),
        };
        Ok(Self {
            listener,
            shared: Arc::new(shared),
        })
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Serves clients as long as it is polled.
    pub async fn run(self) {
        let seats = Arc::new(Semaphore::new(self.shared.config.max_connections));
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let Some(seat) = self.seat(&seats).await else {
                        return;
                    };
                    let shared = Arc::clone(&self.shared);
                    let newcomer = shared.newcomers.enter(peer.ip());
                    tokio::spawn(async move {
                        let end = client::serve(stream, newcomer, &shared).await;
                        tracing::debug!(%peer, ?end, "client left");
                        drop(seat);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Splitter {
    /// A place for a client that has connected. When there is none, one that has sent no CONNECT yields; without such a one the client waits.
    async fn seat(&self, seats: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        let mut rest = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                seat = Arc::clone(seats).acquire_owned() => return seat.ok(),
                () = tokio::time::sleep(rest) => self.shared.newcomers.make_way(),
            }
            rest = MAKE_WAY_AGAIN;
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), Error> {
        let wrong = |key, problem: String| Err(Error::Config { key, problem });
        if self.cluster.is_empty() {
            return wrong("cluster", "expected at least one HOST:PORT".to_owned());
        }
        for node in &self.cluster {
            if node::address_of(node).is_none() {
                return wrong("cluster", format!("{node:?}: expected HOST:PORT"));
            }
        }
        if let Some(url) = self.apis.iter().find(|url| !url.starts_with("http://")) {
            return wrong("api", format!("{url:?}: expected http://HOST:PORT"));
        }
        if !(1..=MOST_SESSIONS).contains(&self.max_sessions) {
            let problem = format!("{}: expected 1 to {MOST_SESSIONS}", self.max_sessions);
            return wrong("max_sessions", problem);
        }
        if self.max_connections == 0 {
            return wrong("max_connections", "0: expected at least 1".to_owned());
        }
        Ok(())
    }

    /// Refuses a node that is the splitter itself: a single client would use up all its connections.
    ///
    /// A name that does not resolve now is not an error: it may resolve later.
    async fn check_is_elsewhere(&self, listen: SocketAddr) -> Result<(), Error> {
        for node in &self.cluster {
            let Some((host, port)) = node::address_of(node) else {
                continue;
            };
            let found = tokio::net::lookup_host((host, port)).await;
            let mut addresses = found.into_iter().flatten();
            if addresses.any(|address| leads_to(address, listen)) {
                let problem = format!("{node}: is this proxy itself, which listens on {listen}");
                return Err(Error::Config {
                    key: "cluster",
                    problem,
                });
            }
        }
        Ok(())
    }

    fn control(&self, login: Option<(String, Vec<u8>)>) -> Control {
        Control {
            urls: self.apis.clone(),
            login,
        }
    }
}

/// Whether a connection to `address` arrives at a listener of this host on `listen`.
fn leads_to(address: SocketAddr, listen: SocketAddr) -> bool {
    // An address belongs to this host if a socket can be bound to it.
    let is_own = || std::net::UdpSocket::bind((address.ip(), 0)).is_ok();
    address.port() == listen.port()
        && (address.ip() == listen.ip() || (listen.ip().is_unspecified() && is_own()))
}
