//! Limits of each broker: CPU, memory and cores.

use serde::{Deserialize, Serialize};

use crate::units::Positive;

/// Cores of the largest machine.
const MAX_CORES: usize = 1024;
/// Memory of the largest machine: 64 TiB.
const MAX_MEMORY_MIB: u64 = 64 << 20;

/// CPU and memory of one broker; absent means unlimited.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Cores, as a quota of CPU time.
    pub cpus: Option<Positive>,
    /// Memory in MiB.
    pub memory_mib: Option<u64>,
    /// Cores that brokers may use, such as `"0"` or `"0-1,3"`: one list for each site in turn.
    #[serde(default)]
    pub cores: Vec<String>,
}

impl Limits {
    /// The cores of the broker of a site, by number; `None`: all.
    #[must_use]
    pub fn cores_of(&self, site: usize) -> Option<Vec<usize>> {
        let list = self.cores.get(site.checked_rem(self.cores.len())?)?;
        numbers(list)
    }

    /// Refuses cores that this machine does not have; the reason begins with the key.
    pub fn check_machine(&self) -> Result<(), String> {
        // Not those that this process may use: brokers may have others.
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        online.map_or(Ok(()), |online| self.check_cores(online.trim()))
    }

    fn check_cores(&self, online: &str) -> Result<(), String> {
        let Some(there) = numbers(online) else {
            return Ok(());
        };
        let is_missing = |(_, list): &(usize, &String)| {
            let wanted = numbers(list).unwrap_or_default();
            wanted.iter().any(|core| !there.contains(core))
        };
        match self.cores.iter().enumerate().find(is_missing) {
            Some((number, list)) => Err(format!(
                "brokers.cores.{number}: {list:?}, but the cores of this machine are {online}"
            )),
            None => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(mib) = self.memory_mib
            && !(1..=MAX_MEMORY_MIB).contains(&mib)
        {
            return Err(format!(
                "brokers.memory_mib: {mib} is not from 1 to {MAX_MEMORY_MIB}"
            ));
        }
        let wrong = |(_, list): &(usize, &String)| numbers(list).is_none();
        match self.cores.iter().enumerate().find(wrong) {
            Some((number, list)) => Err(format!(
                "brokers.cores.{number}: {list:?} is no list of cores such as \"0\" or \"0-1,3\""
            )),
            None => Ok(()),
        }
    }
}

/// The numbers in a list such as `0-1,3`; `None` if it is no such list.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // More than that no kernel counts.
        if first > last || last >= MAX_CORES {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_those_of_the_machine() {
        let cores = |lists: &[&str]| Limits {
            cores: lists.iter().map(ToString::to_string).collect(),
            ..Limits::default()
        };
        for (lists, online, refused) in [
            (&["0", "1"][..], "0-1", None),
            (&["0", "1-2"], "0-1", Some("brokers.cores.1: \"1-2\", ")),
            (&["7-9"], "0-1", Some("brokers.cores.0: \"7-9\", ")),
            (&["2"], "0-1,3", Some("brokers.cores.0: \"2\", ")),
            (&["3"], "unknown", None),
            (&[], "0", None),
        ] {
            let checked = cores(lists).check_cores(online);
            let error = checked.err().unwrap_or_default();
            let is_right = match refused {
                Some(start) => error.starts_with(start) && error.ends_with(online),
                None => error.is_empty(),
            };
            assert!(is_right, "{lists:?} on {online}: {error}");
        }
    }
}
