//! The client side of one MQTT session, for 3.1, 3.1.1 and 5.0, without I/O.
//!
//! Three interfaces. *In*: [`Client::handle_bytes`] accepts what was read, whole packets or not, and [`Client::handle_timeout`] a deadline that has
//! passed; both call back with [`Event`]s that borrow from the bytes. *Out*: packets to write are in [`Client::output`] until [`Client::consume`]
//! removes them. *Time*: [`Client::poll_timeout`] returns the next deadline. The operations ([`Client::publish`] and the rest) append to the output.
//!
//! A message of QoS 0 allocates nothing in either direction, once the buffers have grown. The session outlives the connection: after
//! [`Client::handle_closed`] connect again with [`CleanStart::No`], and what was not acknowledged is sent again if the server still has the session.
//!
//! | state | operation or input | next state |
//! | --- | --- | --- |
//! | disconnected | [`Client::connect`] | connecting |
//! | connecting | CONNACK with success | connected |
//! | connecting | CONNACK with an error, another packet but AUTH, no CONNACK in time | closing |
//! | connecting, connected | [`Client::disconnect`], malformed bytes, breach of the protocol | closing |
//! | connected | DISCONNECT, a packet no server sends, no answer to PINGREQ | closing |
//! | closing | anything read or timed out | closing, ignored |
//! | any | [`Client::handle_closed`] | disconnected |
//!
//! The machines behind it each have a table of their own: what is sent and waits for an answer, what is received and owed
//! one, keep alive.
//!
//! ```
//! use thicket_mqtt::{ProtocolVersion, Publish};
//! use thicket_session::Instant;
//! use thicket_session::client::{CleanStart, Client, ClientConfig, Event};
//!
//! let now = Instant::from_millis(0);
//! let mut client = Client::new(ClientConfig::new(ProtocolVersion::V311, "station"));
//! client.connect(now, CleanStart::Yes)?;
//! # let written = client.output().len();
//! // ... write client.output() to the socket, then:
//! client.consume(written);
//! client.handle_bytes(now, &[0x20, 2, 0, 0], |event| assert!(matches!(event, Event::Connected { .. })));
//! client.publish(now, &Publish::new("tide/height", b"3.2"))?;
//! assert_eq!(client.output()[0], 0x30);
//! # Ok::<(), thicket_session::client::ClientError>(())
//! ```

mod aliases;
mod config;
mod error;
mod event;
mod inbound;
mod keep_alive;
mod operations;
mod outbound;
mod output;
mod packets;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use thicket_mqtt::{Disconnect, Packet, PacketId, UserProperties, decode, frame_header};

use self::aliases::{InboundAliases, OutboundAliases};
use self::inbound::Inbound;
use self::keep_alive::{KeepAlive, KeepAliveAction};
use self::outbound::Outbound;
use self::output::OutputBuffer;
use crate::Instant;

pub use config::{
    AcknowledgementMode, AuthenticationConfig, CleanStart, ClientConfig, InflightMode,
    ServerLimits, WillConfig,
};
pub use error::{ClientError, PeerError};
pub use event::{DisconnectReason, Event};

/// A buffer for parts of packets that grew beyond this is freed.
const KEPT_PARTIAL_BYTES: usize = 64 << 10;

/// Properties of acknowledgements that wait for the caller; the oldest are dropped first.
const ACKNOWLEDGEMENT_PROPERTIES: usize = 64;

/// The client side of one session. See the [module](self).
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    state: State,
    /// The beginning of a packet whose rest has not arrived.
    partial: Vec<u8>,
    output: OutputBuffer,
    outbound: Outbound,
    inbound: Inbound,
    /// Values of the requested property that the caller has not polled yet.
    acknowledgement_properties: VecDeque<(PacketId, String)>,
}

#[derive(Debug)]
enum State {
    Disconnected,
    Connecting {
        clean_start: CleanStart,
        last_sent: Instant,
        deadline: Instant,
    },
    Connected(Box<Connection>),
    Closing,
}

/// State that lasts as long as a connection.
#[derive(Debug)]
struct Connection {
    limits: ServerLimits,
    keep_alive: KeepAlive,
    inbound_aliases: InboundAliases,
    outbound_aliases: OutboundAliases,
}

/// The state of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// No connection; the session may continue.
    Disconnected,
    /// CONNECT is on its way, CONNACK has not arrived.
    Connecting,
    /// CONNACK has arrived.
    Connected,
    /// Nothing is read any more; write what is left and close.
    Closing,
}

impl Client {
    /// A client that is not connected and has no session state.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self {
            state: State::Disconnected,
            partial: Vec::new(),
            output: OutputBuffer::default(),
            outbound: Outbound::new(config.inflight),
            inbound: Inbound::new(config.acknowledgement, receive_maximum(&config)),
            acknowledgement_properties: VecDeque::new(),
            config,
        }
    }

    /// What was configured; the client identifier may be one the server assigned.
    #[must_use]
    pub const fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// Sends `properties` in the following CONNECTs, instead of those configured (5.0).
    pub fn set_user_properties(&mut self, properties: Vec<(String, String)>) {
        self.config.user_properties = properties;
    }

    /// The oldest value not returned yet of the property [`ClientConfig::acknowledgement_property`], and what it belongs to: the identifier of a
    /// SUBSCRIBE or PUBLISH. Call this after each call that reads: of more than 64 the oldest are dropped.
    pub fn poll_acknowledgement_property(&mut self) -> Option<(PacketId, String)> {
        self.acknowledgement_properties.pop_front()
    }

    /// The state of the client.
    #[must_use]
    pub const fn state(&self) -> ConnectionState {
        match self.state {
            State::Disconnected => ConnectionState::Disconnected,
            State::Connecting { .. } => ConnectionState::Connecting,
            State::Connected(_) => ConnectionState::Connected,
            State::Closing => ConnectionState::Closing,
        }
    }

    /// What the server accepts, `None` unless connected.
    #[must_use]
    pub const fn server_limits(&self) -> Option<&ServerLimits> {
        match &self.state {
            State::Connected(connection) => Some(&connection.limits),
            State::Disconnected | State::Connecting { .. } | State::Closing => None,
        }
    }

    /// Messages of QoS 1 and 2 sent on this connection and not acknowledged.
    #[must_use]
    pub const fn inflight(&self) -> usize {
        self.outbound.window()
    }

    /// Bytes to write, in order.
    #[inline]
    #[must_use]
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// Removes the first `count` bytes of [`Client::output`]: they were written.
    pub fn consume(&mut self, count: usize) {
        self.output.consume(count);
        // Messages of an earlier connection may have waited for capacity.
        self.send_unsent();
    }

    /// Handles bytes from the server, in the order they arrived and cut anywhere, and calls `on_event` for what they mean.
    ///
    /// Whole packets are decoded in place; only the beginning of one that is cut is copied.
    pub fn handle_bytes(
        &mut self,
        now: Instant,
        bytes: &[u8],
        mut on_event: impl FnMut(Event<'_>),
    ) {
        if let State::Connected(connection) = &mut self.state {
            connection.keep_alive.on_received(now);
        }
        let mut rest = bytes;
        if !self.partial.is_empty() {
            rest = self.complete_partial(now, rest, &mut on_event);
        }
        while !rest.is_empty() && self.is_open() {
            match decode(rest, self.config.version, self.config.maximum_packet_size) {
                Ok(Some((packet, len))) => {
                    self.handle_packet(now, packet, &mut on_event);
                    rest = &rest[len..];
                }
                Ok(None) => {
                    self.partial.extend_from_slice(rest);
                    break;
                }
                Err(error) => self.fail(error.into(), &mut on_event),
            }
        }
    }

    /// The next deadline, `None` if there is none. It may move at each call of anything else.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Connecting { deadline, .. } => Some(*deadline),
            State::Connected(connection) => connection.keep_alive.deadline(),
            State::Disconnected | State::Closing => None,
        }
    }

    /// Acts on the deadlines that have passed at `now`; harmless when there are none.
    pub fn handle_timeout(&mut self, now: Instant, mut on_event: impl FnMut(Event<'_>)) {
        match &mut self.state {
            State::Connecting { deadline, .. } if now >= *deadline => {
                self.close();
                on_event(Event::Disconnected(DisconnectReason::ConnectTimeout));
            }
            State::Connected(connection) => match connection.keep_alive.on_timeout(now) {
                KeepAliveAction::Nothing => {}
                KeepAliveAction::SendPing => {
                    connection.keep_alive.on_ping_sent(now);
                    append(&mut self.output, self.config.version, &Packet::Pingreq);
                }
                KeepAliveAction::Close => {
                    self.close();
                    on_event(Event::Disconnected(DisconnectReason::PingTimeout));
                }
            },
            State::Disconnected | State::Connecting { .. } | State::Closing => {}
        }
    }

    /// The connection is gone, whichever side closed it. What was not written is dropped; unacknowledged messages of QoS 1 and 2 wait for the next
    /// connection.
    pub fn handle_closed(&mut self) {
        self.close();
        self.state = State::Disconnected;
        self.output.clear();
    }

    const fn is_open(&self) -> bool {
        match self.state {
            State::Connecting { .. } | State::Connected(_) => true,
            State::Disconnected | State::Closing => false,
        }
    }

    /// Keeps the requested property of an acknowledgement.
    #[inline]
    fn note_properties(&mut self, packet_id: PacketId, properties: &UserProperties<'_>) {
        let Some(name) = &self.config.acknowledgement_property else {
            return;
        };
        for (_, value) in properties.iter().filter(|(key, _)| key == name) {
            if self.acknowledgement_properties.len() == ACKNOWLEDGEMENT_PROPERTIES {
                self.acknowledgement_properties.pop_front();
            }
            self.acknowledgement_properties
                .push_back((packet_id, (*value).to_owned()));
        }
    }

    /// Adds what is missing to the packet kept from last time and handles it. Returns what is left of `input`.
    fn complete_partial<'b>(
        &mut self,
        now: Instant,
        mut input: &'b [u8],
        on_event: &mut impl FnMut(Event<'_>),
    ) -> &'b [u8] {
        let mut partial = std::mem::take(&mut self.partial);
        loop {
            match decode(
                &partial,
                self.config.version,
                self.config.maximum_packet_size,
            ) {
                Ok(Some((packet, _))) => {
                    self.handle_packet(now, packet, on_event);
                    break;
                }
                Ok(None) if input.is_empty() => {
                    self.partial = partial;
                    return input;
                }
                Ok(None) => {
                    let (more, rest) = input.split_at(missing_bytes(&partial).min(input.len()));
                    partial.extend_from_slice(more);
                    input = rest;
                }
                Err(error) => {
                    self.fail(error.into(), on_event);
                    break;
                }
            }
        }
        if partial.capacity() <= KEPT_PARTIAL_BYTES {
            partial.clear();
            self.partial = partial;
        }
        input
    }

    fn handle_packet(
        &mut self,
        now: Instant,
        packet: Packet<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) {
        if let Err(error) = self.on_packet(now, packet, on_event) {
            self.fail(error, on_event);
        }
    }

    /// Ends the connection because the server broke a rule, and sends it the reason [MQTT-4.13.1-1].
    fn fail(&mut self, error: PeerError, on_event: &mut impl FnMut(Event<'_>)) {
        if self.config.version.has_properties() {
            let disconnect = Packet::Disconnect(Disconnect::new(error.reason_code()));
            append(&mut self.output, self.config.version, &disconnect);
        }
        self.close();
        on_event(Event::Disconnected(DisconnectReason::PeerError(error)));
    }

    /// Stops reading and sending; what is in the output may still be written.
    fn close(&mut self) {
        self.state = State::Closing;
        self.partial = Vec::new();
        self.inbound.on_closed();
    }
}

/// Before 5.0 there is no Receive Maximum that could bind the server.
fn receive_maximum(config: &ClientConfig) -> u16 {
    if config.version.has_properties() {
        config.receive_maximum
    } else {
        u16::MAX
    }
}

/// Bytes to add to `partial` before it is worth another look.
fn missing_bytes(partial: &[u8]) -> usize {
    match frame_header(partial) {
        Ok(Some(header)) => header.packet_len.saturating_sub(partial.len()).max(1),
        Ok(None) | Err(_) => 1,
    }
}

/// Appends a packet of our own making: without texts, and with codes that its kind allows.
fn append(output: &mut OutputBuffer, version: thicket_mqtt::ProtocolVersion, packet: &Packet<'_>) {
    let encoded = packet.encode(version, output.appender());
    debug_assert!(encoded.is_ok(), "{packet:?}: {encoded:?}");
}
