//! Strategies that ignore topics: one session a client, wherever it falls.

use super::{Decision, Demand, Limits, Request, Strategy};
use crate::cluster::Cluster;
use crate::ids::BrokerId;
use crate::random::Random;

/// A broker at random for each client: what a TCP load balancer in front of a cluster does (Detti section I).
#[derive(Debug, Clone)]
pub struct RandomAttach {
    limits: Limits,
    random: Random,
}

impl RandomAttach {
    /// Draws from `seed`.
    #[must_use]
    pub fn new(limits: Limits, seed: u64) -> Self {
        const ATTACH_STREAM: u64 = 2;
        Self {
            limits,
            random: Random::new(seed, ATTACH_STREAM),
        }
    }
}

impl Strategy for RandomAttach {
    fn place(&mut self, cluster: &Cluster, request: &Request<'_>) -> Decision {
        let drawn = BrokerId(self.random.below(cluster.broker_count()) as u16);
        everything_at(request, drawn)
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

/// One broker after the other, a client each.
#[derive(Debug, Clone)]
pub struct RoundRobin {
    limits: Limits,
    next: u16,
}

impl RoundRobin {
    /// Starts with the first broker.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, next: 0 }
    }
}

impl Strategy for RoundRobin {
    fn place(&mut self, cluster: &Cluster, request: &Request<'_>) -> Decision {
        let broker = BrokerId(self.next);
        self.next = (self.next + 1) % cluster.broker_count() as u16;
        everything_at(request, broker)
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

/// The broker with the least external load of the kind the client brings; the lowest index where several are equal.
#[derive(Debug, Clone)]
pub struct LeastLoaded {
    limits: Limits,
}

impl LeastLoaded {
    /// Input counts for publishers, output for subscribers, their sum for a client that is both.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits }
    }
}

impl Strategy for LeastLoaded {
    fn place(&mut self, cluster: &Cluster, request: &Request<'_>) -> Decision {
        let demand = Demand::of(cluster, request.interests);
        let least = cluster
            .brokers()
            .min_by(|a, b| {
                demand
                    .own_load(cluster, *a)
                    .total_cmp(&demand.own_load(cluster, *b))
            })
            .expect("a cluster has at least one broker");
        everything_at(request, least)
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

/// All topics at `chosen`, or at the session the client has already.
fn everything_at(request: &Request<'_>, chosen: BrokerId) -> Decision {
    let broker = request.open.first().copied().unwrap_or(chosen);
    Decision {
        brokers: vec![broker; request.interests.len()],
        redirects: Vec::new(),
    }
}
