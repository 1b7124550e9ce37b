//! The transport under MQTT: plain TCP or a Unix socket, or layers over it (`layers`).

use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};

use crate::gate::{Gate, Seat};
use crate::layers::{Failure, Layered};
use crate::links::{Links, Proof};
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

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// That many bytes; `drained`: the kernel has no more, and sends an event when it has.
    Bytes { count: usize, drained: bool },
    /// Nothing for MQTT.
    Nothing { drained: bool },
    /// The end of the stream.
    End,
}

impl Transport {
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
                *self = links.accept(stream, peer, seat, &buffer[..count])?;
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

impl Stream {
    /// As `Read::read`, but repeated if a signal interrupts it.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        again_if_interrupted(|| match self {
            Self::Tcp(stream) => receive(stream, buffer),
            Self::Unix(stream) => receive(stream, buffer),
        })
    }

    /// The address of the other end, for the log.
    pub(crate) fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) => stream.peer_addr().map(|peer| peer.to_string()),
            Self::Unix(_) => Ok("unix".to_owned()),
        }
        .unwrap_or_else(|_| "gone".to_owned())
    }

    /// Closes our direction.
    pub(crate) fn finish(&self) {
        // Fails only if the peer is gone, and then nobody needs to be notified.
        drop(match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        });
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => send(stream, bytes),
            Self::Unix(stream) => send(stream, bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As `Read::read`, without the C library: with several threads its functions ask before and after whether the thread is to be cancelled.
fn receive(socket: &impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (count, _) = rustix::net::recv(socket, buffer, RecvFlags::empty())?;
    Ok(count)
}

/// As `Write::write`, in the same way.
fn send(socket: &impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

pub(crate) fn again_if_interrupted<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
