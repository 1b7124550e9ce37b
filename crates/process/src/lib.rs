//! CPU and memory that a process of this host has used and may use, from `/proc` and from its
//! control group; and what this process may do ([`sandbox`]).
//!
//! A share of the CPU means something only relative to what the process may use: a node with a quota of half a processor is busy when it uses half of
//! one. So [`Process::cpus`] is the minimum of its affinity and of the quotas of its control group and all groups above it, of version 1 or 2; the
//! same holds for [`Process::memory_limit`]. What the system does not report counts as no limit.
//!
//! Left to others: when to measure, and what to do with the result.
//!
//! Invariants: a [`Process`] caches nothing, each call reads the files again; a limit never exceeds that of any control group on the path.
//!
//! ```no_run
//! let process = thicket_process::Process::own();
//! let used = process.cpu_seconds()?;
//! println!("{used} s of CPU so far, of {} processors", process.cpus());
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Thicket's nodes run on Linux: build it there, or in a container or virtual machine with Linux"
);

mod group;
pub mod sandbox;

use std::{fs, io, path::PathBuf};

use group::Groups;

/// Ticks of `/proc/PID/stat` in a second (USER_HZ, proc(5)).
const TICKS: f64 = 100.0;

/// A process, by its number in `/proc`.
#[derive(Debug, Clone)]
pub struct Process {
    directory: PathBuf,
}

impl Process {
    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self {
            directory: "/proc/self".into(),
        }
    }

    /// Another process.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        Self {
            directory: format!("/proc/{pid}").into(),
        }
    }

    /// User and system time of all its threads so far.
    ///
    /// # Errors
    /// There is no such process, or this one may not read it.
    pub fn cpu_seconds(&self) -> io::Result<f64> {
        Ok(self.stat()?.0 / TICKS)
    }

    /// Number of its threads.
    ///
    /// # Errors
    /// As [`Self::cpu_seconds`].
    pub fn threads(&self) -> io::Result<u32> {
        Ok(self.stat()?.1)
    }

    /// When it started, in seconds since 1970.
    ///
    /// # Errors
    /// As [`Self::cpu_seconds`].
    pub fn start_seconds(&self) -> io::Result<f64> {
        let of_system = fs::read_to_string("/proc/stat")?;
        let start = parse_start(&self.read("stat")?, &of_system);
        start.ok_or_else(|| io::Error::other("no start in its stat"))
    }

    fn stat(&self) -> io::Result<(f64, u32)> {
        let text = self.read("stat")?;
        parse_stat(&text).ok_or_else(|| io::Error::other(format!("cannot read {text:?}")))
    }

    /// Processors that it may use, including fractions; at least a hundredth.
    #[must_use]
    pub fn cpus(&self) -> f64 {
        let status = self.read("status").unwrap_or_default();
        let affinity = parse_allowed(&status);
        let quota = self.groups().cpus();
        let least = affinity.into_iter().chain(quota).reduce(f64::min);
        least.unwrap_or(1.0).max(0.01)
    }

    /// Its resident memory in bytes.
    ///
    /// # Errors
    /// As [`Self::cpu_seconds`].
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let text = self.read("status")?;
        kibibytes(&text, "VmRSS:").ok_or_else(|| io::Error::other("no VmRSS in its status"))
    }

    /// Number of its open files and sockets.
    ///
    /// # Errors
    /// As [`Self::cpu_seconds`].
    pub fn open_files(&self) -> io::Result<u64> {
        let path = self.directory.join("fd");
        Ok(fs::read_dir(path)?.count() as u64)
    }

    /// Limit of its open files and sockets; `None`: no limit, or the system does not report it.
    #[must_use]
    pub fn most_open_files(&self) -> Option<u64> {
        let limits = self.read("limits").ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Limit of its memory in bytes: that of the machine, or of its control group.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        let machine = fs::read_to_string("/proc/meminfo").ok();
        let machine = machine.and_then(|text| kibibytes(&text, "MemTotal:"));
        machine.into_iter().chain(self.groups().memory()).min()
    }

    fn groups(&self) -> Groups {
        Groups::new(
            "/sys/fs/cgroup".into(),
            &self.read("cgroup").unwrap_or_default(),
        )
    }

    fn read(&self, file: &str) -> io::Result<String> {
        let path = self.directory.join(file);
        fs::read_to_string(&path).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot read {}: {error}", path.display()),
            )
        })
    }
}

/// User and system time in ticks, and threads: fields 14, 15 and 20.
fn parse_stat(stat: &str) -> Option<(f64, u32)> {
    // The program's name is in brackets and may contain spaces and brackets itself.
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system, fields.nth(4)?.trim().parse().ok()?))
}

/// Field 22 counts ticks since the boot, whose time is in `/proc/stat`.
fn parse_start(stat: &str, of_system: &str) -> Option<f64> {
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split(' ').skip(19);
    let ticks: f64 = fields.next()?.trim().parse().ok()?;
    let mut lines = of_system.lines();
    let boot: f64 = lines
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Some(boot + ticks / TICKS)
}

/// Number of processors that a process may run on.
fn parse_allowed(status: &str) -> Option<f64> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let of_range = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(to.trim().parse::<f64>().ok()? - from.trim().parse::<f64>().ok()? + 1.0)
    };
    list.trim().split(',').map(of_range).sum()
}

/// The bytes of a line such as `MemTotal: 16000000 kB`.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_counts() {
        let own = Process::own();
        let _file = fs::File::open("/proc/self/stat").expect("this system has /proc");
        let open = own.open_files().expect("this system has /proc");
        assert!(open >= 4, "{open}");
        assert!(own.most_open_files().is_none_or(|most| most >= open));
    }

    #[test]
    fn a_stat_line_is_read_whatever_the_program_is_called() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 125 0 0 20 0 3 0 100 1000 500";
        assert_eq!(parse_stat(stat), Some((375.0, 3)));
        assert_eq!(parse_stat("42 (cut"), None);
    }

    #[test]
    fn a_process_started_its_ticks_after_the_boot() {
        let stat = "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 125 0 0 20 0 3 0 150 1000 500";
        let of_system = "cpu 1 2 3\nbtime 1000\nprocesses 7\n";
        assert_eq!(parse_start(stat, of_system), Some(1001.5));
        assert_eq!(parse_start(stat, "cpu 1 2 3\n"), None);
        assert_eq!(parse_start("42 (cut", of_system), None);
    }

    #[test]
    fn processors_are_counted_from_their_list() {
        for (list, expected) in [("0", 1.0), ("0-3", 4.0), ("0,2-3,7", 4.0)] {
            let status = format!("Name:\tx\nCpus_allowed_list:\t{list}\n");
            assert_eq!(parse_allowed(&status), Some(expected), "{list}");
        }
        assert_eq!(parse_allowed("Name:\tx\n"), None);
    }

    #[test]
    fn memory_is_told_in_kibibytes() {
        let text = "MemFree: 1 kB\nMemTotal:       2048 kB\n";
        assert_eq!(kibibytes(text, "MemTotal:"), Some(2048 * 1024));
        assert_eq!(kibibytes("nothing", "MemTotal:"), None);
    }

    #[test]
    fn this_process_can_be_looked_at_and_one_that_is_not_there_cannot() {
        let own = Process::own();
        assert!(own.cpu_seconds().is_ok() && own.threads().unwrap() >= 1);
        assert!(own.cpus() > 0.0);
        let resident = own.resident_bytes().unwrap();
        assert!(resident > 100_000 && own.memory_limit().unwrap() > resident);
        let error = Process::of(u32::MAX).cpu_seconds().unwrap_err();
        assert!(
            error.to_string().contains("/proc/4294967295/stat"),
            "{error}"
        );
    }
}
