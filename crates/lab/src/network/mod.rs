//! Sites and links as in the file.

mod law;

use serde::{Deserialize, Serialize};

pub use law::{DelayLaw, Drawn, Law};

use crate::delay::Delay;
use crate::units::{NonNegative, Percent, Positive};

/// Maximum number of sites in virtual time.
const MAX_SITES: usize = 1_000;
/// Maximum number of sites with namespaces: each has a network 10.N.0.0.
const MAX_BUILT_SITES: usize = 200;

/// The network of a scenario.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Number of sites, named s1, s2 and so on.
    #[serde(default)]
    pub sites: Option<usize>,
    /// Their names instead.
    #[serde(default)]
    pub names: Vec<String>,
    /// Which routers are linked.
    #[serde(default)]
    pub shape: Shape,
    /// Links of a random network in addition to the tree that connects it.
    #[serde(default)]
    pub extra_links: usize,
    /// Settings of every link.
    #[serde(default)]
    pub link: LinkSettings,
    /// Links that differ, and all links of the shape `explicit`.
    #[serde(default)]
    pub links: Vec<LinkOverride>,
    /// Time between the starts of two brokers; 0: all start at once.
    #[serde(default)]
    pub start_every_ms: NonNegative,
    /// Sites whose broker starts only by a fault `join`.
    #[serde(default)]
    pub later: Vec<String>,
}

/// Shapes of a network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// Every router has a link to every other.
    #[default]
    FullMesh,
    /// Each to the next.
    Line,
    /// All to the first.
    Star,
    /// A line whose ends have a link, too.
    Ring,
    /// A random tree and `extra_links` more, determined by the seed.
    Random,
    /// Only the links of `[[network.links]]`.
    Explicit,
}

/// The effect of a link on packets; the same in both directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSettings {
    /// Round trip in milliseconds: half of it each way.
    pub rtt_ms: Option<NonNegative>,
    /// Delay each way in milliseconds, instead of `rtt_ms`.
    pub one_way_ms: Option<NonNegative>,
    /// Delay each way by a law, instead of `rtt_ms`.
    pub delay: Option<DelayLaw>,
    /// Rate each way in Mbit/s, counted on Ethernet frames; absent: no limit.
    pub bandwidth_mbit: Option<Positive>,
    /// Packets that may wait for a link of limited rate (default 100).
    pub queue_packets: Option<u32>,
    /// Packets lost each way.
    pub loss_percent: Option<Percent>,
}

/// A link between two named sites.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkOverride {
    /// The two sites.
    pub between: [String; 2],
    /// The settings that differ.
    #[serde(default, rename = "link")]
    pub settings: LinkSettings,
}

impl LinkSettings {
    /// These settings, with missing ones taken from `base`.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        // A delay replaces the other forms of it.
        let delays = if self.has_delay() { self } else { base };
        Self {
            rtt_ms: delays.rtt_ms,
            one_way_ms: delays.one_way_ms,
            delay: delays.delay,
            bandwidth_mbit: self.bandwidth_mbit.or(base.bandwidth_mbit),
            queue_packets: self.queue_packets.or(base.queue_packets),
            loss_percent: self.loss_percent.or(base.loss_percent),
        }
    }

    /// Whether a delay is given, in any form.
    #[must_use]
    pub const fn has_delay(&self) -> bool {
        self.rtt_ms.is_some() || self.one_way_ms.is_some() || self.delay.is_some()
    }

    /// The delay each way; an error names the key below `key`, that of these settings.
    pub fn one_way(&self, key: &str) -> Result<Delay, String> {
        if let Some(law) = &self.delay {
            return law.delay(&format!("{key}.delay"));
        }
        let halved = self.rtt_ms.map(|rtt| rtt.value() / 2.0);
        let one_way = self.one_way_ms.map(NonNegative::value);
        let ms = one_way.or(halved).unwrap_or(0.0);
        Ok(Delay::Constant { ms })
    }

    /// Whether the delay is drawn once for the link.
    #[must_use]
    pub fn is_drawn_per_link(&self) -> bool {
        self.delay.is_some_and(|law| law.drawn == Drawn::PerLink)
    }

    /// An error names the key below `key`, that of these settings.
    pub(crate) fn check(&self, key: &str) -> Result<(), String> {
        let given = [
            ("rtt_ms", self.rtt_ms.is_some()),
            ("one_way_ms", self.one_way_ms.is_some()),
            ("delay", self.delay.is_some()),
        ];
        let given: Vec<&str> = (given.into_iter())
            .filter_map(|(name, is_given)| is_given.then_some(name))
            .collect();
        if let [first, second, ..] = given[..] {
            return Err(format!(
                "{key}: {first} and {second} say the same thing twice, give one"
            ));
        }
        self.one_way(key)?;
        if self.queue_packets == Some(0) {
            return Err(format!("{key}.queue_packets: 0 lets no packet through"));
        }
        Ok(())
    }
}

impl Network {
    /// Names of all sites, in their order.
    pub fn names(&self) -> Result<Vec<String>, String> {
        let count = self.sites.unwrap_or(self.names.len());
        if count > MAX_SITES {
            return Err(format!(
                "network.sites: {count} is not from 1 to {MAX_SITES}"
            ));
        }
        let names: Vec<String> = match (self.sites, self.names.is_empty()) {
            (Some(count), true) => (1..=count).map(|site| format!("s{site}")).collect(),
            (None, false) => self.names.clone(),
            (Some(_), false) => {
                return Err("network: give sites or names, not both".to_owned());
            }
            (None, true) => return Err("network: give sites, how many there are".to_owned()),
        };
        if names.is_empty() {
            return Err(format!("network.sites: 0 is not from 1 to {MAX_SITES}"));
        }
        for (index, name) in names.iter().enumerate() {
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
                return Err(format!(
                    "network.names: {name:?} has other characters than letters, digits and -"
                ));
            }
            if names[..index].contains(name) {
                return Err(format!("network.names: {name} comes twice"));
            }
        }
        Ok(names)
    }

    pub(crate) fn check(&self, names: &[String]) -> Result<(), String> {
        self.link.check("network.link")?;
        if self.extra_links > 0 && self.shape != Shape::Random {
            return Err("network.extra_links: only the shape random has them".to_owned());
        }
        // A full mesh has them all, and the tree takes one a site but the first.
        let most = names.len().saturating_sub(1) * names.len().saturating_sub(2) / 2;
        if self.extra_links > most {
            return Err(format!(
                "network.extra_links: {} is more than {most}, what a tree of {} sites leaves",
                self.extra_links,
                names.len()
            ));
        }
        for (number, site) in self.later.iter().enumerate() {
            known(site, names, &format!("network.later.{number}"))?;
        }
        if names.first().is_none_or(|first| self.later.contains(first)) {
            return Err("network.later: the first site has a broker from the start".to_owned());
        }
        for (number, link) in self.links.iter().enumerate() {
            let key = format!("network.links.{number}");
            link.settings.check(&format!("{key}.link"))?;
            for site in &link.between {
                known(site, names, &format!("{key}.between"))?;
            }
            if link.between[0] == link.between[1] {
                return Err(format!("{key}.between: a link has two different ends"));
            }
            let [a, b] = &link.between;
            let is_same = |other: &LinkOverride| {
                let ends = &other.between;
                ends.contains(a) && ends.contains(b)
            };
            if let Some(first) = self.links[..number].iter().position(is_same) {
                return Err(format!(
                    "{key}.between: {a} and {b} have the link of network.links.{first}, and not another one"
                ));
            }
        }
        Ok(())
    }
}

/// An error if there are more sites than can be built with namespaces.
pub fn check_built(sites: usize) -> Result<(), String> {
    if sites <= MAX_BUILT_SITES {
        return Ok(());
    }
    Err(format!(
        "network.sites: {sites} is more than {MAX_BUILT_SITES}, the most that can be built; --backend simulated takes {MAX_SITES}"
    ))
}

/// An error unless `site` is one of `names`.
pub(crate) fn known(site: &str, names: &[String], key: &str) -> Result<(), String> {
    if names.iter().any(|name| name == site) {
        return Ok(());
    }
    Err(format!(
        "{key}: there is no site {site}, only {}",
        names.join(", ")
    ))
}
