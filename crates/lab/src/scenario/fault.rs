//! Faults, and when they occur.

use serde::{Deserialize, Serialize};

use super::network::{LinkSettings, Network, known};
use super::units::{NonNegative, Positive};
use crate::topology::Topology;

/// One entry of the time line.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Seconds after the first message.
    #[serde(default)]
    pub at_s: NonNegative,
    /// Not before a broker has used this much CPU for two seconds, in percent of a core.
    #[serde(default)]
    pub when_cpu_percent: Option<Positive>,
    /// The kind of fault.
    #[serde(rename = "do")]
    pub action: Action,
    /// The broker concerned: kill, power-off, pause, resume, restart, join, drain.
    #[serde(default)]
    pub site: Option<String>,
    /// The link concerned: cut, heal, slow.
    #[serde(default)]
    pub link: Option<[String; 2]>,
    /// Sites on one side: partition.
    #[serde(default)]
    pub sites: Vec<String>,
    /// The link's settings from then on: slow.
    #[serde(default)]
    pub to: Option<LinkSettings>,
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
}

impl Action {
    /// The keys of a fault that it uses.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Cut | Self::Heal => &["link"],
            Self::Slow => &["link", "to"],
            Self::Partition => &["sites"],
            Self::Kill
            | Self::PowerOff
            | Self::Pause
            | Self::Resume
            | Self::Restart
            | Self::Join
            | Self::Drain => &["site"],
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
        self.check_in(&Topology::new(network, names, 1)?, &at)
    }

    /// An error if it has a key that its kind does not use.
    fn check_keys(&self, at: &str) -> Result<(), String> {
        let given = [
            ("site", self.site.is_some()),
            ("link", self.link.is_some()),
            ("sites", !self.sites.is_empty()),
            ("to", self.to.is_some()),
        ];
        let used = self.action.keys();
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
            Action::Kill | Action::PowerOff | Action::Pause | Action::Resume | Action::Restart => {
                known(site()?, names, &format!("{at}site"))
            }
            Action::Drain => known(site()?, names, &format!("{at}site")),
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
            when_cpu_percent: None,
            action,
            site: None,
            link: None,
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
        let site = self.site.as_deref().unwrap_or_default();
        match self.action {
            Action::Kill => format!("kill the broker of {site}"),
            Action::PowerOff => format!("power off {site}"),
            Action::Pause => format!("pause the broker of {site}"),
            Action::Resume => format!("resume the broker of {site}"),
            Action::Restart => format!("restart the broker of {site}"),
            Action::Join => format!("start the broker of {site}, which joins"),
            Action::Drain => format!("drain the broker of {site}"),
            Action::Cut => format!("cut {}", link(&self.link)),
            Action::Heal => format!("heal {}", link(&self.link)),
            Action::Slow => format!("slow {}", link(&self.link)),
            Action::Partition => format!("partition {} from the others", self.sites.join(", ")),
        }
    }
}
