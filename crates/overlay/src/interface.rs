//! The interface of an [`Overlay`](crate::Overlay): its inputs and outputs.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use thicket_mqtt::Qos;
use thicket_session::time::Instant;

use crate::identity::{Incarnation, KeyId, LinkId, NodeId, NodeSlot, Origin, StreamId};
use crate::interest::{InterestChange, InterestKey, InterestValue};
use crate::record::Record;
use crate::store::Sendable;

/// The other end of a socket, as far as the shell knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FarEnd {
    /// For the log.
    pub address: Option<SocketAddr>,
    /// The other end has proved that it has this key of the cluster, and the connection is protected against reading and changes.
    pub key: Option<KeyId>,
}

/// The inputs from the hub. Bytes of an established link are passed to [`handle_received`](crate::Overlay::handle_received) instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input<'a> {
    /// The configuration or discovery gives an address (HOST:PORT) where another node may be. May repeat; may be this node itself.
    Discovered {
        /// HOST:PORT.
        address: &'a str,
    },
    /// An address from an announcement on the network, which anyone may have sent.
    Announced {
        /// HOST:PORT.
        address: &'a str,
    },
    /// The order `Dial` succeeded.
    Dialled {
        /// The address of the order.
        address: &'a str,
        /// Chosen by the shell.
        link: LinkId,
    },
    /// The order `Dial` failed.
    DialFailed {
        /// The address of the order.
        address: &'a str,
        /// In words, for the log.
        error: &'a str,
    },
    /// The other end of a link that this node opened has been authenticated; comes before any of its bytes.
    LinkProved {
        /// The link.
        link: LinkId,
        /// Its key.
        key: KeyId,
    },
    /// Another node has dialled this one.
    LinkAccepted {
        /// Chosen by the shell.
        link: LinkId,
        /// The other end.
        end: FarEnd,
        /// The bytes read so far: they start with the CONNECT, which may be incomplete.
        bytes: &'a [u8],
    },
    /// The other end or the shell closed a link.
    Closed {
        /// The link.
        link: LinkId,
    },
    /// The instant that `poll_timeout` returned has been reached (early, late or repeated calls are harmless).
    Timeout,
}

/// The orders of the overlay to the hub, to be performed in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Connect to another node; answered by `Dialled` or `DialFailed`.
    Dial {
        /// HOST:PORT.
        address: String,
    },
    /// Write `Overlay::pending_output(link)`, then call `Overlay::handle_written`. At most one for each link and round.
    Flush(LinkId),
    /// Write what is pending as far as the socket accepts it at once, then close. No `Closed` need follow.
    Close(LinkId),
    /// A node is up: control and data reach it. Its interests follow in `InterestChanged`; earlier ones are void.
    NodeUp {
        /// Our number for it; never changes.
        slot: NodeSlot,
        /// Its identity.
        node: NodeId,
        /// Of its current start; higher than before if it restarted.
        incarnation: Incarnation,
        /// For display.
        name: String,
    },
    /// A node is down: its interests are void (forget all of the slot), nothing waits for it any longer, and control in transit to and from it is
    /// lost.
    NodeDown {
        /// The node.
        slot: NodeSlot,
        /// Its persistent interests: those that it had announced last (rule 5).
        persistent: Vec<(InterestKey, InterestValue)>,
        /// The messages that it had not admitted. It may have received some of them nevertheless.
        abandoned: Vec<Abandoned>,
    },
    /// Another node's interests changed, in order. When every worker has applied them, call `Overlay::interests_applied(slot, version)`.
    InterestChanged {
        /// The node.
        slot: NodeSlot,
        /// Rises with every such output for the slot, also over restarts of the node; to be passed back when every worker has applied it.
        version: u64,
        /// At most one for each key; may be empty (an empty first snapshot).
        changes: Vec<InterestChange>,
    },
    /// Every reachable node has applied our interests up to this version: SUBACKs that wait for it may be sent (rule 4).
    InterestSettled {
        /// The version of our interests, see `Overlay::set_interest`.
        version: u64,
    },
    /// A message sent by `send_control` of another node: each once, in the order of sending for each node.
    Control {
        /// The sender.
        from: NodeSlot,
        /// Its meaning is defined by the hubs.
        kind: u8,
        /// Opaque.
        payload: Vec<u8>,
    },
    /// The other node had marked this one as down for a while, unnoticed here: control that it was to send is lost. Repeat requests that are still
    /// unanswered.
    ControlLost {
        /// The node.
        slot: NodeSlot,
    },
    /// All remote destinations of these messages have admitted them, or are down. At most one for each stream and round.
    Acknowledged {
        /// The stream of the numbers.
        stream: StreamId,
        /// Ascending, not touching.
        ranges: Vec<RangeInclusive<u64>>,
    },
    /// A message of another node cannot be read, and was not delivered: it must be admitted, when its publisher can be refused.
    Unreadable {
        /// Whose it is.
        origin: Origin,
        /// Its number.
        number: u64,
    },
    /// Other nodes have a record of this one with this or a higher incarnation: this is our incarnation from now on. Numbers of messages continue.
    IncarnationChanged {
        /// The new one.
        incarnation: Incarnation,
    },
    /// Another process with this node's identity is running, and was there first: this one must end, or two processes would act as one node.
    IdentityInUse {
        /// HOST:PORT of the other one.
        address: String,
    },
    /// An event for the operator's log.
    Event(Event),
}

/// A message to forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward<'a> {
    /// The worker that numbered it.
    pub stream: StreamId,
    /// Rises within the stream; 0: sent once, never acknowledged.
    pub number: u64,
    /// QoS of the publication.
    pub qos: Qos,
    /// Recipient nodes, each once. Those that are down are skipped.
    pub destinations: &'a [NodeSlot],
    /// The destinations with an interest in the topic, if not all have one (retained messages are sent to every node). They determine
    /// the topic's tree, so that messages of a topic keep their order whether they are retained or not.
    pub interested: Option<&'a [NodeSlot]>,
    /// One encoded [`Record`], with the same number.
    pub record: &'a [u8],
}

/// Why a message is not forwarded. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Refused: the resend buffer is full (`resend_bytes`, `resend_messages`); answer the publisher as for a full queue (rule 18).
    #[error("over the limit: {bytes} bytes of messages are unacknowledged")]
    Full {
        /// Bytes kept.
        bytes: u64,
    },
    /// Refused: larger than a link allows.
    #[error("record of {bytes} bytes is over the maximum {maximum}")]
    TooLarge {
        /// Of the record.
        bytes: usize,
        /// Allowed.
        maximum: usize,
    },
    /// Misuse: numbers of a stream rise.
    #[error("number {number} does not rise above {last}")]
    NumberNotRising {
        /// The message's.
        number: u64,
        /// The last one of the stream.
        last: u64,
    },
}

/// Why a control message is not sent. Misuse or a node that has just gone: nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The node is down (or was never up).
    #[error("node in slot {} is not up", slot.0)]
    NotUp {
        /// Which one.
        slot: NodeSlot,
    },
    /// Larger than a link allows.
    #[error("control of {bytes} bytes is over the maximum {maximum}")]
    TooLarge {
        /// Of the payload.
        bytes: usize,
        /// Allowed.
        maximum: usize,
    },
    /// Control for the node is over the limit (`control_bytes` wait for it).
    #[error("{bytes} bytes of control wait for the node already")]
    Full {
        /// Waiting.
        bytes: usize,
    },
}

/// A message from another node, passed to the closure given to `handle_received` in the order of arrival; numbered ones without duplicates. A number
/// is acknowledged after `Overlay::admitted`; the credit of messages without numbers returns after `Overlay::released`.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// Its origin.
    pub origin: Origin,
    /// The message.
    pub record: &'a Record<'a>,
    /// The message as encoded: passed to workers without encoding it again.
    pub bytes: &'a [u8],
}

/// A message that some remote destination has not admitted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unacknowledged<'a> {
    /// Its worker.
    pub stream: StreamId,
    /// Its number.
    pub number: u64,
    /// As it was encoded.
    pub record: &'a [u8],
}

/// A message that a node had not admitted when it went down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandoned {
    /// Its worker.
    pub stream: StreamId,
    /// Its number.
    pub number: u64,
    /// The incarnation of this node that the number belongs to.
    pub incarnation: Incarnation,
    /// When it was handed in: its expiry counts from then.
    pub at: Instant,
    /// As it was encoded then.
    pub record: Box<[u8]>,
}

impl Abandoned {
    pub(crate) fn new(stream: StreamId, number: u64, sendable: Sendable<'_>) -> Self {
        Self {
            stream,
            number,
            incarnation: sendable.incarnation,
            at: sendable.at,
            record: sendable.bytes.into(),
        }
    }
}

/// An event for the operator's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its severity.
    pub level: EventLevel,
    /// Constant text.
    pub message: &'static str,
    /// Facts: field name and value.
    pub fields: Vec<(&'static str, String)>,
}

/// The severity of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventLevel {
    /// Something is wrong here.
    Error,
    /// Another node did something wrong.
    Warn,
    /// Of interest to an operator at 3 a.m.
    Info,
    /// A packet.
    Debug,
}
