//! Instructions for each message, counted by Callgrind: a figure with hardly any noise, stored in a file and guarded.
//!
//! Only the instructions of the program itself count. The C library chooses its functions by the processor and differs
//! between systems, so its share would make the figure one of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::compare::{Case, CaseKind};
use crate::generator::{Generator, Load, Scenario, Span, Until, Watch};
use crate::target::Target;

/// Length of the short run, and the difference to the long one, in messages for each stream.
const SHORT_RUN: u64 = 100;
const LONG_RUN: u64 = 500;
/// How often each run is repeated. The lowest count is the figure: a busy machine only adds to it, as reads then have
/// fewer messages.
const REPEATS: usize = 3;

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
/// start and end cancel out. Of each, the lowest count of three runs is used.
pub fn measure(target: &Target, case: &Case) -> Result<f64, BenchError> {
    let (short, few) = lowest(target, case, SHORT_RUN)?;
    let (long, many) = lowest(target, case, LONG_RUN)?;
    Ok((long as f64 - short as f64) / (many - few) as f64)
}

/// Instructions and deliveries of the run with the fewest instructions.
fn lowest(target: &Target, case: &Case, messages: u64) -> Result<(u64, u64), BenchError> {
    let mut lowest = run(target, case, messages)?;
    for _ in 1..REPEATS {
        lowest = lowest.min(run(target, case, messages)?);
    }
    Ok(lowest)
}

/// Runs under Callgrind; returns instructions and deliveries.
fn run(target: &Target, case: &Case, messages_per_stream: u64) -> Result<(u64, u64), BenchError> {
    let out = std::env::temp_dir().join(format!(
        "thicket-callgrind-{}-{messages_per_stream}",
        std::process::id()
    ));
    let mut target = target.clone();
    target.wrapper = callgrind(&out);
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
    Ok((
        instructions_of(&out, &target.program)?,
        outcome.counts.delivered,
    ))
}

/// The words before a program that Callgrind counts, with its profile in this file.
pub(crate) fn callgrind(profile: &Path) -> Vec<String> {
    // Callgrind writes its file as the process that it measures.
    let words = [
        "env",
        "THICKET_SANDBOX=off",
        "valgrind",
        "--tool=callgrind",
        "--quiet",
    ];
    let words = words.map(str::to_owned);
    let out = format!("--callgrind-out-file={}", profile.display());
    words.into_iter().chain([out]).collect()
}

/// The instructions of the program itself in a profile, which is removed.
pub(crate) fn instructions_of(path: &Path, program: &Path) -> Result<u64, BenchError> {
    let text = fs::read_to_string(path).map_err(BenchError::system(path.display().to_string()))?;
    let _ = fs::remove_file(path);
    own_instructions(&text, &program.to_string_lossy()).ok_or_else(|| {
        let (path, program) = (path.display(), program.display());
        BenchError::Setting(format!("{path} counts no instructions of {program}"))
    })
}

/// Instructions of all functions of one object file, without those that they call in others; `None` if the profile does
/// not have that object. The lines are those of the format of Callgrind's profiles: `ob=(NUMBER) PATH` begins the
/// functions of an object, later without the path; a line that begins with a position ends with its count; the line after
/// `calls=` counts what was called, which is counted where it stands.
fn own_instructions(profile: &str, program: &str) -> Option<u64> {
    let mut number_of_program = None;
    let (mut is_own, mut is_call) = (false, false);
    let mut sum = 0;
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=").or(line.strip_prefix("cob=")) {
            let (number, path) = object.split_once(' ').unwrap_or((object, ""));
            if path == program {
                number_of_program = Some(number);
            }
            if line.starts_with("ob=") {
                is_own = number_of_program == Some(number);
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            if is_own && !is_call {
                sum += line.split_whitespace().nth(1)?.parse::<u64>().ok()?;
            }
            is_call = false;
        }
    }
    number_of_program.map(|_| sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_of_other_objects_and_of_calls_are_not_counted() {
        let profile = "events: Ir\n\
            ob=(1) /lib/libc.so.6\nfl=(1) ???\nfn=(1) memcpy\n0 1000\n\
            ob=(2) /bin/thicket\nfn=(2) main\n10 7\n+2 30\ncob=(1)\ncfn=(1)\ncalls=5 0\n* 1000\n-1 200\n\
            ob=(1)\nfn=(3) send\n0 50\nob=(2)\nfn=(4) rest\n5 2000\ntotals: 3287\n";
        assert_eq!(own_instructions(profile, "/bin/thicket"), Some(2237));
        assert_eq!(own_instructions(profile, "/lib/libc.so.6"), Some(1050));
        assert_eq!(own_instructions(profile, "/bin/other"), None);
        // The path stands where the object is first named, and that may be as the one of a called function.
        let called = "ob=(1) /lib/a\nfn=(1) x\ncob=(2) /bin/thicket\ncfn=(2) y\ncalls=1 0\n5 9\nob=(2)\nfn=(2)\n0 4\n";
        assert_eq!(own_instructions(called, "/bin/thicket"), Some(4));
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
