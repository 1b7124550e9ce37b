//! What leaves a worker or a hub: nothing before all that it gathered is stored.

use thicket_overlay::LinkId;

use crate::{ConnectionId, Hub, HubOutput, Worker, WorkerOutput};

/// The way out of a worker or a hub. It exists only while nothing of the machine waits to be stored (`egress` of each), and it borrows the machine,
/// so that there is no input meanwhile.
///
/// ```
/// # use thicket_node::{Now, Worker, WorkerInput};
/// fn reads_and_then_writes(worker: &mut Worker, now: Now) {
///     worker.handle_input(now, WorkerInput::Timeout);
///     if let Some(mut egress) = worker.egress() {
///         egress.poll_output();
///     }
/// }
/// ```
///
/// Code that reverses the order, or asks the machine itself, does not compile:
///
/// ```compile_fail
/// # use thicket_node::{Now, Worker, WorkerInput};
/// fn reads_while_it_writes(worker: &mut Worker, now: Now) {
///     let mut egress = worker.egress().expect("nothing to be stored");
///     worker.handle_input(now, WorkerInput::Timeout);
///     egress.poll_output();
/// }
/// ```
///
/// ```compile_fail
/// # use thicket_node::Worker;
/// fn asks_without_storing(worker: &mut Worker) {
///     worker.poll_output();
/// }
/// ```
#[derive(Debug)]
pub struct Egress<'a, M>(&'a mut M);

impl Worker {
    /// The way out; `None`: what `unstored` returns must be stored first.
    pub fn egress(&mut self) -> Option<Egress<'_, Self>> {
        self.is_stored().then_some(Egress(self))
    }
}

impl Hub {
    /// The way out; `None`: what `unstored` returns must be stored first.
    pub fn egress(&mut self) -> Option<Egress<'_, Self>> {
        self.is_stored().then_some(Egress(self))
    }
}

impl<'a> Egress<'a, Worker> {
    /// The next order to the shell.
    pub fn poll_output(&mut self) -> Option<WorkerOutput> {
        self.0.poll_output()
    }

    /// Bytes to write to a connection, oldest first; empty for one that the worker does not have.
    #[must_use]
    pub fn pending_output(self, connection: ConnectionId) -> &'a [u8] {
        self.0.pending_output(connection)
    }
}

impl<'a> Egress<'a, Hub> {
    /// The next order to the shell.
    pub fn poll_output(&mut self) -> Option<HubOutput> {
        self.0.poll_output()
    }

    /// Bytes to write to a link, oldest first.
    #[must_use]
    pub fn pending_output(self, link: ConnectionId) -> &'a [u8] {
        self.0.pending_output(LinkId(link.0))
    }
}
