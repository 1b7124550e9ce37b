//! What a network is made of where it is more than weather: links with a delay, a bandwidth and losses, and routes over them.
//!
//! A link carries bytes one way. A route names the links from one host to another in order; where hosts share a link they share its
//! bandwidth, so a site's uplink is one link in the routes of all who are behind it. TCP is modelled by what it does to a stream: bytes
//! come in order, a segment that is lost comes a retransmission later, and what is behind it waits.

use std::collections::BTreeMap;

use crate::random::Random;

/// Bytes of a segment of TCP.
const SEGMENT: u64 = 1_460;
/// The shortest time after which a lost segment is sent again, ms (RFC 6298 says a second, Linux does it after this).
const RETRANSMISSION: u64 = 200;

/// Who is at an end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A node, by its place in `World::nodes`.
    Node(usize),
    /// A client, by its place in `World::clients`.
    Client(usize),
    /// A tester, by its number.
    Tester(usize),
}

/// What one way of a link is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// One-way delay, ms: least and most.
    pub delay: (u64, u64),
    /// Bytes a second; `None`: as many as there are.
    pub bytes_per_second: Option<u64>,
    /// Segments lost of 1000.
    pub loss_permille: u64,
}

/// One way of a link, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(usize);

/// What a link has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Carried {
    /// Bytes of streams: headers aside, retransmissions aside.
    pub bytes: u64,
    /// Segments, a write being at least one.
    pub segments: u64,
    /// Segments that were lost, and sent again.
    pub lost: u64,
}

#[derive(Debug)]
struct State {
    link: Link,
    carried: Carried,
    /// Until when it is taken, microseconds.
    busy_until: u64,
}

/// All links and routes.
#[derive(Debug, Default)]
pub struct Links {
    links: Vec<State>,
    routes: BTreeMap<(Host, Host), Vec<LinkId>>,
}

impl Links {
    /// Adds one way of a link.
    pub fn add(&mut self, link: Link) -> LinkId {
        self.links.push(State {
            link,
            carried: Carried::default(),
            busy_until: 0,
        });
        LinkId(self.links.len() - 1)
    }

    /// Changes what a link is like from now on.
    pub fn set(&mut self, id: LinkId, link: Link) {
        self.links[id.0].link = link;
    }

    /// Says how bytes go from one host to another; the way back is a route of its own.
    pub fn set_route(&mut self, from: Host, to: Host, over: Vec<LinkId>) {
        self.routes.insert((from, to), over);
    }

    /// What a link has carried so far.
    #[must_use]
    pub fn carried(&self, id: LinkId) -> Carried {
        self.links[id.0].carried
    }

    /// When bytes that leave now arrive, ms; `None` where no route says anything.
    pub(crate) fn arrival(
        &mut self,
        random: &mut Random,
        now: u64,
        (from, to): (Host, Host),
        bytes: u64,
    ) -> Option<u64> {
        let route = self.routes.get(&(from, to))?;
        let mut at = now * 1_000;
        for id in route {
            at = self.links[id.0].carry(random, at, bytes);
        }
        Some(at.div_ceil(1_000).max(now))
    }
}

impl State {
    /// When bytes that reach the link at `at` are at its other end, microseconds.
    fn carry(&mut self, random: &mut Random, at: u64, bytes: u64) -> u64 {
        let segments = bytes.div_ceil(SEGMENT).max(1);
        self.carried.bytes += bytes;
        self.carried.segments += segments;
        let sent_at = match self.link.bytes_per_second {
            Some(rate) => {
                let start = at.max(self.busy_until);
                self.busy_until = start + bytes * 1_000_000 / rate.max(1);
                self.busy_until
            }
            None => at,
        };
        let delay = random.between(self.link.delay.0, self.link.delay.1);
        let mut late = 0;
        for _ in 0..segments {
            let mut wait = RETRANSMISSION.max(2 * self.link.delay.1);
            while self.link.loss_permille > 0
                && random.chance(self.link.loss_permille.min(999), 1_000)
            {
                self.carried.lost += 1;
                late += wait;
                wait *= 2;
            }
        }
        sent_at + (delay + late) * 1_000
    }
}
