//! From a network's description to sites, links with their own delays, addresses and routes. Pure: the same seed gives the same network.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thicket_bench::random::Random;

use crate::delay::Delay;
use crate::network::{LinkSettings, Network, Shape};
use crate::units::{Percent, Positive};

/// Default number of packets that may wait for a link of limited rate.
const QUEUE_PACKETS: u32 = 100;

/// The effect of a link on packets in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkShape {
    /// Delay each way.
    pub delay: Delay,
    /// Rate in Mbit/s of Ethernet frames.
    pub bandwidth_mbit: Option<f64>,
    /// Packets that may wait for the rate.
    pub queue_packets: u32,
    /// Share of packets lost, in percent.
    pub loss_percent: f64,
}

/// A link between the routers of two sites.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The site with the lower number.
    pub a: usize,
    /// The other.
    pub b: usize,
    /// Its effect on packets.
    pub shape: LinkShape,
}

/// A link that loses everything, or only what one of its ends sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The link, by its place in the topology.
    pub link: usize,
    /// The only direction that is cut, if not both are: 0 from the site with the lower number.
    pub only: Option<usize>,
}

impl Cut {
    /// The directions that are cut.
    #[must_use]
    pub fn directions(self) -> std::ops::Range<usize> {
        self.only.map_or(0..2, |only| only..only + 1)
    }

    /// Whether a direction of a link is cut.
    #[must_use]
    pub fn has(self, link: usize, direction: usize) -> bool {
        self.link == link && self.directions().contains(&direction)
    }
}

/// Sites, links and routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Topology {
    /// Names of the sites.
    pub sites: Vec<String>,
    /// Links, at most one between two sites.
    pub links: Vec<Link>,
    /// Sites whose broker starts later.
    pub later: Vec<String>,
    /// Time between the starts of two brokers.
    pub start_every: Duration,
    /// The next link for each site and destination; by breadth-first search, ties to the lower link.
    next: Vec<Vec<Option<usize>>>,
}

/// Distinguish the draws of a graph and of its delays from those of other things.
const GRAPH: u64 = 0x006E_6574_776F_726B;
const DELAYS: u64 = 0x0064_656C_6179_7321;

impl Topology {
    /// Builds it as in the first repeat; an error names the contradiction.
    pub fn new(network: &Network, names: &[String], seed: u64) -> Result<Self, String> {
        Self::of_repeat(network, names, seed, 1)
    }

    /// Builds it for a repeat. All repeats have the same links; delays that are drawn for each link
    /// are drawn for each repeat.
    pub fn of_repeat(
        network: &Network,
        names: &[String],
        seed: u64,
        repeat: u64,
    ) -> Result<Self, String> {
        let pairs = pairs(network, names, &mut Random::new(seed ^ GRAPH));
        let mut random = Random::new(seed.wrapping_add(repeat) ^ DELAYS);
        let mut links = Vec::with_capacity(pairs.len());
        for (a, b) in pairs {
            let (a, b) = (a.min(b), a.max(b));
            let own = network.links.iter().find(|link| {
                let ends = [&names[a], &names[b]];
                ends.iter().all(|end| link.between.contains(end))
            });
            let settings = own.map_or(network.link, |own| own.settings.over(network.link));
            links.push(Link {
                a,
                b,
                shape: shape(&settings, &mut random)?,
            });
        }
        for (number, link) in network.links.iter().enumerate() {
            let exists = links.iter().any(|made| {
                [made.a, made.b]
                    .iter()
                    .all(|&end| link.between.contains(&names[end]))
            });
            if !exists {
                return Err(format!(
                    "network.links.{number}.between: the shape has no link {} - {}",
                    link.between[0], link.between[1]
                ));
            }
        }
        let neighbours = neighbours(names.len(), &links);
        let next = (0..names.len())
            .map(|site| routes_from(site, &neighbours))
            .collect();
        let topology = Self {
            sites: names.to_vec(),
            links,
            later: network.later.clone(),
            start_every: Duration::from_secs_f64(network.start_every_ms.value() / 1e3),
            next,
        };
        match (1..names.len()).find(|&site| topology.path(0, site).is_none()) {
            Some(site) => Err(format!(
                "network: there is no way from {} to {}",
                names[0], names[site]
            )),
            None => Ok(topology),
        }
    }

    /// The links on the path between two sites; `None` without one.
    #[must_use]
    pub fn path(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let (mut at, mut path) = (from, Vec::new());
        while at != to {
            let link = self.next[at][to]?;
            path.push(link);
            at = self.other_end(link, at);
        }
        Some(path)
    }

    /// Mean round trip between two sites on idle links, in milliseconds.
    #[must_use]
    pub fn rtt_ms(&self, from: usize, to: usize) -> f64 {
        let delays = self.delays(from, to);
        delays.iter().map(|delay| 2.0 * delay.mean_ms()).sum()
    }

    /// The delays on the path between two sites, each way.
    #[must_use]
    pub fn delays(&self, from: usize, to: usize) -> Vec<Delay> {
        let path = self.path(from, to).unwrap_or_default();
        path.iter()
            .map(|&link| self.links[link].shape.delay)
            .collect()
    }

    /// The first link on the path.
    #[must_use]
    pub fn next_link(&self, from: usize, to: usize) -> Option<usize> {
        self.next[from][to]
    }

    /// The site at the other end of a link.
    #[must_use]
    pub fn other_end(&self, link: usize, site: usize) -> usize {
        let Link { a, b, .. } = self.links[link];
        if a == site { b } else { a }
    }

    /// Links over which `site` forwards what arrives from `source`: those to its children in the tree of shortest paths from there.
    #[must_use]
    pub fn children(&self, source: usize, site: usize) -> Vec<usize> {
        (0..self.links.len())
            .filter(|&link| {
                let Link { a, b, .. } = self.links[link];
                (a == site || b == site)
                    && self.parent(source, self.other_end(link, site)) == Some(link)
            })
            .collect()
    }

    /// The link over which what `source` sends arrives at `site`.
    #[must_use]
    pub fn parent(&self, source: usize, site: usize) -> Option<usize> {
        self.path(source, site)?.last().copied()
    }

    /// The link between two named sites.
    #[must_use]
    pub fn link_between(&self, one: &str, other: &str) -> Option<usize> {
        let at = |name: &str| self.sites.iter().position(|site| site == name);
        let (one, other) = (at(one)?, at(other)?);
        self.links
            .iter()
            .position(|link| (link.a, link.b) == (one.min(other), one.max(other)))
    }

    /// The direction of what a site sends over a link: 0 from its end with the lower number, 1 from the other; `None` if it is no end of the link.
    #[must_use]
    pub fn direction(&self, link: usize, from: &str) -> Option<usize> {
        let Link { a, b, .. } = self.links[link];
        [a, b].iter().position(|&end| self.sites[end] == from)
    }

    /// Whether what one site sends to another crosses one of these cuts, as routers keep their routes.
    #[must_use]
    pub fn is_cut(&self, from: usize, to: usize, cuts: &[Cut]) -> bool {
        let (mut at, path) = (from, self.path(from, to).unwrap_or_default());
        path.into_iter().any(|link| {
            let direction = usize::from(self.links[link].a != at);
            at = self.other_end(link, at);
            cuts.iter().any(|cut| cut.has(link, direction))
        })
    }

    /// The links between the sites in `side` and the others.
    #[must_use]
    pub fn links_around(&self, side: &[String]) -> Vec<usize> {
        let inside = |site: usize| side.contains(&self.sites[site]);
        (0..self.links.len())
            .filter(|&link| inside(self.links[link].a) != inside(self.links[link].b))
            .collect()
    }
}

/// Address of a site's router in its own network.
#[must_use]
pub fn router_address(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, site as u8 + 1, 0, 1)
}

/// Address of a site's broker.
#[must_use]
pub fn broker_address(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, site as u8 + 1, 0, 2)
}

/// Address of a site's clients.
#[must_use]
pub fn client_address(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, site as u8 + 1, 0, 3)
}

/// The site of an address, if it is one of a broker, a client or a router in its own network.
#[must_use]
pub fn site_of(address: Ipv4Addr) -> Option<usize> {
    let [ten, site, ..] = address.octets();
    (ten == 10)
        .then(|| usize::from(site).checked_sub(1))
        .flatten()
}

/// Addresses of the two ends of a link, `a` first: 172.16.0.0/12 in networks of four.
#[must_use]
pub fn link_addresses(link: usize) -> [Ipv4Addr; 2] {
    let base = u32::from(Ipv4Addr::new(172, 16, 0, 0)) + 4 * link as u32;
    [Ipv4Addr::from(base + 1), Ipv4Addr::from(base + 2)]
}

fn shape(settings: &LinkSettings, random: &mut Random) -> Result<LinkShape, String> {
    let law = settings.one_way("network.link")?;
    let drawn = Delay::Constant {
        ms: law.draw_ms(&mut random.clone()),
    };
    // Every link takes the two numbers that a draw uses at most, so that a change of one link's settings does not affect the others.
    random.unit();
    random.unit();
    Ok(LinkShape {
        delay: if settings.is_drawn_per_link() {
            drawn
        } else {
            law
        },
        bandwidth_mbit: settings.bandwidth_mbit.map(Positive::value),
        queue_packets: settings.queue_packets.unwrap_or(QUEUE_PACKETS),
        loss_percent: settings.loss_percent.map_or(0.0, Percent::value),
    })
}

/// Settings of a link after a change at run time; nothing is drawn.
#[must_use]
pub fn changed(settings: &LinkSettings, before: &LinkShape) -> LinkShape {
    let given = settings.has_delay().then(|| settings.one_way("to"));
    LinkShape {
        // Faults are checked before they are injected.
        delay: given.and_then(Result::ok).unwrap_or(before.delay),
        bandwidth_mbit: settings
            .bandwidth_mbit
            .map_or(before.bandwidth_mbit, |rate| Some(rate.value())),
        queue_packets: settings.queue_packets.unwrap_or(before.queue_packets),
        loss_percent: settings
            .loss_percent
            .map_or(before.loss_percent, Percent::value),
    }
}

fn pairs(network: &Network, names: &[String], random: &mut Random) -> Vec<(usize, usize)> {
    let count = names.len();
    match network.shape {
        Shape::FullMesh => (0..count)
            .flat_map(|a| (a + 1..count).map(move |b| (a, b)))
            .collect(),
        Shape::Line => (1..count).map(|site| (site - 1, site)).collect(),
        Shape::Star => (1..count).map(|site| (0, site)).collect(),
        Shape::Ring => {
            let mut line: Vec<_> = (1..count).map(|site| (site - 1, site)).collect();
            if count > 2 {
                line.push((0, count - 1));
            }
            line
        }
        Shape::Random => random_pairs(count, network.extra_links, random),
        Shape::Explicit => {
            let at = |name: &String| names.iter().position(|site| site == name);
            let mut pairs: Vec<(usize, usize)> = Vec::new();
            for link in &network.links {
                if let (Some(a), Some(b)) = (at(&link.between[0]), at(&link.between[1])) {
                    let pair = (a.min(b), a.max(b));
                    if !pairs.contains(&pair) {
                        pairs.push(pair);
                    }
                }
            }
            pairs
        }
    }
}

/// A random tree, each site linked to an earlier one, and up to `extra` other pairs.
fn random_pairs(count: usize, extra: usize, random: &mut Random) -> Vec<(usize, usize)> {
    let mut pairs: Vec<_> = (1..count).map(|site| (random.below(site), site)).collect();
    let mut others: Vec<_> = (0..count)
        .flat_map(|a| (a + 1..count).map(move |b| (a, b)))
        .filter(|pair| !pairs.contains(pair))
        .collect();
    for _ in 0..extra.min(others.len()) {
        let drawn = random.below(others.len());
        pairs.push(others.swap_remove(drawn));
    }
    pairs
}

/// For each site its links, ascending, with the site at the other end.
fn neighbours(count: usize, links: &[Link]) -> Vec<Vec<(usize, usize)>> {
    let mut neighbours = vec![Vec::new(); count];
    for (index, link) in links.iter().enumerate() {
        neighbours[link.a].push((index, link.b));
        neighbours[link.b].push((index, link.a));
    }
    neighbours
}

/// The first link from `site` to each other one.
fn routes_from(site: usize, neighbours: &[Vec<(usize, usize)>]) -> Vec<Option<usize>> {
    let mut first: Vec<Option<usize>> = vec![None; neighbours.len()];
    let mut seen = vec![false; neighbours.len()];
    seen[site] = true;
    let mut queue = VecDeque::from([site]);
    while let Some(at) = queue.pop_front() {
        for &(index, other) in &neighbours[at] {
            if !seen[other] {
                seen[other] = true;
                first[other] = first[at].or(Some(index));
                queue.push_back(other);
            }
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> (Network, Vec<String>) {
        let network: Network = toml::from_str(text).unwrap();
        let names = network.names().unwrap();
        (network, names)
    }

    fn topology(text: &str) -> Topology {
        let (network, names) = network(text);
        Topology::new(&network, &names, 7).unwrap()
    }

    #[test]
    fn shapes_have_their_links_and_delays_add_up_over_hops() {
        for (shape, links, rtt_ms) in [
            ("full-mesh", 10, 5.0),
            ("line", 4, 20.0),
            ("star", 4, 5.0),
            ("ring", 5, 5.0),
        ] {
            let topology = topology(&format!("sites = 5\nshape = \"{shape}\"\nlink.rtt_ms = 5"));
            assert_eq!(topology.links.len(), links, "{shape}");
            assert_eq!(topology.rtt_ms(0, 4), rtt_ms, "{shape}");
            assert_eq!(topology.rtt_ms(3, 3), 0.0, "{shape}");
        }
    }

    #[test]
    fn a_random_network_is_connected_and_the_same_for_a_seed() {
        let text = "sites = 12\nshape = \"random\"\nextra_links = 5\nlink.delay = { law = \"normal\", mean_ms = 10, sd_ms = 2.5, drawn = \"per-link\" }";
        let one = topology(text);
        assert_eq!(one.links.len(), 16);
        assert_eq!(one, topology(text));
        let (network, names) = network(text);
        assert_ne!(one, Topology::new(&network, &names, 8).unwrap());
        let again = Topology::of_repeat(&network, &names, 7, 2).unwrap();
        let ends = |it: &Topology| it.links.iter().map(|it| (it.a, it.b)).collect::<Vec<_>>();
        assert_eq!(ends(&one), ends(&again));
        assert_ne!(one, again, "each repeat draws its delays");
        let mean: f64 = one
            .links
            .iter()
            .map(|link| link.shape.delay.mean_ms())
            .sum::<f64>()
            / 16.0;
        assert!((7.0..13.0).contains(&mean), "{mean}");
    }

    #[test]
    fn everybody_is_reached_once_by_what_a_site_sends_to_all() {
        for shape in ["full-mesh", "line", "ring", "star"] {
            let topology = topology(&format!("sites = 6\nshape = \"{shape}\""));
            for source in 0..6 {
                let mut reached = vec![0; 6];
                let mut queue = vec![source];
                while let Some(at) = queue.pop() {
                    reached[at] += 1;
                    for link in topology.children(source, at) {
                        queue.push(topology.other_end(link, at));
                    }
                }
                assert_eq!(reached, vec![1; 6], "{shape} from {source}");
            }
        }
    }

    #[test]
    fn a_link_of_its_own_replaces_what_it_says() {
        let topology = topology(
            "sites = 3\nlink = { rtt_ms = 5, bandwidth_mbit = 10 }\n[[links]]\nbetween = [\"s3\", \"s1\"]\nlink = { one_way_ms = 40 }",
        );
        let link = topology.link_between("s1", "s3").unwrap();
        assert_eq!(
            topology.links[link].shape.delay,
            Delay::Constant { ms: 40.0 }
        );
        assert_eq!(topology.links[link].shape.bandwidth_mbit, Some(10.0));
        assert_eq!(topology.rtt_ms(0, 1), 5.0);
    }

    #[test]
    fn sites_without_a_way_to_each_other_are_refused() {
        let (network, names) =
            network("sites = 3\nshape = \"explicit\"\n[[links]]\nbetween = [\"s1\", \"s2\"]");
        let error = Topology::new(&network, &names, 1).unwrap_err();
        assert!(error.contains("no way from s1 to s3"), "{error}");
    }

    #[test]
    fn addresses_name_their_site() {
        for site in [0, 4, 199] {
            assert_eq!(site_of(broker_address(site)), Some(site));
        }
        assert_eq!(link_addresses(190)[1].to_string(), "172.16.2.250");
        assert_eq!(site_of(link_addresses(0)[0]), None);
    }
}
