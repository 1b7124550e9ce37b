//! Best-matching and multi-session best-matching (Detti section IV, Eq. 8-11, Algorithm 1).

use super::options::{
    ActiveBy, IdleCluster, LoadMoment, MatchingOptions, MissingPublisher, PublisherIndicator,
    Subset, TestedLoad, Ties,
};
use super::{Decision, Demand, Interest, Limits, Request, Strategy};
use crate::cluster::{Cluster, Dimension};
use crate::ids::BrokerId;

/// Best-matching with one session (Eq. 11) or with several (Algorithm 1).
#[derive(Debug, Clone)]
pub struct Matching {
    limits: Limits,
    has_one_session: bool,
    options: MatchingOptions,
}

impl Matching {
    /// One session a client, at the candidate where internal traffic grows least (Eq. 8-11).
    #[must_use]
    pub fn best_match(limits: Limits, options: MatchingOptions) -> Self {
        Self {
            limits,
            has_one_session: true,
            options,
        }
    }

    /// Up to the allowed sessions a client (Algorithm 1 and footnote 5).
    #[must_use]
    pub fn multi_session(limits: Limits, options: MatchingOptions) -> Self {
        Self {
            limits,
            has_one_session: false,
            options,
        }
    }
}

impl Strategy for Matching {
    fn place(&mut self, cluster: &Cluster, request: &Request<'_>) -> Decision {
        let broker_count = cluster.broker_count();
        let max_sessions = match self.has_one_session {
            true => 1,
            false => self.limits.max_sessions(),
        };
        // One row a topic, one column a broker: loads and activity do not change while one client is placed.
        let growths: Vec<f64> = request
            .interests
            .iter()
            .flat_map(|interest| {
                cluster
                    .brokers()
                    .map(|broker| self.options.growth(cluster, interest, broker))
            })
            .collect();
        let growth =
            |topic: usize, broker: BrokerId| growths[topic * broker_count + broker.index()];
        let mut brokers = vec![BrokerId(0); request.interests.len()];
        let mut used = request.open.to_vec();
        let mut unassigned: Vec<usize> = (0..request.interests.len()).collect();
        while !unassigned.is_empty() {
            let demand = Demand::of(cluster, unassigned.iter().map(|i| &request.interests[*i]));
            // Algorithm 1 stops when the last session is chosen; a client that has them all keeps to them.
            let candidates = if used.len() >= max_sessions {
                used.clone()
            } else {
                self.options.candidates(cluster, self.limits, demand)
            };
            let next = self.next_broker(cluster, demand, &candidates, |broker| {
                unassigned.iter().map(|topic| growth(*topic, broker)).sum()
            });
            if !used.contains(&next) {
                used.push(next);
            }
            let last = used.len() >= max_sessions;
            let best = if last {
                std::mem::take(&mut unassigned)
            } else {
                self.take_best(&mut unassigned, |topic| growth(topic, next))
            };
            for topic in best {
                brokers[topic] = next;
            }
        }
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

impl Matching {
    /// Eq. 11: the candidate with the least growth.
    fn next_broker(
        &self,
        cluster: &Cluster,
        demand: Demand,
        candidates: &[BrokerId],
        growth: impl Fn(BrokerId) -> f64,
    ) -> BrokerId {
        let key = |broker: BrokerId| {
            let load = match self.options.ties {
                Ties::LeastLoaded => demand.own_load(cluster, broker),
                Ties::LowestIndex => 0.0,
            };
            (growth(broker), load, broker)
        };
        candidates
            .iter()
            .map(|broker| key(*broker))
            .min_by(|a, b| {
                a.0.total_cmp(&b.0)
                    .then(a.1.total_cmp(&b.1))
                    .then(a.2.cmp(&b.2))
            })
            .map(|(_, _, broker)| broker)
            .expect("there is always a candidate")
    }

    /// Tbest of Algorithm 1, removed from `unassigned`: all topics that cost nothing, else the cheapest (footnote 5).
    fn take_best(&self, unassigned: &mut Vec<usize>, growth: impl Fn(usize) -> f64) -> Vec<usize> {
        let lowest = unassigned
            .iter()
            .map(|topic| growth(*topic))
            .fold(f64::INFINITY, f64::min);
        let mut best: Vec<usize> = unassigned
            .iter()
            .copied()
            .filter(|topic| growth(*topic) == lowest)
            .collect();
        if lowest > 0.0 && self.options.subset == Subset::One {
            best.truncate(1);
        }
        unassigned.retain(|topic| !best.contains(topic));
        best
    }
}

impl MatchingOptions {
    /// Growth of internal traffic if `interest` goes to `broker`, in messages per second (Detti Eq. 8 and 10).
    pub(super) fn growth(&self, cluster: &Cluster, interest: &Interest, broker: BrokerId) -> f64 {
        let mut growth = 0.0;
        if interest.role.subscribes() {
            growth += self.subscriber_growth(cluster, interest, broker);
        }
        if let Some(rate) = interest.role.publish_rate() {
            growth += rate * self.receivers_elsewhere(cluster, interest, broker) as f64;
        }
        growth
    }

    /// Eq. 8 and 9 for one topic.
    fn subscriber_growth(&self, cluster: &Cluster, interest: &Interest, broker: BrokerId) -> f64 {
        let topic = interest.topic;
        // The only publisher's own subscription is served on the spot.
        if interest.role.publish_rate().is_some() && cluster.publishers(topic).is_empty() {
            return 0.0;
        }
        let active = match self.active_by {
            ActiveBy::Either => cluster.listens(topic, broker) || cluster.publishes(topic, broker),
            ActiveBy::Subscriber => cluster.listens(topic, broker),
        };
        let published = match self.missing_publisher {
            MissingPublisher::Anticipated => true,
            MissingPublisher::Ignored => !cluster.publishers(topic).is_empty(),
        };
        if active || !published {
            0.0
        } else {
            cluster.rate(topic)
        }
    }

    /// The inner sum of Eq. 10: brokers other than `broker` that the publisher's messages go to.
    fn receivers_elsewhere(
        &self,
        cluster: &Cluster,
        interest: &Interest,
        broker: BrokerId,
    ) -> usize {
        let topic = interest.topic;
        match self.publisher_indicator {
            PublisherIndicator::Subscriber => {
                cluster.listening_count(topic) - usize::from(cluster.listens(topic, broker))
            }
            PublisherIndicator::Active => cluster
                .brokers()
                .filter(|other| *other != broker)
                .filter(|other| cluster.listens(topic, *other) || cluster.publishes(topic, *other))
                .count(),
        }
    }

    /// Brokers that pass the fairness test of Eq. 11 for `demand`, lowest index first, or the least loaded one when none does.
    pub(super) fn candidates(
        &self,
        cluster: &Cluster,
        limits: Limits,
        demand: Demand,
    ) -> Vec<BrokerId> {
        let passing: Vec<BrokerId> = cluster
            .brokers()
            .filter(|broker| self.passes(cluster, limits, demand, *broker))
            .collect();
        if passing.is_empty() {
            let least = cluster.brokers().min_by(|a, b| {
                demand
                    .own_load(cluster, *a)
                    .total_cmp(&demand.own_load(cluster, *b))
            });
            return least.into_iter().collect();
        }
        passing
    }

    fn passes(&self, cluster: &Cluster, limits: Limits, demand: Demand, broker: BrokerId) -> bool {
        let tested: [Option<f64>; 2] = match self.tested_load {
            TestedLoad::Own => [demand.input, demand.output],
            TestedLoad::Both => [
                Some(demand.input.unwrap_or(0.0)),
                Some(demand.output.unwrap_or(0.0)),
            ],
        };
        [Dimension::Input, Dimension::Output]
            .into_iter()
            .zip(tested)
            .filter_map(|(dimension, added)| added.map(|added| (dimension, added)))
            .all(|(dimension, added)| {
                let added = match self.load_moment {
                    LoadMoment::Before => 0.0,
                    LoadMoment::After => added,
                };
                let total = cluster.total_load(dimension);
                if total == 0.0 && self.idle_cluster == IdleCluster::Candidate {
                    return true;
                }
                let load = cluster.loads(dimension)[broker.index()] + added;
                load <= limits.gamma() * (total + added) / cluster.broker_count() as f64
            })
    }
}
