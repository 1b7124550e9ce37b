//! The transport under MQTT: plain TCP or a Unix socket, or layers over it (`layers`).

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use mio::event::Source;
use mio::{Interest, Registry, Token};

use crate::gate::{Gate, Seat};
use crate::layers::{Failure, Layered, Tls};
use crate::links::{Links, Proof};
use crate::stream::{Stream, Taken, again_if_interrupted};
use thicket_transport::tls::is_of_client;

/// A non-blocking stream of bytes to a peer. Small: an idle connection has one.
#[derive(Debug)]
pub(crate) enum Transport {
    /// No layers. The seat is freed with the connection.
    Plain { stream: Stream, seat: Option<Seat> },
    /// PROXY header, TLS or WebSocket.
    Layered(Box<Layered>),
    /// A client, or a link with TLS: the first byte decides.
    Undecided(Option<Box<Undecided>>),
}

/// A socket from which nothing has been read yet.
#[derive(Debug)]
pub(crate) struct Undecided {
    stream: Stream,
    peer: SocketAddr,
    seat: Seat,
    links: Arc<Links>,
}

/// The first byte of a TLS handshake (RFC 8446 5.1); MQTT begins with CONNECT, which differs.
const HANDSHAKE: u8 = 0x16;

impl Transport {
    /// Puts TLS over a socket that connects to another node.
    pub(crate) fn dial_link(links: &Arc<Links>, stream: Stream) -> io::Result<Self> {
        let trust = links.trust();
        let tls = Tls::towards_node(trust.keys.client())?;
        let link = Layered::link(stream, None, tls, (Arc::clone(links), trust));
        Ok(Self::Layered(Box::new(link)))
    }

    /// Puts TLS over a socket that another node has connected; `early` was read from it already.
    pub(crate) fn accept_link(
        links: &Arc<Links>,
        stream: Stream,
        peer: SocketAddr,
        seat: Seat,
        early: &[u8],
    ) -> io::Result<Self> {
        let trust = links.trust();
        let tls = Tls::new(trust.keys.server())?;
        let mut link = Layered::link(stream, Some(seat), tls, (Arc::clone(links), trust));
        link.come_from(peer);
        link.put_back(early);
        Ok(Self::Layered(Box::new(link)))
    }

    /// Reads available bytes.
    ///
    /// # Errors
    /// The connection is unusable.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<Taken> {
        match self {
            Self::Plain { stream, .. } => match stream.try_read(buffer) {
                Ok(0) => Ok(Taken::End),
                Ok(count) => Ok(Taken::Bytes {
                    count,
                    // Less than requested means drained.
                    drained: count < buffer.len(),
                }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Ok(Taken::Nothing { drained: true })
                }
                Err(error) => Err(error),
            },
            Self::Layered(layered) => layered.try_read(buffer),
            Self::Undecided(_) => {
                let count = match self.stream_mut().try_read(buffer) {
                    Ok(0) => return Ok(Taken::End),
                    Ok(count) => count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(Taken::Nothing { drained: true });
                    }
                    Err(error) => return Err(error),
                };
                self.decide(buffer, count)
            }
        }
    }

    /// The first bytes of a socket have arrived: they decide whether it is a client or a link.
    fn decide(&mut self, buffer: &mut [u8], count: usize) -> io::Result<Taken> {
        let drained = count < buffer.len();
        if let Self::Undecided(undecided) = self
            && let Some(undecided) = undecided.take()
        {
            let Undecided {
                stream,
                peer,
                seat,
                links,
            } = *undecided;
            if buffer.first() == Some(&HANDSHAKE) && !is_of_client(&buffer[..count]) {
                if !links.may_begin() {
                    links.complain(
                        &peer.to_string(),
                        None,
                        "link refused: too many begin at once",
                    );
                    return Ok(Taken::End);
                }
                *self = Self::accept_link(&links, stream, peer, seat, &buffer[..count])?;
                return self.try_read(buffer);
            }
            if seat.is_for_link() {
                seat.gate().refuse_client();
                return Ok(Taken::End);
            }
            *self = Self::Plain {
                stream,
                seat: Some(seat),
            };
        }
        Ok(Taken::Bytes { count, drained })
    }

    /// Writes what the socket, or its layers, accept at once; `WouldBlock` means nothing now. Follow with `try_flush`.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain { stream, .. } => again_if_interrupted(|| stream.write(bytes)),
            Self::Layered(layered) => layered.try_write(bytes),
            Self::Undecided(_) => again_if_interrupted(|| self.stream_mut().write(bytes)),
        }
    }

    /// Writes what layers hold for the peer; `WouldBlock` means that some is left.
    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain { .. } | Self::Undecided(_) => Ok(()),
            Self::Layered(layered) => layered.try_flush(),
        }
    }

    /// Whether layers hold something for the peer.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Plain { .. } | Self::Undecided(_) => false,
            Self::Layered(layered) => layered.has_unsent(),
        }
    }

    /// Closes our direction. The peer reads all we wrote, then the end.
    pub(crate) fn finish(&mut self) {
        match self {
            Self::Plain { stream, .. } => stream.finish(),
            Self::Layered(layered) => layered.finish(),
            Self::Undecided(_) => self.stream_mut().finish(),
        }
    }

    /// The gate of its listener; `None`: this node has dialled, or the connection no longer counts there.
    pub(crate) fn gate(&self) -> Option<&Gate> {
        match self {
            Self::Plain { seat, .. } => seat.as_ref().map(Seat::gate),
            Self::Layered(layered) => layered.gate(),
            Self::Undecided(undecided) => undecided.as_ref().map(|it| it.seat.gate()),
        }
    }

    /// The connection no longer counts among those of its listener.
    pub(crate) fn leave_seat(&mut self) {
        match self {
            Self::Plain { seat, .. } => *seat = None,
            Self::Layered(layered) => layered.leave_seat(),
            Self::Undecided(_) => {}
        }
    }

    /// Registers both directions with `registry`, edge-triggered.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self.stream_mut() {
            Stream::Tcp(stream) => stream.register(registry, token, both),
            Stream::Unix(stream) => stream.register(registry, token, both),
        }
    }

    /// Deregisters from `registry`.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self.stream_mut() {
            Stream::Tcp(stream) => stream.deregister(registry),
            Stream::Unix(stream) => stream.deregister(registry),
        }
    }

    /// Whether a connection that this node opened is established; `Ok(false)`: not decided yet.
    pub(crate) fn is_connected(&mut self) -> io::Result<bool> {
        match self.stream_mut() {
            Stream::Unix(_) => Ok(true),
            Stream::Tcp(stream) => {
                if let Some(error) = stream.take_error()? {
                    return Err(error);
                }
                match stream.peer_addr() {
                    Ok(_) => Ok(true),
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// The name in the certificate that the peer has presented, if it was valid.
    pub(crate) fn certificate_name(&self) -> Option<String> {
        match self {
            Self::Plain { .. } | Self::Undecided(_) => None,
            Self::Layered(layered) => layered.certificate_name(),
        }
    }

    /// When that certificate expires, in seconds since 1970.
    pub(crate) fn certificate_expires_at_s(&self) -> Option<u64> {
        match self {
            Self::Plain { .. } | Self::Undecided(_) => None,
            Self::Layered(layered) => layered.certificate_expires_at_s(),
        }
    }

    /// The keys by which both ends of a link have authenticated; returned once, when that is done.
    pub(crate) fn take_proof(&mut self) -> Option<Proof> {
        match self {
            Self::Plain { .. } | Self::Undecided(_) => None,
            Self::Layered(layered) => layered.take_proof(),
        }
    }

    /// The keys by which they have authenticated.
    pub(crate) fn proof(&self) -> Option<Proof> {
        match self {
            Self::Plain { .. } | Self::Undecided(_) => None,
            Self::Layered(layered) => layered.proof(),
        }
    }

    /// The connection is closed; `error`: why, unless the peer closed it.
    pub(crate) fn note_end(&self, error: Option<&io::Error>) -> Option<Failure> {
        match self {
            Self::Plain { .. } | Self::Undecided(_) => None,
            Self::Layered(layered) => layered.note_end(error),
        }
    }

    pub(crate) fn stream_mut(&mut self) -> &mut Stream {
        match self {
            Self::Plain { stream, .. } => stream,
            Self::Layered(layered) => layered.stream_mut(),
            Self::Undecided(undecided) => {
                let undecided = undecided.as_mut();
                &mut undecided
                    .expect("`decide` puts another kind in its place")
                    .stream
            }
        }
    }
}

impl Undecided {
    pub(crate) const fn new(
        stream: Stream,
        peer: SocketAddr,
        seat: Seat,
        links: Arc<Links>,
    ) -> Self {
        Self {
            stream,
            peer,
            seat,
            links,
        }
    }
}
