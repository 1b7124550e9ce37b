//! The network between the machines: virtual time, connections, and the wake-ups of machines.

use std::collections::{BTreeMap, BTreeSet};

use thicket_node::{ConnectionId, Peer};

use crate::{
    links::{Host, Links},
    pipe::{EndId, Pipe, Read, SocketId},
    random::{Random, mix},
};

/// Later than any run lasts: the arrival of held bytes.
const NEVER: u64 = u64::MAX / 2;

/// After this many wake-ups within a millisecond, further ones are deferred to the next: two workers that keep waking each other must not starve a
/// third machine whose round would end that.
const MOST_WAKES: u32 = 2_000;

/// Delays and irregularities of the whole network.
#[derive(Debug, Clone, Copy)]
pub struct Weather {
    /// Longest delay of messages inside a node, ms.
    pub mail_delay: u64,
    /// Delay of bytes between nodes, ms.
    pub link_delay: (u64, u64),
    /// Delay of bytes between clients and nodes, ms.
    pub client_delay: (u64, u64),
    /// Percentage of reads and writes that are cut short at some point.
    pub cuts: u64,
    /// Bytes that a connection buffers before its sender waits.
    pub capacity: usize,
}

impl Weather {
    /// Nothing takes longer than a millisecond.
    pub const CALM: Self = Self {
        mail_delay: 0,
        link_delay: (0, 1),
        client_delay: (0, 1),
        cuts: 0,
        capacity: 1 << 20,
    };
    /// Everything is delayed and arrives in pieces.
    pub const ROUGH: Self = Self {
        mail_delay: 4,
        link_delay: (0, 20),
        client_delay: (0, 10),
        cuts: 20,
        capacity: 8 << 10,
    };
}

/// The holder of an end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// None any more, or none yet.
    Nobody,
    /// A tester that sends and receives single packets.
    Tester(usize),
    /// A client machine.
    Client(usize),
    /// A machine of a node.
    Shell {
        /// Its index in `World::nodes`.
        node: usize,
        /// The machine.
        owner: Peer,
        /// The machine's identifier for the connection.
        connection: ConnectionId,
    },
}

/// The target of a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// A machine of a node.
    Shell(usize, Peer),
    /// A tester.
    Tester(usize),
    /// A client.
    Client(usize),
    /// Dials are due.
    Dials,
    /// The node is paused: the wake-up is deferred.
    Nobody,
}

/// A connection.
#[derive(Debug)]
struct Socket {
    /// Towards end 0 and towards end 1.
    pipes: [Pipe; 2],
    places: [Place; 2],
    /// The host that dialled, and the one that accepted.
    hosts: [Host; 2],
}

impl Socket {
    /// The nodes of a link, the lower first.
    fn nodes(&self) -> Option<(usize, usize)> {
        match self.hosts {
            [Host::Node(one), Host::Node(other)] => Some((one.min(other), one.max(other))),
            _ => None,
        }
    }
}

/// How two nodes are partitioned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parting {
    /// Bytes wait until the partition heals.
    Held,
    /// Connections are cut, and no new ones are established.
    Cut,
    /// Bytes from this node to the other one wait until the partition heals; those in the opposite direction arrive. No new connection is
    /// established.
    OneWay {
        /// The node whose bytes are held.
        from: usize,
    },
    /// A black hole: what is written is lost, no end is detected, and no new connection is established. Existing connections stay half-open for ever.
    Vanish,
}

/// The thread that a machine of a node runs on: the hub runs on that of the first worker.
pub fn thread_of(peer: Peer) -> usize {
    match peer {
        Peer::Worker(id) => usize::from(id.0),
        Peer::Hub => 0,
    }
}

/// Time, connections and randomness.
#[derive(Debug)]
pub struct Net {
    /// Virtual time, ms.
    pub now: u64,
    /// The seed of all randomness.
    pub seed: u64,
    /// Randomness of the network and of the shells.
    pub random: Random,
    /// The delays where no link is set.
    pub weather: Weather,
    sockets: Vec<Socket>,
    agenda: BTreeSet<(u64, u64, Wake)>,
    /// Wake-ups in this millisecond so far.
    wakes: u32,
    partings: BTreeMap<(usize, usize), Parting>,
    /// Paused nodes, and until when.
    paused: BTreeMap<usize, u64>,
    /// Threads of nodes that are busy with a slow round or a write to a disk, and until when.
    busy: BTreeMap<(usize, usize), u64>,
    /// Links and routes, for hosts that do not use the weather.
    pub links: Links,
    /// More interleavings, and more work: each read wakes the writer of that connection even if it does not wait for buffer space, and a round
    /// examines every connection in random order, not only those that have something to read.
    pub is_thorough: bool,
    /// Connections of machines on which something arrives, and when. Not kept if rounds examine all connections.
    arrivals: BTreeMap<(usize, Peer), BTreeSet<(u64, ConnectionId)>>,
    /// Bytes written to connections between nodes, by sender and receiver.
    sent: BTreeMap<(usize, usize), u64>,
}

impl Net {
    /// A network without connections.
    pub fn new(seed: u64, weather: Weather) -> Self {
        Self {
            now: 1,
            seed,
            random: Random::new(seed),
            weather,
            sockets: Vec::new(),
            agenda: BTreeSet::new(),
            wakes: 0,
            partings: BTreeMap::new(),
            paused: BTreeMap::new(),
            busy: BTreeMap::new(),
            links: Links::default(),
            is_thorough: true,
            arrivals: BTreeMap::new(),
            sent: BTreeMap::new(),
        }
    }

    /// Schedules a wake-up at `at`; equal ones at one time are merged, and different ones occur in random order.
    pub fn wake(&mut self, at: u64, wake: Wake) {
        let earliest = self.now + u64::from(self.wakes > MOST_WAKES);
        let at = at.max(earliest);
        let who = match wake {
            Wake::Shell(node, Peer::Hub) => node as u64 * 1000 + 999,
            Wake::Shell(node, Peer::Worker(worker)) => node as u64 * 1000 + u64::from(worker.0),
            Wake::Tester(index) => 1_000_000 + index as u64,
            Wake::Client(index) => 2_000_000 + index as u64,
            Wake::Dials => 3_000_000,
            Wake::Nobody => return,
        };
        let salt = mix(self.seed ^ mix(at) ^ mix(who.wrapping_mul(0x9E37_79B9)));
        self.agenda.insert((at, salt, wake));
    }

    /// The next wake-up, not after `until`; advances the time to it.
    pub fn next_wake(&mut self, until: u64) -> Option<Wake> {
        let &(at, _, _) = self.agenda.first().filter(|(at, _, _)| *at <= until)?;
        self.wakes = if at > self.now { 0 } else { self.wakes + 1 };
        self.now = self.now.max(at);
        let (_, _, wake) = self.agenda.pop_first()?;
        match self.paused_until(wake) {
            Some(until) => {
                self.wake(until, wake);
                Some(Wake::Nobody)
            }
            None => Some(wake),
        }
    }

    /// Pauses a node, as SIGSTOP does: its sockets buffer bytes, and it runs no round until `millis` have passed.
    pub fn pause(&mut self, node: usize, millis: u64) {
        self.paused.insert(node, self.now + millis);
    }

    /// Pauses a node until [`Self::resume`].
    pub(crate) fn pause_for_good(&mut self, node: usize) {
        self.paused.insert(node, NEVER);
    }

    /// Resumes a paused node; its machines have to be woken.
    pub(crate) fn resume(&mut self, node: usize) {
        self.paused.remove(&node);
    }

    /// Whether a node is paused.
    pub fn is_paused(&self, node: usize) -> bool {
        self.paused
            .get(&node)
            .is_some_and(|until| *until > self.now)
    }

    /// A thread of a node is busy until `at`, and runs no round.
    pub fn keep_busy(&mut self, node: usize, thread: usize, at: u64) {
        let until = self.busy.entry((node, thread)).or_default();
        *until = at.max(*until);
    }

    fn paused_until(&self, wake: Wake) -> Option<u64> {
        let Wake::Shell(node, peer) = wake else {
            return None;
        };
        let paused = self.paused.get(&node).copied();
        let busy = self.busy.get(&(node, thread_of(peer))).copied();
        paused.max(busy).filter(|until| *until > self.now)
    }

    fn wake_place(&mut self, at: u64, place: Place) {
        match place {
            Place::Nobody => {}
            Place::Tester(index) => self.wake(at, Wake::Tester(index)),
            Place::Client(index) => self.wake(at, Wake::Client(index)),
            Place::Shell {
                node,
                owner,
                connection,
            } => {
                self.expect(at, node, owner, connection);
                self.wake(at, Wake::Shell(node, owner));
            }
        }
    }

    /// Makes a round of the machine at `at` or later examine the connection.
    pub(crate) fn expect(&mut self, at: u64, node: usize, owner: Peer, connection: ConnectionId) {
        if !self.is_thorough {
            let arrivals = self.arrivals.entry((node, owner)).or_default();
            arrivals.insert((at, connection));
        }
    }

    /// The connections of a machine on which something has arrived since the last call; `None` in a thorough world, where rounds examine all.
    pub(crate) fn take_arrived(&mut self, node: usize, owner: Peer) -> Option<Vec<ConnectionId>> {
        if self.is_thorough {
            return None;
        }
        let Some(arrivals) = self.arrivals.get_mut(&(node, owner)) else {
            return Some(Vec::new());
        };
        let later = arrivals.split_off(&(self.now + 1, ConnectionId(0)));
        let arrived = std::mem::replace(arrivals, later);
        let mut ids: Vec<_> = arrived.into_iter().map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        Some(ids)
    }

    /// Forgets the arrivals of a node whose machines are gone.
    pub(crate) fn forget_arrivals(&mut self, node: usize) {
        self.arrivals.retain(|(of, _), _| *of != node);
    }

    /// Opens a connection from `from`, at the first of the hosts, to the second, where it has no holder yet; returns the end that dialled.
    pub fn open(&mut self, from: Place, hosts: [Host; 2]) -> EndId {
        let capacity = self.weather.capacity;
        self.sockets.push(Socket {
            pipes: [Pipe::new(capacity), Pipe::new(capacity)],
            places: [from, Place::Nobody],
            hosts,
        });
        EndId {
            socket: SocketId(self.sockets.len() - 1),
            end: 0,
        }
    }

    /// Gives an end to a holder, which is woken for what waits there.
    pub fn give(&mut self, end: EndId, place: Place) {
        let socket = &mut self.sockets[end.socket.0];
        socket.places[end.end] = place;
        if let Some(at) = socket.pipes[end.end].next_at() {
            self.wake_place(at, place);
        }
    }

    fn delay(&mut self, socket: SocketId) -> u64 {
        let (from, to) = match self.sockets[socket.0].nodes() {
            Some(_) => self.weather.link_delay,
            None => self.weather.client_delay,
        };
        self.random.between(from, to)
    }

    /// When what the holder of `end` sends now arrives at the other end.
    fn arrival(&mut self, end: EndId, bytes: usize) -> u64 {
        if self.is_held(end) {
            return NEVER;
        }
        let hosts = self.sockets[end.socket.0].hosts;
        let route = (hosts[end.end], hosts[end.other().end]);
        let (now, bytes) = (self.now, bytes as u64);
        match self.links.arrival(&mut self.random, now, route, bytes) {
            Some(at) => at,
            None => self.now + self.delay(end.socket),
        }
    }

    /// Whether what the holder of `end` sends is held until a partition heals.
    fn is_held(&self, end: EndId) -> bool {
        let socket = &self.sockets[end.socket.0];
        let parting = socket.nodes().and_then(|pair| self.partings.get(&pair));
        match parting {
            None | Some(Parting::Cut | Parting::Vanish) => false,
            Some(Parting::Held) => true,
            Some(Parting::OneWay { from }) => socket.hosts[end.end] == Host::Node(*from),
        }
    }

    /// Writes as many of `bytes` as the connection accepts; returns their number.
    pub fn write(&mut self, end: EndId, bytes: &[u8]) -> usize {
        let mut count = self.sockets[end.socket.0].pipes[end.other().end].takes(bytes.len());
        let refuses = count < bytes.len();
        self.sockets[end.socket.0].pipes[end.other().end].has_refused |= refuses;
        if count > 0 && self.random.chance(self.weather.cuts, 100) {
            count = self.random.between(1, count as u64) as usize;
        }
        if count == 0 {
            return 0;
        }
        let at = self.arrival(end, count);
        let socket = &mut self.sockets[end.socket.0];
        if let [Host::Node(from), Host::Node(to)] =
            [socket.hosts[end.end], socket.hosts[end.other().end]]
        {
            *self.sent.entry((from, to)).or_default() += count as u64;
        }
        let at = socket.pipes[end.other().end].write(&bytes[..count], at);
        let place = socket.places[end.other().end];
        self.wake_place(at, place);
        count
    }

    /// Reads what has arrived, or a part of it.
    pub fn read(&mut self, end: EndId) -> Read {
        let limit = if self.random.chance(self.weather.cuts, 100) {
            self.random.between(1, 40) as usize
        } else {
            usize::MAX
        };
        let (now, place) = (self.now, self.sockets[end.socket.0].places[end.end]);
        let pipe = &mut self.sockets[end.socket.0].pipes[end.end];
        let read = pipe.read(now, limit);
        let next_at = pipe.next_at();
        let waits = matches!(read, Read::Bytes(_)) && std::mem::take(&mut pipe.has_refused);
        let is_spurious = matches!(read, Read::Bytes(_)) && self.is_thorough;
        if let Some(at) = next_at {
            self.wake_place((now + 1).max(at), place);
        }
        // The writer can continue.
        if waits || is_spurious {
            let writer = self.sockets[end.socket.0].places[end.other().end];
            self.wake_place(now, writer);
        }
        read
    }

    /// Whether something can be read at once.
    pub fn is_readable(&self, end: EndId) -> bool {
        self.sockets[end.socket.0].pipes[end.end].is_readable(self.now)
    }

    /// The holder of `end` closes in order: what it wrote still arrives.
    pub fn close(&mut self, end: EndId) {
        let at = self.arrival(end, 0);
        let socket = &mut self.sockets[end.socket.0];
        socket.places[end.end] = Place::Nobody;
        socket.pipes[end.end].deafen();
        if socket.pipes[end.other().end].is_broken {
            return;
        }
        let at = socket.pipes[end.other().end].finish(at);
        let place = socket.places[end.other().end];
        self.wake_place(at, place);
    }

    /// The network breaks a connection: of what is in transit, the last part is lost, and each end detects it in its own time.
    pub fn cut(&mut self, socket: SocketId) {
        for end in 0..2 {
            let at = self.now + self.delay(socket) + self.random.below(50);
            let Socket { pipes, places, .. } = &mut self.sockets[socket.0];
            let at = pipes[end].cut(&mut self.random, at);
            let place = places[end];
            self.wake_place(at, place);
        }
    }

    /// Connections between nodes that both ends hold, or that are being established.
    pub fn links(&self) -> Vec<SocketId> {
        let is_open = |socket: &Socket| !socket.pipes.iter().any(|pipe| pipe.is_deaf);
        (0..self.sockets.len())
            .filter(|index| {
                self.sockets[*index].nodes().is_some() && is_open(&self.sockets[*index])
            })
            .map(SocketId)
            .collect()
    }

    /// The holder of `end` is gone without closing: the other end receives nothing more, and what it writes is lost.
    pub fn leave_half_open(&mut self, end: EndId) {
        let socket = &mut self.sockets[end.socket.0];
        socket.places[end.end] = Place::Nobody;
        socket.pipes[end.end].deafen();
        socket.pipes[end.other().end].fall_silent();
    }

    /// Bytes that nodes have written to the connections between them, by sender and receiver.
    #[must_use]
    pub const fn sent_between_nodes(&self) -> &BTreeMap<(usize, usize), u64> {
        &self.sent
    }

    /// Partitions two nodes.
    pub fn part(&mut self, one: usize, other: usize, parting: Parting) {
        let pair = (one.min(other), one.max(other));
        self.partings.insert(pair, parting);
        for socket in self.links_between(pair) {
            match parting {
                Parting::Held => {
                    for pipe in &mut self.sockets[socket.0].pipes {
                        pipe.hold(NEVER);
                    }
                }
                Parting::OneWay { from } => {
                    let socket = &mut self.sockets[socket.0];
                    let to = usize::from(socket.hosts[0] == Host::Node(from));
                    socket.pipes[to].hold(NEVER);
                }
                Parting::Cut => self.cut(socket),
                Parting::Vanish => {
                    for pipe in &mut self.sockets[socket.0].pipes {
                        pipe.fall_silent();
                    }
                }
            }
        }
    }

    /// Heals a partition.
    pub fn heal(&mut self, one: usize, other: usize) {
        let pair = (one.min(other), one.max(other));
        match self.partings.remove(&pair) {
            Some(Parting::Held | Parting::OneWay { .. }) => {}
            Some(Parting::Cut | Parting::Vanish) | None => return,
        }
        for socket in self.links_between(pair) {
            for end in 0..2 {
                let hosts = self.sockets[socket.0].hosts;
                let delay = self.links.delay(hosts[1 - end], hosts[end]);
                let at = self.now + delay.unwrap_or_else(|| self.delay(socket));
                let socket = &mut self.sockets[socket.0];
                socket.pipes[end].release(NEVER, at);
                let place = socket.places[end];
                self.wake_place(at, place);
            }
        }
    }

    /// How two nodes are partitioned.
    pub fn parting(&self, one: usize, other: usize) -> Option<Parting> {
        let pair = (one.min(other), one.max(other));
        self.partings.get(&pair).copied()
    }

    /// Whether what `from` sends arrives at `to`.
    pub fn reaches(&self, from: usize, to: usize) -> bool {
        match self.parting(from, to) {
            None => true,
            Some(Parting::OneWay { from: unheard }) => unheard != from,
            Some(Parting::Held | Parting::Cut | Parting::Vanish) => false,
        }
    }

    /// All pairs that are partitioned.
    pub fn partings(&self) -> Vec<(usize, usize)> {
        self.partings.keys().copied().collect()
    }

    fn links_between(&self, pair: (usize, usize)) -> Vec<SocketId> {
        (0..self.sockets.len())
            .filter(|index| self.sockets[*index].nodes() == Some(pair))
            .map(SocketId)
            .collect()
    }
}
