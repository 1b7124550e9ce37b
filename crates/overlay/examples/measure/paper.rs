//! The paper's traffic: bytes between nodes, and delay against flooding and against the best trees there are.

use std::collections::{BTreeMap, BTreeSet};

use thicket_overlay::routing::{RootPolicy, RoutingMode};

use crate::cluster::{Cluster, Delays, Dice, MS, Routing, SECOND};

/// Where publishers and subscribers sit.
#[derive(Clone, Copy)]
enum Locality {
    /// All publishers at one node, all subscribers at another.
    Zero,
    /// Anywhere.
    Half,
    /// All at one.
    Whole,
}

/// What a run gave.
struct Run {
    data_bytes: u64,
    /// Mean, in ms; `None` if no message went to another node.
    delay: Option<f64>,
    /// The same if every publisher's node had the best tree of all over the nodes of its topic.
    best: f64,
    /// The same if all publishers of a topic shared the best tree over all its nodes, theirs included.
    best_shared: f64,
}

/// 20 publishers, each on a topic of its choice, 5 subscribers on published topics, 10 messages a second each (Overlays 6, as its
/// text reads); `messages` each, where the paper has 500.
fn play(routing: Routing, locality: Locality, topics: u64, messages: u64, seed: u64) -> Run {
    let mut dice = Dice(seed);
    let delays = Delays::wide(5, &mut dice);
    let mut cluster = Cluster::new(5, routing, delays);
    cluster.run_for(3 * SECOND);
    let (first, step) = (dice.below(5), dice.below(4));
    let other = (first + 1 + step) % 5;
    let place = |dice: &mut Dice, is_publisher: bool| match locality {
        Locality::Whole => first,
        Locality::Zero if is_publisher => first,
        Locality::Zero => other,
        Locality::Half => dice.below(5),
    } as usize;
    let mut publisher = |_| {
        (
            place(&mut dice, true),
            format!("topic-tree/{}/", dice.below(topics)),
        )
    };
    let publishers: Vec<(usize, String)> = (0..20).map(&mut publisher).collect();
    for _ in 0..5 {
        let topic = publishers[dice.below(20) as usize].1.clone();
        let index = place(&mut dice, false);
        cluster.subscribe(index, &topic);
    }
    cluster.run_for(2 * SECOND);
    let before = cluster.bytes().0;
    for _ in 0..messages {
        for (index, topic) in &publishers {
            cluster.publish(*index, topic, 1024);
        }
        cluster.run_for(SECOND / 10);
    }
    cluster.run_for(SECOND);
    let ways = Ways::of(&cluster, &publishers);
    Run {
        data_bytes: cluster.bytes().0 - before,
        delay: (!cluster.arrived.is_empty())
            .then(|| mean(cluster.arrived.iter().map(|took| *took as f64 / MS as f64))),
        best: ways.best(&cluster.delays, |way| (way.topic.clone(), way.from)),
        best_shared: ways.best(&cluster.delays, |way| way.topic.clone()),
    }
}

/// From a publisher to a node that wants its topic.
struct Way {
    topic: String,
    from: usize,
    to: usize,
}

struct Ways(Vec<Way>);

impl Ways {
    fn of(cluster: &Cluster, publishers: &[(usize, String)]) -> Self {
        let ways = publishers.iter().flat_map(|(from, topic)| {
            let to = cluster.wanted_elsewhere(*from, topic).into_iter();
            to.map(|to| Way {
                topic: topic.clone(),
                from: *from,
                to,
            })
        });
        Self(ways.collect())
    }

    /// The mean delay, in ms, if all ways with one key share a tree over their nodes, for each key the best one of all.
    fn best<K: Ord>(&self, delays: &Delays, key: impl Fn(&Way) -> K) -> f64 {
        let mut shared: BTreeMap<K, Vec<&Way>> = BTreeMap::new();
        for way in &self.0 {
            shared.entry(key(way)).or_default().push(way);
        }
        let least: u64 = shared.values().map(|ways| least_delay(delays, ways)).sum();
        least as f64 / self.0.len().max(1) as f64 / MS as f64
    }
}

/// The least sum of delays over any tree that spans exactly the nodes of these ways: every tree is tried.
fn least_delay(delays: &Delays, ways: &[&Way]) -> u64 {
    let nodes: BTreeSet<usize> = ways.iter().flat_map(|way| [way.from, way.to]).collect();
    let nodes: Vec<usize> = nodes.into_iter().collect();
    let trees = all_trees(nodes.len());
    let cost = |edges: &Vec<(usize, usize)>| {
        let distances = distances(delays, &nodes, edges);
        ways.iter()
            .map(|way| distances[&(way.from, way.to)])
            .sum::<u64>()
    };
    trees.iter().map(cost).min().unwrap_or(0)
}

/// Every tree over the numbers below `count`, by its edges: one for each Prüfer sequence.
fn all_trees(count: usize) -> Vec<Vec<(usize, usize)>> {
    if count < 3 {
        return vec![(1..count).map(|node| (0, node)).collect()];
    }
    let sequences = count.pow(count as u32 - 2);
    (0..sequences)
        .map(|mut number| {
            let mut sequence = Vec::new();
            for _ in 0..count - 2 {
                sequence.push(number % count);
                number /= count;
            }
            edges_of(count, &sequence)
        })
        .collect()
}

fn edges_of(count: usize, sequence: &[usize]) -> Vec<(usize, usize)> {
    let mut degrees = vec![1; count];
    sequence.iter().for_each(|node| degrees[*node] += 1);
    let mut edges = Vec::new();
    for &node in sequence {
        let leaf = degrees
            .iter()
            .position(|degree| *degree == 1)
            .expect("a tree has leaves");
        edges.push((leaf, node));
        degrees[leaf] -= 1;
        degrees[node] -= 1;
    }
    let last: Vec<usize> = (0..count).filter(|node| degrees[*node] == 1).collect();
    edges.push((last[0], last[1]));
    edges
}

fn distances(
    delays: &Delays,
    nodes: &[usize],
    edges: &[(usize, usize)],
) -> BTreeMap<(usize, usize), u64> {
    let mut found = BTreeMap::new();
    for &from in nodes {
        let mut open = vec![(from, 0)];
        while let Some((at, so_far)) = open.pop() {
            if found.insert((from, at), so_far).is_some() {
                continue;
            }
            for &(a, b) in edges {
                let (a, b) = (nodes[a], nodes[b]);
                let next = if a == at { b } else { a };
                if (a == at || b == at) && !found.contains_key(&(from, next)) {
                    open.push((next, so_far + delays.between(a, b)));
                }
            }
        }
    }
    found
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = values.collect();
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

/// Data bytes by way of routing.
pub fn bytes() {
    println!(
        "bytes between nodes of flood's (10 distributions, 20 publishers, 5 subscribers, 1024 bytes, 50 messages each)"
    );
    for topics in [3, 30, 60] {
        for (name, locality) in [("50 %", Locality::Half), ("100 %", Locality::Whole)] {
            let sum = |mode| {
                let run = |seed| play(Routing::by(mode), locality, topics, 50, seed).data_bytes;
                (0..10).map(run).sum::<u64>()
            };
            let (flood, tree, topic) = (
                sum(RoutingMode::Flood),
                sum(RoutingMode::Tree),
                sum(RoutingMode::Topic),
            );
            let of = |bytes: u64| bytes as f64 / flood as f64;
            println!(
                "  {topics:>2} topics, locality {name:>5}: tree {:.3}, topic {:.3} ({topic} B of {flood} B)",
                of(tree),
                of(topic)
            );
        }
    }
}

/// Mean delay by way of routing.
pub fn delay() {
    println!(
        "mean delay (delay of a link normal(10, 2.5) ms one way, idle links, 60 draws, 30 topics)"
    );
    for (name, locality) in [("0 %", Locality::Zero), ("50 %", Locality::Half)] {
        let runs = |mode, policy| -> Vec<Run> {
            let runs = (100..160).map(|seed| play(Routing { mode, policy }, locality, 30, 3, seed));
            runs.filter(|run| run.delay.is_some()).collect()
        };
        let flooded = runs(RoutingMode::Flood, RootPolicy::Capacity);
        let delay = |runs: &[Run]| mean(runs.iter().filter_map(|run| run.delay));
        let (flood, best) = (delay(&flooded), mean(flooded.iter().map(|run| run.best)));
        let shared = mean(flooded.iter().map(|run| run.best_shared));
        println!(
            "  locality {name:>4}: flood {flood:.2} ms; best tree for each publisher's node {best:.2} ms, for each topic {shared:.2} ms"
        );
        let modes = [RoutingMode::Mesh, RoutingMode::Tree].map(|mode| (mode, RootPolicy::Capacity));
        let policies = RootPolicy::ALL.map(|policy| (RoutingMode::Topic, policy));
        for (mode, policy) in modes.into_iter().chain(policies) {
            let took = delay(&runs(mode, policy));
            let name = format!("{} by {}", mode.name(), policy.name());
            println!(
                "    {name:<17} {took:>5.2} ms: {:.3} of flood, {:.3} of the best, {:.3} of the best for a topic",
                took / flood,
                took / best,
                took / shared
            );
        }
    }
}
