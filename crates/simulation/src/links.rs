//! Networks with topology: links with a delay, a bandwidth and losses, and routes over them.
//!
//! A link carries bytes in one direction. A route names the links from one host to another in order; routes that share a link share its bandwidth, so
//! a site's uplink is one link in the routes of all hosts behind it. TCP is modelled by its effect on a stream: bytes arrive in order, a lost segment
//! arrives one retransmission later, and what follows it waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::random::Random;

/// Bytes of a TCP segment.
const SEGMENT: u64 = 1_460;
/// The shortest time after which a lost segment is retransmitted, microseconds (RFC 6298 specifies a second, Linux uses this).
const RETRANSMISSION: u64 = 200_000;

/// The host at an end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A node, by its place in `World::nodes`.
    Node(usize),
    /// A client, by its place in `World::clients`.
    Client(usize),
    /// A tester, by its number.
    Tester(usize),
}

/// The properties of one direction of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// One-way delays, microseconds: ascending, at least one, each as likely as any other. Each write has one of them.
    pub delays_micros: Arc<[u64]>,
    /// Bytes a second; `None`: unlimited.
    pub bytes_per_second: Option<u64>,
    /// Segments lost, in millionths.
    pub loss_millionths: u64,
    /// Header bytes of each segment and each acknowledgement; 0: neither is counted.
    pub header_bytes: u64,
}

impl Link {
    /// A link with this delay in milliseconds and no other property.
    #[must_use]
    pub fn of_millis(delay: u64) -> Self {
        Self {
            delays_micros: Arc::new([delay * 1_000]),
            bytes_per_second: None,
            loss_millionths: 0,
            header_bytes: 0,
        }
    }
}

/// One direction of a link, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(usize);

/// The traffic of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Carried {
    /// Bytes of streams, and of headers where the link has them, without retransmissions.
    pub bytes: u64,
    /// Segments, at least one for each write, and acknowledgements where the link has headers.
    pub segments: u64,
    /// Segments that were lost, and retransmitted.
    pub lost: u64,
}

#[derive(Debug)]
struct State {
    link: Link,
    carried: Carried,
    /// Until when the link is busy, microseconds.
    busy_until: u64,
}

/// All links and routes.
#[derive(Debug, Default)]
pub struct Links {
    links: Vec<State>,
    routes: BTreeMap<(Host, Host), Vec<LinkId>>,
}

impl Links {
    /// Adds one direction of a link.
    pub fn add(&mut self, link: Link) -> LinkId {
        self.links.push(State {
            link,
            carried: Carried::default(),
            busy_until: 0,
        });
        LinkId(self.links.len() - 1)
    }

    /// Changes the properties of a link from now on.
    pub fn set(&mut self, id: LinkId, link: Link) {
        self.links[id.0].link = link;
    }

    /// Sets the route from one host to another; the opposite direction has its own route.
    pub fn set_route(&mut self, from: Host, to: Host, over: Vec<LinkId>) {
        self.routes.insert((from, to), over);
    }

    /// The traffic of a link so far.
    #[must_use]
    pub fn carried(&self, id: LinkId) -> Carried {
        self.links[id.0].carried
    }

    /// When bytes that are sent now arrive, ms; `None` without a route. Times between two milliseconds are rounded up or down at random, so that
    /// their mean is right.
    pub(crate) fn arrival(
        &mut self,
        random: &mut Random,
        now: u64,
        (from, to): (Host, Host),
        bytes: u64,
    ) -> Option<u64> {
        let route = self.routes.get(&(from, to))?;
        let segments = bytes.div_ceil(SEGMENT).max(1);
        let mut under_way = UnderWay {
            first: now * 1_000,
            last: now * 1_000,
        };
        for id in route {
            self.links[id.0].carry(random, &mut under_way, bytes, segments);
        }
        // TCP acknowledges every second segment, and the last one if their number is odd.
        if let Some(back) = self.routes.get(&(to, from)) {
            for id in back {
                self.links[id.0].count_acknowledgements(segments.div_ceil(2));
            }
        }
        let (whole, rest) = (under_way.last / 1_000, under_way.last % 1_000);
        let up = rest > 0 && random.chance(rest, 1_000);
        Some((whole + u64::from(up)).max(now))
    }

    /// The minimum time of a byte from one host to another over idle links, ms; `None` without a route.
    pub(crate) fn delay(&self, from: Host, to: Host) -> Option<u64> {
        let route = self.routes.get(&(from, to))?;
        let delay = |id: &LinkId| self.links[id.0].link.delays_micros.first().copied();
        Some(route.iter().filter_map(delay).sum::<u64>().div_ceil(1_000))
    }
}

/// The times of the first and the last segment of a write on its path, microseconds: routers pass on a segment while later ones still arrive.
struct UnderWay {
    first: u64,
    last: u64,
}

impl State {
    /// Moves a write from one end of the link to the other.
    fn carry(&mut self, random: &mut Random, at: &mut UnderWay, bytes: u64, segments: u64) {
        let bytes = bytes + segments * self.link.header_bytes;
        self.carried.bytes += bytes;
        self.carried.segments += segments;
        if let Some(rate) = self.link.bytes_per_second {
            let time_of = |bytes: u64| bytes * 1_000_000 / rate.max(1);
            let one = time_of(bytes / segments);
            let start = at.first.max(self.busy_until);
            *at = UnderWay {
                first: start + one,
                last: (start + time_of(bytes)).max(at.last + one),
            };
            self.busy_until = at.last;
        }
        let delays = &self.link.delays_micros;
        let mut late = *random.pick(delays);
        let typical = delays[delays.len() / 2];
        for _ in 0..segments {
            let mut wait = RETRANSMISSION.max(2 * typical);
            while self.link.loss_millionths > 0
                && random.chance(self.link.loss_millionths.min(999_999), 1_000_000)
            {
                self.carried.lost += 1;
                late += wait;
                wait *= 2;
            }
        }
        at.first += late;
        at.last += late;
    }

    /// Counts acknowledgements for the opposite direction; they take no bandwidth.
    const fn count_acknowledgements(&mut self, count: u64) {
        if self.link.header_bytes > 0 {
            self.carried.bytes += count * self.link.header_bytes;
            self.carried.segments += count;
        }
    }
}
