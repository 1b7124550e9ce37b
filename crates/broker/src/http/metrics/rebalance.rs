//! Metrics of moved clients, and the results of the moves.

use thicket_node::RebalanceCounts;
use thicket_telemetry::Kind::{Counter, Gauge};

use super::page::Page;

const MOVES: &str = "thicket_rebalance_moves_total";
const OUTCOMES: &str = "thicket_rebalance_outcomes_total";

pub(super) fn append(page: &mut Page, counts: &RebalanceCounts) {
    page.family(
        MOVES,
        Counter,
        "Clients of this node that the rebalancer had sent to another one, by reason",
    );
    for (reason, count) in ["drain", "load", "topics"].into_iter().zip(counts.moves) {
        page.sample(&[("reason", reason)], count);
    }
    page.family(
        OUTCOMES,
        Counter,
        "Outcome of moves: the client followed, came back, or was not sent",
    );
    for (outcome, count) in [
        ("followed", counts.followed),
        ("ignored", counts.ignored),
        ("refused", counts.refused),
    ] {
        page.sample(&[("outcome", outcome)], count);
    }
    page.single(
        "thicket_rebalance_plans_total",
        Counter,
        "Times that this node, as the rebalancer, has looked at all clients and planned their moves",
        counts.plans,
    );
    page.single(
        "thicket_rebalancer",
        Gauge,
        "Whether this node is the rebalancer",
        u64::from(counts.is_rebalancer),
    );
    if let Some(desired) = counts.desired_nodes {
        page.single(
            "thicket_desired_nodes",
            Gauge,
            "Nodes that the load needs, with hysteresis, as the rebalancer computes them",
            desired as u64,
        );
    }
}
