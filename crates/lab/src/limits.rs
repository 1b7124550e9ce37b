//! Control groups: limits and usage of CPU and memory of each broker, by version 1 or 2, whichever this machine has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde::Serialize;

use crate::error::LabError;
use crate::net::PREFIX;
use crate::scenario::Limits;

/// Length of a period of the CPU quota in microseconds.
const PERIOD_US: f64 = 100_000.0;

/// What this machine offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Controllers {
    /// Version 1: a tree for each controller.
    V1 {
        /// Mount point of `cpu`.
        cpu: PathBuf,
        /// Of `cpuacct`.
        accounting: PathBuf,
        /// Of `memory`.
        memory: PathBuf,
    },
    /// Version 2: one tree.
    V2 {
        /// Its mount point.
        root: PathBuf,
        /// Controllers that could not be enabled for its groups, with the reason: they limit and count nothing.
        refused: Vec<(&'static str, String)>,
    },
    /// Control groups are missing or not writable.
    None {
        /// Why.
        reason: String,
    },
}

/// The groups of one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    controllers: Controllers,
    name: String,
}

/// The resources that the processes of a group have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Use {
    /// CPU time since the group was made, in seconds.
    pub cpu_s: f64,
    /// Memory now without the page cache, in KiB; `None` where it is not counted.
    pub memory_kib: Option<u64>,
    /// Most memory since the group was made, in KiB, with page cache and kernel memory; `None` where it is not counted.
    pub memory_peak_kib: Option<u64>,
    /// Periods in which the quota was used up.
    pub throttled: u64,
}

impl Controllers {
    /// Detects what is mounted and whether a group can be created there.
    #[must_use]
    pub fn detect() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self::from_mounts(&mounts).usable()
    }

    /// What of it this user may use.
    fn usable(mut self) -> Self {
        let probe = format!("{PREFIX}{}-probe", std::process::id());
        for root in self.roots() {
            let folder = root.join(&probe);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    // Without the process number: results of two runs must be comparable.
                    return Self::None {
                        reason: format!("{}: {error}", root.display()),
                    };
                }
                _ => drop(fs::remove_dir(&folder)),
            }
        }
        if let Self::V2 { root, refused } = &mut self {
            let control = root.join("cgroup.subtree_control");
            // One refused name would fail a write of several.
            for controller in ["cpu", "memory"] {
                if let Err(error) = fs::write(&control, format!("+{controller}")) {
                    refused.push((controller, error.to_string()));
                }
            }
        }
        self
    }

    fn from_mounts(mounts: &str) -> Self {
        let (mut first, mut second) = (Vec::new(), None);
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else {
                continue;
            };
            let Some(point) = left.split(' ').nth(4) else {
                continue;
            };
            let right: Vec<&str> = right.split(' ').collect();
            match right.first() {
                Some(&"cgroup") => {
                    let options = right.get(2).copied().unwrap_or_default();
                    first.push((options.to_owned(), PathBuf::from(point)));
                }
                Some(&"cgroup2") => second = Some(PathBuf::from(point)),
                _ => {}
            }
        }
        let of = |name: &str| {
            first
                .iter()
                .find(|(options, _)| options.split(',').any(|option| option == name))
                .map(|(_, point)| point.clone())
        };
        match (of("cpu"), of("cpuacct"), of("memory"), second) {
            (Some(cpu), Some(accounting), Some(memory), _) => Self::V1 {
                cpu,
                accounting,
                memory,
            },
            (_, _, _, Some(root)) => Self::V2 {
                root,
                refused: Vec::new(),
            },
            _ => Self::None {
                reason: "no control groups are mounted".to_owned(),
            },
        }
    }

    /// The name in results.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::V1 { .. } => "cgroup v1".to_owned(),
            Self::V2 { refused, .. } if refused.is_empty() => "cgroup v2".to_owned(),
            Self::V2 { refused, .. } => {
                let refused = refused.iter();
                let reasons: Vec<String> = refused
                    .map(|(name, reason)| format!("{name}: {reason}"))
                    .collect();
                format!("cgroup v2 without {}", reasons.join("; "))
            }
            Self::None { reason } => format!("none ({reason})"),
        }
    }

    /// Folders of a group of this name, each once.
    fn folders(&self, name: &str) -> Vec<PathBuf> {
        let mut roots = self.roots();
        roots.dedup();
        roots.into_iter().map(|root| root.join(name)).collect()
    }

    fn roots(&self) -> Vec<&Path> {
        match self {
            Self::V1 {
                cpu,
                accounting,
                memory,
            } => vec![cpu, accounting, memory],
            Self::V2 { root, .. } => vec![root],
            Self::None { .. } => Vec::new(),
        }
    }

    /// Names of all groups that labs have created.
    #[must_use]
    pub fn groups(&self) -> Vec<String> {
        let entries = self
            .roots()
            .into_iter()
            .filter_map(|root| fs::read_dir(root).ok());
        entries
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with(PREFIX))
            .collect()
    }

    /// Processes in the groups for whose names `ours` holds.
    #[must_use]
    pub fn processes(&self, ours: &dyn Fn(&str) -> bool) -> Vec<Pid> {
        let names = self.groups().into_iter().filter(|name| ours(name));
        names
            .flat_map(|name| self.folders(&name))
            .filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok())
            .flat_map(|text| {
                text.lines()
                    .filter_map(|line| Pid::from_raw(line.parse().ok()?))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// Removes the groups for whose names `ours` holds. Their processes must have ended.
    pub fn remove(&self, ours: &dyn Fn(&str) -> bool) {
        for name in self.groups().into_iter().filter(|name| ours(name)) {
            for folder in self.folders(&name) {
                remove(&folder);
            }
        }
    }

    /// Creates the group of a broker with its limits.
    pub fn make(&self, name: &str, limits: &Limits) -> Result<Group, LabError> {
        for folder in self.folders(name) {
            fs::create_dir_all(&folder).map_err(LabError::io(folder.display()))?;
        }
        let group = Group {
            controllers: self.clone(),
            name: name.to_owned(),
        };
        for (file, value) in self.settings(name, limits) {
            fs::write(&file, &value)
                .map_err(LabError::io(format!("{} = {value}", file.display())))?;
        }
        Ok(group)
    }

    /// The files to write and their contents, in this order.
    fn settings(&self, name: &str, limits: &Limits) -> Vec<(PathBuf, String)> {
        let quota = limits
            .cpus
            .map(|cpus| ((cpus.value() * PERIOD_US) as u64).max(1000));
        let bytes = limits.memory_mib.map(|mib| mib * 1024 * 1024);
        let mut files = Vec::new();
        match self {
            Self::V1 { cpu, memory, .. } => {
                if let Some(quota) = quota {
                    files.push((cpu.join(name).join("cpu.cfs_quota_us"), quota.to_string()));
                }
                if let Some(bytes) = bytes {
                    let file = memory.join(name).join("memory.limit_in_bytes");
                    files.push((file, bytes.to_string()));
                }
            }
            Self::V2 { root, refused } => {
                let has = |name: &str| !refused.iter().any(|(refused, _)| *refused == name);
                if let Some(quota) = quota.filter(|_| has("cpu")) {
                    files.push((
                        root.join(name).join("cpu.max"),
                        format!("{quota} {PERIOD_US}"),
                    ));
                }
                if let Some(bytes) = bytes.filter(|_| has("memory")) {
                    files.push((root.join(name).join("memory.max"), bytes.to_string()));
                }
            }
            Self::None { .. } => {}
        }
        files
    }
}

impl Group {
    /// Folders into whose `cgroup.procs` a process of the group writes itself.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        self.controllers.folders(&self.name)
    }

    /// The resources that the group has used; `None` without control groups.
    #[must_use]
    pub fn read(&self) -> Option<Use> {
        match &self.controllers {
            Controllers::V1 {
                cpu,
                accounting,
                memory,
            } => {
                let used =
                    fs::read_to_string(accounting.join(&self.name).join("cpuacct.usage")).ok()?;
                let memory = memory.join(&self.name);
                let peak = memory.join("memory.max_usage_in_bytes");
                let memory = fs::read_to_string(memory.join("memory.stat")).unwrap_or_default();
                let stat =
                    fs::read_to_string(cpu.join(&self.name).join("cpu.stat")).unwrap_or_default();
                Some(Use {
                    cpu_s: used.trim().parse::<f64>().ok()? / 1e9,
                    memory_kib: field(&memory, "total_rss").map(|bytes| bytes / 1024),
                    memory_peak_kib: number(&peak).map(|bytes| bytes / 1024),
                    throttled: field(&stat, "nr_throttled").unwrap_or(0),
                })
            }
            Controllers::V2 { root, .. } => {
                let group = root.join(&self.name);
                let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
                let memory = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
                Some(Use {
                    cpu_s: field(&stat, "usage_usec")? as f64 / 1e6,
                    memory_kib: field(&memory, "anon").map(|bytes| bytes / 1024),
                    memory_peak_kib: number(&group.join("memory.peak")).map(|bytes| bytes / 1024),
                    throttled: field(&stat, "nr_throttled").unwrap_or(0),
                })
            }
            Controllers::None { .. } => None,
        }
    }

    /// Whether the kernel has killed a process of the group at its limit of memory.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        let file = match &self.controllers {
            Controllers::V1 { memory, .. } => memory.join(&self.name).join("memory.oom_control"),
            Controllers::V2 { root, .. } => root.join(&self.name).join("memory.events"),
            Controllers::None { .. } => return false,
        };
        let text = fs::read_to_string(file).unwrap_or_default();
        field(&text, "oom_kill").is_some_and(|count| count > 0)
    }
}

/// The number that is all of a file.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The number after a word at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (word, value) = line.split_once(' ')?;
        (word == name).then(|| value.trim().parse().ok()).flatten()
    })
}

/// Removes a group's folder; the last process may need a moment to end.
fn remove(folder: &Path) {
    for _ in 0..50 {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "33 32 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 32 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
40 32 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";

    fn limits() -> Limits {
        toml::from_str("cpus = 0.5\nmemory_mib = 2").unwrap()
    }

    #[test]
    fn version_1_counts_where_it_has_the_controllers() {
        let controllers = Controllers::from_mounts(V1);
        assert_eq!(controllers.describe(), "cgroup v1");
        assert_eq!(
            controllers.folders("g").len(),
            2,
            "one tree for cpu and cpuacct"
        );
        let settings = controllers.settings("g", &limits());
        let written: Vec<(String, &str)> = settings
            .iter()
            .map(|(file, value)| (file.display().to_string(), value.as_str()))
            .collect();
        assert_eq!(
            written,
            [
                (
                    "/sys/fs/cgroup/cpu,cpuacct/g/cpu.cfs_quota_us".to_owned(),
                    "50000"
                ),
                (
                    "/sys/fs/cgroup/memory/g/memory.limit_in_bytes".to_owned(),
                    "2097152"
                ),
            ]
        );
    }

    #[test]
    fn version_2_limits_with_the_controllers_that_it_could_enable() {
        let controllers =
            Controllers::from_mounts("30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw");
        let values = |controllers: &Controllers| -> Vec<String> {
            let settings = controllers.settings("g", &limits());
            settings.into_iter().map(|(_, value)| value).collect()
        };
        assert_eq!(values(&controllers), ["50000 100000", "2097152"]);
        assert!(controllers.settings("g", &Limits::default()).is_empty());
        let part = Controllers::V2 {
            root: PathBuf::from("/sys/fs/cgroup"),
            refused: vec![("memory", "busy".to_owned())],
        };
        assert_eq!(values(&part), ["50000 100000"]);
        assert_eq!(part.describe(), "cgroup v2 without memory: busy");
    }

    #[test]
    fn a_controller_that_is_refused_is_left_out_and_memory_that_is_not_counted_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let control = root.path().join("cgroup.subtree_control");
        // A folder cannot be written to: the kernel refuses likewise.
        std::fs::create_dir(&control).unwrap();
        let found = Controllers::V2 {
            root: root.path().to_owned(),
            refused: Vec::new(),
        };
        let found = found.usable();
        assert!(found.describe().starts_with("cgroup v2 without cpu: "));
        let group = found.make("g", &limits()).unwrap();
        let folder = root.path().join("g");
        std::fs::write(folder.join("cpu.stat"), "usage_usec 1000000\n").unwrap();
        let used = group.read().unwrap();
        assert_eq!((used.cpu_s, used.memory_kib), (1.0, None));
        std::fs::write(folder.join("memory.stat"), "anon 2048\n").unwrap();
        std::fs::write(folder.join("memory.peak"), "4096\n").unwrap();
        std::fs::write(folder.join("memory.events"), "oom 1\noom_kill 1\n").unwrap();
        let used = group.read().unwrap();
        assert_eq!((used.memory_kib, used.memory_peak_kib), (Some(2), Some(4)));
        assert!(group.is_out_of_memory());
    }

    #[test]
    fn a_reason_has_no_process_number() {
        let found = Controllers::V2 {
            root: PathBuf::from("/proc/self/nothing"),
            refused: Vec::new(),
        };
        let reason = found.usable().describe();
        assert!(reason.starts_with("none (/proc/self/nothing: "), "{reason}");
    }

    #[test]
    fn without_control_groups_the_reason_is_said() {
        let controllers = Controllers::from_mounts("");
        assert_eq!(
            controllers.describe(),
            "none (no control groups are mounted)"
        );
        assert!(controllers.folders("g").is_empty());
    }
}
