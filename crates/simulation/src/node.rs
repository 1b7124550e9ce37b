//! A node, running or not, and the rounds of its machines.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thicket_access::Policy;
use thicket_node::{
    ConnectionId, Drained, ForgetError, Hub, HubConfig, HubInput, HubOutput, Now, Peer, Worker,
    WorkerConfig, WorkerId, WorkerInput, WorkerOutput,
};
use thicket_overlay::{Incarnation, NodeId, OverlayConfig};
use thicket_session::time::{Instant, WallClock};

use crate::{
    disk::Disk,
    machines::{Letter, egress},
    net::{Net, Place, Wake, thread_of},
    pipe::EndId,
    slots::Slots,
    users,
};
pub use crate::{machines::Machines, spec::NodeSpec};

/// A node, running or not.
#[derive(Debug)]
pub struct Node {
    /// Its place in `World::nodes`.
    pub index: usize,
    /// How it is configured.
    pub spec: NodeSpec,
    /// Its identity.
    pub id: NodeId,
    incarnation: u64,
    /// Added to the time of the world for the node's own monotonic clock.
    clock_ahead: u64,
    /// How long its clocks have been stopped in all, ms.
    clock_behind: u64,
    /// Its machines, while it runs.
    pub machines: Option<Machines>,
    /// The data that it stored.
    pub disk: Disk,
    /// Dials ordered in this round, for the world to perform.
    pub to_dial: Vec<String>,
    /// Events that the machines reported to their operator.
    pub events: VecDeque<(u64, thicket_node::Event)>,
    /// How often it has marked another node as down.
    pub downs: u64,
}

/// The place of the node with an address.
pub(crate) fn node_of(address: &str) -> Option<usize> {
    let (name, _) = address.split_once(':')?;
    name.strip_prefix("node-")?.parse().ok()
}

/// Events kept for the message of a failed test.
const KEPT_EVENTS: usize = 200;

impl Node {
    /// A node that does not run yet.
    pub fn new(index: usize, spec: NodeSpec, net: &mut Net) -> Self {
        Self {
            index,
            spec,
            id: NodeId(net.random.next()),
            incarnation: 0,
            clock_ahead: net.random.below(1_000_000),
            clock_behind: 0,
            machines: None,
            disk: Disk::default(),
            to_dial: Vec::new(),
            events: VecDeque::new(),
            downs: 0,
        }
    }

    /// The address where other nodes dial it.
    pub fn address(&self) -> String {
        format!("node-{}:1883", self.index)
    }

    /// The current time of its clocks.
    pub fn clock(&self, net: &Net) -> Now {
        let elapsed = self.elapsed(net.now);
        Now {
            instant: Instant::from_millis(elapsed + self.clock_ahead),
            wall: WallClock::from_unix_millis(1_700_000_000_000 + elapsed + self.spec.wall_ahead),
        }
    }

    /// Elapsed time on the node's clocks, ms.
    fn elapsed(&self, now: u64) -> u64 {
        let drifted = now.saturating_add_signed(now as i64 * self.spec.drift_ppm / 1_000_000);
        drifted.saturating_sub(self.clock_behind)
    }

    /// The time of the world at which the node's monotonic clock shows `instant`: not later, at most a millisecond earlier.
    fn time_of(&self, instant: Instant) -> u64 {
        let elapsed = instant.as_millis().saturating_sub(self.clock_ahead) + self.clock_behind;
        let ppm = 1_000_000 + self.spec.drift_ppm;
        (elapsed as i128 * 1_000_000 / i128::from(ppm)) as u64
    }

    /// The node's clocks stop for this long from now. It must not run meanwhile.
    pub(crate) const fn stop_clocks_for(&mut self, millis: u64) {
        self.clock_behind += millis;
    }

    /// The next start has the first incarnation again: its file was lost, or its clock was set back.
    pub const fn forget_incarnation(&mut self) {
        self.incarnation = 0;
    }

    /// The next start is that of another node at the same address: the data directory was lost, with the identity in it. It must not run.
    pub fn lose_data(&mut self, net: &mut Net) {
        self.disk = Disk::default();
        self.id = NodeId(net.random.next());
        self.incarnation = 0;
    }

    /// Starts the node, with a higher incarnation than before.
    pub fn start(&mut self, net: &mut Net) {
        self.disk.repair();
        self.incarnation += 1;
        let incarnation = Incarnation(self.incarnation);
        let now = self.clock(net);
        let worker = |id: u8, seed: u64| {
            let config = WorkerConfig {
                node: self.id,
                incarnation,
                workers: self.spec.workers,
                listeners: self.spec.listeners.clone(),
                limits: self.spec.limits.clone(),
                tenants: self.spec.tenants.clone(),
                stores: self.spec.stores,
                small_log_bytes: self.spec.small_log_bytes,
                sync_part_bytes: self.spec.sync_part_bytes,
                backups: self.spec.backups,
                waits_for_backups: true,
            };
            Worker::new(WorkerId(id), config, seed)
        };
        let mut workers: Vec<Worker> = (0..self.spec.workers)
            .map(|id| worker(id, net.random.next()))
            .collect();
        let mut overlay = OverlayConfig::new(
            self.id,
            incarnation,
            &self.spec.cluster_name,
            &self.address(),
        );
        if let Some(name) = &self.spec.name {
            overlay.name.clone_from(name);
        }
        overlay.routing.mode = self.spec.routing;
        overlay.routing.root_policy = self.spec.root_policy;
        overlay.limits = self.spec.overlay_limits.clone();
        if !self.spec.tunnels {
            overlay.timing.tunnel_after = Duration::from_secs(1_000_000);
        }
        let config = HubConfig {
            workers: self.spec.workers,
            overlay,
            partition: self.spec.partition,
            discovery_grace: Duration::from_millis(300),
            restart_grace: self.spec.restart_grace,
            retained: self.spec.retained,
            tenants: self.spec.tenants.clone(),
            backups: self.spec.backups,
            hint_bytes: self.spec.hint_bytes,
            on_full: self.spec.limits.on_full,
            stores: self.spec.stores,
            redirection: self.spec.redirection.clone(),
        };
        let mut hub = Hub::new(config, now, net.random.next());
        self.disk.recover(now, &mut workers, &mut hub);
        let count = workers.len();
        self.machines = Some(Machines {
            hub,
            threads: (0..count).map(|_| Slots::default()).collect(),
            mail: BTreeMap::new(),
            accepts: (0..count).map(|_| VecDeque::new()).collect(),
            is_open: false,
            verdicts: (0..count).map(|_| VecDeque::new()).collect(),
            dialled: VecDeque::new(),
            heard_of: VecDeque::new(),
            stuck: BTreeMap::new(),
            delivered: BTreeMap::new(),
            most_delivered: 0,
            workers,
        });
        for peer in self.peers() {
            net.wake(net.now, Wake::Shell(self.index, peer));
        }
    }

    /// Stops the node in order: clients and other nodes are notified, as far as the connections accept the bytes at once.
    pub fn stop(&mut self, net: &mut Net) {
        let now = self.clock(net);
        for peer in self.peers() {
            let Some(machines) = &mut self.machines else {
                return;
            };
            match peer {
                Peer::Worker(id) => machines.workers[usize::from(id.0)].shut_down(now),
                Peer::Hub => machines.hub.shut_down(now),
            }
            self.finish_round(peer, net);
        }
        self.drop_machines(net);
    }

    /// As [`Self::kill`], but the links do not close at the other nodes.
    pub(crate) fn lose_power(&mut self, net: &mut Net) {
        let threads = self.machines.iter_mut().flat_map(|it| &mut it.threads);
        for slots in threads {
            for link in slots.of(Peer::Hub) {
                if let Some(slot) = slots.remove(link) {
                    net.leave_half_open(slot.end);
                }
            }
        }
        self.drop_machines(net);
    }

    fn drop_machines(&mut self, net: &mut Net) {
        net.forget_arrivals(self.index);
        if let Some(machines) = self.machines.take() {
            let slots = machines.threads.into_iter().flat_map(|slots| slots.slots);
            for slot in slots.flatten() {
                net.close(slot.end);
            }
            let letters = machines.mail.into_values().flatten();
            for (_, letter) in letters {
                if let Letter::Socket(end, _) = letter {
                    net.close(end);
                }
            }
            for (_, end) in machines.accepts.into_iter().flatten() {
                net.close(end);
            }
        }
    }

    /// Replaces users and rights.
    pub fn reload(&mut self, policy: Policy, net: &mut Net) {
        let (now, policy) = (self.clock(net), Arc::new(policy));
        self.spec.policy = Some(Arc::clone(&policy));
        for peer in self.peers() {
            if let (Peer::Worker(id), Some(machines)) = (peer, &mut self.machines) {
                let policy = Arc::clone(&policy);
                machines.workers[usize::from(id.0)]
                    .handle_input(now, WorkerInput::Reloaded { policy });
            }
            net.wake(net.now, Wake::Shell(self.index, peer));
        }
    }

    /// One step of draining the node; returns what is left.
    pub fn drain(&mut self, net: &mut Net) -> Drained {
        let now = self.clock(net);
        let mut left = Drained::default();
        // First the hub: from now on no client is sent here.
        if let Some(machines) = &mut self.machines {
            machines.hub.operate(now).drain();
        }
        for worker in self.machines.iter_mut().flat_map(|it| &mut it.workers) {
            let Drained {
                connections,
                sessions,
            } = worker.operate(now).drain();
            left.connections += connections;
            left.sessions += sessions;
        }
        for peer in self.peers() {
            net.wake(net.now, Wake::Shell(self.index, peer));
        }
        left
    }

    /// The node is not drained any more: it takes clients again.
    pub fn end_drain(&mut self, net: &mut Net) {
        let now = self.clock(net);
        if let Some(machines) = &mut self.machines {
            machines.hub.operate(now).end_drain();
            for worker in &mut machines.workers {
                worker.operate(now).end_drain();
            }
        }
        for peer in self.peers() {
            net.wake(net.now, Wake::Shell(self.index, peer));
        }
    }

    /// Kills the process at once; what it stored is kept, what it had not written to a socket is lost.
    pub fn kill(&mut self, net: &mut Net) {
        self.drop_machines(net);
    }

    /// Its machines: the workers and the hub.
    pub fn peers(&self) -> Vec<Peer> {
        (0..self.spec.workers)
            .map(|id| Peer::Worker(WorkerId(id)))
            .chain([Peer::Hub])
            .collect()
    }

    /// Removes a node that is down from the cluster.
    pub fn forget(&mut self, net: &mut Net, node: &str) -> Result<(), ForgetError> {
        let now = self.clock(net);
        let machines = self.machines.as_mut().expect("it runs");
        let forgotten = machines.hub.operate(now).forget(node).map(drop);
        net.wake(net.now, Wake::Shell(self.index, Peer::Hub));
        forgotten
    }

    /// Accepts a connection on one of the threads.
    pub fn accept(&mut self, net: &mut Net, end: EndId) {
        let Some(machines) = &mut self.machines else {
            net.close(end);
            return;
        };
        let thread = net.random.below(machines.workers.len() as u64) as usize;
        machines.accepts[thread].push_back((net.now, end));
        let peer = Peer::Worker(WorkerId(thread as u8));
        net.wake(net.now, Wake::Shell(self.index, peer));
    }

    /// One round of a worker, or of the hub.
    pub fn round(&mut self, peer: Peer, net: &mut Net) {
        // A wake-up may remain from a start with more workers.
        if self.machines.is_none() || !self.peers().contains(&peer) {
            return;
        }
        let was_stuck = |machines: &Machines| machines.stuck.contains_key(&peer);
        if self.machines.as_ref().is_some_and(was_stuck) {
            self.finish_round(peer, net);
            let is_over = self.machines.as_ref().is_some_and(|it| !was_stuck(it));
            if !is_over {
                return;
            }
        }
        let mut sources = vec![Source::Timeout, Source::Accepts, Source::Others];
        sources.extend(self.peers().into_iter().map(Source::Mail));
        let machines = self.machines.as_ref().expect("looked at above");
        let slots = &machines.threads[thread_of(peer)];
        let arrived = net.take_arrived(self.index, peer);
        let to_read = arrived.unwrap_or_else(|| slots.of(peer));
        sources.extend(to_read.into_iter().map(Source::Read));
        net.random.shuffle(&mut sources);
        for source in sources {
            self.take(source, peer, net);
        }
        self.finish_round(peer, net);
        self.set_timeout(peer, net);
        let (least, most) = self.spec.round_millis;
        if most > 0 {
            let at = net.now + net.random.between(least, most);
            net.keep_busy(self.index, thread_of(peer), at);
        }
    }

    /// Stores what must be stored before the round may continue; false: it cannot continue now, or the node has ended.
    fn store(
        &mut self,
        now: Now,
        peer: Peer,
        to_flush: &mut Vec<ConnectionId>,
        net: &mut Net,
    ) -> bool {
        let Some(machines) = &mut self.machines else {
            return false;
        };
        if let Some(until) = self.disk.stalled_until(net.now)
            && machines.has_unstored(now, peer)
        {
            machines.stuck.insert(peer, std::mem::take(to_flush));
            net.keep_busy(self.index, thread_of(peer), until);
            net.wake(until, Wake::Shell(self.index, peer));
            return false;
        }
        machines.store(now, peer, &mut self.disk);
        if self.disk.has_failed() {
            self.kill(net);
            return false;
        }
        true
    }

    fn set_timeout(&self, peer: Peer, net: &mut Net) {
        let Some(machines) = &self.machines else {
            return;
        };
        let at = match peer {
            Peer::Worker(id) => machines.workers[usize::from(id.0)].poll_timeout(),
            Peer::Hub => machines.hub.poll_timeout(),
        };
        if let Some(at) = at {
            let at = self.time_of(at);
            net.wake(at.max(net.now + 1), Wake::Shell(self.index, peer));
        }
    }

    fn take(&mut self, source: Source, peer: Peer, net: &mut Net) {
        let now = self.clock(net);
        let index = self.index;
        let Some(machines) = &mut self.machines else {
            return;
        };
        match source {
            Source::Timeout => match peer {
                Peer::Worker(id) => {
                    machines.workers[usize::from(id.0)].handle_input(now, WorkerInput::Timeout)
                }
                Peer::Hub => machines.hub.handle_input(now, HubInput::Timeout),
            },
            Source::Mail(from) => {
                while let Some((_, letter)) = machines
                    .mail
                    .get_mut(&(from, peer))
                    .and_then(|letters| letters.pop_front_if(|(at, _)| *at <= net.now))
                {
                    machines.open(index, now, from, peer, letter, net);
                }
            }
            Source::Read(connection) => machines.read(now, peer, connection, net),
            Source::Accepts => {
                if let Peer::Worker(id) = peer {
                    machines.accept(index, now, id, net);
                }
            }
            Source::Others => match peer {
                Peer::Worker(id) => machines.answer_verdicts(now, id, net),
                Peer::Hub => machines.send_to_hub(index, now, net),
            },
        }
    }

    /// Ends the round and performs outputs until there are none left.
    fn finish_round(&mut self, peer: Peer, net: &mut Net) {
        let now = self.clock(net);
        let stuck = |machines: &mut Machines| machines.stuck.remove(&peer);
        let mut to_flush = self.machines.as_mut().and_then(stuck).unwrap_or_default();
        for turn in 0.. {
            assert!(turn < 10_000, "a round does not end (seed {})", net.seed);
            if let Some(machines) = &mut self.machines {
                machines.end_round(now, peer);
            }
            if !self.store(now, peer, &mut to_flush, net) {
                return;
            }
            match peer {
                Peer::Worker(id) => self.perform_worker(now, id, &mut to_flush, net),
                Peer::Hub => self.perform_hub(now, &mut to_flush, net),
            }
            if !self.store(now, peer, &mut to_flush, net) {
                return;
            }
            let Some(machines) = &mut self.machines else {
                return;
            };
            machines.add_blocked(peer, &mut to_flush);
            for connection in std::mem::take(&mut to_flush) {
                machines.flush(now, peer, connection, net);
            }
            if !machines.wants_round(peer) {
                machines.threads[thread_of(peer)].free_removed();
                if machines.opens() {
                    for peer in self.peers() {
                        net.wake(net.now, Wake::Shell(self.index, peer));
                    }
                }
                return;
            }
        }
    }

    fn perform_worker(
        &mut self,
        now: Now,
        id: WorkerId,
        to_flush: &mut Vec<ConnectionId>,
        net: &mut Net,
    ) {
        let index = self.index;
        let Some(machines) = &mut self.machines else {
            return;
        };
        let (thread, peer) = (usize::from(id.0), Peer::Worker(id));
        while let Some(output) = egress(machines.workers[thread].egress()).poll_output() {
            match output {
                WorkerOutput::Flush(connection) => to_flush.push(connection),
                WorkerOutput::Close(connection) => machines.close(now, peer, connection, net),
                WorkerOutput::SetReading(connection, reads) => {
                    if let Some(slot) = machines.threads[thread].get_mut(connection) {
                        slot.is_paused = !reads;
                        net.expect(net.now, index, peer, connection);
                        net.wake(net.now + 1, Wake::Shell(index, peer));
                    }
                }
                WorkerOutput::Handover {
                    connection,
                    to,
                    state,
                } => {
                    machines.flush(now, peer, connection, net);
                    if let Some(slot) = machines.threads[thread].remove(connection) {
                        net.give(slot.end, Place::Nobody);
                        machines.post(index, peer, to, Letter::Socket(slot.end, state), net);
                    }
                }
                WorkerOutput::HubMessage(message) => {
                    machines.post(index, peer, Peer::Hub, Letter::HubMessage(id, message), net)
                }
                WorkerOutput::WorkerMessage { to, message } => machines.post(
                    index,
                    peer,
                    Peer::Worker(to),
                    Letter::WorkerMessage(to, message),
                    net,
                ),
                asked @ WorkerOutput::Authenticate { connection, .. } => {
                    let verdict = users::ask(&self.spec, &asked, now);
                    machines.answer_later(index, id, connection, verdict, net);
                }
                WorkerOutput::RemoveLogBefore { segment } => {
                    self.disk.remove_before(id.0, segment);
                }
                // No operator in a simulation publishes or reads traces.
                WorkerOutput::Published { .. }
                | WorkerOutput::Observed(_)
                | WorkerOutput::Traced(_) => {}
                WorkerOutput::Event(event) => keep(&mut self.events, net.now, event),
            }
        }
    }

    fn perform_hub(&mut self, now: Now, to_flush: &mut Vec<ConnectionId>, net: &mut Net) {
        let index = self.index;
        let Some(machines) = &mut self.machines else {
            return;
        };
        while let Some(output) = egress(machines.hub.egress()).poll_output() {
            match output {
                HubOutput::Flush(link) => to_flush.push(link),
                HubOutput::Close(link) => machines.close(now, Peer::Hub, link, net),
                HubOutput::Dial { address } => {
                    self.to_dial.push(address);
                    let at = net.now + net.random.between(0, 20);
                    net.wake(at, Wake::Dials);
                }
                HubOutput::WorkerMessage { to, message } => machines.post(
                    index,
                    Peer::Hub,
                    Peer::Worker(to),
                    Letter::WorkerMessage(to, message),
                    net,
                ),
                HubOutput::Plan(task) => {
                    let done = Letter::Planned(Box::new(task.run()));
                    machines.post(index, Peer::Hub, Peer::Hub, done, net);
                }
                // Placements are not queried here.
                HubOutput::Placed { .. } => {}
                HubOutput::End { problem } => panic!("a node has to end: {problem}"),
                HubOutput::Event(event) => {
                    self.downs += u64::from(event.message == "node down");
                    keep(&mut self.events, net.now, event);
                }
            }
        }
    }
}

/// The sources of a round's inputs.
#[derive(Debug, Clone, Copy)]
enum Source {
    Timeout,
    Mail(Peer),
    Read(ConnectionId),
    Accepts,
    /// Answers about users for a worker; dials and discovery for the hub.
    Others,
}

fn keep(events: &mut VecDeque<(u64, thicket_node::Event)>, now: u64, event: thicket_node::Event) {
    if events.len() >= KEPT_EVENTS {
        events.pop_front();
    }
    events.push_back((now, event));
}
