//! How much capacity a broker has, for one client.

use super::{Demand, Interest, Limits, Request};
use crate::cluster::{Cluster, Dimension};
use crate::ids::{BrokerId, TopicId};

/// What moving an idle publisher costs, against bringing its topic by internal traffic: little, but not nothing, so that topics stay where their
/// publishers are unless something else outweighs it, and the capacity for moves lasts.
const REDIRECT_MISS: f64 = 0.02;

/// Loads as one client sees them.
#[derive(Clone, Copy)]
pub(super) struct Fairness<'a> {
    cluster: &'a Cluster,
    limits: Limits,
    demand: Demand,
    /// The brokers to choose from are settled, and may end above gamma.
    lenient: bool,
}

impl<'a> Fairness<'a> {
    pub(super) fn new(cluster: &'a Cluster, limits: Limits, demand: Demand) -> Self {
        Self {
            cluster,
            limits,
            demand,
            lenient: false,
        }
    }

    pub(super) fn lenient(self) -> Self {
        Self {
            lenient: true,
            ..self
        }
    }

    /// load_k / mean - 1; 0 without any load.
    pub(super) fn excess(&self, dimension: Dimension, broker: BrokerId) -> f64 {
        let mean = self.mean(dimension);
        if mean > 0.0 {
            self.cluster.loads(dimension)[broker.index()] / mean - 1.0
        } else {
            0.0
        }
    }

    fn mean(&self, dimension: Dimension) -> f64 {
        self.total(dimension) / self.cluster.broker_count() as f64
    }

    /// The load the cluster is heading for: publishers that subscribers wait for will come.
    fn total(&self, dimension: Dimension) -> f64 {
        let awaited = match dimension {
            Dimension::Input => self.cluster.awaited_input(),
            Dimension::Output => 0.0,
        };
        self.cluster.total_load(dimension) + awaited
    }

    /// Messages per second of capacity left at `broker` when `arriving` come to the cluster.
    fn remaining(&self, dimension: Dimension, broker: BrokerId, arriving: f64) -> f64 {
        let total = self.total(dimension) + arriving;
        let bound = self.limits.gamma() * total / self.cluster.broker_count() as f64;
        bound - self.cluster.loads(dimension)[broker.index()]
    }

    /// Whether the slack between the mean and gamma times the mean is more than the client brings. Then the broker with the least load has capacity
    /// for all of it, in each dimension.
    pub(super) fn is_strict(&self) -> bool {
        self.demand
            .dimensions()
            .all(|(dimension, added)| added <= (self.limits.gamma() - 1.0) * self.mean(dimension))
    }

    /// Whether `broker` has capacity for `share` of the client; for 0, for anything.
    pub(super) fn has_capacity(&self, broker: BrokerId, share: f64) -> bool {
        self.demand.dimensions().all(|(dimension, added)| {
            let remaining = self.remaining(dimension, broker, added);
            remaining > 0.0 && share * added <= remaining
        })
    }

    /// Whether `broker` is within gamma without the client (the test of Eq. 11).
    pub(super) fn was_fair(&self, broker: BrokerId) -> bool {
        self.demand.dimensions().all(|(dimension, _)| {
            let bound = self.limits.gamma() * self.mean(dimension);
            self.cluster.loads(dimension)[broker.index()] <= bound
        })
    }

    /// Brokers to choose from: those the client is at, then those that `may` accept it, the least loaded first.
    pub(super) fn rows(
        &self,
        request: &Request<'_>,
        may: impl Fn(BrokerId) -> bool,
    ) -> Vec<BrokerId> {
        let mut rows: Vec<BrokerId> = self.others(request).filter(|broker| may(*broker)).collect();
        if rows.is_empty() {
            rows.extend(self.others(request));
        }
        rows.sort_by(|a, b| {
            self.demand
                .own_load(self.cluster, *a)
                .total_cmp(&self.demand.own_load(self.cluster, *b))
        });
        rows.splice(0..0, request.open.iter().copied());
        rows
    }

    fn others<'b>(&'b self, request: &'b Request<'_>) -> impl Iterator<Item = BrokerId> + 'b {
        let distances = self.cluster.distances();
        let is_near = |broker: &BrokerId| distances.is_near(request.home, *broker);
        self.cluster
            .brokers()
            .filter(move |broker| !request.open.contains(broker) && is_near(broker))
    }

    /// What it costs to bring the topic to `broker` for the subscriber from the nearest broker that has it; a little where its idle publishers follow.
    pub(super) fn subscriber_miss(&self, interest: &Interest, broker: BrokerId) -> f64 {
        let topic = interest.topic;
        let is_wanted = self.cluster.listening_count(topic) > 0;
        let listener = is_wanted.then(|| self.cluster.nearest_listener(topic, broker));
        let nearest = [listener, self.cluster.source_cost(topic, broker)];
        if let Some(cost) = nearest.into_iter().flatten().min_by(f64::total_cmp) {
            return cost;
        }
        let coming = self.rate_elsewhere(topic, broker);
        if coming == 0.0 {
            0.0
        } else if coming <= self.remaining(Dimension::Input, broker, 0.0) {
            REDIRECT_MISS
        } else {
            1.0
        }
    }

    fn rate_elsewhere(&self, topic: TopicId, broker: BrokerId) -> f64 {
        self.cluster
            .publishers(topic)
            .iter()
            .filter(|publisher| publisher.broker != broker)
            .map(|publisher| publisher.rate)
            .sum()
    }
}

/// The capacity left at the brokers of a set while one client's topics are assigned.
pub(super) struct Capacity<'a> {
    fairness: &'a Fairness<'a>,
    used: &'a [BrokerId],
    /// Input and output that fit, one entry a broker of the set. Input is spent by publishers that follow, too.
    left: Vec<[f64; 2]>,
}

impl<'a> Capacity<'a> {
    pub(super) fn new(fairness: &'a Fairness<'a>, used: &'a [BrokerId]) -> Self {
        let left = used.iter().map(|broker| {
            let remaining = |dimension, added: Option<f64>| {
                fairness.remaining(dimension, *broker, added.unwrap_or(0.0))
            };
            [
                remaining(Dimension::Input, fairness.demand.input),
                remaining(Dimension::Output, fairness.demand.output),
            ]
        });
        Self {
            fairness,
            used,
            left: left.collect(),
        }
    }

    /// The cheapest place with capacity for the topic, which is used up, and whether its idle publishers follow there; `None` when there is no
    /// capacity. `miss` comes on top where publishers should follow but find no capacity any more.
    pub(super) fn take(
        &mut self,
        interest: &Interest,
        miss: f64,
        cost: impl Fn(usize) -> f64,
    ) -> Option<(usize, bool)> {
        let input = interest.role.publish_rate().unwrap_or(0.0);
        let output = if interest.role.subscribes() {
            self.fairness.cluster.rate(interest.topic)
        } else {
            0.0
        };
        let mut best: Option<(f64, usize, f64)> = None;
        for place in 0..self.used.len() {
            let [input_left, mut output_left] = self.left[place];
            let cluster = self.fairness.cluster;
            if output == 0.0 && cluster.is_matched(interest.topic, self.used[place]) {
                // What the filter there receives is part of its load already.
                output_left = 0.0;
            }
            if !self.fairness.lenient && (input > input_left || output > output_left) {
                continue;
            }
            let mut following = self.following(interest, self.used[place]);
            let mut cost = cost(place);
            if following > 0.0 && following > input_left - input {
                following = 0.0;
                cost += miss;
            }
            if best.is_none_or(|(least, _, _)| cost < least) {
                best = Some((cost, place, following));
            }
        }
        let (_, place, following) = best?;
        self.left[place][0] -= input + following;
        self.left[place][1] -= output;
        Some((place, following > 0.0))
    }

    /// Rate of the idle publishers that would follow the subscriber to `broker`.
    fn following(&self, interest: &Interest, broker: BrokerId) -> f64 {
        let cluster = self.fairness.cluster;
        let is_first = cluster.listening_count(interest.topic) == 0;
        // Publishers that do not move to their subscribers stay where they are.
        let may_follow = cluster.source_cost(interest.topic, broker).is_none();
        if interest.role.subscribes() && is_first && may_follow {
            self.fairness.rate_elsewhere(interest.topic, broker)
        } else {
            0.0
        }
    }
}
