//! The comparison: the same workloads against Thicket, the relay and other brokers, in turn.
//!
//! Figures of one machine are not comparable with those of another, and those of one hour hardly with the next. So every repeat goes through all
//! brokers before the next starts, each in a fresh process, and the report has ratios within a repeat: their median with the smallest and the
//! largest.

mod tell;
mod workloads;

use std::time::{Duration, Instant};

use serde::Serialize;

pub use tell::comparison_report;
pub use workloads::{Case, CaseKind, case, case_names};

use crate::BenchError;
use crate::generator::{Generator, Scenario, Span, Until, Watch};
use crate::idle::{self, IdleCost};
use crate::metrics::{Metrics, REACHABLE};
use crate::outcome::Outcome;
use crate::target::{Running, Target};
use crate::workload::{Attachment, Workload};

/// Longest wait for two nodes to link.
const LINKED_WITHIN: Duration = Duration::from_secs(30);

/// What to compare and how.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Workloads.
    pub cases: Vec<Case>,
    /// Brokers in the order of each repeat.
    pub targets: Vec<Target>,
    /// Number of Thicket brokers, which come first: ratios are relative to all others.
    pub ours: usize,
    /// Names of requested brokers that are not installed.
    pub missing: Vec<String>,
    /// Number of repeats.
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
    /// The result.
    pub result: SampleResult,
    /// Messages in a batch on the link, on average; `None`: there was no link.
    pub messages_a_batch: Option<f64>,
}

/// The result of a sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampleResult {
    /// A run with messages.
    Run(Box<Outcome>),
    /// Idle connections.
    Idle(IdleCost),
    /// The broker failed: the error in words.
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
            for (index, target) in comparison.targets.iter().enumerate() {
                let is_linked = case.on_one_node.is_some();
                if is_linked && index >= comparison.ours {
                    continue;
                }
                let measured = if is_linked {
                    measure_linked(comparison, case, target)
                } else {
                    measure(comparison, case, target).map(|result| (result, None))
                };
                let (result, messages_a_batch) = match measured {
                    Ok(measured) => measured,
                    Err(error) => (SampleResult::Failed(error.to_string()), None),
                };
                let sample = Sample {
                    case: case.name.to_owned(),
                    target: target.name.clone(),
                    repeat,
                    result,
                    messages_a_batch,
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
            let mut generator = Generator::connect(scenario(case, &running))?;
            let span = span(comparison);
            SampleResult::Run(Box::new(generator.run(*load, span, &watch, &mut |_| {})?))
        }
    };
    running.stop()?;
    Ok(result)
}

fn span(comparison: &Comparison) -> Span {
    Span {
        warm_up: comparison.warm_up,
        until: Until::Elapsed(comparison.measured),
        drain: Duration::from_secs(2),
    }
}

/// Two linked nodes, publishers at the first and subscribers at the second. The CPU is that of both; also returns the messages in a batch on the
/// link.
fn measure_linked(
    comparison: &Comparison,
    case: &Case,
    target: &Target,
) -> Result<(SampleResult, Option<f64>), BenchError> {
    let CaseKind::Load { load, .. } = &case.kind else {
        return Err(BenchError::Setting(format!("{} has no load", case.name)));
    };
    let first = target.start()?;
    let mut other = target.clone();
    other.arguments.push(format!("--seed={}", first.address));
    let second = other.start()?;
    await_link(&[&first, &second])?;
    let mut scenario = scenario(case, &first);
    scenario.nodes.push(second.node());
    scenario.attachment = Attachment::Locality0;
    let watch = Watch {
        pids: vec![first.pid(), second.pid()],
    };
    let mut generator = Generator::connect(scenario)?;
    let outcome = generator.run(*load, span(comparison), &watch, &mut |_| {})?;
    let sent = Metrics::fetch(first.other_address).ok();
    let total = |name| Some(sent.as_ref()?.sum(name)? as f64);
    let batches = total("thicket_link_batches_total").filter(|&batches| batches > 0.0);
    let messages = total("thicket_link_messages_total");
    second.stop()?;
    first.stop()?;
    let a_batch = messages
        .zip(batches)
        .map(|(messages, batches)| messages / batches);
    Ok((SampleResult::Run(Box::new(outcome)), a_batch))
}

fn await_link(nodes: &[&Running]) -> Result<(), BenchError> {
    let began = Instant::now();
    let sees_all = |node: &&Running| {
        let page = Metrics::fetch(node.other_address).ok();
        page.and_then(|page| page.sum(REACHABLE)) >= Some(nodes.len() as u64)
    };
    while !nodes.iter().all(sees_all) {
        if began.elapsed() > LINKED_WITHIN {
            return Err(BenchError::Timeout {
                what: "linking two nodes".to_owned(),
                seconds: LINKED_WITHIN.as_secs(),
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
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
    // The same topics for every broker and process number.
    "bench".clone_into(&mut scenario.prefix);
    scenario
}
