//! Instructions for each message, counted by Callgrind: a figure with hardly any noise, stored in a file and guarded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::compare::{Case, CaseKind};
use crate::generator::{Generator, Load, Scenario, Span, Until, Watch};
use crate::target::Target;

/// Length of the short run, and the difference to the long one, in messages for each stream.
const SHORT_RUN: u64 = 100;
const LONG_RUN: u64 = 500;
/// Number of measurements, of which the median counts: on a busy machine a read may have fewer messages, in either run.
const MEASUREMENTS: usize = 3;

/// Instructions for each delivered message, by broker and case such as `node W1`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Sorted by name.
    pub instructions_per_message: BTreeMap<String, f64>,
}

/// The comparison of a measurement with the baseline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// There is no baseline for it.
    New,
    /// Within the limit; the growth as a share, negative for less.
    Within(f64),
    /// Above the limit; the growth as a share.
    Grown(f64),
}

impl Baseline {
    /// Reads a baseline; a missing file is an empty one.
    pub fn load(path: &Path) -> Result<Self, BenchError> {
        match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| {
                BenchError::Setting(format!("{} is no baseline: {error}", path.display()))
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(BenchError::system(path.display().to_string())(error)),
        }
    }

    /// Writes the file.
    pub fn save(&self, path: &Path) -> Result<(), BenchError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::Setting(error.to_string()))?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(BenchError::system(folder.display().to_string()))?;
        }
        fs::write(path, text + "\n").map_err(BenchError::system(path.display().to_string()))
    }

    /// Compares a figure; growth above `bound` (a share) is too much.
    #[must_use]
    pub fn judge(&self, name: &str, instructions: f64, bound: f64) -> Verdict {
        match self.instructions_per_message.get(name) {
            None => Verdict::New,
            Some(&known) => {
                let growth = instructions / known - 1.0;
                if growth > bound {
                    Verdict::Grown(growth)
                } else {
                    Verdict::Within(growth)
                }
            }
        }
    }
}

/// Instructions of `target` for each delivered message of `case`.
///
/// Runs two processes, one longer than the other, in volleys, so that every read has the same messages: the difference is due to the messages, while
/// start and end cancel out. The result is the median of three such measurements.
pub fn measure(target: &Target, case: &Case) -> Result<f64, BenchError> {
    let all = (0..MEASUREMENTS).map(|_| measure_once(target, case));
    let mut all = all.collect::<Result<Vec<f64>, BenchError>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all[MEASUREMENTS / 2])
}

fn measure_once(target: &Target, case: &Case) -> Result<f64, BenchError> {
    let (short, few) = run(target, case, SHORT_RUN)?;
    let (long, many) = run(target, case, LONG_RUN)?;
    Ok((long as f64 - short as f64) / (many - few) as f64)
}

/// Runs under Callgrind; returns instructions and deliveries.
fn run(target: &Target, case: &Case, messages_per_stream: u64) -> Result<(u64, u64), BenchError> {
    let out = std::env::temp_dir().join(format!(
        "thicket-callgrind-{}-{messages_per_stream}",
        std::process::id()
    ));
    let mut target = target.clone();
    target.wrapper = ["valgrind", "--tool=callgrind", "--quiet"]
        .map(str::to_owned)
        .into_iter()
        .chain([format!("--callgrind-out-file={}", out.display())])
        .collect();
    let running = target.start()?;
    let CaseKind::Load {
        workload,
        version,
        qos,
        payload_len,
        load: Load::Closed { window },
    } = &case.kind
    else {
        return Err(BenchError::Setting(format!(
            "{} is no closed loop",
            case.name
        )));
    };
    let mut scenario = Scenario::new(vec![running.node()], workload.clone());
    (scenario.version, scenario.qos, scenario.payload_len) = (*version, *qos, *payload_len);
    "bench".clone_into(&mut scenario.prefix);
    let streams = scenario.workload.plan("x", scenario.seed)?.topics.len() as u64;
    let mut generator = Generator::connect(scenario)?;
    let span = Span {
        warm_up: Duration::ZERO,
        until: Until::Published(streams * messages_per_stream),
        drain: Duration::from_secs(60),
    };
    let load = Load::Volleys { window: *window };
    let outcome = generator.run(load, span, &Watch::default(), &mut |_| {})?;
    drop(generator);
    running.stop()?;
    if !outcome.counts.is_clean() {
        return Err(BenchError::Setting(format!(
            "{} did not deliver cleanly under Callgrind: {:?}",
            target.name, outcome.counts
        )));
    }
    let instructions = read_total(&out);
    let _ = fs::remove_file(&out);
    Ok((instructions?, outcome.counts.delivered))
}

fn read_total(path: &PathBuf) -> Result<u64, BenchError> {
    let text = fs::read_to_string(path).map_err(BenchError::system(path.display().to_string()))?;
    parse_total(&text)
        .ok_or_else(|| BenchError::Setting(format!("{} holds no total", path.display())))
}

/// The total of a Callgrind file: the larger of its lines `summary:` and `totals:` (a file may have several parts).
fn parse_total(text: &str) -> Option<u64> {
    let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    text.lines()
        .filter(|line| line.starts_with("summary:") || line.starts_with("totals:"))
        .filter_map(number)
        .max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_either_line() {
        for (text, expected) in [
            ("events: Ir\nsummary: 1234\n", Some(1234)),
            ("fn=x\ntotals: 77 0\n", Some(77)),
            ("summary: 5\ntotals: 9\n", Some(9)),
            ("events: Ir\n", None),
        ] {
            assert_eq!(parse_total(text), expected, "{text}");
        }
    }

    #[test]
    fn growth_above_the_bound_is_refused() {
        let mut baseline = Baseline::default();
        assert_eq!(baseline.judge("node W1", 100.0, 0.05), Verdict::New);
        baseline
            .instructions_per_message
            .insert("node W1".to_owned(), 100.0);
        assert!(matches!(
            baseline.judge("node W1", 104.9, 0.05),
            Verdict::Within(_)
        ));
        assert!(
            matches!(baseline.judge("node W1", 80.0, 0.05), Verdict::Within(growth) if growth < -0.19)
        );
        assert!(
            matches!(baseline.judge("node W1", 105.1, 0.05), Verdict::Grown(growth) if growth > 0.05)
        );
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let path =
            std::env::temp_dir().join(format!("thicket-baseline-{}.json", std::process::id()));
        let mut baseline = Baseline::default();
        assert_eq!(Baseline::load(&path).unwrap(), baseline);
        baseline
            .instructions_per_message
            .insert("relay W1".to_owned(), 12.5);
        baseline.save(&path).unwrap();
        assert_eq!(Baseline::load(&path).unwrap(), baseline);
        fs::write(&path, "{").unwrap();
        assert!(
            Baseline::load(&path)
                .unwrap_err()
                .to_string()
                .contains("is no baseline")
        );
        fs::remove_file(&path).unwrap();
    }
}
