//! What a listener does with new connections: which are accepted, and which layers lie between their socket and MQTT.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use thicket_node::Takes;
use thicket_session::time::Instant;
use thicket_transport::tls::rustls::ServerConfig;
use thicket_transport::tls::{ServerTls, TlsError};

use crate::config::{self, Listen};
use crate::gate::{Gate, NodeGate, PublishRates, Seat};
use crate::layers::{Layered, Tls, WebSocket};
use crate::links::Links;
use crate::stream::Stream;
use crate::transport::{Transport, Undecided};

/// One configured listener, shared by its sockets on all threads.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// The address as configured.
    pub(crate) name: String,
    pub(crate) gate: Arc<Gate>,
    pub(crate) has_preface: bool,
    links: LinksHere,
    tls: Option<Certificate>,
    websocket: Option<Arc<config::WebSocket>>,
}

/// How links of other nodes are accepted here.
#[derive(Debug)]
enum LinksHere {
    /// Not at all, or as plain TCP like clients.
    Plain,
    /// Over TLS, recognised by the first byte.
    WithClients(Arc<Links>),
    /// Over TLS, and nothing else is accepted.
    Alone(Arc<Links>),
}

/// A certificate in use, and the files it came from.
#[derive(Debug)]
struct Certificate {
    files: ServerTls,
    in_use: Mutex<Arc<ServerConfig>>,
}

impl Entrance {
    /// Reads the certificate.
    pub(crate) fn new(
        listen: &Listen,
        node: &Arc<NodeGate>,
        links: Option<&Arc<Links>>,
    ) -> Result<Self, TlsError> {
        let tls = listen.tls.as_ref().map(|files| {
            Ok::<_, TlsError>(Certificate {
                files: files.clone(),
                in_use: Mutex::new(files.load()?),
            })
        });
        Ok(Self {
            name: listen.text.clone(),
            gate: Gate::new(
                node,
                listen.connections,
                listen.connections_per_s,
                PublishRates {
                    messages_per_s: listen.messages_per_s,
                    bytes_per_s: listen.bytes_per_s,
                },
            ),
            has_preface: listen.proxy_protocol,
            links: match (listen.takes, links) {
                (Takes::Links, Some(links)) => LinksHere::Alone(Arc::clone(links)),
                (Takes::Both, Some(links)) if listen.is_plain() && links.come_in_with_clients() => {
                    LinksHere::WithClients(Arc::clone(links))
                }
                (Takes::Links | Takes::Both | Takes::Clients, _) => LinksHere::Plain,
            },
            tls: tls.transpose()?,
            websocket: listen.websocket.clone().map(Arc::new),
        })
    }

    /// When the next connection may be accepted, if not now.
    pub(crate) fn wait_until(&self, now: Instant) -> Option<Instant> {
        self.gate.wait_until(now)
    }

    /// Whether other nodes link here with a proof.
    pub(crate) const fn takes_links(&self) -> bool {
        !self.has_preface && !matches!(self.links, LinksHere::Plain)
    }

    /// Puts the layers over an accepted socket.
    pub(crate) fn dress(
        &self,
        stream: Stream,
        peer: SocketAddr,
        seat: Seat,
    ) -> io::Result<Transport> {
        match &self.links {
            LinksHere::Alone(links) => {
                return Transport::accept_link(links, stream, peer, seat, &[]);
            }
            LinksHere::WithClients(links) => {
                let undecided = Undecided::new(stream, peer, seat, Arc::clone(links));
                return Ok(Transport::Undecided(Some(Box::new(undecided))));
            }
            LinksHere::Plain => {}
        }
        if self.tls.is_none() && self.websocket.is_none() && !self.has_preface {
            return Ok(Transport::Plain {
                stream,
                seat: Some(seat),
            });
        }
        let tls = self
            .tls
            .as_ref()
            .map(|tls| Tls::new(tls.in_use()))
            .transpose()?;
        let websocket = self.websocket.clone().map(WebSocket::new);
        let mut layered = Layered::new(stream, Some(seat), tls, websocket);
        layered.come_from(peer);
        Ok(Transport::Layered(Box::new(layered)))
    }

    /// The TLS configuration for its clients, with the certificate in use; `None`: no TLS.
    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().map(Certificate::in_use)
    }

    /// Reads the certificate again. Established connections keep the old one. `false`: there is none.
    ///
    /// # Errors
    /// A file is not valid; the certificate in use stays.
    pub(crate) fn reload(&self) -> Result<bool, TlsError> {
        let Some(tls) = &self.tls else {
            return Ok(false);
        };
        let fresh = tls.files.load()?;
        *tls.in_use.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(true)
    }
}

impl Certificate {
    fn in_use(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.in_use.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
