//! Memory that the process uses, and its limit.

use thicket_process::Process;

/// The default limit as a share of the machine's memory: the rest is for the system and its caches.
const SHARE: (u64, u64) = (3, 4);

/// Resident bytes of the process; `None` on a system without `/proc`.
pub(crate) fn resident_bytes() -> Option<u64> {
    Process::own().resident_bytes().ok()
}

/// Memory that was freed and that the allocator keeps: it is resident, and will be used again before the process grows.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    bytes: u64,
    /// When it was asked last.
    resident: u64,
}

impl Freed {
    /// So much more was freed.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// What is in use of this much resident memory. What has been returned to the system since the last call is not kept any more. Some of the rest may
    /// be in use again, which does not show: but no more than was resident before.
    pub(crate) fn in_use(&mut self, resident: u64) -> u64 {
        let returned = self.resident.saturating_sub(resident);
        self.resident = resident;
        self.bytes = self.bytes.saturating_sub(returned).min(resident);
        resident - self.bytes
    }
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

    #[test]
    fn what_was_freed_does_not_count_until_it_is_returned_to_the_system() {
        let mut freed = Freed::default();
        assert_eq!(freed.in_use(400), 400);
        freed.add(300);
        assert_eq!(freed.in_use(400), 100);
        // Half of it is returned.
        assert_eq!(freed.in_use(250), 100);
        // The process grows nevertheless.
        assert_eq!(freed.in_use(500), 350);
        assert_eq!(freed.in_use(200), 200);
        freed.add(1_000);
        assert_eq!(freed.in_use(200), 0);
    }
}
