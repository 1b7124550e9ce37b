//! One client of the relay.

use mio::net::TcpStream;

use crate::socket::Socket;

/// A connection and its place in the loop.
#[derive(Debug)]
pub struct Connection {
    pub socket: Socket,
    pub last_packet_id: u16,
    pub v5: bool,
    /// Has sent a PUBLISH: held back while a subscriber is congested.
    pub publishes: bool,
    pub readable: bool,
    pub dirty: bool,
    pub congested: bool,
}

impl Connection {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            socket: Socket::new(stream),
            last_packet_id: 0,
            v5: false,
            publishes: false,
            readable: false,
            dirty: false,
            congested: false,
        }
    }
}
