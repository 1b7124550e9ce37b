//! Inputs and outputs of a worker.

use std::{net::SocketAddr, sync::Arc};

use thicket_access::Policy;

use super::{
    ConnectionId, Enhanced, Event, HubMessage, ListenerId, Peer, Verdict, WorkerId, WorkerMessage,
};
use crate::{messages::GrantedClaim, worker::Relocated};

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

/// What travels with a socket from one thread to another.
#[derive(Debug)]
pub struct Handover {
    pub(crate) listener: ListenerId,
    pub(crate) peer: SocketAddr,
    /// Bytes read and not yet handled; starts with the CONNECT for a link.
    pub(crate) buffered: Vec<u8>,
    pub(crate) claim: Option<GrantedClaim>,
    /// It is in service, and stays so.
    pub(crate) relocated: Option<Box<Relocated>>,
}
