//! Faults, and when they occur.

use serde::{Deserialize, Serialize};
use thicket_bench::random::Random;

use crate::network::{LinkSettings, Network, known};
use crate::topology::{Cut, Topology};
use crate::units::{NonNegative, Positive, Signed};

/// Most entries that one recurring fault may be expected to have.
const MOST: f64 = 10_000.0;

/// What has to be in a broker so that faults can reach it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reach {
    /// Its disk stalls: it stores what it acknowledges.
    pub disk: bool,
    /// Its wall clock jumps.
    pub clock: bool,
}

impl Reach {
    /// What these faults need.
    #[must_use]
    pub fn of(faults: &[Fault]) -> Self {
        let has = |action: Action| faults.iter().any(|fault| fault.action == action);
        Self {
            disk: has(Action::StallDisk),
            clock: has(Action::ClockJump),
        }
    }

    /// What either needs.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            disk: self.disk || other.disk,
            clock: self.clock || other.clock,
        }
    }

    /// Whether the library that stalls disks and moves clocks is loaded.
    #[must_use]
    pub const fn needs_library(self) -> bool {
        self.disk || self.clock
    }
}

/// One entry of the time line.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Seconds after the first message; of a recurring one, before which it does not occur.
    #[serde(default)]
    pub at_s: NonNegative,
    /// Seconds after which it is repaired: a broker restarts or resumes, links are healed, a disk is free, a clock is right again.
    #[serde(default)]
    pub for_s: Option<Positive>,
    /// It recurs, at times that the seed draws: the mean of the seconds from a repair until it occurs again, which follow an exponential distribution.
    #[serde(default)]
    pub every_s: Option<Positive>,
    /// Seconds after the first message at which it recurs no more; the end of the load without it.
    #[serde(default)]
    pub until_s: Option<Positive>,
    /// Not before a broker has used this much CPU for two seconds, in percent of a core.
    #[serde(default)]
    pub when_cpu_percent: Option<Positive>,
    /// The kind of fault.
    #[serde(rename = "do")]
    pub action: Action,
    /// The broker concerned: kill, power-off, pause, resume, restart, join, drain, stall-disk, clock-jump. Of a recurring fault it is drawn each time if it is
    /// not named.
    #[serde(default)]
    pub site: Option<String>,
    /// The link concerned: cut, heal, slow.
    #[serde(default)]
    pub link: Option<[String; 2]>,
    /// Only what the first site of `link` sends to the second is lost, or what `sites` send to the others: cut, partition.
    #[serde(default)]
    pub one_way: bool,
    /// Sites on one side: partition. Of a recurring fault of brokers: the sites that are drawn from, all if there are none.
    #[serde(default)]
    pub sites: Vec<String>,
    /// The link's settings from then on: slow.
    #[serde(default)]
    pub to: Option<LinkSettings>,
    /// How far ahead of the time the wall clock is from then on, or behind it: clock-jump.
    #[serde(default)]
    pub by_s: Option<Signed>,
}

/// Kinds of faults and their repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// SIGKILL: the process is gone, its sockets close.
    Kill,
    /// The machine is gone: its links go silent, then the process dies.
    PowerOff,
    /// SIGSTOP.
    Pause,
    /// SIGCONT.
    Resume,
    /// Restart a broker that was killed; after a power-off, also its links.
    Restart,
    /// Start the broker of a site of `network.later`: it joins the others.
    Join,
    /// A broker hands its clients and sessions to others, if its driver has a command for that.
    Drain,
    /// A link loses everything.
    Cut,
    /// A link gets the scenario's settings again; without a link, all of them.
    Heal,
    /// All links between `sites` and the others are cut at once.
    Partition,
    /// A link gets other settings.
    Slow,
    /// What a broker syncs to its disk waits.
    StallDisk,
    /// The disk of a broker is as before: the repair of a stalled one.
    #[serde(skip_deserializing)]
    FreeDisk,
    /// The wall clock of a broker jumps ahead or back.
    ClockJump,
}

impl Action {
    /// The keys of a fault that it uses.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Cut => &["link", "one_way"],
            Self::Heal => &["link"],
            Self::Slow => &["link", "to"],
            Self::Partition => &["sites", "one_way"],
            Self::ClockJump => &["site", "by_s"],
            Self::Kill
            | Self::PowerOff
            | Self::Pause
            | Self::Resume
            | Self::Restart
            | Self::Join
            | Self::Drain
            | Self::StallDisk
            | Self::FreeDisk => &["site"],
        }
    }

    /// What undoes it; `None` if it is a repair itself, or cannot be undone.
    const fn repair(self) -> Option<Self> {
        match self {
            Self::Kill | Self::PowerOff => Some(Self::Restart),
            Self::Pause => Some(Self::Resume),
            Self::Cut | Self::Partition | Self::Slow => Some(Self::Heal),
            Self::StallDisk => Some(Self::FreeDisk),
            Self::ClockJump => Some(Self::ClockJump),
            Self::Resume
            | Self::Restart
            | Self::Join
            | Self::Drain
            | Self::Heal
            | Self::FreeDisk => None,
        }
    }

    /// The name in a scenario.
    const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::PowerOff => "power-off",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Restart => "restart",
            Self::Join => "join",
            Self::Drain => "drain",
            Self::Cut => "cut",
            Self::Heal => "heal",
            Self::Partition => "partition",
            Self::Slow => "slow",
            Self::StallDisk => "stall-disk",
            Self::FreeDisk => "free-disk",
            Self::ClockJump => "clock-jump",
        }
    }
}

impl Fault {
    /// `number`: its place in the file, from 0.
    pub(super) fn check(
        &self,
        number: usize,
        names: &[String],
        network: &Network,
    ) -> Result<(), String> {
        let at = format!("fault.{number}.");
        self.check_keys(&at)?;
        self.check_times(&at)?;
        let topology = Topology::new(network, names, 1)?;
        for site in self.sites.iter().filter(|_| self.is_drawn()) {
            known(site, names, &format!("{at}sites"))?;
            Self {
                site: Some(site.clone()),
                ..self.clone()
            }
            .check_in(&topology, &at)?;
        }
        if self.is_drawn() {
            return Ok(());
        }
        self.check_in(&topology, &at)
    }

    /// Whether each occurrence draws its site.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        self.every_s.is_some() && self.site.is_none() && self.is_of_broker()
    }

    /// An error unless the keys about times fit each other and the kind.
    fn check_times(&self, at: &str) -> Result<(), String> {
        let name = self.action.name();
        if self.for_s.is_some() && self.action.repair().is_none() {
            return Err(format!("{at}for_s: nothing repairs {name}"));
        }
        if self.action == Action::StallDisk && self.for_s.is_none() {
            return Err(format!(
                "{at}for_s: it is missing, how long the disk stalls"
            ));
        }
        let Some(every_s) = self.every_s else {
            return match self.until_s {
                Some(_) => Err(format!("{at}until_s: only a fault with every_s recurs")),
                None => Ok(()),
            };
        };
        if self.for_s.is_none() && self.action != Action::ClockJump {
            return Err(match self.action.repair() {
                Some(_) => {
                    format!("{at}for_s: it is missing, {name} does not recur without a repair")
                }
                None => format!("{at}every_s: {name} does not recur"),
            });
        }
        if self.when_cpu_percent.is_some() {
            return Err(format!(
                "{at}when_cpu_percent: a fault that recurs has its times from the seed"
            ));
        }
        let span_s = self.until_s.map_or(0.0, Positive::value) - self.at_s.value();
        if self.until_s.is_some() && span_s <= 0.0 {
            return Err(format!("{at}until_s: it is not after at_s"));
        }
        if span_s / every_s.value() > MOST {
            return Err(format!(
                "{at}every_s: that is more than {MOST} times until until_s"
            ));
        }
        Ok(())
    }

    /// The entries of the time line that it stands for, repairs included: from its times, or by the draws of `random` until `end_s`. `sites` are those that
    /// may be drawn.
    #[must_use]
    pub fn entries(&self, sites: &[String], end_s: f64, random: &mut Random) -> Vec<Self> {
        let plain = Self {
            every_s: None,
            until_s: None,
            ..self.clone()
        };
        let Some(every_s) = self.every_s else {
            return plain.with_repair();
        };
        let end_s = self.until_s.map_or(end_s, Positive::value);
        let among: &[String] = if self.sites.is_empty() {
            sites
        } else {
            &self.sites
        };
        let (mut all, mut at_s) = (Vec::new(), self.at_s.value());
        loop {
            at_s += random.exponential(every_s.value());
            let Ok(at) = NonNegative::try_from(at_s) else {
                return all;
            };
            if at_s >= end_s || all.len() as f64 > 4.0 * MOST {
                return all;
            }
            let mut entry = Self {
                at_s: at,
                ..plain.clone()
            };
            if self.is_drawn() {
                entry.site = among.get(random.below(among.len())).cloned();
                entry.sites.clear();
            }
            all.extend(entry.with_repair());
            at_s += self.for_s.map_or(0.0, Positive::value);
        }
    }

    /// This, and what undoes it after `for_s`.
    pub(super) fn with_repair(&self) -> Vec<Self> {
        let plain = Self {
            for_s: None,
            ..self.clone()
        };
        let repair = self.for_s.zip(self.action.repair());
        let repair = repair.and_then(|(for_s, action)| {
            let at_s = NonNegative::try_from(self.at_s.value() + for_s.value());
            let is_clock = action == Action::ClockJump;
            Some(Self {
                at_s: at_s.ok()?,
                when_cpu_percent: None,
                action,
                sites: Vec::new(),
                to: None,
                one_way: false,
                by_s: is_clock.then(Signed::default),
                ..plain.clone()
            })
        });
        std::iter::once(plain.clone()).chain(repair).collect()
    }

    /// An error if it has a key that its kind does not use.
    fn check_keys(&self, at: &str) -> Result<(), String> {
        let given = [
            ("site", self.site.is_some()),
            ("link", self.link.is_some()),
            ("sites", !self.sites.is_empty()),
            ("to", self.to.is_some()),
            ("by_s", self.by_s.is_some()),
            ("one_way", self.one_way),
        ];
        let mut used = self.action.keys().to_vec();
        if self.is_drawn() {
            used.push("sites");
        }
        match given
            .iter()
            .find(|(key, is_given)| *is_given && !used.contains(key))
        {
            Some((key, _)) => Err(format!(
                "{at}{key}: {} does not use it, only {}",
                self.action.name(),
                used.join(" and ")
            )),
            None => Ok(()),
        }
    }

    /// Whether it concerns the broker of its site.
    #[must_use]
    pub fn is_of_broker(&self) -> bool {
        self.action.keys().contains(&"site")
    }

    /// An error unless it is possible in this network; `at` precedes the key.
    pub fn check_in(&self, topology: &Topology, at: &str) -> Result<(), String> {
        let names = &topology.sites;
        let site = || self.site.as_ref().ok_or(format!("{at}site: it is missing"));
        match self.action {
            Action::Kill
            | Action::PowerOff
            | Action::Pause
            | Action::Resume
            | Action::Restart
            | Action::Drain
            | Action::StallDisk
            | Action::FreeDisk => known(site()?, names, &format!("{at}site")),
            Action::ClockJump => {
                known(site()?, names, &format!("{at}site"))?;
                let missing = format!("{at}by_s: it is missing, how far the clock is ahead then");
                self.by_s.map(drop).ok_or(missing)
            }
            Action::Join => {
                known(site()?, names, &format!("{at}site"))?;
                if topology.later.contains(site()?) {
                    return Ok(());
                }
                Err(format!(
                    "{at}site: {} is not in network.later, its broker runs from the start",
                    site()?
                ))
            }
            Action::Cut | Action::Slow => {
                self.check_link(topology, at)?;
                match (self.action, &self.to) {
                    (Action::Slow, None) => {
                        Err(format!("{at}to: it is missing, the link's new settings"))
                    }
                    (_, Some(to)) if to.is_drawn_per_link() => Err(format!(
                        "{at}to.delay.drawn: per-link is drawn before brokers start, expected per-packet"
                    )),
                    (_, Some(to)) => to.check(&format!("{at}to")),
                    (_, None) => Ok(()),
                }
            }
            Action::Heal if self.link.is_none() => Ok(()),
            Action::Heal => self.check_link(topology, at),
            Action::Partition => {
                for site in &self.sites {
                    known(site, names, &format!("{at}sites"))?;
                }
                if self.sites.is_empty() || self.sites.len() >= names.len() {
                    return Err(format!("{at}sites: expected some of the sites, not all"));
                }
                Ok(())
            }
        }
    }

    fn check_link(&self, topology: &Topology, at: &str) -> Result<(), String> {
        let Some([a, b]) = &self.link else {
            return Err(format!("{at}link: it is missing, two sites"));
        };
        known(a, &topology.sites, &format!("{at}link"))?;
        known(b, &topology.sites, &format!("{at}link"))?;
        topology
            .link_between(a, b)
            .map(drop)
            .ok_or(format!("{at}link: there is no link {a} - {b}"))
    }

    /// What it cuts: none if it cuts no link.
    #[must_use]
    pub fn cuts(&self, topology: &Topology) -> Vec<Cut> {
        let (links, senders) = match (self.action, &self.link, &self.site) {
            (Action::Cut, Some([a, b]), _) => {
                let link = topology.link_between(a, b);
                (link.into_iter().collect(), std::slice::from_ref(a))
            }
            (Action::PowerOff, _, Some(site)) => {
                let site = std::slice::from_ref(site);
                (topology.links_around(site), site)
            }
            (Action::Partition, ..) => (topology.links_around(&self.sites), &self.sites[..]),
            _ => return Vec::new(),
        };
        let cut = |link: usize| {
            let mut sender = senders.iter();
            let sends = sender.find_map(|sender| topology.direction(link, sender));
            let only = sends.filter(|_| self.one_way);
            Cut { link, only }
        };
        links.into_iter().map(cut).collect()
    }

    /// A fault of a broker, now.
    #[must_use]
    pub fn of_site(action: Action, site: &str) -> Self {
        Self {
            site: Some(site.to_owned()),
            ..Self::now(action)
        }
    }

    /// A fault that occurs now, with nothing named yet.
    #[must_use]
    pub fn now(action: Action) -> Self {
        Self {
            at_s: NonNegative::default(),
            for_s: None,
            every_s: None,
            until_s: None,
            when_cpu_percent: None,
            action,
            by_s: None,
            site: None,
            link: None,
            one_way: false,
            sites: Vec::new(),
            to: None,
        }
    }

    /// The fault in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let link = |link: &Option<[String; 2]>| {
            link.as_ref()
                .map_or("all links".to_owned(), |[a, b]| format!("link {a} - {b}"))
        };
        let drawn = match &self.sites[..] {
            [] => "a site drawn each time".to_owned(),
            sites => format!("one of {}, drawn each time", sites.join(", ")),
        };
        let site = self.site.as_deref().unwrap_or(&drawn);
        match self.action {
            Action::StallDisk => format!("stall the disk of {site}"),
            Action::FreeDisk => format!("free the disk of {site}"),
            Action::ClockJump => match self.by_s.map_or(0.0, Signed::value) {
                0.0 => format!("set the clock of {site} right"),
                ahead if ahead > 0.0 => format!("set the clock of {site} {ahead} s ahead"),
                behind => format!("set the clock of {site} {} s back", -behind),
            },
            Action::Kill => format!("kill the broker of {site}"),
            Action::PowerOff => format!("power off {site}"),
            Action::Pause => format!("pause the broker of {site}"),
            Action::Resume => format!("resume the broker of {site}"),
            Action::Restart => format!("restart the broker of {site}"),
            Action::Join => format!("start the broker of {site}, which joins"),
            Action::Drain => format!("drain the broker of {site}"),
            Action::Cut => match (&self.link, self.one_way) {
                (Some([a, b]), true) => format!("cut link {a} - {b}, from {a} to {b} only"),
                (named, _) => format!("cut {}", link(named)),
            },
            Action::Heal => format!("heal {}", link(&self.link)),
            Action::Slow => format!("slow {}", link(&self.link)),
            Action::Partition => {
                let sites = self.sites.join(", ");
                let what = if self.one_way {
                    ", what they send only"
                } else {
                    ""
                };
                format!("partition {sites} from the others{what}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::{Fault, Scenario};
    use crate::topology::Topology;

    fn parse(faults: &str) -> Result<Scenario, String> {
        let text = format!(
            "title = \"t\"\nnetwork = {{ sites = 4, later = [\"s4\"] }}\n\
             workload = {{ pattern = \"pair\", publishers = 2, rate_per_s = 10, seconds = 60 }}\n\
             [[system]]\nname = \"x\"\ndriver = \"thicket\"\n{faults}"
        );
        Scenario::parse(&text).map(|(scenario, _)| scenario)
    }

    fn times(line: &[Fault]) -> Vec<(u64, String)> {
        let one = |fault: &Fault| ((1e6 * fault.at_s.value()) as u64, fault.describe());
        line.iter().map(one).collect()
    }

    #[test]
    fn a_fault_is_repaired_after_its_time() {
        let scenario = parse(
            "[[fault]]\ndo = \"power-off\"\nsite = \"s2\"\nat_s = 1\nfor_s = 2\n\
             [[fault]]\ndo = \"clock-jump\"\nsite = \"s1\"\nby_s = -60\nat_s = 1.5\nfor_s = 1\n\
             [[fault]]\ndo = \"stall-disk\"\nsite = \"s3\"\nat_s = 4\nfor_s = 0.5\n\
             [[fault]]\ndo = \"partition\"\nsites = [\"s1\"]\nat_s = 5\nfor_s = 1\n",
        );
        let expected = [
            (1.0, "power off s2"),
            (1.5, "set the clock of s1 60 s back"),
            (2.5, "set the clock of s1 right"),
            (3.0, "restart the broker of s2"),
            (4.0, "stall the disk of s3"),
            (4.5, "free the disk of s3"),
            (5.0, "partition s1 from the others"),
            (6.0, "heal all links"),
        ];
        let expected = expected.map(|(at_s, what)| ((1e6 * at_s) as u64, what.to_owned()));
        assert_eq!(times(&scenario.unwrap().time_line(1)), expected);
    }

    #[test]
    fn a_link_may_be_cut_one_way_from_the_site_that_is_named_first() {
        let cuts = |fault: &str| {
            let scenario = parse(&format!("[[fault]]\n{fault}\n")).unwrap();
            let names = scenario.network.names().unwrap();
            let topology = Topology::new(&scenario.network, &names, 1).unwrap();
            let cuts = scenario.faults[0].cuts(&topology);
            let lost = |from: usize, to: usize| topology.is_cut(from, to, &cuts);
            let pairs = (0..4).flat_map(|from| (0..4).map(move |to| (from, to)));
            let lost: Vec<_> = pairs.filter(|&(from, to)| lost(from, to)).collect();
            (lost, scenario.time_line(1)[0].describe())
        };
        let cut = "do = \"cut\"\nlink = [\"s2\", \"s1\"]";
        assert_eq!(cuts(cut).0, [(0, 1), (1, 0)]);
        let (lost, words) = cuts(&format!("{cut}\none_way = true"));
        assert_eq!(lost, [(1, 0)]);
        assert_eq!(words, "cut link s2 - s1, from s2 to s1 only");
        let partition = "do = \"partition\"\nsites = [\"s1\", \"s3\"]\none_way = true";
        let (lost, words) = cuts(partition);
        assert_eq!(lost, [(0, 1), (0, 3), (2, 1), (2, 3)]);
        assert_eq!(
            words,
            "partition s1, s3 from the others, what they send only"
        );
    }

    #[test]
    fn random_deaths_are_the_same_for_one_seed_and_hit_every_broker_that_may_die() {
        let faults = "[[fault]]\ndo = \"kill\"\nfor_s = 1\nevery_s = 2\n";
        let scenario = parse(faults).unwrap();
        let line = scenario.time_line(7);
        assert_eq!(times(&line), times(&scenario.time_line(7)));
        assert_ne!(times(&line), times(&scenario.time_line(8)));
        let kills = line.iter().filter(|it| it.describe().starts_with("kill"));
        // Each takes three seconds in the mean, of sixty.
        assert!((10..35).contains(&kills.clone().count()), "{line:?}");
        for (site, may_die) in [("s1", true), ("s2", true), ("s3", true), ("s4", false)] {
            let dies = kills.clone().any(|it| it.site.as_deref() == Some(site));
            assert_eq!(dies, may_die, "{site}");
        }
        // It is up again before the next one dies.
        let mut down = None;
        for fault in &line {
            let is_kill = fault.describe().starts_with("kill");
            assert_eq!(down.is_none(), is_kill, "{line:?}");
            assert!(is_kill || fault.site == down);
            down = is_kill.then(|| fault.site.clone()).flatten();
        }
        let only = parse(&format!(
            "{faults}at_s = 30\nuntil_s = 50\nsites = [\"s2\"]\n"
        ));
        let only = only.unwrap().time_line(7);
        assert!(!only.is_empty());
        for fault in &only {
            assert_eq!(fault.site.as_deref(), Some("s2"));
            assert!((30.0..51.0).contains(&fault.at_s.value()), "{only:?}");
        }
        // Another fault in the file does not move them.
        let more = parse(&format!("{faults}[[fault]]\ndo = \"heal\"\nat_s = 2\n"));
        let more = more.unwrap().time_line(7);
        assert_eq!(more.len(), line.len() + 1);
        assert!(times(&line).iter().all(|it| times(&more).contains(it)));
    }

    #[test]
    fn what_a_fault_cannot_have_is_refused_by_line_and_key() {
        for (fault, expected) in [
            (
                "do = \"stall-disk\"\nsite = \"s1\"",
                "line 7, fault.0.for_s: it is missing, how long the disk stalls",
            ),
            (
                "do = \"clock-jump\"\nsite = \"s1\"",
                "line 7, fault.0.by_s: it is missing",
            ),
            (
                "do = \"kill\"\nsite = \"s1\"\nby_s = 1",
                "line 10, fault.0.by_s: kill does not use it",
            ),
            (
                "do = \"kill\"\nevery_s = 5",
                "line 7, fault.0.for_s: it is missing, kill does not recur without a repair",
            ),
            (
                "do = \"drain\"\nevery_s = 5",
                "line 9, fault.0.every_s: drain does not recur",
            ),
            (
                "do = \"restart\"\nsite = \"s1\"\nfor_s = 5",
                "line 10, fault.0.for_s: nothing repairs restart",
            ),
            (
                "do = \"kill\"\nsite = \"s1\"\nuntil_s = 5",
                "line 10, fault.0.until_s: only a fault with every_s recurs",
            ),
            (
                "do = \"kill\"\nevery_s = 1\nfor_s = 1\nat_s = 9\nuntil_s = 5",
                "line 12, fault.0.until_s: it is not after at_s",
            ),
            (
                "do = \"kill\"\nevery_s = 0.001\nfor_s = 1\nuntil_s = 50",
                "line 9, fault.0.every_s: that is more than 10000 times",
            ),
            (
                "do = \"kill\"\nevery_s = 1\nfor_s = 1\nsites = [\"s9\"]",
                "line 11, fault.0.sites: there is no site s9",
            ),
            (
                "do = \"slow\"\nlink = [\"s1\", \"s2\"]\nto = { rtt_ms = 1 }\none_way = true",
                "fault.0.one_way: slow does not use it, only link and to",
            ),
            (
                "do = \"kill\"\nsite = \"s1\"\nsites = [\"s2\"]",
                "line 10, fault.0.sites: kill does not use it",
            ),
            (
                "do = \"kill\"\nevery_s = 1\nfor_s = 1\nwhen_cpu_percent = 5",
                "line 11, fault.0.when_cpu_percent",
            ),
            (
                "do = \"free-disk\"\nsite = \"s1\"",
                "unknown variant `free-disk`",
            ),
        ] {
            let error = parse(&format!("[[fault]]\n{fault}\n")).unwrap_err();
            assert!(error.contains(expected), "{fault}: {error}");
        }
        let unknown = "title = \"t\"\nnetwork = { sites = 2 }\nworkload = { pattern = \"pair\", window = 5, messages = 10 }\n\
             [[system]]\nname = \"x\"\ndriver = \"thicket\"\n[[fault]]\ndo = \"kill\"\nevery_s = 1\nfor_s = 1\n";
        let error = Scenario::parse(unknown).unwrap_err();
        assert!(error.contains("fault.0.until_s: it is missing"), "{error}");
    }
}
