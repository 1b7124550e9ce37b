//! A node: its machines, and the shell around them for the interface of `thicket-node`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use thicket_access::Policy;
use thicket_node::{
    ConnectionId, Drained, Egress, ForgetError, Handover, Hub, HubConfig, HubInput, HubMessage,
    HubOutput, ListenerId, Now, Peer, Verdict, Worker, WorkerConfig, WorkerId, WorkerInput,
    WorkerMessage, WorkerOutput,
};
use thicket_overlay::{Incarnation, NodeId, OverlayConfig};
use thicket_session::time::{Instant, WallClock};

pub use crate::spec::NodeSpec;
use crate::{
    disk::Disk,
    net::{Net, Place, Wake, thread_of},
    pipe::{EndId, Read},
    users,
};

/// A message in a mailbox.
#[derive(Debug)]
enum Letter {
    HubMessage(WorkerId, HubMessage),
    WorkerMessage(WorkerId, WorkerMessage),
    Socket(EndId, Box<Handover>),
}

/// A socket of a thread.
#[derive(Debug)]
struct Slot {
    end: EndId,
    owner: Peer,
    is_paused: bool,
    /// Its last write was incomplete.
    is_blocked: bool,
}

/// Sockets of a thread by `ConnectionId`; the identifier freed last is reused first, so that identifiers are reused as early as possible.
#[derive(Debug, Default)]
struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Freed when the round has ended.
    removed: Vec<u32>,
    /// Sockets whose last write was incomplete; some may be gone or have continued since.
    blocked: BTreeSet<ConnectionId>,
}

impl Slots {
    fn insert(&mut self, end: EndId, owner: Peer) -> ConnectionId {
        let index = self.free.pop().unwrap_or(self.slots.len() as u32);
        if index as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index as usize] = Some(Slot {
            end,
            owner,
            is_paused: false,
            is_blocked: false,
        });
        ConnectionId(index)
    }

    fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    fn remove(&mut self, id: ConnectionId) -> Option<Slot> {
        let slot = self.slots.get_mut(id.0 as usize)?.take();
        if slot.is_some() {
            self.removed.push(id.0);
        }
        slot
    }

    fn free_removed(&mut self) {
        self.free.append(&mut self.removed);
    }

    fn of(&self, owner: Peer) -> Vec<ConnectionId> {
        let owned = |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.owner == owner);
        (0..self.slots.len())
            .filter(|index| owned(&self.slots[*index]))
            .map(|index| ConnectionId(index as u32))
            .collect()
    }
}

/// The machines of a running node: its workers and its hub.
#[derive(Debug)]
pub struct Machines {
    /// Its workers, by number.
    pub workers: Vec<Worker>,
    /// Its hub.
    pub hub: Hub,
    threads: Vec<Slots>,
    mail: BTreeMap<(Peer, Peer), VecDeque<(u64, Letter)>>,
    accepts: Vec<VecDeque<(u64, EndId)>>,
    verdicts: Vec<VecDeque<(u64, ConnectionId, EndId, Verdict)>>,
    /// Dials that have ended, with the connection if one was established.
    pub dialled: VecDeque<(String, Option<EndId>)>,
    /// Addresses from discovery.
    pub heard_of: VecDeque<String>,
    /// Machines whose round waits for the disk, with the connections to write to afterwards.
    stuck: BTreeMap<Peer, Vec<ConnectionId>>,
    /// Messages to clients that each worker had sent when its last round ended.
    delivered: BTreeMap<WorkerId, u64>,
    /// The most of them that one round of a worker has sent.
    pub most_delivered: u64,
}

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
        overlay.routing.mode = self.spec.routing;
        overlay.routing.root_policy = self.spec.root_policy;
        overlay.limits = self.spec.overlay_limits.clone();
        overlay.wire = self.spec.wire;
        if !self.spec.tunnels {
            overlay.timing.tunnel_after = Duration::from_secs(1_000_000);
        }
        let config = HubConfig {
            workers: self.spec.workers,
            overlay,
            partition: self.spec.partition,
            discovery_grace: Duration::from_millis(300),
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
            machines.hub.drain(now);
        }
        for worker in self.machines.iter_mut().flat_map(|it| &mut it.workers) {
            let Drained {
                connections,
                sessions,
            } = worker.drain(now);
            left.connections += connections;
            left.sessions += sessions;
        }
        for peer in self.peers() {
            net.wake(net.now, Wake::Shell(self.index, peer));
        }
        left
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
        let forgotten = machines.hub.forget(now, node).map(drop);
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

/// The egress, which is available after storing.
fn egress<M>(egress: Option<Egress<'_, M>>) -> Egress<'_, M> {
    egress.expect("what was gathered is stored")
}

impl Machines {
    fn end_round(&mut self, now: Now, peer: Peer) {
        match peer {
            Peer::Worker(id) => {
                let worker = &mut self.workers[usize::from(id.0)];
                let before = self.delivered.insert(id, worker.delivered());
                let delivered = worker.delivered() - before.unwrap_or_default();
                self.most_delivered = self.most_delivered.max(delivered);
                worker.end_round(now);
            }
            Peer::Hub => self.hub.end_round(now),
        }
    }

    /// Stores what the machine must have stored before its output may leave.
    fn store(&mut self, now: Now, peer: Peer, disk: &mut Disk) {
        match peer {
            Peer::Worker(id) => {
                let worker = &mut self.workers[usize::from(id.0)];
                if let Some(unstored) = worker.unstored(now) {
                    let status = disk.store(id.0, &unstored);
                    worker.handle_stored(status);
                }
            }
            Peer::Hub => {
                if let Some(unstored) = self.hub.unstored() {
                    let status = disk.store(0, &unstored);
                    self.hub.handle_stored(status);
                }
            }
        }
    }

    /// Whether the machine has something to store.
    fn has_unstored(&mut self, now: Now, peer: Peer) -> bool {
        match peer {
            Peer::Worker(id) => self.workers[usize::from(id.0)].unstored(now).is_some(),
            Peer::Hub => self.hub.unstored().is_some(),
        }
    }

    /// Whether the machine needs another round after storing and writing.
    fn wants_round(&self, peer: Peer) -> bool {
        match peer {
            Peer::Worker(id) => self.workers[usize::from(id.0)].wants_round(),
            Peer::Hub => self.hub.wants_round(),
        }
    }

    /// Reports the status of the disk, which is full or has space again.
    pub fn tell_room(&mut self, disk: &Disk) {
        for (log, worker) in self.workers.iter_mut().enumerate() {
            worker.handle_log_status(disk.status(log as u8));
        }
        self.hub.handle_log_status(disk.status(0));
    }

    fn post(&mut self, node: usize, from: Peer, to: Peer, letter: Letter, net: &mut Net) {
        let letters = self.mail.entry((from, to)).or_default();
        let at = net.now + net.random.between(0, net.weather.mail_delay);
        let at = letters.back().map_or(at, |(last, _)| at.max(*last));
        letters.push_back((at, letter));
        net.wake(at, Wake::Shell(node, to));
    }

    fn open(&mut self, node: usize, now: Now, from: Peer, to: Peer, letter: Letter, net: &mut Net) {
        match letter {
            Letter::WorkerMessage(to, message) => self.workers[usize::from(to.0)]
                .handle_input(now, WorkerInput::Message { from, message }),
            Letter::HubMessage(from, message) => self
                .hub
                .handle_input(now, HubInput::Message { from, message }),
            Letter::Socket(end, state) => {
                let connection = self.threads[thread_of(to)].insert(end, to);
                match to {
                    Peer::Worker(id) => self.workers[usize::from(id.0)]
                        .handle_input(now, WorkerInput::Adopted { connection, state }),
                    Peer::Hub => self.hub.handle_input(
                        now,
                        HubInput::LinkAdopted {
                            link: connection,
                            state,
                            key: None,
                        },
                    ),
                }
                let place = Place::Shell {
                    node,
                    owner: to,
                    connection,
                };
                net.give(end, place);
            }
        }
    }

    fn accept(&mut self, node: usize, now: Now, id: WorkerId, net: &mut Net) {
        let thread = usize::from(id.0);
        while let Some((_, end)) = self.accepts[thread].pop_front() {
            let owner = Peer::Worker(id);
            let connection = self.threads[thread].insert(end, owner);
            let input = WorkerInput::Accepted {
                connection,
                listener: ListenerId(0),
                peer: ([127, 0, 0, 1], 40_000).into(),
            };
            self.workers[thread].handle_input(now, input);
            let place = Place::Shell {
                node,
                owner,
                connection,
            };
            net.give(end, place);
        }
    }

    fn read(&mut self, now: Now, peer: Peer, connection: ConnectionId, net: &mut Net) {
        let slots = &mut self.threads[thread_of(peer)];
        let Some(slot) = slots.get_mut(connection).filter(|slot| !slot.is_paused) else {
            return;
        };
        let end = slot.end;
        if !net.is_readable(end) {
            return;
        }
        match (net.read(end), peer) {
            (Read::Nothing, _) => {}
            (Read::Bytes(bytes), Peer::Worker(id)) => {
                let bytes = &bytes;
                self.workers[usize::from(id.0)]
                    .handle_input(now, WorkerInput::Received { connection, bytes });
            }
            (Read::Bytes(bytes), Peer::Hub) => {
                let (link, bytes) = (connection, &bytes[..]);
                self.hub
                    .handle_input(now, HubInput::Received { link, bytes });
            }
            (Read::End, _) => {
                match peer {
                    Peer::Worker(id) => self.workers[usize::from(id.0)]
                        .handle_input(now, WorkerInput::Closed { connection }),
                    Peer::Hub => self
                        .hub
                        .handle_input(now, HubInput::Closed { link: connection }),
                }
                self.threads[thread_of(peer)].remove(connection);
                net.close(end);
            }
        }
    }

    fn answer_later(
        &mut self,
        node: usize,
        id: WorkerId,
        connection: ConnectionId,
        verdict: Verdict,
        net: &mut Net,
    ) {
        let thread = usize::from(id.0);
        if let Some(slot) = self.threads[thread].get_mut(connection) {
            let at = net.now + net.random.below(10);
            self.verdicts[thread].push_back((at, connection, slot.end, verdict));
            net.wake(at, Wake::Shell(node, Peer::Worker(id)));
        }
    }

    fn answer_verdicts(&mut self, now: Now, id: WorkerId, net: &Net) {
        let thread = usize::from(id.0);
        while let Some((_, connection, end, verdict)) =
            self.verdicts[thread].pop_front_if(|(at, ..)| *at <= net.now)
        {
            let slot = self.threads[thread].get_mut(connection);
            if slot.is_some_and(|slot| slot.end == end) {
                let input = WorkerInput::Authenticated {
                    connection,
                    verdict,
                };
                self.workers[thread].handle_input(now, input);
            }
        }
    }

    fn send_to_hub(&mut self, node: usize, now: Now, net: &mut Net) {
        for address in std::mem::take(&mut self.heard_of) {
            self.hub.handle_input(now, HubInput::Discovered { address });
        }
        for (address, end) in std::mem::take(&mut self.dialled) {
            let Some(end) = end else {
                let error = "refused".to_owned();
                self.hub
                    .handle_input(now, HubInput::DialFailed { address, error });
                continue;
            };
            let link = self.threads[0].insert(end, Peer::Hub);
            self.hub
                .handle_input(now, HubInput::Dialled { address, link });
            let owner = Peer::Hub;
            let place = Place::Shell {
                node,
                owner,
                connection: link,
            };
            net.give(end, place);
        }
    }

    /// Adds the connections whose last write was incomplete.
    fn add_blocked(&mut self, peer: Peer, to_flush: &mut Vec<ConnectionId>) {
        let slots = &mut self.threads[thread_of(peer)];
        for connection in slots.blocked.clone() {
            let slot = slots.get_mut(connection).filter(|slot| slot.is_blocked);
            let Some(owner) = slot.map(|slot| slot.owner) else {
                slots.blocked.remove(&connection);
                continue;
            };
            if owner == peer && !to_flush.contains(&connection) {
                to_flush.push(connection);
            }
        }
    }

    /// Writes until nothing is pending or the connection accepts no more.
    fn flush(&mut self, now: Now, peer: Peer, connection: ConnectionId, net: &mut Net) {
        loop {
            let Some(slot) = self.threads[thread_of(peer)].get_mut(connection) else {
                return;
            };
            let pending = match peer {
                Peer::Worker(id) => {
                    egress(self.workers[usize::from(id.0)].egress()).pending_output(connection)
                }
                Peer::Hub => egress(self.hub.egress()).pending_output(connection),
            };
            slot.is_blocked = !pending.is_empty();
            if pending.is_empty() {
                return;
            }
            let count = net.write(slot.end, pending);
            if count == 0 {
                self.threads[thread_of(peer)].blocked.insert(connection);
                return;
            }
            match peer {
                Peer::Worker(id) => {
                    self.workers[usize::from(id.0)].handle_written(connection, count)
                }
                Peer::Hub => self.hub.handle_written(now, connection, count),
            }
        }
    }

    fn close(&mut self, now: Now, peer: Peer, connection: ConnectionId, net: &mut Net) {
        self.flush(now, peer, connection, net);
        if let Some(slot) = self.threads[thread_of(peer)].remove(connection) {
            net.close(slot.end);
        }
    }
}
