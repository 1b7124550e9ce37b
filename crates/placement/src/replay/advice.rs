//! The moves that adding or removing a node needs, from the current nodes of recorded clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::bundles::Bundles;
use super::moves::Moves;
use super::{Arrival, Replay};
use crate::cluster::{Cluster, Traffic};
use crate::distance::Distances;
use crate::error::ParameterError;
use crate::ids::{BrokerId, ClientId};
use crate::placer::Assignment;
use crate::simulator::CpuWeights;
use crate::strategy::{Interest, Limits, MatchingOptions, StrategyKind};

/// A cluster as recorded, as far as its nodes are still there.
struct Restored {
    replay: Replay,
    /// Clients that have something at a node that is gone, with all their topics.
    displaced: Vec<(ClientId, Vec<Interest>)>,
    bundles: Bundles,
    /// By client: the sessions that it may have.
    sessions: Vec<usize>,
}

/// A change of the nodes of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The nodes stay; sessions may move.
    Rebalance,
    /// One node more, with this name; sessions may move.
    Add(String),
    /// These nodes are drained: their sessions go where the strategy places them, then others may move.
    Remove(BTreeSet<String>),
    /// This node dies: its sessions fail over to their backups, of which each has one ([`Failover`](crate::Failover)); nothing else moves.
    Death(String),
}

/// A session, or the part of it that moves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Relocation {
    /// The client.
    pub client: String,
    /// The node that it leaves.
    pub from: String,
    /// The node that it moves to.
    pub to: String,
    /// What it publishes or receives, ascending.
    pub topics: Vec<String>,
}

/// A cluster after a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The names of the nodes; `traffic` and `flows` are in the same order.
    pub nodes: Vec<String>,
    /// By node.
    pub traffic: Traffic,
    /// Messages per second from one node to another: `flows[from][to]`.
    pub flows: Vec<Vec<f64>>,
    /// Ascending; sessions of nodes that are gone are among them.
    pub moves: Vec<Relocation>,
}

/// The clients of a cluster, where they are now. A filter with wildcards stays in one session.
pub struct Advisor {
    nodes: Vec<String>,
    arrivals: Vec<Arrival>,
    limits: Limits,
    weights: CpuWeights,
    /// With every client where the recording has it.
    now: Replay,
    /// Of a message from one node to another, by name.
    cost: Option<Box<Cost>>,
}

type Cost = dyn Fn(&str, &str) -> f64;

impl fmt::Debug for Advisor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Advisor")
            .field("nodes", &self.nodes)
            .field("arrivals", &self.arrivals.len())
            .finish_non_exhaustive()
    }
}

impl Advisor {
    /// `nodes`: all of the cluster; each topic and filter of `arrivals` has one of them. `weights` give the work that moves should lower.
    ///
    /// # Errors
    /// As [`Replay::announce`]; a topic or filter has no node, or one that is not there; a client leaves or comes twice.
    pub fn new(
        nodes: Vec<String>,
        arrivals: Vec<Arrival>,
        limits: Limits,
        weights: CpuWeights,
    ) -> Result<Self, ParameterError> {
        let now = replay(nodes.len(), limits)?;
        let mut advisor = Self {
            nodes,
            arrivals,
            limits,
            weights,
            now,
            cost: None,
        };
        let nodes = advisor.nodes.clone();
        advisor.now = advisor.restored(&nodes)?.replay;
        Ok(advisor)
    }

    /// The nodes of the cluster.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// From now on a message from one node to another costs `cost(from, to)`, at least 1: the cost of a message between nodes of one site.
    ///
    /// # Errors
    /// A cost is below 1 or not finite.
    pub fn weigh(
        &mut self,
        cost: impl Fn(&str, &str) -> f64 + 'static,
    ) -> Result<(), ParameterError> {
        self.cost = Some(Box::new(cost));
        let nodes = self.nodes.clone();
        self.now = self.restored(&nodes)?.replay;
        Ok(())
    }

    /// As it is.
    #[must_use]
    pub fn now(&self) -> Outcome {
        outcome(&self.nodes, &self.now, Vec::new())
    }

    /// After `change`, when at most `max_moves` sessions have moved besides those that must.
    ///
    /// # Errors
    /// A node is added that is there, or removed that is not, or none would be left.
    pub fn after(&self, change: &Change, max_moves: usize) -> Result<Outcome, ParameterError> {
        let (nodes, may_move) = self.changed(change)?;
        if let Change::Death(gone) = change {
            return Ok(self.after_death(gone, nodes));
        }
        let Restored {
            mut replay,
            mut displaced,
            bundles,
            sessions,
        } = self.restored(&nodes)?;
        // Filters with wildcards go where what they match is published, so they come last.
        displaced.sort_by_key(|(client, _)| bundles.has(*client));
        for (client, interests) in displaced {
            let placer = &mut replay.placer;
            let most = sessions[client.index()];
            placer.allow_sessions(most);
            if bundles.has(client) {
                let left = placer.assignments(client);
                let kept = bundles.placed(placer.cluster(), (client, &interests), left, most);
                placer.restore(client, &kept)?;
            }
            placer.arrive(client, &interests)?;
        }
        if may_move {
            Moves::new(&mut replay.placer, &bundles, &sessions, self.weights).improve(max_moves);
        }
        let moves = self.relocations(&nodes, &replay);
        Ok(outcome(&nodes, &replay, moves))
    }

    /// `nodes`: those that are left, in their order.
    fn after_death(&self, gone: &str, nodes: Vec<String>) -> Outcome {
        let at = self.nodes.iter().position(|name| name == gone);
        let broker = BrokerId(at.unwrap_or(0) as u16);
        let failover = self.now.failover(broker);
        let failover = failover.expect("a node is left");
        let is_left = |at: usize| at != broker.index();
        let keep = |flows: Vec<f64>| {
            let all = flows.into_iter().enumerate();
            all.filter(|(at, _)| is_left(*at))
                .map(|(_, flow)| flow)
                .collect()
        };
        let flows = flows(&failover.cluster).into_iter().enumerate();
        let flows = flows
            .filter(|(at, _)| is_left(*at))
            .map(|(_, row)| keep(row));
        let brokers = failover.cluster.traffic().brokers.into_iter().enumerate();
        let brokers = brokers.filter(|(at, _)| is_left(*at)).map(|(_, it)| it);
        let mut moves: Vec<Relocation> = failover
            .moved
            .iter()
            .map(|(client, to)| {
                let held = self.now.placer.assignments(*client).iter();
                let there = held.filter(|it| it.broker == broker);
                let mut topics: Vec<String> =
                    there.map(|it| self.now.topics.name(it.topic.0)).collect();
                topics.sort();
                Relocation {
                    client: self.now.clients.name(client.0),
                    from: gone.to_owned(),
                    to: self.nodes[to.index()].clone(),
                    topics,
                }
            })
            .collect();
        moves.sort();
        Outcome {
            nodes,
            traffic: Traffic {
                brokers: brokers.collect(),
            },
            flows: flows.collect(),
            moves,
        }
    }

    /// The nodes after a change, and whether sessions may move that need not.
    fn changed(&self, change: &Change) -> Result<(Vec<String>, bool), ParameterError> {
        match change {
            Change::Rebalance => Ok((self.nodes.clone(), true)),
            Change::Add(name) if self.nodes.contains(name) => {
                let rule = "must be the name of no node of the recording";
                Err(ParameterError::new("add", rule, name))
            }
            Change::Add(name) => {
                let mut nodes = self.nodes.clone();
                nodes.push(name.clone());
                Ok((nodes, true))
            }
            Change::Remove(gone) => Ok((self.without("remove", gone)?, true)),
            // What a death leads to is not chosen.
            Change::Death(gone) => {
                let gone = BTreeSet::from([gone.clone()]);
                Ok((self.without("death", &gone)?, false))
            }
        }
    }

    fn without(
        &self,
        parameter: &'static str,
        gone: &BTreeSet<String>,
    ) -> Result<Vec<String>, ParameterError> {
        if let Some(unknown) = gone.iter().find(|name| !self.nodes.contains(name)) {
            let rule = format!("must be one of {}", self.nodes.join(", "));
            return Err(ParameterError::new(parameter, rule, unknown));
        }
        let left = self.nodes.iter().filter(|name| !gone.contains(*name));
        let left: Vec<String> = left.cloned().collect();
        if left.is_empty() {
            let rule = "must leave a node";
            return Err(ParameterError::new(parameter, rule, self.nodes.join(", ")));
        }
        Ok(left)
    }

    /// Every client where it is as far as that node is among `nodes`.
    fn restored(&self, nodes: &[String]) -> Result<Restored, ParameterError> {
        let mut replay = replay(nodes.len(), self.limits)?;
        if let Some(cost) = &self.cost {
            let of = |from: usize, to: usize| cost(&nodes[from], &nodes[to]);
            let distances = Distances::new(nodes.len(), of)?;
            replay.placer.cluster_mut().set_distances(distances);
        }
        for arrival in &self.arrivals {
            replay.announce(arrival)?;
        }
        let brokers = |name: &str| nodes.iter().position(|node| node == name);
        let (mut displaced, mut bundles) = (Vec::new(), Bundles::default());
        let mut sessions = Vec::new();
        for arrival in &self.arrivals {
            let is_new = !replay.clients.numbers.contains_key(&arrival.client);
            if arrival.leave || !is_new {
                let rule = "must come once in a recording of what is where, and not leave";
                return Err(ParameterError::new("client", rule, &arrival.client));
            }
            let client = ClientId(replay.clients.number(&arrival.client));
            let most = self.limits.max_sessions();
            sessions.push(arrival.max_sessions.unwrap_or(most).max(1));
            let interests = replay.interests(arrival)?;
            for filter in arrival.subscribe.iter().filter(|it| super::is_wildcard(it)) {
                bundles.add(client, &replay.topics.matching(filter));
            }
            let mut at = Vec::new();
            for (interest, name) in interests.iter().zip(self.nodes_of(&replay, arrival)?) {
                if let Some(broker) = brokers(name) {
                    at.push((*interest, BrokerId(broker as u16)));
                }
            }
            replay.placer.restore(client, &at)?;
            if at.len() < interests.len() {
                displaced.push((client, interests));
            }
        }
        Ok(Restored {
            replay,
            displaced,
            bundles,
            sessions,
        })
    }

    /// The nodes of the interests of an arrival, in their order.
    fn nodes_of<'a>(
        &self,
        replay: &Replay,
        arrival: &'a Arrival,
    ) -> Result<Vec<&'a str>, ParameterError> {
        let mut nodes = Vec::new();
        let publish = arrival.publish.iter().map(|name| (name, 1));
        let subscribe = arrival.subscribe.iter().map(|filter| {
            let is_wild = super::is_wildcard(filter);
            let count = is_wild.then(|| replay.topics.matching(filter).len());
            (filter, count.unwrap_or(1))
        });
        for (name, count) in publish.chain(subscribe) {
            let node = arrival.nodes.get(name).filter(|it| self.nodes.contains(it));
            let Some(node) = node else {
                let rule =
                    "must name a node of the cluster for each topic and filter of its client";
                return Err(ParameterError::new("nodes", rule, format!("\"{name}\"")));
            };
            nodes.extend(std::iter::repeat_n(node.as_str(), count));
        }
        Ok(nodes)
    }

    /// What is at another node now than it was.
    fn relocations(&self, nodes: &[String], after: &Replay) -> Vec<Relocation> {
        let mut moves: BTreeMap<(String, &str, &str), Vec<String>> = BTreeMap::new();
        for number in 0..self.now.clients.names.len() {
            let client = ClientId(number as u32);
            let then: BTreeMap<_, BrokerId> = after
                .placer
                .assignments(client)
                .iter()
                .map(|it| (it.topic, it.broker))
                .collect();
            for Assignment { topic, broker, .. } in self.now.placer.assignments(client) {
                let from = self.nodes[broker.index()].as_str();
                let to = nodes[then[topic].index()].as_str();
                if from != to {
                    let session = (self.now.clients.name(client.0), from, to);
                    let topics = moves.entry(session).or_default();
                    topics.push(self.now.topics.name(topic.0));
                }
            }
        }
        let relocation = |((client, from, to), mut topics): ((String, &str, &str), Vec<String>)| {
            topics.sort();
            Relocation {
                client,
                from: from.to_owned(),
                to: to.to_owned(),
                topics,
            }
        };
        moves.into_iter().map(relocation).collect()
    }
}

fn replay(brokers: usize, limits: Limits) -> Result<Replay, ParameterError> {
    let strategy = StrategyKind::Thicket.build(limits, MatchingOptions::default(), 0);
    Replay::new(brokers, strategy)
}

fn outcome(nodes: &[String], replay: &Replay, moves: Vec<Relocation>) -> Outcome {
    Outcome {
        nodes: nodes.to_vec(),
        traffic: replay.traffic(),
        flows: flows(replay.placer.cluster()),
        moves,
    }
}

impl Replay {
    /// Messages per second from one broker to another: `[from][to]`.
    #[must_use]
    pub fn flows(&self) -> Vec<Vec<f64>> {
        flows(self.placer.cluster())
    }
}

/// Each publication goes once to every other broker with a subscriber.
fn flows(cluster: &Cluster) -> Vec<Vec<f64>> {
    let count = cluster.broker_count();
    let mut flows = vec![vec![0.0; count]; count];
    for number in 0..cluster.topic_count() {
        let topic = crate::ids::TopicId(number as u32);
        for publisher in cluster.publishers(topic) {
            let others = cluster.brokers().filter(|to| *to != publisher.broker);
            for to in others.filter(|to| cluster.listens(topic, *to)) {
                flows[publisher.broker.index()][to.index()] += publisher.rate;
            }
        }
    }
    flows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(client: &str, publish: &[(&str, f64)], subscribe: &[&str], node: &str) -> Arrival {
        let names = publish.iter().map(|(name, _)| *name);
        Arrival {
            client: client.to_owned(),
            publish: names.clone().map(str::to_owned).collect(),
            subscribe: subscribe.iter().map(ToString::to_string).collect(),
            rates: publish
                .iter()
                .map(|(name, rate)| ((*name).to_owned(), *rate))
                .collect(),
            nodes: names
                .chain(subscribe.iter().copied())
                .map(|name| (name.to_owned(), node.to_owned()))
                .collect(),
            ..Arrival::default()
        }
    }

    /// Six topics, each with its publisher at one node and its subscriber at the other.
    fn crossed() -> Vec<Arrival> {
        let mut all = Vec::new();
        for number in 0..6 {
            let topic = format!("t/{number}");
            let (here, there) = if number % 2 == 0 {
                ("a", "b")
            } else {
                ("b", "a")
            };
            all.push(arrival(&format!("p{number}"), &[(&topic, 10.0)], &[], here));
            all.push(arrival(&format!("s{number}"), &[], &[&topic], there));
        }
        all
    }

    fn advisor(nodes: &[&str], arrivals: Vec<Arrival>) -> Result<Advisor, ParameterError> {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let limits = Limits::new(4, 1.1).expect("limits");
        Advisor::new(nodes, arrivals, limits, CpuWeights::default())
    }

    fn only(name: &str) -> BTreeSet<String> {
        BTreeSet::from([name.to_owned()])
    }

    #[test]
    fn moves_that_weigh_sites_keep_traffic_at_its_site() {
        let nodes = ["a", "b", "c", "d"];
        let mut arrivals = Vec::new();
        for number in 0..40 {
            let topic = format!("t/{number}");
            let publisher = format!("p{number}");
            arrivals.push(arrival(
                &publisher,
                &[(&topic, 1.0)],
                &[],
                nodes[number % 4],
            ));
            let subscriber = format!("s{number}");
            let at = nodes[(number * 7 + number / 5) % 4];
            arrivals.push(arrival(&subscriber, &[], &[&topic], at));
        }
        let site = |node: &str| node < "c";
        let crossing = |outcome: &Outcome| {
            let mut sum = 0.0;
            for (from, row) in outcome.nodes.iter().zip(&outcome.flows) {
                let away = outcome.nodes.iter().zip(row);
                let away = away.filter(|(to, _)| site(from) != site(to));
                sum += away.map(|(_, rate)| rate).sum::<f64>();
            }
            sum
        };
        let mut advisor = advisor(&nodes, arrivals).unwrap();
        let now = crossing(&advisor.now());
        let plain = crossing(&advisor.after(&Change::Rebalance, 8).unwrap());
        let cost = move |from: &str, to: &str| if site(from) == site(to) { 1.0 } else { 10.0 };
        advisor.weigh(cost).unwrap();
        assert_eq!(crossing(&advisor.now()), now, "weighing moves no client");
        let weighed = crossing(&advisor.after(&Change::Rebalance, 8).unwrap());
        assert!(weighed < plain && plain < now, "{now} {plain} {weighed}");
        assert!(advisor.weigh(|_, _| 0.5).is_err());
    }

    #[test]
    fn what_is_crossed_is_brought_together_by_as_few_moves_as_there_are_topics() {
        let advisor = advisor(&["a", "b"], crossed()).unwrap();
        let now = advisor.now();
        assert_eq!(now.traffic.internal(), 60.0);
        assert_eq!(now.flows, [[0.0, 30.0], [30.0, 0.0]]);
        let after = advisor.after(&Change::Rebalance, 100).unwrap();
        assert_eq!(after.traffic.internal(), 0.0);
        assert_eq!(after.moves.len(), 6, "{:?}", after.moves);
        assert_eq!(after.traffic.jain(), 1.0);
        let none = advisor.after(&Change::Rebalance, 0).unwrap();
        assert_eq!((none.traffic, none.moves), (now.traffic, Vec::new()));
    }

    #[test]
    fn a_client_that_can_have_one_session_does_not_part_its_topics() {
        // A reader of two topics that are published and read at two nodes.
        let reader = |max_sessions| Arrival {
            max_sessions,
            ..arrival("reader", &[], &["x", "y"], "a")
        };
        for (max_sessions, is_divided) in [(None, true), (Some(9), true), (Some(1), false)] {
            let all = vec![
                arrival("p", &[("x", 10.0)], &["x"], "a"),
                arrival("q", &[("y", 10.0)], &["y"], "b"),
                arrival("r", &[], &["x"], "a"),
                arrival("s", &[], &["y"], "b"),
                reader(max_sessions),
            ];
            let nodes = vec!["a".to_owned(), "b".to_owned()];
            let limits = Limits::new(4, 1.1).unwrap();
            let advisor = Advisor::new(nodes, all, limits, CpuWeights::default()).unwrap();
            let after = advisor.after(&Change::Rebalance, 1).unwrap();
            let parts = |it: &Relocation| it.client == "reader" && it.topics == ["y"];
            assert_eq!(
                after.moves.iter().any(parts),
                is_divided,
                "{max_sessions:?}: {:?}",
                after.moves
            );
        }
    }

    #[test]
    fn a_new_node_takes_its_share_and_brings_no_traffic_between_nodes() {
        let advisor = advisor(&["a", "b"], crossed()).unwrap();
        let change = Change::Add("c".to_owned());
        let after = advisor.after(&change, 100).unwrap();
        assert_eq!(after.nodes, ["a", "b", "c"]);
        assert_eq!(after.traffic.internal(), 0.0);
        for node in &after.traffic.brokers {
            assert_eq!(node.external_in, 20.0, "{:?}", after.moves);
        }
    }

    #[test]
    fn sessions_of_a_node_that_goes_are_placed_and_the_rest_stays_if_it_dies() {
        let mut all = crossed();
        all.push(arrival("w", &[], &["t/+"], "c"));
        let advisor = advisor(&["a", "b", "c"], all).unwrap();
        let died = advisor.after(&Change::Death("c".into()), 100).unwrap();
        assert_eq!(died.nodes, ["a", "b"]);
        assert!(
            died.moves
                .iter()
                .all(|it| it.client == "w" && it.from == "c")
        );
        let topics: usize = died.moves.iter().map(|it| it.topics.len()).sum();
        assert_eq!(topics, 6);
        let drained = advisor.after(&Change::Remove(only("c")), 100).unwrap();
        assert!(drained.traffic.internal() < died.traffic.internal());
    }

    /// Where all that a client has is after these moves; it had `topics` at `from`.
    fn nodes_after(outcome: &Outcome, client: &str, from: &str, topics: &[&str]) -> Vec<String> {
        let moved = |topic: &&str| {
            let mut own = outcome.moves.iter().filter(|it| it.client == client);
            own.find(|it| it.topics.iter().any(|moved| moved == topic))
        };
        let nodes: BTreeSet<String> = topics
            .iter()
            .map(|topic| moved(topic).map_or(from, |it| it.to.as_str()).to_owned())
            .collect();
        nodes.into_iter().collect()
    }

    #[test]
    fn a_filter_with_wildcards_moves_as_a_whole_or_not_at_all() {
        let mut all = vec![arrival("dash", &[], &["t/+"], "n1")];
        for number in 1..=2 {
            let (name, topic) = (format!("p{number}"), format!("t/{number}"));
            all.push(arrival(&name, &[(&topic, 1.0)], &[], &format!("n{number}")));
        }
        let two = advisor(&["n1", "n2"], all.clone()).unwrap();
        let topics = ["t/1", "t/2"];
        let after = two.after(&Change::Rebalance, 100).unwrap();
        assert_eq!(
            nodes_after(&after, "dash", "n1", &topics).len(),
            1,
            "{after:?}"
        );
        let grown = two.after(&Change::Add("n3".into()), 100).unwrap();
        assert_eq!(nodes_after(&grown, "dash", "n1", &topics).len(), 1);
        // Its node is removed, or dies.
        all.extend([
            arrival("load", &[("x", 4.0)], &["x"], "n3"),
            arrival("more", &[("y", 4.0)], &["y"], "n2"),
        ]);
        let three = advisor(&["n1", "n2", "n3"], all).unwrap();
        for change in [Change::Remove(only("n1")), Change::Death("n1".into())] {
            let after = three.after(&change, 100).unwrap();
            let nodes = nodes_after(&after, "dash", "n1", &topics);
            assert_eq!(nodes.len(), 1, "{change:?}: {after:?}");
        }
    }

    #[test]
    fn gains_are_those_that_whole_filters_allow() {
        // Whole filters can lower this only by using one node for everything, which has more work for the busiest.
        let mut all = Vec::new();
        for number in 0..4 {
            let (name, topic) = (format!("p{number}"), format!("t/{number}"));
            let node = if number < 2 { "a" } else { "b" };
            all.push(arrival(&name, &[(&topic, 10.0)], &[], node));
            all.push(arrival(&format!("d{number}"), &[], &["t/+"], node));
        }
        let advisor = advisor(&["a", "b"], all).unwrap();
        let after = advisor.after(&Change::Rebalance, 100).unwrap();
        for number in 0..4 {
            let from = if number < 2 { "a" } else { "b" };
            let topics = ["t/0", "t/1", "t/2", "t/3"];
            let nodes = nodes_after(&after, &format!("d{number}"), from, &topics);
            assert_eq!(nodes.len(), 1, "{:?}", after.moves);
        }
        let (now, then) = (advisor.now().traffic, after.traffic);
        assert_eq!(now.internal(), 40.0);
        assert_eq!(then.internal(), 40.0, "with both nodes in use: {then:?}");
    }

    #[test]
    fn a_session_of_a_node_that_dies_goes_where_its_topics_are_wanted_and_one_of_a_node_that_leaves_where_they_are_published()
     {
        let all = vec![
            arrival("dash", &[], &["t/+"], "a"),
            arrival("p1", &[("t/1", 1.0)], &[], "b"),
            arrival("other", &[], &["t/1"], "b"),
            arrival("p2", &[("t/2", 5.0)], &[], "c"),
        ];
        let advisor = advisor(&["a", "b", "c"], all).unwrap();
        let died = advisor.after(&Change::Death("a".into()), 0).unwrap();
        assert_eq!(died.nodes, ["b", "c"]);
        assert_eq!(died.moves.len(), 1, "{:?}", died.moves);
        assert_eq!((&*died.moves[0].from, &*died.moves[0].to), ("a", "b"));
        assert_eq!(died.moves[0].topics, ["t/1", "t/2"]);
        assert_eq!(died.flows, [[0.0, 0.0], [5.0, 0.0]]);
        let drained = advisor.after(&Change::Remove(only("a")), 0).unwrap();
        assert_eq!(drained.moves[0].to, "c");
    }

    #[test]
    fn no_more_sessions_move_than_may() {
        let advisor = advisor(&["a", "b"], crossed()).unwrap();
        let after = advisor.after(&Change::Rebalance, 2).unwrap();
        assert_eq!(after.moves.len(), 2);
        assert_eq!(after.traffic.internal(), 40.0);
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let unknown = vec![arrival("p", &[("t", 1.0)], &[], "x")];
        let error = advisor(&["a"], unknown).unwrap_err().to_string();
        assert!(error.starts_with("nodes: must name a node"), "{error}");
        let mut twice = vec![arrival("p", &[("t", 1.0)], &[], "a")];
        twice.push(twice[0].clone());
        let error = advisor(&["a"], twice).unwrap_err().to_string();
        assert!(error.starts_with("client: must come once"), "{error}");
        let advisor = advisor(&["a"], Vec::new()).unwrap();
        for (change, expected) in [
            (Change::Add("a".into()), "add: must be the name of no node"),
            (Change::Remove(only("b")), "remove: must be one of a, not b"),
            (Change::Death("a".into()), "death: must leave a node"),
        ] {
            let error = advisor.after(&change, 1).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_client_both_publishes_and_receives_a_topic_at_one_node() {
        let both = arrival("b", &[("t", 5.0)], &["t"], "a");
        let advisor = advisor(&["a", "b"], vec![both]).unwrap();
        assert_eq!(advisor.now().traffic.external_in(), 5.0);
        assert_eq!(advisor.now().traffic.external_out(), 5.0);
    }
}
