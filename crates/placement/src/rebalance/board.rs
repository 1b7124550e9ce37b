//! Which clients receive and publish where, and what a client costs at each node.

use super::{Balance, RebalanceClient, RebalanceNode, Situation, fairness};
use crate::cluster::{BrokerId, TopicId};
use crate::distance::Distances;

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
    pub internal: f64,
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
            internal: 0.0,
        };
        for client in &situation.clients {
            board.add(client, client.node);
        }
        board.add_unnamed_publishers(&situation.measured);
        board.internal = (0..topics).map(|topic| board.internal_of(topic)).sum();
        board.share_out();
        board
    }

    /// Rates are measured in powers of two: only what is clearly more than the listed clients publish is of others.
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
    pub fn has_room(&self, node: usize, load: f64) -> bool {
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

    /// Moves a client from one node to another. Returns how much internal traffic that saves.
    pub fn shift(&mut self, client: &RebalanceClient, from: usize, to: usize) -> f64 {
        self.remove(client, from);
        let saves = self.internal_with(client, from) - self.internal_with(client, to);
        self.add(client, to);
        self.internal -= saves;
        saves
    }

    /// Internal traffic that a client brings at a node, while it is at none: exact.
    pub fn internal_with(&self, client: &RebalanceClient, node: usize) -> f64 {
        let nodes = self.nodes.len();
        let received = client.subscribes.iter().map(|topic| {
            let at = topic.index() * nodes + node;
            if self.subscriptions[at] > 0 {
                0.0
            } else {
                self.rates[topic.index()] - self.published[at]
            }
        });
        let sent = client.publishes.iter().map(|(topic, rate)| {
            let listens = self.subscriptions[topic.index() * nodes + node] > 0;
            rate * f64::from(self.listening[topic.index()] - u32::from(listens))
        });
        received.sum::<f64>() + sent.sum::<f64>()
    }

    /// What it costs to have a client at a node, while it is at none: as in our placement strategy, so popular topics may come to all nodes, and a
    /// subscriber does not follow publishers that would follow it. A node that is far from where the client is is far for all its messages.
    pub fn cost(&self, client: &RebalanceClient, node: usize) -> f64 {
        let nodes = self.nodes.len();
        let mut cost = 0.0;
        for topic in &client.subscribes {
            let at = topic.index() * nodes + node;
            if self.subscriptions[at] > 0 {
                continue;
            }
            let missing = self.rates[topic.index()] - self.published[at];
            cost += missing
                * if self.listening[topic.index()] == 0 {
                    FOLLOWED
                } else {
                    self.discount(topic.index())
                };
        }
        for (topic, rate) in &client.publishes {
            let listens = self.subscriptions[topic.index() * nodes + node] > 0;
            if self.listening[topic.index()] > 0 && !listens {
                cost += rate;
            }
        }
        if node != client.node {
            let [home, far] = [client.node, node].map(|it| BrokerId(it as u16));
            cost += client.rate * (self.distances.between(home, far) - 1.0);
        }
        let share = self.shares[node];
        let excess = if share > 0.0 {
            self.loads[node] / share - 1.0
        } else {
            0.0
        };
        cost + LOAD_WEIGHT * client.rate * excess
    }

    fn discount(&self, topic: usize) -> f64 {
        libm::pow(
            1.0 + f64::from(self.subscribers[topic]),
            -POPULARITY_DISCOUNT,
        )
    }

    /// Internal traffic of one topic: its messages go once to every other node with a subscriber.
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

    pub fn balance(&self) -> Balance {
        let full: Vec<f64> = (0..self.nodes.len())
            .filter_map(|node| self.fullness(node))
            .collect();
        let (jain, peak) = fairness(&full);
        Balance {
            internal: self.internal.max(0.0),
            jain,
            peak,
        }
    }
}
