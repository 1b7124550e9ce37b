//! The interface between delivery and the kinds of receivers.

use std::time::Duration;

use crate::Event;

/// A kind of receiver. It sends one request at a time; retries and refused events are left to the delivery.
pub(crate) trait Receiver: Send {
    /// Sends one request with at least the first event of the batch. May reorder the batch before that, but not the events of a client. Takes at most
    /// `timeout`.
    fn send(&mut self, batch: &mut Batch, timeout: Duration) -> Sent;
}

/// Events that were taken from the queue together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Counts the batches since the start of the node.
    pub(crate) sequence: u64,
    /// Events that are neither delivered nor dead letters; never empty when it is sent.
    pub(crate) events: Vec<Event>,
}

/// A request and its outcome.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Number of events at the front of the batch that were in the request, or would have been.
    pub(crate) count: usize,
    pub(crate) outcome: Result<(), Failure>,
}

/// How a request failed, and why.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Another attempt may succeed.
    Temporary(String),
    /// The receiver does not accept these events.
    Refused(String),
}
