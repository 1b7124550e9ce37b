//! Our own strategy: the best set of brokers for each client, popular topics first to be everywhere.

use super::sets::CostTable;
use super::{Decision, Demand, Interest, Limits, Request, Strategy};
use crate::cluster::{BrokerId, Cluster, Dimension, TopicId};

/// The weights of [`Thicket`]'s cost of a topic at a broker.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ThicketOptions {
    /// Weight of the load against internal traffic (mu), at least 0.
    pub load_weight: f64,
    /// How fast bringing a topic to one more broker gets cheaper with its subscriptions so far, at least 0.
    pub popularity_discount: f64,
}

impl Default for ThicketOptions {
    fn default() -> Self {
        Self {
            load_weight: 0.1,
            popularity_discount: 0.3,
        }
    }
}

/// Places each client at the set of brokers where its topics are cheapest together.
///
/// The cost of topic t at broker k is `rate_t miss(t, k) / (1 + seen_t)^0.3 + mu rate_t (load_k / mean load - 1)`:
/// - `miss` is 1 where t would have to be brought by internal traffic. Where nobody listens to t at any broker it is 0,
///   since an idle publisher follows its first subscriber by redirection (when its new broker has room for its input);
/// - `seen_t` counts the subscriptions to t met so far: a popular topic will be wanted everywhere soon, so bringing it
///   is an investment that later clients share;
/// - the load is the external output for subscribers, the external input for publishers; the mean input includes the
///   publishers that subscribers wait for ([`Cluster::awaited_input`]), so that the first publishers to come after their
///   subscribers are not turned away from the brokers that listen to them.
///
/// No broker goes above gamma times the mean as long as some broker can take the client; otherwise (early, when the mean is
/// small, or for a client bigger than the slack) brokers at or below the mean take it.
#[derive(Debug, Clone)]
pub struct Thicket {
    limits: Limits,
    options: ThicketOptions,
    /// Subscriptions met so far, one entry a topic.
    seen: Vec<u32>,
}

impl Thicket {
    /// A strategy that has met nobody yet.
    #[must_use]
    pub fn new(limits: Limits, options: ThicketOptions) -> Self {
        Self {
            limits,
            options,
            seen: Vec::new(),
        }
    }

    /// (1 + seen_t)^-0.3.
    fn discount(&self, topic: TopicId) -> f64 {
        let seen = self.seen.get(topic.index()).copied().unwrap_or(0);
        libm::pow(1.0 + f64::from(seen), -self.options.popularity_discount)
    }

    fn note(&mut self, interests: &[Interest]) {
        for interest in interests {
            if interest.role.subscribes() {
                let index = interest.topic.index();
                if index >= self.seen.len() {
                    self.seen.resize(index + 1, 0);
                }
                self.seen[index] += 1;
            }
        }
    }
}

impl Strategy for Thicket {
    fn place(&mut self, cluster: &Cluster, request: &Request<'_>) -> Decision {
        if request.interests.is_empty() {
            return Decision::default();
        }
        let demand = Demand::of(cluster, request.interests);
        let fairness = Fairness::new(cluster, self.limits, demand);
        let brokers = if fairness.is_strict() {
            self.place_strictly(cluster, &fairness, request)
        } else {
            let rows = fairness.rows(request, |broker| fairness.was_fair(broker));
            let (table, chosen) = self.best_set(cluster, &fairness, request, &rows);
            (0..request.interests.len())
                .map(|topic| rows[table.cheapest(&chosen, topic)])
                .collect()
        };
        self.note(request.interests);
        Decision {
            redirects: fairness.redirects(request.interests, &brokers),
            brokers,
        }
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl Thicket {
    /// No broker may end above gamma times the mean, and one that can take the whole client exists.
    fn place_strictly(
        &self,
        cluster: &Cluster,
        fairness: &Fairness<'_>,
        request: &Request<'_>,
    ) -> Vec<BrokerId> {
        let rows = fairness.rows(request, |broker| fairness.has_room(broker, 0.0));
        let (table, chosen) = self.best_set(cluster, fairness, request, &rows);
        let used: Vec<BrokerId> = chosen.iter().map(|row| rows[*row]).collect();
        let mut room = Room::new(fairness, &used);
        let filled: Option<Vec<BrokerId>> = request
            .interests
            .iter()
            .enumerate()
            .map(|(topic, interest)| {
                let place = room.cheapest(interest, |place| table.row(chosen[place])[topic])?;
                Some(used[place])
            })
            .collect();
        filled.unwrap_or_else(|| {
            let rows = fairness.rows(request, |broker| fairness.has_room(broker, 1.0));
            let (table, chosen) = self.best_set(cluster, fairness, request, &rows);
            (0..request.interests.len())
                .map(|topic| rows[table.cheapest(&chosen, topic)])
                .collect()
        })
    }

    fn best_set(
        &self,
        cluster: &Cluster,
        fairness: &Fairness<'_>,
        request: &Request<'_>,
        rows: &[BrokerId],
    ) -> (CostTable, Vec<usize>) {
        let table = self.cost_table(cluster, fairness, request.interests, rows);
        let fixed: Vec<usize> = (0..request.open.len()).collect();
        let free = self.limits.max_sessions().saturating_sub(fixed.len());
        let chosen = table.best_set(&fixed, free);
        (table, chosen)
    }

    fn cost_table(
        &self,
        cluster: &Cluster,
        fairness: &Fairness<'_>,
        interests: &[Interest],
        rows: &[BrokerId],
    ) -> CostTable {
        let discounts: Vec<f64> = interests
            .iter()
            .map(|interest| self.discount(interest.topic))
            .collect();
        let mut table = CostTable::new(interests.len());
        for broker in rows {
            let [input, output] = [Dimension::Input, Dimension::Output]
                .map(|dimension| self.options.load_weight * fairness.excess(dimension, *broker));
            table.push_row(
                interests
                    .iter()
                    .zip(&discounts)
                    .map(|(interest, discount)| {
                        let mut cost = 0.0;
                        if interest.role.subscribes() {
                            let rate = cluster.rate(interest.topic);
                            cost += rate * output;
                            if fairness.subscriber_misses(interest, *broker) {
                                cost += rate * discount;
                            }
                        }
                        if let Some(rate) = interest.role.publish_rate() {
                            cost += rate * input;
                            if publisher_misses(cluster, interest.topic, *broker) {
                                cost += rate * discount;
                            }
                        }
                        cost
                    }),
            );
        }
        table
    }
}

/// Whether a publisher at `broker` sends one copy more than it would at a broker with a subscriber.
fn publisher_misses(cluster: &Cluster, topic: TopicId, broker: BrokerId) -> bool {
    cluster.listening_count(topic) > 0 && !cluster.listens(topic, broker)
}

/// Loads as one client sees them.
struct Fairness<'a> {
    cluster: &'a Cluster,
    limits: Limits,
    demand: Demand,
}

impl<'a> Fairness<'a> {
    fn new(cluster: &'a Cluster, limits: Limits, demand: Demand) -> Self {
        Self {
            cluster,
            limits,
            demand,
        }
    }

    /// load_k / mean - 1; 0 without any load.
    fn excess(&self, dimension: Dimension, broker: BrokerId) -> f64 {
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

    /// Messages per second `broker` can still take when `arriving` come to the cluster.
    fn room(&self, dimension: Dimension, broker: BrokerId, arriving: f64) -> f64 {
        let total = self.total(dimension) + arriving;
        let bound = self.limits.gamma() * total / self.cluster.broker_count() as f64;
        bound - self.cluster.loads(dimension)[broker.index()]
    }

    /// Whether the slack between the mean and gamma times the mean is more than the client brings. Then the broker with
    /// the least load has room for all of it, in each dimension.
    fn is_strict(&self) -> bool {
        self.demand.dimensions().all(|(dimension, added)| {
            added <= (self.limits.gamma() - 1.0) * self.mean(dimension)
        })
    }

    /// Whether `broker` has room for `share` of the client; for 0, for anything.
    fn has_room(&self, broker: BrokerId, share: f64) -> bool {
        self.demand.dimensions().all(|(dimension, added)| {
            let room = self.room(dimension, broker, added);
            room > 0.0 && share * added <= room
        })
    }

    /// Whether `broker` is within gamma without the client (the test of Eq. 11).
    fn was_fair(&self, broker: BrokerId) -> bool {
        self.demand.dimensions().all(|(dimension, _)| {
            let bound = self.limits.gamma() * self.mean(dimension);
            self.cluster.loads(dimension)[broker.index()] <= bound
        })
    }

    /// Brokers to choose from: those the client is at, then those that `may` take it, the least loaded first.
    fn rows(&self, request: &Request<'_>, may: impl Fn(BrokerId) -> bool) -> Vec<BrokerId> {
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

    fn others<'b>(&self, request: &'b Request<'_>) -> impl Iterator<Item = BrokerId> + use<'b> {
        self.cluster
            .brokers()
            .filter(move |broker| !request.open.contains(broker))
    }

    /// Whether the topic would have to be brought to `broker` for the subscriber.
    fn subscriber_misses(&self, interest: &Interest, broker: BrokerId) -> bool {
        let topic = interest.topic;
        if self.cluster.listening_count(topic) > 0 {
            return !self.cluster.listens(topic, broker);
        }
        // Nobody listens: the publishers are there, or follow, unless their broker-to-be has no room.
        let coming = self.rate_elsewhere(topic, broker);
        coming > 0.0 && coming > self.room(Dimension::Input, broker, 0.0)
    }

    fn rate_elsewhere(&self, topic: TopicId, broker: BrokerId) -> f64 {
        self.cluster
            .publishers(topic)
            .iter()
            .filter(|publisher| publisher.broker != broker)
            .map(|publisher| publisher.rate)
            .sum()
    }

    /// Idle publishers that follow, as long as there is room for their input.
    fn redirects(&self, interests: &[Interest], brokers: &[BrokerId]) -> Vec<(TopicId, BrokerId)> {
        let mut taken = vec![0.0; self.cluster.broker_count()];
        let mut redirects = Vec::new();
        for (interest, broker) in interests.iter().zip(brokers) {
            let topic = interest.topic;
            if !interest.role.subscribes() || self.cluster.listening_count(topic) > 0 {
                continue;
            }
            let coming = self.rate_elsewhere(topic, *broker);
            let room = self.room(Dimension::Input, *broker, 0.0) - taken[broker.index()];
            if coming > 0.0 && coming <= room {
                taken[broker.index()] += coming;
                redirects.push((topic, *broker));
            }
        }
        redirects
    }
}

/// What the brokers of a set can still take while one client's topics are given out.
struct Room<'a> {
    cluster: &'a Cluster,
    /// Input and output, one entry a broker of the set.
    left: Vec<[f64; 2]>,
}

impl<'a> Room<'a> {
    fn new(fairness: &Fairness<'a>, used: &[BrokerId]) -> Self {
        let left = used.iter().map(|broker| {
            let room = |dimension, added: Option<f64>| {
                fairness.room(dimension, *broker, added.unwrap_or(0.0))
            };
            [
                room(Dimension::Input, fairness.demand.input),
                room(Dimension::Output, fairness.demand.output),
            ]
        });
        Self {
            cluster: fairness.cluster,
            left: left.collect(),
        }
    }

    /// The cheapest place with room for the topic, which is taken; `None` when there is none.
    fn cheapest(&mut self, interest: &Interest, cost: impl Fn(usize) -> f64) -> Option<usize> {
        let input = interest.role.publish_rate();
        let output = interest
            .role
            .subscribes()
            .then(|| self.cluster.rate(interest.topic));
        let fits = |left: &[f64; 2]| {
            input.is_none_or(|rate| rate <= left[0]) && output.is_none_or(|rate| rate <= left[1])
        };
        let mut best: Option<usize> = None;
        for (place, left) in self.left.iter().enumerate() {
            if fits(left) && best.is_none_or(|best| cost(place) < cost(best)) {
                best = Some(place);
            }
        }
        let place = best?;
        self.left[place][0] -= input.unwrap_or(0.0);
        self.left[place][1] -= output.unwrap_or(0.0);
        Some(place)
    }
}
