//! What bytes travel on. TCP today; TLS and WebSocket become variants behind the same two calls.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

/// A non-blocking stream of bytes to a peer.
#[derive(Debug)]
pub(crate) enum Transport {
    /// Plain TCP.
    Tcp(TcpStream),
}

impl Transport {
    /// Reads what is there; `Ok(0)` is the end of the stream, `WouldBlock` means not now.
    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => again_if_interrupted(|| stream.read(buffer)),
        }
    }

    /// Writes what the peer takes at once; `WouldBlock` means nothing now.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => again_if_interrupted(|| stream.write(bytes)),
        }
    }

    /// Ends our half. The peer reads all we wrote, then the end.
    pub(crate) fn finish(&mut self) {
        match self {
            // Fails only if the peer is gone, and then nobody is left to tell.
            Self::Tcp(stream) => drop(stream.shutdown(Shutdown::Write)),
        }
    }

    /// Reports both directions to `registry`, edge-triggered.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Tcp(stream) => stream.register(registry, token, both),
        }
    }

    /// No longer reports to `registry`.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(registry),
        }
    }

    /// Whether a connection we opened stands; `Ok(false)`: not decided yet.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        match self {
            Self::Tcp(stream) => {
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
}

fn again_if_interrupted(mut attempt: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
