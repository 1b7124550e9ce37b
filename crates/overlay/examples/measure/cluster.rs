//! A cluster in virtual time: every node's overlay, links with a delay each way, and nothing else. Nodes see whole milliseconds,
//! delays are in tenths of one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use thicket_mqtt::Qos;
use thicket_overlay::record::Record;
use thicket_overlay::routing::{RootPolicy, RoutingMode};
use thicket_overlay::{
    FarEnd, Forward, Incarnation, Input, InterestKey, InterestValue, LinkId, NodeId, NodeSlot,
    Output, Overlay, OverlayConfig, OverlayState, Sharing, StreamId,
};
use thicket_session::{time::Instant, topic::TopicFilter};

/// Tenths in a millisecond.
pub const MS: u64 = 10;
/// Tenths in a second.
pub const SECOND: u64 = 1000 * MS;

/// Numbers from a seed.
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Normal with mean 10 and deviation 2.5 ms (sum of twelve uniform draws), in tenths, at least 1.
    fn delay(&mut self) -> u64 {
        let sum: f64 = (0..12).map(|_| self.below(1_000_000) as f64 / 1e6).sum();
        ((10.0 + 2.5 * (sum - 6.0)) * MS as f64).max(1.0) as u64
    }
}

/// One way, between any two nodes.
#[derive(Clone)]
pub struct Delays(BTreeMap<(usize, usize), u64>);

impl Delays {
    /// As in the paper: normal(10, 2.5) ms.
    pub fn wide(nodes: usize, dice: &mut Dice) -> Self {
        let pairs = (0..nodes).flat_map(|a| (0..a).map(move |b| (b, a)));
        Self(pairs.map(|pair| (pair, dice.delay())).collect())
    }

    /// The same everywhere.
    pub fn same(nodes: usize, tenths: u64) -> Self {
        let pairs = (0..nodes).flat_map(|a| (0..a).map(move |b| (b, a)));
        Self(pairs.map(|pair| (pair, tenths)).collect())
    }

    /// To whole milliseconds.
    pub fn rounded(mut self) -> Self {
        self.0
            .values_mut()
            .for_each(|delay| *delay = (*delay).div_ceil(MS) * MS);
        self
    }

    pub fn between(&self, a: usize, b: usize) -> u64 {
        self.0.get(&(a.min(b), a.max(b))).copied().unwrap_or(0)
    }
}

/// How nodes route.
#[derive(Clone, Copy)]
pub struct Routing {
    pub mode: RoutingMode,
    pub policy: RootPolicy,
}

impl Routing {
    pub const fn by(mode: RoutingMode) -> Self {
        let policy = RootPolicy::Capacity;
        Self { mode, policy }
    }
}

enum Event {
    Dial {
        from: usize,
        to: usize,
    },
    Bytes {
        to: usize,
        link: LinkId,
        bytes: Vec<u8>,
    },
    Closed {
        at: usize,
        link: LinkId,
    },
    Round(usize),
    Wake(usize),
}

/// How a node ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its sockets close.
    Killed,
    /// Nothing comes from it any more.
    Silent,
}

/// All nodes.
pub struct Cluster {
    pub now: u64,
    pub nodes: Vec<Overlay>,
    pub delays: Delays,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    bodies: BTreeMap<u64, Event>,
    serial: u64,
    /// When each node's next round was ordered.
    rounds: Vec<Option<u64>>,
    ended: Vec<Option<End>>,
    /// Other end of each link: node and link there.
    wires: BTreeMap<(usize, LinkId), (usize, LinkId)>,
    links: u32,
    /// How long each message took to a node that wants it, in tenths.
    pub arrived: Vec<u64>,
    numbers: u64,
    topics: BTreeMap<String, BTreeSet<usize>>,
    mode: RoutingMode,
}

fn address(index: usize) -> String {
    format!("10.0.{}.{}:1883", index / 200, index % 200)
}

fn index_of(address: &str) -> usize {
    let numbers: Vec<usize> = address
        .split(['.', ':'])
        .filter_map(|part| part.parse().ok())
        .collect();
    numbers[2] * 200 + numbers[3]
}

impl Cluster {
    /// Nodes that start at once and hear of each other at once.
    pub fn new(count: usize, routing: Routing, delays: Delays) -> Self {
        let mut cluster = Self {
            now: 0,
            nodes: (0..count)
                .map(|index| start(index, count, routing))
                .collect(),
            delays,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            serial: 0,
            rounds: vec![None; count],
            ended: vec![None; count],
            wires: BTreeMap::new(),
            links: 0,
            arrived: Vec::new(),
            numbers: 0,
            topics: BTreeMap::new(),
            mode: routing.mode,
        };
        (0..count).for_each(|index| cluster.order_round(index));
        cluster
    }

    fn later(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.events.push(Reverse((at, self.serial)));
        self.bodies.insert(self.serial, event);
    }

    fn at(&self) -> Instant {
        Instant::from_millis(self.now / MS)
    }

    /// One round for all that happens to a node at one time.
    fn order_round(&mut self, index: usize) {
        if self.rounds[index] != Some(self.now) {
            self.rounds[index] = Some(self.now);
            self.later(self.now, Event::Round(index));
        }
    }

    pub fn run_for(&mut self, tenths: u64) {
        let end = self.now + tenths;
        while let Some(Reverse((at, serial))) = self
            .events
            .peek()
            .copied()
            .filter(|Reverse((at, _))| *at <= end)
        {
            self.events.pop();
            self.now = at;
            if let Some(event) = self.bodies.remove(&serial) {
                self.handle(event);
            }
        }
        self.now = end;
    }

    fn handle(&mut self, event: Event) {
        let now = self.at();
        let node = match &event {
            Event::Dial { from: node, .. }
            | Event::Bytes { to: node, .. }
            | Event::Closed { at: node, .. } => *node,
            Event::Round(node) | Event::Wake(node) => *node,
        };
        if self.ended[node].is_some() {
            return;
        }
        match event {
            Event::Wake(_) => {
                if self.nodes[node]
                    .poll_timeout()
                    .is_some_and(|due| due <= now)
                {
                    self.order_round(node);
                }
            }
            Event::Round(_) => self.round(node),
            Event::Dial { to, .. } => self.dial(node, to),
            Event::Closed { link, .. } => {
                self.nodes[node].handle_input(now, Input::Closed { link });
                self.order_round(node);
            }
            Event::Bytes { link, bytes, .. } => self.receive(node, link, &bytes),
        }
    }

    fn dial(&mut self, from: usize, to: usize) {
        let (now, address) = (self.at(), address(to));
        self.order_round(from);
        match self.ended[to] {
            None => {}
            Some(End::Killed) => {
                let error = "refused";
                return self.nodes[from].handle_input(
                    now,
                    Input::DialFailed {
                        address: &address,
                        error,
                    },
                );
            }
            Some(End::Silent) => return,
        }
        let (here, there) = (LinkId(self.links), LinkId(self.links + 1));
        self.links += 2;
        self.wires.insert((from, here), (to, there));
        self.wires.insert((to, there), (from, here));
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
                end: FarEnd::default(),
                bytes: &[],
            },
        );
    }

    fn receive(&mut self, to: usize, link: LinkId, bytes: &[u8]) {
        let now = self.at();
        let mut taken = Vec::new();
        self.nodes[to].handle_received(now, link, bytes, |delivery| {
            let (sent, _) = delivery
                .record
                .payload
                .split_first_chunk()
                .expect("a time stands first");
            taken.push((
                delivery.origin,
                delivery.record.number,
                u64::from_le_bytes(*sent),
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
            self.nodes[to].admitted(origin, number..=number);
        }
        self.order_round(to);
    }

    fn round(&mut self, index: usize) {
        let now = self.at();
        self.nodes[index].end_round(now);
        while let Some(output) = self.nodes[index].poll_output() {
            match output {
                Output::Dial { address } => {
                    let to = index_of(&address);
                    self.later(
                        self.now + 2 * self.delays.between(index, to),
                        Event::Dial { from: index, to },
                    );
                }
                Output::Flush(link) => {
                    let bytes = self.nodes[index].pending_output(link).to_vec();
                    self.nodes[index].handle_written(now, link, bytes.len());
                    if let Some(&(to, link)) = self.wires.get(&(index, link)) {
                        self.later(
                            self.now + self.delays.between(index, to),
                            Event::Bytes { to, link, bytes },
                        );
                    }
                }
                Output::InterestChanged { slot, version, .. } => {
                    self.nodes[index].interests_applied(slot, version);
                    self.later(self.now, Event::Round(index));
                }
                Output::Close(link) => self.close(index, link),
                _ => {}
            }
        }
        if let Some(at) = self.nodes[index].poll_timeout() {
            self.later((at.as_millis() * MS).max(self.now + 1), Event::Wake(index));
        }
    }

    fn close(&mut self, index: usize, link: LinkId) {
        if let Some((to, there)) = self.wires.remove(&(index, link)) {
            self.wires.remove(&(to, there));
            self.later(
                self.now + self.delays.between(index, to),
                Event::Closed {
                    at: to,
                    link: there,
                },
            );
        }
    }

    /// A node ends.
    pub fn end(&mut self, index: usize, how: End) {
        self.ended[index] = Some(how);
        let links: Vec<LinkId> = self
            .wires
            .keys()
            .filter(|(node, _)| *node == index)
            .map(|(_, link)| *link)
            .collect();
        if how == End::Killed {
            links.into_iter().for_each(|link| self.close(index, link));
        }
    }

    /// Nodes that did not end.
    pub fn alive(&self) -> impl Iterator<Item = &Overlay> {
        let is_alive = |(index, _): &(usize, &Overlay)| self.ended[*index].is_none();
        self.nodes
            .iter()
            .enumerate()
            .filter(is_alive)
            .map(|(_, node)| node)
    }

    /// Whether all nodes that are there are in RUNTIME, and have the same tree over exactly themselves.
    pub fn is_agreed(&self) -> bool {
        let nodes: Vec<NodeId> = self
            .alive()
            .map(|node| node.reachable())
            .next()
            .unwrap_or_default();
        let mut trees = self
            .alive()
            .map(|node| (node.state(), node.overview().single));
        let Some((_, first)) = trees.next() else {
            return false;
        };
        let count = self.alive().count();
        nodes.len() == count
            && first.nodes == nodes
            && trees.all(|(state, tree)| state == OverlayState::Runtime && tree == first)
    }

    /// Runs until the nodes agree, checked every millisecond; how long that took in ms. `None`: longer than a minute.
    pub fn time_to_agree(&mut self) -> Option<f64> {
        let begin = self.now;
        while self.now - begin < 60 * SECOND {
            if self.is_agreed() {
                return Some((self.now - begin) as f64 / MS as f64);
            }
            self.run_for(MS);
        }
        None
    }

    pub fn subscribe(&mut self, index: usize, topic: &str) {
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
        self.order_round(index);
    }

    /// Whether `topic` is wanted at a node other than `index`.
    pub fn wanted_elsewhere(&self, index: usize, topic: &str) -> Vec<usize> {
        let wanted = self.topics.get(topic).into_iter().flatten();
        wanted.copied().filter(|other| *other != index).collect()
    }

    /// A message of QoS 1 with `len` bytes of payload.
    pub fn publish(&mut self, index: usize, topic: &str, len: usize) {
        let destinations = match self.mode {
            RoutingMode::Flood => (0..self.nodes.len())
                .filter(|other| *other != index)
                .collect(),
            RoutingMode::Mesh | RoutingMode::Topic | RoutingMode::Tree => {
                self.wanted_elsewhere(index, topic)
            }
        };
        let slot = |other: &usize| self.nodes[index].slot_of(NodeId(*other as u64 + 1));
        let destinations: Vec<NodeSlot> = destinations.iter().filter_map(slot).collect();
        if destinations.is_empty() {
            return;
        }
        self.numbers += 1;
        let mut payload = self.now.to_le_bytes().to_vec();
        payload.resize(len.max(8), 0);
        let (number, qos, stream) = (self.numbers, Qos::AtLeastOnce, StreamId(0));
        let mut record = Vec::new();
        Record {
            number,
            qos,
            topic,
            payload: &payload,
            ..Record::default()
        }
        .encode(&mut record);
        let message = Forward {
            stream,
            number,
            qos,
            destinations: &destinations,
            interested: None,
            record: &record,
        };
        let now = self.at();
        self.nodes[index]
            .forward(now, message)
            .expect("room for it");
        self.order_round(index);
    }

    /// Data and control sent between all nodes, in bytes.
    pub fn bytes(&self) -> (u64, u64) {
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
}

fn start(index: usize, count: usize, routing: Routing) -> Overlay {
    let mut config = OverlayConfig::new(
        NodeId(index as u64 + 1),
        Incarnation(1),
        "measure",
        &address(index),
    );
    config.routing.mode = routing.mode;
    config.routing.root_policy = routing.policy;
    config.routing.maximum_trees = 20_000;
    let now = Instant::from_millis(0);
    let mut overlay = Overlay::new(config, now, index as u64);
    overlay.set_resources(50, 50);
    for other in (0..count).filter(|other| *other != index) {
        overlay.handle_input(
            now,
            Input::Discovered {
                address: &address(other),
            },
        );
    }
    overlay
}
