//! How much memory the process has taken, and how much it may take.

use std::fs;

/// Of what there is, the part a node takes for itself if nobody says otherwise: the rest is the system's and its caches'.
const SHARE: (u64, u64) = (3, 4);

/// Bytes of the process that are in memory; `None` on a system without `/proc`.
pub(crate) fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    kibibytes(&text, "VmRSS:")
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
                .and_then(|text| kibibytes(&text, "MemTotal:"));
            let there_is = group.into_iter().chain(machine).min()?;
            Some(there_is / SHARE.1 * SHARE.0)
        }
    }
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
            kibibytes("MemFree: 1 kB\nMemTotal:       2048 kB\n", "MemTotal:"),
            None.or(Some(2048 * 1024))
        );
        assert_eq!(kibibytes("nothing", "MemTotal:"), None);
    }
}
