//! CPU time and memory of processes, from `/proc`: the kernel's own accounting.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::Serialize;

/// CPU time of a process since its start, user and system together, in seconds.
#[derive(Debug, Clone)]
pub struct CpuReading {
    /// By thread, from the scheduler, in nanoseconds. Threads that have ended are not included.
    threads: Vec<(u32, u64)>,
    /// Of the whole process, including ended threads, in hundredths of a second.
    whole_s: f64,
}

/// Memory of a process at one moment, in KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Resident: shared pages counted in full.
    pub rss_kib: u64,
    /// Proportional: a page shared by n processes counts 1/n in each.
    pub pss_kib: u64,
}

/// Reads the CPU time of `pid`.
pub fn cpu(pid: u32) -> io::Result<CpuReading> {
    let stat = fs::read_to_string(path(pid, "stat"))?;
    let whole_s = parse_stat(&stat)
        .ok_or_else(|| io::Error::other(format!("unreadable /proc/{pid}/stat")))?;
    let mut threads = Vec::new();
    for entry in fs::read_dir(path(pid, "task"))? {
        let entry = entry?;
        let Some(thread) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A thread may end between listing and reading.
        let Ok(schedstat) = fs::read_to_string(entry.path().join("schedstat")) else {
            continue;
        };
        if let Some(nanoseconds) = schedstat
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
        {
            threads.push((thread, nanoseconds));
        }
    }
    Ok(CpuReading { threads, whole_s })
}

impl CpuReading {
    /// CPU seconds between an earlier reading and this one.
    ///
    /// The scheduler's figure if all threads still exist, else the coarser one that includes ended ones.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> f64 {
        let mut seconds = 0.0;
        for &(thread, before) in &earlier.threads {
            match self.threads.iter().find(|&&(other, _)| other == thread) {
                Some(&(_, now)) => seconds += now.saturating_sub(before) as f64 / 1e9,
                None => return self.whole_s - earlier.whole_s,
            }
        }
        let born = self
            .threads
            .iter()
            .filter(|(thread, _)| !earlier.threads.iter().any(|(other, _)| other == thread));
        seconds + born.map(|&(_, now)| now as f64 / 1e9).sum::<f64>()
    }
}

/// Reads the memory of `pid`.
pub fn memory(pid: u32) -> io::Result<Memory> {
    let rollup = fs::read_to_string(path(pid, "smaps_rollup"))?;
    Ok(parse_rollup(&rollup))
}

fn path(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// User and system time of `/proc/PID/stat` in seconds: fields 14 and 15, in hundredths (USER_HZ, proc(5)).
fn parse_stat(stat: &str) -> Option<f64> {
    // The program's name is in brackets and may contain spaces and brackets itself.
    let after_name = stat.get(stat.rfind(')')? + 2..)?;
    let mut fields = after_name.split(' ').skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((user + system) as f64 / 100.0)
}

fn parse_rollup(rollup: &str) -> Memory {
    let field = |name: &str| {
        rollup
            .lines()
            .find_map(|line| {
                line.strip_prefix(name)?
                    .strip_prefix(':')?
                    .trim()
                    .strip_suffix("kB")?
                    .trim()
                    .parse()
                    .ok()
            })
            .unwrap_or(0)
    };
    Memory {
        rss_kib: field("Rss"),
        pss_kib: field("Pss"),
    }
}

/// CPU time of this thread so far, in seconds.
#[must_use]
pub fn own_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Raises the limit of open files to its maximum and returns it.
#[must_use]
pub fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_program_is_called() {
        let stat =
            "42 (a ) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 125 0 0 20 0 3 0 100 1000000 500";
        assert_eq!(parse_stat(stat), Some(3.75));
        assert_eq!(parse_stat("42 (cut"), None);
    }

    #[test]
    fn a_rollup_is_read_by_name() {
        let rollup =
            "55d0-7ffc ---p 0 [rollup]\nRss:    2048 kB\nPss:    1024 kB\nPss_Dirty: 5 kB\n";
        assert_eq!(
            parse_rollup(rollup),
            Memory {
                rss_kib: 2048,
                pss_kib: 1024
            }
        );
    }

    #[test]
    fn an_ended_thread_makes_the_coarser_figure_count() {
        let before = CpuReading {
            threads: vec![(1, 1_000_000_000), (2, 500_000_000)],
            whole_s: 1.5,
        };
        let same = CpuReading {
            threads: vec![(1, 1_200_000_000), (2, 500_000_000), (3, 100_000_000)],
            whole_s: 1.8,
        };
        assert!((same.since(&before) - 0.3).abs() < 1e-9);
        let ended = CpuReading {
            threads: vec![(1, 1_200_000_000)],
            whole_s: 1.9,
        };
        assert!((ended.since(&before) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id();
        assert!(cpu(pid).unwrap().whole_s >= 0.0);
        assert!(memory(pid).unwrap().rss_kib > 100);
        assert!(own_cpu_s() > 0.0);
    }
}
