//! Limits of a control group and of all above it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The control groups of a process, according to `/proc/PID/cgroup`.
#[derive(Debug)]
pub(crate) struct Groups {
    /// The mount point.
    root: PathBuf,
    /// Controllers and path of each hierarchy; no controllers: version 2.
    entries: Vec<(String, String)>,
}

/// In version 1 the largest number of whole pages means no limit.
const NO_LIMIT: u64 = 1 << 60;

impl Groups {
    /// `text`: lines `NUMBER:CONTROLLERS:PATH` (cgroups(7)).
    pub(crate) fn new(root: PathBuf, text: &str) -> Self {
        let entry = |line: &str| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        };
        Self {
            root,
            entries: text.lines().filter_map(entry).collect(),
        }
    }

    /// Processors; `None`: no limit.
    pub(crate) fn cpus(&self) -> Option<f64> {
        let unified = self.unified().filter_map(|group| {
            let text = read(&group, "cpu.max")?;
            let (quota, period) = text.trim().split_once(' ')?;
            share(quota, period)
        });
        let legacy = self.legacy("cpu").filter_map(|group| {
            let quota = read(&group, "cpu.cfs_quota_us")?;
            share(quota.trim(), read(&group, "cpu.cfs_period_us")?.trim())
        });
        unified.chain(legacy).reduce(f64::min)
    }

    /// Bytes; `None`: no limit but the machine's.
    pub(crate) fn memory(&self) -> Option<u64> {
        let limit = |group: &Path, file: &str| read(group, file)?.trim().parse::<u64>().ok();
        let unified = self
            .unified()
            .filter_map(|group| limit(&group, "memory.max"));
        let legacy = self
            .legacy("memory")
            .filter_map(|group| limit(&group, "memory.limit_in_bytes"));
        unified.chain(legacy).filter(|it| *it < NO_LIMIT).min()
    }

    /// The groups of version 2, from the process up.
    fn unified(&self) -> impl Iterator<Item = PathBuf> {
        let entry = self.entries.iter().find(|(names, _)| names.is_empty());
        let mounts = [self.root.clone(), self.root.join("unified")];
        let mounts = mounts.into_iter().filter(move |_| entry.is_some());
        let path = entry.map_or("/", |(_, path)| path);
        mounts.flat_map(move |mount| upwards(&mount, path))
    }

    /// The groups of version 1 with a controller, from the process up.
    fn legacy(&self, controller: &str) -> impl Iterator<Item = PathBuf> {
        let has = |names: &str| names.split(',').any(|name| name == controller);
        let entry = self.entries.iter().find(|(names, _)| has(names));
        let found = entry.map(|(names, path)| {
            // They may be mounted together, `cpu,cpuacct`, with a link for each.
            let mounts = [self.root.join(names), self.root.join(controller)];
            let mount = mounts.into_iter().find(|mount| mount.is_dir());
            upwards(&mount.unwrap_or_else(|| self.root.join(controller)), path)
        });
        found.into_iter().flatten()
    }
}

/// A group and all above it. In a container the path may be that of the host: missing directories are skipped, and the root always exists.
fn upwards(mount: &Path, path: &str) -> Vec<PathBuf> {
    let inside = Path::new(path.trim_start_matches('/'));
    inside
        .ancestors()
        .filter(|part| !part.starts_with(".."))
        .map(|part| mount.join(part))
        .collect()
}

fn read(group: &Path, file: &str) -> Option<String> {
    fs::read_to_string(group.join(file)).ok()
}

/// `max` or a negative quota means no limit.
fn share(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_least_limit_on_the_way_up_holds_in_version_2() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "pod/cpu.max", "50000 100000\n");
        write(root.path(), "pod/memory.max", "1000\n");
        write(root.path(), "pod/node/cpu.max", "max 100000\n");
        write(root.path(), "pod/node/memory.max", "5000\n");
        let groups = Groups::new(root.path().into(), "0::/pod/node\n");
        assert_eq!((groups.cpus(), groups.memory()), (Some(0.5), Some(1000)));
        let elsewhere = Groups::new(root.path().into(), "0::/\n");
        assert_eq!((elsewhere.cpus(), elsewhere.memory()), (None, None));
    }

    #[test]
    fn limits_of_version_1_are_read_by_controller() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n");
        write(root.path(), "cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
        write(root.path(), "memory/a/memory.limit_in_bytes", "4096\n");
        write(
            root.path(),
            "memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        let text = "4:memory:/a\n2:cpu,cpuacct:/a\n0::/\n";
        let groups = Groups::new(root.path().into(), text);
        assert_eq!((groups.cpus(), groups.memory()), (Some(1.5), Some(4096)));
    }

    #[test]
    fn in_a_container_the_root_is_the_group() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "cpu.max", "20000 100000\n");
        for text in ["0::/docker/0123\n", "0::/../outside\n"] {
            let groups = Groups::new(root.path().into(), text);
            assert_eq!(groups.cpus(), Some(0.2), "{text}");
        }
        let none = Groups::new(root.path().into(), "");
        assert_eq!(none.cpus(), None, "no control groups");
    }
}
