//! A connected socket, TCP or Unix, read and written without blocking.

use std::io::{self, IoSlice, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;

use mio::net::{TcpStream, UnixStream};
use rustix::net::{RecvFlags, SendFlags};

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
