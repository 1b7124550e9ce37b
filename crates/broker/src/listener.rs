//! Listening sockets: every worker thread has its own socket for each address, and the kernel distributes new connections over them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use thicket_node::ListenerId;
use thicket_session::time::Instant;

use crate::entrance::Entrance;
use crate::stream::Stream;

/// Connections that the kernel holds for us before we accept them.
const BACKLOG: i32 = 1024;
/// Connections accepted from one socket in one round: connected clients take precedence.
const ACCEPTS_PER_ROUND: usize = 64;
/// Pause after the process has run out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two lines of the log about that.
const SILENCE: Duration = Duration::from_secs(10);

/// A listening socket of one thread.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    pub(crate) entrance: Arc<Entrance>,
    socket: Accepting,
    /// The kernel may have more connections.
    ready: bool,
    /// Not before this instant.
    paused_until: Option<Instant>,
    /// The next line of the log about missing descriptors is written after this instant.
    silent_until: Option<Instant>,
}

/// A listening socket, not registered anywhere.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

#[derive(Debug)]
enum Accepting {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Accepting {
    fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Tcp(socket) => socket
                .accept()
                .map(|(stream, peer)| (Stream::Tcp(stream), peer)),
            // The peer has no address, so this is the unspecified one.
            Self::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                Ok((
                    Stream::Unix(stream),
                    SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                ))
            }
        }
    }
}

/// The result of accepting.
pub(crate) enum Accept {
    /// A connection.
    Connection(Stream, SocketAddr),
    /// The process or the host is out of descriptors or memory; the listener pauses.
    Exhausted(io::Error),
    /// None now.
    Nothing,
}

impl Listener {
    /// Wraps a socket made by [`bind`] or [`bind_unix`].
    pub(crate) fn new(id: ListenerId, entrance: Arc<Entrance>, socket: Bound) -> Self {
        Self {
            id,
            entrance,
            socket: match socket {
                Bound::Tcp(socket) => Accepting::Tcp(TcpListener::from_std(socket)),
                Bound::Unix(socket) => Accepting::Unix(UnixListener::from_std(socket)),
            },
            ready: true,
            paused_until: None,
            silent_until: None,
        }
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            Accepting::Tcp(socket) => registry.register(socket, token, Interest::READABLE),
            Accepting::Unix(socket) => registry.register(socket, token, Interest::READABLE),
        }
    }

    /// The kernel has a connection.
    pub(crate) const fn set_ready(&mut self) {
        self.ready = true;
    }

    /// When to accept again without an event: at once, at an instant, or never.
    pub(crate) const fn wake_at(&self, now: Instant) -> Option<Instant> {
        match (self.ready, self.paused_until) {
            (false, _) => None,
            (true, None) => Some(now),
            (true, Some(until)) => Some(until),
        }
    }

    /// How many connections may be accepted in this round.
    pub(crate) const fn quota(&mut self, now: Instant) -> usize {
        match self.paused_until {
            Some(until) if now.as_millis() < until.as_millis() => 0,
            _ => {
                self.paused_until = None;
                if self.ready { ACCEPTS_PER_ROUND } else { 0 }
            }
        }
    }

    /// Whether it is time to log that connections cannot be accepted.
    pub(crate) fn may_complain(&mut self, now: Instant) -> bool {
        let may = self.silent_until.is_none_or(|until| until <= now);
        if may {
            self.silent_until = Some(now + SILENCE);
        }
        may
    }

    /// Accepts one connection.
    pub(crate) fn accept(&mut self, now: Instant) -> Accept {
        if let Some(until) = self.entrance.wait_until(now) {
            self.paused_until = Some(until);
            return Accept::Nothing;
        }
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) => return Accept::Connection(stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ready = false;
                    return Accept::Nothing;
                }
                Err(error) if is_exhausted(&error) => {
                    // The edge is consumed but the queue is not empty: without a pause we would spin, without `ready` we would never wake.
                    self.paused_until = Some(now + PAUSE);
                    return Accept::Exhausted(error);
                }
                // The connection failed in the queue, or the network did for a moment (accept(2)): try the next.
                Err(_) => {}
            }
        }
    }
}

/// EMFILE, ENFILE, ENOBUFS, ENOMEM: these go away only when something is closed.
fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error
        .raw_os_error()
        .is_some_and(|code| exhausted.iter().any(|errno| errno.raw_os_error() == code))
}

/// Binds `count` sockets to one address. Port 0 becomes a free port, the same for all.
///
/// # Errors
/// The address is not ours or the port is in use, also by a process of the same user.
pub(crate) fn bind(
    address: SocketAddr,
    count: usize,
) -> io::Result<(SocketAddr, Vec<std::net::TcpListener>)> {
    if address.port() != 0 {
        // Sockets that share a port also admit other processes of the same user; one socket without sharing detects them.
        drop(listen(address, Sharing::Alone)?);
    }
    let first = listen(address, Sharing::Shared)?;
    let bound = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(listen(bound, Sharing::Shared)?);
    }
    Ok((bound, sockets))
}

/// Binds a Unix socket; its threads share it. A file left by a process that is gone is replaced.
///
/// # Errors
/// The path cannot be used, is not a socket, or is in use.
pub(crate) fn bind_unix(
    path: &Path,
    count: usize,
) -> io::Result<Vec<std::os::unix::net::UnixListener>> {
    use std::os::unix::net::{UnixListener, UnixStream};
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() || UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let first = UnixListener::bind(path)?;
    first.set_nonblocking(true)?;
    let mut sockets = vec![first];
    for _ in 1..count {
        sockets.push(sockets[0].try_clone()?);
    }
    Ok(sockets)
}

/// TCP asks a peer that is silent for two minutes whether it is still there, and ends the connection a minute later if there is no answer. So a client with
/// keep alive 0 whose host has vanished is not connected for ever, and what lies between the two hosts remembers the connection.
pub(crate) fn keep_alive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(120))
        .with_interval(Duration::from_secs(15))
        .with_retries(4)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Alone,
    Shared,
}

fn listen(address: SocketAddr, sharing: Sharing) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // So that both 0.0.0.0 and [::] can be bound, whatever the system's default.
        socket.set_only_v6(true)?;
    }
    // Connections of an earlier start may linger.
    socket.set_reuse_address(true)?;
    if sharing == Sharing::Shared {
        socket.set_reuse_port(true)?;
    }
    // Accepted sockets inherit it (Linux).
    socket.set_tcp_keepalive(&keep_alive())?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_file_left_behind_is_replaced_and_one_in_use_or_another_file_is_not() {
        let scratch = crate::scratch::Scratch::new();
        let path = scratch.join("socket");
        let first = bind_unix(&path, 2).expect("a free path");
        assert_eq!(
            bind_unix(&path, 1).expect_err("in use").kind(),
            io::ErrorKind::AddrInUse
        );
        drop(first);
        drop(bind_unix(&path, 1).expect("left behind"));
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, "precious").expect("writable");
        assert!(bind_unix(&path, 1).is_err());
        assert_eq!(
            std::fs::read_to_string(&path).expect("still there"),
            "precious"
        );
    }

    #[test]
    fn sockets_of_one_node_share_a_port_and_another_node_is_refused_it() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let (address, sockets) = bind(any, 3).expect("a free port");
        assert_eq!(sockets.len(), 3);
        assert!(
            sockets
                .iter()
                .all(|socket| socket.local_addr().is_ok_and(|local| local == address))
        );
        let error = bind(address, 2).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn accepted_sockets_ask_whether_a_silent_peer_is_still_there() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = listen(any, Sharing::Alone).expect("a free port");
        listener.set_nonblocking(false).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let _client = std::net::TcpStream::connect(address).expect("listening");
        let (accepted, _) = listener.accept().expect("connected");
        let socket = socket2::SockRef::from(&accepted);
        assert!(socket.keepalive().expect("a socket"));
        let (time, interval) = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval());
        assert_eq!(time.expect("a socket"), Duration::from_secs(120));
        assert_eq!(interval.expect("a socket"), Duration::from_secs(15));
        assert_eq!(socket.tcp_keepalive_retries().expect("a socket"), 4);
    }
}
