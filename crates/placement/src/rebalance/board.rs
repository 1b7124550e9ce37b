//! Which clients receive and publish where, and what a client costs at each node.

use super::{Balance, RebalanceClient, RebalanceNode, Situation, fairness};
use crate::distance::Distances;
use crate::ids::{BrokerId, TopicId};

/// What a subscriber's topic costs, of its rate, at a node to which its publisher would follow.
const FOLLOWED: f64 = 0.02;
/// How fast bringing a topic to one more node gets cheaper with its subscriptions: others will need it there.
const POPULARITY_DISCOUNT: f64 = 0.3;
/// Weight of the load against internal traffic.
const LOAD_WEIGHT: f64 = 0.1;

/// The state of a plan. Tables have one entry a topic and node, a topic's nodes side by side.
#[derive(Debug, Clone)]
pub(super) struct Board<'a> {
    distances: &'a Distances,
    pub nodes: &'a [RebalanceNode],
    gamma: f64,
    /// Messages a second of each node with clients.
    pub loads: Vec<f64>,
    /// Each node's share of all load; 0 for one that accepts no clients.
    shares: Vec<f64>,
    subscriptions: Vec<u32>,
    published: Vec<f64>,
    /// One entry a topic.
    listening: Vec<u32>,
    subscribers: Vec<u32>,
    rates: Vec<f64>,
    /// Of all internal traffic: messages a second, each counted by its distance.
    pub cost: f64,
}

impl<'a> Board<'a> {
    pub fn new(situation: &'a Situation, gamma: f64) -> Self {
        let (nodes, topics) = (situation.nodes.len(), situation.topic_count);
        let mut board = Self {
            nodes: &situation.nodes,
            distances: &situation.distances,
            gamma,
            loads: situation.nodes.iter().map(|it| it.unnamed_load).collect(),
            shares: Vec::new(),
            subscriptions: vec![0; topics * nodes],
            published: vec![0.0; topics * nodes],
            listening: vec![0; topics],
            subscribers: vec![0; topics],
            rates: vec![0.0; topics],
            cost: 0.0,
        };
        for client in &situation.clients {
            board.add(client, client.node);
        }
        board.add_unnamed_publishers(&situation.measured);
        board.cost = (0..topics).map(|topic| board.cost_of(topic)).sum();
        board.share_out();
        board
    }

    /// What nodes have sent may be off by a factor of 1.5: only what is clearly more than the listed clients publish is of others.
    fn add_unnamed_publishers(&mut self, measured: &[(TopicId, usize, f64)]) {
        for (topic, node, rate) in measured {
            let at = topic.index() * self.nodes.len() + node;
            let named = self.published[at];
            if *rate > 2.0 * named {
                self.published[at] = *rate;
                self.rates[topic.index()] += rate - named;
            }
        }
    }

    fn share_out(&mut self) {
        let takes = |node: &RebalanceNode| node.takes_clients && !node.is_draining;
        let capacity: f64 = self
            .nodes
            .iter()
            .filter(|it| takes(it))
            .map(|it| it.capacity)
            .sum();
        let total: f64 = self.loads.iter().sum();
        let share = |node: &RebalanceNode| {
            if takes(node) {
                total * node.capacity / capacity
            } else {
                0.0
            }
        };
        self.shares = self.nodes.iter().map(share).collect();
    }

    /// The load of a node as a multiple of its share; `None`: it is to have none.
    pub fn fullness(&self, node: usize) -> Option<f64> {
        (self.shares[node] > 0.0).then(|| self.loads[node] / self.shares[node])
    }

    /// The node's share.
    pub fn share(&self, node: usize) -> f64 {
        self.shares[node]
    }

    /// Whether the node stays within gamma with this much more.
    pub fn has_capacity(&self, node: usize, load: f64) -> bool {
        self.shares[node] > 0.0 && self.loads[node] + load <= self.gamma * self.shares[node]
    }

    /// Messages a second of a topic.
    pub fn rate(&self, topic: TopicId) -> f64 {
        self.rates[topic.index()]
    }

    /// Of these, those that are published at a node.
    pub fn published_at(&self, topic: TopicId, node: usize) -> f64 {
        self.published[topic.index() * self.nodes.len() + node]
    }

    pub const fn gamma(&self) -> f64 {
        self.gamma
    }

    /// Adds a client. Internal traffic is not kept: see [`Board::shift`].
    pub fn add(&mut self, client: &RebalanceClient, node: usize) {
        let nodes = self.nodes.len();
        for topic in &client.subscribes {
            let at = topic.index() * nodes + node;
            self.subscriptions[at] += 1;
            self.listening[topic.index()] += u32::from(self.subscriptions[at] == 1);
            self.subscribers[topic.index()] += 1;
        }
        for (topic, rate) in &client.publishes {
            self.published[topic.index() * nodes + node] += rate;
            self.rates[topic.index()] += rate;
        }
        self.loads[node] += client.load();
    }

    /// Removes a client from the node that it is at.
    pub fn remove(&mut self, client: &RebalanceClient, node: usize) {
        let nodes = self.nodes.len();
        for topic in &client.subscribes {
            let at = topic.index() * nodes + node;
            self.subscriptions[at] -= 1;
            self.listening[topic.index()] -= u32::from(self.subscriptions[at] == 0);
            self.subscribers[topic.index()] -= 1;
        }
        for (topic, rate) in &client.publishes {
            let at = topic.index() * nodes + node;
            self.published[at] = (self.published[at] - rate).max(0.0);
            self.rates[topic.index()] = (self.rates[topic.index()] - rate).max(0.0);
        }
        self.loads[node] = (self.loads[node] - client.load()).max(0.0);
    }

    /// Moves a client from one node to another. Returns how much internal traffic that saves, counted by its distance.
    pub fn shift(&mut self, client: &RebalanceClient, from: usize, to: usize) -> f64 {
        self.remove(client, from);
        let saves = self.cost_with(client, from) - self.cost_with(client, to);
        self.add(client, to);
        self.cost -= saves;
        saves
    }

    /// Internal traffic that a client brings at a node, while it is at none, counted by its distance: exact.
    pub fn cost_with(&self, client: &RebalanceClient, node: usize) -> f64 {
        let received = client.subscribes.iter().map(|topic| {
            if self.listens(topic.index(), node) {
                0.0
            } else {
                self.cost_to(topic.index(), node)
            }
        });
        let sent = client.publishes.iter().map(|(topic, rate)| {
            let topic = topic.index();
            if self.distances.are_even() {
                let listens = self.listens(topic, node);
                return rate * f64::from(self.listening[topic] - u32::from(listens));
            }
            let all = 0..self.nodes.len();
            let others = all.filter(|other| *other != node && self.listens(topic, *other));
            rate * others.map(|other| self.between(node, other)).sum::<f64>()
        });
        received.sum::<f64>() + sent.sum::<f64>()
    }

    /// Whether messages between two nodes cost no more than within a site.
    pub fn is_near(&self, node: usize, other: usize) -> bool {
        node == other || self.between(node, other).max(self.between(other, node)) <= 1.0
    }

    fn listens(&self, topic: usize, node: usize) -> bool {
        self.subscriptions[topic * self.nodes.len() + node] > 0
    }

    fn between(&self, from: usize, to: usize) -> f64 {
        let [from, to] = [from, to].map(|it| BrokerId(it as u16));
        self.distances.between(from, to)
    }

    /// What it costs a second that a node receives all messages of a topic.
    fn cost_to(&self, topic: usize, node: usize) -> f64 {
        let first = topic * self.nodes.len();
        if self.distances.are_even() {
            return self.rates[topic] - self.published[first + node];
        }
        let others = (0..self.nodes.len()).filter(|other| *other != node);
        others
            .map(|other| self.published[first + other] * self.between(other, node))
            .sum()
    }

    /// What it costs to have a client at a node, while it is at none: as in our placement strategy, so popular topics may come to all nodes, and a
    /// subscriber does not follow publishers that would follow it. A node that is far from where the client is is far for all its messages.
    pub fn cost(&self, client: &RebalanceClient, node: usize) -> f64 {
        let mut cost = 0.0;
        for topic in &client.subscribes {
            if self.listens(topic.index(), node) {
                continue;
            }
            cost += self.cost_to(topic.index(), node)
                * if self.listening[topic.index()] == 0 {
                    FOLLOWED
                } else {
                    self.discount(topic.index())
                };
        }
        for (topic, rate) in &client.publishes {
            if self.listening[topic.index()] > 0 && !self.listens(topic.index(), node) {
                cost += rate * self.nearest_listener(topic.index(), node);
            }
        }
        if !self.is_near(client.node, node) {
            let both = [(client.node, node), (node, client.node)];
            let costs = both.map(|(from, to)| self.between(from, to));
            cost += client.rate * costs[0].max(costs[1]);
        }
        let share = self.shares[node];
        let excess = if share > 0.0 {
            self.loads[node] / share - 1.0
        } else {
            0.0
        };
        cost + LOAD_WEIGHT * client.rate * excess
    }

    /// Cost of a message from a node to the nearest one with a subscription to a topic.
    fn nearest_listener(&self, topic: usize, node: usize) -> f64 {
        if self.distances.are_even() {
            return 1.0;
        }
        let listening = (0..self.nodes.len()).filter(|other| self.listens(topic, *other));
        let costs = listening.map(|other| self.between(node, other));
        costs.min_by(f64::total_cmp).unwrap_or(1.0)
    }

    fn discount(&self, topic: usize) -> f64 {
        libm::pow(
            1.0 + f64::from(self.subscribers[topic]),
            -POPULARITY_DISCOUNT,
        )
    }

    /// Internal traffic of one topic, counted by its distance: its messages go once to every other node with a subscriber.
    fn cost_of(&self, topic: usize) -> f64 {
        let listening = (0..self.nodes.len()).filter(|node| self.listens(topic, *node));
        listening.map(|node| self.cost_to(topic, node)).sum()
    }

    /// The same, in messages a second.
    fn internal_of(&self, topic: usize) -> f64 {
        let first = topic * self.nodes.len();
        let range = first..first + self.nodes.len();
        let listening = self.subscriptions[range.clone()].iter();
        let published = &self.published[range];
        listening
            .zip(published)
            .filter(|(count, _)| **count > 0)
            .map(|(_, here)| self.rates[topic] - here)
            .sum()
    }

    /// Internal traffic, in messages a second.
    pub fn internal(&self) -> f64 {
        if self.distances.are_even() {
            return self.cost;
        }
        let topics = 0..self.rates.len();
        topics.map(|topic| self.internal_of(topic)).sum()
    }

    pub fn balance(&self) -> Balance {
        let full: Vec<f64> = (0..self.nodes.len())
            .filter_map(|node| self.fullness(node))
            .collect();
        let (jain, peak) = fairness(&full);
        Balance {
            internal: self.internal().max(0.0),
            jain,
            peak,
        }
    }
}
