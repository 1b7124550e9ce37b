//! A link's delay by a law, as in the file.

use serde::{Deserialize, Serialize};

use crate::delay::Delay;
use crate::units::{NonNegative, Positive};

/// The law of a delay each way, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DelayLaw {
    /// Which law.
    pub law: Law,
    /// The least delay in milliseconds: uniform, pareto.
    #[serde(default)]
    pub min_ms: Option<NonNegative>,
    /// The greatest delay: uniform.
    #[serde(default)]
    pub max_ms: Option<NonNegative>,
    /// The mean: normal, log-normal.
    #[serde(default)]
    pub mean_ms: Option<NonNegative>,
    /// The standard deviation: normal, log-normal.
    #[serde(default)]
    pub sd_ms: Option<Positive>,
    /// The tail index: pareto.
    #[serde(default)]
    pub shape: Option<Positive>,
    /// For what a delay is drawn.
    #[serde(default)]
    pub drawn: Drawn,
}

/// Laws by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Law {
    /// Between two bounds.
    Uniform,
    /// Not below 0.
    Normal,
    /// With a long tail.
    LogNormal,
    /// With a heavy tail.
    Pareto,
}

/// For what a delay is drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drawn {
    /// For each packet each way. None overtakes another on its link.
    #[default]
    PerPacket,
    /// Once for each link, by the scenario's seed.
    PerLink,
}

impl Law {
    /// The name in a scenario.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::LogNormal => "log-normal",
            Self::Pareto => "pareto",
        }
    }

    /// Its two parameters.
    const fn keys(self) -> [&'static str; 2] {
        match self {
            Self::Uniform => ["min_ms", "max_ms"],
            Self::Normal | Self::LogNormal => ["mean_ms", "sd_ms"],
            Self::Pareto => ["min_ms", "shape"],
        }
    }

    /// The law with its two parameters in the order of [`Law::keys`]; an error is the key and what is wrong with it.
    pub(crate) fn with(self, [first, second]: [f64; 2]) -> Result<Delay, (&'static str, String)> {
        match self {
            Self::Uniform if first >= second => {
                Err(("max_ms", format!("{second} is not above min_ms, {first}")))
            }
            Self::LogNormal if first == 0.0 => {
                Err(("mean_ms", "0 has no logarithm, expected more".to_owned()))
            }
            Self::Pareto if first == 0.0 => Err(("min_ms", "0 stays 0, expected more".to_owned())),
            Self::Pareto if second <= 1.0 => Err((
                "shape",
                format!("{second} is not above 1, so the delay has no mean"),
            )),
            Self::Uniform => Ok(Delay::Uniform {
                min_ms: first,
                max_ms: second,
            }),
            Self::Normal => Ok(Delay::Normal {
                mean_ms: first,
                sd_ms: second,
            }),
            Self::LogNormal => Ok(Delay::LogNormal {
                mean_ms: first,
                sd_ms: second,
            }),
            Self::Pareto => Ok(Delay::Pareto {
                min_ms: first,
                shape: second,
            }),
        }
    }
}

impl DelayLaw {
    /// The law with its parameters; an error names the key below `at`, such as `network.link.delay`.
    pub fn delay(&self, at: &str) -> Result<Delay, String> {
        let used = self.law.keys();
        let given = [
            ("min_ms", self.min_ms.map(NonNegative::value)),
            ("max_ms", self.max_ms.map(NonNegative::value)),
            ("mean_ms", self.mean_ms.map(NonNegative::value)),
            ("sd_ms", self.sd_ms.map(Positive::value)),
            ("shape", self.shape.map(Positive::value)),
        ];
        let (name, both) = (self.law.name(), used.join(" and "));
        if let Some((key, _)) = (given.iter()).find(|(key, it)| it.is_some() && !used.contains(key))
        {
            return Err(format!("{at}.{key}: {name} does not use it, only {both}"));
        }
        let value = |key: &str| {
            let found = given.iter().find(|(own, _)| *own == key);
            let missing = || format!("{at}.{key}: it is missing, {name} needs {both}");
            found.and_then(|(_, value)| *value).ok_or_else(missing)
        };
        let parameters = [value(used[0])?, value(used[1])?];
        let made = self.law.with(parameters);
        made.map_err(|(key, reason)| format!("{at}.{key}: {reason}"))
    }

    /// The law by the name of a scenario with two parameters, drawn for each packet: as on a command line.
    pub fn named(name: &str, parameters: [f64; 2]) -> Result<Self, String> {
        let laws = [Law::Uniform, Law::Normal, Law::LogNormal, Law::Pareto];
        let Some(law) = laws.into_iter().find(|law| law.name() == name) else {
            let names = laws.map(Law::name).join(", ");
            return Err(format!("{name} is no law of a delay: {names}"));
        };
        let mut all = Self {
            law,
            min_ms: None,
            max_ms: None,
            mean_ms: None,
            sd_ms: None,
            shape: None,
            drawn: Drawn::PerPacket,
        };
        for (key, value) in law.keys().into_iter().zip(parameters) {
            let at_least_0 = || NonNegative::try_from(value).map(Some);
            let above_0 = || Positive::try_from(value).map(Some);
            match key {
                "min_ms" => all.min_ms = at_least_0()?,
                "max_ms" => all.max_ms = at_least_0()?,
                "mean_ms" => all.mean_ms = at_least_0()?,
                "sd_ms" => all.sd_ms = above_0()?,
                _ => all.shape = above_0()?,
            }
        }
        all.delay(name)?;
        Ok(all)
    }
}
