//! A whole cluster with its clients in one thread and in virtual time, from one seed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use thicket_mqtt::{Connect, Packet, ProtocolVersion};
use thicket_node::{
    Ban, ForgetError, HubMemoryReport, MembershipReport, MemoryReport, NodeLoad, Peer,
    SessionReport, Traffic, WorkerId,
};
use thicket_session::client::{CleanStart, ClientConfig};

use crate::{
    client::SimulatedClient,
    links::Host,
    net::{Net, Parting, Place, Wake, Weather},
    node::{Node, NodeSpec, node_of},
    pipe::{EndId, SocketId},
    tester::Tester,
};

/// Interval of discovery, ms.
const DISCOVERY_INTERVAL: u64 = 2_000;
/// A dial without an answer fails after this, ms.
const DIAL_TIMEOUT: u64 = 3_000;

/// A cluster and its clients.
#[derive(Debug)]
pub struct World {
    /// Time, connections and faults.
    pub net: Net,
    /// All nodes, running or not.
    pub nodes: Vec<Node>,
    /// All clients, connected or not.
    pub clients: Vec<SimulatedClient>,
    testers: Vec<Tester>,
    /// By due time; dials due at the same time in the order in which they were ordered.
    dials: BTreeMap<(u64, u64), Dial>,
    dials_so_far: u64,
    next_discovery: u64,
    stopped: Arc<AtomicBool>,
}

/// A dial of a node.
#[derive(Debug)]
struct Dial {
    from: usize,
    address: String,
    /// It has waited for an answer once.
    has_waited: bool,
}

/// A tester of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TesterId(usize);

impl World {
    /// A world without nodes.
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self {
            net: Net::new(seed, weather),
            nodes: Vec::new(),
            clients: Vec::new(),
            testers: Vec::new(),
            dials: BTreeMap::new(),
            dials_so_far: 0,
            next_discovery: 0,
            stopped: Arc::default(),
        }
    }

    /// Adds a node that does not run yet.
    pub fn add_node(&mut self, spec: NodeSpec) -> usize {
        let index = self.nodes.len();
        self.nodes.push(Node::new(index, spec, &mut self.net));
        index
    }

    /// Starts a node.
    pub fn start(&mut self, node: usize) {
        self.nodes[node].start(&mut self.net);
        self.next_discovery = self.net.now;
        // Otherwise the next step does it for all nodes that start at one time.
        if self.net.is_thorough {
            self.discover();
        }
    }

    /// Once the flag is set, nothing happens any more and time passes at once, so that a run ends soon.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        self.stopped = flag;
    }

    /// Whether that flag is set.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Drains a node until nothing is left. False: it did not finish.
    pub fn drain(&mut self, node: usize) -> bool {
        for _ in 0..100 {
            if self.nodes[node].drain(&mut self.net) == thicket_node::Drained::default() {
                return true;
            }
            self.run_for(100);
        }
        false
    }

    /// Bans a client, as an operator of a node does.
    pub fn ban(&mut self, node: usize, ban: &Ban) {
        let now = self.nodes[node].clock(&self.net);
        if let Some(machines) = &mut self.nodes[node].machines {
            machines.workers[0].operate(now).ban(1, ban);
            let worker = Peer::Worker(WorkerId(0));
            self.net.wake(self.net.now, Wake::Shell(node, worker));
        }
    }

    /// The bans that a node reports.
    pub fn bans(&self, node: usize) -> Vec<Ban> {
        let now = self.nodes[node].clock(&self.net);
        let machines = self.nodes[node].machines.as_ref();
        machines.map_or_else(Vec::new, |it| it.hub.view().bans(now))
    }

    /// Sets the load that a node measures, if it is up.
    pub fn set_load(&mut self, node: usize, load: NodeLoad) {
        let now = self.nodes[node].clock(&self.net);
        if let Some(machines) = &mut self.nodes[node].machines {
            machines.hub.operate(now).set_load(load);
            self.net.wake(self.net.now, Wake::Shell(node, Peer::Hub));
        }
    }

    /// The load of a node as another one knows it.
    pub fn load_seen_from(&self, node: usize, of: usize) -> Option<NodeLoad> {
        let machines = self.nodes[node].machines.as_ref()?;
        let id = self.nodes[of].id.to_string();
        let mut reports = machines.hub.view().nodes().into_iter();
        let report = reports.find(|report| report.id == id)?;
        report.state.map(|state| state.load)
    }

    /// Makes a node reload users and rights.
    pub fn reload(&mut self, node: usize, policy: thicket_access::Policy) {
        self.nodes[node].reload(policy, &mut self.net);
    }

    /// Stops a node in order.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].stop(&mut self.net);
    }

    /// Kills the process of a node at once.
    pub fn kill(&mut self, node: usize) {
        self.nodes[node].kill(&mut self.net);
    }

    /// A node that does not run loses its data directory, and its identity with it.
    pub fn lose_data(&mut self, node: usize) {
        self.nodes[node].lose_data(&mut self.net);
    }

    /// A node removes another one that is down from the cluster.
    pub fn forget(&mut self, node: usize, forgotten: &str) -> Result<(), ForgetError> {
        self.nodes[node].forget(&mut self.net, forgotten)
    }

    /// Cuts the power of a node's machine: as [`World::kill`], but its links stay half-open at the other nodes.
    pub fn lose_power(&mut self, node: usize) {
        self.nodes[node].lose_power(&mut self.net);
    }

    /// Pauses a node like a suspended virtual machine: its own clocks stop meanwhile.
    pub fn freeze(&mut self, node: usize, millis: u64) {
        self.net.pause(node, millis);
        self.nodes[node].stop_clocks_for(millis);
    }

    /// Pauses a node as SIGSTOP does; its clocks continue.
    pub fn pause(&mut self, node: usize) {
        self.net.pause_for_good(node);
    }

    /// Resumes a paused node, which then handles everything that has arrived meanwhile.
    pub fn resume(&mut self, node: usize) {
        self.net.resume(node);
        for peer in self.nodes[node].peers() {
            self.net.wake(self.net.now, Wake::Shell(node, peer));
        }
    }

    /// Writes to the disk of a node wait for this long from now.
    pub fn stall_disk(&mut self, node: usize, millis: u64) {
        self.nodes[node].disk.stall_until(self.net.now + millis);
    }

    /// How many threads a node has; none while it does not run.
    pub fn threads(&self, node: usize) -> usize {
        let machines = self.nodes[node].machines.as_ref();
        machines.map_or(0, |machines| machines.threads.len())
    }

    /// A thread of a node does one thing for this time: it has no round. The hub is on thread 0.
    pub fn keep_busy(&mut self, node: usize, thread: usize, millis: u64) {
        let until = self.net.now + millis;
        self.net.keep_busy(node, thread, until);
    }

    /// Lets time pass until a condition holds; returns how long that took, ms, or `None` if it did not within `limit`. Checked every 10 ms.
    pub fn run_until(&mut self, limit: u64, holds: impl Fn(&Self) -> bool) -> Option<u64> {
        let from = self.net.now;
        while !holds(self) {
            if self.net.now - from >= limit {
                return None;
            }
            self.run_for(10);
        }
        Some(self.net.now - from)
    }

    /// The disk of a node accepts this many more bytes.
    pub fn set_space(&mut self, node: usize, space: u64) {
        let node = &mut self.nodes[node];
        node.disk.space = space;
        if let Some(machines) = &mut node.machines {
            machines.tell_space(&node.disk);
        }
    }

    /// Discovery: every node receives the address of every other one that reaches it.
    fn discover(&mut self) {
        if self.net.now < self.next_discovery {
            return;
        }
        self.next_discovery = self.net.now + DISCOVERY_INTERVAL;
        let addresses: Vec<_> = self
            .nodes
            .iter()
            .map(|node| (node.index, node.address(), node.machines.is_some()))
            .collect();
        for node in &mut self.nodes {
            let index = node.index;
            let Some(machines) = &mut node.machines else {
                continue;
            };
            for (other, address, runs) in &addresses {
                if *runs && self.net.reaches(*other, index) {
                    machines.heard_of.push_back(address.clone());
                }
            }
            let at = self.net.now + self.net.random.below(100);
            self.net.wake(at, Wake::Shell(index, Peer::Hub));
        }
    }

    /// Runs the next machine, if one is due before `until`; returns which one.
    pub fn step(&mut self, until: u64) -> Option<Wake> {
        if self.is_stopped() {
            return None;
        }
        self.discover();
        let wake = self.net.next_wake(until)?;
        match wake {
            Wake::Shell(node, peer) => {
                self.nodes[node].round(peer, &mut self.net);
                self.note_dials(node);
            }
            Wake::Tester(index) => self.testers[index].round(&mut self.net),
            Wake::Client(index) => self.clients[index].round(&mut self.net),
            Wake::Dials | Wake::Nobody => {}
        }
        self.perform_dials();
        Some(wake)
    }

    /// Lets `millis` pass.
    pub fn run_for(&mut self, millis: u64) {
        let until = self.net.now + millis;
        while self.step(until).is_some() {}
        self.net.now = self.net.now.max(until);
    }

    fn note_dials(&mut self, node: usize) {
        for address in std::mem::take(&mut self.nodes[node].to_dial) {
            let at = self.net.now + self.net.random.between(0, 20);
            self.dial(
                at,
                Dial {
                    from: node,
                    address,
                    has_waited: false,
                },
            );
        }
    }

    fn dial(&mut self, at: u64, dial: Dial) {
        self.dials_so_far += 1;
        self.dials.insert((at, self.dials_so_far), dial);
        self.net.wake(at, Wake::Dials);
    }

    fn perform_dials(&mut self) {
        let now = self.net.now;
        if self
            .dials
            .first_key_value()
            .is_none_or(|((at, _), _)| *at > now)
        {
            return;
        }
        let later = self.dials.split_off(&(now + 1, 0));
        let due = std::mem::replace(&mut self.dials, later);
        for dial in due.into_values() {
            let (from, address) = (dial.from, dial.address);
            let to = node_of(&address).filter(|to| *to < self.nodes.len());
            let parting = to.and_then(|to| self.net.parting(from, to));
            let waits = match parting {
                Some(Parting::Held) => true,
                Some(Parting::OneWay { .. } | Parting::Vanish) => !dial.has_waited,
                Some(Parting::Cut) | None => false,
            };
            if waits {
                let again = Dial {
                    from,
                    address,
                    has_waited: true,
                };
                self.dial(now + DIAL_TIMEOUT, again);
                continue;
            }
            let to = to.filter(|to| parting.is_none() && self.nodes[*to].machines.is_some());
            let end = to.map(|to| {
                let hosts = [Host::Node(from), Host::Node(to)];
                let end = self.net.open(Place::Nobody, hosts);
                self.nodes[to].accept(&mut self.net, end.other());
                end
            });
            match &mut self.nodes[from].machines {
                Some(machines) => machines.dialled.push_back((address, end)),
                None => end.into_iter().for_each(|end| self.net.close(end)),
            }
            self.net.wake(now, Wake::Shell(from, Peer::Hub));
        }
    }

    /// Opens a connection to a node, for a tester.
    pub fn open(&mut self, node: usize, version: ProtocolVersion) -> TesterId {
        let index = self.testers.len();
        let end = self.net.open(
            Place::Tester(index),
            [Host::Tester(index), Host::Node(node)],
        );
        self.nodes[node].accept(&mut self.net, end.other());
        self.testers.push(Tester::new(version, end));
        TesterId(index)
    }

    /// A tester by its identifier.
    pub fn tester(&mut self, id: TesterId) -> &mut Tester {
        &mut self.testers[id.0]
    }

    /// Opens a connection and sends CONNECT; the CONNACK has not been received yet.
    pub fn connect(&mut self, node: usize, connect: Connect<'_>) -> TesterId {
        let id = self.open(node, connect.version);
        self.send(id, &Packet::Connect(Box::new(connect)));
        id
    }

    /// Sends a packet.
    pub fn send(&mut self, id: TesterId, packet: &Packet<'_>) {
        self.testers[id.0].send(packet);
        self.testers[id.0].write(&mut self.net);
    }

    /// Sends bytes.
    pub fn send_bytes(&mut self, id: TesterId, bytes: &[u8]) {
        self.testers[id.0].send_bytes(bytes);
        self.testers[id.0].write(&mut self.net);
    }

    /// Makes a tester check whether something has arrived.
    pub fn wake_tester(&mut self, id: TesterId) {
        self.net.wake(self.net.now, Wake::Tester(id.0));
    }

    /// The tester closes without a DISCONNECT.
    pub fn hang_up(&mut self, id: TesterId) {
        self.testers[id.0].close(&mut self.net);
    }

    /// Lets a second pass and compares what the tester received meanwhile.
    #[track_caller]
    pub fn expect(&mut self, id: TesterId, expected: &[&str]) {
        self.run_for(1_000);
        let heard = self.testers[id.0].take_heard();
        assert_eq!(heard, expected, "seed {}", self.net.seed);
    }

    /// Adds a client that is not connected yet.
    pub fn add_client(&mut self, config: ClientConfig) -> usize {
        let index = self.clients.len();
        self.clients.push(SimulatedClient::new(index, config));
        index
    }

    /// Connects a client to a node.
    pub fn connect_client(&mut self, client: usize, node: usize, clean_start: CleanStart) {
        let end = self.net.open(
            Place::Client(client),
            [Host::Client(client), Host::Node(node)],
        );
        self.nodes[node].accept(&mut self.net, end.other());
        self.clients[client].node = node;
        self.clients[client].connect(&mut self.net, end, clean_start);
        self.clients[client].finish(&mut self.net);
    }

    /// Breaks the connection of a client; what is in transit may be lost.
    pub fn cut_client(&mut self, client: usize) {
        if let Some(EndId { socket, .. }) = self.clients[client].end {
            self.net.cut(socket);
        }
    }

    /// Breaks a link; what is in transit may be lost.
    pub fn cut_link(&mut self, link: SocketId) {
        self.net.cut(link);
    }

    /// Whether every running node has every other one as up.
    pub fn is_whole(&self) -> bool {
        let running = || self.nodes.iter().filter_map(|node| node.machines.as_ref());
        let count = running().count();
        running().all(|machines| {
            let nodes = machines.hub.view().nodes();
            machines.hub.view().is_ready()
                && nodes
                    .iter()
                    .filter(|node| node.is_self || node.reachable)
                    .count()
                    == count
        })
    }

    /// Whether a node is ready to serve clients.
    pub fn is_ready(&self, node: usize) -> bool {
        let machines = self.nodes[node].machines.as_ref();
        machines.is_some_and(|machines| machines.hub.view().is_ready())
    }

    /// Whether every running node has every other one as up, with a link between any two that are not partitioned.
    pub fn is_meshed(&self) -> bool {
        let is_running = |node: &&Node| node.machines.is_some();
        let running: Vec<&Node> = self.nodes.iter().filter(is_running).collect();
        let pairs = running.iter().enumerate().flat_map(|(at, one)| {
            running[at + 1..]
                .iter()
                .map(|other| (one.index, other.index))
        });
        let expected = pairs
            .filter(|(one, other)| self.net.parting(*one, *other).is_none())
            .count();
        let links = |node: &Node| {
            let machines = node.machines.as_ref();
            machines.map_or(0, |machines| machines.hub.view().overview().0.links.len())
        };
        self.is_whole() && running.iter().all(|node| links(node) >= expected)
    }

    /// Whether every running node has every other one as up, and every persistent session has its backups.
    pub fn is_covered(&self) -> bool {
        let lacking = |node: usize| {
            let traffic = self.traffic(node);
            traffic
                .iter()
                .map(|it| it.under_replicated_sessions)
                .sum::<u64>()
        };
        self.is_whole() && (0..self.nodes.len()).all(|node| lacking(node) == 0)
    }

    /// The nodes that a node has as up, itself included, ascending.
    pub fn reachable_from(&self, node: usize) -> Vec<usize> {
        let machines = self.nodes[node].machines.as_ref();
        let seen = machines
            .map(|machines| machines.hub.view().nodes())
            .unwrap_or_default();
        let is_seen = |other: &&Node| {
            let id = other.id.to_string();
            seen.iter()
                .any(|report| report.id == id && (report.is_self || report.reachable))
        };
        self.nodes
            .iter()
            .filter(is_seen)
            .map(|node| node.index)
            .collect()
    }

    /// The incarnations of all nodes that a node has known.
    pub fn incarnations(&self, node: usize) -> Vec<u64> {
        let machines = self.nodes[node].machines.iter();
        machines
            .flat_map(|machines| machines.hub.view().nodes())
            .map(|report| report.incarnation)
            .collect()
    }

    /// All sessions on all nodes, with the node.
    pub fn sessions(&self) -> Vec<(usize, SessionReport)> {
        let of_node = |node: &Node| {
            let workers = node
                .machines
                .iter()
                .flat_map(|machines| machines.workers.iter());
            let index = node.index;
            workers
                .flat_map(|worker| worker.view().sessions())
                .map(move |session| (index, session))
                .collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// The memory of the workers of a node, one after the other.
    pub fn memory(&self, node: usize) -> Vec<MemoryReport> {
        let machines = self.nodes[node].machines.iter();
        machines
            .flat_map(|machines| machines.workers.iter().map(|worker| worker.view().memory()))
            .collect()
    }

    /// The memory of the hub of a node that runs.
    pub fn hub_memory(&self, node: usize) -> HubMemoryReport {
        let machines = self.nodes[node].machines.as_ref().expect("it runs");
        machines.hub.view().memory()
    }

    /// Sets the free CPU and memory of the nodes, in percent, and lets them publish it.
    pub fn say_resources(&mut self, free: &[u8]) {
        for _ in 0..3 {
            for (node, free) in self.nodes.iter_mut().zip(free) {
                let now = node.clock(&self.net);
                if let Some(machines) = &mut node.machines {
                    machines.hub.operate(now).set_resources(*free, *free);
                }
            }
            self.run_for(3_000);
        }
    }

    /// Whether the node's side of a partition has quorum, and how many members it counts.
    pub fn membership(&self, node: usize) -> MembershipReport {
        let machines = self.nodes[node].machines.as_ref().expect("it runs");
        machines.hub.view().membership()
    }

    /// The retained messages that a node keeps, also those that have expired and are not removed yet.
    pub fn retained_messages(&self, node: usize) -> u64 {
        let machines = self.nodes[node].machines.as_ref();
        machines.map_or(0, |machines| machines.hub.view().memory().retained_messages)
    }

    /// The most messages to clients that one round of a worker of a node has sent since the node started.
    #[must_use]
    pub fn most_delivered(&self, node: usize) -> u64 {
        let machines = self.nodes[node].machines.as_ref();
        machines.map_or(0, |machines| machines.most_delivered)
    }

    /// The counters of all workers and hubs of a node, one after the other.
    pub fn traffic(&self, node: usize) -> Vec<Traffic> {
        let machines = self.nodes[node].machines.iter();
        machines
            .flat_map(|machines| {
                let workers = machines
                    .workers
                    .iter()
                    .map(|worker| worker.view().traffic());
                workers
                    .chain([machines.hub.view().traffic()])
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}
