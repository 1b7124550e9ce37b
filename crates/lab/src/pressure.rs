//! How busy the machine is while something is measured: pressure (PSI), stolen time and load.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::results::Run;

/// What work can wait for, as the kernel names it.
const RESOURCES: [&str; 3] = ["cpu", "io", "memory"];
/// From this share of the time on in which work waited for a processor, in percent, a machine is
/// called busy.
const BUSY_PERCENT: f64 = 20.0;

/// The counters of a machine at one time.
#[derive(Debug, Clone)]
pub struct Machine {
    at: Instant,
    /// Microseconds in which some work waited for each resource; `None` where the kernel does not
    /// count it.
    waited_us: [Option<u64>; 3],
    /// Time of all processors that another machine took, and all time, in ticks.
    ticks: Option<(u64, u64)>,
}

impl Machine {
    /// Reads them.
    #[must_use]
    pub fn look() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            at: Instant::now(),
            waited_us: RESOURCES.map(|it| waited_us(&read(&format!("/proc/pressure/{it}")))),
            ticks: ticks(&read("/proc/stat")),
        }
    }

    /// The figures of the time since `before`: shares in percent of it, and the load of the last
    /// minute.
    #[must_use]
    pub fn since(&self, before: &Self) -> BTreeMap<String, f64> {
        let elapsed_us = (self.at - before.at).as_secs_f64() * 1e6;
        let mut figures = BTreeMap::new();
        let each = self.waited_us.iter().zip(&before.waited_us).zip(RESOURCES);
        for ((now, before), resource) in each {
            if let (Some(now), Some(before), true) = (now, before, elapsed_us > 0.0) {
                let share = 100.0 * now.saturating_sub(*before) as f64 / elapsed_us;
                figures.insert(format!("machine_{resource}_pressure_percent"), share);
            }
        }
        if let (Some((steal, all)), Some((steal_before, all_before))) = (self.ticks, before.ticks)
            && all > all_before
        {
            let share = steal.saturating_sub(steal_before) as f64 / (all - all_before) as f64;
            figures.insert("machine_steal_percent".to_owned(), 100.0 * share);
        }
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        if let Some(load) = load.split(' ').next().and_then(|it| it.parse().ok()) {
            figures.insert("machine_load".to_owned(), load);
        }
        figures
    }
}

/// The total of the line `some`: `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`.
fn waited_us(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split("total=").nth(1)?.trim().parse().ok()
}

/// Stolen and all ticks of the line of all processors.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let all: Vec<u64> = line
        .split_whitespace()
        .filter_map(|it| it.parse().ok())
        .collect();
    // The guests' time is part of the user's.
    Some((*all.get(7)?, all.iter().take(8).sum()))
}

/// How busy the machine was during runs, in words, and whether that is too busy to be called quiet;
/// `None` if nothing was read.
#[must_use]
pub fn in_words(runs: &[Run]) -> Option<(String, bool)> {
    let figure = |name: &str| {
        let all: Vec<f64> = runs
            .iter()
            .filter_map(|run| run.metrics.get(name).copied())
            .collect();
        let most = all.iter().copied().reduce(f64::max)?;
        Some((all.iter().sum::<f64>() / all.len() as f64, most))
    };
    let mut parts = Vec::new();
    let cpu = figure("machine_cpu_pressure_percent");
    for (name, words) in [
        (
            "machine_cpu_pressure_percent",
            "work waited for a processor",
        ),
        ("machine_io_pressure_percent", "for a disk"),
        ("machine_memory_pressure_percent", "for memory"),
    ] {
        if let Some((mean, most)) = figure(name) {
            parts.push(format!(
                "{words} for {mean:.0} % of the time (most in one run: {most:.0} %)"
            ));
        }
    }
    if let Some((mean, most)) = figure("machine_steal_percent") {
        parts.push(format!("{mean:.1} % of it was stolen (most {most:.1} %)"));
    }
    if let Some((mean, most)) = figure("machine_load") {
        parts.push(format!("the load was {mean:.1} (most {most:.1})"));
    }
    let is_busy = cpu.is_some_and(|(mean, _)| mean >= BUSY_PERCENT);
    let what = if is_busy {
        "The machine was busy"
    } else {
        "The machine"
    };
    (!parts.is_empty()).then(|| (format!("{what}: {}.", parts.join(", ")), is_busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_kernels_files() {
        let text = "some avg10=1.00 avg60=0.50 avg300=0.10 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(waited_us(text), Some(123_456));
        assert_eq!(waited_us(""), None);
        let stat = "cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(ticks(stat), Some((35, 1000)));
    }

    #[test]
    fn shares_are_of_the_time_between_two_readings() {
        let before = Machine {
            at: Instant::now(),
            waited_us: [Some(1_000_000), None, Some(0)],
            ticks: Some((10, 1000)),
        };
        let after = Machine {
            at: before.at + std::time::Duration::from_secs(2),
            waited_us: [Some(1_500_000), None, Some(0)],
            ticks: Some((30, 1400)),
        };
        let figures = after.since(&before);
        assert_eq!(figures["machine_cpu_pressure_percent"], 25.0);
        assert_eq!(figures["machine_memory_pressure_percent"], 0.0);
        assert_eq!(figures["machine_steal_percent"], 5.0);
        assert!(!figures.contains_key("machine_io_pressure_percent"));
    }

    #[test]
    fn a_machine_whose_work_waits_is_called_busy() {
        let (scenario, cells) =
            crate::scenario::Scenario::parse(include_str!("../../../scenarios/faults-small.toml"))
                .unwrap();
        let with = |percent: f64| {
            let mut run = Run::begin(&cells[0], &scenario.systems[0], 1);
            let name = "machine_cpu_pressure_percent".to_owned();
            run.metrics.insert(name, percent);
            run
        };
        let (words, is_busy) = in_words(&[with(10.0), with(60.0)]).unwrap();
        assert!(
            is_busy && words.contains("for 35 % of the time (most in one run: 60 %)"),
            "{words}"
        );
        assert!(!in_words(&[with(3.0)]).unwrap().1);
        assert_eq!(in_words(&[]), None);
    }
}
