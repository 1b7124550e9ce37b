//! One MQTT client of the generator.

use mio::net::TcpStream;

use crate::socket::Socket;

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Publishes the stream of this index.
    Publisher(u32),
    /// The subscriber of this index.
    Subscriber(u32),
}

/// The phase of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It lost its connection, and makes the next one at this time of the run's clock.
    Waits { until_ns: u64 },
    /// The TCP connection is being made.
    Connecting,
    /// CONNECT is sent.
    AwaitsConnack,
    /// This many SUBSCRIBE are sent and not answered.
    AwaitsSuback(usize),
    /// At work.
    Ready,
}

/// A client and its connection.
#[derive(Debug)]
pub struct Client {
    pub socket: Socket,
    pub role: Role,
    pub phase: Phase,
    /// Index of its node.
    pub node: usize,
    /// May have something to read: epoll reports it only once.
    pub readable: bool,
    /// In the list of clients to write.
    pub dirty: bool,
    /// When this connection was begun, on the run's clock; 0 before the run.
    pub dialled_ns: u64,
    /// A broker has redirected it.
    pub is_redirected: bool,
}

impl Client {
    /// Whether it may publish.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    pub fn new(stream: TcpStream, role: Role, node: usize) -> Self {
        Self {
            socket: Socket::new(stream),
            role,
            phase: Phase::Connecting,
            node,
            readable: false,
            dirty: false,
            dialled_ns: 0,
            is_redirected: false,
        }
    }
}
