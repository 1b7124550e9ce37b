//! One publisher: its connection, to whichever broker, and its messages.

use std::net::SocketAddr;

use mio::net::TcpStream;
use thicket_mqtt::{
    Connack, Connect, Disconnect, Packet, ProtocolVersion, Publish, ReasonCode, ServerReference,
    decode, server_references,
};

use super::types::{PublisherType, Redirect};
use crate::BenchError;
use crate::generator::Node;
use crate::socket::Socket;

/// Unsent bytes at which a publisher pauses; messages that are due stay due.
const MAX_UNSENT: usize = 1024 * 1024;

/// The phase of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    AwaitsConnack,
    Publishing,
}

/// One publisher.
#[derive(Debug)]
pub(super) struct Publisher {
    pub socket: Socket,
    pub phase: Phase,
    /// Index of the broker it is connected to.
    pub broker: usize,
    pub client_id: String,
    /// Redirects followed since the attempt started.
    pub hops: u32,
    /// Where the attempt started, for the next one.
    pub entry: usize,
    template: Vec<u8>,
    gap_ns: f64,
    first_due_ns: u64,
    /// Messages due since `first_due_ns`.
    due: u64,
    /// Messages sent on this connection.
    sent: u64,
}

/// The meaning of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Nothing,
    Accepted,
    /// Redirected to HOST:PORT.
    SentTo(String),
}

impl Publisher {
    pub fn new(
        stream: TcpStream,
        index: usize,
        prefix: &str,
        kind: PublisherType,
        at: usize,
    ) -> Result<Self, BenchError> {
        let payload = vec![b'.'; kind.payload_len];
        let topic = format!("{prefix}/type/{index}");
        let mut template = Vec::new();
        Publish::new(&topic, &payload)
            .encode(ProtocolVersion::V5, &mut template)
            .map_err(|error| {
                BenchError::Setting(format!("a message cannot be encoded: {error}"))
            })?;
        Ok(Self {
            socket: Socket::new(stream),
            phase: Phase::Connecting,
            broker: at,
            client_id: format!("{prefix}-p{index}"),
            hops: 0,
            entry: at,
            template,
            gap_ns: 1e9 / kind.rate_per_s,
            first_due_ns: 0,
            due: 0,
            sent: 0,
        })
    }

    /// Replaces its connection.
    pub fn reconnect(&mut self, stream: TcpStream, broker: usize) {
        self.socket = Socket::new(stream);
        self.phase = Phase::Connecting;
        self.broker = broker;
        self.sent = 0;
    }

    /// The connection is established: sends CONNECT.
    pub fn greet(&mut self) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        let connect = Connect::new(ProtocolVersion::V5, &self.client_id);
        // The short name that it uses always fits.
        let _ = Packet::Connect(Box::new(connect)).encode(ProtocolVersion::V5, &mut bytes);
        self.phase = Phase::AwaitsConnack;
        let _ = self.socket.stream.set_nodelay(true);
        self.socket.send(&bytes)
    }

    /// From now on it may publish.
    pub fn begin(&mut self, now_ns: u64) {
        self.phase = Phase::Publishing;
        (self.first_due_ns, self.due, self.hops) = (now_ns, 0, 0);
    }

    /// Sends messages that are due.
    pub fn publish(&mut self, now_ns: u64) -> std::io::Result<()> {
        let elapsed = now_ns.saturating_sub(self.first_due_ns) as f64;
        let due = (elapsed / self.gap_ns) as u64;
        while self.due < due && self.socket.unsent() < MAX_UNSENT {
            self.due += 1;
            self.sent += 1;
            let output = self.socket.output();
            output.extend_from_slice(&self.template);
        }
        self.socket.write()
    }

    /// Messages that this connection has accepted.
    pub fn published(&self) -> u64 {
        let waiting = self.socket.unsent().div_ceil(self.template.len());
        self.sent.saturating_sub(waiting as u64)
    }

    /// The meaning of a packet from the broker, and its length; `None`: it is incomplete.
    pub fn answer(
        &self,
        bytes: &[u8],
        redirect: Redirect,
        node: &Node,
    ) -> Result<Option<(Answer, usize)>, BenchError> {
        let protocol = |what: String| BenchError::Protocol {
            node: node.name.clone(),
            client_id: self.client_id.clone(),
            what,
        };
        let decoded = decode(bytes, ProtocolVersion::V5, u32::MAX);
        let Some((packet, len)) = decoded.map_err(|error| protocol(error.to_string()))? else {
            return Ok(None);
        };
        let answer = match (packet, self.phase) {
            (Packet::Connack(connack), Phase::AwaitsConnack) => {
                self.connack(&connack, redirect, node)?
            }
            (Packet::Disconnect(disconnect), Phase::Publishing) => {
                self.disconnect(&disconnect, redirect, node)?
            }
            (Packet::Pingresp, Phase::Publishing) => Answer::Nothing,
            (packet, phase) => {
                return Err(protocol(format!("{:?} while {phase:?}", packet.kind())));
            }
        };
        Ok(Some((answer, len)))
    }

    fn connack(
        &self,
        connack: &Connack<'_>,
        redirect: Redirect,
        node: &Node,
    ) -> Result<Answer, BenchError> {
        if !connack.reason_code.is_error() {
            return Ok(Answer::Accepted);
        }
        let code = connack.reason_code;
        let place = self.elsewhere(code, connack.server_reference, redirect);
        place
            .map(Answer::SentTo)
            .ok_or_else(|| BenchError::Refused {
                node: node.name.clone(),
                client_id: self.client_id.clone(),
                reason_code: code,
            })
    }

    fn disconnect(
        &self,
        disconnect: &Disconnect<'_>,
        redirect: Redirect,
        node: &Node,
    ) -> Result<Answer, BenchError> {
        let code = disconnect.reason_code;
        let place = self.elsewhere(code, disconnect.server_reference, redirect);
        place.map(Answer::SentTo).ok_or_else(|| BenchError::Closed {
            node: node.name.clone(),
            client_id: self.client_id.clone(),
            reason: Some(format!("{code:?} (0x{:02X})", code as u8)),
        })
    }

    /// Where a reason code and a reference lead, if they are followed.
    fn elsewhere(
        &self,
        code: ReasonCode,
        reference: Option<&str>,
        redirect: Redirect,
    ) -> Option<String> {
        let is_redirect = matches!(code, ReasonCode::UseAnotherServer | ReasonCode::ServerMoved);
        if redirect == Redirect::Ignore || !is_redirect || self.hops > 0 {
            return None;
        }
        let first: ServerReference<'_> = *server_references(reference?).first()?;
        Some(place_of(&first))
    }
}

/// HOST:PORT of a server.
pub(crate) fn place_of(server: &ServerReference<'_>) -> String {
    let port = server.port.unwrap_or(1883);
    if server.host.contains(':') {
        format!("[{}]:{port}", server.host)
    } else {
        format!("{}:{port}", server.host)
    }
}

/// Starts a connection.
pub(super) fn open(address: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect(address)
}
