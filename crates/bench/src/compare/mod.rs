//! The comparison: the same workloads against our node, the relay and other brokers, in turn.
//!
//! Figures of one machine say little on another, and those of one hour little about the next. So every repeat goes
//! through all brokers before the next begins, each in a fresh process, and what is told are ratios within a repeat:
//! their median with the smallest and the largest.

mod tell;
mod workloads;

use std::time::Duration;

use serde::Serialize;

pub use tell::comparison_report;
pub use workloads::{Case, CaseKind, case, case_names};

use crate::BenchError;
use crate::generator::{Generator, Scenario, Span, Until, Watch};
use crate::idle::{self, IdleCost};
use crate::outcome::Outcome;
use crate::target::{Running, Target};
use crate::workload::Workload;

/// What to compare and how.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Workloads.
    pub cases: Vec<Case>,
    /// Brokers in the order of each repeat.
    pub targets: Vec<Target>,
    /// How many of them, the first ones, are ours: ratios are taken to all others.
    pub ours: usize,
    /// Names of brokers that were asked for and are not here.
    pub missing: Vec<String>,
    /// Rounds through all of it.
    pub repeats: usize,
    /// Measured interval of each run.
    pub measured: Duration,
    /// Load before it.
    pub warm_up: Duration,
}

/// One measurement of one broker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// Workload.
    pub case: String,
    /// Broker.
    pub target: String,
    /// Repeat, from 1.
    pub repeat: usize,
    /// What was seen.
    pub result: SampleResult,
}

/// What a sample holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleResult {
    /// A run with messages.
    Run(Box<Outcome>),
    /// Idle connections.
    Idle(IdleCost),
    /// The broker could not do it: the error in words.
    Failed(String),
}

impl Sample {
    /// CPU microseconds of the broker for each delivered message, or memory of an idle connection in KiB: the figure
    /// brokers are compared by. `None` if there is none.
    #[must_use]
    pub fn figure(&self) -> Option<f64> {
        match &self.result {
            SampleResult::Run(outcome) => outcome
                .broker
                .map(|broker| broker.cpu.us_per_delivered)
                .filter(|&us| us > 0.0),
            SampleResult::Idle(cost) => cost.bytes_each.map(|bytes| bytes / 1024.0),
            SampleResult::Failed(_) => None,
        }
    }
}

/// Runs everything. `progress` is called after each sample.
pub fn compare(comparison: &Comparison, progress: &mut dyn FnMut(&Sample)) -> Vec<Sample> {
    let mut samples = Vec::new();
    for repeat in 1..=comparison.repeats {
        for case in &comparison.cases {
            for target in &comparison.targets {
                let result = match measure(comparison, case, target) {
                    Ok(result) => result,
                    Err(error) => SampleResult::Failed(error.to_string()),
                };
                let sample = Sample {
                    case: case.name.to_owned(),
                    target: target.name.clone(),
                    repeat,
                    result,
                };
                progress(&sample);
                samples.push(sample);
            }
        }
    }
    samples
}

fn measure(
    comparison: &Comparison,
    case: &Case,
    target: &Target,
) -> Result<SampleResult, BenchError> {
    let running = target.start()?;
    let watch = Watch {
        pids: vec![running.pid()],
    };
    let result = match &case.kind {
        CaseKind::Idle { connections } => {
            let scenario = Scenario::new(
                vec![running.node()],
                Workload::Idle {
                    clients: *connections,
                },
            );
            SampleResult::Idle(idle::measure(
                scenario,
                *connections,
                Duration::from_secs(1),
                &watch,
            )?)
        }
        CaseKind::Load { load, .. } => {
            let span = Span {
                warm_up: comparison.warm_up,
                until: Until::Elapsed(comparison.measured),
                drain: Duration::from_secs(2),
            };
            let mut generator = Generator::connect(scenario(case, &running))?;
            SampleResult::Run(Box::new(generator.run(*load, span, &watch, &mut |_| {})?))
        }
    };
    running.stop()?;
    Ok(result)
}

fn scenario(case: &Case, running: &Running) -> Scenario {
    let mut scenario = Scenario::new(vec![running.node()], Workload::Idle { clients: 1 });
    if let CaseKind::Load {
        workload,
        version,
        qos,
        payload_len,
        ..
    } = &case.kind
    {
        scenario.workload = workload.clone();
        scenario.version = *version;
        scenario.qos = *qos;
        scenario.payload_len = *payload_len;
    }
    // The same topics for every broker and every process number.
    "bench".clone_into(&mut scenario.prefix);
    scenario
}
