//! A running node: threads, listeners, discovery and the HTTP API, from start to stop.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::{Poll, Waker};
use thicket_node::{HubConfig, ListenerConfig, ListenerId, WorkerConfig, WorkerId};
use thicket_overlay::{NodeId, OverlayConfig};

use crate::authenticator::Authenticator;
use crate::clock::Clock;
use crate::config::{Config, Listen};
use crate::counters::Counters;
use crate::discovery::Discovery;
use crate::http::{Inspector, Server};
use crate::identity::{Identity, IdentityError, random_id};
use crate::listener::{self, Listener};
use crate::mailbox::{Letter, Mailbox, Mailboxes, Outgoing};
use crate::resolver::Resolver;
use crate::thread::{MAILBOX, Parts, Thread};

/// After the order to stop, a thread that has not let its clients go by then is not waited for.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A node could not start. Nothing of it is left running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory is no good.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// A listener or the HTTP API cannot have its address.
    #[error("cannot listen on {address}: {}", bind_problem(source, key))]
    Bind {
        /// As configured.
        address: String,
        /// `listen` or `http`.
        key: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The system refused a thread or a descriptor.
    #[error("cannot start a node: {0}")]
    System(#[from] io::Error),
}

fn bind_problem(error: &io::Error, key: &str) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "the port is in use by another process; stop it, or choose another with `--{key} HOST:PORT`"
        ),
        io::ErrorKind::AddrNotAvailable => "this host has no such address".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "this user may not use the port (below 1024 it takes privileges)".to_owned()
        }
        _ => error.to_string(),
    }
}

/// A thread ended that should not have; the node is of no use any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In words.
    pub problem: String,
}

/// A running node. Dropping it stops it, as [`Node::stop`] does.
#[derive(Debug)]
pub struct Node {
    name: String,
    id: NodeId,
    addresses: Vec<SocketAddr>,
    boxes: Mailboxes,
    threads: Vec<JoinHandle<()>>,
    stopped: Receiver<WorkerId>,
    failures: Option<Receiver<Failure>>,
    discovery: Option<Discovery>,
    http: Option<Server>,
    identity: Option<Identity>,
}

impl Node {
    /// Starts a node; it accepts connections when this returns.
    ///
    /// # Errors
    /// An address is taken, the data directory is no good, or the system has nothing to give.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let identity = Identity::load(config.data.as_deref())?;
        let bound = bind_all(&config)?;
        let http = config.http.map(bind_http).transpose()?;
        let places = Places::of(&config, &bound);
        let counters = Arc::new(Counters::default());
        let (polls, boxes) = mailboxes(config.workers)?;
        let mut node = Self {
            name: places.name.clone(),
            id: identity.node,
            addresses: bound.iter().map(|listener| listener.address).collect(),
            boxes: Arc::clone(&boxes),
            threads: Vec::new(),
            stopped: channel().1,
            failures: None,
            discovery: None,
            http: None,
            identity: None,
        };
        node.start_threads(&config, &identity, &places, bound, polls, &counters)?;
        node.discovery = Some(Discovery::start(
            &config,
            identity.node,
            &places.address,
            &places.announced,
            &boxes,
            &counters,
        )?);
        node.http = http
            .map(|listener| Server::start(listener, Inspector::new(boxes, counters)))
            .transpose()?;
        node.identity = Some(identity);
        let listen: Vec<_> = node.addresses.iter().map(ToString::to_string).collect();
        tracing::info!(
            node = node.name,
            id = format!("{:016x}", node.id.0),
            listen = listen.join(" "),
            http = node.http_address().map(tracing::field::display),
            workers = config.workers,
            "node started"
        );
        Ok(node)
    }

    fn start_threads(
        &mut self,
        config: &Config,
        identity: &Identity,
        places: &Places,
        bound: Vec<Bound>,
        polls: Vec<Poll>,
        counters: &Arc<Counters>,
    ) -> Result<(), StartError> {
        let clock = Clock::new();
        let authenticator = Authenticator::start(&config.access, &self.boxes, counters)?;
        let resolver = Resolver::start(&self.boxes)?;
        let worker_config = worker_config(config, identity, bound.len());
        let mut hub = Some((hub_config(config, identity, places), random_id()?));
        let mut listeners = by_thread(bound, polls.len());
        let (stopped, receiver) = channel();
        let (failed, failures) = channel();
        self.stopped = receiver;
        self.failures = Some(failures);
        for (index, poll) in polls.into_iter().enumerate() {
            let id = WorkerId(u8::try_from(index).expect("workers are counted in a byte"));
            let mut parts = Parts {
                id,
                clock,
                poll,
                mailbox: Arc::clone(&self.boxes[index]),
                outgoing: Outgoing::new(Arc::clone(&self.boxes)),
                listeners: std::mem::take(&mut listeners[index]),
                worker: (worker_config.clone(), random_id()?),
                hub: hub.take(),
                authenticator: authenticator.clone(),
                resolver: resolver.clone(),
                counters: Arc::clone(counters),
                stopped: stopped.clone(),
            };
            parts.register_listeners()?;
            self.threads.push(spawn(index, parts, failed.clone())?);
        }
        Ok(())
    }

    /// For people.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Of this node, stable if there is a data directory.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// Where it accepts connections, in the order of the configuration, with the ports the system chose for 0.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where the HTTP API answers.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Server::address)
    }

    /// Threads that end before they should, as they do. The second call returns `None`.
    pub const fn failures(&mut self) -> Option<Receiver<Failure>> {
        self.failures.take()
    }

    /// Says goodbye to clients and other nodes and ends. Takes a few seconds at most.
    pub fn stop(mut self) {
        self.stop_threads();
    }

    fn stop_threads(&mut self) {
        let threads = std::mem::take(&mut self.threads);
        if threads.is_empty() {
            return;
        }
        self.http = None;
        self.discovery = None;
        for mailbox in self.boxes.iter() {
            mailbox.post(Letter::StopWorker);
        }
        // The other nodes hear goodbye after the clients, whose last messages may still be on their way to them.
        for _ in &threads {
            if self.stopped.recv_timeout(STOP_PATIENCE).is_err() {
                tracing::warn!("a thread did not let its clients go in time");
                break;
            }
        }
        self.boxes[0].post(Letter::StopHub);
        for thread in threads {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
        tracing::info!(node = self.name, "node stopped");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

fn spawn(index: usize, parts: Parts, failed: Sender<Failure>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || {
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| Thread::new(parts).run()));
            let problem = match result {
                Ok(Ok(())) => return,
                Ok(Err(error)) => format!("worker {index} ended: {error}"),
                Err(_) => format!("worker {index} panicked"),
            };
            tracing::error!(problem, "a thread of the node failed");
            // Nobody may be listening: then the log has said it.
            let _ = failed.send(Failure { problem });
        })
}

/// An address that is listened on, with a socket for each thread.
struct Bound {
    id: ListenerId,
    address: SocketAddr,
    sockets: Vec<std::net::TcpListener>,
}

fn bind_all(config: &Config) -> Result<Vec<Bound>, StartError> {
    let mut all = Vec::new();
    for listen in &config.listeners {
        bind_one(listen, usize::from(config.workers), &mut all)?;
    }
    Ok(all)
}

/// A name may have addresses this host does not (`localhost` without IPv6): one that works suffices.
fn bind_one(listen: &Listen, workers: usize, all: &mut Vec<Bound>) -> Result<(), StartError> {
    let before = all.len();
    let mut last = None;
    for &address in &listen.addresses {
        match listener::bind(address, workers) {
            Ok((address, sockets)) => {
                let id = ListenerId(u16::try_from(all.len()).expect("listeners are few"));
                all.push(Bound {
                    id,
                    address,
                    sockets,
                });
            }
            Err(error)
                if error.kind() == io::ErrorKind::AddrNotAvailable
                    || error.raw_os_error() == Some(NO_FAMILY) =>
            {
                tracing::debug!(%address, %error, "skipping an address this host does not have");
                last = Some(error);
            }
            Err(source) => {
                return Err(StartError::Bind {
                    address: address.to_string(),
                    key: "listen",
                    source,
                });
            }
        }
    }
    match last {
        Some(source) if all.len() == before => Err(StartError::Bind {
            address: listen.text.clone(),
            key: "listen",
            source,
        }),
        _ => Ok(()),
    }
}

/// EAFNOSUPPORT: a host without IPv6.
const NO_FAMILY: i32 = rustix::io::Errno::AFNOSUPPORT.raw_os_error();

fn bind_http(address: SocketAddr) -> Result<std::net::TcpListener, StartError> {
    std::net::TcpListener::bind(address).map_err(|source| StartError::Bind {
        address: address.to_string(),
        key: "http",
        source,
    })
}

/// Deals the sockets out: one of each address for each thread.
fn by_thread(bound: Vec<Bound>, threads: usize) -> Vec<Vec<Listener>> {
    let mut dealt: Vec<Vec<Listener>> = (0..threads).map(|_| Vec::new()).collect();
    for Bound { id, sockets, .. } in bound {
        for (thread, socket) in dealt.iter_mut().zip(sockets) {
            thread.push(Listener::new(id, socket));
        }
    }
    dealt
}

fn mailboxes(workers: u8) -> io::Result<(Vec<Poll>, Mailboxes)> {
    let mut polls = Vec::new();
    let mut boxes = Vec::new();
    for _ in 0..workers {
        let poll = Poll::new()?;
        boxes.push(Arc::new(Mailbox::new(Waker::new(
            poll.registry(),
            MAILBOX,
        )?)));
        polls.push(poll);
    }
    Ok((polls, boxes.into()))
}

fn worker_config(config: &Config, identity: &Identity, listeners: usize) -> WorkerConfig {
    let listener = ListenerConfig {
        allow_anonymous: config.access.allows_anonymous(),
        topic_prefix: String::new(),
    };
    WorkerConfig {
        node: identity.node,
        incarnation: identity.incarnation,
        workers: config.workers,
        listeners: vec![listener; listeners],
        limits: config.limits.clone(),
        stores: false,
        small_log_bytes: SMALL_LOG_BYTES,
    }
}

/// A log smaller than this is not worth writing again.
const SMALL_LOG_BYTES: u64 = 64 * 1024 * 1024;

fn hub_config(config: &Config, identity: &Identity, places: &Places) -> HubConfig {
    let (node, incarnation) = (identity.node, identity.incarnation);
    let overlay = OverlayConfig {
        name: places.name.clone(),
        secret: config.secret.clone(),
        routing: config.routing.clone(),
        ..OverlayConfig::new(node, incarnation, &config.cluster_name, &places.address)
    };
    HubConfig {
        workers: config.workers,
        overlay,
        discovery_grace: config.discovery_grace,
        retained_messages: config.retained.messages,
        retained_bytes: config.retained.bytes,
        stores: false,
    }
}

/// What follows from where the node listens.
struct Places {
    name: String,
    /// Where other nodes reach it.
    address: String,
    /// What announcements say: a wildcard is left to those who hear it, they know the way they heard it on.
    announced: String,
}

impl Places {
    fn of(config: &Config, bound: &[Bound]) -> Self {
        let first = bound.first().map_or_else(
            || SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            |bound| bound.address,
        );
        let reached = SocketAddr::new(outward(first.ip()), first.port());
        // Announcements travel over IPv4, so a listener for IPv6 is not where their sender's address leads.
        let announced = if first.is_ipv4() { first } else { reached };
        Self {
            name: config
                .name
                .clone()
                .unwrap_or_else(|| format!("{}-{}", host_name(), first.port())),
            address: config
                .advertise
                .clone()
                .unwrap_or_else(|| reached.to_string()),
            announced: config
                .advertise
                .clone()
                .unwrap_or_else(|| announced.to_string()),
        }
    }
}

fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// For a wildcard, the address this host uses towards others; loopback if it has no network.
fn outward(ip: IpAddr) -> IpAddr {
    if !ip.is_unspecified() {
        return ip;
    }
    // Connecting a datagram socket sends nothing; it only asks the routing table. The addresses are for documentation (RFC 5737, RFC 3849).
    let (any, elsewhere, fallback) = match ip {
        IpAddr::V4(_) => ("0.0.0.0:0", "192.0.2.1:9", IpAddr::V4(Ipv4Addr::LOCALHOST)),
        IpAddr::V6(_) => (
            "[::]:0",
            "[2001:db8::1]:9",
            IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
        ),
    };
    let asked = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(elsewhere)?;
        socket.local_addr()
    });
    asked.map_or(fallback, |local| local.ip())
}
