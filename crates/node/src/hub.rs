//! The hub (placeholder).
use crate::{ConnectionId, HubConfig, HubInput, HubOutput, Now};
use thicket_session::time::Instant;

/// The cluster side of a node.
#[derive(Debug)]
pub struct Hub {}

#[allow(
    unused_variables,
    clippy::todo,
    missing_docs,
    clippy::missing_const_for_fn
)]
impl Hub {
    pub fn new(config: HubConfig, now: Now, seed: u64) -> Self {
        todo!()
    }
    pub fn handle_input(&mut self, now: Now, input: HubInput<'_>) {
        todo!()
    }
    pub fn end_round(&mut self, now: Now) {
        todo!()
    }
    pub fn poll_output(&mut self) -> Option<HubOutput> {
        todo!()
    }
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }
    pub fn pending_output(&self, link: ConnectionId) -> &[u8] {
        todo!()
    }
    pub fn handle_written(&mut self, now: Now, link: ConnectionId, count: usize) {
        todo!()
    }
    /// Whether clients may be let in (rule 3): the shell opens its listeners for clients when this turns true... it accepts links before.
    pub fn is_ready(&self) -> bool {
        todo!()
    }
    pub fn nodes(&self) -> Vec<crate::NodeReport> {
        todo!()
    }
    pub fn shut_down(&mut self, now: Now) {
        todo!()
    }
}
