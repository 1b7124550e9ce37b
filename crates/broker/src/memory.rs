//! How much memory the process has taken, and how much it may take.

use std::fs;

/// Of what there is, the part a node takes for itself if nobody says otherwise: the rest is the system's and its caches'.
const SHARE: (u64, u64) = (3, 4);

/// Bytes of the process that are in memory; `None` on a system without `/proc`.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * u64::try_from(rustix::param::page_size()).ok()?)
}

/// The bound for a configured value: `None`: a share of what the machine or the control group has; 0: none.
pub(crate) fn limit_bytes(configured: Option<u64>) -> Option<u64> {
    match configured {
        Some(0) => None,
        Some(bytes) => Some(bytes),
        None => {
            let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
            let group = group.and_then(|text| text.trim().parse::<u64>().ok());
            let machine = fs::read_to_string("/proc/meminfo")
                .ok()
                .and_then(|text| total(&text));
            let there_is = group.into_iter().chain(machine).min()?;
            Some(there_is / SHARE.1 * SHARE.0)
        }
    }
}

/// The line `MemTotal: 16000000 kB`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_takes_memory_and_may_take_a_part_of_all() {
        let resident = resident_bytes().expect("this system has /proc");
        assert!(resident > 100_000, "{resident}");
        assert_eq!(limit_bytes(Some(0)), None);
        assert_eq!(limit_bytes(Some(7)), Some(7));
        assert!(limit_bytes(None).is_some_and(|limit| limit > resident));
    }

    #[test]
    fn the_machines_memory_is_read_in_kibibytes() {
        assert_eq!(
            total("MemFree: 1 kB\nMemTotal:       2048 kB\n"),
            None.or(Some(2048 * 1024))
        );
        assert_eq!(total("nothing"), None);
    }
}
