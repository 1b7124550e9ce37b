//! Inputs and outputs of the hub.

use thicket_overlay::KeyId;

use super::{ConnectionId, Event, Handover, HubMessage, WorkerId, WorkerMessage};

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
