//! Inputs and outputs of a worker and of the hub: the whole contract between the pure node and its shell.
//!
//! A shell thread runs rounds. In a round it hands over everything it has (`handle_input`), then calls `end_round`, then stores what `unstored`
//! returns. Only then has the machine a way out ([`crate::Egress`]): the shell performs all outputs (`poll_output`), and flushes each connection
//! named by a `Flush` once (`pending_output`, `handle_written`).
//!
//! Between rounds it reads what it wants to know ([`crate::WorkerView`], [`crate::HubView`]), and passes on what operators order
//! ([`crate::WorkerOperator`], [`crate::HubOperator`]).

use std::net::SocketAddr;
use std::sync::Arc;

use thicket_access::{Grant, Policy, scram::ServerExchange};
use thicket_overlay::KeyId;
use thicket_session::time::{Instant, WallClock};

/// The two clocks, read once a round by the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Never jumps; deadlines are compared with it.
    pub instant: Instant,
    /// The time of day; may jump.
    pub wall: WallClock,
}

/// A worker of this node, 0-based.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u8);

/// A socket of one thread: an index the shell chooses (a slab key, small and dense). It ends when the shell has handed in `Closed`, or has performed
/// `Close` or `Handover`. Outputs of the same round may still name it then: the shell passes them over, and gives the index to another socket only when
/// all outputs of the round have been performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

/// Which configured listener a connection came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u16);

/// What a shell hands to a worker.
#[derive(Debug)]
pub enum WorkerInput<'a> {
    /// A socket was accepted by this thread.
    Accepted {
        /// Chosen by the shell.
        connection: ConnectionId,
        /// The listener that it came through.
        listener: ListenerId,
        /// The peer.
        peer: SocketAddr,
    },
    /// A socket that another thread gave away with `Handover` is ours now.
    Adopted {
        /// Chosen by the shell.
        connection: ConnectionId,
        /// The state from the giving worker.
        state: Box<Handover>,
    },
    /// All that was read from a connection in this round. The worker keeps what is not a whole packet yet.
    Received {
        /// Its connection.
        connection: ConnectionId,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The peer closed or reset the connection, or the shell could not keep it.
    Closed {
        /// Which one.
        connection: ConnectionId,
    },
    /// A message from another worker or the hub.
    Message {
        /// Who sent it.
        from: Peer,
        /// What.
        message: WorkerMessage,
    },
    /// The answer to `Authenticate`.
    Authenticated {
        /// Whose CONNECT.
        connection: ConnectionId,
        /// Whether to continue.
        verdict: Verdict,
    },
    /// Users or rights were read again: every session's grant is reviewed.
    Reloaded {
        /// What holds now.
        policy: Arc<Policy>,
    },
    /// The instant that `poll_timeout` returned has come (early, late or repeated calls are harmless).
    Timeout,
}

/// What a worker orders its shell to do, in this order.
#[derive(Debug)]
pub enum WorkerOutput {
    /// Write the bytes of `Egress::pending_output`, then call `Worker::handle_written`. At most one a connection a round.
    Flush(ConnectionId),
    /// Write what is pending if the socket accepts it at once, then close. No `Closed` is owed.
    Close(ConnectionId),
    /// Stop (false) or resume (true) reading from a connection.
    SetReading(ConnectionId, bool),
    /// Take the socket from this thread and give it to another with `state` (`Adopted` there). Pending output was flushed.
    Handover {
        /// Which socket.
        connection: ConnectionId,
        /// To whom.
        to: Peer,
        /// Travels along.
        state: Box<Handover>,
    },
    /// Put a message into the mailbox of the hub.
    HubMessage(HubMessage),
    /// Put a message into the mailbox of another worker.
    WorkerMessage {
        /// To whom.
        to: WorkerId,
        /// What.
        message: WorkerMessage,
    },
    /// Ask the users; answered by `Authenticated`. Not asked when anonymous clients are allowed on the listener and no user name came.
    Authenticate {
        /// Whose CONNECT.
        connection: ConnectionId,
        /// The listener that it came through.
        listener: ListenerId,
        /// The peer.
        peer: SocketAddr,
        /// Client identifier, may be empty.
        client_id: String,
        /// User name.
        user_name: Option<String>,
        /// Password.
        password: Option<Vec<u8>>,
        /// Enhanced authentication, at CONNECT or later; then user name and password are ignored.
        enhanced: Option<Box<Enhanced>>,
    },
    /// No segment of the worker's log before this one is needed any more.
    RemoveLogBefore {
        /// The first one that is needed.
        segment: u64,
    },
    /// The result of `WorkerOperator::publish_unowned`.
    Published {
        /// Its number.
        number: u64,
        /// The result.
        answer: Published,
    },
    /// A message that the shell observes: see `Observed`.
    Observed(Box<crate::ObservedMessage>),
    /// What happened to a message that is traced: see `Observed`.
    Traced(Box<crate::Traced>),
    /// Something an operator may want to read; the shell logs it.
    Event(Event),
}

/// The result of a message that an operator published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// All destinations have it.
    Done,
    /// Nobody subscribes to its topic.
    NoSubscribers,
    /// No client may publish to its topic.
    Reserved,
    /// It is over the limit of a queue, a disk or the retained messages. Other recipients may have got it.
    NoCapacity,
    /// This side of the cluster has no quorum.
    NoQuorum,
}

/// What a shell hands to the hub (thread 0 only).
#[derive(Debug)]
pub enum HubInput<'a> {
    /// A worker recognised the CONNECT of another node and gave the socket away.
    LinkAdopted {
        /// Chosen by the shell, of the same space as the worker's on thread 0.
        link: ConnectionId,
        /// The state from the worker: `buffered` starts with the CONNECT.
        state: Box<Handover>,
        /// The key by which the other end has proved that it belongs to the cluster.
        key: Option<KeyId>,
    },
    /// The other end of a link that this node opened has proved it; before any bytes of it.
    LinkProved {
        /// Which one.
        link: ConnectionId,
        /// The key.
        key: KeyId,
    },
    /// `Dial` succeeded.
    Dialled {
        /// The address of the order.
        address: String,
        /// Chosen by the shell.
        link: ConnectionId,
    },
    /// `Dial` failed.
    DialFailed {
        /// The address of the order.
        address: String,
        /// In words, for the log.
        error: String,
    },
    /// All that was read from a link in this round.
    Received {
        /// The link.
        link: ConnectionId,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A link closed.
    Closed {
        /// Which one.
        link: ConnectionId,
    },
    /// Seeds or DNS list a node at `address` (HOST:PORT of one of its listeners). May repeat.
    Discovered {
        /// HOST:PORT.
        address: String,
    },
    /// An announcement on the network lists a node.
    Announced {
        /// HOST:PORT.
        address: String,
    },
    /// A message from a worker.
    Message {
        /// Who sent it.
        from: WorkerId,
        /// What.
        message: HubMessage,
    },
    /// The result of the task of a [`HubOutput::Plan`].
    Planned(Box<crate::RebalanceDone>),
    /// The instant that `poll_timeout` returned has come.
    Timeout,
}

/// What the hub orders its shell to do.
#[derive(Debug)]
pub enum HubOutput {
    /// Write the bytes of `Egress::pending_output`, then call `Hub::handle_written`.
    Flush(ConnectionId),
    /// Write what is pending if the socket accepts it at once, then close.
    Close(ConnectionId),
    /// Connect to another node; answered by `Dialled` or `DialFailed`. TCP_NODELAY.
    Dial {
        /// HOST:PORT.
        address: String,
    },
    /// Put a message into the mailbox of a worker.
    WorkerMessage {
        /// To whom.
        to: WorkerId,
        /// What.
        message: WorkerMessage,
    },
    /// Run the task on another thread, then hand over what it returns as [`HubInput::Planned`].
    Plan(Box<crate::RebalanceTask>),
    /// The result of [`HubOperator::place`](crate::HubOperator::place) with this number.
    Placed {
        /// Of the call.
        number: u64,
        /// The placement, or why there is none.
        answer: Box<Result<crate::PlacementReport, crate::PlacementError>>,
    },
    /// The node must end at once, as after a failure.
    End {
        /// Why, in words.
        problem: String,
    },
    /// Something an operator may want to read.
    Event(Event),
}

/// A worker or the hub of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Peer {
    /// A worker.
    Worker(WorkerId),
    /// The hub.
    Hub,
}

/// A message for the hub. Opaque to the shell, which only carries it, in order for each pair of sender and receiver.
#[derive(Debug)]
pub struct HubMessage(pub(crate) crate::messages::ToHub);

/// A message for a worker; see [`HubMessage`].
#[derive(Debug)]
pub struct WorkerMessage(pub(crate) crate::messages::ToWorker);

/// What travels with a socket from one thread to another.
#[derive(Debug)]
pub struct Handover {
    pub(crate) listener: ListenerId,
    pub(crate) peer: SocketAddr,
    /// Bytes read and not yet handled; starts with the CONNECT for a link.
    pub(crate) buffered: Vec<u8>,
    pub(crate) claim: Option<crate::messages::GrantedClaim>,
    /// It is in service, and stays so.
    pub(crate) relocated: Option<Box<crate::worker::Relocated>>,
}

/// A step of enhanced authentication (5.0, 4.12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enhanced {
    /// Authentication Method.
    pub method: String,
    /// Authentication Data of this step.
    pub data: Vec<u8>,
    /// What `Continue` returned at the step before; `None`: this is the first.
    pub exchange: Option<Box<ServerExchange>>,
}

/// How a client was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission {
    /// Who it is and what it may do; `None`: anybody, everything.
    pub grant: Option<Arc<Grant>>,
    /// Authentication Data to go with the acceptance.
    pub authentication_data: Option<Vec<u8>>,
}

/// Whether a client may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allowed(Admission),
    /// Not yet: the client is to answer this (AUTH 0x18).
    Continue {
        /// Authentication Data.
        data: Vec<u8>,
        /// Comes back with the client's answer.
        exchange: Box<ServerExchange>,
    },
    /// No: 0x8C.
    BadAuthenticationMethod,
    /// No: 0x86 (3.1.1: 4).
    BadUserNameOrPassword,
    /// No: 0x87 (3.1.1: 5).
    NotAuthorized,
    /// The users cannot be asked now: 0x88 (3.1.1: 3).
    Unavailable,
}

/// What an operator may want to read in the log; the shell turns it into a line with fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// How much it matters.
    pub level: EventLevel,
    /// Constant text.
    pub message: &'static str,
    /// Facts: field name (fixed names: client_id, node, peer, packet, reason_code, ...) and value.
    pub fields: Vec<(&'static str, String)>,
}

/// How much an event matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLevel {
    /// Something is wrong here.
    Error,
    /// A peer did something wrong.
    Warn,
    /// An operator wants it at 3 a.m.
    Info,
    /// A packet.
    Debug,
}
