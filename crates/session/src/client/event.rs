//! Events of a client for its caller.

use thicket_mqtt::{Auth, Connack, Disconnect, PacketId, Publish, ReasonCode};

use super::PeerError;

/// Something happened. Everything is borrowed for the time of the call.
#[derive(Debug)]
pub enum Event<'a> {
    /// The server accepted the connection. If it has the session, unacknowledged messages are sent again now; otherwise a [`Event::Discarded`]
    /// follows for each.
    Connected {
        /// Whether the server has the earlier session; assumed for 3.1 without a clean start, where CONNACK does not contain it.
        session_present: bool,
        /// The whole answer.
        connack: &'a Connack<'a>,
    },
    /// A message. Its topic is there even if the server sent an alias.
    Message(Publish<'a>),
    /// A sent message of QoS 1 or 2 has arrived or was refused, see the code; the identifier is free again.
    Acknowledged {
        /// What `publish` returned.
        packet_id: PacketId,
        /// `Success` before 5.0.
        reason_code: ReasonCode,
    },
    /// A sent message may not have arrived, and will not be sent again: the server no longer has the session, no longer accepts such a message, or
    /// only the identifier was kept. Publish it again or count it as lost.
    Discarded {
        /// What `publish` returned.
        packet_id: PacketId,
        /// The message, unless only the identifier was kept.
        publish: Option<Publish<'a>>,
    },
    /// Answer to a SUBSCRIBE.
    Subscribed {
        /// What `subscribe` returned.
        packet_id: PacketId,
        /// One code a filter, in order.
        reason_codes: &'a [ReasonCode],
    },
    /// Answer to an UNSUBSCRIBE.
    Unsubscribed {
        /// What `unsubscribe` returned.
        packet_id: PacketId,
        /// One code a filter, in order; none before 5.0.
        reason_codes: &'a [ReasonCode],
    },
    /// A step of enhanced authentication: answer with [`super::Client::authenticate`] if it asks to continue.
    Authentication(&'a Auth<'a>),
    /// Answer to a PINGREQ.
    Pong,
    /// The connection is over; always the last event. Write what is left, close the socket, call
    /// [`super::Client::handle_closed`].
    Disconnected(DisconnectReason<'a>),
}

/// Why a connection is over, if not because the caller wanted it or the transport broke.
#[derive(Debug)]
pub enum DisconnectReason<'a> {
    /// The server refused the CONNECT; the answer may name another server.
    Refused(&'a Connack<'a>),
    /// The server sent a DISCONNECT; it may name another server.
    ByServer(&'a Disconnect<'a>),
    /// The server broke the protocol and was sent the reason.
    PeerError(PeerError),
    /// No CONNACK arrived in time.
    ConnectTimeout,
    /// Nothing arrived in time after a PINGREQ.
    PingTimeout,
}
