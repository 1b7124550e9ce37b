//! The least growth of internal traffic a client can have, by trying all sets of brokers (Detti Fig. 12).

use super::sets::CostTable;
use super::{Decision, Demand, Limits, MatchingOptions, Request, Strategy};
use crate::cluster::Cluster;
use crate::ids::BrokerId;

/// The per-client optimum under the fairness test of Eq. 11, for small cases: it tries every set of Nses candidates.
///
/// A topic's growth depends on its own broker only, so each topic goes to its cheapest broker of the set, and trying the
/// sets tries all assignments. Among equals the least loaded brokers win, as in the greedy algorithm.
#[derive(Debug, Clone)]
pub struct Optimum {
    limits: Limits,
    options: MatchingOptions,
}

impl Optimum {
    /// `options` set the candidates and what a topic costs.
    #[must_use]
    pub fn new(limits: Limits, options: MatchingOptions) -> Self {
        Self { limits, options }
    }
}

impl Strategy for Optimum {
    fn place(&mut self, cluster: &Cluster, request: &Request<'_>) -> Decision {
        if request.interests.is_empty() {
            return Decision::default();
        }
        let demand = Demand::of(cluster, request.interests);
        let mut rows = self.options.candidates(cluster, self.limits, demand);
        // The search prefers earlier rows among equals.
        rows.sort_by(|a, b| {
            demand
                .own_load(cluster, *a)
                .total_cmp(&demand.own_load(cluster, *b))
        });
        rows.retain(|broker| !request.open.contains(broker));
        rows.splice(0..0, request.open.iter().copied());
        let mut table = CostTable::new(request.interests.len());
        for broker in &rows {
            table.push_row(
                request
                    .interests
                    .iter()
                    .map(|interest| self.options.growth(cluster, interest, *broker)),
            );
        }
        let fixed: Vec<usize> = (0..request.open.len()).collect();
        let free = self.limits.max_sessions().saturating_sub(fixed.len());
        let chosen = table.best_set_by_enumeration(&fixed, free);
        let brokers: Vec<BrokerId> = (0..request.interests.len())
            .map(|topic| rows[table.cheapest(&chosen, topic)])
            .collect();
        Decision {
            brokers,
            redirects: Vec::new(),
        }
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn allow_sessions(&mut self, max_sessions: usize) {
        self.limits = self.limits.with_sessions(max_sessions);
    }
}
