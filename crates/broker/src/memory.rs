//! Memory that the process uses, and its limit.

use thicket_process::Process;

/// The default limit as a share of the machine's memory: the rest is for the system and its caches.
const SHARE: (u64, u64) = (3, 4);

/// Resident bytes of the process; `None` on a system without `/proc`.
pub(crate) fn resident_bytes() -> Option<u64> {
    Process::own().resident_bytes().ok()
}

/// The limit for a configured value: `None`: a share of the memory of the machine or the control group; 0: no limit.
pub(crate) fn limit_bytes(configured: Option<u64>) -> Option<u64> {
    match configured {
        Some(0) => None,
        Some(bytes) => Some(bytes),
        None => {
            let there_is = Process::own().memory_limit()?;
            Some(there_is / SHARE.1 * SHARE.0)
        }
    }
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
}
