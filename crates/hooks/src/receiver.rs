//! What delivery and the kinds of receivers agree on.

use std::time::Duration;

use crate::Event;

/// A kind of receiver. It sends one request at a time; retries and what becomes of refused events are left to the delivery.
pub(crate) trait Receiver: Send {
    /// Sends one request with the first events of the batch, one of them at least. May reorder the batch before that, but not the events of
    /// a client. Takes `timeout` at most.
    fn send(&mut self, batch: &mut Batch, timeout: Duration) -> Sent;
}

/// Events that were taken from the queue together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Counts the batches since the start of the node.
    pub(crate) sequence: u64,
    /// Those that are neither delivered nor dead; never empty when it is sent.
    pub(crate) events: Vec<Event>,
}

/// A request and its outcome.
#[derive(Debug)]
pub(crate) struct Sent {
    /// So many events at the front of the batch were in the request, or would have been.
    pub(crate) count: usize,
    pub(crate) outcome: Result<(), Failure>,
}

/// How a request failed, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Another attempt may succeed.
    Temporary(String),
    /// The receiver will not have these events.
    Refused(String),
}
