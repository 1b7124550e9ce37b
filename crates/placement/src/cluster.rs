//! What is where: publishers and subscribers of each topic at each broker, and the traffic that follows from it.

use std::collections::BTreeMap;

use crate::distance::Distances;
use crate::error::{ParameterError, at_least, check_rate};
use crate::ids::{BrokerId, ClientId, TopicId};
use crate::model::{jain, overhead};

/// One of the loads that are kept in balance (Detti Eq. 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// External input, from publishers (Aei).
    Input,
    /// External output, to subscribers (Aeo).
    Output,
}

/// One publisher of a topic.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Publisher {
    /// Who publishes.
    pub client: ClientId,
    /// Where its session for the topic is.
    pub broker: BrokerId,
    /// Messages per second.
    pub rate: f64,
}

#[derive(Debug, Clone)]
struct Topic {
    publishers: Vec<Publisher>,
    /// Sum over the publishers, or what is expected while there is none.
    rate: f64,
    /// Subscriptions at all brokers.
    subscriptions: u32,
    /// Brokers with at least one subscription.
    listening: u16,
}

/// Publishers and subscribers by topic and broker, with the loads kept up to date at every change.
///
/// The loads that steer placement count a subscription at its topic's rate even before the topic's publisher arrived, since it will be sent once that
/// one is there. The reported traffic ([`Cluster::traffic`]) counts what flows.
#[derive(Debug, Clone)]
pub struct Cluster {
    topics: Vec<Topic>,
    /// Subscriptions, one entry a topic and broker, a topic's brokers side by side.
    subscriptions: Vec<u32>,
    input: Vec<f64>,
    output: Vec<f64>,
    input_total: f64,
    output_total: f64,
    /// Rates of the topics that have subscribers but no publisher yet.
    awaited: f64,
    publisher_counts: Vec<u32>,
    subscription_counts: Vec<u32>,
    internal: f64,
    distances: Distances,
    /// See [`Cluster::set_matches`].
    matches: BTreeMap<TopicId, Vec<BrokerId>>,
    /// See [`Cluster::set_sources`].
    sources: BTreeMap<TopicId, BrokerId>,
}

impl Cluster {
    /// An empty cluster of `broker_count` brokers (M).
    ///
    /// # Errors
    /// `broker_count` is 0 or above 65535.
    pub fn new(broker_count: usize) -> Result<Self, ParameterError> {
        at_least("brokers", broker_count, 1)?;
        if broker_count > usize::from(u16::MAX) {
            return Err(ParameterError::new(
                "brokers",
                "must be at most 65535",
                broker_count,
            ));
        }
        Ok(Self {
            topics: Vec::new(),
            subscriptions: Vec::new(),
            input: vec![0.0; broker_count],
            output: vec![0.0; broker_count],
            input_total: 0.0,
            output_total: 0.0,
            awaited: 0.0,
            publisher_counts: vec![0; broker_count],
            subscription_counts: vec![0; broker_count],
            internal: 0.0,
            distances: Distances::default(),
            matches: BTreeMap::new(),
            sources: BTreeMap::new(),
        })
    }

    /// Sets the costs of messages between brokers.
    pub fn set_distances(&mut self, distances: Distances) {
        self.distances = distances;
    }

    /// The costs of messages between brokers.
    #[must_use]
    pub const fn distances(&self) -> &Distances {
        &self.distances
    }

    /// Cost of a message between `broker` and the nearest one with a subscription to `topic`; 0 if that is `broker`, 1 if there is none.
    #[must_use]
    pub fn nearest_listener(&self, topic: TopicId, broker: BrokerId) -> f64 {
        if self.listens(topic, broker) {
            return 0.0;
        }
        if self.distances.are_even() {
            return 1.0;
        }
        let listening = self.brokers().filter(|other| self.listens(topic, *other));
        let costs = listening.map(|other| self.distances.between(other, broker));
        costs.min_by(f64::total_cmp).unwrap_or(1.0)
    }

    /// Brokers that receive topics besides those with subscriptions to them, as filters with wildcards match there. Those of before are forgotten.
    pub(crate) fn set_matches(&mut self, matches: BTreeMap<TopicId, Vec<BrokerId>>) {
        self.matches = matches;
    }

    /// Whether a filter with wildcards matches `topic` at `broker`.
    pub(crate) fn is_matched(&self, topic: TopicId, broker: BrokerId) -> bool {
        let matching = self.matches.get(&topic);
        matching.is_some_and(|brokers| brokers.contains(&broker))
    }

    /// Cost of a message from `broker` to the nearest one where a filter with wildcards matches `topic`; 0 if that is `broker`, or if there is none.
    pub(crate) fn nearest_match(&self, topic: TopicId, broker: BrokerId) -> f64 {
        if self.is_matched(topic, broker) {
            return 0.0;
        }
        let matching = self.matches.get(&topic).map_or(&[][..], Vec::as_slice);
        let costs = matching
            .iter()
            .map(|it| self.distances.between(broker, *it));
        costs.min_by(f64::total_cmp).unwrap_or(0.0)
    }

    /// Brokers of topics whose publishers did not ask for a placement, and so do not move to their subscribers. Replaces earlier ones.
    pub(crate) fn set_sources(&mut self, sources: BTreeMap<TopicId, BrokerId>) {
        self.sources = sources;
    }

    /// Cost of a message to `broker` from the broker where publishers of `topic` stay; 0 if that is `broker`. `None`: no such broker is known.
    pub(crate) fn source_cost(&self, topic: TopicId, broker: BrokerId) -> Option<f64> {
        let source = *self.sources.get(&topic)?;
        Some(if source == broker {
            0.0
        } else {
            self.distances.between(source, broker)
        })
    }

    /// Adds a topic whose publishers are expected to send `expected_rate` messages per second in total.
    ///
    /// # Errors
    /// The rate is negative or not finite.
    pub fn add_topic(&mut self, expected_rate: f64) -> Result<TopicId, ParameterError> {
        check_rate("rate", expected_rate)?;
        let topic = TopicId(self.topics.len() as u32);
        self.topics.push(Topic {
            publishers: Vec::new(),
            rate: expected_rate,
            subscriptions: 0,
            listening: 0,
        });
        self.subscriptions
            .resize(self.subscriptions.len() + self.broker_count(), 0);
        Ok(topic)
    }

    /// Number of brokers (M).
    #[must_use]
    pub fn broker_count(&self) -> usize {
        self.input.len()
    }

    /// Number of topics (Ntop).
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// All brokers, lowest index first.
    pub fn brokers(&self) -> impl Iterator<Item = BrokerId> + use<> {
        (0..self.input.len() as u16).map(BrokerId)
    }

    /// Messages per second on `topic`: the sum of its publishers, or the expected rate while it has none (lambda_j).
    #[must_use]
    pub fn rate(&self, topic: TopicId) -> f64 {
        self.topics[topic.index()].rate
    }

    /// Corrects the expected rate of a topic that has no publisher yet; one that has keeps the rate of its publishers.
    ///
    /// # Errors
    /// The rate is negative or not finite.
    pub fn expect_rate(&mut self, topic: TopicId, rate: f64) -> Result<(), ParameterError> {
        check_rate("rate", rate)?;
        if self.publishers(topic).is_empty() {
            self.awaited -= self.topic_awaited(topic);
            self.plan_rate(topic, rate);
            self.awaited += self.topic_awaited(topic);
        }
        Ok(())
    }

    /// The publishers of `topic`, in order of arrival.
    #[must_use]
    pub fn publishers(&self, topic: TopicId) -> &[Publisher] {
        &self.topics[topic.index()].publishers
    }

    /// Subscriptions to `topic` at each broker.
    #[must_use]
    pub fn subscriptions(&self, topic: TopicId) -> &[u32] {
        let first = topic.index() * self.broker_count();
        &self.subscriptions[first..first + self.broker_count()]
    }

    /// Number of brokers with a subscriber of `topic`.
    #[must_use]
    pub fn listening_count(&self, topic: TopicId) -> usize {
        usize::from(self.topics[topic.index()].listening)
    }

    /// Whether `broker` has a subscriber of `topic`.
    #[must_use]
    pub fn listens(&self, topic: TopicId, broker: BrokerId) -> bool {
        self.subscriptions[topic.index() * self.broker_count() + broker.index()] > 0
    }

    /// Whether `broker` has a publisher of `topic`.
    #[must_use]
    pub fn publishes(&self, topic: TopicId, broker: BrokerId) -> bool {
        self.publishers(topic)
            .iter()
            .any(|publisher| publisher.broker == broker)
    }

    /// Planned load of each broker, in messages per second.
    #[must_use]
    pub fn loads(&self, dimension: Dimension) -> &[f64] {
        match dimension {
            Dimension::Input => &self.input,
            Dimension::Output => &self.output,
        }
    }

    /// Sum of [`Cluster::loads`].
    #[must_use]
    pub fn total_load(&self, dimension: Dimension) -> f64 {
        match dimension {
            Dimension::Input => self.input_total,
            Dimension::Output => self.output_total,
        }
    }

    /// Input still to come: the rates of topics that have subscribers but no publisher.
    #[must_use]
    pub fn awaited_input(&self) -> f64 {
        self.awaited
    }

    /// Internal traffic kept by increments, in messages per second (Ai). [`Cluster::traffic`] recounts it.
    #[must_use]
    pub fn internal(&self) -> f64 {
        self.internal
    }

    /// A subscriber of `topic` joins `broker`.
    pub fn subscribe(&mut self, topic: TopicId, broker: BrokerId) {
        let internal = self.topic_internal(topic);
        self.awaited -= self.topic_awaited(topic);
        let rate = self.rate(topic);
        let slot = self.slot(topic, broker);
        self.subscriptions[slot] += 1;
        let first = self.subscriptions[slot] == 1;
        let state = &mut self.topics[topic.index()];
        state.subscriptions += 1;
        state.listening += u16::from(first);
        self.subscription_counts[broker.index()] += 1;
        self.output[broker.index()] += rate;
        self.output_total += rate;
        self.awaited += self.topic_awaited(topic);
        self.internal += self.topic_internal(topic) - internal;
    }

    /// A subscriber of `topic` leaves `broker`, where there is one.
    pub fn unsubscribe(&mut self, topic: TopicId, broker: BrokerId) {
        let slot = self.slot(topic, broker);
        assert!(self.subscriptions[slot] > 0, "no such subscription");
        let internal = self.topic_internal(topic);
        self.awaited -= self.topic_awaited(topic);
        let rate = self.rate(topic);
        self.subscriptions[slot] -= 1;
        let last = self.subscriptions[slot] == 0;
        let state = &mut self.topics[topic.index()];
        state.subscriptions -= 1;
        state.listening -= u16::from(last);
        self.awaited += self.topic_awaited(topic);
        self.internal += self.topic_internal(topic) - internal;
        self.subscription_counts[broker.index()] -= 1;
        self.output[broker.index()] -= rate;
        self.output_total -= rate;
        self.settle(broker);
    }

    /// A publisher of its topic joins.
    pub fn publish(&mut self, topic: TopicId, publisher: Publisher) {
        let internal = self.topic_internal(topic);
        self.awaited -= self.topic_awaited(topic);
        self.topics[topic.index()].publishers.push(publisher);
        self.publisher_counts[publisher.broker.index()] += 1;
        self.input[publisher.broker.index()] += publisher.rate;
        self.input_total += publisher.rate;
        self.plan_rate(topic, self.published_rate(topic));
        self.internal += self.topic_internal(topic) - internal;
    }

    /// The session of `client` for publishing on `topic` ends, where there is one. The last rate stays the expected one.
    pub fn unpublish(&mut self, topic: TopicId, client: ClientId) -> Publisher {
        let internal = self.topic_internal(topic);
        let publishers = &mut self.topics[topic.index()].publishers;
        let position = publishers
            .iter()
            .position(|publisher| publisher.client == client)
            .expect("the client publishes on the topic");
        let publisher = publishers.remove(position);
        self.publisher_counts[publisher.broker.index()] -= 1;
        self.input[publisher.broker.index()] -= publisher.rate;
        self.input_total -= publisher.rate;
        if !self.publishers(topic).is_empty() {
            self.plan_rate(topic, self.published_rate(topic));
        }
        self.awaited += self.topic_awaited(topic);
        self.internal += self.topic_internal(topic) - internal;
        self.settle(publisher.broker);
        publisher
    }

    /// Recounts all traffic from the table of publishers and subscribers.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let mut brokers = vec![BrokerTraffic::default(); self.broker_count()];
        for index in 0..self.topics.len() {
            let topic = TopicId(index as u32);
            let listening = self.listening_count(topic);
            let published = self.published_rate(topic);
            for publisher in self.publishers(topic) {
                let elsewhere = listening - usize::from(self.listens(topic, publisher.broker));
                let at = &mut brokers[publisher.broker.index()];
                at.external_in += publisher.rate;
                at.internal_out += publisher.rate * elsewhere as f64;
            }
            for (at, count) in brokers.iter_mut().zip(self.subscriptions(topic)) {
                at.external_out += published * f64::from(*count);
            }
            for broker in self.brokers().filter(|broker| self.listens(topic, *broker)) {
                brokers[broker.index()].internal_in += published - self.rate_at(topic, broker);
            }
        }
        Traffic { brokers }
    }

    fn slot(&self, topic: TopicId, broker: BrokerId) -> usize {
        topic.index() * self.broker_count() + broker.index()
    }

    fn published_rate(&self, topic: TopicId) -> f64 {
        self.publishers(topic)
            .iter()
            .map(|publisher| publisher.rate)
            .sum()
    }

    fn rate_at(&self, topic: TopicId, broker: BrokerId) -> f64 {
        self.publishers(topic)
            .iter()
            .filter(|publisher| publisher.broker == broker)
            .map(|publisher| publisher.rate)
            .sum()
    }

    /// Internal traffic of one topic: each publisher's messages go once to every other broker with a subscriber.
    fn topic_internal(&self, topic: TopicId) -> f64 {
        let listening = self.listening_count(topic);
        self.publishers(topic)
            .iter()
            .map(|publisher| {
                let elsewhere = listening - usize::from(self.listens(topic, publisher.broker));
                publisher.rate * elsewhere as f64
            })
            .sum()
    }

    fn topic_awaited(&self, topic: TopicId) -> f64 {
        let state = &self.topics[topic.index()];
        if state.publishers.is_empty() && state.subscriptions > 0 {
            state.rate
        } else {
            0.0
        }
    }

    fn plan_rate(&mut self, topic: TopicId, rate: f64) {
        let change = rate - self.rate(topic);
        if change == 0.0 {
            return;
        }
        self.topics[topic.index()].rate = rate;
        let first = topic.index() * self.broker_count();
        let counts = &self.subscriptions[first..first + self.output.len()];
        for (load, count) in self.output.iter_mut().zip(counts) {
            let moved = change * f64::from(*count);
            *load += moved;
            self.output_total += moved;
        }
    }

    /// A broker without clients has no load: rounding from many departures must not stay behind.
    fn settle(&mut self, broker: BrokerId) {
        if self.publisher_counts[broker.index()] == 0 {
            self.input[broker.index()] = 0.0;
        }
        if self.subscription_counts[broker.index()] == 0 {
            self.output[broker.index()] = 0.0;
        }
        if self.publisher_counts.iter().all(|count| *count == 0) {
            self.input_total = 0.0;
            self.internal = 0.0;
        }
        if self.subscription_counts.iter().all(|count| *count == 0) {
            self.output_total = 0.0;
            self.awaited = 0.0;
            self.internal = 0.0;
        }
    }
}

/// The four traffics of one broker, in messages per second (Detti Fig. 5).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BrokerTraffic {
    /// From publishers (Aei_k).
    pub external_in: f64,
    /// To subscribers (Aeo_k).
    pub external_out: f64,
    /// From other brokers (Aii_k).
    pub internal_in: f64,
    /// To other brokers (Aio_k).
    pub internal_out: f64,
}

/// The traffic of a cluster, broker by broker.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// One entry a broker.
    pub brokers: Vec<BrokerTraffic>,
}

impl Traffic {
    /// Sum of the external input (Aei).
    #[must_use]
    pub fn external_in(&self) -> f64 {
        self.brokers.iter().map(|broker| broker.external_in).sum()
    }

    /// Sum of the external output (Aeo).
    #[must_use]
    pub fn external_out(&self) -> f64 {
        self.brokers.iter().map(|broker| broker.external_out).sum()
    }

    /// Sum of the internal input, which is the sum of the internal output (Ai).
    #[must_use]
    pub fn internal(&self) -> f64 {
        self.brokers.iter().map(|broker| broker.internal_in).sum()
    }

    /// h_rt (Detti Eq. 13).
    #[must_use]
    pub fn routing_overhead(&self) -> f64 {
        overhead(self.internal(), self.external_in())
    }

    /// h_fw (Detti Eq. 13).
    #[must_use]
    pub fn forwarding_overhead(&self) -> f64 {
        overhead(self.internal(), self.external_out())
    }

    /// Jain's index over the sum of the four traffics of each broker (Detti Eq. 14).
    #[must_use]
    pub fn jain(&self) -> f64 {
        let loads: Vec<f64> = self
            .brokers
            .iter()
            .map(|broker| {
                broker.external_in + broker.external_out + broker.internal_in + broker.internal_out
            })
            .collect();
        jain(&loads)
    }

    /// Load of the busiest broker over the mean load, in `dimension`; 1 without any load.
    #[must_use]
    pub fn peak(&self, dimension: Dimension) -> f64 {
        let load = |broker: &BrokerTraffic| match dimension {
            Dimension::Input => broker.external_in,
            Dimension::Output => broker.external_out,
        };
        let total: f64 = self.brokers.iter().map(load).sum();
        let highest = self.brokers.iter().map(load).fold(0.0, f64::max);
        if total == 0.0 {
            1.0
        } else {
            highest * self.brokers.len() as f64 / total
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(brokers: usize, rates: &[f64]) -> Cluster {
        let mut cluster = Cluster::new(brokers).unwrap();
        for rate in rates {
            cluster.add_topic(*rate).unwrap();
        }
        cluster
    }

    fn publisher(client: u32, broker: u16, rate: f64) -> Publisher {
        Publisher {
            client: ClientId(client),
            broker: BrokerId(broker),
            rate,
        }
    }

    #[test]
    fn the_nearest_listener_is_the_cheapest_to_bring_a_topic_from() {
        let mut cluster = Cluster::new(4).unwrap();
        let topic = cluster.add_topic(1.0).unwrap();
        assert_eq!(cluster.nearest_listener(topic, BrokerId(0)), 1.0);
        cluster.subscribe(topic, BrokerId(2));
        assert_eq!(cluster.nearest_listener(topic, BrokerId(0)), 1.0);
        assert_eq!(cluster.nearest_listener(topic, BrokerId(2)), 0.0);
        // Two sites of two brokers.
        let cost = |from: usize, to: usize| if from / 2 == to / 2 { 1.0 } else { 10.0 };
        cluster.set_distances(Distances::new(4, cost).unwrap());
        assert_eq!(cluster.nearest_listener(topic, BrokerId(0)), 10.0);
        assert_eq!(cluster.nearest_listener(topic, BrokerId(3)), 1.0);
        cluster.subscribe(topic, BrokerId(1));
        assert_eq!(cluster.nearest_listener(topic, BrokerId(0)), 1.0);
    }

    #[test]
    fn a_publication_crosses_once_to_every_other_listening_broker() {
        let mut cluster = cluster(3, &[2.0]);
        let topic = TopicId(0);
        cluster.publish(topic, publisher(0, 0, 2.0));
        for broker in [0, 1, 1, 2] {
            cluster.subscribe(topic, BrokerId(broker));
        }
        let traffic = cluster.traffic();
        assert_eq!(traffic.external_in(), 2.0);
        assert_eq!(traffic.external_out(), 8.0);
        assert_eq!(traffic.internal(), 4.0);
        assert_eq!(cluster.internal(), 4.0);
        assert_eq!(traffic.brokers[0].internal_out, 4.0);
        assert_eq!(traffic.brokers[1].internal_in, 2.0);
        assert_eq!(traffic.routing_overhead(), 3.0);
        assert_eq!(traffic.forwarding_overhead(), 1.5);
        // Broker 0: 2 in, 2 out, 4 to others; 1: 4 out, 2 from others; 2: 2 and 2. 18^2 / (3 (64 + 36 + 16)).
        assert!((traffic.jain() - 324.0 / 348.0).abs() < 1e-15);
    }

    #[test]
    fn several_publishers_of_a_topic_cross_each_for_itself() {
        let mut cluster = cluster(2, &[1.0]);
        let topic = TopicId(0);
        cluster.publish(topic, publisher(0, 0, 1.0));
        cluster.publish(topic, publisher(1, 1, 5.0));
        cluster.subscribe(topic, BrokerId(0));
        assert_eq!(cluster.rate(topic), 6.0);
        assert_eq!(cluster.internal(), 5.0);
        cluster.subscribe(topic, BrokerId(1));
        assert_eq!(cluster.internal(), 6.0);
        assert_eq!(cluster.traffic().internal(), 6.0);
        assert_eq!(cluster.unpublish(topic, ClientId(1)).rate, 5.0);
        assert_eq!(cluster.internal(), 1.0);
    }

    #[test]
    fn a_subscription_is_planned_at_the_expected_rate_until_the_publisher_is_there() {
        let mut cluster = cluster(2, &[3.0]);
        let topic = TopicId(0);
        cluster.subscribe(topic, BrokerId(1));
        assert_eq!(cluster.loads(Dimension::Output), [0.0, 3.0]);
        assert_eq!(cluster.traffic().external_out(), 0.0);
        cluster.publish(topic, publisher(0, 0, 7.0));
        assert_eq!(cluster.loads(Dimension::Output), [0.0, 7.0]);
        assert_eq!(cluster.traffic().external_out(), 7.0);
        cluster.unpublish(topic, ClientId(0));
        assert_eq!(cluster.loads(Dimension::Output), [0.0, 7.0]);
        assert_eq!(cluster.internal(), 0.0);
        cluster.expect_rate(topic, 2.0).unwrap();
        assert_eq!(cluster.total_load(Dimension::Output), 2.0);
    }

    #[test]
    fn an_emptied_cluster_carries_nothing() {
        let mut cluster = cluster(2, &[0.1, 0.7]);
        for _ in 0..1000 {
            for topic in [TopicId(0), TopicId(1)] {
                cluster.publish(topic, publisher(0, 1, 0.3));
                cluster.subscribe(topic, BrokerId(0));
                cluster.unsubscribe(topic, BrokerId(0));
                cluster.unpublish(topic, ClientId(0));
            }
        }
        assert_eq!(cluster.internal(), 0.0);
        assert_eq!(cluster.loads(Dimension::Input), [0.0, 0.0]);
        assert_eq!(cluster.loads(Dimension::Output), [0.0, 0.0]);
        assert_eq!(cluster.traffic().jain(), 1.0);
    }

    #[test]
    fn a_cluster_has_between_1_and_65535_brokers() {
        assert_eq!(
            Cluster::new(0).unwrap_err().to_string(),
            "brokers: must be at least 1, not 0"
        );
        assert_eq!(
            Cluster::new(70_000).unwrap_err().to_string(),
            "brokers: must be at most 65535, not 70000"
        );
    }
}
