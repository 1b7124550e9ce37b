//! The load of this node, measured once a second: it is reported to other nodes, and elections use it (L and M of Overlays 4.2.1).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use thicket_node::{NodeLoad, Rates};
use thicket_process::Process;

use crate::api::TrafficCounts;

/// Samples in the mean of the CPU: 5 s (Dispatcher III).
const SAMPLES: usize = 5;
/// Time over which free resources are smoothed for elections: roots must not follow short fluctuations.
const DAMPED: Duration = Duration::from_secs(30);

/// What is remembered between measurements.
#[derive(Debug)]
pub(crate) struct Meter {
    process: Process,
    /// Time of the last measurement, with CPU seconds and counters then.
    last: Option<(Instant, f64, TrafficCounts)>,
    /// CPU of the last seconds, as shares of what the process may use.
    cpu: VecDeque<f64>,
    /// The used share of the CPU, smoothed.
    damped: f64,
}

/// The result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measured {
    pub(crate) load: NodeLoad,
    /// Free CPU and memory in percent, smoothed.
    pub(crate) free: (u8, u8),
}

/// Values that the caller provides.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Given {
    pub(crate) memory_limit: Option<u64>,
    pub(crate) is_full: bool,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            process: Process::own(),
            last: None,
            cpu: VecDeque::new(),
            damped: 0.0,
        }
    }

    /// Measures again. `None`: the first measurement, or too soon after the last one for rates.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        traffic: &TrafficCounts,
        given: Given,
    ) -> Option<Measured> {
        let used = self.process.cpu_seconds().unwrap_or(0.0);
        let (then, used_then, before) = self.last.replace((now, used, *traffic))?;
        let passed = now.duration_since(then);
        if passed < Duration::from_millis(100) {
            self.last = Some((then, used_then, before));
            return None;
        }
        let cpu = self.note_cpu(passed, used - used_then);
        let memory = self.process.resident_bytes().ok();
        let memory_limit = given.memory_limit.or_else(|| self.process.memory_limit());
        let (external, internal) = rates(passed, &before, traffic);
        let load = NodeLoad {
            cpu_permille: Some((cpu * 1000.0).round() as u16),
            external,
            internal,
            connections: traffic.connections,
            memory_bytes: memory,
            memory_limit_bytes: memory_limit,
            is_draining: false,
            is_starting: false,
            is_full: given.is_full,
        };
        let free_cpu = (1.0 - self.damped) * 100.0;
        Some(Measured {
            load,
            free: (free_cpu as u8, free_memory(memory, memory_limit)),
        })
    }

    /// The mean of the last seconds, at most 1: a quota may be exceeded for a moment.
    fn note_cpu(&mut self, passed: Duration, used: f64) -> f64 {
        let share = used / passed.as_secs_f64() / self.process.cpus();
        let share = share.clamp(0.0, 1.0);
        if self.cpu.len() == SAMPLES {
            self.cpu.pop_front();
        }
        self.cpu.push_back(share);
        let weight = (passed.as_secs_f64() / DAMPED.as_secs_f64()).min(1.0);
        self.damped += (share - self.damped) * weight;
        self.cpu.iter().sum::<f64>() / self.cpu.len() as f64
    }
}

fn free_memory(used: Option<u64>, limit: Option<u64>) -> u8 {
    match (used, limit) {
        (Some(used), Some(limit)) if limit > 0 => {
            (limit.saturating_sub(used).saturating_mul(100) / limit) as u8
        }
        // An unknown limit counts as free.
        _ => 100,
    }
}

fn rates(passed: Duration, before: &TrafficCounts, now: &TrafficCounts) -> (Rates, Rates) {
    let a_second = |before: u64, now: u64| {
        let count = now.saturating_sub(before) as f64;
        (count / passed.as_secs_f64()).round() as u64
    };
    let external = Rates {
        in_messages: a_second(before.external_in_messages, now.external_in_messages),
        in_bytes: a_second(before.external_in_bytes, now.external_in_bytes),
        out_messages: a_second(before.external_out_messages, now.external_out_messages),
        out_bytes: a_second(before.external_out_bytes, now.external_out_bytes),
    };
    let internal = Rates {
        in_messages: a_second(before.internal_in_messages, now.internal_in_messages),
        in_bytes: a_second(before.internal_in_bytes, now.internal_in_bytes),
        out_messages: a_second(before.internal_out_messages, now.internal_out_messages),
        out_bytes: a_second(before.internal_out_bytes, now.internal_out_bytes),
    };
    (external, internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(external_in: u64, internal_out: u64) -> TrafficCounts {
        TrafficCounts {
            external_in_messages: external_in,
            internal_out_bytes: internal_out,
            connections: 3,
            ..TrafficCounts::default()
        }
    }

    #[test]
    fn counts_become_rates_from_the_second_look_on() {
        let start = Instant::now();
        let mut meter = Meter::new();
        let given = Given {
            memory_limit: Some(1 << 40),
            is_full: true,
        };
        assert_eq!(meter.look(start, &counted(100, 0), given), None);
        let soon = start + Duration::from_millis(10);
        assert_eq!(meter.look(soon, &counted(101, 0), given), None);
        let later = start + Duration::from_millis(2000);
        let measured = meter
            .look(later, &counted(300, 5000), given)
            .expect("rates");
        let load = measured.load;
        assert_eq!(
            (load.external.in_messages, load.internal.out_bytes),
            (100, 2500)
        );
        assert_eq!((load.connections, load.is_full), (3, true));
        assert!(load.cpu_permille.is_some_and(|cpu| cpu <= 1000));
        assert_eq!(measured.free.1, 99);
    }

    #[test]
    fn cpu_is_a_mean_of_five_and_what_is_free_follows_slowly() {
        let mut meter = Meter::new();
        let second = Duration::from_secs(1);
        let all = meter.process.cpus();
        for _ in 0..9 {
            meter.note_cpu(second, 0.0);
        }
        assert!((meter.note_cpu(second, all) - 0.2).abs() < 1e-9);
        assert!(meter.damped < 0.05, "{}", meter.damped);
        for _ in 0..120 {
            meter.note_cpu(second, all);
        }
        assert!(meter.damped > 0.9, "{}", meter.damped);
        assert_eq!(free_memory(Some(75), Some(100)), 25);
        assert_eq!(
            (free_memory(None, Some(1)), free_memory(Some(1), None)),
            (100, 100)
        );
    }
}
