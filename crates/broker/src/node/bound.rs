//! The sockets of a node's listeners, bound before any thread starts, and the addresses derived from them.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use thicket_node::ListenerId;

use crate::{
    api::watch::WebSocketEntry,
    config::{Config, Listen, TransportChoice},
    entrance::Entrance,
    gate::NodeGate,
    links::Links,
    listener::{self, Listener},
    start_error::StartError,
};

/// A bound address, with a socket for each thread.
pub(super) struct Bound {
    pub(super) id: ListenerId,
    /// `None` for a Unix socket.
    pub(super) address: Option<SocketAddr>,
    pub(super) listen: Listen,
    pub(super) entrance: Arc<Entrance>,
    sockets: Vec<listener::Bound>,
}

impl Bound {
    fn new(
        before: &[Self],
        address: Option<SocketAddr>,
        listen: &Listen,
        entrance: &Arc<Entrance>,
        sockets: Vec<listener::Bound>,
    ) -> Self {
        Self {
            id: ListenerId(u16::try_from(before.len()).expect("listeners are few")),
            address,
            listen: listen.clone(),
            entrance: Arc::clone(entrance),
            sockets,
        }
    }

    /// The URL for browsers, if it is a WebSocket listener.
    pub(super) fn websocket(&self) -> Option<WebSocketEntry> {
        let (listen, bound) = (&self.listen, self.address?);
        let path = listen.websocket.as_ref()?.path.clone();
        let advertised = listen.advertise.as_ref();
        // A browser cannot send the PROXY header; a balancer does.
        if listen.proxy_protocol && advertised.is_none() {
            return None;
        }
        let advertised = advertised.and_then(|address| address.rsplit_once(':'));
        let own = || {
            let ip = bound.ip();
            let host = SocketAddr::new(ip, 0).to_string();
            let host = host.strip_suffix(":0").map(str::to_owned);
            (host.filter(|_| !ip.is_unspecified()), bound.port())
        };
        let (host, port) = match advertised {
            Some((host, port)) => (Some(host.to_owned()), port.parse().ok()?),
            None => own(),
        };
        Some(WebSocketEntry {
            secure: listen.transport == TransportChoice::Wss,
            host,
            port,
            path,
            topic_prefix: listen.topic_prefix.clone(),
        })
    }
}

pub(super) fn bind_all(
    config: &Config,
    gate: &Arc<NodeGate>,
    links: Option<&Arc<Links>>,
) -> Result<Vec<Bound>, StartError> {
    let mut all = Vec::new();
    for listen in &config.listeners {
        let entrance = Arc::new(Entrance::new(listen, gate, links)?);
        let workers = usize::from(config.workers);
        match &listen.socket_path {
            Some(path) => {
                let sockets =
                    listener::bind_unix(path, workers).map_err(|source| StartError::Bind {
                        address: listen.text.clone(),
                        key: "listen",
                        source,
                    })?;
                let sockets = sockets.into_iter().map(listener::Bound::Unix).collect();
                all.push(Bound::new(&all, None, listen, &entrance, sockets));
            }
            None => bind_one(listen, &entrance, workers, &mut all)?,
        }
    }
    Ok(all)
}

/// Each listener once: it may have several addresses.
pub(super) fn entrances(bound: &[Bound]) -> Vec<Arc<Entrance>> {
    let mut all: Vec<_> = bound
        .iter()
        .map(|bound| Arc::clone(&bound.entrance))
        .collect();
    all.dedup_by(|a, b| Arc::ptr_eq(a, b));
    all
}

/// The address for the node's own bridges: the first listener for plain TCP, preferably one without a topic prefix. A configuration with bridges has
/// such a listener.
pub(super) fn own_address(bound: &[Bound]) -> SocketAddr {
    let plain = bound.iter().filter(|bound| bound.listen.is_plain());
    let best = plain.min_by_key(|bound| !bound.listen.topic_prefix.is_empty());
    best.and_then(|bound| bound.address)
        .unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// The address for links of other nodes: the first listener that accepts links; without TLS between nodes the first for plain TCP; if there is none,
/// the first address.
pub(super) fn link_address(config: &Config, bound: &[Bound]) -> SocketAddr {
    let suits = bound.iter().filter(|bound| bound.listen.takes_links());
    let address = suits.chain(bound).find_map(|bound| bound.address);
    let has_suitable = bound.iter().any(|bound| bound.listen.takes_links());
    if !has_suitable && config.advertise.is_none() && looks_for_others(config) {
        tracing::warn!("no listener for plain TCP: other nodes cannot link to this one");
    }
    address.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

fn looks_for_others(config: &Config) -> bool {
    config.multicast.is_some() || config.dns.is_some() || !config.seeds.is_empty()
}

/// A name may have addresses that this host lacks (`localhost` without IPv6): one that works is enough.
fn bind_one(
    listen: &Listen,
    entrance: &Arc<Entrance>,
    workers: usize,
    all: &mut Vec<Bound>,
) -> Result<(), StartError> {
    let before = all.len();
    let mut last = None;
    for &address in &listen.addresses {
        match listener::bind(address, workers) {
            Ok((address, sockets)) => {
                let sockets = sockets.into_iter().map(listener::Bound::Tcp).collect();
                all.push(Bound::new(all, Some(address), listen, entrance, sockets));
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

pub(super) fn bind_http(
    address: SocketAddr,
    key: &'static str,
) -> Result<std::net::TcpListener, StartError> {
    std::net::TcpListener::bind(address).map_err(|source| StartError::Bind {
        address: address.to_string(),
        key,
        source,
    })
}

/// Distributes the sockets: one of each address to each thread.
pub(super) fn by_thread(bound: Vec<Bound>, threads: usize) -> Vec<Vec<Listener>> {
    let mut dealt: Vec<Vec<Listener>> = (0..threads).map(|_| Vec::new()).collect();
    for Bound {
        id,
        sockets,
        entrance,
        ..
    } in bound
    {
        for (thread, socket) in dealt.iter_mut().zip(sockets) {
            thread.push(Listener::new(id, Arc::clone(&entrance), socket));
        }
    }
    dealt
}
