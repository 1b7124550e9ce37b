//! What is gathered of all clients, and the situation that a plan is made from.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use thicket_overlay::NodeId;
use thicket_placement::{Distances, RebalanceClient, RebalanceNode, Situation, TopicId};
use thicket_session::topic::TopicFilter;

use crate::{NodeLoad, messages::ClientActivity};

/// Clients of one plan at most; of a node with more, those that are not listed count as load that stays.
pub(super) const MOST_CLIENTS: usize = 200_000;
/// Filters with wildcards of one plan, each different one counted once.
const MOST_WILD: usize = 1_000;

/// A node in the plan.
#[derive(Debug, Clone, Copy)]
pub(in crate::hub::placing) struct KnownNode {
    pub node: NodeId,
    pub load: NodeLoad,
    pub takes_clients: bool,
}

impl KnownNode {
    /// It is drained, and still has clients.
    pub const fn is_being_emptied(&self) -> bool {
        self.load.is_draining && self.load.connections > 0
    }
}

/// Clients of all nodes, as they arrive.
#[derive(Debug, Default)]
pub(in crate::hub::placing) struct Inventory {
    /// Where each is.
    clients: Vec<(NodeId, ClientActivity)>,
    /// Nodes that have more clients than were listed.
    cut_short: Vec<NodeId>,
}

impl Inventory {
    pub fn is_full(&self) -> bool {
        self.clients.len() >= MOST_CLIENTS
    }

    pub fn add(&mut self, node: NodeId, clients: Vec<ClientActivity>) {
        let clients = clients.into_iter().map(|client| (node, client));
        self.clients.extend(clients);
    }

    pub fn cut_short(&mut self, node: NodeId) {
        self.cut_short.push(node);
    }

    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// What was reported of all clients, and where each is.
    pub fn all(&self) -> impl Iterator<Item = (NodeId, &ClientActivity)> {
        self.clients.iter().map(|(node, client)| (*node, client))
    }

    pub fn client(&self, index: usize) -> (&NodeId, &Arc<str>) {
        let (node, client) = &self.clients[index];
        (node, &client.client_id)
    }

    pub fn filters(&self, index: usize) -> &[Arc<str>] {
        &self.clients[index].1.filters
    }

    /// `rates`: thousandths of a message a second, by node and topic. `may_move`: by client, what the rebalancer adds to the report of its node.
    pub fn situation<'a>(
        &self,
        nodes: &[KnownNode],
        rates: impl Iterator<Item = (NodeId, &'a BTreeMap<Arc<str>, u64>)>,
        may_move: &[bool],
    ) -> (Situation, Topics) {
        let at: BTreeMap<NodeId, usize> = nodes
            .iter()
            .enumerate()
            .map(|(index, it)| (it.node, index))
            .collect();
        let mut topics = Topics::default();
        let mut measured = Vec::new();
        for (node, rates) in rates {
            let Some(node) = at.get(&node) else { continue };
            for (topic, rate) in rates {
                measured.push((topics.of(topic), *node, *rate as f64 / 1000.0));
            }
        }
        measured.sort_by_key(|(topic, node, _)| (*topic, *node));
        let mut clients = Vec::with_capacity(self.clients.len());
        for (_, client) in &self.clients {
            for (topic, _) in &client.publishes {
                topics.of(topic);
            }
        }
        let mut named = vec![0.0; nodes.len()];
        for ((node, client), may_move) in self.clients.iter().zip(may_move) {
            let node = at.get(node).copied().unwrap_or_default();
            let rate = client.millis_per_s as f64 / 1000.0;
            named[node] += rate;
            clients.push(RebalanceClient {
                node,
                rate,
                publishes: topics.published(client),
                subscribes: topics.subscribed(client),
                may_move: client.can_move && *may_move,
            });
        }
        let node = |(index, known): (usize, &KnownNode)| {
            let measured = known.load.external.messages() as f64;
            let is_cut = self.cut_short.contains(&known.node);
            RebalanceNode {
                key: known.node.0,
                capacity: capacity(known, nodes),
                takes_clients: known.takes_clients,
                is_draining: false,
                unnamed_load: if is_cut {
                    (measured - named[index]).max(0.0)
                } else {
                    0.0
                },
            }
        };
        let situation = Situation {
            nodes: nodes.iter().enumerate().map(node).collect(),
            clients,
            topic_count: topics.names.len(),
            measured,
            distances: Distances::default(),
        };
        (situation, topics)
    }
}

/// Messages that a node handles with its CPU, compared with the median of all, as a power of two: what is measured is noisy.
fn capacity(known: &KnownNode, all: &[KnownNode]) -> f64 {
    let efficiency = |known: &KnownNode| {
        let cpu = known.load.cpu_permille.filter(|cpu| *cpu >= 200)?;
        let messages = known.load.external.messages() + known.load.internal.messages();
        (messages >= 1_000).then(|| messages as f64 / f64::from(cpu))
    };
    let every: Option<Vec<f64>> = all
        .iter()
        .filter(|it| it.takes_clients)
        .map(efficiency)
        .collect();
    let (Some(own), Some(mut every)) = (efficiency(known), every) else {
        return 1.0;
    };
    every.sort_by(f64::total_cmp);
    let median = every.get(every.len() / 2).copied().unwrap_or(own);
    match own / median {
        ratio if ratio > 1.5 => 2.0,
        ratio if ratio < 0.67 => 0.5,
        _ => 1.0,
    }
}

/// Topics by name, and what filters match.
#[derive(Debug, Default)]
pub(in crate::hub::placing) struct Topics {
    numbers: HashMap<Arc<str>, TopicId>,
    names: Vec<Arc<str>>,
    /// Filters with wildcards, with what they match.
    wild: HashMap<Arc<str>, Vec<TopicId>>,
}

impl Topics {
    pub fn name(&self, topic: TopicId) -> &str {
        &self.names[topic.index()]
    }

    fn of(&mut self, name: &Arc<str>) -> TopicId {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        let topic = TopicId(self.names.len() as u32);
        self.numbers.insert(Arc::clone(name), topic);
        self.names.push(Arc::clone(name));
        topic
    }

    fn published(&mut self, client: &ClientActivity) -> Vec<(TopicId, f64)> {
        let mut published: BTreeMap<TopicId, f64> = BTreeMap::new();
        for (topic, rate) in &client.publishes {
            *published.entry(self.of(topic)).or_default() += *rate as f64 / 1000.0;
        }
        published.into_iter().collect()
    }

    fn subscribed(&mut self, client: &ClientActivity) -> Vec<TopicId> {
        let mut found = Vec::new();
        for filter in &client.filters {
            if filter.contains(['+', '#']) {
                found.extend_from_slice(self.matching(filter));
            } else if let Some(topic) = self.numbers.get(filter) {
                found.push(*topic);
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Each different filter is matched once; beyond the limit they are ignored.
    fn matching(&mut self, filter: &Arc<str>) -> &[TopicId] {
        if !self.wild.contains_key(filter) {
            let parsed = TopicFilter::new(filter).ok();
            let parsed = parsed.filter(|_| self.wild.len() < MOST_WILD);
            let all = self.names.iter().enumerate();
            let matches = all.filter(|(_, name)| {
                let wanted = parsed.as_ref();
                wanted.is_some_and(|filter| filter.matches(name))
            });
            let found = matches.map(|(index, _)| TopicId(index as u32)).collect();
            self.wild.insert(Arc::clone(filter), found);
        }
        &self.wild[filter]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rates;

    fn client(name: &str, publishes: &[(&str, u64)], filters: &[&str]) -> ClientActivity {
        ClientActivity {
            client_id: name.into(),
            can_move: true,
            millis_per_s: 2_000,
            publishes: publishes.iter().map(|it| (it.0.into(), it.1)).collect(),
            filters: filters.iter().map(|it| (*it).into()).collect(),
        }
    }

    fn node(number: u64, cpu: u16, messages: u64) -> KnownNode {
        let external = Rates {
            in_messages: messages,
            ..Rates::default()
        };
        KnownNode {
            node: NodeId(number),
            load: NodeLoad {
                cpu_permille: Some(cpu),
                external,
                ..NodeLoad::default()
            },
            takes_clients: true,
        }
    }

    #[test]
    fn filters_stand_for_the_topics_that_they_match() {
        let mut inventory = Inventory::default();
        inventory.add(
            NodeId(7),
            vec![client("p", &[("a/1", 1_000), ("a/2", 500)], &[])],
        );
        inventory.add(
            NodeId(9),
            vec![client("s", &[], &["a/+", "a/1", "nobody/publishes"])],
        );
        let rates = BTreeMap::from([(Arc::from("a/3"), 4_000)]);
        let nodes = [node(7, 100, 10), node(9, 100, 10)];
        let rates = [(NodeId(9), &rates)];
        let (situation, _) = inventory.situation(&nodes, rates.into_iter(), &[false, true]);
        let [publisher, subscriber] = &situation.clients[..] else {
            panic!("{situation:?}")
        };
        assert_eq!(
            (publisher.node, publisher.may_move, publisher.rate),
            (0, false, 2.0)
        );
        let published: f64 = publisher.publishes.iter().map(|it| it.1).sum();
        assert_eq!((publisher.publishes.len(), published), (2, 1.5));
        assert_eq!((subscriber.node, subscriber.may_move), (1, true));
        assert_eq!(subscriber.subscribes.len(), 3);
        assert_eq!(situation.measured.len(), 1);
        assert_eq!(situation.measured[0].2, 4.0);
    }

    #[test]
    fn a_node_that_gets_more_done_with_its_cpu_can_do_more() {
        let cases = [
            ("alike", [5_000, 4_500, 5_200], [1.0, 1.0, 1.0]),
            ("one is larger", [10_000, 5_000, 4_800], [2.0, 1.0, 1.0]),
            ("one is smaller", [2_500, 5_000, 5_100], [0.5, 1.0, 1.0]),
            (
                "one has too little to tell",
                [100, 5_000, 9_000],
                [1.0, 1.0, 1.0],
            ),
        ];
        for (name, messages, expected) in cases {
            let nodes: Vec<KnownNode> = messages
                .iter()
                .enumerate()
                .map(|(at, it)| node(at as u64, 500, *it))
                .collect();
            let found: Vec<f64> = nodes.iter().map(|it| capacity(it, &nodes)).collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}
