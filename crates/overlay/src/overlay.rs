//! The machine (doors first; bodies follow).

use std::ops::RangeInclusive;

use thicket_session::time::Instant;

use crate::config::OverlayConfig;
use crate::doors::{ControlError, Delivery, Forward, ForwardError, Input, Output, Unacknowledged};
use crate::identity::{Incarnation, LinkId, NodeId, NodeSlot, Origin, StreamId};
use crate::interest::{InterestKey, InterestValue};
use crate::report::{NodeStatus, OverlayCounters};

/// The cluster side of one node. See the crate's documentation.
#[derive(Debug)]
pub struct Overlay {
    node: NodeId,
    incarnation: Incarnation,
}

#[allow(
    unused_variables,
    clippy::todo,
    clippy::unused_self,
    clippy::missing_const_for_fn
)]
impl Overlay {
    /// A node that knows nobody. `seed`: from the operating system; nonces and jitter come from it.
    #[must_use]
    pub fn new(config: OverlayConfig, now: Instant, seed: u64) -> Self {
        let _ = (now, seed); Self { incarnation: config.incarnation, node: config.node }
    }

    /// Takes an input.
    pub fn handle_input(&mut self, now: Instant, input: Input<'_>) {
        let _ = (now, input);
    }

    /// Takes all that was read from a link in this round, and calls `deliver` for each message in it that is new here.
    /// What is not a whole packet yet is kept.
    pub fn handle_received(
        &mut self,
        now: Instant,
        link: LinkId,
        bytes: &[u8],
        deliver: impl FnMut(Delivery<'_>),
    ) {
        let _ = (now, link, bytes, deliver);
    }

    /// Ends a round: writes control, then acknowledgements, then data into the out-buffers. Call it after the inputs of a round
    /// and before polling its outputs.
    pub fn end_round(&mut self, now: Instant) {
        let _ = now;
    }

    /// The next order, `None` when there is no more.
    pub fn poll_output(&mut self) -> Option<Output> {
        None
    }

    /// When to hand in `Input::Timeout`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Bytes to write to the socket, oldest first. Empty for a link that is gone.
    #[must_use]
    pub fn pending_output(&self, link: LinkId) -> &[u8] {
        let _ = link; &[]
    }

    /// The socket took `count` of them. More may be pending afterwards; the shell goes on while the socket takes it.
    pub fn handle_written(&mut self, now: Instant, link: LinkId, count: usize) {
        let _ = (now, link, count);
    }

    /// Says to every node that this one goes, so that it is out at once; then poll outputs as usual.
    pub fn shut_down(&mut self, now: Instant) {
        let _ = now;
    }

    /// States an interest of this node. Answers the version of our interests that contains it: wait for `InterestSettled` of it
    /// or a later one. An unchanged interest is no new version.
    pub fn set_interest(&mut self, key: InterestKey, value: InterestValue) -> u64 {
        let _ = (key, value); 0
    }

    /// Withdraws an interest; answers the version without it.
    pub fn clear_interest(&mut self, key: &InterestKey) -> u64 {
        let _ = key; 0
    }

    /// The highest version that every reachable node has applied.
    #[must_use]
    pub fn settled_version(&self) -> u64 {
        0
    }

    /// Every worker of this node knows the interests of `slot` up to `version` (of `InterestChanged`).
    pub fn interests_applied(&mut self, slot: NodeSlot, version: u64) {
        let _ = (slot, version);
    }

    /// Whether the snapshot of every reachable node has been applied here (rule 3). True while alone: how long to wait for
    /// discovery the hub decides.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        true
    }

    /// Sends a message to its destinations, and keeps it, if it has a number, until each has admitted it or is out.
    ///
    /// # Errors
    /// See [`ForwardError`]; the message is neither kept nor sent.
    pub fn forward(&mut self, now: Instant, message: Forward<'_>) -> Result<(), ForwardError> {
        let _ = (now, message); Ok(())
    }

    /// Whether more numbered messages for this node are welcome. When not: stop reading from publishers whose messages go
    /// there, until `RoomChanged`.
    #[must_use]
    pub fn has_room(&self, slot: NodeSlot) -> bool {
        let _ = slot; true
    }

    /// The messages some destination has not admitted yet, by stream and number: to be matched again when interests or the
    /// view changed (rule 5).
    pub fn unacknowledged(&self) -> impl Iterator<Item = Unacknowledged<'_>> {
        std::iter::empty()
    }

    /// Adds a destination to an unacknowledged message. False if the message is acknowledged already, the node is out or is a
    /// destination already. A node that has admitted it before drops and acknowledges the copy.
    pub fn add_destination(&mut self, stream: StreamId, number: u64, slot: NodeSlot) -> bool {
        let _ = (stream, number, slot); false
    }

    /// The workers concerned have taken these numbered messages: they are acknowledged, their credit returns. Numbers that
    /// were not delivered, or belong to an incarnation that is gone, are passed over.
    pub fn admitted(&mut self, origin: Origin, numbers: RangeInclusive<u64>) {
        let _ = (origin, numbers);
    }

    /// The workers concerned have taken messages of `slot` without numbers, of `bytes` ([`Delivery::bytes`]) in all: credit returns.
    pub fn released(&mut self, slot: NodeSlot, incarnation: Incarnation, bytes: u64) {
        let _ = (slot, incarnation, bytes);
    }

    /// Sends `payload` to the hub of another node: in order and once while the node is up, over as many links as it takes, never
    /// behind data.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub fn send_control(
        &mut self,
        slot: NodeSlot,
        kind: u8,
        payload: &[u8],
    ) -> Result<(), ControlError> {
        let _ = (slot, kind, payload); Ok(())
    }

    /// What others show of this node; travels in its record.
    pub fn set_summary(&mut self, clients: u64, subscriptions: u64) {
        let _ = (clients, subscriptions);
    }

    /// This node's incarnation; higher than configured if others remembered a higher one.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// This node and those that are up, ascending: the nodes to hand to [`rendezvous`](crate::rendezvous).
    #[must_use]
    pub fn reachable(&self) -> Vec<NodeId> {
        vec![self.node]
    }

    /// The slot of a node that was up at least once; `NodeSlot::LOCAL` for this one.
    #[must_use]
    pub fn slot_of(&self, node: NodeId) -> Option<NodeSlot> {
        let _ = node; None
    }

    /// The node of a slot.
    #[must_use]
    pub fn node_of(&self, slot: NodeSlot) -> Option<NodeId> {
        let _ = slot; None
    }

    /// Every node known, this one first.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeStatus> {
        Vec::new()
    }

    /// Counters that concern no single node.
    #[must_use]
    pub fn counters(&self) -> OverlayCounters {
        OverlayCounters::default()
    }
}
