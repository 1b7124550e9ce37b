//! What goes into an [`Overlay`](crate::Overlay) and what comes out.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use thicket_mqtt::Qos;
use thicket_session::time::Instant;

use crate::identity::{Incarnation, KeyId, LinkId, NodeId, NodeSlot, Origin, StreamId};
use crate::interest::InterestChange;
use crate::record::Record;
use crate::store::Sendable;

/// Who is at the other end of a socket, as far as the shell knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FarEnd {
    /// For the log.
    pub address: Option<SocketAddr>,
    /// It proved to know this key of the cluster, and nobody between the two ends reads or changes anything.
    pub key: Option<KeyId>,
}

/// What the hub hands in. Bytes of an established link go through
/// [`handle_received`](crate::Overlay::handle_received) instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input<'a> {
    /// Whoever runs this node says that there may be another at `address` (HOST:PORT). May repeat; may be this node itself.
    Discovered {
        /// HOST:PORT.
        address: &'a str,
    },
    /// The same by an announcement on the network, which may be anybody's.
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
    /// The other end of a link that this node opened has proved who it is; before any bytes of it.
    LinkProved {
        /// Which one.
        link: LinkId,
        /// By which key.
        key: KeyId,
    },
    /// Another node dialled us.
    LinkAccepted {
        /// Chosen by the shell.
        link: LinkId,
        /// Who is there.
        end: FarEnd,
        /// What was read so far: starts with the CONNECT, which need not be whole.
        bytes: &'a [u8],
    },
    /// The other end or the shell closed a link.
    Closed {
        /// Which one.
        link: LinkId,
    },
    /// The instant that `poll_timeout` named has come (early, late or repeated calls are harmless).
    Timeout,
}

/// What the overlay orders the hub to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Connect to another node; answered by `Dialled` or `DialFailed`.
    Dial {
        /// HOST:PORT.
        address: String,
    },
    /// Write `Overlay::pending_output(link)`, then tell `Overlay::handle_written`. At most one a link and round.
    Flush(LinkId),
    /// Write what is pending if the socket takes it at once, then close. No `Closed` is owed.
    Close(LinkId),
    /// A node is up: control and data reach it. Its interests follow in `InterestChanged`; those of an earlier time are void.
    NodeUp {
        /// Ours for it, the same as ever.
        slot: NodeSlot,
        /// Its identity.
        node: NodeId,
        /// Of its start; higher than before if it was started again.
        incarnation: Incarnation,
        /// For people.
        name: String,
    },
    /// A node is out: its interests are void (forget every one of the slot), nothing waits for it any longer, control on its way to
    /// and from it is lost.
    NodeDown {
        /// Which one.
        slot: NodeSlot,
    },
    /// Another node's interests changed, in order. When every worker knows, call `Overlay::interests_applied(slot, version)`.
    InterestChanged {
        /// Whose.
        slot: NodeSlot,
        /// Rises with every such output for the slot, starts of the node included: to be given back when every worker knows.
        version: u64,
        /// At most one for each key; may be empty (an empty first snapshot).
        changes: Vec<InterestChange>,
    },
    /// Every reachable node has applied our interests up to this version: SUBACKs that wait for it may go (rule 4).
    InterestSettled {
        /// Of our interests, see `Overlay::set_interest`.
        version: u64,
    },
    /// What `send_control` of another node said: each once, in order of sending for each node.
    Control {
        /// Who.
        from: NodeSlot,
        /// Its meaning, among hubs.
        kind: u8,
        /// Opaque.
        payload: Vec<u8>,
    },
    /// The other node had given this one up for a while, unnoticed here: control it owed us is lost. Ask again what is still waited for.
    ControlLost {
        /// Which node.
        slot: NodeSlot,
    },
    /// All remote destinations of these messages have admitted them, or are out. At most one a stream and round.
    Acknowledged {
        /// Whose numbers.
        stream: StreamId,
        /// Ascending, not touching.
        ranges: Vec<RangeInclusive<u64>>,
    },
    /// `Overlay::has_room` changed for a node.
    RoomChanged {
        /// Which one.
        slot: NodeSlot,
        /// What it says now.
        has_room: bool,
    },
    /// Others remember us with this or a higher incarnation: from now on we have this one. Numbers of messages go on.
    IncarnationChanged {
        /// The new one.
        incarnation: Incarnation,
    },
    /// Another process with this node's identity lives, and was there first: this one must end. Two of them would be one node in two
    /// places.
    IdentityInUse {
        /// HOST:PORT of the other one.
        address: String,
    },
    /// Something an operator may want to read.
    Event(Event),
}

/// What to forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward<'a> {
    /// The worker that numbered it.
    pub stream: StreamId,
    /// Rising in the stream; 0: sent once, never acknowledged.
    pub number: u64,
    /// Of the publication.
    pub qos: Qos,
    /// Nodes that want it, each once. Those that are out are passed over.
    pub destinations: &'a [NodeSlot],
    /// Of the destinations, those with an interest in the topic, if not all are (what is retained goes to every node): they make
    /// the topic's tree, so that messages of a topic keep their order whether they are retained or not.
    pub interested: Option<&'a [NodeSlot]>,
    /// One encoded [`Record`], with the same number.
    pub record: &'a [u8],
}

/// Why a message is not forwarded. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Refused: the resend buffer is full (`resend_bytes`, `resend_messages`); answer the publisher as for a full queue (rule 18).
    #[error("{bytes} bytes of unacknowledged messages leave no room for another")]
    Full {
        /// Bytes kept.
        bytes: u64,
    },
    /// Refused: larger than what a link carries.
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
    /// The node is out (or was never up).
    #[error("node in slot {} is not up", slot.0)]
    NotUp {
        /// Which one.
        slot: NodeSlot,
    },
    /// Larger than what a link carries.
    #[error("control of {bytes} bytes is over the maximum {maximum}")]
    TooLarge {
        /// Of the payload.
        bytes: usize,
        /// Allowed.
        maximum: usize,
    },
    /// The node takes no more control (`control_bytes` wait for it).
    #[error("{bytes} bytes of control wait for the node already")]
    Full {
        /// Waiting.
        bytes: usize,
    },
}

/// A message that arrived from another node: handed in order of arrival to the closure given to `handle_received`, no duplicate
/// among those with a number. A number is acknowledged after `Overlay::admitted`; bytes without one after `Overlay::released`.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// Where it comes from.
    pub origin: Origin,
    /// The message.
    pub record: &'a Record<'a>,
    /// The message as encoded: passes on to workers without encoding it again.
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

/// A message that a node had not admitted when it went out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandoned {
    /// Its worker.
    pub stream: StreamId,
    /// Its number.
    pub number: u64,
    /// Of the start of this node that the number belongs to.
    pub incarnation: Incarnation,
    /// When it was handed in: its expiry counts from there.
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

/// What an operator may want to read in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// How much it matters.
    pub level: EventLevel,
    /// Constant text.
    pub message: &'static str,
    /// Facts: field name and value.
    pub fields: Vec<(&'static str, String)>,
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventLevel {
    /// Something is wrong here.
    Error,
    /// Another node did something wrong.
    Warn,
    /// An operator wants it at 3 a.m.
    Info,
    /// A packet.
    Debug,
}
