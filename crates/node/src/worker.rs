//! The worker (placeholder).
use crate::{ConnectionId, Now, WorkerConfig, WorkerId, WorkerInput, WorkerOutput};
use thicket_session::time::Instant;

/// Connections and sessions of one thread.
#[derive(Debug)]
pub struct Worker {}

#[allow(unused_variables, clippy::todo, missing_docs, clippy::missing_const_for_fn)]
impl Worker {
    /// `seed`: from the operating system; everything random comes from it.
    pub fn new(id: WorkerId, config: WorkerConfig, seed: u64) -> Self { todo!() }
    pub fn handle_input(&mut self, now: Now, input: WorkerInput<'_>) { todo!() }
    /// Seals batches; call once after all inputs of a round, before polling outputs.
    pub fn end_round(&mut self, now: Now) { todo!() }
    pub fn poll_output(&mut self) -> Option<WorkerOutput> { todo!() }
    pub fn poll_timeout(&self) -> Option<Instant> { todo!() }
    /// Bytes to write to the socket, oldest first.
    pub fn pending_output(&self, connection: ConnectionId) -> &[u8] { todo!() }
    /// The socket took `count` of them. If some remain the shell waits for writability and flushes again by itself.
    pub fn handle_written(&mut self, now: Now, connection: ConnectionId, count: usize) { todo!() }
    /// Says goodbye: DISCONNECT 0x8B to 5.0 clients, closes all, keeps wills from firing? Then `poll_output` as usual.
    pub fn shut_down(&mut self, now: Now) { todo!() }
    pub fn sessions(&self) -> Vec<crate::SessionReport> { todo!() }
    pub fn subscriptions(&self) -> Vec<crate::SubscriptionReport> { todo!() }
    pub fn traffic(&self) -> crate::Traffic { todo!() }
}
