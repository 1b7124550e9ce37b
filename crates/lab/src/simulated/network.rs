//! The sites of a scenario as a world: nodes, links, their traffic, and which of them are cut.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use thicket_simulation::World;
use thicket_simulation::links::{Host, Link, LinkId};
use thicket_simulation::net::{Parting, Weather};

use super::playable::spec;
use crate::cluster::Repair;
use crate::delay::Delay;
use crate::results::{LinkTraffic, Phase};
use crate::scenario::{Reach, Scenario, System};
use crate::testbed::Carried;
use crate::topology::{Cut, LinkShape, Topology};

/// Longest time for nodes to discover each other, and for clients to connect, ms.
pub(super) const TIMEOUT_MS: u64 = 120_000;

/// Only the links have delays.
const STILL: Weather = Weather {
    link_delay: (0, 0),
    client_delay: (0, 0),
    ..Weather::CALM
};
/// How far the wall clocks of all nodes are ahead where one may jump: more than it may jump back.
const AHEAD_MS: u64 = 1_000_000_000_000;
/// Headers of a segment and of an acknowledgement: Ethernet, IPv4, and TCP with its time stamps.
const HEADER_BYTES: u64 = 14 + 20 + 32;

/// A world with the links of a scenario.
pub(super) struct SimulatedLab {
    pub world: World,
    pub topology: Topology,
    /// The two directions of each link, from its lower site first.
    ways: Vec<[LinkId; 2]>,
    /// The current settings of each link.
    shapes: Vec<LinkShape>,
    laws: Laws,
    cuts: Vec<Cut>,
    before: Vec<Carried>,
    since: u64,
}

/// Laws with their quantiles, which links share.
#[derive(Debug, Default)]
struct Laws(Vec<(Delay, Arc<[u64]>)>);

impl Laws {
    /// The quantiles of a law in microseconds.
    fn quantiles(&mut self, law: &Delay) -> Arc<[u64]> {
        if let Some((_, known)) = self.0.iter().find(|(known, _)| known == law) {
            return Arc::clone(known);
        }
        let micros = |ms: f64| (1_000.0 * ms).round() as u64;
        let all: Arc<[u64]> = law.quantiles().into_iter().map(micros).collect();
        // A constant has one, and each link may have its own.
        if !law.is_constant() {
            self.0.push((*law, Arc::clone(&all)));
        }
        all
    }
}

/// One direction of a link in virtual time. What TCP would keep at the sender waits in the link, so its queue has no limit.
fn link(shape: &LinkShape, laws: &mut Laws) -> Link {
    Link {
        delays_micros: laws.quantiles(&shape.delay),
        bytes_per_second: shape.bandwidth_mbit.map(|mbit| (mbit * 125_000.0) as u64),
        loss_millionths: (shape.loss_percent * 10_000.0).round() as u64,
        header_bytes: HEADER_BYTES,
    }
}

impl SimulatedLab {
    /// Starts all nodes except those that join later.
    pub fn new(
        scenario: &Scenario,
        system: &System,
        repeat: u64,
        interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let names = scenario.network.names()?;
        let topology = Topology::of_repeat(&scenario.network, &names, scenario.seed, repeat)?;
        let mut world = World::new(scenario.seed + repeat, STILL);
        world.net.is_thorough = false;
        world.stop_when(Arc::clone(interrupted));
        let mut laws = Laws::default();
        let ways: Vec<[LinkId; 2]> = (topology.links.iter())
            .map(|it| [(); 2].map(|()| world.net.links.add(link(&it.shape, &mut laws))))
            .collect();
        for from in 0..names.len() {
            for to in (0..names.len()).filter(|to| *to != from) {
                let (mut at, mut over) = (from, Vec::new());
                for link in topology.path(from, to).unwrap_or_default() {
                    over.push(ways[link][usize::from(topology.links[link].a != at)]);
                    at = topology.other_end(link, at);
                }
                let hosts = (Host::Node(from), Host::Node(to));
                world.net.links.set_route(hosts.0, hosts.1, over);
            }
        }
        let reach = Reach::of(&scenario.faults);
        for _ in &names {
            let mut spec = spec(system).map_err(|(key, why)| format!("{key}: {why}"))?;
            spec.stores = reach.disk;
            spec.wall_ahead = if reach.clock { AHEAD_MS } else { 0 };
            world.add_node(spec);
        }
        let apart = topology.start_every.as_millis() as u64;
        let all = names.iter().enumerate();
        let at_first = all.filter(|(_, name)| !topology.later.contains(name));
        for (place, (node, _)) in at_first.enumerate() {
            if place > 0 {
                world.run_for(apart);
            }
            world.start(node);
        }
        let mut lab = Self {
            world,
            shapes: topology.links.iter().map(|link| link.shape).collect(),
            topology,
            ways,
            laws,
            cuts: Vec::new(),
            before: Vec::new(),
            since: 0,
        };
        lab.mark();
        Ok(lab)
    }

    /// The place of a site.
    pub fn site(&self, name: &str) -> Option<usize> {
        self.topology.sites.iter().position(|site| site == name)
    }

    /// Sets the wall clock of a site's node so far ahead of the others, or behind them, in ms.
    pub fn set_clock(&mut self, site: usize, ahead: i64) {
        self.world.nodes[site].spec.wall_ahead = AHEAD_MS.saturating_add_signed(ahead);
    }

    /// The current settings of a link.
    pub fn shape(&self, at: usize) -> &LinkShape {
        &self.shapes[at]
    }

    /// Changes the settings of a link from now on.
    pub fn set_link(&mut self, at: usize, shape: &LinkShape) {
        self.shapes[at] = *shape;
        for way in self.ways[at] {
            let changed = link(shape, &mut self.laws);
            self.world.net.links.set(way, changed);
        }
    }

    /// Cuts links until they are healed: what is sent over them waits, as TCP would retransmit it.
    pub fn cut_links(&mut self, cuts: Vec<Cut>) {
        self.cuts.extend(cuts);
        self.part_by_cuts();
    }

    /// Heals links; they have the scenario's settings again.
    pub fn heal_links(&mut self, links: impl IntoIterator<Item = usize>) {
        for link in links {
            self.cuts.retain(|cut| cut.link != link);
            let shape = self.topology.links[link].shape;
            self.set_link(link, &shape);
        }
        self.part_by_cuts();
    }

    /// Routes are static: two nodes are partitioned while a link between them is cut, one way if only what one of them sends crosses a cut.
    fn part_by_cuts(&mut self) {
        let count = self.topology.sites.len();
        let pairs = (0..count).flat_map(|a| (a + 1..count).map(move |b| (a, b)));
        for (a, b) in pairs {
            let is_cut = |from, to| self.topology.is_cut(from, to, &self.cuts);
            let wanted = match (is_cut(a, b), is_cut(b, a)) {
                (true, true) => Some(Parting::Held),
                (true, false) => Some(Parting::OneWay { from: a }),
                (false, true) => Some(Parting::OneWay { from: b }),
                (false, false) => None,
            };
            let now = self.world.net.parting(a, b);
            if now.is_some() && now != wanted {
                self.world.net.heal(a, b);
            }
            if let Some(wanted) = wanted.filter(|_| now != wanted) {
                self.world.net.part(a, b, wanted);
            }
        }
    }

    fn carried(&self) -> Vec<Carried> {
        let one = |ways: &[LinkId; 2]| {
            let [ab, ba] = ways.map(|way| self.world.net.links.carried(way));
            Carried {
                bytes_ab: ab.bytes,
                bytes_ba: ba.bytes,
                packets_ab: ab.segments,
                packets_ba: ba.segments,
            }
        };
        self.ways.iter().map(one).collect()
    }

    /// Bytes that nodes have written to each other so far, without headers.
    pub fn own_bytes(&self) -> u64 {
        self.world.net.sent_between_nodes().values().sum()
    }

    /// The same, publications that running nodes have sent to each other, and the bytes of these.
    pub fn own_counters(&self) -> [u64; 3] {
        let nodes = 0..self.world.nodes.len();
        let traffic: Vec<_> = nodes.flat_map(|node| self.world.traffic(node)).collect();
        let messages = traffic.iter().map(|it| it.internal_out_messages).sum();
        let data = traffic.iter().map(|it| it.internal_out_bytes).sum();
        [self.own_bytes(), messages, data]
    }

    /// The longest time from a node's start until it and the others agreed on their trees, in seconds; `None` if one has not agreed yet.
    pub fn converged_max_s(&self) -> Option<f64> {
        let running = self.world.nodes.iter();
        let running = running.filter_map(|node| node.machines.as_ref());
        let all = running.map(|machines| machines.hub.view().overview().1.convergence_ms);
        let all: Option<Vec<u64>> = all
            .map(|took_ms| (took_ms > 0).then_some(took_ms))
            .collect();
        Some(all?.into_iter().max()? as f64 / 1e3)
    }

    /// What each running node reports on its repairs.
    pub fn repairs(&self) -> Vec<Option<Repair>> {
        let all = self.world.nodes.iter();
        all.map(|node| {
            let counters = node.machines.as_ref()?.hub.view().overview().1;
            Some(Repair {
                count: counters.repairs,
                last_s: counters.last_repair_ms as f64 / 1e3,
            })
        })
        .collect()
    }

    /// A phase begins.
    pub fn mark(&mut self) {
        (self.before, self.since) = (self.carried(), self.world.net.now);
    }

    /// A phase ends, and the next one begins; returns the traffic in it.
    pub fn phase(&mut self, name: &str) -> Phase {
        let now = self.carried();
        let sites = &self.topology.sites;
        let links = self.topology.links.iter().zip(now.iter().zip(&self.before));
        let phase = Phase {
            name: name.to_owned(),
            seconds: (self.world.net.now - self.since) as f64 / 1e3,
            links: links
                .map(|(link, (now, before))| LinkTraffic {
                    a: sites[link.a].clone(),
                    b: sites[link.b].clone(),
                    carried: now.since(before),
                })
                .collect(),
            brokers: Vec::new(),
        };
        self.mark();
        phase
    }
}
