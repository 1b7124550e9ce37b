//! One client: its connection, to whichever broker, and what it sends or receives.

use std::net::SocketAddr;

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use thicket_mqtt::{
    Connack, Connect, Disconnect, Packet, PacketId, ProtocolVersion, Publish, Qos, ReasonCode,
    ServerReference, Subscribe, decode, server_references,
};

use super::types::{PublisherType, Redirect};
use crate::BenchError;
use crate::generator::Node;
use crate::socket::Socket;
use crate::stamp::{Stamp, StampForm, read_full};

/// Unsent bytes at which a publisher pauses; messages that are due stay due.
const MAX_UNSENT: usize = 1024 * 1024;

/// The phase of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    AwaitsConnack,
    AwaitsSuback,
    /// It publishes, or receives.
    Active,
}

/// One client.
#[derive(Debug)]
pub(super) struct Client {
    pub socket: Socket,
    pub phase: Phase,
    /// Index of the broker it is connected to.
    pub broker: usize,
    pub client_id: String,
    /// Redirects followed since the attempt started.
    pub hops: u32,
    /// Where the attempt was made and nobody answered.
    pub silent: Vec<SocketAddr>,
    pub role: Role,
}

/// What a client does.
#[derive(Debug)]
pub(super) enum Role {
    Publisher(Load),
    /// The filter it subscribes to.
    Subscriber(String),
}

/// Messages of a publisher.
#[derive(Debug)]
pub(super) struct Load {
    template: Vec<u8>,
    payload_len: usize,
    gap_ns: f64,
    first_due_ns: u64,
    /// Messages due since `first_due_ns`.
    due: u64,
    /// Messages sent on this connection.
    sent: u64,
    /// How late a message was at most, ns.
    behind_ns: f64,
}

/// What subscribers have received together.
#[derive(Debug)]
pub(super) struct Received {
    pub messages: u64,
    /// From when a message was due until it arrived, ns; of payloads that can have the time in them.
    pub delays: Histogram<u64>,
}

/// The meaning of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Nothing,
    Accepted,
    Subscribed,
    /// A message, with the time at which it was due if it has one.
    Message(Option<u64>),
    /// Redirected to HOST:PORT.
    SentTo(String),
}

impl Load {
    pub fn new(topic: &str, kind: PublisherType) -> Result<Self, BenchError> {
        let payload = vec![b'.'; kind.payload_len];
        let mut template = Vec::new();
        Publish::new(topic, &payload)
            .encode(ProtocolVersion::V5, &mut template)
            .map_err(|error| {
                BenchError::Setting(format!("a message cannot be encoded: {error}"))
            })?;
        Ok(Self {
            template,
            payload_len: kind.payload_len,
            gap_ns: 1e9 / kind.rate_per_s,
            first_due_ns: 0,
            due: 0,
            sent: 0,
            behind_ns: 0.0,
        })
    }

    /// The next message, with number and time in it as far as they fit.
    fn next(&mut self) -> &[u8] {
        self.due += 1;
        self.sent += 1;
        let stamp = Stamp {
            stream: 0,
            number: self.due as u32,
            time_ns: self.first_due_ns + (self.due as f64 * self.gap_ns) as u64,
        };
        let payload = self.template.len() - self.payload_len;
        StampForm::for_payload(self.payload_len).write(stamp, &mut self.template[payload..]);
        &self.template
    }
}

impl Default for Received {
    fn default() -> Self {
        Self {
            messages: 0,
            delays: Histogram::new(3).expect("three figures are allowed"),
        }
    }
}

impl Received {
    pub fn note(&mut self, due_ns: Option<u64>, now_ns: u64) {
        self.messages += 1;
        if let Some(due_ns) = due_ns {
            // A histogram that resizes fits any delay.
            let _ = self.delays.record(now_ns.saturating_sub(due_ns));
        }
    }
}

impl Client {
    pub fn new(stream: TcpStream, client_id: String, role: Role, at: usize) -> Self {
        Self {
            socket: Socket::new(stream),
            phase: Phase::Connecting,
            broker: at,
            client_id,
            hops: 0,
            silent: Vec::new(),
            role,
        }
    }

    pub const fn is_publisher(&self) -> bool {
        matches!(self.role, Role::Publisher(_))
    }

    /// Replaces its connection.
    pub fn reconnect(&mut self, stream: TcpStream, broker: usize) {
        self.socket = Socket::new(stream);
        self.phase = Phase::Connecting;
        self.broker = broker;
        if let Role::Publisher(load) = &mut self.role {
            load.sent = 0;
        }
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

    /// It was accepted: a publisher may publish from now on, a subscriber subscribes.
    pub fn begin(&mut self, now_ns: u64) -> std::io::Result<()> {
        self.hops = 0;
        self.silent.clear();
        match &mut self.role {
            Role::Publisher(load) => {
                self.phase = Phase::Active;
                (load.first_due_ns, load.due) = (now_ns, 0);
                Ok(())
            }
            Role::Subscriber(filter) => {
                self.phase = Phase::AwaitsSuback;
                let id = PacketId::new(1).expect("1 is an identifier");
                let subscribe = Subscribe::new(id, filter, Qos::AtMostOnce);
                let mut bytes = Vec::new();
                // A filter of two levels always fits.
                let _ = Packet::Subscribe(subscribe).encode(ProtocolVersion::V5, &mut bytes);
                self.socket.send(&bytes)
            }
        }
    }

    /// Sends messages that are due.
    pub fn publish(&mut self, now_ns: u64) -> std::io::Result<()> {
        if let Role::Publisher(load) = &mut self.role {
            let elapsed = now_ns.saturating_sub(load.first_due_ns) as f64;
            let due = (elapsed / load.gap_ns) as u64;
            if load.due < due {
                let late = elapsed - (load.due + 1) as f64 * load.gap_ns;
                load.behind_ns = load.behind_ns.max(late);
            }
            while load.due < due && self.socket.unsent() < MAX_UNSENT {
                self.socket.output().extend_from_slice(load.next());
            }
        }
        self.socket.write()
    }

    /// How late it has sent a message at most, ns.
    pub fn behind_ns(&self) -> f64 {
        match &self.role {
            Role::Publisher(load) => load.behind_ns,
            Role::Subscriber(_) => 0.0,
        }
    }

    /// Messages that this connection has accepted.
    pub fn published(&self) -> u64 {
        match &self.role {
            Role::Publisher(load) => {
                let waiting = self.socket.unsent().div_ceil(load.template.len());
                load.sent.saturating_sub(waiting as u64)
            }
            Role::Subscriber(_) => 0,
        }
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
            (Packet::Suback(suback), Phase::AwaitsSuback) => {
                match suback.reason_codes.iter().find(|code| code.is_error()) {
                    None => Answer::Subscribed,
                    Some(code) => return Err(protocol(format!("SUBACK with {code:?}"))),
                }
            }
            (Packet::Publish(publish), Phase::AwaitsSuback | Phase::Active)
                if !self.is_publisher() =>
            {
                Answer::Message(read_full(publish.payload).map(|stamp| stamp.time_ns))
            }
            (Packet::Disconnect(disconnect), Phase::AwaitsSuback | Phase::Active) => {
                self.disconnect(&disconnect, redirect, node)?
            }
            (Packet::Pingresp, Phase::Active) => Answer::Nothing,
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
