//! What of this machine is free: inputs of elections (L and M of Overlays 4.2.1).

use thicket_session::time::Instant;

/// Time between two looks.
const INTERVAL_MS: u64 = 2_000;

/// Free CPU and memory, smoothed over some looks. Where the system does not say, everything counts as free.
#[derive(Debug)]
pub(crate) struct Resources {
    next: Instant,
    /// Idle and all ticks at the last look.
    ticks: Option<(u64, u64)>,
    /// Thousandths of the CPU that are free.
    free_cpu: u64,
}

impl Resources {
    pub(crate) fn new() -> Self {
        Self {
            next: Instant::default(),
            ticks: None,
            free_cpu: 1000,
        }
    }

    /// CPU and memory that are free, in percent, if it is time to look again.
    pub(crate) fn look(&mut self, now: Instant) -> Option<(u8, u8)> {
        if now < self.next {
            return None;
        }
        self.next = Instant::from_millis(now.as_millis() + INTERVAL_MS);
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        if let Some((idle, all)) = cpu_ticks(&text("/proc/stat"))
            && let Some((idle_before, all_before)) = self.ticks.replace((idle, all))
        {
            let passed = all.saturating_sub(all_before).max(1);
            let free = idle.saturating_sub(idle_before).min(passed) * 1000 / passed;
            self.free_cpu = (self.free_cpu * 3 + free) / 4;
        }
        let free_memory = free_memory(&text("/proc/meminfo")).unwrap_or(100);
        Some(((self.free_cpu / 10).min(100) as u8, free_memory))
    }
}

/// Idle ticks and all ticks of the first line of `/proc/stat`.
fn cpu_ticks(text: &str) -> Option<(u64, u64)> {
    let numbers: Vec<u64> = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|number| number.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal: what comes after counts in one of these already.
    let all = numbers.iter().take(8).sum();
    Some((numbers.get(3)? + numbers.get(4).copied().unwrap_or(0), all))
}

/// Available memory in percent of all, from `/proc/meminfo`.
fn free_memory(text: &str) -> Option<u8> {
    let kilobytes = |key: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let (available, total) = (kilobytes("MemAvailable:")?, kilobytes("MemTotal:")?);
    u8::try_from(available.saturating_mul(100).checked_div(total)?.min(100)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_read_and_what_it_does_not_say_is_free() {
        let stat = "cpu  100 0 50 800 50 0 0 0 7 0\ncpu0 1 2 3 4\n";
        assert_eq!(cpu_ticks(stat), Some((850, 1000)));
        assert_eq!(cpu_ticks("intr 5"), None);
        let memory = "MemTotal:       8000 kB\nMemFree:  100 kB\nMemAvailable:   2000 kB\n";
        assert_eq!(free_memory(memory), Some(25));
        for text in [
            "",
            "MemTotal: 0 kB\nMemAvailable: 0 kB",
            "MemTotal: many kB",
        ] {
            assert_eq!(free_memory(text), None, "{text}");
        }
        let mut resources = Resources::new();
        let (cpu, memory) = resources
            .look(Instant::from_millis(0))
            .expect("the first look");
        assert!(cpu <= 100 && memory <= 100);
        assert_eq!(resources.look(Instant::from_millis(1)), None);
        assert!(resources.look(Instant::from_millis(2_000)).is_some());
    }
}
