//! A merge that waits for the other branch's queue.

use thicket_session::{
    server::{Branch, Epoch, Redelivery},
    topic::SubscriptionFilter,
};

use super::arrivals::Begun;

/// What is left to be merged when the other branch's queue has arrived.
#[derive(Debug)]
pub(in crate::worker) struct Merging {
    /// Of the claim under which it is merged: the session's from then on. Not before, as the registrar would not have it if the merge failed.
    pub epoch: Epoch,
    pub in_flight: Vec<Redelivery>,
    pub branch: Branch,
    /// Both are branches of one session.
    pub is_same: bool,
    /// Nothing is to be merged.
    pub is_void: bool,
    /// What had arrived here before the other one's filters were merged.
    pub begun: Begun,
    /// Filters without groups that the other one has held since it began; none if it is partial.
    pub steady: Vec<SubscriptionFilter>,
    /// Filters that were not held here before.
    pub fresh: Vec<SubscriptionFilter>,
    /// Filters that were held here until now.
    pub ended: Vec<SubscriptionFilter>,
}
