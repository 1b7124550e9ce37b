//! Sockets in virtual time: bytes arrive in order, late, in pieces, or not before a partition heals.

use std::collections::{BTreeSet, VecDeque};

use thicket_overlay::LinkId;

/// A stream of pseudo-random numbers; the same for the same seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5DEE_CE66_D1CE_4E5B)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ (self.0 << 13 >> 40)
    }

    /// 0 to `end`, without `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What travels.
pub enum Chunk {
    Bytes(Vec<u8>),
    /// The other end closed.
    Fin,
}

/// One end of a wire: a socket of a node.
pub struct End {
    pub node: usize,
    /// `None` at the accepting end until the first bytes are there.
    pub link: Option<LinkId>,
    pub is_open: bool,
    /// What is to arrive here, in order, and when.
    pub arriving: VecDeque<(u64, Chunk)>,
}

/// Two sockets.
pub struct Wire {
    pub ends: [End; 2],
    pub delay: u64,
}

/// All wires, and who cannot reach whom.
#[derive(Default)]
pub struct Network {
    pub wires: Vec<Wire>,
    pub blocked: BTreeSet<(usize, usize)>,
}

impl Network {
    pub fn is_blocked(&self, a: usize, b: usize) -> bool {
        self.blocked.contains(&(a.min(b), a.max(b)))
    }

    pub fn block(&mut self, a: usize, b: usize) {
        self.blocked.insert((a.min(b), a.max(b)));
    }

    pub fn connect(&mut self, dialler: usize, link: LinkId, acceptor: usize, delay: u64) -> usize {
        let end = |node, link| End {
            node,
            link,
            is_open: true,
            arriving: VecDeque::new(),
        };
        self.wires.push(Wire {
            ends: [end(dialler, Some(link)), end(acceptor, None)],
            delay,
        });
        self.wires.len() - 1
    }

    /// Sends from one end of a wire to the other.
    pub fn send(&mut self, now: u64, wire: usize, end: usize, chunk: Chunk, jitter: u64) {
        let wire = &mut self.wires[wire];
        let delay = wire.delay;
        let other = &mut wire.ends[1 - end];
        let earliest = other.arriving.back().map_or(0, |(at, _)| *at);
        other
            .arriving
            .push_back((earliest.max(now + delay + jitter), chunk));
    }

    /// One end closes; the other learns it when what was sent before has arrived.
    pub fn close(&mut self, now: u64, wire: usize, end: usize) {
        let this = &mut self.wires[wire].ends[end];
        if this.is_open {
            this.is_open = false;
            this.arriving.clear();
            self.send(now, wire, end, Chunk::Fin, 0);
        }
    }

    /// Both ends learn that the wire broke; what was on its way is lost.
    pub fn cut(&mut self, now: u64, wire: usize) {
        for end in &mut self.wires[wire].ends {
            end.arriving.clear();
            end.arriving.push_back((now, Chunk::Fin));
        }
    }

    /// When the next chunk could arrive at an open end, blocked ones left out.
    pub fn next_arrival(&self) -> Option<u64> {
        let open = |wire: &Wire| !self.is_blocked(wire.ends[0].node, wire.ends[1].node);
        let ends = self
            .wires
            .iter()
            .filter(|wire| open(wire))
            .flat_map(|wire| &wire.ends);
        ends.filter(|end| end.is_open)
            .filter_map(|end| end.arriving.front())
            .map(|(at, _)| *at)
            .min()
    }

    /// The chunks that arrive now at `node`, with wire and end.
    pub fn take_arrived(&mut self, now: u64, node: usize) -> Vec<(usize, usize, Chunk)> {
        let mut arrived = Vec::new();
        for index in 0..self.wires.len() {
            let wire = &mut self.wires[index];
            let pair = (
                wire.ends[0].node.min(wire.ends[1].node),
                wire.ends[0].node.max(wire.ends[1].node),
            );
            if self.blocked.contains(&pair) {
                continue;
            }
            for (which, end) in wire.ends.iter_mut().enumerate() {
                while end.node == node
                    && end.is_open
                    && end.arriving.front().is_some_and(|(at, _)| *at <= now)
                {
                    arrived.extend(
                        end.arriving
                            .pop_front()
                            .map(|(_, chunk)| (index, which, chunk)),
                    );
                }
            }
        }
        arrived
    }

    /// Wires of which both ends are open.
    pub fn open_between(&self, a: usize, b: usize) -> usize {
        let joins = |wire: &&Wire| {
            let nodes = [wire.ends[0].node, wire.ends[1].node];
            nodes.contains(&a) && nodes.contains(&b) && wire.ends.iter().all(|end| end.is_open)
        };
        self.wires.iter().filter(joins).count()
    }
}
