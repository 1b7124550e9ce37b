//! What the shell asks of the hub: reports, and where clients are and should be (`placing`).

use std::collections::BTreeMap;

use thicket_overlay::{NodeId, NodeSlot, NodeStatus};
use thicket_placement::SitePrices;
use thicket_session::time::WallClock;

use super::{Hub, HubOperator, HubView, members::Member};
use crate::{
    ClientExplanation, HubMemoryReport, NodeLoad, NodeReport, Now, PlacedName, PlacementReport,
    PlacementRequest, RebalanceCounts, RebalanceError, RebalanceReport, RebalanceWish,
    RedirectionReport, Remembered, TenantId, TenantRetained, TopicReport, Traffic,
};

impl Hub {
    fn node_report(&self, node: NodeId, member: &Member, status: Option<NodeStatus>) -> NodeReport {
        let is_up = status.as_ref().is_some_and(|status| status.is_up);
        let wire = status.as_ref().filter(|status| status.is_up);
        let down_since = member.down_since.filter(|_| !is_up);
        let hints = self.hints.report(Some(node));
        let mut report = NodeReport {
            name: member.name.clone(),
            id: node.to_string(),
            incarnation: 0,
            address: String::new(),
            is_self: node == self.cx.own(),
            reachable: is_up,
            out_since_ms: down_since.map(WallClock::as_unix_millis),
            wire_version: wire.map(|status| self.cx.overlay.wire_version(status.slot).number()),
            rtt_us: None,
            clock_ahead_ms: self.clocks.ahead_ms(node),
            key: None,
            clients: 0,
            subscriptions: 0,
            state: self.placing.state_of(&self.cx, node).cloned(),
            hinted_messages: hints.messages,
            hinted_bytes: hints.bytes,
            site: self.placing.site_of(node).map(str::to_owned),
            disagreements: self.agreement.with(node),
        };
        if let Some(status) = status {
            report.incarnation = status.incarnation.0;
            report.address = status.address;
            report.rtt_us = status.rtt_us;
            report.key = status.key.map(|key| key.to_string());
            report.clients = status.clients;
            report.subscriptions = status.subscriptions;
        }
        report
    }
}

impl<'a> HubView<'a> {
    /// The nodes of the cluster, this one first: those that are linked, and members that are down.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeReport> {
        let mut linked: BTreeMap<NodeId, _> = self
            .hub
            .cx
            .overlay
            .nodes()
            .into_iter()
            .map(|status| (status.node, status))
            .collect();
        let members = self.hub.cx.members.iter().map(|(node, member)| {
            let status = linked.remove(&node);
            self.hub.node_report(node, member, status)
        });
        let mut nodes: Vec<NodeReport> = members.collect();
        nodes.sort_by_key(|node| !node.is_self);
        nodes
    }

    /// What the links carried, and what is retained.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let mut traffic = Traffic {
            retained_messages: self.hub.retained.len() as u64,
            retained_bytes: self.hub.retained.bytes() as u64,
            hinted_dropped_messages: self.hints().dropped_messages,
            ..Traffic::default()
        };
        for status in self.hub.cx.overlay.nodes() {
            traffic.internal_in_messages += status.counters.data_in_messages;
            traffic.internal_in_bytes += status.counters.data_in_bytes;
            traffic.internal_out_messages += status.counters.data_out_messages;
            traffic.internal_out_bytes += status.counters.data_out_bytes;
            traffic.dropped_messages += status.counters.dropped;
        }
        traffic
    }

    /// The view, the trees, and what the links carried, for display.
    #[must_use]
    pub fn overview(&self) -> (thicket_overlay::Overview, thicket_overlay::OverlayCounters) {
        (
            self.hub.cx.overlay.overview(),
            self.hub.cx.overlay.counters(),
        )
    }

    /// Where a publication on `topic` goes from each node, and why.
    #[must_use]
    pub fn explain(&self, topic: &str) -> thicket_overlay::Explanation {
        self.hub.cx.overlay.explain(topic)
    }

    /// What each link carried, by node.
    #[must_use]
    pub fn link_counters(&self) -> Vec<(String, thicket_overlay::LinkCounters)> {
        let nodes = self.hub.cx.overlay.nodes().into_iter();
        let others = nodes.filter(|status| status.slot != NodeSlot::LOCAL);
        others
            .map(|status| (status.name, status.counters))
            .collect()
    }

    /// Where the memory of the hub is.
    #[must_use]
    pub fn memory(&self) -> HubMemoryReport {
        let hints = self.hints();
        HubMemoryReport {
            retained_messages: self.hub.retained.len() as u64,
            retained_bytes: self.hub.retained.bytes() as u64,
            link_bytes: self.hub.cx.overlay.counters().unacknowledged_bytes,
            handed_bytes: self.hub.cx.outgoing.flow_control.bytes(),
            hinted_messages: hints.messages,
            hinted_bytes: hints.bytes,
            hinted_dropped_messages: hints.dropped_messages,
        }
    }

    /// What is retained in the topics of a tenant.
    #[must_use]
    pub fn tenant_retained(&self, tenant: TenantId) -> TenantRetained {
        self.hub.retained.of_tenant(tenant)
    }

    /// The caches of the hub.
    #[must_use]
    pub fn remembered(&self) -> Vec<Remembered> {
        let mut all = vec![
            self.hub.interests.cached(),
            self.hub.retained.removed_topics(),
            self.hub.ownership.ended(),
            self.hub.hints.arrivals.remembered(),
        ];
        all.extend(self.hub.placing.remembered());
        all
    }

    /// Whether this node is about to leave.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.hub.placing.is_draining()
    }

    /// Prices of traffic between sites, as this node is configured.
    #[must_use]
    pub fn site_prices(&self) -> &'a SitePrices {
        self.hub.placing.site_prices()
    }

    /// The topics that clients publish to, those with most messages first.
    #[must_use]
    pub fn topics(&self) -> Vec<TopicReport> {
        self.hub.placing.topics(&self.hub.cx)
    }

    /// Where a client's sessions should be, if it was placed, by the name of its session.
    #[must_use]
    pub fn placement(&self, now: Now, name: &str) -> Option<PlacementReport> {
        self.hub.placing.placement(&self.hub.cx, now, name)
    }

    /// The names of the sessions of placed clients with this identifier, each of another user, or of the one with this name; `user_name`: only of
    /// that user.
    #[must_use]
    pub fn placed_names(&self, now: Now, client_id: &str, user_name: Option<&str>) -> Vec<String> {
        self.hub.placing.placed_names(now, client_id, user_name)
    }

    /// All placements after a session's name, by name, up to `limit`.
    #[must_use]
    pub fn placements(&self, now: Now, after: Option<&str>, limit: usize) -> Vec<PlacementReport> {
        self.hub.placing.placements(&self.hub.cx, now, after, limit)
    }

    /// The client whose session has this name, and what it publishes there; `None`: no placement asked for it.
    #[must_use]
    pub fn placed_name(&self, now: Now, name: &str) -> Option<PlacedName> {
        self.hub.placing.placed_name(now, name)
    }

    /// The client identifiers of the sessions above the first that a client was placed with, whatever user it belongs to.
    #[must_use]
    pub fn further_sessions(&self, now: Now, client_id: &str) -> Vec<String> {
        self.hub.placing.further_sessions(now, client_id)
    }

    /// Counts of the rebalancer since the start.
    #[must_use]
    pub fn rebalance_counts(&self) -> &'a RebalanceCounts {
        self.hub.placing.rebalance_counts()
    }

    /// Counts of the decisions since the start.
    #[must_use]
    pub fn redirections(&self) -> RedirectionReport {
        self.hub.placing.redirections()
    }

    /// What this node has about a client, and what it last decided about it.
    #[must_use]
    pub fn explain_client(&self, now: Now, client_id: &str) -> ClientExplanation {
        self.hub
            .placing
            .explain_client(&self.hub.cx, now, client_id)
    }
}

impl HubOperator<'_> {
    /// The load of this node, as the shell measured it; once a second or so. The other nodes are sent it if it has changed enough.
    pub fn set_load(&mut self, load: NodeLoad) {
        let now = self.now;
        self.hub.placing.set_load(&mut self.hub.cx, now, load);
        self.hub.serve_placed(now);
    }

    /// This node is about to leave: no client is sent here any more, and clients that connect are sent elsewhere.
    pub fn drain(&mut self) {
        let now = self.now;
        self.hub.placing.drain(&mut self.hub.cx, now);
    }

    /// This node stays.
    pub fn end_drain(&mut self) {
        let now = self.now;
        self.hub.placing.end_drain(&mut self.hub.cx, now);
    }

    /// Asks where a client's sessions should be; answered by [`HubOutput::Placed`](crate::HubOutput::Placed) with the same number, which is the caller's.
    pub fn place(&mut self, number: u64, request: PlacementRequest) {
        let now = self.now;
        self.hub
            .placing
            .place(&mut self.hub.cx, now, number, request);
        self.hub.serve_placed(now);
    }

    /// Removes the placement of a client; answered by [`HubOutput::Placed`](crate::HubOutput::Placed) with what it had.
    pub fn unplace(&mut self, number: u64, client_id: String) {
        let now = self.now;
        self.hub
            .placing
            .unplace(&mut self.hub.cx, now, number, client_id);
        self.hub.serve_placed(now);
    }

    /// Asks the rebalancer; the answer is fetched by the number, [`rebalance_answer`](Self::rebalance_answer).
    pub fn ask_rebalance(&mut self, wish: RebalanceWish) -> u64 {
        let now = self.now;
        self.hub.placing.ask_rebalance(&mut self.hub.cx, now, wish)
    }

    /// What the rebalancer answered, once; `None`: nothing yet.
    pub fn rebalance_answer(
        &mut self,
        number: u64,
    ) -> Option<Result<RebalanceReport, RebalanceError>> {
        self.hub.placing.rebalance_answer(number)
    }
}
