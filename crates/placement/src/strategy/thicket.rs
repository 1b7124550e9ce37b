//! Our own strategy: the best set of brokers for each client, popular topics first to be everywhere.

use super::capacity::{Capacity, Fairness};
use super::sets::CostTable;
use super::{Decision, Demand, Interest, Limits, Request, Strategy};
use crate::cluster::{Cluster, Dimension};
use crate::ids::{BrokerId, TopicId};

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
/// - `miss` is what a message from the nearest broker that has t costs where t would have to be brought by internal traffic: 1, or more from another
///   site ([`Distances`](crate::Distances)). Where t has no subscriber at any broker it is 0 at its publishers' broker and 0.02 at the others, since
///   idle publishers follow their first subscriber by redirection, as long as their new broker has capacity for their input;
/// - `seen_t` counts the subscriptions to t met so far: a popular topic will soon be subscribed to everywhere, so bringing it is an investment that
///   later clients share;
/// - the load is the external output for subscribers, the external input for publishers; the mean input includes the publishers that subscribers wait
///   for ([`Cluster::awaited_input`]), so that the first publishers to come after their subscribers are not turned away from the brokers with their
///   subscribers.
///
/// While a client brings less than the slack between the mean and gamma times the mean, it never lifts a broker above
/// gamma. For a bigger one (early, when the mean is small) the test of Eq. 11 picks the candidates: turning away
/// brokers then would spread topics that stay spread.
#[derive(Debug, Clone)]
pub struct Thicket {
    limits: Limits,
    options: ThicketOptions,
    /// Subscriptions met so far, one entry a topic.
    seen: Vec<u32>,
}

impl Thicket {
    /// A strategy that has not met any client yet.
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
        let decision = if fairness.is_strict() {
            let some_capacity = fairness.rows(request, |broker| fairness.has_capacity(broker, 0.0));
            self.choose(cluster, &fairness, request, &some_capacity)
                .unwrap_or_else(|| {
                    let enough =
                        fairness.rows(request, |broker| fairness.has_capacity(broker, 1.0));
                    self.choose(cluster, &fairness.lenient(), request, &enough)
                        .expect("leniency has capacity for all")
                })
        } else {
            let fair = fairness.rows(request, |broker| fairness.was_fair(broker));
            self.choose(cluster, &fairness.lenient(), request, &fair)
                .expect("leniency has capacity for all")
        };
        self.note(request.interests);
        decision
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn allow_sessions(&mut self, max_sessions: usize) {
        self.limits = self.limits.with_sessions(max_sessions);
    }

    fn keeps_filters_whole(&self) -> bool {
        true
    }
}

impl Thicket {
    /// The best set of `rows` and each topic's place in it; `None` when there is no capacity for a topic.
    fn choose(
        &self,
        cluster: &Cluster,
        fairness: &Fairness<'_>,
        request: &Request<'_>,
        rows: &[BrokerId],
    ) -> Option<Decision> {
        let table = self.cost_table(cluster, fairness, request.interests, rows);
        let fixed: Vec<usize> = (0..request.open.len()).collect();
        let free = self.limits.max_sessions().saturating_sub(fixed.len());
        let chosen = table.best_set(&fixed, free);
        let used: Vec<BrokerId> = chosen.iter().map(|row| rows[*row]).collect();
        let mut capacity = Capacity::new(fairness, &used);
        let mut decision = Decision::default();
        for (topic, interest) in request.interests.iter().enumerate() {
            let miss = cluster.rate(interest.topic) * self.discount(interest.topic);
            let (place, follows) =
                capacity.take(interest, miss, |place| table.row(chosen[place])[topic])?;
            decision.brokers.push(used[place]);
            if follows {
                decision.redirects.push((interest.topic, used[place]));
            }
        }
        Some(decision)
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
                            cost += rate * discount * fairness.subscriber_miss(interest, *broker);
                        }
                        if let Some(rate) = interest.role.publish_rate() {
                            cost += rate * input;
                            cost +=
                                rate * discount * publisher_miss(cluster, interest.topic, *broker);
                        }
                        cost
                    }),
            );
        }
        table
    }
}

/// What the copy costs that a publisher at `broker` sends, and would not at a broker with a subscriber, or with a filter with wildcards that matches.
fn publisher_miss(cluster: &Cluster, topic: TopicId, broker: BrokerId) -> f64 {
    if cluster.listening_count(topic) > 0 {
        cluster.nearest_listener(topic, broker)
    } else {
        cluster.nearest_match(topic, broker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Publisher;
    use crate::ids::ClientId;
    use crate::strategy::Role;

    fn cluster(brokers: usize, topics: usize) -> Cluster {
        let mut cluster = Cluster::new(brokers).unwrap();
        for _ in 0..topics {
            cluster.add_topic(1.0).unwrap();
        }
        cluster
    }

    fn publish(cluster: &mut Cluster, topic: u32, broker: u16) {
        cluster.publish(
            TopicId(topic),
            Publisher {
                client: ClientId(topic),
                broker: BrokerId(broker),
                rate: 1.0,
            },
        );
    }

    fn subscriber(topics: &[u32]) -> Vec<Interest> {
        topics
            .iter()
            .map(|topic| Interest {
                topic: TopicId(*topic),
                role: Role::Subscriber,
            })
            .collect()
    }

    fn place(cluster: &Cluster, sessions: usize, interests: &[Interest]) -> Decision {
        let limits = Limits::new(sessions, 1.1).unwrap();
        Thicket::new(limits, ThicketOptions::default()).place(
            cluster,
            &Request {
                interests,
                open: &[],
                home: None,
            },
        )
    }

    #[test]
    fn topics_go_where_they_are_listened_to() {
        let mut cluster = cluster(4, 4);
        for topic in 0..4 {
            publish(&mut cluster, topic, topic as u16);
            cluster.subscribe(TopicId(topic), BrokerId(topic as u16));
        }
        let decision = place(&cluster, 4, &subscriber(&[3, 1]));
        assert_eq!(decision.brokers, [BrokerId(3), BrokerId(1)]);
        assert!(decision.redirects.is_empty());
    }

    #[test]
    fn an_idle_publisher_follows_its_first_subscriber_when_there_is_capacity() {
        // Topics 0 and 1 are idle at brokers 0 and 1; with one session, one of them has to move. 30 other idle publishers at each broker leave
        // capacity for 3 more.
        let mut cluster = cluster(2, 62);
        for topic in 0..62 {
            publish(&mut cluster, topic, (topic % 2) as u16);
        }
        let decision = place(&cluster, 1, &subscriber(&[0, 1]));
        assert_eq!(decision.brokers, [BrokerId(0), BrokerId(0)]);
        assert_eq!(decision.redirects, [(TopicId(1), BrokerId(0))]);
        // Capacity for 3, so of ten such topics three follow.
        let ten: Vec<u32> = (1..20).step_by(2).chain([0]).collect();
        let decision = place(&cluster, 1, &subscriber(&ten));
        assert!(decision.redirects.len() <= 3, "{decision:?}");
    }

    #[test]
    fn with_sessions_for_all_brokers_nothing_moves_and_nothing_is_brought() {
        let mut cluster = cluster(4, 40);
        for topic in 0..40 {
            publish(&mut cluster, topic, (topic % 4) as u16);
        }
        let topics: Vec<u32> = (0..40).collect();
        let decision = place(&cluster, 4, &subscriber(&topics));
        assert!(decision.redirects.is_empty());
        for (topic, broker) in topics.iter().zip(&decision.brokers) {
            assert_eq!(u32::from(broker.0), topic % 4);
        }
    }

    #[test]
    fn a_full_broker_takes_no_more_even_where_the_topic_is() {
        // Broker 0 has the subscribers of topic 0 and is at gamma; the others share the rest of 100.
        let mut cluster = cluster(4, 2);
        publish(&mut cluster, 0, 0);
        publish(&mut cluster, 1, 1);
        for (broker, count) in [(0, 110), (1, 97), (2, 97), (3, 97)] {
            for _ in 0..count {
                cluster.subscribe(TopicId(u32::from(broker > 0)), BrokerId(broker));
            }
        }
        let decision = place(&cluster, 4, &subscriber(&[0]));
        assert_ne!(decision.brokers[0], BrokerId(0));
    }

    #[test]
    fn a_publisher_goes_where_its_subscribers_wait() {
        let mut cluster = cluster(3, 2);
        cluster.subscribe(TopicId(1), BrokerId(2));
        let interests = [Interest {
            topic: TopicId(1),
            role: Role::Publisher { rate: 1.0 },
        }];
        assert_eq!(place(&cluster, 4, &interests).brokers, [BrokerId(2)]);
    }
}
