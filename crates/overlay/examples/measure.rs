//! Measures the overlay in virtual time and prints a table: bytes and delay by way of routing, signalling as topics grow,
//! convergence. Everything comes from a seed: two runs print the same.
//!
//! ```text
//! cargo run --release -p thicket-overlay --example measure
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use thicket_mqtt::Qos;
use thicket_overlay::record::Record;
use thicket_overlay::routing::{RootPolicy, RoutingMode};
use thicket_overlay::{
    Forward, Incarnation, Input, InterestKey, InterestValue, LinkId, NodeId, NodeSlot, Output,
    Overlay, OverlayConfig, Sharing, StreamId,
};
use thicket_session::{time::Instant, topic::TopicFilter};

/// Virtual milliseconds in one of the model: delays keep a tenth of a millisecond.
const SCALE: u64 = 10;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Normal with mean 10 and deviation 2.5 (sum of twelve uniform draws), in tenths, at least 1.
    fn delay(&mut self) -> u64 {
        let sum: f64 = (0..12).map(|_| self.below(1_000_000) as f64 / 1e6).sum();
        ((10.0 + 2.5 * (sum - 6.0)) * SCALE as f64).max(1.0) as u64
    }
}

enum What {
    Dial {
        from: usize,
        to: usize,
    },
    Bytes {
        to: usize,
        link: LinkId,
        bytes: Vec<u8>,
    },
    Wake(usize),
}

struct Cluster {
    now: u64,
    nodes: Vec<Overlay>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: BTreeMap<u64, What>,
    serial: u64,
    delays: Vec<Vec<u64>>,
    /// Other end of each link: node and link there.
    wires: BTreeMap<(usize, LinkId), (usize, LinkId)>,
    links: u32,
    arrived: Vec<u64>,
    copies: u64,
    numbers: u64,
    topics: BTreeMap<String, BTreeSet<usize>>,
    mode: RoutingMode,
}

impl Cluster {
    fn new(count: usize, mode: RoutingMode, policy: RootPolicy, delays: Vec<Vec<u64>>) -> Self {
        let start = |index: usize| {
            let address = format!("10.0.0.{index}:1883");
            let mut config = OverlayConfig::new(
                NodeId(index as u64 + 1),
                Incarnation(1),
                "measure",
                &address,
            );
            config.routing.mode = mode;
            config.routing.root_policy = policy;
            config.routing.maximum_trees = 20_000;
            let mut overlay = Overlay::new(config, Instant::from_millis(0), index as u64);
            overlay.set_resources(50, 50);
            let others = (0..count).filter(|other| *other != index);
            others.for_each(|other| {
                let address = format!("10.0.0.{other}:1883");
                overlay.handle_input(
                    Instant::from_millis(0),
                    Input::Discovered { address: &address },
                );
            });
            overlay
        };
        let mut cluster = Self {
            now: 0,
            nodes: (0..count).map(start).collect(),
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            serial: 0,
            delays,
            wires: BTreeMap::new(),
            links: 0,
            arrived: Vec::new(),
            copies: 0,
            numbers: 0,
            topics: BTreeMap::new(),
            mode,
        };
        (0..count).for_each(|index| cluster.round(index));
        cluster
    }

    fn later(&mut self, at: u64, what: What) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial)));
        self.bodies.insert(self.serial, what);
    }

    fn at(&self) -> Instant {
        Instant::from_millis(self.now)
    }

    fn run_until(&mut self, end: u64) {
        while let Some(Reverse((at, serial))) = self
            .events
            .peek()
            .copied()
            .filter(|Reverse((at, _))| *at <= end)
        {
            self.events.pop();
            self.now = at;
            let Some(what) = self.bodies.remove(&serial) else {
                continue;
            };
            match what {
                What::Wake(index) => {
                    if self.nodes[index]
                        .poll_timeout()
                        .is_some_and(|due| due <= self.at())
                    {
                        self.round(index);
                    }
                }
                What::Dial { from, to } => {
                    let (here, there) = (LinkId(self.links), LinkId(self.links + 1));
                    self.links += 2;
                    self.wires.insert((from, here), (to, there));
                    self.wires.insert((to, there), (from, here));
                    let address = format!("10.0.0.{to}:1883");
                    let now = self.at();
                    self.nodes[from].handle_input(
                        now,
                        Input::Dialled {
                            address: &address,
                            link: here,
                        },
                    );
                    self.nodes[to].handle_input(
                        now,
                        Input::LinkAccepted {
                            link: there,
                            bytes: &[],
                        },
                    );
                    self.round(from);
                }
                What::Bytes { to, link, bytes } => {
                    let mut taken = Vec::new();
                    let now = self.at();
                    self.nodes[to].handle_received(now, link, &bytes, |delivery| {
                        let sent = u64::from_le_bytes(
                            delivery.record.payload[..8]
                                .try_into()
                                .expect("eight bytes"),
                        );
                        taken.push((
                            delivery.origin,
                            delivery.record.number,
                            sent,
                            delivery.record.topic.to_owned(),
                        ));
                    });
                    for (origin, number, sent, topic) in taken {
                        if self
                            .topics
                            .get(&topic)
                            .is_some_and(|wanted| wanted.contains(&to))
                        {
                            self.arrived.push(self.now - sent);
                        }
                        self.copies += 1;
                        self.nodes[to].admitted(origin, number..=number);
                    }
                    self.round(to);
                }
            }
        }
        self.now = end;
    }

    fn round(&mut self, index: usize) {
        let now = self.at();
        self.nodes[index].end_round(now);
        let mut again = false;
        while let Some(output) = self.nodes[index].poll_output() {
            match output {
                Output::Dial { address } => {
                    let number = address
                        .trim_start_matches("10.0.0.")
                        .trim_end_matches(":1883");
                    let to: usize = number.parse().expect("one of ours");
                    let at = self.now + 2 * self.delays[index][to];
                    self.later(at, What::Dial { from: index, to });
                }
                Output::Flush(link) => {
                    let bytes = self.nodes[index].pending_output(link).to_vec();
                    self.nodes[index].handle_written(now, link, bytes.len());
                    if let Some(&(to, link)) = self.wires.get(&(index, link)) {
                        let at = self.now + self.delays[index][to];
                        self.later(at, What::Bytes { to, link, bytes });
                    }
                }
                Output::InterestChanged { slot, version, .. } => {
                    self.nodes[index].interests_applied(slot, version);
                    again = true;
                }
                Output::Close(link) => {
                    if let Some((to, there)) = self.wires.remove(&(index, link)) {
                        self.wires.remove(&(to, there));
                        self.nodes[to].handle_input(now, Input::Closed { link: there });
                    }
                }
                _ => {}
            }
        }
        if again {
            return self.round(index);
        }
        if let Some(at) = self.nodes[index].poll_timeout() {
            self.later(at.as_millis().max(self.now + 1), What::Wake(index));
        }
    }

    fn subscribe(&mut self, index: usize, topic: &str) {
        let key = InterestKey {
            filter: TopicFilter::new(topic).expect("a filter"),
            sharing: Sharing::Plain,
        };
        let value = InterestValue {
            qos: Qos::AtLeastOnce,
            persistent: false,
            weight: 1,
        };
        self.nodes[index].set_interest(key, value);
        self.topics.entry(topic.into()).or_default().insert(index);
    }

    fn publish(&mut self, index: usize, topic: &str, len: usize) {
        let wanted = self.topics.get(topic).cloned().unwrap_or_default();
        let is_flood = self.mode == RoutingMode::Flood;
        let destinations: Vec<NodeSlot> = (0..self.nodes.len())
            .filter(|other| *other != index && (is_flood || wanted.contains(other)))
            .filter_map(|other| self.nodes[index].slot_of(NodeId(other as u64 + 1)))
            .collect();
        if destinations.is_empty() {
            return;
        }
        self.numbers += 1;
        let mut payload = vec![0; len];
        payload[..8].copy_from_slice(&self.now.to_le_bytes());
        let mut record = Vec::new();
        Record {
            number: self.numbers,
            qos: Qos::AtLeastOnce,
            topic,
            payload: &payload,
            ..Record::default()
        }
        .encode(&mut record);
        let message = Forward {
            stream: StreamId(0),
            number: self.numbers,
            qos: Qos::AtLeastOnce,
            destinations: &destinations,
            interested: None,
            record: &record,
        };
        let now = self.at();
        self.nodes[index]
            .forward(now, message)
            .expect("room for it");
        self.round(index);
    }

    /// Data and control sent between all nodes, in bytes.
    fn bytes(&self) -> (u64, u64) {
        let counters = self
            .nodes
            .iter()
            .flat_map(|node| node.nodes())
            .map(|status| status.counters);
        counters.fold((0, 0), |(data, control), counters| {
            (
                data + counters.data_out_bytes,
                control + counters.control_out_bytes,
            )
        })
    }

    fn mean_delay_ms(&self) -> f64 {
        self.arrived.iter().sum::<u64>() as f64 / self.arrived.len().max(1) as f64 / SCALE as f64
    }
}

#[allow(clippy::needless_range_loop, reason = "both halves of a matrix")]
fn delays(count: usize, dice: &mut Dice) -> Vec<Vec<u64>> {
    let mut all = vec![vec![0; count]; count];
    for a in 0..count {
        for b in 0..a {
            let delay = dice.delay();
            all[a][b] = delay;
            all[b][a] = delay;
        }
    }
    all
}

/// Where publishers and subscribers sit: at one node each (0 %), or anywhere (50 %), or all at one (100 %).
#[derive(Clone, Copy)]
enum Locality {
    Zero,
    Half,
    Whole,
}

/// The paper's traffic (Overlays 6, in the text's reading): 20 publishers, each on a topic of its choice, 5 subscribers on published
/// topics, 10 messages a second each. `messages` each instead of 500. Data bytes, control bytes, mean delay.
fn paper_run(
    mode: RoutingMode,
    policy: RootPolicy,
    locality: Locality,
    topics: u64,
    messages: u64,
    seed: u64,
) -> (u64, u64, f64, usize) {
    let mut dice = Dice(seed);
    let delays = delays(5, &mut dice);
    let mut cluster = Cluster::new(5, mode, policy, delays);
    cluster.run_until(5_000);
    let (first, second) = (dice.below(5), dice.below(4));
    let other = (first + 1 + second) % 5;
    let place = |dice: &mut Dice, is_publisher: bool| match locality {
        Locality::Whole => first,
        Locality::Zero if is_publisher => first,
        Locality::Zero => other,
        Locality::Half => dice.below(5),
    } as usize;
    let publishers: Vec<(usize, String)> = (0..20)
        .map(|_| {
            (
                place(&mut dice, true),
                format!("topic-tree/{}/", dice.below(topics)),
            )
        })
        .collect();
    for _ in 0..5 {
        let topic = publishers[dice.below(20) as usize].1.clone();
        let index = place(&mut dice, false);
        cluster.subscribe(index, &topic);
        cluster.round(index);
    }
    cluster.run_until(8_000);
    let (data, control) = cluster.bytes();
    for _ in 0..messages {
        for (index, topic) in &publishers {
            cluster.publish(*index, topic, 1024);
        }
        let next = cluster.now + 100 * SCALE;
        cluster.run_until(next);
    }
    cluster.run_until(cluster.now + 3_000);
    let (data_after, control_after) = cluster.bytes();
    (
        data_after - data,
        control_after - control,
        cluster.mean_delay_ms(),
        cluster.arrived.len(),
    )
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = values.collect();
    all.iter().sum::<f64>() / all.len().max(1) as f64
}

fn main() {
    println!(
        "bytes between nodes, topic against flood (10 distributions, 20 publishers, 5 subscribers, 1024 bytes)"
    );
    for topics in [3, 30, 60] {
        for (name, locality) in [("50 %", Locality::Half), ("100 %", Locality::Whole)] {
            let sum = |mode| {
                (0..10)
                    .map(|seed| paper_run(mode, RootPolicy::Capacity, locality, topics, 50, seed).0)
                    .sum::<u64>()
            };
            let (flood, tree, topic) = (
                sum(RoutingMode::Flood),
                sum(RoutingMode::Tree),
                sum(RoutingMode::Topic),
            );
            println!(
                "  {topics:>2} topics, locality {name:>5}: flood {flood:>9} B, tree {:.3}, topic {:.3} of it ({topic} B)",
                tree as f64 / flood as f64,
                topic as f64 / flood as f64
            );
        }
    }
    println!(
        "mean delay against flood (delay of a link normal(10, 2.5) ms one way, 60 draws, 30 topics)"
    );
    for (name, locality) in [("0 %", Locality::Zero), ("50 %", Locality::Half)] {
        let run = |mode, policy| {
            let runs = (100..160).map(|seed| paper_run(mode, policy, locality, 30, 3, seed));
            mean(runs.filter(|run| run.3 > 0).map(|run| run.2))
        };
        let flood = run(RoutingMode::Flood, RootPolicy::Capacity);
        let mesh = run(RoutingMode::Mesh, RootPolicy::Capacity);
        print!(
            "  locality {name:>4}: flood {flood:.2} ms; mesh {:.3}",
            mesh / flood
        );
        for policy in RootPolicy::ALL {
            print!(
                "; topic by {} {:.3}",
                policy.name(),
                run(RoutingMode::Topic, policy) / flood
            );
        }
        println!();
    }
    signalling();
    large();
}

/// Control between nodes over 500 seconds, topic against flood, and what a new topic costs.
fn signalling() {
    println!("control bytes, 5 nodes");
    let run = |mode, topics: u64, seconds: u64| {
        let mut dice = Dice(7);
        let delays = delays(5, &mut dice);
        let mut cluster = Cluster::new(5, mode, RootPolicy::Capacity, delays);
        cluster.run_until(5_000);
        let before = cluster.bytes().1;
        for topic in 0..topics {
            cluster.subscribe((topic % 5) as usize, &format!("topic-tree/{topic:04}/"));
        }
        (0..5).for_each(|index| cluster.round(index));
        cluster.run_until(7_000);
        for topic in 0..topics {
            cluster.publish(
                ((topic + 1) % 5) as usize,
                &format!("topic-tree/{topic:04}/"),
                1024,
            );
        }
        cluster.run_until(5_000 + seconds * 1000);
        cluster.bytes().1 - before
    };
    let (flood, topic) = (
        run(RoutingMode::Flood, 60, 500),
        run(RoutingMode::Topic, 60, 500),
    );
    println!(
        "  500 s, 60 topics: flood {flood} B, topic {topic} B, {:+.1} %",
        (topic as f64 / flood as f64 - 1.0) * 100.0
    );
    let (few, many) = (
        run(RoutingMode::Topic, 60, 20),
        run(RoutingMode::Topic, 180, 20),
    );
    println!(
        "  a new topic (subscription, first publication, acknowledgements): {} B a node",
        (many - few) / 120 / 5
    );
    let idle = run(RoutingMode::Topic, 0, 100);
    println!(
        "  idle: {} B/s a link, both directions, without TCP and IP",
        idle / 100 / 10
    );
}

/// 50 nodes and up to 10,000 topics.
fn large() {
    println!("50 nodes");
    for topics in [100_u64, 1_000, 10_000] {
        let mut dice = Dice(50);
        let delays = delays(50, &mut dice);
        let mut cluster = Cluster::new(50, RoutingMode::Topic, RootPolicy::Balance, delays);
        cluster.run_until(10_000);
        let before = cluster.bytes().1;
        let mut places = Vec::new();
        for topic in 0..topics {
            let name = format!("site/{topic}/temp");
            for _ in 0..3 {
                let index = dice.below(50) as usize;
                cluster.subscribe(index, &name);
            }
            places.push((dice.below(50) as usize, name));
        }
        (0..50).for_each(|index| cluster.round(index));
        cluster.run_until(16_000);
        for (number, (index, name)) in places.iter().enumerate() {
            cluster.publish(*index, name, 100);
            if number % 100 == 99 {
                cluster.run_until(cluster.now + 1_000);
            }
        }
        cluster.run_until(cluster.now + 5_000);
        let overviews: Vec<_> = cluster.nodes.iter().map(Overlay::overview).collect();
        let trees = mean(overviews.iter().map(|overview| overview.tree_count as f64));
        let bytes = mean(overviews.iter().map(|overview| overview.tree_bytes as f64));
        let roots: Vec<u64> = overviews[0].nodes.iter().map(|node| node.roots).collect();
        println!(
            "  {topics:>5} topics: {trees:.0} trees and {:.0} kB a node; roots {} to {}; control {:.0} B a topic and node",
            bytes / 1000.0,
            roots.iter().min().copied().unwrap_or(0),
            roots.iter().max().copied().unwrap_or(0),
            (cluster.bytes().1 - before) as f64 / topics as f64 / 50.0
        );
    }
}
