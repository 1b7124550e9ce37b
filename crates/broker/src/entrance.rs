//! What a listener does with those who come: who is let in, and what lies between their socket and MQTT.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use thicket_node::Takes;
use thicket_session::time::Instant;
use thicket_transport::tls::rustls::{ClientConfig, ServerConfig};
use thicket_transport::tls::{LinkTls, ServerTls, TlsError};

use crate::config::{self, Listen};
use crate::gate::{Gate, NodeGate, Seat};
use crate::layers::{Layered, Tls, WebSocket};
use crate::transport::{Stream, Transport};

/// One configured listener, shared by its sockets on all threads.
#[derive(Debug)]
pub(crate) struct Entrance {
    /// The address as configured.
    pub(crate) name: String,
    pub(crate) gate: Arc<Gate>,
    pub(crate) has_preface: bool,
    /// For other nodes.
    is_link: bool,
    tls: Option<Certificate>,
    websocket: Option<Arc<config::WebSocket>>,
}

/// A certificate in use, and the files it came from.
#[derive(Debug)]
struct Certificate {
    files: ServerTls,
    in_use: Mutex<Arc<ServerConfig>>,
}

impl Entrance {
    /// Reads the certificate.
    pub(crate) fn new(listen: &Listen, node: &Arc<NodeGate>) -> Result<Self, TlsError> {
        let tls = listen.tls.as_ref().map(|files| {
            Ok::<_, TlsError>(Certificate {
                files: files.clone(),
                in_use: Mutex::new(files.load()?),
            })
        });
        Ok(Self {
            name: listen.text.clone(),
            gate: Gate::new(node, listen.connections, listen.connections_per_s),
            has_preface: listen.proxy_protocol,
            is_link: listen.takes == Takes::Links,
            tls: tls.transpose()?,
            websocket: listen.websocket.clone().map(Arc::new),
        })
    }

    /// When the next connection may be accepted, if not now.
    pub(crate) fn wait_until(&self, now: Instant) -> Option<Instant> {
        self.gate.wait_until(now)
    }

    /// Puts the layers over a socket that has a seat.
    pub(crate) fn dress(&self, stream: Stream, seat: Seat) -> io::Result<Transport> {
        if self.tls.is_none() && self.websocket.is_none() && !self.has_preface {
            return Ok(Transport::Plain {
                stream,
                _seat: Some(seat),
            });
        }
        let tls = self
            .tls
            .as_ref()
            .map(|tls| Tls::new(tls.in_use()))
            .transpose()?;
        let tls = match tls {
            Some(tls) if self.is_link => {
                let link = Layered::link(stream, Some(seat), tls);
                return Ok(Transport::Layered(Box::new(link)));
            }
            tls => tls,
        };
        let websocket = self.websocket.clone().map(WebSocket::new);
        Ok(Transport::Layered(Box::new(Layered::new(
            stream,
            Some(seat),
            tls,
            websocket,
        ))))
    }

    /// Reads the certificate again. Connections that stand keep theirs. `false`: there is none.
    ///
    /// # Errors
    /// A file is no good; the one in use stays.
    pub(crate) fn reload(&self) -> Result<bool, TlsError> {
        let Some(tls) = &self.tls else {
            return Ok(false);
        };
        let fresh = tls.files.load()?;
        *tls.in_use.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(true)
    }
}

/// What this node shows and believes when it connects to others, shared by all threads.
#[derive(Debug)]
pub(crate) struct LinkCertificate {
    files: LinkTls,
    in_use: Mutex<Arc<ClientConfig>>,
}

impl LinkCertificate {
    /// Reads the files.
    pub(crate) fn new(files: LinkTls) -> Result<Self, TlsError> {
        let in_use = Mutex::new(files.load()?);
        Ok(Self { files, in_use })
    }

    /// Puts TLS over a socket that is being connected.
    pub(crate) fn dress(&self, stream: Stream) -> io::Result<Transport> {
        let config = Arc::clone(&self.in_use.lock().unwrap_or_else(PoisonError::into_inner));
        let link = Layered::link(stream, None, Tls::towards_node(config)?);
        Ok(Transport::Layered(Box::new(link)))
    }

    /// Reads the files again. Links that stand keep what they began with.
    ///
    /// # Errors
    /// A file is no good; what is in use stays.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let fresh = self.files.load()?;
        *self.in_use.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }
}

impl Certificate {
    fn in_use(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.in_use.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
