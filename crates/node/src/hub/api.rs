//! What the shell asks of the hub about where clients are and should be. See `placing`.

use super::Hub;
use crate::{
    ClientExplanation, NodeLoad, Now, PlacedName, PlacementReport, PlacementRequest,
    RebalanceCounts, RebalanceError, RebalanceReport, RebalanceWish, RedirectionReport,
    TopicReport,
};

impl Hub {
    /// What this node has to do, as the shell measured it; once a second or so. The other nodes hear of it if it has changed enough.
    pub fn set_load(&mut self, now: Now, load: NodeLoad) {
        self.at_rest = None;
        self.placing.set_load(&mut self.cx, now, load);
        self.serve_placed(now);
    }

    /// This node is about to leave: nobody is sent here any more, and whoever comes is sent elsewhere.
    pub fn drain(&mut self, now: Now) {
        self.at_rest = None;
        self.placing.drain(&mut self.cx, now);
    }

    /// Whether this node is about to leave.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.placing.is_draining()
    }

    /// The topics that clients publish to, those with most messages first.
    #[must_use]
    pub fn topics(&self) -> Vec<TopicReport> {
        self.placing.topics(&self.cx)
    }

    /// Asks where a client's sessions should be; answered by [`HubOutput::Placed`](crate::HubOutput::Placed) with the same number, which is the caller's.
    pub fn place(&mut self, now: Now, number: u64, request: PlacementRequest) {
        self.at_rest = None;
        self.placing.place(&mut self.cx, now, number, request);
        self.serve_placed(now);
    }

    /// A client is placed no more; answered by [`HubOutput::Placed`](crate::HubOutput::Placed) with what it had.
    pub fn unplace(&mut self, now: Now, number: u64, client_id: String) {
        self.at_rest = None;
        self.placing.unplace(&mut self.cx, now, number, client_id);
        self.serve_placed(now);
    }

    /// Where a client's sessions should be, if it was placed.
    #[must_use]
    pub fn placement(&self, now: Now, client_id: &str) -> Option<PlacementReport> {
        self.placing.placement(&self.cx, now, client_id)
    }

    /// All placements after a client, by client, as many as are wanted.
    #[must_use]
    pub fn placements(&self, now: Now, after: Option<&str>, limit: usize) -> Vec<PlacementReport> {
        self.placing.placements(&self.cx, now, after, limit)
    }

    /// Whose session has this name, and what its client publishes there; `None`: no placement asked for it.
    #[must_use]
    pub fn placed_name(&self, now: Now, name: &str) -> Option<PlacedName> {
        self.placing.placed_name(now, name)
    }

    /// The client identifiers of the sessions above the first that a client was placed with, whatever user it belongs to.
    #[must_use]
    pub fn further_sessions(&self, now: Now, client_id: &str) -> Vec<String> {
        self.placing.further_sessions(now, client_id)
    }

    /// Asks the rebalancer; the answer is fetched by the number, [`Hub::rebalance_answer`].
    pub fn ask_rebalance(&mut self, now: Now, wish: RebalanceWish) -> u64 {
        self.at_rest = None;
        self.placing.ask_rebalance(&mut self.cx, now, wish)
    }

    /// What the rebalancer answered, once; `None`: nothing yet.
    pub fn rebalance_answer(
        &mut self,
        number: u64,
    ) -> Option<Result<RebalanceReport, RebalanceError>> {
        self.placing.rebalance_answer(number)
    }

    /// What the rebalancer has done since the start.
    #[must_use]
    pub const fn rebalance_counts(&self) -> &RebalanceCounts {
        self.placing.rebalance_counts()
    }

    /// Which decisions were made since the start.
    #[must_use]
    pub fn redirections(&self) -> RedirectionReport {
        self.placing.redirections()
    }

    /// What this node knows of a client, and what it last decided about it.
    #[must_use]
    pub fn explain_client(&self, now: Now, client_id: &str) -> ClientExplanation {
        self.placing.explain_client(&self.cx, now, client_id)
    }
}
